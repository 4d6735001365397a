"""What stands behind a field in an update, read into the action that the operator takes.

A reader is given plain JSON. The condition of a `$pull` alone is read from what the caller wrote, because it
may hold regular expressions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from ..codec import Codec
from ..errors import InvalidFilter, InvalidUpdate, shortened
from ..filter import Value
from ..filter.nesting import check_nesting, first_key
from ..filter.parsing import Parser as FilterParser
from ..ordering import MAX_FIELDS
from ..values import is_number
from .actions import (
    Action,
    Add,
    AddToSet,
    Arrive,
    Assign,
    AtLeast,
    AtMost,
    BitOperator,
    Bitwise,
    Multiply,
    Pop,
    Pull,
    PullAll,
    Push,
    PutTime,
    Remove,
    SortElements,
)
from .paths import plain_keys, read_way

Reader = Callable[[Any, str], Action]
_CHECKED: Final = Codec(max_bytes=sys.maxsize)
"""For what the caller's rules have let through."""
_PUSH: Final = ("$each", "$position", "$slice", "$sort")
_WHOLE_FILTERS: Final = frozenset({"$and", "$or", "$nor", "$expr", "$jsonSchema", "$comment"})


def _add(operand: Any, place: str) -> Action:
    return Add(_number(operand, place))


def _multiply(operand: Any, place: str) -> Action:
    return Multiply(_number(operand, place))


def _number(operand: Any, place: str) -> Value:
    if not is_number(operand):
        raise InvalidUpdate(place, f"needs a number, not {shortened(operand)}")
    return _value(operand)


def _rename(operand: Any, place: str) -> Action:
    """Read where a field goes; `source` is for the caller to say."""
    if not isinstance(operand, str):
        raise InvalidUpdate(place, f"needs the field's new name, not {shortened(operand)}")
    return Arrive(plain_keys(read_way(operand, place), place))


def _put_time(operand: Any, place: str) -> Action:
    match operand:
        case bool() | {"$type": "date"} if operand in (True, False, {"$type": "date"}):
            return PutTime("date")
        case {"$type": "timestamp"} if len(operand) == 1:
            return PutTime("timestamp")
    raise InvalidUpdate(
        place, "needs true, {'$type': 'date'} (text) or {'$type': 'timestamp'} (microseconds)"
    )


def _push(operand: Any, place: str) -> Action:
    if not isinstance(operand, dict) or not set(operand) & set(_PUSH):
        return Push((_value(operand),))
    if "$each" not in operand:
        raise InvalidUpdate(place, f"{next(iter(operand))} goes with $each")
    for name in operand:
        if name not in _PUSH:
            raise InvalidUpdate(f"{place}.{name}", f"is not one of {', '.join(_PUSH)}")
    whole = {
        name: _whole(operand[name], f"{place}.{name}")
        for name in ("$position", "$slice")
        if name in operand
    }
    sort = _sort(operand["$sort"], f"{place}.$sort") if "$sort" in operand else None
    return Push(
        _values(operand["$each"], f"{place}.$each"),
        whole.get("$position"),
        sort,
        whole.get("$slice"),
    )


def _sort(operand: Any, place: str) -> SortElements:
    if is_number(operand):
        return SortElements((((), _descending(operand, place)),))
    if not isinstance(operand, dict) or not 0 < len(operand) <= MAX_FIELDS:
        raise InvalidUpdate(
            place, f"needs 1 or -1, or 1 to {MAX_FIELDS} fields of the elements with 1 or -1 each"
        )
    return SortElements(
        tuple(
            (_sort_keys(field, f"{place}.{field}"), _descending(direction, f"{place}.{field}"))
            for field, direction in operand.items()
        )
    )


def _sort_keys(field: str, place: str) -> tuple[str, ...]:
    keys = tuple(field.split("."))
    if not all(keys):
        raise InvalidUpdate(place, "a part of the path is empty")
    return keys


