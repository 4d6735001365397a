"""What is deleted because its time has come: in which collections there is any, and old changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..collection_options import CollectionOptions
from ..frozen import frozen
from ..schema import now
from .locking import jsonb_problem
from .recording import beyond, prune

if TYPE_CHECKING:
    from .connection import Connection


@frozen
class Prune:
    """Delete the recorded changes that are too many or too old; tells whether there were any."""

    collection: str
    WRITES: ClassVar = True
    SINGLE: ClassVar = False
    SNAPSHOT: ClassVar = False

    def __call__(self, connection: Connection) -> bool:
        feed = connection.collection(self.collection).feed
        return feed is not None and prune(connection, feed)

    def nothing(self) -> bool:
        return False


@frozen
class HasPrunable:
    """Tell whether there are recorded changes to delete, without writing."""

    collection: str
    WRITES: ClassVar = False
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> bool:
        feed = connection.collection(self.collection).feed
        return feed is not None and beyond(connection, feed) > 0

    def nothing(self) -> bool:
        return False


@frozen
class ListPurgeable:
    """Name the collections in which something has expired, or changes are to be deleted; of those that the
    database cannot read, none.
    """

    WRITES: ClassVar = False
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> list[str]:
        listing = connection.rows(connection.store.listing)
        return [name for name, table, _, text in listing if _is_purgeable(connection, table, text)]


def _is_purgeable(connection: Connection, table: str, text: str) -> bool:
    options = CollectionOptions.from_text(text)
    if options.jsonb and jsonb_problem(connection):
        return False
    statements = connection.store.documents(table, options)
    [(some,)] = connection.rows(statements.by_id.has_expired, {"now": now()})
    return bool(some) or (statements.feed is not None and beyond(connection, statements.feed) > 0)
