"""Arrays, sets (arrays without order and repetition) and objects."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from .evaluation import (
    ARRAY,
    NUMBER,
    PAIR,
    POINTER,
    SCALAR,
    OperandError,
    Scope,
    array,
    check_size,
    checked,
    distinct,
    integer,
    is_null,
    json_size,
    key_of,
    mapping,
    named,
    sort_key,
    string,
)
from .numbers import operands_or_elements
from .path import walk
from .values import MISSING

_SET_KEYS: Final = 16
"""Bytes that the keys of a set take for each character of its values' JSON, at most."""


def element_at(values: list[Any], index: int) -> Any:
    """Return an element, or `MISSING`; negative indexes count from the end."""
    return values[index] if -len(values) <= index < len(values) else MISSING


def extremes(scope: Scope, values: list[Any], count: int, *, largest: bool = False) -> list[Any]:
    """Return the smallest or largest values; null and missing are left out."""
    some = (each for each in values if not is_null(each))
    return sorted(some, key=sort_key(scope.ordered), reverse=largest)[:count]


def concatenate(scope: Scope, *operands: list[Any]) -> list[Any]:
    """Return the elements of all operands."""
    length = sum(map(len, operands))
    check_size(SCALAR * length)
    scope.hold(POINTER * length)
    return [each for operand in operands for each in operand]


def extended(scope: Scope, values: list[Any] | None, more: list[Any]) -> list[Any] | None:
    """Add the elements of arrays to an array; None: an array is null."""
    if values is None or any(map(is_null, more)):
        return None
    length = sum(len(array(each)) for each in more)
    check_size(SCALAR * (len(values) + length))
    scope.hold(2 * POINTER * length)  # lists grow ahead
    for each in more:
        values.extend(each)
    return values


def index_of(
    scope: Scope, values: list[Any], value: Any, start: int = 0, end: int | None = None
) -> int:
    """Return the position of a value, or -1."""
    key = key_of(value, ordered=scope.ordered)
    window = enumerate(values[start:end], start)
    return next((i for i, each in window if key_of(each, ordered=scope.ordered) == key), -1)


def integers(scope: Scope, start: int, end: int, step: int = 1) -> list[int]:
    """Return the integers of a range."""
    if step == 0:
        raise OperandError("requires a step other than 0", step)
    wanted = range(start, end, step)
    check_size(SCALAR * len(wanted))
    scope.hold((POINTER + NUMBER) * len(wanted))
    return list(wanted)


def part(values: list[Any], position: int, count: int | None = None) -> list[Any]:
    """Return a slice: of two operands the second is a count, of three a position."""
    if count is None:
        return values[:position] if position >= 0 else values[position:]
    start = position if position >= 0 else max(0, len(values) + position)
    return values[start : start + integer(count, 1, 2**31 - 1)]


def transposed(scope: Scope, inputs: list[Any], longest: bool, defaults: Any = None) -> Any:
    """Return arrays of the first elements, the second ones, and so on."""
    if any(map(is_null, inputs)):
        return None
    lengths = [len(array(each)) for each in inputs]
    length = max(lengths) if longest else min(lengths)
    check_size(SCALAR * length * (len(inputs) + 1))
    scope.hold(length * (ARRAY + POINTER * (len(inputs) + 1)))
    pairs = list(zip(inputs, defaults or [None] * len(inputs), strict=True))
    rows = ([v[i] if i < len(v) else default for v, default in pairs] for i in range(length))
    return checked(list(rows))


def sort_values(scope: Scope, values: list[Any], by: Any) -> list[Any]:
    """Sort by the elements themselves, or by their fields; ties keep their order."""
    key = sort_key(scope.ordered)
    if not isinstance(by, dict):
        return sorted(values, key=key, reverse=by < 0)
    found = list(values)
    for path, direction in reversed(by.items()):
        keys = tuple(path.split("."))
        found.sort(key=lambda each: key(_field(each, keys)), reverse=direction < 0)
    return found


def _field(element: Any, keys: tuple[str, ...]) -> Any:
    found, rest = walk(element, keys)
    return None if rest or found is MISSING else found


# -- sets --------------------------------------------------------------------------------------


def equal_sets(scope: Scope, *operands: list[Any]) -> bool:
    """Return whether all have the same values."""
    one, *others = (as_set(scope, each).keys() for each in operands)
    return all(each == one for each in others)


def intersection(scope: Scope, *operands: list[Any]) -> list[Any]:
    """Return the values in all sets, in MongoDB's order."""
    sets = [as_set(scope, each) for each in operands]
    common = [v for k, v in sets[0].items() if all(k in other for other in sets)] if sets else []
    return sorted(common, key=sort_key(scope.ordered))


def union(scope: Scope, *operands: list[Any]) -> list[Any]:
    """Return the values in any set, in MongoDB's order."""
    values = as_set(scope, concatenate(scope, *operands)).values()
    return sorted(values, key=sort_key(scope.ordered))


def difference(scope: Scope, left: list[Any], right: list[Any]) -> list[Any]:
    """Return the values in the first set only, in its order."""
    others = as_set(scope, right)
    return [v for k, v in as_set(scope, left).items() if k not in others]


def as_set(scope: Scope, values: list[Any]) -> dict[Hashable, Any]:
    """Return the distinct values by their keys."""
    size = json_size(values)
    check_size(size)
    scope.hold(_SET_KEYS * size)
    return distinct(values, ordered=scope.ordered)


# -- objects -----------------------------------------------------------------------------------


def merge(*operands: Any) -> dict[str, Any]:
    """Return an object with the fields of all; of repeated fields, the last. A single array stands for its elements."""
    merged: dict[str, Any] = {}
    for each in operands_or_elements(operands):
        if not is_null(each):
            merged.update(mapping(each))
    return merged


def updated(scope: Scope, value: dict[str, Any], more: list[Any]) -> dict[str, Any]:
    """Add the fields of objects to an object."""
    for each in more:
        if not is_null(each):
            scope.hold(PAIR // 2 * len(mapping(each)))
            value.update(each)
    return value


def get_field(name: str, value: Any) -> Any:
    """Return a field; dots and dollars in the name mean nothing."""
    if isinstance(value, dict):
        return value.get(name, MISSING)
    return None if value is None else MISSING


def set_field(name: str, value: Any, field: Any) -> Any:
    """Return the object with a field; a missing value removes the field."""
    if is_null(value):
        return None
    if field is not MISSING:
        return checked({**mapping(value), name: field})
    return {k: v for k, v in mapping(value).items() if k != name}


def to_object(values: list[Any]) -> Any:
    """Return the object of pairs, or of objects of `k` and `v`; of equal names the last counts."""
    as_pairs, found = bool(values) and isinstance(values[0], list), dict[str, Any]()
    for each in values:
        if as_pairs and isinstance(each, list) and len(each) == 2:
            key, value = each
        elif not as_pairs and isinstance(each, dict) and each.keys() == {"k", "v"}:
            key, value = each["k"], each["v"]
        else:
            problem = f"requires all pairs, or all objects of k and v, got {named(each)}"
            raise OperandError(problem, each)
        found[string(key)] = value
    return checked(found)


def to_array(scope: Scope, value: dict[str, Any]) -> Any:
    """Return an object of `k` and `v` for each field."""
    scope.hold((POINTER + PAIR) * len(value))
    return checked([{"k": key, "v": each} for key, each in value.items()])
