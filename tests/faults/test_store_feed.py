"""The changes of all collections of a store under concurrent writes: none is skipped or repeated, and order holds."""

import asyncio
import re
import signal
import threading
from collections import defaultdict
from contextlib import suppress
from itertools import count
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from conftest import NewThreads
from faults.test_change_feed import LONG, InThread, listens, no_polling, wait_for_a_lock
from faults.test_processes import finish, start, stop_processes

from collections_store import AsyncStore, Store, StoreClosed
from collections_store.query.change import read_store_token

__all__ = ["no_polling", "stop_processes"]
NAMES = ("a", "b", "c")


def open_recorded(backend: Backend) -> Store:
    store = Store(backend.url, **backend.options)
    for name in NAMES:
        store.collection(name, changes="after")
    return store


def write_in_turn(url: str, options: dict[str, Any], writer: str, rounds: str) -> None:
    """Write each collection after the other, from two threads."""

    def work(store: Store, thread: int) -> None:
        for number in range(int(rounds)):
            store[NAMES[number % 3]].put(f"{writer}{thread}-{number}", number)

    with Store(url, **options) as store:
        threads = [threading.Thread(target=work, args=(store, thread)) for thread in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


def print_changes(url: str, options: dict[str, Any], after: str) -> None:
    with Store(url, **options) as store, store.watch(after=after) as stream:
        for each in stream:
            print(each["ns"]["coll"], each["documentKey"]["_id"], each["_id"], flush=True)


def write_until_killed(url: str, options: dict[str, Any]) -> None:
    with Store(url, **options) as store:
        for number in count():
            with store.transaction() as tx:
                for name in NAMES:
                    tx[name].put(str(number % 10), number)
                if number % 3 == 0:
                    tx["a"].remove(str(number % 10))
            print(number, flush=True)


def check_order(changes: list[tuple[str, str]]) -> None:
    """Each writer writes after the commit of its last write: its changes are in this order, across collections."""
    numbers: dict[str, int] = defaultdict(int)
    for name, id in changes:
        writer, _, number = id.partition("-")
        assert (name, int(number)) == (NAMES[numbers[writer] % 3], numbers[writer])
        numbers[writer] += 1


def test_changes_of_collections_are_in_the_order_of_writes_that_follow_each_other(
    shared_backend: Backend,
) -> None:
    with open_recorded(shared_backend) as store:
        stream = store.watch(timeout=LONG)
        processes = [start(write_in_turn, shared_backend, f"w{n}", 60) for n in range(3)]
        seen = [next(stream) for _ in range(3 * 2 * 60)]
        finish(*processes)
        assert stream.try_next() is None
        found = [(each["ns"]["coll"], each["documentKey"]["_id"]) for each in seen]
        check_order(found)
        again = list(store.watch(after="oldest", timeout=0))
        check_order([(each["ns"]["coll"], each["documentKey"]["_id"]) for each in again])
        for name in NAMES:
            recorded = [each.id for each in store[name].watch(after="oldest", timeout=0)]
            assert [id for coll, id in found if coll == name] == recorded


def test_a_killed_watcher_continues_after_its_last_token(shared_backend: Backend) -> None:
    with open_recorded(shared_backend):
        writers = [start(write_in_turn, shared_backend, f"w{n}", 100) for n in range(2)]
        seen: list[tuple[str, str]] = []
        token, total = "oldest", 2 * 2 * 100
        while len(seen) < total:
            watcher = start(print_changes, shared_backend, token)
            for _ in range(min(67, total - len(seen))):
                name, id, token = watcher.stdout.readline().split()
                seen.append((name, id))
            watcher.send_signal(signal.SIGKILL)
            watcher.wait()
        finish(*writers)
        assert len(set(seen)) == total
        check_order(seen)


def test_a_killed_writer_leaves_all_feeds_consistent(shared_backend: Backend) -> None:
    with open_recorded(shared_backend) as store:
        replayed: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
        stream = store.watch(after="oldest", timeout=0)
        for _ in range(3):
            writer = start(write_until_killed, shared_backend)
            for _ in range(25):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            for each in stream:
                bodies, id = replayed[each["ns"]["coll"]], each["documentKey"]["_id"]
                if each["operationType"] == "delete":
                    del bodies[id]
                else:
                    bodies[id] = each["fullDocument"]
            for name in NAMES:
                assert replayed[name] == {each.id: each.body for each in store[name].stream()}


@pytest.mark.parametrize("commits", [True, False])
def test_two_transactions_give_a_database_its_identity(
    postgres_backend: Backend, *, commits: bool
) -> None:
    schema = postgres_backend.options["schema"]
    with (
        Store(postgres_backend.url, **postgres_backend.options) as store,
        psycopg.connect(postgres_backend.url) as raw,
    ):
        store["plain"].put("0", 0)
        raw.execute(f"SET search_path = {schema}")
        raw.commit()
        raw.execute("CREATE TABLE cs_identity (identity TEXT PRIMARY KEY)")
        raw.execute("INSERT INTO cs_identity VALUES ('0123456789abcdef')")
        later = InThread(lambda: store.collection("a", changes=True).put("1", 1))
        wait_for_a_lock(postgres_backend)
        raw.commit() if commits else raw.rollback()
        later.result()
        identity, _ = read_store_token(store.watch().token)
        assert (identity == "0123456789abcdef") is commits
        [found] = raw.execute("SELECT identity FROM cs_identity").fetchall()
        assert found == (identity,)


def test_a_late_commit_is_not_skipped(postgres_backend: Backend) -> None:
    with open_recorded(postgres_backend) as store, store.watch(timeout=LONG) as stream:
        written, committed = threading.Event(), threading.Event()

        def slow() -> None:
            with store.transaction() as tx:
                tx["a"].put("slow", 1)
                tx["b"].put("slow", 1)
                written.set()
                assert committed.wait(LONG)

        waiting = InThread(slow)
        assert written.wait(LONG)
        store["b"].put("fast", 1)
        store["c"].put("fast", 1)
        seen = [next(stream)["documentKey"]["_id"] for _ in range(2)]
        committed.set()
        waiting.result()
        seen += [next(stream)["documentKey"]["_id"] for _ in range(2)]
        assert seen == ["fast", "fast", "slow", "slow"]
        assert stream.try_next() is None


def test_a_read_on_an_engine_sees_one_snapshot(shared_backend: Backend) -> None:
    """Otherwise the feed of `b` is read after a write to `a`, and a later one to `b`."""
    engine = sa.create_engine(shared_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with (
        open_recorded(shared_backend) as writer,
        Store(engine=engine, **shared_backend.options) as store,
        store.watch(timeout=0) as stream,
    ):
        read: list[str] = []

        def write_between(_: object, __: object, sql: str, *___: object) -> None:
            read.extend(re.findall(r"FROM .*\$changes", sql))
            if len(read) == 2:
                writer["a"].put("first", 1)
                writer["b"].put("second", 1)

        sa.event.listen(engine, "before_cursor_execute", write_between)
        assert stream.try_next() is None  # and no thread polls meanwhile
        assert len(set(read)) == len(NAMES)
        found = [stream.try_next(), stream.try_next()]
        assert [each and each["documentKey"]["_id"] for each in found] == ["first", "second"]
    engine.dispose()


def test_collections_are_renamed_while_a_stream_reads(shared_backend: Backend) -> None:
    """A table has another name by the time a stream reads it; no change is skipped or repeated."""
    with open_recorded(shared_backend) as store:
        stream = store.watch(timeout=LONG)

        def rename() -> None:
            for number in range(20):
                store.rename("ab"[number % 2], "ba"[number % 2])
                store["ba"[number % 2]].put(str(number), number)

        store.drop("b")
        renaming = InThread(rename)
        writing = InThread(lambda: [store["c"].put(str(n), n) for n in range(60)])
        seen: list[tuple[str, str]] = []
        while len(seen) < 80:
            each = next(stream)
            if each["operationType"] == "insert":
                seen.append((each["ns"]["coll"], each["documentKey"]["_id"]))
        renaming.result()
        writing.result()
        assert [id for name, id in seen if name == "c"] == [str(n) for n in range(60)]
        assert [id for name, id in seen if name != "c"] == [str(n) for n in range(20)]


def test_collections_come_and_go_while_a_stream_reads(shared_backend: Backend) -> None:
    """No change of a collection that stays is skipped or repeated; an end or a new name of a known collection is told."""
    rounds = 45

    def churn() -> None:
        for number in range(rounds):
            store.collection(f"x{number}", changes="after").put(str(number), number)
            if number % 3 == 1:
                store.rename(f"x{number}", f"y{number}")
            elif number % 3 == 2:
                store.drop(f"x{number}")
        store["a"].put("last", 1)

    with open_recorded(shared_backend) as store, store.watch(timeout=LONG) as stream:
        churning = InThread(churn)
        seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for each in stream:
            name = each["ns"]["coll"]
            seen[name[1:]].append((each["operationType"], name[0]))
            if each.get("documentKey") == {"_id": "last"}:
                break
        churning.result()
        assert stream.try_next() is None
    stays, known = ("insert", "x"), ("rename", "x")
    allowed = {
        0: [[stays]],
        1: [[stays, known], [("insert", "y")], [known, ("insert", "y")]],
        2: [[], [("drop", "x")], [stays, ("drop", "x")]],
    }
    for number in range(rounds):
        assert seen[str(number)] in allowed[number % 3], number


@pytest.mark.usefixtures("no_polling")
def test_a_commit_to_any_collection_of_this_process_notifies(shared_backend: Backend) -> None:
    with open_recorded(shared_backend) as store:
        for name in (*NAMES, "new"):
            waiting = InThread(store.watch().__next__)
            listens()
            store.collection(name, changes=True).put("1", 1)
            assert waiting.result()["ns"] == {"coll": name}


def test_a_commit_a_rename_and_a_drop_in_another_process_notify(shared_backend: Backend) -> None:
    with open_recorded(shared_backend) as store, open_recorded(shared_backend) as other:
        stream = store.watch()
        notified = []
        for change in (
            lambda: finish(start(write_in_turn, shared_backend, "w", 1)),
            lambda: other.rename("b", "d"),
            lambda: other.drop("c"),
        ):
            waiting = InThread(stream.__next__)
            listens()
            change()
            notified.append(waiting.result()["operationType"])
            while stream.try_next():
                pass
        assert notified == ["insert", "rename", "drop"]


@pytest.mark.usefixtures("no_polling")
def test_closing_ends_waiting_store_streams(
    shared_backend: Backend, new_threads: NewThreads
) -> None:
    store = open_recorded(shared_backend)
    stream, other = store.watch(), store.watch()
    ended, lost = InThread(lambda: list(stream)), InThread(other.__next__)
    listens(2)
    stream.close()
    assert ended.result() == []
    store.close()
    with pytest.raises(StoreClosed):
        lost.result()
    assert not new_threads()


@pytest.mark.parametrize("whole", [True, False])
def test_a_task_cancelled_at_any_moment_loses_no_change(
    shared_backend: Backend, *, whole: bool
) -> None:
    async def main() -> list[str]:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            things = store.collection("a", changes="after")
            await things.put_many({str(n): n for n in range(100)})
            watched = store if whole else things
            stream = watched.watch(pipeline=[], after="oldest", timeout=0)
            seen: list[str] = []
            for number in range(120):
                task = asyncio.ensure_future(anext(stream, None))
                for _ in range(number % 12):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.0004 * (number % 7))
                task.cancel()
                with suppress(asyncio.CancelledError):
                    found = await task
                    seen += [] if found is None else [found["documentKey"]["_id"]]
            return seen + [each["documentKey"]["_id"] async for each in stream]

    assert asyncio.run(main()) == [str(n) for n in range(100)]


def test_a_cancelled_task_loses_no_change_of_a_store(
    shared_backend: Backend, new_threads: NewThreads
) -> None:
    async def main() -> list[str]:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            for name in NAMES:
                await store.collection(name, changes=True).put("0", 0)
            stream = await store.watch()
            for number in range(20):
                task = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0.001 * number)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            for number in range(60):
                await store[NAMES[number % 3]].put(str(number), number)
            found = [await asyncio.wait_for(anext(stream), LONG) for _ in range(60)]
            waiting = asyncio.ensure_future(anext(stream, None))
            await asyncio.to_thread(listens)
            await stream.aclose()
            assert await asyncio.wait_for(waiting, LONG) is None
            return [each["documentKey"]["_id"] for each in found]

    open_recorded(shared_backend).close()
    assert asyncio.run(main()) == [str(n) for n in range(60)]
    assert not new_threads()
