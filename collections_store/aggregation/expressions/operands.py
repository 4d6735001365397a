"""Operands: what operators accept, how values compare where some are missing, and how much memory they take.

A formula may say in a line what fills a machine: `$range` to a billion, or an array that holds
another twice, which holds another twice … The latter takes no memory before it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from functools import cmp_to_key, partial, wraps
from sys import getsizeof
from typing import Any, Final

from ...codec import MAX_DEPTH, MAX_INTEGER, MIN_INTEGER
from ...errors import shortened
from ...query.values import MISSING, compare, is_number

ABSENT: Final = object()
"""An optional operand that was not given."""


class Unfit(Exception):
    """An operator cannot take `found`; the evaluation knows which operator it is."""

    def __init__(self, problem: str, found: Any = None) -> None:
        super().__init__(problem)
        self.problem, self.found = problem, None if found is MISSING else found


def is_null(value: Any) -> bool:
    """Return whether a value is null or missing."""
    return value is None or value is MISSING


def truthy(value: Any) -> bool:
    """Return whether a value counts as true: all do but false, 0, null and what is missing."""
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    return value is not MISSING


def null_for_null(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have `function` give null where one of its operands is null or missing."""

    @wraps(function)
    def guarded(*operands: Any, **options: Any) -> Any:
        return None if any(map(is_null, operands)) else function(*operands, **options)

    return guarded


def number(value: Any) -> Any:
    """Return a number as it is."""
    if not is_number(value):
        raise Unfit(f"needs a number, not {named(value)}", value)
    return value


def whole(value: Any, low: int = MIN_INTEGER, high: int = MAX_INTEGER) -> int:
    """Return a whole number within bounds, 2.0 included, as an integer."""
    if not is_number(value) or value != value // 1 or not low <= value <= high:
        bounds = "" if (low, high) == (MIN_INTEGER, MAX_INTEGER) else f" from {low} to {high}"
        raise Unfit(f"needs a whole number{bounds}, not {named(value)}", value)
    return int(value)


def text(value: Any) -> str:
    """Return a string as it is."""
    if not isinstance(value, str):
        raise Unfit(f"needs a string, not {named(value)}", value)
    return value


def array(value: Any) -> list[Any]:
    """Return an array as it is."""
    if not isinstance(value, list):
        raise Unfit(f"needs an array, not {named(value)}", value)
    return value


def mapping(value: Any) -> dict[str, Any]:
    """Return an object as it is."""
    if not isinstance(value, dict):
        raise Unfit(f"needs an object, not {named(value)}", value)
    return value


def result(value: float) -> float:
    """Return the result of a calculation as JSON can hold it: an integer beyond 64 bit as a float."""
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        value = float(value)
    if not math.isfinite(value):
        raise Unfit(f"gives {value}, which is not JSON", None)
    return value


def named(value: Any) -> str:
    """Return a value as an error names it."""
    return "what is missing" if value is MISSING else shortened(value)


MAX_WEIGHT: Final = 16 * 2**20
"""What one computed value may weigh: as much as a body may, by default."""
SCALAR: Final = 8
"""What a value weighs besides its characters."""
MAX_ELEMENTS: Final = MAX_WEIGHT // SCALAR
MEMORY_LIMIT: Final = 100 * 2**20
"""What each stage of a pipeline, and the formulas of one document, may hold by default, in bytes."""
POINTER: Final = 8
NUMBER: Final = 32
"""What a number takes in memory, besides the pointer to it."""
STRING: Final = 57
"""What a string takes, besides its characters."""
ARRAY: Final = 56
"""What an array takes, besides the pointers in it."""
PAIR: Final = 232
"""What an object of two fields takes, besides their values."""
_SMALL: Final = 4
"""Values with fewer elements are counted wherever they are, be they shared."""


def weight_of(value: Any, enough: int = MAX_WEIGHT) -> int:
    """Return about the characters of a value's JSON; the count ends where it exceeds `enough`.

    Raises `Unfit` for what is nested deeper than a body may be.
    """
    if not isinstance(value, list | dict):
        return SCALAR + (len(value) if isinstance(value, str) else 0)
    total, level = 0, list[Any]([value])
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for one in level:
            total += SCALAR
            if isinstance(one, str):
                total += len(one)
            elif isinstance(one, list):
                below.extend(one)
            elif isinstance(one, dict):
                total += sum(map(len, one))
                below.extend(one.values())
            if total + len(below) * SCALAR > enough:
                return total + len(below) * SCALAR
        if not below:
            return total
        level = below
    raise Unfit(f"gives a value nested deeper than {MAX_DEPTH} levels")


