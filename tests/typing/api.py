"""What the types promise; mypy is the test."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from collections_store import (
    AsyncCollection,
    AsyncStore,
    Collection,
    CollectionInfo,
    Document,
    PutManyResult,
    Store,
    Transaction,
)


def sync(store: Store, connection: Any) -> None:
    things = store.get_sync_collection("things")
    assert_type(things, Collection)
    assert_type(store["things"], Collection)
    assert_type(things.put("a", {"x": 1}), int)
    assert_type(things.document("a"), Document | None)
    assert_type(things.exists("a"), bool)
    assert_type(things.remove("a"), bool)
    assert_type(things.put_many({"a": 1}), PutManyResult)
    assert_type(things.put_many([("a", 1)]), PutManyResult)
    assert_type(things.get_many(["a"]), dict[str, Any])
    assert_type(things.find("a.b", 1), list[Document])
    assert_type(things.list(), list[Document])
    assert_type(things.count(), int)
    assert_type(things.stream(), Iterator[Document])
    assert_type(store.collections(), list[CollectionInfo])
    assert_type(store.bind(connection), Transaction)
    assert_type(store.bind(connection)["things"], Collection)
    with store as same:
        assert_type(same, Store)


async def awaited(store: AsyncStore) -> None:
    things = await store.get_collection("things")
    assert_type(things, AsyncCollection)
    assert_type(store["things"], AsyncCollection)
    assert_type(store.get_sync_collection("things"), Collection)
    assert_type(await things.put("a", {"x": 1}), int)
    assert_type(await things.document("a"), Document | None)
    assert_type(await things.find({"a.b": 1}), list[Document])
    assert_type(things.stream(), AsyncIterator[Document])
    async with store as same:
        assert_type(same, AsyncStore)
