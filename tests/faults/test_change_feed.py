"""The change feed under concurrent writes: no change is skipped or repeated, and all are in order."""

import asyncio
import json
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from conftest import NewThreads
from faults.test_processes import finish, start, start_interpreter, stop_processes
from psycopg import sql

from collections_store import AsyncStore, Change, DatabaseUnavailable, Store, StoreClosed
from collections_store.engine import notifier
from collections_store.engine import workers as sweeper
from collections_store.operations.collections import ListPurgeable

__all__ = ["stop_processes"]
LONG = 60.0
"""Timeout in seconds of waits that must succeed."""


@pytest.fixture
def store(shared_backend: Backend) -> Iterator[Store]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store.get_sync_collection("things", changes="after")
        yield store


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting streams are notified by commits of this process only."""
    monkeypatch.setattr(notifier, "POLL_INTERVAL", 3600.0)


class InThread:
    """A function that runs in a new thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except Exception as error:  # noqa: BLE001 - the test raises it
            self._error = error

    def result(self) -> Any:
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


def listens(times: int = 1) -> None:
    """Return once that many streams wait, or are about to."""
    for _ in range(int(LONG * 100)):
        with notifier._guard:
            if (
                sum(len(each) for one in notifier._notifiers for each in one._listeners.values())
                >= times
            ):
                return
        threading.Event().wait(0.01)
    raise AssertionError


def summaries(changes: list[Change]) -> list[Any]:
    return [(each.kind, each.id, each.version) for each in changes]


# -- order -----------------------------------------------------------------------------------


def test_a_transaction_that_commits_out_of_order_is_not_skipped(postgres_backend: Backend) -> None:
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        things = store.get_sync_collection("things", changes=True)
        seen = []
        with things.watch() as stream:
            written, committed = threading.Event(), threading.Event()

            def slow() -> None:
                with store.transaction() as tx:
                    tx["things"].put("slow", 1)
                    written.set()
                    assert committed.wait(LONG)

            waiting = InThread(slow)
            assert written.wait(LONG)
            things.put("fast", 1)
            seen.append(next(stream).id)
            committed.set()
            waiting.result()
            seen += [next(stream).id]
            assert stream.try_next() is None
        assert seen == ["fast", "slow"]


def test_positions_are_assigned_in_commit_order(postgres_backend: Backend) -> None:
    """Otherwise a poll between the two commits would see the later position, and skip the earlier."""
    with (
        Store(postgres_backend.url, **postgres_backend.options) as store,
        psycopg.connect(postgres_backend.url) as raw,
    ):
        things = store.get_sync_collection("things", changes=True)
        things.put("first", 0)
        stream = things.watch()
        raw.execute(f"SET search_path = {postgres_backend.options['schema']}")
        [text] = raw.execute(
            "SELECT options FROM cs_collections WHERE name = 'things' FOR UPDATE"
        ).fetchall()
        feed = sql.Identifier(json.loads(text[0])["feed"]["physical"])
        columns = "(kind, id, version, time) VALUES ('insert', 'early', 1, 0)"
        raw.execute(sql.SQL("INSERT INTO {} " + columns).format(feed))
        later = InThread(lambda: things.put("late", 1))
        wait_for_a_lock(postgres_backend)
        assert stream.try_next() is None
        raw.commit()
        later.result()
        assert [next(stream).id, next(stream).id] == ["early", "late"]


def wait_for_a_lock(backend: Backend) -> None:
    """Return once a session waits for a lock."""
    with psycopg.connect(backend.url, autocommit=True) as looking:
        for _ in range(int(LONG * 100)):
            found = looking.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND query LIKE %s",
                [f"%{backend.options['schema']}%"],
            ).fetchone()
            if found is not None and found[0]:
                return
            threading.Event().wait(0.01)
    raise AssertionError


def test_bound_transactions_keep_the_commit_order(postgres_backend: Backend) -> None:
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        things = store.get_sync_collection("things", changes=True)
        stream = things.watch()
        with engine.begin() as connection:
            store.bind(connection)["things"].put("bound", 1)
            later = InThread(lambda: things.put("own", 1))
            wait_for_a_lock(postgres_backend)
            assert stream.try_next() is None
        later.result()
        assert summaries([next(stream), next(stream)]) == [
            ("insert", "bound", 1),
            ("insert", "own", 1),
        ]
    engine.dispose()


