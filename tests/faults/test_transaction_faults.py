"""Transactions under concurrency of threads, tasks and processes, and under faults."""

import asyncio
import random
import signal
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from faults.test_cancellation import SLOW, Slow
from faults.test_change_feed import wait_for_a_lock
from faults.test_processes import finish, start, start_interpreter, stop_processes

from collections_store import (
    AsyncStore,
    AsyncTransaction,
    DatabaseBusy,
    DatabaseUnavailable,
    Store,
    StoreClosed,
    Transaction,
    TransactionConflict,
    TransactionEnded,
    was_committed,
)

__all__ = ["stop_processes"]


def store_on(backend: Backend, **options: Any) -> Store:
    return Store(backend.url, **backend.options, **options)


def async_store_on(backend: Backend, **options: Any) -> AsyncStore:
    return AsyncStore(backend.url, **backend.options, **options)


def increment(tx: Transaction) -> int:
    number = tx["counters"].get("n", 0) + 1
    tx["counters"].put("n", number)
    return int(number)


async def increment_async(tx: AsyncTransaction) -> int:
    number = await tx["counters"].get("n", 0) + 1
    await tx["counters"].put("n", number)
    return int(number)


# -- isolation -------------------------------------------------------------------------------


def test_uncommitted_writes_are_invisible(shared_backend: Backend) -> None:
    with store_on(shared_backend) as store, store_on(shared_backend) as other:
        store["a"].put("x", 1)
        with store.transaction() as tx:
            tx["a"].put("x", 2)
            tx["a"].put("y", 2)
            tx["new"].put("z", 2)
            for reader in (store, other):
                assert reader["a"].get_many(["x", "y"]) == {"x": 1}
                assert reader["new"].get("z") is None
        for reader in (store, other):
            assert reader["a"].get_many(["x", "y"]) == {"x": 2, "y": 2}
            assert reader["new"].get("z") == 2


def test_a_transaction_reads_one_snapshot(postgres_backend: Backend) -> None:
    with store_on(postgres_backend) as store:
        store["a"].put_many({"x": 1, "y": 1})
        with store.transaction() as tx:
            assert tx["a"].get("x") == 1
            store["a"].put_many({"x": 2, "y": 2, "z": 2})
            assert tx["a"].get_many(["x", "y", "z"]) == {"x": 1, "y": 1}
            assert tx["a"].count() == 2
            with pytest.raises(TransactionConflict):
                tx["a"].put("x", 3)
            assert tx["a"].get("y") == 1
        assert store["a"].get("x") == 2


def test_read_modify_writes_of_threads_lose_nothing(backend: Backend) -> None:
    with store_on(backend) as store, ThreadPoolExecutor(8) as threads:
        calls = range(120)
        seen = list(threads.map(lambda _: store.run_transaction(increment, attempts=200), calls))
        assert sorted(seen) == list(range(1, 121))
        assert store["counters"].get("n") == 120


def test_read_modify_writes_of_tasks_lose_nothing(backend: Backend) -> None:
    async def main() -> None:
        async with async_store_on(backend) as store:
            calls = (store.run_transaction(increment_async, attempts=200) for _ in range(50))
            seen = await asyncio.gather(*calls)
            assert sorted(seen) == list(range(1, 51))
            assert await store["counters"].get("n") == 50

    asyncio.run(main())


def test_read_modify_writes_of_processes_lose_nothing(shared_backend: Backend) -> None:
    programs = ["transact", "transact_async"] * 2
    finish(*(start(program, shared_backend, 30) for program in programs))
    with store_on(shared_backend) as store:
        assert store["counters"].get("n") == 120


