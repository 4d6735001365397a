"""SQLite files of other programs: they are read, and never written to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from . import dialects
from .errors import DatabaseUnavailable
from .execution import translated
from .operations import ReadForeign

File: TypeAlias = str | os.PathLike[str]

_SQLITE: Final = "sqlite"


def tables_of(file: File) -> dict[str, frozenset[str]]:
    """Return the tables of a file, each with its columns; raises `DatabaseUnavailable`."""
    with _reading(file) as connection:
        looking = sa.inspect(connection)
        found = {name: looking.get_columns(name) for name in looking.get_table_names()}
    return {name: frozenset(each["name"] for each in columns) for name, columns in found.items()}


def rows_of(file: File, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return all rows of a table, reduced to some columns."""
    with _reading(file) as connection:
        return ReadForeign(table, columns)(connection)


@contextmanager
def _reading(file: File) -> Iterator[sa.Connection]:
    path = Path(file).resolve()
    if not path.is_file():
        raise DatabaseUnavailable(f"there is no SQLite file {str(file)!r}")
    with translated(dialects.named(_SQLITE)), _at_rest(path) as (name, mode):
        how = {"mode": mode, "uri": "true"}
        url = sa.URL.create(_SQLITE, database=f"file:{quote(name)}", query=how)
        with sa.create_engine(url, poolclass=NullPool).connect() as connection:
            yield connection


@contextmanager
def _at_rest(path: Path) -> Iterator[tuple[str, str]]:
    """Give the name of a file that can be read, and how. One whose program was killed as it wrote has a journal, by which
    SQLite puts the file right: that of a copy, for it is not ours.
    """
    journal = path.with_name(f"{path.name}-journal")
    if not journal.is_file() or not journal.stat().st_size:
        yield str(path), "ro"
        return
    with TemporaryDirectory() as folder:
        for each in (path, journal):
            copyfile(each, Path(folder, each.name))
        yield str(Path(folder, path.name)), "rw"
