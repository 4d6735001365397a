"""The verbs by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from .. import codec
from ..document import FOREVER, Document, chosen, expiry, is_gone, made
from ..errors import DatabaseError, DuplicateKey, InvalidOption, VersionConflict, shortened
from ..query.values import value_class
from ..sql.schema import now
from .operation import Operation, Written
from .write import Beside, Writer

if TYPE_CHECKING:
    from .connection import Connection, Row


@value_class
class Get(Operation[Any]):
    """Read a body."""

    collection: str
    id: str
    default: Any = None
    atomic = True

    def __call__(self, connection: Connection) -> Any:
        rows = connection.rows(connection.collection(self.collection).by_id.get, {"id": self.id})
        if not rows or ((expires := rows[0][1]) is not None and is_gone(expires, now())):
            return self.default
        return body_of(self.id, rows[0][0])

    def absent(self) -> Any:
        return self.default


@value_class
class GetDocument(Operation[Document | None]):
    """Read an object with what the store knows of it."""

    collection: str
    id: str
    atomic = True

    def __call__(self, connection: Connection) -> Document | None:
        sql = connection.collection(self.collection).by_id.document
        rows = connection.rows(sql, {"id": self.id})
        return as_document(rows[0]) if rows and not is_gone(rows[0][5], now()) else None


@value_class
class DocumentExists(Operation[bool]):
    """Return whether there is such an object."""

    collection: str
    id: str
    atomic = True
    empty = bool

    def __call__(self, connection: Connection) -> bool:
        sql = connection.collection(self.collection).by_id.exists
        return any(not is_gone(row[0], now()) for row in connection.rows(sql, {"id": self.id}))


@value_class
class Put(Operation[int]):
    """Write a body, new or in the place of another; gives the version."""

    collection: str
    id: str
    text: str = field(repr=False)
    ttl: int | None = None
    writes = True
    atomic = True
    creates_collection = True

    def __call__(self, connection: Connection) -> int:
        statements = connection.collection(self.collection)
        if statements.feed is None:
            time, ttl = now(), chosen(self.ttl, statements.options.ttl)
            life = {"now": time, "expires": expiry(time, ttl), "ttl": ttl}
            rows = connection.rows(statements.by_id.put, {"id": self.id, "body": self.text, **life})
            if rows:
                return int(rows[0][0])
        writer = Writer(connection, self.collection)
        return writer.atomically(lambda: writer.put(self.id, self.text, self.ttl))

    def written(self, _: Connection) -> Written:
        return {self.id: self.text}.items()


@value_class
class Insert(Operation[int]):
    """Write a body where there is none; raises `VersionConflict` where there is one, or, where that
    is about `unique` ids, `DuplicateKey`.
    """

    collection: str
    id: str
    text: str = field(repr=False)
    ttl: int | None = None
    unique: bool = False
    writes = True
    atomic = True
    creates_collection = True

    def __call__(self, connection: Connection) -> int:
        writer = Writer(connection, self.collection)
        if writer.atomically(lambda: writer.insert(self.id, self.text, self.ttl)):
            return 1
        if self.unique:
            raise id_taken(self.collection, self.id)
        raise VersionConflict(
            self.collection, self.id, None, _version(connection, self.collection, self.id)
        )

    def written(self, _: Connection) -> Written:
        return {self.id: self.text}.items()


@value_class
class InsertBeside(Operation[int]):
    """Write a body where there is none, if there is an object `beside` it in another collection; raises
    `VersionConflict` for either.
    """

    collection: str
    id: str
    text: str = field(repr=False)
    beside: Beside
    writes = True
    atomic = True

    @property
    def collections(self) -> tuple[str, ...]:
        """Both."""
        return self.collection, self.beside[0]

    creates_collection = True

    def __call__(self, connection: Connection) -> int:
        writer = Writer(connection, self.collection)
        if writer.atomically(lambda: writer.insert(self.id, self.text, None, self.beside)):
            return 1
        raise VersionConflict(
            self.collection, self.id, None, _version(connection, self.collection, self.id)
        )

    def written(self, _: Connection) -> Written:
        return {self.id: self.text}.items()


@value_class
class Replace(Operation[int]):
    """Write a body in the place of a version; raises `VersionConflict`."""

    collection: str
    id: str
    text: str = field(repr=False)
    expected: int
    ttl: int | None = None
    writes = True
    atomic = True

    def __call__(self, connection: Connection) -> int:
        writer = Writer(connection, self.collection)
        version = writer.atomically(
            lambda: writer.replace(self.id, self.text, self.ttl, self.expected)
        )
        if version is None:
            found = _version(connection, self.collection, self.id)
            raise VersionConflict(self.collection, self.id, self.expected, found)
        return version

    def absent(self) -> int:
        raise VersionConflict(self.collection, self.id, self.expected, None)

    def written(self, _: Connection) -> Written:
        return {self.id: self.text}.items()


@value_class
class Rewrite(Operation[int]):
    """Change the body of an object that was read, which lives on; raises `VersionConflict`."""

    collection: str
    document: Document
    text: str = field(repr=False)
    writes = True
    atomic = True

    def __call__(self, connection: Connection) -> int:
        writer = Writer(connection, self.collection)
        if writer.atomically(lambda: writer.rewrite(self.document, self.text)):
            return self.document.version + 1
        raise self._conflict(_version(connection, self.collection, self.document.id))

    def absent(self) -> int:
        raise self._conflict(None)

    def written(self, _: Connection) -> Written:
        return {self.document.id: self.text}.items()

    def _conflict(self, found: int | None) -> VersionConflict:
        return VersionConflict(self.collection, self.document.id, self.document.version, found)


@value_class
class RemoveById(Operation[bool]):
    """Delete an object; returns whether it was there. Raises `VersionConflict` if it is not the version
    that is expected.
    """

    collection: str
    id: str
    expected: int | None = None
    writes = True
    atomic = True

    def __call__(self, connection: Connection) -> bool:
        writer, expected = Writer(connection, self.collection), self.expected
        if expected is None:
            return writer.atomically(lambda: writer.remove(self.id))
        if writer.atomically(lambda: writer.remove_version(self.id, expected)):
            return True
        raise VersionConflict(
            self.collection, self.id, expected, _version(connection, self.collection, self.id)
        )

    def absent(self) -> bool:
        if self.expected is not None:
            raise VersionConflict(self.collection, self.id, self.expected, None)
        return False


@value_class
class Touch(Operation[bool]):
    """Have an object live from now on, for a time to live or as long as it did; returns whether it is
    there.
    """

    collection: str
    id: str
    ttl: int | None = None
    writes = True
    atomic = True
    empty = bool

    def __call__(self, connection: Connection) -> bool:
        sql = connection.collection(self.collection).by_id
        parameters = {"id": self.id, "now": now()}
        if self.ttl == FOREVER:
            return connection.changed(sql.keep, parameters) > 0
        return connection.changed(sql.touch, {**parameters, "ttl": self.ttl}) > 0


@value_class
class TouchMany(Operation[int]):
    """Have objects live from now on for a time to live, `FOREVER` too; gives how many there are."""

    collection: str
    ids: tuple[str, ...]
    ttl: int
    writes = True
    atomic = True
    empty = int

    def __call__(self, connection: Connection) -> int:
        ids = connection.database.list_parameter(self.ids)
        sql = connection.collection(self.collection).by_id.touch_many
        return connection.changed(sql, {"ids": ids, "now": now(), "ttl": self.ttl or None})


@value_class
class Slide(Operation[bool]):
    """Have an object of a session live from now on for the session's time to live, but no longer than its own."""

    collection: str
    id: str
    ttl: int
    writes = True
    atomic = True
    empty = bool

    def __call__(self, connection: Connection) -> bool:
        sql = connection.collection(self.collection).by_id
        return connection.changed(sql.slide, {"id": self.id, "now": now(), "ttl": self.ttl}) > 0


