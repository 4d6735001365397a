"""The parts of a filter.

A `Condition` applies to a document, a `Test` to one JSON value. `Field` joins the two: a value at a path passes a
test. All compare and hash. Values of the user stand in `Value`s. The *shape* of a filter, on which the SQL depends,
has `Parameter`s instead, see `shapes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from ..codec import MAX_INTEGER, MIN_INTEGER, Codec, decode
from ..document import METADATA, MetadataField
from ..errors import cut, shortened
from ..expressions.classes import value_class
from ..expressions.collation import Collation, Collator, Ordered
from ..expressions.evaluation import key_of
from ..expressions.language import ABSENT
from ..expressions.path import Path, field_name, path_repr
from ..expressions.patterns import Pattern

Kind: TypeAlias = Literal[
    "null", "boolean", "number", "string", "array", "object", "regex", "plain regex", "prefix regex",
    "cased regex", "booleans", "numbers", "strings", "schema", "expression", "search",
]  # fmt: skip
"""What the SQL of a value depends on. A "plain regex" finds a single string, a "prefix regex" finds it at the
beginning. A "cased regex" has a few characters at each position, such as both cases of a letter.
"""
MAX_INLINE_VALUES: Final = 50
"""SQL compares with more values by their hash."""
Comparison: TypeAlias = Literal["$gt", "$gte", "$lt", "$lte"]
BitsOperator: TypeAlias = Literal["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"]
TypeName: TypeAlias = Literal[
    "double", "string", "object", "array", "bool", "null", "int", "long", "number"
]
LISTS: Final[dict[Kind, Kind]] = {
    "null": "null",
    "boolean": "booleans",
    "number": "numbers",
    "string": "strings",
}
TIMES: Final = frozenset({"created_at", "updated_at", "expires_at"})
KINDS: Final[dict[type, Kind]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_MAX_CHARACTERS: Final = 1000
"""Characters of a pattern for every dialect of regular expressions."""
_UNSAFE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that no database stores."""

_BEFORE_SURROGATES: Final = 0xD7FF
_LAST: Final = "\U0010ffff"
PLAIN_LENGTH: Final = 200
is_plain_string: Final = re.compile(rf"[ !#-\[\]-~]{{0,{PLAIN_LENGTH}}}").fullmatch
"""Match a short string in which JSON escapes nothing."""


@value_class(eq=True)
class Value:
    """A value of a filter. `kind` separates 1 from true. Values compare by `text`, their JSON."""

    kind: Kind
    text: str
    value: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any, codec: Codec = Codec()) -> Value:  # noqa: B008 - it is frozen
        """Return a JSON value; raises `InvalidBody`."""
        kind = type(value)
        if kind is int and MIN_INTEGER <= value <= MAX_INTEGER:  # this and the next as below, in
            return cls("number", str(value), value)  # a tenth of the time
        if kind is str and is_plain_string(value) and codec.max_bytes > PLAIN_LENGTH + 2:
            return cls("string", f'"{value}"', value)
        text = codec.encode(value)
        if kind is not str or "\0" in value:
            value = decode(text)
        return cls(KINDS[type(value)], text, value)

    @classmethod
    def of_regex(cls, pattern: Pattern) -> Value:
        kind: Kind = "regex"
        found = pattern.characters
        if found and 0 < len(found.sets) <= _MAX_CHARACTERS:
            kind = "cased regex" if found.text is None else "plain regex"
            if found.anchored and kind == "plain regex":
                kind = "cased regex" if found.sets[-1] == _LAST else "prefix regex"
            if any(map(_UNSAFE.search, found.sets)):
                kind = "regex"
        return cls(kind, f"/{pattern.pattern}/{pattern.flags}", pattern)

    @classmethod
    def of_list(cls, kind: Kind, values: list[Value]) -> Value:
        """Return scalars of a kind; a shape does not depend on their number."""
        text = ",".join([value.text for value in values])
        return cls(kind, f"[{text}]", [value.value for value in values])


@value_class(eq=True)
class Parameter:
    """A parameter of a shape, with the compiled `sql`."""

    kind: Kind
    sql: tuple[str, ...] = ()


Operand: TypeAlias = Value | Parameter


# -- tests of one value ------------------------------------------------------------------------


@value_class(eq=True)
class Equals:
    """The value equals `value` (`$eq`); null also equals a missing field."""

    value: Operand


