"""PostgreSQL with Citus: the differences from a single server.

`SCHEMAS`: all tables of a schema are on a single worker; each schema may have a different worker. The coordinator sends
each statement unchanged to the worker, and passes on the result.

`COLLECTIONS`: the tables of the store and of collections are on the coordinator. The tables of `DISTRIBUTED`
collections are on all workers: a part of the rows, called shard, for each range of the ids' hashes. The coordinator
sends a statement over a single id to a single shard, any other statement to all shards, and merges the results. Citus
manages the tables on the coordinator too: only then is a transaction over both kinds, or over documents and recorded
changes, atomic (two-phase commit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from ....errors import CollectionsStoreError, DatabaseError, DatabaseUnavailable
from ....options import Options
from ....query.conditions import And, Condition, Field, Not, OneOf, Or
from ....query.filter import leaves
from ..protocols import Database
from . import DATABASE as POSTGRESQL
from .compiler import (
    OLDEST_CITUS,
    PostgresCompiler,
    PostgresDDL,
    PostgresPlacement,
    regclass,
    steps_below,
    table_name,
)
from .connections import (
    PostgresConnections,
    PostgresErrors,
    PostgresTransactions,
    lock_timeout,
)
from .filters import PostgresFilters, is_composite

_NO_KEYS: Final = "citus.enable_local_reference_table_foreign_keys = off"
_SHARD_NAMES: Final = ("Index Name", "Relation Name")
_WORKER_LOST: Final = (
    "server closed the connection unexpectedly",
    "failure on connection marked as essential",
)


class CitusConnections(PostgresConnections):
    """Settings of transactions. The coordinator passes on settings of transactions to the worker, but not of sessions."""

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


class CollectionsConnections(CitusConnections):
    """Settings to keep DROP from looking for foreign keys: DROP would lock all tables of the database that Citus
    manages on the coordinator.
    """

    def settings(self, options: Options, *, busy_timeout: float) -> Sequence[str]:
        return [f"SET {_NO_KEYS}", *super().settings(options, busy_timeout=busy_timeout)]

    def local_settings(
        self, options: Options, *, busy_timeout: float, is_pooled: bool
    ) -> Sequence[str]:
        local = super().local_settings(options, busy_timeout=busy_timeout, is_pooled=is_pooled)
        return [f"SET LOCAL {_NO_KEYS}", *local] if is_pooled else local


class CitusTransactions(PostgresTransactions):
    """Waits for locks of the worker."""

    def waits_remotely(self, sql: str) -> bool:
        """Return whether a statement is not a SELECT. A reader waits only for changes of the schema; the coordinator
        has the same locks.
        """
        return not sql.startswith("SELECT")


class CitusErrors(PostgresErrors):
    """SQLSTATE codes. Errors of a lost worker and defects of the server can share a code, but differ in the text."""

    def translate(self, error: Exception) -> CollectionsStoreError:
        found = super().translate(error)
        if type(found) is DatabaseError and str(found).startswith(_WORKER_LOST):
            return DatabaseUnavailable(str(found))
        return found


class DistributedTransactions(CitusTransactions):
    """Locks of rows of several shards: a statement can lock rows of a single shard."""

    def lock_groups(self, table: sa.Table) -> str:
        shard = f"get_shard_id_for_distribution_column({regclass(table)}, id)"
        ids = "unnest(CAST(%(ids)s AS TEXT[])) AS given(id)"
        shards = f"SELECT id, {shard} AS shard FROM {ids}"
        return f"SELECT array_agg(id) FROM ({shards}) AS placed GROUP BY shard ORDER BY shard"


class DistributedFilters(PostgresFilters):
    """Conditions without subqueries: Citus accepts no subquery over the values at a path. The matcher compares whole
    arrays and objects, and a jsonpath tries all values of a long list.
    """

    def can_render(self, condition: Condition) -> bool:
        has_composite = any(map(is_composite, leaves(condition)))
        return not has_composite and super().can_render(self.simplified(condition))

    def simplified(self, condition: Condition) -> Condition:
        match condition:
            case And(conditions) | Or(conditions):
                return type(condition)(tuple(map(self.simplified, conditions)))
            case Not(inner):
                return Not(self.simplified(inner))
            case Field(path, OneOf(lists, many=True)):
                return Field(path, OneOf(lists))
        return condition


class CitusCompiler(PostgresCompiler):
    """Plans: Citus shows the worker's plan, for a single shard, below the steps of the coordinator."""

    def root(self, plan: Any) -> Any:
        for _, step in steps_below(plan, 0):
            if "Distributed Query" in step:
                task, *_ = step["Distributed Query"]["Job"]["Tasks"]
                return _without_shard(task["Remote Plan"][0][0]["Plan"])
        return plan


