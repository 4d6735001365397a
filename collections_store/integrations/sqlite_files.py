"""SQLite files of other programs: they are read, and never written to.

A file that this process has open, such as a store's own, is read by SQLite only: to open and close it otherwise would drop
the locks that SQLite has on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from ..engine.database_file import is_open_here, opening, refuse
from ..engine.executor import translated
from ..engine.workers import working
from ..errors import CollectionsStoreError, DatabaseError, DatabaseUnavailable
from ..operations.maintenance import HoldStill, ReadForeign
from ..sql.dialects import named
from ..sql.dialects.protocols import Database

File: TypeAlias = str | os.PathLike[str]
T = TypeVar("T")

_DATABASE: Final[Database] = named("sqlite")
_MODES: Final = slice(18, 20)
_WAL: Final = b"\x02\x02"
"""What a file's header has there if a log is kept beside the file."""
_SHARED: Final = {"mode": "ro"}
_OURS: Final = {"mode": "rw"}
_UNTOUCHED: Final = {"immutable": "1"}
"""As one says that nobody writes meanwhile."""


class Foreign:
    """A file, as it is at one moment."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return sa.inspect(self._connection).get_table_names()

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; none where there is no such table."""
        if table not in self.tables():
            return frozenset()
        columns = sa.inspect(self._connection).get_columns(table)
        return frozenset(each["name"] for each in columns)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return all rows of a table, reduced to some columns."""
        return ReadForeign(table, columns)(self._connection)


def read(file: File, reader: Callable[[Foreign], T]) -> T:
    """Return what a function reads of a file, which is of one moment: should another program open the file meanwhile,
    it is called once more. A file whose program was killed as it wrote has a journal, by which SQLite puts the file right:
    that of a copy, for it is not ours. Raises `DatabaseUnavailable` where there is no such file, and other `DatabaseError`s.
    """
    with working():
        return _read(file, Path(file).resolve(), reader)


def _read(file: File, path: Path, reader: Callable[[Foreign], T]) -> T:
    state = _state(path)
    if (
        _keeps_log(path) and not state[-1]
    ):  # any reader would leave a log there, or fail where it may not
        try:
            with _opened(file, path, _UNTOUCHED) as foreign:
                result = reader(foreign)
        except CollectionsStoreError:
            if _state(path) == state:
                raise
        else:
            if _state(path) == state:
                return result
    try:
        with _opened(file, path, _SHARED) as foreign:
            return reader(foreign)
    except DatabaseError:
        if (journal := _journal(path)) is None or is_open_here(path):
            raise
    with _copied(path, journal) as copy, _opened(file, copy, _OURS) as foreign:
        return reader(foreign)


@contextmanager
def _opened(file: File, path: Path, how: dict[str, str]) -> Iterator[Foreign]:
    if not path.is_file():
        raise DatabaseUnavailable(f"there is no SQLite file {str(file)!r}")
    refuse(str(path))
    query = {"uri": "true", **how}
    url = sa.URL.create(_DATABASE.NAME, database=f"file:{quote(str(path))}", query=query)
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None})
    try:
        with translated(_DATABASE), engine.connect() as connection:
            HoldStill(_DATABASE.begin(write=False))(connection)
            yield Foreign(connection)
    except DatabaseError as error:
        raise type(error)(f"{str(file)!r}: {error}") from error


def _keeps_log(path: Path) -> bool:
    """Is the file in WAL mode, and not open here? Of one that cannot be read, SQLite tells."""
    with opening(), suppress(OSError):
        if not is_open_here(path):
            with path.open("rb") as file:
                return file.read(_MODES.stop)[_MODES] == _WAL
    return False


def _state(path: Path) -> tuple[object, ...]:
    """Return what is another when a program opened the file, or wrote to it and closed it."""
    try:
        now = path.stat()
    except OSError:
        return (None, False)
    return now.st_ino, now.st_size, now.st_mtime_ns, Path(f"{path}-wal").exists()


def _journal(path: Path) -> Path | None:
    """Return what a program left that was ended in the middle of writing, if it did."""
    journal = path.with_name(f"{path.name}-journal")
    return journal if journal.is_file() and journal.stat().st_size else None


@contextmanager
def _copied(*files: Path) -> Iterator[Path]:
    """Give a copy of the first of some files, with the others beside it."""
    with TemporaryDirectory() as folder:
        with opening():
            if is_open_here(files[0]):
                raise DatabaseUnavailable(
                    f"{str(files[0])!r}: a store has just opened the file: read it again"
                )
            for each in files:
                copyfile(each, Path(folder, each.name))
        yield Path(folder, files[0].name)
