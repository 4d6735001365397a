"""Alembic's environment. It never imports the library: a migration must mean the same for ever.

What it works on comes in `config.attributes`: `connection`, `prefix`, `schema`, and, where SQL is
only printed, `tables` with the collections' table names and `database`, a connection to read with.
"""

from typing import Any

from alembic import context

attributes = context.config.attributes


def run() -> None:
    options: dict[str, Any] = {
        "version_table": f"{attributes['prefix']}revision",
        "version_table_schema": attributes["schema"],
        "transactional_ddl": True,
        "transaction_per_migration": False,
    }
    if context.is_offline_mode():
        context.configure(
            dialect_name=attributes["dialect"], output_buffer=attributes["output"], **options
        )
    else:
        context.configure(connection=attributes["connection"], **options)
    with context.begin_transaction():
        context.run_migrations()


run()
