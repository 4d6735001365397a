"""Concurrent changes of the same documents, in tasks, threads and processes: nothing is lost."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from backends import Backend
from faults.programs import METHODS, one_more
from faults.test_processes import finish, start
from faults.test_processes import stop_processes as stop_processes

from collections_store import AsyncStore, DuplicateKey, Store, VersionConflict

ASYNC_METHODS: dict[str, Callable[[AsyncStore], Awaitable[Any]]] = {
    "change": lambda store: store["counters"].change("n", one_more, default={"n": 0}),
    "increment": lambda store: store["counters"].increment("n", "n"),
    "update": lambda store: store["counters"].update("n", {"$inc": {"n": 1}}, upsert=True),
    "find_one_and_update": lambda store: store["counters"].find_one_and_update(
        {"$id": "n"}, {"$inc": {"n": 1}}, upsert=True
    ),
    "transaction": lambda store: store.run_transaction(_count, attempts=1000),
}


async def _count(transaction: Any) -> None:
    body = await transaction["counters"].get("n", {"n": 0})
    await transaction["counters"].put("n", one_more(body))


def prepare(backend: Backend, changes: bool) -> None:
    with Store(backend.url, **backend.options) as store:
        store.create_collection("counters", changes=changes)


def counted(backend: Backend, id: str) -> tuple[int, int]:
    with Store(backend.url, **backend.options) as store:
        found = store["counters"].document(id)
        assert found is not None
        return found.body["n"], found.version


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("method", ASYNC_METHODS)
def test_fifty_tasks_lose_no_increment(shared_backend: Backend, method: str, changes: bool) -> None:
    prepare(shared_backend, changes)

    async def main() -> None:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            await asyncio.gather(*(ASYNC_METHODS[method](store) for _ in range(50)))

    asyncio.run(main())
    assert counted(shared_backend, "n") == (50, 50)


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_eight_threads_lose_no_increment(
    shared_backend: Backend, method: str, changes: bool
) -> None:
    prepare(shared_backend, changes)
    options = shared_backend.options
    with Store(shared_backend.url, **options) as store, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: METHODS[method](store, "n"), range(48)))
    assert counted(shared_backend, "n") == (48, 48)


@pytest.mark.parametrize("changes", [False, True])
def test_four_processes_of_three_threads_lose_no_increment(
    shared_backend: Backend, changes: bool
) -> None:
    prepare(shared_backend, changes)
    finish(*(start("count", shared_backend, 3, 12) for _ in range(4)))
    assert {method: counted(shared_backend, method) for method in METHODS} == dict.fromkeys(
        METHODS, (48, 48)
    )


@pytest.mark.parametrize("changes", [False, True])
def test_each_job_is_taken_once(shared_backend: Backend, changes: bool) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        jobs = store.create_collection("jobs", changes=changes)
        jobs.create_index("state")
        jobs.put_many((str(n), {"state": "new", "n": n}) for n in range(200))
        outputs = finish(*(start("take_jobs", shared_backend, worker) for worker in range(4)))
        taken = [job for output in outputs for job in json.loads(output)]
        assert sorted(taken) == sorted(map(str, range(200)))
        assert {job.version for job in jobs.stream()} == {2}
        outputs = finish(*(start("delete_jobs", shared_backend) for _ in range(3)))
        assert sorted(job for output in outputs for job in json.loads(output)) == sorted(taken)
        assert jobs.count() == 0


@pytest.mark.parametrize("changes", [False, True])
def test_overlapping_batches_of_four_processes(shared_backend: Backend, changes: bool) -> None:
    prepare(shared_backend, changes)
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store.create_collection("things", changes=changes)
        outputs = finish(*(start("write_overlapping", shared_backend, seed) for seed in range(4)))
        assert list(map(int, outputs)) == [3 * 60] * 4
        assert {each.version for each in things.stream()} == {4 * 2}
        found = {(each.version, each.body["n"]) for each in store["counters"].stream()}
        assert (found, store["counters"].count()) == ({(4, 4)}, 60)


def test_one_process_inserts_a_contested_id(shared_backend: Backend) -> None:
    running = [start("insert_the_same", shared_backend) for _ in range(4)]
    outputs = [*map(json.loads, finish(*running))]
    for method in outputs[0]:
        won = [id for each in outputs for id in each[method]]
        assert sorted(won, key=int) == list(map(str, range(30)))


def test_one_thread_inserts_a_contested_id(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store, ThreadPoolExecutor(8) as threads:

        def insert(number: int) -> tuple[bool, bool]:
            id, won = str(number % 20), [True, True]
            try:
                store["a"].insert_one(number, id=id)
            except DuplicateKey:
                won[0] = False
            try:
                store["b"].put(id, number, if_absent=True)
            except VersionConflict:
                won[1] = False
            return won[0], won[1]

        won = list(threads.map(insert, range(160)))
        assert [sum(each) for each in zip(*won, strict=True)] == [20, 20]
        assert {each.version for name in "ab" for each in store[name].list()} == {1}


@pytest.mark.parametrize("changes", [False, True])
def test_concurrent_upserts_create_one_document(shared_backend: Backend, changes: bool) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        unique = store.create_collection("unique", changes=changes)
        unique.create_index("k", unique=True)
        outputs = finish(*(start("upsert_the_same", shared_backend) for _ in range(4)))
        assert sum(map(int, outputs)) == 30
        found = [(each.body["k"], each.body["n"], each.version) for each in unique.list(limit=100)]
        assert sorted(found) == [(number, 4, 4) for number in range(30)]


def test_an_upsert_that_lost_a_race_updates_the_winner(shared_backend: Backend) -> None:
    stores = [Store(shared_backend.url, **shared_backend.options) for _ in range(2)]
    stores[0]["unique"].create_index("k", unique=True)
    barrier = threading.Barrier(2)

    def upsert(store: Store) -> int:
        made = 0
        for number in range(100):
            barrier.wait(60)
            call_method = store["unique"].update_one if number % 2 else store["unique"].update_many
            made += (
                call_method({"k": number}, {"$inc": {"n": 1}}, upsert=True).upserted_id is not None
            )
        return made

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(upsert, stores)) == 100
    assert stores[0]["unique"].count({"n": 2, "$version": 2}) == 100
    with pytest.raises(DuplicateKey):
        stores[0]["unique"].update_one({"k": 1}, {"$set": {"k": 2}}, upsert=True)
    for store in stores:
        store.close()
