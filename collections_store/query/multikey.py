"""The keys of a document in an index through arrays, as MongoDB has them.

A document has a key for each element of the arrays on the paths. Only one array is opened at a time: the paths of an
index may share an array, or go through arrays within its elements, but may not lead to two arrays side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..expressions.path import Path, walk
from ..expressions.values import MISSING

EMPTY: Final[list[Any]] = []
"""The key of an empty array at the end of a path. Only this list itself, no other empty list, is this key."""


class ParallelArrays(Exception):
    """The paths at these positions lead to two arrays side by side."""

    first: int
    second: int

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)
        self.first, self.second = first, second


def index_keys(
    body: Any, paths: Sequence[Path], *, sparse: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of a document, a value for each path: null where a field is missing. A key may come again.
    `sparse`: a key has at least one of the fields. Raise `ParallelArrays`.
    """
    rest: list[tuple[str, ...] | None] = [path.keys for path in paths]
    for key in _expanded(body, rest, [MISSING] * len(paths)):
        if not sparse or any(value is not MISSING for value in key):
            yield tuple(None if value is MISSING else value for value in key)


def _expanded(
    body: Any, rest: list[tuple[str, ...] | None], values: list[Any]
) -> Iterator[tuple[Any, ...]]:
    """Yield the keys in `body` with the `rest` of each path; None: the value of the path is known."""
    rest, values, through = rest.copy(), values.copy(), list[int]()
    array: Any = MISSING
    for number, keys in enumerate(rest):
        if keys is None:
            continue
        found, left = walk(body, keys) if isinstance(body, dict) else (MISSING, ())
        if not isinstance(found, list):
            values[number], rest[number] = found, None
        elif array is MISSING or found is array:
            array, rest[number] = found, left
            through.append(number)
        else:
            raise ParallelArrays(through[0], number)
    if array is MISSING:
        yield tuple(values)
    for element in (array or [EMPTY]) if through else ():
        ends = [number for number in through if not rest[number]]
        inner = [None if number in ends else keys for number, keys in enumerate(rest)]
        known = [element if number in ends else value for number, value in enumerate(values)]
        yield from _expanded(element, inner, known)
