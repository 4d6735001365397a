"""A pooler between the store and PostgreSQL: each transaction has another connection of the server."""

import asyncio
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from migrations.test_migrations import cook
from postgres_server import URL_VARIABLE
from psycopg import sql
from transaction_pooler import POOLER_VARIABLE, TransactionPooler

from collections_store import (
    AsyncStore,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    Store,
    migrate,
)
from collections_store.expressions.classes import value_class
from collections_store.operations.operation import Operation
from collections_store.sql.schema import REVISION

SETTINGS = "current_setting('lock_timeout'), current_setting('synchronous_commit')"
STORES = {"full": 30.0, "normal": 7.0}
"""Stores of both durabilities, each with its own busy timeout."""
PART = ("documents",)
LOG = f"""
CREATE TABLE {{schema}}.log (lock text, commit text);
CREATE FUNCTION {{schema}}.log() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO {{schema}}.log SELECT {SETTINGS}; RETURN NULL; END
$$;
CREATE TRIGGER log AFTER INSERT OR UPDATE OR DELETE ON {{schema}}.{{table}}
    EXECUTE FUNCTION {{schema}}.log();
"""
EXPECTED = {"full": ("30s", "on"), "normal": ("7s", "off")}


@pytest.fixture(scope="module")
def pooler_url(postgres_url: str) -> Iterator[str]:
    if POOLER_VARIABLE in os.environ:
        yield os.environ[POOLER_VARIABLE]
    else:
        with TransactionPooler(postgres_url) as pooler:
            yield pooler.url


@pytest.fixture
def direct_backend(postgres_url: str, postgres_backend: Backend) -> Backend:
    """The same schema, without a pooler."""
    return replace(postgres_backend, url=postgres_url)


@value_class
class Select(Operation[Any]):
    """Execute a query, and return its rows."""

    query: str
    atomic: bool = True
    writes: bool = False
    collections = ()

    def __call__(self, connection: Any) -> Any:
        return connection.rows(self.query)


def prepared(store: Store) -> int:
    """Return how many statements the server has prepared for the connection that the store used last."""
    [(count,)] = store.run(Select("SELECT count(*) FROM pg_prepared_statements"))
    return int(count)


def log_settings(backend: Backend, collection: str) -> None:
    """Log the settings of each transaction that writes to a collection."""
    schema = sql.Identifier(backend.options["schema"])
    with psycopg.connect(backend.url, autocommit=True) as connection:
        catalogue = sql.SQL("SELECT table_name FROM {}.cs_collections WHERE name = %s")
        table = connection.execute(catalogue.format(schema), [collection]).fetchone()
        assert table is not None
        names = {"schema": schema, "table": sql.Identifier(table[0])}
        connection.execute(sql.SQL(LOG).format(**names))


def logged(backend: Backend) -> list[tuple[str, str]]:
    """Return the logged settings, and delete them."""
    schema = sql.Identifier(backend.options["schema"])
    with psycopg.connect(backend.url, autocommit=True) as connection:
        statement = sql.SQL("DELETE FROM {}.log RETURNING lock, commit").format(schema)
        return connection.execute(statement).fetchall()


def write_in_each_kind_of_transaction(store: Store) -> None:
    things = store["things"]
    things.delete_many({})
    things.put("a", {"n": 0})
    things.put_many({str(n): {"n": n} for n in range(5)})
    things.update_many({}, {"$set": {"n": 1}})
    things.change("a", lambda body: {**body, "more": 1})
    with store.transaction() as transaction:
        transaction["things"].put("a", 2)
        transaction["things"].remove("a")
    store.run_transaction(lambda transaction: transaction["things"].put("a", 3))
    things.put("expired", 1, ttl=0.001)
    things.delete_many({})
    things.purge_expired()


async def write_as_tasks(url: str, options: dict[str, Any]) -> None:
    async with AsyncStore(url, **options) as store:
        await asyncio.gather(*(store["things"].put(str(n), n) for n in range(20)))


def test_each_transaction_has_the_settings_of_its_store(
    pooler_url: str, direct_backend: Backend
) -> None:
    with Store(pooler_url, **direct_backend.options) as store:
        store["things"].put("a", 1)
    log_settings(direct_backend, "things")
    for durability, timeout in STORES.items():
        options = {**direct_backend.options, "durability": durability, "busy_timeout": timeout}
        with Store(pooler_url, **options) as store:
            write_in_each_kind_of_transaction(store)
            seen = logged(direct_backend)
            assert len(seen) >= 8
            for atomic in (True, False):
                for writes in (True, False):
                    seen += store.run(Select(f"SELECT {SETTINGS}", atomic, writes))
        assert set(seen) == {EXPECTED[durability]}
        asyncio.run(write_as_tasks(pooler_url, options))
        assert {commit for _, commit in logged(direct_backend)} == {EXPECTED[durability][1]}


