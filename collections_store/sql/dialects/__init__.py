"""Dialects: the differences between the databases, a folder for each database.

`protocols` and `indexed_form` declare what a dialect provides. SQL text belongs in the dialects only.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from ...errors import InvalidUrl
from ...options import Sharding
from .protocols import Database


def named(name: str, sharding: Sharding | None = None) -> Database:
    """Return the dialect of SQLAlchemy's `name`; raises `InvalidUrl`."""
    match name:  # each imports a dialect of SQLAlchemy: 10 ms and 20 ms (measured)
        case "sqlite":
            from . import sqlite

            return sqlite.DATABASE
        case "postgresql" if sharding == "schema":
            from .postgresql import citus

            return citus.SCHEMAS
        case "postgresql" if sharding == "collections":
            from .postgresql import citus

            return citus.COLLECTIONS
        case "postgresql":
            from . import postgresql

            return postgresql.DATABASE
    raise InvalidUrl(
        f"{name!r} is no database of this library: use sqlite:///file.db, sqlite:// (in memory) "
        "or postgresql://user:password@host/database"
    )


_MODES: Final = slice(18, 20)
_WAL: Final = b"\x02\x02"
"""The bytes `_MODES` of a database file in WAL mode."""


def is_sealed(start: bytes) -> bool:
    """Return whether no store has written to a backup whose database file begins with `start`. A backup is not in WAL
    mode.
    """
    return start[_MODES] != _WAL


def backup_url(file: str, start: bytes, *, is_in_use: bool) -> sa.URL | None:
    """Return the URL for reading a database file that begins with `start`; None if no database file does. `is_in_use`:
    the file may be locked, and may have a log to read too.
    """
    if not start.startswith(b"SQLite format 3\0"):
        return None
    query = {"mode": "ro"} if is_in_use else {"immutable": "1"}
    return sa.URL.create("sqlite", database=file, query=query)
