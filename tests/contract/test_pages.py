"""Pages: their cost, their guarantees during writes, and the validity of cursors."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from selection import sampled

from collections_store import Document, InvalidCursor, InvalidFilter, Store

ROOT = Path(__file__).parents[2]
DOCUMENTS = 5000
SORTS: list[Any] = [None, "n", [("n", -1)], [("kind", 1), ("n", -1)]]
ORDERS: dict[str, Callable[[str], Any]] = {
    "None": int,
    "n": lambda text: body(int(text))["n"],
    "[('n', -1)]": lambda text: -body(int(text))["n"],
    "[('kind', 1), ('n', -1)]": lambda text: (body(int(text))["kind"], -body(int(text))["n"]),
}


def walk(things: Any, *question: Any, **options: Any) -> Iterator[Document]:
    page = things.page(*question, **options)
    while True:
        yield from page
        if page.cursor is None:
            return
        page = things.page(*question, **options, after=page.cursor)


def body(n: int) -> dict[str, Any]:
    return {"n": n * 7 % DOCUMENTS, "kind": n % 7}


# -- cost ------------------------------------------------------------------------------------


class Touched:
    """Counts the work of a database for a query, instead of its time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        driver = "postgresql+psycopg" if backend.is_postgresql else "sqlite"
        self.engine = sa.create_engine(sa.make_url(backend.url).set(drivername=driver))
        self.store = Store(engine=self.engine, **backend.options)

    def by(self, **options: Any) -> int:
        """Return the rows that PostgreSQL reads for a page, or the steps of SQLite's virtual machine."""
        with self.engine.connect() as connection, connection.begin():
            things = self.store.bind(connection)["large"]
            things.count({"$id": "nobody"})  # caches the table
            count = self._rows if self._backend.is_postgresql else self._steps
            return count(connection, lambda: things.page(limit=10, **options))

    def by_skipping(self, skip: int) -> int:
        with self.engine.connect() as connection, connection.begin():
            things = self.store.bind(connection)["large"]
            count = self._rows if self._backend.is_postgresql else self._steps
            return count(connection, lambda: things.find(sort="n", skip=skip, limit=10))

    def _rows(self, connection: sa.Connection, ask: Any) -> int:
        read = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables"
        where = " WHERE schemaname = :schema AND relname LIKE '%large'"
        schema = {"schema": self._backend.options["schema"]}
        before = connection.scalar(sa.text(read + where), schema)
        ask()
        return int(connection.scalar(sa.text(read + where), schema)) - int(before)

    def _steps(self, connection: sa.Connection, ask: Any) -> int:
        """The first call prepares the statement, which counts as steps since SQLite 3.41."""
        ask()
        driver: Any = connection.connection.driver_connection
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        driver.set_progress_handler(step, 1)
        ask()
        driver.set_progress_handler(None, 1)
        return steps


@pytest.fixture(scope="module")
def touched_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Touched]:
    path = tmp_path_factory.mktemp("pages") / "store.db"
    yield from large(Backend("sqlite-file", f"sqlite:///{path}"))


@pytest.fixture(scope="module")
def touched_postgresql(module_postgres_backend: Backend) -> Iterator[Touched]:
    if "sharding" in module_postgres_backend.options:
        pytest.skip("a worker of Citus reads the rows, and the coordinator counts none")
    yield from large(module_postgres_backend)


@pytest.fixture(params=["sqlite", "postgresql"])
def touched(request: pytest.FixtureRequest) -> Any:
    """The work on a large collection with indexes, on each database; no test changes it."""
    return request.getfixturevalue(f"touched_{request.param}")


