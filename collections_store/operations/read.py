"""Reading in natural order, in batches: what SQL can say of a filter is read, the matcher decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .. import codec
from ..document import Document, new_document
from ..query.filter import Filter
from ..query.matcher import matches
from ..query.projection import Projection
from ..query.sort import Sort
from ..query.values import value_class
from ..sql.conditions import Query
from ..sql.schema import now
from .by_id import as_document, body_of, damaged
from .operation import Operation

if TYPE_CHECKING:
    from .connection import Connection


class Inexact(Exception):
    """What SQL says is not what is asked for: an array is where none was expected."""


Placed: TypeAlias = tuple[int, Document]
"""An object and its place in natural order."""

NATURAL: Final = Sort()
NO_LIMIT: Final = 2**63 - 1
BEFORE_ALL: Final = -(2**63)
FIRST_BATCH: Final = 50
MAX_BATCH: Final = 2000
BATCH_CHARACTERS: Final = 2**20
"""What a batch of a stream holds of JSON text, about, as long as no single body is larger."""


@value_class
class Batch:
    """Some objects in natural order, and the place after which the next batch begins; `after` is
    None when there is none. `characters` of JSON were read for it. Where nothing is to be decided,
    bodies are made of their texts one by one, as the objects are asked for: who lets go of one before he takes
    the next gets them several times as fast. `objects` have their places, `documents` are the same without:
    one of the two is for use.
    """

    objects: Iterable[Placed]
    documents: Iterable[Document]
    after: int | None
    characters: int = 0


@value_class
class ReadBatch(Operation[Batch]):
    """Read up to `limit` objects past the place `after`, and keep those that match."""

    collection: str
    filter: Filter
    after: int
    limit: int
    projection: Projection | None = None
    atomic = True

    def __call__(self, connection: Connection) -> Batch:
        statements = connection.collection(self.collection)
        query = statements.select(self.filter, NATURAL, 0, indexed=False)
        window = {"seq": self.after, "skip": 0, "limit": self.limit}
        rows = rows_of(connection, query, self.filter, window)
        after = rows[-1][0] if len(rows) == self.limit else None
        characters = sum([len(row[2]) for row in rows])
        objects: Iterable[Placed] = map(as_placed, rows)
        if not query.residual and (self.projection is None or self.projection.names_fields_only):
            objects = projected(connection, objects, self.projection, self.filter)
            documents: Iterable[Document] = map(as_read, rows)
            if self.projection is not None:
                choose = self.projection.apply
                documents = (choose(each, self.filter) for each in documents)
            return Batch(objects, documents, after, characters)
        if query.residual:
            rest, ordered = query.rest(self.filter), connection.database.ordered_keys
            objects = (each for each in objects if matches(rest, each[1], ordered=ordered))
        chosen = tuple(projected(connection, objects, self.projection, self.filter))
        return Batch(chosen, [document for _, document in chosen], after, characters)

    def absent(self) -> Batch:
        return Batch((), (), None)


class Reading:
    """The batches of a stream, each about `BATCH_CHARACTERS` of JSON, whatever the bodies' sizes."""

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
        """Return the operation that reads the next batch; None: that was all."""
        if self._after is None:
            return None
        where = (self._collection, self._filter)
        return ReadBatch(*where, self._after, self._limit, self._projection)

    def took(self, batch: Batch) -> Iterable[Document]:
        """Go on after `batch`."""
        self._after = batch.after
        self._limit = next_limit(self._limit, batch.characters)
        return batch.documents


def next_limit(limit: int, characters: int) -> int:
    """Return how many documents the next batch may have, if so many had so many characters."""
    wanted = BATCH_CHARACTERS * limit // (characters or 1)
    return max(1, min(wanted, 2 * limit, MAX_BATCH)) if characters else limit


def held(
    connection: Connection, collection: str, filter: Filter, found: list[Document]
) -> list[Document]:
    """Return what was found as it is now and stays until the transaction ends, as far as it still matches,
    in the same order.
    """
    database = connection.database
    if database.single_writer or not found:
        return found
    ids = {"ids": database.compiler.list_parameter([each.id for each in found]), "now": now()}
    rows = connection.rows(connection.collection(collection).by_id.lock_many, ids)
    there = {document.id: document for document in map(as_document, rows)}
    same = (there[each.id] for each in found if each.id in there)
    return [each for each in same if matches(filter, each, ordered=database.ordered_keys)]


def matching(
    connection: Connection, collection: str, filter: Filter, start: int | None = None
) -> Iterator[Placed]:
    """Yield the objects that match past the place `start`, in natural order; memory stays constant."""
    reading = Reading(collection, filter, after=BEFORE_ALL if start is None else start)
    while (read := reading.next()) is not None:
        batch = read(connection)
        yield from batch.objects
        reading.took(batch)


def projected(
    connection: Connection,
    objects: Iterable[Placed],
    projection: Projection | None,
    filter: Filter,
) -> Iterable[Placed]:
    """Return the objects with the parts of their bodies that are wanted."""
    if projection is None:
        return objects
    ordered = connection.database.ordered_keys
    return ((seq, projection.apply(d, filter, ordered=ordered)) for seq, d in objects)


def in_natural_order(
    connection: Connection,
    collection: str,
    filter: Filter,
    skip: int,
    limit: int | None,
    *,
    projection: Projection | None = None,
) -> list[Document] | None:
    """Return the objects that match if one statement can tell: what is asked most, in the fewest steps."""
    query = connection.collection(collection).select(filter)
    if query.residual:
        return None
    try:
        window = {"skip": skip, "limit": NO_LIMIT if limit is None else limit}
        rows = rows_of(connection, query, filter, window)
    except Inexact:
        return None
    decode = codec.decode
    if projection is not None:  # each body goes before the next one comes
        parts = projected(connection, map(as_placed, each_let_go(rows)), projection, filter)
        return [document for _, document in parts]
    found = []
    try:  # a call for each row would take longer
        for _, id, body, version, created, updated, expires in each_let_go(rows):
            found.append(new_document(id, decode(body), version, created, updated, expires))
    except ValueError as error:
        raise damaged(id, error) from error
    return found


def rows_of(
    connection: Connection, query: Query, filter: Filter, window: Mapping[str, Any]
) -> list[Any]:
    """Return the rows of `Statements.select`; raises `Inexact` if they are wrong."""
    rows = connection.rows(query.sql, query.parameters(filter, **window))
    if not query.guard:
        return rows
    if rows[0][0]:
        raise Inexact
    if query.guard == "row":
        return rows[1:]
    return [row[1:] for row in rows if row[1] is not None]


def each_let_go(rows: list[Any]) -> Iterator[Any]:
    """Yield rows and hold them no longer: texts of bodies and what is made of them take memory by turns."""
    rows.reverse()
    while rows:
        yield rows.pop()


def as_read(row: Any) -> Document:
    """Return the object of a row of `Statements.select`."""
    _, id, body, version, created, updated, expires = row
    return new_document(id, body_of(id, body), version, created, updated, expires)


def as_placed(row: Any) -> Placed:
    """Return the object of such a row, and its place."""
    seq, id, body, version, created, updated, expires = row
    return seq, new_document(id, body_of(id, body), version, created, updated, expires)
