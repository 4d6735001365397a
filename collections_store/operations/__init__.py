"""What can be done on a connection; the only room that executes.

An operation is a value that is called with a connection and returns a result. It builds
its statements, executes them and decodes the rows; it knows no thread, no store and no asyncio, and
can be called again after a conflict. `WRITES`: does it change anything? `SINGLE`: is it one
statement, atomic by itself? `nothing()`: what does a read answer where the collection never came
into being?
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from .batches import Given, Mode, PutBatch, PutListed, batches, puts_together
from .bulk import BulkBatch
from .catalogue import (
    AS_IT_IS,
    Catalogue,
    CollectionAbsent,
    Configure,
    CreateCollection,
    Drop,
    FindTable,
    ListCollections,
    NewCollection,
    Rename,
)
from .changes import OLDEST, Changes, FindPlace, LastChange, ReadChanges
from .connection import Connection, DriverConnection, SharedConnection, add_functions
from .documents import (
    Exists,
    Get,
    GetDocument,
    GetMany,
    HoldMany,
    Insert,
    InsertBeside,
    Purge,
    Put,
    Remove,
    RemoveMany,
    Replace,
    Rewrite,
    Touch,
    check_version,
)
from .explaining import Explain
from .foreign import HoldStill, ReadForeign
from .increments import Increment, read_increment
from .indexing import CreateIndex, DropIndex, FindDuplicate, ListIndexes
from .purging import HasPrunable, ListPurgeable, Prune
from .queries import (
    Count,
    DeleteMany,
    DeleteOne,
    Distinct,
    Find,
    FindIds,
    FindPage,
    check_page,
    check_window,
    read_doomed,
    read_projection,
)
from .reading import Batch, ReadBatch, Reading
from .revisions import CreateStore, ReadRevision, create_or_find
from .together import Steps, Together, Work, follow
from .updating import Answer, FindAndDelete, Modification, ModifyMany, ModifyOne, Replacement
from .writing import NeedsTransaction

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


__all__ = [
    "AS_IT_IS",
    "OLDEST",
    "Answer",
    "Batch",
    "BulkBatch",
    "Catalogue",
    "Changes",
    "CollectionAbsent",
    "Configure",
    "Connection",
    "Count",
    "CreateCollection",
    "CreateIndex",
    "CreateStore",
    "DeleteMany",
    "DeleteOne",
    "Distinct",
    "DriverConnection",
    "Drop",
    "DropIndex",
    "Exists",
    "Explain",
    "Find",
    "FindAndDelete",
    "FindDuplicate",
    "FindIds",
    "FindPage",
    "FindPlace",
    "FindTable",
    "Get",
    "GetDocument",
    "GetMany",
    "Given",
    "HasPrunable",
    "HoldMany",
    "HoldStill",
    "Increment",
    "Insert",
    "InsertBeside",
    "LastChange",
    "ListCollections",
    "ListIndexes",
    "ListPurgeable",
    "Mode",
    "Modification",
    "ModifyMany",
    "ModifyOne",
    "NeedsTransaction",
    "NewCollection",
    "Operation",
    "Prune",
    "Purge",
    "Put",
    "PutBatch",
    "PutListed",
    "ReadBatch",
    "ReadChanges",
    "ReadForeign",
    "ReadRevision",
    "Reading",
    "Remove",
    "RemoveMany",
    "Rename",
    "Replace",
    "Replacement",
    "Rewrite",
    "SharedConnection",
    "Steps",
    "Together",
    "Touch",
    "Work",
    "add_functions",
    "batches",
    "check_page",
    "check_version",
    "check_window",
    "collections_of",
    "create_or_find",
    "duplicate_of",
    "follow",
    "needs_nothing",
    "perform",
    "puts_together",
    "read_doomed",
    "read_increment",
    "read_projection",
    "rival_of",
]
