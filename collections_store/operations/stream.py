"""Reading in an order, some documents at a time.

Where an index has the order, each batch is read behind the last one. Elsewhere the ids are sorted at first,
and the documents under them are read as they are needed: what is sorted by takes memory, bodies do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ..aggregation.expressions.operands import size_of
from ..codec import Codec
from ..document import Document
from ..query.cursor import Position
from ..query.filter import Filter
from ..query.projection import Projection
from ..query.sort import Sort
from ..query.values import value_class
from .find import Find, read_projection
from .operation import Operation
from .read import FIRST_BATCH, MAX_BATCH, Reading, projected
from .read_sorted import Ordered

if TYPE_CHECKING:
    from .connection import Connection


BATCH_SIZE: Final = 4 * 2**20
"""Bytes of memory that a batch takes, about, as long as no single document is larger."""
_SAMPLE: Final = 10


@value_class
class SortedBatch:
    """Some documents in order and the place of the last one, None: there are no more. `ids`: no index has the
    order, and these are all that match.
    """

    documents: list[Document]
    after: Position | None = None
    ids: list[str] | None = None


@value_class
class ReadSorted(Operation[SortedBatch]):
    """Read up to `limit` documents in order after a place, or the ids of all."""

    collection: str
    filter: Filter
    sort: Sort
    projection: Projection | None
    after: Position | None
    limit: int

    def __call__(self, connection: Connection) -> SortedBatch:
        ordered = Ordered(connection, self.collection, self.filter, self.sort)
        if self.after is None and not ordered.has_index():
            return SortedBatch([], None, ordered.ids())
        found = ordered.following(self.after, self.limit)
        after = ordered.position(found[-1]) if len(found) == self.limit else None
        parts = projected(connection, found, self.projection, self.filter)
        return SortedBatch([document for _, document in parts], after)

    def absent(self) -> SortedBatch:
        return SortedBatch([])


Step: TypeAlias = ReadSorted | Find


class Batches(Protocol):
    """What a stream reads, batch by batch."""

    def next(self) -> Any:
        """Return the operation that reads the next batch; None: that was all."""

    def took(self, batch: Any) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""


def reading_of(
    collection: str, filter: Filter, sort: Any, projection: Any, rules: Codec
) -> Batches:
    """Return what a stream reads; raises `InvalidSort` and `InvalidProjection`."""
    parts, order = read_projection(projection, filter, rules), Sort.parse(sort)
    if not order:
        return Reading(collection, filter, parts)
    return SortedReading(collection, filter, order, parts)


class SortedReading:
    """The batches of a stream in an order."""

    def __init__(
        self, collection: str, filter: Filter, sort: Sort, projection: Projection | None
    ) -> None:
        self._collection, self._filter, self._sort = collection, filter, sort
        self._projection = projection
        self._after: Position | None = None
        self._ids: Iterator[str] | None = None
        self._batch: list[str] = []
        self._limit, self._ended = FIRST_BATCH, False

    def next(self) -> Step | None:
        """Return the operation that reads the next batch; None: that was all."""
        if self._ended:
            return None
        where = (self._collection, self._filter)
        if self._ids is None:
            return ReadSorted(*where, self._sort, self._projection, self._after, self._limit)
        self._batch = list(islice(self._ids, self._limit))
        if not self._batch:
            return None
        these = self._filter & Filter.parse({"$id": {"$in": self._batch}})
        return Find(self._collection, these, projection=self._projection)

    def took(self, batch: SortedBatch | list[Document]) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""
        if isinstance(batch, list):
            there = {document.id: document for document in batch}
            documents = [there[id] for id in self._batch if id in there]
        else:
            documents, self._after = batch.documents, batch.after
            if batch.ids is not None:
                self._ids = iter(batch.ids)
            else:
                self._ended = self._after is None
        self._adapt(documents)
        return documents

    def _adapt(self, documents: list[Document]) -> None:
        some = documents[:_SAMPLE]
        if some:
            size = sum(size_of(each.body, BATCH_SIZE) for each in some)
            wanted = BATCH_SIZE * len(some) // size
            self._limit = max(1, min(wanted, 2 * self._limit, MAX_BATCH))
