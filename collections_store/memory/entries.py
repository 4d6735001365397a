"""What a memory answers with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from ..change import Change
from ..document import Document
from ..errors import InvalidOption, shortened
from .keys import Space
from .values import from_json, to_json

ABSENT: Final = object()
"""Where there is no value, as opposed to None, which is one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value under its key; unpacks as the two of them. `expires_at` is in UTC; None: never."""

    key: str
    value: Any
    version: int = 1
    expires_at: datetime | None = None

    def __iter__(self) -> Iterator[Any]:
        yield self.key
        yield self.value


def entry_of(space: Space, document: Document) -> Entry:
    """Return an object of a namespace as its memory shows it."""
    value = from_json(document.body)
    return Entry(space.key_of(document.id), value, document.version, document.expires_at)


def left(document: Document | None) -> float | None:
    """Return for how many seconds an object will live; None: there is none."""
    if document is None:
        return None
    if document.expires_at is None:
        return math.inf
    return max(0.0, (document.expires_at - datetime.now(UTC)).total_seconds())


def adding(key: str, by: Any) -> Callable[[Any], Any]:
    """Return the function that adds to a number; raises `InvalidOption` for what is none."""
    _check_number("by", by)

    def add(value: Any) -> Any:
        _check_number(key, value)
        return value + by

    return add


def as_json(function: Any) -> Callable[[Any], Any]:
    """Return a function of values as one of JSON; raises `InvalidOption` for what cannot be called."""
    if not callable(function):
        raise InvalidOption("function", f"{shortened(function)} cannot be called")
    return lambda json: to_json(function(from_json(json)))


def read_limit(limit: Any) -> int:
    """Return a number of entries; raises `InvalidOption`."""
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    raise InvalidOption("limit", f"{shortened(limit)} is not a whole number from 1 on")


def seen_by(space: Space) -> Callable[[Change], Change]:
    """Return what shows a recorded change as a namespace's memory has it."""

    def seen(change: Change) -> Change:
        body, before = from_json(change.body), from_json(change.before)
        return replace(change, id=space.key_of(change.id), body=body, before=before)

    return seen


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(name, f"{shortened(value)} is no number to add to")