def size_of(value: Any, enough: int, seen: set[int] | None = None) -> int:
    """Return the bytes of memory that a value takes; the count ends where it exceeds `enough`.

    `seen` are arrays and objects that were counted before, as long as all that was counted is there: what
    values share is counted once. Raises `Unfit` for what is nested deeper than a body may be.
    """
    total, level = 0, [value]
    for _ in range(MAX_DEPTH + 3):
        total += sum(map(getsizeof, level))
        below: list[Any] = []
        for each in level:
            if isinstance(each, list | dict):
                if seen is not None and len(each) >= _SMALL:
                    if id(each) in seen:
                        total -= getsizeof(each)
                        continue
                    seen.add(id(each))
                below.extend(each if isinstance(each, list) else each.values())
        if not below or total > enough:
            return total
        level = below
    raise Unfit(f"gives a value nested deeper than {MAX_DEPTH} levels")


class Workspace:
    """What the formulas of one document hold while they are evaluated, in bytes.

    `held` is counted up as values are made and is never too small. Where it reaches the limit, what is
    really there is counted: the values in `live`, which are all that formulas still need.
    """

    __slots__ = ("_body", "_limit", "_most", "held", "live")

    def __init__(self, body: Any, limit: int) -> None:
        self._body, self._limit, self._most = body, limit, limit
        self.held, self.live = 0, list[Any]()

    def hold(self, size: int) -> None:
        """Count so many bytes more; raises `Unfit`."""
        if self.held + size > self._most:
            self._count(size)
        self.held += size

    def made(self, value: Any) -> None:
        """Count an array or object that was made and is needed; raises `Unfit`."""
        self.live.append(value)
        self.held += getsizeof(value)
        if self.held > self._most:
            self._count(0)

    def _count(self, size: int) -> None:
        """Count anew; again after a quarter of the limit, so that counting costs less than making. Of
        what is there, the body of the document may be a part.
        """
        most = self._limit + size_of(self._body, 2**63)
        self.held = size_of(self.live, most, set())
        if self.held + size > most:
            raise Unfit(f"takes more than {self._limit:,} bytes of memory")
        self._most = max(self._limit, self.held + size + self._limit // 4)


def checked(value: Any) -> Any:
    """Return a computed value if it is not too large; raises `Unfit`."""
    check_weight(value)
    return value


def check_weight(value: Any) -> int:
    """Return the weight of a value that is not too large; raises `Unfit`."""
    weight = weight_of(value)
    if weight > MAX_WEIGHT:
        raise too_large()
    return weight


def check_length(characters: int) -> None:
    """Raise `Unfit` if a string would be too long."""
    if characters > MAX_WEIGHT:
        raise too_large()


def check_elements(elements: int) -> None:
    """Raise `Unfit` if an array would have too many elements."""
    if elements > MAX_ELEMENTS:
        raise too_large()


def too_large() -> Unfit:
    """Return the error of a value that is too large."""
    return Unfit(f"gives a value of more than {MAX_WEIGHT:,} characters")


def order(left: Any, right: Any, *, ordered: bool = True) -> int:
    """Return -1, 0 or 1; `ordered`: does the order of an object's keys count?"""
    if left is MISSING or right is MISSING:
        return int(right is MISSING) - int(left is MISSING)
    return compare(left, right, ordered=ordered)


def sort_key(ordered: bool) -> Callable[[Any], Any]:
    """Return the key function that sorts values by `order`."""
    return cmp_to_key(partial(order, ordered=ordered))


def key_of(value: Any, *, ordered: bool = True) -> Hashable:
    """Return what is equal and hashes alike for equal values only: 1 and 1.0, but not true."""
    match value:
        case bool():
            return (bool, value)
        case list():
            return (list, *(key_of(each, ordered=ordered) for each in value))
        case dict():
            pairs = ((key, key_of(each, ordered=ordered)) for key, each in value.items())
            return (dict, *(pairs if ordered else sorted(pairs, key=lambda pair: pair[0])))
    found: Hashable = value
    return found


def distinct(values: Iterable[Any], *, ordered: bool = True) -> dict[Hashable, Any]:
    """Return the values by their keys, the first of those that are equal."""
    found: dict[Hashable, Any] = {}
    for value in values:
        found.setdefault(key_of(value, ordered=ordered), value)
    return found


def among(value: Any, values: Iterable[Any], *, ordered: bool = True) -> bool:
    """Return whether a value equals one of others."""
    key = key_of(value, ordered=ordered)
    return any(key_of(each, ordered=ordered) == key for each in values)
