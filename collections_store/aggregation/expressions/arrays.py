"""Arrays, and sets: arrays in which neither order nor repetition counts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

from ...query.values import MISSING
from .operands import (
    ABSENT,
    ARRAY,
    NUMBER,
    POINTER,
    Unfit,
    among,
    array,
    check_elements,
    check_weight,
    distinct,
    is_null,
    key_of,
    null_for_null,
    sort_key,
    truthy,
    whole,
)

Hold: TypeAlias = Callable[[int], None]
"""Takes the bytes that an operator is about to hold; raises `Unfit` if they are too many."""
_INT: Final = (-(2**31), 2**31 - 1)


@null_for_null
def element_at(values: Any, index: Any) -> Any:
    """`$arrayElemAt`: missing where there is none; negative indexes count from the end."""
    every, place = array(values), whole(index, *_INT)
    return every[place] if -len(every) <= place < len(every) else MISSING


@null_for_null
def first(values: Any) -> Any:
    """`$first`."""
    return next(iter(array(values)), MISSING)


@null_for_null
def last(values: Any) -> Any:
    """`$last`."""
    return next(reversed(array(values)), MISSING)


def first_some(values: Any, count: Any) -> list[Any]:
    """`$firstN`."""
    return array(values)[: _count(count)]


def last_some(values: Any, count: Any) -> list[Any]:
    """`$lastN`."""
    return array(values)[-_count(count) :]


def least_some(values: Any, count: Any, *, ordered: bool) -> list[Any]:
    """`$minN`: null and missing are passed over."""
    return _sorted_some(values, count, ordered=ordered, descending=False)


def greatest_some(values: Any, count: Any, *, ordered: bool) -> list[Any]:
    """`$maxN`."""
    return _sorted_some(values, count, ordered=ordered, descending=True)


def _sorted_some(values: Any, count: Any, *, ordered: bool, descending: bool) -> list[Any]:
    there = [each for each in array(values) if not is_null(each)]
    return sorted(there, key=sort_key(ordered), reverse=descending)[: _count(count)]


def _count(value: Any) -> int:
    return whole(value, 1)


@null_for_null
def concatenate(*operands: Any, hold: Hold) -> list[Any]:
    """`$concatArrays`."""
    length = sum(len(array(each)) for each in operands)
    check_elements(length)
    hold(POINTER * length)
    return [each for operand in operands for each in operand]


def extended(values: Any, more: list[Any], *, fresh: bool, hold: Hold) -> Any:
    """Return an array with the elements of others: itself, unless it is a `fresh` one that others may hold."""
    if fresh or values is None or any(map(is_null, more)):
        return concatenate(values, *more, hold=hold)
    length = sum(len(array(each)) for each in more)
    check_elements(len(values) + length)
    hold(2 * POINTER * length)
    for each in more:
        values.extend(each)
    return values


def contains(value: Any, values: Any, *, ordered: bool) -> bool:
    """`$in`."""
    return among(value, array(values), ordered=ordered)


def index_of(
    values: Any, value: Any, start: Any = ABSENT, end: Any = ABSENT, *, ordered: bool
) -> Any:
    """`$indexOfArray`: -1 where there is none."""
    if is_null(values):
        return None
    first_place = 0 if start is ABSENT else whole(start, 0, _INT[1])
    stop = len(array(values)) if end is ABSENT else whole(end, 0, _INT[1])
    key = key_of(value, ordered=ordered)
    window = enumerate(values[first_place:stop], first_place)
    return next((i for i, each in window if key_of(each, ordered=ordered) == key), -1)


def is_array(value: Any) -> bool:
    """`$isArray`."""
    return isinstance(value, list)


def numbers(start: Any, end: Any, step: Any = 1, *, hold: Hold) -> list[int]:
    """`$range`."""
    if (by := whole(step, *_INT)) == 0:
        raise Unfit("needs a step other than 0", step)
    wanted = range(whole(start, *_INT), whole(end, *_INT), by)
    check_elements(len(wanted))
    hold((POINTER + NUMBER) * len(wanted))
    return list(wanted)


@null_for_null
def reverse(values: Any) -> list[Any]:
    """`$reverseArray`."""
    return array(values)[::-1]


def size(values: Any) -> int:
    """`$size`."""
    return len(array(values))


@null_for_null
def part(values: Any, place: Any, *count: Any) -> list[Any]:
    """`$slice`: of two operands the second is a count, of three a position."""
    every, at = array(values), whole(place, *_INT)
    if not count:
        return every[:at] if at >= 0 else every[at:]
    start = at if at >= 0 else max(0, len(every) + at)
    return every[start : start + whole(count[0], 1, _INT[1])]


def transposed(inputs: list[Any], longest: Any, defaults: Any = ABSENT, *, hold: Hold) -> Any:
    """`$zip`: arrays that begin with each array's first element, and so on."""
    if any(map(is_null, inputs)):
        return None
    lengths = [len(array(each)) for each in inputs]
    length = max(lengths) if truthy(longest) else min(lengths)
    check_elements(length * (len(inputs) + 1))
    hold(length * (ARRAY + POINTER * (len(inputs) + 1)))
    fill = [None] * len(inputs) if defaults is ABSENT else defaults
    return [
        [
            values[i] if i < len(values) else other
            for values, other in zip(inputs, fill, strict=True)
        ]
        for i in range(length)
    ]


