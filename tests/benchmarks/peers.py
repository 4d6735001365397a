"""Other libraries doing the same work, if they are installed: the extra `peers` brings most, and `dev` AEA and TinyDB."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import orjson


class Peer(Protocol):
    """A library that stores values under keys."""

    def get(self, id: str) -> Any: ...
    def put(self, id: str, body: Any) -> Any: ...
    def close(self) -> None: ...


class DiskCache:
    """diskcache: a cache in an SQLite file."""

    def __init__(self, folder: Path) -> None:
        import diskcache

        self._cache = diskcache.Cache(str(folder / "diskcache"))

    def get(self, id: str) -> Any:
        return orjson.loads(self._cache[id])

    def put(self, id: str, body: Any) -> None:
        self._cache[id] = orjson.dumps(body)

    def close(self) -> None:
        self._cache.close()


class SqliteUtils:
    """sqlite-utils: a table with a JSON column."""

    def __init__(self, folder: Path) -> None:
        import sqlite_utils

        self._database = cast("Any", sqlite_utils.Database(folder / "sqlite-utils.db"))
        self._table = self._database["things"]
        self._table.create({"id": str, "body": str}, pk="id")

    def get(self, id: str) -> Any:
        return orjson.loads(self._table.get(id)["body"])

    def put(self, id: str, body: Any) -> None:
        self._table.upsert({"id": id, "body": orjson.dumps(body).decode()}, pk="id")

    def close(self) -> None:
        self._database.close()


class Tiny:
    """TinyDB: one JSON file, which each write rewrites."""

    def __init__(self, folder: Path) -> None:
        from tinydb import TinyDB, where

        self._database, self._where = TinyDB(folder / "tiny.json"), where

    def get(self, id: str) -> Any:
        return self._database.get(doc_id=int(id))

    def put(self, id: str, body: Any) -> None:
        from tinydb.table import Document

        self._database.upsert(Document(body, doc_id=int(id)))

    def find(self, field: str, value: Any) -> Any:
        return self._database.search(self._where(field) == value)

    def close(self) -> None:
        self._database.close()


class Monty:
    """montydb: MongoDB's methods on an SQLite file."""

    def __init__(self, folder: Path) -> None:
        import montydb

        montydb.set_storage(str(folder / "monty"), storage="sqlite")
        self._client = montydb.MontyClient(str(folder / "monty"))
        self._things = self._client.test.things

    def get(self, id: str) -> Any:
        return self._things.find_one({"_id": id})

    def put(self, id: str, body: Any) -> None:
        self._things.replace_one({"_id": id}, {"_id": id, **body}, upsert=True)

    def find(self, field: str, value: Any) -> Any:
        return list(self._things.find({field: value}))

    def close(self) -> None:
        self._client.close()


class SQLAlchemyAsyncio:
    """SQLAlchemy's asyncio extension on a pool of 10, as its documentation has it: the table as a Core table."""

    def __init__(self, url: str, schema: str | None, table: str) -> None:
        import sqlalchemy as sa
        from sqlalchemy.dialects.postgresql import JSONB
        from sqlalchemy.ext.asyncio import create_async_engine

        wanted = sa.make_url(url).set(drivername="postgresql+psycopg")
        self._engine = create_async_engine(
            wanted, pool_size=10, max_overflow=0, json_deserializer=orjson.loads
        )
        documents_table = sa.table(
            table, sa.column("id", sa.Text), sa.column("body", JSONB), schema=schema
        )
        self._get = sa.select(documents_table.c.body).where(
            documents_table.c.id == sa.bindparam("id")
        )

    async def get(self, id: str) -> Any:
        async with self._engine.connect() as connection:
            return (await connection.execute(self._get, {"id": id})).scalar_one()

    async def aclose(self) -> None:
        await self._engine.dispose()


class LangGraph:
    """LangGraph's SqliteStore."""

    def __init__(self, folder: Path) -> None:
        from langgraph.store.sqlite import SqliteStore

        self._connection = sqlite3.connect(
            folder / "langgraph.db", isolation_level=None, check_same_thread=False
        )
        self._store = SqliteStore(self._connection)
        self._store.setup()

    def get(self, id: str) -> Any:
        return self._store.get(("things",), id)

    def put(self, id: str, body: Any) -> None:
        self._store.put(("things",), id, body)

    def close(self) -> None:
        self._connection.close()


class Aea:
    """AEA's storage: a thread with an event loop, and another thread for SQLite."""

    def __init__(self, folder: Path) -> None:
        from aea.helpers.storage.generic_storage import Storage

        self._storage = Storage(f"sqlite://{folder / 'aea.db'}", threaded=True)
        self._storage.start()
        while not self._storage.is_connected:
            pass
        self._things: Any = self._storage.get_sync_collection("things")

    def get(self, id: str) -> Any:
        return self._things.get(id)

    def put(self, id: str, body: Any) -> None:
        self._things.put(id, body)

    def find(self, field: str, value: Any) -> Any:
        return self._things.find(field, value)

    def close(self) -> None:
        self._storage.stop()
        self._storage.wait_completed(sync=True)


PEERS: dict[str, Callable[[Path], Peer]] = {
    "diskcache": DiskCache,
    "LangGraph SqliteStore": LangGraph,
    "AEA's storage": Aea,
    "sqlite-utils": SqliteUtils,
    "TinyDB": Tiny,
    "montydb": Monty,
}


def installed(folder: Path) -> dict[str, Peer]:
    """Return the installed libraries."""
    found: dict[str, Peer] = {}
    for name, make in PEERS.items():
        try:
            found[name] = make(folder)
        except ImportError:
            continue
    return found
