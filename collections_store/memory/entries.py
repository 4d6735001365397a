"""What a memory answers with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from ..change import Change
from ..codec import Codec
from ..collection import Ttl
from ..document import Document
from ..errors import InvalidOption, shortened
from ..expiry import read_ttl
from ..filter import Filter
from ..operations import FindAndDelete, FindIds, Touch, Work
from ..options import check_flag
from ..procedures import check_function
from ..schema import now
from .keys import Space
from .values import Default, to_json, value_of

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
    key = space.key_of(document.id)
    return Entry(key, value_of(key, document.body), document.version, document.expires_at)


def entries_of(space: Space, bodies: Mapping[str, Any]) -> dict[str, Any]:
    """Return bodies under their ids as values under their keys."""
    pairs = ((space.key_of(id), body) for id, body in bodies.items())
    return {key: value_of(key, body) for key, body in pairs}


@dataclass(frozen=True, slots=True)
class Life:
    """How long what is written in a memory lives unless told otherwise, and whether `with` ends the memory."""

    ttl: Ttl = None
    sliding: bool = False
    ends: bool = False

    def chosen(self, ttl: Ttl) -> Ttl:
        """Return how long a value lives that is written with this `ttl`."""
        return self.ttl if ttl is None else ttl

    def of_session(self, ttl: Ttl, sliding: bool) -> Life:
        """Return that of a session, which without a `ttl` is as what it is in; raises `InvalidOption`."""
        read_ttl(ttl)
        check_flag("sliding", sliding)
        if ttl is None:
            return Life(self.ttl, sliding or self.sliding, ends=True)
        return Life(ttl, sliding, ends=True)

    def check_end(self) -> None:
        """Raise `InvalidOption` for a memory that is there to stay: who takes `with` for a file's would lose it."""
        if not self.ends:
            problem = (
                "it would delete this memory at its end: only session() and request() are used so"
            )
            raise InvalidOption("with", problem)


def left(document: Document | None) -> float | None:
    """Return for how many seconds an object will live; None: there is none."""
    if document is None:
        return None
    if document.expires_us is None:
        return math.inf
    return max(0, document.expires_us - now()) / 1_000_000


def touching(collection: str, ids: Iterable[str]) -> Work:
    """Return the operation that has objects live from now on for as long as they were given."""
    touches = [Touch(collection, id) for id in ids]
    return Work((collection,), lambda run: [run(each) for each in touches])


def listing(collection: str, asked: dict[str, Any], limit: int | None) -> FindIds:
    """Return the operation that reads ids, and no values."""
    return FindIds(collection, Filter.parse(asked), limit)


@dataclass(frozen=True, slots=True)
class Take:
    """Delete the value under a key and give it, `ABSENT` where there is none; what cannot be read is not
    deleted.
    """

    collection: str
    id: str
    key: str
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Any) -> Any:
        found = FindAndDelete(self.collection, Filter.parse({"$id": self.id}))(connection)
        return ABSENT if found is None else value_of(self.key, found.body)

    def nothing(self) -> Any:
        return ABSENT


def asking(space: Space, filter: Any, equals: Any, codec: Codec) -> Filter:
    """Return what is asked of the values of a namespace, a value as it is kept; raises `InvalidFilter`."""
    of_value = not isinstance(filter, str) or not filter.startswith("$") or filter[:5] == "$body"
    kept = to_json(equals, codec.default) if of_value and equals is not ... else equals
    return Filter.parse(space.keys()) & Filter.parse(filter, kept, codec)


def adding(key: str, by: Any) -> Callable[[Any], Any]:
    """Return the function that adds to a number; raises `InvalidOption` for what is none."""
    _check_number("by", by)

    def add(value: Any) -> Any:
        _check_number(key, value)
        try:
            return value + by
        except OverflowError as error:
            raise InvalidOption(key, f"the whole number is too large: {error}") from error

    return add


def as_json(key: str, function: Any, default: Default) -> Callable[[Any], Any]:
    """Return a function of values as one of JSON; raises `InvalidOption` for what cannot be called."""
    called = check_function(function)
    return lambda json: to_json(called(value_of(key, json)), default)


def check_mapping(values: Any) -> Mapping[str, Any]:
    """Return what has values under keys; raises `InvalidOption`."""
    if isinstance(values, Mapping):
        return values
    raise InvalidOption("values", f"{shortened(values)} is no mapping of keys to values")


def check_given(ttl: Any) -> Any:
    """Return a time to live that is one; raises `InvalidOption` for None, which would be the one it has."""
    if ttl is None:
        problem = (
            "None is no time to live: give seconds, or math.inf; touch begins the one it has anew"
        )
        raise InvalidOption("ttl", problem)
    return ttl


def read_limit(limit: Any) -> int | None:
    """Return a number of entries, or None for all; raises `InvalidOption`."""
    if limit is None:
        return None
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    raise InvalidOption("limit", f"{shortened(limit)} is not a whole number from 1 on")


def seen_by(space: Space) -> Callable[[Change], Change]:
    """Return what shows a recorded change as a namespace's memory has it."""

    def seen(change: Change) -> Change:
        key = space.key_of(change.id)
        body, before = value_of(key, change.body), value_of(key, change.before)
        return replace(change, id=key, body=body, before=before)

    return seen


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(name, f"{shortened(value)} is no number to add to")
