"""JSON schemas of bodies: `$jsonSchema` in MongoDB's dialect, draft 4 with `bsonType`.

The package `jsonschema` does most of the work; the first schema imports the package. This module accepts and rejects
as MongoDB does. Keywords compare values as everywhere in this library: 1 equals 1.0, neither equals true. Nothing is
ever fetched: `$ref` is rejected, and the registry of schemas is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import cache
from typing import Any, Final, TypeAlias

from ..errors import InvalidFilter, MissingExtra, shortened
from ..expressions.classes import value_class
from ..expressions.patterns import compiled
from ..expressions.patterns.parser import InvalidPattern
from ..expressions.values import NON_JSON_TYPES, TYPES, is_number

SchemaPath: TypeAlias = tuple[str | int, ...]
Keyword: TypeAlias = Callable[[Any, Any, Any, Mapping[str, Any]], bool]
"""A function that returns whether a value passes: of the validator, the keyword's operand, the value, and the
schema around it."""

MAX_STEPS: Final = 100
"""Keywords and names on the way to a schema within: each takes frames of Python's stack, and from
300 on it may not be enough.
"""
_ONE: Final = frozenset({"not", "additionalItems", "additionalProperties", "items"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "items"})
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependencies"})
_KEYWORDS: Final = frozenset({
    "bsonType", "description", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
    "pattern", "required", "title", "type", "uniqueItems",
})  # fmt: skip
_KNOWN: Final = _ONE | _LISTS | _BY_NAME | _KEYWORDS
_LEFT_OUT: Final = frozenset({"$ref", "$schema", "default", "definitions", "format", "id"})
_JSON_TYPES: Final = frozenset({"object", "array", "string", "number", "boolean", "null"})
_BSON_TYPES: Final = frozenset({*TYPES, *NON_JSON_TYPES})


@value_class(eq=True)
class Schema:
    """A compiled schema."""

    _validator: Any = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return read, (self._validator.schema,)

    def fits(self, value: Any) -> bool:
        return bool(self._validator.is_valid(value))


def read(schema: Any, position: str = "$jsonSchema") -> Schema:
    """Read a schema of JSON values; raise `InvalidFilter`, which names the position, and `MissingExtra`."""
    kind, kind_of_schemas = _dialect()
    from jsonschema.exceptions import best_match

    for path, inner in _schemas(schema, ()):
        if len(path) > MAX_STEPS:
            raise InvalidFilter(position, f"nested deeper than {MAX_STEPS} keywords and names")
        _check(inner, _dotted(position, path))
    # without its `$schema`, by which `jsonschema` would choose a validator with other integers
    rules = {key: rule for key, rule in kind_of_schemas.META_SCHEMA.items() if key != "$schema"}
    error = best_match(_on(kind_of_schemas, rules).iter_errors(schema))
    if error is not None:
        text = str(error.message)
        problem = text if len(text) <= 200 else f"{text[:150]}…"
        raise InvalidFilter(_dotted(position, error.absolute_path), problem)
    return Schema(_on(kind, schema))


def _schemas(schema: Any, path: SchemaPath) -> Iterator[tuple[SchemaPath, Mapping[str, Any]]]:
    """Yield a schema and all nested schemas. Other values than documents are skipped: the schema of schemas rejects
    them, or they are valid booleans.
    """
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for keyword, value in schema.items():
        below: Iterable[tuple[SchemaPath, Any]] = ()
        if keyword in _BY_NAME and isinstance(value, Mapping):
            below = (((name,), inner) for name, inner in value.items())
        elif keyword in _LISTS and isinstance(value, list):
            below = (((number,), inner) for number, inner in enumerate(value))
        elif keyword in _ONE:
            below = [((), value)]
        for steps, inner in below:
            yield from _schemas(inner, (*path, keyword, *steps))


def _check(schema: Mapping[str, Any], position: str) -> None:
    """Check the rules that the schema of schemas lacks."""
    for keyword in schema:
        if keyword in _LEFT_OUT:
            raise InvalidFilter(f"{position}.{keyword}", "this keyword is not supported")
        if keyword not in _KNOWN:
            raise InvalidFilter(f"{position}.{keyword}", "no such keyword")
    if "type" in schema and "bsonType" in schema:
        raise InvalidFilter(position, "must have type or bsonType, not both")
    _check_types(schema.get("type", []), _JSON_TYPES, f"{position}.type")
    _check_types(schema.get("bsonType", []), _BSON_TYPES, f"{position}.bsonType")
    if schema.get("bsonType") == []:
        raise InvalidFilter(f"{position}.bsonType", "must have at least one type")
    patterns = schema.get("patternProperties")
    for pattern in patterns if isinstance(patterns, Mapping) else ():
        _check_pattern(pattern, f"{position}.patternProperties")
    _check_pattern(schema.get("pattern", ""), f"{position}.pattern")


def _check_types(types: Any, known: frozenset[str], position: str) -> None:
    for each in types if isinstance(types, list) else [types]:
        if each == "integer":
            problem = 'there is no type "integer": use bsonType with "int" or "long"'
            raise InvalidFilter(position, problem)
        if not isinstance(each, str) or each not in known:
            raise InvalidFilter(position, f"no such type: {shortened(each)}")
    if isinstance(types, list) and len(set(types)) < len(types):
        raise InvalidFilter(position, f"must name each type once, got {shortened(types)}")


def _check_pattern(pattern: Any, position: str) -> None:
    try:
        compiled(pattern) if isinstance(pattern, str) else None
    except InvalidPattern as error:
        raise InvalidFilter(position, error.problem) from None


def _on(kind: Any, schema: Any) -> Any:
    """Return the validator of a schema. The registry is empty, so nothing is fetched."""
    from referencing import Registry

    return kind(schema, registry=Registry())


@cache
def _dialect() -> tuple[Any, Any]:
    """Return the classes of validators of values and of schemas."""
    try:
        from jsonschema import Draft4Validator, validators
    except ImportError as error:
        raise MissingExtra("jsonschema", "schema") from error
    # a number behind `minLength` and its like may be 2.0
    integers = Draft4Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: is_number(value) and value == value // 1
    )
    keywords = {name: _as_keyword(name, test) for name, test in _OURS.items()}
    of_schemas = {"uniqueItems": keywords["uniqueItems"]}
    return (
        validators.extend(Draft4Validator, keywords),
        validators.extend(Draft4Validator, of_schemas, type_checker=integers),
    )


def _as_keyword(name: str, test: Keyword) -> Callable[..., Iterator[Exception]]:
    def keyword(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Exception]:
        from jsonschema import ValidationError

        if not test(validator, wanted, value, schema):
            yield ValidationError(f"{shortened(value)} does not pass {name}")

    return keyword


# -- keywords ----------------------------------------------------------------------------------


def _additional(validator: Any, wanted: Any, value: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, dict) or wanted is True:
        return True
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [
        each
        for key, each in value.items()
        if key not in named and not any(compiled(pattern).is_found(key) for pattern in patterns)
    ]
    if wanted is False:
        return not others
    return all(validator.evolve(schema=wanted).is_valid(each) for each in others)


def _pattern_properties(validator: Any, wanted: Any, value: Any, _: Any) -> bool:
    return not isinstance(value, dict) or all(
        validator.evolve(schema=inner).is_valid(each)
        for pattern, inner in wanted.items()
        for key, each in value.items()
        if compiled(pattern).is_found(key)
    )


_OURS: Final[dict[str, Keyword]] = {
    "bsonType": lambda _, wanted, value, __: any(
        TYPES[name](value)
        for name in (wanted if isinstance(wanted, list) else [wanted])
        if name in TYPES
    ),
    "enum": lambda _, wanted, value, __: _key(value) in map(_key, wanted),
    "uniqueItems": lambda _, wanted, value, __: (
        not wanted or not isinstance(value, list) or len(set(map(_key, value))) == len(value)
    ),
    "multipleOf": lambda _, wanted, value, __: (
        not is_number(value) or _fraction(value) % _fraction(wanted) == 0
    ),
    "pattern": lambda _, wanted, value, __: (
        not isinstance(value, str) or compiled(wanted).is_found(value)
    ),
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
}


def _key(value: Any) -> Any:
    """Return a key that is equal for equal values only; the order of an object's keys does not count."""
    match value:
        case bool():
            return (value,)
        case list():
            return ("array", *map(_key, value))
        case dict():
            return frozenset((key, _key(each)) for key, each in value.items())
    return value


def _fraction(number: float) -> Fraction:
    """Return the number with 15 digits, for which 0.3 is a multiple of 0.1."""
    return Fraction(number) if isinstance(number, int) else Fraction(format(number, ".15g"))


def _dotted(position: str, path: Iterable[str | int]) -> str:
    return ".".join([position, *map(str, path)])
