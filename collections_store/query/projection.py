"""What a projection is made of: paths, and what becomes of the field at each.

Projections, read: what MongoDB's server (4.4 and later) accepts, and an error that names the place
for whatever it does not.

The parts of a body that a projection asks for. Nothing here changes what it is given; what is
kept whole is shared with it.

Which element of an array met the filter (`field.$`).

MongoDB's rule: the index within the outermost array that the path of a condition was led through, an
index that the path names not counted. Of several conditions the last one counts; here, the last of
those on the projected array's path, if there is one. Branches of `$nor` and `$not` tell none, nor do those of
an `$or`, unless all of them speak of one path, which MongoDB's server makes an `$in`.

Which parts of a body are wanted: MongoDB's projections, parsed into frozen values.

The rules are those of MongoDB's server since 4.4:

1. Either the fields that are wanted are named (an inclusion), or those that are not (an exclusion).
   `$slice` alone leaves the rest of the body, `$elemMatch` alone is an inclusion.
2. `_id` is a field of the body that an inclusion keeps unless it is excluded. A body without one has
   none.
3. A path goes through arrays, and through arrays in arrays. A number is the key of an object there,
   never an index. An inclusion drops elements that are not objects, an exclusion keeps them.
4. Fields keep the order they are stored in; what `$elemMatch` finds comes last in an inclusion.
5. A body that is no object has no fields: an inclusion makes it {}, an exclusion leaves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeAlias

from ..codec import Codec
from ..document import Document, new_document
from ..errors import InvalidFilter, InvalidProjection, cut, shortened
from .conditions import (
    WHOLE_ARRAY_TESTS,
    And,
    Condition,
    Field,
    HasElement,
    HasObject,
    Metadata,
    Not,
    Or,
    Test,
)
from .filter import Filter
from .matcher import holds, passes
from .parser import FilterParser
from .path import Path, is_index, path_repr
from .printing import to_json
from .values import MISSING, value_class


@value_class(eq=True)
class Include:
    """The field is asked for."""


@value_class(eq=True)
class Exclude:
    """The field is not wanted."""


@value_class(eq=True)
class Met:
    """Of the first array on the path only the element that met the filter (`field.$`)."""


@value_class(eq=True)
class Slice:
    """Some elements of the array (`$slice`): `limit` after `skip`, which counts from the end if it
    is negative. Without `skip` a negative `limit` counts from the end.
    """

    skip: int | None
    limit: int

    def of(self, array: list[object]) -> list[object]:
        """Return the elements."""
        if self.skip is None:
            return array[self.limit :] if self.limit < 0 else array[: self.limit]
        start = max(0, len(array) + self.skip) if self.skip < 0 else self.skip
        return array[start : start + self.limit]


@value_class(eq=True)
class Element:
    """The first element of the array that passes (`$elemMatch`); `condition` is on the field."""

    condition: Condition


Rule: TypeAlias = Include | Exclude | Met | Slice | Element
Entry: TypeAlias = tuple[Path, Rule]
Tree: TypeAlias = "dict[str, Tree | Rule]"

ID: Final = Path("_id")


def is_inclusion(entries: Iterable[Entry]) -> bool:
    """Return whether a projection says what is wanted, or what is not; `_id` alone decides last."""
    rules = [(type(rule), path == ID) for path, rule in entries]
    if (Include, False) in rules or (Met, False) in rules or (Met, True) in rules:
        return True
    if (Exclude, False) in rules:
        return False
    kinds = {kind for kind, _ in rules}
    return Include in kinds if Slice in kinds or Element not in kinds else True


def tree_of(entries: Iterable[Entry]) -> Tree:
    """Return the rules by the keys that lead to them; raises `InvalidProjection` where two paths
    speak of one field.
    """
    tree: Tree = {}
    for path, rule in entries:
        here, (*above, last) = tree, path.keys
        for key in above:
            below = here.setdefault(key, {})
            if not isinstance(below, dict):
                raise InvalidProjection(str(path), "another path speaks of a field around it")
            here = below
        if last in here:
            raise InvalidProjection(str(path), "another path speaks of this field, or of one in it")
        here[last] = rule
    return tree


_MAX_SLICE: Final = 2**31 - 1


def read(what: Any, rules: Codec) -> tuple[Entry, ...]:
    """Read a projection document, or a list of the fields wanted; raises `InvalidProjection`."""
    match what:
        case Mapping():
            entries = tuple(_entries(what, (), "", rules))
        case list() | tuple():
            entries = tuple(_entries(dict.fromkeys(map(_name, what), 1), (), "", rules))
        case _:
            raise InvalidProjection(
                "", f"a projection is a document or a list of fields, not {shortened(what)}"
            )
    _check_together(entries)
    return entries


def _entries(
    document: Mapping[Any, Any], above: tuple[str, ...], place: str, rules: Codec
) -> Iterator[Entry]:
    for key, value in document.items():
        here = f"{place}.{key}" if place else str(key)
        path, positional = _path(key, above, here)
        match value:
            case Mapping() if positional:
                raise InvalidProjection(here, "goes with 1 only")
            case Mapping():
                yield from _document(path, value, here, rules)
            case bool() | int() | float():
                yield path, _wanted(bool(value), positional, here)
            case _:
                raise InvalidProjection(
                    here,
                    f"{shortened(value)} is neither 1 nor 0; computed values are not supported",
                )


def _path(key: Any, above: tuple[str, ...], place: str) -> tuple[Path, bool]:
    """Return the path that a key names, and whether `.$` ends it; a `Path` is taken as it is."""
    if isinstance(key, Path):
        return _joined(above, key.keys, place), False
    keys = _name(key).split(".")
    positional = len(keys) > 1 and keys[-1] == "$"
    if positional:
        keys.pop()
    if any(each.startswith("$") for each in keys):
        raise InvalidProjection(
            place,
            "`$` stands at the end of a path; a key of the body that begins with it: "
            f"{cut(path_repr(keys))}",
        )
    return _joined(above, tuple(keys), place), positional


def _joined(above: tuple[str, ...], keys: tuple[str, ...], place: str) -> Path:
    try:
        return Path(*above, *keys)
    except InvalidFilter as error:
        raise InvalidProjection(place, error.problem) from error


def _document(path: Path, value: Mapping[Any, Any], place: str, rules: Codec) -> Iterator[Entry]:
    """Read what stands behind a field: an operator, or the fields within."""
    first = next(iter(value), None)
    if first is None:
        raise InvalidProjection(place, "an empty document asks for nothing")
    if not isinstance(first, str) or not first.startswith("$"):
        yield from _entries(value, path.keys, place, rules)
        return
    here = f"{place}.{first}"
    if len(value) > 1:
        raise InvalidProjection(here, "an operator stands alone")
    match first:
        case "$slice":
            yield path, _slice(value[first], here)
        case "$elemMatch":
            yield path, _element(path, value[first], here, rules)
        case _:
            raise InvalidProjection(here, "no such operator; there are $slice and $elemMatch")


def _wanted(wanted: bool, positional: bool, place: str) -> Rule:
    if not positional:
        return Include() if wanted else Exclude()
    if not wanted:
        raise InvalidProjection(place, "goes with 1 only")
    return Met()


def _slice(operand: Any, place: str) -> Slice:
    pair = operand if isinstance(operand, list | tuple) else [None, operand]
    if len(pair) != 2:
        raise InvalidProjection(place, "needs a number, or two: [skip, limit]")
    skip = None if pair[0] is None and pair is not operand else _number(pair[0], place)
    limit = _number(pair[1], place)
    if skip is not None and limit <= 0:
        raise InvalidProjection(place, f"the limit must be greater than 0, not {limit}")
    return Slice(skip, limit)


def _number(value: Any, place: str) -> int:
    """Return a number cut to 32 bits and toward zero, as MongoDB does."""
    if isinstance(value, bool) or not isinstance(value, int | float) or _is_nan(value):
        raise InvalidProjection(place, f"{shortened(value)} is not a number")
    return int(max(-_MAX_SLICE, min(value, _MAX_SLICE)))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _element(path: Path, operand: Any, place: str, rules: Codec) -> Element:
    if len(path.keys) > 1:
        raise InvalidProjection(place, "works on a field at the top only")
    try:
        return Element(FilterParser(rules).operators(path, {"$elemMatch": operand}, str(path)))
    except InvalidFilter as error:
        raise InvalidProjection(error.place, error.problem) from error


def _check_together(entries: tuple[Entry, ...]) -> None:
    kinds = [type(rule) for _, rule in entries]
    if kinds.count(Met) > 1:
        raise InvalidProjection("", "the filter meets one element: only one path may end in `.$`")
    if Met in kinds and Element in kinds:
        raise InvalidProjection("", "a path that ends in `.$` and $elemMatch do not go together")
    seen: type | None = None
    for path, rule in entries:
        if path == ID and isinstance(rule, Include | Exclude):
            continue
        kind = {Include: Include, Met: Include, Exclude: Exclude}.get(type(rule), seen)
        if seen is not None and kind is not seen:
            raise InvalidProjection(
                str(path), "either all fields are asked for or none; _id alone may differ"
            )
        seen = kind


def _name(field: Any) -> Any:
    if isinstance(field, str | Path):
        return field
    raise InvalidProjection(shortened(field), f"a field is a string, not {type(field).__name__}")


Change: TypeAlias = Callable[[list[Any]], list[Any]]


def kept(value: Any, tree: Tree) -> Any:
    """Return what of a value the tree names. Arrays are walked, those within arrays too; what has
    no fields is left out of them.
    """
    if isinstance(value, list):
        return [kept(each, tree) for each in value if isinstance(each, dict | list)]
    result = {}
    for key in [each for each in value if each in tree]:
        rule, inner = tree[key], value[key]
        if type(rule) is Include:
            result[key] = inner
        elif isinstance(rule, dict):
            if isinstance(inner, dict | list):
                result[key] = kept(inner, rule)
        elif not isinstance(rule, Exclude | Element):
            result[key] = inner
    return result


def rest(value: Any, tree: Tree) -> Any:
    """Return a value without what the tree drops. Arrays are walked, those within arrays too."""
    if isinstance(value, list):
        return [rest(each, tree) for each in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for key, rule in tree.items():
        if key not in value:
            continue
        if isinstance(rule, dict):
            result[key] = rest(value[key], rule)
        elif isinstance(rule, Exclude):
            del result[key]
    return result


def with_slice(value: Any, keys: tuple[str, ...], slice: Slice) -> Any:
    """Return a value with the arrays at `keys` cut; arrays on the way are walked one level deep."""
    if not isinstance(value, dict) or keys[0] not in value:
        return value
    key, *others = keys
    inner, below = value[key], tuple(others)
    if isinstance(inner, list):
        inner = [with_slice(each, below, slice) for each in inner] if below else slice.of(inner)
    elif below:
        inner = with_slice(inner, below, slice)
    return {**value, key: inner}


def element(element: Element, body: dict[str, Any], *, ordered: bool) -> list[Any] | None:
    """Return the first element that passes, in a list; None: there is none."""
    assert isinstance(element.condition, Field)
    path, test = element.condition.path, element.condition.test
    array = body.get(path.keys[0])
    if not isinstance(array, list):
        return None
    return next(([each] for each in array if passes(test, [each], ordered=ordered)), None)


def first_array(body: Any, keys: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the keys to the first array on a path; None: there is none."""
    for depth, key in enumerate(keys, start=1):
        if not isinstance(body, dict) or key not in body:
            return None
        body = body[key]
        if isinstance(body, list):
            return keys[:depth]
    return None


