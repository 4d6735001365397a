"""SQLAlchemy's statements to text."""

from __future__ import annotations

from typing import Any

from ..dialects import Database


def compiled(statement: Any, database: Database) -> str:
    """Return the statement's text, as the database's driver takes it."""
    return str(statement.compile(dialect=database.compiler()))
