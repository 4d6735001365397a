"""How a database is made ready: created when it is fresh, upgraded when it is older, left alone when
it is newer.
"""

from __future__ import annotations

import time

from .dialects import Database
from .errors import DatabaseBusy, SchemaOutdated
from .operations import DriverConnection, ReadRevision, SharedConnection, create_or_find
from .options import Options
from .pool import Lease
from .schema import REVISION

RETRY_PAUSE = 0.01


def make_ready(lease: Lease, options: Options) -> None:
    """Create the store's tables in a fresh database, upgrade those of an older one; raises
    `SchemaError`, and then has touched nothing.
    """
    database = lease.connection.database
    try:
        if isinstance(lease.connection, SharedConnection):
            lease.connection.prepare(write=True)
        revision = ReadRevision()(lease.connection)
        _settle(lease, revision, options)
        if isinstance(lease.connection, DriverConnection):
            _persist(lease.connection, options.busy_timeout)
        if revision is None:
            _settle(lease, create_or_find(lease.connection), options)
    except database.errors() as error:
        raise database.translate(error) from error


def _settle(lease: Lease, revision: str | None, options: Options) -> None:
    if revision in {None, REVISION}:
        return
    from . import migrate

    migrate.refuse_unknown(revision)
    if not options.upgrades(lease.connection.database):
        raise SchemaOutdated(
            f"the database is at schema {revision}, this version of collections_store needs "
            f"{REVISION}: run `collections-store db upgrade`, or open it with upgrade='auto'",
            found=revision,
            expected=REVISION,
        )
    migrate.bring_up(lease, options.names())


def _persist(connection: DriverConnection, patience: float) -> None:
    """Say the settings that a file keeps. Another process that just does the same makes SQLite
    answer "busy" at once, whatever the busy timeout.
    """
    deadline = time.monotonic() + patience
    for words in connection.database.persistent_settings():
        while True:
            try:
                connection.say(words)
                break
            except connection.database.errors() as error:
                if not _may_retry(connection.database, error, deadline):
                    raise
                time.sleep(RETRY_PAUSE)


def _may_retry(database: Database, error: Exception, deadline: float) -> bool:
    busy = isinstance(database.translate(error), DatabaseBusy)
    return busy and time.monotonic() < deadline