def with_change(body: dict[str, Any], keys: tuple[str, ...], change: Change) -> dict[str, Any]:
    """Return an object with the array at `keys` changed; objects lead to it."""
    key, *below = keys
    inner = with_change(body[key], tuple(below), change) if below else change(body[key])
    return {**body, key: inner}


Found: TypeAlias = Iterator[tuple[Any, int | None]]
Seen: TypeAlias = set[tuple[int, int]]


def paths_in(condition: Condition) -> Iterator[Path]:
    """Yield the paths that a condition speaks of."""
    match condition:
        case Field(path):
            yield path
        case And(conditions) | Or(conditions):
            for each in conditions:
                yield from paths_in(each)
        case Not(inner):
            yield from paths_in(inner)


def matched_index(
    condition: Condition, document: Document, array: tuple[str, ...], *, ordered: bool
) -> int | None:
    """Return the index of the element of the array at `array` that met the condition."""
    any_index = index = None
    for path, found in _met(condition, document, ordered):
        any_index = found
        if path.keys[: len(array)] == array:
            index = found
    return any_index if index is None else index


def _met(condition: Condition, document: Document, ordered: bool) -> Iterator[tuple[Path, int]]:
    """Yield the paths of what must hold, and the indexes that met it."""
    match condition:
        case Field(path):
            index = _index(condition, document.body, ordered)
            if index is not None:
                yield path, index
        case And(conditions):
            for each in conditions:
                yield from _met(each, document, ordered)
        case Or(single=True):
            parts = condition.as_one()
            yield from () if isinstance(parts, Metadata) else _met(parts, document, ordered)
        case Or(branches) if len(set(paths_in(condition))) == 1:
            held = (each for each in branches if holds(each, document, ordered=ordered))
            found = [list(_met(each, document, ordered))[-1:] for each in held]
            yield from sorted(chain(*found), key=lambda pair: pair[1])[:1]


