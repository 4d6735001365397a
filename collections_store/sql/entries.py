"""Tables of the entries of indexes through arrays: a row for each key of a document (see `query.multikey`).

A FROM clause opens the value at each prefix of the paths, so that a row of its result is a key. A dialect renders it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..expressions.path import path_prefixes
from ..query.index import Index
from .elements import Keys


class KeyStep(NamedTuple):
    """A prefix of an index's paths; `owner` is the number of the step before its last key, None at the body itself."""

    keys: Keys
    owner: int | None


def steps_of(index: Index) -> list[KeyStep]:
    """Return the prefixes of an index's paths, each behind its owner."""
    prefixes = list(dict.fromkeys(p for path in index.paths for p in path_prefixes(path.keys)))
    return [KeyStep(each, prefixes.index(each[:-1]) if each[1:] else None) for each in prefixes]


def chains_of(index: Index, steps: Sequence[KeyStep]) -> list[list[int]]:
    """Return the numbers of the steps of each path that is no prefix of another. Two arrays are side by side if no such
    path has both.
    """
    keys = [path.keys for path in index.paths]
    longest = [one for one in keys if not any(each[: len(one)] == one != each for each in keys)]
    return [
        [n for n, step in enumerate(steps) if one[: len(step.keys)] == step.keys] for one in longest
    ]


def column_names(parts: Sequence[str], fields: int) -> list[list[str]]:
    """Return the names of each field's columns; those of the first field are the `parts` themselves."""
    return [[f"{part}{number or ''}" for part in parts] for number in range(fields)]
