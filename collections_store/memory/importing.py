"""What other programs keep under keys in SQLite files of their own, into a memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import date, datetime, time
from typing import Any, Final

from ..errors import InvalidBody, InvalidOption
from ..foreign import File, rows_of, tables_of
from .memory import Memory

_OPSDROID: Final[dict[str, Callable[..., Any]]] = {
    "datetime": datetime,
    "date": date,
    "time": time,
}
"""What opsdroid writes as an object with its class's name in `__class__`, and its fields beside that."""
_KDEPS: Final[dict[str, str]] = {"items": "id", "records": "id", "memory": "key"}
"""The tables in which kdeps keeps memories, the oldest first, each with the column of the keys."""


def import_opsdroid(memory: Memory, file: File, *, table: str = "opsdroid") -> int:
    """Copy what opsdroid's own SQLite database holds into a memory, in one transaction; returns how many values.

    Its dates, times and datetimes come as such. What is under the same key in the memory is overwritten; the file
    stays as it is. Raises `DatabaseUnavailable` where there is no such file, `InvalidOption` where that has no
    such table, and `InvalidBody` where a row holds no JSON.

    >>> with Store("sqlite://") as store:
    ...     import_opsdroid(store.memory("opsdroid"), "sqlite.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'sqlite.db'
    """
    _check_table(file, table, {"key", "data"})
    rows = rows_of(file, table, "key", "data")
    return memory.put_many({key: _opsdroid_value(table, key, data) for key, data in rows})


def import_kdeps(memory: Memory, file: File) -> int:
    """Copy the memory that kdeps keeps in an SQLite file into a memory, in one transaction; returns how many values.

    Which version of kdeps wrote it is seen from its table: `items` (0.2 to 0.4), `records` (0.5 to 0.6), or `memory`
    (from 1.9 on). Of several, the newest one has the value of a key. Raises as `import_opsdroid` does, and
    `InvalidBody` where a row holds no text.

    >>> with Store("sqlite://") as store:
    ...     import_kdeps(store.memory("kdeps"), "memory.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'memory.db'
    """
    tables = tables_of(file)
    found = [each for each in _KDEPS if {_KDEPS[each], "value"} <= tables.get(each, frozenset())]
    if not found:
        wanted = ", ".join(f"{table} ({key}, value)" for table, key in _KDEPS.items())
        raise _no_table(file, f"none of the tables {wanted}", tables)
    values: dict[str, Any] = {}
    for table in found:
        for key, data in rows_of(file, table, _KDEPS[table], "value"):
            text = _text(table, key, data)
            values[key] = _kdeps_value(text) if table == "memory" else text
    return memory.put_many(values)


def _check_table(file: File, table: str, columns: set[str]) -> None:
    tables = tables_of(file)
    if not columns <= tables.get(table, frozenset()):
        wanted = f"no table {table!r} with the columns {', '.join(sorted(columns))}"
        raise _no_table(file, wanted, tables)


def _no_table(file: File, wanted: str, tables: Iterable[str]) -> InvalidOption:
    found = ", ".join(map(repr, sorted(tables))) or "none"
    return InvalidOption("file", f"{str(file)!r} has {wanted}; its tables are: {found}")


def _opsdroid_value(table: str, key: str, data: Any) -> Any:
    try:
        return json.loads(data, object_hook=_opsdroid_object)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidBody(f"{table}.{key}", f"the row holds no JSON: {error}") from error


def _opsdroid_object(json: dict[str, Any]) -> Any:
    """Return what an object stands for: itself, if it is a caller's own that only looks like a date."""
    kind = json.get("__class__")
    if not isinstance(kind, str) or kind not in _OPSDROID:
        return json
    fields = {name: value for name, value in json.items() if name != "__class__"}
    try:
        return _OPSDROID[kind](**fields)
    except (TypeError, ValueError):
        return json


def _text(table: str, key: str, data: Any) -> str:
    """Return text, also where it was written as bytes; raises `InvalidBody`."""
    try:
        return data if isinstance(data, str) else bytes.decode(data)
    except (TypeError, UnicodeDecodeError) as error:
        raise InvalidBody(f"{table}.{key}", f"the row holds no text: {error}") from error


def _kdeps_value(text: str) -> Any:
    """Return JSON as what it says, and what is none as text, as kdeps does."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
