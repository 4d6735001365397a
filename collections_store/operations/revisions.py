"""The schema's revision: read it, or make a fresh database ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..errors import SchemaError
from ..frozen import frozen
from ..schema import REVISION

if TYPE_CHECKING:
    import sqlalchemy as sa

    from .connection import Connection


@frozen
class ReadRevision:
    """Tell the revision of the store's tables; None: there are none.

    Raises `SchemaError` where someone left half of them. The catalogue is looked for first: both
    tables come with one commit, so whoever sees it sees the revision too.
    """

    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> str | None:
        store = connection.store
        has_catalogue = _has(connection, store.catalogue)
        if _has(connection, store.revisions):
            rows = connection.rows(store.revision)
            return str(rows[0][0]) if rows else _refuse(connection, "is empty")
        return _refuse(connection, "is missing") if has_catalogue else None


@frozen
class CreateStore:
    """Create the store's own tables in a database that has none."""

    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> None:
        for statement in connection.store.create_all():
            connection.changed(statement)
        connection.changed(connection.store.stamp, {"revision": REVISION})


def create_or_find(connection: Connection) -> str | None:
    """Create the store's own tables, unless another process is faster: then give the revision that
    it left, else None.
    """
    try:
        with connection.transaction(write=True):
            CreateStore()(connection)
    except connection.database.errors():
        found = ReadRevision()(connection)
        if found is None:
            raise
        return found
    return None


def _has(connection: Connection, table: sa.Table) -> bool:
    reference = {"reference": connection.database.reference(table)}
    return bool(connection.rows(connection.store.has_table, reference))


def _refuse(connection: Connection, problem: str) -> str:
    store, reference = connection.store, connection.database.reference
    revisions, catalogue = reference(store.revisions), reference(store.catalogue)
    prefix = store.names.prefix
    raise SchemaError(
        f"the tables of collections_store are incomplete: {revisions} {problem}, so nothing tells "
        f"which schema they are at; restore them from a backup or, to begin anew without their "
        f"objects, drop {revisions}, {catalogue} and the collections' tables "
        f"({prefix}<number>_<name>)",
        found="nothing",
        expected=REVISION,
    )
