"""Statements over the documents of a collection without a given schema version.

A partial index has exactly these documents. Once all are upgraded, the index is empty: a search for outdated documents
costs next to nothing, and a write of the version does not touch the index.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ..document import SCHEMA_VERSION
from .dialects.protocols import Database
from .elements import ValueText
from .schema import document_columns, integer, is_live
from .statement import ONE, ZERO, Statement


def has_other_version(table: sa.Table, version: int) -> sa.ColumnElement[bool]:
    """Return the condition of the documents that do not have a schema version. The index has the same condition: a
    planner uses the index only if a query repeats the condition with its literals. PostgreSQL expects few rows to
    pass an equality, but nearly all rows to pass an inequality: for an inequality, PostgreSQL would read the whole
    table.
    """
    stored = ValueText(table.c.body, (SCHEMA_VERSION,))
    has_it: sa.ColumnElement[bool] = stored == sa.literal_column(f"'{version:d}'")
    return sa.case((has_it, ZERO), else_=ONE) == ONE


class VersionStatements:
    """The statements for a table and a schema version."""

    table: sa.Table
    database: Database

    def __init__(self, table: sa.Table, database: Database, version: int) -> None:
        self.table, self.database = table, database
        self.where: tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]] = (
            has_other_version(table, version),
            is_live(table),
        )

    @Statement
    def any(self) -> Any:
        """Select id and version of a document with a different version; the version is JSON text, or null if missing.

        The LIMIT is outside of the CTE: within the CTE, PostgreSQL would read the table until the first row.
        """
        found = ValueText(self.table.c.body, (SCHEMA_VERSION,)).label("found")
        rows = sa.select(self.table.c.id, found).where(*self.where)
        if not self.database.takes_subqueries:
            # The coordinator would read the whole CTE. The index has this order.
            return rows.order_by(self.table.c.seq).limit(ONE).offset(ZERO)
        others = rows.cte("others").prefix_with("MATERIALIZED")
        return sa.select(others.c.id, others.c.found).limit(ONE).offset(ZERO)

    count: Statement = Statement(lambda s: sa.select(sa.func.count(s.table.c.seq)).where(*s.where))
    """Count the documents with other versions."""
    some: Statement = Statement(
        lambda s: (
            sa.select(s.table.c.seq, *document_columns(s.table))
            .where(*s.where, s.table.c.seq > integer("seq"))
            .order_by(s.table.c.seq)
            .limit(integer("limit"))
            .offset(ZERO)
        )
    )
    """Select position and columns of the first `:limit` such documents past the position `:seq`."""
