"""MongoDB's order and equality where something may be missing: before all else, and not null."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cmp_to_key, partial
from typing import Any

from ..values import MISSING, compare


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
    """Tell whether a value equals one of others."""
    return any(order(value, each, ordered=ordered) == 0 for each in values)
