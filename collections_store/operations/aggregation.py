"""The verb `aggregate`: what a database can do first, it does; the rest of a pipeline runs here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .. import codec
from ..document import Anonymous, Document
from ..errors import InvalidPipeline, shortened
from ..filter import Filter
from ..formula import MEMORY_LIMIT
from ..frozen import frozen
from ..pipeline import Leading, Memory, Pipeline, Row, placed, slim
from ..statements import MAX_VALUE
from ..values import MISSING
from .catalogue import CollectionAbsent
from .queries import Count, Find
from .reading import Inexact, matching, rows_of

MAX_SORTED: Final = 10_000
"""More rows are sorted here, where they are weighed."""
MAX_VALUES: Final = 50_000
"""More different values are grouped here."""

if TYPE_CHECKING:
    from .connection import Connection


@frozen
class Aggregate:
    """Run a pipeline over the objects of a collection, all read in one transaction."""

    collection: str
    pipeline: Pipeline
    memory_limit: int = MEMORY_LIMIT
    WRITES: ClassVar = False
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> list[Any]:
        """Let the database do what it can of the first stages, and run the rest."""
        with placed(self.pipeline.asking()):
            return self._answer(connection)

    def _answer(self, connection: Connection) -> list[Any]:
        leading = self.pipeline.leading()
        if leading.count is not None:
            count = Count(self.collection, leading.filter)(connection)
            made = [Anonymous({leading.count: count})] if count else []
            return self._run(connection, leading.rest, made)
        if leading.sort is not None and _is_small(leading):
            window = (leading.sort, leading.skip, leading.limit)
            found = Find(self.collection, leading.filter, *window)(connection)
            memory = Memory(leading.place, self.memory_limit)
            for each in found:
                memory.hold_value(each.body)
            return self._run(connection, leading.rest, found)
        grouped = self._grouped(connection)
        return self._streamed(connection) if grouped is None else grouped

    def _streamed(self, connection: Connection) -> list[Any]:
        asked, rest = self.pipeline.filtered()
        return self._run(connection, rest, self._asked(connection, asked))

    def _asked(self, connection: Connection, asked: Filter) -> Iterator[Document]:
        with placed(self.pipeline.asking()):
            for _, row in matching(connection, self.collection, asked):
                yield row

    def _run(self, connection: Connection, rest: Pipeline, rows: Iterable[Row]) -> list[Any]:
        return list(rest.run(rows, _Others(connection), **self._options(connection)))

    def _grouped(self, connection: Connection) -> list[Any] | None:
        """Let the database tell the different values, and how often each comes; None: it cannot."""
        asked, rest = self.pipeline.filtered()
        paths = rest.fields()
        if paths is None or not all(map(connection.database.can_order, paths)):
            return None
        query = connection.collection(self.collection).group(asked, paths)
        if query.residual:
            return None
        try:
            rows = rows_of(connection, query, asked, {"skip": 0, "limit": MAX_VALUES})
        except Inexact:
            return None
        if len(rows) == MAX_VALUES or any(map(_is_cut, rows)):
            return None
        counted = ((slim(paths, map(_decoded, texts)), times) for _, times, *texts in rows if times)
        return list(rest.run_counted(counted, _Others(connection), **self._options(connection)))

    def _options(self, connection: Connection) -> dict[str, Any]:
        ordered = connection.database.ORDERED_KEYS
        return {"memory_limit": self.memory_limit, "ordered": ordered}

    @property
    def collections(self) -> tuple[str, ...]:
        """Every collection that is read, those of `$lookup` included."""
        return (self.collection, *self.pipeline.collections())

    def nothing(self) -> list[Any]:
        return list(self.pipeline.run(()))


@frozen
class _Others:
    """The other collections of a connection's store, for `$lookup`."""

    connection: Connection

    def find(self, collection: str, filter: Filter) -> Iterator[Document]:
        try:
            found = matching(self.connection, collection, filter)
            yield from (document for _, document in found)
        except CollectionAbsent:
            return


def _is_small(leading: Leading) -> bool:
    return leading.limit is not None and leading.skip + leading.limit <= MAX_SORTED


def _is_cut(row: Any) -> bool:
    return any(text is not None and len(text) > MAX_VALUE for text in row[2:])


def _decoded(text: str | None) -> Any:
    return MISSING if text is None else codec.decode(text)


def check_memory(limit: Any) -> int:
    """Return a memory limit if it is a number of bytes; raises `InvalidPipeline`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidPipeline("memory_limit", f"{shortened(limit)} is not a number of bytes")
    return limit
