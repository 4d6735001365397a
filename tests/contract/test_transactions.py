"""Transactions are atomic, on every backend, sync and async."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend, Opener, SyncAdapter

from collections_store import (
    AsyncStore,
    CollectionExists,
    CollectionNotFound,
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DuplicateKey,
    InvalidBody,
    InvalidOption,
    Store,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
)


class Boom(Exception):
    """Raised to end a context."""


@pytest.fixture(params=["own", "engine"])
def store(request: pytest.FixtureRequest, open_store: Opener, backend: Backend) -> Iterator[Any]:
    """A store on each backend, sync and async, by its URL or on an engine of the caller's."""
    if request.param == "own":
        yield open_store()
        return
    more: dict[str, Any] = {}
    if backend.is_private:
        more = {"poolclass": sa.StaticPool, "connect_args": {"check_same_thread": False}}
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"), **more)
    if open_store.variant == "sync":
        with Store(engine=engine, **backend.options) as plain:
            yield plain
    else:
        with (
            asyncio.Runner() as runner,
            SyncAdapter(AsyncStore(engine=engine, **backend.options), runner) as awaited,
        ):
            yield awaited
    engine.dispose()


def ids(collection: Any) -> list[str]:
    return [document.id for document in collection.list()]


def test_a_transaction_commits_when_its_context_exits(store: Any) -> None:
    store["a"].put("old", 0)
    with store.transaction() as tx:
        assert tx["a"].put("x", {"n": 1}) == 1
        assert tx["b"].put_many({"y": 2, "z": 3}).inserted_count == 2
        assert tx["a"].remove("old")
    assert store["a"].get_many(["old", "x"]) == {"x": {"n": 1}}
    assert ids(store["b"]) == ["y", "z"]


def test_an_exception_rolls_back_and_is_raised(store: Any) -> None:
    store["a"].put("x", 1)
    boom = Boom()
    with pytest.raises(Boom) as caught, store.transaction() as tx:
        tx["a"].put("x", 2)
        tx["a"].put("y", 2)
        tx["new"].put("z", 3)
        raise boom
    assert caught.value is boom
    assert store["a"].document("x").version == 1
    assert ids(store["a"]) == ["x"]
    assert [info.name for info in store.collections()] == ["a"]


def test_a_transaction_reads_its_own_writes(store: Any) -> None:
    store["a"].put_many({str(n): {"n": n} for n in range(120)})
    store["other"].put("5", {"name": "five"})
    with store.transaction() as tx:
        things = tx["a"]
        things.put("new", {"n": 500})
        things.remove("0")
        assert things.get("new") == {"n": 500}
        assert not things.exists("0")
        assert things.count() == 120
        assert [d.id for d in things.stream({"n": {"$gte": 118}})] == ["118", "119", "new"]
        page = things.page(sort="n", limit=100)
        assert len(page.documents) == 100
        assert things.page(sort="n", limit=100, after=page.cursor).documents[-1].id == "new"
        assert things.find_one({"n": 500}).version == 1
        assert things.distinct("n", {"n": {"$gt": 118}}) == [119, 500]
        lookup = {"from": "other", "localField": "n", "foreignField": "$id", "as": "found"}
        groups = [{"$match": {"n": 500}}, {"$lookup": lookup}, {"$project": {"found": 1, "n": 1}}]
        assert things.aggregate(groups) == [{"n": 500, "found": []}]
        assert things.delete_many({"n": {"$lt": 100}}).deleted_count == 99
        assert things.count() == 21
    assert store["a"].count() == 21


