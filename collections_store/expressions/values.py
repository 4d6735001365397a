"""JSON values as MongoDB compares them.

Numbers are one type: 1 equals 1.0, and both compare exactly. Neither equals true or "1".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .collation import Collator, Ordered

MISSING: Final = object()
"""The value of a path that leads nowhere."""
RANKS: Final[dict[type, int]] = {
    type(None): 1,
    int: 2,
    float: 2,
    str: 3,
    dict: 4,
    list: 5,
    bool: 8,
}
"""MongoDB's order of types."""


def equal(left: Any, right: Any, *, ordered: Ordered = True) -> bool:
    """Return whether two JSON values are equal. Values of different types never are."""
    if ordered is not True and type(ordered) is Collator:
        return equal(ordered.keyed(left), ordered.keyed(right), ordered=ordered.ordered)
    match left, right:
        case (bool(), _) | (_, bool()):
            return left is right
        case dict(), dict():
            if len(left) != len(right) or (ordered and list(left) != list(right)):
                return False
            return all(k in right and equal(v, right[k], ordered=ordered) for k, v in left.items())
        case list(), list():
            pairs = zip(left, right, strict=False)
            return len(left) == len(right) and all(equal(a, b, ordered=ordered) for a, b in pairs)
    return bool(left == right)


def identical(left: Any, right: Any, *, ordered: Ordered = True) -> bool:
    """Return whether two JSON values have the same JSON: 1 and 1.0 do not, nor 0.0 and -0.0, nor, if
    `ordered`, objects with keys in another order.
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    match left:
        case dict():
            if left.keys() != right.keys() or (ordered and list(left) != list(right)):
                return False
            pairs = zip(left.values(), map(right.__getitem__, left), strict=True)
        case list():
            if len(left) != len(right):
                return False
            pairs = zip(left, right, strict=True)
        case float():
            return str(left) == str(right)
        case _:
            return bool(left == right)
    for one, other in pairs:
        if one is not other and not identical(one, other, ordered=ordered):
            return False
    return True


def compare(left: Any, right: Any, *, ordered: Ordered = True) -> int:
    """Return -1, 0 or 1: MongoDB's order of two JSON values of any types."""
    if ordered is not True and type(ordered) is Collator:
        return compare(ordered.keyed(left), ordered.keyed(right), ordered=ordered.ordered)
    ranks = RANKS[type(left)], RANKS[type(right)]
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    match left:
        case None:
            return 0
        case dict():
            return _first_difference(_fields(left, ordered), _fields(right, ordered), ordered)
        case list():
            pairs = zip(left, right, strict=False)
            differences = (compare(a, b, ordered=ordered) for a, b in pairs)
            found = next((each for each in differences if each), 0)
            return found or _sign(len(left), len(right))
    return _sign(left, right)


def _first_difference(left: list[Any], right: list[Any], ordered: Ordered) -> int:
    for (key, value), (other, against) in zip(left, right, strict=False):
        found = (
            _sign(RANKS[type(value)], RANKS[type(against)])
            or _sign(key, other)
            or compare(value, against, ordered=ordered)
        )
        if found:
            return found
    return _sign(len(left), len(right))


def _fields(value: dict[str, Any], ordered: Ordered) -> list[tuple[str, Any]]:
    return list(value.items()) if ordered else sorted(value.items(), key=lambda item: item[0])


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number; a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_int(value: Any) -> bool:
    """Return whether a JSON value is of MongoDB's type "int": an integer of 32 bits."""
    return type(value) is int and -(2**31) <= value < 2**31


TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "double": lambda value: isinstance(value, float),
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "bool": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "int": is_int,
    "long": lambda value: type(value) is int and not is_int(value),
    "number": is_number,
}
"""A function for each of MongoDB's types that returns whether a JSON value has it."""
NON_JSON_TYPES: Final = (
    "undefined", "binData", "objectId", "date", "regex", "dbPointer", "javascript", "symbol",
    "javascriptWithScope", "timestamp", "decimal", "minKey", "maxKey",
)  # fmt: skip
"""Types of MongoDB's that no JSON value has."""
