"""Alembic, driven from Python: upgrade a database to the schema of this version, or compare both.

The history is linear, in `migrations/versions` of a checkout and inside the package of a wheel. An upgrade is a
single transaction, on the connection that found the old revision. The upgrade locks the table of the revision, then
reads the table again: two processes never both migrate.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from .codec import Codec
from .document import SCHEMA_VERSION, check_name
from .engine.executor import run_within, translated
from .engine.pool import PooledConnection, check_driver
from .engine.single_use import run_apart
from .errors import InvalidOption, SchemaOutdated, SchemaTooNew, shortened
from .models.upgrades import Upgrades
from .models.versioned import VersionedCodec
from .operations import upgrades as procedures
from .operations.catalogue import Catalogue, read_options
from .operations.collections import read_entry
from .operations.operation import follow
from .operations.procedures import CallFunction, Pause
from .operations.schema import create_or_find, read_revision
from .operations.session import DriverSession, SharedSession
from .options import Names, Options, VersionSettings, read_url
from .results import UpgradeResult
from .sql.catalogue import catalogue_statements
from .sql.dialects import named
from .sql.dialects.support import check_supported
from .sql.schema import REVISION, catalogue_table, feed_table

T = TypeVar("T")

_PACKAGE: Final = Path(__file__).parent
_INSTALLED: Final = _PACKAGE / "migrations"
_MIGRATIONS: Final = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "migrations"
"""The wheel contains them in the package; in a checkout they are beside it."""
_TIMEOUT: Final = 600.0
"""Seconds that an upgrade waits for other processes that migrate or write."""
_UNLIMITED: Final = Codec(2**40)
"""For stored bodies: a store with a limit of its own has written them."""


def current(url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None) -> str | None:
    """Return the revision of a database, or None for a database without tables of this library."""
    return _read(
        url,
        Options(prefix=prefix, schema=schema),
        lambda pooled, _: read_revision(pooled.connection),
    )


def upgrade(
    url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None
) -> tuple[str | None, str]:
    """Upgrade a database to this version's schema; return the revision before and after.

    In an empty database, create the tables. Raise `SchemaError`, and `DatabaseBusy` if other processes lock the
    database for ten minutes.
    """
    options = Options(prefix=prefix, schema=schema, busy_timeout=_TIMEOUT)
    return _run(_normal(url), options, _upgrade), REVISION


def check(url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None) -> list[str]:
    """Return the differences between a database's tables and this version's models, a sentence each."""
    return _read(url, Options(prefix=prefix, schema=schema), _check)


def sql(url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None) -> str:
    """Return the SQL that `upgrade` would run on a database; empty if its schema is current."""
    return _read(url, Options(prefix=prefix, schema=schema), _sql)


def include_name(
    name: str | None, type_: str, parent_names: Mapping[str, str | None], *, prefix: str = "cs_"
) -> bool:
    """Return whether your own alembic compares a table: False for the tables of this library, in any schema.
    alembic 1.18 and newer need no `include_name`. Older versions propose to drop the tables, because your models do
    not have them.

    In your `env.py`: `context.configure(..., include_name=include_name)`; for another prefix than `cs_`,
    `include_name=functools.partial(include_name, prefix="bot_")`.

    >>> include_name("cs_1_people", "table", {"schema_name": None})
    False
    >>> include_name("invoices", "table", {"schema_name": None})
    True
    """
    del parent_names  # an argument of alembic's
    return type_ != "table" or name is None or not Names(prefix).owns(name)


def upgrade_documents(
    connection: sa.Connection,
    collection: str,
    *,
    quarantine: str | None = None,
    prefix: str = "cs_",
    schema: str | None = None,
    **declared: Unpack[VersionSettings],
) -> UpgradeResult:
    """Bring all documents of a collection to a schema version, as a step of your own alembic history.

    `declared` has `schema_version`, `upgrades` and `downgrades` as for `Store.collection`; `quarantine` as for
    `Collection.upgrade_documents`. Everything is part of the migration's transaction; on SQLite nobody else can
    write until its end. Raise the first failure, if documents cannot be upgraded: alembic then rolls the migration
    back. A database without the collection does not change. Raise `SchemaOutdated` for tables older than this
    version's, and `InvalidOption` in alembic's offline mode, which has no connection.

    In a migration: `upgrade_documents(op.get_bind(), "people", schema_version=2, upgrades={1: one_to_two})`.

    >>> import sqlalchemy as sa
    >>> engine = sa.create_engine("sqlite://")
    >>> with engine.begin() as connection:
    ...     upgrade_documents(connection, "people", schema_version=2).upgraded_count
    0
    >>> engine.dispose()
    """
    upgrades, others = Upgrades.taken(declared)
    if upgrades is None:
        raise InvalidOption(SCHEMA_VERSION, "must be given")
    if others:
        raise InvalidOption(next(iter(others)), "must be given to Store.collection")
    pooled = _within(connection, Options(prefix=prefix, schema=schema))
    name = check_name(collection)
    with translated(pooled.connection.database, connection.engine):
        if not _has_collection(pooled, name):
            return UpgradeResult(0)
    codec = VersionedCodec.of(_UNLIMITED, upgrades)
    options = {"dry_run": False, "quarantine": quarantine, "progress": None}
    steps = procedures.upgrade_documents(name, codec, **options)
    result: UpgradeResult = follow(partial(_step, pooled), steps)
    for failure in result.failures:
        failure.error.add_note(f"documents that cannot be upgraded: {result.failed_count:,}")
        raise failure.error
    return result


def _within(connection: Any, options: Options) -> PooledConnection:
    """Return the store's connection within a caller's transaction; raise `InvalidOption`."""
    if not isinstance(connection, sa.Connection):
        problem = (
            f"must be op.get_bind(), with a connection to the database, got {shortened(connection)}"
        )
        raise InvalidOption("connection", problem)
    database = named(connection.dialect.name)
    check_driver("connection", connection.dialect, database)
    check_supported(options, database)
    catalogue = Catalogue(catalogue_statements(options.names(), database), caches=False)
    return PooledConnection(connection, SharedSession(connection, catalogue))


def _has_collection(pooled: PooledConnection, name: str) -> bool:
    """Return whether a collection exists; raise `SchemaError` if this version cannot use the store's tables."""
    shared: Any = pooled.connection
    shared.prepare(write=True)
    found = read_revision(shared)
    if found is None:
        return False
    if found != REVISION:
        refuse_unknown(found)
        raise SchemaOutdated(
            f"the store's tables are at schema {found}, this version of collections_store needs "
            f"{REVISION}: run `collections-store db upgrade` before this migration",
            found=found,
            expected=REVISION,
        )
    shared.catalogue.note_tables()
    return read_entry(shared, name) is not None


