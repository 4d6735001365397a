"""What AEA's storage stands on: a backend over a store."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from ... import AsyncStore, Collection, InvalidUrl, MissingExtra, Store, StoreClosed
from .encoding import decoded, encoded, filter_of, is_name, name_of, text_of
from .off_main_thread import StoreOffMainThread, Worker

try:
    from aea.helpers.storage.backends.base import AbstractStorageBackend
except ImportError as error:
    raise MissingExtra("open-aea", "aea") from error

SCHEMES: Final = ("collections", "collections+sqlite", "collections+postgresql")
"""The schemes of `storage_uri`: AEA reads them with `urlparse`, to which an underscore belongs to none."""
PATIENCE: Final = 30.0
"""How many seconds a call waits for AEA's own storage, which is about to connect."""

_URI: Final = re.compile(
    r"collections[+:](?!//)(?P<scheme>[a-z]*)(?P<rest>.+)", re.IGNORECASE | re.DOTALL
)
_MADE: Final = "attach"
_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("durability", "nul", "prefix", "schema", "upgrade"), str),
    **dict.fromkeys(("max_body", "page_cache", "pool_size"), int),
    **dict.fromkeys(("busy_timeout", "sweep_interval"), float),
}
"""The options of a store that a `storage_uri` may give, and what reads each."""


def is_ours(uri: object) -> bool:
    """Is it the URI of a storage of ours?"""
    return isinstance(uri, str) and uri.partition(":")[0].lower() in SCHEMES


class Uri(NamedTuple):
    """What a `storage_uri` says: the store's URL and options, and whether dialogues are kept as they go."""

    url: str
    attached: bool
    options: dict[str, Any]


def read_uri(uri: str) -> Uri:
    """Return what a `storage_uri` says; raises `InvalidUrl`.

    >>> read_uri("collections+sqlite:///agent.db?attach=dialogues&busy_timeout=5")
    Uri(url='sqlite:///agent.db', attached=True, options={'busy_timeout': 5.0})
    """
    found = _URI.fullmatch(uri)
    if found is None or not is_ours(uri):
        raise InvalidUrl(
            "storage_uri: write collections+sqlite:///file.db, or collections+postgresql://…"
        )
    rest, _, query = found["rest"].partition("?")
    url = found["scheme"].lower() + rest
    given = parse_qsl(query, keep_blank_values=True)
    attached = [value for name, value in given if name == _MADE]
    if attached not in ([], ["dialogues"]):
        raise InvalidUrl(f"storage_uri: {_MADE} is {attached}, and can only be 'dialogues', once")
    options = {name: _option(name, value) for name, value in given if name in _OPTIONS}
    others = urlencode([each for each in given if each[0] != _MADE and each[0] not in _OPTIONS])
    return Uri(url + (f"?{others}" if others else ""), bool(attached), options)


def _option(name: str, value: str) -> Any:
    try:
        return _OPTIONS[name](value)
    except ValueError:
        raise InvalidUrl(f"storage_uri: {name} must be a number, got {value[:80]!r}") from None


