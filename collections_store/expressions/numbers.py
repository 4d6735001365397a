"""Numbers: integers stay integers within 64 bit and become floats beyond, as in MongoDB."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from ..codec import MAX_INTEGER, MIN_INTEGER
from .evaluation import OperandError, is_null, named, number, result
from .values import is_number

_EXACT: Final = Context(prec=800)
_NOTHING: Final = Fraction(0)


class Total:
    """A sum of numbers, exact until read: the order of the numbers does not matter.

    Sums beyond floats, and floats that come many times, are fractions.
    """

    __slots__ = ("_floats", "_fractions", "_integers", "_partials", "count")

    count: int

    def __init__(self) -> None:
        self._integers, self._floats, self.count = 0, False, 0
        self._partials: list[float] = []
        self._fractions = _NOTHING

    def add(self, value: Any, times: int = 1) -> None:
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

    def add_integers(self, total: int, count: int) -> None:
        """Add the sum of `count` integers."""
        self._integers += total
        self.count += count

    def total(self) -> float:
        """Return the sum; a float if any number was a float."""
        return self._rounded() if self._floats else result(self._integers)

    def average(self) -> float | None:
        """Return the average, always a float; None without numbers."""
        return result(self._rounded() / self.count) if self.count else None

    def _rounded(self) -> float:
        try:
            if not self._fractions:
                high = float(self._integers)
                return math.fsum([*self._partials, high, float(self._integers - int(high))])
            return float(sum(map(Fraction, self._partials), self._fractions + self._integers))
        except OverflowError:
            raise OperandError("gives a number that JSON cannot hold") from None


def _partials(partials: list[float], value: float) -> list[float] | None:
    """Add a float to floats that do not overlap, without rounding; None: the sum is not finite."""
    others = []
    for each in partials:
        large, small = (value, each) if abs(value) >= abs(each) else (each, value)
        value = large + small
        if not math.isfinite(value):
            return None
        rest = small - (value - large)
        if rest:
            others.append(rest)
    return [*others, value]


def add(*operands: Any) -> Any:
    """Return the sum; null, if an operand is null."""
    found: float = 0
    for each in operands:
        if is_null(each):
            return None
        found = result(found + number(each))
    return found


def multiply(*operands: Any) -> Any:
    """Return the product; null, if an operand is null."""
    found: float = 1
    for each in operands:
        if is_null(each):
            return None
        found = result(found * number(each))
    return found


def divide(left: Any, right: Any) -> Any:
    """Return the quotient, always a float."""
    if right == 0:
        raise OperandError("cannot divide by 0", right)
    return result(float(left) / float(right))


def modulo(left: Any, right: Any) -> Any:
    """Return the remainder with the sign of the dividend; an integer of an integer and an integral number."""
    if right == 0:
        raise OperandError("cannot divide by 0", right)
    if isinstance(left, int) and right == right // 1:
        remainder = abs(left) % abs(int(right))
        return -remainder if left < 0 else remainder
    return math.fmod(left, right)


def absolute(value: Any) -> Any:
    """Return the absolute value."""
    if isinstance(value, int) and value == MIN_INTEGER:
        raise OperandError(f"gives an integer beyond 64 bit: {value}", value)
    return result(abs(value))


def rounded(value: Any, digits: int = 0) -> Any:
    """Return the number rounded to `digits` places, half to even."""
    found = round(value, digits)
    if isinstance(found, int) and not MIN_INTEGER <= found <= MAX_INTEGER:
        raise OperandError(f"gives {found}, an integer beyond 64 bit", found)
    return found


def truncated(value: Any, digits: int = 0) -> Any:
    """Return the number cut off after `digits` places."""
    if isinstance(value, int) and digits >= 0:
        return value
    step = Decimal(1).scaleb(-digits)
    found = Decimal(value).quantize(step, ROUND_DOWN, context=_EXACT)
    return int(found) if isinstance(value, int) else float(found)


def power(base: Any, exponent: Any) -> Any:
    """Return a power; an integer of integers if the result has 64 bits at most."""
    if base == 0 and exponent < 0:
        raise OperandError("cannot raise 0 to a negative power", exponent)
    small = abs(base) <= 1 or 0 <= exponent <= 64
    try:
        if isinstance(base, int) and isinstance(exponent, int) and small:
            return result(base ** abs(exponent))
        return result(math.pow(base, exponent))
    except (OverflowError, ValueError):
        problem = f"gives no number that JSON can hold: {base} ** {exponent}"
        raise OperandError(problem, base) from None


def square_root(value: Any) -> Any:
    """Return the square root."""
    if value < 0:
        raise OperandError(f"requires a number from 0 on, got {value}", value)
    return math.sqrt(value)


def exponential(value: Any) -> Any:
    """Return e to a power."""
    try:
        return math.exp(value)
    except OverflowError:
        problem = f"gives no number that JSON can hold: e ** {value}"
        raise OperandError(problem, value) from None


def logarithm(value: Any, base: Any = math.e) -> Any:
    """Return the logarithm."""
    if positive(base) == 1:
        raise OperandError("requires a base other than 1", base)
    found = math.log(positive(value))
    return found if base == math.e else result(found / math.log(base))


def positive(value: Any) -> Any:
    """Return a number above 0 unchanged."""
    if value <= 0:
        raise OperandError(f"requires a number above 0, got {value}", value)
    return value


def deviation(sum: Any, squares: Any, count: int, besides: int) -> float | None:
    """Return the standard deviation by the exact sums of numbers and of their squares; null without enough numbers.

    `besides` is 1 for a sample, 0 for a population.
    """
    if count <= besides:
        return None
    variance = Fraction(squares * count - sum * sum) / (count * (count - besides))
    try:
        return math.sqrt(variance)
    except OverflowError:
        return result(math.isqrt(int(variance)))


class Covariance:
    """The covariance of pairs of numbers, by exact sums: a pair can be removed again."""

    __slots__ = ("_count", "_left", "_products", "_right")

    def __init__(self) -> None:
        self._count = 0
        self._left: int | Fraction = 0
        self._right: int | Fraction = 0
        self._products: int | Fraction = 0

    def add(self, left: Any, right: Any, times: int) -> None:
        """Add a pair, or remove it if `times` is -1. A pair with another value than a number does not count."""
        if not is_number(left) or not is_number(right):
            return
        one, other = (each if isinstance(each, int) else Fraction(each) for each in (left, right))
        self._count += times
        self._left += one * times
        self._right += other * times
        self._products += one * other * times

    def result(self, besides: int) -> float | None:
        """Return the covariance; null without enough pairs. `besides` is 1 for a sample, 0 for a population."""
        count = self._count
        if count <= besides:
            return None
        total = Fraction(self._products * count - self._left * self._right)
        try:
            return float(total / (count * (count - besides)))
        except OverflowError:
            raise OperandError("gives a number that JSON cannot hold") from None


def deviation_of(besides: int, *operands: Any) -> float | None:
    """Return the standard deviation of the numbers among the operands, or among the elements of a single operand."""
    some = [Fraction(each) for each in operands_or_elements(operands) if is_number(each)]
    return deviation(sum(some), sum(each * each for each in some), len(some), besides)


def percentiles(values: list[Any], points: Iterable[float]) -> list[float | None]:
    """Return the smallest number that at least each part of the numbers does not exceed; null without numbers."""
    found = sorted(values)
    if not found:
        return [None for _ in points]
    return [
        found[max(0, math.ceil(p * len(found)) - 1)] + 0.0 for p in points
    ]  # no -0.0: 0 may precede or follow it


def percentiles_of(value: Any, points: list[float]) -> list[float | None]:
    """Return the percentiles of the numbers of an array, or of a single number."""
    values = value if isinstance(value, list) else [value]
    return percentiles([each for each in values if is_number(each)], points)


def bits(combine: Callable[[int, int], int], start: int, *operands: Any) -> Any:
    """Return the bits of all operands combined; null, if an operand is null."""
    if any(map(is_null, operands)):
        return None
    return reduce(combine, (_bits(each) for each in operands), start)


def _bits(value: Any) -> int:
    if type(value) is not int:
        raise OperandError(f"requires an integer, got {named(value)}", value)
    return value


def inverted_bits(value: Any) -> int:
    """Return an integer with all bits changed."""
    return ~_bits(value)


def analytic(function: Callable[..., float], *operands: Any) -> float:
    """Return the value of a function of real numbers."""
    try:
        return result(function(*operands))
    except (ValueError, OverflowError):
        given = ", ".join(map(str, operands))
        problem = f"gives no number that JSON can hold, for {given}"
        raise OperandError(problem, operands[0]) from None


def sigmoid(value: Any) -> float:
    """Return 1 / (1 + e ** -value)."""
    try:
        return 1 / (1 + math.exp(-value))
    except OverflowError:
        return 0.0


def total(*operands: Any) -> Total:
    """Return the total of the numbers among the operands, or among the elements of a single operand."""
    found = Total()
    for each in operands_or_elements(operands):
        if is_number(each):
            found.add(each)
    return found


def operands_or_elements(operands: tuple[Any, ...]) -> Iterable[Any]:
    """Return the operands, or the elements of a single array."""
    single = len(operands) == 1 and isinstance(operands[0], list)
    return operands[0] if single else operands
