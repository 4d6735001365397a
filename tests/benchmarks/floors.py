"""The bare drivers, doing the same work: a connection that is held, statements that the driver keeps, orjson both ways.

The fair floor uses a collection's table and fills its columns. The harsh floor has a table of ids and bodies.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson
from backends import Backend

BATCH = 1000
FAIR = (
    "INSERT INTO {table} (id, body, version, created_at, updated_at) VALUES ({id}, {body}, 1, {now}, {now}) "
    "ON CONFLICT (id) DO UPDATE SET body = excluded.body, version = {table}.version + 1, "
    "updated_at = excluded.updated_at RETURNING version"
)
HARSH = (
    "INSERT INTO {table} VALUES ({id}, {body}) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
)
COLUMNS = "seq, version, created_at, updated_at, expires_at"
"""The columns, beside id and body, that the library returns of a document; the fair floor reads them too."""


class SqliteFloor:
    """sqlite3."""

    mark, compared, field = "?", "?", "json_extract(body, '$.{}')"
    body, json, text, begin = "body", "text", "{}", "BEGIN IMMEDIATE"

    def __init__(
        self,
        backend: Backend,
        options: dict[str, Any],
        collection: str,
        *,
        number: int = 1,
        harsh: bool = False,
    ) -> None:
        self.harsh, self.times = harsh, 0 if harsh else 1
        self.table = f"{'floor' if harsh else f'cs_{number}'}_{collection}"
        self.connection = self._connect(backend, options)
        self.columns = f"id, {self.body}" + ("" if harsh else f", {COLUMNS}")
        self.order = "id" if harsh else "seq"
        if harsh:
            self.connection.execute(
                f"CREATE TABLE {self.table} (id text PRIMARY KEY, body {self.json})"
            )
        self.get_sql = f"SELECT {self.body} FROM {self.table} WHERE id = {self.mark}"
        self.put_sql = self._upsert()

    def _connect(self, backend: Backend, options: dict[str, Any]) -> Any:
        import sqlite3

        path = backend.url.removeprefix("sqlite:///")
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=30
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {options.get('durability', 'normal').upper()}")
        return connection

    def _upsert(self) -> str:
        upsert = HARSH if self.harsh else FAIR
        return upsert.format(table=self.table, id="?1", body="?2", now="?3")

    def get(self, id: str) -> Any:
        [(text,)] = self.connection.execute(self.get_sql, (id,)).fetchall()
        return orjson.loads(text)

    def put(self, id: str, body: Any) -> Any:
        now = (time.time_ns() // 1000,) * self.times
        cursor = self.connection.execute(self.put_sql, (id, orjson.dumps(body).decode(), *now))
        return None if self.harsh else cursor.fetchall()

    def put_many(self, documents: Iterable[tuple[str, Any]]) -> None:
        sql = self.put_sql.partition(" RETURNING")[0]
        given = iter(documents)
        while batch := list(islice(given, BATCH)):
            now = (time.time_ns() // 1000,) * self.times
            self.connection.execute(self.begin)
            self.connection.executemany(
                sql, ((id, orjson.dumps(body).decode(), *now) for id, body in batch)
            )
            self.connection.execute("COMMIT")

    def increment(self, field: str, value: Any, counter: str) -> None:
        """Read the first document with the value, and write it with a counter that is larger by 1."""
        self.connection.execute(self.begin)
        where = f"{self.field.format(field)} = {self.compared}"
        statement = f"SELECT id, {self.body} FROM {self.table} WHERE {where} LIMIT 1"
        [(id, text)] = self.connection.execute(statement, (self.value(value),)).fetchall()
        body = orjson.loads(text)
        body[counter] = body.get(counter, 0) + 1
        self.put(id, body)
        self.connection.execute("COMMIT")

    def value(self, value: Any) -> Any:
        """Return the parameter that a field is compared with."""
        return value

    def find(self, field: str, value: Any) -> list[Any]:
        where = f"{self.field.format(field)} = {self.compared}"
        return self.select(where, (self.value(value),))

    def select(self, where: str, values: Iterable[Any]) -> list[Any]:
        return self._read(f"WHERE {where} ORDER BY {self.order}", tuple(values))

    def all(self) -> list[Any]:
        return self._read(f"ORDER BY {self.order}")

    def first(self, field: str, least: Any) -> Any:
        """Return the first document of a range, in the order of the index."""
        where = f"{self.field.format(field)} >= {self.compared}"
        return self._read(f"WHERE {where} LIMIT 1", (self.value(least),))[0]

    def page(
        self, field: str, after: Any, limit: int, equal: tuple[str, Any] | None = None
    ) -> list[Any]:
        expression, values = self.field.format(field), [self.value(after)]
        where = f"{expression} > {self.compared}"
        if equal is not None:
            where += f" AND {self.field.format(equal[0])} = {self.compared}"
            values.append(self.value(equal[1]))
        return self._read(f"WHERE {where} ORDER BY {expression} LIMIT {limit}", tuple(values))

    def _read(self, rest: str, values: tuple[Any, ...] = ()) -> list[Any]:
        statement = f"SELECT {self.columns} FROM {self.table} {rest}"
        rows = self.connection.execute(statement, values).fetchall()
        return [(row[0], orjson.loads(row[1]), row) for row in rows]

    def stream(self) -> int:
        statement = f"SELECT {self.columns} FROM {self.table} ORDER BY {self.order}"
        count = 0
        for row in self.connection.execute(statement):
            orjson.loads(row[1])
            count += 1
        return count

    def count(self, field: str, value: Any) -> int:
        statement = (
            f"SELECT count(*) FROM {self.table} WHERE {self.field.format(field)} = {self.compared}"
        )
        [(count,)] = self.connection.execute(statement, (self.value(value),)).fetchall()
        return int(count)

    def group(self, field: str, summed: str, equal: tuple[str, Any] | None = None) -> list[Any]:
        """Return the sum of a field for each value of another."""
        rest, values = "", []
        if equal is not None:
            rest = f"WHERE {self.field.format(equal[0])} = {self.compared}"
            values.append(self.value(equal[1]))
        columns = f"{self.field.format(field)}, sum({self.number(summed)})"
        statement = f"SELECT {columns} FROM {self.table} {rest} GROUP BY 1"
        rows: list[Any] = self.connection.execute(statement, values).fetchall()
        return rows

    def number(self, field: str) -> str:
        """Return the SQL of a number."""
        return self.field.format(field)

    def changes(self) -> int:
        """Read all changes of the collection, in batches."""
        feed, seen, last = self.table.replace("cs_1_things", '"cs_1$changes"'), 0, 0
        after = self.text.format('"after"')
        statement = (
            f"SELECT seq, kind, id, version, time, {after} FROM {feed} WHERE seq > {self.mark} "
        )
        while rows := self.connection.execute(
            f"{statement} ORDER BY seq LIMIT {BATCH}", (last,)
        ).fetchall():
            for row in rows:
                if row[5] is not None:
                    orjson.loads(row[5])
            last, seen = rows[-1][0], seen + len(rows)
        return seen

    def analyze(self) -> None:
        self.connection.execute(f"{self.vacuum}ANALYZE {self.table}")

    vacuum = ""

    def index(self, field: str) -> None:
        name = f"floor_{self.table.rpartition('.')[2]}_{field}"
        self.connection.execute(f"CREATE INDEX {name} ON {self.table} ({self.field.format(field)})")

    def close(self) -> None:
        self.connection.close()


class PostgresFloor(SqliteFloor):
    """psycopg, which prepares repeated statements."""

    mark, compared, field = "%s", "%s::jsonb", "(body -> '{}')"
    body, json, text, begin = "body::text", "jsonb", "{}::text", "BEGIN"
    vacuum = "VACUUM "

    def _connect(self, backend: Backend, options: dict[str, Any]) -> Any:
        import psycopg

        self.table = f"{backend.options['schema']}.{self.table}"
        self.times *= 2
        return psycopg.connect(backend.url, autocommit=True)

    def _upsert(self) -> str:
        upsert = HARSH if self.harsh else FAIR
        return upsert.format(table=self.table, id="%s", body="%s::jsonb", now="%s")

    def value(self, value: Any) -> Any:
        return orjson.dumps(value).decode()

    def number(self, field: str) -> str:
        return f"({self.field.format(field)})::int"

    def stream(self) -> int:
        statement = f"SELECT {self.columns} FROM {self.table} ORDER BY {self.order}"
        count = 0
        with self.connection.transaction(), self.connection.cursor(name="floor") as cursor:
            cursor.itersize = BATCH
            for row in cursor.execute(statement):
                orjson.loads(row[1])
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
            upsert = (HARSH if self.harsh else FAIR).format(
                table=self.table, id="id", body="body::jsonb", now=time.time_ns() // 1000
            )
            into, _, rest = upsert.partition(" VALUES (")
            values, _, conflict = rest.partition(") ON")
            self.connection.execute(
                f"{into} SELECT {values} FROM staging WHERE true ON{conflict.partition(' RETURNING')[0]}"
            )


def floor_of(
    backend: Backend,
    options: dict[str, Any],
    collection: str,
    *,
    number: int = 1,
    harsh: bool = False,
) -> SqliteFloor:
    """Return the bare driver of a backend, on the table of the store's first collection, or of another `number`."""
    floor = PostgresFloor if backend.is_postgresql else SqliteFloor
    return floor(backend, options, collection, number=number, harsh=harsh)


def numbered(bodies: Iterable[Any], start: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield bodies with ids."""
    return ((f"{number:08d}", body) for number, body in enumerate(bodies, start))
