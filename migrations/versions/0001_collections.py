"""The catalogue of collections.

A collection's own table comes into being with the collection, so there are none to migrate yet.

Revision ID: 0001
Revises: none
"""

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None


def upgrade() -> None:
    prefix, schema = context.config.attributes["prefix"], context.config.attributes["schema"]
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        f"{prefix}collections",
        sa.Column("number", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("name", text, nullable=False, unique=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        schema=schema,
        sqlite_autoincrement=True,
    )
