"""Writing objects by their ids: the one way for every verb that writes.

A `Writer` counts versions up, purges what has expired where it is in the way, and notes what was
changed if the collection records that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from .. import codec
from ..document import Document
from ..errors import CollectionsStoreError, TransactionConflict
from ..expiry import chosen, expiry
from ..schema import now
from ..statements import Statements
from .recording import Pending

if TYPE_CHECKING:
    from .connection import Connection

T = TypeVar("T")
Rewritten: TypeAlias = tuple[Document, str]
"""An object, and the text of its new body."""
Written: TypeAlias = Iterable[tuple[str, str]]
"""Ids, and the texts of the bodies that were to be written under them."""
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
        return self._feed is None and self._connection.database.SINGLE_WRITER

    def atomically(self, work: Callable[[], T], *, always: bool = False) -> T:
        """Do work that writes by one statement: in a transaction where changes are recorded with it, or
        `always`.
        """
        if self._feed is None and not always:
            return work()
        if self._connection.grouped and not self._connection.database.SINGLE_WRITER:
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
            sql, more = self._sql.insert_beside(table), {"beside": beside[1]}
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

    def rewrite_all(self, changed: Iterable[Rewritten]) -> int:
        """Change the bodies of objects that nobody else changes, in their order; gives how many. Raises
        `TransactionConflict` if one is gone.
        """
        count = 0
        for some in portions(changed):
            rows = [{"body": text, **_same(document)} for document, text in some]
            if self._connection.each(self._sql.rewrite_all, rows, {"now": now()}) != len(rows):
                raise TransactionConflict("some of the objects were changed meanwhile")
            for document, text in some:
                self._note_rewritten(document, text)
            count += len(some)
        return count

    def _note_rewritten(self, document: Document, text: str) -> None:
        before = codec.Codec(2**40).encode(document.body) if self.keeps_before else None
        self.note("update", document.id, document.version + 1, before, text)

    def remove(self, id: str) -> bool:
        """Delete an object; tells whether it was there."""
        parameters = {"id": id, "now": now()}
        if self._feed is None:
            return self._connection.changed(self._sql.remove, parameters) > 0
        return self.removed(self._connection.rows(self._sql.remove_told, parameters)) > 0

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
        parameters = {"ids": self._connection.database.list_parameter(ids), "now": now()}
        if self._feed is None:
            return self._connection.changed(self._sql.remove_many, parameters)
        rows = self._connection.rows(self._sql.remove_many_told, parameters)
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
        listed = self._connection.database.list_parameter(ids)
        rows = self._connection.rows(self._sql.purge, {"ids": listed, "now": time or now()})
        return self.removed(rows, "expire")

    def purge_some(self) -> int:
        """Delete up to `PURGED_AT_ONCE` objects that have expired; gives how many."""
        parameters = {"limit": PURGED_AT_ONCE, "now": now()}
        return self.removed(self._connection.rows(self._sql.purge_some, parameters), "expire")

    def parameters(self, id: str, text: str, ttl: int | None) -> dict[str, Any]:
        """Return what a statement takes that writes a whole object."""
        return {"id": id, "body": text, **self.life(ttl)}

    def life(self, ttl: int | None) -> dict[str, Any]:
        """Return what a statement takes of the time: now, and when an object expires."""
        time, ttl = now(), chosen(ttl, self.statements.options.ttl)
        return {"now": time, "expires": expiry(time, ttl), "ttl": ttl}

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
        self._connection.record(Pending(self._collection, self._feed, row))

    def _before(self, id: str) -> str | None:
        """Return the body that is there, and have nobody change it."""
        if not self.keeps_before:
            return None
        rows = self._connection.rows(self._sql.hold, {"id": id, "now": now()})
        return rows[0][1] if rows else None


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
