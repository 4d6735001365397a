"""Explanations of queries: what runs where, by which index, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from .conditions import Compare, Equals, Field, Matches, OneOf
from .filter import Filter
from .index import MAX_FIELDS, Index, can_open, every_conjunct, implied_by, is_indexable
from .path import Path
from .sort import Sort, SortField

Ordered: TypeAlias = Literal["natural", "index", "database", "python"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a database: its lines, the indexes it uses and those it reads from end to end, and whether it scans
    the table or sorts.
    """

    lines: tuple[str, ...]
    indexes: tuple[str, ...]
    walked: tuple[str, ...]
    scans: bool
    sorts: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a `find`, which prints as text.

    `sql` runs with `parameters`. `in_sql` is the part of the filter that the database decides,
    `in_matcher` the part that Python decides afterwards, over the rows that the database returns. `indexes`
    are the names of the indexes used, "$body" that over whole bodies, "$id" that of the ids. `scans`:
    all documents may be read, be it in an index's order. `order` names what sorts: an index, the database, Python, or nothing ("natural").
    `arrays`: arrays were found where indexes do not look, so the exact form was used. `plan` is
    the database's own, in lines. `advice` is a call that creates a useful index, or None.

    >>> with Store("sqlite://") as store:
    ...     version = store["cities"].put("berlin", {"country": "de"})
    ...     print(store["cities"].explain({"country": "de"}, sort="people").advice)
    create_index([('country', 1), ('people', 1)])
    """

    sql: str = field(repr=False)
    parameters: Mapping[str, Any] = field(repr=False)
    in_sql: Filter
    in_matcher: Filter | None
    indexes: tuple[str, ...]
    scans: bool
    order: Ordered
    arrays: bool
    plan: tuple[str, ...] = field(repr=False)
    advice: str | None = field(default=None)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"the database decides {self.in_sql}"
        if self.in_matcher is not None:
            yield f"the matcher decides {self.in_matcher}"
        yield f"indexes: {', '.join(self.indexes) or 'none'}"
        yield f"all objects are read: {'yes' if self.scans else 'no'}"
        yield f"order: {_ORDERS[self.order]}"
        if self.arrays:
            yield "there are arrays where indexes over fields do not look"
        if self.advice:
            yield f"advice: {self.advice}"
        yield from (f"  {line}" for line in self.plan)


_ORDERS = {
    "natural": "natural",
    "index": "as an index has it",
    "database": "sorted by the database",
    "python": "sorted in Python",
}


def advise(filter: Filter, sort: Sort, existing: tuple[Index, ...], *, arrays: bool) -> str | None:
    """Return the call that creates an index for a query; None: there is one, or none would help.

    The fields of equalities come first, those of the order next, ranges last.
    `arrays`: the one field needs an index of arrays.
    """
    fields = _scalars_in(filter)
    equal = [each for each in fields if isinstance(each.test, Equals | OneOf)]
    ranges = [each for each in fields if isinstance(each.test, Compare | Matches)]
    wanted = [SortField(each.path) for each in equal]
    wanted += [each for each in sort.fields if isinstance(each.target, Path) and each.target.keys]
    wanted += [SortField(each.path) for each in ranges]
    unique = {each.target: each for each in reversed(wanted)}
    chosen = tuple(each for each in dict.fromkeys(unique[each.target] for each in wanted))[
        :MAX_FIELDS
    ]
    if arrays and equal + ranges:
        chosen = tuple(SortField(p.path) for p in (equal + ranges)[:1] if can_open(p.path.keys))
    made = Sort(chosen)
    if not chosen or any(_serves(each, made, arrays) for each in existing):
        return None
    names = [(each.name, -1 if each.descending else 1) for each in chosen]
    keys = repr(names[0][0]) if len(names) == 1 and names[0][1] == 1 else repr(names)
    return f"create_index({keys}{', arrays=True' if arrays else ''})"


def _serves(index: Index, wanted: Sort, arrays: bool) -> bool:
    leading = index.sort.fields[: len(wanted.fields)]
    backwards = tuple(replace(each, descending=not each.descending) for each in wanted.fields)
    either = leading in {wanted.fields, backwards}
    return index.where is None and index.arrays == arrays and either


def indexable_keys(filter: Filter) -> Iterator[tuple[str, ...]]:
    """Yield the keys of the fields that an index could cover."""
    yield from (each.path.keys for each in _scalars_in(filter))


def _scalars_in(filter: Filter) -> list[Field]:
    asked = list(every_conjunct(filter.condition))
    for each in tuple(asked):
        asked.extend(implied_by(each))
    fields = (each for each in asked if isinstance(each, Field))
    return [each for each in fields if each.path.keys and is_indexable(each, {each.path.keys})]
