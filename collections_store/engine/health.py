"""Health of a store's database, for probes, and problems of a database, for administrators.

Rules:

1. Each check opens a new connection, and waits neither for the writer nor for the pool.
2. A check creates no file, upgrades no schema, and retries no lost connection.
3. An error of the database is part of the result of a health check.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from ..errors import CollectionsStoreError, DatabaseError
from ..operations.diagnosis import DatabaseState, Diagnose, Finding, FindState
from ..operations.servers import IdentifyServer
from ..options import Options, check_seconds, safe_url
from ..results import Health
from ..sql.dialects import named
from ..sql.dialects.protocols import Database
from ..sql.dialects.support import replica_url
from ..sql.schema import REVISION
from .core import Core
from .executor import execute, translated
from .lifecycle import check_revision
from .open_database import OpenDatabase
from .pool import PooledConnection, open_shared_connection
from .single_use import run_apart
from .workers import working


def check_health(core: Core, timeout: float) -> Health:
    """Return the state of the database; raise `StoreClosed` and `InvalidOption`."""
    core.refuse_if_closed()
    timeout, started = check_seconds("timeout", timeout), time.monotonic()
    state, opened, error = DatabaseState(None, False), core.opened, None
    try:
        with working():
            state = _look(core, opened, timeout)
            if opened is None:  # an open store goes on when another one upgrades the schema
                check_revision(state.revision, core.options, core.database)
    except CollectionsStoreError as failure:
        error = str(failure)
    has_replicas = core.options.replicas is not None
    return Health(
        error is None,
        time.monotonic() - started,
        state.revision,
        state.revision == REVISION,
        core.options.read_only or state.is_read_only,
        opened is not None and opened.uses_replica if has_replicas else None,
        error,
    )


def _look(core: Core, opened: OpenDatabase | None, timeout: float) -> DatabaseState:
    url, database = core.url, core.database
    if core.is_private or (opened is None and _will_be_created(url, database)):
        return DatabaseState(REVISION if core.catalogue.exists else None, False)
    is_read_only = database.urls.is_read_only(url)

    def work(pooled: PooledConnection) -> DatabaseState:
        found = execute(pooled.connection, FindState())
        return found._replace(is_read_only=found.is_read_only or is_read_only)

    if core.engine is None:
        file = None if opened is None else opened.file
        options = _bounded(core.options, database, timeout)
        return run_apart(database.urls.reading_url(url), options, work, file)
    pooled = open_shared_connection(
        core.engine, core.database.urls.file_of(core.url), core.catalogue
    )
    try:
        with translated(database, core.engine), pooled.sa.begin():
            return work(pooled)
    finally:
        pooled.close()


def _will_be_created(url: sa.URL, database: Database) -> bool:
    path = database.urls.file_of(url)
    if path is None or not database.urls.is_created(url):
        return False
    return not Path(path).exists() and Path(path).parent.is_dir()


def _bounded(options: Options, database: Database, timeout: float) -> Options:
    """Return the options of a connection with this limit for the wait for a lock, and for each answer."""
    if "reply_timeout" not in database.options:
        return replace(options, busy_timeout=timeout)
    reply = min(timeout, options.reply_timeout or timeout)
    return replace(options, busy_timeout=timeout, reply_timeout=reply)


def diagnose(url: sa.URL, options: Options) -> list[Finding]:
    """Return the problems of a database and of the replicas."""
    options = options.for_url(url)
    database = named(url.get_backend_name(), options.sharding)
    file = database.urls.file_of(url)
    log = None if file is None else Path(f"{file}-wal")
    diagnosis = Diagnose(log.stat().st_size if log is not None and log.exists() else 0)
    reading = database.urls.reading_url(url)
    found = run_apart(reading, options, lambda pooled: execute(pooled.connection, diagnosis))
    return found + _of_replicas(url, options, database)


def _of_replicas(url: sa.URL, options: Options, database: Database) -> list[Finding]:
    replicas = replica_url(options, database)
    if replicas is None:
        return []
    alone = replace(options, replicas=None, consistency=None)
    try:
        server, replica = (
            run_apart(each, own, lambda pooled: execute(pooled.connection, IdentifyServer()))
            for each, own in ((url, alone), (replicas, alone.of_replicas(replicas)))
        )
    except DatabaseError as error:
        problem = f"no replica can be used, all reads run on the primary: {error}"
    else:
        if replica.is_replica and replica.system == server.system:
            return []
        problem = "the server is no replica of the database, all reads run on the primary"
    advice = "correct the URL of the option replicas, or repair the replica"
    return [Finding("warning", "replication", safe_url(replicas), problem, advice)]
