"""The connection pool: size, order of waiters, and closing."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from postgres_cluster import wait_until

from collections_store import DatabaseBusy, DatabaseError, DatabaseUnavailable, Store, StoreClosed
from collections_store.engine.permits import Permit, this_thread
from collections_store.engine.pool import PING_AFTER, ConnectionPool
from collections_store.operations.session import DriverSession
from collections_store.sql.dialects.postgresql import connections


def pool_of(store: Store, number: int = 0) -> ConnectionPool:
    store["things"].put("a", 1)
    assert store.core.opened is not None
    pool = store.core.opened._pools[number]
    assert isinstance(pool, ConnectionPool)
    return pool


def _waits(pool: ConnectionPool, number: int) -> bool:
    return len(pool._waiting) == number


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_the_connection_used_last_is_used_first(url: str) -> None:
    with Store(url, pool_size=3) as store:
        pool = pool_of(store)
        one, two = pool.acquire(), pool.acquire()
        assert one is not two
        pool.release(two)
        pool.release(one)
        assert pool.acquire() is one
        pool.release(one)


class Changing(dict[Any, Any]):
    """A dictionary that another thread changes once, while this one reads its keys: a collection of garbage lets it run."""

    changes = 0

    def __iter__(self) -> Iterator[Any]:
        self.pop("another", None)
        keys = super().__iter__()
        if not self.changes:
            self["another"] = []
        self.changes += 1
        return keys


def test_a_change_while_the_idle_connections_are_read(url: str) -> None:
    with Store(url) as store:
        pool = pool_of(store)
        [first] = pool._idle
        pool._idle = idle = Changing(pool._idle)
        pooled = pool.acquire()
        assert pooled is first
        assert idle.changes == 2
        pool.release(pooled)


def test_a_thread_that_works_without_a_break_leaves_others_their_turn(url: str) -> None:
    with Store(url, pool_size=1) as store:
        pool = pool_of(store)
        stopped, turns = threading.Event(), [0, 0, 0]

        def work(number: int) -> None:
            while not stopped.is_set():
                pooled = pool.acquire()
                turns[number] += 1
                time.sleep(0.001)
                pool.release(pooled)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while min(turns) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        stopped.set()
        for thread in threads:
            thread.join()
        # Without the rule two of three have 1 turn in 10 seconds.
        assert min(turns) >= 20


def test_permits_are_granted_in_the_order_of_the_requests(url: str) -> None:
    with Store(url, pool_size=1) as store:
        pool, order = pool_of(store), list[int]()

        def work(number: int) -> None:
            pooled = pool.acquire()
            order.append(number)
            pool.release(pooled)

        pooled = pool.acquire()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_until(partial(_waits, pool, number), "a thread waits")
        pool.release(pooled)
        for thread in threads:
            thread.join(10)
        assert order == list(range(20))


def test_a_thread_in_a_loop_goes_on_beside_waiting_callers_until_its_streak_ends(url: str) -> None:
    with Store(url, pool_size=1) as store:
        pool, granted = pool_of(store), SimpleQueue[Permit]()
        pooled, streak = pool.acquire(), this_thread.running.streak
        pool._waiting.append(granted)
        for until in (time.monotonic() + 60, 0.0):
            streak.until, pooled.acquired_at = until, time.monotonic() - 60
            pool.release(pooled)
            assert granted.empty() == bool(until)
            if until:
                assert pool.acquire() is pooled
        pool._free.put(granted.get())


def test_a_permit_that_a_streak_left_is_granted_to_the_first_that_waits(url: str) -> None:
    with Store(url, pool_size=1) as store:
        pool = pool_of(store)
        pooled, streak = pool.acquire(), this_thread.running.streak
        waiting = threading.Thread(target=lambda: pool.release(pool.acquire()))
        waiting.start()
        wait_until(lambda: bool(pool._waiting), "a thread waits")
        streak.until = time.monotonic() + 60
        pool.release(pooled)
        streak.until = 0.0
        waiting.join(10)
        assert not waiting.is_alive()


def test_the_pool_has_at_most_its_size(url: str) -> None:
    with Store(url, pool_size=2, busy_timeout=0.2) as store:
        pool = pool_of(store)
        pooled_connections = [pool.acquire(), pool.acquire()]
        with pytest.raises(DatabaseBusy, match=r"all 2 connections were in use for 0\.2 seconds"):
            store["things"].get("a")
        for pooled in pooled_connections:
            pool.release(pooled)
        assert store["things"].get("a") == 1


def test_a_discarded_connection_frees_its_slot(url: str) -> None:
    with Store(url, pool_size=1) as store:
        pool = pool_of(store)
        pooled = pool.acquire()
        pool.discard(pooled)
        other = pool.acquire()
        assert other is not pooled
        pool.release(other)


def test_an_idle_connection_is_tested_before_use(postgres_backend: Any) -> None:
    with Store(postgres_backend.url, **postgres_backend.options, pool_size=1) as store:
        pool = pool_of(store)
        pooled = pool.acquire()
        pooled.connection.driver.close()
        pool.release(pooled)
        pooled.released_at = time.monotonic() - PING_AFTER - 1
        assert store["things"].put("a", 2) == 2


def test_the_server_ends_idle_connections(
    postgres_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_TIMEOUT", 1)
    name = f"idle_{postgres_backend.options['schema']}"
    url = sa.make_url(postgres_backend.url).update_query_dict({"application_name": name})
    with (
        Store(url, **postgres_backend.options) as store,
        psycopg.connect(postgres_backend.url) as observer,
    ):
        pool = pool_of(store)
        used = [pool.acquire() for _ in range(3)]
        for each in used:
            pool.release(each)
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        deadline = time.monotonic() + 60
        while observer.execute(sessions, (name,)).fetchone() != (0,):
            observer.rollback()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert store["things"].put("a", 2) == 2
        with store.transaction() as transaction:
            assert transaction["things"].get("a") == 2


def test_the_server_keeps_its_own_limit_of_idle_connections(postgres_backend: Any) -> None:
    options = {"options": "-cidle_session_timeout=1h"}
    url = sa.make_url(postgres_backend.url).update_query_dict(options)
    with Store(url, **postgres_backend.options) as store:
        pool = pool_of(store)
        pooled = pool.acquire()
        assert pooled.connection.rows("SHOW idle_session_timeout") == [("1h",)]
        pool.release(pooled)


def test_a_connection_whose_setup_failed_is_closed(postgres_backend: Any) -> None:
    name = f"unset_{postgres_backend.options['schema']}"
    url = sa.make_url(postgres_backend.url).update_query_dict({"application_name": name})

    def interrupt(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is DriverSession.command.__code__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    store = Store(url, **postgres_backend.options)
    sys.setprofile(interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        store["things"].get("a")
    sys.setprofile(None)
    store.close()
    statement = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(postgres_backend.url, autocommit=True) as looking:
        for _ in range(500):  # the server notices it with a delay
            if looking.execute(statement, [name]).fetchone() == (0,):
                return
            time.sleep(0.01)
    pytest.fail(f"still connected, kept by {caught.value!r}")


def test_closing_waits_for_borrowed_connections_with_a_timeout(url: str) -> None:
    store = Store(url, pool_size=1, busy_timeout=0.3)
    pool = pool_of(store)
    pooled = pool.acquire()
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    pool.release(pooled)
    assert pooled.sa.closed
    with pytest.raises(StoreClosed):
        pool.acquire()


def test_waiting_for_a_connection_ends_when_the_store_is_closed(url: str) -> None:
    store = Store(url, pool_size=1, busy_timeout=5)
    pool = pool_of(store)
    pooled = pool.acquire()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            store["things"].get("a")
        except StoreClosed as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)
    closing = threading.Thread(target=store.close)
    closing.start()
    time.sleep(0.05)
    pool.release(pooled)
    waiting.join(10)
    closing.join(10)
    assert not waiting.is_alive()
    assert len(errors) <= 1


def test_a_connection_that_cannot_be_opened_costs_no_slot(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/no/such/folder.db", busy_timeout=20)
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable):
            store["things"].get("a")
    (tmp_path / "no" / "such").mkdir(parents=True)
    assert store["things"].put("a", 1) == 1
    pool = pool_of(store)
    assert pool._free.qsize() == len(pool._issued) == 4
    store.close()
    assert time.monotonic() - begun < 15


def test_a_slot_that_was_lost_is_replaced(url: str) -> None:
    with Store(url, pool_size=2, busy_timeout=0.3) as store:
        pool = pool_of(store)
        for _ in range(4):
            pooled = pool.acquire()
            del pooled  # as after an exception between two lines
        assert store["things"].get("a") == 1
        caught = [pool.acquire(), pool.acquire()]
        with pytest.raises(DatabaseBusy):
            pool.acquire()
        for pooled in caught:
            pool.release(pooled)


def test_a_slot_whose_return_was_interrupted_is_found(url: str) -> None:
    with Store(url, pool_size=1, busy_timeout=0.3) as store:
        pool = pool_of(store)
        pool._set_idle(pool.acquire())  # released except for its slot
        assert store["things"].get("a") == 1


def test_a_lost_connection_is_closed_at_once(url: str) -> None:
    with Store(url) as store:
        pooled = pool_of(store).acquire()
        lost = weakref.ref(pooled)
        gc.disable()
        try:
            del pooled
            assert (
                lost() is None
            )  # otherwise waiters for its slot wait until the next garbage collection
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        ("pg_backend_pid()", "no such setting", "no such setting"),
        ("set_config(text, text, boolean)", "no such setting", "no such setting"),
        ("pg_backend_pid()", "invalid command, use SHOW HELP;", "the console of PgBouncer"),
    ],
)
def test_a_connection_whose_settings_fail_is_closed(
    postgres_backend: Backend, function: str, text: str, expected: str
) -> None:
    url, schema = postgres_backend.url, postgres_backend.options["schema"]
    body = f"LANGUAGE plpgsql AS $$ BEGIN RAISE '{text}'; END $$"
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE FUNCTION {schema}.{function} RETURNS text {body}")
        path = f"options=-csearch_path%3D{schema},pg_catalog"
        with Store(f"{url}?application_name={schema}&{path}") as store:
            with pytest.raises(DatabaseError, match=expected):
                store["things"].get("a")
            wait_until(
                lambda: connection.execute(sessions, [schema]).fetchone() == (0,), "it is closed"
            )
