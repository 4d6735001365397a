"""What an operator may find in its operands, checked when a formula is evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from ..codec import MAX_INTEGER, MIN_INTEGER
from ..errors import shortened
from ..values import MISSING, is_number

ABSENT: Final = object()
"""An optional operand that was not given."""


class Unfit(Exception):
    """An operator cannot take `found`; the evaluation knows which operator it is."""

    def __init__(self, problem: str, found: Any = None) -> None:
        super().__init__(problem)
        self.problem, self.found = problem, None if found is MISSING else found


def is_null(value: Any) -> bool:
    """Tell whether a value is null or missing."""
    return value is None or value is MISSING


def truthy(value: Any) -> bool:
    """Tell whether a value counts as true: all do but false, 0, null and what is missing."""
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    return value is not MISSING


def null_for_null(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have `function` give null where one of its operands is null or missing."""

    @wraps(function)
    def guarded(*operands: Any, **options: Any) -> Any:
        return None if any(map(is_null, operands)) else function(*operands, **options)

    return guarded


def number(value: Any) -> Any:
    """Return a number as it is."""
    if not is_number(value):
        raise Unfit(f"needs a number, not {named(value)}", value)
    return value


def whole(value: Any, low: int = MIN_INTEGER, high: int = MAX_INTEGER) -> int:
    """Return a whole number within bounds, 2.0 included, as an integer."""
    if not is_number(value) or value != value // 1 or not low <= value <= high:
        bounds = "" if (low, high) == (MIN_INTEGER, MAX_INTEGER) else f" from {low} to {high}"
        raise Unfit(f"needs a whole number{bounds}, not {named(value)}", value)
    return int(value)


def text(value: Any) -> str:
    """Return a string as it is."""
    if not isinstance(value, str):
        raise Unfit(f"needs a string, not {named(value)}", value)
    return value


def array(value: Any) -> list[Any]:
    """Return an array as it is."""
    if not isinstance(value, list):
        raise Unfit(f"needs an array, not {named(value)}", value)
    return value


def mapping(value: Any) -> dict[str, Any]:
    """Return an object as it is."""
    if not isinstance(value, dict):
        raise Unfit(f"needs an object, not {named(value)}", value)
    return value


def result(value: float) -> float:
    """Return the result of a calculation as JSON can hold it: an integer beyond 64 bit as a float."""
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        value = float(value)
    if not math.isfinite(value):
        raise Unfit(f"gives {value}, which is not JSON", None)
    return value


def named(value: Any) -> str:
    """Return a value as an error names it."""
    return "what is missing" if value is MISSING else shortened(value)
