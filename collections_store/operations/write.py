"""Writing documents by id, for every write operation.

A `Writer` increments versions, purges expired documents that are in the way, and records the changes (see `changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from ..codec import Codec
from ..document import Document, now
from ..errors import CollectionsStoreError, TransactionConflict
from ..sql.select import Statements
from .recorder import PendingChange
from .session import Session

T = TypeVar("T")
Lifetime: TypeAlias = tuple[int, int | None, int | None]
Rewritten: TypeAlias = tuple[Document, str]
"""A document, and the text of the new body."""
Beside: TypeAlias = tuple[str, str]
"""A collection, and an id in the collection."""
PURGE_BATCH: Final = 1000
REWRITE_CHARACTERS: Final = 2**20
"""Characters of JSON that are written at once, about, as long as no single body is larger."""
MAX_ATTEMPTS: Final = 100
"""Attempts of a write with concurrent writes between the read and the write."""
_UNLIMITED: Final = Codec(2**40)


class NeedsTransaction(CollectionsStoreError):
    """The operation cannot join a group: all statements must see the same moment."""


class Writer:
    """Writes documents of one collection."""

    keeps_before: bool

    def __init__(self, session: Session, collection: str) -> None:
        self._connection, self._collection = session, collection
        self.statements: Statements = session.collection(collection)
        self._sql, self._feed = self.statements.by_id, self.statements.feed
        bodies = None if self._feed is None else self._feed.feed.bodies
        self._keeps_after, self.keeps_before = bodies in {"after", "both"}, bodies == "both"

    @property
    def may_overwrite_blindly(self) -> bool:
        """Whether no change is recorded, and no other writer inserts at the same time."""
        return self._feed is None and self._connection.database.single_writer

    @property
    def may_put_lists(self) -> bool:
        """Whether a single statement can write many documents: no feed, and no unique index checks each in turn."""
        database = self._connection.database
        is_one_table = database.takes_lists and not database.is_remote
        return is_one_table and self._feed is None and not self.statements.can_refuse

    def atomically(self, work: Callable[[], T], *, always: bool = False) -> T:
        """Do work that writes by a single statement: in a transaction if changes are recorded, or `always`."""
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
            if self.keeps_before and before is None:
                version = self._inserted(id, text, ttl, None) or None
            else:
                version = self._connection.put(self.statements, id, text, ttl)
            if version is not None:
                self.record("insert" if version == 1 else "update", id, version, before, text)
                return version
            self.purge([id])
        raise _expires_repeatedly(id)

    def insert(self, id: str, text: str, ttl: int | None, beside: Beside | None = None) -> bool:
        """Insert a body under a free id, and only if the document `beside` exists."""
        if beside is not None and self._connection.database.is_remote:
            return self._insert_beside(id, text, ttl, *beside)
        for _ in range(MAX_ATTEMPTS):
            if self._inserted(id, text, ttl, beside):
                self.record("insert", id, 1, None, text)
                return True
            if not self.purge([id]):
                return False
        raise _expires_repeatedly(id)

    def _inserted(self, id: str, text: str, ttl: int | None, beside: Beside | None) -> int:
        if beside is None:
            time, _, ttl = lifetime(ttl, self.statements.options.ttl)
            row = self._connection.database.compiler.row(id, self._sql.text(text), time, ttl)
            return self._connection.changed(self._sql.insert, row)
        sql = self._sql.insert_if_exists(self._connection.collection(beside[0]).table)
        return self._connection.changed(sql, {**self._named(id, text, ttl), "other": beside[1]})

    def _insert_beside(
        self, id: str, text: str, ttl: int | None, collection: str, other: str
    ) -> bool:
        """Lock the document `other` first: Citus has no INSERT with a SELECT that locks or reads another server."""
        share = self._connection.collection(collection).by_id.share
        with self._connection.transaction(write=True):
            is_there = bool(self._connection.rows(share, {"id": other, "now": now()}))
            return is_there and self.insert(id, text, ttl)

    def replace(self, id: str, text: str, ttl: int | None, expected: int) -> int | None:
        """Write a body in place of a version; returns the new version, None if the stored version differs or is
        missing.
        """
        before = self._before(id)
        row = {**self._named(id, text, ttl), "expected": expected}
        rows = self._connection.rows(self._sql.replace, row)
        if not rows:
            return None
        self.record("update", id, int(rows[0][0]), before, text)
        return int(rows[0][0])

    def rewrite(self, document: Document, text: str) -> bool:
        """Change the body of a document; returns False if the document was changed since the read."""
        row = {"body": self._sql.text(text), "now": now(), **_identity(document)}
        if not self._connection.changed(self._sql.rewrite, row):
            return False
        if self._feed is not None:
            self._record_rewritten(document, text)
        return True

    def rewrite_batch(self, changed: Iterable[Rewritten]) -> int:
        """Change the bodies of locked documents, in their order; returns how many. Raises `TransactionConflict` if a
        document was changed all the same.
        """
        count = 0
        for some in _portions(changed):
            text_of, sql = self._sql.text, self._sql.rewrite_batch
            rows = [{"body": text_of(text), **_identity(document)} for document, text in some]
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
        """Delete a document; returns whether the document existed."""
        return self._delete(self._sql.remove, {"id": id, "now": now()}) > 0

    def remove_version(self, id: str, expected: int) -> bool:
        """Delete a document in the version `expected`."""
        parameters = {"id": id, "now": now(), "expected": expected}
        return self._delete(self._sql.remove_version, parameters) > 0

    def remove_document(self, document: Document) -> bool:
        """Delete a document, unless the document was changed since the read."""
        return self._delete(self._sql.remove_document, {"now": now(), **_identity(document)}) > 0

    def remove_many(self, ids: Sequence[str]) -> int:
        """Delete documents; returns how many existed."""
        parameters = {"ids": self._connection.database.compiler.list_parameter(ids), "now": now()}
        return self._delete(self._sql.remove_many, parameters, ids=ids)

    def expire_many(self, ids: Sequence[str]) -> int:
        """Delete documents as expired; returns how many existed."""
        parameters = {"ids": self._connection.database.compiler.list_parameter(ids), "now": now()}
        return self._delete(self._sql.remove_many, parameters, "expire", ids) if ids else 0

    def _delete(
        self, sql: str, parameters: dict[str, Any], kind: str = "remove", ids: Sequence[str] = ()
    ) -> int:
        """Delete rows, and record the deletions, in the order of `ids`; returns how many."""
        if self._feed is None:
            return self._connection.changed(sql, parameters)
        position = {id: number for number, id in enumerate(ids)}
        rows = self._connection.rows(sql, parameters)
        return self.removed(sorted(rows, key=lambda row: position.get(row[0], 0)), kind)

    def removed(self, rows: Iterable[Any], kind: str = "remove") -> int:
        """Record deletions, by rows of id, version and body; returns how many."""
        count = 0
        for count, (id, version, before) in enumerate(rows, 1):  # noqa: B007
            self.record(kind, id, version, before, None)
        return count

    def purge(self, ids: Sequence[str], time: int | None = None) -> int:
        """Delete the documents under `ids` that have expired, by now or by a `time`; returns how many."""
        listed = self._connection.database.compiler.list_parameter(ids)
        return self._delete(self._sql.purge, {"ids": listed, "now": time or now()}, "expire", ids)

    def purge_some(self) -> int:
        """Delete up to `PURGE_BATCH` expired documents; returns how many."""
        parameters = {"limit": PURGE_BATCH, "now": now()}
        if not self.statements.database.takes_subqueries:
            ids = [id for (id,) in self._connection.rows(self._sql.expired, parameters)]
            return self.purge(ids) if ids else 0
        return self._delete(self._sql.purge_some, parameters, "expire")

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

    def _named(self, id: str, text: str, ttl: int | None) -> dict[str, Any]:
        life = lifetime(ttl, self.statements.options.ttl)
        return {"id": id, "body": self._sql.text(text), **named(life)}

    def _before(self, id: str) -> str | None:
        """Return the body to record as the old body, and lock the document."""
        if not self.keeps_before:
            return None
        rows = self._connection.rows(self._sql.lock, {"id": id, "now": now()})
        return rows[0][1] if rows else None


def lifetime(ttl: int | None, default: int | None) -> Lifetime:
    """Return the time parameters of a statement that writes a document: now, the expiry, and the time to live. `ttl`:
    None is the collection's `default`. The document never expires if `ttl` is 0, or None without a default.
    """
    time, ttl = now(), (default if ttl is None else ttl) or None
    return time, None if ttl is None else time + ttl, ttl


def named(life: Lifetime) -> dict[str, int | None]:
    """Return the parameters of `lifetime` by name."""
    return {"now": life[0], "expires": life[1], "ttl": life[2]}


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
    """Return the parameters of a statement for a document as read. A later document under the same id is different,
    even with the same version.
    """
    return {"id": document.id, "expected": document.version, "created": document.created_us}
