"""py-key-value's protocol on our storage, and its wrappers."""

import asyncio
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from backends import Backend

from collections_store import AsyncStore, InvalidFilter, InvalidOption, StoreClosed

if not os.environ.get("CI"):
    pytest.importorskip("key_value", reason="py-key-value-aio is not installed: see the dev extra")

from key_value.aio.errors import InvalidKeyError, InvalidTTLError, SerializationError
from key_value.aio.protocols.key_value import (
    AsyncCullProtocol,
    AsyncDestroyCollectionProtocol,
    AsyncDestroyStoreProtocol,
    AsyncEnumerateCollectionsProtocol,
    AsyncEnumerateKeysProtocol,
    AsyncKeyValue,
)
from key_value.aio.wrappers.prefix_collections import PrefixCollectionsWrapper

from collections_store.integrations.key_value import KeyValueStore

Use = Callable[[KeyValueStore], Awaitable[Any]]
PROCESS = """
import asyncio, json, sys
from collections_store.integrations.key_value import KeyValueStore

async def main():
    number, url, options = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    async with KeyValueStore(url, **options) as storage:
        async def task(task):
            for n in range(10):
                key = f"{number}-{task}-{n}"
                await storage.put(key, {"n": n}, collection=f"of {task}")
                assert await storage.get(key, collection=f"of {task}") == {"n": n}
        await asyncio.gather(*map(task, range(16)))

asyncio.run(main())
"""


def use(backend: Backend, function: Use) -> Any:
    """Return the result of a function with a storage, on a new event loop."""

    async def main() -> Any:
        async with KeyValueStore(backend.url, **backend.options) as storage:
            return await function(storage)

    return asyncio.run(main())


def test_keys_hold_no_values(shared_backend: Backend) -> None:
    async def peak(storage: KeyValueStore) -> int:
        values = [{"text": "x" * 20_000}] * 1000
        await storage.put_many([f"{n:04}" for n in range(1000)], values)
        tracemalloc.start()
        try:
            assert await storage.keys() == [f"{n:04}" for n in range(1000)]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert use(shared_backend, peak) < 1000 * 20_000 / 2


@pytest.mark.parametrize("limit", [-1, True, 1.0, "1"], ids=repr)
def test_an_invalid_limit_is_refused(backend: Backend, limit: Any) -> None:
    async def check(storage: KeyValueStore) -> None:
        await storage.put("a", {})
        for method in (storage.keys, storage.collections):
            with pytest.raises(InvalidFilter, match="limit.*must be an integer from 0 on, or None"):
                await method(limit=limit)
            assert len(await method(limit=None)) == 1
            assert await method(limit=0) == []

    use(backend, check)


