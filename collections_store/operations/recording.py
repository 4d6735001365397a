"""Recording what was changed, in the transaction that changes it.

The rules:

1. Changes wait in `Connection.pending` until the transaction commits; what a savepoint takes back, it
   takes from there too. Within a caller's own transaction, whose end nobody here sees, they are
   recorded at once.
2. Who records holds the collection's entry in the catalogue until its commit is done. So the places
   of changes come in the order of commits, and whoever sees one sees all before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..schema import now
from ..statements import FeedStatements

if TYPE_CHECKING:
    from .connection import Connection

PRUNE_EVERY: Final = 1000
"""Changes after which a process looks for some to prune, at most."""


@dataclass(slots=True)
class Pending:
    """A change that waits for its transaction to commit."""

    collection: str
    feed: FeedStatements
    row: dict[str, Any]


def record(connection: Connection, changes: Iterable[Pending]) -> None:
    """Write changes down; the order of the collections keeps deadlocks away."""
    feeds: dict[str, list[Pending]] = {}
    for each in changes:
        feeds.setdefault(each.collection, []).append(each)
    for collection, some in sorted(feeds.items()):
        connection.rows(connection.store.hold, {"name": collection})
        feed = some[-1].feed
        connection.each(feed.append, [each.row for each in some])
        if feed.count(len(some)) >= min(PRUNE_EVERY, 1 + feed.feed.limit // 10):
            prune(connection, feed)


def prune(connection: Connection, feed: FeedStatements) -> int:
    """Delete the changes that are too many or too old; gives how many, about."""
    feed.counted = 0
    beyond = connection.rows(feed.beyond, {"kept": feed.feed.limit})
    upto = beyond[0][0] if beyond else 0
    if feed.feed.age is not None:
        [(older,)] = connection.rows(feed.older, {"since": now() - feed.feed.age})
        upto = max(upto, older or 0)
    if not upto:
        return 0
    gone = connection.changed(feed.forget, {"seq": upto})
    return gone + connection.changed(feed.mark, {"seq": upto})
