"""Base of the measurements of writes, queries and dialogues: a floor for each, and a line of a table.

Rounds alternate between the floor and the store, so that whatever else the machine does meets both.
The floor holds its connection, has its statement prepared or cached, and encodes and decodes with
orjson. Only ratios are worth reading; nothing is asserted.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest
from backends import Backend

Show: TypeAlias = Callable[[str, tuple[float, float, float]], None]
Bench: TypeAlias = tuple[Backend, dict[str, Any]]
ROUNDS, TURNS = 15, 300
BODY = {
    "dialogue_id": "1_00000",
    "services": ["Restaurants_1"],
    "turns": [
        {
            "speaker": "USER" if number % 2 else "SYSTEM",
            "utterance": "I am feeling hungry so I would like to find a place to eat.",
            "frames": [{"service": "Restaurants_1", "slots": [{"slot": "city", "start": number}]}],
        }
        for number in range(6)
    ],
}
UPSERT = (
    "INSERT INTO {table} (id, body, version, created_at, updated_at) VALUES ({id}, {body}, 1, {now}, {now}) "
    "ON CONFLICT (id) DO UPDATE SET body = excluded.body, version = {table}.version + 1, "
    "updated_at = excluded.updated_at RETURNING version"
)


@pytest.fixture(params=["sqlite full", "sqlite normal", "postgresql"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "postgresql":
        yield request.getfixturevalue("postgres_backend"), {}
    else:
        backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
        yield backend, {"durability": request.param.split()[1]}


class Floor:
    """The bare driver."""

    def __init__(self, backend: Backend, options: dict[str, Any], table: str) -> None:
        if backend.is_postgresql:
            self._postgresql(backend, f"{backend.options['schema']}.{table}")
        else:
            self._sqlite(backend, options, table)

    def _sqlite(self, backend: Backend, options: dict[str, Any], table: str) -> None:
        import sqlite3

        path = backend.url.removeprefix("sqlite:///")
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=30
        )
        connection.execute(f"PRAGMA synchronous = {options['durability'].upper()}")
        self._select = f"SELECT body FROM {table} WHERE id = ?"
        self._upsert = UPSERT.format(table=table, id="?1", body="?2", now="?3")
        self.connection: Any = connection

    def _postgresql(self, backend: Backend, table: str) -> None:
        import psycopg

        self.connection = psycopg.connect(backend.url, autocommit=True)
        self._select = f"SELECT body::text FROM {table} WHERE id = %s"
        self._upsert = UPSERT.format(table=table, id="%s", body="%s::jsonb", now="%s")
        self._times = 2

    _times = 1

    def get(self) -> Any:
        return orjson.loads(self.connection.execute(self._select, ("a",)).fetchall()[0][0])

    def put(self) -> Any:
        now = (time.time_ns() // 1000,) * self._times
        text = orjson.dumps(BODY).decode()
        return self.connection.execute(self._upsert, ("a", text, *now)).fetchall()[0][0]


def compare(floor: Callable[[], Any], ours: Callable[[], Any]) -> tuple[float, float, float]:
    """Return the median microseconds per turn of the floor and of ours, and the median of the ratios.

    Each function does `TURNS` turns.
    """
    rounds = []
    for number in range(ROUNDS + 2):
        first, second = (floor, ours) if number % 2 else (ours, floor)
        times = {first: _time(first), second: _time(second)}
        rounds.append((times[floor], times[ours]))
    low, own = (statistics.median(column) for column in zip(*rounds[2:], strict=True))
    return low, own, statistics.median(ours / floor for floor, ours in rounds[2:])


def _time(function: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    function()
    return (time.perf_counter() - begun) / TURNS * 1e6


def turns(function: Callable[[], Any]) -> Callable[[], None]:
    def all_turns() -> None:
        for _ in range(TURNS):
            function()

    return all_turns


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Show:
    """Print a line of the table."""
    backend = request.node.callspec.id

    def show(method: str, result: tuple[float, float, float]) -> None:
        floor, ours, ratio = result
        with capsys.disabled():
            print(f"\n  {backend + ', ' + method:<34} floor {floor:7.1f} µs", end="")
            print(f"   ours {ours:7.1f} µs   {ratio:5.2f} times", end="")

    return show
