"""Recorded changes of a collection: recording with a transaction, reading, pruning.

The rules:

1. Changes wait in `Recorder.pending` until the transaction commits, or until they are many. A rollback to a savepoint
   restores what was pending there, also what was recorded since. Within a caller's own transaction, whose end is not seen
   here, the changes of an operation are recorded when it ends.
2. A writer that records holds the lock on the collection's entry in the catalogue until the commit is done. So the positions of
   changes come in the order of commits, and one read sees all changes before the last one it sees. Several entries are
   locked in the order of their names, against deadlocks.
3. Surplus changes are deleted after the commit, in a transaction of its own: two transactions that delete the same would be
   in conflict, which does not concern the user. If that fails, the next write does it, or `Prune`.
4. A row stands for what was pruned: a read that meets it has lost changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from ..codec import Codec, decode
from ..document import Document, moment, now
from ..errors import (
    ChangesLost,
    DatabaseError,
    InvalidBody,
    InvalidOption,
    InvalidToken,
    shortened,
)
from ..expressions.classes import value_class
from ..query.change import Change, ChangeFilter, ChangePosition, read_token
from ..results import Invalid
from ..sql.by_id import PRUNED, FeedStatements
from .operation import Operation

if TYPE_CHECKING:
    from .connection import Connection, Row


OLDEST: Final = "oldest"


@value_class
class Changes:
    """Some changes in their order, and the position of the last one. `more`: there may be others at once. `characters` of
    JSON were read for them.
    """

    changes: tuple[Change, ...]
    position: ChangePosition
    more: bool = False
    characters: int = 0


@value_class
class FindPosition(Operation[ChangePosition]):
    """Return the position of a token, that before the "oldest" change, or, for None, that of the last one; check that the
    feed records what is wanted.
    """

    collection: str
    after: str | None
    wanted: ChangeFilter

    def __call__(self, connection: Connection) -> ChangePosition:
        feed = connection.collection(self.collection).feed
        if feed is None:
            return self.absent()
        self.wanted.check(feed.feed.bodies)
        if self.after is None:
            return _last(connection, feed)
        oldest = _oldest(connection, feed)
        if self.after == OLDEST:
            return oldest
        position, ours = read_token(self.after, self.collection)
        if position.key != oldest.key and not ours:
            raise InvalidToken("it is of another collection")
        if position.key != oldest.key or position.number < oldest.number:
            raise ChangesLost(self.collection, self.after, oldest.to_token(self.collection))
        if position.number > _last(connection, feed).number:
            raise InvalidToken("it is of a later state of the database: was a backup restored?")
        return position

    def absent(self) -> ChangePosition:
        raise InvalidOption(
            "changes", f"collection {self.collection} records none: open it with changes=True"
        )


@value_class
class ReadChanges(Operation[Changes]):
    """Read up to `limit` changes after a position, and return those that are wanted."""

    collection: str
    position: ChangePosition
    limit: int
    wanted: ChangeFilter
    codec: Codec = field(repr=False)
    atomic = True

    def __call__(self, connection: Connection) -> Changes:
        feed = connection.collection(self.collection).feed
        if feed is None:
            return self.absent()
        if feed.feed.key != self.position.key:
            raise self._lost(_oldest(connection, feed))
        rows = connection.rows(feed.after, {"seq": self.position.number, "limit": self.limit})
        if rows and rows[0][1] == PRUNED:
            raise self._lost(self._position(rows[0]))
        return self._read(rows, ordered=connection.database.ordered_keys)

    def absent(self) -> Changes:
        raise self._lost(None)

    def _read(self, rows: Sequence[Row], *, ordered: bool) -> Changes:
        """Return the changes before the first one that lacks the bodies which the filter needs. If that is the first of all,
        the changes up to the last such one are lost.
        """
        changes = self._readable(rows)
        undecided = [n for n, each in enumerate(changes) if self.wanted.is_open(each)]
        decided = undecided[0] if undecided else len(changes)
        if rows and not decided:
            raise self._lost(self._position(rows[undecided[-1]]))
        wanted = [
            self._returned(each, row)
            for each, row in zip(changes[:decided], rows, strict=False)
            if self.wanted.matches(each, ordered=ordered)
        ]
        position = self._position(rows[decided - 1]) if rows else self.position
        more = len(rows) == self.limit or decided < len(rows)
        characters = sum(len(text or "") for row in rows for text in row[5:])
        return Changes(tuple(wanted), position, more, characters)

    def _readable(self, rows: Sequence[Row]) -> list[Change]:
        """Return the changes before the first damaged record; raises `DatabaseError` if that is the first of all."""
        changes: list[Change] = []
        for row in rows:
            try:
                changes.append(self._change(row))
            except ValueError as error:
                if changes:
                    break
                token = self._position(row).to_token(self.collection)
                raise DatabaseError(
                    f"collection {self.collection}: the recorded change of document {shortened(row[2])} is damaged, "
                    f"it is not JSON: {error}: read the document, and watch with after={token!r}"
                ) from error
        return changes

    def _change(self, row: Row) -> Change:
        _, kind, id, version, time, before, after = row
        return Change(
            kind,
            id,
            version,
            moment(time),
            body=self._current(id, after),
            before=self._current(id, before),
            has_body=after is not None,
            has_before=before is not None,
            token=self._position(row).to_token(self.collection),
        )

    def _current(self, id: str, text: str | None) -> Any:
        """Return a recorded body as plain JSON for the filter: in the declared schema version, if it can be upgraded."""
        if text is None:
            return None
        body = decode(text)
        try:
            return self.codec.current(Document(id, body))
        except InvalidBody:
            return body

    def _returned(self, change: Change, row: Row) -> Change:
        """Return a change, whose bodies are plain JSON, with those of the codec."""
        if self.codec.is_plain:
            return change
        body, before = self._body(change.body, row[6]), self._body(change.before, row[5])
        return replace(change, body=body, before=before)

    def _body(self, plain: Any, text: str | None) -> Any:
        """Return a recorded body. One that its codec refuses is `Invalid`: an error would end the stream there."""
        try:
            return None if text is None else self.codec.decode_body(text)
        except InvalidBody as error:
            return Invalid(plain, error.path, error.problem)

    def _position(self, row: Row) -> ChangePosition:
        return ChangePosition(self.position.key, row[0])

    def _lost(self, oldest: ChangePosition | None) -> ChangesLost:
        token = self.position.to_token(self.collection)
        first = None if oldest is None else oldest.to_token(self.collection)
        return ChangesLost(self.collection, token, first)


@value_class
class LastChange(Operation[ChangePosition | None]):
    """Return the position of the last change; None: none are recorded."""

    collection: str
    atomic = True

    def __call__(self, connection: Connection) -> ChangePosition | None:
        feed = connection.collection(self.collection).feed
        return None if feed is None else _last(connection, feed)


def _last(connection: Connection, feed: FeedStatements) -> ChangePosition:
    [(last,)] = connection.rows(feed.last)
    return ChangePosition(feed.feed.key, last or 0)


def _oldest(connection: Connection, feed: FeedStatements) -> ChangePosition:
    """Return the position before all changes that are left."""
    pruned = [seq for seq, kind in connection.rows(feed.first) if kind == PRUNED]
    return ChangePosition(feed.feed.key, pruned[0] if pruned else 0)


PRUNE_EVERY: Final = 1000
"""Recorded changes after which a process looks for surplus ones, at most."""
MAX_PENDING: Final = 10_000
"""Pending changes, at most."""
MAX_CHARACTERS: Final = 4 * 2**20
"""Characters of JSON of pending changes, about."""


@value_class
class PendingChange:
    """A change that waits for its transaction to commit. Without a row: the feed is dropped, with what was pending for
    it.
    """

    collection: str
    feed: FeedStatements
    row: dict[str, Any] | None

    @property
    def characters(self) -> int:
        """The size of its bodies."""
        row = self.row or {}
        return len(row.get("before") or "") + len(row.get("after") or "")


class Savepoint:
    """A savepoint of a transaction: the connection's `handle` of it, and the changes that were pending. After a rollback
    to it they are pending again, even if they were recorded since: that was undone.
    """

    __slots__ = ("handle", "length", "pending")

    handle: Any
    length: int
    pending: list[PendingChange]

    def __init__(self, handle: Any, pending: list[PendingChange]) -> None:
        self.handle, self.pending, self.length = handle, pending, len(pending)


class Recorder:
    """What a connection's transaction is to record, and in which feeds it did."""

    __slots__ = ("_characters", "pending", "recorded")

    def __init__(self) -> None:
        self.pending: list[PendingChange] = []
        """Replaced, not emptied, when it is recorded: a `Savepoint` may have it."""
        self._characters = 0
        self.recorded: dict[str, FeedStatements] = {}
        """The feeds, by collection, in which something was recorded since the last commit."""

    def add(self, connection: Connection, change: PendingChange) -> None:
        """Record a change with the transaction."""
        self.pending.append(change)
        self._characters += change.characters
        if len(self.pending) >= MAX_PENDING or self._characters >= MAX_CHARACTERS:
            self.record(connection)

    def record(self, connection: Connection) -> None:
        """Write the pending changes into their feeds."""
        changes, self.pending, self._characters = self.pending, [], 0
        if changes:
            self.recorded.update(record(connection, changes))

    def rollback_to(self, savepoint: Savepoint) -> None:
        """Restore what was pending at a savepoint: that list has only grown."""
        self.pending = savepoint.pending
        del self.pending[savepoint.length :]
        self._characters = sum(each.characters for each in self.pending)

    def clear(self) -> None:
        """Record nothing: the transaction was rolled back."""
        self.pending, self._characters, self.recorded = [], 0, {}


