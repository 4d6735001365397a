"""The env.py of an application that keeps documents and tables of its own in one database."""

import os
from functools import partial

import sqlalchemy as sa
from alembic import context

from collections_store import migrate

metadata = sa.MetaData()
sa.Table("invoices", metadata, sa.Column("id", sa.Integer, primary_key=True))

url, schema = os.environ["SHOP_URL"], os.environ.get("SHOP_SCHEMA")
migrate.upgrade(url, schema=schema)  # the store's own tables, before the steps that use them

engine = sa.create_engine(url)
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=partial(migrate.include_name, prefix="cs_"),
    )
    with context.begin_transaction():
        context.run_migrations()
