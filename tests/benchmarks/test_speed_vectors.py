"""Searches for the nearest of 100,000 vectors of 384 numbers, against numpy alone and against reading the vectors.

`VECTORS=20000` in the environment is quicker.
"""

import os
import time
from typing import Any

import numpy as np
import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import floor_of, numbered
from benchmarks.measuring import Table, again, cpu_of, without_parallel_workers

from collections_store.operations.collections import FindTable
from collections_store.operations.vectors import FindVectorIndex

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
COUNT, DIMENSIONS, K = int(os.environ.get("VECTORS", "100000")), 384, 10


def test_nearest(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    if setup.is_postgresql:
        without_parallel_workers(setup.backend.url)
    vectors = np.random.default_rng(1).normal(size=(COUNT, DIMENSIONS)).astype(np.float32)
    query = np.random.default_rng(2).normal(size=DIMENSIONS)
    given, narrow = query.tolist(), (query / np.linalg.norm(query)).astype(np.float32)
    group = f"{setup.name}, vectors"
    with setup.store() as store:
        things = store["things"]
        bodies = ({"n": n, "at": each.tolist()} for n, each in enumerate(vectors))
        things.put_many(numbered(bodies))
        things.create_index("n")
        things.create_vector_index("at", dimensions=DIMENSIONS)
        assert things.store_vectors() == 0
        index = store.run(FindVectorIndex("things"))[0]
        sql = store.run(FindTable("things")).vectors(index.physical, index)
        reading = f"SELECT vector FROM {sql.database.compiler.dialect.identifier_preparer.format_table(sql.vectors)}"  # fmt: skip
        floor = floor_of(setup.backend, setup.options, "things")
        if setup.is_postgresql:
            floor.connection.execute("VACUUM ANALYZE")
        cpu = cpu_of(floor.connection) if setup.is_postgresql else time.process_time
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

        def low() -> Any:
            scores = vectors @ narrow
            best = np.argpartition(scores, -K)[-K:]
            return best[np.argsort(-scores[best])]

        ids = [each.id for each in things.list()]
        assert [each.id for each in things.nearest(given, K)] == [ids[n] for n in low()]
        table.compare(
            group, f"nearest {K} of {COUNT:,}, in memory (floor: numpy)",
            again(low, 5), {"ours": again(lambda: things.nearest(given, K), 5)}, per=5, reach="≤ 1.5", cpu=cpu,
        )  # fmt: skip
        some = {"n": {"$lt": COUNT // 100}}
        table.compare(
            group, f"nearest {K} of 1 % of {COUNT:,}, by a filter (floor: numpy, of all)",
            again(low, 5), {"ours": again(lambda: things.nearest(given, K, filter=some), 5)}, per=5, cpu=cpu,
        )  # fmt: skip

        def read() -> int:
            cursor = floor.connection.execute(reading)
            return sum(len(vector) for (vector,) in cursor)

        def cold() -> None:
            store.core.catalogue.resident.clear()
            things.nearest(given, K)

        assert read() == 4 * COUNT * DIMENSIONS
        table.compare(
            group, f"nearest {K} of {COUNT:,}, read first (floor: reading the vectors)",
            read, {"ours": cold}, per=1, reach="≤ 2", cpu=cpu,
        )  # fmt: skip
        floor.close()


def test_puts(setup: Setup, table: Table) -> None:
    """The floor is a put to a collection without the index."""
    body = {"n": 1, "at": np.random.default_rng(1).normal(size=DIMENSIONS).tolist()}
    with setup.store() as store:
        plain, indexed = store["plain"], store["indexed"]
        indexed.create_vector_index("at", dimensions=DIMENSIONS)
        for each in (plain, indexed):
            each.put("1", body)
        table.compare(
            f"{setup.name}, vectors", "put with a vector index (floor: without one)",
            again(lambda: plain.put("1", body), 50),
            {"ours": again(lambda: indexed.put("1", body), 50)}, per=50, reach="≤ 1.3",
        )  # fmt: skip
