"""Recording changes of collections with a transaction, and pruning the recorded changes.

The rules:

1. Changes wait in `Recorder.pending` until the transaction commits, or until they are many. A rollback to a savepoint
   restores the changes that were pending at the savepoint, also changes recorded since. Within a caller's own
   transaction, whose end the store does not see, the changes of an operation are recorded when the operation ends.
2. A writer that records holds the lock on the collection's entry in the catalogue until the commit is done. The
   positions of changes come in the order of commits, and a read sees all changes before the last visible change.
   Several entries are locked in the order of their names, against deadlocks.
3. Surplus changes are deleted after the commit, in another transaction: two transactions that delete the same changes
   would be in conflict, and the conflict does not concern the user. After a failure the next write deletes them, or
   `changes.Prune`.
4. A row stands for the pruned changes: a read that meets the row has lost changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..document import now
from ..expressions.classes import value_class
from ..sql.catalogue import CatalogueStatements
from ..sql.feed import PRUNED, FeedStatements
from .connection import Connection

PRUNE_EVERY: Final = 1000
"""Recorded changes after which a process looks for surplus changes, at most."""
MAX_PENDING: Final = 10_000
"""Pending changes, at most."""
MAX_CHARACTERS: Final = 4 * 2**20
"""Characters of JSON of pending changes, about."""


@value_class
class PendingChange:
    """A change that waits for the commit. Without a row: the feed is dropped, with the pending changes."""

    collection: str
    feed: FeedStatements
    row: dict[str, Any] | None

    @property
    def characters(self) -> int:
        """The size of the bodies."""
        row = self.row or {}
        return len(row.get("before") or "") + len(row.get("after") or "")


class Savepoint:
    """A savepoint of a transaction: the connection's `handle` of the savepoint, and the pending changes. After a
    rollback to the savepoint these changes are pending again, even if recorded since: the rollback undoes the record.
    """

    __slots__ = ("handle", "length", "pending")

    handle: Any
    pending: list[PendingChange]
    length: int

    def __init__(self, handle: Any, pending: list[PendingChange]) -> None:
        self.handle, self.pending, self.length = handle, pending, len(pending)


class Recorder:
    """The pending changes of a connection's transaction, and the feeds with recorded changes."""

    __slots__ = ("_characters", "_statements", "pending", "recorded")

    def __init__(self, statements: CatalogueStatements) -> None:
        self._statements = statements
        self.pending: list[PendingChange] = []
        """The list is replaced, not emptied, by `record`: a `Savepoint` may hold the list."""
        self._characters = 0
        self.recorded: dict[str, FeedStatements] = {}
        """The feeds with changes recorded since the last commit, by collection."""

    def add(self, connection: Connection, change: PendingChange) -> None:
        """Record a change with the transaction."""
        self.pending.append(change)
        self._characters += change.characters
        if len(self.pending) >= MAX_PENDING or self._characters >= MAX_CHARACTERS:
            self.record(connection)

    def record(self, connection: Connection) -> None:
        """Write the pending changes into their feeds, in the order of the collections' names (rule 2)."""
        changes, self.pending, self._characters = self.pending, [], 0
        feeds: dict[str, list[PendingChange]] = {}
        for each in changes:
            if each.row is None:
                feeds.pop(each.feed.feed.physical, None)
            else:
                feeds.setdefault(each.feed.feed.physical, []).append(each)
        for some in sorted(feeds.values(), key=lambda some: some[-1].collection):
            collection, feed = some[-1].collection, some[-1].feed
            connection.rows(self._statements.hold, {"name": collection})
            connection.changed_many(
                feed.append, [each.row for each in some if each.row is not None]
            )
            feed.counted += len(some)
            self.recorded[collection] = feed

    def rollback_to(self, savepoint: Savepoint) -> None:
        """Restore the changes that were pending at a savepoint: the savepoint's list has only grown."""
        self.pending = savepoint.pending
        del self.pending[savepoint.length :]
        self._characters = sum(each.characters for each in self.pending)

    def clear(self) -> None:
        """Record nothing: the transaction was rolled back."""
        self.pending, self._characters, self.recorded = [], 0, {}


def prunable(feeds: Iterable[FeedStatements]) -> list[FeedStatements]:
    """Return the feeds with enough recorded changes to look for surplus changes."""
    return [each for each in feeds if each.counted >= min(PRUNE_EVERY, 1 + each.feed.limit // 10)]


def prune(connection: Connection, feed: FeedStatements) -> bool:
    """Delete the changes that are too many or too old; returns whether any were deleted.

    One process prunes at a time; a second process returns at once. Each statement must see everything committed before.
    """
    feed.counted = 0
    if not connection.rows(feed.lock_first):
        return False
    last = last_surplus(connection, feed)
    if last:
        connection.changed(feed.delete, {"seq": last})
        connection.changed(feed.mark_pruned, {"seq": last})
    return last > 0


def last_surplus(connection: Connection, feed: FeedStatements) -> int:
    """Return the position of the last change that is surplus or too old, or 0."""
    first = connection.rows(feed.first)
    many = connection.rows(feed.over_limit, {"kept": feed.feed.limit})
    last: int = many[0][0] if many else 0
    if feed.feed.age is not None:
        [(older,)] = connection.rows(feed.older_than, {"since": now() - feed.feed.age})
        last = max(last, older or 0)
    pruned = max((seq for seq, kind in first if kind == PRUNED), default=0)
    return last if last > pruned else 0
