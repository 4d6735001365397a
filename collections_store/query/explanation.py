"""Explanations of queries, and the indexes that would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from ..expressions.collation import Collation
from ..expressions.path import Path, path_or_text
from .conditions import Collated, Compare, Equals, Field, Matches, OneOf, leaves, uncollated
from .filter import Filter
from .index import MAX_FIELDS, MAX_INDEXES, MAX_NAME, Index, name_of
from .serving import can_open, every_conjunct, implied_by, is_indexable
from .sort import NATURAL, Sort, SortField

Ordered: TypeAlias = Literal["natural", "index", "database", "python"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a database: lines, the indexes used, the indexes read from end to end, whether the plan scans the
    table or sorts, and the estimated number of rows that the plan reads; None: the database has no estimate.
    """

    lines: tuple[str, ...]
    indexes: tuple[str, ...]
    walked: tuple[str, ...]
    scans: bool
    sorts: bool
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a `find` or an `aggregate`; prints as five or six lines, and a line for each further fact that
    makes a query slow.

    `sql` runs with `parameters`. `in_sql` is the part of the filter that runs in the database, `in_matcher` the part
    that runs in Python, on the rows of the database. `indexes` are the names of the indexes used: "$body" is the index
    of whole bodies, "$id" the index of the ids. `scans`: the query may read all documents, be it in the order of an
    index. `order` names the sorter: an index, the database, Python, or nothing ("natural"). `arrays`: indexed fields
    hold arrays, so the exact form was used. `plan` is the database's own, in lines. `missing_index` is an index that
    would help, and `advice` the call that creates that index; both may be None. `documents` is about the number of
    documents that the query reads if no limit ends it sooner; None: the database has no estimate. `in_database` and
    `in_python` are the stages of a pipeline that run there, such as "$match"; a stage that runs in both is in both. If a
    `$facet` takes several statements, `sql`, `parameters` and `plan` are those of the first that scans, or of the first.

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
    advice: str | None = None
    missing_index: Index | None = field(default=None, repr=False)
    documents: int | None = field(default=None, repr=False)
    in_database: tuple[str, ...] = field(default=(), repr=False)
    in_python: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {fact}" for name, fact in facts_of(self))

    def _repr_html_(self) -> str:
        from ..codec.html import html_of_plan

        named = dict(facts_of(self))
        about = "" if self.documents is None else f": {named['documents']}"
        steps = [(named["scans"] + about, self.scans), (named["uses"], self.scans)]
        if self.in_matcher is not None:
            steps.append(("filter in Python", True))
        if self.order != "natural":
            steps.append((_ORDERS[self.order], self.order != "index"))
        if self.in_python:
            steps.append((f"{named['in Python']} in Python", True))
        return html_of_plan([*steps, ("result", False)], list(named.items()))


_ORDERS: Final[dict[Ordered, str]] = {
    "natural": "natural",
    "index": "from an index",
    "database": "sorted by the database",
    "python": "sorted in Python",
}


def facts_of(explanation: Explanation) -> list[tuple[str, str]]:
    """Return the names and the facts of an explanation's lines."""
    indexes, documents = ", ".join(explanation.indexes), explanation.documents
    unknown = "unknown, the database has no estimate"
    facts = [
        ("uses", f"index {indexes}" if indexes else "no index"),
        ("scans", "the whole collection" if explanation.scans else "a part of the collection"),
        ("documents", unknown if documents is None else f"about {documents:,}"),
        ("order", _ORDERS[explanation.order]),
        ("advice", explanation.advice or "none"),
    ]
    if explanation.in_database or explanation.in_python:
        stages = explanation.in_database, explanation.in_python
        facts[:0] = zip(("in the database", "in Python"), map(_stages, stages), strict=True)
        facts.remove(("order", _ORDERS[explanation.order]))
    if explanation.in_matcher is not None:
        facts.append(("filter in Python", str(explanation.in_matcher)))
    if explanation.arrays:
        facts.append(("arrays in indexed fields", "yes, so the exact form was used"))
    return facts


