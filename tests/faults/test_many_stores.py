"""Many stores on one server, and many in one process."""

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from forked import Program
from postgres_server import SETTINGS, postgres_server

from collections_store import Store

COUNT = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"


def named(backend: Backend) -> tuple[str, str]:
    """Return a URL of the database whose connections have a name, and the name."""
    name = f"many_{backend.options['schema']}"
    url = sa.make_url(backend.url).update_query_dict({"application_name": name})
    return url.render_as_string(hide_password=False), name


def test_connections_are_bounded_by_the_pools(postgres_backend: Backend) -> None:
    url, name = named(postgres_backend)
    most, done = 0, threading.Event()

    def observe() -> None:
        nonlocal most
        with psycopg.connect(postgres_backend.url, autocommit=True) as observer:
            while not done.is_set():
                [found] = observer.execute(COUNT, (name,)).fetchall()
                most = max(most, *found)

    def work(number: int) -> None:
        things = stores[number % len(stores)]["things"]
        for n in range(20):
            things.put(f"{number}-{n}", {"n": n})
            assert things.get(f"{number}-{n}") == {"n": n}

    with ExitStack() as opened, ThreadPoolExecutor(25) as threads:
        stores = [
            opened.enter_context(Store(url, pool_size=2, **postgres_backend.options))
            for _ in range(6)
        ]
        observing = threads.submit(observe)
        list(threads.map(work, range(24)))
        done.set()
        observing.result()
        assert stores[0]["things"].count() == 24 * 20
    assert 6 < most <= 12


def keep_open(url: str, options: dict[str, Any], gates: list[Any], number: int) -> None:
    """Write at the same time as the others, while all have their stores open."""
    with Store(url, pool_size=1, **options) as store:
        things = store["things"]
        things.put(f"{number} before", number)
        for gate in gates:
            gate.wait(600)
        things.put(f"{number} after", number)
        gates[0].wait(600)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_hundred_processes_on_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 200
    larger = tuple(each for each in SETTINGS if "max_connections" not in each)
    monkeypatch.setattr("postgres_server.SETTINGS", (*larger, f"max_connections={many + 10}"))
    monkeypatch.delenv("COLLECTIONS_STORE_TEST_POSTGRES_URL", raising=False)
    gates = [multiprocessing.get_context("forkserver").Barrier(many + 1) for _ in range(2)]
    with postgres_server() as server:
        processes = [Program(keep_open, server.url, {}, gates, n) for n in range(many)]
        gates[0].wait(600)
        with psycopg.connect(server.url) as observer:
            clients = (
                "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
            )
            assert observer.execute(clients).fetchall() == [(many,)]
        gates[1].wait(600)
        gates[0].wait(600)
        for process in processes:
            assert process.communicate(timeout=100) == ("", "")
        with Store(server.url) as store:
            assert store["things"].count() == 2 * many


@pytest.mark.soak
@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")
def test_a_thousand_stores_in_one_process(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 5_100:
        pytest.skip("a process may not open 5,100 files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        before = threading.active_count()
        with ExitStack() as opened:
            stores = [
                opened.enter_context(Store(f"sqlite:///{tmp_path / str(n)}")) for n in range(1000)
            ]
            for n, store in enumerate(stores):
                store["things"].put("n", n)
            assert [store["things"].get("n") for store in stores] == list(range(1000))
            assert threading.active_count() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
