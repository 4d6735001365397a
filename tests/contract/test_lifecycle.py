"""Opening and closing of stores, on every backend, sync and async."""

import asyncio
import copy
import os
import pickle
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend, unwrap

from collections_store import (
    AsyncStore,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    InvalidOption,
    InvalidUrl,
    ReadOnlyDatabase,
    Store,
    StoreClosed,
    migrate,
)


def test_close_is_idempotent_and_final(open_store: Any) -> None:
    store = open_store()
    store["a"].put("x", 1)
    store.close()
    store.close()
    for method in (lambda: store["a"].get("x"), lambda: store["a"].put("x", 1), store.collections):
        with pytest.raises(StoreClosed):
            method()


def test_a_store_that_was_never_used_closes(open_store: Any) -> None:
    store = open_store()
    store.close()
    with pytest.raises(StoreClosed):
        store["a"].get("x")


def test_no_store_is_pickled_for_another_process(store: Any) -> None:
    with store.transaction() as tx:
        things = store["things"]
        for each in (store, tx, things, tx["things"], store.memory("bot")):
            with pytest.raises(TypeError, match="open another store in that process"):
                pickle.dumps(unwrap(each))
    with pytest.raises(TypeError, match="cannot pickle or copy"):
        copy.deepcopy(unwrap(things))


def test_a_context_manager_closes(open_store: Any) -> None:
    with open_store() as store:
        store["a"].put("x", 1)
    with pytest.raises(StoreClosed):
        store["a"].get("x")


def test_documents_survive_their_store(open_store: Any) -> None:
    if open_store.backend.is_private:
        pytest.skip("in memory, they do not")
    for durability in ("full", "normal"):
        with open_store(durability=durability) as store:
            store["a"].put(durability, {"x": [1]})
    with open_store() as store:
        assert store["a"].get_many(["full", "normal"]) == {"full": {"x": [1]}, "normal": {"x": [1]}}


def test_a_writer_never_stops_readers(shared_backend: Backend) -> None:
    """Eight threads and another store read while a transaction with writes is open."""
    options = {**shared_backend.options, "busy_timeout": 2}
    with (
        Store(shared_backend.url, **options) as store,
        Store(shared_backend.url, **options) as other,
    ):
        store["a"].put("x", 1)
        with store.transaction() as transaction, ThreadPoolExecutor(8) as readers:
            transaction["a"].put("x", 2)
            reading = [readers.submit(each["a"].get, "x") for each in (store, other) * 50]
            assert [each.result(30) for each in reading] == [1] * 100
        assert store["a"].get("x") == other["a"].get("x") == 2


def test_many_threads_use_one_store(open_store: Any) -> None:
    store = open_store()
    things = store.get_sync_collection("things")
    barrier = threading.Barrier(8)

    def work(number: int) -> int:
        barrier.wait()
        for turn in range(50):
            things.put(f"{number} {turn}", turn)
            assert things.get(f"{number} {turn}") == turn
            things.put("shared", turn)
        count: int = things.count()
        return count

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert things.count() == 401
    assert things.document("shared").version == 400


def test_a_small_pool_serves_many_threads(open_store: Any) -> None:
    store = open_store(pool_size=1)
    things = store.get_sync_collection("things")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: things.put(str(n), n) and things.get(str(n)), range(100)))
    assert things.count() == 100


@pytest.mark.parametrize("variant", [Store, AsyncStore])
@pytest.mark.parametrize(
    "url",
    [
        "mysql://host/db",
        "sqlite+aiosqlite:///x.db",
        "postgresql+asyncpg://host/db",
        "sqlite://folder/file.db",
        "nonsense",
        "",
    ],
)
def test_invalid_urls_are_rejected_at_once(variant: Any, url: str) -> None:
    with pytest.raises(InvalidUrl, match=r"sqlite:///|postgresql://"):
        variant(url)