def test_nested_transactions_are_savepoints(store: Any) -> None:
    with store.transaction() as tx:
        tx["a"].put("1", 1)
        with tx.transaction() as inner:
            inner["a"].put("2", 1)
            with pytest.raises(Boom), inner.transaction() as innermost:
                innermost["a"].put("3", 1)
                innermost["lost"].put("3", 1)
                raise Boom
            assert ids(inner["a"]) == ["1", "2"]
            assert not tx["lost"].exists("3")
        with pytest.raises(Boom), tx.transaction() as inner:
            inner["a"].put("1", 2)
            with inner.transaction() as innermost:
                innermost["a"].put("4", 1)
            assert ids(inner["a"]) == ["1", "2", "4"]
            raise Boom
        assert ids(tx["a"]) == ["1", "2"]
        tx["lost"].put("5", 1)
    assert store["a"].get_many(["1", "2"]) == {"1": 1, "2": 1}
    assert ids(store["lost"]) == ["5"]


def test_the_outer_handle_works_in_a_nested_transaction(store: Any) -> None:
    with store.transaction() as tx:
        things = tx["a"]
        things.put("1", 1)
        with pytest.raises(Boom), tx.transaction(), tx.transaction():
            things.put("2", 1)
            raise Boom
        with tx.transaction(), tx.transaction():
            things.put("3", 1)
    assert ids(store["a"]) == ["1", "3"]


def test_rollback_includes_nested_transactions(store: Any) -> None:
    with pytest.raises(Boom), store.transaction() as tx:
        with tx.transaction() as inner:
            inner["a"].put("1", 1)
        raise Boom
    assert store["a"].count() == 0


def test_a_failed_operation_keeps_the_transaction_usable(store: Any) -> None:
    store["a"].create_index("n", unique=True)
    store["a"].put("there", {"n": 1})
    with store.transaction() as tx:
        tx["a"].put("before", {"n": 2})
        with pytest.raises(DuplicateKey) as caught:
            tx["a"].put("double", {"n": 1})
        assert caught.value.key == {"n": 1}
        with pytest.raises(DuplicateKey):
            tx["a"].put_many({"fine": {"n": 3}, "double": {"n": 2}}, atomic=True)
        with pytest.raises(InvalidBody):
            tx["a"].put("bad", {1})
        with pytest.raises(CollectionNotFound):
            tx.rename("nothing", "b")
        with pytest.raises(CollectionExists):
            tx.create_collection("a")
        with pytest.raises(DuplicateKey):
            tx["b"].put_many({"1": {"n": 1}, "2": {"n": 1}}, atomic=True)
            tx["b"].create_index("n", unique=True)
        assert tx["b"].indexes() == []
        tx["a"].put("after", {"n": 4})
    assert ids(store["a"]) == ["there", "before", "after"]
    assert ids(store["b"]) == ["1", "2"]


def test_collections_are_created_and_dropped_in_a_transaction(store: Any) -> None:
    store["kept"].put("x", 1)
    store["doomed"].put("x", 1)
    with store.transaction() as tx:
        tx.create_collection("made", body_index=False)
        assert tx["made"].put("x", 1) == 1
        assert tx["doomed"].get("x") == 1
        assert tx.drop("doomed")
        assert tx["doomed"].get("x") is None
        assert tx["kept"].get("x") == 1
        tx.rename("kept", "moved")
        assert (tx["kept"].get("x"), tx["moved"].get("x")) == (None, 1)
        tx["kept"].put("another", 2)
        tx["made"].create_index("n")
        assert [info.name for info in tx.collections()] == ["kept", "made", "moved"]
    assert [info.name for info in store.collections()] == ["kept", "made", "moved"]
    assert ids(store["kept"]) == ["another"]
    assert store["doomed"].get("x") is None
    assert [index.name for index in store["made"].indexes()] == ["n_1"]


def test_a_rollback_restores_collections(store: Any) -> None:
    store["kept"].put("x", 1)
    for _ in range(3):
        with pytest.raises(Boom), store.transaction() as tx:
            tx["made"].put("x", 1)
            tx["made"].create_index("n", unique=True)
            tx.drop("kept")
            tx["kept"].put("y", 1)
            tx.rename("made", "moved")
            assert tx["moved"].get("x") == 1
            raise Boom
        assert [info.name for info in store.collections()] == ["kept"]
        assert ids(store["kept"]) == ["x"]
        assert (store["made"].get("x"), store["moved"].get("x")) == (None, None)
        assert store["made"].indexes() == []
    store["made"].put("a", {"n": 1})
    store["made"].put("b", {"n": 1})
    assert ids(store["made"]) == ["a", "b"]


