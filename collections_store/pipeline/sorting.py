"""The order of `$sort`, until the room `ordering` is there: the same interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, Final

from ..document import Document
from ..errors import InvalidFilter, shortened
from ..path import is_index
from ..values import compare

_EMPTY: Final = object()
"""The only thing to be found in an empty array; before all else."""


@dataclass(frozen=True, slots=True)
class Sort:
    """Fields and their directions: 1 is ascending, -1 descending.

    >>> Sort.parse({"age": -1}).fields
    (('age', -1),)
    """

    fields: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, what: Any) -> Sort:
        """Read a mapping of fields to directions; raises `InvalidFilter`."""
        if not isinstance(what, Mapping) or not what:
            raise InvalidFilter(
                "", f"needs a document of fields and 1 or -1, not {shortened(what)}"
            )
        for field, direction in what.items():
            if direction not in (1, -1) or isinstance(direction, bool):
                raise InvalidFilter(str(field), f"{shortened(direction)} is neither 1 nor -1")
        return cls(tuple((field, int(direction)) for field, direction in what.items()))

    def key(self, document: Document) -> Any:
        """Return what documents can be sorted by."""
        pairs = [(_best(document.body, f.split("."), d), d) for f, d in self.fields]
        return _KEY(pairs)


def _difference(left: list[tuple[Any, int]], right: list[tuple[Any, int]]) -> int:
    for (value, direction), (other, _) in zip(left, right, strict=True):
        found = _order(value, other) * direction
        if found:
            return found
    return 0


_KEY: Final = cmp_to_key(_difference)


def _order(left: Any, right: Any) -> int:
    if left is _EMPTY or right is _EMPTY:
        return int(right is _EMPTY) - int(left is _EMPTY)
    return compare(left, right)


def _best(body: Any, keys: list[str], direction: int) -> Any:
    best, *others = _emitted(body, keys) if isinstance(body, dict) else [None]
    for each in others:
        if _order(each, best) * direction < 0:
            best = each
    return best


def _emitted(value: Any, keys: list[str]) -> Iterator[Any]:
    """Yield what an index on the path would hold; what is missing is null."""
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            yield from _through(value, keys[depth:])
            return
        if not isinstance(value, dict) or key not in value:
            yield None
            return
        value = value[key]
    if isinstance(value, list):
        yield from value or [_EMPTY]
    else:
        yield value


def _through(values: list[Any], keys: list[str]) -> Iterator[Any]:
    if is_index(keys[0]):
        there = int(keys[0]) < len(values)
        element = values[int(keys[0])] if there else None
        deeper = len(keys) == 1 or isinstance(element, dict | list)
        yield from _emitted(element, keys[1:]) if deeper else [None]
    elif not values:
        yield None
    for element in () if is_index(keys[0]) else values:
        yield from _emitted(element, keys) if isinstance(element, dict) else [None]
