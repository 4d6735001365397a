"""Statements that measure a collection without reading all of it: ends of indexes, bounded counts, samples."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ..document import SCHEMA_VERSION
from .dialects.protocols import Database
from .elements import ValueText
from .schema import body_text, document_columns, integer, is_live
from .statement import ONE, ZERO, Statement


class SurveyStatements:
    """The statements for a table."""

    table: sa.Table
    database: Database

    def __init__(self, table: sa.Table, database: Database) -> None:
        self.table, self.database = table, database

    @Statement
    def ends(self) -> Any:
        """Select the first and the last position in natural order, about how many rows the table has, null if unknown,
        and the bytes on disk, null if that would take a scan.
        """
        seq, placement = self.table.c.seq, self.database.placement
        size = "NULL" if placement.reads_for_size else placement.size(self.table)
        return sa.select(
            sa.select(sa.func.min(seq)).scalar_subquery(),
            sa.select(sa.func.max(seq)).scalar_subquery(),
            sa.literal_column(placement.estimate(self.table), sa.BigInteger),
            sa.literal_column(size, sa.BigInteger),
        )

    @Statement
    def count(self) -> Any:
        """Count the documents, `:limit` at most."""
        return self._bounded(is_live(self.table))

    @Statement
    def expiring(self) -> Any:
        """Count the documents that expire from `:start` to before `:end`, `:limit` at most."""
        expires: Any = sa.type_coerce(self.table.c.expires_at, sa.BigInteger)
        return self._bounded(expires >= integer("start"), expires < integer("end"))

    def _bounded(self, *conditions: sa.ColumnElement[bool]) -> Any:
        rows = sa.select(ONE.label("one")).select_from(self.table).where(*conditions)
        return sa.select(sa.func.count()).select_from(
            rows.limit(integer("limit")).offset(ZERO).subquery("rows")
        )

    @Statement
    def measures(self) -> Any:
        """Select the schema version, as JSON text or null, and the characters of the first `:limit` documents from the
        position `:seq` on.
        """
        version = ValueText(self.table.c.body, (SCHEMA_VERSION,))
        return self._from_position(version, sa.func.length(body_text(self.table)))

    @Statement
    def documents(self) -> Any:
        """Select position and columns of the first `:limit` documents from the position `:seq` on."""
        return self._from_position(self.table.c.seq, *document_columns(self.table))

    def _from_position(self, *columns: Any) -> Any:
        seq = self.table.c.seq
        rows = sa.select(*columns).where(seq >= integer("seq"), is_live(self.table)).order_by(seq)
        return rows.limit(integer("limit")).offset(ZERO)
