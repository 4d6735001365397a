"""Connections of a single use, beside the pools of a store: for upgrades and inspections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import sqlalchemy as sa

from ..errors import DatabaseBusy
from ..operations.catalogue import Catalogue
from ..options import Options
from ..sql.catalogue import catalogue_statements
from ..sql.dialects import named
from ..sql.dialects.support import check_supported
from .database_file import DatabaseFile
from .executor import translated
from .pool import PooledConnection, file_of, open_driver_connection, open_engine

T = TypeVar("T")

_RETRY_PAUSE = 0.01


def run_apart(
    url: sa.URL,
    options: Options,
    work: Callable[[PooledConnection], T],
    file: DatabaseFile | None = None,
) -> T:
    """Call a function with a new connection; while other processes lock the database, again, for `busy_timeout`
    seconds. `file`: the file of an open store.
    """
    deadline = time.monotonic() + options.busy_timeout
    while True:
        try:
            with _connection(url, options, file) as pooled:
                return work(pooled)
        except DatabaseBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_PAUSE)


@contextmanager
def _connection(
    url: sa.URL, options: Options, file: DatabaseFile | None
) -> Iterator[PooledConnection]:
    options = options.for_url(url)
    database = named(url.get_backend_name(), options.sharding)
    check_supported(options, database)
    engine = open_engine(url, database, options)
    catalogue = Catalogue(catalogue_statements(options.names(), database))
    opened = file or file_of(url, database)
    try:
        pooled = open_driver_connection(engine, opened, catalogue, options, options.busy_timeout)
        try:
            with translated(database, engine):
                yield pooled
        finally:
            pooled.close()
    finally:
        engine.dispose()