@pytest.mark.parametrize("variant", [Store, AsyncStore])
def test_passwords_are_never_shown(variant: Any) -> None:
    store = variant("postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in repr(store)
    for option in ("password", "sslpassword"):
        shown = repr(variant(f"postgresql://me@127.0.0.1:1/db?{option}=secret&passfile=pass.txt"))
        assert "secret" not in shown
        assert f"{option}=..." in shown
        assert "passfile=pass.txt" in shown
    for url in (
        "mysql://me:secret@host/db",
        "postgresql://me:secret@host:nonsense/db",
        "postgresql://me:secret@one,two:nonsense/db",
        "postgresql://me@host/db?PASSWD=secret",
    ):
        with pytest.raises(InvalidUrl) as caught:
            variant(url)
        assert "secret" not in str(caught.value)


def test_a_store_takes_either_a_url_or_an_engine() -> None:
    with pytest.raises(InvalidOption, match="either a URL or an engine"):
        Store()
    with pytest.raises(InvalidOption, match="engine"):
        Store(engine="sqlite://")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no schemas"):
        Store("sqlite://", schema="x")


def test_an_unreachable_server(postgres_url: str) -> None:
    with (
        Store("postgresql://me:secret@127.0.0.1:1/db") as store,
        pytest.raises(DatabaseUnavailable) as caught,
    ):
        store["a"].put("x", 1)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, ConnectionError)
    wrong = postgres_url.rsplit("/", 1)[0] + "/no_such_database"
    with Store(wrong) as store, pytest.raises(DatabaseUnavailable, match="no_such_database"):
        store["a"].get("x")


def test_the_first_use_waits_for_a_connection(postgres_backend: Backend) -> None:
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    schema = postgres_backend.options["schema"]
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {schema} LOGIN PASSWORD 'x' CONNECTION LIMIT 1")
        connection.exec_driver_sql(f"GRANT CREATE ON DATABASE {engine.url.database} TO {schema}")
    limited = engine.url.set(drivername="postgresql", username=schema, password="x")
    url = limited.render_as_string(hide_password=False)
    holder = psycopg.connect(url)
    with (
        Store(url, busy_timeout=0.2, schema=schema) as store,
        pytest.raises(DatabaseBusy, match="too many connections"),
    ):
        store["a"].put("x", 1)
    threading.Timer(0.2, holder.close).start()
    with Store(url, pool_size=1, schema=schema) as store:
        assert store["a"].put("x", 1) == 1
        store.drop("a")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {schema} CASCADE")
        connection.exec_driver_sql(f"DROP ROLE {schema}")
    engine.dispose()


