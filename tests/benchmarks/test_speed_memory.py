"""Memory of each call that streams, at 10,000 and at 100,000 documents of 1 KB, in processes of their own. `nox -s bench`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import streams
from benchmarks.fixtures import Setup, all_results, setup, table
from benchmarks.measuring import Result, Table

__all__ = ["all_results", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
SMALL, GROWN = 10_000, min(int(os.environ.get("GROWN", "100000")), 100_000)
TESTS = Path(__file__).parents[1]


def peaks(name: str, count: int, settings: dict[str, Any]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.streams", name, str(count), json.dumps(settings)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, encoding="utf-8", env=environment
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_memory_of_streams(setup: Setup, table: Table, tmp_path: Path) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("fsync is all that differs")
    cache = {} if setup.is_postgresql else {"page_cache": 2**20}
    options = {**setup.backend.options, **setup.options, **cache}
    with setup.store() as store:
        for count in (streams.WARM, SMALL, GROWN):
            streams.prepare(store, tmp_path, count)
    settings = {"url": setup.backend.url, "options": options, "folder": str(tmp_path)}
    with setup.store() as store:
        names = list(streams.calls_of(store, settings))
    for name in names:
        small, grown = (peaks(name, count, settings) for count in (SMALL, GROWN))
        for kind in small:
            low, own = max(small[kind], 0.1), grown[kind]
            what = f"{name}: {kind}, {GROWN:,} documents (floor: {SMALL:,})"
            group = f"{setup.name}, memory of streams"
            table.add(Result(group, what, "ours", low, own, own / low, unit="MB"))
