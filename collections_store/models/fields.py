"""`F(Person)`: the fields of a model, checked when a filter is written.

`F(Person).address.city == "Berlin"` is `{"address.city": "Berlin"}`. A field that the model lacks, or a value that its
type cannot equal, is an error at once.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, is_typeddict, overload

from ..codec import spell
from ..errors import InvalidFilter, UnknownField, shortened
from ..expressions.path import Path, is_index
from ..query.filter import ComparableField, Filter
from .codec import Library, adapter_of
from .declared import MAX_CACHED, DeclaredField, alternatives, declared_fields, name_of

_ARRAYS = list, tuple, set, frozenset, abc.Sequence, abc.Set, abc.Collection, abc.Iterable
_OBJECTS = dict, abc.Mapping, abc.MutableMapping


class ModelField(ComparableField):
    """A field of a model. A field with the name of a method is an item: `F(Person)["exists"]`."""

    __slots__ = ("_adapter", "_inside", "_keys", "_model", "_type")

    def __init__(
        self, path: Path, type: Any, model: str, adapter: Callable[[Any], Library]
    ) -> None:
        super().__init__(path)
        self._keys = path.keys
        self._type, self._model, self._adapter = type, model, adapter
        self._inside: dict[str, ModelField] = {}

    def __getattr__(self, name: str) -> ModelField:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str | int) -> ModelField:
        name = str(name)
        if (found := self._inside.get(name)) is None:
            field = self._declared(name)
            path = Path(*self._keys, field.key)
            found = ModelField(path, field.type, self._model, self._adapter)
            self._inside[name] = found
        return found

    def contains(self, value: Any) -> Filter:
        """An array with an element equal to `value`. Raise `InvalidFilter` for a field that is declared as `str`."""
        kinds = list(alternatives(self._type))
        if str in kinds and all(each in {str, type(None)} for each in kinds):
            problem = (
                f"is a string in {self._model}: write has({shortened(value)}) for a part of the string, "
                "or == for the whole string"
            )
            raise InvalidFilter(str(self._path), problem)
        return super().contains(value)

    def _declared(self, name: str) -> DeclaredField:
        """Return a field, whose type is a union if several models of a union declare the field; raise `UnknownField`."""
        known: list[str] = []
        found: list[DeclaredField] = []
        for each in _with_elements(self._type):
            origin = get_origin(each) or each
            if (fields := declared_fields(each)) is not None:
                known += fields
                found += [fields[name]] if name in fields else []
            elif each is Any or origin in _OBJECTS:
                found.append(DeclaredField(name, (*get_args(each), Any, Any)[1]))
            elif origin in _ARRAYS and is_index(name):
                found.append(DeclaredField(name, _either(_elements(each) or [Any])))
        path = str(Path(*self._keys, name))
        if len({each.key for each in found}) > 1:
            keys = " and ".join(sorted({repr(each.key) for each in found}))
            raise InvalidFilter(path, f"{self._model} stores it under {keys}: use F(path)")
        if found:
            return DeclaredField(found[0].key, _either([each.type for each in found]))
        near = get_close_matches(name, known, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
        raise UnknownField(path, f"{self._model} has no such field: {advice}")

    def _value(self, value: Any) -> Any:
        """Return a value in the model's stored form; raise `InvalidFilter` if the field cannot equal the value."""
        if value is None:
            return None
        for each in _with_elements(self._type):
            try:
                return _stored(each, value, self._adapter)
            except _OfAnotherType:
                continue
        wanted = f"must be of type {name_of(self._type)}, as in {self._model}"
        raise InvalidFilter(str(self._path), f"{wanted}, got {shortened(value)}")


class _OfAnotherType(Exception):
    """A value is not of a type."""


def _stored(type_: Any, value: Any, adapter: Callable[[Any], Library]) -> Any:
    """Return a value of a type as JSON; raise `_OfAnotherType`."""
    if type_ is Any or isinstance(type_, TypeVar):
        return value
    if get_origin(type_) is Literal:
        if value in get_args(type_):
            return value
    elif not isinstance(type_, type) or get_origin(type_) or declared_fields(type_) is not None:
        fits = not isinstance(type_, type) or is_typeddict(type_) or isinstance(value, type_ | dict)
        with suppress(Exception):  # each library has errors of its own
            library = adapter(type_)
            json = library.to_json(library.from_python(value)) if fits else ...
            library.from_text(spell(json))
            return json
    elif type_ in {int, float}:  # MongoDB compares them with each other
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    elif isinstance(value, type_) and isinstance(value, datetime) == issubclass(type_, datetime):
        return value if type_ in {str, bool} else adapter(type_).to_json(value)
    raise _OfAnotherType


def _with_elements(type_: Any) -> Iterator[Any]:
    """Yield the alternatives of a type, and of the elements of arrays, by which a filter matches an array too."""
    for each in alternatives(type_):
        yield each
        if get_origin(each) in _ARRAYS:
            for element in _elements(each):
                yield from _with_elements(element)


def _elements(type_: Any) -> list[Any]:
    """Return the types of the elements of an array, whose size `...` leaves open."""
    return [each for each in get_args(type_) if each is not ...]


def _either(types: list[Any]) -> Any:
    return types[0] if len(types) == 1 else Union[tuple(types)]  # noqa: UP007 - of a list


class FieldFactory:
    """Makes fields: `F("address.city")` of a path, `F(Person)` or `F[Person]` the fields of a model by attributes.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Person:
    ...     name: str
    ...     likes: list[str]
    >>> print((F(Person).name == "ada") & F(Person).likes.contains("tea"))
    {'name': 'ada', 'likes': 'tea'}
    >>> F(Person).nmae
    Traceback (most recent call last):
    collections_store.errors.UnknownField: filter, at 'nmae': Person has no such field: did you mean 'name'?
    """

    @overload
    def __call__(self, of: str | Path) -> ComparableField: ...

    @overload
    def __call__(self, of: type) -> ModelField: ...

    def __call__(self, of: Any) -> Any:
        return ComparableField(of) if isinstance(of, str | Path) else self[of]

    def __getitem__(self, model: Any) -> ModelField:
        return (
            _root(model) if isinstance(model, type) else _root.__wrapped__(model)
        )  # it may have no hash

    def __repr__(self) -> str:
        return "F"


F: Final = FieldFactory()


@lru_cache(MAX_CACHED)
def _root(model: Any) -> ModelField:
    if not any(declared_fields(each) for each in alternatives(model)):
        raise InvalidFilter("", f"a field must be a string, or of a model, got {shortened(model)}")
    return ModelField(Path(), model, name_of(model), adapter_of(model))
