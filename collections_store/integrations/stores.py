"""The store of an adapter: a given store, which stays open, or a store opened from a URL and closed at the end."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from .. import AsyncCollection, AsyncStore, CollectionExists, InvalidOption, Store

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


class PairedOwner:
    """Base class of adapters whose methods come in pairs, sync and async. A subclass defines `aclose`."""

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
        raise NotImplementedError
