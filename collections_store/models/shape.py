"""The stored fields of a model, and the check that filters, sort orders, indexes and updates name only these.

The model's JSON schema has the stored fields: aliases, tags of unions, the results of serializers. Rules:

1. Open parts of a schema, such as `Any`, a dict or a serializer without a return type, have every field.
2. An alternative of a union must have the field.
3. A key leads through an array into its elements, as in filters; so do an index, `$`, `$[]` and `$[name]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, TypeAlias

from ..document import SCHEMA_VERSION
from ..errors import UnknownField
from ..expressions.path import Path, is_index
from ..query.conditions import Condition, Fails, Field, HasElement, HasObject, Passes, Test, Value
from ..query.filter import Filter, leaves
from ..query.index import Index
from ..query.sort import Sort
from ..update import PipelineResult, Update
from ..update.operators import Pull, Push
from ..update.parser import ArrayFilter, Elements, UpdatePath
from .declared import MAX_CACHED, declared_fields, name_of, types_in

Schema: TypeAlias = Mapping[str, Any]
Keys: TypeAlias = tuple[str, ...]

COMPUTED: Final = "x-computed"
"""Marks a field that is not stored."""
_OPEN: Final[Schema] = {}
_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_STATEMENTS: Final = ("type", "properties", "enum", "const")
"""What a schema begins with unless it leaves open what it describes."""


class ArrayElement(str):
    """A part of a path for elements of an array: `$`, `$[]`, `$[name]`, or `$elemMatch` of a filter."""

    __slots__ = ()


_INSIDE: Final = ArrayElement("$elemMatch")
_ANY: Final = ArrayElement("$[]")


class Shape:
    """The stored fields of a model."""

    def __init__(self, model: Any, schema: Schema) -> None:
        self._model, self._schema = model, schema
        self._check = lru_cache(MAX_CACHED)(self._check_keys)

    def check(self, parsed: object, what: str) -> None:
        """Raise `UnknownField` if a filter, a sort order, an index, an update or a path names a field that is not
        stored, or if a written body has a new field. `what` is the name of the argument.
        """
        match parsed:
            case Filter(condition=condition):
                self._check_condition(condition, (), "", what)
            case Index(sort=sort, where=where):
                self.check(sort, what)
                self.check(where, what)
            case Sort(fields):
                for each in fields:
                    self.check(each.target, what)
            case Update():
                self._check_update(parsed, what)
            case PipelineResult(body, before):
                known = {*_fields_in(before)}
                for keys in _fields_in(body):
                    if keys not in known:
                        self._check(keys, "", what)
            case Path(keys):
                self._check(keys, "", what)

    def _check_update(self, update: Update, what: str) -> None:
        for change in update.changes:
            keys, prefix = _keys(change.path), f"{change.operator}."
            self._check(keys, prefix, what)
            match change.operand:
                case Pull(condition, wrapped=False):
                    self._check_condition(condition, (*keys, _INSIDE), prefix, what)
                case Value(value=value):
                    self._check_value(value, keys, prefix, what)
                case Push(values, sort=sort):
                    for value in values:
                        self._check_value(value.value, (*keys, _ANY), prefix, what)
                    for path, _ in sort:
                        self._check((*keys, _ANY, *path), prefix, what)
                case tuple(values):
                    for each in values:
                        if isinstance(each, Value):  # else the keys of a `$rename`
                            self._check_value(each.value, (*keys, _ANY), prefix, what)
        for each in update.array_filters:
            for keys in _filtered(update, each):
                for path in _paths(each.condition):
                    self._check((*keys, *path[1:]), "array_filters.", what)

    def _check_condition(self, condition: Condition, above: Keys, prefix: str, what: str) -> None:
        for path in _paths(condition):
            self._check((*above, *path), prefix, what)

    def _check_value(self, value: Any, above: Keys, prefix: str, what: str) -> None:
        for keys in _fields_in(value, above):
            self._check(keys, prefix, what)

    def _check_keys(self, keys: Keys, prefix: str, what: str) -> None:
        if keys[:1] == (SCHEMA_VERSION,):
            return
        here = top = [*self._alternatives(self._schema)]
        for key in keys:
            found = (each for schema in here for each in self._inside(schema, key))
            below = [*{id(each): each for each in found}.values()]  # else more with each key
            if not below:
                advice = self._advice(here, key, is_top=here is top)
                problem = f"{name_of(self._model)} has no such field: {advice}"
                raise UnknownField(prefix + ".".join(keys), problem, what)
            here = below

    def _alternatives(self, schema: Any) -> Iterator[Schema]:
        """Yield the schemas that a schema refers to or joins."""
        if not isinstance(schema, Mapping):  # true
            yield _OPEN
        elif (reference := schema.get("$ref")) is not None:
            name = reference.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
            yield from self._alternatives(self._schema["$defs"][name])
        elif joined := [each for word in _UNIONS for each in schema.get(word, ())]:
            for each in joined:
                yield from self._alternatives(each)
        else:
            yield schema

    def _inside(self, schema: Schema, key: str) -> Iterator[Schema]:
        """Yield the schemas at a key."""
        kind = schema.get("type", ())
        if not any(word in schema for word in _STATEMENTS):
            yield _OPEN
        elif isinstance(key, ArrayElement):
            yield from self._elements(schema)
        else:
            if "object" in kind:
                yield from self._field(schema, key)
            for each in self._elements(schema):
                if is_index(key):
                    yield each
                if "array" not in each.get("type", ()):
                    yield from self._inside(each, key)

    def _field(self, schema: Schema, key: str) -> Iterator[Schema]:
        fields = schema.get("properties")
        others = schema.get("additionalProperties", fields is None)
        if fields is not None and key in fields:
            if COMPUTED not in fields[key]:
                yield from self._alternatives(fields[key])
        elif "patternProperties" in schema:
            yield _OPEN
        elif others is not False:
            yield from self._alternatives(others)

    def _elements(self, schema: Schema) -> Iterator[Schema]:
        if "array" not in schema.get("type", ()):
            return
        others = schema.get("items", "prefixItems" not in schema)
        for each in (*schema.get("prefixItems", ()), *([] if others is False else [others])):
            yield from self._alternatives(each)

    def _advice(self, schemas: Iterable[Schema], key: str, *, is_top: bool) -> str:
        known = list(dict.fromkeys(name for each in schemas for name in self._names(each)))
        renamed = [
            field.key
            for each in types_in(self._model)
            for name, field in (declared_fields(each) or {}).items()
            if name == key and field.key in known
        ]
        near = renamed or get_close_matches(key, [*known, "$id"] if is_top else known, 1)
        if near:
            return f"did you mean {near[0]!r}?"
        return f"it has {', '.join(known) or 'none'}; with extra='allow' names are not checked"

    def _names(self, schema: Schema) -> Iterator[str]:
        for each in (schema, *self._elements(schema)):
            fields = each.get("properties", {})
            yield from (name for name, field in fields.items() if COMPUTED not in field)


def _keys(path: UpdatePath) -> Keys:
    return tuple(piece if isinstance(piece, str) else ArrayElement(piece) for piece in path)


def _fields_in(value: Any, above: Keys = ()) -> Iterator[Keys]:
    if isinstance(value, list):
        for each in value:
            yield from _fields_in(each, (*above, _ANY))
    elif isinstance(value, dict):
        for key, part in value.items():
            yield (*above, key)
            yield from _fields_in(part, (*above, key))


def _filtered(update: Update, filter: ArrayFilter) -> Iterator[Keys]:
    """Yield the paths of the elements of an array filter."""
    for change in update.changes:
        for number, piece in enumerate(change.path):
            if isinstance(piece, Elements) and piece.name == filter.name:
                yield _keys(change.path[: number + 1])


def _paths(condition: Condition) -> Iterator[Keys]:
    """Yield the paths of a condition, and of conditions on elements of arrays."""
    for each in leaves(condition):
        if isinstance(each, Field):
            yield each.path.keys
            yield from ((*each.path.keys, *keys) for keys in _within(each.test))


def _within(test: Test) -> Iterator[Keys]:
    match test:
        case HasObject(condition):
            yield from ((_INSIDE, *keys) for keys in _paths(condition))
        case HasElement(tests):
            for each in tests:
                yield from ((_INSIDE, *keys) for keys in _within(each))
        case Fails(tests) | Passes(tests):
            for each in tests:
                yield from _within(each)
