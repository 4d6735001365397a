"""PostgreSQL with Citus: the tables of a schema are on one worker, those of other schemas on others.

The coordinator sends each statement to the worker as it is, and passes on what that returns. This module has what differs
from one server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ....options import Options
from . import DATABASE as POSTGRESQL
from .compiler import OLDEST_CITUS, PostgresDDL
from .connections import PostgresConnections, PostgresTransactions, lock_timeout


class CitusConnections(PostgresConnections):
    """Settings of transactions, which the coordinator passes on to the worker; those of a session it does not."""

    def settings(self, options: Options, *, busy_timeout: float) -> Sequence[str]:
        session = super().settings(options, busy_timeout=busy_timeout)
        return [*session, "SET citus.propagate_set_commands = 'local'"]

    def local_settings(
        self, options: Options, *, busy_timeout: float, is_pooled: bool
    ) -> Sequence[str]:
        own = super().local_settings(options, busy_timeout=busy_timeout, is_pooled=is_pooled)
        local = [f"SET LOCAL lock_timeout = {lock_timeout(options, busy_timeout)}"]
        if is_pooled:
            local.insert(0, "SET LOCAL citus.propagate_set_commands = 'local'")
        if options.durability == "normal":
            local.append("SET LOCAL synchronous_commit = off")
        return [*own, *local]


class CitusTransactions(PostgresTransactions):
    """What waits for locks of the worker."""

    def waits_remotely(self, sql: str) -> bool:
        """Readers wait for changes of the schema only, whose locks the coordinator has too."""
        return not sql.startswith("SELECT")


class CitusDDL(PostgresDDL):
    """Schemas that are distributed when they are created."""

    def sharding_problem(
        self, schema: str | None, version: str | None, is_distributed: bool | None
    ) -> str | None:
        if version is None:
            return "the database has no extension citus: connect to a coordinator of Citus"
        if not self.distributes(version):
            return f"Citus {OLDEST_CITUS} or newer distributes schemas, got {version}"
        if is_distributed is False:
            return (
                f"the schema {schema!r} exists, and is not distributed: use another one, or run "
                f"SELECT citus_schema_distribute('{schema}')"
            )
        return None

    def create_schema(self, name: str) -> Sequence[str]:
        enabled = "SET LOCAL citus.enable_schema_based_sharding = on"
        return [enabled, *super().create_schema(name)]


DATABASE: Final = replace(
    POSTGRESQL,
    connections=CitusConnections(),
    transactions=CitusTransactions(),
    ddl=CitusDDL(),
    is_sharded=True,
)
