"""Stores on a Citus cluster: those on the coordinator `COLLECTIONS_STORE_TEST_CITUS_URL`."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from backends import Backend
from conftest import CITUS_VARIABLE, CITUS_WAY
from psycopg import sql

from collections_store import (
    AsyncStore,
    Collection,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    DuplicateKey,
    InvalidIndex,
    InvalidOption,
    Store,
    migrate,
)
from collections_store.sql.dialects.postgresql.citus import CitusErrors, SchemaPlacement

URL = os.environ.get(CITUS_VARIABLE, "")
needs_citus = pytest.mark.skipif(not URL, reason=f"{CITUS_VARIABLE} is not set")
SCHEMA = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
PLACES = """
SELECT DISTINCT nodename, nodeport FROM citus_shards
WHERE colocation_id = (SELECT colocationid FROM pg_dist_schema WHERE schemaid = %s::regnamespace)
"""


def rows(statement: Any, *parameters: Any) -> list[Any]:
    """Execute a statement on the coordinator, and return its rows."""
    options = "-c citus.enable_local_reference_table_foreign_keys=off"  # see conftest
    with psycopg.connect(URL, autocommit=True, options=options) as connection:
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
    problem = SchemaPlacement().problem("agents", "11.3-1", None)
    assert problem == "Citus 12 or newer distributes tables, got 11.3-1"
    assert SchemaPlacement().problem("agents", "12.0-1", None) is None


def test_a_distributed_collection_needs_a_cluster(open_store: Any) -> None:
    if open_store.backend.options.get("sharding") == "collections":
        pytest.skip("the store has one")
    store = open_store()
    with pytest.raises(InvalidOption, match="distributed: needs a cluster of Citus: open the"):
        store.create_collection("things", distributed=True)
    assert store.collections() == []


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("server closed the connection unexpectedly\n\tThis probably means", DatabaseUnavailable),
        ("failure on connection marked as essential: w1:5432", DatabaseUnavailable),
        ("tuple concurrently updated", DatabaseError),
    ],
)
def test_a_lost_worker_is_no_defect(
    postgres_url: str, message: str, kind: type[DatabaseError]
) -> None:
    """These are the errors with which coordinators report that a worker was killed."""
    raising = f"DO $$ BEGIN RAISE '{message}' USING ERRCODE = 'XX000'; END $$"
    with (
        psycopg.connect(postgres_url) as connection,
        pytest.raises(psycopg.errors.InternalError_) as caught,
    ):
        connection.execute(raising)
    assert type(CitusErrors().translate(caught.value)) is kind


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
    must = "sharding: must be 'schema', as it was when 'test_citus"
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


WORKERS = "SELECT DISTINCT nodeport FROM citus_shards WHERE table_name = %s::regclass"
KIND = "SELECT partmethod FROM pg_dist_partition WHERE logicalrelid = %s::regclass"
MANAGED, DISTRIBUTED = [("n",)], [("h",)]


@pytest.fixture
def cluster(new_schema: Callable[[], str]) -> Iterator[Store]:
    """A store with distributed collections."""
    with Store(URL, schema=new_schema(), sharding="collections") as store:
        yield store


@pytest.fixture
def spread(cluster: Store) -> Collection:
    """A distributed collection."""
    return cluster.create_collection("spread", distributed=True)


def table_of(store: Store, collection: str) -> str:
    """Return the table of a collection, as PostgreSQL names it."""
    return str(store.model(collection).__table__)


@needs_citus
def test_the_documents_of_a_distributed_collection_are_on_all_workers(
    cluster: Store, spread: Collection
) -> None:
    spread.put_many({str(n): {"n": n} for n in range(100)})
    cluster["whole"].put("a", 1)
    nodes = rows("SELECT nodeport FROM pg_dist_node WHERE shouldhaveshards ORDER BY nodeport")
    assert sorted(rows(WORKERS, table_of(cluster, "spread"))) == nodes
    assert [each.id for each in spread.list(limit=None)] == [str(n) for n in range(100)]
    assert rows(KIND, f"{cluster.core.options.schema}.cs_collections") == MANAGED
    if CITUS_WAY != "distributed":
        assert rows(KIND, table_of(cluster, "whole")) == MANAGED


@needs_citus
def test_both_kinds_of_collections_are_written_together(cluster: Store, spread: Collection) -> None:
    whole = cluster.create_collection("whole", changes="both")
    fed = cluster.create_collection("fed", distributed=True, changes="both")
    with pytest.raises(ZeroDivisionError), cluster.transaction() as transaction:
        for each in (spread, whole, fed):
            transaction[each.name].put("a", 1)
        1 / 0  # noqa: B018
    assert spread.get("a") is whole.get("a") is fed.get("a") is None
    with cluster.transaction() as transaction:
        for each in (spread, whole, fed):
            transaction[each.name].put("a", 1)
    assert spread.get("a") == whole.get("a") == fed.get("a") == 1
    for each in (whole, fed):
        assert [change.id for change in each.watch(after="oldest", timeout=0)] == ["a"]


@needs_citus
@pytest.mark.skipif(CITUS_WAY == "distributed", reason="no collection is on the coordinator")
def test_a_unique_index_of_a_collection_on_the_coordinator_is_named(cluster: Store) -> None:
    people = cluster["people"]
    people.put("a", {"email": "x"})
    people.create_index("email", unique=True)
    with pytest.raises(DuplicateKey, match="email_1"):
        people.put("b", {"email": "x"})


@needs_citus
def test_a_distributed_collection_refuses_unique_indexes(spread: Collection) -> None:
    spread.put("a", {"email": "x"})
    with pytest.raises(InvalidIndex, match="'email': must not be unique in a distributed"):
        spread.create_index("email", unique=True)
    assert spread.indexes() == []
    assert spread.create_index("email") == "email_1"


@needs_citus
def test_a_cluster_is_named_whenever_the_store_is_opened(
    cluster: Store, spread: Collection
) -> None:
    spread.put("a", 1)
    schema, sharding = (
        cluster.core.options.schema,
        "must be 'collections', as it was when 'test_citus",
    )
    for other in (None, "schema"):
        store = Store(URL, schema=schema, sharding=other)
        with store, pytest.raises(InvalidOption, match=sharding):
            store["spread"].get("a")
    url = f"{URL}{'&' if '?' in URL else '?'}sharding=collections"
    with Store(url, schema=schema) as store:
        assert store["spread"].get("a") == 1
    assert migrate.check(url, schema=schema) == []


@needs_citus
def test_the_sql_of_an_upgrade_creates_tables_that_citus_manages(
    new_schema: Callable[[], str],
) -> None:
    name = new_schema()
    url = f"{URL}{'&' if '?' in URL else '?'}sharding=collections"
    rows(migrate.sql(url, schema=name))
    with Store(url, schema=name) as store:
        store.create_collection("spread", distributed=True).put("a", 1)
        assert store["spread"].get("a") == 1


@needs_citus
def test_tables_that_citus_does_not_manage_are_left_alone(new_schema: Callable[[], str]) -> None:
    name = new_schema()
    with Store(URL, schema=name) as store:
        store["things"].put("a", 1)
    must = "tables exist, and Citus does not manage them"
    with (
        Store(URL, schema=name, sharding="collections") as store,
        pytest.raises(InvalidOption, match=must),
    ):
        store["things"].get("a")
    with Store(URL, schema=name) as store:
        assert store["things"].get("a") == 1


@needs_citus
def test_a_copy_is_distributed_where_it_can_be(
    cluster: Store, spread: Collection, new_schema: Callable[[], str]
) -> None:
    spread.put_many({str(n): n for n in range(20)})
    spread.create_index("n")
    with (
        Store("sqlite://") as file,
        Store(URL, schema=new_schema(), sharding="collections") as other,
    ):
        for target in (file, other):
            cluster.copy_to(target)
            assert target["spread"].list(limit=None) == spread.list(limit=None)
        assert rows(KIND, table_of(other, "spread")) == DISTRIBUTED


@needs_citus
def test_a_document_is_found_while_it_changes_between_number_and_array(spread: Collection) -> None:
    """The array guard and the query are two statements, which must see one moment."""
    spread.create_index("n")
    spread.put("a", {"n": 5})
    stopped = threading.Event()

    def change() -> None:
        while not stopped.is_set():
            spread.put("a", {"n": [5]})
            spread.put("a", {"n": 5})

    with ThreadPoolExecutor(1) as threads:
        changing = threads.submit(change)
        try:
            for _ in range(100):
                assert spread.count("n", 5) == 1
                assert [each.id for each in spread.find("n", 5)] == ["a"]
        finally:
            stopped.set()
        changing.result()


@needs_citus
def test_no_update_of_distributed_documents_is_lost(cluster: Store, spread: Collection) -> None:
    ids = [str(n) for n in range(8)]
    spread.put_many({id: {"n": 0} for id in ids})

    def add(_: int) -> None:
        spread.update_many({}, {"$inc": {"n": 1}})
        for id in ids:
            spread.update(id, {"$inc": {"n": 1}})
            spread.increment(id, "n")

        def together(transaction: Any) -> None:
            found = transaction["spread"].get_many(ids)
            transaction["spread"].put_many({id: {"n": found[id]["n"] + 1} for id in ids})

        cluster.run_transaction(together)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(add, range(3)))
    assert {body["n"] for body in spread.get_many(ids).values()} == {12}