def _step(pooled: PooledConnection, step: Any) -> Any:
    match step:
        case Pause(seconds):
            return time.sleep(seconds)
        case CallFunction(function, argument):
            return function(argument)
    return run_within(pooled, step)


def head() -> str | None:
    """Return the newest revision of the migrations."""
    return ScriptDirectory(str(_MIGRATIONS)).get_current_head()


def refuse_unknown(revision: str) -> None:
    """Raise `SchemaTooNew` for a revision unknown to this version's migrations."""
    if revision not in {
        script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()
    }:
        raise SchemaTooNew(
            f"the database is at schema {revision}, which this version of collections_store does not "
            f"know (it knows {REVISION}): upgrade the library; nothing was touched",
            found=revision,
            expected=REVISION,
        )


def bring_up(pooled: PooledConnection, names: Names) -> None:
    """Upgrade the tables of a connection, unless another process was faster."""
    connection = pooled.connection
    owned = isinstance(connection, DriverSession)  # alembic leaves the transaction of `sa` alone
    with pooled.sa.begin() if owned else connection.transaction(write=True):
        if isinstance(connection, DriverSession):
            # no snapshot: through a pooler, the settings would take it before the lock
            connection.begin(write=True, snapshot=False)
        lock = connection.database.transactions.lock_schema(connection.store.revisions)
        if lock is not None:
            connection.command(lock)
        if read_revision(connection) == REVISION:
            return
        config = _config(names)
        config.attributes["connection"] = pooled.sa
        command.upgrade(config, "head")


