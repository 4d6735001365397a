"""Queries by filter, sort and page on 100,000 documents, against the bare driver with a plain index on the same table:
`nox -s bench`.

The floor's index sees no arrays, does not keep types apart and pages by a value alone; ours does what
MongoDB means. Only ratios are worth reading; nothing is asserted but that both find the same.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from backends import Backend
from benchmarks import rounds
from benchmarks.fixtures import one_core as one_core
from benchmarks.rounds import Show, compare
from benchmarks.rounds import show as show

from collections_store import Store

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1200)]
DOCUMENTS, TURNS = 100_000, 20
TABLE = "cs_1_things"


def body(number: int) -> dict[str, Any]:
    return {
        "bucket": number % 1000,
        "price": number * 7919 % DOCUMENTS,
        "status": ["open", "done", "lost"][number % 3],
        "address": {"city": f"city{number % 500}", "street": "Unter den Linden 77"},
        "text": "I am feeling hungry so I would like to find a place to eat. " * 6,
    }


class Floor:
    """The bare driver, with plain indexes over the same table."""

    def __init__(self, backend: Backend) -> None:
        if backend.is_postgresql:
            import psycopg

            self.connection: Any = psycopg.connect(backend.url, autocommit=True)
            self.table, self.mark = f"{backend.options['schema']}.{TABLE}", "%s"
            self.bucket, self.price = "(body -> 'bucket')", "((body -> 'price')::int)"
            self.body, self.status = "body::text", "body ->> 'status'"
        else:
            import sqlite3

            path = backend.url.removeprefix("sqlite:///")
            self.connection = sqlite3.connect(path, isolation_level=None)
            self.table, self.mark = TABLE, "?"
            self.bucket, self.price = (f"json_extract(body, '$.{f}')" for f in ("bucket", "price"))
            self.body, self.status = "body", "json_extract(body, '$.status')"
        for name in ("bucket", "price"):
            indexed = getattr(self, name)
            self.connection.execute(f"CREATE INDEX floor_{name} ON {self.table} ({indexed})")

    def equal(self) -> list[Any]:
        wanted = "7" if self.mark == "%s" else 7
        return self._read(f"WHERE {self.bucket} = {self.mark}", wanted)

    def ranged(self) -> list[Any]:
        return self._read(f"WHERE {self.price} >= {self.mark} AND {self.price} < 200", 100)

    def page(self, after: int) -> list[Any]:
        rest = f"WHERE {self.price} > {self.mark} ORDER BY {self.price} LIMIT 20"
        return self._read(rest, after)

    def count(self) -> int:
        wanted = "7" if self.mark == "%s" else 7
        statement = f"SELECT count(*) FROM {self.table} WHERE {self.bucket} = {self.mark}"
        count: int = self.connection.execute(statement, (wanted,)).fetchall()[0][0]
        return count

    def group(self) -> int:
        statement = f"SELECT {self.status}, count(*) FROM {self.table} GROUP BY 1"
        return len(self.connection.execute(statement).fetchall())

    def _read(self, rest: str, *values: Any) -> list[Any]:
        statement = f"SELECT id, {self.body} FROM {self.table} {rest}"
        return [
            orjson.loads(text) for _, text in self.connection.execute(statement, values).fetchall()
        ]


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "postgresql":
        yield request.getfixturevalue("postgres_backend")
    else:
        yield Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")


def test_queries(backend: Backend, show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "TURNS", TURNS)
    with Store(backend.url, durability="normal", **backend.options) as store:
        things = store["things"]
        things.put_many((str(number), body(number)) for number in range(DOCUMENTS))
        things.create_index("bucket")
        things.create_index("price")
        floor = Floor(backend)
        if backend.is_postgresql:
            floor.connection.execute(f"VACUUM ANALYZE {floor.table}")
        pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "find, equal, 100 found": (floor.equal, lambda: things.find("bucket", 7)),
            "find, range, 100 found": (
                floor.ranged,
                lambda: things.find({"price": {"$gte": 100, "$lt": 200}}),
            ),
            "count, equal, 100 found": (floor.count, lambda: things.count("bucket", 7)),
            "group 100,000 by status": (
                floor.group,
                lambda: things.aggregate([{"$sortByCount": "$status"}]),
            ),
        }
        for number in (1, 100, 4000):
            cursor = cursor_before(things, number)
            pairs[f"page {number:,} of 20"] = (
                partial(floor.page, 20 * number - 21),
                partial(things.page, sort="price", limit=20, after=cursor),
            )
        for what, (low, own) in pairs.items():
            assert size(low()) == size(own()), what
            show(what, compare(turns(low), turns(own)))
        floor.connection.close()


def cursor_before(things: Any, number: int) -> str | None:
    """Return the cursor of a page, from one large page before it."""
    if number == 1:
        return None
    cursor: str = things.page(sort="price", limit=20 * (number - 1), projection=["price"]).cursor
    return cursor


def size(answer: Any) -> int:
    return answer if isinstance(answer, int) else len(answer)


def turns(function: Callable[[], Any]) -> Callable[[], None]:
    def all_turns() -> None:
        for _ in range(TURNS):
            function()

    return all_turns
