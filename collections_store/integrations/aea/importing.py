"""What AEA's own SQLite backend wrote, into collections."""

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
    """Copy the collections of an SQLite file that AEA wrote into a store, in one transaction; returns how many objects of
    each.

    What is under the same ids is overwritten; the file stays as it is. It brings bodies that are numbers, which AEA
    writes and cannot read: as SQLite has them, which took 12.0 for 12, and what is beyond 64 bit for a float (within an object
    numbers are what they were). Objects without an id, which AEA finds no more, are left out. Raises `DatabaseUnavailable` where
    there is no such file, `InvalidOption` where AEA did not write it, and `InvalidBody` where an object is no JSON, or too large. `on_error` is called
    with the error of each such object, which is then left out; without it the first one is raised, and nothing is imported.

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
        problem = f"{str(file)!r} has no tables of AEA's; its tables are: {names}"
        raise InvalidOption("file", problem)
    return {name: foreign.rows(name, *_COLUMNS) for name in found}


def _objects(
    table: str,
    rows: Iterable[tuple[Any, ...]],
    check: Callable[[Any], object] | None,
    on_error: Callable[[InvalidBody], object] | None,
) -> Iterator[tuple[str, Any]]:
    """Yield the objects of rows, but for those that `on_error` is told of."""
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
    """Return a body: SQLite took for a number what looks like one."""
    if isinstance(text, int | float):
        return text
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidBody(f"{table}.{id}", f"the object is no JSON: {error}") from error
