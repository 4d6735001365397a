"""Concurrent writes and expiries: nothing is lost, and results are correct."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from conftest import Clock

from collections_store import (
    Collection,
    DocumentNotFound,
    InvalidProjection,
    Store,
    TransactionConflict,
)
from collections_store.operations import write as writing


class Ticking(Clock):
    """A clock that advances with each read."""

    tick = 0

    def __call__(self) -> int:
        self.now += self.tick
        return self.now


@pytest.fixture
def ticking(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(clock, "__class__", Ticking)
    return clock


@pytest.mark.parametrize("moments", range(1, 9))
def test_a_batch_has_one_time(store: Any, ticking: Any, moments: int) -> None:
    store.create_collection("things", changes=True)
    things = store["things"]
    things.put_many({str(n): n for n in range(20)}, ttl=1)
    ticking.now += 1_000_000 - moments
    ticking.tick = 1
    result = things.put_many({str(n): -n for n in range(20)})
    ticking.tick = 0
    assert result.written_count == things.count() == 20
    recorded = [(change.kind, change.version) for change in things.watch(after="oldest", timeout=0)]
    assert recorded[:20] == [("insert", 1)] * 20
    assert recorded[20:] in ([("update", 2)] * 20, [("expire", 1)] * 20 + [("insert", 1)] * 20)


def engine_store(backend: Backend) -> Store:
    url = backend.url.replace("postgresql:", "postgresql+psycopg:")
    return Store(engine=sa.create_engine(url), **backend.options)


@pytest.fixture(params=["url", "engine"])
def two_stores(request: pytest.FixtureRequest, shared_backend: Backend) -> Any:
    if request.param == "engine":
        stores = [engine_store(shared_backend) for _ in range(2)]
    else:
        stores = [Store(shared_backend.url, **shared_backend.options) for _ in range(2)]
    yield stores
    for store in stores:
        store.close()
        if store.core.engine is not None:
            store.core.engine.dispose()


def both(stores: Any, work: Any, rounds: int) -> list[list[Any]]:
    """Let both stores do the same work at the same time, in rounds."""
    barrier = threading.Barrier(2)

    def run(store: Store) -> list[Any]:
        found = []
        for number in range(rounds):
            barrier.wait(60)
            found.append(work(store, number))
        return found

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, stores))


def test_an_id_is_inserted_once(two_stores: Any) -> None:
    two_stores[0]["things"].put("a", 1)

    def insert(store: Store, number: int) -> int:
        given = {f"{number}-{n}": n for n in range(20)}
        return store["things"].put_many(given, mode="ignore").inserted_count

    one, other = both(two_stores, insert, 40)
    assert [a + b for a, b in zip(one, other, strict=True)] == [20] * 40


def test_a_version_is_replaced_once(two_stores: Any) -> None:
    two_stores[0]["things"].put("a", 0)

    def replace(store: Store, number: int) -> int:
        given = [("a", number, number + 1)]
        try:
            return store["things"].put_many(given, mode="if_version").replaced_count
        except Exception:  # noqa: BLE001 - a conflict: the version has changed
            return 0

    one, other = both(two_stores, replace, 60)
    assert [a + b for a, b in zip(one, other, strict=True)] == [1] * 60


def test_delete_one_deletes_what_matches(two_stores: Any) -> None:
    taker, deleter = two_stores
    taker["jobs"].put("warm", {})
    number_of = {id(taker): 0, id(deleter): 1}

    def work(store: Store, number: int) -> int:
        if number_of[id(store)]:
            return store["jobs"].delete_one({"state": "new"}).deleted_count
        update = {"$set": {"state": "taken"}}
        return store["jobs"].update_one({"state": "new"}, update).modified_count

    for number in range(60):
        taker["jobs"].put(str(number), {"state": "new"})
        [[taken], [deleted]] = both(two_stores, work, 1)
        assert taken + deleted == 1
        assert taker["jobs"].exists(str(number)) is bool(taken)
        taker["jobs"].remove(str(number))


def test_a_recreated_document_is_another_document(two_stores: Any) -> None:
    one, other = (store["things"] for store in two_stores)
    one.put("a", {"n": 1})
    seen: list[Any] = []

    def add(body: Any) -> Any:
        seen.append(body["n"])
        if len(seen) == 1:
            other.remove("a")
            other.put("a", {"n": 100})
        return {"n": body["n"] + 1}

    assert one.change("a", add) == {"n": 101}
    assert seen == [1, 100]


def test_concurrent_consumers_lose_no_document(two_stores: Any) -> None:
    adder, taker = two_stores
    adder["inbox"].put("warm", [])
    got: list[int] = []
    done = threading.Event()

    def take() -> None:
        while True:
            ended = done.is_set()
            found = taker["inbox"].find_one_and_delete({"$id": "x"})
            if found is not None:
                got.extend(found.body)
            elif ended:
                return

    with ThreadPoolExecutor(1) as threads:
        taking = threads.submit(take)
        for number in range(200):
            adder["inbox"].change("x", lambda body, number=number: [*body, number], default=[])
        done.set()
        taking.result(60)
    assert sorted(got) == list(range(200))


def test_a_failed_projection_writes_nothing(store: Any) -> None:
    things = store["things"]
    things.put("x", {"a": [1]})
    wrong: Any = {"projection": {"a.$": 1}, "return_document": True}
    with pytest.raises(InvalidProjection):
        things.find_one_and_update({"$id": "x"}, {"$set": {"a": [2]}}, **wrong)
    with store.transaction() as tx:
        for method, given in (("update", {"$set": {"a": [2]}}), ("replace", {"a": [2]})):
            with pytest.raises(InvalidProjection):
                getattr(tx["things"], f"find_one_and_{method}")({"$id": "x"}, given, **wrong)
    with pytest.raises(InvalidProjection):
        things.find_one_and_delete({"$id": "x"}, projection={"a.$": 1})
    assert (things.get("x"), things.document("x").version) == ({"a": [1]}, 1)


def test_any_number_of_expired_documents_causes_no_duplicates(
    store: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PURGE_BATCH", 1)
    things = store["things"]
    things.create_index("n", unique=True)
    things.put_many(((str(n), {"n": n}) for n in range(120)), ttl=1)
    things.put("last", {"n": -1}, ttl=2)
    clock.advance(2)
    assert things.put("new", {"n": -1}) == 1
    assert things.count() == 1


def test_nothing_is_inserted_beside_what_another_transaction_deletes(two_stores: Any) -> None:
    writer, deleter = two_stores
    writer["things"].put("ada", {})
    with ThreadPoolExecutor(1) as threads:
        with deleter.transaction() as transaction:
            transaction["things"].remove("ada")
            inserting = threads.submit(writer["things"].insert_one, 1, beside="ada")
            with pytest.raises(TimeoutError):
                inserting.result(0.2)
        with pytest.raises(DocumentNotFound):
            inserting.result(60)
    assert deleter["things"].count() == 0


def test_a_deletion_waits_for_what_is_inserted_beside(two_stores: Any) -> None:
    writer, deleter = two_stores
    writer["things"].put("ada", {})
    with ThreadPoolExecutor(1) as threads:
        with writer.transaction() as transaction:
            transaction["things"].insert_one(1, id="ada/1", beside="ada")
            removing = threads.submit(deleter["things"].remove, "ada")
            with pytest.raises(TimeoutError):
                removing.result(0.2)
        assert removing.result(60)
    assert deleter["things"].exists("ada/1")


def test_update_many_continues_beside_a_writer(two_stores: Any) -> None:
    changer, writer = two_stores
    changer["things"].put_many((str(n), {"n": 0, "m": 0}) for n in range(3000))
    done = threading.Event()

    def write() -> int:
        count = 0
        while not done.is_set():
            writer["things"].increment(str(count * 7 % 3000), "m")
            count += 1
        return count

    with ThreadPoolExecutor(1) as threads:
        writing_on = threads.submit(write)
        result = changer["things"].update_many({}, {"$inc": {"n": 1}})
        done.set()
        count = writing_on.result(60)
    assert result.modified_count == 3000
    [total] = changer["things"].aggregate([{"$group": {"_id": None, "m": {"$sum": "$m"}}}])
    assert (total["m"], changer["things"].count({"n": 1})) == (count, 3000)


@pytest.mark.parametrize("changes", [False, "both"])
def test_delete_many_by_the_matcher_keeps_documents_that_no_longer_match(
    postgres_backend: Backend, monkeypatch: pytest.MonkeyPatch, changes: Any
) -> None:
    """In a caller's READ COMMITTED transaction others change documents between the read and the delete."""
    url = postgres_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url, isolation_level="READ COMMITTED")
    remove_many, others = writing.Writer.remove_many, iter(["once"])
    monkeypatch.setattr("collections_store.operations.update.DELETE_BATCH", 5)
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        things = store.get_sync_collection("things", changes=changes)
        things.put_many({f"{n:02}": {"x": 1} for n in range(40)})

        def among_others(writer: writing.Writer, ids: Any) -> int:
            removed = remove_many(writer, ids)
            for _ in others:
                things.put("20", {"x": -1})
                things.remove("30")
                things.put("30", {"x": -7})
            return removed

        with monkeypatch.context() as patched, engine.begin() as connection:
            patched.setattr(writing.Writer, "remove_many", among_others)
            matcher = {"$expr": {"$gt": ["$x", 0]}}
            deleted = store.bind(connection)["things"].delete_many(matcher).deleted_count
        assert (deleted, {each.id: each.body["x"] for each in things.list()}) == (
            38,
            {"20": -1, "30": -7},
        )
    engine.dispose()