@value_class
class HoldMany(Operation[set[str]]):
    """Give the ids of those objects that are there, which nobody else changes until the transaction ends."""

    collection: str
    ids: tuple[str, ...]
    writes = True
    empty = set

    def __call__(self, connection: Connection) -> set[str]:
        listed = connection.database.list_parameter(self.ids)
        sql = connection.collection(self.collection).by_id.versions
        return {row[0] for row in connection.rows(sql, {"ids": listed, "now": now()})}


@value_class
class GetMany(Operation[dict[str, Any]]):
    """Read bodies: those that are there, in the order asked."""

    collection: str
    ids: tuple[str, ...]
    atomic = True
    empty = dict

    def __call__(self, connection: Connection) -> dict[str, Any]:
        statement = connection.collection(self.collection).by_id.get_many
        listed = connection.database.list_parameter(self.ids)
        texts = dict(connection.rows(statement, {"ids": listed, "now": now()}))
        return {id: body_of(id, texts[id]) for id in self.ids if id in texts}


@value_class
class RemoveMany(Operation[int]):
    """Delete objects, all or none; gives how many were there."""

    collection: str
    ids: Sequence[str]
    writes = True
    atomic = True
    empty = int

    def __call__(self, connection: Connection) -> int:
        writer = Writer(connection, self.collection)
        return writer.atomically(lambda: writer.remove_many(self.ids))


@value_class
class Purge(Operation[int]):
    """Delete some of the objects that have expired; gives how many, 0 when there are no more."""

    collection: str
    writes = True
    atomic = True
    empty = int

    def __call__(self, connection: Connection) -> int:
        writer = Writer(connection, self.collection)
        return writer.atomically(writer.purge_some)


def body_of(id: str, text: str) -> Any:
    """Return a body from its text; raises `DatabaseError`, which names the document, where it is damaged."""
    try:
        return codec.decode(text)
    except ValueError as error:
        raise damaged(id, error) from error


def damaged(id: str, error: ValueError) -> DatabaseError:
    """Return the error of a body that is not JSON."""
    return DatabaseError(
        f"the body of document {shortened(id)} is damaged, it is not JSON: {error}"
    )


def as_document(row: Row) -> Document:
    """Return the object of a row: id, body, version, and three times."""
    id, body, version, created, updated, expires = row
    return made(id, body_of(id, body), version, created, updated, expires)


def id_taken(collection: str, id: str) -> DuplicateKey:
    """Return the error of an object that cannot be inserted."""
    return DuplicateKey(collection, "$id", {"$id": id}, id)


def _version(connection: Connection, collection: str, id: str) -> int | None:
    """Return the version that is there."""
    found = GetDocument(collection, id)(connection)
    return None if found is None else found.version


def check_version(version: Any) -> int | None:
    """Return a version if it can be one; raises `InvalidOption`."""
    if version is None:
        return None
    if isinstance(version, int) and version is not True and 0 < version < 2**63:
        return version
    raise InvalidOption("if_version", f"{shortened(version)} is no version: they count from 1")