def large(shared_backend: Backend) -> Iterator[Touched]:
    counter = Touched(shared_backend)
    things = counter.store["large"]
    things.put_many((str(n), body(n)) for n in range(DOCUMENTS))
    things.create_index("n")
    things.create_index([("kind", 1), ("n", -1)])
    if shared_backend.is_postgresql:
        with psycopg.connect(shared_backend.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
    yield counter
    counter.store.close()
    counter.engine.dispose()


@pytest.mark.parametrize("sort", SORTS[:: -sampled(2)], ids=str)
def test_page_400_reads_as_many_rows_as_page_2(touched: Touched, sort: Any) -> None:
    things = touched.store["large"]
    ends = [things.page(sort=sort, limit=10 * (page - 1)).cursor for page in (2, 3, 200, 399, 400)]
    costs = [touched.by(sort=sort, after=end) for end in ends]
    assert max(costs) <= 1.25 * min(costs)
    assert max(costs) <= 4 * touched.by(sort=sort)


def test_skip_reads_more_rows_the_further_it_goes(touched: Touched) -> None:
    """The alternative to pages, which shows that the counts are sensitive."""
    assert touched.by_skipping(3990) > 5 * touched.by_skipping(10)


@pytest.mark.parametrize("sort", ["n", [("n", -1)]][:: sampled(2)], ids=str)
def test_pages_of_a_filter_read_equally_many_rows(touched: Touched, sort: Any) -> None:
    things, filter = touched.store["large"], {"kind": {"$ne": 3}}
    ends = [things.page(filter, sort=sort, limit=10 * (page - 1)).cursor for page in (2, 30, 400)]
    costs = [touched.by(filter=filter, sort=sort, after=end) for end in ends]
    assert max(costs) <= 2 * min(costs)


# -- concurrent writes -----------------------------------------------------------------------


class Writer(threading.Thread):
    """Inserts, changes and deletes documents, except those with an id of digits."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend, self._random = backend, random.Random(7)
        self.stopped, self.rounds = threading.Event(), 0

    def run(self) -> None:
        with Store(self._backend.url, durability="normal", **self._backend.options) as store:
            things = store["things"]
            while not self.stopped.is_set():
                things.put(f"new {self.rounds}", self._body())
                things.put(f"mover {self._random.randrange(100)}", self._body())
                things.remove(f"victim {self._random.randrange(300)}")
                if self.rounds % 50 == 49:
                    things.delete_many({"$id": {"$regex": "^new"}, "kind": 3})
                self.rounds += 1

    def _body(self) -> dict[str, Any]:
        return {"n": self._random.randrange(DOCUMENTS), "kind": self._random.randrange(7)}


@dataclass
class Written:
    """A collection during writes."""

    things: Any
    writer: Writer

    def walks(self, *question: Any, **options: Any) -> Iterator[list[str]]:
        """Yield the ids of all pages, repeatedly, until enough was written meanwhile."""
        until = self.writer.rounds + 40 // sampled(2)
        while self.writer.rounds < until:
            assert self.writer.is_alive()
            yield [document.id for document in walk(self.things, *question, **options)]


@pytest.fixture
def written(shared_backend: Backend) -> Iterator[Written]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store["things"]
        things.create_index("n")
        for kind, many in (("", 300), ("mover ", 100), ("victim ", 200)):
            things.put_many((f"{kind}{n}", body(n)) for n in range(many))
        writer = Writer(shared_backend)
        writer.start()
        yield Written(things, writer)
        writer.stopped.set()
        writer.join()


@pytest.mark.parametrize("sort", SORTS[:: -sampled(2)], ids=str)
@pytest.mark.parametrize("filter", [{}, {"kind": {"$ne": 3}}], ids=str)
def test_unchanged_documents_appear_exactly_once(written: Written, sort: Any, filter: Any) -> None:
    still = [str(n) for n in range(300) if not filter or n % 7 != 3]
    expected = sorted(still, key=ORDERS[str(sort)])
    for found in written.walks(filter, sort=sort, limit=7):
        assert [each for each in found if each.isdigit()] == expected
        lasting = [each for each in found if not each.startswith("mover")]
        assert len(lasting) == len(set(lasting))


def test_overwritten_documents_appear_once_in_natural_order(written: Written) -> None:
    for found in written.walks(limit=7):
        movers = [each for each in found if each.startswith("mover")]
        assert movers == [f"mover {n}" for n in range(100)]


# -- validity of cursors ---------------------------------------------------------------------


PROGRAM = """
import json, sys
from collections_store import Store
url, options, cursor = map(json.loads, sys.argv[1:])
with Store(url, **options) as store:
    page = store["things"].page({"kind": 3}, sort="n", limit=5, after=cursor)
    print(json.dumps([[document.id for document in page], page.cursor]))
"""


def test_cursors_are_valid_in_other_stores_and_processes(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store["things"]
        things.put_many((str(n), body(n)) for n in range(200))
        expected = [document.id for document in things.find({"kind": 3}, sort="n")]
        first = things.page({"kind": 3}, sort="n", limit=5)
    arguments = map(json.dumps, (shared_backend.url, shared_backend.options, first.cursor))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    second, cursor = json.loads(done.stdout)
    with Store(shared_backend.url, **shared_backend.options) as store:
        third = store["things"].page({"kind": 3}, sort="n", limit=100, after=cursor)
        assert [d.id for d in first] + second + [d.id for d in third] == expected
        assert third.cursor is None


def test_cursors_survive_new_indexes_renames_and_deletes(store: Any) -> None:
    things = store["things"]
    things.put_many((str(n), {"n": n}) for n in range(20))
    page = things.page(sort="n", limit=5)
    things.remove("4")
    things.create_index("n")
    store.rename("things", "others")
    following = store["others"].page(sort="n", limit=5, after=page.cursor)
    assert [document.id for document in following] == ["5", "6", "7", "8", "9"]


def test_a_cursor_of_a_dropped_collection_is_rejected(store: Any) -> None:
    things = store["things"]
    things.put_many((str(n), {"n": n}) for n in range(20))
    cursor = things.page(sort="n", limit=5).cursor
    store.drop("things")
    things.put_many((str(n), {"n": n}) for n in range(20))
    with pytest.raises(InvalidCursor, match="of another collection"):
        things.page(sort="n", limit=5, after=cursor)


def test_a_cursor_has_one_spelling(things: Any) -> None:
    things.put_many((str(n), n) for n in range(20))
    cursor = things.page(limit=5).cursor
    for other in (f"{cursor}=", f"{cursor}!", f" {cursor}", f"{cursor[:9]}\n{cursor[9:]}"):
        with pytest.raises(InvalidCursor, match="must be a cursor of this version"):
            things.page(limit=5, after=other)


def test_a_page_reports_whether_another_follows(things: Any) -> None:
    assert things.page().documents == ()
    things.put_many((str(n), n) for n in range(10))
    page = things.page(limit=10)
    assert (len(page), page.cursor) == (10, None)
    first = things.page(limit=9)
    assert first.cursor is not None
    second = things.page(limit=9, after=first.cursor)
    assert ([d.id for d in second], second.cursor) == (["9"], None)
    things.remove("9")
    assert things.page(limit=9, after=first.cursor).documents == ()


@pytest.mark.parametrize("limit", [0, -1, 1.0, True, None, "5", 2**63])
def test_page_limits_are_positive(things: Any, limit: Any) -> None:
    with pytest.raises(InvalidFilter, match="limit"):
        things.page(limit=limit)


def test_pages_continue_at_arrays_long_strings_and_objects(things: Any) -> None:
    long = "x" * 100
    values: list[Any] = [[3, 1], long + "b", {"b": 1}, long + "a", 2, None, [], {"a": 2}, True]
    things.put_many((str(n), {"v": value}) for n, value in enumerate(values))
    things.create_index("v")
    expected = [document.id for document in things.find(sort="v")]
    assert expected == ["6", "5", "0", "4", "3", "1", "7", "2", "8"]
    for size in range(1, 10):
        assert [document.id for document in walk(things, sort="v", limit=size)] == expected
