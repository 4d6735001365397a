"""Waiting writers share a commit, and do not affect each other."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from faults.losing import Proxy

from collections_store import AsyncStore, Collection, DatabaseError, DatabaseUnavailable, Store
from collections_store.engine import group_commit
from collections_store.operations.by_id import Put
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session
from collections_store.transaction import bound


@dataclass(frozen=True)
class Broken(Operation[None]):
    """A write that the database rejects."""

    collection: str = "things"
    writes = True
    atomic = True
    creates_collection = True

    def __call__(self, session: Session) -> None:
        session.changed("DELETE FROM there_is WHERE no = 'such column")


@dataclass(frozen=True)
class Refuse(Operation[None]):
    """A write that raises an error before it writes."""

    collection: str = "things"
    writes = True
    atomic = True
    creates_collection = True

    def __call__(self, session: Session) -> None:
        raise ZeroDivisionError


def commits_of(store: Store | AsyncStore) -> list[str]:
    """Record the statements of the writing connection of an SQLite store."""
    words: list[str] = []
    opened: Any = store.core.opened
    pool = opened._pools[1]
    lease = pool.acquire()
    lease.connection.driver.set_trace_callback(words.append)
    pool.release(lease)
    return words


def test_concurrent_puts_of_tasks_share_commits(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(f"sqlite:///{tmp_path / 'store.db'}") as store:
            await store["things"].put("warm", 0)
            words = commits_of(store)
            versions = await asyncio.gather(
                *(store["things"].put(f"n {n % 50}", n) for n in range(200))
            )
            assert sum(word.startswith("INSERT") for word in words) == 200
            assert words.count("COMMIT") < 50
            assert sorted(versions) == sorted([1, 2, 3, 4] * 50)
            assert await store["things"].count() == 51

    asyncio.run(main())


def test_concurrent_puts_of_threads_share_commits(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        things = store["things"]
        things.put("warm", 0)
        words = commits_of(store)
        barrier = threading.Barrier(16)

        def work(number: int) -> None:
            barrier.wait()
            for turn in range(20):
                things.put(f"{number} {turn}", turn)

        with ThreadPoolExecutor(16) as threads:
            list(threads.map(work, range(16)))
        assert things.count() == 321
        assert sum(word.startswith("INSERT") for word in words) == 320
        assert words.count("COMMIT") < 320


def test_concurrent_puts_of_tasks_share_commits_on_postgresql(postgres_backend: Backend) -> None:
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    count = sa.text(
        "SELECT count(DISTINCT xmin::text) FROM "
        + postgres_backend.options["schema"]
        + ".cs_1_things"
    )

    async def main() -> None:
        async with AsyncStore(postgres_backend.url, **postgres_backend.options) as store:
            await store["things"].put("warm", 0)
            await asyncio.gather(*(store["things"].put(f"n {n}", n) for n in range(200)))

    asyncio.run(main())
    with engine.connect() as connection:
        assert connection.execute(count).scalar_one() < 50
    engine.dispose()


def test_a_failed_write_does_not_affect_its_group(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            await store["things"].put("warm", 0)
            jobs: list[Any] = []
            for number in range(60):
                jobs.append(store["things"].put(f"n {number}", number))
                if number % 20 == 7:
                    jobs.append(store.run(Broken()))
                    jobs.append(store.run(Refuse()))
            answers = await asyncio.gather(*jobs, return_exceptions=True)
            assert sum(answer == 1 for answer in answers) == 60
            assert sum(isinstance(answer, DatabaseError) for answer in answers) == 3
            assert sum(isinstance(answer, ZeroDivisionError) for answer in answers) == 3
            assert await store["things"].count() == 61

    asyncio.run(main())


class Leave(BaseException):
    """As `SystemExit`, which asyncio would not let a task raise."""


@dataclass(frozen=True)
class Exits(Operation[None]):
    """An operation whose function of the user's ends the thread."""

    collection: str = "things"
    writes: bool = True
    atomic: bool = True

    def __call__(self, session: Session) -> None:
        raise Leave


@pytest.mark.parametrize("exits", [Exits(), Exits(atomic=False), Exits(writes=False)])
def test_an_exit_ends_no_thread_of_the_store_and_no_other_task(
    backend: Backend, exits: Exits
) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            await store["things"].put("warm", 0)
            for _ in range(2):
                jobs = [store.run(exits), *(store["things"].put(f"n {n}", n) for n in range(20))]
                first, *others = await asyncio.gather(*jobs, return_exceptions=True)
                assert isinstance(first, Leave)
                assert all(isinstance(answer, int) for answer in others)

    asyncio.run(main())


