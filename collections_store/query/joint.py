"""The conditions that a compound index through arrays serves together: a single key of a document passes all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from .conditions import Condition, Field, HasObject
from .index import Index
from .serving import every_conjunct, implied_by, is_in_arrays


class Served(NamedTuple):
    """A condition on scalars within the condition at a `position`. If an `$elemMatch` implies it: the number of the
    `$elemMatch`, and the keys to its array; else a number of its own, and 0.
    """

    field: Field
    position: int
    number: int
    opened: int

    def goes_with(self, other: Served) -> bool:
        """Return whether a single key has the values that pass both: their paths share no array, or the same element."""
        both = zip(self.field.path.keys, other.field.path.keys, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        return shared == 0 or (self.number == other.number and shared <= self.opened)


def served_jointly(
    compound: Sequence[Index], every: Sequence[Condition]
) -> tuple[Index | None, list[Served]]:
    """Return the compound index of arrays that serves most of the conditions, two at least, and these."""
    some = list(_scalar_tests(every)) if compound else []
    best: tuple[Index | None, list[Served]] = (None, [])
    for index in compound:
        served: list[Served] = []
        for path in index.paths:
            on_path = (each for each in some if is_in_arrays(each.field, {path.keys}))
            fits = (each for each in on_path if all(each.goes_with(e) for e in served))
            if (found := next(fits, None)) is None:
                break
            served.append(found)
        if len(served) > max(1, len(best[1])):
            best = index, served
    return best


def _scalar_tests(every: Sequence[Condition]) -> Iterator[Served]:
    """Yield the conditions on fields, and those that each `$elemMatch` of objects implies."""
    parts = ((position, each) for position, one in enumerate(every) for each in every_conjunct(one))
    for number, (position, part) in enumerate(parts):
        match part:
            case Field(path, HasObject()):
                for each in implied_by(part):
                    yield Served(each, position, number, len(path.keys))
            case Field():
                yield Served(part, position, number, 0)
