"""What an update does to one value that is not an array: numbers, bits, order, time.

What an update does to an array. None of it changes the array it is given.
"""

from __future__ import annotations

import math
from functools import cmp_to_key, partial
from typing import Any

from ..aggregation.expressions.operands import OperandError, key_of
from ..codec import MAX_INTEGER, MIN_INTEGER
from ..document import Anonymous, moment
from ..errors import shortened
from ..query.matcher import holds
from ..query.path import is_index
from ..query.values import MISSING, compare, is_number
from .actions import (
    AddToSet,
    AtLeast,
    AtMost,
    BitOperator,
    Bitwise,
    Pop,
    Pull,
    PullAll,
    Push,
    PutTime,
    SortElements,
    fresh,
)


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
        raise OperandError(f"$bit takes a whole number, not {shortened(value)}")
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
        raise OperandError(f"{operator} takes a number, not {shortened(value)}")
    return value


def _checked(number: Any) -> Any:
    if isinstance(number, int) and not MIN_INTEGER <= number <= MAX_INTEGER:
        raise OperandError(f"{number} would be an integer beyond 64 bit")
    if not math.isfinite(number):
        raise OperandError(f"the result would be {number}, which is not JSON")
    return number


def pushed(action: Push, value: Any, ordered: bool) -> list[Any]:
    """Return the array with more elements, sorted and cut; what is missing is an empty one."""
    array = _array("$push", value)
    where = len(array) if action.position is None else action.position
    if where < 0:
        where = max(len(array) + where, 0)
    array = [*array[:where], *map(fresh, action.values), *array[where:]]
    if action.sort is not None:
        array = _sorted(array, action.sort, ordered)
    match action.slice:
        case None:
            return array
        case int(count) if count >= 0:
            return array[:count]
        case count:
            return array[count:]


def joined(action: AddToSet, value: Any, ordered: bool) -> list[Any]:
    """Return the array with those elements that it had not; what is missing is an empty one."""
    array = _array("$addToSet", value)
    there = {key_of(each, ordered=ordered) for each in array}
    added = []
    for each in map(fresh, action.values):
        key = key_of(each, ordered=ordered)
        if key not in there:
            there.add(key)
            added.append(each)
    return [*array, *added]


def popped(action: Pop, value: Any) -> Any:
    """Return the array without its first or last element."""
    if value is MISSING:
        return value
    array = _array("$pop", value)
    return array[1:] if action.first else array[:-1]


def pulled(action: Pull, value: Any, ordered: bool) -> Any:
    """Return the array without the elements for which the condition holds."""
    if value is MISSING:
        return value
    return [each for each in _array("$pull", value) if not _meets(action, each, ordered)]


def pulled_all(action: PullAll, value: Any, ordered: bool) -> Any:
    """Return the array without the elements that equal one of the action's."""
    if value is MISSING:
        return value
    unwanted = {key_of(each.value, ordered=ordered) for each in action.values}
    array = _array("$pull", value)
    return [each for each in array if key_of(each, ordered=ordered) not in unwanted]


def _array(operator: str, value: Any) -> list[Any]:
    if value is MISSING:
        return []
    if not isinstance(value, list):
        raise OperandError(f"{operator} takes an array, not {shortened(value)}")
    return value


def _meets(action: Pull, element: Any, ordered: bool) -> bool:
    if action.wrapped:
        return holds(action.condition, Anonymous({"": element}), ordered=ordered)
    if not isinstance(element, dict):
        return False
    return holds(action.condition, Anonymous(element), ordered=ordered)


def _sorted(array: list[Any], sort: SortElements, ordered: bool) -> list[Any]:
    """Return the array in another order; what is equal stays as it was.

    Arrays are compared as a whole here, unlike in a sort of documents.
    """
    key = cmp_to_key(partial(compare, ordered=ordered))
    for keys, descending in reversed(sort.fields):
        array = sorted(array, key=lambda each: key(_field(each, keys)), reverse=descending)
    return array


def _field(element: Any, keys: tuple[str, ...]) -> Any:
    """Return what `$push` sorts by; null where there is none. Only objects have fields, but a number
    leads into an array that is in one.
    """
    if keys and not isinstance(element, dict):
        return None
    for key in keys:
        if isinstance(element, list) and is_index(key) and int(key) < len(element):
            element = element[int(key)]
        elif isinstance(element, dict) and key in element:
            element = element[key]
        else:
            return None
    return element
