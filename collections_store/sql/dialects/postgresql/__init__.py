"""PostgreSQL: JSONB, jsonpath, SQLSTATE codes.

Begin with `filters` and `ordering`.
"""

from __future__ import annotations

from typing import Final

from ..protocols import Database
from .compiler import PostgresCompiler, PostgresDDL, PostgresPlacement
from .connections import (
    REPLICATION,
    PostgresConnections,
    PostgresErrors,
    PostgresTransactions,
    PostgresUrls,
)
from .diagnosis import PostgresDiagnosis
from .filters import PostgresFilters
from .hnsw import PgvectorIndexes
from .ordering import PostgresIndexedForm, PostgresOrdering
from .text_index import PostgresTextIndexes

DATABASE: Final = Database(
    name="postgresql",
    drivers=frozenset({"psycopg", "psycopg_async"}),
    pool_size=10,
    urls=PostgresUrls(),
    connections=PostgresConnections(),
    replication=REPLICATION,
    text=PostgresTextIndexes(),
    approximate=PgvectorIndexes(),
    diagnosis=PostgresDiagnosis(),
    transactions=PostgresTransactions(),
    errors=PostgresErrors(),
    compiler=PostgresCompiler(),
    ddl=PostgresDDL(),
    placement=PostgresPlacement(),
    filters=PostgresFilters(),
    ordering=PostgresOrdering(),
    indexed_form=PostgresIndexedForm(),
    stores_keys=True,
    options=frozenset(
        {"durability", "pooler", "read_only", "replicas", "reply_timeout", "schema", "sharding"}
    ),
)
DATABASE.register()
