"""On SQLite, indexes of arrays that are kept by their keys instead of by scans.

Revision ID: 0005
Revises: 0004
"""

import re
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import context, op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        return
    for name, sql, values in triggers(context.config.attributes["prefix"]):
        beside = name.rpartition("_")[0]
        old = f"DELETE FROM {beside} WHERE (rank, value, seq) IN ({values});"
        new = (
            f"DELETE FROM {beside} WHERE rank IN (2, 3, 8, 9) AND value IN (WITH "
            f"gone(rank, value, seq) AS ({values}) SELECT value FROM gone) AND seq = OLD.seq;"
        )
        op.execute(f"DROP TRIGGER {name}")
        op.execute(sa.DDL(sql.replace(old, new, 1).replace("%", "%%")))  # type: ignore[no-untyped-call]


def triggers(prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, SQL and the SELECT of the old values of each trigger that scans."""
    master = sa.table("sqlite_master", sa.column("type"), sa.column("name"), sa.column("sql"))
    found = sa.select(master.c.name, master.c.sql).where(master.c.type == "trigger")
    sqls = dict(map(tuple, database().execute(found)))
    for name, sql in sqls.items():
        if not re.fullmatch(rf"{prefix}[0-9]+\$i[0-9]+_(delete|update)", name):
            continue
        # the trigger for DELETE ends with the values, so that no key within them can be their end
        beside = name.rpartition("_")[0]
        start = f" BEGIN DELETE FROM {beside} WHERE (rank, value, seq) IN ("
        _, began, values = sqls[f"{beside}_delete"].partition(start)
        if began:
            yield name, sql, values.removesuffix("); END")


def database() -> sa.Connection:
    """Return a connection to read with."""
    if context.is_offline_mode():
        reading: sa.Connection = context.config.attributes["database"]
        return reading
    return op.get_bind()
