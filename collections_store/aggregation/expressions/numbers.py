"""Numbers: integers stay integers within 64 bit and become floats beyond, as in MongoDB."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import Any, Final

from ...codec import MAX_INTEGER, MIN_INTEGER
from ...query.values import is_number
from .operands import Unfit, is_null, null_for_null, number, result, whole

_EXACT: Final = Context(prec=800)


class Total:
    """A sum of numbers, exact until it is read: the order of the numbers does not matter.

    What floats cannot hold on the way, and floats that come many times, are summed as fractions.
    """

    __slots__ = ("_floats", "_fractions", "_integers", "_partials", "count")

    def __init__(self) -> None:
        self._integers, self._floats, self.count = 0, False, 0
        self._partials: list[float] = []
        self._fractions = Fraction(0)

    def add(self, value: Any, times: int = 1) -> None:
        """Add a number, so many times."""
        self.count += times
        if isinstance(value, int):
            self._integers += value * times
            return
        self._floats = True
        partials = _partials(self._partials, value) if times == 1 else None
        if partials is None:
            self._fractions += Fraction(value) * times
        else:
            self._partials = partials

    def total(self) -> float:
        """Return the sum; a float if one of the numbers was."""
        if not self._floats:
            return result(self._integers)
        return self._rounded()

    def average(self) -> float | None:
        """Return the average, always a float; None without numbers."""
        if not self.count:
            return None
        return result(self._rounded() / self.count)

    def _rounded(self) -> float:
        try:
            if not self._fractions:
                return math.fsum([*self._partials, *_halves(self._integers)])
            return float(sum(map(Fraction, self._partials), self._fractions + self._integers))
        except OverflowError:
            raise Unfit("gives a number that JSON cannot hold", None) from None


def _partials(partials: list[float], value: float) -> list[float] | None:
    """Add a float to floats that do not overlap: what each addition rounds off is kept; None: the
    sum is no float.
    """
    kept = []
    for each in partials:
        large, small = (value, each) if abs(value) >= abs(each) else (each, value)
        value = large + small
        if not math.isfinite(value):
            return None
        rest = small - (value - large)
        if rest:
            kept.append(rest)
    return [*kept, value]


def _halves(value: int) -> tuple[float, float]:
    high = float(value)
    return high, float(value - int(high))


def add(*operands: Any) -> Any:
    """`$add`."""
    total: float = 0
    for each in operands:
        if is_null(each):
            return None
        total = result(total + number(each))
    return total


def multiply(*operands: Any) -> Any:
    """`$multiply`."""
    product: float = 1
    for each in operands:
        if is_null(each):
            return None
        product = result(product * number(each))
    return product


@null_for_null
def subtract(left: Any, right: Any) -> Any:
    """`$subtract`."""
    return result(number(left) - number(right))


@null_for_null
def divide(left: Any, right: Any) -> Any:
    """`$divide`: always a float."""
    if number(right) == 0:
        raise Unfit("cannot divide by 0", right)
    return result(float(number(left)) / float(right))


@null_for_null
def modulo(left: Any, right: Any) -> Any:
    """`$mod`: with the sign of what is divided; an integer of an integer and a whole number."""
    if number(right) == 0:
        raise Unfit("cannot divide by 0", right)
    if isinstance(number(left), int) and right == right // 1:
        remainder = abs(left) % abs(int(right))
        return -remainder if left < 0 else remainder
    return math.fmod(left, right)


@null_for_null
def absolute(value: Any) -> Any:
    """`$abs`."""
    if isinstance(value, int) and value == MIN_INTEGER:
        raise Unfit(f"gives an integer beyond 64 bit: {value}", value)
    return result(abs(number(value)))


@null_for_null
def ceiling(value: Any) -> Any:
    """`$ceil`."""
    return value if isinstance(number(value), int) else float(math.ceil(value))


@null_for_null
def floor(value: Any) -> Any:
    """`$floor`."""
    return value if isinstance(number(value), int) else float(math.floor(value))


@null_for_null
def rounded(value: Any, place: Any = 0) -> Any:
    """`$round`: half to even, as Python rounds."""
    digits = whole(place, -20, 100)
    return _still_whole(round(number(value), digits))


@null_for_null
def truncated(value: Any, place: Any = 0) -> Any:
    """`$trunc`: toward 0."""
    digits = whole(place, -20, 100)
    if isinstance(number(value), int) and digits >= 0:
        return value
    step = Decimal(1).scaleb(-digits)
    cut = Decimal(value).quantize(step, ROUND_DOWN, context=_EXACT)
    return int(cut) if isinstance(value, int) else float(cut)


@null_for_null
def power(base: Any, exponent: Any) -> Any:
    """`$pow`."""
    base, exponent = number(base), number(exponent)
    if base == 0 and exponent < 0:
        raise Unfit("cannot raise 0 to a negative power", exponent)
    small = abs(base) <= 1 or 0 <= exponent <= 64
    try:
        if isinstance(base, int) and isinstance(exponent, int) and small:
            return result(base ** abs(exponent))
        return result(math.pow(base, exponent))
    except (OverflowError, ValueError):
        raise Unfit(f"gives no number that JSON can hold: {base} ** {exponent}", base) from None


@null_for_null
def square_root(value: Any) -> Any:
    """`$sqrt`."""
    if number(value) < 0:
        raise Unfit(f"needs a number from 0 on, not {value}", value)
    return math.sqrt(value)


@null_for_null
def exponential(value: Any) -> Any:
    """`$exp`."""
    try:
        return math.exp(number(value))
    except OverflowError:
        raise Unfit(f"gives no number that JSON can hold: e ** {value}", value) from None


@null_for_null
def logarithm(value: Any, base: Any = math.e) -> Any:
    """`$log` and `$ln`."""
    _positive(value)
    if _positive(base) == 1:
        raise Unfit("needs a base other than 1", base)
    return math.log(value) if base == math.e else result(math.log(value) / math.log(base))


@null_for_null
def logarithm_10(value: Any) -> Any:
    """`$log10`."""
    return math.log10(_positive(value))


def _still_whole(value: Any) -> Any:
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise Unfit(f"gives {value}, an integer beyond 64 bit", value)
    return value


def _positive(value: Any) -> Any:
    if number(value) <= 0:
        raise Unfit(f"needs a number above 0, not {value}", value)
    return value


def total_of(*operands: Any) -> Any:
    """`$sum` of operands, or of the elements of a single one; what is no number counts nothing."""
    return _total(operands).total()


def average_of(*operands: Any) -> Any:
    """`$avg`, in the same manner; null without numbers."""
    return _total(operands).average()


def _total(operands: tuple[Any, ...]) -> Total:
    total = Total()
    for each in opened(operands):
        if is_number(each):
            total.add(each)
    return total


def opened(operands: tuple[Any, ...]) -> Iterable[Any]:
    """Return the operands, or the elements of a single one that is an array."""
    single = len(operands) == 1 and isinstance(operands[0], list)
    return operands[0] if single else operands
