"""Five pipelines against SQL by hand and mongomock, which holds its documents in memory; a `$group` of many documents.

The SQL knows that no field holds arrays or other types. Times of the CPU are those of this process and of the server.
"""

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import orjson
import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import SqliteFloor, floor_of, numbered
from benchmarks.measuring import Table, cpu_of, documents, without_parallel_workers

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
STORED, GROWN, CUSTOMERS = 10_000, 100_000, 500
STATES, TAGS = ("open", "done", "lost"), [f"tag {n}" for n in range(40)]
BOUNDARIES = [0, 2500, 5000, 7500, 10_000]
PIPELINES: dict[str, list[Any]] = {
    "$group by an indexed field": [{"$group": {"_id": "$city", "n": {"$sum": 1}}}],
    "$match, $group, $sort, $limit": [
        {"$match": {"state": "done"}},
        {"$group": {"_id": "$city", "total": {"$sum": "$price"}, "score": {"$avg": "$score"}}},
        {"$sort": {"total": -1, "_id": 1}},
        {"$limit": 10},
    ],
    "$unwind, $group, $sort": [
        {"$unwind": "$tags"},
        {"$group": {"_id": "$tags", "n": {"$sum": 1}}},
        {"$sort": {"n": -1, "_id": 1}},
    ],
    "$match, $lookup, $project": [
        {"$match": {"bucket": {"$lt": 10}}},
        {"$lookup": {"from": "customers", "localField": "customer", "foreignField": "code", "as": "by"}},
        {"$project": {"_id": 0, "n": 1, "name": {"$arrayElemAt": ["$by.name", 0]}}},
    ],
    "$facet with $bucket": [
        {
            "$facet": {
                "states": [
                    {"$group": {"_id": "$state", "n": {"$sum": 1}}},
                    {"$sort": {"_id": 1}},
                ],
                "prices": [{"$bucket": {"groupBy": "$price", "boundaries": BOUNDARIES}}],
                "top": [{"$sort": {"price": -1}}, {"$limit": 5}, {"$project": {"_id": 0, "n": 1}}],
            }
        }
    ],
}  # fmt: skip


def bodies(count: int) -> Iterator[dict[str, Any]]:
    """Yield documents of about 1 KB."""
    for each in documents(count):
        n = each["n"]
        tags = [TAGS[n % 40], TAGS[n * 7 % 39]]
        fields = {"city": f"city {n * 31 % 500}", "customer": f"c{n * 17 % CUSTOMERS}"}
        numbers = {"price": n * 7919 % STORED, "score": n * 7919 % 1000 / 8}
        yield {**each, **fields, **numbers, "state": STATES[n % 3], "tags": tags}


class Hand:
    """The pipelines in SQL, over a collection's table."""

    def __init__(self, floor: SqliteFloor, customers: str) -> None:
        self._floor, self._connection, self._customers = floor, floor.connection, customers
        self._pg = floor.mark == "%s"

    def _text(self, field: str, body: str = "body") -> str:
        return f"{body} ->> '{field}'" if self._pg else f"json_extract({body}, '$.{field}')"

    def _indexed(self, field: str) -> str:
        return self._floor.field.format(field)

    def _rows(self, rest: str) -> list[Any]:
        return list(self._connection.execute(f"SELECT {rest}").fetchall())

    def group(self) -> list[Any]:
        rows = self._rows(f"{self._indexed('city')}, count(*) FROM {self._floor.table} GROUP BY 1")
        return [{"_id": key, "n": n} for key, n in rows]

    def match_group(self) -> list[Any]:
        total, score = self._number("price", "int"), self._number("score", "float")
        done = "'\"done\"'::jsonb" if self._pg else "'done'"
        rows = self._rows(
            f"{self._text('city')}, sum({total}), avg({score}) FROM {self._floor.table} "
            f"WHERE {self._indexed('state')} = {done} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10"
        )
        return [{"_id": key, "total": total, "score": score} for key, total, score in rows]

    def unwind(self) -> list[Any]:
        each = (
            "jsonb_array_elements_text(body -> 'tags') AS e(value)"
            if self._pg
            else "json_each(body, '$.tags') AS e"
        )
        by = "GROUP BY 1 ORDER BY 2 DESC, 1"
        rows = self._rows(f"e.value, count(*) FROM {self._floor.table}, {each} {by}")
        return [{"_id": key, "n": n} for key, n in rows]

    def lookup(self) -> list[Any]:
        some = f"{self._indexed('bucket')} < {chr(39) + '10' + chr(39) + '::jsonb' if self._pg else 10}"
        ours, theirs = self._text("customer", "t.body"), self._text("code", "c.body")
        columns = f"{self._number('n', 'int', 't.body')}, {self._text('name', 'c.body')}"
        rows = self._rows(
            f"{columns} FROM {self._floor.table} AS t JOIN {self._customers} AS c ON {theirs} = {ours} "
            f"WHERE {some.replace('body', 't.body')} ORDER BY t.seq"
        )
        return [{"n": n, "name": name} for n, name in rows]

    def facet(self) -> list[Any]:
        table, price = self._floor.table, self._number("price", "int")
        states = self._rows(f"{self._text('state')}, count(*) FROM {table} GROUP BY 1 ORDER BY 1")
        prices = self._rows(f"{price} / 2500 * 2500, count(*) FROM {table} GROUP BY 1 ORDER BY 1")
        top = self._rows(f"{self._number('n', 'int')} FROM {table} ORDER BY {price} DESC LIMIT 5")
        return [
            {
                "states": [{"_id": key, "n": n} for key, n in states],
                "prices": [{"_id": key, "count": n} for key, n in prices],
                "top": [{"n": n} for (n,) in top],
            }
        ]

    def _number(self, field: str, kind: str, body: str = "body") -> str:
        return f"({body} -> '{field}')::{kind}" if self._pg else self._text(field, body)

    @property
    def all(self) -> list[Callable[[], list[Any]]]:
        """The SQL of each of `PIPELINES`."""
        return [self.group, self.match_group, self.unwind, self.lookup, self.facet]


