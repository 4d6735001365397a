"""Threads that read one store at the same time, beside a writer."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import floor_of, numbered
from benchmarks.measuring import Table, documents

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800), pytest.mark.all_cores]
STORED, THREADS, ROUNDS = 2000, 8, 400
IDS = [f"{number * 37 % STORED:08d}" for number in range(ROUNDS)]


def threads_of(gets: Sequence[Callable[[str], Any]]) -> Callable[[], None]:
    """Return a function that reads all ids in threads."""

    def work(get: Callable[[str], Any]) -> None:
        for id in IDS:
            get(id)

    def every() -> None:
        threads = [threading.Thread(target=work, args=(get,)) for get in gets]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    return every


def test_eight_reading_threads(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    with setup.store() as store:
        things = store["things"]
        things.put_many(numbered(documents(STORED)))
        floors = [floor_of(setup.backend, setup.options, "things") for _ in range(THREADS)]
        low: list[Callable[[str], Any]] = [each.get for each in floors]
        own: list[Callable[[str], Any]] = [things.get] * THREADS
        what = "get by 8 threads (floor: 8 bare connections)"
        group, per = f"{setup.name}, threads", THREADS * ROUNDS
        table.compare(
            group, what, threads_of(low), {"ours": threads_of(own)}, per=per,
            reach="≤ 1.25 (0.8 times as many)",
        )  # fmt: skip
        over, body = threading.Event(), next(documents(1))

        def write() -> None:
            while not over.is_set():
                things.put("written", body)

        writer = threading.Thread(target=write)
        writer.start()
        what = "get by 8 threads beside a writer (floor: 8 bare connections beside it)"
        table.compare(group, what, threads_of(low), {"ours": threads_of(own)}, per=per)
        over.set()
        writer.join()
        for each in floors:
            each.close()