def skew(stores: list[Store], isolation: Any) -> list[Any]:
    """Two doctors are on call; each leaves if the other stays, both at the same time. Return who is left, and the
    errors.
    """
    stores[0]["doctors"].put_many({"ann": True, "bob": True})
    both_have_read = threading.Barrier(2)

    def go_home(store: Store, name: str, other: str) -> str | None:
        try:
            with store.transaction(isolation=isolation) as tx:
                other_stays = tx["doctors"].get(other)
                try:
                    both_have_read.wait(1.0)
                except threading.BrokenBarrierError:
                    both_have_read.reset()
                if other_stays:
                    tx["doctors"].put(name, False)
        except TransactionConflict:
            return "conflict"
        return None

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(go_home, stores[0], "ann", "bob")
        second = threads.submit(go_home, stores[1], "bob", "ann")
        problems = [each for each in (first.result(60), second.result(60)) if each]
    left = [d.id for d in stores[0]["doctors"].list() if d.body]
    return [left, problems]


def test_write_skew_happens_as_documented(shared_backend: Backend) -> None:
    with store_on(shared_backend) as one, store_on(shared_backend) as two:
        for isolation in ("repeatable read", "serializable"):
            left, problems = skew([one, two], isolation)
            if shared_backend.is_postgresql and isolation == "repeatable read":
                assert (left, problems) == ([], [])
            elif shared_backend.is_postgresql:
                assert (len(left), problems) == (1, ["conflict"])
            else:
                assert (len(left), problems) == (1, [])


def test_serializable_transactions_are_retried_without_write_skew(
    postgres_backend: Backend,
) -> None:
    with store_on(postgres_backend) as store, ThreadPoolExecutor(8) as threads:

        def add(number: int) -> None:
            def insert(tx: Transaction) -> None:
                tx["a"].put(str(number), {"seen": tx["a"].count()})

            store.run_transaction(insert, attempts=200, isolation="serializable")

        list(threads.map(add, range(24)))
        assert sorted(d.body["seen"] for d in store["a"].list()) == list(range(24))


ENGINES: dict[str, Callable[[str], sa.Engine]] = {
    "argument": lambda url: sa.create_engine(url, isolation_level="SERIALIZABLE"),
    "option": lambda url: sa.create_engine(url).execution_options(isolation_level="SERIALIZABLE"),
    "server": lambda url: sa.create_engine(f"{url}?options={SERIALIZABLE}"),
}
SERIALIZABLE = "-cdefault_transaction_isolation%3Dserializable"


@pytest.fixture(params=ENGINES)
def serializable_engine(
    request: pytest.FixtureRequest, postgres_backend: Backend
) -> Iterator[sa.Engine]:
    url = postgres_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = ENGINES[request.param](url)
    yield engine
    engine.dispose()


def test_a_serializable_engine_has_no_write_skew(
    serializable_engine: sa.Engine, postgres_backend: Backend
) -> None:
    with Store(engine=serializable_engine, **postgres_backend.options) as store:
        left, problems = skew([store, store], "repeatable read")
        assert (len(left), problems) == (1, ["conflict"])


def test_reads_of_a_serializable_engine_are_serializable(
    serializable_engine: sa.Engine, postgres_backend: Backend
) -> None:
    levels = dict[str, str]()

    def note_level(_: object, cursor: Any, sql: str, *__: object) -> None:
        if "$changes" in sql:
            row = cursor.connection.execute("SHOW transaction_isolation").fetchone()
            levels[sql.split(maxsplit=1)[0]] = row[0]

    with Store(engine=serializable_engine, **postgres_backend.options) as store:
        store.collection("a", changes=True).put("x", 1)
        with store.watch(timeout=0) as stream:
            sa.event.listen(serializable_engine, "before_cursor_execute", note_level)
            store["a"].put("y", 1)
            assert len(list(stream)) == 1
    assert levels["SELECT"] == "serializable"
    assert levels["INSERT"] == "read committed"


