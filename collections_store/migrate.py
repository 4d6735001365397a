"""Alembic, driven from Python: bring a database to the schema of this version, or compare the two.

The history is one line, in `migrations/versions` of a checkout and within the package of a wheel.
An upgrade runs in one transaction, on the connection that found the need for it, and keeps other
processes out from before the first look until the commit: two that meet never both migrate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from . import dialects
from .errors import SchemaTooNew
from .operations import Catalogue, CreateStore, DriverConnection, ReadRevision
from .options import Options, read_url
from .pool import Lease, open_driver_lease
from .schema import REVISION, Names, catalogue_table, documents_table
from .statements import CatalogueStatements, compiled

_PACKAGE: Final = Path(__file__).parent
_PATIENCE: Final = 600.0
"""Seconds to wait for another process that migrates."""


def current(url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None) -> str | None:
    """Return the revision that a database is at; None: it has no tables of this library."""
    with _lease(url, Options(prefix=prefix, schema=schema)) as lease:
        return ReadRevision()(lease.connection)


def upgrade(
    url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None
) -> tuple[str | None, str]:
    """Bring a database to this version's schema; returns the revision before and after.

    A fresh database is created ready. Raises `SchemaTooNew`.
    """
    options = Options(prefix=prefix, schema=schema, busy_timeout=_PATIENCE)
    with _lease(url, options) as lease:
        before = ReadRevision()(lease.connection)
        if before is None:
            with lease.connection.transaction(write=True):
                CreateStore()(lease.connection)
        elif before != REVISION:
            refuse_unknown(before)
            bring_up(lease, options.names())
        return before, REVISION


def check(url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None) -> list[str]:
    """Return, in a sentence each, how a database's tables differ from this version's models."""
    options = Options(prefix=prefix, schema=schema)
    with _lease(url, options) as lease:
        found = ReadRevision()(lease.connection)
        if found != REVISION:
            return [f"the database is at schema {found}, this version needs {REVISION}"]
        return list(_differences(lease, options.names()))


def sql(url: str | sa.URL, *, prefix: str = "cs_", schema: str | None = None) -> str:
    """Return the SQL that `upgrade` would run on a database; empty if there is nothing to do."""
    options = Options(prefix=prefix, schema=schema)
    with _lease(url, options) as lease:
        found = ReadRevision()(lease.connection)
        if found == REVISION:
            return ""
        if found is not None:
            refuse_unknown(found)
        output = StringIO()
        config = _config(options.names())
        tables = _tables(lease) if found else []
        dialect = lease.connection.database.NAME
        config.attributes.update(output=output, tables=tables, dialect=dialect)
        if found is None and schema is not None:
            words = sa.schema.CreateSchema(schema, if_not_exists=True)
            output.write(f"{compiled(words, lease.connection.database)};\n\n")
        command.upgrade(config, f"{found or 'base'}:head", sql=True)
        return output.getvalue()


def is_known(revision: str) -> bool:
    """Tell whether this version knows how to go on from a revision."""
    return revision in {script.revision for script in _scripts().walk_revisions()}


def head() -> str | None:
    """Return the newest revision there is a migration for."""
    return _scripts().get_current_head()


def bring_up(lease: Lease, names: Names) -> None:
    """Upgrade the tables a connection leads to, unless another process was faster."""
    connection = lease.connection
    if not isinstance(connection, DriverConnection):
        with connection.transaction(write=True):
            _upgrade_here(lease, names)
        return
    with lease.sa.begin():  # so that alembic leaves the transaction alone
        connection.begin(write=True)
        _upgrade_here(lease, names)


def _upgrade_here(lease: Lease, names: Names) -> None:
    lock = lease.connection.database.lock_table(lease.connection.store.revisions)
    if lock is not None:
        lease.connection.say(lock)
    if ReadRevision()(lease.connection) == REVISION:
        return
    config = _config(names)
    config.attributes["connection"] = lease.sa
    command.upgrade(config, "head")


def refuse_unknown(revision: str) -> None:
    """Raise `SchemaTooNew` unless there is a way on from a revision."""
    if not is_known(revision):
        raise SchemaTooNew(
            f"the database is at schema {revision}, which this version of collections_store does not "
            f"know (it knows {REVISION}): upgrade the library; nothing was touched",
            found=revision,
            expected=REVISION,
        )


def _differences(lease: Lease, names: Names) -> Iterator[str]:
    database, tables = lease.connection.database, _tables(lease)
    models = sa.MetaData(schema=names.schema)
    for table in (catalogue_table(names), *(documents_table(t, names, database) for t in tables)):
        table.to_metadata(models)
    wanted = {table.name for table in models.tables.values()}

    def concerns(name: str | None, kind: str, parents: Any) -> bool:  # noqa: ARG001
        if kind == "schema":
            return name == names.schema
        return kind != "table" or name in wanted

    options = {
        "include_name": concerns,
        "include_schemas": names.schema is not None,
        "compare_type": True,
    }
    context = MigrationContext.configure(lease.sa, opts=options)
    for difference in compare_metadata(context, models):
        yield f"models and tables differ: {difference}"


def _tables(lease: Lease) -> list[str]:
    return [row[1] for row in lease.connection.rows(lease.connection.store.listing)]


@contextmanager
def _lease(url: str | sa.URL, options: Options) -> Iterator[Lease]:
    parsed = read_url(url)
    database = dialects.named(parsed.get_backend_name())
    options.check_for(database)
    arguments = database.engine_arguments(busy_timeout=options.busy_timeout)
    engine = sa.create_engine(database.normal_url(parsed), **arguments)
    catalogue = Catalogue(CatalogueStatements(options.names(), database))
    try:
        lease = open_driver_lease(engine, catalogue, options, options.busy_timeout)
        try:
            yield lease
        except database.errors() as error:
            raise database.translate(error) from error
        finally:
            lease.close()
    finally:
        engine.dispose()


def _config(names: Names) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    config.attributes.update(prefix=names.prefix, schema=names.schema)
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_folder()))


def _folder() -> Path:
    """Return the migrations: within the package when installed, beside it in a checkout."""
    installed = _PACKAGE / "migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations"
