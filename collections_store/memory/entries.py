"""Entries of a memory, and what a memory stands on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from ..changes.notify import ChangeNotifier
from ..codec import Codec
from ..collection import Ttl
from ..document import Document, read_ttl
from ..errors import DatabaseError, InvalidOption, shortened
from ..operations.by_id import Slide, Touch
from ..operations.combine import Work
from ..operations.find import FindIds
from ..operations.operation import Operation
from ..operations.procedures import check_function
from ..operations.update import FindAndDelete
from ..options import check_count, check_flag
from ..query.change import Change
from ..query.filter import Filter
from ..query.parser import check_equals
from ..sql.schema import now
from .keys import Space
from .values import Default, to_json, value_of

LOG: Final = logging.getLogger("collections_store")
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

    def exceeds(self, ttl: Ttl) -> bool:
        """Return whether a value that is written with this `ttl` may outlive its session."""
        own, session = read_ttl(ttl), read_ttl(self.ttl)
        return self.sliding and bool(own and session and own > session)

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


def sliding(collection: str, ids: Iterable[str], life: Life) -> Touch | Slide | Work:
    """Return the operation that has objects live from now on for as long as their session says, or, where it does
    not, for as long as they were given.
    """
    ttl = read_ttl(life.ttl)
    each = [Slide(collection, id, ttl) if ttl else Touch(collection, id) for id in ids]
    return each[0] if len(each) == 1 else Work((collection,), lambda run: [run(e) for e in each])


@contextmanager
def tolerant(collection: str) -> Iterator[None]:
    """Go on where a time cannot be begun anew, because the database is locked or read-only."""
    try:
        yield
    except DatabaseError as error:
        LOG.warning("%s: a value was read, but its time was not begun anew: %s", collection, error)


def listing(collection: str, asked: dict[str, Any], limit: int | None) -> FindIds:
    """Return the operation that reads ids, and no values."""
    return FindIds(collection, Filter.parse(asked), limit)


@dataclass(frozen=True, slots=True)
class Take(Operation[Any]):
    """Delete the value under a key and give it, `ABSENT` where there is none; what cannot be read is not
    deleted.
    """

    collection: str
    id: str
    key: str
    writes = True

    def __call__(self, connection: Any) -> Any:
        found = FindAndDelete(self.collection, Filter.parse({"$id": self.id}))(connection)
        return ABSENT if found is None else value_of(self.key, found.body)

    def absent(self) -> Any:
        return ABSENT


def asking(space: Space, filter: Any, equals: Any, codec: Codec) -> Filter:
    """Return what is asked of the values of a namespace, a value as it is kept; raises `InvalidFilter`."""
    of_value = not isinstance(filter, str) or not filter.startswith("$") or filter[:5] == "$body"
    check_equals(filter, equals)
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

    def changed(json: Any) -> Any:
        value = value_of(key, json)
        made = called(value)
        return to_json(value if made is None else made, default)

    return changed


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
    if found := check_count("limit", limit):
        return found
    raise InvalidOption("limit", "must be an integer above 0, got 0")


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


T = TypeVar("T")
Strings: TypeAlias = list[str]
Entries: TypeAlias = list[Entry]
REQUEST_TTL: Final = 86_400.0
"""Seconds after which what a request leaves behind is gone, should its process be killed."""


class MemoryHost(Protocol):
    """What runs operations, and hands out transactions: a store, or a transaction."""

    _codec: Codec
    _notifier: ChangeNotifier | None

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Return the context of a transaction, or of a part of one."""
