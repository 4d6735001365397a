"""Side by side with the caller's own SQLAlchemy: engines, transactions, mapped classes."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session

from collections_store import (
    AsyncStore,
    BulkWriteError,
    DatabaseBusy,
    InvalidBody,
    InvalidOption,
    Store,
)

own = sa.MetaData()
invoices = sa.Table(
    "test_invoices",
    own,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("text", sa.Text),
)


@pytest.fixture
def engine(shared_backend: Backend) -> Iterator[sa.Engine]:
    url = shared_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url)
    try:
        own.drop_all(engine)
        own.create_all(engine)
        yield engine
        own.drop_all(engine)
    finally:
        engine.dispose()


@pytest.fixture
def store(engine: sa.Engine, shared_backend: Backend) -> Iterator[Store]:
    with Store(engine=engine, **shared_backend.options) as store:
        yield store


def numbers(connection: sa.Connection) -> list[int]:
    return list(connection.execute(sa.select(invoices.c.number)).scalars())


def test_a_store_on_the_callers_engine(store: Store, engine: sa.Engine) -> None:
    things = store["things"]
    assert things.put("a", {"x": [1, {"y": 2}]}) == 1
    assert things.put("a", {"x": [1, {"y": 3}]}) == 2
    assert things.put_many({"b": 1, "c": 2}).inserted_count == 2
    assert [d.id for d in things.find("x.y", 3)] == ["a"]
    assert things.count({'quo"te': None}) == 3
    assert [d.id for d in things.find("x", {"y": 3})] == ["a"]
    assert things.remove("b")
    store.rename("things", "others")
    assert [d.id for d in store["others"].stream()] == ["a", "c"]
    assert store.drop("others")
    store.close()
    with engine.connect() as connection:
        assert numbers(connection) == []


REFUSED: Any = [
    ("replace", ("b", {"x": 1})),
    ("insert", ("b", {"x": 1})),
    ("insert", ("a", {"x": 2})),
    ("if_version", ("a", {"x": 2}, None)),
]


@pytest.mark.each_backend
@pytest.mark.parametrize(("mode", "item"), REFUSED)
def test_a_batch_whose_documents_are_all_refused(store: Store, mode: Any, item: Any) -> None:
    store.drop("refusing")
    things = store["refusing"]
    things.create_index("x", unique=True)
    things.put("a", {"x": 1})
    with pytest.raises(BulkWriteError) as caught:
        things.put_many([item], mode=mode)
    assert [each.id for each in caught.value.result.refused] == [item[0]]
    assert {each.id: each.body for each in things.find()} == {"a": {"x": 1}}


def test_closing_the_store_keeps_the_callers_engine(store: Store, engine: sa.Engine) -> None:
    store["things"].put("a", 1)
    checked_out = engine.pool.checkedout()  # type: ignore[attr-defined]
    assert checked_out == 0
    with pytest.raises(InvalidOption, match="pool of its own"):
        Store(engine=engine, pool_size=3)


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_an_engine_of_any_isolation(engine: sa.Engine, shared_backend: Backend, level: Any) -> None:
    other = sa.create_engine(engine.url, isolation_level=level)
    with Store(engine=other, **shared_backend.options) as store:
        store["things"].put_many({"a": 1, "b": 2})
        with pytest.raises(InvalidBody):
            store["things"].put_many({"c": 1, "d": {1}}, atomic=True)
        assert store["things"].count() == 2
    other.dispose()


def test_an_exhausted_pool_is_a_clear_error(engine: sa.Engine, shared_backend: Backend) -> None:
    small = sa.create_engine(
        engine.url, poolclass=sa.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.1
    )
    with (
        Store(engine=small, busy_timeout=0.5, **shared_backend.options) as store,
        small.connect(),
        pytest.raises(DatabaseBusy, match="no connection free"),
    ):
        store["things"].put("a", 1)
    small.dispose()


def test_documents_commit_with_the_callers_tables(store: Store, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(invoices).values(number=1))
        bound = store.bind(connection)
        assert bound["orders"].put("1", {"total": 12}) == 1
        assert bound["orders"].find("total", 12)[0].id == "1"
        assert [info.name for info in bound.collections()] == ["orders"]
    with engine.connect() as connection:
        assert numbers(connection) == [1]
    assert store["orders"].get("1") == {"total": 12}


def test_documents_roll_back_with_the_callers_tables(store: Store, engine: sa.Engine) -> None:
    store["orders"].put("0", 0)
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:
        connection.execute(sa.insert(invoices).values(number=1))
        bound = store.bind(connection)
        bound["orders"].put("1", {"total": 12})
        bound["orders"].remove("0")
        bound["new"].put("x", 1)
        raise ZeroDivisionError
    with engine.connect() as connection:
        assert numbers(connection) == []
    assert [d.id for d in store["orders"].list()] == ["0"]
    assert [info.name for info in store.collections()] == ["orders"]
    store["new"].put("y", 2)
    assert store["new"].count() == 1


def test_tables_are_created_in_the_callers_transaction(
    engine: sa.Engine, shared_backend: Backend
) -> None:
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        engine.connect() as connection,
    ):
        connection.execute(sa.insert(invoices).values(number=1))
        store.bind(connection)["things"].put("a", 1)
        connection.rollback()
        assert numbers(connection) == []
        connection.rollback()
        assert store["things"].count() == 0
        store.bind(connection)["things"].put("a", 1)
        connection.commit()
        assert store["things"].get("a") == 1


def test_an_error_leaves_the_callers_transaction_usable(store: Store, engine: sa.Engine) -> None:
    store["things"].put("a", 1)
    with engine.begin() as connection:
        bound = store.bind(connection)
        with pytest.raises(KeyError):
            bound.rename("nothing", "b")
        with pytest.raises(InvalidBody):
            bound["things"].put_many({"b": {1}}, atomic=True)
        with pytest.raises(ValueError, match="already"):
            bound["b"].put("x", 1)
            bound.rename("things", "b")
        bound["things"].put("c", 3)
        connection.execute(sa.insert(invoices).values(number=2))
    assert store["things"].get_many(["a", "c"]) == {"a": 1, "c": 3}


def test_savepoints_of_the_caller(store: Store, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        bound = store.bind(connection)
        bound["things"].put("kept", 1)
        with pytest.raises(ZeroDivisionError), connection.begin_nested():
            bound["things"].put("lost", 1)
            raise ZeroDivisionError
    assert [d.id for d in store["things"].list()] == ["kept"]


def test_bind_takes_a_connection_of_the_same_database(store: Store) -> None:
    other = "postgresql+psycopg://x/y" if store.core.database.name == "sqlite" else "sqlite://"
    dialect = sa.create_engine(other).dialect

    class Connection:
        pass

    stranger: Any = Connection()
    stranger.dialect = dialect
    with pytest.raises(InvalidOption, match="connection"):
        store.bind(stranger)


def test_an_engine_in_memory_is_shared_or_rejected() -> None:
    with pytest.raises(InvalidOption, match="StaticPool"):
        Store(engine=sa.create_engine("sqlite://"))
    shared = {"check_same_thread": False}
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args=shared)
    with Store(engine=engine) as store, ThreadPoolExecutor(8) as threads:
        things = store["things"]
        list(threads.map(lambda n: things.put_many({str(n): n, "all": n}), range(100)))
        assert things.count() == 101
        assert things.document("all").version == 100  # type: ignore[union-attr]
    engine.dispose()


def test_an_engine_keeps_its_own_settings(engine: sa.Engine) -> None:
    with pytest.raises(InvalidOption, match="durability"):
        Store(engine=engine, durability="normal")


def test_unsupported_drivers_are_named() -> None:
    pytest.importorskip("psycopg")
    engine = sa.create_engine("postgresql+psycopg://x/y")
    engine.dialect.driver = "another"
    with pytest.raises(InvalidOption, match="its driver is another: use psycopg"):
        Store(engine=engine)


def test_a_mapped_class_queries_and_writes(store: Store, engine: sa.Engine) -> None:
    store["cities"].put("berlin", {"country": {"code": "de"}, "population": 3_900_000, "é": [1.5]})
    store["cities"].put("paris", {"country": {"code": "fr"}, "population": 2_100_000})
    City = store.model("cities")
    german = City.body["country"]["code"].as_string() == "de"
    with Session(engine) as session:
        [city] = session.scalars(sa.select(City).where(german))
        assert (city.id, city.version, city.body["é"]) == ("berlin", 1, [1.5])
        assert city.created_at == store["cities"].document("berlin").created_at  # type: ignore[union-attr]
        codes = session.scalars(sa.select(City.body["country"]["code"]).order_by(City.id)).all()
        assert codes == ["de", "fr"]
        city.body = {**city.body, "mayor": "Kai"}
        session.add(City(id="rome", body={"country": {"code": "it"}}))
        session.commit()
    assert store["cities"].get("berlin")["mayor"] == "Kai"
    assert store["cities"].document("berlin").version == 2  # type: ignore[union-attr]
    rome = store["cities"].document("rome")
    assert rome is not None
    assert (rome.body, rome.version) == ({"country": {"code": "it"}}, 1)
    assert store["cities"].put("rome", None) == 2
    assert [d.id for d in store["cities"].list()] == ["berlin", "paris", "rome"]


@pytest.fixture
def async_engine(engine: sa.Engine) -> AsyncEngine:
    driver = "sqlite+aiosqlite" if engine.dialect.name == "sqlite" else "postgresql+psycopg"
    return create_async_engine(engine.url.set(drivername=driver))


def test_bind_within_an_async_transaction(
    async_engine: AsyncEngine, engine: sa.Engine, shared_backend: Backend
) -> None:
    async def main() -> None:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            await store["things"].put("before", 1)
            async with async_engine.begin() as connection:
                await connection.execute(sa.insert(invoices).values(number=1))
                bound = store.bind(connection)
                await bound["things"].put("a", {"x": [1, {"y": 2}]})
                assert [d.id for d in await bound["things"].find("x", {"y": 2})] == ["a"]
                assert (await bound.collections())[0].count == 2
            with pytest.raises(ZeroDivisionError):
                async with async_engine.begin() as connection:
                    await store.bind(connection)["things"].put("b", 1)
                    raise ZeroDivisionError
            assert [d.id for d in await store["things"].list()] == ["before", "a"]
            Thing = await store.model("things")
            async with async_engine.connect() as connection:
                ids = await connection.execute(sa.select(Thing.id).order_by(Thing.seq))
                assert list(ids.scalars()) == ["before", "a"]
        await async_engine.dispose()

    asyncio.run(main())
    with engine.connect() as connection:
        assert numbers(connection) == [1]


def test_an_async_store_on_the_callers_engine(engine: sa.Engine, shared_backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(engine=engine, **shared_backend.options) as store:
            things = store["things"]
            await asyncio.gather(*(things.put(str(n), n) for n in range(50)))
            assert await things.count() == 50

    asyncio.run(main())
    with pytest.raises(InvalidOption, match="synchronous"):
        AsyncStore(engine=create_async_engine("sqlite+aiosqlite://"))  # type: ignore[arg-type]
