"""Streams of documents in an order, in batches.

Where an index has the order, each batch is read behind the last one. Elsewhere all ids are sorted first, and the documents
under them are read as they are needed: the sort keys take memory, bodies do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..aggregation.expressions.scope import size_of
from ..codec import Codec
from ..document import Document
from ..query.cursor import Position
from ..query.filter import Filter
from ..query.projection import Projection
from ..query.sort import Sort
from ..query.values import value_class
from .find import Find, read_projection
from .operation import Operation
from .read import FIRST_BATCH, MAX_BATCH, NaturalBatches, projected
from .read_sorted import SortedReader

if TYPE_CHECKING:
    from .connection import Connection


BATCH_SIZE: Final = 4 * 2**20
"""Bytes of memory that a batch takes, about, as long as no single document is larger."""
_SAMPLE: Final = 10


class Batches(Protocol):
    """The batches of a stream: each operation that `next` returns is run, and its result given to `advance`."""

    def next(self) -> Any:
        """Return the operation that reads the next batch; None: there is none."""

    def advance(self, batch: Any) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""


def batches_of(
    collection: str, filter: Filter, sort: Any, projection: Any, codec: Codec
) -> Batches:
    """Return the batches of a stream; raises `InvalidSort` and `InvalidProjection`."""
    parsed, order = read_projection(projection, filter, codec), Sort.parse(sort)
    if not order:
        return NaturalBatches(collection, filter, parsed)
    return SortedBatches(collection, filter, order, parsed)


@value_class
class SortedBatch:
    """Some documents in order and the position of the last one, None if there are no more. `ids`: no index has the order,
    and these are all that match.
    """

    documents: list[Document]
    after: Position | None = None
    ids: list[str] | None = None


@value_class
class ReadSorted(Operation[SortedBatch]):
    """Read up to `limit` documents in order after a position, or the ids of all."""

    collection: str
    filter: Filter
    sort: Sort
    projection: Projection | None
    after: Position | None
    limit: int

    def __call__(self, connection: Connection) -> SortedBatch:
        reader = SortedReader(connection, self.collection, self.filter, self.sort)
        if self.after is None and not reader.has_index():
            return SortedBatch([], ids=reader.ids())
        found = reader.page(self.after, self.limit)
        after = reader.position(found[-1]) if len(found) == self.limit else None
        documents = (document for _, document in found)
        parts = projected(connection, documents, self.projection, self.filter)
        return SortedBatch(list(parts), after)

    def absent(self) -> SortedBatch:
        return SortedBatch([])


class SortedBatches:
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

    def next(self) -> ReadSorted | Find | None:
        """Return the operation that reads the next batch; None: there is none."""
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

    def advance(self, batch: SortedBatch | list[Document]) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""
        if isinstance(batch, list):
            found = {document.id: document for document in batch}
            documents = [found[id] for id in self._batch if id in found]
        else:
            documents, self._after = batch.documents, batch.after
            if batch.ids is not None:
                self._ids = iter(batch.ids)
            else:
                self._ended = self._after is None
        self._adapt(documents)
        return documents

    def _adapt(self, documents: list[Document]) -> None:
        """Set the limit of the next batch, by the size of some documents."""
        some = documents[:_SAMPLE]
        if some:
            size = sum(size_of(each.body, BATCH_SIZE) for each in some)
            wanted = BATCH_SIZE * len(some) // size
            self._limit = max(1, min(wanted, 2 * self._limit, MAX_BATCH))
