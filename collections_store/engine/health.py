"""The state of a store's database, as a probe finds it.

Rules:

1. A check opens a connection of its own: it waits neither for the writer nor for the pool.
2. A check creates no file, upgrades no schema, and retries no lost connection.
3. Whatever keeps the database from answering is part of the result.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from ..document import Health
from ..errors import CollectionsStoreError
from ..operations.catalogue import Catalogue
from ..operations.diagnosis import DatabaseState, look
from ..options import Options
from ..sql.dialects.protocols import Database
from ..sql.schema import REVISION
from .backend import Backend
from .executor import translated
from .lifecycle import check_revision
from .pool import PooledConnection, open_shared_connection
from .single_use import run_apart
from .workers import working


def check_health(
    where: sa.URL | sa.Engine,
    options: Options,
    catalogue: Catalogue,
    backend: Backend | None,
    timeout: float,
) -> Health:
    """Return the state of a store's database. `backend` is None before the store's first use."""
    started = time.monotonic()
    state, error = DatabaseState(None, False), None
    try:
        with working():
            state = _look(where, options, catalogue, backend, timeout)
            if backend is None:  # an open store goes on when another one upgrades the schema
                check_revision(state.revision, options, catalogue.statements.database)
    except CollectionsStoreError as failure:
        error = str(failure)
    return Health(
        error is None,
        time.monotonic() - started,
        state.revision,
        state.revision == REVISION,
        options.read_only or state.is_read_only,
        None if options.replicas is None else backend is not None and backend.uses_replica,
        error,
    )


def _look(
    where: sa.URL | sa.Engine,
    options: Options,
    catalogue: Catalogue,
    backend: Backend | None,
    timeout: float,
) -> DatabaseState:
    database = catalogue.statements.database
    url = where.url if isinstance(where, sa.Engine) else where
    file = None if backend is None else backend.file
    if database.urls.is_private(url) or (file is None and _will_be_created(url, database)):
        return DatabaseState(REVISION if catalogue.exists else None, False)
    is_read_only = database.urls.is_read_only(url)

    def work(pooled: PooledConnection) -> DatabaseState:
        found = look(pooled.connection)
        return found._replace(is_read_only=found.is_read_only or is_read_only)

    if isinstance(where, sa.Engine):
        pooled = open_shared_connection(where, catalogue)
        try:
            with translated(database, where), pooled.sa.begin():
                return work(pooled)
        finally:
            pooled.close()
    return run_apart(
        database.urls.reading_url(url), bounded(options, database, timeout), work, file
    )


def _will_be_created(url: sa.URL, database: Database) -> bool:
    path = database.urls.file_of(url)
    if path is None or not database.urls.is_created(url):
        return False
    return not Path(path).exists() and Path(path).parent.is_dir()


def bounded(options: Options, database: Database, timeout: float) -> Options:
    """Return the options of a connection that waits so many seconds at most, for a lock and for each answer."""
    if "reply_timeout" not in database.options:
        return replace(options, busy_timeout=timeout)
    reply = min(timeout, options.reply_timeout or timeout)
    return replace(options, busy_timeout=timeout, reply_timeout=reply)
