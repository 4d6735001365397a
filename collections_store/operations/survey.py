"""Operations that measure a collection in a time that does not grow with the collection: bounded counts, and samples
from places that are spread evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from ..codec import Decode, decode
from ..document import Document, documents_of, moment, now
from ..expressions.classes import value_class
from ..query.filter import Filter
from ..query.sort import Sort
from ..sql.select import Statements
from ..sql.survey import SurveyStatements
from .by_id import raise_unless_skipped
from .collections import STAGED
from .connection import Row
from .operation import Operation
from .session import Session

COUNTED: Final = 10_000
"""Documents up to which a count is exact."""
PLACES: Final = 10
_statements = lru_cache(maxsize=256)(SurveyStatements)
_HOUR: Final = 3_600_000_000
PERIODS: Final = (_HOUR, 24 * _HOUR, 7 * 24 * _HOUR, 30 * 24 * _HOUR, 2**60)
"""The ends of the periods of `Survey.expiring`, in microseconds from now: an hour, a day, a week, 30 days, and later."""


@dataclass(frozen=True, slots=True)
class CollectionSurvey:
    """The measures of a collection. `count` is exact up to `COUNTED`, else about right. `size` is in bytes; on a database that
    would read all bodies for it, about right. `average` is the characters of a sampled body. `versions` are the schema versions of `sampled` documents, None for none.
    `expiring` has the number of documents that expire in each of `PERIODS`, up to `COUNTED`.
    """

    name: str
    count: int
    is_exact: bool
    size: int
    is_size_exact: bool
    sampled: int
    average: int
    versions: dict[str | None, int]
    expiring: tuple[int, ...]


@value_class
class ListNames(Operation[list[tuple[str, datetime]]]):
    """List the collections, by name, with the times of their creation."""

    collection = ""
    atomic = True
    collections = ()
    method = "collections"

    def __call__(self, session: Session) -> list[tuple[str, datetime]]:
        listed = session.entries(session.store.listing)
        return [
            (name, moment(created)) for name, _, created, _ in listed if not name.endswith(STAGED)
        ]


@value_class
class Survey(Operation[CollectionSurvey | None]):
    """Return the measures of a collection; None if it does not exist. `sample`: the number of documents."""

    collection: str
    sample: int = 100

    def __call__(self, session: Session) -> CollectionSurvey:
        statements = _statements(session.collection(self.collection).table, session.database)
        [(first, last, estimate, size)] = session.rows(statements.ends)
        time = now()
        [(count,)] = session.rows(statements.count, {"limit": COUNTED + 1, "now": time})
        if is_more := count > COUNTED:
            count = max(count, (last - first + 1) if estimate is None else estimate)
        rows = list(_spread(session, statements.measures, self.sample, first, last))
        average = sum(length for _, length in rows) / len(rows) if rows else 0
        starts = zip((0, *PERIODS), PERIODS, strict=False)
        expiring = [
            session.rows(
                statements.expiring, {"start": time + start, "end": time + end, "limit": COUNTED}
            )
            for start, end in starts
        ]
        return CollectionSurvey(
            self.collection,
            count,
            not is_more,
            round(average * count) if size is None else size,
            size is not None,
            len(rows),
            round(average),
            dict(Counter(version for version, _ in rows)),
            tuple(number for [(number,)] in expiring),
        )


class MeasuredIndex(NamedTuple):
    """The bytes of an index on disk, and how often queries used the index since the server's statistics were reset; None: the
    database does not count that.
    """

    size: int
    uses: int | None


@value_class
class MeasureIndexes(Operation[dict[str, MeasuredIndex] | None]):
    """Return the measures of the collection's indexes by name; None if this build of the database, or a cluster, has none."""

    collection: str
    atomic = True
    empty = dict

    def __call__(self, session: Session) -> dict[str, MeasuredIndex] | None:
        database, names = session.database, session.store.names
        every = session.collection(self.collection).options.every_index
        if not session.rows(database.diagnosis.index_sizes_need):
            return None
        physical = database.compiler.list_parameter([each.physical for each in every])
        parameters = {"names": physical, "schema": names.schema}
        rows = session.rows(database.diagnosis.index_sizes, parameters)
        found = {name: MeasuredIndex(size, uses) for name, size, uses in rows}
        return {each.name: found[each.physical] for each in every if each.physical in found}


@value_class
class Scans(Operation[bool]):
    """Return whether a page of a filter and a sort order may read all documents, by the database's plan alone. `Explain`
    also looks for arrays, which may itself read all documents.
    """

    collection: str
    filter: Filter
    sort: Sort
    atomic = True  # as `Explain`
    empty = bool

    def __call__(self, session: Session) -> bool:
        statements, compiler = session.collection(self.collection), session.database.compiler
        if not statements.can_order(self.filter, self.sort):
            return True
        query = statements.select(self.filter, self.sort)
        parameters = query.parameters(self.filter, {"skip": 0, "limit": 1})
        plan = compiler.plan(
            session.rows(statements.explaining(query), parameters), statements.table
        )
        walked = set(plan.walked) - {physical for _, physical in statements.options.array_guards}
        stops = self.filter == Filter() and not plan.sorts
        return (plan.scans or bool(walked)) and not stops


@value_class
class LastPosition(Operation[int]):
    """Return the position of the last recorded change, or of the last inserted document if changes are not recorded."""

    collection: str
    atomic = True
    empty = int

    def __call__(self, session: Session) -> int:
        statements = session.collection(self.collection)
        if statements.feed is not None:
            return session.rows(statements.feed.last)[0][0] or 0
        [(_, last, *_)] = session.rows(_statements(statements.table, session.database).ends)
        return last or 0


@value_class
class SampleDocuments(Operation[list[Document]]):
    """Return up to `size` documents from places spread evenly over the collection, in natural order."""

    collection: str
    size: int
    decode: Decode = field(default=decode, repr=False)
    empty = list

    def __call__(self, session: Session) -> list[Document]:
        statements = session.collection(self.collection)
        return sampled(session, statements, self.collection, self.size, self.decode)


def sampled(
    session: Session,
    documents: Statements,
    collection: str,
    size: int,
    decode: Decode = decode,
) -> list[Document]:
    """Return what `SampleDocuments` does, by the statements of the collection."""
    statements = _statements(documents.table, session.database)
    [(first, last, *_)] = session.rows(statements.ends)
    rows = list(_spread(session, statements.documents, size, first, last))
    found = documents_of(rows, decode, collection, raise_unless_skipped)
    return list({each.id: each for each in found}.values())


def _spread(
    session: Session, sql: str, size: int, first: int | None, last: int | None
) -> Iterator[Row]:
    """Yield the rows of a statement for documents from a position on, for about `size` documents in all."""
    if first is None or last is None:
        return
    positions = last - first + 1
    places = 1 if positions <= size else PLACES
    for place in range(places):
        start = first + positions * place // places
        yield from session.rows(sql, {"seq": start, "limit": -(-size // places), "now": now()})
