"""Writing many documents, and changing one, against the bare driver doing the same work: `nox -s bench`.

The floor does what a careful program would do by hand: `executemany` or `unnest` in transactions of a
thousand rows on the same tables; for an update by id, a SELECT and an UPDATE that asks for the version.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import orjson
import pytest
from benchmarks.fixtures import one_core
from benchmarks.rounds import BODY, Bench, Floor, Show, bench, compare, show, turns

from collections_store import InsertOne, Store

__all__ = ["bench", "one_core", "show"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]
Many: TypeAlias = Callable[[], None]
DOCUMENTS = 20_000
BATCH = 1000


def documents(start: int) -> Iterator[tuple[str, Any]]:
    return ((str(n), BODY) for n in range(start, start + DOCUMENTS))


class FloorOfMany(Floor):
    """The bare driver, writing many rows and changing one."""

    def put_many(self, start: int) -> None:
        batch: list[tuple[str, str]] = []
        for id, body in documents(start):
            batch.append((id, orjson.dumps(body).decode()))
            if len(batch) == BATCH:
                self._write(batch)
                batch = []

    def _write(self, batch: list[tuple[str, str]]) -> None:
        now = time.time_ns() // 1000
        self.connection.execute("BEGIN")
        if self._times == 1:
            rows = [(id, body, now) for id, body in batch]
            self.connection.executemany(self._upsert.partition(" RETURNING")[0], rows)
        else:
            ids, bodies = map(list, zip(*batch, strict=True))
            self.connection.execute(self._unnest, (now, now, ids, bodies))
        self.connection.execute("COMMIT")

    def prepare(self, table: str) -> None:
        marks = ("%s", "%s::jsonb") if self._times == 2 else ("?", "?")
        self._change = (
            f"UPDATE {table} SET body = {marks[1]}, version = version + 1 "
            f"WHERE id = {marks[0]} AND version = {marks[0]}"
        )
        body = "body::text" if self._times == 2 else "body"
        self._read = f"SELECT {body}, version FROM {table} WHERE id = {marks[0]}"
        self._unnest = (
            f"INSERT INTO {table} (id, body, version, created_at, updated_at) "
            "SELECT id, body::jsonb, 1, %s, %s FROM unnest(%s::text[], %s::text[]) AS g(id, body) "
            f"ON CONFLICT (id) DO UPDATE SET body = excluded.body, version = {table}.version + 1, "
            "updated_at = excluded.updated_at"
        )

    def change(self) -> None:
        text, version = self.connection.execute(self._read, ("a",)).fetchall()[0]
        body = orjson.loads(text)
        body["visits"] = body.get("visits", 0) + 1
        new = orjson.dumps(body).decode()
        self.connection.execute(self._change, (new, "a", version))


@pytest.fixture
def many(bench: Bench) -> Iterator[tuple[FloorOfMany, Store]]:
    backend, options = bench
    with Store(backend.url, **backend.options, **options) as store:
        for name in ("floor", "ours"):
            store.create_collection(name, body_index=False)
            store[name].put("a", BODY)
        table = "cs_1_floor"
        if backend.is_postgresql:
            table = f"{backend.options['schema']}.{table}"
        floor = FloorOfMany(backend, options, "cs_1_floor")
        floor.prepare(table)
        yield floor, store
        floor.connection.close()


def test_put_many(many: tuple[FloorOfMany, Store], show: Show) -> None:
    floor, store = many
    best: dict[str, float] = {}
    for number in range(3):
        start = number * DOCUMENTS
        writers: dict[str, Callable[[], Any]] = {
            "floor": lambda: floor.put_many(start),  # noqa: B023
            "put_many": lambda: store["ours"].put_many(documents(start)),  # noqa: B023
            "insert_many": lambda: store["new"].insert_many(body for _, body in documents(0)),
            "bulk_write": lambda: store["bulk"].bulk_write(
                InsertOne(body) for _, body in documents(0)
            ),
        }
        for name, write in writers.items():
            begun = time.perf_counter()
            write()
            took = (time.perf_counter() - begun) / DOCUMENTS * 1e6
            best[name] = min(best.get(name, took), took)
    for name in ("put_many", "insert_many", "bulk_write"):
        show(f"{name} (each)", (best["floor"], best[name], best[name] / best["floor"]))


def test_single_document_updates(many: tuple[FloorOfMany, Store], show: Show) -> None:
    floor, store = many
    ours = store["ours"]
    update = {"$inc": {"visits": 1}}
    ways: dict[str, Callable[[], Any]] = {
        "update": lambda: ours.update("a", update),
        "update_one": lambda: ours.update_one({"$id": "a"}, update),
        "increment": lambda: ours.increment("a", "visits"),
        "change": lambda: ours.change(
            "a", lambda body: {**body, "visits": body.get("visits", 0) + 1}
        ),
    }
    for name, way in ways.items():
        show(name, compare(turns(floor.change), turns(way)))
