"""Operands: the types that operators require, and how values compare where some are missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from functools import cmp_to_key, partial
from typing import Any

from ...codec import MAX_INTEGER, MIN_INTEGER
from ...errors import shortened
from ...query.values import MISSING, compare, is_number


class OperandError(Exception):
    """A value that an operator cannot take. The evaluation adds which operator it is."""

    def __init__(self, problem: str, found: Any = None) -> None:
        super().__init__(problem)
        self.problem, self.found = problem, None if found is MISSING else found


def is_null(value: Any) -> bool:
    """Return whether a value is null or missing."""
    return value is None or value is MISSING


def truthy(value: Any) -> bool:
    """Return whether a value counts as true: all but false, 0, null and missing do."""
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    return value is not MISSING


def number(value: Any) -> Any:
    """Return a number as it is."""
    if not is_number(value):
        raise OperandError(f"requires a number, got {named(value)}", value)
    return value


def integer(value: Any, low: int = MIN_INTEGER, high: int = MAX_INTEGER) -> int:
    """Return an integer within bounds; a float without a fraction, such as 2.0, is one."""
    if not is_number(value) or value != value // 1 or not low <= value <= high:
        bounds = "" if (low, high) == (MIN_INTEGER, MAX_INTEGER) else f" from {low} to {high}"
        raise OperandError(f"requires an integer{bounds}, got {named(value)}", value)
    return int(value)


def string(value: Any) -> str:
    """Return a string as it is."""
    if not isinstance(value, str):
        raise OperandError(f"requires a string, got {named(value)}", value)
    return value


def array(value: Any) -> list[Any]:
    """Return an array as it is."""
    if not isinstance(value, list):
        raise OperandError(f"requires an array, got {named(value)}", value)
    return value


def mapping(value: Any) -> dict[str, Any]:
    """Return an object as it is."""
    if not isinstance(value, dict):
        raise OperandError(f"requires an object, got {named(value)}", value)
    return value


def result(value: float) -> float:
    """Return the result of a calculation as JSON holds it: an integer beyond 64 bit as a float."""
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        value = float(value)
    if not math.isfinite(value):
        raise OperandError(f"gives {value}, which is not JSON")
    return value


def named(value: Any) -> str:
    """Return a value as an error names it."""
    return "a missing value" if value is MISSING else shortened(value)


def order(left: Any, right: Any, *, ordered: bool = True) -> int:
    """Return -1, 0 or 1; `ordered`: the order of an object's keys counts."""
    if left is MISSING or right is MISSING:
        return int(right is MISSING) - int(left is MISSING)
    return compare(left, right, ordered=ordered)


def sort_key(ordered: bool) -> Callable[[Any], Any]:
    """Return the key function that sorts values by `order`."""
    return cmp_to_key(partial(order, ordered=ordered))


def key_of(value: Any, *, ordered: bool = True) -> Hashable:
    """Return a hashable that is the same for equal values only: for 1 and 1.0, but not for true."""
    match value:
        case bool():
            return (bool, value)
        case list():
            return (list, *(key_of(each, ordered=ordered) for each in value))
        case dict():
            pairs = ((key, key_of(each, ordered=ordered)) for key, each in value.items())
            return (dict, *(pairs if ordered else sorted(pairs, key=lambda pair: pair[0])))
    found: Hashable = value
    return found


def distinct(values: Iterable[Any], *, ordered: bool = True) -> dict[Hashable, Any]:
    """Return the values by their keys, the first of those that are equal."""
    found: dict[Hashable, Any] = {}
    for value in values:
        found.setdefault(key_of(value, ordered=ordered), value)
    return found
