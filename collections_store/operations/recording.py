"""Recording what was changed, in the transaction that changes it.

The rules:

1. Changes wait in `Recorder.pending` until the transaction commits, or until they are many; what a savepoint takes
   back, it takes from there too, and puts back there what was recorded since. Within a caller's own transaction, whose
   end nobody here sees, those of an operation are recorded when it ends.
2. Who records holds the collection's entry in the catalogue until its commit is done. So the places
   of changes come in the order of commits, and whoever sees one sees all before it.
3. What is too many is deleted after the commit, in a transaction of its own: two that delete the same would
   be in conflict, which is none of the user's. If that fails, the next one does it, or `Prune`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ..frozen import frozen
from ..schema import now
from ..statements import PRUNED, FeedStatements

if TYPE_CHECKING:
    from .connection import Connection

PRUNE_EVERY: Final = 1000
"""Changes after which a process looks for some to prune, at most."""
MAX_PENDING: Final = 10_000
"""Changes that wait, at most."""
MAX_CHARACTERS: Final = 4 * 2**20
"""Characters of JSON that wait, about."""


@frozen
class Pending:
    """A change that waits for its transaction to commit; without a row: the feed itself is dropped,
    and what was to be recorded before.
    """

    collection: str
    feed: FeedStatements
    row: dict[str, Any] | None

    @property
    def characters(self) -> int:
        """How much JSON it holds."""
        row = self.row or {}
        return len(row.get("before") or "") + len(row.get("after") or "")


class Mark:
    """A `place` in a transaction to which it can be rolled back. What was pending there is pending again
    then, also if it was recorded since: that was undone.
    """

    __slots__ = ("_length", "_pending", "place")

    def __init__(self, place: Any, pending: list[Pending]) -> None:
        self.place, self._pending, self._length = place, pending, len(pending)

    def pending(self) -> list[Pending]:
        """Return the list as it was; it has only grown."""
        del self._pending[self._length :]
        return self._pending


class Recorder:
    """What a connection's transaction is to record, and of which collections it did."""

    __slots__ = ("_characters", "_recorded", "pending")

    def __init__(self) -> None:
        self.pending: list[Pending] = []
        """A list that was recorded is left as it is, for a `Mark` may have it."""
        self._characters = 0
        self._recorded: dict[str, FeedStatements] = {}

    def add(self, connection: Connection, change: Pending) -> None:
        """Have a change recorded."""
        self.pending.append(change)
        self._characters += change.characters
        if len(self.pending) >= MAX_PENDING or self._characters >= MAX_CHARACTERS:
            self.record(connection)

    def record(self, connection: Connection) -> None:
        """Record what waits."""
        changes, self.pending, self._characters = self.pending, [], 0
        if changes:
            self._recorded.update(record(connection, changes))

    def mark(self, place: Any) -> Mark:
        """Note what is pending at a place of the transaction."""
        return Mark(place, self.pending)

    def back_to(self, mark: Mark) -> None:
        """Have pending what was so at a place: all since was undone."""
        self.pending = mark.pending()
        self._characters = sum(each.characters for each in self.pending)

    def forget(self) -> None:
        """Record nothing: all was undone."""
        self.pending, self._characters, self._recorded = [], 0, {}

    def committed(self) -> dict[str, FeedStatements]:
        """Return the feeds, by their collections, in which something was recorded and committed."""
        recorded, self._recorded = self._recorded, {}
        return recorded


def record(connection: Connection, changes: Iterable[Pending]) -> dict[str, FeedStatements]:
    """Write changes down; returns in which feeds. The order of these keeps deadlocks away."""
    feeds: dict[str, list[Pending]] = {}
    for each in changes:
        if each.row is None:
            feeds.pop(each.feed.feed.physical, None)
        else:
            feeds.setdefault(each.feed.feed.physical, []).append(each)
    some: list[Pending]
    for some in sorted(feeds.values(), key=lambda some: some[-1].collection):
        collection, feed = some[-1].collection, some[-1].feed
        connection.rows(connection.store.hold, {"name": collection})
        connection.each(feed.append, [each.row for each in some if each.row is not None])
        feed.counted += len(some)
    return {some[-1].collection: some[-1].feed for some in feeds.values()}


def prunable(feeds: Iterable[FeedStatements]) -> list[FeedStatements]:
    """Return the feeds in which so much was recorded that some may be too many."""
    return [each for each in feeds if each.counted >= min(PRUNE_EVERY, 1 + each.feed.limit // 10)]


def prune(connection: Connection, feed: FeedStatements) -> bool:
    """Delete the changes that are too many or too old; tells whether there were any.

    One does at a time, and whoever finds another at it leaves it to that one. Each statement must see what was
    committed before it.
    """
    feed.counted = 0
    if not connection.rows(feed.alone):
        return False
    upto = beyond(connection, feed)
    if upto:
        connection.changed(feed.forget, {"seq": upto})
        connection.changed(feed.mark, {"seq": upto})
    return upto > 0


def beyond(connection: Connection, feed: FeedStatements) -> int:
    """Return the place up to which changes are too many or too old; 0: there are none."""
    first = connection.rows(feed.first)
    many = connection.rows(feed.beyond, {"kept": feed.feed.limit})
    upto: int = many[0][0] if many else 0
    if feed.feed.age is not None:
        [(older,)] = connection.rows(feed.older, {"since": now() - feed.feed.age})
        upto = max(upto, older or 0)
    pruned = max((seq for seq, kind in first if kind == PRUNED), default=0)
    return upto if upto > pruned else 0
