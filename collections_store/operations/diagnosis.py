"""What probes and administrators want to know of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .catalogue import read_revision

if TYPE_CHECKING:
    from .connection import Connection


class DatabaseState(NamedTuple):
    """The revision of the store's tables, None without tables; and whether the server accepts no write."""

    revision: str | None
    is_read_only: bool


def look(connection: Connection) -> DatabaseState:
    """Return the state of the database that a connection leads to."""
    probe = connection.database.connections.read_only_probe
    is_read_only = probe is not None and bool(connection.rows(probe)[0][0])
    return DatabaseState(read_revision(connection), is_read_only)