@null_for_null
def sort_values(values: Any, by: Any, ordered: bool = True) -> list[Any]:
    """`$sortArray`: by the elements themselves, or by fields of theirs; ties stay as they are."""
    key = sort_key(ordered)
    if not isinstance(by, dict):
        return sorted(array(values), key=key, reverse=by < 0)
    every = list(array(values))
    for path, direction in reversed(by.items()):
        keys = path.split(".")
        every.sort(key=lambda each: key(_field(each, keys)), reverse=direction < 0)
    return every


def _field(value: Any, keys: list[str]) -> Any:
    for key in keys:
        if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return None
    return value


def all_true(values: Any) -> bool:
    """`$allElementsTrue`."""
    return all(map(truthy, array(values)))


def any_true(values: Any) -> bool:
    """`$anyElementTrue`."""
    return any(map(truthy, array(values)))


# -- sets --------------------------------------------------------------------------------------


def equal_sets(*operands: Any, ordered: bool, hold: Hold) -> bool:
    """`$setEquals`."""
    one, *others = (_set(each, ordered, hold).keys() for each in operands)
    return all(each == one for each in others)


def intersection(*operands: Any, ordered: bool, hold: Hold) -> Any:
    """`$setIntersection`, in MongoDB's order of values."""
    if any(map(is_null, operands)):
        return None
    sets = [_set(each, ordered, hold) for each in operands]
    if not sets:
        return []
    common = [v for k, v in sets[0].items() if all(k in other for other in sets[1:])]
    return sorted(common, key=sort_key(ordered))


def union(*operands: Any, ordered: bool, hold: Hold) -> Any:
    """`$setUnion`, in MongoDB's order of values."""
    every = concatenate(*operands, hold=hold)
    if every is None:
        return None
    return sorted(_set(every, ordered, hold).values(), key=sort_key(ordered))


def difference(left: Any, right: Any, *, ordered: bool, hold: Hold) -> Any:
    """`$setDifference`, in the order of the first array."""
    if is_null(left) or is_null(right):
        return None
    taken = _set(right, ordered, hold)
    return [v for k, v in _set(left, ordered, hold).items() if k not in taken]


def is_subset(left: Any, right: Any, *, ordered: bool, hold: Hold) -> bool:
    """`$setIsSubset`."""
    whole_set = _set(right, ordered, hold)
    return all(each in whole_set for each in _set(left, ordered, hold))


_KEYS: Final = 16
"""Bytes that the keys of a set take for each character of its values' JSON, at most."""


def _set(values: Any, ordered: bool, hold: Hold) -> dict[Hashable, Any]:
    """Return the values by their keys."""
    hold(_KEYS * check_weight(array(values)))
    return distinct(values, ordered=ordered)