def record(connection: Connection, changes: Iterable[PendingChange]) -> dict[str, FeedStatements]:
    """Write changes into their feeds; returns the feeds by collection. Locks in the order of names, see rule 2."""
    feeds: dict[str, list[PendingChange]] = {}
    for each in changes:
        if each.row is None:
            feeds.pop(each.feed.feed.physical, None)
        else:
            feeds.setdefault(each.feed.feed.physical, []).append(each)
    recorded: dict[str, FeedStatements] = {}
    for some in sorted(feeds.values(), key=lambda some: some[-1].collection):
        collection, feed = some[-1].collection, some[-1].feed
        connection.rows(connection.store.hold, {"name": collection})
        connection.changed_many(feed.append, [each.row for each in some if each.row is not None])
        feed.counted += len(some)
        recorded[collection] = feed
    return recorded


def prunable(feeds: Iterable[FeedStatements]) -> list[FeedStatements]:
    """Return the feeds in which so much was recorded that there may be surplus changes."""
    return [each for each in feeds if each.counted >= min(PRUNE_EVERY, 1 + each.feed.limit // 10)]


def prune(connection: Connection, feed: FeedStatements) -> bool:
    """Delete the changes that are too many or too old; returns whether there were any.

    One process does at a time, and another that finds it at work leaves it alone. Each statement must see what was
    committed before it.
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
    """Return the position of the last change that is surplus or too old; 0: there are none."""
    first = connection.rows(feed.first)
    many = connection.rows(feed.over_limit, {"kept": feed.feed.limit})
    last: int = many[0][0] if many else 0
    if feed.feed.age is not None:
        [(older,)] = connection.rows(feed.older_than, {"since": now() - feed.feed.age})
        last = max(last, older or 0)
    pruned = max((seq for seq, kind in first if kind == PRUNED), default=0)
    return last if last > pruned else 0


@value_class
class Prune(Operation[bool]):
    """Delete the recorded changes that are too many or too old; returns whether there were any."""

    collection: str
    writes = True
    snapshot = False
    empty = bool

    def __call__(self, connection: Connection) -> bool:
        feed = connection.collection(self.collection).feed
        return feed is not None and prune(connection, feed)


@value_class
class HasPrunable(Operation[bool]):
    """Return whether there are recorded changes to delete, without writing."""

    collection: str
    empty = bool

    def __call__(self, connection: Connection) -> bool:
        feed = connection.collection(self.collection).feed
        return feed is not None and last_surplus(connection, feed) > 0
