"""The values a filter is made of.

A `Condition` speaks of an object, a `Test` of one JSON value. `Field` joins the two: some value that
a path reaches passes a test. Both are frozen, compare, hash, and carry what the user gave as `Value`s
only: a shape has `Slot`s in their places.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_args

from .. import codec
from ..codec import MAX_INTEGER, MIN_INTEGER, Codec
from ..formula import Formula, key_of
from ..frozen import frozen
from ..path import Path

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


@frozen(eq=True)
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
    def of_regex(cls, pattern: re.Pattern[str]) -> Value:
        """Take a compiled pattern."""
        return cls(_regex_kind(pattern), f"/{pattern.pattern}/{pattern.flags}", pattern)

    @classmethod
    def of_formula(cls, text: str, formula: Formula) -> Value:
        """Take a formula and its JSON."""
        return cls("expression", text, formula)

    @classmethod
    def of_list(cls, kind: Kind, values: list[Value]) -> Value:
        """Take scalars of one kind, which a shape does not count."""
        text = ",".join(value.text for value in values)
        return cls(kind, f"[{text}]", [value.value for value in values])


@frozen(eq=True)
class Slot:
    """The place of a value in a shape; `kind` is all of it that the SQL depends on.

    `words` are the SQL that stands for it, once there is any.
    """

    kind: Kind
    words: tuple[str, ...] = ()


Given: TypeAlias = Value | Slot


# -- tests of one value ------------------------------------------------------------------------


@frozen(eq=True)
class Equals:
    """It equals `value` (`$eq`); null also equals what is missing."""

    value: Given


@dataclass(frozen=True)
class OneOf:
    """It equals one of the scalars (`$in`), which come as a list for each type."""

    lists: tuple[Given, ...]

    @cached_property
    def keys(self) -> frozenset[Hashable]:
        """The keys of the scalars: looking for one takes as long in a long list as in a short one."""
        return frozenset(key_of(each) for one in self.lists for each in flat(one))


@frozen(eq=True)
class Compare:
    """It is of the type of `value`, and before or after it."""

    operator: Comparison
    value: Given


@frozen(eq=True)
class HasType:
    """It is of one of the types (`$type`)."""

    types: tuple[TypeName, ...]


@frozen(eq=True)
class Matches:
    """It is a string in which the pattern is found (`$regex`)."""

    pattern: Given


@frozen(eq=True)
class Modulo:
    """It is a number with that remainder, both truncated toward zero (`$mod`)."""

    divisor: Given
    remainder: Given


@frozen(eq=True)
class Bits:
    """It is a whole number with those bits set or clear."""

    operator: BitsOperator
    mask: Given


@frozen(eq=True)
class Exists:
    """It is there (`$exists`), be it null."""


@frozen(eq=True)
class HasSize:
    """It is an array of that many elements (`$size`)."""

    size: Given


@frozen(eq=True)
class HasElement:
    """It is an array with an element that passes every test (`$elemMatch` with operators)."""

    tests: tuple[Test, ...]


@frozen(eq=True)
class HasObject:
    """It is an array with an object for which the condition holds (`$elemMatch`)."""

    condition: Condition


@frozen(eq=True)
class Fails:
    """It does not pass every one of the tests."""

    tests: tuple[Test, ...]


@frozen(eq=True)
class Passes:
    """It passes one of the tests."""

    tests: tuple[Test, ...]


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
WHOLE: Final = (Exists, HasSize, HasElement, HasObject)
"""Tests that see an array at the end of a path as a whole only, not its elements too."""


# -- conditions on an object -------------------------------------------------------------------


@frozen(eq=True)
class Field:
    """Some value that `path` reaches in the body passes the test; the empty path is `$body`."""

    path: Path
    test: Test


@frozen(eq=True)
class Metadata:
    """What the store knows of the object passes the test; times are microseconds since 1970."""

    field: MetadataField
    test: Test


@frozen(eq=True)
class And:
    """Every condition holds; without any, always."""

    conditions: tuple[Condition, ...]


@frozen(eq=True)
class Or:
    """Some condition holds; without any, never.

    `single`: it is one test of one field, of which SQL says each part by itself (`$in` of more than
    scalars).
    """

    conditions: tuple[Condition, ...]
    single: bool = False

    def as_one(self) -> Field | Metadata:
        """Return the field with the one test."""
        parts = [each for each in self.conditions if isinstance(each, Field | Metadata)]
        return replace(parts[0], test=Passes(tuple(each.test for each in parts)))


@frozen(eq=True)
class Not:
    """The condition does not hold."""

    condition: Condition


@frozen(eq=True)
class FitsSchema:
    """The body fits a JSON schema (`$jsonSchema`); the value is a `json_schema.Schema`."""

    schema: Given


PLAIN_REGEXES: Final = frozenset({"plain regex", "prefix regex"})
"""Patterns of plain text; of a prefix, the text is at the beginning."""


def _regex_kind(pattern: re.Pattern[str]) -> Kind:
    if not _PLAIN_REGEX.fullmatch(pattern.pattern) or pattern.flags not in {0, re.UNICODE}:
        return "regex"
    return "prefix regex" if pattern.pattern.startswith("^") else "plain regex"


def prefix_range(pattern: Value) -> tuple[str, str]:
    """Return the first text that begins like a "prefix regex", and the first one past all of them."""
    prefix: str = pattern.value.pattern.removeprefix("^")
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


@frozen(eq=True)
class Expression:
    """The formula gives what counts as true (`$expr`)."""

    formula: Given


Condition: TypeAlias = Field | Metadata | And | Or | Not | FitsSchema | Expression


def options_of(pattern: re.Pattern[str]) -> str:
    """Return a pattern's flags as `$options`."""
    flags = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
    return "".join(letter for letter, flag in flags.items() if pattern.flags & flag)


def takes_missing(test: Test) -> bool:
    """Tell whether what is missing passes a test; a shape knows."""
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


def flat(given: Given) -> list[Any]:
    """Return the scalars of a list of `OneOf`."""
    assert isinstance(given, Value)
    return [None] if given.kind == "null" else list(given.value)
