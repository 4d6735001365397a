"""Writing documents by id, the one way for every method that writes, and recording the changes.

The rules:

1. Changes wait in `Recorder.pending` until the transaction commits, or until they are many; what a savepoint takes
   back, it takes from there too, and puts back there what was recorded since. Within a caller's own transaction, whose
   end nobody here sees, those of an operation are recorded when it ends.
2. Who records holds the collection's entry in the catalogue until its commit is done. So the places
   of changes come in the order of commits, and whoever sees one sees all before it.
3. What is too many is deleted after the commit, in a transaction of its own: two that delete the same would
   be in conflict, which is none of the user's. If that fails, the next one does it, or `Prune`.

A `Writer` counts versions up, purges what has expired where it is in the way, and notes what was
changed if the collection records that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from .. import codec
from ..document import Document
from ..errors import CollectionsStoreError, TransactionConflict
from ..query.values import value_class
from ..sql.change_records import PRUNED, FeedStatements
from ..sql.schema import now
from ..sql.select import Statements

if TYPE_CHECKING:
    from .connection import Connection


PRUNE_EVERY: Final = 1000
"""Changes after which a process looks for some to prune, at most."""
MAX_PENDING: Final = 10_000
"""Changes that wait, at most."""
MAX_CHARACTERS: Final = 4 * 2**20
"""Characters of JSON that wait, about."""


@value_class
class PendingChange:
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
    """Write changes down; returns in which feeds. The order of these keeps deadlocks away."""
    feeds: dict[str, list[PendingChange]] = {}
    for each in changes:
        if each.row is None:
            feeds.pop(each.feed.feed.physical, None)
        else:
            feeds.setdefault(each.feed.feed.physical, []).append(each)
    some: list[PendingChange]
    for some in sorted(feeds.values(), key=lambda some: some[-1].collection):
        collection, feed = some[-1].collection, some[-1].feed
        connection.rows(connection.store.hold, {"name": collection})
        connection.changed_many(feed.append, [each.row for each in some if each.row is not None])
        feed.counted += len(some)
    return {some[-1].collection: some[-1].feed for some in feeds.values()}


def prunable(feeds: Iterable[FeedStatements]) -> list[FeedStatements]:
    """Return the feeds in which so much was recorded that some may be too many."""
    return [each for each in feeds if each.counted >= min(PRUNE_EVERY, 1 + each.feed.limit // 10)]


def prune(connection: Connection, feed: FeedStatements) -> bool:
    """Delete the changes that are too many or too old; returns whether there were any.

    One does at a time, and whoever finds another at it leaves it to that one. Each statement must see what was
    committed before it.
    """
    feed.counted = 0
    if not connection.rows(feed.lock_first):
        return False
    upto = beyond(connection, feed)
    if upto:
        connection.changed(feed.delete, {"seq": upto})
        connection.changed(feed.mark_pruned, {"seq": upto})
    return upto > 0


def beyond(connection: Connection, feed: FeedStatements) -> int:
    """Return the place up to which changes are too many or too old; 0: there are none."""
    first = connection.rows(feed.first)
    many = connection.rows(feed.over_limit, {"kept": feed.feed.limit})
    upto: int = many[0][0] if many else 0
    if feed.feed.age is not None:
        [(older,)] = connection.rows(feed.older_than, {"since": now() - feed.feed.age})
        upto = max(upto, older or 0)
    pruned = max((seq for seq, kind in first if kind == PRUNED), default=0)
    return upto if upto > pruned else 0


T = TypeVar("T")
Rewritten: TypeAlias = tuple[Document, str]
"""An object, and the text of its new body."""
Beside: TypeAlias = tuple[str, str]
"""Another collection, and an id there."""
PURGED_AT_ONCE: Final = 1000
WRITTEN_AT_ONCE: Final = 2**20
"""Characters of JSON, about, as long as no single body is larger."""
MAX_ATTEMPTS: Final = 100
"""How often what expired may be put again by others, between our looking and our writing."""


class NeedsTransaction(CollectionsStoreError):
    """The operation cannot join a group: it must see one moment."""


class Writer:
    """Writes objects of one collection."""

    def __init__(self, connection: Connection, collection: str) -> None:
        self._connection, self._collection = connection, collection
        self.statements: Statements = connection.collection(collection)
        self._sql, self._feed = self.statements.by_id, self.statements.feed
        bodies = None if self._feed is None else self._feed.feed.bodies
        self._keeps_after, self.keeps_before = bodies in {"after", "both"}, bodies == "both"

    @property
    def knows_what_is_new(self) -> bool:
        """Nobody else puts anything there meanwhile, and nobody wants to be told of each object."""
        return self._feed is None and self._connection.database.single_writer

    def atomically(self, work: Callable[[], T], *, always: bool = False) -> T:
        """Do work that writes by one statement: in a transaction where changes are recorded with it, or
        `always`.
        """
        if self._feed is None and not always:
            return work()
        if self._connection.grouped and not self._connection.database.single_writer:
            raise NeedsTransaction(f"collection {self._collection}: this is more than a statement")
        with self._connection.transaction(write=True):
            return work()

    def put(self, id: str, text: str, ttl: int | None) -> int:
        """Write a body, new or in the place of another; gives the version."""
        for _ in range(MAX_ATTEMPTS):
            before = self._before(id)
            fresh = self.keeps_before and before is None
            sql = self._sql.insert if fresh else self._sql.put  # what came meanwhile has a before
            rows = self._connection.rows(sql, self.parameters(id, text, ttl))
            if rows:
                version = int(rows[0][0])
                self.note("insert" if version == 1 else "update", id, version, before, text)
                return version
            self.purge([id])
        raise TransactionConflict(f"{id!r} expires again and again")

    def insert(self, id: str, text: str, ttl: int | None, beside: Beside | None = None) -> bool:
        """Write a body where there is none, and where something else is `beside`."""
        sql, more = self._sql.insert, dict[str, Any]()
        if beside is not None:
            table = self._connection.collection(beside[0]).table
            sql, more = self._sql.insert_if_exists(table), {"other": beside[1]}
        for _ in range(MAX_ATTEMPTS):
            if self._connection.rows(sql, {**self.parameters(id, text, ttl), **more}):
                self.note("insert", id, 1, None, text)
                return True
            if not self.purge([id]):
                return False
        raise TransactionConflict(f"{id!r} expires again and again")

    def replace(self, id: str, text: str, ttl: int | None, expected: int) -> int | None:
        """Write a body in the place of a version; gives the new one, None: that is not there."""
        before = self._before(id)
        parameters = {**self.parameters(id, text, ttl), "expected": expected}
        rows = self._connection.rows(self._sql.replace, parameters)
        if not rows:
            return None
        self.note("update", id, int(rows[0][0]), before, text)
        return int(rows[0][0])

    def rewrite(self, document: Document, text: str) -> bool:
        """Change the body of an object, unless another was faster since it was read."""
        parameters = {"body": text, "now": now(), **_same(document)}
        if not self._connection.changed(self._sql.rewrite, parameters):
            return False
        self._note_rewritten(document, text)
        return True

    def rewrite_batch(self, changed: Iterable[Rewritten]) -> int:
        """Change the bodies of objects that nobody else changes, in their order; gives how many. Raises
        `TransactionConflict` if one is gone.
        """
        count = 0
        for some in portions(changed):
            rows = [{"body": text, **_same(document)} for document, text in some]
            if self._connection.changed_many(self._sql.rewrite_batch, rows, {"now": now()}) != len(
                rows
            ):
                raise TransactionConflict("some of the objects were changed meanwhile")
            for document, text in some:
                self._note_rewritten(document, text)
            count += len(some)
        return count

    def _note_rewritten(self, document: Document, text: str) -> None:
        before = codec.Codec(2**40).encode(document.body) if self.keeps_before else None
        self.note("update", document.id, document.version + 1, before, text)

    def remove(self, id: str) -> bool:
        """Delete an object; returns whether it was there."""
        parameters = {"id": id, "now": now()}
        if self._feed is None:
            return self._connection.changed(self._sql.remove, parameters) > 0
        return self.removed(self._connection.rows(self._sql.remove_returning, parameters)) > 0

    def remove_version(self, id: str, expected: int) -> bool:
        """Delete an object if it has a version."""
        parameters = {"id": id, "now": now(), "expected": expected}
        return self.removed(self._connection.rows(self._sql.remove_version, parameters)) > 0

    def remove_document(self, document: Document) -> bool:
        """Delete an object, unless another was faster since it was read."""
        return (
            self.removed(
                self._connection.rows(self._sql.remove_document, {"now": now(), **_same(document)})
            )
            > 0
        )

    def remove_many(self, ids: Sequence[str]) -> int:
        """Delete objects; gives how many were there."""
        parameters = {"ids": self._connection.database.compiler.list_parameter(ids), "now": now()}
        if self._feed is None:
            return self._connection.changed(self._sql.remove_many, parameters)
        rows = self._connection.rows(self._sql.remove_many_returning, parameters)
        place = {id: number for number, id in enumerate(ids)}
        return self.removed(sorted(rows, key=lambda row: place[row[0]]))

    def removed(self, rows: Iterable[Any], kind: str = "remove") -> int:
        """Note that objects were deleted, by their ids, versions and bodies; gives how many."""
        count = 0
        for count, (id, version, before) in enumerate(rows, 1):  # noqa: B007
            self.note(kind, id, version, before, None)
        return count

    def purge(self, ids: Sequence[str], time: int | None = None) -> int:
        """Delete those of some objects that have expired, by now or by a `time`; gives how many."""
        listed = self._connection.database.compiler.list_parameter(ids)
        rows = self._connection.rows(self._sql.purge, {"ids": listed, "now": time or now()})
        return self.removed(rows, "expire")

    def purge_some(self) -> int:
        """Delete up to `PURGED_AT_ONCE` objects that have expired; gives how many."""
        parameters = {"limit": PURGED_AT_ONCE, "now": now()}
        return self.removed(self._connection.rows(self._sql.purge_some, parameters), "expire")

    def parameters(self, id: str, text: str, ttl: int | None) -> dict[str, Any]:
        """Return what a statement takes that writes a whole object."""
        return {"id": id, "body": text, **lifetime(ttl, self.statements.options.ttl)}

    def note(self, kind: str, id: str, version: int, before: str | None, after: str | None) -> None:
        """Have a change recorded with the transaction, if the collection's are."""
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

    def _before(self, id: str) -> str | None:
        """Return the body that is there, and have nobody change it."""
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


def portions(changed: Iterable[Rewritten]) -> Iterator[list[Rewritten]]:
    """Yield objects and the texts of their new bodies, about `WRITTEN_AT_ONCE` of these at a time."""
    some: list[Rewritten] = []
    characters = 0
    for each in changed:
        some.append(each)
        characters += len(each[1])
        if characters >= WRITTEN_AT_ONCE:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _same(document: Document) -> dict[str, Any]:
    """Return what a statement takes that is for an object as it was read: one that was put under its id
    since is another, even if it has the same version.
    """
    return {"id": document.id, "expected": document.version, "created": document.created_us}