def test_several_processes_write_and_two_watch(shared_backend: Backend, store: Store) -> None:
    things = store["things"]
    elsewhere = start("watch_and_print", shared_backend, "last")
    here = InThread(lambda: until_last(things))
    rounds = 15
    finish(*(start("write_recorded", shared_backend, f"p{n}", rounds) for n in range(4)))
    things.put("last", 1)
    seen: list[Change] = here.result()
    [output] = finish(elsewhere)
    lines = [f"{each.kind} {each.id} {each.version} {each.token}" for each in seen]
    assert output.splitlines() == lines
    assert len({each.token for each in seen}) == len(seen) == 4 * 3 * rounds * 6 + 1
    check_versions(seen)
    assert things.get("shared") == 4 * 3 * rounds
    assert replayed(seen) == {each.id: each.body for each in things.stream()}


def until_last(things: Any) -> list[Change]:
    seen = []
    with things.watch(after="oldest") as stream:
        for change in stream:
            seen.append(change)
            if change.id == "last":
                break
    return seen


def check_versions(changes: list[Change]) -> None:
    """The versions of each document are consecutive, and restart when it is created again."""
    versions: dict[str, int] = defaultdict(int)
    for change in changes:
        if change.kind in {"remove", "expire"}:
            assert change.version == versions.pop(change.id)
        else:
            assert change.version == versions[change.id] + 1
            versions[change.id] = change.version