def _index(field: Field, body: Any, ordered: bool) -> int | None:
    leaf = not isinstance(field.test, WHOLE_ARRAY_TESTS)
    for value, index in _reach(body, field.path.keys, leaf):
        if passes(field.test, value, ordered=ordered):
            return _within(field.test, value, ordered) if index is None else index
    return None


def _within(test: Test, value: Any, ordered: bool) -> int | None:
    """Return the index of the element that passed `$elemMatch`."""
    if not isinstance(test, HasElement | HasObject):
        return None
    return next(i for i, each in enumerate(value) if passes(test, [each], ordered=ordered))


def _reach(body: Any, keys: tuple[str, ...], leaf: bool) -> Found:
    if keys and not isinstance(body, dict):
        yield MISSING, None
    else:
        yield from _walk(body, keys, None, leaf, set())


def _walk(value: Any, keys: tuple[str, ...], index: int | None, leaf: bool, seen: Seen) -> Found:
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            yield from _open(value, keys[depth:], index, leaf, seen)
            return
        if not isinstance(value, dict) or key not in value:
            yield MISSING, index
            return
        value = value[key]
    if leaf and isinstance(value, list):
        yield from ((each, n if index is None else index) for n, each in enumerate(value))
    yield value, index


def _open(
    array: list[Any], keys: tuple[str, ...], index: int | None, leaf: bool, seen: Seen
) -> Found:
    if (id(array), len(keys)) in seen:  # numbers lead to one place in many ways
        return
    seen.add((id(array), len(keys)))
    for n, element in enumerate(array):
        if isinstance(element, dict):
            yield from _walk(element, keys, n if index is None else index, leaf, seen)
    if is_index(keys[0]) and int(keys[0]) < len(array):
        element, rest = array[int(keys[0])], keys[1:]
        if not rest:
            yield element, index
        elif isinstance(element, dict | list):
            yield from _walk(element, rest, index, leaf, seen)


