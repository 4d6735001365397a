"""Filters: what it costs to translate and run one, and a scan without an index."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import newer_sqlite
import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import floor_of, numbered
from benchmarks.measuring import Result, Table, again, documents, without_parallel_workers

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
TESTS = Path(__file__).parents[1]
STORED, SCANNED = 10_000, 100_000
FIVE = {
    "bucket": 77,
    "n": {"$gte": 1540, "$lt": 1560},
    "service": "s7",
    "kind": "dialogue",
}
HAND = {
    False: "json_extract(body, '$.bucket') = ? AND json_extract(body, '$.n') >= ? "
    "AND json_extract(body, '$.n') < ? AND json_extract(body, '$.service') = ? "
    "AND json_extract(body, '$.kind') = ?",
    True: "body -> 'bucket' = %s::jsonb AND body -> 'n' >= %s::jsonb AND body -> 'n' < %s::jsonb "
    "AND body -> 'service' = %s::jsonb AND body -> 'kind' = %s::jsonb",
}
VALUES: dict[bool, tuple[Any, ...]] = {
    False: (77, 1540, 1560, "s7", "dialogue"),
    True: ("77", "1540", "1560", '"s7"', '"dialogue"'),
}


def test_five_conditions(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    with setup.store() as store:
        things = store["things"]
        bodies = (
            {"service": f"s{each['bucket'] % 10}", "kind": "dialogue", **each}
            for each in documents(STORED)
        )
        things.put_many(numbered(bodies))
        things.create_index("bucket")
        floor = floor_of(setup.backend, setup.options, "things")
        floor.index("bucket")
        if setup.is_postgresql:
            floor.connection.execute(f"VACUUM ANALYZE {floor.table}")
        pg = setup.is_postgresql

        def low() -> Any:
            return floor.select(HAND[pg], VALUES[pg])

        assert [each[0] for each in low()] == [each.id for each in things.find(FIVE)]
        assert len(low()) == 20
        table.compare(
            f"{setup.name}, filters", "five conditions, 20 found (floor: SQL by hand)",
            again(low, 30), {"ours": again(lambda: things.find(FIVE), 30)}, per=30, reach="≤ 2",
        )  # fmt: skip
        floor.close()


def test_jsonb(table: Table, tmp_path: Path) -> None:
    env = newer_sqlite.environment(PYTHONPATH=os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    if env is None:
        pytest.skip("there is no SQLite of 3.45 or newer here")
    command = [sys.executable, "-m", "benchmarks.jsonb", f"sqlite:///{tmp_path / 'store.db'}"]
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=True)
    version, found = json.loads(done.stdout)
    for what, low, own, ratio, cpu in found:
        named = f"{what} (floor: ours, bodies as text)"
        table.add(Result(f"SQLite {version}, JSONB", named, "ours", low, own, ratio, "", cpu=cpu))


def test_a_scan(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    if setup.is_postgresql:  # which would choose a parallel plan for one of both, on the one core
        without_parallel_workers(setup.backend.url)
    with setup.store() as store:
        store.create_collection("things", body_index=False)
        things = store["things"]
        things.put_many(numbered(documents(SCANNED)))
        floor = floor_of(setup.backend, setup.options, "things")
        if setup.is_postgresql:
            floor.connection.execute(f"VACUUM ANALYZE {floor.table}")
        assert len(floor.find("n", 777)) == len(things.find("n", 777)) == 1
        table.compare(
            f"{setup.name}, filters", "scan of 100,000 (floor: SQL by hand)",
            lambda: floor.find("n", 777), {"ours": lambda: things.find("n", 777)},
            per=1, reach="≤ 1.2",
        )  # fmt: skip
        floor.close()