def test_an_operation_on_an_autocommit_engine_is_one_transaction(postgres_backend: Backend) -> None:
    modes = dict[str, bool]()

    def note_mode(_: object, cursor: Any, sql: str, *__: object) -> None:
        modes[sql.split(maxsplit=1)[0]] = cursor.connection.autocommit

    url = postgres_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url)
    derived = engine.execution_options(isolation_level="AUTOCOMMIT")
    with Store(engine=derived, **postgres_backend.options) as store:
        things = store.collection("a", changes=True)
        things.put("x", 1)
        sa.event.listen(derived, "before_cursor_execute", note_mode)
        things.put("y", 1)
    assert modes["INSERT"] is False
    engine.dispose()


def test_a_statement_of_a_serializable_url_is_repeated(postgres_backend: Backend) -> None:
    url = f"{postgres_backend.url}?options={SERIALIZABLE}"
    with (
        Store(url, **postgres_backend.options) as store,
        store_on(postgres_backend) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        store["a"].put("x", 1)
        with other.transaction() as tx:
            tx["a"].put("x", 2)
            writes = threads.submit(store["a"].put, "x", 3)
            wait_for_a_lock(postgres_backend)
        assert writes.result(60) == 3
        assert store.stats().conflicts == 1
        assert store["a"].get("x") == 3


# -- blocking --------------------------------------------------------------------------------


def test_a_transaction_on_a_file_never_blocks_reads(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=20) as store:
        store["a"].put_many({str(n): n for n in range(100)})
        with store.transaction() as tx, ThreadPoolExecutor(4) as threads:
            tx["a"].put_many({str(n): -1 for n in range(200)})
            tx["new"].put("x", 1)

            def read(number: int) -> tuple[Any, int]:
                return store["a"].get(str(number)), store["a"].count()

            for number, (body, count) in enumerate(threads.map(read, range(100), timeout=15)):
                assert (body, count) == (number, 100)
        assert store["a"].count({"$body": -1}) == 200


def test_transactions_of_many_tasks_all_finish(backend: Backend) -> None:
    async def main() -> None:
        async with async_store_on(backend, pool_size=2) as store:
            await store["counters"].put("n", 0)

            async def transact(number: int) -> None:
                async with store.transaction() as tx:
                    await tx["a"].put(str(number), number)
                    await asyncio.sleep(0.001)
                    await tx["b"].put(str(number), await tx["a"].count())

            async def plain(number: int) -> None:
                await store["counters"].get("n")
                await store["plain"].put(str(number), number)
                await store["plain"].put_many({f"{number} {n}": n for n in range(3)})

            tasks = [transact(n) for n in range(200)] + [plain(n) for n in range(100)]
            async with asyncio.timeout(60):
                await asyncio.gather(*tasks)
            assert await store["a"].count() == await store["b"].count() == 200
            assert await store["plain"].count() == 400
            seen = [document.body async for document in store["b"].stream()]
            assert sorted(seen) == list(range(1, 201))

    asyncio.run(main())


def test_writers_waiting_for_a_row_do_not_block_the_commit(
    postgres_backend: Backend,
) -> None:
    async def main() -> None:
        async with async_store_on(postgres_backend, pool_size=2) as store:
            await store["a"].put("x", 0)
            async with asyncio.timeout(20):
                async with store.transaction() as tx:
                    await tx["a"].put("x", 1)
                    waiting: list[Any] = [
                        asyncio.create_task(store["a"].put("x", n)) for n in range(10)
                    ]
                    waiting += [
                        asyncio.create_task(store["a"].put_many({"x": n})) for n in range(10)
                    ]
                    await asyncio.sleep(0.3)
                    assert not any(task.done() for task in waiting)
                    await tx["a"].put("y", 1)
                await asyncio.gather(*waiting)
            assert (await store["a"].document("x")).version == 22  # type: ignore[union-attr]

    asyncio.run(main())


def test_other_writes_wait_for_the_end_of_a_transaction(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store, ThreadPoolExecutor(4) as threads:
        with store.transaction() as tx:
            tx["a"].put("x", 1)
            writes: list[Any] = [threads.submit(store["a"].put, str(n), n) for n in range(4)]
            writes += [threads.submit(store["a"].put_many, {"m": n}) for n in range(4)]
            threading.Event().wait(0.1)
            assert not any(write.done() for write in writes)
            tx["a"].put("y", 1)
        assert all(write.result(30) for write in writes)
        assert {d.id: d.version for d in store["a"].list()}["m"] == 4
        assert [d.id for d in store["a"].list()][:2] == ["x", "y"]


# -- timeouts --------------------------------------------------------------------------------


def test_waiting_too_long_for_a_transaction_is_a_clear_error(shared_backend: Backend) -> None:
    with store_on(shared_backend, busy_timeout=0.4, pool_size=2) as store:
        with store.transaction() as tx, ThreadPoolExecutor(1) as threads:
            tx["a"].put("x", 1)
            late = threads.submit(store.run_transaction, increment)
            with pytest.raises(DatabaseBusy, match="1 of at most 1 transactions were open"):
                late.result(30)
        assert store.run_transaction(increment) == 1


def test_writes_that_wait_for_a_transaction_time_out_with_a_clear_error(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=0.4) as store:
        store["a"].put("x", 1)
        with store.transaction() as tx, ThreadPoolExecutor(6) as threads:
            tx["a"].put("x", 2)
            late: list[Any] = [threads.submit(store["a"].put, str(n), n) for n in range(3)]
            late += [threads.submit(store["a"].put_many, {str(n): n}) for n in range(3)]
            for each in late:
                with pytest.raises(DatabaseBusy, match="transaction of this process") as caught:
                    each.result(30)
                assert "has a transaction open itself" not in str(caught.value)
            assert tx["a"].get("x") == 2
        assert store["a"].put("x", 3) == 3
        assert store["a"].count() == 1


def test_async_writes_that_wait_for_a_transaction_time_out_with_a_clear_error(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path / 'store.db'}"
        async with AsyncStore(url, busy_timeout=0.4) as store:
            await store["a"].put("x", 1)
            async with store.transaction() as tx:
                await tx["a"].put("x", 2)
                puts: list[Any] = [
                    asyncio.create_task(store["a"].put(str(n), n)) for n in range(20)
                ]
                puts += [asyncio.create_task(store["a"].put_many({str(n): n})) for n in range(5)]
                for answer in await asyncio.gather(*puts, return_exceptions=True):
                    assert isinstance(answer, DatabaseBusy)
                    assert "transaction of this process" in str(answer)
            assert await store["a"].put("x", 3) == 3
            assert await store["a"].count() == 1

    asyncio.run(main())


def test_in_memory_all_other_calls_wait() -> None:
    with Store("sqlite://", busy_timeout=0.4) as store:
        store["a"].put("x", 1)
        with store.transaction() as tx:
            tx["a"].put("x", 2)
            with ThreadPoolExecutor(1) as threads, pytest.raises(DatabaseBusy, match="in use for"):
                threads.submit(store["a"].get, "x").result(30)
        assert store["a"].get("x") == 2


OWN = "^this task or thread has a transaction open itself"
"""The message of errors that are raised at once; after a timeout the message differs."""


@pytest.mark.parametrize("kind", ["own", "engine", "memory"])
def test_waiting_for_a_transaction_of_the_same_thread_is_an_error_at_once(
    tmp_path: Path, kind: str
) -> None:
    url = "sqlite://" if kind == "memory" else f"sqlite:///{tmp_path / 'store.db'}"
    engine = sa.create_engine(url) if kind == "engine" else None
    with Store(None if engine else url, engine=engine) as store:
        store["a"].put("x", 1)
        with store.transaction() as tx:
            tx["a"].put("x", 2)
            for call in (lambda: store["a"].put("x", 3), lambda: store["a"].put_many({"x": 3}),
                         lambda: store.drop("a"), lambda: store.run_transaction(increment)):  # fmt: skip
                with pytest.raises(DatabaseBusy, match=OWN):
                    call()
            if kind == "memory":
                with pytest.raises(DatabaseBusy, match=OWN):
                    store["a"].get("x")
            else:
                assert store["a"].get("x") == 1
            assert tx["a"].get("x") == 2
        assert store["a"].put("x", 3) == 3
        with pytest.raises(DatabaseBusy, match=OWN):
            store.run_transaction(lambda _: store["a"].put("x", 4))
        assert store["a"].get("x") == 3
    if engine is not None:
        engine.dispose()


@pytest.mark.parametrize("memory", [False, True])
def test_waiting_for_a_transaction_of_the_same_task_is_an_error_at_once(
    tmp_path: Path, memory: bool
) -> None:
    async def main() -> None:
        async with AsyncStore("sqlite://" if memory else f"sqlite:///{tmp_path / 'a.db'}") as store:
            await store["a"].put("x", 1)
            async with store.transaction() as tx:
                await tx["a"].put("x", 2)
                with pytest.raises(DatabaseBusy, match=OWN):
                    await store["a"].put("x", 3)
                with pytest.raises(DatabaseBusy, match=OWN):
                    store.get_sync_collection("a").put("x", 3)
                with pytest.raises(DatabaseBusy, match=OWN):
                    await store.run_transaction(increment_async)
                if memory:
                    with pytest.raises(DatabaseBusy, match=OWN):
                        await store["a"].get("x")
                other = asyncio.create_task(store["a"].put("x", 3))
                await asyncio.sleep(0.01)
            assert await other == 3

    asyncio.run(main())


def test_exhausting_the_pool_with_own_transactions_is_an_error_at_once(
    postgres_backend: Backend,
) -> None:
    with store_on(postgres_backend, pool_size=3) as store:
        store["a"].put("w", 1)
        with store.transaction() as one, store.transaction() as two:
            one["a"].put("x", 1)
            two["a"].put("y", 1)
            with pytest.raises(DatabaseBusy, match=OWN):
                store.run_transaction(increment)
            assert store["a"].put("z", 1) == 1
        assert store["a"].count() == 4


def test_a_write_beside_a_bound_transaction_of_the_same_thread_is_an_error_at_once(
    tmp_path: Path,
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'store.db'}")
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store["a"].put("x", 1)
        with engine.begin() as connection:
            bound = store.bind(connection)
            assert bound["a"].get("x") == 1
            assert store["a"].put("x", 2) == 2  # nothing was written in it
        with engine.begin() as connection:
            store.bind(connection)["a"].put("x", 3)
            with pytest.raises(DatabaseBusy, match=OWN):
                store["a"].put("x", 4)
            with pytest.raises(DatabaseBusy, match=OWN):
                store.run_transaction(increment)
            assert store.bind(connection)["a"].get("x") == 3
        assert store["a"].put("x", 4) == 4
        with store.transaction() as tx, engine.begin() as connection:
            tx["a"].put("x", 5)
            with pytest.raises(DatabaseBusy, match=OWN):
                store.bind(connection)["a"].put("x", 6)
        assert store["a"].get("x") == 5
    engine.dispose()


def test_a_transaction_that_waits_for_another_process_times_out(tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    with Store(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=0.5) as store:
        store["a"].put("x", 1)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy, match="another process"):
            store.run_transaction(increment)
        holder.execute("ROLLBACK")
        assert store.run_transaction(increment) == 1
    holder.close()


def test_tasks_that_give_up_release_their_permits(backend: Backend) -> None:
    async def main() -> None:
        async with async_store_on(backend, pool_size=2, busy_timeout=0.5) as store:
            await store["a"].put("x", 0)
            async with store.transaction() as tx:
                await tx["a"].put("x", 1)
                calls = [store.run_transaction(increment_async) for _ in range(30)]
                waiting = [asyncio.create_task(call) for call in calls]
                await asyncio.sleep(0.05)
                for task in waiting[:10]:
                    task.cancel()
                answers = await asyncio.gather(*waiting, return_exceptions=True)
                kinds = {type(answer) for answer in answers}
                assert kinds == {asyncio.CancelledError, DatabaseBusy}
            assert await store.run_transaction(increment_async) == 1

    asyncio.run(main())


# -- conflicts -------------------------------------------------------------------------------


def test_deadlocks_are_retried(postgres_backend: Backend) -> None:
    with store_on(postgres_backend) as store, ThreadPoolExecutor(2) as threads:
        store["a"].put_many({"A": 0, "B": 0})
        both_hold_one = threading.Barrier(2)
        calls: list[str] = []

        def lock(first: str, second: str) -> Callable[[Transaction], None]:
            def both(tx: Transaction) -> None:
                calls.append(first)
                tx["a"].put(first, first)
                if calls.count(first) == 1:
                    both_hold_one.wait(30)
                tx["a"].put(second, first)

            return both

        done = [
            threads.submit(store.run_transaction, lock("A", "B")),
            threads.submit(store.run_transaction, lock("B", "A")),
        ]
        for each in done:
            each.result(60)
        assert len(calls) > 2
        bodies = store["a"].get_many(["A", "B"])
        assert bodies["A"] == bodies["B"]


def test_a_collection_dropped_elsewhere_is_a_conflict(postgres_backend: Backend) -> None:
    with store_on(postgres_backend) as store:
        store["a"].put("x", 1)
        store["b"].put("x", 1)
        with pytest.raises(TransactionConflict), store.transaction() as tx:
            assert tx["b"].get("x") == 1
            store.drop("a")
            tx["a"].get("x")
        with pytest.raises(TransactionConflict), store.transaction() as tx:
            assert tx["b"].get("x") == 1
            store["b"].create_index("n", unique=True)
            store["b"].put("y", {"n": 1})
            tx["b"].put("z", {"n": 1})


def test_a_recreated_collection_is_found(shared_backend: Backend) -> None:
    with store_on(shared_backend) as store, store_on(shared_backend) as other:
        store["a"].put("x", 1)
        assert store["a"].get("x") == 1
        other.drop("a")
        other["a"].put("x", 2)
        with store.transaction() as tx:
            assert tx["a"].get("x") == 2
            assert tx["a"].put("x", 3) == 2


# -- cancellation, signals, killed processes -------------------------------------------------


def run(backend: Backend, main: Callable[[AsyncStore], Awaitable[None]], **options: Any) -> None:
    async def with_store() -> None:
        async with async_store_on(backend, **options) as store:
            await main(store)

    asyncio.run(with_store())


def test_a_cancelled_operation_ends_its_transaction(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        await store["a"].put("x", 1)
        with pytest.raises(TransactionEnded) as ended:
            async with store.transaction() as tx:
                await tx["a"].put("x", 2)
                with pytest.raises(TimeoutError) as caught:
                    async with asyncio.timeout(0.2):
                        await tx.run(Slow(SLOW[backend.name]))
                assert was_committed(caught.value) is False
                with pytest.raises(TransactionEnded, match="was rolled back"):
                    await tx["a"].put("x", 3)
        assert isinstance(ended.value.__cause__, BaseException)
        assert await store["a"].get("x") == 1
        assert await store["a"].put("x", 4) == 2

    run(backend, main)


def test_a_cancelled_transaction_writes_nothing(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        await store["a"].put("x", 1)

        async def block() -> None:
            async with store.transaction() as tx:
                await tx["a"].put("x", 2)
                await tx.run(Slow(SLOW[backend.name]))

        task = asyncio.create_task(block())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert was_committed(caught.value) is False
        assert await store["a"].get("x") == 1
        assert await store.run_transaction(increment_async) == 1

    run(backend, main)


def test_a_transaction_cancelled_at_any_moment_is_atomic(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        outcomes: set[bool | None] = set()
        await store["a"].put("warm", 0)

        async def block(number: int) -> None:
            async with store.transaction() as tx:
                await tx["a"].put(str(number), 1)
                async with tx.transaction() as inner:
                    await inner["b"].put(str(number), 1)

        for number in range(150):
            task = asyncio.create_task(block(number))
            await asyncio.sleep(random.choice([0, 0.0002, 0.0005, 0.001, 0.002, 0.004]))
            task.cancel()
            written: bool | None = True
            try:
                await task
            except asyncio.CancelledError as error:
                written = bool(was_committed(error))  # None: it had not started
            there = await store["a"].exists(str(number)), await store["b"].exists(str(number))
            assert there == (written, written)
            outcomes.add(written)
        assert False in outcomes

    run(backend, main, busy_timeout=20)


def test_tasks_that_share_a_transaction_are_serialized(backend: Backend) -> None:
    async def main(store: AsyncStore) -> None:
        async with store.transaction() as tx:
            await asyncio.gather(*(tx["a"].put(str(n), n) for n in range(50)))
            assert await tx["a"].count() == 50
        assert await store["a"].count() == 50

    run(backend, main)


def test_threads_that_share_a_transaction_are_serialized(backend: Backend) -> None:
    with store_on(backend) as store:
        with store.transaction() as tx, ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda n: tx["a"].put(str(n), n), range(100)))
        assert store["a"].count() == 100


def test_a_lost_connection_ends_the_transaction(postgres_backend: Backend) -> None:
    with store_on(postgres_backend) as store:
        store["a"].put("x", 1)
        with pytest.raises(DatabaseUnavailable), store.transaction() as tx:
            tx["a"].put("x", 2)
            end_connections(postgres_backend)
            tx["a"].put("y", 2)
        with pytest.raises(TransactionEnded):
            tx["a"].get("x")
        assert store["a"].get("x") == 1
        with pytest.raises(DatabaseUnavailable) as caught, store.transaction() as tx:
            tx["a"].put("x", 2)
            end_connections(postgres_backend)
        assert caught.value.in_doubt
        assert store["a"].get("x") == 1
        calls: list[int] = []

        def lost_once(tx: Transaction) -> None:
            calls.append(1)
            tx["a"].put("x", 5)
            if len(calls) == 1:
                end_connections(postgres_backend)
            tx["a"].put("y", 5)

        store.run_transaction(lost_once)
        assert (len(calls), store["a"].get("x")) == (2, 5)


@pytest.mark.parametrize("own", [True, False], ids=["url", "engine"])
def test_a_transaction_ended_by_an_idle_timeout_is_retried(
    postgres_backend: Backend, own: bool
) -> None:
    """Detected at a statement or at the COMMIT: nothing was written."""
    url = postgres_backend.url + "?options=-cidle_in_transaction_session_timeout%3D500"
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with Store(url if own else None, engine=None if own else engine,
               **postgres_backend.options) as store:  # fmt: skip
        store["a"].put("x", 0)
        calls: list[str] = []

        def idle(tx: Transaction, moment: str) -> None:
            calls.append(moment)
            tx["a"].put("x", tx["a"].get("x") + 1)
            if calls.count(moment) == 1:
                threading.Event().wait(1.0)
            if moment == "statement":
                tx["a"].put("y", 1)

        for moment in ("statement", "commit"):
            store.run_transaction(lambda tx, moment=moment: idle(tx, moment))  # type: ignore[misc]
        assert (len(calls), store["a"].get("x"), store["a"].get("y")) == (4, 2, 1)
        with pytest.raises(TransactionConflict), store.transaction() as tx:
            tx["a"].put("x", 5)
            threading.Event().wait(1.0)
        assert store["a"].put("z", 1) == 1  # the closed connection is not used again
    engine.dispose()


def end_connections(backend: Backend) -> None:
    """Terminate every connection to the tables of a backend."""
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND query LIKE :about"
            ),
            {"about": "%collections_store_%"},
        )
    engine.dispose()


def test_closing_waits_for_a_transaction(shared_backend: Backend) -> None:
    store = store_on(shared_backend, busy_timeout=20)
    with ThreadPoolExecutor(1) as threads:
        with store.transaction() as tx:
            tx["a"].put("x", 1)
            closing = threads.submit(store.close)
            while store.core.closed is None:
                threading.Event().wait(0.001)
            tx["a"].put("y", 1)
            with pytest.raises(StoreClosed):
                store["a"].get("x")
            assert not closing.done()
        closing.result(20)
    with store_on(shared_backend) as other:
        assert other["a"].count() == 2


def test_aclose_waits_for_a_transaction(shared_backend: Backend) -> None:
    async def main() -> None:
        store = async_store_on(shared_backend, busy_timeout=20)
        async with store.transaction() as tx:
            await tx["a"].put("x", 1)
            closing = asyncio.create_task(store.aclose())
            await asyncio.sleep(0.2)
            assert not closing.done()
            await tx["a"].put("y", 1)
        await closing
        with pytest.raises(StoreClosed):
            async with store.transaction():
                raise AssertionError

    asyncio.run(main())
    with store_on(shared_backend) as other:
        assert other["a"].count() == 2


def test_a_killed_process_loses_only_its_open_transaction(shared_backend: Backend) -> None:
    process = start("hold_transaction_open", shared_backend)
    assert process.stdout.readline() == "within\n"
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    with store_on(shared_backend) as store:
        assert store["a"].count() == 0
        assert store["things"].get_many(["a", "b", "c"]) == {"a": 1, "b": 1}
        assert [info.name for info in store.collections()] == ["things"]
        assert store.run_transaction(increment) == 1


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_fork_within_a_transaction(shared_backend: Backend) -> None:
    [output] = finish(start_interpreter("fork_in_transaction", shared_backend))
    lines = output.splitlines()
    assert lines[0].startswith("StoreClosed the transaction belongs to the process")
    assert lines[1:] == ["not committed", "['a', 'b']"]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_fork_within_an_async_transaction(shared_backend: Backend) -> None:
    process = start_interpreter("fork_in_async_transaction", shared_backend)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert output.splitlines()[-1] == "2"
    assert output.startswith("StoreClosed")


class Interrupt(BaseException):
    """Raised by the signal handler."""


@contextmanager
def interrupts() -> Iterator[Callable[[float], None]]:
    """Yield a function that raises `Interrupt` after a number of seconds; 0 disables it."""

    def interrupt(*_: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield lambda seconds: (signal.setitimer(signal.ITIMER_REAL, seconds), None)[1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_keyboard_interrupt_rolls_back(backend: Backend) -> None:
    with store_on(backend) as store:
        with pytest.raises(KeyboardInterrupt), store.transaction() as tx:
            tx["a"].put("x", 1)
            signal.raise_signal(signal.SIGINT)
        assert store["a"].count() == 0
        assert store.run_transaction(increment) == 1


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_transaction_interrupted_at_any_moment_is_atomic(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    longest = 0.006 if shared_backend.is_postgresql else 0.0015

    def block(store: Store, number: int) -> None:
        with store.transaction() as tx:
            tx["a"].put(str(number), 1)
            with tx.transaction() as inner:
                inner["b"].put(str(number), 1)

    with store_on(shared_backend, busy_timeout=3) as store, interrupts() as interrupt_in:
        store["a"].put("warm", 0)
        hits = 0
        for number in range(200):
            done = False
            try:
                interrupt_in(random.uniform(0.00001, longest))
                block(store, number)
                done = True
                interrupt_in(0)
            except (Interrupt, ConnectionError):
                hits += 1
            interrupt_in(0)
            there = store["a"].exists(str(number)), store["b"].exists(str(number))
            assert there[0] is there[1]
            assert not done or there == (True, True)
        assert hits
        block(store, 1000)
        assert store["a"].put("after", 1) == 1
