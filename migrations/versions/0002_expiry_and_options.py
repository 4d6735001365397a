"""When an object expires, and the options of a collection.

Revision ID: 0002
Revises: 0001
"""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import context, op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    prefix, schema = context.config.attributes["prefix"], context.config.attributes["schema"]
    options = sa.Column("options", sa.Text, nullable=False, server_default="{}")
    op.add_column(f"{prefix}collections", options, schema=schema)
    for table in tables(prefix, schema):
        op.add_column(table, sa.Column("expires_at", sa.BigInteger), schema=schema)


def tables(prefix: str, schema: str | None) -> Iterator[str]:
    """Yield the collections' tables."""
    if context.is_offline_mode():
        yield from context.config.attributes["tables"]
        return
    catalogue = sa.table(f"{prefix}collections", sa.column("table_name"), schema=schema)
    yield from op.get_bind().execute(sa.select(catalogue.c.table_name)).scalars().all()
