"""The verbs by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .. import codec
from ..document import Document
from ..schema import now

if TYPE_CHECKING:
    from .connection import Connection, Row


@dataclass(frozen=True, slots=True)
class Get:
    """Read a body."""

    collection: str
    id: str
    default: Any = None
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Any:
        rows = connection.rows(connection.collection(self.collection).get, {"id": self.id})
        return codec.decode(rows[0][0]) if rows else self.default

    def nothing(self) -> Any:
        return self.default


@dataclass(frozen=True, slots=True)
class GetDocument:
    """Read an object with what the store knows of it."""

    collection: str
    id: str
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Document | None:
        rows = connection.rows(connection.collection(self.collection).document, {"id": self.id})
        return as_document(rows[0]) if rows else None

    def nothing(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Exists:
    """Tell whether there is such an object."""

    collection: str
    id: str
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> bool:
        return bool(connection.rows(connection.collection(self.collection).exists, {"id": self.id}))

    def nothing(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Put:
    """Write a body, new or in the place of another; gives the version."""

    collection: str
    id: str
    text: str = field(repr=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> int:
        statement = connection.collection(self.collection).put
        parameters = {"id": self.id, "body": self.text, "now": now()}
        [(version,)] = connection.rows(statement, parameters)
        return int(version)

    def written(self) -> Mapping[str, str]:
        return {self.id: self.text}


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete an object; tells whether it was there."""

    collection: str
    id: str
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> bool:
        statement = connection.collection(self.collection).remove
        return connection.changed(statement, {"id": self.id}) > 0

    def nothing(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class GetMany:
    """Read bodies: those that are there, in the order asked."""

    collection: str
    ids: tuple[str, ...]
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> dict[str, Any]:
        statement = connection.collection(self.collection).get_many
        listed = connection.database.list_parameter(self.ids)
        texts = dict(connection.rows(statement, {"ids": listed}))
        return {id: codec.decode(texts[id]) for id in self.ids if id in texts}

    def nothing(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class PutMany:
    """Write bodies, all or none; gives how many."""

    collection: str
    texts: Mapping[str, str] = field(repr=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> int:
        if not self.texts:
            return 0
        time = now()
        rows = ({"id": id, "body": text, "now": time} for id, text in self.texts.items())
        statement = connection.collection(self.collection).put_silently
        connection.each(statement, rows)
        return len(self.texts)

    def written(self) -> Mapping[str, str]:
        return self.texts


@dataclass(frozen=True, slots=True)
class RemoveMany:
    """Delete objects, all or none; gives how many were there."""

    collection: str
    ids: Sequence[str]
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> int:
        statement = connection.collection(self.collection).remove_many
        return connection.changed(statement, {"ids": connection.database.list_parameter(self.ids)})

    def nothing(self) -> int:
        return 0


def as_document(row: Row) -> Document:
    """Return the object of a row: id, body, version, and three times."""
    id, body, version, created, updated, expires = row
    return Document(id, codec.decode(body), version, created, updated, expires)