def test_the_first_use_waits_for_a_starting_server(postgres_backend: Backend) -> None:
    there = sa.make_url(postgres_backend.url)
    refusals = [b"", *[b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"] * 5]

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while some := await reader.read(2**16):
            writer.write(some)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if refusals:
            await reader.read(8)  # a request for TLS, or the startup
            refusal = refusals.pop(0)
            writer.write(b"E" + (4 + len(refusal)).to_bytes(4, "big") + refusal if refusal else b"")
            writer.close()
            return
        to_server = await asyncio.open_connection(there.host, there.port or 5432)
        await asyncio.gather(pipe(reader, to_server[1]), pipe(to_server[0], writer))

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        url = there.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        async with AsyncStore(url + "?sslmode=disable", **postgres_backend.options) as store:
            assert await store["a"].put("x", 1) == 1
        assert not refusals
        server.close()

    asyncio.run(main())


def test_a_read_only_session_of_postgresql(postgres_backend: Backend) -> None:
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        store.get_sync_collection("recorded", changes=True).put("x", 1)
        store["a"].put("x", 1)
    url = postgres_backend.url + "?options=-cdefault_transaction_read_only%3Don"
    options = {**postgres_backend.options, "reconnect_for": 0}
    with Store(url, **options) as store:
        a, recorded = store["a"], store["recorded"]
        writes: list[Callable[[], object]] = [
            lambda: a.put("x", 2),
            lambda: a.put_many({"x": 2, "y": 2}),
            lambda: a.update_many({}, {"$set": {"n": 1}}),
            lambda: a.delete_many({}),
            lambda: recorded.put("x", 2),
            lambda: store.run_transaction(lambda tx: tx["a"].put("x", 2)),
            lambda: store["b"].put("x", 2),
            lambda: store.drop("a"),
        ]
        for write in writes:
            with pytest.raises(ReadOnlyDatabase, match="lets this session read only") as caught:
                write()
            assert not caught.value.in_doubt
        assert (a.get("x"), recorded.get("x"), a.count()) == (1, 1, 1)
        with store.transaction() as tx:
            assert tx["a"].get("x") == 1

    async def main() -> None:
        async with AsyncStore(url, **options) as store:
            puts = (store["a"].put(str(n), 2) for n in range(9))
            for error in await asyncio.gather(*puts, return_exceptions=True):
                assert isinstance(error, ReadOnlyDatabase)

    asyncio.run(main())


def test_a_file_that_cannot_be_created(tmp_path: Any) -> None:
    (tmp_path / "text.db").write_text(
        "This is no database, but it is long enough to be looked at." * 20
    )
    (tmp_path / "folder.db").mkdir()
    problems = {
        "no/such/file.db": "does the folder exist",
        "text.db/file.db": "does the folder exist",
        "folder.db": "is a folder: name a file",
        "folder.db?mode=ro": "is a folder: name a file",
        "text.db": "no SQLite database",
    }
    for name, problem in problems.items():
        words = f"{re.escape(repr(str(tmp_path / name.partition('?')[0])))}: .*{problem}"
        with (
            Store(f"sqlite:///{tmp_path}/{name}") as store,
            pytest.raises(DatabaseUnavailable, match=words),
        ):
            store["a"].put("x", 1)


def test_errors_name_a_read_only_file(tmp_path: Any) -> None:
    file = tmp_path / "store.db"
    with Store(f"sqlite:///{file}") as store:
        store["a"].put("x", {})
    with Store(f"sqlite:///{file}?mode=ro") as store:
        words = f"{re.escape(repr(str(file)))}: .*read-only"
        with pytest.raises(DatabaseError, match=words):
            store["a"].put("x", 2)
        with pytest.raises(DatabaseError, match=words):
            store["a"].update_many({}, {"$set": {"y": 1}})


def test_errors_within_a_transaction_name_the_file(tmp_path: Any) -> None:
    """A page limit simulates a full disk: SQLite rejects a page beyond it in any transaction."""
    file = tmp_path / "store.db"
    engine = sa.create_engine(f"sqlite:///{file}")
    with Store(f"sqlite:///{file}") as store, store.transaction() as tx:
        tx["a"].put("x", {})

    @sa.event.listens_for(engine, "connect")
    def limit(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA max_page_count = 1")

    words = f"{re.escape(repr(str(file)))}: .*full"
    body = {"text": "x" * 100_000}
    with Store(engine=engine) as store:
        with store.transaction() as tx, pytest.raises(DatabaseError, match=words):
            tx["a"].put("y", body)
        with engine.connect() as connection, pytest.raises(DatabaseError, match=words):
            store.bind(connection)["a"].put("y", body)
    engine.dispose()


def test_the_uri_of_aea_is_a_relative_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("sqlite://./some_file.db") as store:
        store["a"].put("x", 1)
    assert (tmp_path / "some_file.db").exists()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_is_rejected(postgres_url: str, encoding: str) -> None:
    name = f"{encoding.lower()}_{os.getpid()}"
    url = sa.make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        )
        engine = sa.create_engine(
            url.replace("postgresql:", "postgresql+psycopg:"),
            connect_args={"client_encoding": "utf8"},  # SQLAlchemy itself needs it
        )
        try:
            for store in (Store(url), Store(engine=engine)):
                with store, pytest.raises(DatabaseError, match=f"UTF8, got {encoding}.*ENCODING"):
                    store["things"].put("a", "é")
            with pytest.raises(DatabaseError, match=f"UTF8, got {encoding}"):
                migrate.upgrade(url)
        finally:
            engine.dispose()
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_session_of_another_encoding_uses_utf8(
    postgres_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        store["things"].put("a", "日本")
        assert store["things"].get("a") == "日本"
