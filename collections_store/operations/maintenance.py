"""Finding what can be purged, and the store's own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from ..errors import DatabaseError, SchemaError
from ..options import CollectionOptions
from ..query.values import value_class
from ..sql.schema import REVISION, now
from .catalogue import jsonb_problem
from .operation import Operation
from .write import last_surplus, prune

if TYPE_CHECKING:
    import sqlalchemy as sa

    from .connection import Connection


@value_class
class Prune(Operation[bool]):
    """Delete the recorded changes that are too many or too old; returns whether there were any."""

    collection: str
    writes = True
    snapshot = False
    empty = bool

    def __call__(self, connection: Connection) -> bool:
        feed = connection.collection(self.collection).feed
        return feed is not None and prune(connection, feed)


@value_class
class HasPrunable(Operation[bool]):
    """Return whether there are recorded changes to delete, without writing."""

    collection: str
    empty = bool

    def __call__(self, connection: Connection) -> bool:
        feed = connection.collection(self.collection).feed
        return feed is not None and last_surplus(connection, feed) > 0


@value_class
class ListPurgeable(Operation[list[str]]):
    """List the collections in which documents have expired or changes are surplus, except those that the database cannot
    read.
    """

    collections = ()

    def __call__(self, connection: Connection) -> list[str]:
        listing = connection.rows(connection.store.listing)
        return [name for name, table, _, text in listing if _is_purgeable(connection, table, text)]


def _is_purgeable(connection: Connection, table: str, text: str) -> bool:
    options = CollectionOptions.from_text(text)
    if options.jsonb and jsonb_problem(connection):
        return False
    statements = connection.store.documents(table, options)
    [(some,)] = connection.rows(statements.by_id.has_expired, {"now": now()})
    return bool(some) or (
        statements.feed is not None and last_surplus(connection, statements.feed) > 0
    )


def read_revision(connection: Connection) -> str | None:
    """Return the revision of the store's own tables; None: there are none. Raises `SchemaError` where they are incomplete.

    The catalogue is looked for first: both tables are created by one commit, so whoever sees it sees the revision too.
    """
    _check_encoding(connection)
    store = connection.store
    has_catalogue = _has(connection, store.catalogue)
    if _has(connection, store.revisions):
        rows = connection.rows(store.revision)
        if rows and not has_catalogue and not _has(connection, store.catalogue):
            raise _incomplete(connection, store.catalogue, "is missing", "collections")
        if not rows:
            raise _incomplete(connection, store.revisions, "is empty", "schema's revision")
        return str(rows[0][0])
    if has_catalogue:
        raise _incomplete(connection, store.revisions, "is missing", "schema's revision")
    return None


def create_or_find(connection: Connection) -> str | None:
    """Create the store's own tables, and return None; if another process did first, return the revision of its tables."""
    try:
        with connection.transaction(write=True):
            for statement in connection.store.create_all():
                connection.changed(statement)
            connection.changed(connection.store.stamp, {"revision": REVISION})
    except connection.database.errors.types():
        found = read_revision(connection)
        if found is None:
            raise
        return found
    return None


def _has(connection: Connection, table: sa.Table) -> bool:
    reference = {"reference": connection.database.ddl.reference(table)}
    return bool(connection.rows(connection.store.has_table, reference))


def _check_encoding(connection: Connection) -> None:
    probe = connection.database.connections.encoding_probe()
    if probe is None:
        return
    [(encoding,)] = connection.rows(probe)
    if encoding != "UTF8":
        raise DatabaseError(
            f"the database's encoding must be UTF8, got {encoding}: use another database, made by "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )


def _incomplete(connection: Connection, table: sa.Table, problem: str, unknown: str) -> SchemaError:
    store, reference = connection.store, connection.database.ddl.reference
    revisions, catalogue = reference(store.revisions), reference(store.catalogue)
    return SchemaError(
        f"the tables of collections_store are incomplete: {reference(table)} {problem}, so the {unknown} "
        "cannot be read; restore them from a backup or, to start without their "
        f"documents, drop {revisions}, {catalogue} and the collections' tables "
        f"({store.names.prefix}<number>_<name>)",
        found="nothing",
        expected=REVISION,
    )
