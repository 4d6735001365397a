"""The store's own tables: creating the tables, and reading their revision."""

from __future__ import annotations

import secrets

import sqlalchemy as sa

from ..errors import DatabaseError, InvalidOption, SchemaError
from ..sql.schema import REVISION
from .session import Session


def read_revision(session: Session) -> str | None:
    """Return the revision of the store's own tables; None without tables. Raises `SchemaError` for incomplete tables.

    The catalogue is looked for first. One commit creates both tables: a reader that sees the catalogue sees the
    revision too.
    """
    _check_database(session)
    store = session.store
    has_catalogue = has_table(session, store.catalogue)
    if has_table(session, store.revisions):
        rows = session.rows(store.revision)
        if rows and not has_catalogue and not has_table(session, store.catalogue):
            raise _incomplete(session, store.catalogue, "is missing", "collections")
        if not rows:
            raise _incomplete(session, store.revisions, "is empty", "schema's revision")
        return str(rows[0][0])
    if has_catalogue:
        raise _incomplete(session, store.revisions, "is missing", "schema's revision")
    return None


def create_or_find(session: Session) -> str | None:
    """Create the store's own tables, and return None; return the revision if another process was first."""
    try:
        with session.transaction(write=True):
            for statement in session.store.create_all():
                session.changed(statement)
            session.changed(session.store.stamp, {"revision": REVISION})
    except session.database.errors.types():
        found = read_revision(session)
        if found is None:
            raise
        return found
    return None


def identify(session: Session) -> None:
    """Give the database a random identity, which copies of the database keep, unless the database has an identity.

    On PostgreSQL another transaction may create the table at the same time: this one waits, and fails.
    """
    store = session.store
    if has_table(session, store.identities):
        return
    try:
        with session.savepoint():
            for sql in (store.create_identity, *session.database.placement.place(store.identities)):
                session.changed(sql)
            session.changed(store.insert_identity, {"identity": secrets.token_hex(8)})
    except session.database.errors.types():
        if not has_table(session, store.identities):
            raise


def read_identity(session: Session) -> str:
    """Return the identity of the database; "" if no collection has recorded changes since there are identities."""
    if not has_table(session, session.store.identities):
        return ""
    rows = session.rows(session.store.identity)  # none if the table is newer than the snapshot
    return str(rows[0][0]) if rows else ""


def has_table(session: Session, table: sa.Table) -> bool:
    """Return whether the database has a table."""
    reference = {"reference": session.database.ddl.reference(table)}
    return bool(session.rows(session.store.has_table, reference))


def _check_database(session: Session) -> None:
    """Raise `DatabaseError` for an encoding that lacks characters, `InvalidOption` for a wrong `sharding`."""
    database, schema = session.database, session.store.names.schema
    if database.connections.probe is None:
        return
    [(encoding, version)] = session.rows(database.connections.probe)
    if encoding != "UTF8":
        raise DatabaseError(
            f"the database's encoding must be UTF8, got {encoding}: use another database, made by "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
    found, placement = None, database.placement
    if placement.distributes(version):
        catalogue = database.ddl.reference(session.store.catalogue)
        where = {"schema": schema, "catalogue": catalogue}
        found = next(iter(session.rows(placement.probe, where)), None)
    problem = placement.problem(schema, version, found)
    if problem is not None:
        raise InvalidOption("sharding", problem)


def _incomplete(session: Session, table: sa.Table, problem: str, unknown: str) -> SchemaError:
    store, reference = session.store, session.database.ddl.reference
    revisions, catalogue = reference(store.revisions), reference(store.catalogue)
    return SchemaError(
        f"the tables of collections_store are incomplete: {reference(table)} {problem}, so the {unknown} "
        "cannot be read; restore them from a backup or, to start without their "
        f"documents, drop {revisions}, {catalogue} and the collections' tables "
        f"({store.names.prefix}<number>_<name>)",
        found="nothing",
        expected=REVISION,
    )
