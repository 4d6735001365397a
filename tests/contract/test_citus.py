"""Stores whose schemas a Citus cluster distributes: those on the coordinator `COLLECTIONS_STORE_TEST_CITUS_URL`."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from conftest import CITUS_VARIABLE, Backend
from psycopg import sql

from collections_store import AsyncStore, DatabaseBusy, InvalidOption, Store, migrate
from collections_store.sql.dialects.postgresql.citus import CitusDDL

URL = os.environ.get(CITUS_VARIABLE, "")
needs_citus = pytest.mark.skipif(not URL, reason=f"{CITUS_VARIABLE} is not set")
SCHEMA = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
PLACES = """
SELECT DISTINCT nodename, nodeport FROM citus_shards
WHERE colocation_id = (SELECT colocationid FROM pg_dist_schema WHERE schemaid = %s::regnamespace)
"""


def rows(statement: Any, *parameters: Any) -> list[Any]:
    """Execute a statement on the coordinator, and return its rows."""
    with psycopg.connect(URL, autocommit=True) as connection:
        cursor = connection.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def new_schema() -> Iterator[Callable[[], str]]:
    """Return a function that returns the name of a schema that does not exist."""
    names: list[str] = []

    def named() -> str:
        names.append(f"test_citus_{os.getpid()}_{len(names)}")
        return names[-1]

    yield named
    for name in names:
        rows(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))


def test_sharding_needs_citus_and_creates_nothing(postgres_backend: Backend) -> None:
    if URL:
        pytest.skip("the server has Citus")
    name = postgres_backend.options["schema"]
    store = Store(postgres_backend.url, schema=name, sharding="schema")
    with store, pytest.raises(InvalidOption, match="sharding: the database has no extension citus"):
        store["things"].put("a", 1)
    with psycopg.connect(postgres_backend.url) as connection:
        assert connection.execute(SCHEMA, [name]).fetchone() == (0,)


def test_older_versions_of_citus_are_refused() -> None:
    problem = CitusDDL().sharding_problem("agents", "11.3-1", None)
    assert problem == "Citus 12 or newer distributes schemas, got 11.3-1"
    assert CitusDDL().sharding_problem("agents", "12.0-1", None) is None


@needs_citus
def test_each_schema_is_on_one_worker(new_schema: Callable[[], str]) -> None:
    names = [new_schema() for _ in range(2)]
    for n, name in enumerate(names):
        with Store(URL, schema=name, sharding="schema") as store:
            store["things"].put("a", {"n": n})
            store.collection("others", changes="both").put("b", {"n": n})
    for n, name in enumerate(names):
        assert len(rows(PLACES, name)) == 1
        with Store(URL, schema=name, sharding="schema") as store:
            assert store["things"].get("a") == {"n": n}


@needs_citus
def test_the_url_names_the_sharding(new_schema: Callable[[], str]) -> None:
    name = new_schema()
    url = f"{URL}{'&' if '?' in URL else '?'}sharding=schema"
    assert migrate.upgrade(url, schema=name)[0] is None
    assert migrate.check(url, schema=name) == []
    with Store(url, schema=name) as store:
        store["things"].put("a", 1)
    assert len(rows(PLACES, name)) == 1


@needs_citus
def test_a_schema_that_is_distributed_already_is_used(new_schema: Callable[[], str]) -> None:
    name = new_schema()
    create = sql.SQL("SET citus.enable_schema_based_sharding = on; CREATE SCHEMA {}")
    rows(create.format(sql.Identifier(name)))
    with Store(URL, schema=name, sharding="schema") as store:
        store["things"].put("a", 1)
    assert len(rows(PLACES, name)) == 1
    must = "sharding: must be 'schema', since 'test_citus"
    with Store(URL, schema=name) as store, pytest.raises(InvalidOption, match=must):
        store["things"].get("a")


@needs_citus
def test_a_schema_that_is_not_distributed_is_left_alone(new_schema: Callable[[], str]) -> None:
    name = new_schema()
    rows(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    with Store(URL, schema=name, sharding="schema") as store:
        with pytest.raises(InvalidOption, match="exists, and is not distributed: use another one"):
            store["things"].put("a", 1)
        assert not rows("SELECT FROM pg_tables WHERE schemaname = %s", name)
        rows("SELECT citus_schema_distribute(%s::regnamespace)", name)
        store["things"].put("a", 1)
    assert len(rows(PLACES, name)) == 1


@needs_citus
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_no_write_waits_longer_than_the_busy_timeout(
    postgres_backend: Backend, durability: Any
) -> None:
    options: Any = {**postgres_backend.options, "durability": durability, "busy_timeout": 0.5}
    with Store(URL, **postgres_backend.options) as other, Store(URL, **options) as store:
        things = store["things"]
        things.put_many({"a": {"n": 1}, "b": {"n": 1}})
        with other.transaction() as transaction:
            transaction["things"].update("a", {"$inc": {"n": 1}})
            for write in (
                lambda: things.put("a", {"n": 5}),
                lambda: things.increment("a", "n"),
                lambda: things.remove("a"),
                lambda: things.delete_many({}),
                lambda: things.put_many({"a": {"n": 5}, "b": {"n": 5}}),
                lambda: things.update_many({}, {"$set": {"n": 5}}),
                lambda: asyncio.run(_put_as_task(options)),
            ):
                begun = time.monotonic()
                with pytest.raises(DatabaseBusy):
                    write()
                assert time.monotonic() - begun < 10
            assert things.get("b") == {"n": 1}
        things.put("a", {"n": 6})
        assert things.get_many(["a", "b"]) == {"a": {"n": 6}, "b": {"n": 1}}


async def _put_as_task(options: Any) -> None:
    async with AsyncStore(URL, **options) as store:
        await store["things"].put("a", {"n": 5})


@needs_citus
def test_the_size_is_that_of_the_worker(postgres_backend: Backend) -> None:
    options: Any = postgres_backend.options
    with Store(URL, **options) as store:
        store["things"].put_many({str(n): {"text": os.urandom(500).hex()} for n in range(1000)})
        [info] = store.collections()
    assert info.count == 1000
    assert info.size > 1_000_000
