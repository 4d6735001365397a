"""Which database a command speaks to."""

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
    """The URL, prefix and schema that the options name."""

    url: str = DEFAULT_URL
    prefix: str = "cs_"
    schema: str | None = None

    def to_write(self, **options: Any) -> Store:
        """Return a store, with other options if they are given; an SQLite file comes into being on first use."""
        return Store(self.url, prefix=self.prefix, schema=self.schema, **options)

    def to_read(self) -> Store:
        """Return a store; raises `DatabaseUnavailable` where it would create an SQLite file."""
        store = self.to_write()
        file = _file(self.driver_url())
        if file is not None and not file.exists():
            raise DatabaseUnavailable(
                f"there is no SQLite file {str(file)!r}: name another database with --url or "
                f"{URL_VARIABLE}"
            )
        return store

    def refuse(self, name: str) -> None:
        """Refuse a file that is the database itself, or its log."""
        path = _file(self.driver_url())
        ours = [identity(f"{path}{end}") for end in ("", "-wal", "-shm", "-journal")]
        if path is not None and identity(name) in [each for each in ours if each]:
            raise click.UsageError(f"{shown(name)} is the database itself: name another file")

    def names(self) -> dict[str, Any]:
        """Return the options that the functions of `migrate` take."""
        return {"prefix": self.prefix, "schema": self.schema}

    def driver_url(self) -> sa.URL:
        """Return the URL with the driver that the library uses."""
        url = sa.make_url(self.url)
        return named(url.get_backend_name()).urls.normal_url(url)

    def safe_url(self) -> str:
        """Return the URL without its passwords."""
        return safe_url(sa.make_url(self.url))


def _file(url: sa.URL) -> Path | None:
    """Return the file that a store would open; None: it opens none."""
    path = named(url.get_backend_name()).urls.file_of(url)
    return None if path is None else Path(path)


def require(store: Store, name: str) -> Collection:
    """Return a collection that exists; looks at the catalogue only if it seems empty."""
    collection = store.get_sync_collection(name)
    if not collection.list(limit=1) and name not in {info.name for info in store.collections()}:
        raise Failure(f"there is no collection {name!r}", Exit.NO)
    return collection


def _take(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Keep an option's value; a command's own options are parsed after those of the program."""
    target = ctx.ensure_object(Target)
    if value is not None and parameter.name is not None:
        setattr(target, parameter.name, value)


def program_options(command: F) -> F:
    """Give the program the options that choose a database."""
    url = click.option(
        "--url",
        envvar=URL_VARIABLE,
        metavar="URL",
        expose_value=False,
        callback=_take,
        help="The database: sqlite:///file.db or postgresql://user:password@host/database. "
        f"Without it {URL_VARIABLE}, or else {DEFAULT_URL} in the current folder.",
    )
    return url(_names(command))


def database_options(command: F) -> F:
    """Give a command the same options, for those who write them behind it."""
    url = click.option(
        "--url", metavar="URL", expose_value=False, callback=_take, help="The database."
    )
    return url(_names(command))


def _names(command: F) -> F:
    schema = click.option(
        "--schema",
        metavar="NAME",
        expose_value=False,
        callback=_take,
        help="The PostgreSQL schema the tables are in.",
    )
    prefix = click.option(
        "--prefix",
        metavar="TEXT",
        expose_value=False,
        callback=_take,
        help="What the tables' names begin with, instead of cs_.",
    )
    return prefix(schema(command))
