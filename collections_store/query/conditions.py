"""The values a filter is made of.

A `Condition` speaks of an object, a `Test` of one JSON value. `Field` joins the two: some value that
a path reaches passes a test. Both are frozen, compare, hash, and carry what the user gave as `Value`s
only: a shape has `Parameter`s in their places.

What a name in a filter or a sort leads to: a place in the body, or what the store knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_args

from .. import codec
from ..aggregation.expressions import nodes
from ..aggregation.expressions.operands import key_of
from ..codec import MAX_INTEGER, MIN_INTEGER, Codec
from ..errors import cut, shortened
from .path import Path, path_repr
from .patterns.pattern import Pattern
from .values import value_class

Kind: TypeAlias = Literal[
    "null",
    "boolean",
    "number",
    "string",
    "array",
    "object",
    "regex",
    "plain regex",
    "prefix regex",
    "booleans",
    "numbers",
    "strings",
    "schema",
    "expression",
]
MAX_INLINE_VALUES: Final = 50
"""More values are looked up by their hash."""
Comparison: TypeAlias = Literal["$gt", "$gte", "$lt", "$lte"]
BitsOperator: TypeAlias = Literal["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"]
TypeName: TypeAlias = Literal[
    "double", "string", "object", "array", "bool", "null", "int", "long", "number"
]
MetadataField: TypeAlias = Literal["id", "version", "created_at", "updated_at", "expires_at"]

METADATA: Final[frozenset[str]] = frozenset(get_args(MetadataField))
LISTS: Final[dict[Kind, Kind]] = {
    "null": "null",
    "boolean": "booleans",
    "number": "numbers",
    "string": "strings",
}
TIMES: Final = frozenset({"created_at", "updated_at", "expires_at"})
_KINDS: Final[dict[type, Kind]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_PLAIN_REGEX: Final = re.compile(r"\^?[A-Za-z0-9 _/@,;=-]{1,1000}")
"""A pattern that means the same in every dialect of regular expressions, and is not too long for any."""


@value_class(eq=True)
class Value:
    """What a user asked for. `kind` keeps 1 apart from true, `text` makes it comparable."""

    kind: Kind
    text: str
    value: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any, rules: Codec = Codec()) -> Value:  # noqa: B008 - it is frozen
        """Take a JSON value; raises `InvalidBody`."""
        if type(value) is int and MIN_INTEGER <= value <= MAX_INTEGER:
            return cls("number", str(value), value)  # as below, and far sooner
        text = rules.encode(value)
        if type(value) is str and "\0" not in value:
            return cls("string", text, value)
        value = codec.decode(text)
        return cls(_KINDS[type(value)], text, value)

    @classmethod
    def of_regex(cls, pattern: Pattern) -> Value:
        """Take a pattern."""
        return cls(_regex_kind(pattern), f"/{pattern.pattern}/{pattern.flags}", pattern)

    @classmethod
    def of_expression(cls, text: str, expression: nodes.Node) -> Value:
        """Take an aggregation expression and its JSON."""
        return cls("expression", text, expression)

    @classmethod
    def of_list(cls, kind: Kind, values: list[Value]) -> Value:
        """Take scalars of one kind, which a shape does not count."""
        text = ",".join(value.text for value in values)
        return cls(kind, f"[{text}]", [value.value for value in values])


MANY: Final = 8
"""Of so many conditions or tests those that ask for equality are looked up, instead of tried one by one."""


@value_class
class Equalities:
    """What of many conditions or tests asks for equal values: their keys, by paths; and the `rest`."""

    by_path: dict[tuple[str, ...], set[Hashable]]
    rest: list[Any]

    @classmethod
    def of(cls, every: Iterable[Any], kinds: Any, *, ordered: bool) -> Equalities:
        """Sort conditions, or tests of one value, by what they ask; `kinds` are the tests to look up."""
        found = cls({}, [])
        for each in every:
            keys, test = (each.path.keys, each.test) if isinstance(each, Field) else ((), each)
            if isinstance(test, kinds):
                found.by_path.setdefault(keys, set()).update(test.wanted(ordered=ordered))
            else:
                found.rest.append(each)
        return found


@value_class(eq=True)
class Parameter:
    """The place of a value in a shape; `kind` is all of it that the SQL depends on.

    `sql` is what stands for it, once it is compiled.
    """

    kind: Kind
    sql: tuple[str, ...] = ()


Operand: TypeAlias = Value | Parameter


# -- tests of one value ------------------------------------------------------------------------


@value_class(eq=True)
class Equals:
    """It equals `value` (`$eq`); null also equals what is missing."""

    value: Operand

    def wanted(self, *, ordered: bool) -> Iterable[Hashable]:
        """Return the key of the value."""
        assert isinstance(self.value, Value)
        return (key_of(self.value.value, ordered=ordered),)


@dataclass(frozen=True)
class OneOf:
    """It equals one of the scalars (`$in`), which come as a list for each type. `many`: there are
    more than `FEW`.
    """

    lists: tuple[Operand, ...]
    many: bool = field(default=False, repr=False)

    @cached_property
    def keys(self) -> frozenset[Hashable]:
        """The keys of the scalars: looking for one takes as long in a long list as in a short one."""
        return frozenset(key_of(each) for one in self.lists for each in scalars_of(one))

    def wanted(self, *, ordered: bool) -> Iterable[Hashable]:  # noqa: ARG002
        """Return the keys of the scalars."""
        return self.keys


@value_class(eq=True)
class Compare:
    """It is of the type of `value`, and before or after it."""

    operator: Comparison
    value: Operand


@value_class(eq=True)
class HasType:
    """It is of one of the types (`$type`)."""

    types: tuple[TypeName, ...]


@value_class(eq=True)
class Matches:
    """It is a string in which the pattern is found (`$regex`)."""

    pattern: Operand


@value_class(eq=True)
class Modulo:
    """It is a number with that remainder, both truncated toward zero (`$mod`)."""

    divisor: Operand
    remainder: Operand


@value_class(eq=True)
class Bits:
    """It is a whole number with those bits set or clear."""

    operator: BitsOperator
    mask: Operand


@value_class(eq=True)
class Exists:
    """It is there (`$exists`), be it null."""


@value_class(eq=True)
class HasSize:
    """It is an array of that many elements (`$size`)."""

    size: Operand


@value_class(eq=True)
class HasElement:
    """It is an array with an element that passes every test (`$elemMatch` with operators)."""

    tests: tuple[Test, ...]


@value_class(eq=True)
class HasObject:
    """It is an array with an object for which the condition holds (`$elemMatch`)."""

    condition: Condition


@value_class(eq=True)
class Fails:
    """It does not pass every one of the tests."""

    tests: tuple[Test, ...]


@value_class(eq=True)
class Passes:
    """It passes one of the tests."""

    tests: tuple[Test, ...]
    _sorted: dict[bool, Equalities] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def equalities(self, *, ordered: bool) -> Equalities:
        """Return the tests by what they ask, sorted once."""
        if ordered not in self._sorted:
            self._sorted[ordered] = Equalities.of(self.tests, (Equals, OneOf), ordered=ordered)
        return self._sorted[ordered]


Test: TypeAlias = (
    Equals
    | OneOf
    | Compare
    | HasType
    | Matches
    | Modulo
    | Bits
    | Exists
    | HasSize
    | HasElement
    | HasObject
    | Fails
    | Passes
)
WHOLE_ARRAY_TESTS: Final = (Exists, HasSize, HasElement, HasObject)
"""Tests that see an array at the end of a path as a whole only, not its elements too."""


# -- conditions on an object -------------------------------------------------------------------


@value_class(eq=True)
class Field:
    """Some value that `path` reaches in the body passes the test; the empty path is `$body`."""

    path: Path
    test: Test


@value_class(eq=True)
class Metadata:
    """What the store knows of the object passes the test; times are microseconds since 1970."""

    field: MetadataField
    test: Test


@value_class(eq=True)
class And:
    """Every condition holds; without any, always."""

    conditions: tuple[Condition, ...]
    _sorted: dict[bool, Equalities] | None = field(
        default=None, init=False, compare=False, repr=False
    )

    def equalities(self, *, ordered: bool) -> Equalities:
        """Return the conditions by what they ask, sorted once."""
        return _sorted_once(self, Equals, ordered=ordered)


@value_class(eq=True)
class Or:
    """Some condition holds; without any, never.

    `single`: it is one test of one field, of which SQL says each part by itself (`$in` of more than
    scalars).
    """

    conditions: tuple[Condition, ...]
    single: bool = False
    _sorted: dict[bool, Equalities] | None = field(
        default=None, init=False, compare=False, repr=False
    )

    def equalities(self, *, ordered: bool) -> Equalities:
        """Return the conditions by what they ask, sorted once."""
        return _sorted_once(self, (Equals, OneOf), ordered=ordered)

    def as_one(self) -> Field | Metadata:
        """Return the field with the one test."""
        parts = [each for each in self.conditions if isinstance(each, Field | Metadata)]
        return replace(parts[0], test=Passes(tuple(each.test for each in parts)))


def _sorted_once(condition: And | Or, kinds: Any, *, ordered: bool) -> Equalities:
    if condition._sorted is None:
        object.__setattr__(condition, "_sorted", {})
    known: Any = condition._sorted
    if ordered not in known:
        known[ordered] = Equalities.of(condition.conditions, kinds, ordered=ordered)
    found: Equalities = known[ordered]
    return found


@value_class(eq=True)
class Not:
    """The condition does not hold."""

    condition: Condition


@value_class(eq=True)
class FitsSchema:
    """The body fits a JSON schema (`$jsonSchema`); the value is a `json_schema.Schema`."""

    schema: Operand


PLAIN_REGEXES: Final = frozenset({"plain regex", "prefix regex"})
"""Patterns of plain text; of a prefix, the text is at the beginning."""


def _regex_kind(pattern: Pattern) -> Kind:
    if not _PLAIN_REGEX.fullmatch(pattern.pattern) or pattern.options:
        return "regex"
    return "prefix regex" if pattern.pattern.startswith("^") else "plain regex"


def prefix_range(pattern: Value) -> tuple[str, str]:
    """Return the first text that begins like a "prefix regex", and the first one past all of them."""
    prefix: str = pattern.value.pattern.removeprefix("^")
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


@value_class(eq=True)
class Expression:
    """The formula gives what counts as true (`$expr`)."""

    formula: Operand


Condition: TypeAlias = Field | Metadata | And | Or | Not | FitsSchema | Expression


def takes_missing(test: Test) -> bool:
    """Return whether what is missing passes a test; a shape knows."""
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


def scalars_of(given: Operand) -> list[Any]:
    """Return the scalars of a list of `OneOf`."""
    assert isinstance(given, Value)
    return [None] if given.kind == "null" else list(given.value)


Target: TypeAlias = Path | MetadataField
Refusal: TypeAlias = Callable[[str, str], Exception]
"""Makes an error of a place and a problem."""

_KNOWN: Final = ", ".join(f"${name}" for name in sorted((*METADATA, "body")))


def read_target(key: Any, refuse: Refusal, place: str | None = None) -> Target:
    """Read a dotted field, a `Path`, `$body` with what follows it, or `$id` and the like; raises
    what `refuse` makes of the rest.
    """
    if isinstance(key, Path):
        return key
    if not isinstance(key, str):
        raise refuse("" if place is None else place, f"a field is a string, not {shortened(key)}")
    if not key.startswith("$"):
        return Path.parse(key)
    name, *rest = key[1:].split(".")
    if name == "body":
        return Path(*rest)
    if name in METADATA and not rest:
        return name  # type: ignore[return-value]
    raise refuse(
        key if place is None else place,
        f"no such operator or metadata; there is {_KNOWN}. A key of the body: "
        f"{cut(path_repr(key.split('.')))}",
    )