def _descending(direction: Any, place: str) -> bool:
    if not is_number(direction) or direction not in (1, -1):
        raise InvalidUpdate(place, f"the direction is 1 or -1, not {shortened(direction)}")
    return bool(direction < 0)


def _add_to_set(operand: Any, place: str) -> Action:
    if not isinstance(operand, dict) or next(iter(operand), "") != "$each":
        return AddToSet((_value(operand),))
    if len(operand) > 1:
        raise InvalidUpdate(f"{place}.{list(operand)[1]}", "does not go with $each of $addToSet")
    return AddToSet(_values(operand["$each"], f"{place}.$each"))


def _pop(operand: Any, place: str) -> Action:
    if not is_number(operand) or operand not in (1, -1):
        raise InvalidUpdate(
            place, f"needs 1 (the last) or -1 (the first), not {shortened(operand)}"
        )
    return Pop(first=operand < 0)


def _pull_all(operand: Any, place: str) -> Action:
    return PullAll(_values(operand, place))


def _bitwise(operand: Any, place: str) -> Action:
    if not isinstance(operand, dict) or not operand:
        raise InvalidUpdate(place, "needs a document such as {'and': 10}")
    steps: list[tuple[BitOperator, int]] = []
    for name, mask in operand.items():
        if name not in get_args(BitOperator):
            raise InvalidUpdate(f"{place}.{name}", "is not one of and, or, xor")
        if type(mask) is not int:
            raise InvalidUpdate(f"{place}.{name}", f"needs an integer, not {shortened(mask)}")
        steps.append((name, mask))
    return Bitwise(tuple(steps))


READERS: Final[Mapping[str, Reader]] = {
    "$set": lambda operand, _: Assign(_value(operand)),
    "$setOnInsert": lambda operand, _: Assign(_value(operand)),
    "$unset": lambda *_: Remove(),
    "$inc": _add,
    "$mul": _multiply,
    "$min": lambda operand, _: AtMost(_value(operand)),
    "$max": lambda operand, _: AtLeast(_value(operand)),
    "$rename": _rename,
    "$currentDate": _put_time,
    "$push": _push,
    "$addToSet": _add_to_set,
    "$pop": _pop,
    "$pull": lambda operand, _: PullAll((_value(operand),)),
    "$pullAll": _pull_all,
    "$bit": _bitwise,
}
"""What reads the operand of an operator; `read_pull` reads a condition."""


def is_condition(operand: Any) -> bool:
    """Tell whether `$pull` takes away what meets a condition, not what equals a value."""
    return isinstance(operand, Mapping | re.Pattern)


def read_pull(operand: Any, place: str, rules: Codec) -> Action:
    """Read the condition of a `$pull`: operators on elements, or a filter of those that are objects."""
    try:
        return _pull_condition(operand, FilterParser(rules, within=True))
    except InvalidFilter as error:
        inner = error.place.lstrip(".")
        raise InvalidUpdate(f"{place}.{inner}" if inner else place, error.problem) from error


def _pull_condition(operand: Any, parser: FilterParser) -> Action:
    if isinstance(operand, re.Pattern):
        return Pull(parser.field("", operand, ""), wrapped=True)
    check_nesting(operand)
    first = first_key(operand)
    if first.startswith("$") and first not in _WHOLE_FILTERS:
        return Pull(parser.operators("", operand, ""), wrapped=True)
    return Pull(parser.document(operand), wrapped=False)


def _value(operand: Any) -> Value:
    return Value.of(operand, _CHECKED)


def _values(operand: Any, place: str) -> tuple[Value, ...]:
    if not isinstance(operand, list):
        raise InvalidUpdate(place, f"needs a list, not {shortened(operand)}")
    return tuple(map(_value, operand))


def _whole(operand: Any, place: str) -> int:
    if not is_number(operand) or operand != operand // 1:
        raise InvalidUpdate(place, f"needs a whole number, not {shortened(operand)}")
    return int(operand)
