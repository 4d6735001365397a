"""Growth: the same methods on 10,000 and on 1,000,000 documents; streams, many collections, and imports.

`GROWN=100000` in the environment is quicker.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import numbered
from benchmarks.measuring import ROUNDS, Result, Table, documents, timed

from collections_store import Store

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
SMALL, GROWN = 10_000, int(os.environ.get("GROWN", "1000000"))
GROWN_ON_POSTGRESQL = min(GROWN, 100_000)
TURNS = 300
ROOT = Path(__file__).parents[2]


def p50(call: Callable[[int], Any], count: int) -> float:
    """Return the median microseconds of calls at positions spread over the collection."""
    positions = [number * 7919 % count for number in range(TURNS)]
    return statistics.median(timed(partial(call, position)) for position in positions) * 1e6


def calls_of(things: Any, page: int) -> dict[str, Callable[[int], Any]]:
    """Return the functions to call with positions of a collection."""
    body = next(documents(1))
    cursor = things.page(sort="n", limit=20 * page - 20, projection=["n"]).cursor
    return {
        "get": lambda p: things.get(f"{p:08d}"),
        "put": lambda p: things.put(f"{p:08d}", {**body, "n": p, "bucket": p // 20}),
        "find by an index, 20 found": lambda p: things.find("bucket", p // 20),
        "update_one by an index": lambda p: things.update_one(
            {"bucket": p // 20}, {"$inc": {"visits": 1}}
        ),
        "count by an index": lambda p: things.count("bucket", p // 20),
        "$match and $group of 20": lambda p: things.aggregate(
            [{"$match": {"bucket": p // 20}}, {"$group": {"_id": None, "sum": {"$sum": "$n"}}}]
        ),
        "find_one over a range": lambda p: things.find_one({"n": {"$gte": p // 2}}),
        "page 10,000 of 20 (250 where small)": lambda _: things.page(
            sort="n", limit=20, after=cursor
        ),
    }


def test_growth(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("fsync is all that differs")
    grown = GROWN_ON_POSTGRESQL if setup.is_postgresql else GROWN
    sizes = sorted({SMALL, GROWN_ON_POSTGRESQL, grown})
    with setup.store() as store:
        for count in sizes:
            name = f"of_{count}"
            store.create_collection(name, body_index=False)
            store[name].create_index("bucket")
            store[name].create_index("n")
            store[name].put_many(numbered(documents(count)))
        if setup.is_postgresql:
            analyse(setup)
        tell_growth(table, f"{setup.name}, growth", p50s(store, sizes))
        if not setup.is_postgresql:
            with setup.store(page_cache=2 * 2**20) as scarce:
                found = p50s(scarce, (SMALL, grown))
            tell_growth(table, f"{setup.name}, growth, page_cache of 2 MiB", found)
        tracemalloc.start()
        count = sum(1 for _ in store[f"of_{grown}"].stream())
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        assert count == grown
        table.add(
            Result(f"{setup.name}, growth", f"memory that a stream of {grown:,} adds", "ours",
                   0.0, peak, peak, "< 50 MB", "MB")
        )  # fmt: skip


def p50s(store: Store, sizes: Sequence[int]) -> dict[str, dict[int, list[float]]]:
    """Return the median microseconds of each call on the collections of these sizes, in alternating rounds. A `get` of
    documents that were never read has one round.
    """
    found: dict[str, dict[int, list[float]]] = {}
    calls = {}
    for count in sizes:
        page = 10_000 if count >= 10_000 * 20 else count // 40
        calls[count] = calls_of(store[f"of_{count}"], page)
        first = found.setdefault("get of what nobody asked for before", {})
        first[count] = [p50(calls[count]["get"], count)]
    for _ in range(ROUNDS):
        for count in sizes:
            for what, call in calls[count].items():
                found.setdefault(what, {}).setdefault(count, []).append(p50(call, count))
    return found


def tell_growth(table: Table, group: str, found: dict[str, dict[int, list[float]]]) -> None:
    """Print all sizes relative to `SMALL`."""
    for what, took in found.items():
        for count in took:
            if count == SMALL:
                continue
            pairs = list(zip(took[SMALL], took[count], strict=True))
            ratio = statistics.median(own / low for low, own in pairs)
            low, own = (statistics.median(each) for each in zip(*pairs, strict=True))
            reach = "≤ 1.5" if count == max(took) and "before" not in what else ""
            named = f"{what}: {count:,} (floor: {SMALL:,})"
            table.add(Result(group, named, "ours", low, own, ratio, reach))


def analyse(setup: Setup) -> None:
    import psycopg

    with psycopg.connect(setup.backend.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def test_opening_a_large_store(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("nothing is written")
    with setup.store() as store:
        for number in range(1000):
            store.create_collection(f"c{number}", body_index=False)
        store["c7"].put_many(numbered(documents(GROWN)))
    opened = []
    for _ in range(9):
        begun = time.perf_counter()
        with setup.store() as store:
            assert store["c7"].get("00000007") is not None
            opened.append((time.perf_counter() - begun) * 1000)
    with setup.store() as store:
        for number in range(1000):
            store.drop(f"c{number}")  # PostgreSQL cannot drop a schema with so many tables at once
    took = statistics.median(opened)
    what = f"opening 1,000 collections and {GROWN:,} documents, and a get"
    table.add(Result(f"{setup.name}, growth", what, "ours", 0.0, took, took, "< 30 ms", "ms"))


def seconds_to_import(words: str, compiled: Path) -> float:
    """Return the seconds of an import of compiled modules, as pip installs them."""
    program = f"import time; t = time.perf_counter(); {words}; print(time.perf_counter() - t)"
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(compiled)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, encoding="utf-8", env=env
    )
    return float(done.stdout)


def test_importing(table: Table, tmp_path: Path) -> None:
    modules = {
        "import sqlalchemy": "",
        "import collections_store": "≤ 1.3",
        "from collections_store import Store": "",
        "from collections_store import AsyncStore": "",
    }
    rounds = [{each: seconds_to_import(each, tmp_path) for each in modules} for _ in range(15)][2:]
    low, *_ = took = [statistics.median(each[w] for each in rounds) * 1000 for w in modules]
    for words, own in list(zip(modules, took, strict=True))[1:]:
        what = f"{words} (floor: import sqlalchemy)"
        table.add(Result("Import", what, "ours", low, own, own / low, modules[words], "ms"))


def test_memory_of_handles(table: Table, tmp_path: Path) -> None:
    def grown(make: Callable[[], Any], count: int) -> float:
        tracemalloc.start()
        held = make()
        size = tracemalloc.get_traced_memory()[0] / count / 1024
        tracemalloc.stop()
        del held
        return size

    stores: list[Store] = []

    def open_some() -> list[Store]:
        for number in range(20):
            stores.append(Store(f"sqlite:///{tmp_path / f'{number}.db'}"))
            stores[-1]["things"].put("a", 1)
            stores[-1]["things"].get("a")
        return stores

    with Store(f"sqlite:///{tmp_path / 'warm.db'}") as warm:
        warm["things"].put("a", 1)
        warm["things"].get("a")
    each = grown(open_some, 20)
    what = "an open store that is idle (SQLite's pages come on top)"
    table.add(Result("Memory", what, "ours", 0.0, each, each, "", "KB"))
    handle = grown(lambda: [stores[0][f"c{n}"] for n in range(1000)], 1000)
    table.add(Result("Memory", "a collection that is held", "ours", 0.0, handle, handle, "", "KB"))
    for store in stores:
        store.close()


def test_memory_of_pending_writes(setup: Setup, table: Table) -> None:
    """1,000 concurrent puts, all called before the first completes. The caller holds their bodies."""
    if setup.name == "SQLite, full":
        pytest.skip("fsync is all that differs")

    async def peak() -> float:
        async with setup.async_store() as store:
            things, bodies = store["things"], list(documents(1000))
            await things.put("a", {})
            tracemalloc.start()
            await asyncio.gather(*(things.put(f"{n:08d}", each) for n, each in enumerate(bodies)))
            size = tracemalloc.get_traced_memory()[1] / 1000 / 1024
            tracemalloc.stop()
            return size

    each = asyncio.run(peak())
    what = f"{setup.name}: one of 1,000 awaited puts that wait"
    table.add(Result("Memory", what, "ours", 0.0, each, each, "", "KB"))
