"""Reading rows: documents of the rows of a statement, and collections in natural order, in batches.

SQL reads what it can express of a filter; the matcher decides the rest (`Query.residual`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .. import codec
from ..document import Document, new_document
from ..query.filter import Filter
from ..query.matcher import matches
from ..query.projection import Projection
from ..query.sort import NATURAL
from ..query.values import value_class
from ..sql.conditions import Query
from ..sql.schema import now
from .by_id import as_document, damaged
from .operation import Operation

if TYPE_CHECKING:
    from .connection import Connection


class Inexact(Exception):
    """The result of a statement in the indexed form is wrong: an array is where it expects none."""


Positioned: TypeAlias = tuple[int, Document]
"""A document behind its position in natural order."""

NO_LIMIT: Final = 2**63 - 1
BEFORE_ALL: Final = -(2**63)
FIRST_BATCH: Final = 50
MAX_BATCH: Final = 2000
BATCH_CHARACTERS: Final = 2**20
"""Characters of JSON in a batch of a stream, about, as long as no single body is larger."""


def rows_of(
    connection: Connection, query: Query, filter: Filter, window: Mapping[str, Any]
) -> list[Any]:
    """Return the rows of `Statements.select`: positions and documents' columns. Raises `Inexact`."""
    rows = connection.rows(query.sql, query.parameters(filter, **window))
    if not query.guard:
        return rows
    if rows[0][0]:
        raise Inexact
    if query.guard == "row":
        return rows[1:]
    return [row[1:] for row in rows if row[1] is not None]


def documents_of(rows: list[Any]) -> list[Document]:
    """Return the documents of such rows, and empty the list: a body and its text do not take memory at once."""
    decode, documents = codec.decode, []
    rows.reverse()
    while rows:  # a call for each row would take longer
        _, id, text, version, created, updated, expires = rows.pop()
        try:
            body = decode(text)
        except ValueError as error:
            raise damaged(id, error) from error
        documents.append(new_document(id, body, version, created, updated, expires))
    return documents


def document_of(row: Any) -> Document:
    """Return the document of one such row."""
    return as_document(row[1:])


def popped(rows: list[Any]) -> Iterator[Any]:
    """Yield the rows of a list, which is emptied: only one is in memory together with what is made of it."""
    rows.reverse()
    while rows:
        yield rows.pop()


def projected(
    connection: Connection,
    documents: Iterable[Document],
    projection: Projection | None,
    filter: Filter,
) -> Iterable[Document]:
    """Return documents with the parts of their bodies that a projection selects."""
    if projection is None:
        return documents
    ordered = connection.database.ordered_keys
    return (projection.apply(each, filter, ordered=ordered) for each in documents)


@value_class
class Batch:
    """Some documents in natural order, with their positions, and the position `after` which the next batch begins, None at
    the end. `characters` of JSON were read for it. Where the matcher decides nothing, `documents` are decoded as they are
    iterated over: whoever releases each before the next gets them several times as fast.
    """

    documents: Iterable[Document]
    positions: Iterable[int]
    after: int | None
    characters: int = 0


@value_class
class ReadBatch(Operation[Batch]):
    """Read up to `limit` documents past the position `after`, and return those that match."""

    collection: str
    filter: Filter
    after: int
    limit: int
    projection: Projection | None = None
    atomic = True

    def __call__(self, connection: Connection) -> Batch:
        query = connection.collection(self.collection).select(
            self.filter, NATURAL, 0, indexed=False
        )
        window = {"seq": self.after, "skip": 0, "limit": self.limit}
        rows = rows_of(connection, query, self.filter, window)
        after = rows[-1][0] if len(rows) == self.limit else None
        characters = sum([len(row[2]) for row in rows])
        positions = [row[0] for row in rows]
        documents: Iterable[Document] = map(document_of, rows)
        if query.residual:
            rest, ordered = query.rest(self.filter), connection.database.ordered_keys
            found = [
                (position, each)
                for position, each in zip(positions, documents, strict=True)
                if matches(rest, each, ordered=ordered)
            ]
            positions = [position for position, _ in found]
            documents = (each for _, each in found)
        parts = projected(connection, documents, self.projection, self.filter)
        names_only = self.projection is None or self.projection.names_fields_only
        if query.residual or not names_only:
            parts = list(parts)  # what can fail does so within the operation
        return Batch(parts, positions, after, characters)

    def absent(self) -> Batch:
        return Batch((), (), None)


class NaturalBatches:
    """The batches of a stream in natural order, each about `BATCH_CHARACTERS` of JSON, whatever the bodies' sizes."""

    def __init__(
        self,
        collection: str,
        filter: Filter,
        projection: Projection | None = None,
        after: int = BEFORE_ALL,
    ) -> None:
        self._collection, self._filter, self._projection = collection, filter, projection
        self._after: int | None = after
        self._limit = FIRST_BATCH

    def next(self) -> ReadBatch | None:
        """Return the operation that reads the next batch; None: there is none."""
        if self._after is None:
            return None
        where = (self._collection, self._filter)
        return ReadBatch(*where, self._after, self._limit, self._projection)

    def advance(self, batch: Batch) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""
        self._after = batch.after
        self._limit = next_limit(self._limit, batch.characters)
        return batch.documents


def next_limit(limit: int, characters: int) -> int:
    """Return the limit of the next batch, if a batch of `limit` documents had so many characters."""
    wanted = BATCH_CHARACTERS * limit // (characters or 1)
    return max(1, min(wanted, 2 * limit, MAX_BATCH)) if characters else limit


def matching(
    connection: Connection, collection: str, filter: Filter, after: int = BEFORE_ALL
) -> Iterator[Positioned]:
    """Yield the documents that match past a position, in natural order; memory stays constant."""
    batches = NaturalBatches(collection, filter, after=after)
    while (operation := batches.next()) is not None:
        batch = operation(connection)
        yield from zip(batch.positions, batch.documents, strict=True)
        batches.advance(batch)


def locked(
    connection: Connection, collection: str, filter: Filter, found: list[Document]
) -> list[Document]:
    """Lock the documents that were found until the transaction ends, and return those that still match, as they are now,
    in the same order.
    """
    database = connection.database
    if database.single_writer or not found:
        return found
    ids = {"ids": database.compiler.list_parameter([each.id for each in found]), "now": now()}
    rows = connection.rows(connection.collection(collection).by_id.lock_many, ids)
    current = {document.id: document for document in map(as_document, rows)}
    same = (current[each.id] for each in found if each.id in current)
    return [each for each in same if matches(filter, each, ordered=database.ordered_keys)]
