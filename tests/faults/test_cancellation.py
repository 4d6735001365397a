"""A cancelled call writes nothing, everything, or complete batches. It finishes before the cancellation is raised, and
reports what it wrote.
"""

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from faults.programs import Increment
from selection import sampled

from collections_store import (
    AsyncStore,
    DatabaseBusy,
    DatabaseUnavailable,
    InsertOne,
    Store,
    TransactionEnded,
    partial_result,
    was_committed,
)
from collections_store.aio.bridge import note_job
from collections_store.engine.executor import Abandoned
from collections_store.engine.jobs import Job
from collections_store.expressions.budget import checked_by
from collections_store.operations.operation import Operation, Work
from collections_store.operations.session import Session


@dataclass(frozen=True)
class Slow(Operation[Any]):
    """A statement of each database that runs for a minute unless it is interrupted."""

    sql: str
    collection: str = "things"
    atomic = True

    def __call__(self, session: Session) -> Any:
        return session.rows(self.sql)


SLOW = {
    "sqlite-file": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
    "sqlite-memory": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
    "postgresql": "SELECT pg_sleep(60)",
}


def run(backend: Backend, main: Callable[[AsyncStore], Awaitable[None]], **options: Any) -> None:
    async def with_store() -> None:
        async with AsyncStore(backend.url, **backend.options, **options) as store:
            await main(store)

    asyncio.run(with_store())


def test_a_put_cancelled_at_any_moment_is_atomic(backend: Backend) -> None:
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

    run(backend, main)
    assert False in outcomes


def test_a_cancelled_read_modify_write_is_rolled_back(backend: Backend) -> None:
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

    run(backend, main)


def test_a_timeout_reports_the_outcome(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        await store.run(Increment("things", "n"))
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.1):
                await store.run(Increment("things", "n", pause=0.3))
        assert was_committed(caught.value) is False
        assert await store["things"].get("n") == 1

    run(backend, main)


def test_a_long_statement_is_interrupted(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        await store["things"].put("a", 1)
        begun = time.monotonic()
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.2):
                await store.run(Slow(SLOW[backend.name]))
        assert time.monotonic() - begun < 30
        assert was_committed(caught.value) is None
        assert await store["things"].get("a") == 1
        assert await store["things"].put("a", 2) == 2

    run(backend, main, pool_size=1)


