"""Import of files that AEA's own SQLite backend wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ... import InvalidBody, InvalidOption, Store
from ..sqlite_files import File, Foreign, read
from .encoding import encoded, is_name, name_of

_COLUMNS: Final = ("object_id", "object_body")


def import_aea(
    store: Store, file: File, *, on_error: Callable[[InvalidBody], object] | None = None
) -> dict[str, int]:
    """Copy the collections of an SQLite file that AEA wrote into a store, in one transaction; returns the number of
    documents of each.

    Documents with the same ids are overwritten; the file does not change. Bodies that are numbers, which AEA writes and
    cannot read, are imported as SQLite stored them: 12.0 as 12, and beyond 64 bit as a float (numbers within an object are
    exact). Objects without an id, which AEA cannot find, are not imported.

    Raises `DatabaseUnavailable` if there is no such file, `InvalidOption` if AEA did not write it, and `InvalidBody` if an
    object is not JSON, or too large; then nothing is imported. `on_error` is called with each such error instead, and the
    object is skipped.

    >>> with Store("sqlite://") as store:
    ...     import_aea(store, "agent.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'agent.db'
    """
    rows = read(file, lambda foreign: _read(foreign, file))
    check = store._codec.encode if on_error else None
    objects = {name: list(_objects(name, some, check, on_error)) for name, some in rows.items()}
    with store.transaction() as tx:
        for name, some in objects.items():
            tx[name_of(name)].put_many(some, atomic=True)
    return {name: len(some) for name, some in objects.items()}


def _read(foreign: Foreign, file: File) -> dict[str, list[tuple[Any, ...]]]:
    tables = foreign.tables()
    found = [each for each in tables if is_name(each) and foreign.columns(each) == set(_COLUMNS)]
    if not found:
        names = ", ".join(map(repr, sorted(tables))) or "none"
        problem = f"{str(file)!r} must have tables of AEA; its tables are: {names}"
        raise InvalidOption("file", problem)
    return {name: foreign.rows(name, *_COLUMNS) for name in found}


def _objects(
    table: str,
    rows: Iterable[tuple[Any, ...]],
    check: Callable[[Any], object] | None,
    on_error: Callable[[InvalidBody], object] | None,
) -> Iterator[tuple[str, Any]]:
    """Yield the objects of rows, except those with an error for `on_error`."""
    for id, text in rows:
        if id is None:
            continue
        try:
            body = encoded(_body(table, id, text))
            if check is not None:
                check(body)
        except InvalidBody as error:
            if on_error is None:
                raise
            is_named = error.path.startswith(f"{table}.{id}")
            on_error(error if is_named else InvalidBody(f"{table}.{id}", error.problem))
            continue
        yield str(id), body


def _body(table: str, id: str, text: Any) -> Any:
    """Return a body; SQLite stored as a number what looks like one."""
    if isinstance(text, int | float):
        return text
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidBody(f"{table}.{id}", f"the object must be JSON: {error}") from error
