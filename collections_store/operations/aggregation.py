"""The verb `aggregate`: what a database can do first, it does; the rest of a pipeline runs here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..document import Document
from ..errors import InvalidPipeline, shortened
from ..filter import Filter
from ..pipeline import MEMORY_LIMIT, Pipeline
from .catalogue import CollectionAbsent
from .reading import matching

if TYPE_CHECKING:
    from .connection import Connection


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Run a pipeline over the objects of a collection, all read in one transaction."""

    collection: str
    pipeline: Pipeline
    memory_limit: int = MEMORY_LIMIT
    WRITES: ClassVar = False
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> list[Any]:
        asked, rest = self.pipeline.filtered()
        rows = (row for _, row in matching(connection, self.collection, asked))
        bodies = rest.run(
            rows,
            _Others(connection),
            memory_limit=self.memory_limit,
            ordered=connection.database.ORDERED_KEYS,
        )
        return list(bodies)

    @property
    def collections(self) -> tuple[str, ...]:
        """Every collection that is read, those of `$lookup` included."""
        return (self.collection, *self.pipeline.collections())

    def nothing(self) -> list[Any]:
        return list(self.pipeline.run(()))


@dataclass(frozen=True, slots=True)
class _Others:
    """The other collections of a connection's store, for `$lookup`."""

    connection: Connection

    def find(self, collection: str, filter: Filter) -> Iterator[Document]:
        try:
            found = matching(self.connection, collection, filter)
            yield from (document for _, document in found)
        except CollectionAbsent:
            return


def check_memory(limit: Any) -> int:
    """Return a memory limit if it is a number of bytes; raises `InvalidPipeline`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidPipeline("memory_limit", f"{shortened(limit)} is not a number of bytes")
    return limit