def _stages(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def missing_index(
    filter: Filter, sort: Sort, existing: tuple[Index, ...], *, arrays: bool
) -> Index | None:
    """Return an index that would help a query, new or hidden; None: such an index exists, or none would help. A new one
    has no collation. `arrays`: the field needs an index of arrays.
    """
    fields, order = _scalars_in(filter), sort if sort.collation is None else NATURAL
    chosen = _wanted(fields, order)
    if arrays and fields:
        chosen = tuple([each for each in _wanted(fields, NATURAL)[:1] if _can_open(each)])
    if not chosen:
        return None
    without_strings = all(is_indexable(each, (), keyed={each.path.keys}) for each in fields)
    keyed = without_strings and not order.fields  # an index under any collation serves
    own = (each for each in existing if each.arrays == arrays)
    serving = [e for e in own if _serves(e, chosen, e.collation if keyed else None)]
    if serving:
        return serving[0] if all(each.hidden for each in serving) else None
    advised = Sort(chosen)
    name = name_of(None, advised, arrays=arrays)
    taken = {each.name for each in existing}  # a partial or sparse index may have the default name
    names = (name, *(f"{name[: MAX_NAME - 3]}_{n}" for n in range(2, MAX_INDEXES + 2)))
    return Index(next(each for each in names if each not in taken), advised, arrays=arrays)


def hidden_collated_index(filter: Filter, sort: Sort, existing: tuple[Index, ...]) -> Index | None:
    """Return the hidden index that would help a query under a collation; None: another index serves, or none would
    help.
    """
    found = (each.collation for each in leaves(filter.condition) if isinstance(each, Collated))
    collation = sort.collation or next(found, None)
    chosen = _wanted(_scalars_in(filter, collation), sort)
    if collation is None or not chosen:
        return None
    serving = [each for each in existing if _serves(each, chosen, collation)]
    return serving[0] if serving and all(each.hidden for each in serving) else None


def _can_open(field: SortField) -> bool:
    return isinstance(field.target, Path) and can_open(field.target.keys)


def _wanted(fields: list[Field], sort: Sort) -> tuple[SortField, ...]:
    """Return the fields of an index in the order: fields of equalities, fields of the sort, ranges."""
    equal = [each.path for each in fields if isinstance(each.test, Equals | OneOf)]
    ranges = [each.path for each in fields if isinstance(each.test, Compare | Matches)]
    order = [each for each in sort.fields if isinstance(each.target, Path) and each.target.keys]
    wanted = [*map(SortField, equal), *order, *map(SortField, ranges)]
    unique = {each.target: each for each in reversed(wanted)}  # the first of each field
    return tuple(dict.fromkeys(unique[each.target] for each in wanted))[:MAX_FIELDS]


def _serves(index: Index, chosen: tuple[SortField, ...], collation: Collation | None) -> bool:
    """Return whether an index begins with fields, forwards or backwards, and has a collation."""
    backwards = tuple(replace(each, descending=not each.descending) for each in chosen)
    is_whole = not index.is_partial and index.serves(collation)
    return is_whole and index.sort.fields[: len(chosen)] in {chosen, backwards}


def creation(index: Index) -> str:
    """Return the call that creates an index over fields of the body, or uses a hidden one again."""
    if index.hidden:
        return f"unhide_index({index.name!r})"
    directions = [direction for _, direction in index.fields]
    keys = list(zip(map(path_or_text, index.paths), directions, strict=True))
    fields = repr(keys[0][0]) if directions == [1] else repr(keys)
    named = "" if index.own_name is None else f", name={index.own_name!r}"
    return f"create_index({fields}{', arrays=True' if index.arrays else ''}{named})"


def indexable_keys(filter: Filter) -> Iterator[tuple[str, ...]]:
    """Yield the keys of the fields for which an index is possible."""
    yield from (each.path.keys for each in _scalars_in(filter))


def _scalars_in(filter: Filter, collation: Collation | None = None) -> list[Field]:
    conditions = list(every_conjunct(filter.condition))
    for each in tuple(conditions):
        conditions.extend(implied_by(each))
    own = (e for e in conditions if not isinstance(e, Collated) or e.collation == collation)
    fields = (each for each in map(uncollated, own) if isinstance(each, Field))
    return [each for each in fields if each.path.keys and is_indexable(each, {each.path.keys})]
