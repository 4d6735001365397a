"""Reading rows: documents of the rows of a statement, in natural order in batches, or in the order of a sort.

SQL decides the expressible part of a filter; the matcher decides the rest (`Query.residual`).

SQL's order of a window of rows is exact if no matching document has an array on the way to a field of the sort
(`Query.guard`), and no row is unorderable: then all comparisons of rows are right, and the same rows come before the
window in both orders. Truncated strings (an index has only the beginning) must differ from their neighbours in the
beginning, also from the neighbours just outside the window.

Four methods, each a fallback of the previous:

0. The window of SQL's order, unchecked: the filter leaves only values that SQL orders exactly (`Statements.exact`).
1. The window of SQL's order, if exact (`SortedReader.window`, `.page`).
2. If documents have arrays on the path: SQL orders the documents without arrays, Python sorts the rest, and
   `heapq.merge` merges both.
3. If rows are unorderable, or SQL cannot express the order: Python sorts all matches; with a limit Python holds at most
   `limit` documents (`heapq.nsmallest`).
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import partial
from itertools import chain, islice
from typing import Any, Final, Protocol, TypeAlias

from ..aggregation.spill import ExternalSort, IdList
from ..codec import Decode, decode, spell
from ..document import Document, documents_of, with_other_body
from ..expressions.classes import value_class
from ..expressions.evaluation import size_of
from ..expressions.path import Path
from ..query.conditions import holds_text
from ..query.cursor import Position
from ..query.filter import Filter
from ..query.matcher import matches
from ..query.projection import Projection
from ..query.sort import NATURAL, Key, Sort
from ..sql.query import Query
from ..sql.select import Statements
from .by_id import as_document, raise_unless_skipped
from .connection import Inexact
from .operation import Operation
from .session import Session

Positioned: TypeAlias = tuple[int, Document]
"""A document behind its position in natural order."""

Compile: TypeAlias = Callable[..., Query]
"""Returns a statement over a filter, `indexed` in the indexed form."""

NO_LIMIT: Final = 2**62
"""The sum of two has 64 bits: Citus adds the number of rows to skip to the limit."""
BEFORE_ALL: Final = -(2**63)
FIRST_BATCH: Final = 50
MAX_BATCH: Final = 2000
BATCH_CHARACTERS: Final = 2**20
"""Characters of JSON in a batch of a stream, about, unless a single body is larger."""


class ReadsDocuments(Protocol):
    """An operation that returns documents. Bodies are plain JSON with a projection, else made by `decode`."""

    @property
    def collection(self) -> str:
        """The collection."""

    @property
    def filter(self) -> Filter:
        """The filter of the documents."""

    @property
    def projection(self) -> Projection | None:
        """The returned parts; None: all parts."""

    @property
    def decode(self) -> Decode:
        """The function that decodes bodies."""


def popped(rows: list[Any]) -> Iterator[Any]:
    """Yield the rows of a list, and empty the list: memory holds a row and its document together only once."""
    rows.reverse()
    while rows:
        yield rows.pop()


def returned(
    session: Session, operation: ReadsDocuments, documents: Iterable[Document]
) -> Iterable[Document]:
    """Return documents with plain JSON bodies in the form that the operation returns."""
    filter, projection = operation.filter, operation.projection
    if projection is not None:
        ordered = session.database.ordered_keys
        return (projection.apply(each, filter, ordered=ordered) for each in documents)
    if operation.decode is decode:
        return documents
    return _decoded(operation, documents)


def _decoded(operation: ReadsDocuments, documents: Iterable[Document]) -> Iterator[Document]:
    """Yield documents with the bodies that `decode` makes."""
    collection, make = operation.collection, operation.decode
    for each in documents:
        try:
            body = make(spell(each.body))  # `Codec.encode` would check it again
        except ValueError as error:
            raise_unless_skipped(collection, each.id, error)
            continue
        yield with_other_body(each, body)


@value_class
class Batch:
    """Documents in natural order, with their positions. The next batch begins after the position `after`, None at the
    end. `characters`: the JSON that was read. Where the matcher decides nothing, iteration decodes `documents`:
    releasing each before the next is several times as fast.
    """

    documents: Iterable[Document]
    positions: Iterable[int]
    after: int | None
    characters: int = 0


@value_class
class ReadBatch(Operation[Batch]):
    """Read up to `limit` documents past the position `after`, and return the matching documents."""

    collection: str
    filter: Filter
    after: int
    limit: int
    projection: Projection | None = None
    decode: Decode = field(default=decode, repr=False)
    method = "stream"
    atomic = True
    empty = partial(Batch, (), (), None)

    def __call__(self, session: Session) -> Batch:
        statements = session.collection(self.collection)
        select = partial(statements.select, self.filter, NATURAL, 0)
        window = {"seq": self.after, "skip": 0, "limit": self.limit}
        query, rows = selected(session, statements, self.filter, select, **window)
        after = rows[-1][0] if len(rows) == self.limit else None
        characters = sum([len(row[2]) for row in rows])
        positions = [row[0] for row in rows]
        is_whole = not query.residual and self.projection is None
        made = self.decode if is_whole else decode
        documents: Iterable[Document]
        documents = documents_of(rows, made, self.collection, raise_unless_skipped)
        if query.residual:
            rest, ordered = query.rest(self.filter), session.database.ordered_keys
            found = [
                (position, each)
                for position, each in zip(positions, documents, strict=True)
                if matches(rest, each, ordered=ordered)
            ]
            positions = [position for position, _ in found]
            documents = (each for _, each in found)
        parts = documents if is_whole else returned(session, self, documents)
        names_only = self.projection is None or self.projection.names_fields_only
        if query.residual or not names_only or made is not decode:
            parts = list(parts)  # what can fail does so within the operation
        return Batch(parts, positions, after, characters)


def selected(
    session: Session, statements: Statements, filter: Filter, compile: Compile, **window: Any
) -> tuple[Query, list[Any]]:
    """Return a statement in the first exact form of `Statements.forms`, and its rows."""
    *hinted, last = statements.forms
    for indexed in hinted:
        query = compile(indexed=indexed)
        with suppress(Inexact):
            return query, session.select(query, filter, **window)
    query = compile(indexed=last)
    return query, session.select(query, filter, **window)


class NaturalBatches:
    """The batches of a stream in natural order, each about `BATCH_CHARACTERS` of JSON."""

    def __init__(
        self,
        collection: str,
        filter: Filter,
        projection: Projection | None = None,
        after: int = BEFORE_ALL,
        decode: Decode = decode,
    ) -> None:
        self._collection, self._filter, self._projection = collection, filter, projection
        self._decode = decode
        self._after: int | None = after
        self._limit = FIRST_BATCH

    def next(self) -> ReadBatch | None:
        """Return the operation that reads the next batch, None at the end."""
        if self._after is None:
            return None
        where = (self._collection, self._filter)
        return ReadBatch(*where, self._after, self._limit, self._projection, self._decode)

    def advance(self, batch: Batch) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""
        self._after = batch.after
        self._limit = next_limit(self._limit, batch.characters)
        return batch.documents


def next_limit(limit: int, characters: int) -> int:
    """Return the limit of the next batch, after a batch of `limit` documents with this number of characters."""
    wanted = BATCH_CHARACTERS * limit // (characters or 1)
    return max(1, min(wanted, 2 * limit, MAX_BATCH)) if characters else limit


def matching(
    session: Session, collection: str, filter: Filter, after: int = BEFORE_ALL
) -> Iterator[Positioned]:
    """Yield the documents that match past a position, in natural order; memory stays constant."""
    batches = NaturalBatches(collection, filter, after=after)
    while (operation := batches.next()) is not None:
        batch = operation(session)
        yield from zip(batch.positions, batch.documents, strict=True)
        batches.advance(batch)


def locked(
    session: Session, collection: str, filter: Filter, found: list[Document]
) -> list[Document]:
    """Lock found documents until the transaction ends, and return the documents that still match, in their current
    state and the same order.
    """
    database = session.database
    if database.single_writer or not found:
        return found
    statements = session.collection(collection).by_id
    ids = [each.id for each in found]
    rows = session.lock(statements, statements.lock_many, ids)
    if holds_text(filter.condition):  # the database decides again, with the locks
        these = filter & Filter.parse({"$id": {"$in": ids}})
        again = {each.id: each for _, each in matching(session, collection, these)}
        return [again[id] for id in ids if id in again]
    current = {row[0]: as_document(row, collection) for row in rows}
    same = (current[each.id] for each in found if each.id in current)
    return [each for each in same if matches(filter, each, ordered=database.ordered_keys)]


Select: TypeAlias = Callable[[int | None], Query]
"""Returns the statement of a level of the order."""
MIN_BATCH: Final = 100
"""Rows that are read at once for the matcher."""
_ITEM: Final = 250
"""Bytes of an id with its position and with the tuples of a sort, about."""
_KEY: Final = 60
"""Bytes of the tuple of a key, about."""


class Unorderable(Exception):
    """SQL's order of the rows may be wrong."""


