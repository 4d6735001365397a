"""Threads that read or write one store at the same time, and processes that write one SQLite file."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from benchmarks.contention import Figures, alternating, by_threads, processes
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import floor_of, numbered
from benchmarks.measuring import Result, Table, documents

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800), pytest.mark.all_cores]
STORED, THREADS, ROUNDS = 2000, 8, 400
WRITES = 8000
"""Writes of all writers together; a tenth of it with `durability="full"`, a fourth on PostgreSQL."""
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


def show(table: Table, group: str, what: str, floor: Figures, own: Figures, **reach: str) -> None:
    """Add a line for each figure; `reach`: the ratio or the fairness to reach."""
    for name, unit in {"wall": "µs", "cpu": "µs", "p99": "ms"}.items():
        low, took = getattr(floor, name), getattr(own, name)
        line = f"{what}: {name}", "ours", low, took, took / low, reach.get(name, ""), unit
        table.add(Result(group, *line))
    for who, each, to_reach in (("floor", floor, ""), ("ours", own, reach.get("fairness", ""))):
        found = each.fairness
        table.add(Result(group, f"{what}: fairness", who, 0.0, found, found, to_reach, ""))


def count_of(setup: Setup, writers: int) -> int:
    """Return how often each of some writers writes."""
    few = 4 if setup.is_postgresql else 10 if setup.options["durability"] == "full" else 1
    return WRITES // few // writers


@pytest.mark.parametrize("number", [4, 64])
def test_writing_threads(setup: Setup, table: Table, number: int) -> None:
    with setup.store() as store:
        things = store["things"]
        things.put("first", 0)
        floors = [floor_of(setup.backend, setup.options, "things") for _ in range(number)]
        count = count_of(setup, number)
        found = alternating(
            {
                "bare": lambda: by_threads([each.put for each in floors], count),
                "ours": lambda: by_threads([things.put] * number, count),
                "one": lambda: by_threads([things.put], count * number),
            }
        )
        group = f"{setup.name}, writing threads"
        reach = {"p99": "≤ 1.5", "fairness": "≥ 0.4"} if setup.is_postgresql else {}
        what = f"put by {number} threads (floor: {number} bare connections)"
        show(table, group, what, found["bare"], found["ours"], **reach)
        what = f"put by {number} threads (floor: one thread of ours)"
        wall = {"wall": "≤ 0.91"} if setup.name == "SQLite, normal" and number == 4 else {}
        show(table, group, what, found["one"], found["ours"], **wall)
        for each in floors:
            each.close()


@pytest.mark.parametrize("number", [4, 8])
def test_writing_processes(setup: Setup, table: Table, number: int) -> None:
    if setup.is_postgresql:
        pytest.skip("its processes do not wait for each other")
    is_full = setup.options["durability"] == "full"
    with setup.store() as store:
        store["things"].put("first", 0)
    details = setup.backend.url, setup.options, number
    with processes(*details, is_bare=True) as bare, processes(*details, is_bare=False) as own:
        count = count_of(setup, number)
        found = alternating({"bare": lambda: bare(count), "ours": lambda: own(count)})
    reach = (
        {"wall": "≤ 1.11", "fairness": "≥ 0.4", "p99": "≤ 5 ms"} if is_full else {"wall": "≤ 1.43"}
    )
    what = f"put by {number} processes (floor: bare connections)"
    show(table, f"{setup.name}, writing processes", what, found["bare"], found["ours"], **reach)
