"""Operations by filter: reading, counting and deleting what matches; checks of their arguments."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..aggregation.expressions.operands import key_of, sort_key
from ..codec import Codec, decode
from ..document import DeleteResult, Document, Page, metadatum
from ..errors import InvalidFilter, TransactionConflict, shortened
from ..query.conditions import Target
from ..query.cursor import seal, unseal
from ..query.filter import Filter
from ..query.matcher import distinct_values
from ..query.projection import Projection
from ..query.sort import NATURAL, Sort
from ..query.values import value_class
from ..sql.conditions import Query
from .operation import Operation
from .read import (
    BEFORE_ALL,
    FIRST_BATCH,
    NO_LIMIT,
    Inexact,
    document_of,
    documents_of,
    locked,
    matching,
    next_limit,
    popped,
    projected,
    rows_of,
)
from .read_sorted import SortedReader
from .write import MAX_ATTEMPTS, Writer

if TYPE_CHECKING:
    from .connection import Connection


DELETE_BATCH: Final = 1000
"""Documents that are deleted at once where each is recorded, or found by the matcher."""


@value_class
class Find(Operation[list[Document]]):
    """Read the documents that match, in order."""

    collection: str
    filter: Filter
    sort: Sort = NATURAL
    skip: int = 0
    limit: int | None = None
    projection: Projection | None = None
    atomic = True
    empty = list

    def __call__(self, connection: Connection) -> list[Document]:
        if not self.sort.fields:
            query = connection.collection(self.collection).select(self.filter)
            limit = NO_LIMIT if self.limit is None else self.limit
            with suppress(Inexact):
                if not query.residual:
                    window = {"skip": self.skip, "limit": limit}
                    rows = rows_of(connection, query, self.filter, window)
                    if self.projection is None:
                        return documents_of(rows)
                    return self._projected(connection, map(document_of, popped(rows)))
        reader = SortedReader(connection, self.collection, self.filter, self.sort)
        found = reader.window(self.skip, self.limit)
        return self._projected(connection, (document for _, document in found))

    def _projected(self, connection: Connection, documents: Iterable[Document]) -> list[Document]:
        return list(projected(connection, documents, self.projection, self.filter))


@value_class
class FindPage(Operation[Page]):
    """Read up to `limit` documents in order, after the position of a cursor."""

    collection: str
    filter: Filter
    sort: Sort
    limit: int
    after: str | None = None
    projection: Projection | None = None

    def __call__(self, connection: Connection) -> Page:
        key = connection.collection(self.collection).options.cursor_key
        after = None if self.after is None else unseal(self.after, key, self.filter, self.sort)
        reader = SortedReader(connection, self.collection, self.filter, self.sort)
        found = reader.page(after, self.limit + 1)
        page = found[: self.limit]
        documents = (document for _, document in page)
        parts = tuple(projected(connection, documents, self.projection, self.filter))
        if len(found) <= self.limit:
            return Page(parts)
        return Page(parts, seal(reader.position(page[-1]), key, self.filter, self.sort))

    def absent(self) -> Page:
        return Page(())


@value_class
class FindIds(Operation[list[str]]):
    """Read the ids of the documents that match, in their order, and no body that the filter does not need."""

    collection: str
    filter: Filter
    limit: int | None = None
    atomic = True
    empty = list

    def __call__(self, connection: Connection) -> list[str]:
        query = connection.collection(self.collection).ids(self.filter)
        if query.residual:
            with connection.transaction(write=False):
                found = matching(connection, self.collection, self.filter)
                return sorted(document.id for _, document in found)[: self.limit]
        limit = NO_LIMIT if self.limit is None else self.limit
        rows = connection.rows(query.sql, query.parameters(self.filter, limit=limit))
        return [id for (id,) in rows]


@value_class
class Count(Operation[int]):
    """Return how many documents match."""

    collection: str
    filter: Filter
    atomic = True
    empty = int

    def __call__(self, connection: Connection) -> int:
        statements = connection.collection(self.collection)
        query = statements.count(self.filter)
        if query.residual:
            with connection.transaction(write=False):
                return sum(1 for _ in matching(connection, self.collection, self.filter))
        [row] = connection.rows(query.sql, query.parameters(self.filter))
        if query.guard and row[0]:
            query = statements.count(self.filter, indexed=False)
            [row] = connection.rows(query.sql, query.parameters(self.filter))
        return int(row[-1])


@value_class
class Distinct(Operation[list[Any]]):
    """Read the values that a field has in the documents that match, in MongoDB's order."""

    collection: str
    field: Target
    filter: Filter
    empty = list

    def __call__(self, connection: Connection) -> list[Any]:
        ordered = connection.database.ordered_keys
        found: dict[Hashable, tuple[int, Any]] = {}
        for seq, value in self._found(connection):
            key = key_of(value, ordered=ordered)
            if key not in found or seq < found[key][0]:
                found[key] = seq, value
        return sorted((value for _, value in found.values()), key=sort_key(ordered))

    def _found(self, connection: Connection) -> Iterator[tuple[int, Any]]:
        """Yield values, each behind the position of the document it is from."""
        field = self.field
        if isinstance(field, str):
            for seq, document in matching(connection, self.collection, self.filter):
                yield seq, metadatum(document, field)
            return
        query = connection.collection(self.collection).distinct(self.filter, field.keys)
        if query.residual or not connection.database.ordering.can_order(field.keys):
            for seq, document in matching(connection, self.collection, self.filter):
                yield from ((seq, each) for each in distinct_values(document.body, field.keys))
            return
        for seq, text in popped(connection.rows(query.sql, query.parameters(self.filter))):
            yield seq, decode(text)
        yield from self._within_arrays(connection, field.keys)

    def _within_arrays(
        self, connection: Connection, keys: tuple[str, ...]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the values of the documents with an array on the way to the field, which are read in batches."""
        query = connection.collection(self.collection).bodies_with_array(self.filter, keys)
        after, limit, more = BEFORE_ALL, FIRST_BATCH, True
        while more:
            parameters = query.parameters(self.filter, seq=after, limit=limit)
            rows = connection.rows(query.sql, parameters)
            for seq, text in rows:
                yield from ((seq, each) for each in distinct_values(decode(text), keys))
            more = len(rows) == limit
            if more:
                after = rows[-1][0]
                limit = next_limit(limit, sum(len(text) for _, text in rows))


@value_class
class DeleteFirst(Operation[DeleteResult]):
    """Delete the first document in natural order that matches."""

    collection: str
    filter: Filter
    writes = True

    def __call__(self, connection: Connection) -> DeleteResult:
        writer, find = (
            Writer(connection, self.collection),
            Find(self.collection, self.filter, limit=1),
        )
        for _ in range(MAX_ATTEMPTS):
            found = find(connection)
            if not found or writer.remove_document(found[0]):
                return DeleteResult(len(found))
        raise changed_by_others(self)

    def absent(self) -> DeleteResult:
        return DeleteResult(0)


@value_class
class DeleteMatching(Operation[DeleteResult]):
    """Delete the documents that match."""

    collection: str
    filter: Filter
    writes = True

    def __call__(self, connection: Connection) -> DeleteResult:
        writer = Writer(connection, self.collection)
        query = writer.statements.delete(self.filter, indexed=not self._has_arrays(connection))
        if query.residual:
            return DeleteResult(self._by_ids(connection, writer))
        if writer.statements.feed is not None:
            return DeleteResult(self._recorded(connection, writer, query))
        return DeleteResult(connection.changed(query.sql, query.parameters(self.filter)))

    def absent(self) -> DeleteResult:
        return DeleteResult(0)

    def _has_arrays(self, connection: Connection) -> bool:
        """Return whether the statement would be wrong in the indexed form."""
        guard = connection.collection(self.collection).guard(self.filter)
        if guard is None:
            return False
        [(some,)] = connection.rows(guard.sql, guard.parameters(self.filter))
        return bool(some)

    def _by_ids(self, connection: Connection, writer: Writer) -> int:
        """Delete what the matcher finds, in batches."""
        found = (document for _, document in matching(connection, self.collection, self.filter))
        total = 0
        while batch := list(islice(found, DELETE_BATCH)):
            ours = locked(connection, self.collection, self.filter, batch)
            total += writer.remove_many([each.id for each in ours]) if ours else 0
        return total

    def _recorded(self, connection: Connection, writer: Writer, query: Query) -> int:
        """Delete what must be recorded, in batches."""
        total, after = 0, BEFORE_ALL
        while True:
            parameters = query.parameters(self.filter, seq=after, limit=DELETE_BATCH)
            rows = sorted(connection.rows(query.sql, parameters))
            total += writer.removed(row[1:] for row in rows)
            if len(rows) < DELETE_BATCH:
                return total
            after = rows[-1][0]


def changed_by_others(operation: Operation[Any]) -> TransactionConflict:
    """Return the error of an operation whose every attempt lost against another write."""
    return TransactionConflict(
        f"{operation!r}: others changed the document in each of {MAX_ATTEMPTS} attempts"
    )


def check_window(skip: Any, limit: Any) -> tuple[int, int | None]:
    """Return `skip` and `limit` if they are integers from 0 on; raises `InvalidFilter`."""
    for name, value in (("skip", skip), ("limit", 0 if limit is None else limit)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < NO_LIMIT:
            raise InvalidFilter(name, f"must be an integer from 0 on, got {shortened(value)}")
    return skip, limit


def check_page(limit: Any) -> int:
    """Return `limit` if it is an integer from 1 on; raises `InvalidFilter`."""
    _, checked = check_window(0, limit)
    if not checked:
        raise InvalidFilter("limit", f"must be an integer from 1 on, got {shortened(limit)}")
    return checked


def parse_required(filter: Any, equals: Any, codec: Codec) -> Filter:
    """Parse the filter of a write: all documents are `{}`, never None. Raises `InvalidFilter`."""
    if filter is None:
        raise InvalidFilter("", "must be given, got None: {} matches all documents")
    return Filter.parse(filter, equals, codec)


def read_projection(projection: Any, filter: Filter, codec: Codec) -> Projection | None:
    """Return a parsed projection if it goes with the filter; raises `InvalidProjection`."""
    if projection is None:
        return None
    parsed = Projection.parse(projection, codec)
    parsed.check(filter)
    return parsed
