"""What stands behind an operator, read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from ..errors import InvalidFilter, cut, shortened
from ..values import FOREIGN_TYPES
from .conditions import (
    LISTS,
    Bits,
    BitsOperator,
    HasSize,
    HasType,
    Modulo,
    OneOf,
    Passes,
    Test,
    TypeName,
    Value,
)

_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_TYPES: Final[dict[str | int, TypeName | None]] = {
    **{name: name for name in get_args(TypeName)},
    1: "double", 2: "string", 3: "object", 4: "array", 8: "bool", 10: "null", 16: "int", 18: "long",
    # types that no JSON value has
    **dict.fromkeys(
        [*FOREIGN_TYPES, 5, 6, 7, 9, 11, 12, 13, 14, 15, 17, 19, -1, 127],
    ),
}  # fmt: skip

_BITS: Final[Mapping[str, BitsOperator]] = {name: name for name in get_args(BitsOperator)}


def regex(operand: Any, siblings: Mapping[str, Any], place: str) -> re.Pattern[str]:
    """Read `$regex` and its sibling `$options`; raises `InvalidFilter`."""
    options = siblings.get("$options")
    if isinstance(operand, re.Pattern) and options is None:
        return of_text(operand, place)
    pattern = operand.pattern if isinstance(operand, re.Pattern) else operand
    if not isinstance(pattern, str):
        raise InvalidFilter(place, f"{shortened(operand)} is no regular expression of text")
    options = "" if options is None else options
    if not isinstance(options, str) or not set(options) <= set(_FLAGS):
        raise InvalidFilter(place, f"$options is {shortened(options)}: there are i, m, s and x")
    flags = 0
    for letter in options:
        flags |= _FLAGS[letter]
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise InvalidFilter(place, f"no regular expression: {cut(str(error))}") from None


def of_text(pattern: re.Pattern[Any], place: str) -> re.Pattern[str]:
    """Return a pattern over text; raises `InvalidFilter` for one over bytes."""
    if isinstance(pattern.pattern, str):
        return pattern
    raise InvalidFilter(place, f"{shortened(pattern)} is no regular expression of text")


def truthy(operand: Any) -> bool:
    """MongoDB's rule: null, false and 0 are false, all else is true."""
    if operand is None or isinstance(operand, bool | int | float):
        return bool(operand)
    return True


def _size(operator: str, operand: Any, place: str) -> Test:  # noqa: ARG001
    if _whole(operand) is None or operand < 0:
        raise InvalidFilter(place, f"{shortened(operand)} is not a whole number from 0 on")
    return HasSize(Value.of(int(operand)))


def _modulo(operator: str, operand: Any, place: str) -> Test:  # noqa: ARG001
    if not isinstance(operand, list | tuple) or len(operand) != 2:
        raise InvalidFilter(place, "needs a divisor and a remainder: [4, 0]")
    numbers = [_truncated(each) for each in operand]
    if numbers[0] is None or numbers[1] is None:
        raise InvalidFilter(place, f"{shortened(operand)} are not two finite 64-bit numbers")
    if numbers[0] == 0:
        raise InvalidFilter(place, "the divisor must not be 0")
    return Modulo(Value.of(numbers[0]), Value.of(numbers[1]))


def _types(operator: str, operand: Any, place: str) -> Test:  # noqa: ARG001
    wanted = operand if isinstance(operand, list | tuple) else [operand]
    if not wanted:
        raise InvalidFilter(place, "needs a type at least")
    found = set()
    for each in wanted:
        key = _whole(each) if isinstance(each, int | float) else each
        if isinstance(each, bool) or not isinstance(key, str | int) or key not in _TYPES:
            raise InvalidFilter(place, f"{shortened(each)} is no type of MongoDB's")
        found.add(_TYPES[key])
    names = tuple(sorted(name for name in found if name is not None))
    return HasType(names) if names else Passes(())


def _bits(operator: str, operand: Any, place: str) -> Test:
    mask = 0
    if isinstance(operand, list | tuple):
        for each in operand:
            position = _whole(each)
            if position is None or not 0 <= position < 63:
                raise InvalidFilter(
                    place, f"{shortened(each)} is not a bit's position from 0 to 62"
                )
            mask |= 1 << position
    else:
        number = _whole(operand)
        if number is None or not 0 <= number < 2**63:
            raise InvalidFilter(place, "needs a mask from 0 to 2**63 - 1, or a list of positions")
        mask = number
    return Bits(_BITS[operator], Value.of(mask))


READERS: Final[Mapping[str, Callable[[str, Any, str], Test]]] = {
    "$size": _size,
    "$mod": _modulo,
    "$type": _types,
    **dict.fromkeys(_BITS, _bits),
}
"""What reads the operand of an operator, for those that need no more than their operand."""


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value)


def _truncated(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if -(2**63) <= value < 2**63 else None


def one_of(scalars: list[Value]) -> OneOf:
    """Return the test that a value is among scalars, sorted by type."""
    lists = []
    for kind, name in LISTS.items():
        values = [value for value in scalars if value.kind == kind]
        if values:
            lists.append(values[0] if kind == "null" else Value.of_list(name, values))
    return OneOf(tuple(lists))