def test_an_index_created_in_a_transaction_is_used_at_once(store: Any) -> None:
    store["a"].put_many({str(n): {"n": n} for n in range(50)})
    scanning = store["a"].explain({"n": 8}).sql
    with store.transaction() as tx:
        assert tx["a"].create_index("n") == "n_1"
        assert tx["a"].find_one({"n": 7}).id == "7"
    assert [index.name for index in store["a"].indexes()] == ["n_1"]
    assert store["a"].explain({"n": 8}).sql != scanning


def test_a_finished_transaction_raises_an_error(store: Any) -> None:
    with store.transaction() as tx:
        things = tx["a"]
        things.put("1", 1)
        with tx.transaction() as inner:
            inner["a"].put("2", 1)
        with pytest.raises(TransactionEnded, match="the savepoint was released or rolled back"):
            inner["a"].put("3", 1)
    for use in (
        lambda: things.put("4", 1),
        lambda: tx["a"].get("1"),
        tx.collections,
        lambda: list(things.stream()),
        lambda: tx.transaction().__enter__(),
    ):
        with pytest.raises(TransactionEnded, match="is over"):
            use()
    assert ids(store["a"]) == ["1", "2"]
    boom = Boom("so it is")
    with pytest.raises(Boom), store.transaction() as tx:
        raise boom
    with pytest.raises(TransactionEnded, match=r"nothing of it was written: so it is") as caught:
        tx["a"].put("5", 1)
    assert caught.value.__cause__ is boom


def test_nested_transactions_that_end_out_of_order_are_rolled_back(store: Any) -> None:
    with store.transaction() as tx:
        tx["a"].put("1", 1)
        first, second = tx.transaction(), tx.transaction()
        one, two = first.__enter__(), second.__enter__()
        one["a"].put("2", 1)
        two["a"].put("3", 1)
        with pytest.raises(TransactionEnded, match="before one that was set later"):
            first.__exit__(None, None, None)
        tx["a"].put("4", 1)
        with pytest.raises(TransactionEnded, match="before one that was set later"):
            second.__exit__(None, None, None)
        third, fourth = tx.transaction(), tx.transaction()
        third.__enter__()
        fourth.__enter__()["a"].put("5", 1)
        assert not third.__exit__(Boom, Boom(), None)
        assert not fourth.__exit__(Boom, Boom(), None)
    assert ids(store["a"]) == ["1", "4"]


def test_operations_work_after_every_transaction(store: Any) -> None:
    for number in range(30):
        try:
            with store.transaction() as tx:
                tx["a"].put(str(number), number)
                if number % 3:
                    raise Boom
        except Boom:
            pass
        store["a"].put("plain", number)
    assert store["a"].count() == 11
    assert store["a"].document("plain").version == 30


def test_run_transaction_returns_the_result(store: Any) -> None:
    def move(tx: Any) -> str:
        tx["from"].put("x", -1)
        tx["to"].put("x", 1)
        return "moved"

    assert store.run_transaction(move) == "moved"
    assert (store["from"].get("x"), store["to"].get("x")) == (-1, 1)

    def fail(tx: Any) -> None:
        move(tx)
        raise Boom

    with pytest.raises(Boom):
        store.run_transaction(fail)
    assert store["to"].document("x").version == 1