def _without_shard(step: Any) -> Any:
    """Return a step with the shard's number cut from the ends of the names of table and index."""
    names = {name: step[name].rpartition("_")[0] for name in _SHARD_NAMES if name in step}
    return {**step, **names, "Plans": list(map(_without_shard, step.get("Plans", ())))}


class CitusPlacement(PostgresPlacement):
    """The base class of the placements in a cluster."""

    sharding: str

    def problem(
        self, schema: str | None, version: str | None, found: tuple[str | None, bool] | None
    ) -> str | None:
        if version is None:
            return "the database has no extension citus: connect to a coordinator of Citus"
        if not self.distributes(version):
            return f"Citus {OLDEST_CITUS} or newer distributes tables, got {version}"
        sharding, has_tables = found or (self.sharding, False)
        if sharding == self.sharding:
            return None
        if sharding is not None:
            return super().problem(schema, version, found)
        return self.problem_of_existing(schema, has_tables=has_tables)

    def problem_of_existing(self, schema: str | None, *, has_tables: bool) -> str | None:
        """Return why an unsharded schema cannot be used; None: the schema can be used."""
        raise NotImplementedError

    def size(self, table: sa.Table) -> str:
        """Return the expression. The coordinator's table is empty; a row of the worker's table names the worker's
        table.
        """
        size = f"SELECT pg_total_relation_size(tableoid) FROM {table_name(table)} LIMIT 1"
        return f"coalesce(({size}), 0)"

    def estimate(self, table: sa.Table) -> str:
        """Return the expression. The coordinator has no statistics of the workers' tables."""
        return "NULL"


class SchemaPlacement(CitusPlacement):
    """Schemas, distributed at creation."""

    sharding = "schema"
    schema_settings = ("SET LOCAL citus.enable_schema_based_sharding = on",)

    def problem_of_existing(self, schema: str | None, *, has_tables: bool) -> str:
        return (
            f"the schema {schema!r} exists, and is not distributed: use another one, or run "
            f"SELECT citus_schema_distribute('{schema}')"
        )


class CollectionsPlacement(CitusPlacement):
    """Tables of the coordinator, managed by Citus."""

    sharding = "collections"

    @property
    def distributed(self) -> Database:  # type: ignore[override]
        return DISTRIBUTED

    def problem_of_existing(self, schema: str | None, *, has_tables: bool) -> str | None:
        if not has_tables:
            return None
        return (
            "the store's tables exist, and Citus does not manage them: use another schema or "
            "prefix, and copy the documents with copy_to"
        )

    def place(self, table: sa.Table) -> Sequence[str]:
        return [f"SELECT citus_add_local_table_to_metadata({regclass(table)})"]


class DistributedDDL(PostgresDDL):
    """No index but the index of the ids can be unique."""

    def document_columns(self) -> tuple[sa.Column[int], sa.Column[str]]:
        seq, id = super().document_columns()
        seq.unique = None
        return seq, id


class DistributedPlacement(CollectionsPlacement):
    """Tables with a shard for each range of the ids' hashes."""

    def place(self, table: sa.Table) -> Sequence[str]:
        """Distribute each collection separately: creating a collection with shared placement would lock all collections
        of the placement. The index of the natural order has the same name as the unique index elsewhere, because plans
        show the name.
        """
        natural = sa.Table(f"{table.name}_seq_key", sa.MetaData())
        return [
            f"SELECT create_distributed_table({regclass(table)}, 'id', colocate_with => 'none')",
            f"CREATE INDEX {table_name(natural)} ON {table_name(table)} (seq)",
        ]

    def size(self, table: sa.Table) -> str:
        """Return the expression; `citus_total_relation_size` would refuse writing transactions."""
        shards = "citus_shard_sizes() AS s JOIN pg_dist_shard AS d ON d.shardid = s.shard_id"
        return f"(SELECT sum(size)::BIGINT FROM {shards} WHERE logicalrelid = {regclass(table)})"


SCHEMAS: Final = replace(
    POSTGRESQL,
    connections=CitusConnections(),
    transactions=CitusTransactions(),
    compiler=CitusCompiler(),
    placement=SchemaPlacement(),
    errors=CitusErrors(),
    indexes_text=False,
    is_remote=True,
)
DISTRIBUTED: Final = replace(
    SCHEMAS,
    transactions=DistributedTransactions(),
    ddl=DistributedDDL(),
    placement=DistributedPlacement(),
    filters=DistributedFilters(),
    takes_subqueries=False,
)
COLLECTIONS: Final = replace(
    SCHEMAS, connections=CollectionsConnections(), placement=CollectionsPlacement()
)
