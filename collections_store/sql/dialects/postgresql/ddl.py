"""Tables and indexes of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from ..protocols import DDL

DIALECT: sa.Dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]


def table_name(table: sa.Table) -> str:
    """Return the table's name as SQL."""
    return str(DIALECT.identifier_preparer.format_table(table))


class PostgresDDL(DDL):
    """Tables with JSONB, and one GIN index over bodies each."""

    def has_table(self) -> sa.TextClause:
        return sa.text("SELECT 1 WHERE to_regclass(:reference) IS NOT NULL")

    def reference(self, table: sa.Table) -> str:
        return table_name(table)

    def document_columns(self) -> tuple[sa.Column[int], sa.Column[str]]:
        """Ids compare by code point, as on SQLite."""
        return (
            sa.Column("seq", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
            sa.Column("id", sa.Text(collation="C"), primary_key=True),
        )

    def body_type(self) -> sa.types.TypeEngine[Any]:
        return JSONB()

    def create_body_index(self, table: sa.Table, physical: str) -> Sequence[str]:
        """One index serves equality at any depth, in arrays too."""
        gin: dict[str, Any] = {"using": "gin", "ops": {"body": "jsonb_path_ops"}}
        options = {f"postgresql_{name}": value for name, value in gin.items()}
        index = sa.Index(physical, table.c.body, **options)
        return [str(sa.schema.CreateIndex(index).compile(dialect=DIALECT))]