def replayed(changes: list[Change]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for change in changes:
        if change.kind in {"remove", "expire"}:
            del found[change.id]
        else:
            found[change.id] = change.body
    return found


def test_a_killed_writer_leaves_feed_and_documents_consistent(
    shared_backend: Backend, store: Store
) -> None:
    for _ in range(3):
        process = start("put_recorded", shared_backend)
        head = [process.stdout.readline() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        acknowledged = [*head, *process.stdout.readlines()]
        process.wait()
        things = store["things"]
        seen = list(things.watch(after="oldest", timeout=0))
        check_versions(seen)
        assert replayed(seen) == {each.id: each.body for each in things.stream()}
        complete = [int(line) for line in acknowledged if line.endswith("\n")]
        assert replayed(seen)["counter"] >= max(complete)


# -- notification ----------------------------------------------------------------------------


@pytest.mark.usefixtures("no_polling")
def test_a_commit_in_this_process_notifies_at_once(shared_backend: Backend, store: Store) -> None:
    for writer in (store, Store(shared_backend.url, **shared_backend.options)):
        waiting = InThread(store["things"].watch().__next__)
        listens()
        with writer.transaction() as tx:
            tx["things"].put("a", 1)
        assert waiting.result().id == "a"
        if writer is not store:
            writer.close()


@pytest.mark.usefixtures("no_polling")
def test_a_commit_notifies_waiting_tasks(shared_backend: Backend) -> None:
    async def main() -> list[str]:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            things = store.get_collection("things", changes=True)
            streams = [await things.watch() for _ in range(100)]
            threads = threading.active_count() + 1  # of this test
            tasks = [asyncio.ensure_future(anext(stream)) for stream in streams]
            await asyncio.to_thread(listens, 100)
            assert threading.active_count() <= threads + 11  # not one per stream
            await things.put("a", 1)
            found = await asyncio.wait_for(asyncio.gather(*tasks), LONG)
            return [each.id for each in found]

    assert asyncio.run(main()) == ["a"] * 100


def test_a_commit_in_another_process_notifies(shared_backend: Backend, store: Store) -> None:
    waiting = InThread(store["things"].watch().__next__)
    listens()
    finish(start("open_and_put", shared_backend, "x", 0))
    assert waiting.result().id == "x"


def test_a_commit_of_a_bound_connection_notifies(postgres_backend: Backend) -> None:
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        waiting = InThread(store.get_sync_collection("things", changes=True).watch().__next__)
        listens()
        with engine.begin() as connection:
            store.bind(connection)["things"].put("a", 1)
        assert waiting.result().id == "a"
    engine.dispose()


def test_closing_a_stream_ends_its_iteration(store: Store) -> None:
    stream = store["things"].watch()
    waiting = InThread(lambda: list(stream))
    listens()
    stream.close()
    assert waiting.result() == []


@pytest.mark.usefixtures("no_polling")
def test_closing_the_store_ends_waiting_streams(
    shared_backend: Backend, new_threads: NewThreads
) -> None:
    store = Store(shared_backend.url, **shared_backend.options)
    stream = store.get_sync_collection("things", changes=True).watch()
    waiting = InThread(stream.__next__)
    listens()
    store.close()
    with pytest.raises(StoreClosed):
        waiting.result()
    assert not new_threads()


@pytest.mark.usefixtures("no_polling")
def test_closing_an_async_store_ends_waiting_streams(
    shared_backend: Backend, new_threads: NewThreads
) -> None:
    async def main() -> None:
        store = AsyncStore(shared_backend.url, **shared_backend.options)
        things = store.get_collection("things", changes=True)
        stream = await things.watch()
        task = asyncio.ensure_future(anext(stream))
        ended = await things.watch()
        other = asyncio.ensure_future(anext(ended, None))
        await asyncio.to_thread(listens, 2)
        await ended.aclose()
        assert await asyncio.wait_for(other, LONG) is None
        await store.aclose()
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(task, LONG)

    asyncio.run(main())
    assert not new_threads()


def test_a_cancelled_task_loses_no_change(shared_backend: Backend) -> None:
    async def main() -> list[str]:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            things = store.get_collection("things", changes=True)
            stream = await things.watch()
            for number in range(20):
                task = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0.001 * number)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await things.put_many({str(n): n for n in range(60)})
            return [(await asyncio.wait_for(anext(stream), LONG)).id for _ in range(60)]

    assert asyncio.run(main()) == [str(n) for n in range(60)]


# -- the sweeper -----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["sync", "async"])
def test_the_sweeper_purges_expired_documents(
    shared_backend: Backend, variant: str, new_threads: NewThreads
) -> None:
    """A stream shows when the sweeper ran: expired documents are recorded then."""
    options: dict[str, Any] = {**shared_backend.options, "sweep_interval": 0.01}

    async def awaited() -> list[Any]:
        async with AsyncStore(shared_backend.url, **options) as store:
            things = store.get_collection("things", changes=True)
            stream = await things.watch(kinds=["expire"])
            await things.put("a", 1, ttl=0.001)
            await store["plain"].put("b", 1, ttl=0.001)
            return summaries([await asyncio.wait_for(anext(stream), LONG)])

    def plain() -> list[Any]:
        with Store(shared_backend.url, **options) as store:
            things = store.get_sync_collection("things", changes=True)
            stream = things.watch(kinds=["expire"], timeout=LONG)
            things.put("a", 1, ttl=0.001)
            return summaries([next(stream)])

    found = plain() if variant == "sync" else asyncio.run(awaited())
    assert found == [("expire", "a", 1)]
    assert not new_threads()


def test_the_sweeper_continues_after_an_error(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, failed = [True], threading.Semaphore(0)

    def listing() -> Any:
        if failing:
            failed.release()
            raise DatabaseUnavailable("it went away")
        return ListPurgeable()

    monkeypatch.setattr(sweeper, "ListPurgeable", listing)
    with Store(shared_backend.url, sweep_interval=0.01, **shared_backend.options) as store:
        things = store.get_sync_collection("things", changes=True)
        stream = things.watch(kinds=["expire"], timeout=LONG)
        for _ in range(3):
            assert failed.acquire(timeout=LONG)
        failing.clear()
        things.put("a", 1, ttl=0.001)
        assert next(stream).id == "a"
    assert [each.name for each in caplog.records] == ["collections_store"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_threads_do_not_survive_a_fork_nor_block_the_exit(shared_backend: Backend) -> None:
    [output] = finish(start_interpreter("exit_with_sweeper", shared_backend))
    assert output == "1 child\nparent\n"


# -- pruning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["own", "engine"])
def test_transactions_that_exceed_the_retention_do_not_conflict(
    postgres_backend: Backend, kind: str
) -> None:
    """Both would delete the same changes: pruning must not be part of their transactions."""
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    own = Store(postgres_backend.url, **postgres_backend.options)
    with own if kind == "own" else Store(engine=engine, **postgres_backend.options) as store:
        things = store.get_sync_collection("things", changes=True, changes_kept=1)
        things.put_many({"a": 0, "b": 0})
        for n in range(3):
            with store.transaction() as late:
                assert late["things"].get("b") == n
                with store.transaction() as early:
                    assert early["things"].get("a") == n
                    early["things"].put("a", n + 1)
                late["things"].put("b", n + 1)
        assert len(list(things.watch(after="oldest", timeout=0))) == 1
    engine.dispose()
    own.close()


def test_a_transaction_of_the_caller_prunes_nothing(postgres_backend: Backend) -> None:
    engine = sa.create_engine(
        postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"),
        isolation_level="REPEATABLE READ",
    )
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        things = store.get_sync_collection("things", changes=True, changes_kept=1)
        things.put_many({"a": 0, "b": 0})
        with engine.connect() as one, engine.connect() as two:
            bound = store.bind(one)["things"]
            assert bound.get("a") == store.bind(two)["things"].get("a") == 0
            bound.put("a", 1)
            one.commit()
            store.bind(two)["things"].put("b", 1)
            two.commit()
        assert len(list(things.watch(after="oldest", timeout=0))) == 3
        things.put("a", 2)
        assert len(list(things.watch(after="oldest", timeout=0))) == 1
    engine.dispose()


def test_a_commit_succeeds_although_pruning_fails(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruning is retried, and the connection stays usable."""

    def fails(connection: Any, _: object) -> None:
        connection.rows("SELECT nothing FROM nowhere")

    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store.get_sync_collection("things", changes=True, changes_kept=1)
        things.put_many({"a": 0, "b": 0})
        with monkeypatch.context() as broken:
            broken.setattr("collections_store.operations.session.prune", fails)
            assert things.put("a", 1) == 2
            with store.transaction() as tx:
                tx["things"].put("a", 2)
        assert len(list(things.watch(after="oldest", timeout=0))) == 3
        assert things.put("a", 3) == 4
        assert [each.version for each in things.watch(after="oldest", timeout=0)] == [4]


def test_renamed_and_dropped_feeds_are_not_pruned(shared_backend: Backend) -> None:
    changes: list[Callable[[Any], Any]] = [
        lambda tx: tx.rename("things", "others"),
        lambda tx: tx.drop("things"),
    ]
    with Store(shared_backend.url, **shared_backend.options) as store:
        for change in changes:
            things = store.get_sync_collection("things", changes=True, changes_kept=1)
            things.put_many({"a": 0, "b": 0})
            with store.transaction() as tx:
                tx["things"].put("a", 1)
                change(tx)
            assert store["things"].count() == 0
        others = store["others"]
        assert len(list(others.watch(after="oldest", timeout=0))) == 2
        others.put("a", 2)
        assert len(list(others.watch(after="oldest", timeout=0))) == 1


def test_threads_that_exceed_the_retention(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store.get_sync_collection("things", changes="after", changes_kept=5)
        threads = [
            InThread(lambda name=name: [things.put(name, n) for n in range(40)][-1])  # type: ignore[misc]
            for name in "abcd"
        ]
        assert [each.result() for each in threads] == [40] * 4
        things.purge_expired()
        assert len(list(things.watch(after="oldest", timeout=0))) == 5


def test_concurrent_pruners_never_wait_for_each_other(postgres_backend: Backend) -> None:
    """One would delete rows that another locks: PostgreSQL reports a deadlock after a second."""
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    deadlocks = sa.text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    with engine.connect() as connection:
        before = connection.execute(deadlocks).scalar_one()
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        things = store.get_sync_collection("things", changes=True, changes_kept=1)
        threads = [
            InThread(lambda name=name: [things.put(name, n) for n in range(60)][-1])  # type: ignore[misc]
            for name in "abcdefgh"
        ]
        assert [each.result() for each in threads] == [60] * 8
        things.purge_expired()
        assert len(list(things.watch(after="oldest", timeout=0))) == 1
    with engine.connect() as connection:
        assert connection.execute(deadlocks).scalar_one() == before
    engine.dispose()
