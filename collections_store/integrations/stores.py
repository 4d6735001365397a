"""The store of an adapter: a given store, which stays open, or a store opened from a URL and closed at the end."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, TypeVar

from .. import AsyncCollection, AsyncStore, Collection, CollectionExists, InvalidOption, Store

T = TypeVar("T")
S = TypeVar("S", Store, AsyncStore)


_DRIVER: Final = re.compile(r"(sqlite|postgresql)\+\w+://")
_CONNINFO: Final = re.compile(r"\s*\w+\s*=")


def store_url(given: Any) -> Any:
    """Return the URL of a store for the forms of frameworks: a URL with another driver of SQLAlchemy, the path of
    an SQLite file, or `:memory:`. Raise `InvalidOption` for the keywords of libpq.

    >>> [store_url(each) for each in ("sqlite+aiosqlite:///chat.db", "chat.db", ":memory:")]
    ['sqlite:///chat.db', 'sqlite:///chat.db', 'sqlite://']
    """
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str) or not text:
        return given  # the store raises what is wrong
    if "://" in text:
        return _DRIVER.sub(r"\1://", text, count=1) if _DRIVER.match(text) else text
    if _CONNINFO.match(text):  # such as "host=localhost dbname=agents", with a password perhaps
        raise InvalidOption(
            "store", "must be a URL, such as postgresql://user:password@host/database"
        )
    return "sqlite://" if text == ":memory:" else f"sqlite:///{text}"


def open_store(kind: type[S], store: Any, options: Mapping[str, Any]) -> S:
    """Return a given store, or open the store of a URL or file: see `store_url`. Raise `InvalidOption` for a store
    of the wrong kind, sync or async, and for options beside a store.
    """
    if isinstance(store, kind):
        for option in options:
            raise InvalidOption(option, "is for a URL: the store has its own options")
        return store
    if issubclass(type(store), Store | AsyncStore):
        wanted = {"Store": "a Store"}.get(kind.__name__, "an AsyncStore")
        raise InvalidOption("store", f"must be {wanted} or a URL, got {type(store).__name__}")
    return kind(store_url(store), **options)


def run_anywhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, in any thread, also in the thread of a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def time_before(seconds: float | timedelta) -> datetime:
    """Return the time `seconds` ago; raise `InvalidOption` unless `seconds` is a number of 0 or more, or a timedelta."""
    with suppress(TypeError, ValueError, OverflowError):
        idle = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        if idle >= timedelta(0):
            return datetime.now(UTC) - idle
    problem = f"must be a number of 0 or more, or a timedelta, got {seconds!r}"
    raise InvalidOption("seconds", problem)


class StoreOwner:
    """Base class of adapters with async methods. The constructor of a subclass calls `_open`."""

    def _open(self, store: Any, options: Mapping[str, Any]) -> None:
        self._store = open_store(AsyncStore, store, options)
        self._is_owner = self._store is not store
        self._existing: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, unless an open store was given."""
        if self._is_owner:
            await self._store.aclose()

    async def _prepared(self, name: str) -> AsyncCollection:
        """Return a collection for writes; create the collection without an index over whole bodies, which would be
        the larger part of a write.
        """
        if name not in self._existing:
            with suppress(CollectionExists):
                await self._store.create_collection(name, body_index=False)
            self._existing.add(name)
        return self._store[name]


class PairedCollection:
    """A collection of a store, sync and async. The first write creates the index over the fields `keys`."""

    name: str

    def __init__(
        self, store: AsyncStore | str, name: str, keys: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        self.store: AsyncStore = open_store(AsyncStore, store, options)
        self._is_owner = self.store is not store
        self.name, self._keys, self._is_indexed = name, [(key, 1) for key in keys], False
        self.sync: Collection = self.store.get_sync_collection(name)
        self.aio: AsyncCollection = self.store[name]

    def indexed(self) -> Collection:
        """Return the collection, with its index."""
        if not self._is_indexed:
            self.sync.create_index(self._keys)
            self._is_indexed = True
        return self.sync

    async def aindexed(self) -> AsyncCollection:
        """Async counterpart of `indexed`."""
        if not self._is_indexed:
            await self.aio.create_index(self._keys)
            self._is_indexed = True
        return self.aio

    async def keys(self) -> list[str]:
        """Return the distinct values of the first indexed field, each by a search in the index."""
        (key, _), *_ = self._keys
        keys: list[str] = []
        after: dict[str, Any] = {}
        while (found := await self.aio.find_one(after, sort=key, projection=[key])) is not None:
            keys.append(found.body[key])
            after = {key: {"$gt": keys[-1]}}
        return keys

    async def aclose(self) -> None:
        """Close the store, unless an open store was given."""
        if self._is_owner:
            await self.store.aclose()


def insert(collection: Any, bodies: list[dict[str, Any]]) -> Any:
    """Insert documents, all or none: return the result, or a coroutine. The insert of a single document shares a commit
    with concurrent writes.
    """
    if len(bodies) == 1:
        return collection.insert_one(bodies[0])
    return collection.insert_many(bodies, atomic=True)


class PairedOwner:
    """Base class of adapters whose methods come in pairs, sync and async."""

    _opened: PairedCollection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the store, unless an open store was given."""
        run_anywhere(self.aclose())

    async def aclose(self) -> None:
        """Async counterpart of `close`."""
        await self._opened.aclose()
