"""Recording what was changed, in the transaction that changes it.

The rules:

1. Changes wait in `Connection.pending` until the transaction commits; what a savepoint takes back, it
   takes from there too, and puts back there what was recorded since. Within a caller's own transaction, whose end nobody here sees, they are
   recorded at once.
2. Who records holds the collection's entry in the catalogue until its commit is done. So the places
   of changes come in the order of commits, and whoever sees one sees all before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..schema import now
from ..statements import PRUNED, FeedStatements

if TYPE_CHECKING:
    from .connection import Connection

PRUNE_EVERY: Final = 1000
"""Changes after which a process looks for some to prune, at most."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that waits for its transaction to commit; without a row: the feed itself is dropped,
    and what was to be recorded before.
    """

    collection: str
    feed: FeedStatements
    row: dict[str, Any] | None


def record(connection: Connection, changes: Iterable[Pending]) -> set[str]:
    """Write changes down; returns of which collections. Their order keeps deadlocks away."""
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
        if feed.count(len(some)) >= min(PRUNE_EVERY, 1 + feed.feed.limit // 10):
            prune(connection, feed)
    return {some[-1].collection for some in feeds.values()}


def prune(connection: Connection, feed: FeedStatements) -> bool:
    """Delete the changes that are too many or too old; tells whether there were any."""
    feed.counted = 0
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
