"""The types of the public API; mypy is the test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, Unpack, assert_type

import collections_store
from collections_store import (
    AsyncCollection,
    AsyncStore,
    AsyncTransaction,
    BulkWriteError,
    BulkWriteResult,
    Collection,
    CollectionInfo,
    DeleteMany,
    Document,
    InsertManyResult,
    InsertOne,
    InsertOneResult,
    PutManyResult,
    Refusal,
    ReturnDocument,
    Store,
    StoreOptions,
    Transaction,
    UpdateOne,
    UpdateResult,
)
from collections_store.integrations import smskillsdk
from collections_store.integrations.soul_machines import AsyncSkillMemory, SkillMemory
from collections_store.memory import AsyncMemory, Memory


def sync(store: Store, connection: Any) -> None:
    things = store.collection("things", ttl=60)
    assert_type(things, Collection)
    assert_type(store.get_sync_collection("things"), Collection)
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
    assert_type(store.run_transaction(lambda tx: tx["things"].count()), int)
    assert_type(things.put("a", 1, ttl=1.5, if_version=2), int)
    assert_type(things.insert_one(1), InsertOneResult)
    assert_type(things.insert_many([1], ttl=timedelta(1)), InsertManyResult)
    assert_type(things.update("a", {"$set": {"x": 1}}), UpdateResult)
    assert_type(things.update_many({}, [{"$unset": "x"}]), UpdateResult)
    assert_type(things.replace_one({}, {}), UpdateResult)
    after = ReturnDocument.AFTER
    found = things.find_one_and_update({}, {"$inc": {"n": 1}}, return_document=after)
    assert_type(found, Document | None)
    assert_type(things.find_one_and_delete({}, sort="n"), Document | None)
    requests = [InsertOne(1), UpdateOne({}, {"$set": {"x": 1}}, upsert=True), DeleteMany({})]
    assert_type(things.bulk_write(requests), BulkWriteResult)
    assert_type(things.touch("a", ttl=5), bool)
    assert_type(things.purge_expired(), int)
    assert_type(store.skill_memory(policy="raise"), SkillMemory)
    assert_type(smskillsdk.skill_memory(store), SkillMemory)
    assert_type(store.skill_memory().save("session", "skill", []), int)
    assert_type(store.memory("bot").namespace("room", "42").session("a", ttl=60), Memory)
    with store.memory("bot").request() as request, request.transaction() as within:
        assert_type(request, Memory)
        assert_type(within, Memory)
    with store.transaction() as tx, tx.transaction() as inner:
        assert_type(tx, Transaction)
        assert_type(smskillsdk.skill_memory(tx), SkillMemory)
        assert_type(inner["things"], Collection)
    with store as same:
        assert_type(same, Store)


async def awaited(store: AsyncStore) -> None:
    things = store.collection("things", ttl=60)
    assert_type(things, AsyncCollection)
    assert_type(store.get_collection("things"), AsyncCollection)
    assert_type(store["things"], AsyncCollection)
    assert_type(store.get_sync_collection("things"), Collection)
    assert_type(await things.put("a", {"x": 1}), int)
    assert_type(await things.document("a"), Document | None)
    assert_type(await asyncio.gather(things.put("a", 1), things.exists("a")), tuple[int, bool])
    assert_type(await things.find({"a.b": 1}), list[Document])
    assert_type(things.stream(), AsyncIterator[Document])
    assert_type(await things.update("a", {"$set": {"x": 1}}), UpdateResult)
    assert_type(await things.find_one_and_replace({}, {}), Document | None)
    assert_type(await things.bulk_write([InsertOne(1)], ordered=False), BulkWriteResult)
    assert_type(await things.put_many({"a": 1}, mode="insert"), PutManyResult)
    store.get_collection("things", ttl=60, changes="after")
    assert_type(smskillsdk.skill_memory(store), AsyncSkillMemory)
    assert_type(await store.skill_memory(ttl=60).end_session("session"), int)
    assert_type(store.memory("bot").namespace("room", "42").session("a", ttl=60), AsyncMemory)
    async with store.memory("bot").request() as request, request.transaction() as within:
        assert_type(request, AsyncMemory)
        assert_type(within, AsyncMemory)
    async with store.transaction() as tx, tx.transaction() as inner:
        assert_type(tx, AsyncTransaction)
        assert_type(tx.skill_memory(), AsyncSkillMemory)
        assert_type(inner["things"], AsyncCollection)

    async def count(tx: AsyncTransaction) -> int:
        return await tx["things"].count()

    assert_type(await store.run_transaction(count), int)
    async with store as same:
        assert_type(same, AsyncStore)


def options(store: Store, **passed_on: Unpack[StoreOptions]) -> None:
    """Options of the right type are accepted; mypy reports others, and each unused `ignore`."""
    Store("sqlite://", pool_size=2, durability="normal", default=str, upgrade=None)
    AsyncStore("sqlite://", page_cache=2**20)
    AsyncStore("sqlite://", **passed_on)
    Store("sqlite://", pol_size=2)  # type: ignore[call-arg]
    AsyncStore("sqlite://", durability="most")  # type: ignore[arg-type]
    store.collection("things", ttl=timedelta(1), changes="both", sliding=True)
    store.collection("things", change=True)  # type: ignore[call-overload]
    store.create_collection("things", jsonb=True, ttl="1")  # type: ignore[arg-type]
    store.memory("bot").configure(ttl=1)  # type: ignore[call-arg]
    store["things"].find({}, comment="why", let={"a": 1}, hint="a_1")
    store["things"].find({}, comment=5)  # type: ignore[arg-type]
    store["things"].count({}, coment="why")  # type: ignore[call-arg]


def misspelled() -> None:
    from collections_store import Stroe  # type: ignore[attr-defined]  # noqa: F401

    print(collections_store.Shop)  # type: ignore[attr-defined]
    print(collections_store.errors.DuplicateKey)


def errors(things: Collection) -> None:
    try:
        things.put_many({"a": 1})
    except BulkWriteError as error:
        assert_type(error.result.refused, tuple[Refusal, ...])
        if isinstance(error.result, PutManyResult):
            assert_type(error.result.written_count, int)
        if isinstance(error.result, BulkWriteResult):
            assert_type(error.result.inserted_ids, dict[int, str])
