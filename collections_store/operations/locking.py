"""What changes the schema of a collection has it to itself.

Who writes objects has locked their table, and then wants the collection's entry in the catalogue, to
record what was changed (see `recording`). So who changes the schema takes the two in that order too: in
the other one, each would wait for the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ..collection_options import CollectionOptions
from ..dialects import TableVanished
from ..errors import SchemaError

if TYPE_CHECKING:
    from .connection import Connection

Entry: TypeAlias = tuple[str, CollectionOptions]
"""The table of a collection, and its options."""


def read_entry(connection: Connection, collection: str) -> Entry | None:
    """Return what the catalogue tells of a collection; None: there is none."""
    rows = connection.rows(connection.store.resolve, {"name": collection})
    return (rows[0][0], CollectionOptions.from_text(rows[0][1])) if rows else None


def lock_entry(connection: Connection, collection: str, *, readers: bool = True) -> Entry | None:
    """Keep those who write from a collection, and `readers` too, until the transaction ends; gives what
    the catalogue tells of it. Raises `TableVanished` where another was faster.
    """
    read = read_entry(connection, collection)
    if read is None:
        return None
    _keep_out(connection, read[0], readers=readers)
    connection.changed(connection.store.lock, {"name": collection})
    locked = read_entry(connection, collection)
    if locked is None or locked[0] != read[0]:
        raise TableVanished(f"collection {collection} was changed by another")
    return locked


def jsonb_problem(connection: Connection) -> str | None:
    """Say that the database has no JSONB, if so."""
    database = connection.store.database
    probe = database.jsonb_probe()
    if probe is None:
        return None
    [(version,)] = connection.rows(probe)
    return database.jsonb_problem(version)


def check_readable(connection: Connection, collection: str, options: CollectionOptions) -> None:
    """Raise `SchemaError` where the database cannot read the bodies of a collection."""
    if options.jsonb and (problem := jsonb_problem(connection)):
        found, expected = problem.split(": ")
        message = f"the collection {collection!r} keeps its bodies as JSONB: {problem}"
        raise SchemaError(message, found=found, expected=expected)


def _keep_out(connection: Connection, table: str, *, readers: bool) -> None:
    """Lock a table, unless somebody dropped it by hand."""
    store = connection.store
    words = store.keep_out(table, readers=readers)
    if words is not None and connection.rows(store.has_table, store.find_table(table)):
        connection.changed(words)
