"""The update operators: how each parses its operand and changes a value.

To add an operator, write a function that applies the operator, a function that parses the operand unless any JSON
value is valid, and the row in `OPERATORS`. No function changes the given value.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cmp_to_key, partial
from operator import and_, or_, xor
from typing import Any, Final

from ..codec import MAX_INTEGER, MIN_INTEGER, Codec, decode
from ..codec.times import iso
from ..document import Anonymous, moment
from ..errors import InvalidUpdate, shortened
from ..expressions.classes import value_class
from ..expressions.collation import Ordered
from ..expressions.evaluation import OperandError, array, key_of, number
from ..expressions.path import walk
from ..expressions.values import MISSING, compare, is_number
from ..query.conditions import Condition, Value
from ..query.matcher import holds
from ..query.sort import MAX_FIELDS

_UNLIMITED: Final = Codec(max_bytes=sys.maxsize)
_BITS: Final[Mapping[str, Callable[[int, int], int]]] = {"and": and_, "or": or_, "xor": xor}
MODIFIERS: Final = ("$each", "$position", "$slice", "$sort")


@dataclass(slots=True)
class UpdateContext:
    """The input of operators besides the value: the time in microseconds since 1970, and whether the order of an
    object's keys counts.
    """

    now: int
    ordered: Ordered


@value_class
class UpdateOperator:
    """An update operator.

    `apply` returns the new value for the parsed operand and the value, each of which may be `MISSING`; raises
    `OperandError`. `parse` reads the operand, given as a JSON value and its position in the update; without `parse`
    the operand is the value. `adds`: the size of the operand counts against the size of the body.
    """

    apply: Callable[[Any, Any, UpdateContext], Any]
    parse: Callable[[Value, str], Any] | None = None
    adds: bool = False


# -- values ------------------------------------------------------------------------------------


def copied(value: Value) -> Any:
    """Return the JSON value; arrays and objects are copies and may be changed."""
    return decode(value.text) if value.kind in {"array", "object"} else value.value


def multiply(wanted: Value, value: Any) -> Any:
    """Return the product; a missing value becomes 0 of the operand's type."""
    if value is MISSING:
        return type(wanted.value)(0)
    return checked(number(value) * wanted.value)


def checked(found: Any) -> Any:
    """Return a computed number unless it is beyond the limits of JSON."""
    if isinstance(found, int) and not MIN_INTEGER <= found <= MAX_INTEGER:
        raise OperandError(f"gives {found}, an integer beyond 64 bit")
    if not math.isfinite(found):
        raise OperandError(f"gives {found}, which is not JSON")
    return found


def extreme(sign: int, wanted: Value, value: Any, context: UpdateContext) -> Any:
    """Return the operand if it comes before the value (-1), or after the value (1)."""
    found = copied(wanted)
    if value is MISSING or compare(found, value, ordered=context.ordered) == sign:
        return found
    return value


def combine_bits(steps: tuple[tuple[str, int], ...], value: Any) -> int:
    """Return an integer with changed bits; a missing value is 0."""
    found = 0 if value is MISSING else value
    if type(found) is not int:
        raise OperandError(f"requires an integer, got {shortened(found)}")
    for operator, mask in steps:
        found = _BITS[operator](found, mask)
    return found


def _parse_number(operand: Value, position: str) -> Value:
    if operand.kind != "number":
        raise InvalidUpdate(position, f"must be a number, got {shortened(operand.value)}")
    return operand


def _parse_time(operand: Value, position: str) -> str:
    match operand.value:
        case bool():
            return "date"
        case {"$type": "date" | "timestamp" as kind} if len(operand.value) == 1:
            return str(kind)
    raise InvalidUpdate(
        position,
        "must be true, {'$type': 'date'} (a string) or {'$type': 'timestamp'} (microseconds)",
    )