def test_it_has_every_method_of_the_protocols(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        for protocol in (
            AsyncKeyValue, AsyncCullProtocol, AsyncDestroyCollectionProtocol, AsyncDestroyStoreProtocol,
            AsyncEnumerateCollectionsProtocol, AsyncEnumerateKeysProtocol,
        ):  # fmt: skip
            assert isinstance(storage, protocol)

    use(backend, check)


def test_values_are_separate_by_collection_and_key(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        others = ["a", "1:a", "a/b", "ä!%_*?", "a" * 900]
        names = [None, *others]
        for name in names:
            for key in ("a", "a/b", "1:a/x", ""):
                await storage.put(key, {"of": [name, key]}, collection=name)
        for name in names:
            keys = await storage.keys(name)
            assert keys == sorted(["", "1:a/x", "a", "a/b"])
            found = await storage.get_many([*keys, "none", "a"], collection=name)
            assert found == [{"of": [name, key]} for key in keys] + [None, {"of": [name, "a"]}]
        wanted = sorted([storage.default_collection, *others])
        assert await storage.collections() == wanted
        assert set(await storage.collections(limit=2)) < set(wanted)
        assert await storage.keys("a", limit=2) == ["", "1:a/x"]
        assert await storage.destroy_collection("a") is True
        assert await storage.destroy_collection("a") is False
        assert await storage.keys("a") == []
        assert await storage.get("a", collection="1:a") == {"of": ["1:a", "a"]}
        assert await storage.destroy() is True
        assert await storage.collections() == []

    use(backend, check)


def test_deleting_returns_what_there_was(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        await storage.put_many(["a", "b", "c"], ({"n": 1}, {"n": 2}, {"n": 3}))
        assert await storage.delete("a") is True
        assert await storage.delete("a") is False
        assert await storage.delete_many(["a", "b", "c", "b"]) == 2
        assert await storage.get_many(["a", "b", "c"]) == [None, None, None]

    use(backend, check)


def test_values_expire(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        await storage.put("long", {"n": 1}, ttl=100)
        await storage.put("ever", {"n": 2}, ttl=100)
        await storage.put("ever", {"n": 3})
        await storage.put_many(["short", "short too"], [{}, {}], ttl=0.05)
        await asyncio.sleep(0.1)
        (long, left), ever, short = await storage.ttl_many(["long", "ever", "short"])
        assert left is not None
        assert (long, 0 < left <= 100) == ({"n": 1}, True)
        assert [ever, short] == [({"n": 3}, None), (None, None)]
        assert await storage.ttl("ever") == ever
        assert await storage.ttl("short too") == (None, None)
        assert await storage.keys() == ["ever", "long"]
        await storage.cull()
        assert await storage.delete_many(["short", "long"]) == 1

    use(backend, check)


@pytest.mark.parametrize("ttl", [0, -1, True, float("nan"), "soon", [1]], ids=repr)
def test_an_invalid_time_to_live_writes_nothing(backend: Backend, ttl: Any) -> None:
    async def check(storage: KeyValueStore) -> None:
        with pytest.raises(InvalidTTLError):
            await storage.put("a", {}, ttl=ttl)
        with pytest.raises(InvalidTTLError):
            await storage.put_many(["a"], [{}], ttl=ttl)
        assert await storage.get("a") is None

    use(backend, check)


@pytest.mark.parametrize(
    "value",
    [{"a": date(2026, 11, 22)}, {"a": datetime(2026, 11, 22, tzinfo=UTC)}, {"a": b"x"}, {"a": {1}},
     {"a": float("nan")}, {"a": 2**70}, {"a": "\ud800"}, {(1, 2): 3}, [1], None],
    ids=repr,
)  # fmt: skip
def test_what_is_not_json_is_refused(backend: Backend, value: Any) -> None:
    async def check(storage: KeyValueStore) -> None:
        with pytest.raises(SerializationError, match="is not JSON|must be a mapping"):
            await storage.put("a", value)
        with pytest.raises(SerializationError, match="is not JSON|must be a mapping"):
            await storage.put_many(["b", "a"], [{"fine": True}, value])
        assert await storage.get_many(["a", "b"]) == [None, None]

    use(backend, check)


def test_tuples_and_keys_that_are_numbers_are_stored_as_json_has_them(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        value = {"pair": (1, 2), "by number": {1: "one"}}
        await storage.put("a", value)
        assert await storage.get("a") == {"pair": [1, 2], "by number": {"1": "one"}}
        assert value["pair"] == (1, 2)

    use(backend, check)


def test_keys_that_no_id_can_hold_are_refused(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        for bad in ("a\0b", "a" * 2001, "\ud800", 5):
            for arguments in ((bad, None), ("a", bad)):
                key, collection = arguments
                with pytest.raises(InvalidKeyError):
                    await storage.put(key, {}, collection=collection)  # type: ignore[arg-type]
                with pytest.raises(InvalidKeyError):
                    await storage.get_many([key], collection=collection)  # type: ignore[list-item, arg-type]
        with pytest.raises(ValueError, match="2 keys, 1 values"):
            await storage.put_many(["a", "b"], [{}])

    use(backend, check)


def test_a_given_store_stays_open(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            async with KeyValueStore(
                store, collection="cache", default_collection="mine"
            ) as storage:
                await storage.put("a", {"n": 1})
                assert await storage.collections() == ["mine"]
            assert await store["cache"].count() == 1
            with pytest.raises(InvalidOption, match="durability"):
                KeyValueStore(store, durability="full")
        own = KeyValueStore("sqlite://")
        await own.close()
        with pytest.raises(StoreClosed):
            await own.get("a")

    asyncio.run(main())


def test_wrappers_of_py_key_value_stand_on_it(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        wrapped = PrefixCollectionsWrapper(key_value=storage, prefix="app")
        await wrapped.put("a", {"n": 1}, collection="users", ttl=60)
        assert await wrapped.get("a", collection="users") == {"n": 1}
        [name] = await storage.collections()
        assert name.startswith("app")

    use(backend, check)


def test_four_processes_of_sixteen_tasks_lose_nothing(shared_backend: Backend) -> None:
    arguments = [shared_backend.url, json.dumps(shared_backend.options)]
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(number), *arguments])
        for number in range(4)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4

    async def check(storage: KeyValueStore) -> None:
        names = await storage.collections()
        assert len(names) == 16
        assert [len(await storage.keys(name)) for name in names] == [40] * 16

    use(shared_backend, check)
