"""Readers of other programs' SQLite files, on the standard library's sqlite3, and imports of their memories.

1. A file is read and never written. A transaction reads all rows, as of the same moment.
2. Only SQLite opens a file that this process has open, such as a store's own: closing any other descriptor would drop
   SQLite's locks of the file.
3. A file in WAL mode without a log is opened as immutable, since any other reader would create a log, or fail without
   the right to do so. If another program opens the file meanwhile, the file is read again.
4. A file whose program was killed while writing has a journal, with which SQLite repairs a copy.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import date, datetime, time
from functools import partial
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from ..engine.database_file import is_open_here, opening, refuse
from ..engine.executor import translated
from ..engine.workers import working
from ..errors import (
    CollectionsStoreError,
    DatabaseError,
    DatabaseUnavailable,
    InvalidBody,
    InvalidOption,
)
from ..memory import Memory
from ..sql.dialects import named

File: TypeAlias = str | os.PathLike[str]
Rows: TypeAlias = list[tuple[Any, ...]]
OnError: TypeAlias = Callable[[CollectionsStoreError], object]
T = TypeVar("T")

BUSY_TIMEOUT: Final = 5.0
"""Seconds to wait for a file that another program has locked."""
_MODES: Final = slice(18, 20)
_WAL: Final = b"\x02\x02"
"""The bytes `_MODES` of the header of a file in WAL mode."""
_OPSDROID: Final[dict[str, Callable[..., Any]]] = {"datetime": datetime, "date": date, "time": time}
"""The classes that opsdroid writes as an object: the name in `__class__`, and the fields."""
_KDEPS: Final = {"items": ("id", "value"), "records": ("id", "value"), "memory": ("key", "value")}
"""The tables of kdeps' memories, the oldest first, each with the columns of keys and values."""


class ExternalFile:
    """A file, at one moment."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
        return [name for (name,) in self._connection.execute(f"{names} ORDER BY name")]

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; none without a table."""
        names = "SELECT name FROM pragma_table_xinfo(?)"
        return frozenset(name for (name,) in self._connection.execute(names, (table,)))

    def rows(self, table: str, *columns: str) -> Rows:
        """Return some columns of all rows of a table."""
        *names, source = ('"' + name.replace('"', '""') + '"' for name in (*columns, table))
        return self._connection.execute(f"SELECT {', '.join(names)} FROM {source}").fetchall()


def read(file: File, reader: Callable[[ExternalFile], T]) -> T:
    """Return the result of a function that reads a file. The function is called again if another program opened the file
    meanwhile.

    Raises `DatabaseUnavailable` without a file, and other `DatabaseError`s.
    """
    with working():
        return _read(file, Path(file).resolve(), reader)


def _read(file: File, path: Path, reader: Callable[[ExternalFile], T]) -> T:
    if not path.is_file():
        raise DatabaseUnavailable(f"there is no SQLite file {str(file)!r}")
    before = _state(path)
    if _is_wal(path) and not _log(path).exists():
        try:
            with _opened(file, path, "immutable=1") as external:
                result = reader(external)
        except CollectionsStoreError:
            if _state(path) == before:
                raise
        else:
            if _state(path) == before:
                return result
    try:
        with _opened(file, path, "mode=ro") as external:
            return reader(external)
    except DatabaseError:
        journal = path.with_name(f"{path.name}-journal")
        if not journal.is_file() or not journal.stat().st_size or is_open_here(path):
            raise
    with _copied(path, journal) as copy, _opened(file, copy, "mode=rw") as external:
        return reader(external)


@contextmanager
def _opened(file: File, path: Path, mode: str) -> Iterator[ExternalFile]:
    refuse(str(path))
    options: dict[str, Any] = {"timeout": BUSY_TIMEOUT, "isolation_level": None, "uri": True}
    try:
        with (
            translated(named("sqlite")),
            closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", **options)) as connection,
        ):
            connection.execute("BEGIN")
            yield ExternalFile(connection)
    except DatabaseError as error:
        raise type(error)(f"{str(file)!r}: {error}") from error
    except UnicodeDecodeError as error:  # of a name in the schema, which SQLite quotes
        raise DatabaseError(f"{str(file)!r}: text is not UTF-8: the file is damaged") from error


def _is_wal(path: Path) -> bool:
    """Return whether a file that is not open here is in WAL mode; SQLite reports the error of an unreadable file."""
    with opening(), suppress(OSError):
        if not is_open_here(path):
            with path.open("rb") as file:
                return file.read(_MODES.stop)[_MODES] == _WAL
    return False


def _log(path: Path) -> Path:
    return Path(f"{path}-wal")


def _state(path: Path) -> tuple[object, ...]:
    """Return a value that changes when a program opens the file, or writes and closes the file."""
    try:
        now = path.stat()
    except OSError:
        return ()
    return now.st_ino, now.st_size, now.st_mtime_ns, _log(path).exists()


@contextmanager
def _copied(*files: Path) -> Iterator[Path]:
    """Yield a copy of the first file, with copies of the other files beside."""
    with TemporaryDirectory() as folder:
        with opening():
            if is_open_here(files[0]):
                problem = "a store has just opened the file: read it again"
                raise DatabaseUnavailable(f"{str(files[0])!r}: {problem}")
            for each in files:
                copyfile(each, Path(folder, each.name))
        yield Path(folder, files[0].name)


