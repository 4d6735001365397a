"""A cancelled call writes nothing or everything, is over before the cancellation goes on, and its
caller knows which of the two it was."""

import asyncio
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from conftest import Place
from faults.programs import Increment

from collections_store import AsyncStore, DatabaseBusy, DatabaseUnavailable, was_committed
from collections_store.crossing_async import note
from collections_store.jobs import Job
from collections_store.operations import Connection


@dataclass(frozen=True)
class Slow:
    """A statement that runs for a minute unless it is interrupted, in the words of each database."""

    sql: str
    collection: str = "things"
    WRITES: ClassVar = False
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Any:
        return connection.rows(self.sql)

    def nothing(self) -> None:
        return None


SLOW = {
    "sqlite-file": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
    "sqlite-memory": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
    "postgresql": "SELECT pg_sleep(60)",
}


def run(place: Place, main: Callable[[AsyncStore], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with AsyncStore(place.url, **place.options, **options) as store:
            await main(store)

    asyncio.run(whole())


def test_a_put_cancelled_at_any_moment_is_nothing_or_everything(place: Place) -> None:
    outcomes: set[bool | None] = set()

    async def main(store: AsyncStore) -> None:
        things = store["things"]
        await things.put("warm", 0)
        for number in range(300):
            others = [asyncio.create_task(things.put(f"other {number} {n}", n)) for n in range(3)]
            task = asyncio.create_task(things.put(f"n {number}", number))
            await asyncio.sleep(random.choice([0, 0, 0.00005, 0.0002, 0.001]))
            task.cancel()
            try:
                await task
                written: bool | None = True
            except asyncio.CancelledError as error:
                written = was_committed(error)
                outcomes.add(written)
                assert written is not None
                note = "everything" if written else "nothing"
                assert f"collections_store wrote {note}" in "".join(error.__notes__)
            assert await things.exists(f"n {number}") is written
            assert await asyncio.gather(*others) == [1, 1, 1]
        assert await things.count() >= 900

    run(place, main)
    assert False in outcomes


def test_a_cancelled_read_modify_write_is_rolled_back(place: Place) -> None:
    async def main(store: AsyncStore) -> None:
        await store.run(Increment("things", "n"))
        task = asyncio.create_task(store.run(Increment("things", "n", pause=0.3)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert was_committed(caught.value) is False
        assert await store["things"].get("n") == 1
        assert await store.run(Increment("things", "n")) == 2

    run(place, main)


def test_a_timeout_tells_too(place: Place) -> None:
    async def main(store: AsyncStore) -> None:
        await store.run(Increment("things", "n"))
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.1):
                await store.run(Increment("things", "n", pause=0.3))
        assert was_committed(caught.value) is False
        assert await store["things"].get("n") == 1

    run(place, main)


def test_a_long_statement_is_interrupted(place: Place) -> None:
    async def main(store: AsyncStore) -> None:
        await store["things"].put("a", 1)
        begun = time.monotonic()
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.2):
                await store.run(Slow(SLOW[place.name]))
        assert time.monotonic() - begun < 30
        assert was_committed(caught.value) is None
        assert await store["things"].get("a") == 1
        assert await store["things"].put("a", 2) == 2

    run(place, main, pool_size=1)


def test_an_impatient_caller_cancels_twice(place: Place) -> None:
    async def main(store: AsyncStore) -> None:
        await store.run(Increment("things", "n"))
        task = asyncio.create_task(store.run(Increment("things", "n", pause=0.3)))
        for _ in range(3):
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store["things"].get("n") == 1

    run(place, main)


def test_a_job_that_has_not_begun_is_dropped(place: Place) -> None:
    async def main(store: AsyncStore) -> None:
        await store["things"].put("a", 1)
        busy = [
            asyncio.create_task(store.run(Increment("things", "n", pause=0.2))) for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        late = asyncio.create_task(store.run(Increment("late", "n")))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await late
        assert was_committed(caught.value) is False
        await asyncio.gather(*busy)
        assert await store["late"].exists("n") is False
        assert await store["things"].get("n") == 3

    run(place, main, pool_size=1)


def test_a_wait_for_another_process_can_be_cancelled(tmp_path: Path) -> None:
    place = Place("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)

    async def main(store: AsyncStore) -> None:
        await store["things"].put("a", 1)
        holder.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        tasks = [asyncio.create_task(store["things"].put("a", n)) for n in range(5)]
        await asyncio.sleep(0.05)
        for task in tasks[1:]:
            task.cancel()
        for task in tasks[1:]:
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert was_committed(caught.value) is False
        assert time.monotonic() - begun < 10
        holder.execute("ROLLBACK")
        assert await tasks[0] == 2

    run(place, main)
    holder.close()


def test_a_group_that_waits_too_long_fails_as_one(tmp_path: Path) -> None:
    place = Place("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)

    async def main(store: AsyncStore) -> None:
        await store["things"].put("a", 1)
        holder.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        puts = (store["things"].put("a", n) for n in range(50))
        answers = await asyncio.gather(*puts, return_exceptions=True)
        assert time.monotonic() - begun < 10
        assert all(isinstance(answer, DatabaseBusy) for answer in answers)
        holder.execute("ROLLBACK")
        assert await store["things"].put("a", 2) == 2

    run(place, main, busy_timeout=0.5)
    holder.close()


def test_the_event_loop_goes_on_while_a_lock_is_awaited(place: Place) -> None:
    async def main(store: AsyncStore) -> None:
        await store["things"].put("a", 1)
        slow = asyncio.create_task(store.run(Increment("things", "n", pause=0.4)))
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(store["things"].put(str(n), n)) for n in range(5)]
        ticks = 0
        while not slow.done():
            await asyncio.sleep(0.005)
            ticks += 1
        await asyncio.gather(*waiting)
        assert ticks > 20

    run(place, main)


def test_a_connection_that_broke_under_a_cancelled_write_leaves_doubt() -> None:
    job = Job(Increment("things", "n"))
    job.finish(error=DatabaseUnavailable("the connection broke", in_doubt=True))
    cancelled = asyncio.CancelledError()
    note(cancelled, job)
    assert was_committed(cancelled) is None
    assert isinstance(cancelled.__cause__, DatabaseUnavailable)
    assert "does not know" in "".join(cancelled.__notes__)


def test_an_error_that_is_no_cancellation_tells_nothing() -> None:
    assert was_committed(ValueError()) is None
    assert was_committed(asyncio.CancelledError()) is None


def test_a_cancelled_call_of_several_batches_says_that_a_part_was_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(f"sqlite:///{tmp_path / 'store.db'}") as store:
            things = store["things"]
            written = asyncio.Event()

            def given() -> Iterator[tuple[str, int]]:
                for number in range(10**9):
                    if number == 2500:
                        written.set()
                    yield str(number), number

            task = asyncio.create_task(things.put_many(given()))
            await written.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert was_committed(caught.value) is None
            assert len("".join(caught.value.__notes__)) < 1000
            assert await things.count() >= 2000

    asyncio.run(main())
