"""Writing documents by id, for every operation that writes, and recording the changes.

The rules:

1. Changes wait in `Recorder.pending` until the transaction commits, or until they are many. A rollback to a savepoint
   restores what was pending there, also what was recorded since. Within a caller's own transaction, whose end is not seen
   here, the changes of an operation are recorded when it ends.
2. Whoever records holds the lock on the collection's entry in the catalogue until the commit is done. So the positions of
   changes come in the order of commits, and whoever sees one sees all before it. Several entries are locked in the order of
   their names, against deadlocks.
3. Surplus changes are deleted after the commit, in a transaction of its own: two transactions that delete the same would be
   in conflict, which does not concern the user. If that fails, the next write does it, or `Prune`.

A `Writer` increments versions, purges expired documents that are in the way, and records what was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ..codec import Codec
from ..document import Document
from ..errors import CollectionsStoreError, TransactionConflict
from ..query.values import value_class
from ..sql.change_records import PRUNED, FeedStatements
from ..sql.schema import now
from ..sql.select import Statements

if TYPE_CHECKING:
    from .connection import Connection


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

    __slots__ = ("_length", "_pending", "handle")

    def __init__(self, handle: Any, pending: list[PendingChange]) -> None:
        self.handle, self._pending, self._length = handle, pending, len(pending)

    def pending(self) -> list[PendingChange]:
        """Return the list as it was: it has only grown."""
        del self._pending[self._length :]
        return self._pending


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

    def savepoint(self, handle: Any) -> Savepoint:
        """Return a savepoint that holds what is pending."""
        return Savepoint(handle, self.pending)

    def rollback_to(self, savepoint: Savepoint) -> None:
        """Restore what was pending at a savepoint."""
        self.pending = savepoint.pending()
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


T = TypeVar("T")
Rewritten: TypeAlias = tuple[Document, str]
"""A document, and the text of its new body."""
Beside: TypeAlias = tuple[str, str]
"""Another collection, and an id there."""
PURGE_BATCH: Final = 1000
REWRITE_CHARACTERS: Final = 2**20
"""Characters of JSON that are written at once, about, as long as no single body is larger."""
MAX_ATTEMPTS: Final = 100
"""Attempts of a write that others interfere with, between its reading and its writing."""
_UNLIMITED: Final = Codec(2**40)


class NeedsTransaction(CollectionsStoreError):
    """The operation cannot join a group: it must see one moment."""


class Writer:
    """Writes documents of one collection."""

    def __init__(self, connection: Connection, collection: str) -> None:
        self._connection, self._collection = connection, collection
        self.statements: Statements = connection.collection(collection)
        self._sql, self._feed = self.statements.by_id, self.statements.feed
        bodies = None if self._feed is None else self._feed.feed.bodies
        self._keeps_after, self.keeps_before = bodies in {"after", "both"}, bodies == "both"

    @property
    def may_overwrite_blindly(self) -> bool:
        """Whether no change is recorded, and no other writer inserts at the same time."""
        return self._feed is None and self._connection.database.single_writer

    def atomically(self, work: Callable[[], T], *, always: bool = False) -> T:
        """Do work that writes by one statement: in a transaction if changes are recorded with it, or `always`."""
        if self._feed is None and not always:
            return work()
        if self._connection.grouped and not self._connection.database.single_writer:
            raise NeedsTransaction(f"collection {self._collection}: the write takes a transaction")
        with self._connection.transaction(write=True):
            return work()

    def put(self, id: str, text: str, ttl: int | None) -> int:
        """Write a body, new or in place of another; returns the version."""
        for _ in range(MAX_ATTEMPTS):
            before = self._before(id)
            # with bodies before: an upsert would overwrite what was inserted since, unrecorded
            sql = self._sql.insert if self.keeps_before and before is None else self._sql.put
            rows = self._connection.rows(sql, self._row(id, text, ttl))
            if rows:
                version = int(rows[0][0])
                self.record("insert" if version == 1 else "update", id, version, before, text)
                return version
            self.purge([id])
        raise _expires_repeatedly(id)

    def insert(self, id: str, text: str, ttl: int | None, beside: Beside | None = None) -> bool:
        """Write a body where there is none, and only if the document `beside` exists."""
        sql, row = self._sql.insert, self._row(id, text, ttl)
        if beside is not None:
            sql = self._sql.insert_if_exists(self._connection.collection(beside[0]).table)
            row["other"] = beside[1]
        for _ in range(MAX_ATTEMPTS):
            if self._connection.rows(sql, row):
                self.record("insert", id, 1, None, text)
                return True
            if not self.purge([id]):
                return False
            row = {**row, **self._row(id, text, ttl)}
        raise _expires_repeatedly(id)

    def replace(self, id: str, text: str, ttl: int | None, expected: int) -> int | None:
        """Write a body in place of a version; returns the new version, None if there is another one or none."""
        before = self._before(id)
        row = {**self._row(id, text, ttl), "expected": expected}
        rows = self._connection.rows(self._sql.replace, row)
        if not rows:
            return None
        self.record("update", id, int(rows[0][0]), before, text)
        return int(rows[0][0])

    def rewrite(self, document: Document, text: str) -> bool:
        """Change the body of a document; returns False if it was changed since it was read."""
        row = {"body": text, "now": now(), **_identity(document)}
        if not self._connection.changed(self._sql.rewrite, row):
            return False
        if self._feed is not None:
            self._record_rewritten(document, text)
        return True

    def rewrite_batch(self, changed: Iterable[Rewritten]) -> int:
        """Change the bodies of documents that are locked, in their order; returns how many. Raises `TransactionConflict`
        if one was changed all the same.
        """
        count = 0
        for some in _portions(changed):
            rows = [{"body": text, **_identity(document)} for document, text in some]
            sql = self._sql.rewrite_batch
            if self._connection.changed_many(sql, rows, {"now": now()}) != len(rows):
                raise TransactionConflict("others changed some of the documents at the same time")
            for document, text in some:
                self._record_rewritten(document, text)
            count += len(some)
        return count

    def _record_rewritten(self, document: Document, text: str) -> None:
        before = _UNLIMITED.encode(document.body) if self.keeps_before else None
        self.record("update", document.id, document.version + 1, before, text)

    def remove(self, id: str) -> bool:
        """Delete a document; returns whether it existed."""
        parameters = {"id": id, "now": now()}
        if self._feed is None:
            return self._connection.changed(self._sql.remove, parameters) > 0
        return self._removed(self._sql.remove_returning, parameters)

    def remove_version(self, id: str, expected: int) -> bool:
        """Delete a document if it has a version."""
        parameters = {"id": id, "now": now(), "expected": expected}
        return self._removed(self._sql.remove_version, parameters)

    def remove_document(self, document: Document) -> bool:
        """Delete a document, unless it was changed since it was read."""
        return self._removed(self._sql.remove_document, {"now": now(), **_identity(document)})

    def _removed(self, sql: str, parameters: dict[str, Any]) -> bool:
        return self.removed(self._connection.rows(sql, parameters)) > 0

    def remove_many(self, ids: Sequence[str]) -> int:
        """Delete documents; returns how many existed."""
        parameters = {"ids": self._connection.database.compiler.list_parameter(ids), "now": now()}
        if self._feed is None:
            return self._connection.changed(self._sql.remove_many, parameters)
        rows = self._connection.rows(self._sql.remove_many_returning, parameters)
        position = {id: number for number, id in enumerate(ids)}
        return self.removed(sorted(rows, key=lambda row: position[row[0]]))

    def removed(self, rows: Iterable[Any], kind: str = "remove") -> int:
        """Record deletions, by rows of id, version and body; returns how many."""
        count = 0
        for count, (id, version, before) in enumerate(rows, 1):  # noqa: B007
            self.record(kind, id, version, before, None)
        return count

    def purge(self, ids: Sequence[str], time: int | None = None) -> int:
        """Delete those documents that have expired, by now or by a `time`; returns how many."""
        listed = self._connection.database.compiler.list_parameter(ids)
        rows = self._connection.rows(self._sql.purge, {"ids": listed, "now": time or now()})
        return self.removed(rows, "expire")

    def purge_some(self) -> int:
        """Delete up to `PURGE_BATCH` documents that have expired; returns how many."""
        parameters = {"limit": PURGE_BATCH, "now": now()}
        return self.removed(self._connection.rows(self._sql.purge_some, parameters), "expire")

    def record(
        self, kind: str, id: str, version: int, before: str | None, after: str | None
    ) -> None:
        """Record a change with the transaction, if the collection's changes are recorded."""
        if self._feed is None:
            return
        row = {
            "kind": kind,
            "id": id,
            "version": version,
            "time": now(),
            "before": before if self.keeps_before else None,
            "after": after if self._keeps_after else None,
        }
        self._connection.record(PendingChange(self._collection, self._feed, row))

    def _row(self, id: str, text: str, ttl: int | None) -> dict[str, Any]:
        return {"id": id, "body": text, **lifetime(ttl, self.statements.options.ttl)}

    def _before(self, id: str) -> str | None:
        """Return the body that is recorded as the one before, and lock the document."""
        if not self.keeps_before:
            return None
        rows = self._connection.rows(self._sql.lock, {"id": id, "now": now()})
        return rows[0][1] if rows else None


def lifetime(ttl: int | None, default: int | None) -> dict[str, Any]:
    """Return the parameters of a statement that writes a document: now, its time to live, and when that ends. `ttl`: None
    stands for the collection's `default`; 0 and no default for no end.
    """
    time, ttl = now(), (default if ttl is None else ttl) or None
    return {"now": time, "expires": None if ttl is None else time + ttl, "ttl": ttl}


def _expires_repeatedly(id: str) -> TransactionConflict:
    return TransactionConflict(f"{id!r} expired in each of {MAX_ATTEMPTS} attempts to write it")


def _portions(changed: Iterable[Rewritten]) -> Iterator[list[Rewritten]]:
    """Yield documents with the texts of their new bodies, about `REWRITE_CHARACTERS` of these at a time."""
    some: list[Rewritten] = []
    characters = 0
    for each in changed:
        some.append(each)
        characters += len(each[1])
        if characters >= REWRITE_CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _identity(document: Document) -> dict[str, Any]:
    """Return the parameters of a statement for a document as it was read: one that was put under its id since is another,
    even if it has the same version.
    """
    return {"id": document.id, "expected": document.version, "created": document.created_us}