def test_run_transaction_retries_conflicts_only(store: Any) -> None:
    calls: list[str] = []

    def met(tx: Any) -> int:
        calls.append("met")
        tx["a"].put(f"call {len(calls)}", 1)
        if len(calls) < 3:
            raise TransactionConflict("another was faster")
        return len(calls)

    assert store.run_transaction(met) == 3
    assert ids(store["a"]) == ["call 3"]
    calls.clear()
    with pytest.raises(TransactionConflict, match="faster"):
        store.run_transaction(met, attempts=2)
    assert calls == ["met", "met"]

    def wrong(tx: Any) -> None:
        calls.append("wrong")
        tx["a"].put("x", {1})

    with pytest.raises(InvalidBody):
        store.run_transaction(wrong)
    assert calls == ["met", "met", "wrong"]
    assert ids(store["a"]) == ["call 3"]


@pytest.mark.parametrize("attempts", [0, -1, 1.5, True, "2", None])
def test_invalid_options_are_rejected_at_once(open_store: Opener, attempts: Any) -> None:
    store = open_store()
    with pytest.raises(InvalidOption, match="attempts"):
        store.run_transaction(lambda tx: tx["a"].put("x", 1), attempts=attempts)
    with pytest.raises(InvalidOption, match="isolation"):
        store.transaction(isolation="READ UNCOMMITTED")
    with pytest.raises(InvalidOption, match="isolation"):
        store.run_transaction(lambda tx: tx["a"].put("x", 1), isolation="none")
    assert store["a"].count() == 0


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_every_isolation_level_commits(store: Any, isolation: str) -> None:
    with store.transaction(isolation=isolation) as tx:
        tx["a"].put("x", tx["a"].count())
    assert store.run_transaction(lambda tx: tx["a"].get("x"), isolation=isolation) == 0


def test_a_closed_store_begins_nothing(open_store: Opener) -> None:
    store = open_store()
    store["a"].put("x", 1)
    store.close()
    with pytest.raises(StoreClosed), store.transaction():
        raise AssertionError
    with pytest.raises(StoreClosed):
        store.run_transaction(lambda tx: tx["a"].get("x"))


def test_close_rolls_back_open_transactions(open_store: Opener) -> None:
    store = open_store(busy_timeout=0.3)
    store["a"].put("x", 1)
    context = store.transaction()
    tx = context.__enter__()
    tx["a"].put("x", 2)
    store.close()
    with pytest.raises(StoreClosed):
        tx["a"].get("x")
    with pytest.raises(StoreClosed):
        context.__exit__(None, None, None)
    if not open_store.backend.is_private:
        assert open_store()["a"].get("x") == 1


def test_errors_of_the_library_are_raised_unchanged(store: Any) -> None:
    with pytest.raises(CollectionsStoreError, match="missing") as caught, store.transaction() as tx:
        tx["a"].put("x", 1)
        tx.rename("missing", "b")
    assert type(caught.value) is CollectionNotFound
    assert store["a"].count() == 0