def _is_entry(entry: Any) -> bool:
    return type(entry) is tuple and len(entry) == 2 and isinstance(entry[0], Path)


@dataclass(frozen=True, slots=True)
class Projection:
    """The parts of a body that are wanted.

    >>> print(Projection.parse(["name", "address.city"]))
    {'name': 1, 'address.city': 1}
    >>> city = Document("berlin", {"name": "Berlin", "rivers": ["Spree", "Havel", "Panke"]})
    >>> Projection.parse({"rivers": {"$slice": -1}}).apply(city, Filter()).body
    {'name': 'Berlin', 'rivers': ['Panke']}
    """

    entries: tuple[Entry, ...]
    _tree: dict[str, Any] = field(init=False, compare=False, repr=False)
    _includes: bool = field(init=False, compare=False, repr=False)
    names_fields_only: bool = field(init=False, compare=False, repr=False)
    """Whether it names fields only, and so depends on nothing but the body."""

    def __post_init__(self) -> None:
        entries: Any = self.entries
        if type(entries) is not tuple or not all(map(_is_entry, entries)):
            raise InvalidProjection("", "Projection.parse reads which parts are wanted")
        includes = is_inclusion(self.entries)
        tree = tree_of(self.entries)
        if includes:
            tree.setdefault("_id", Include())
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "_includes", includes)
        names_fields_only = all(isinstance(rule, Include | Exclude) for _, rule in self.entries)
        object.__setattr__(self, "names_fields_only", names_fields_only)

    @classmethod
    def parse(cls, what: Any, rules: Codec = Codec()) -> Projection:  # noqa: B008 - it is frozen
        """Read a projection document, a list of the fields wanted, or a `Projection`; raises
        `InvalidProjection` naming the place.
        """
        return what if isinstance(what, Projection) else cls(read(what, rules))

    def check(self, filter: Filter) -> None:
        """Raise `InvalidProjection` if `field.$` is asked for and `filter` has nothing on it."""
        for path, rule in self.entries:
            if isinstance(rule, Met):
                tops = {each.keys[:1] for each in paths_in(filter.condition)}
                if path.keys[:1] not in tops:
                    raise InvalidProjection(f"{path}.$", "the filter asks for nothing of the field")

    def apply(self, document: Document, filter: Filter, *, ordered: bool = True) -> Document:
        """Return a document with the parts of the body that are wanted.

        `filter` is what found the document; `field.$` needs it, and raises `InvalidProjection`
        where it does not tell an element. `ordered`: do objects with other key order differ?
        """
        body = self._shaped(document, filter, ordered)
        times = document.created_us, document.updated_us, document.expires_us
        return new_document(document.id, body, document.version, *times)

    def to_json(self) -> dict[Any, Any]:
        """Return the projection document. A key that holds a dot or begins with `$` stands in a `Path`;
        all other fields are text.
        """
        return dict(_spelled(_spelled_path(path), rule) for path, rule in self.entries)

    def __str__(self) -> str:
        return str(self.to_json())

    def _shaped(self, document: Document, filter: Filter, ordered: bool) -> Any:
        body = document.body
        if not isinstance(body, dict):
            return {} if self._includes else body
        for path, rule in () if self.names_fields_only else self.entries:
            if isinstance(rule, Met):
                self.check(filter)
                body = _narrowed(document, path.keys, filter, ordered)
        part = kept if self._includes else rest
        result = part(body, self._tree)
        return result if self.names_fields_only else self._changed(result, document.body, ordered)

    def _changed(self, result: dict[str, Any], body: dict[str, Any], ordered: bool) -> Any:
        for path, rule in self.entries:
            match rule:
                case Slice():
                    result = with_slice(result, path.keys, rule)
                case Element():
                    found = element(rule, body, ordered=ordered)
                    if found is None:
                        result.pop(path.keys[0], None)
                    else:
                        result[path.keys[0]] = found
        return result


