"""The usual operations against two floors: the harsh one keeps an id and a body, the fair one a document's columns.

Each put and each update changes a body. A floor that writes the same bytes again dirties no page of SQLite.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import SqliteFloor, floor_of, numbered
from benchmarks.measuring import Table, again, documents
from benchmarks.peers import installed

from collections_store import Store

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
STORED, MANY, ROUNDS, MATCHING = 10_000, 2000, 300, 500_000
"""Documents of a collection and of a batch, calls of a round, and documents of a range."""
IDS = [f"{number * 37 % STORED:08d}" for number in range(ROUNDS)]
STATES = "open", "done", "lost"
NUMBERS = count()


def bodies(number: int) -> Iterator[dict[str, Any]]:
    """Yield documents: 20 to a bucket, a third in each state, `price` in another order than the ids."""
    for each in documents(number):
        n = each["n"]
        yield {**each, "state": STATES[n % 3], "price": n * 7919 % STORED}


def beside(setup: Setup, name: str) -> Setup:
    """Return another SQLite file, or the same PostgreSQL database."""
    if setup.is_postgresql:
        return setup
    url = setup.backend.url.replace("store.db", f"{name}.db")
    return replace(setup, backend=replace(setup.backend, url=url))


class Bench:
    """A store's collection `things`, the floors, and a line of the table for each operation."""

    def __init__(self, setup: Setup, table: Table, store: Store) -> None:
        self.things, self.name = store["things"], f"{setup.name}, operations"
        self._table = table
        self.things.put_many(numbered(bodies(STORED)))
        own = beside(setup, "fair")  # in one file all would wait for one checkpoint
        with own.store() as fair:
            fair["fair"].put_many(numbered(bodies(STORED)))
        number = 2 if setup.is_postgresql else 1
        self.fair = floor_of(own.backend, setup.options, "fair", number=number)
        self.harsh = floor_of(beside(setup, "harsh").backend, setup.options, "harsh", harsh=True)
        self.harsh.put_many(numbered(bodies(STORED)))
        self.index("bucket")

    def index(self, field: str) -> None:
        self.things.create_index(field)
        for floor in self.floors:
            floor.index(field)
            floor.analyze()

    @property
    def floors(self) -> tuple[SqliteFloor, SqliteFloor]:
        return self.harsh, self.fair

    def compare(
        self,
        what: str,
        low: Callable[[SqliteFloor], Callable[[], Any]],
        own: Callable[[], Any],
        *,
        reach: tuple[str, str] = ("", ""),
        per: int = ROUNDS,
    ) -> None:
        """Measure an operation against each floor; what is to reach, is to be reached by SQLite."""
        aims = reach if self.name.startswith("SQLite, normal") else ("", "")
        for floor, aim in zip(self.floors, aims, strict=True):
            kind = "harsh" if floor is self.harsh else "fair"
            self._table.compare(
                self.name, f"{what} ({kind} floor)", low(floor), {"ours": own}, per=per, reach=aim
            )


@pytest.fixture
def bench(setup: Setup, table: Table) -> Iterator[Bench]:
    with setup.store() as store:
        made = Bench(setup, table, store)
        yield made
        for floor in made.floors:
            floor.close()


def each_id(function: Callable[[str], Any]) -> Callable[[], None]:
    """Return a function that calls another with each id."""

    def all_ids() -> None:
        for id in IDS:
            function(id)

    return all_ids


def test_writes(bench: Bench) -> None:
    some, things = list(bodies(ROUNDS)), bench.things

    def puts(put: Callable[[str, Any], Any]) -> Callable[[], None]:
        def all_puts() -> None:
            for id, body in zip(IDS, some, strict=True):
                body["turn"] = next(NUMBERS)
                put(id, body)

        return all_puts

    bench.compare("put", lambda floor: puts(floor.put), puts(things.put), reach=("≤ 1.6", "≤ 1.3"))
    many = list(bodies(MANY))

    def batches(put_many: Callable[[Any], Any]) -> Callable[[], None]:
        def batch() -> None:
            turn = next(NUMBERS)
            put_many((f"{turn}-{n:08d}", body) for n, body in enumerate(many))

        return batch

    bench.compare(
        "put_many, each", lambda floor: batches(floor.put_many), batches(things.put_many),
        reach=("≤ 1.6", ""), per=MANY,
    )  # fmt: skip