class CollectionsBackend(AbstractStorageBackend):
    """A backend of AEA's storage, over a store of its own, or over one that is given.

    Nothing is opened before `connect`, `open`, or the first call. What comes after `disconnect` waits `patience` seconds for
    the next `connect`, and then raises `StoreClosed`; at once if it comes from the loop that is about to end. It is used by
    any number of threads and loops.
    """

    def __init__(self, uri: str | Store | AsyncStore, *, patience: float = PATIENCE) -> None:
        super().__init__(uri if isinstance(uri, str) else "collections:")
        self._given = None if isinstance(uri, str) else uri
        self._url, _, self._options = read_uri(uri) if isinstance(uri, str) else Uri("", False, {})
        self._store = self._given
        self._lock = threading.RLock()
        self._ended: Any = None
        self._patience = patience
        self._worker: Worker | None = None
        self._calls: Counter[asyncio.AbstractEventLoop] = Counter()
        if self._given is None:
            self._check()

    def _check(self) -> None:
        """Open nothing, and refuse a bad URL now."""
        try:
            Store(self._url, **self._options).close()
        except InvalidUrl as error:
            known = ", ".join(sorted((_MADE, *_OPTIONS)))
            raise InvalidUrl(f"storage_uri: {error}; it also takes {known}") from error

    def __repr__(self) -> str:
        return repr(self._store if self._store is not None else Store(self._url, **self._options))

    def open(self) -> Store | AsyncStore:
        """Return the store, which may be used at once."""
        with self._lock:
            if self._store is None:
                self._store = self._given or AsyncStore(self._url, **self._options)
            return self._store

    async def connect(self) -> None:
        """Open the database; raises what the store does."""
        try:
            await _looked_at(self.open())
        except BaseException:
            await self.disconnect()
            raise
        self._ended = None

    async def disconnect(self) -> None:
        """End: wait for the calls that run, and close a store of its own. Doing so again does nothing."""
        with self._lock:
            store, self._store = self._store, None
            worker, self._worker = self._worker, None
            self._ended = asyncio.get_running_loop()
        if worker is not None:
            worker.stop()
        if isinstance(store, AsyncStore) and store is not self._given:
            await store.aclose()
        await self._drained()

    async def ensure_collection(self, collection_name: str) -> None:
        """Refuse a name that no collection can have; a collection comes into being by its first object."""
        self._check_collection_name(collection_name)
        async with self._collection(collection_name):
            pass

    async def put(self, collection_name: str, object_id: str, object_body: Any) -> None:
        """Store an object."""
        id, body = text_of(object_id), encoded(object_body)
        async with self._collection(collection_name) as collection:
            await collection.put(id, body)

    async def get(self, collection_name: str, object_id: str) -> Any:
        """Return an object, or None."""
        id = text_of(object_id)
        async with self._collection(collection_name) as collection:
            return decoded(await collection.get(id))

    async def remove(self, collection_name: str, object_id: str) -> None:
        """Remove an object, if there is one."""
        id = text_of(object_id)
        async with self._collection(collection_name) as collection:
            await collection.remove(id)

    async def find(self, collection_name: str, field: str, equals: Any) -> list[tuple[str, Any]]:
        """Return the objects whose field has the value, with their ids."""
        asked = filter_of(field, equals)
        async with self._collection(collection_name) as collection:
            return [(id, decoded(body)) for id, body in await collection.find(asked)]

    async def list(self, collection_name: str) -> list[tuple[str, Any]]:
        """Return all objects with their ids."""
        async with self._collection(collection_name) as collection:
            return [(id, decoded(body)) for id, body in await collection.list()]

    def sync_store(self) -> Store:
        """Return the store for skills, which touches no event loop; raises `StoreClosed`."""
        with self._lock:
            if self._store is None:
                raise StoreClosed("the storage is not running: it was stopped, or not started")
            if self._worker is None:
                self._worker = Worker()
            return StoreOffMainThread(_synchronous(self._store), self._worker)

    def is_over(self, store: Store) -> bool:
        """Return whether that is the store, which is opened."""
        return _synchronous(self.open()) is store

    def sync_collection(self, name: str) -> Collection:
        """Return a handle that touches no event loop; raises `StoreClosed`."""
        self._check_collection_name(name)
        return self.sync_store().get_sync_collection(name_of(name))

    def _check_collection_name(self, collection_name: str) -> None:
        if not is_name(collection_name):
            raise ValueError(
                f"Invalid collection name: {collection_name}, should contain only alpha-numeric "
                "characters and _"
            )

    @asynccontextmanager
    async def _collection(self, name: str) -> AsyncIterator[Any]:
        self._check_collection_name(name)
        store, loop = await self._ready(), asyncio.get_running_loop()
        self._calls[loop] += 1
        try:
            yield _awaited(store, name_of(name))
        finally:
            self._calls[loop] -= 1
            if not self._calls[loop]:
                del self._calls[loop]

    async def _ready(self) -> Store | AsyncStore:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while (store := self._running()) is None:
            if self._ended is loop or loop.time() >= until:
                raise StoreClosed("the storage is not running: it was stopped, or not started")
            await asyncio.sleep(0.01)
        return store

    def _running(self) -> Store | AsyncStore | None:
        """Return the store, which is opened before the first start, and not after a stop."""
        with self._lock:
            return self.open() if self._ended is None else self._store

    async def _drained(self) -> None:
        """Let the calls that run here end, and those that are about to begin be refused."""
        rounds, loop = 0, asyncio.get_running_loop()
        while rounds < 5 or loop in self._calls:
            await asyncio.sleep(0 if rounds < 100 else 0.001)
            rounds += 1


class _Threaded:
    """An awaitable collection over a synchronous one."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return partial(asyncio.to_thread, getattr(self._collection, verb))


def _synchronous(store: Store | AsyncStore) -> Store:
    return store._store if isinstance(store, AsyncStore) else store


def _awaited(store: Store | AsyncStore, name: str) -> Any:
    return store[name] if isinstance(store, AsyncStore) else _Threaded(store[name])


async def _looked_at(store: Store | AsyncStore) -> None:
    if isinstance(store, AsyncStore):
        await store["aea"].exists("")
    else:
        await asyncio.to_thread(store["aea"].exists, "")
