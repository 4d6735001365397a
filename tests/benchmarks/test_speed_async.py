"""asyncio: a hop to a thread and back, many tasks at once, and the longest pause of the event loop."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import floor_of, numbered
from benchmarks.hops import Hops
from benchmarks.measuring import Result, Table, documents, run_async
from benchmarks.peers import SQLAlchemyAsyncio

from collections_store import AsyncStore

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
STORED, ROUNDS = 2000, 300
CALLS = 4096
"""Calls of a round with many tasks."""
GROUP = {"SQLite, full": "≤ 0.17 (6 times as many)", "PostgreSQL": "≤ 0.5 (2 times as many)"}


def test_sequential_calls(setup: Setup, table: Table) -> None:
    body = next(documents(1))
    with asyncio.Runner() as runner:
        store = setup.async_store()
        things = store["things"]
        runner.run(things.put_many(list(numbered(documents(STORED)))))
        hops = Hops(lambda: floor_of(setup.backend, setup.options, "things"))
        for what, low, own, reach in (
            ("get", lambda f: f.get("00000007"), lambda: things.get("00000007"), "≤ 1.5"),
            (
                "put",
                lambda f: f.put("00000007", body),
                lambda: things.put("00000007", body),
                "",
            ),
        ):
            table.compare(
                f"{setup.name}, async", f"{what} (floor: behind a bare hop)",
                run_async(runner, partial(hops, low), ROUNDS),
                {"ours": run_async(runner, own, ROUNDS)}, per=ROUNDS, reach=reach,
            )  # fmt: skip
        hops.stop()
        runner.run(store.aclose())


def tasks_of(
    runner: asyncio.Runner, count: int, call: Callable[[int], Awaitable[Any]]
) -> Callable[[], None]:
    """Return a coroutine function that makes `CALLS` calls in many tasks."""

    async def one(first: int) -> None:
        for number in range(first, CALLS, count):
            await call(number)

    async def every() -> None:
        await asyncio.gather(*(one(first) for first in range(count)))

    return lambda: runner.run(every())


@pytest.mark.all_cores
def test_concurrent_puts(setup: Setup, table: Table) -> None:
    bodies = list(documents(CALLS))
    with asyncio.Runner() as runner:
        store = setup.async_store()
        things = store["things"]
        runner.run(things.put("a", {}))
        floor = floor_of(setup.backend, setup.options, "things")

        def one_by_one() -> None:
            for number in range(CALLS):
                floor.put(f"{number:08d}", bodies[number])

        def put(number: int) -> Awaitable[Any]:
            return things.put(f"{number:08d}", bodies[number])

        others = {f"{n} tasks": tasks_of(runner, n, put) for n in (1, 64, 256)}
        table.compare(
            f"{setup.name}, async", "put (floor: bare, a transaction each)", one_by_one,
            {("ours" if name == "64 tasks" else name): each for name, each in others.items()},
            per=CALLS, reach=GROUP.get(setup.name, ""),
        )  # fmt: skip
        floor.close()
        runner.run(store.aclose())


@pytest.mark.all_cores
def test_concurrent_reads_and_writes(setup: Setup, table: Table) -> None:
    """64 tasks on 10 connections, against 10 bare threads with a connection each."""
    if not setup.is_postgresql:
        pytest.skip("SQLite has one writer")
    bodies = list(documents(CALLS))
    with asyncio.Runner() as runner:
        store = setup.async_store(pool_size=10)
        things = store["things"]
        runner.run(things.put_many(list(numbered(bodies))))
        hops = Hops(lambda: floor_of(setup.backend, setup.options, "things"), 10)
        ids = [f"{number:08d}" for number in range(CALLS)]
        alchemy = SQLAlchemyAsyncio(
            setup.backend.url, setup.backend.options.get("schema"), "cs_1_things"
        )
        assert runner.run(alchemy.get(ids[7])) == runner.run(things.get(ids[7])) == bodies[7]
        table.compare(
            f"{setup.name}, async", "64 tasks that get (floor: 10 bare threads)",
            tasks_of(runner, 64, lambda n: hops(lambda f: f.get(ids[n]))),
            {
                "ours": tasks_of(runner, 64, lambda n: things.get(ids[n])),
                "SQLAlchemy's asyncio": tasks_of(runner, 64, lambda n: alchemy.get(ids[n])),
            },
            per=CALLS, reach="≤ 1.25 (0.8 times as many), a third of SQLAlchemy's",
        )  # fmt: skip
        runner.run(alchemy.aclose())
        hops.stop()
        runner.run(store.aclose())


async def longest_pause(store: AsyncStore, bodies: list[Any]) -> float:
    """Return the longest pause of the event loop, in milliseconds, while 64 tasks read and write."""
    things, pauses, over = store["things"], [0.0], asyncio.Event()

    async def look() -> None:
        before = time.perf_counter()
        while not over.is_set():
            await asyncio.sleep(0)
            now = time.perf_counter()
            pauses.append(now - before)
            before = now

    async def work(first: int) -> None:
        for number in range(first, CALLS, 64):
            await things.put(f"{number:08d}", bodies[number])
            await things.get(f"{number:08d}")

    looking = asyncio.create_task(look())
    await asyncio.gather(*(work(first) for first in range(64)))
    over.set()
    await looking
    return max(pauses) * 1000


@pytest.mark.all_cores
def test_the_event_loop_stays_responsive(setup: Setup, table: Table) -> None:
    with asyncio.Runner() as runner:
        store = setup.async_store()
        bodies = list(documents(CALLS))
        runner.run(store["things"].put("a", {}))
        what, usual = (
            "the loop's longest pause while 64 tasks read and write",
            sys.getswitchinterval(),
        )
        for interval in (usual, 0.001):
            sys.setswitchinterval(interval)
            pauses = sorted(runner.run(longest_pause(store, bodies)) for _ in range(5))
            who = "ours" if interval == usual else "ours, sys.setswitchinterval(0.001)"
            reach = "< 5 ms" if interval == usual else ""
            table.add(
                Result(f"{setup.name}, async", what, who, 0.0, pauses[2], pauses[2], reach, "ms")
            )
        sys.setswitchinterval(usual)
        runner.run(store.aclose())