def test_update_one(bench: Bench, setup: Setup) -> None:
    skip_full(setup)
    buckets = [n * 31 % (STORED // 20) for n in range(ROUNDS)]

    def updates(update: Callable[[int], Any]) -> Callable[[], None]:
        def all_updates() -> None:
            for bucket in buckets:
                update(bucket)

        return all_updates

    bench.compare(
        "update_one by an index",
        lambda floor: updates(lambda bucket: floor.increment("bucket", bucket, "visits")),
        updates(
            lambda bucket: bench.things.update_one({"bucket": bucket}, {"$inc": {"visits": 1}})
        ),
        reach=("≤ 2.5", ""),
    )


def test_reads(bench: Bench, setup: Setup) -> None:
    skip_full(setup)
    things = bench.things
    bench.index("price")
    bench.compare("get", lambda floor: each_id(floor.get), each_id(things.get), reach=("≤ 1.3", ""))
    times = 30
    assert len(things.find("bucket", 7)) == len(bench.harsh.find("bucket", 7)) == 20
    reads: dict[str, tuple[Callable[[SqliteFloor], Any], Callable[[], Any], str]] = {
        "find of 20": (
            lambda floor: floor.find("bucket", 7), lambda: things.find("bucket", 7), "≤ 1.3"),
        "page of 20, filtered and sorted": (
            lambda floor: floor.page("price", 3000, 20, ("state", "done")),
            lambda: things.page({"state": "done", "price": {"$gt": 3000}}, sort="price", limit=20), "≤ 2.5"),
        "count by an index": (
            lambda floor: floor.count("bucket", 7), lambda: things.count("bucket", 7), "≤ 2"),
        "$match and $group of 20": (
            lambda floor: floor.group("state", "price", ("bucket", 7)),
            lambda: things.aggregate([{"$match": {"bucket": 7}}, GROUP]), "≤ 1.8"),
    }  # fmt: skip
    for what, (low, own, reach) in reads.items():
        assert found(low(bench.harsh)) == found(own()), what
        bench.compare(
            what,
            lambda floor: again(lambda: low(floor), times),  # noqa: B023
            again(own, times),
            reach=(reach, ""),
            per=times,
        )
    bench.compare(
        "list, each", lambda floor: floor.all, things.list, reach=("≤ 1.05", ""), per=STORED
    )
    bench.compare(
        "stream, each", lambda floor: floor.stream, lambda: sum(1 for _ in things.stream()),
        reach=("≤ 1.15", ""), per=STORED,
    )  # fmt: skip
    bench.compare(
        "$group of a collection, each", lambda floor: lambda: floor.group("state", "price"),
        lambda: things.aggregate([GROUP]), reach=("≤ 1.5", ""), per=STORED,
    )  # fmt: skip


GROUP = {"$group": {"_id": "$state", "sum": {"$sum": "$price"}}}


def skip_full(setup: Setup) -> None:
    """Skip what `durability="full"` makes no slower, or what its sync hides."""
    if setup.name == "SQLite, full":
        pytest.skip("measured with durability=normal")


def found(answer: Any) -> int:
    """Return how many results there are, or the number that was asked for."""
    return answer if isinstance(answer, int) else len(answer)


def test_peers(bench: Bench, tmp_path: Path, setup: Setup) -> None:
    if setup.name != "SQLite, normal":
        pytest.skip("the peers keep SQLite files")
    some = list(bodies(ROUNDS))
    for name, peer in installed(tmp_path).items():
        if name == "TinyDB":  # which rewrites its file at each write
            peer.close()
            continue

        def puts(put: Any) -> None:
            for id, body in zip(IDS, some, strict=True):
                body["turn"] = next(NUMBERS)
                put(id, body)

        for what, low, own in (
            ("put", lambda: puts(bench.harsh.put), lambda: puts(peer.put)),  # noqa: B023
            ("get", each_id(bench.harsh.get), each_id(peer.get)),
        ):
            bench._table.compare(bench.name, f"{what} (harsh floor)", low, {name: own}, per=ROUNDS)
        peer.close()


def test_watch(setup: Setup, table: Table) -> None:
    skip_full(setup)
    with setup.store() as store:
        things = store.create_collection("things", changes=True)
        things.put_many(numbered(bodies(MANY)))
        floor = floor_of(setup.backend, setup.options, "things")

        def drained(watch: Callable[..., Any], **options: Any) -> Callable[[], int]:
            def drain() -> int:
                seen = 0
                with watch(after="oldest", timeout=0, **options) as stream:
                    for _ in stream:
                        seen += 1
                return seen

            return drain

        pipeline = [{"$match": {"operationType": "insert"}}]
        for what, call in (
            ("watch", drained(things.watch)),
            ("watch(pipeline=)", drained(things.watch, pipeline=pipeline)),
            ("store.watch", drained(store.watch)),
        ):
            assert call() == floor.changes() == MANY
            table.compare(
                f"{setup.name}, operations", f"a change in {what} (harsh floor)", floor.changes,
                {"ours": call}, per=MANY, reach="≤ 8" if what == "watch" else "",
            )  # fmt: skip
        floor.close()


def test_first_of_a_range(setup: Setup, table: Table) -> None:
    if setup.name != "SQLite, normal":
        pytest.skip("one database shows the plan")
    with setup.store() as store:
        things = store["things"]
        things.put_many((f"{n:08d}", {"n": n}) for n in range(MATCHING))
        things.create_index("n")
        floor = floor_of(setup.backend, setup.options, "things")
        floor.index("n")
        times = 30
        table.compare(
            f"{setup.name}, operations", "find_one in a range of 500,000 (harsh floor)",
            again(lambda: floor.first("n", 0), times),
            {"ours": again(lambda: things.find_one({"n": {"$gte": 0}}), times)},
            per=times, reach="≤ 2",
        )  # fmt: skip
        floor.close()


def test_a_given_engine(setup: Setup, table: Table) -> None:
    skip_full(setup)
    import orjson
    import sqlalchemy as sa

    with setup.store() as store:
        store["things"].put_many(numbered(bodies(STORED)))
        floor = floor_of(setup.backend, setup.options, "things")
    url = setup.backend.url.replace("postgresql://", "postgresql+psycopg://")
    engine = sa.create_engine(url)

    def get(id: str) -> Any:
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(floor.get_sql, (id,)).fetchall()
        return orjson.loads(rows[0][0])

    with Store(engine=engine, **setup.backend.options) as given:
        table.compare(
            f"{setup.name}, operations", "get, Store(engine=) (floor: SQLAlchemy)", each_id(get),
            {"ours": each_id(given["things"].get)}, per=ROUNDS, reach="≤ 1.3",
        )  # fmt: skip
    engine.dispose()
    floor.close()