def import_opsdroid(
    memory: Memory, file: File, *, table: str = "opsdroid", on_error: OnError | None = None
) -> int:
    """Copy opsdroid's own SQLite database into a memory, in one transaction; returns the number of values.

    Dates, times and datetimes keep their types. Values under the same keys are overwritten; the file does not
    change. Values under None, which opsdroid cannot find, are omitted. `on_error` is called with the error of each bad
    row, and the row is omitted; without `on_error` the first error is raised and nothing is imported.

    Raises `DatabaseUnavailable` without a file, another `DatabaseError` for a damaged or locked file, `InvalidOption`
    for a missing table or an invalid key, and `InvalidBody` for a row without JSON.

    >>> with Store("sqlite://") as store:
    ...     import_opsdroid(store.memory("opsdroid"), "sqlite.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'sqlite.db'
    """
    _check_memory(memory)
    tables = {table: ("key", "data")}
    [(_, rows)] = read(file, lambda external: _key_values(external, file, tables))
    return memory.put_many(_values(memory, partial(_opsdroid_value, table), rows, on_error))


def import_kdeps(memory: Memory, file: File, *, on_error: OnError | None = None) -> int:
    """Copy the memory in an SQLite file of kdeps into a memory, in one transaction; returns the number of values.

    Tables of all versions are known: `items` (0.2 to 0.4), `records` (0.5 and 0.6) and `memory` (from 1.9 on); the
    newest table decides on a key. Up to 0.6 each agent had a file `<agent>_memory.db`: the values of a file with this
    name are copied into the agent's namespace of the memory. Raises, and calls `on_error`, as `import_opsdroid`
    does, and `InvalidBody` for a row without text.

    >>> with Store("sqlite://") as store:
    ...     import_kdeps(store.memory("kdeps"), "memory.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'memory.db'
    """
    _check_memory(memory)
    name, suffix = Path(file).stem, "_memory"
    agent = name.removesuffix(suffix) if name.endswith(suffix) else ""
    old = memory.namespace(agent) if agent else memory
    values: dict[Memory, dict[str, Any]] = {memory: {}, old: {}}
    for table, rows in read(file, lambda external: _key_values(external, file, _KDEPS)):
        into = memory if table == "memory" else old
        values[into] |= _values(into, partial(_kdeps_value, table), rows, on_error)
    with memory.transaction() as within:
        count = within.put_many(values[memory])
        return count + (within.namespace(agent).put_many(values[old]) if agent else 0)


def _check_memory(memory: object) -> None:
    if not isinstance(memory, Memory):
        problem = f"must be a Memory, from Store.memory(), got {type(memory).__name__}"
        raise InvalidOption("memory", problem)


def _key_values(
    external: ExternalFile, file: File, wanted: dict[str, tuple[str, str]]
) -> list[tuple[str, Rows]]:
    """Return the rows with a key, of the existing wanted tables; raises `InvalidOption` without a table."""
    found = [each for each in wanted if external.columns(each) >= set(wanted[each])]
    if not found:
        tables = ", ".join(map(repr, external.tables())) or "none"
        each = " and no ".join(f"{table!r} ({', '.join(wanted[table])})" for table in wanted)
        raise InvalidOption("file", f"{str(file)!r} has no table {each}; its tables are: {tables}")
    all_rows = ((table, external.rows(table, *wanted[table])) for table in found)
    return [(table, [row for row in rows if row[0] is not None]) for table, rows in all_rows]


def _values(
    memory: Memory, read_row: Callable[[Any, Any], Any], rows: Rows, on_error: OnError | None
) -> dict[str, Any]:
    """Return the values of rows under their keys, without the values reported to `on_error`."""
    values = {}
    for key, data in rows:
        try:
            values[key] = read_row(key, data)
            if on_error is not None:
                memory._procedures.check(key, values[key])
        except CollectionsStoreError as error:
            if on_error is None:
                raise
            values.pop(key, None)
            on_error(error)
    return values


def _opsdroid_value(table: str, key: str, data: Any) -> Any:
    try:
        return json.loads(data, object_hook=_opsdroid_object)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidBody(f"{table}.{key}", f"the row must hold JSON: {error}") from error


def _opsdroid_object(json: dict[str, Any]) -> Any:
    """Return the date or time for an object, or a user's object of the same form."""
    fields = json.copy()
    kind = fields.pop("__class__", None)
    try:
        return _OPSDROID[kind](**fields)
    except (KeyError, TypeError, ValueError):
        return json


def _kdeps_value(table: str, key: str, data: Any) -> Any:
    """Return text; from 1.9 on its JSON value, if it is JSON, as kdeps does."""
    try:
        text = data if isinstance(data, str) else bytes.decode(data)
    except (TypeError, UnicodeDecodeError) as error:
        raise InvalidBody(f"{table}.{key}", f"the row must hold text: {error}") from error
    with suppress(ValueError, RecursionError):
        return json.loads(text) if table == "memory" else text
    return text