def test_echo_logs_each_kind_of_transaction(
    pooler_url: str, direct_backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level("INFO", "collections_store.statements"),
        Store(pooler_url, echo=True, **direct_backend.options) as store,
    ):
        write_in_each_kind_of_transaction(store)
    assert "COMMIT" in caplog.messages


def test_others_do_not_inherit_settings(pooler_url: str, direct_backend: Backend) -> None:
    with psycopg.connect(direct_backend.url) as direct:
        default = direct.execute(f"SELECT {SETTINGS}").fetchone()
    options = {**direct_backend.options, "durability": "normal", "busy_timeout": 7.0}
    with (
        Store(pooler_url, **options) as store,
        psycopg.connect(pooler_url, autocommit=True) as other,
    ):
        store["things"].put_many({str(n): n for n in range(5)})
        for n in range(10):
            assert store["things"].get(str(n % 5)) == n % 5
            assert other.execute(f"SELECT {SETTINGS}", prepare=False).fetchone() == default


def test_statements_are_prepared_unless_a_pooler_is_between(
    pooler_url: str, direct_backend: Backend
) -> None:
    def prepared_after_gets(url: str, **options: Any) -> int:
        with Store(url, **direct_backend.options, **options) as store:
            store["things"].put("a", 1)
            for _ in range(10):
                store["things"].get("a")
            return prepared(store)

    url = direct_backend.url
    assert prepared_after_gets(url) > 0
    assert prepared_after_gets(f"{url}?prepare_threshold=0") > 0
    assert prepared_after_gets(f"{url}?prepare_threshold=100") == 0
    assert prepared_after_gets(f"{url}?prepare_threshold=none") == 0
    assert prepared_after_gets(f"{url}?pooler=transaction") == 0
    assert prepared_after_gets(url, pooler="transaction") == 0
    assert prepared_after_gets(pooler_url) == 0
    assert prepared_after_gets(f"{url}?pooler=transaction&prepare_threshold=2") > 0


@pytest.mark.parametrize("option", ["", "?prepare_threshold=0"])
def test_names_of_prepared_statements_are_of_one_connection(
    direct_backend: Backend, option: str
) -> None:
    names: set[str] = set()
    query = Select("SELECT name FROM pg_prepared_statements")
    for _ in range(2):
        with Store(f"{direct_backend.url}{option}", **direct_backend.options) as store:
            for _ in range(7):
                found = store.run(query)
            assert found
            assert names.isdisjoint(name for (name,) in found)
            assert not any(re.fullmatch("_pg3_[0-9]{1,5}", name) for (name,) in found)
            names.update(name for (name,) in found)


def test_an_engine_has_such_names_too(direct_backend: Backend) -> None:
    url = direct_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url, connect_args={"prepare_threshold": 0})
    with Store(engine=engine, **direct_backend.options) as store:
        store["things"].put("a", 1)
        found = store.run(Select("SELECT name FROM pg_prepared_statements"))
    engine.dispose()
    assert len([name for (name,) in found if len(name) > len("_pg3_99999")]) > 1


def read_and_write(store: Store, worker: int) -> None:
    """Check every result of one of the threads that share collections."""
    for n in range(12):
        for name in ("red", "green"):
            id = f"{worker}-{n}"
            store[name].put(id, {"in": name, "n": n, "worker": worker})
            assert store[name].get(id) == {"in": name, "n": n, "worker": worker}
            found = store[name].find({"worker": worker, "n": n})
            assert [(each.id, each.body["in"]) for each in found] == [(id, name)]
            assert store[name].count({"worker": worker}) == n + 1


def test_every_answer_is_right(pooler_url: str, direct_backend: Backend) -> None:
    stores = [Store(pooler_url, pool_size=2, **direct_backend.options) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: read_and_write(stores[n % 2], n), range(4)))
    assert len({stores[0].run(Select("SELECT pg_backend_pid()"))[0] for _ in range(8)}) > 1
    for store in stores:
        store.close()


def test_a_pooler_taken_for_none_is_an_error_and_never_a_wrong_answer(
    pooler_url: str, direct_backend: Backend
) -> None:
    options = {**direct_backend.options, "pooler": "session"}
    with (
        Store(pooler_url, **options) as one,
        Store(pooler_url, **options) as two,
        pytest.raises(DatabaseError, match="pooler='transaction'"),
    ):
        for n in range(4):
            read_and_write(one, 2 * n)
            read_and_write(two, 2 * n + 1)


@pytest.mark.parametrize("threshold", [0, 2])
def test_prepared_statements_without_support_are_named_in_the_error(
    pooler_url: str, direct_backend: Backend, threshold: int
) -> None:
    url = f"{pooler_url}?pooler=transaction&prepare_threshold={threshold}"
    with (
        Store(url, **direct_backend.options) as store,
        pytest.raises(DatabaseError, match="and without prepare_threshold there unless"),
    ):
        for n in range(20):
            store["things"].put("a", n)