NUMBERS: Any = {"dimensions": 2, "metric": "l2"}
BUILDS: dict[str, Callable[[Collection], Any]] = {
    "create_text_index": lambda things: things.create_text_index("words"),
    "create_vector_index": lambda things: things.create_vector_index("at", **NUMBERS),
    "reindex": lambda things: things.reindex("at", **NUMBERS),
}


@pytest.mark.parametrize("build", BUILDS)
def test_an_index_has_what_a_writer_commits_while_the_index_waits_for_it(
    shared_backend: Backend, build: str
) -> None:
    url, options = shared_backend.url, shared_backend.options
    with Store(url, **options) as store, Store(url, **options) as other:
        store["things"].put("a", {"words": "tea", "at": [0, 0]})
        if build == "reindex":
            other["things"].create_vector_index("at", **NUMBERS)
            assert other["things"].store_vectors() == 0
        with ThreadPoolExecutor() as pool:
            with store.transaction() as tx:
                tx["things"].put("b", {"words": "tea", "at": [1, 0]})
                building = pool.submit(BUILDS[build], other["things"])
                time.sleep(0.3)  # it waits for the lock; else this test shows nothing
                assert not building.done()
            building.result()
        found: Any = (
            other["things"].search("tea")
            if build == "create_text_index"
            else other["things"].nearest([0, 0])
        )
        assert [each.id for each in found] == ["a", "b"]


def test_a_transaction_that_is_older_than_a_text_index(postgres_backend: Backend) -> None:
    url, options = postgres_backend.url, postgres_backend.options
    with Store(url, **options) as store, Store(url, **options) as other:
        store["things"].put_many({"a": {"words": "tea"}, "b": {"words": "tea"}})
        with pytest.raises(TransactionConflict), store.transaction() as tx:
            tx["things"].get("a")  # the snapshot
            other["things"].create_text_index("words")
            tx["things"].put("a", {"words": "milk"})
        store["things"].put("b", {"words": "milk"})
        assert [each.id for each in other["things"].search("tea")] == ["a"]
        assert [each.id for each in other["things"].search("milk")] == ["b"]