def _narrowed(
    document: Document, keys: tuple[str, ...], filter: Filter, ordered: bool
) -> dict[str, Any]:
    """Return the body with one element left of the first array on a path."""
    body: dict[str, Any] = document.body
    array = first_array(body, keys)
    if array is None:
        return body
    index = matched_index(filter.condition, document, array, ordered=ordered)

    def only(elements: list[Any]) -> list[Any]:
        if index is None or index >= len(elements):
            place = f"{'.'.join(keys)}.$"
            raise InvalidProjection(
                place, f"the filter met no element of it in {shortened(document.id)}"
            )
        return [elements[index]]

    return with_change(body, array, only)


def _spelled_path(path: Path) -> str | Path:
    """Return the text that is read as the path, or the path where none is."""
    has_dollar = any(key.startswith("$") for key in path.keys)
    return path if has_dollar or Path.parse(str(path)) != path else str(path)


def _spelled(name: str | Path, rule: Rule) -> tuple[str | Path, Any]:
    match rule:
        case Include():
            return name, 1
        case Exclude():
            return name, 0
        case Met():
            return f"{name}.$", 1
        case Slice(None, limit):
            return name, {"$slice": limit}
        case Slice(skip, limit):
            return name, {"$slice": [skip, limit]}
        case Element(condition):
            return name, next(iter(to_json(condition).values()))


__all__ = ["ID", "Projection"]
