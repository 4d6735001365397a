"""What is done on a connection: the only package that executes statements.

An operation is a value that is called with a connection and returns a result. It builds its statements, executes them
and decodes the rows. It must not know a thread, an event loop or a store, and can be called again after a conflict.
`WRITES`: whether it changes anything. `SINGLE`: whether it is one statement, atomic by itself. `nothing()`: what a read
returns where the collection does not exist. Begin with `by_id`, then `find` and `write`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from .connection import Connection
from .indexes import CreateIndex, FindDuplicate

T_co = TypeVar("T_co", covariant=True)


class Operation(Protocol[T_co]):
    """A thing to do on a connection."""

    @property
    def WRITES(self) -> bool:
        """Does it change anything?"""

    @property
    def SINGLE(self) -> bool:
        """Is it one statement, atomic by itself?"""

    def __call__(self, connection: Connection) -> T_co:
        """Do it."""


def perform(operation: Operation[T_co], connection: Connection) -> T_co:
    """Do it, all or nothing."""
    if operation.SINGLE:
        return operation(connection)
    snapshot = getattr(operation, "SNAPSHOT", True)
    with connection.transaction(write=operation.WRITES, snapshot=snapshot):
        return operation(connection)


def collections_of(operation: Any) -> tuple[str | None, ...]:
    """Return the collections that an operation is about."""
    found: tuple[str | None, ...] = getattr(operation, "collections", ())
    return found or (getattr(operation, "collection", None),)


def needs_nothing(operation: Any) -> bool:
    """Has the operation an answer where the collection never came into being? Else it must be made."""
    return hasattr(operation, "nothing")


def rival_of(operation: Any) -> Operation[Any] | None:
    """Return the operation that finds what an upsert would have found, had it not been too early."""
    found: Operation[Any] | None = getattr(operation, "rival", lambda: None)()
    return found


def duplicate_of(operation: Any, physical: str) -> FindDuplicate:
    """Return the operation that tells what the unique index `physical` objected to."""
    if isinstance(operation, CreateIndex):
        return FindDuplicate(operation.collection, physical, operation.index)
    written = getattr(operation, "written", lambda _: ())
    return FindDuplicate(operation.collection, physical, written=written)
