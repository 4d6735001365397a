"""The database that a command uses, and the options that choose it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import sqlalchemy as sa

from .. import Collection, DatabaseUnavailable, Store
from ..engine.database_file import identity
from ..options import safe_url
from ..sql.dialects import named
from .exits import Exit, Failure
from .files import shown

URL_VARIABLE = "COLLECTIONS_STORE_URL"
DEFAULT_URL = "sqlite:///collections.db"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Target:
    """The URL, prefix and schema from the options."""

    url: str = DEFAULT_URL
    prefix: str = "cs_"
    schema: str | None = None

    def to_write(self, **options: Any) -> Store:
        """Return a store, which creates a missing SQLite file on first use."""
        return Store(self.url, prefix=self.prefix, schema=self.schema, **options)

    def to_read(self) -> Store:
        """Return a store; raises `DatabaseUnavailable` if the SQLite file does not exist."""
        store = self.to_write()
        file = self._file()
        if file is not None and not file.exists():
            raise DatabaseUnavailable(
                f"there is no SQLite file {str(file)!r}: name another database with --url or "
                f"{URL_VARIABLE}"
            )
        return store

    def collection(self, store: Store, name: str) -> Collection:
        """Return an existing collection; reads the catalogue only if it seems empty."""
        collection = store.get_sync_collection(name)
        if not collection.list(limit=1) and name not in {info.name for info in store.collections()}:
            raise Failure(f"there is no collection {name!r}", Exit.NO)
        return collection

    def refuse(self, name: str) -> None:
        """Raise `UsageError` if a file is the database itself or its log."""
        path = self._file()
        ours = [identity(f"{path}{end}") for end in ("", "-wal", "-shm", "-journal")]
        if path is not None and identity(name) in [each for each in ours if each]:
            raise click.UsageError(f"{shown(name)} is the database itself: name another file")

    def names(self) -> dict[str, Any]:
        """Return the options of the functions of `migrate`."""
        return {"prefix": self.prefix, "schema": self.schema}

    def driver_url(self) -> sa.URL:
        """Return the URL with the library's driver."""
        url = sa.make_url(self.url)
        return named(url.get_backend_name()).urls.normal_url(url)

    def safe_url(self) -> str:
        """Return the URL without its passwords."""
        return safe_url(sa.make_url(self.url))

    def _file(self) -> Path | None:
        url = self.driver_url()
        path = named(url.get_backend_name()).urls.file_of(url)
        return None if path is None else Path(path)


def _set(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Store an option's value; options of a command override those of the program."""
    target = ctx.ensure_object(Target)
    if value is not None and parameter.name is not None:
        setattr(target, parameter.name, value)


def _database_options(url_help: str, **url: Any) -> Callable[[F], F]:
    def add(command: F) -> F:
        for name, metavar, text, more in (
            ("--prefix", "TEXT", "The prefix of the tables' names, instead of cs_.", {}),
            ("--schema", "NAME", "The PostgreSQL schema of the tables.", {}),
            ("--url", "URL", url_help, url),
        ):
            option = click.option(
                name, metavar=metavar, expose_value=False, callback=_set, help=text, **more
            )
            command = option(command)
        return command

    return add


program_options = _database_options(
    "The database: sqlite:///file.db or postgresql://user:password@host/database. Default: "
    f"{URL_VARIABLE}, or else {DEFAULT_URL} in the current folder.",
    envvar=URL_VARIABLE,
)
"""The options of the program."""
database_options = _database_options("The database.")
"""The same options, written after a command."""


def on_database(command: F) -> F:
    """Add the database options to a command, and pass it its `Target`."""
    return database_options(click.pass_obj(command))  # type: ignore[return-value]
