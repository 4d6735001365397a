"""The bare drivers, doing the same work on the same tables: a connection that is held, statements that the driver
keeps, orjson both ways.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson
from backends import Backend

BATCH = 1000
UPSERT = (
    "INSERT INTO {table} (id, body, version, created_at, updated_at) VALUES ({id}, {body}, 1, {now}, {now}) "
    "ON CONFLICT (id) DO UPDATE SET body = excluded.body, version = {table}.version + 1, "
    "updated_at = excluded.updated_at RETURNING version"
)
COLUMNS = "seq, id, {body}, version, created_at, updated_at, expires_at"
"""The columns that the library returns of a document; the floor reads them too."""


class SqliteFloor:
    """sqlite3."""

    def __init__(self, backend: Backend, options: dict[str, Any], collection: str) -> None:
        import sqlite3

        self.table = f"cs_1_{collection}"
        path = backend.url.removeprefix("sqlite:///")
        self.connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=30
        )
        durability = options.get("durability", "normal")
        self.connection.execute(f"PRAGMA synchronous = {durability.upper()}")
        self.columns = COLUMNS.format(body="body")
        self.get_sql = f"SELECT body FROM {self.table} WHERE id = ?"
        self.put_sql = UPSERT.format(table=self.table, id="?1", body="?2", now="?3")
        self.field = "json_extract(body, '$.{}')"

    def get(self, id: str) -> Any:
        [(text,)] = self.connection.execute(self.get_sql, (id,)).fetchall()
        return orjson.loads(text)

    def put(self, id: str, body: Any) -> Any:
        text, now = orjson.dumps(body).decode(), time.time_ns() // 1000
        return self.connection.execute(self.put_sql, (id, text, now)).fetchall()[0][0]

    def find(self, field: str, value: Any) -> list[Any]:
        where = f"{self.field.format(field)} = ?"
        return self.select(where, (value,))

    def select(self, where: str, values: Iterable[Any]) -> list[Any]:
        statement = f"SELECT {self.columns} FROM {self.table} WHERE {where} ORDER BY seq"
        rows = self.connection.execute(statement, tuple(values)).fetchall()
        return [(row[1], orjson.loads(row[2]), row) for row in rows]

    def all(self) -> list[Any]:
        statement = f"SELECT {self.columns} FROM {self.table} ORDER BY seq"
        return [
            (r[1], orjson.loads(r[2]), r) for r in self.connection.execute(statement).fetchall()
        ]

    def stream(self) -> int:
        statement = f"SELECT {self.columns} FROM {self.table} ORDER BY seq"
        count = 0
        for row in self.connection.execute(statement):
            orjson.loads(row[2])
            count += 1
        return count

    def put_many(self, documents: Iterable[tuple[str, Any]]) -> None:
        sql = self.put_sql.partition(" RETURNING")[0]
        given = iter(documents)
        while batch := list(islice(given, BATCH)):
            now = time.time_ns() // 1000
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.executemany(
                sql, ((id, orjson.dumps(body).decode(), now) for id, body in batch)
            )
            self.connection.execute("COMMIT")

    def index(self, field: str) -> None:
        expression = self.field.format(field)
        self.connection.execute(
            f"CREATE INDEX floor_{self.table}_{field} ON {self.table} ({expression})"
        )

    def page(self, field: str, after: Any, limit: int) -> list[Any]:
        expression = self.field.format(field)
        statement = (
            f"SELECT {self.columns} FROM {self.table} WHERE {expression} > ? "
            f"ORDER BY {expression} LIMIT {limit}"
        )
        rows = self.connection.execute(statement, (after,)).fetchall()
        return [(row[1], orjson.loads(row[2]), row) for row in rows]

    def close(self) -> None:
        self.connection.close()


class PostgresFloor(SqliteFloor):
    """psycopg, which prepares repeated statements."""

    def __init__(self, backend: Backend, options: dict[str, Any], collection: str) -> None:
        import psycopg

        self.table = f"{backend.options['schema']}.cs_1_{collection}"
        self.connection: Any = psycopg.connect(backend.url, autocommit=True)
        self.columns = COLUMNS.format(body="body::text")
        self.get_sql = f"SELECT body::text FROM {self.table} WHERE id = %s"
        self.put_sql = UPSERT.format(table=self.table, id="%s", body="%s::jsonb", now="%s")
        self.field = "body -> '{}'"

    def put(self, id: str, body: Any) -> Any:
        text, now = orjson.dumps(body).decode(), time.time_ns() // 1000
        return self.connection.execute(self.put_sql, (id, text, now, now)).fetchall()[0][0]

    def find(self, field: str, value: Any) -> list[Any]:
        return self.select(f"({self.field.format(field)}) = %s::jsonb", (str(value),))

    def stream(self) -> int:
        statement = f"SELECT {self.columns} FROM {self.table} ORDER BY seq"
        count = 0
        with self.connection.transaction(), self.connection.cursor(name="floor") as cursor:
            cursor.itersize = BATCH
            for row in cursor.execute(statement):
                orjson.loads(row[2])
                count += 1
        return count

    def put_many(self, documents: Iterable[tuple[str, Any]]) -> None:
        """COPY into a staging table, and one upsert."""
        with self.connection.transaction():
            self.connection.execute(
                "CREATE TEMP TABLE IF NOT EXISTS staging (id text, body text) ON COMMIT DELETE ROWS"
            )
            with self.connection.cursor().copy("COPY staging (id, body) FROM STDIN") as copy:
                for id, body in documents:
                    copy.write_row((id, orjson.dumps(body).decode()))
            now = time.time_ns() // 1000
            upsert = UPSERT.partition("VALUES")[0].format(table=self.table)
            conflict = UPSERT.partition(") ON")[2].partition(" RETURNING")[0]
            self.connection.execute(
                f"{upsert} SELECT id, body::jsonb, 1, %s, %s FROM staging "
                f"ON{conflict.format(table=self.table)}",
                (now, now),
            )

    def index(self, field: str) -> None:
        name = f"floor_{self.table.rpartition('.')[2]}_{field}"
        self.connection.execute(
            f"CREATE INDEX {name} ON {self.table} (({self.field.format(field)}))"
        )

    def page(self, field: str, after: Any, limit: int) -> list[Any]:
        expression = f"({self.field.format(field)})"
        statement = (
            f"SELECT {self.columns} FROM {self.table} WHERE {expression} > %s::jsonb "
            f"ORDER BY {expression} LIMIT {limit}"
        )
        rows = self.connection.execute(statement, (str(after),)).fetchall()
        return [(row[1], orjson.loads(row[2]), row) for row in rows]


def floor_of(backend: Backend, options: dict[str, Any], collection: str) -> SqliteFloor:
    """Return the bare driver of a backend."""
    return (PostgresFloor if backend.is_postgresql else SqliteFloor)(backend, options, collection)


def numbered(bodies: Iterable[Any], start: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield bodies with ids."""
    return ((f"{number:08d}", body) for number, body in enumerate(bodies, start))
