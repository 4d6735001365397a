"""What other programs keep under keys in SQLite files of their own, into a memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, time
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..errors import CollectionsStoreError, InvalidBody, InvalidOption
from ..integrations.sqlite_files import File, Foreign, read
from .keys import bodies_of
from .keys import within as within_key
from .memory import Memory

_Tables: TypeAlias = dict[str, tuple[str, str]]
_Rows: TypeAlias = list[tuple[Any, ...]]
OnError: TypeAlias = Callable[[CollectionsStoreError], object]

_OPSDROID: Final[dict[str, Callable[..., Any]]] = {
    "datetime": datetime,
    "date": date,
    "time": time,
}
"""What opsdroid writes as an object with its class's name in `__class__`, and its fields beside that."""
_KDEPS: Final[_Tables] = {
    "items": ("id", "value"),
    "records": ("id", "value"),
    "memory": ("key", "value"),
}
"""The tables in which kdeps keeps memories, the oldest first, each with the columns of the keys and of the values."""


def import_opsdroid(
    memory: Memory, file: File, *, table: str = "opsdroid", on_error: OnError | None = None
) -> int:
    """Copy what opsdroid's own SQLite database holds into a memory, in one transaction; returns how many values.

    Its dates, times and datetimes come as such. What is under the same key in the memory is overwritten; the file
    stays as it is. Values under None, which opsdroid finds no more, are left out. Raises `DatabaseUnavailable` where there
    is no such file, another `DatabaseError` where that is damaged or locked, `InvalidOption` where it has no such
    table, or a key that cannot be one of a memory, and `InvalidBody` where a row holds no JSON. `on_error` is called with
    the error of each row that cannot be imported, which is then left out; without it the first one is raised, and nothing is
    imported.

    >>> with Store("sqlite://") as store:
    ...     import_opsdroid(store.memory("opsdroid"), "sqlite.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'sqlite.db'
    """
    _check_memory(memory)
    [(_, rows)] = read(file, lambda foreign: _read(foreign, file, {table: ("key", "data")}))
    return memory.put_many(_values(memory, partial(_opsdroid_value, table), rows, on_error))


def import_kdeps(memory: Memory, file: File, *, on_error: OnError | None = None) -> int:
    """Copy the memory that kdeps keeps in an SQLite file into a memory, in one transaction; returns how many values.

    Which version of kdeps wrote it is seen from its table: `items` (0.2 to 0.4), `records` (0.5 to 0.6), or `memory`
    (from 1.9 on). Up to 0.6 each agent had a file of its own, `<agent>_memory.db`: what is in one that is called so goes to the
    namespace of that agent in the memory. Of several tables, the newest one has the value of a key. Raises, and calls
    `on_error`, as `import_opsdroid` does, and `InvalidBody` where a row holds no text.

    >>> with Store("sqlite://") as store:
    ...     import_kdeps(store.memory("kdeps"), "memory.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'memory.db'
    """
    _check_memory(memory)
    agent = _agent_of(file)
    old = memory if agent is None else memory.namespace(agent)
    values: dict[bool, dict[str, Any]] = {True: {}, False: {}}
    for table, rows in read(file, lambda foreign: _read(foreign, file, _KDEPS)):
        is_old = agent is not None and table != "memory"
        where = old if is_old else memory
        values[is_old] |= _values(where, partial(_kdeps_value, table), rows, on_error)
    with memory.transaction() as within:
        count = within.put_many(values[False])
        return count + (within.namespace(agent).put_many(values[True]) if agent else 0)


def _agent_of(file: File) -> str | None:
    """Return the agent whose memory a file of kdeps up to 0.6 is, by its name."""
    name, suffix = Path(file).stem, "_memory"
    return name.removesuffix(suffix) or None if name.endswith(suffix) else None


def _values(
    memory: Memory, read_row: Callable[[Any, Any], Any], rows: _Rows, on_error: OnError | None
) -> dict[str, Any]:
    """Return the values of rows under their keys, but for those that `on_error` is told of."""
    values = {}
    for key, data in rows:
        try:
            values[key] = value = read_row(key, data)
            if on_error is not None:
                for body in bodies_of(memory._space, {key: value}, memory._scope._codec).values():
                    with within_key(key):
                        memory._scope._codec.encode(body)
        except CollectionsStoreError as error:
            if on_error is None:
                raise
            values.pop(key, None)
            on_error(error)
    return values


def _check_memory(memory: object) -> None:
    if not isinstance(memory, Memory):
        problem = f"{type(memory).__name__} is no Memory, which `Store.memory` gives"
        raise InvalidOption("memory", problem)


def _read(foreign: Foreign, file: File, wanted: _Tables) -> list[tuple[str, _Rows]]:
    """Return the rows that have a key of those tables that there are; raises `InvalidOption` if it is none."""
    found = [each for each in wanted if foreign.columns(each) >= set(wanted[each])]
    if not found:
        tables = ", ".join(map(repr, sorted(foreign.tables()))) or "none"
        each = " and no ".join(f"{table!r} ({', '.join(wanted[table])})" for table in wanted)
        raise InvalidOption("file", f"{str(file)!r} has no table {each}; its tables are: {tables}")
    return [(table, _with_key(foreign.rows(table, *wanted[table]))) for table in found]


def _with_key(rows: _Rows) -> _Rows:
    return [row for row in rows if row[0] is not None]


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


def _kdeps_value(table: str, key: str, data: Any) -> Any:
    """Return text, and from 1.9 on JSON as what it says, and what is none as text, as kdeps does."""
    text = _text(table, key, data)
    if table != "memory":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
