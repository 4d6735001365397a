"""The common part of sync and async memories: entries, expiry, and each method as a procedure.

A procedure is a generator, as in `operations.procedures`, which yields operations, takes their results, and returns
the result of the method.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final, Self

from ..changes import ChangeReader
from ..codec import Codec
from ..document import Document, now, read_ttl
from ..errors import DatabaseError, InvalidBody, InvalidOption, shortened
from ..operations.by_id import Get, GetDocument, GetMany, RemoveMany, Touch
from ..operations.collections import AS_IT_IS, Configure
from ..operations.find import Count, Find, FindIds, check_window
from ..operations.operation import Operation, Steps, Work
from ..operations.procedures import ATTEMPTS, Writing, change
from ..operations.requests import OperationBuilder, put_of
from ..operations.update import DeleteMatching, FindAndDelete
from ..options import (
    ChangeSettings,
    Settings,
    Ttl,
    check_flag,
    check_function,
    check_integer,
)
from ..options.checks import MAX_COUNT
from ..query.change import Change, ChangeFilter
from ..query.filter import Filter
from ..query.parser import check_equals
from ..query.sort import Sort
from ..results import Invalid
from .encoding import Space, body_of, document_of, from_json, missing, to_json, value_of

LOG: Final = logging.getLogger("collections_store")
ABSENT: Final = object()
"""Stands for no value, as opposed to None, which is one."""
_PARTS: Final = attrgetter("key", "value", "version", "expires_at")
REQUEST_TTL: Final = 86_400.0
"""Seconds after which the values of a request expire if its process is killed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value; unpacks as the two. `expires_at` is in UTC; None: never."""

    key: str
    value: Any
    version: int = 1
    expires_at: datetime | None = None

    def __iter__(self) -> Iterator[Any]:
        yield self.key
        yield self.value


@dataclass(frozen=True, slots=True)
class FoundEntry(Entry):
    """An entry that a search found; better entries have a higher score. `snippets` has the passage of each field with
    words of the query, if `highlight` was given.
    """

    score: float = 0.0
    snippets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Take(Operation[Any]):
    """Delete and return the value under a key, or return `ABSENT`. An unreadable value stays."""

    collection: str
    id: str
    key: str
    writes = True

    def __call__(self, connection: Any) -> Any:
        found = FindAndDelete(self.collection, Filter.parse({"$id": self.id}))(connection)
        return ABSENT if found is None else value_of(self.key, found.body)

    def absent(self) -> Any:
        return ABSENT


@dataclass(frozen=True, slots=True)
class Procedures:
    """The methods of a memory: `get` is the procedure of `Memory.get`, and so on.

    A value without a `ttl` expires after `lifetime`, since the last use if `sliding`. With `ends` the end of a `with`
    block clears the memory.
    """

    collection: str
    codec: Codec
    space: Space = field(default_factory=Space)
    lifetime: Ttl = None
    sliding: bool = False
    ends: bool = False

    def check_ends(self) -> None:
        """Raise `InvalidOption` for a permanent memory: used like a file, `with` would delete the memory."""
        if not self.ends:
            problem = (
                "it would delete this memory at its end: use it with session() and request() only"
            )
            raise InvalidOption("with", problem)

    def get(self, key: str, default: Any) -> Steps[Any]:
        found, value = yield from self.fetch(key)
        return value if found else default

    def fetch(self, key: str) -> Steps[tuple[bool, Any]]:
        id = self.space.id_of(key)
        body = yield Get(self.collection, id, ABSENT)
        if body is ABSENT:
            return False, None
        yield from self._slide([id])
        return True, value_of(key, body)

    def put(
        self, key: str, value: Any, *, ttl: Ttl, if_absent: bool, if_version: int | None
    ) -> Steps[int]:
        id, life = self.space.id_of(key), self.lifetime if ttl is None else ttl
        with document_of(self.collection, self.space, key):
            text = self.encode(key, value)
            version: int = yield put_of(self.collection, id, text, life, if_version, if_absent)
        if self._outlives(life):
            yield from self._slide([id])
        return version

    def delete(self, key: str, default: Any) -> Steps[Any]:
        found = yield Take(self.collection, self.space.id_of(key), key)
        return default if found is ABSENT else found

    def pop(self, key: str) -> Steps[Any]:
        value = yield from self.delete(key, ABSENT)
        if value is ABSENT:
            raise missing(self.collection, self.space, key)
        return value

    def increment(self, key: str, by: Any, initial: Any) -> Steps[Any]:
        return self.change(key, self.on_json(key, _adding(key, by)), initial)

    def change(self, key: str, function: Callable[[Any], Any], default: Any) -> Steps[Any]:
        """`function` takes and returns JSON: see `on_json`."""
        id = self.space.id_of(key)
        options = {
            "default": default if default is ... else self._json(default),
            "ttl": read_ttl(self.lifetime),
            "attempts": ATTEMPTS,
        }
        with document_of(self.collection, self.space, key):
            body = yield from change(self.collection, self.codec, id, function, options)
        yield from self._slide([id])
        return from_json(body)

    def on_json(self, key: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function of JSON for a function of values; raises `InvalidOption`."""
        checked = check_function("function", function)

        def changed(json: Any) -> Any:
            value = value_of(key, json)
            return self.result(value, checked(value))

        return changed

    def result(self, value: Any, returned: Any) -> Any:
        """Return the result of a function of a value as JSON; None: the function changed the value in place."""
        return self._json(value if returned is None else returned)

    def keys(self, prefix: str, after: str | None, limit: int | None) -> Steps[list[str]]:
        filter = Filter.parse(self.space.keys(prefix, after))
        ids = yield FindIds(self.collection, filter, _check_limit(limit))
        return [self.space.key_of(id) for id in ids]

    def items(self, prefix: str, after: str | None, limit: int | None) -> Steps[list[Entry]]:
        filter = Filter.parse(self.space.keys(prefix, after))
        window = Sort.parse("$id"), 0, _check_limit(limit)
        return self._entries((yield Find(self.collection, filter, *window)))

    def find(self, filter: Any, equals: Any, limit: int | None) -> Steps[list[Entry]]:
        of_value = (
            not isinstance(filter, str) or not filter.startswith("$") or filter[:5] == "$body"
        )
        check_equals(filter, equals)
        stored = self._json(equals) if of_value and equals is not ... else equals
        parsed = Filter.parse(self.space.keys()) & Filter.parse(filter, stored, self.codec)
        window = check_window(0, limit)
        return self._entries((yield Find(self.collection, parsed, Sort(), *window)))

    def search(
        self, builder: OperationBuilder, query: Any, meaning: Any, options: Any, *, store: bool
    ) -> Steps[list[FoundEntry]]:
        """`builder`: the collection. `options`: those of `Collection.search`."""
        within = Filter.parse(self.space.keys()) & Filter.parse(options["filter"], codec=self.codec)
        options = {**options, "filter": within, "after": None}
        if meaning is None:
            page = yield builder._search(query, **options)
        else:
            page = yield from builder._hybrid(query, meaning, options, None, None, store=store)
        found = {self.space.key_of(each.id): each for each in page}
        return [
            FoundEntry(key, value, version, expires, found[key].score, found[key].snippets)
            for key, value, version, expires in map(
                _PARTS, self._entries(each.document for each in page)
            )
        ]

    def count(self, prefix: str) -> Steps[int]:
        count: int = yield Count(self.collection, Filter.parse(self.space.keys(prefix)))
        return count

    def clear(self, prefix: str) -> Steps[int]:
        return self._delete(self.space.keys(prefix))

    def end(self) -> Steps[int]:
        return self._delete(self.space.everything())

    def get_many(self, keys: Iterable[str]) -> Steps[dict[str, Any]]:
        found = yield GetMany(self.collection, self.space.ids_of(keys))
        yield from self._slide(list(found))
        pairs = ((self.space.key_of(id), body) for id, body in found.items())
        return dict(self._readable(pairs))

    def put_many(self, values: Any, ttl: Ttl) -> Steps[int]:
        if not isinstance(values, Mapping):
            problem = f"must be a mapping of keys to values, got {shortened(values)}"
            raise InvalidOption("values", problem)
        life, bodies = self.lifetime if ttl is None else ttl, {}
        for key, value in values.items():
            with body_of(key):
                bodies[self.space.id_of(key)] = self._json(value)
        writing = Writing(self.collection, self.codec, ttl=read_ttl(life), atomic=True)
        try:
            yield from writing.put(bodies)
        except InvalidBody:
            for id, body in bodies.items():
                with body_of(self.space.key_of(id)):
                    self.codec.encode_body(body)
            raise
        if self._outlives(life):
            yield from self._slide(list(bodies))
        return len(bodies)

    def delete_many(self, keys: Iterable[str]) -> Steps[int]:
        count: int = yield RemoveMany(self.collection, self.space.ids_of(keys))
        return count

    def touch(self, key: str) -> Steps[bool]:
        found: bool = yield Touch(self.collection, self.space.id_of(key))
        return found

    def expire(self, key: str, ttl: Any) -> Steps[bool]:
        if ttl is None:
            problem = (
                "must be seconds, a timedelta or math.inf, got None; touch keeps the present one"
            )
            raise InvalidOption("ttl", problem)
        found: bool = yield Touch(self.collection, self.space.id_of(key), read_ttl(ttl))
        return found

    def ttl(self, key: str) -> Steps[float | None]:
        document = yield GetDocument(self.collection, self.space.id_of(key))
        if document is None:
            return None
        expires = document.expires_us
        return math.inf if expires is None else max(0, expires - now()) / 1_000_000

    def configure(self, settings: ChangeSettings) -> Steps[None]:
        wanted = Settings.parse(settings, ChangeSettings)
        if wanted != AS_IT_IS:
            yield Configure(self.collection, wanted)

    def watch(self, prefix: str, after: str | None, timeout: float | None) -> ChangeReader:
        wanted = partial(ChangeFilter.parse, self.space.keys(prefix), None, self.codec)
        options: dict[str, Any] = {"after": after, "timeout": timeout, "convert": self._change}
        return ChangeReader(self.collection, wanted, **options)

    def check(self, key: str, value: Any) -> None:
        """Raise `InvalidOption` or `InvalidBody` if a value cannot be written under a key."""
        self.space.id_of(key)
        self.encode(key, value)

    def encode(self, key: str, value: Any) -> str:
        """Return the JSON text of a value; raises `InvalidBody` with the key."""
        with body_of(key):
            return self.codec.encode_body(self._json(value))

    def _json(self, value: Any) -> Any:
        return to_json(value, self.codec.default)

    def _delete(self, filter: dict[str, Any]) -> Steps[int]:
        result = yield DeleteMatching(self.collection, Filter.parse(filter))
        count: int = result.deleted_count
        return count

    def _outlives(self, ttl: Ttl) -> bool:
        """Return whether a value with this `ttl` could outlive its session."""
        own, session = read_ttl(ttl), read_ttl(self.lifetime)
        return self.sliding and bool(own and session and own > session)

    def _slide(self, ids: list[str]) -> Steps[None]:
        """Restart the time to live of the used values of a sliding session. Where the database is locked
        or read-only, the read still succeeds.
        """
        if not ids or not self.sliding:
            return
        ttl = read_ttl(self.lifetime)
        each = [Touch(self.collection, id, ttl or None, slides=bool(ttl)) for id in ids]
        try:
            if len(each) == 1:
                yield each[0]
            else:
                yield Work((self.collection,), lambda run: [run(one) for one in each])
        except DatabaseError as error:
            LOG.warning("%s: the expiry of a value was not extended: %s", self.collection, error)

    def _entries(self, found: Iterable[Document]) -> list[Entry]:
        documents = {self.space.key_of(each.id): each for each in found}
        bodies = ((key, each.body) for key, each in documents.items())
        return [
            Entry(key, value, documents[key].version, documents[key].expires_at)
            for key, value in self._readable(bodies)
        ]

    def _readable(self, bodies: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield keys and values; log and omit unreadable values."""
        for key, body in bodies:
            try:
                yield key, value_of(key, body)
            except InvalidBody as error:
                LOG.warning("left out: memory %s: %s", self.path, error)

    @property
    def path(self) -> str:
        return "/".join((self.collection, *self.space.names))

    def _change(self, change: Change) -> Change:
        key = self.space.key_of(change.id)
        body, before = (_value_or_invalid(key, each) for each in (change.body, change.before))
        return replace(change, id=key, body=body, before=before)


class Namespace:
    """Base of memories, without the database: inner namespaces, sessions and requests."""

    def __init__(self, host: Any, procedures: Procedures) -> None:
        self._host, self._procedures = host, procedures

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._procedures.path!r})"

    def namespace(self, *names: str) -> Self:
        """Return the memory of an inner namespace; `namespace("a", "b")` is `namespace("a").namespace("b")`.

        >>> store.memory("bot").namespace("room", "42")
        Memory('memory__bot/room/42')
        """
        inner = replace(self._procedures, space=self._procedures.space.within(*names), ends=False)
        return type(self)(self._host, inner)

    def session(self, id: str, *, ttl: Ttl = None, sliding: bool = False) -> Self:
        """Return the memory of a session, which differs from every namespace.

        Values of the session expire after `ttl`. With `sliding`, each read by key and each change restarts the
        time; a value with its own `ttl` expires then or with the session, whichever is first. Without
        `ttl`, values expire as in the outer memory. The end of a `with` block, or `end`, clears the session.

        >>> with store.memory("bot").session("ada", ttl=1800, sliding=True) as session:
        ...     version = session.put("cart", ["tea"])
        >>> store.memory("bot").session("ada").get("cart", "nothing")
        'nothing'
        """
        outer = self._procedures
        space = outer.space.session(id)
        read_ttl(ttl)
        slides = check_flag("sliding", sliding) or (ttl is None and outer.sliding)
        life = outer.lifetime if ttl is None else ttl
        inner = replace(outer, space=space, lifetime=life, sliding=slides, ends=True)
        return type(self)(self._host, inner)

    def request(self) -> Self:
        """Return a session with a new id, for a request: `with memory.request() as session:`.

        If the process is killed before the end of the block, the values expire after a day.

        >>> with Store("sqlite://") as store, store.memory("bot").request() as session:
        ...     version = session.put("step", 1)
        ...     session.get("step")
        1
        """
        return self.session(secrets.token_hex(16), ttl=REQUEST_TTL)


def _value_or_invalid(key: str, body: Any) -> Any:
    """Return the value of a change; `Invalid` for an unreadable value: the stream continues."""
    try:
        return value_of(key, body)
    except InvalidBody as error:
        return Invalid(body, "", error.problem)


def _adding(key: str, by: Any) -> Callable[[Any], Any]:
    """Return a function to add to a number; raises `InvalidOption`."""
    _check_number("by", by)

    def add(value: Any) -> Any:
        _check_number(key, value)
        try:
            return value + by
        except OverflowError as error:
            raise InvalidOption(key, f"the integer is too large: {error}") from error

    return add


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(name, f"must be a number, got {shortened(value)}")


def _check_limit(limit: Any) -> int | None:
    return None if limit is None else check_integer("limit", limit, most=MAX_COUNT)
