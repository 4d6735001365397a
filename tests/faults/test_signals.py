"""Ctrl-C, or a signal handler that raises, at any moment: the call fails, the store stays usable, and no other write is
lost or repeated.
"""

import gc
import random
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from interrupting import Survived, interrupts, watchdog

from collections_store import Store
from collections_store.expressions.patterns import matchers
from collections_store.operations.operation import Work

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")


class Interrupt(BaseException):
    """Raised by the signal handler."""


@pytest.fixture(autouse=True)
def handler(monkeypatch: pytest.MonkeyPatch) -> Any:
    # A signal can interrupt a callback, where no code can catch it. pytest would keep its traceback, and by
    # that all its frames and their objects; the interpreter prints it and releases it.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    def interrupt(*_: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupted(call: Any, longest: float) -> bool:
    """Call with an interrupt at some moment; return whether it was raised."""
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, longest))
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        return True
    return False


@pytest.mark.soak  # random moments; test_pool.py and the tests below have the known ones
@pytest.mark.parametrize("many", [False, True], ids=["put", "put_many"])
def test_writes_work_after_interrupts(shared_backend: Backend, many: bool) -> None:
    longest = 0.002 if shared_backend.is_postgresql else 0.0004
    with Store(shared_backend.url, busy_timeout=2, **shared_backend.options) as store:
        things = store["things"]
        things.put("0", 0)
        acknowledged = {"0"}
        for number in range(1, 400):
            id = str(number)
            call = (lambda: things.put_many({id: 1})) if many else (lambda: things.put(id, 1))  # noqa: B023
            try:
                if not interrupted(call, longest):
                    acknowledged.add(id)
            except ConnectionError:  # the statement was being sent when the signal came
                continue
        things.put("after", 1)
        acknowledged.add("after")
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert acknowledged <= {document.id for document in store["things"].stream()}


