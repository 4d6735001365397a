"""What a filter document is made of, seen from outside: which documents hold operators, and how deep it
is, found out without recursion: what reads it is recursive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..errors import InvalidFilter

MAX_LEVELS: Final = 100
"""Documents within documents, those of operators included, values not: MongoDB's limit."""


def check_nesting(document: Any) -> None:
    """Raise `InvalidFilter` if there are more levels."""
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_LEVELS:
            raise InvalidFilter("", f"it is nested more than {MAX_LEVELS} levels deep")
        level = [inner for each in level for inner in _within(each)]


def _within(document: Any) -> Iterator[Any]:
    """Yield the documents of which a filter or a document of operators is made."""
    if not isinstance(document, Mapping):
        return
    for key, value in document.items():
        if key in {"$and", "$or", "$nor", "$all"}:
            yield from value if isinstance(value, list | tuple) else ()
        elif key in {"$not", "$elemMatch"} or holds_operators(value):
            yield value


def holds_operators(value: Any) -> bool:
    """MongoDB's rule: a document whose first key starts with `$` holds operators."""
    return isinstance(value, Mapping) and first_key(value).startswith("$")


def first_key(document: Mapping[Any, Any]) -> str:
    """Return the first key of a document if it is text: a `Path` names a field, whatever is in it."""
    first = next(iter(document), "")
    return first if isinstance(first, str) else ""
