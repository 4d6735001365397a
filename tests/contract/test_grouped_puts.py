"""Concurrent puts are written by one statement if the database can, with the same results."""

import asyncio
from typing import Any

import pytest
from backends import Backend

from collections_store import AsyncStore, DuplicateKey
from collections_store.operations.bulk import puts_together
from collections_store.operations.by_id import Get, Put, RemoveById

MANY = 200


@pytest.fixture
def opened(backend: Backend) -> Any:
    return lambda: AsyncStore(backend.url, **backend.options)


def test_adjacent_puts_of_different_ids_are_merged() -> None:
    put = Put("a", "1", "{}")
    others = [Put("a", "2", "{}"), Put("a", "1", "{}"), Put("b", "1", "{}"), Put("b", "2", "{}", 5)]
    operations = [put, *others, RemoveById("a", "1"), Get("a", "1"), Put("a", "1", "{}")]
    assert list(puts_together(operations)) == [[0, 1], [2], [3], [4], [5], [6], [7]]
    assert list(puts_together([])) == []


def test_concurrent_puts_equal_sequential_puts(opened: Any) -> None:
    async def work() -> None:
        async with opened() as store:
            things = store["things"]
            await asyncio.gather(
                *(things.put(f"{n % 150}", {"n": n, "t": 'a"\\b'}) for n in range(MANY))
            )
            assert await things.count() == 150
            found = {each.id: each for each in await things.find()}
            for n in range(MANY - 150, 150):
                assert (found[f"{n}"].body["n"], found[f"{n}"].version) == (n, 1)
            for n in range(50):
                assert found[f"{n}"].version == 2
                assert found[f"{n}"].body["n"] in {
                    n,
                    n + 150,
                }  # the order of the winners is undefined

    asyncio.run(work())


def test_expired_documents_are_put_as_new_ones(opened: Any) -> None:
    async def work() -> None:
        async with opened() as store:
            things = store["things"]
            await asyncio.gather(*(things.put(f"{n}", "old", ttl=0.05) for n in range(40)))
            await asyncio.sleep(0.1)
            await asyncio.gather(*(things.put(f"{n}", "new") for n in range(80)))
            found = await things.find()
            assert {(each.body, each.version, each.expires_at) for each in found} == {
                ("new", 1, None)
            }
            assert len(found) == 80

    asyncio.run(work())


def test_a_rejected_put_does_not_affect_the_others(opened: Any) -> None:
    async def work() -> None:
        async with opened() as store:
            things = store["things"]
            await things.create_index("name", unique=True)
            calls = [things.put(f"{n}", {"name": min(n, 30)}) for n in range(32)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            refused = [each for each in outcomes if isinstance(each, BaseException)]
            assert [type(each) for each in refused] == [DuplicateKey]
            assert await things.count() == 31

    asyncio.run(work())


def test_changes_are_recorded_in_order(opened: Any) -> None:
    async def work() -> None:
        async with opened() as store:
            await store.create_collection("things", changes=True)
            things = store["things"]
            await asyncio.gather(*(things.put(f"{n}", n) for n in range(50)))
            assert await things.count() == 50

    asyncio.run(work())
