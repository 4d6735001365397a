"""How much a value would weigh when written, so that no formula and no stage can eat the memory.

A formula may say in a line what fills a machine: `$range` to a billion, or an array that holds
another twice, which holds another twice … The latter takes no memory before it is written.
"""

from __future__ import annotations

from typing import Any, Final

from ..codec import MAX_DEPTH
from .operands import Unfit

MAX_WEIGHT: Final = 16 * 2**20
"""What one computed value may weigh: as much as a body may, by default."""
SCALAR: Final = 8
"""What a value weighs besides its characters."""
MAX_ELEMENTS: Final = MAX_WEIGHT // SCALAR
MEMORY_LIMIT: Final = 100 * 2**20
"""What each stage of a pipeline may hold by default, in bytes, about: characters of JSON are what is counted."""


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


def checked(value: Any) -> Any:
    """Return a computed value if it is not too large; raises `Unfit`."""
    if isinstance(value, list | dict | str) and weight_of(value) > MAX_WEIGHT:
        raise too_large()
    return value


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
