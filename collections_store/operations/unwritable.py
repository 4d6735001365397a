"""Indexes under a collation whose keys this Python cannot make.

The keys come from ICU, or from the tables of Unicode in Python. Keys of another version would be others for the same
strings, so that an index would lose documents: a write is refused, and no query reads by the index.
"""

from __future__ import annotations

from typing import Any

from ..errors import MissingExtra, SchemaOutdated
from ..expressions.collation import KeysUnavailable, stored_key
from ..query.index import Index
from .collections import read_entry
from .operation import Operation
from .session import Session


def unwritable(
    session: Session, operation: Operation[Any], error: KeysUnavailable
) -> MissingExtra | SchemaOutdated:
    """Return the error of an operation for which the keys of an index were not made."""
    for name in operation.collections:
        entry = read_entry(session, name)
        for index in () if entry is None else entry[1].indexes:
            if index.key_name == error.name:
                return _error(f"the index {index.name!r} of {name!r}", error)
    return _error("an index", error)


def problem_of(index: Index) -> str | None:
    """Return why this Python cannot write into a collection with an index; None: it can."""
    try:
        if index.key_name:
            stored_key(index.key_name)
    except KeysUnavailable as error:
        return str(_error(f"the index {index.name!r}", error))
    return None


def _error(index: str, error: KeysUnavailable) -> MissingExtra | SchemaOutdated:
    if error.found is None:
        problem = f"{index} has a collation, and each write makes its keys"
        return MissingExtra("PyICU", "collation", problem)
    message = (
        f"{index} has keys of {error.version}, and this Python makes those of {error.found}: until the index is dropped and "
        "created again, no query uses it, and nobody writes"
    )
    return SchemaOutdated(message, found=error.version, expected=error.found)
