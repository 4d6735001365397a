"""Typed collections against untyped ones, and against other ways to read instances. `nox -s bench`."""

import asyncio
import json
import sqlite3
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pydantic
import pytest
from benchmarks.fixtures import Setup, all_results, bed_of, one_core, table
from benchmarks.floors import numbered
from benchmarks.measuring import Table, documents, run_async

__all__ = ["all_results", "one_core", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
STORED, ROUNDS, FINDS, FOUND = 2000, 300, 30, 20
"""Documents of a collection, gets and finds of a round, and documents that a find returns."""
SOME = [f"{number * 37 % STORED:08d}" for number in range(ROUNDS)]
WHERE = "bucket", 7


class Turn(msgspec.Struct):
    speaker: str
    utterance: str


class Dialogue(msgspec.Struct):
    n: int
    bucket: int
    dialogue_id: str
    turns: list[Turn]
    services: list[str] = []


class PydanticTurn(pydantic.BaseModel):
    speaker: str
    utterance: str


class PydanticDialogue(pydantic.BaseModel):
    n: int
    bucket: int
    dialogue_id: str
    turns: list[PydanticTurn]
    services: list[str] = []


@pytest.fixture(params=["SQLite, normal", "PostgreSQL"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Setup:
    """Each database: reading is the same with each durability."""
    return bed_of(request, tmp_path, request.param)


def gets(get: Any) -> Any:
    return lambda: [get(id) for id in SOME]


def finds(find: Any) -> Any:
    return lambda: [find() for _ in range(FINDS)]


def test_typed_reads(setup: Setup, table: Table) -> None:
    """The floor of msgspec is the untyped collection; that of pydantic is this and `validate_json` of the same texts."""
    bodies = dict(numbered(documents(STORED)))
    texts = {id: orjson.dumps(body).decode() for id, body in bodies.items()}
    found = [texts[f"{number:08d}"] for number in range(7 * FOUND, 8 * FOUND)]
    validate = pydantic.TypeAdapter(PydanticDialogue).validate_json
    with setup.store() as store:
        untyped = store["dialogues"]
        untyped.put_many(bodies)
        untyped.create_index("bucket")
        typed = store.collection("dialogues", model=Dialogue)
        modelled = store.collection("dialogues", model=PydanticDialogue)
        assert len(typed.find(*WHERE)) == len(modelled.find(*WHERE)) == FOUND

        def both_get(id: str) -> Any:
            return untyped.get(id), validate(texts[id])

        def both_find() -> Any:
            return untyped.find(*WHERE), [validate(text) for text in found]

        table.compare(
            f"{setup.name}, typed", "get, msgspec", gets(untyped.get), {"ours": gets(typed.get)},
            per=ROUNDS, reach="≤ 1.15",
        )  # fmt: skip
        table.compare(
            f"{setup.name}, typed", "get, pydantic", gets(both_get), {"ours": gets(modelled.get)},
            per=ROUNDS, reach="≤ 1.1",
        )  # fmt: skip
        find = partial(typed.find, *WHERE)
        table.compare(
            f"{setup.name}, typed", "find, msgspec", finds(partial(untyped.find, *WHERE)), {"ours": finds(find)},
            per=FINDS, reach="≤ 1.15",
        )  # fmt: skip
        find_modelled = partial(modelled.find, *WHERE)
        table.compare(
            f"{setup.name}, typed", "find, pydantic", finds(both_find), {"ours": finds(find_modelled)},
            per=FINDS, reach="≤ 1.1",
        )  # fmt: skip


class HandWritten:
    """sqlite3 and `PydanticDialogue(**json.loads(row))`."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "by-hand.db", isolation_level=None)
        self._connection.execute("CREATE TABLE d (id TEXT PRIMARY KEY, bucket INTEGER, body TEXT)")
        self._connection.execute("CREATE INDEX d_bucket ON d (bucket)")

    def load(self, bodies: dict[str, Any]) -> None:
        rows = ((id, body["bucket"], json.dumps(body)) for id, body in bodies.items())
        self._connection.executemany("INSERT INTO d VALUES (?, ?, ?)", rows)

    def get(self, id: str) -> Any:
        rows = self._connection.execute("SELECT body FROM d WHERE id = ?", (id,))
        return PydanticDialogue(**json.loads(rows.fetchone()[0]))

    def find(self) -> Any:
        rows = self._connection.execute("SELECT body FROM d WHERE bucket = ?", (WHERE[1],))
        return [PydanticDialogue(**json.loads(body)) for (body,) in rows]

    def close(self) -> None:
        self._connection.close()


def sqlmodel_peer(folder: Path, bodies: dict[str, Any]) -> tuple[Any, Any]:
    """Return the get and the find of SQLModel, whose rows have a JSON column."""
    sqlmodel: Any = import_module("sqlmodel")

    class Row(sqlmodel.SQLModel, table=True):  # type: ignore[call-arg]
        id: str = sqlmodel.Field(primary_key=True)
        bucket: int = sqlmodel.Field(index=True)
        body: dict[str, Any] = sqlmodel.Field(sa_type=sqlmodel.JSON)

    engine = sqlmodel.create_engine(f"sqlite:///{folder / 'sqlmodel.db'}")
    sqlmodel.SQLModel.metadata.create_all(engine)
    with sqlmodel.Session(engine) as session:
        session.add_all(Row(id=id, bucket=body["bucket"], body=body) for id, body in bodies.items())
        session.commit()

    def get(id: str) -> Any:
        with sqlmodel.Session(engine) as session:
            row = session.get(Row, id)
            assert row is not None
            return PydanticDialogue(**row.body)

    def find() -> Any:
        with sqlmodel.Session(engine) as session:
            rows = session.exec(sqlmodel.select(Row).where(Row.bucket == WHERE[1]))
            return [PydanticDialogue(**row.body) for row in rows]

    return get, find


def beanie_peer(runner: asyncio.Runner, bodies: dict[str, Any]) -> tuple[Any, Any]:
    """Return the get and the find of Beanie on mongomock, in memory: no database is read."""
    beanie: Any = import_module("beanie")
    database: Any = import_module("mongomock").Database
    client: Any = import_module("mongomock_motor").AsyncMongoMockClient()
    names = database.list_collection_names  # lacks arguments that Beanie passes
    database.list_collection_names = lambda self, *_, **__: names(self)

    class Row(beanie.Document):
        id: str
        n: int
        bucket: int
        dialogue_id: str
        turns: list[PydanticTurn]
        services: list[str] = []

    async def load() -> None:
        await beanie.init_beanie(database=client.db, document_models=[Row])
        await Row.insert_many([Row(id=id, **body) for id, body in bodies.items()])

    runner.run(load())
    return Row.get, lambda: Row.find(Row.bucket == WHERE[1]).to_list()


def test_other_libraries(table: Table, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The same reads as pydantic models; the floor is what one writes by hand."""
    pytest.importorskip("sqlmodel")
    pytest.importorskip("mongomock_motor")
    setup = bed_of(request, tmp_path, "SQLite, normal")
    bodies = dict(numbered(documents(STORED)))
    hand = HandWritten(tmp_path)
    hand.load(bodies)
    model_get, model_find = sqlmodel_peer(tmp_path, bodies)
    with setup.store() as store, asyncio.Runner() as runner:
        store["dialogues"].put_many(bodies)
        store["dialogues"].create_index("bucket")
        ours = store.collection("dialogues", model=PydanticDialogue)
        beanie_get, beanie_find = beanie_peer(runner, bodies)
        table.compare(
            "Typed, and peers", "get", lambda: [hand.get(SOME[0]) for _ in range(FINDS)],
            {
                "ours": lambda: [ours.get(SOME[0]) for _ in range(FINDS)],
                "SQLModel": lambda: [model_get(SOME[0]) for _ in range(FINDS)],
                "Beanie on mongomock": run_async(runner, lambda: beanie_get(SOME[0]), FINDS),
            },
            per=FINDS,
        )  # fmt: skip
        table.compare(
            "Typed, and peers", "find", hand.find,
            {
                "ours": lambda: ours.find(*WHERE),
                "SQLModel": model_find,
                "Beanie on mongomock": run_async(runner, beanie_find, 1),
            },
            per=1,
        )  # fmt: skip
    hand.close()
