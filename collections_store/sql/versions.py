"""Statements over the documents of a collection that do not have one schema version.

A partial index has exactly these documents. Once all are upgraded it is empty: the question whether there are any costs
next to nothing, and a write of the version does not touch it.
"""

from __future__ import annotations

import sqlalchemy as sa

from ..document import SCHEMA_VERSION
from .by_id import ONE, ZERO, Statement
from .dialects.protocols import Database
from .elements import ValueText
from .schema import document_columns, integer, is_live


def has_other_version(table: sa.Table, version: int) -> sa.ColumnElement[bool]:
    """Return the condition of the documents that do not have a schema version. It is the condition of the index: a
    planner uses that only if a query repeats it with its literal.
    """
    stored = ValueText(table.c.body, (SCHEMA_VERSION,))
    return stored.is_distinct_from(sa.literal_column(f"'{version:d}'"))


class VersionStatements:
    """The statements for one table and one schema version."""

    def __init__(self, table: sa.Table, database: Database, version: int) -> None:
        self.table, self.database = table, database
        self.where = has_other_version(table, version), is_live(table)

    any = Statement(
        lambda s: (
            sa.select(s.table.c.id, ValueText(s.table.c.body, (SCHEMA_VERSION,)))
            .where(*s.where)
            .limit(ONE)
            .offset(ZERO)
        )
    )
    """Select the id of a document with another version, and that as JSON text, null if it has none."""
    count = Statement(lambda s: sa.select(sa.func.count(s.table.c.seq)).where(*s.where))
    """Count the documents with other versions."""
    some = Statement(
        lambda s: (
            sa.select(s.table.c.seq, *document_columns(s.table))
            .where(*s.where, s.table.c.seq > integer("seq"))
            .order_by(s.table.c.seq)
            .limit(integer("limit"))
            .offset(ZERO)
        )
    )
    """Select position and columns of the first `:limit` such documents past the position `:seq`."""