def test_an_interrupted_wait_for_a_lock_leaves_no_transaction(tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    with Store(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=5) as store:
        things = store["things"]
        things.put("a", 1)
        holder.execute("BEGIN IMMEDIATE")
        for _ in range(5):
            assert interrupted(lambda: things.put_many({"a": 2, "b": 2}), 0.05)
        holder.execute("ROLLBACK")
        assert things.put("c", 3) == 1
        ids = [row[0] for row in holder.execute("SELECT id FROM cs_1_things ORDER BY seq")]
        assert ids == ["a", "c"]
        holder.execute("BEGIN IMMEDIATE")
        holder.execute("ROLLBACK")
    holder.close()


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("within", [True, False], ids=["savepoint", "transaction"])
def test_an_interrupt_is_not_retried(postgres_backend: Backend, writes: bool, within: bool) -> None:
    attempts = []

    def sending(connection: Any) -> None:
        """Simulate a signal during a send of psycopg: the server's response is not read, and ROLLBACK fails."""
        attempts.append(1)
        with connection.savepoint() if within else nullcontext():
            connection.driver.pgconn.send_query(b"SELECT 1")
            raise Interrupt

    with Store(postgres_backend.url, **postgres_backend.options) as store:
        store["things"].put("1", 1)
        with pytest.raises(Interrupt):
            store.run(Work(("things",), lambda run: run(sending), writes=writes))
        assert len(attempts) == 1
        assert store["things"].get("1") == 1


@pytest.mark.soak
def test_interrupts_of_the_main_thread_do_not_reach_the_others(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        things = store["things"]
        things.put("0", 0)
        wrong: list[Any] = []
        stop = threading.Event()

        def work(number: int) -> None:
            for turn in range(10**9):
                if stop.is_set():
                    return
                id = f"{number} {turn}"
                answers = things.put(id, 1), things.remove(id)
                if answers != (1, True):
                    wrong.append(answers)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        hits = sum(interrupted(lambda: things.put("main", 1), 0.001) for _ in range(300))
        stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not wrong
        assert hits


def test_an_interrupt_in_a_function_of_the_caller_is_raised_unchanged(tmp_path: Path) -> None:
    """SQLite converts exceptions of functions, and of signal handlers before the first instruction, to its own error."""
    wanted: list[dict[str, Any]] = [
        {"s": {"$regex": "9 some.*z"}},
        {"a": {"$gt": [1, 2, 9]}},
        {"a": [1, 2, {"x": 3}]},
    ]
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        things = store["things"]
        things.put_many({str(n): {"s": f"some text {n} " * 9, "a": [1, 2, n]} for n in range(3000)})
        came = sum(
            interrupted(lambda: [things.count(wanted[number % 3]) for _ in range(99)], 0.02)  # noqa: B023
            for number in range(60)
        )
        assert came > 50  # a callback of a weak set sometimes swallows one
        with pytest.raises(Interrupt), store.transaction() as tx:
            tx["things"].put("new", 1)
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            for _ in range(200):
                tx["things"].update_many(wanted[0], {"$set": {"b": 1}})
            raise Interrupt
        assert not things.exists("new")
        things.put("after", 1)


@pytest.mark.parametrize("lent", [False, True], ids=["own", "borrowed"])
def test_ctrl_c_during_a_search_raises_keyboard_interrupt(
    tmp_path: Path, lent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matchers, "LIMIT", 10**12)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    engine = sa.create_engine(url)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    with Store(engine=engine) if lent else Store(url) as store:
        things = store["things"]
        things.put("1", {"s": "a" * 60 + "!"})
        for pattern in ("(b)", r"(\w+)+\1$", "(?=(a|aa)+$)"):  # the first is found fast: a warm-up
            for filter in (
                {"s": {"$regex": pattern}},
                {"$expr": {"$regexMatch": {"input": "$s", "regex": pattern}}},
            ):
                signal.setitimer(signal.ITIMER_REAL, 0 if pattern == "(b)" else 0.05)
                with nullcontext() if pattern == "(b)" else pytest.raises(KeyboardInterrupt):
                    things.count(filter)
        assert things.count() == 1
    engine.dispose()


ENGINE = "collections_store/(engine|operations|store)"


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("method", ["get", "put", "put_many"])
def test_an_interrupt_at_any_position_loses_neither_writer_nor_connection(
    tmp_path: Path, memory: bool, method: str
) -> None:
    """Even while the traceback, and with it all frames, is referenced."""
    url = "sqlite://" if memory else f"sqlite:///{tmp_path / 'store.db'}"
    with Store(url, busy_timeout=1, pool_size=None if memory else 1) as store:
        things = store["things"]
        things.put("w", 1)
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: things.get("w"),
            "put": lambda: things.put("x", 1),
            "put_many": lambda: things.put_many({"x": 1, "y": 2}),
        }
        hits = 0
        for raised in interrupts(calls[method], within=ENGINE):
            hits += 1
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(things.put, "after", hits).result(30)
            assert things.put("after", hits), raised
            assert things.get("w") == 1
        assert hits > 10


@pytest.mark.parametrize("memory", [True, False])
def test_an_interrupt_at_any_position_ends_a_transaction(tmp_path: Path, memory: bool) -> None:
    """At once when the traceback is released, not at the next garbage collection."""
    url = "sqlite://" if memory else f"sqlite:///{tmp_path / 'store.db'}"
    with Store(url, busy_timeout=1) as store:
        things = store["things"]
        things.put("w", 1)

        def put() -> None:
            with store.transaction() as tx:
                tx["things"].put("x", 1)

        hits = 0
        gc.disable()
        try:
            for raised in interrupts(put, within=ENGINE):
                del raised
                hits += 1
                with ThreadPoolExecutor(1) as threads:
                    assert threads.submit(things.put, "after", hits).result(30)
                assert things.get("w") == 1
        finally:
            gc.enable()
        assert hits > 80


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("of_store", [True, False])
def test_an_interrupt_at_any_position_of_a_change_stream_leaves_no_lock(
    tmp_path: Path, memory: bool, of_store: bool
) -> None:
    url = "sqlite://" if memory else f"sqlite:///{tmp_path / 'store.db'}"
    with Store(url) as store:
        things = store.get_sync_collection("things", changes=True)

        watched: Any = store if of_store else things

        def watch() -> None:
            with watched.watch(timeout=0.03) as stream:
                assert not list(stream)

        hits = 0
        files = "collections_store/(changes|engine/jobs|engine/workers)|threading.py|queue.py"
        for raised in interrupts(watch, within=files):
            assert isinstance(raised, KeyboardInterrupt | Survived)
            hits += 1
            with watchdog(), watched.watch(timeout=30) as stream:
                things.put("x", hits)
                change = next(stream)
                assert (change["documentKey"]["_id"] if of_store else change.id) == "x"
        assert hits > 20
