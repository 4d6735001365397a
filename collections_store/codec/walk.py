"""The walk over the values of a body before each write: in C where the package was built with a compiler, else in Python.

`_walk.c` is `bytes_left_in_python` in C, and takes a tenth of the time. Nothing else depends on which of the two runs.
"""

from __future__ import annotations

from typing import Any, Final

MAX_DEPTH: Final = 200
"""Nested containers; orjson's limit is 254, that of SQLite 3.51 is 1,000."""
MAX_INTEGER: Final = 2**63 - 1
MIN_INTEGER: Final = -(2**63)
SPELLED_OUT: Final = 1e16
"""Floats from here on have an exponent in orjson's spelling."""


def bytes_left_in_python(body: Any, remaining: int, depth: int = 1) -> int:
    """Return how many of the `remaining` bytes the values of a body leave. Negative: the body is too large, or orjson
    would spell a value (strings and keys aside) against rule 1 of `codec`. `depth`: the containers around a value.

    A value and its separator take a byte each at least. The walk ends when no byte is left: a body that contains the
    same list again and again may be far larger than the memory.
    """
    kind = type(body)
    if kind is dict:
        values = body.values()
    elif kind is list:
        values = body
    else:
        values, remaining = (body,), remaining + 2
    remaining -= 2 * len(values)
    for value in values:
        kind = type(value)
        if kind is str:
            remaining -= len(value)
        elif kind is int:
            if not MIN_INTEGER <= value <= MAX_INTEGER:
                return -1
        elif kind is dict or kind is list:
            if depth == MAX_DEPTH:
                return -1
            remaining = bytes_left_in_python(value, remaining, depth + 1)
            if remaining < 0:
                return remaining
        elif kind is float:
            if not -SPELLED_OUT < value < SPELLED_OUT:
                return -1
        elif value is not None and kind is not bool:
            return -1
    return remaining


try:
    from ._walk import bytes_left as bytes_left
except ImportError:
    bytes_left = bytes_left_in_python