@dataclass(frozen=True)
class OneOf:
    """The value equals a scalar (`$in`) in a list for each type. `many`: more than `MAX_INLINE_VALUES`."""

    lists: tuple[Operand, ...]
    many: bool = field(default=False, repr=False)

    @cached_property
    def keys(self) -> frozenset[Hashable]:
        """The keys of the scalars, for a lookup whose time does not depend on their number."""
        return self._keys_under(True)

    def keys_under(self, ordered: Ordered) -> frozenset[Hashable]:
        """Return the keys of the scalars, under a collation if `ordered` has one."""
        if type(ordered) is not Collator:
            return self.keys
        if ordered not in self._collated:
            self._collated[ordered] = self._keys_under(ordered)
        return self._collated[ordered]

    @cached_property
    def _collated(self) -> dict[Ordered, frozenset[Hashable]]:
        return {}

    def _keys_under(self, ordered: Ordered) -> frozenset[Hashable]:
        every = (each for one in self.lists for each in scalars_of(one))
        return frozenset(key_of(each, ordered=ordered) for each in every)


@value_class(eq=True)
class Compare:
    """The value has the type of `value`, and is less or greater."""

    operator: Comparison
    value: Operand


@value_class(eq=True)
class HasType:
    """The value has a type of the list (`$type`)."""

    types: tuple[TypeName, ...]


@value_class(eq=True)
class Matches:
    """The value is a string in which the pattern is found (`$regex`)."""

    pattern: Operand


@value_class(eq=True)
class Modulo:
    """The value is a number with the remainder, both truncated toward zero (`$mod`)."""

    divisor: Operand
    remainder: Operand


@value_class(eq=True)
class Bits:
    """The value is an integer with the bits set or clear."""

    operator: BitsOperator
    mask: Operand


@value_class(eq=True)
class Exists:
    """The value exists (`$exists`), be it null."""


@value_class(eq=True)
class HasSize:
    """The value is an array of the size (`$size`)."""

    size: Operand


@value_class(eq=True)
class HasElement:
    """The value is an array with an element for which all tests pass (`$elemMatch` with operators)."""

    tests: tuple[Test, ...]


@value_class(eq=True)
class HasObject:
    """The value is an array with an object for which the condition holds (`$elemMatch`)."""

    condition: Condition


@value_class(eq=True)
class Fails:
    """The value fails at least a test."""

    tests: tuple[Test, ...]


@value_class(eq=True)
class Passes:
    """The value passes at least a test."""

    tests: tuple[Test, ...]
    lookup: Any = field(default=None, init=False, compare=False, repr=False)
    """The matcher's cache."""


Test: TypeAlias = (
    Equals | OneOf | Compare | HasType | Matches | Modulo | Bits | Exists | HasSize | HasElement | HasObject
    | Fails | Passes
)  # fmt: skip
WHOLE_ARRAY_TESTS: Final = (Exists, HasSize, HasElement, HasObject)
"""Tests of an array at the end of a path that do not apply to its elements."""


# -- conditions on a document ------------------------------------------------------------------


@value_class(eq=True)
class Field:
    """A value at `path` in the body passes the test; the empty path is `$body`."""

    path: Path
    test: Test


@value_class(eq=True)
class Metadata:
    """The metadata of a document passes the test; times are microseconds since 1970."""

    field: MetadataField
    test: Test


@value_class(eq=True)
class And:
    """Every condition holds; without any, always."""

    conditions: tuple[Condition, ...]
    lookup: Any = field(default=None, init=False, compare=False, repr=False)
    """The matcher's cache."""


@value_class(eq=True)
class Or:
    """A condition of several holds; without any, never.

    `single`: the conditions are a test of a single field (`$in` with more than scalars), and each is SQL of its own.
    """

    conditions: tuple[Condition, ...]
    single: bool = False
    lookup: Any = field(default=None, init=False, compare=False, repr=False)
    """The matcher's cache."""

    def as_one(self) -> Field | Metadata:
        """Return the field with all tests."""
        parts = [each for each in self.conditions if isinstance(each, Field | Metadata)]
        return replace(parts[0], test=Passes(tuple(each.test for each in parts)))


@value_class(eq=True)
class Not:
    """The condition does not hold."""

    condition: Condition


@value_class(eq=True)
class FitsSchema:
    """The body fits a JSON schema (`$jsonSchema`); the value is a `json_schema.Schema`."""

    schema: Operand


