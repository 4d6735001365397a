"""The verbs by filter.

A filter that SQL can say is one statement. Else the rows that pass the part it can say are read in
batches, and the matcher decides: memory stays constant, and `limit` ends the reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..document import Document
from ..errors import InvalidFilter, shortened
from ..filter import Filter, shape_of
from ..matcher import matches
from .documents import as_document

if TYPE_CHECKING:
    from .connection import Connection

NO_LIMIT: Final = 2**63 - 1
BEFORE_ALL: Final = -(2**63)
_BATCH: Final = 100
FIRST_PAGE: Final = 50
MAX_PAGE: Final = 2000
PAGE_CHARACTERS: Final = 2**20
"""What a page of a stream holds of JSON text, about, as long as no single body is larger."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some documents in natural order, and the place after which the next page begins; `after` is
    None when there is none. `characters` of JSON were read for it.
    """

    documents: tuple[Document, ...]
    after: int | None
    characters: int = 0


@dataclass(frozen=True, slots=True)
class Find:
    """Read the objects that match, in natural order."""

    collection: str
    filter: Filter
    skip: int = 0
    limit: int | None = None
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> list[Document]:
        query = connection.collection(self.collection).select(shape_of(self.filter.condition))
        if query.residual:
            stop = None if self.limit is None else self.skip + self.limit
            with connection.transaction(write=False):
                found = matching(connection, self.collection, self.filter)
                return list(islice(found, self.skip, stop))
        limit = NO_LIMIT if self.limit is None else self.limit
        parameters = query.parameters(self.filter, after=BEFORE_ALL, skip=self.skip, limit=limit)
        return [as_document(row[1:]) for row in connection.rows(query.sql, parameters)]

    def nothing(self) -> list[Document]:
        return []


@dataclass(frozen=True, slots=True)
class Count:
    """Tell how many objects match."""

    collection: str
    filter: Filter
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> int:
        query = connection.collection(self.collection).count(shape_of(self.filter.condition))
        if query.residual:
            with connection.transaction(write=False):
                return sum(1 for _ in matching(connection, self.collection, self.filter))
        [(count,)] = connection.rows(query.sql, query.parameters(self.filter))
        return int(count)

    def nothing(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Read up to `limit` objects past the place `after`, and keep those that match."""

    collection: str
    filter: Filter
    after: int
    limit: int
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Page:
        query = connection.collection(self.collection).select(shape_of(self.filter.condition))
        parameters = query.parameters(self.filter, after=self.after, skip=0, limit=self.limit)
        rows = connection.rows(query.sql, parameters)
        documents = (as_document(row[1:]) for row in rows)
        if query.residual:
            rest, ordered = query.rest(self.filter), connection.database.ORDERED_KEYS
            documents = (d for d in documents if matches(rest, d, ordered=ordered))
        after = rows[-1][0] if len(rows) == self.limit else None
        return Page(tuple(documents), after, sum(len(row[2]) for row in rows))

    def nothing(self) -> Page:
        return Page((), None)


class Reading:
    """The pages of a stream, each about `PAGE_CHARACTERS` of JSON, whatever the bodies' sizes."""

    def __init__(self, collection: str, filter: Filter) -> None:
        self._collection, self._filter = collection, filter
        self._after: int | None = BEFORE_ALL
        self._limit = FIRST_PAGE

    def next(self) -> ReadPage | None:
        """Return the operation that reads the next page; None: that was all."""
        if self._after is None:
            return None
        return ReadPage(self._collection, self._filter, self._after, self._limit)

    def took(self, page: Page) -> tuple[Document, ...]:
        """Go on after `page`."""
        self._after = page.after
        if page.characters:
            wanted = PAGE_CHARACTERS * self._limit // page.characters
            self._limit = max(1, min(wanted, 2 * self._limit, MAX_PAGE))
        return page.documents


def check_window(skip: Any, limit: Any) -> tuple[int, int | None]:
    """Return `skip` and `limit` if they are whole numbers from 0 on; raises `InvalidFilter`."""
    for name, value in (("skip", skip), ("limit", 0 if limit is None else limit)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < NO_LIMIT:
            raise InvalidFilter(name, f"{shortened(value)} is not a whole number from 0 on")
    return skip, limit


def matching(connection: Connection, collection: str, filter: Filter) -> Iterator[Document]:
    """Yield the objects that match, in natural order, read in batches."""
    after: int | None = BEFORE_ALL
    while after is not None:
        page = ReadPage(collection, filter, after, _BATCH)(connection)
        yield from page.documents
        after = page.after
