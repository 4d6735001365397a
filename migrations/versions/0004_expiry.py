"""How long each object lives, and an index of those that expire.

Revision ID: 0004
Revises: 0003
"""

import re
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import context, op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    prefix, schema = context.config.attributes["prefix"], context.config.attributes["schema"]
    some = sa.text("expires_at IS NOT NULL")
    for table in tables(prefix, schema):
        [number] = re.findall("^[0-9]+", table.removeprefix(prefix))
        op.add_column(table, sa.Column("ttl", sa.BigInteger), schema=schema)
        op.create_index(
            f"{prefix}{number}$x",
            table,
            ["expires_at"],
            schema=schema,
            sqlite_where=some,
            postgresql_where=some,
        )


def tables(prefix: str, schema: str | None) -> Iterator[str]:
    """Yield the collections' tables."""
    if context.is_offline_mode():
        yield from context.config.attributes["tables"]
        return
    catalogue = sa.table(f"{prefix}collections", sa.column("table_name"), schema=schema)
    yield from op.get_bind().execute(sa.select(catalogue.c.table_name)).scalars().all()
