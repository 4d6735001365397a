"""Operations on documents by id, and by lists of ids."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .. import codec
from ..codec import BodySkipped, Decode
from ..document import FOREVER, Document, new_document, now
from ..errors import (
    DatabaseError,
    DocumentNotFound,
    DuplicateKey,
    InvalidBody,
    VersionConflict,
    shortened,
)
from ..expressions.classes import value_class
from .connection import Row
from .operation import Operation, Written
from .session import Session
from .write import Beside, Writer

T = TypeVar("T")
_UNLIMITED: Final = codec.Codec(2**40)
"""For stored bodies, written by a codec with any limit."""
LOG: Final = logging.getLogger("collections_store")


class AtomicWrite(Operation[T]):
    """Base class of writes that are a single statement, or begin a transaction of their own."""

    __slots__ = ()
    writes = True
    atomic = True


class BodyWrite(AtomicWrite[int]):
    """Base class of the operations that write a body, and return the version."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        text: str

    def written(self, _: Session) -> Written:
        return ((self.id, self.text),)


@value_class
class Get(Operation[Any]):
    """Read a body."""

    collection: str
    id: str
    default: Any = None
    decode: Decode = field(default=codec.decode, repr=False)
    atomic = True

    def __call__(self, session: Session) -> Any:
        rows = session.rows(session.collection(self.collection).by_id.get, {"id": self.id})
        if not rows or (rows[0][1] is not None and has_expired(rows[0][1])):
            return self.default
        try:
            return self.decode(rows[0][0])
        except ValueError as error:
            raise_unless_skipped(self.collection, self.id, error)
            return self.default

    def absent(self) -> Any:
        return self.default


@value_class
class GetDocument(Operation[Document | None]):
    """Read a document."""

    collection: str
    id: str
    decode: Decode = field(default=codec.decode, repr=False)
    method = "document"
    atomic = True

    def __call__(self, session: Session) -> Document | None:
        sql = session.collection(self.collection).by_id.document
        rows = session.rows(sql, {"id": self.id})
        if not rows or has_expired(rows[0][5]):
            return None
        try:
            return as_document(rows[0], self.collection, self.decode)
        except BodySkipped:
            return None


@value_class
class DocumentExists(Operation[bool]):
    """Return whether a document exists."""

    collection: str
    id: str
    method = "exists"
    atomic = True
    empty = bool

    def __call__(self, session: Session) -> bool:
        sql = session.collection(self.collection).by_id.exists
        return any(not has_expired(row[0]) for row in session.rows(sql, {"id": self.id}))


@value_class
class GetMany(Operation[dict[str, Any]]):
    """Read the existing bodies under a list of ids, in the order of the ids."""

    collection: str
    ids: tuple[str, ...]
    decode: Decode = field(default=codec.decode, repr=False)
    atomic = True
    empty = dict

    def __call__(self, session: Session) -> dict[str, Any]:
        statement = session.collection(self.collection).by_id.get_many
        listed = session.database.compiler.list_parameter(self.ids)
        texts = dict(session.rows(statement, {"ids": listed, "now": now()}))
        found = {}
        for id in self.ids:
            if id in texts:
                try:
                    found[id] = body_of(self.collection, id, texts[id], self.decode)
                except BodySkipped:
                    continue
        return found


@value_class
class LockMany(Operation[set[str]]):
    """Lock documents until the transaction ends, and return the ids of the existing documents."""

    collection: str
    ids: tuple[str, ...]
    writes = True
    empty = set

    def __call__(self, session: Session) -> set[str]:
        statements = session.collection(self.collection).by_id
        return {row[0] for row in session.lock(statements, statements.ids, self.ids)}