def test_a_repeated_cancellation(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        await store.run(Increment("things", "n"))
        task = asyncio.create_task(store.run(Increment("things", "n", pause=0.3)))
        for _ in range(3):
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store["things"].get("n") == 1

    run(backend, main)


def test_a_queued_job_is_dropped(backend: Backend) -> None:
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

    run(backend, main, pool_size=1)


def test_a_wait_for_another_process_can_be_cancelled(tmp_path: Path) -> None:
    backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
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

    run(backend, main)
    holder.close()


def test_a_group_that_times_out_fails_together(tmp_path: Path) -> None:
    backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
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

    run(backend, main, busy_timeout=0.5)
    holder.close()


def test_the_event_loop_runs_while_a_write_waits_for_a_lock(backend: Backend) -> None:
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

    run(backend, main)


def test_a_lost_connection_leaves_a_cancelled_write_in_doubt() -> None:
    job = Job(Increment("things", "n"))
    job.finish(error=DatabaseUnavailable("the connection broke", in_doubt=True))
    cancelled = asyncio.CancelledError()
    note_job(cancelled, job)
    assert was_committed(cancelled) is None
    assert isinstance(cancelled.__cause__, DatabaseUnavailable)
    assert "does not know" in "".join(cancelled.__notes__)


def test_an_error_that_is_not_a_cancellation_has_no_outcome() -> None:
    assert was_committed(ValueError()) is None
    assert was_committed(asyncio.CancelledError()) is None


MANY: dict[str, Callable[[Any, Any], Any]] = {
    "put_many": lambda things, numbers: things.put_many((str(n), n) for n in numbers),
    "insert_many": lambda things, numbers: things.insert_many(iter(numbers)),
    "bulk_write": lambda things, numbers: things.bulk_write(InsertOne(n) for n in numbers),
}


@pytest.mark.parametrize("method", MANY.values(), ids=MANY)
def test_a_cancelled_call_of_several_batches_reports_a_partial_outcome(
    backend: Backend, method: Callable[[Any, Any], Any]
) -> None:
    async def main(store: AsyncStore) -> None:
        written = asyncio.Event()

        def numbers() -> Iterator[int]:
            for number in range(10**9):
                if number == 2500:
                    written.set()
                yield number

        task = asyncio.create_task(method(store["things"], numbers()))
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert was_committed(caught.value) is None
        part: Any = partial_result(caught.value)
        assert part.inserted_count == await store["things"].count() >= 1000
        [note] = caught.value.__notes__
        assert note == f"collections_store wrote a part, in batches: collection things: {part!r}"

    run(backend, main)


@pytest.mark.parametrize(("count", "method"), list(product([300, 1400], MANY))[:: sampled(2)])
def test_many_writes_cancelled_at_any_moment_report_their_outcome(
    backend: Backend, method: str, count: int
) -> None:
    """1,400 documents are several batches."""
    write = MANY[method]

    async def main(store: AsyncStore) -> None:
        await write(store["warm"], range(count))
        for number in range(12):
            things = store[f"things_{number}"]
            task = asyncio.create_task(write(things, range(count)))
            await asyncio.sleep(random.uniform(0, 0.03))
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                written = await things.count()
                part: Any = partial_result(error)
                expected = {0: False, count: True}.get(written)
                assert (was_committed(error), part and part.inserted_count) == (
                    expected,
                    written or None,
                ), error.__notes__
                word = {False: "nothing", True: "everything", None: "a part"}[expected]
                [note] = error.__notes__
                assert note.startswith(f"collections_store wrote {word}")

    run(backend, main)


def test_many_writes_cancelled_in_a_transaction_wrote_nothing(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        async def block() -> None:
            async with store.transaction() as tx:
                await tx["things"].put_many((str(n), n) for n in numbers())

        task = asyncio.create_task(block())

        def numbers() -> Iterator[int]:
            for number in range(10**9):
                if number == 2500:
                    task.cancel()
                yield number

        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert (was_committed(caught.value), partial_result(caught.value)) == (False, None)
        [note] = caught.value.__notes__
        assert note.startswith("collections_store wrote nothing of the transaction")
        assert await store["things"].count() == 0

    run(backend, main)


def test_a_change_that_is_cancelled_in_its_function_wrote_nothing(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        await store["things"].put("a", 1)
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.05):
                await store["things"].change("a", lambda _: asyncio.sleep(60))
        assert was_committed(caught.value) is False

    run(backend, main)


def test_an_outcome_is_not_that_of_an_earlier_cancellation(tmp_path: Path) -> None:
    async def main(store: AsyncStore) -> None:
        try:
            async with asyncio.timeout(0.05):
                await store["things"].change("a", lambda _: asyncio.sleep(60), default=0)
        except TimeoutError:

            def numbers() -> Iterator[int]:
                for number in range(10**9):
                    if number == 2500:
                        task.cancel()
                    yield number

            task = asyncio.create_task(MANY["put_many"](store["things"], numbers()))
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert was_committed(caught.value) is None

    run(Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}"), main)


RANGE = {"$range": [0, 100_000]}
ENDLESS = {
    "$map": {"input": RANGE, "in": {"$size": {"$map": {"input": RANGE, "in": {"$add": [1, 1]}}}}}
}
"""An expression that computes for hours."""


def test_a_cancellation_stops_computations_in_python(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options, busy_timeout=0.5) as store:
            things = store["things"]
            await things.put_many({"x": {"n": 1}, "y": {"n": 1}})
            calls: list[Callable[[Any], Any]] = [
                lambda on: on.aggregate([{"$set": {"m": ENDLESS}}]),
                lambda on: on.find({"$expr": {"$eq": [ENDLESS, 1]}}),
                lambda on: on.update_many({}, [{"$set": {"m": ENDLESS}}]),
                lambda on: on.update("x", [{"$set": {"m": ENDLESS}}]),
            ]
            for call in calls:
                task = asyncio.create_task(call(things))
                await asyncio.sleep(0.1)
                assert not task.done()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(task, 60)
                assert await things.put("z", 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), store.transaction() as tx:
                    await calls[2](tx["things"])
            assert (await things.get("x"), await things.get("y")) == ({"n": 1}, {"n": 1})

    asyncio.run(main())


def test_sorts_and_joins_in_python_can_be_stopped() -> None:
    def stop() -> None:
        raise Abandoned("cancelled")

    with Store("sqlite://") as store:
        things = store["things"]
        things.put_many({str(n): {"n": n % 2, "a": [n, {}]} for n in range(3000)})
        join = {"from": "things", "localField": "n", "foreignField": "n", "as": "same"}
        calls: list[Callable[[], Any]] = [
            lambda: things.find(sort="a"),
            lambda: things.aggregate([{"$lookup": join}]),
        ]
        for call in calls:
            with checked_by(stop), pytest.raises(Abandoned):
                call()


def test_waiting_for_a_computation_ends_with_busy_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path / 'store.db'}"
        async with AsyncStore(url, busy_timeout=0.4) as store:
            things = store["things"]
            await things.put("x", {"n": 1})
            task = asyncio.create_task(things.update_many({}, [{"$set": {"m": ENDLESS}}]))
            await asyncio.sleep(0.1)
            writes: list[Any] = [things.put(str(n), n) for n in range(3)]
            writes += [things.put_many({"a": 1, "b": 2})]
            for error in await asyncio.gather(*writes, return_exceptions=True):
                assert isinstance(error, DatabaseBusy)
                assert "ModifyMany" in str(error) or "behind other operations" in str(error)
            assert await things.get("x") == {"n": 1}
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await things.count() == 1
            assert await things.put("a", 1) == 1

    asyncio.run(main())


def test_threads_that_wait_for_a_long_write_time_out(tmp_path: Path) -> None:
    begun, end = threading.Event(), threading.Event()

    def slow(run: Any) -> None:
        begun.set()
        assert end.wait(60)

    with Store(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=0.3) as store:
        store["things"].put("x", 1)
        with ThreadPoolExecutor(3) as threads:
            writing = threads.submit(store.run, Work(("things",), slow, writes=True))
            assert begun.wait(60)
            try:
                waiting = threads.submit(store["things"].put, "x", 2)
                with pytest.raises(DatabaseBusy, match="of this process has been writing for"):
                    store["things"].put("x", 2)
                with pytest.raises(DatabaseBusy, match="of this process has been writing for"):
                    store.run_transaction(lambda tx: tx["things"].put("x", 2))
                with pytest.raises(DatabaseBusy, match="of this process has been writing for"):
                    waiting.result(60)
            finally:
                end.set()
            writing.result(60)
        assert store["things"].put("x", 3) == 2


LARGE = {f"field{n}": n for n in range(200_000)}
"""A body that is encoded in a thread, for 20 ms or more."""


async def cancelled_while_it_encodes(call: Any) -> BaseException:
    """Cancel a call in its first step: a small write would be in the database's thread by then."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return caught.value


def test_a_call_that_is_cancelled_while_it_encodes_wrote_nothing(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        things = store["things"]
        await things.put("a", 1)
        for call in (
            things.put("a", LARGE),
            things.put_many({"a": LARGE, "b": LARGE}),
            things.update("a", {"$set": LARGE}),
            store.memory("bot").put("a", LARGE),
        ):
            error = await cancelled_while_it_encodes(call)
            assert was_committed(error) is False
        assert [each.id for each in await things.list()] == ["a"]
        assert await things.get("a") == 1

    run(backend, main)


def test_a_timeout_while_a_call_encodes_is_a_timeout(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.001):
                await store["things"].put("a", LARGE)
        assert was_committed(caught.value) is False
        assert await store["things"].count() == 0

    run(backend, main)


def test_a_cancellation_while_a_call_encodes_rolls_its_transaction_back(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        with pytest.raises(TransactionEnded):
            async with store.transaction() as tx:
                await tx["things"].put("a", 1)
                error = await cancelled_while_it_encodes(tx["things"].put("b", LARGE))
                assert was_committed(error) is False
        assert await store["things"].count() == 0

    run(backend, main)