def test_a_stream_a_transaction_and_an_interrupted_query(
    pooler_url: str, direct_backend: Backend
) -> None:
    with Store(pooler_url, **direct_backend.options) as store:
        things = store["things"]
        things.put_many({f"{n:04}": n for n in range(300)})
        for n, document in enumerate(things.find({}, sort="$id")):
            assert document.body == n
            things.put("another", n)
        with store.transaction() as transaction:
            before = transaction["things"].count()
            things.put("outside", 1)
            assert transaction["things"].count() == before

    async def interrupt() -> None:
        async with AsyncStore(pooler_url, **direct_backend.options) as store:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.run(Select("SELECT pg_sleep(60)")), 0.2)
            assert await store["things"].get("0001") == 1

    asyncio.run(interrupt())


def test_a_refused_option_names_what_to_do(pooler_url: str, direct_backend: Backend) -> None:
    url = f"{pooler_url}?options=-csearch_path%3Dx"
    with (
        Store(url, **direct_backend.options) as store,
        pytest.raises(DatabaseError, match="ignore_startup_parameters"),
    ):
        store["things"].get("a")


def test_a_wait_for_a_connection_of_the_server(postgres_url: str, direct_backend: Backend) -> None:
    options = {**direct_backend.options, "busy_timeout": 0.5, "reconnect_for": 0}
    with TransactionPooler(postgres_url) as pooler:
        with Store(pooler.url, **options) as store:
            store["things"].put("a", 1)
            pooler.is_full, pooler.query_wait_timeout = True, 0.1
            with pytest.raises(DatabaseBusy, match="query_wait_timeout"), store.transaction():
                pass
            pooler.is_full = False
            assert store["things"].get("a") == 1
        pooler.is_full, pooler.query_wait_timeout = True, math.inf
        with Store(pooler.url, **options) as store:  # the pooler logs it in, and does not answer
            with pytest.raises(DatabaseUnavailable, match="not answered"):
                store["things"].get("a")
            pooler.is_full = False
            assert store["things"].get("a") == 1


@pytest.mark.parametrize("query_wait_timeout", [0.1, math.inf])
def test_a_write_that_reached_no_server_is_not_in_doubt(
    postgres_url: str, direct_backend: Backend, query_wait_timeout: float
) -> None:
    """A pooler executes also what it was sent by a client that has gone."""
    options: Any = {**direct_backend.options, "busy_timeout": 0.5, "reconnect_for": 0}
    writes: list[Callable[[Any], Any]] = [
        lambda things: things.put("b", 1),
        lambda things: things.put_many({"b": 1}),
        lambda things: things.get("a"),
    ]

    async def write_in_task(write: Callable[[Any], Any]) -> None:
        async with AsyncStore(pooler.url, **options) as store:
            pooler.is_full = False
            assert await store["things"].get("a") == 1
            pooler.fill()
            with pytest.raises(DatabaseError) as caught:
                await write(store["things"])
            check(caught.value)

    def check(error: DatabaseError) -> None:
        assert not getattr(error, "in_doubt", False)
        if query_wait_timeout == math.inf:
            assert isinstance(error, DatabaseBusy)

    with TransactionPooler(postgres_url) as pooler:
        pooler.query_wait_timeout = query_wait_timeout
        with Store(pooler.url, **options) as store:
            store["things"].put("a", 1)
            for write in writes:
                pooler.fill()
                with pytest.raises(DatabaseError) as caught:
                    write(store["things"])
                check(caught.value)
                asyncio.run(write_in_task(write))
            pooler.is_full = False
            for _ in range(5):
                assert store["things"].get_many(["a", "b"]) == {"a": 1}


def test_a_long_query_waits_for_no_pooler(pooler_url: str, direct_backend: Backend) -> None:
    with Store(pooler_url, **direct_backend.options, busy_timeout=0.5) as store:
        store["things"].put("a", 1)
        assert len(store.run(Select("SELECT 1 FROM pg_sleep(1)"))) == 1


def test_concurrent_upgrades(pooler_url: str, direct_backend: Backend) -> None:
    cook(direct_backend, "0001")
    together = threading.Barrier(6)

    def upgrade(_: int) -> tuple[str | None, str | None]:
        together.wait()
        return migrate.upgrade(pooler_url, schema=direct_backend.options["schema"])

    with ThreadPoolExecutor(6) as threads:
        upgraded = set(threads.map(upgrade, range(6)))
    assert {after for _, after in upgraded} == {REVISION}


@pytest.mark.timeout(600)
@pytest.mark.skipif(POOLER_VARIABLE in os.environ, reason="all of the contract tests run so")
def test_the_contract_holds(postgres_url: str, pooler_url: str) -> None:
    """A part of the contract tests; `nox -s poolers` runs all."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-k", "postgresql and async"]
    tests = [str(Path(__file__).parents[1] / "contract" / f"test_{name}.py") for name in PART]
    environment = os.environ | {URL_VARIABLE: postgres_url, POOLER_VARIABLE: pooler_url}
    done = subprocess.run(
        [*command, *tests], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