@value_class
class Put(BodyWrite):
    """Write a body, new or in place of another; returns the version."""

    collection: str
    id: str
    text: str = field(repr=False)
    ttl: int | None = None
    creates_collection = True

    def __call__(self, session: Session) -> int:
        statements = session.collection(self.collection)
        if statements.feed is None:  # usual: one statement, without a Writer
            version = session.put(statements, self.id, self.text, self.ttl)
            if version is not None:
                return version
        writer = Writer(session, self.collection)
        return writer.atomically(lambda: writer.put(self.id, self.text, self.ttl))


@value_class
class Insert(BodyWrite):
    """Insert a body under a free id, and only if the document `beside` exists. Raises `VersionConflict`; if `unique`,
    `DuplicateKey` for a taken id, and `DocumentNotFound` without the document `beside`.
    """

    collection: str
    id: str
    text: str = field(repr=False)
    ttl: int | None = None
    unique: bool = False
    beside: Beside | None = None

    @property
    def method(self) -> str:  # type: ignore[override]
        """A unique insert is of `insert_one`, any other of `put`."""
        return "insert_one" if self.unique else "put"

    @property
    def creates_collection(self) -> bool:  # type: ignore[override]
        """False for an insert beside a document of the same collection."""
        return self.beside is None or self.beside[0] != self.collection

    @property
    def collections(self) -> tuple[str, ...]:
        """The collection, and the collection of the document `beside`."""
        return (self.collection,) if self.beside is None else (self.collection, self.beside[0])

    def __call__(self, session: Session) -> int:
        writer = Writer(session, self.collection)
        if writer.atomically(lambda: writer.insert(self.id, self.text, self.ttl, self.beside)):
            return 1
        if self.unique:
            if self.beside is not None and not DocumentExists(*self.beside)(session):
                raise DocumentNotFound(*self.beside)
            raise id_taken(self.collection, self.id)
        raise version_conflict(session, self.collection, self.id, None)

    def absent(self) -> int:
        raise DocumentNotFound(self.collection, self.beside[1] if self.beside else self.id)


@value_class
class Replace(BodyWrite):
    """Write a body in place of a version; raises `VersionConflict`."""

    collection: str
    id: str
    text: str = field(repr=False)
    expected: int
    ttl: int | None = None
    method = "put"

    def __call__(self, session: Session) -> int:
        writer = Writer(session, self.collection)
        version = writer.atomically(
            lambda: writer.replace(self.id, self.text, self.ttl, self.expected)
        )
        if version is None:
            raise version_conflict(session, self.collection, self.id, self.expected)
        return version

    def absent(self) -> int:
        raise VersionConflict(self.collection, self.id, self.expected, None)


@value_class
class Rewrite(BodyWrite):
    """Change the body of a document in the state that was read, not the expiry; raises `VersionConflict`."""

    collection: str
    document: Document
    text: str = field(repr=False)
    method = "change"

    @property
    def id(self) -> str:  # type: ignore[override]
        """The document's id."""
        return self.document.id

    def __call__(self, session: Session) -> int:
        writer = Writer(session, self.collection)
        if writer.atomically(lambda: writer.rewrite(self.document, self.text)):
            return self.document.version + 1
        raise version_conflict(session, self.collection, self.id, self.document.version)

    def absent(self) -> int:
        raise VersionConflict(self.collection, self.id, self.document.version, None)


@value_class
class RemoveById(AtomicWrite[bool]):
    """Delete a document; returns whether it existed. Raises `VersionConflict` for a version other than `expected`."""

    collection: str
    id: str
    expected: int | None = None
    method = "remove"

    def __call__(self, session: Session) -> bool:
        writer, expected = Writer(session, self.collection), self.expected
        if expected is None:
            return writer.atomically(lambda: writer.remove(self.id))
        if writer.atomically(lambda: writer.remove_version(self.id, expected)):
            return True
        raise version_conflict(session, self.collection, self.id, expected)

    def absent(self) -> bool:
        if self.expected is not None:
            raise VersionConflict(self.collection, self.id, self.expected, None)
        return False


