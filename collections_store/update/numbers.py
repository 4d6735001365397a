"""What an update does to one value that is not an array: numbers, bits, order, time."""

from __future__ import annotations

import math
from typing import Any

from ..codec import MAX_INTEGER, MIN_INTEGER
from ..document import moment
from ..errors import shortened
from ..formula import Unfit
from ..values import MISSING, compare, is_number
from .actions import AtLeast, AtMost, BitOperator, Bitwise, PutTime, fresh


def added(value: Any, number: Any) -> Any:
    """Return the sum; what is missing is 0 of the number's type."""
    return number if value is MISSING else _checked(_number(value, "$inc") + number)


def multiplied(value: Any, number: Any) -> Any:
    """Return the product; what is missing becomes 0 of the number's type."""
    if value is MISSING:
        return type(number)(0)
    return _checked(_number(value, "$mul") * number)


def bounded(action: AtMost | AtLeast, value: Any, ordered: bool) -> Any:
    """Return the value, or the action's if that comes before it, or after it."""
    wanted = fresh(action.value)
    if value is MISSING:
        return wanted
    found = compare(wanted, value, ordered=ordered)
    return wanted if (found < 0 if isinstance(action, AtMost) else found > 0) else value


def combined(action: Bitwise, value: Any) -> int:
    """Return a whole number with its bits changed; what is missing is 0."""
    if value is MISSING:
        value = 0
    if type(value) is not int:
        raise Unfit(f"$bit takes a whole number, not {shortened(value)}")
    for operator, mask in action.steps:
        value = _with_bits(value, operator, mask)
    return int(value)


def written(action: PutTime, now: int) -> Any:
    """Return the time in microseconds since 1970, or as text in UTC with milliseconds."""
    if action.kind == "timestamp":
        return now
    return iso(now)


def iso(now: int) -> str:
    """Return a time as ISO 8601 text in UTC with milliseconds."""
    text = moment(now).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _with_bits(value: int, operator: BitOperator, mask: int) -> int:
    match operator:
        case "and":
            return value & mask
        case "or":
            return value | mask
    return value ^ mask


def _number(value: Any, operator: str) -> Any:
    if not is_number(value):
        raise Unfit(f"{operator} takes a number, not {shortened(value)}")
    return value


def _checked(number: Any) -> Any:
    if isinstance(number, int) and not MIN_INTEGER <= number <= MAX_INTEGER:
        raise Unfit(f"{number} would be an integer beyond 64 bit")
    if not math.isfinite(number):
        raise Unfit(f"the result would be {number}, which is not JSON")
    return number
