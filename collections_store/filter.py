"""What is asked of a collection: MongoDB's filter language, parsed into frozen values.

A filter is a conjunction of conditions. `Equals` speaks of a field of the body, `Metadata` of what
the store knows of an object (`$id`, `$version`, `$created_at`, `$updated_at`, `$expires_at`).
`$body` is the whole body, which the empty path names.

A filter has a *shape* and *values*: the shape decides the SQL, and is what compiled statements are
cached under; the values travel as parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from . import codec
from .codec import Codec
from .document import microseconds
from .errors import InvalidBody, InvalidFilter, shortened
from .path import Path

Kind: TypeAlias = Literal["null", "boolean", "number", "string", "array", "object"]
MetadataField: TypeAlias = Literal["id", "version", "created_at", "updated_at", "expires_at"]

_METADATA: Final = frozenset(get_args(MetadataField))
_TIMES: Final = frozenset({"created_at", "updated_at", "expires_at"})
_KINDS: Final[Mapping[type, Kind]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value that is asked for. `kind` keeps 1 apart from true, `text` makes it comparable."""

    kind: Kind
    text: str
    value: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any, rules: Codec = Codec()) -> Value:  # noqa: B008 - frozen
        """Take a JSON value; raises `InvalidBody`."""
        text = rules.encode(value)
        value = codec.decode(text)
        return cls(_KINDS[type(value)], text, value)


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a value in a shape; `kind` is all of it that the SQL depends on."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Equals:
    """Some value that `path` reaches equals `value` (MongoDB's `$eq`)."""

    path: Path
    value: Value | Slot

    def to_json(self) -> dict[str, Any]:
        """Return the condition in the filter language."""
        assert isinstance(self.value, Value)
        literal = self.value.value
        wrapped = {"$eq": literal} if _is_operators(literal) else literal
        return {str(self.path) if self.path.keys else "$body": wrapped}


@dataclass(frozen=True, slots=True)
class Metadata:
    """A column of the object's row equals `value`; times are microseconds since 1970."""

    field: MetadataField
    value: Value | Slot

    def to_json(self) -> dict[str, Any]:
        """Return the condition in the filter language."""
        assert isinstance(self.value, Value)
        return {f"${self.field}": self.value.value}


Condition: TypeAlias = Equals | Metadata


@dataclass(frozen=True, slots=True)
class Filter:
    """What is asked: every condition must hold. No condition: every object.

    >>> Filter.parse({"address.city": "Berlin"}) == Filter.parse("address.city", "Berlin")
    True
    >>> print(Filter.parse({"tags": "new", "age": 30}))
    {'tags': 'new', 'age': 30}
    """

    conditions: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, what: Any = None, equals: Any = ..., rules: Codec = Codec()) -> Filter:  # noqa: B008
        """Read the ways a caller may ask; raises `InvalidFilter` naming the place.

        `what` is None (everything), a filter document, a `Filter`, or a field (dotted text or
        `Path`) that `equals` a value.
        """
        if isinstance(what, str | Path):
            if equals is ...:
                raise InvalidFilter(str(what), "what shall the field equal? find(field, value)")
            return cls((_field(what, equals, rules),))
        if equals is not ...:
            raise InvalidFilter("", f"a value to equal goes with a field, not {shortened(what)}")
        match what:
            case None:
                return cls()
            case Filter():
                return what
            case Mapping():
                return cls(tuple(_document(what, rules)))
        raise InvalidFilter("", f"a filter is a document or a field, not {shortened(what)}")

    def shape(self) -> Filter:
        """Return the filter with slots in the place of its values."""
        return Filter(tuple(_with_slot(condition) for condition in self.conditions))

    def values(self) -> tuple[Value, ...]:
        """Return the values in the order of the shape's slots."""
        return tuple(c.value for c in self.conditions if isinstance(c.value, Value))

    def __str__(self) -> str:
        return str({key: v for c in self.conditions for key, v in c.to_json().items()})


def _with_slot(condition: Condition) -> Condition:
    match condition:
        case Equals(path, value):
            return Equals(path, Slot(value.kind))
        case Metadata(name, value):
            return Metadata(name, Slot(value.kind))


def _document(document: Mapping[Any, Any], rules: Codec) -> Iterator[Condition]:
    for key, value in document.items():
        if not isinstance(key, str):
            raise InvalidFilter(repr(key), f"a field is a string, not {type(key).__name__}")
        if _is_operators(value):
            yield from _operators(key, value, rules)
        else:
            yield _field(key, value, rules)


def _operators(key: str, operators: Mapping[str, Any], rules: Codec) -> Iterator[Condition]:
    for operator, operand in operators.items():
        if not operator.startswith("$"):
            raise InvalidFilter(f"{key}.{operator}", "operators and plain keys do not mix")
        if operator != "$eq":
            raise InvalidFilter(f"{key}.{operator}", "no such operator; there is $eq")
        yield _field(key, operand, rules)


def _field(what: str | Path, equals: Any, rules: Codec) -> Condition:
    if isinstance(what, str) and what.startswith("$"):
        return _metadata(what, equals, rules)
    path = what if isinstance(what, Path) else Path.parse(what)
    return Equals(path, _value(str(what), equals, rules))


def _metadata(key: str, equals: Any, rules: Codec) -> Condition:
    name, *rest = key[1:].split(".")
    if name == "body":
        return Equals(Path(*rest), _value(key, equals, rules))
    if name not in _METADATA or rest:
        known = ", ".join(f"${name}" for name in sorted((*_METADATA, "body")))
        raise InvalidFilter(
            key, f"no such operator or metadata; there is {known}. A key of the body: Path({key!r})"
        )
    if name in _TIMES:
        equals = _time(key, equals)
    return Metadata(name, _value(key, equals, rules))  # type: ignore[arg-type]


def _time(key: str, equals: Any) -> int | None:
    if equals is None or (isinstance(equals, int) and not isinstance(equals, bool)):
        return equals
    try:
        time = datetime.fromisoformat(equals) if isinstance(equals, str) else equals
        return microseconds(time)
    except (TypeError, ValueError):
        raise InvalidFilter(
            key,
            f"{shortened(equals)} is no time: give a datetime with a time zone, its ISO 8601 text, "
            "or microseconds since 1970",
        ) from None


def _value(place: str, value: Any, rules: Codec) -> Value:
    try:
        return Value.of(value, rules)
    except InvalidBody as error:
        where = f"{place}.{error.path}" if error.path else place
        raise InvalidFilter(where, error.problem) from error


def _is_operators(value: Any) -> bool:
    """MongoDB's rule: a document whose first key starts with `$` holds operators."""
    return isinstance(value, Mapping) and str(next(iter(value), "")).startswith("$")