def test_nested_transactions_in_a_transaction_of_the_caller(shared_backend: Backend) -> None:
    engine = sa.create_engine(shared_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with Store(engine=engine, **shared_backend.options) as store:
        store["a"].create_index("n", unique=True)
        with engine.begin() as connection:
            tx = store.bind(connection)
            tx["a"].put("1", {"n": 1})
            with pytest.raises(Boom), tx.transaction() as inner:
                inner["a"].put("2", {"n": 2})
                inner["new"].put("2", 2)
                raise Boom
            with tx.transaction() as inner:
                inner["a"].put("3", {"n": 3})
                with pytest.raises(DuplicateKey):
                    inner["a"].put("4", {"n": 1})
            with pytest.raises(TransactionEnded):
                inner["a"].put("5", {"n": 5})
        assert ids(store["a"]) == ["1", "3"]
        with engine.connect() as connection:
            with store.bind(connection).transaction() as inner:
                inner["a"].put("6", {"n": 6})
            connection.rollback()
        assert ids(store["a"]) == ["1", "3"]
    engine.dispose()


def test_nested_transactions_in_an_async_transaction_of_the_caller(shared_backend: Backend) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    drivers = {"sqlite:": "sqlite+aiosqlite:", "postgresql:": "postgresql+psycopg:"}
    url = shared_backend.url
    for short, driver in drivers.items():
        url = url.replace(short, driver, 1)

    async def main() -> None:
        engine = create_async_engine(url)
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            async with engine.begin() as connection:
                tx = store.bind(connection)
                await tx["a"].put("1", 1)
                with pytest.raises(Boom):
                    async with tx.transaction() as inner:
                        await inner["a"].put("2", 2)
                        raise Boom
                async with tx.transaction() as inner:
                    await inner["a"].put("3", 3)
            assert [d.id for d in await store["a"].list()] == ["1", "3"]
        await engine.dispose()

    asyncio.run(main())


def test_a_transaction_that_only_reads_sees_one_moment(open_store: Opener) -> None:
    store = open_store()
    store["a"].put("x", 1)
    if open_store.backend.is_private:
        with store.transaction(read_only=True) as tx:
            assert tx["a"].get("x") == 1
        return
    other = open_store()
    with store.transaction(read_only=True) as tx:
        assert tx["a"].get("x") == 1
        other["a"].put("x", 2)
        store["b"].put("y", 1)
        assert (tx["a"].get("x"), tx["b"].count(), tx["c"].get("z")) == (1, 0, None)
        with tx.transaction() as inner:
            assert inner["a"].get("x") == 1
    assert store.run_transaction(_get, read_only=True) == 2


def _get(tx: Any) -> Any:
    return tx["a"].get("x")


def test_a_transaction_that_only_reads_writes_nothing(store: Any) -> None:
    store["a"].put("x", 1)
    with store.transaction(read_only=True) as tx:
        writes: list[Callable[[], object]] = [
            lambda: tx["a"].put("x", 2),
            lambda: tx["new"].put_many({"y": 2}),
            lambda: tx["a"].delete_many({}),
            lambda: tx.create_collection("new"),
        ]
        for write in writes:
            with pytest.raises(DatabaseError, match="begun with read_only=True"):
                write()
        assert tx["a"].get("x") == 1
    assert [each.name for each in store.collections()] == ["a"]


def test_a_transaction_that_only_reads_waits_for_no_writer(open_store: Opener) -> None:
    if open_store.backend.is_private:
        pytest.skip("its one connection is the writer's")
    store = open_store(busy_timeout=0.3)
    store["a"].put("x", 1)
    other = open_store()
    with other.transaction() as writer:
        writer["a"].put("x", 2)
        with store.transaction(read_only=True) as tx:
            assert tx["a"].get("x") == 1
        with other.transaction(read_only=True) as tx:
            assert tx["a"].get("x") == 1


OWN = "has a transaction open itself"


@pytest.mark.each_backend
@pytest.mark.parametrize("open_store", ["sync"], indirect=True)
def test_a_read_that_would_wait_for_its_own_transaction_is_refused(open_store: Opener) -> None:
    store = open_store(pool_size=1)
    store["a"].put("x", 1)
    with store.transaction(read_only=True) as tx:
        assert tx["a"].get("x") == 1
        with pytest.raises(DatabaseBusy, match=OWN):
            store["a"].get("x")
        if open_store.backend.name == "sqlite-file":
            assert store["a"].put("x", 2) == 2
        assert tx["a"].get("x") == 1


def test_a_read_that_would_wait_for_the_transaction_of_its_task_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(f"sqlite:///{tmp_path / 'a.db'}", pool_size=1) as store:
            await store["a"].put("x", 1)
            async with store.transaction(read_only=True) as tx:
                assert await tx["a"].get("x") == 1
                with pytest.raises(DatabaseBusy, match=OWN):
                    await store["a"].get("x")
                assert await store["a"].put("x", 2) == 2

    asyncio.run(main())


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_read_only_is_checked(store: Any, value: Any) -> None:
    with pytest.raises(InvalidOption, match="read_only: must be True or False"):
        store.run_transaction(_get, read_only=value)
