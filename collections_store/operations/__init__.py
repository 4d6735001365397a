"""What can be done on a connection; the only room that executes.

An operation is a frozen dataclass that is called with a connection and returns a result. It builds
its statements, executes them and decodes the rows; it knows no thread, no store and no asyncio, and
can be called again after a conflict. `WRITES`: does it change anything? `SINGLE`: is it one
statement, atomic by itself? `nothing()`: what does a read answer where the collection never came
into being?
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from .aggregation import Aggregate, check_memory
from .catalogue import (
    Catalogue,
    CollectionAbsent,
    CreateCollection,
    Drop,
    FindTable,
    ListCollections,
    Rename,
)
from .connection import Connection, DriverConnection, SharedConnection, add_functions
from .documents import Exists, Get, GetDocument, GetMany, Put, PutMany, Remove, RemoveMany
from .queries import Count, Find, Page, Reading, ReadPage, check_window
from .revisions import CreateStore, ReadRevision, create_or_find

T_co = TypeVar("T_co", covariant=True)


class Operation(Protocol[T_co]):
    """A thing to do on a connection."""

    @property
    def WRITES(self) -> bool:  # noqa: N802
        """Does it change anything?"""

    @property
    def SINGLE(self) -> bool:  # noqa: N802
        """Is it one statement, atomic by itself?"""

    def __call__(self, connection: Connection) -> T_co:
        """Do it."""


def perform(operation: Operation[T_co], connection: Connection) -> T_co:
    """Do it, all or nothing."""
    if operation.SINGLE:
        return operation(connection)
    with connection.transaction(write=operation.WRITES):
        return operation(connection)


def collections_of(operation: Any) -> tuple[str | None, ...]:
    """Return the collections that an operation is about."""
    found: tuple[str | None, ...] = getattr(operation, "collections", ())
    return found or (getattr(operation, "collection", None),)


__all__ = [
    "Aggregate",
    "Catalogue",
    "CollectionAbsent",
    "Connection",
    "Count",
    "CreateCollection",
    "CreateStore",
    "DriverConnection",
    "Drop",
    "Exists",
    "Find",
    "FindTable",
    "Get",
    "GetDocument",
    "GetMany",
    "ListCollections",
    "Operation",
    "Page",
    "Put",
    "PutMany",
    "ReadPage",
    "ReadRevision",
    "Reading",
    "Remove",
    "RemoveMany",
    "Rename",
    "SharedConnection",
    "add_functions",
    "check_memory",
    "check_window",
    "collections_of",
    "create_or_find",
    "perform",
]
