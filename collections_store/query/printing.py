"""Filters as documents of the filter language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import codec
from .conditions import (
    WHOLE_ARRAY_TESTS,
    And,
    Bits,
    Compare,
    Condition,
    Equals,
    Exists,
    Expression,
    Fails,
    Field,
    FitsSchema,
    HasElement,
    HasObject,
    HasSize,
    HasType,
    Matches,
    Metadata,
    Modulo,
    Not,
    OneOf,
    Or,
    Passes,
    Test,
    Value,
    scalars_of,
)
from .parser import holds_operators
from .path import Path
from .patterns.pattern import Pattern


def to_json(condition: Condition) -> dict[Any, Any]:
    """Return the filter document of a condition; its keys are strings, or a `Path` that no string names."""
    match condition:
        case Field(path, test):
            return _entry(_name(path), test)
        case Metadata(name, test):
            return _entry(f"${name}", test)
        case And(conditions):
            return _together([to_json(each) for each in conditions])
        case FitsSchema(schema):
            return {
                "$jsonSchema": codec.decode(schema.text) if isinstance(schema, Value) else schema
            }
        case Or(single=True):
            return to_json(condition.as_one())
        case Not(Or(single=True) as inner):
            return to_json(Not(inner.as_one()))
        case Or(()):
            return {"$nor": [{}]}
        case Or(conditions):
            return {"$or": [to_json(each) for each in conditions]}
        case Not(Or(conditions)) if conditions:
            return {"$nor": [to_json(each) for each in conditions]}
        case Not(Field(path, test)):
            return _negated(_name(path), test)
        case Not(Metadata(name, test)):
            return _negated(f"${name}", test)
        case Not(inner):
            return {"$nor": [to_json(inner)]}
        case Expression(Value(text=text)):
            return {"$expr": codec.decode(text)}
    raise AssertionError(condition)


def _name(path: Path) -> str | Path:
    """Return the string that is read as the path, or the path where there is none."""
    if not path.keys:
        return "$body"
    text = str(path)
    return path if text.startswith("$") or Path.parse(text) != path else text


def _together(documents: list[dict[Any, Any]]) -> dict[Any, Any]:
    """Join documents: in one if no key appears twice, else by `$and`."""
    merged: dict[Any, Any] = {}
    for document in documents:
        for key, value in document.items():
            if key not in merged:
                merged[key] = value
            elif key != "$expr" and _mix(merged[key], value):
                merged[key] = {**merged[key], **value}
            else:
                return {"$and": documents}
    return merged


def _mix(one: Any, other: Any) -> bool:
    both = isinstance(one, Mapping) and isinstance(other, Mapping)
    return (
        both and all(holds_operators(each) for each in (one, other)) and not set(one) & set(other)
    )


def _entry(name: str | Path, test: Test) -> dict[Any, Any]:
    match test:
        case Equals(Value(value=value)):
            return {name: {"$eq": value} if holds_operators(value) else value}
        case Matches(Value(value=pattern)):
            return {name: _regex(pattern)}
        case Passes(()):
            return {name: {"$in": []}}
    return {name: _operators((test,))}


def _negated(name: str | Path, test: Test) -> dict[Any, Any]:
    match test:
        case Equals(Value(value=value)):
            return {name: {"$ne": value}}
        case OneOf():
            return {name: {"$nin": list(_wanted(test))}}
        case Passes((_, *_) as tests):
            return {name: {"$nin": [each for test in tests for each in _wanted(test)]}}
        case Exists():
            return {name: {"$exists": False}}
    return {name: {"$not": _operators((test,))}}


def _operators(tests: tuple[Test, ...]) -> dict[str, Any]:
    """Return the operators of several tests of one value; none replaces another."""
    if Passes(()) in tests:  # no value passes, whatever the other tests are
        return {"$in": []}
    result: dict[str, Any] = {}
    for test in tests:
        said = _operator(test)
        if "$all" in said:
            said["$all"] = [*result.get("$all", []), *said["$all"]]
        elif said.keys() & result.keys():
            said = _again(test)
        result.update(said)
    return result


def _again(test: Test) -> dict[str, Any]:
    """Return other operators for a test whose own operator is in use."""
    match test:
        case Fails(tests):
            return {"$not": _operators(tests)}
    return {"$in": list(_wanted(test))}


def _operator(test: Test) -> dict[str, Any]:
    match test:
        case Equals(value):
            return {"$eq": _one(value)}
        case OneOf():
            return {"$in": list(_wanted(test))}
        case Compare(operator, value):
            return {operator: _one(value)}
        case HasType(types):
            return {"$type": list(types)}
        case Matches(Value(value=pattern)):
            return _regex(pattern)
        case Modulo(divisor, remainder):
            return {"$mod": [_one(divisor), _one(remainder)]}
        case Bits(operator, mask):
            return {operator: _one(mask)}
        case Exists():
            return {"$exists": True}
        case HasSize(size):
            return {"$size": _one(size)}
        case HasElement(tests):
            return {"$elemMatch": _operators(tests)}
        case HasObject(condition):
            return {"$elemMatch": _of_object(to_json(condition))}
        case Fails((Equals(value),)):
            return {"$ne": _one(value)}
        case Passes((wanted, HasElement())):
            return {
                "$all": [
                    _operator(wanted)
                    if isinstance(wanted, WHOLE_ARRAY_TESTS)
                    else next(_wanted(wanted))
                ]
            }
        case Fails((OneOf() | Passes() as test,)) if "$in" in _operator(test):
            return {"$nin": _operator(test)["$in"]}
        case Fails(tests):
            return {"$not": _operators(tests)}
        case Passes(tests):
            return {"$in": [each for test in tests for each in _wanted(test)]}
    raise AssertionError(test)


def _wanted(test: Test) -> Iterator[Any]:
    """Yield the values of a list operator that a test accepts."""
    match test:
        case OneOf(lists):
            for one in lists:
                yield from scalars_of(one)
        case Equals(Value(value=value)):
            yield value
        case Matches(Value(value=pattern)):
            yield pattern.for_python()


def _of_object(document: dict[Any, Any]) -> dict[Any, Any]:
    """Return a filter on an element that the parser does not read as operators."""
    return {"$and": [document]} if next(iter(document), "") == "$jsonSchema" else document


def _one(value: Any) -> Any:
    return value.value


def _regex(pattern: Pattern) -> dict[str, Any]:
    options = {"$options": pattern.options} if pattern.options else {}
    return {"$regex": pattern.pattern, **options}