def _upgrade(pooled: PooledConnection, names: Names) -> str | None:
    """Upgrade a database; return the revision before."""
    before = read_revision(pooled.connection) or create_or_find(pooled.connection)
    if before not in {None, REVISION}:
        refuse_unknown(str(before))
        bring_up(pooled, names)
    return before


def _check(pooled: PooledConnection, names: Names) -> list[str]:
    found = read_revision(pooled.connection)
    if found is None:
        return [f"there are no tables of this library, this version needs schema {REVISION}"]
    if found != REVISION:
        return [f"the database is at schema {found}, this version needs {REVISION}"]
    return list(_differences(pooled, names))


def _sql(pooled: PooledConnection, names: Names) -> str:
    store, output = pooled.connection.store, StringIO()
    found, database = read_revision(pooled.connection), store.database
    if found == REVISION:
        return ""
    if found is not None:
        refuse_unknown(found)
    elif names.schema is not None:
        output.writelines(f"{statement};\n\n" for statement in store.create_schema())
    config = _config(names)
    tables = _tables(pooled) if found else []
    config.attributes.update(
        output=output, tables=tables, dialect=database.name, database=pooled.sa
    )
    command.upgrade(config, f"{found or 'base'}:head", sql=True)
    if not found:
        output.writelines(f"{statement};\n\n" for statement in store.place_all())
    return output.getvalue()


def _differences(pooled: PooledConnection, names: Names) -> Iterator[str]:
    store = pooled.connection.store
    if names.schema == pooled.sa.dialect.default_schema_name:
        names = replace(names, schema=None)  # as alembic names it
    models = sa.MetaData(schema=names.schema)
    catalogue_table(names, store.database).to_metadata(models)
    entries: list[Any] = []
    with suppress(*store.database.errors.types()):  # the catalogue may be what differs
        entries = pooled.connection.rows(store.listing)
    for name, physical, _, text in entries:
        entry = read_options(name, text)
        store.documents(physical, entry).table.to_metadata(models)
        if entry.feed is not None:
            feed_table(
                entry.feed.physical, names, store.dialect_of(distributed=entry.distributed)
            ).to_metadata(models)
    wanted = {table.name for table in models.tables.values()}

    def concerns(name: str | None, kind: str, parents: Any) -> bool:  # noqa: ARG001
        if kind == "schema":
            return name == names.schema
        if kind == "index":  # the catalogue lists them, the models do not
            return False
        return kind != "table" or name in wanted

    options = {
        "include_name": concerns,
        "include_schemas": names.schema is not None,
        "compare_type": True,
    }
    context = MigrationContext.configure(pooled.sa, opts=options)
    with warnings.catch_warnings():
        # SQLAlchemy does not reflect indexes over expressions
        warnings.simplefilter("ignore", sa.exc.SAWarning)
        differences = compare_metadata(context, models)
    for difference in differences:
        yield f"models and tables differ: {difference}"


def _tables(pooled: PooledConnection) -> list[str]:
    return [table for (table,) in pooled.connection.rows(pooled.connection.store.tables)]


def _read(url: str | sa.URL, options: Options, work: Callable[[PooledConnection, Names], T]) -> T:
    """Call a function that only reads, on a connection. A missing file counts as empty, and is not created."""
    normal = _normal(url)
    path = named(normal.get_backend_name()).urls.file_of(normal)
    if path is not None and not Path(path).exists():
        normal = sa.URL.create(normal.drivername)  # in memory
    return _run(normal, options, work)


def _run(url: sa.URL, options: Options, work: Callable[[PooledConnection, Names], T]) -> T:
    return run_apart(url, options, lambda pooled: work(pooled, options.names()))


def _normal(url: str | sa.URL) -> sa.URL:
    parsed = read_url(url)
    return named(parsed.get_backend_name()).urls.normal_url(parsed)


def _config(names: Names) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes.update(prefix=names.prefix, schema=names.schema)
    return config
