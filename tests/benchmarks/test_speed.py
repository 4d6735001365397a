"""One caller: every method against the bare driver and other libraries. `nox -s bench`."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import floor_of, numbered
from benchmarks.measuring import Table, again, documents
from benchmarks.peers import installed

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
STORED, ROUNDS, MANY = 2000, 300, 10_000
"""Documents of a collection, calls of a round, and documents of a batch."""
SOME = [f"{number * 37 % STORED:08d}" for number in range(ROUNDS)]
"""The ids to read."""
PUT = {"SQLite, full": "≤ 1.2", "SQLite, normal": "≤ 1.6", "PostgreSQL": "≤ 1.4"}


def test_get_and_put(setup: Setup, table: Table, tmp_path: Path) -> None:
    bodies = list(documents(STORED))
    with setup.store() as store:
        store["things"].put_many(numbered(bodies))
        floor, things = floor_of(setup.backend, setup.options, "things"), store["things"]
        peers = {} if setup.is_postgresql else installed(tmp_path)
        for peer in peers.values():
            for id, body in numbered(bodies[:ROUNDS]):
                peer.put(id, body)

        def gets(get: Any) -> Any:
            return lambda: [get(id) for id in SOME]

        def puts(put: Any) -> Any:
            return lambda: [put(id, body) for id, body in zip(SOME, bodies, strict=False)]

        first = [f"{number:08d}" for number in range(ROUNDS)]
        others = {name: lambda p=p: [p.get(id) for id in first] for name, p in peers.items()}
        table.compare(
            setup.name, "get", gets(floor.get), {"ours": gets(things.get), **others},
            per=ROUNDS, reach="≤ 1.6",
        )  # fmt: skip
        others = {
            name: puts(peer.put) for name, peer in peers.items() if setup.name != "SQLite, full"
        }
        table.compare(
            setup.name, "put", puts(floor.put), {"ours": puts(things.put), **others},
            per=ROUNDS, reach=PUT[setup.name],
        )  # fmt: skip
        for peer in peers.values():
            peer.close()
        floor.close()


def test_reading(setup: Setup, table: Table, tmp_path: Path) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    with setup.store() as store:
        things = store["things"]
        things.put_many(numbered(documents(STORED)))
        things.create_index("bucket")
        floor = floor_of(setup.backend, setup.options, "things")
        floor.index("bucket")
        if setup.is_postgresql:
            floor.connection.execute(f"VACUUM ANALYZE {floor.table}")
        assert [each[0] for each in floor.find("bucket", 7)] == [
            e.id for e in things.find("bucket", 7)
        ]
        times = 30
        others = {"ours": again(partial(things.find, "bucket", 7), times)}
        peers = {} if setup.is_postgresql else installed(tmp_path)
        for name, peer in peers.items():
            if hasattr(peer, "find"):
                for id, body in numbered(documents(STORED)):
                    peer.put(id, body)
                others[name] = partial(peer.find, "bucket", 7)
        lowest = again(partial(floor.find, "bucket", 7), times)
        only = {"ours": others.pop("ours")}
        table.compare(
            setup.name, "find by an index, 20 found", lowest, only, per=times, reach="≤ 1.3"
        )
        for name, other in others.items():
            table.compare(
                setup.name, "find by an index, 20 found", partial(floor.find, "bucket", 7),
                {name: other}, per=1,
            )  # fmt: skip
        for peer in peers.values():
            peer.close()
        for method, low, own in (
            ("list, each", floor.all, things.list),
            ("stream, each", floor.stream, lambda: sum(1 for _ in things.stream())),
        ):
            table.compare(setup.name, method, low, {"ours": own}, per=STORED, reach="≤ 1.15")
        floor.close()


def test_writing_many(setup: Setup, table: Table) -> None:
    count = MANY * (10 if setup.is_postgresql else 1)
    bodies = list(documents(count))
    with setup.store() as store:
        for name in ("low", "own"):
            store.create_collection(name, body_index=False)
            store[name].put("first", {})
        floor, numbers = floor_of(setup.backend, setup.options, "low"), iter(range(1000))
        reach = "≤ 1.43 (0.7 times as fast)" if setup.is_postgresql else "≤ 1.3"
        table.compare(
            setup.name,
            f"put_many of {count:,}, each",
            lambda: floor.put_many(numbered(bodies, count * next(numbers))),
            {"ours": lambda: store["own"].put_many(numbered(bodies, count * next(numbers)))},
            per=count,
            reach=reach,
        )
        floor.close()