@value_class(eq=True)
class Expression:
    """The aggregation expression is true (`$expr`)."""

    expression: Operand


@value_class(eq=True)
class Text:
    """The text index of the collection finds the query in the document (`$text`)."""

    query: Operand


@value_class(eq=True)
class Collated:
    """The condition, which compares strings, holds under a collation. The matcher decides it, or an index with the
    collation.
    """

    condition: Condition
    collation: Collation


Condition: TypeAlias = Field | Metadata | And | Or | Not | FitsSchema | Expression | Text | Collated


_WITHOUT_EXPRESSION: Final = frozenset({Field, Metadata, FitsSchema})


def expressions_last(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the conditions, with those that hold an expression last. Then the documents for which an expression
    raises an error do not depend on which conditions the database decides. `$text` comes first: always the database
    decides it.
    """
    given = tuple(conditions)
    if _WITHOUT_EXPRESSION.issuperset(map(type, given)):
        return given
    return tuple(sorted(given, key=lambda each: (not holds_text(each), _holds_expression(each))))


def holds_text(condition: Condition) -> bool:
    """Return whether a condition has a `$text`."""
    match condition:
        case And(inner) | Or(inner):
            return any(map(holds_text, inner))
        case Not(inner):
            return holds_text(inner)
    return isinstance(condition, Text)


def _holds_expression(condition: Condition) -> bool:
    return any(isinstance(uncollated(each), Expression) for each in leaves(condition))


def leaves(condition: Condition) -> Iterator[Condition]:
    """Yield the conditions under AND, OR and NOT."""
    match condition:
        case And(inner) | Or(inner):
            for each in inner:
                yield from leaves(each)
        case Not(inner):
            yield from leaves(inner)
        case _:
            yield condition


def uncollated(condition: Condition) -> Condition:
    """Return a condition without its collation."""
    return condition.condition if isinstance(condition, Collated) else condition


PLAIN_REGEXES: Final = frozenset({"plain regex", "prefix regex", "cased regex"})


def prefix_range(pattern: Value) -> tuple[str, str]:
    """Return the first string with the prefix of a "prefix regex", and the first string behind all with the prefix."""
    prefix: str = pattern.value.characters.text
    last = ord(prefix[-1])
    return prefix, prefix[:-1] + ("\ue000" if last == _BEFORE_SURROGATES else chr(last + 1))


def takes_missing(test: Test) -> bool:
    """Return whether a missing field passes a test, also a test of a shape."""
    match test:
        case Equals(value):
            return value.kind == "null"
        case OneOf(lists):
            return any(each.kind == "null" for each in lists)
        case Fails(tests):
            return not all(map(takes_missing, tests))
        case Passes(tests):
            return any(map(takes_missing, tests))
    return False


def scalars_of(values: Operand) -> list[Any]:
    """Return the scalars of a list of `OneOf`."""
    assert isinstance(values, Value)
    return [None] if values.kind == "null" else list(values.value)


Target: TypeAlias = Path | MetadataField
"""A field of the body, or of the metadata."""
ErrorMaker: TypeAlias = Callable[[str, str], Exception]
"""A function from a position and a problem to an error."""

_KNOWN: Final = ", ".join(f"${name}" for name in sorted((*METADATA, "body")))


def read_target(key: Any, error: ErrorMaker, position: str | None = None) -> Target:
    """Read a dotted field, a `Path`, `$body` with or without a field, or `$id` and other metadata; `_id` is `$id`.

    Raise the result of `error`, at `position` or else at the key.
    """
    key = field_name(key)
    if isinstance(key, Path):
        return key
    if not isinstance(key, str):
        raise error(position or "", f"a field must be a string, got {shortened(key)}")
    if key == "_id":
        return "id"
    if key.startswith("_id."):
        problem = f"_id is the document's id, which has no fields: for a field of bodies write $body.{cut(key)}"
        raise error(position or key, problem)
    if not key.startswith("$"):
        return Path.parse(key)
    name, *rest = key[1:].split(".")
    if name == "body":
        return Path(*rest)
    if name in METADATA and not rest:
        return name
    if key in ABSENT["filters"]:
        raise error(key if position is None else position, "this operator is not supported")
    raise error(
        key if position is None else position,
        f"no such operator or metadata; there is {_KNOWN}. For a key of the body write {_as_path(key)}",
    )


def _as_path(dotted: str) -> str:
    return cut(path_repr(dotted.split(".")))
