"""What seals the cursors of a collection's pages and, on PostgreSQL, an index over its bodies.

Revision ID: 0003
Revises: 0002
"""

import json
import re
import secrets
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import context, op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    prefix, schema = context.config.attributes["prefix"], context.config.attributes["schema"]
    columns = [sa.column("table_name", sa.Text), sa.column("options", sa.Text)]
    catalogue = sa.table(f"{prefix}collections", *columns, schema=schema)
    for table in tables(catalogue):
        options = {"cursor_key": secrets.token_hex(16), "body_index": True, "counter": 1}
        update = sa.update(catalogue).where(catalogue.c.table_name == op.inline_literal(table))
        op.execute(update.values(options=op.inline_literal(json.dumps(options))))
        if op.get_context().dialect.name == "postgresql":
            index_bodies(table, prefix, schema)


def index_bodies(table: str, prefix: str, schema: str | None) -> None:
    [number] = re.findall("^[0-9]+", table.removeprefix(prefix))
    op.create_index(
        f"{prefix}{number}$i0",
        table,
        ["body"],
        schema=schema,
        postgresql_using="gin",
        postgresql_ops={"body": "jsonb_path_ops"},
    )


def tables(catalogue: sa.TableClause) -> Iterator[str]:
    """Yield the collections' tables."""
    if context.is_offline_mode():
        yield from context.config.attributes["tables"]
        return
    yield from op.get_bind().execute(sa.select(catalogue.c.table_name)).scalars().all()
