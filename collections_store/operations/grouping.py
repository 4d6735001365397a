"""Rows of pipelines that are less than documents: distinct values with their counts, and parts of bodies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any, Final

from ..aggregation.group import GroupedFields, counted_field
from ..aggregation.pipeline import Pipeline
from ..aggregation.rows import Row
from ..aggregation.stages import Group
from ..aggregation.totals import CombinedRows
from ..codec import decode
from ..document import Anonymous
from ..expressions.fields import Keys
from ..query.filter import Filter
from ..sql.groups import MAX_VALUE
from ..sql.query import Query
from .connection import Inexact
from .read import BEFORE_ALL, next_limit, selected
from .session import Session

MAX_VALUES: Final = 50_000
"""Different values that the database groups, at most."""
FIRST_PARTS: Final = 500
"""Bodies whose parts are read at first: a batch costs more than its rows."""
_BEGIN_NUMBERS: Final = frozenset("-0123456789")


def grouped_rows(
    session: Session, collection: str, filter: Filter, rest: Pipeline, fields: GroupedFields
) -> CombinedRows | None:
    """Return the distinct values of a collection for a pipeline that begins with `$group`, or with `$unwind` and `$group`, in
    the order of their first documents; None if the database cannot return them.
    """
    for query, read in group_queries(session, collection, filter, rest, fields):
        try:
            rows = session.select(query, filter, limit=MAX_VALUES)
        except Inexact:
            continue
        if read.extremes and _any_equal(rows, read):
            continue
        if len(rows) == MAX_VALUES or _any_inexact(rows, read):
            return None
        rows.sort(key=itemgetter(0))
        return CombinedRows([row for row in rows if row[1]], read)
    return None


def group_queries(
    session: Session, collection: str, filter: Filter, rest: Pipeline, fields: GroupedFields
) -> Iterator[tuple[Query, GroupedFields]]:
    """Yield the statements of `grouped_rows`, the fastest first, and the fields that each reads. Where one is inexact, the next
    may be exact.
    """
    statements, unwound = session.collection(collection), fields.unwound
    paths = (*fields.values, *fields.numbers, *(() if unwound is None else (unwound,)))
    if not all(map(session.database.ordering.can_order, paths)):
        return
    first, is_whole = rest.steps[0].stage, not filter.plain and filter == Filter()
    counted = counted_field(first) if is_whole and isinstance(first, Group) else None
    in_index = None if counted is None else statements.index_group(counted)
    if in_index is not None:
        yield in_index, fields
    if unwound is not None and not session.database.takes_subqueries:
        return
    for read in (fields, fields.without_extremes()) if fields.extremes else (fields,):
        query = statements.group(
            filter,
            read.values,
            numbers=read.numbers,
            extremes=read.extremes,
            unwound=unwound,
            limits=read.limits,
        )
        if not query.residual:
            yield query, read


def _any_equal(rows: list[Any], fields: GroupedFields) -> bool:
    """Return whether a field of `extremes` has combined integers and other numbers: 1 and 1.0 are equal, and the first of
    them is the least.
    """
    texts, ends = 2 + len(fields.values), 2 + len(fields.values) + len(fields.numbers)
    for number, keys in enumerate(fields.numbers):
        if keys in fields.extremes and any(row[ends + 2 * number + 1] for row in rows):
            others = (row[texts + number] for row in rows)
            if any(text is not None and text[0] in _BEGIN_NUMBERS for text in others):
                return True
    return False


def _any_inexact(rows: list[Any], fields: GroupedFields) -> bool:
    """Return whether a row has a truncated value, or a wrong position or value of an unwound element."""
    values = 2 + len(fields.values)
    checks = values + 3 * len(fields.numbers) + 2 * len(fields.extremes)
    for column in range(2, values):
        if any(len(row[column] or "") > MAX_VALUE for row in rows):
            return True
    return fields.unwound is not None and any(any(row[checks:]) for row in rows)


def parts(
    session: Session, collection: str, filter: Filter, keys: Keys, enough: int | None
) -> Iterator[Row]:
    """Yield bodies with the values under `keys` only, in natural order, by `Statements.parts`; memory stays constant. `enough`:
    the number of bodies that the stages need; None: all.
    """
    after: int | None = BEFORE_ALL
    limit = FIRST_PARTS if enough is None else min(FIRST_PARTS, enough)
    statements = session.collection(collection)
    compile = partial(statements.parts, filter, keys)
    while after is not None:
        window = {"seq": after, "limit": limit}
        _, rows = selected(session, statements, filter, compile, **window)
        after = rows[-1][0] if len(rows) == limit else None
        limit = next_limit(limit, sum(len(text) for row in rows for text in row[1:] if text))
        for _, whole, *texts in rows:
            if whole is not None:
                yield Anonymous(decode(whole))
            else:
                found = zip(keys, texts, strict=True)
                yield Anonymous({key: decode(text) for key, text in found if text is not None})
