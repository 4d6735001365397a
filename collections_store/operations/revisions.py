"""The schema's revision: read it, or make a fresh database ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..schema import REVISION

if TYPE_CHECKING:
    from .connection import Connection


@dataclass(frozen=True, slots=True)
class ReadRevision:
    """Tell the revision of the store's tables; None: there are none."""

    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> str | None:
        store = connection.store
        reference = {"reference": connection.database.reference(store.revisions)}
        if not connection.rows(store.has_table, reference):
            return None
        rows = connection.rows(store.revision)
        return str(rows[0][0]) if rows else None


@dataclass(frozen=True, slots=True)
class CreateStore:
    """Create the store's own tables in a database that has none; gives the revision there is."""

    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> str:
        found = ReadRevision()(connection)
        if found is not None:
            return found
        for statement in connection.store.create_all():
            connection.changed(statement)
        connection.changed(connection.store.stamp, {"revision": REVISION})
        return REVISION
