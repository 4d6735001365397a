"""What AEA's own SQLite backend wrote, into collections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from ... import InvalidBody, InvalidOption, Store
from ...foreign import File, Foreign, read
from .encoding import encoded, is_name, name_of

_COLUMNS: Final = ("object_id", "object_body")


def import_aea(store: Store, file: File) -> dict[str, int]:
    """Copy the collections of an SQLite file that AEA wrote into a store, in one transaction; returns how many objects of
    each.

    What is under the same ids is overwritten; the file stays as it is. It brings bodies that are numbers, which AEA
    writes and cannot read: as SQLite has them, which took 12.0 for 12, and what is beyond 64 bit for a float (within an object
    numbers are what they were). Objects without an id, which AEA finds no more, are left out. Raises `DatabaseUnavailable` where
    there is no such file, `InvalidOption` where AEA did not write it, and `InvalidBody` where an object is no JSON.

    >>> with Store("sqlite://") as store:
    ...     import_aea(store, "agent.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'agent.db'
    """
    objects = read(file, lambda foreign: _read(foreign, file))
    with store.transaction() as tx:
        for name, some in objects.items():
            tx[name_of(name)].put_many(some, atomic=True)
    return {name: len(some) for name, some in objects.items()}


def _read(foreign: Foreign, file: File) -> dict[str, list[tuple[str, Any]]]:
    tables = foreign.tables()
    found = [each for each in tables if is_name(each) and foreign.columns(each) == set(_COLUMNS)]
    if not found:
        names = ", ".join(map(repr, sorted(tables))) or "none"
        problem = f"{str(file)!r} has no tables of AEA's; its tables are: {names}"
        raise InvalidOption("file", problem)
    return {name: list(_objects(foreign, name)) for name in found}


def _objects(foreign: Foreign, table: str) -> Iterator[tuple[str, Any]]:
    for id, text in foreign.rows(table, *_COLUMNS):
        if id is not None:
            yield str(id), encoded(_body(table, id, text))


def _body(table: str, id: str, text: Any) -> Any:
    """Return a body: SQLite took for a number what looks like one."""
    if isinstance(text, int | float):
        return text
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidBody(f"{table}.{id}", f"the object is no JSON: {error}") from error
