"""SQLite: JSON functions, pragmas, result codes.

Begin with `filters` and `ordering`.
"""

from __future__ import annotations

from typing import Final

from ..protocols import Database
from .compiler import SqliteCompiler, SqliteDDL, SqlitePlacement
from .connections import (
    BACKUPS,
    SqliteConnections,
    SqliteErrors,
    SqliteTransactions,
    SqliteUrls,
)
from .diagnosis import SqliteDiagnosis
from .filters import SqliteFilters
from .ordering import SqliteIndexedForm, SqliteOrdering
from .text_index import SqliteTextIndexes

DATABASE: Final = Database(
    name="sqlite",
    drivers=frozenset({"pysqlite", "aiosqlite"}),
    pool_size=4,
    urls=SqliteUrls(),
    connections=SqliteConnections(),
    backups=BACKUPS,
    text=SqliteTextIndexes(),
    diagnosis=SqliteDiagnosis(),
    transactions=SqliteTransactions(),
    errors=SqliteErrors(),
    compiler=SqliteCompiler(),
    ddl=SqliteDDL(),
    placement=SqlitePlacement(),
    filters=SqliteFilters(),
    ordering=SqliteOrdering(),
    indexed_form=SqliteIndexedForm(),
    reconnect_for=1.0,
    single_writer=True,
    errors_abort=False,
    ordered_keys=True,
    takes_lists=False,
    options=frozenset({"page_cache"}),
    upgrades_on_open=True,
    indexes_arrays=True,
    index_ends_in_seq=True,
    counts_in_index=True,
    orders_union_all=True,
)
DATABASE.register()
