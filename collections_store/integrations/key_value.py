"""Key-value storage of FastMCP and of further users of py-key-value, in a store.

`KeyValueStore` is an `AsyncKeyValue` with every optional method: use `KeyValueStore` wherever FastMCP takes a
storage, and in py-key-value's wrappers. All collections of the storage share a collection of the store: a new
collection creates no table.

>>> import asyncio
>>> async def main():
...     async with KeyValueStore("sqlite://") as storage:
...         await storage.put("ada", {"scopes": ["read"]}, collection="clients", ttl=3600)
...         return await storage.get("ada", collection="clients")
>>> asyncio.run(main())
{'scopes': ['read']}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, SupportsFloat

from .. import AsyncStore, Document, InvalidBody, InvalidFilter, InvalidId, MissingExtra
from .ids import sized, under
from .stores import StoreOwner

try:
    from key_value.aio.errors import InvalidKeyError, InvalidTTLError, SerializationError
except ImportError as error:
    raise MissingExtra("py-key-value-aio", "key-value") from error

DEFAULT_COLLECTION: Final = "default_collection"
"""py-key-value's name of the collection that a call without one means."""


class KeyValueStore(StoreOwner):
    """A storage in a store: a URL with the options of `AsyncStore`, or an `AsyncStore`, which stays open.

    `collection` is the collection of the store for the whole storage. Tasks, loops and processes can share the
    collection.

    Values are dicts of JSON. Tuples are stored as lists, and numeric keys as strings, as by `json.dumps`. Any other
    value raises py-key-value's `SerializationError`. The names of a collection and of a key have at most 2,000
    bytes together, and no NUL, else a method raises `InvalidKeyError`. Expired values are invisible at once; `cull`
    frees their space.
    """

    def __init__(
        self,
        store: AsyncStore | str,
        *,
        collection: str = "key_value",
        default_collection: str = DEFAULT_COLLECTION,
        **options: Any,
    ) -> None:
        self._open(store, options)
        self._documents = self._store[collection]
        self.default_collection = default_collection

    async def get(self, key: str, *, collection: str | None = None) -> dict[str, Any] | None:
        """Return the value under a key, or None."""
        with _their_errors():
            body: dict[str, Any] | None = await self._documents.get(self._id(key, collection))
        return body

    async def get_many(
        self, keys: Sequence[str], *, collection: str | None = None
    ) -> list[dict[str, Any] | None]:
        """Return the values under keys, with None for a key without a value."""
        with _their_errors():
            ids = self._ids(keys, collection)
            found = await self._documents.get_many(ids)
        return [found.get(id) for id in ids]

    async def ttl(
        self, key: str, *, collection: str | None = None
    ) -> tuple[dict[str, Any] | None, float | None]:
        """Return the value under a key and the seconds until the value expires; None: never."""
        with _their_errors():
            return _with_ttl(await self._documents.document(self._id(key, collection)))

    async def ttl_many(
        self, keys: Sequence[str], *, collection: str | None = None
    ) -> list[tuple[dict[str, Any] | None, float | None]]:
        """Return the result of `ttl` for each key."""
        with _their_errors():
            ids = self._ids(keys, collection)
            found = {each.id: each for each in await self._documents.find({"$id": {"$in": ids}})}
        return [_with_ttl(found.get(id)) for id in ids]

    async def put(
        self,
        key: str,
        value: Mapping[str, Any],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        """Write a value under a key. `ttl`: seconds until the value expires, None: never."""
        with _their_errors():
            id, seconds = self._id(key, collection), _seconds(ttl)
            await self._documents.put(id, _plain(value), ttl=seconds)

    async def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[Mapping[str, Any]],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        """Write values under keys, all or none; of several values for a key, the last counts."""
        if len(keys) != len(values):
            problem = f"got {len(keys)} keys, {len(values)} values"
            raise ValueError(f"each key must have a value, {problem}")
        with _their_errors():
            ids, seconds = self._ids(keys, collection), _seconds(ttl)
            pairs = list(zip(ids, map(_plain, values), strict=True))
            await self._documents.put_many(pairs, ttl=seconds, atomic=True)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        """Delete the value under a key; return False if the key had no value."""
        with _their_errors():
            return await self._documents.remove(self._id(key, collection))

    async def delete_many(self, keys: Sequence[str], *, collection: str | None = None) -> int:
        """Delete the values under keys, all or none; return the number of deleted values."""
        with _their_errors():
            return await self._documents.remove_many(self._ids(keys, collection))

    async def keys(self, collection: str | None = None, *, limit: int | None = None) -> list[str]:
        """Return the keys of a collection, sorted: up to `limit`, by default all."""
        _check_limit(limit)
        prefix, keys = f"{self._prefix(collection)}/", list[str]()
        found = self._documents.stream(self._filter(collection), sort="$id", projection=["_id"])
        async for each in found:  # `find` would read all values at once
            if len(keys) == limit:
                break
            keys.append(each.id.removeprefix(prefix))
        return keys

    async def collections(self, *, limit: int | None = None) -> list[str]:
        """Return the names of the collections with values, sorted: up to `limit`, by default all."""
        _check_limit(limit)
        names: list[str] = []
        after: dict[str, Any] = {}
        while limit is None or len(names) < limit:
            found = await self._documents.find(after, sort="$id", limit=1, projection=["_id"])
            if not found:
                break
            length, _, rest = found[0].id.partition(":")
            names.append(rest[: int(length)])
            after = {"$id": {"$gte": self._filter(names[-1])["$id"]["$lt"]}}
        return sorted(names)

    async def destroy(self) -> bool:
        """Delete all collections; return True."""
        await self._documents.delete_many({})
        return True

    async def destroy_collection(self, collection: str) -> bool:
        """Delete a collection; return False if the collection was empty."""
        deleted = await self._documents.delete_many(self._filter(collection))
        return deleted.deleted_count > 0

    async def cull(self) -> None:
        """Delete expired values."""
        await self._documents.purge_expired()

    def _ids(self, keys: Sequence[str], collection: str | None) -> list[str]:
        return [self._id(key, collection) for key in keys]

    def _id(self, key: str, collection: str | None) -> str:
        return f"{self._prefix(collection)}/{_string(key)}"

    def _prefix(self, collection: str | None) -> str:
        return sized(_string(collection or self.default_collection))

    def _filter(self, collection: str | None) -> dict[str, Any]:
        return {"$id": under(self._prefix(collection))}


def _string(name: Any) -> str:
    """Return a key or the name of a collection; raise `InvalidKeyError`."""
    if not isinstance(name, str):
        raise InvalidKeyError(f"a key must be a string, got {type(name).__name__}")
    return name


def _check_limit(limit: Any) -> None:
    """Raise `InvalidFilter` as `find` does."""
    if limit is not None and (type(limit) is not int or limit < 0):
        problem = f"must be an integer from 0 on, or None, got {limit!r}"
        raise InvalidFilter("limit", problem)


def _with_ttl(document: Document | None) -> tuple[dict[str, Any] | None, float | None]:
    if document is None:
        return None, None
    if document.expires_at is None:
        return document.body, None
    return document.body, (document.expires_at - datetime.now(UTC)).total_seconds()


def _seconds(ttl: SupportsFloat | None) -> float | None:
    """Return a time to live; raise `InvalidTTLError`."""
    if ttl is None:
        return None
    try:
        seconds = 0.0 if isinstance(ttl, bool) else float(ttl)
    except (TypeError, ValueError):
        raise InvalidTTLError(ttl=ttl) from None
    if not seconds > 0:
        raise InvalidTTLError(ttl=ttl)
    return seconds


def _plain(value: Any) -> Any:
    """Return a value after a round trip through `json`; raise `SerializationError`."""
    if not isinstance(value, Mapping):
        raise SerializationError(f"a value must be a mapping, got {type(value).__name__}")
    try:
        return json.loads(json.dumps(dict(value)))
    except (TypeError, ValueError) as error:
        raise SerializationError(f"the value is not JSON: {error}") from None


@contextmanager
def _their_errors() -> Iterator[None]:
    """Raise py-key-value's errors instead of `InvalidId` and `InvalidBody`."""
    try:
        yield
    except InvalidId as error:
        raise InvalidKeyError(str(error)) from None
    except InvalidBody as error:
        raise SerializationError(f"the value is not JSON: {error}") from None
