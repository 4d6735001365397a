"""The series of `granularity` of `$bucketAuto`: preferred numbers, and powers of two.

A series has the digits of one decade. The numbers are multiplied and divided by ten in floats, as by MongoDB's server: a
limit of a bucket is the server's to the last bit.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..expressions.evaluation import OperandError, result

POWERS: Final = "POWERSOF2"
_R40: Final = (
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280, 300,
    315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950,
)  # fmt: skip
_R80: Final = (
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290, 307,
    325, 345, 365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875, 925, 975,
)  # fmt: skip
_E24: Final = (
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
)  # fmt: skip
_E192: Final = tuple(920 if n == 185 else round(100 * 10 ** (n / 192)) for n in range(192))
"""IEC 60063 has 920 in place of the rounded 919."""
SERIES: Final[dict[str, tuple[int, ...]]] = {
    "R5": (10, 16, 25, 40, 63),
    "R10": _R40[::4],
    "R20": _R40[::2],
    "R40": tuple(each for each in _R40 if each != 335),  # the server's has no 335
    "R80": _R80,
    "1-2-5": (10, 20, 50),
    "E6": _E24[::4],
    "E12": _E24[::2],
    "E24": _E24,
    "E48": _E192[::4],
    "E96": _E192[::2],
    "E192": _E192,
    POWERS: (),
}
"""The digits of each series."""


def rounded_up(value: Any, name: str) -> Any:
    """Return the least number of a series above a number; 0 for 0. Raises `OperandError`."""
    if not value:
        return value
    if name == POWERS:
        return _power(value.bit_length() if isinstance(value, int) else math.frexp(value)[1])
    series, number, scale = SERIES[name], float(value), 1.0
    while number >= series[-1] * scale:
        scale *= 10
    while number < series[0] * scale:
        least, scale = series[0] * scale, scale / 10
        if number >= series[-1] * scale:
            return least
    return result(next(each * scale for each in series if number < each * scale))


def rounded_down(value: Any, name: str) -> Any:
    """Return the greatest number of a series below a number; 0 for 0."""
    if not value:
        return value
    if name == POWERS:
        if isinstance(value, int):
            return _power((value - 1).bit_length() - 1)
        part, exponent = math.frexp(value)
        return _power(exponent - (2 if part == 0.5 else 1))
    series, number, scale = SERIES[name], float(value), 1.0
    while number <= series[0] * scale:
        scale /= 10
    while number > series[-1] * scale and scale:
        greatest, scale = series[-1] * scale, scale * 10
        if number <= series[0] * scale:
            return greatest
    return max((each * scale for each in series if each * scale < number), default=0.0)


def _power(exponent: int) -> float:
    try:
        return result(2**exponent)
    except OverflowError:  # of an integer that no float holds
        raise OperandError("gives a number that is not JSON") from None