def in_memory() -> Any:
    """Return the documents in mongomock; None if it is not installed."""
    try:
        database = import_module("mongomock").MongoClient()["bench"]
    except ImportError:
        return None
    database["things"].insert_many(bodies(STORED))
    database["customers"].insert_many(customers().values())
    return database["things"]


def customers() -> dict[str, Any]:
    return {f"{n:03d}": {"code": f"c{n}", "name": f"name {n}"} for n in range(CUSTOMERS)}


def plain(results: list[Any]) -> Any:
    """Return results in an order of their own, as JSON."""
    return sorted(orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in results)


def test_five_pipelines(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    if setup.is_postgresql:
        without_parallel_workers(setup.backend.url)
    with setup.store() as store:
        store["things"].put_many(numbered(bodies(STORED)))
        store["customers"].put_many(customers())
        floor = floor_of(setup.backend, setup.options, "things")
        other = floor_of(setup.backend, setup.options, "customers", number=2)
        for each, fields in (("things", ("city", "state", "bucket")), ("customers", ("code",))):
            for field in fields:
                store[each].create_index(field)
        for field in ("city", "state", "bucket"):
            floor.index(field)
        floor.analyze()
        other.index("code")
        other.analyze()
        hand = Hand(floor, other.table)
        mock: Any = None if setup.is_postgresql else in_memory()
        cpu = cpu_of(floor.connection) if setup.is_postgresql else time.process_time
        for (name, pipeline), low in zip(PIPELINES.items(), hand.all, strict=True):
            others: dict[str, Callable[[], Any]] = {}
            others["ours"] = lambda: store["things"].aggregate(pipeline)  # noqa: B023
            if mock is not None:
                others["mongomock"] = lambda: list(mock.aggregate(pipeline))  # noqa: B023
            for who, call in others.items():
                assert plain(call()) == plain(low()), (who, name)
            table.compare(f"{setup.name}, pipelines", name, low, others, per=1, cpu=cpu)
        floor.close()
        other.close()


def test_many_documents(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    if setup.is_postgresql:
        without_parallel_workers(setup.backend.url)
    with setup.store() as store:
        store["things"].put_many(numbered(bodies(GROWN)))
        store["things"].create_index("city")
        floor = floor_of(setup.backend, setup.options, "things")
        floor.index("city")
        floor.analyze()
        cpu = cpu_of(floor.connection) if setup.is_postgresql else time.process_time
        name, pipeline = next(iter(PIPELINES.items()))
        table.compare(
            f"{setup.name}, pipelines", f"{name}, {GROWN:,} documents", Hand(floor, "").group,
            {"ours": lambda: store["things"].aggregate(pipeline)}, per=1, reach="≤ 1.5", cpu=cpu,
        )  # fmt: skip
        floor.close()