@value_class
class RemoveMany(AtomicWrite[int]):
    """Delete documents, all or none; returns how many existed."""

    collection: str
    ids: Sequence[str]
    empty = int

    def __call__(self, session: Session) -> int:
        writer = Writer(session, self.collection)
        return writer.atomically(lambda: writer.remove_many(self.ids))


@value_class
class Touch(AtomicWrite[bool]):
    """Restart a document's time to live, or set a new time to live; returns whether the document exists. `slides`: the
    time to live of a session's document becomes as long as the session's, but never longer than the document's own.
    """

    collection: str
    id: str
    ttl: int | None = None
    slides: bool = False
    empty = bool

    def __call__(self, session: Session) -> bool:
        sql = session.collection(self.collection).by_id
        parameters = {"id": self.id, "now": now()}
        if self.ttl == FOREVER:
            return session.changed(sql.persist, parameters) > 0
        statement = sql.slide if self.slides else sql.touch
        return session.changed(statement, {**parameters, "ttl": self.ttl}) > 0


@value_class
class TouchMany(AtomicWrite[int]):
    """Set the time to live of documents, `FOREVER` too; returns how many exist."""

    collection: str
    ids: tuple[str, ...]
    ttl: int
    empty = int

    def __call__(self, session: Session) -> int:
        ids = session.database.compiler.list_parameter(self.ids)
        sql = session.collection(self.collection).by_id.touch_many
        return session.changed(sql, {"ids": ids, "now": now(), "ttl": self.ttl or None})


@value_class
class Purge(AtomicWrite[int]):
    """Delete a batch of expired documents; returns how many, 0 at the end."""

    collection: str
    method = "purge_expired"
    empty = int

    def __call__(self, session: Session) -> int:
        writer = Writer(session, self.collection)
        return writer.atomically(writer.purge_some)


def has_expired(expires: int | None) -> bool:
    """Return whether a document with this expiry has expired; None never expires."""
    return expires is not None and expires <= now()


def body_of(collection: str, id: str, text: str, decode: Decode) -> Any:
    """Return a body from its text; raises the errors of `raise_unless_skipped`, and `BodySkipped`."""
    try:
        return decode(text)
    except ValueError as error:
        raise_unless_skipped(collection, id, error)
        raise


def written_body(collection: str, id: str, body: Any, decode: Decode) -> Any:
    """Decode a plain JSON body for a caller who changes the document; raise `InvalidBody`, also for a body that reads
    leave out.
    """
    try:
        return decode(_UNLIMITED.encode(body))
    except BodySkipped as error:
        raise InvalidBody(error.path, error.problem, collection, id) from None
    except InvalidBody as error:
        raise error.of(collection, id) from error.__cause__


def raise_unless_skipped(collection: str, id: str, error: ValueError) -> None:
    """Raise the error of a body that cannot be decoded, with the name of the document: `InvalidBody` from the codec,
    `DatabaseError` for damaged JSON. Log a `BodySkipped` instead.
    """
    if isinstance(error, BodySkipped):
        LOG.warning("left out: %s", error.of(collection, id))
        return
    if isinstance(error, InvalidBody):
        raise error.of(collection, id) from error.__cause__
    problem = f"the body of document {shortened(id)} is damaged, it is not JSON: {error}"
    raise DatabaseError(problem) from error


def as_document(row: Row, collection: str, decode: Decode = codec.decode) -> Document:
    """Return the document of a row: id, body, version, and three times."""
    id, text, version, created, updated, expires = row
    body = body_of(collection, id, text, decode)
    return new_document(id, body, version, created, updated, expires)


def id_taken(collection: str, id: str) -> DuplicateKey:
    """Return the error of a document that cannot be inserted."""
    return DuplicateKey(collection, "$id", {"$id": id}, id)


def version_conflict(
    session: Session, collection: str, id: str, expected: int | None
) -> VersionConflict:
    """Return the error that names the expected and the stored version."""
    found = GetDocument(collection, id)(session)
    return VersionConflict(collection, id, expected, None if found is None else found.version)
