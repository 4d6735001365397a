"""The page of the fields that sampled documents have: their types, how many have none, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..expressions.values import is_number
from ..operations.survey import SampleDocuments
from .aggregation import binned
from .cells import cell, kind_of
from .collection import affordable, surveyed
from .pages import Call, PageRoute

if TYPE_CHECKING:
    from starlette.responses import Response

SAMPLED: Final = 1000
FIELDS: Final = 300
DEEPEST: Final = 6
VALUES: Final = 5
"""Usual values of a field that the page shows."""


@dataclass(slots=True)
class FieldProfile:
    """What sampled documents have at a path. `documents` have the field; `kinds` counts values, those in arrays each."""

    path: str
    documents: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)

    def shares(self) -> list[tuple[str, float]]:
        """Return the types and their shares of the values, the usual ones first."""
        total = self.kinds.total()
        return [(kind, count / total) for kind, count in self.kinds.most_common()]

    def distribution(self) -> list[tuple[str, int]]:
        """Return a histogram of the numbers, or the usual values, without those that occur once among many."""
        if len(set(self.numbers)) > VALUES and len(self.numbers) * 2 > self.kinds.total():
            return [(label, int(count)) for label, count in binned(self.numbers, 8)]
        usual = self.values.most_common(VALUES)
        return usual if len(self.values) <= VALUES else [each for each in usual if each[1] > 1]


def show_schema(call: Call) -> Response:
    """Show the fields of sampled documents."""
    survey = surveyed(call)
    found = call.store.run(SampleDocuments(call.name, affordable(SAMPLED, survey)))
    profiles = profiles_of(each.body for each in found)
    return call.render(
        "schema.html", survey=survey, profiles=profiles, sampled=len(found), most=FIELDS
    )


def profiles_of(bodies: Iterator[Any]) -> list[FieldProfile]:
    """Return the profiles of the fields of bodies, by path.

    >>> [(each.path, each.documents) for each in profiles_of(iter([{"a": {"b": 1}}, {"a": None}]))]
    [('a', 2), ('a.b', 1)]
    """
    found: dict[tuple[str, ...], FieldProfile] = {}
    for body in bodies:
        seen = set()
        for keys, value in _values(body, ()):
            if keys not in found and len(found) >= FIELDS:
                continue
            profile = found.setdefault(keys, FieldProfile(".".join(keys) or "(whole body)"))
            if keys not in seen:
                profile.documents += 1
                seen.add(keys)
            profile.kinds[kind_of(value)] += 1
            if is_number(value):
                profile.numbers.append(value)
            if not isinstance(value, dict | list):
                profile.values[cell(value).text] += 1
    return [found[keys] for keys in sorted(found)]


def _values(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the paths and values within a value. The elements of an array are at `[]`."""
    if keys or not isinstance(value, dict):
        yield keys, value
    if len(keys) < DEEPEST and isinstance(value, dict):
        for key, each in islice(value.items(), FIELDS):
            yield from _values(each, (*keys, key))
    elif len(keys) < DEEPEST and isinstance(value, list):
        for each in islice(value, 50):
            yield from _values(each, (*keys, "[]"))


PAGES: Final = (PageRoute("/c/{name}/schema", show_schema, tab="Schema"),)
