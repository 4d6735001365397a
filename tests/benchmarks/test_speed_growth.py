"""Growth: the same verbs on 10,000 and on 1,000,000 documents; streams, many collections, and imports.

`GROWN=100000` in the environment is quicker.
"""

import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fixtures import Bed, bed, kept, one_core, table
from benchmarks.floors import numbered
from benchmarks.measuring import Result, Table, documents, timed

from collections_store import Store

__all__ = ["bed", "kept", "one_core", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
SMALL, GROWN = 10_000, int(os.environ.get("GROWN", "1000000"))
TURNS = 300
ROOT = Path(__file__).parents[2]


def p50(call: Callable[[int], Any], count: int) -> float:
    """Return the median microseconds of calls with places all over the collection."""
    places = [number * 7919 % count for number in range(TURNS)]
    return statistics.median(timed(partial(call, place)) for place in places) * 1e6


def calls_of(things: Any, page: int) -> dict[str, Callable[[int], Any]]:
    """Return what is called with places of a collection."""
    body = next(documents(1))
    cursor = things.page(sort="n", limit=20 * page - 20, projection=["n"]).cursor
    return {
        "get": lambda p: things.get(f"{p:08d}"),
        "put": lambda p: things.put(f"{p:08d}", {**body, "n": p, "bucket": p // 20}),
        "find by an index, 20 found": lambda p: things.find("bucket", p // 20),
        "page 10,000 of 20 (250 where small)": lambda _: things.page(
            sort="n", limit=20, after=cursor
        ),
    }


def test_growth(bed: Bed, table: Table) -> None:
    if bed.name == "SQLite, full":
        pytest.skip("fsync is all that differs")
    with bed.store() as store:
        sizes = {}
        for name, count in (("small", SMALL), ("grown", GROWN)):
            store.create_collection(name, body_index=False)
            store[name].create_index("bucket")
            store[name].create_index("n")
            store[name].put_many(numbered(documents(count)))
            sizes[name] = count
        if bed.is_postgresql:
            analyse(bed)
        took: dict[str, dict[str, float]] = {}
        for name, count in sizes.items():
            page = 10_000 if count >= 10_000 * 20 else count // 40
            calls = calls_of(store[name], page)
            took[name] = {what: p50(call, count) for what, call in calls.items()}
        for what, low in took["small"].items():
            own = took["grown"][what]
            table.add(
                Result(f"{bed.name}, growth", f"{what}: {GROWN:,} (floor: {SMALL:,})", "ours",
                       low, own, own / low, "≤ 1.5")
            )  # fmt: skip
        tracemalloc.start()
        count = sum(1 for _ in store["grown"].stream())
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        assert count == GROWN
        table.add(
            Result(f"{bed.name}, growth", f"memory that a stream of {GROWN:,} adds", "ours",
                   0.0, peak, peak, "< 50 MB", "MB")
        )  # fmt: skip


def analyse(bed: Bed) -> None:
    import psycopg

    with psycopg.connect(bed.place.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def test_opening_a_large_store(bed: Bed, table: Table) -> None:
    if bed.name == "SQLite, full":
        pytest.skip("nothing is written")
    with bed.store() as store:
        for number in range(1000):
            store.create_collection(f"c{number}", body_index=False)
        store["c7"].put_many(numbered(documents(GROWN)))
    opened = []
    for _ in range(9):
        begun = time.perf_counter()
        with bed.store() as store:
            assert store["c7"].get("00000007") is not None
            opened.append((time.perf_counter() - begun) * 1000)
    with bed.store() as store:
        for number in range(1000):
            store.drop(f"c{number}")  # PostgreSQL drops no schema with so many tables
    took = statistics.median(opened)
    what = f"opening 1,000 collections and {GROWN:,} documents, and a get"
    table.add(Result(f"{bed.name}, growth", what, "ours", 0.0, took, took, "< 30 ms", "ms"))


def seconds_to_import(module: str) -> float:
    program = (
        f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, encoding="utf-8", env=env
    )
    return float(done.stdout)


def test_importing(table: Table) -> None:
    pairs = [
        (seconds_to_import("sqlalchemy"), seconds_to_import("collections_store")) for _ in range(15)
    ]
    low, own = (statistics.median(each) * 1000 for each in zip(*pairs[2:], strict=True))
    what = "import collections_store (floor: import sqlalchemy)"
    table.add(Result("Import", what, "ours", low, own, own / low, "≤ 1.3", "ms"))


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
        stores.extend(Store(f"sqlite:///{tmp_path / f'{number}.db'}") for number in range(20))
        return stores

    with Store("sqlite://") as warm:
        warm["things"].put("a", 1)
    each = grown(open_some, 20)
    table.add(Result("Memory", "an open store that is idle", "ours", 0.0, each, each, "", "KB"))
    handle = grown(lambda: [stores[0][f"c{n}"] for n in range(1000)], 1000)
    table.add(Result("Memory", "a collection that is held", "ours", 0.0, handle, handle, "", "KB"))
    for store in stores:
        store.close()