class SortedReader:
    """Reads the matching documents of a collection in an order."""

    def __init__(self, session: Session, collection: str, filter: Filter, sort: Sort) -> None:
        self._connection, self._collection = session, collection
        self._filter, self._sort = filter, sort
        self._database = session.database
        self._statements = session.collection(collection)
        self._order = self._statements.order(sort)
        self._in_sql = self._statements.can_order(filter, sort)
        self._in_body = [isinstance(field.target, Path) for field in sort.fields]
        """For each field, whether the field is of the body; SQL orders metadata exactly."""

    def window(self, skip: int, limit: int | None) -> list[Positioned]:
        """Return `limit` documents after the first `skip`."""
        found = self._selected(skip, limit)
        if found is None:
            with self._connection.transaction(write=False):
                stop = None if limit is None else min(skip + limit, sys.maxsize)
                if stop is not None and self._in_sql and self._indexed(None).residual:
                    return self.page(None, stop)[skip:]  # in batches, as far as they are needed
                found = self._first(None, stop)[skip:]
        return found

    def page(self, after: Position | None, limit: int) -> list[Positioned]:
        """Return `limit` documents after a position; the first documents in one statement, if SQL decides all."""
        if after is None and (found := self._selected(0, limit)) is not None:
            return found
        with self._connection.transaction(write=False):
            try:
                return list(islice(self._walk(self._indexed, after, limit), limit))
            except (Inexact, Unorderable):
                return self._first(after, limit)

    def position(self, found: Positioned) -> Position:
        """Return the position of a document in the order."""
        return Position(self._keys(found), found[0])

    def has_index(self) -> bool:
        """Return whether the database reads in this order without sorting."""
        return self._in_sql and self._statements.has_index(self._filter, self._sort)

    def ids(self, limit: int) -> IdList:
        """Return the ids of all matching documents, sorted in Python with about `limit` bytes in memory. No body is kept."""
        ordered = self._database.ordered_keys
        found = ExternalSort[tuple[tuple[Key, ...], int, str]](
            lambda each: (self._sort.comparable(each[0], ordered=ordered), each[1]), limit
        )
        for each in matching(self._connection, self._collection, self._filter):
            keys, id = self._keys(each), each[1].id
            size = sum(_KEY + size_of(value, limit) for _, value in keys)
            found.add((keys, each[0], id), _ITEM + len(id) + size)
        return IdList((id for _, _, id in found.in_order()), limit)

    def _selected(self, skip: int, limit: int | None) -> list[Positioned] | None:
        """Return the window of SQL's order; None if not exact."""
        if not self._in_sql or (query := self._indexed(None)).residual:
            return None
        checked = self._statements.exact(self._filter, self._sort) is None
        window = {"skip": skip, "limit": NO_LIMIT if limit is None else min(limit + 1, NO_LIMIT)}
        try:
            found = self._exact(query, window, checked=checked)
        except (Inexact, Unorderable):
            return None
        if checked and skip and found and any(self._truncated(self._keys(found[0]))):
            return None  # it may tie with the last one that was skipped
        return found[:limit]

    def _first(self, after: Position | None, limit: int | None) -> list[Positioned]:
        """Return the first documents after a position, with arrays and unorderable values too."""
        if not self._sort.fields:
            start = BEFORE_ALL if after is None else after.seq
            found = matching(self._connection, self._collection, self._filter, start)
            return list(islice(found, limit))
        has_arrays = self._in_sql and self._indexed(None).guard
        if limit is None or not has_arrays:
            return self._sorted(after, limit)
        try:
            merged = heapq.merge(
                self._walk(self._without_arrays, after, limit),
                self._with_arrays(after),
                key=self._comparable,
            )
            return list(islice(merged, limit))
        except Unorderable:
            return self._sorted(after, limit)

    def _indexed(self, level: int | None) -> Query:
        return self._statements.select(self._filter, self._sort, level)

    def _without_arrays(self, level: int | None) -> Query:
        return self._statements.select_without_arrays(self._filter, self._sort, level)

    def _with_arrays(self, after: Position | None) -> list[Positioned]:
        """Return the documents that have arrays on the way, sorted."""
        query = self._statements.select_with_arrays(self._filter, self._sort)
        rows = self._connection.select(query, self._filter)
        found = self._decided(query, map(self._positioned, rows))
        return sorted(self._after(after, found), key=self._comparable)

    def _sorted(self, after: Position | None, limit: int | None) -> list[Positioned]:
        """Return the matching documents after a position, sorted in Python."""
        found = self._after(after, matching(self._connection, self._collection, self._filter))
        if limit is None:
            return sorted(found, key=self._comparable)
        return heapq.nsmallest(limit, found, key=self._comparable)

    def _exact(
        self,
        query: Query,
        window: dict[str, Any],
        after: Position | None = None,
        *,
        checked: bool = True,
    ) -> list[Positioned]:
        """Return the rows of SQL, with the neighbour past the window; raises `Inexact` and, if the order is `checked`,
        `Unorderable`.
        """
        rows = self._connection.select(query, self._filter, **window)
        positions = [row[0] for row in rows]
        documents = documents_of(rows, decode, self._collection, raise_unless_skipped)
        found = list(zip(positions, documents, strict=True))
        if checked and any(self._in_body):
            keys = map(self._keys, found)
            self._check(keys if after is None else chain([after.keys], keys))
        return found

    def _check(self, keys: Iterable[tuple[Key, ...]]) -> None:
        """Raise `Unorderable` unless SQL can tell all neighbours apart."""
        is_unorderable = self._database.ordering.is_unorderable
        before: tuple[Key, ...] = ()
        is_truncated_before = False
        for each in keys:
            if any(map(is_unorderable, each)):
                raise Unorderable
            is_truncated = any(self._truncated(each))
            if before and (is_truncated or is_truncated_before) and self._tie(before, each):
                raise Unorderable
            before, is_truncated_before = each, is_truncated

    def _tie(self, first: tuple[Key, ...], second: tuple[Key, ...]) -> bool:
        """Return whether the first different keys of two rows are equal to SQL."""
        values = self._database.ordering.values
        for one, other, in_body in zip(first, second, self._in_body, strict=True):
            if one != other:
                return in_body and values(one) == values(other)
        return False

    def _truncated(self, keys: tuple[Key, ...]) -> list[bool]:
        """Return for each key whether SQL sees the beginning only."""
        is_truncated = self._database.ordering.is_truncated
        pairs = zip(keys, self._in_body, strict=True)
        return [in_body and is_truncated(key) for key, in_body in pairs]

    def _walk(self, select: Select, after: Position | None, limit: int) -> Iterator[Positioned]:
        """Yield the documents after a position, level by level, batch by batch. A filter that the matcher decides may
        take many batches, and needs an index of the order.
        """
        if not self._in_sql:
            raise Unorderable
        residual = select(None).residual
        if residual and not self._statements.has_index(self._filter, self._sort):
            raise Unorderable
        if after is not None:
            self._check_position(select, after)
        batch = max(limit, MIN_BATCH) if residual else limit
        position = after
        while True:
            for level in [None] if position is None else self._order.levels(position.keys):
                query = select(level)
                values = {} if position is None else self._order.values(position.keys, position.seq)
                read = self._exact(query, {**values, "skip": 0, "limit": batch + 1}, position)
                found = read[:batch]
                yield from self._decided(query, found)
                if len(read) > batch:
                    position = self.position(found[-1])
                    break
            else:
                return

    def _check_position(self, select: Select, position: Position) -> None:
        """Raise `Unorderable` unless SQL can tell a position from every different position. After a truncated string at
        the end, all rows with the same beginning are read.
        """
        keys, truncated = position.keys, self._truncated(position.keys)
        if any(map(self._database.ordering.is_unorderable, keys)) or any(truncated[:-1]):
            raise Unorderable
        if any(truncated):
            query = select(self._order.levels(keys)[0])
            values = self._order.values(keys, BEFORE_ALL)
            alike = self._exact(query, {**values, "skip": 0, "limit": MIN_BATCH}, position)
            if len(alike) == MIN_BATCH:
                raise Unorderable

    def _decided(self, query: Query, found: Iterable[Positioned]) -> Iterable[Positioned]:
        """Return the documents that match the conditions SQL could not decide."""
        if not query.residual:
            return found
        rest, ordered = query.rest(self._filter), self._database.ordered_keys
        return (each for each in found if matches(rest, each[1], ordered=ordered))

    def _after(self, after: Position | None, found: Iterable[Positioned]) -> Iterable[Positioned]:
        if after is None:
            return found
        ordered = self._database.ordered_keys
        position = self._sort.comparable(after.keys, ordered=ordered), after.seq
        return (each for each in found if self._comparable(each) > position)

    def _positioned(self, row: Any) -> Positioned:
        return row[0], as_document(row[1:], self._collection)

    def _keys(self, found: Positioned) -> tuple[Key, ...]:
        return self._sort.keys(found[1], ordered=self._database.ordered_keys)

    def _comparable(self, found: Positioned) -> Any:
        ordered = self._database.ordered_keys
        return self._sort.comparable(self._keys(found), ordered=ordered), found[0]