def test_an_exit_ends_no_other_thread(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store, ThreadPoolExecutor(6) as threads:
        store["things"].put("warm", 0)
        exits = [threads.submit(store.core.run, Exits()) for _ in range(100)]
        puts = [threads.submit(store["things"].put, f"n {n}", n) for n in range(100)]
        assert all(isinstance(each.exception(), Leave) for each in exits)
        assert [each.result() for each in puts] == [1] * 100


def test_a_write_after_a_cancelled_write_waits_for_nobody(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that came for the cancelled write finds nothing, and must not wait for a release."""
    monkeypatch.setattr(group_commit, "POLL_INTERVAL", 100.0)

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            await store["things"].put("warm", 0)
            for number in range(50):
                given_up = asyncio.ensure_future(store["things"].put("given up", number))
                await asyncio.sleep(0)
                given_up.cancel()
                await asyncio.wait([given_up])
                time.sleep(0.001)  # noqa: ASYNC251 - the thread comes meanwhile
                put = asyncio.ensure_future(store["things"].put("n", number))
                done, _ = await asyncio.wait([put], timeout=30)
                assert done

    asyncio.run(main())


def test_tasks_beside_threads_wait_for_no_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "POLL_INTERVAL", 100.0)

    async def main() -> None:
        async with AsyncStore(f"sqlite:///{tmp_path / 'store.db'}", durability="normal") as store:
            await store["things"].put("warm", 0)
            things = store.get_sync_collection("things")

            def write() -> None:
                for number in range(300):
                    things.put("thread", number)

            writes = [asyncio.to_thread(write) for _ in range(3)]
            tasks: list[Any] = [asyncio.ensure_future(each) for each in writes]
            for number in range(300):
                tasks.append(asyncio.ensure_future(store["things"].put("task", number)))
                await asyncio.sleep(0.0005)
            _, waiting = await asyncio.wait(tasks, timeout=50)
            assert not waiting

    asyncio.run(main())


def test_a_row_that_is_locked_does_not_hold_up_the_others(postgres_backend: Backend) -> None:
    url = postgres_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url)

    async def main() -> None:
        async with AsyncStore(postgres_backend.url, **postgres_backend.options) as store:
            await store["things"].put("locked", 0)
            with engine.connect() as connection:
                bound(store.core, connection).step(Put("things", "locked", "1"))
                held = asyncio.create_task(store["things"].put("locked", 2))
                async with asyncio.timeout(10):
                    await asyncio.gather(*(store["things"].put(str(n), n) for n in range(20)))
                assert not held.done()
                connection.commit()
            assert await held == 3
            assert await store["things"].get("locked") == 2

    asyncio.run(main())
    engine.dispose()


def test_lost_connections(postgres_backend: Backend) -> None:
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    end = sa.text(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = :n"
    )
    proxy = Proxy(postgres_backend.url)
    name = postgres_backend.options["schema"]
    with Store(f"{proxy.url}?application_name={name}", **postgres_backend.options) as store:
        things = store["things"]
        assert things.put("a", 1) == 1
        for version in (2, 3):
            with engine.begin() as connection:
                connection.execute(end, {"n": name})
            if version == 2:
                assert things.get("a") == 1
            assert things.put("a", version) == version  # on a connection that is not lost
        words = r"whether \w+\(collection='things', .*\) took place is not"
        with proxy.dropping(), pytest.raises(DatabaseUnavailable, match=words) as caught:
            things.put("a", 4)
        assert caught.value.in_doubt
        assert isinstance(caught.value, ConnectionError)
        assert things.put("a", 5) == 5
    engine.dispose()
    proxy.close()


@contextmanager
def writing_all_the_time(things: Collection) -> Iterator[list[int]]:
    """Write in two threads within the block; the list has the number of updates of `a` at the end."""
    ended, updated = threading.Event(), [0]

    def put() -> None:
        while not ended.is_set():
            things.put("b", {"n": 0})

    def update() -> None:
        while not ended.is_set():
            things.update("a", {"$inc": {"n": 1}})
            updated[0] += 1

    threads = [threading.Thread(target=each) for each in (put, update)]
    for thread in threads:
        thread.start()
    try:
        yield updated
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.fixture(params=["full", "normal"])
def things(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Collection]:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Store(url, busy_timeout=5, durability=request.param) as store:
        store["things"].put("a", {"n": 0})
        yield store["things"]


def add_to_all(things: Collection) -> None:
    things.update_many({"n": {"$gte": 0}}, {"$inc": {"m": 1}})


def test_threads_that_write_all_the_time_leave_the_main_thread_its_turn(things: Collection) -> None:
    with writing_all_the_time(things) as updated:
        for _ in range(200):
            add_to_all(things)
    assert things.get("a") == {"n": updated[0], "m": 200}


def test_threads_that_write_all_the_time_leave_other_threads_their_turn(things: Collection) -> None:
    with writing_all_the_time(things) as updated:
        for _ in range(100):
            thread = threading.Thread(target=add_to_all, args=(things,))
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
    assert things.get("a") == {"n": updated[0], "m": 100}