def _parse_bits(operand: Value, position: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(operand.value, dict) or not operand.value:
        raise InvalidUpdate(position, "must be a document such as {'and': 10}")
    for name, mask in operand.value.items():
        if name not in _BITS:
            raise InvalidUpdate(f"{position}.{name}", f"must be one of {', '.join(_BITS)}")
        if type(mask) is not int:
            raise InvalidUpdate(f"{position}.{name}", f"must be an integer, got {shortened(mask)}")
    return tuple(operand.value.items())


# -- arrays ------------------------------------------------------------------------------------


@value_class(eq=True)
class Push:
    """The operand of `$push`: elements to add at a position, a sort, and a number of elements to keep.

    `sort` holds paths in the elements, and whether the order is descending; no keys stand for the element itself.
    """

    values: tuple[Value, ...]
    position: int | None = None
    sort: tuple[tuple[tuple[str, ...], bool], ...] = ()
    slice: int | None = None


@value_class(eq=True)
class Pull:
    """A condition on the elements that `$pull` removes: on objects, or, if `wrapped`, on the field "" of an object
    around the element.
    """

    condition: Condition
    wrapped: bool


def push(operand: Push, value: Any, context: UpdateContext) -> list[Any]:
    """Return the array with more elements, sorted and cut; a missing value is an empty array."""
    old = _array(value)
    where = len(old) if operand.position is None else operand.position
    if where < 0:
        where = max(len(old) + where, 0)
    found = [*old[:where], *map(copied, operand.values), *old[where:]]
    key = cmp_to_key(partial(compare, ordered=context.ordered))  # arrays as a whole, by elements
    for keys, descending in reversed(operand.sort):
        found = sorted(found, key=lambda each: key(_field(each, keys)), reverse=descending)
    if operand.slice is None:
        return found
    return found[: operand.slice] if operand.slice >= 0 else found[operand.slice :]


def add_to_set(values: tuple[Value, ...], value: Any, context: UpdateContext) -> list[Any]:
    """Return the array with the missing elements added; a missing value is an empty array."""
    found = list(_array(value))
    keys = {key_of(each, ordered=context.ordered) for each in found}
    for each in map(copied, values):
        key = key_of(each, ordered=context.ordered)
        if key not in keys:
            keys.add(key)
            found.append(each)
    return found


def pull(operand: Pull | tuple[Value, ...], value: Any, context: UpdateContext) -> Any:
    """Return the array without the elements that match a condition, or equal a value."""
    if value is MISSING:
        return value
    ordered = context.ordered
    if isinstance(operand, Pull):
        return [each for each in array(value) if not _matches(operand, each, ordered)]
    unwanted = {key_of(each.value, ordered=ordered) for each in operand}
    return [each for each in array(value) if key_of(each, ordered=ordered) not in unwanted]


def _matches(pull: Pull, element: Any, ordered: Ordered) -> bool:
    if pull.wrapped:
        return holds(pull.condition, Anonymous({"": element}), ordered=ordered)
    return isinstance(element, dict) and holds(pull.condition, Anonymous(element), ordered=ordered)


def _array(value: Any) -> list[Any]:
    return [] if value is MISSING else array(value)


def _field(element: Any, keys: tuple[str, ...]) -> Any:
    """Return the value that `$push` sorts by, or null. Only objects have fields, but a number names an element of an
    array in an object.
    """
    found, rest = walk(element, keys)
    is_field = not keys or (isinstance(element, dict) and found is not MISSING and not rest)
    return found if is_field else None


def _parse_push(operand: Value, position: str) -> Push:
    given = operand.value
    if not isinstance(given, dict) or not set(given) & set(MODIFIERS):
        return Push((operand,))
    if "$each" not in given:
        raise InvalidUpdate(position, f"{next(iter(given))} goes with $each")
    for name in given:
        if name not in MODIFIERS:
            raise InvalidUpdate(f"{position}.{name}", f"must be one of {', '.join(MODIFIERS)}")
    integers = {name: given[name] for name in ("$position", "$slice") if name in given}
    for name, each in integers.items():
        if not is_number(each) or each != each // 1:
            problem = f"must be an integer, got {shortened(each)}"
            raise InvalidUpdate(f"{position}.{name}", problem)
        integers[name] = int(each)
    sort = _parse_sort(given["$sort"], f"{position}.$sort") if "$sort" in given else ()
    values = _values(given["$each"], f"{position}.$each")
    return Push(values, integers.get("$position"), sort, integers.get("$slice"))


def _parse_sort(sort: Any, position: str) -> tuple[tuple[tuple[str, ...], bool], ...]:
    if is_number(sort):
        return (((), _descending(sort, position)),)
    if not isinstance(sort, dict) or not 0 < len(sort) <= MAX_FIELDS:
        problem = f"must be 1 or -1, or 1 to {MAX_FIELDS} fields of the elements with 1 or -1 each"
        raise InvalidUpdate(position, problem)
    for field in sort:
        if not all(field.split(".")):
            raise InvalidUpdate(f"{position}.{field}", "a part of the path is empty")
    pairs = ((field, _descending(each, f"{position}.{field}")) for field, each in sort.items())
    return tuple((tuple(field.split(".")), descending) for field, descending in pairs)


def _descending(direction: Any, position: str) -> bool:
    if not is_number(direction) or direction not in (1, -1):
        raise InvalidUpdate(position, f"the direction must be 1 or -1, got {shortened(direction)}")
    return bool(direction < 0)


def _parse_add_to_set(operand: Value, position: str) -> tuple[Value, ...]:
    given = operand.value
    if not isinstance(given, dict) or next(iter(given), "") != "$each":
        return (operand,)
    if len(given) > 1:
        raise InvalidUpdate(f"{position}.{list(given)[1]}", "does not go with $each of $addToSet")
    return _values(given["$each"], f"{position}.$each")


def _parse_pop(operand: Value, position: str) -> bool:
    if operand.kind != "number" or operand.value not in (1, -1):
        problem = f"must be 1 (the last) or -1 (the first), got {shortened(operand.value)}"
        raise InvalidUpdate(position, problem)
    return bool(operand.value < 0)


def _values(values: Any, position: str) -> tuple[Value, ...]:
    if not isinstance(values, list):
        raise InvalidUpdate(position, f"must be a list, got {shortened(values)}")
    return tuple(Value.of(each, _UNLIMITED) for each in values)  # all of them are within the limit


OPERATORS: Final[Mapping[str, UpdateOperator]] = {
    "$set": UpdateOperator(lambda wanted, *_: copied(wanted), adds=True),
    "$setOnInsert": UpdateOperator(lambda wanted, *_: copied(wanted), adds=True),
    "$unset": UpdateOperator(lambda *_: MISSING, lambda *_: None),  # an element becomes null
    "$inc": UpdateOperator(
        lambda wanted, value, _: (
            wanted.value if value is MISSING else checked(number(value) + wanted.value)
        ),
        _parse_number,
    ),
    "$mul": UpdateOperator(lambda wanted, value, _: multiply(wanted, value), _parse_number),
    "$min": UpdateOperator(partial(extreme, -1), adds=True),
    "$max": UpdateOperator(partial(extreme, 1), adds=True),
    "$rename": UpdateOperator(lambda *_: MISSING),  # of the source; `apply` moves the value
    "$currentDate": UpdateOperator(
        lambda kind, _, context: context.now if kind == "timestamp" else iso(moment(context.now)),
        _parse_time,
    ),
    "$push": UpdateOperator(push, _parse_push, adds=True),
    "$addToSet": UpdateOperator(add_to_set, _parse_add_to_set, adds=True),
    "$pop": UpdateOperator(
        lambda first, value, _: (
            value if value is MISSING else array(value)[1:] if first else array(value)[:-1]
        ),
        _parse_pop,
    ),
    "$pull": UpdateOperator(pull, lambda operand, _: (operand,)),  # the parser reads conditions
    "$pullAll": UpdateOperator(pull, lambda operand, position: _values(operand.value, position)),
    "$bit": UpdateOperator(lambda steps, value, _: combine_bits(steps, value), _parse_bits),
}


def added_size(operand: Any) -> int:
    """Return about how many characters of JSON an operand adds to a body."""
    if isinstance(operand, Value):
        return len(operand.text)
    values = operand.values if isinstance(operand, Push) else operand
    return sum(len(value.text) + 1 for value in values)
