"""Expired documents are absent for every method at once; on every backend, sync and async, with a clock that the tests
set.
"""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from backends import Backend
from conftest import Clock

from collections_store import DuplicateKey, InvalidOption, Store, VersionConflict
from collections_store.operations.collections import FindTable

SECOND = 1_000_000


def ids(things: Any, **options: Any) -> list[str]:
    return [each.id for each in things.find({}, **options)]


def test_expired_documents_are_absent_for_every_method(things: Any, clock: Clock) -> None:
    things.create_index("n")
    things.create_index("list", arrays=True)
    things.put("gone", {"n": 1, "list": [1]}, ttl=10)
    things.put("stays", {"n": 2, "list": [2]})
    assert things.get("gone") == {"n": 1, "list": [1]}
    clock.advance(9.999999)
    assert things.count() == 2
    clock.advance(0.000001)
    assert things.get("gone", "none") == "none"
    assert things.document("gone") is None
    assert things.exists("gone") is False
    assert things.get_many(["gone", "stays"]) == {"stays": {"n": 2, "list": [2]}}
    assert [each.id for each in things.list()] == ["stays"]
    assert ids(things, sort="n") == ids(things, sort=[("n", -1)]) == ["stays"]
    assert things.find({"n": {"$lt": 2}}) == things.find({"list": 1}) == []
    assert things.find({"$id": "gone"}) == things.find({"$or": [{"n": 1}, {"x": 1}]}) == []
    assert things.find({"$expr": {"$eq": ["$n", 1]}}) == []
    assert things.find_one("n", 1) is None
    assert (things.count(), things.count({"n": 1}), things.count({"n": {"$gte": 1}})) == (1, 0, 1)
    assert things.distinct("n") == things.distinct("list") == [2]
    assert [each.id for each in things.page(sort="n")] == ["stays"]
    assert [each.id for each in things.stream()] == ["stays"]
    assert things.aggregate([{"$group": {"_id": None, "n": {"$sum": "$n"}}}]) == [
        {"_id": None, "n": 2}
    ]
    assert things.aggregate([{"$count": "n"}]) == [{"n": 1}]
    assert things.aggregate([{"$match": {"n": 1}}]) == []
    assert things.update("gone", {"$set": {"n": 3}}).matched_count == 0
    assert things.update_one({"n": 1}, {"$set": {"n": 3}}).matched_count == 0
    assert things.update_many({}, {"$inc": {"m": 1}}).matched_count == 1
    assert things.find_one_and_update({"n": 1}, {"$set": {"n": 3}}) is None
    assert things.find_one_and_delete({"n": 1}) is None
    assert things.delete_one({"n": 1}).deleted_count == 0
    assert things.delete_many({"n": 1}).deleted_count == 0
    assert things.remove("gone") is False
    assert things.remove_many(["gone"]) == 0
    assert things.touch("gone", ttl=5) is False
    assert things.purge_expired() == 1
    assert things.purge_expired() == 0


COUNTED: list[Any] = [
    {"n": 1},
    {"n": {"$in": [1, 2]}},
    {"n": {"$gte": 1}},
    {"n": {"$ne": 1}},
    {"n": 1, "live": True},
    {"n": 1, "$version": 1},
    {"list": 1},
    {"$or": [{"n": 1}, {"list": 2}]},
    {"$id": {"$in": ["0", "1", "2"]}},
    {"$expires_at": None},
    {"text": {"$regex": "^a.b"}},
    {"$expr": {"$eq": ["$n", 1]}},
    {},
]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("array", [False, True])
def test_expired_documents_are_not_counted(
    things: Any, clock: Clock, indexed: bool, array: bool
) -> None:
    if indexed:
        things.create_index("n")
        things.create_index([("n", 1)], name="some", where={"live": True})
        things.create_index("list", arrays=True)
    for number in range(12):
        body = {"n": number % 3, "live": number % 2 == 0, "list": [number % 3], "text": "axb"}
        things.put(str(number), body, ttl=[None, 1, 3, None][number % 4])
    if array:
        things.put("opened", {"n": [1, 2]}, ttl=2)
        things.put("open", {"n": [1]})
    for _ in range(4):
        there = things.find()
        for filter in COUNTED:
            assert things.count(filter) == len(things.find(filter)), filter
        assert things.count() == len(there)
        clock.advance(1)
    assert things.count() == 6 + array


def test_store_counts_unexpired_documents(store: Any, clock: Clock) -> None:
    store["things"].put("a", 1, ttl=1)
    store["things"].put("b", 1)
    clock.advance(1)
    assert [info.count for info in store.collections()] == [1]


def test_an_expired_id_is_written_as_a_new_document(things: Any, clock: Clock) -> None:
    things.put("a", 1, ttl=1)
    things.put("b", 1)
    things.put("a", 2, ttl=1)
    before = things.document("a")
    clock.advance(1)
    assert things.put("a", 3) == 1
    document = things.document("a")
    assert (document.version, document.expires_at) == (1, None)
    assert document.created_us == clock.now > before.created_us
    assert ids(things) == ["b", "a"]


@pytest.mark.parametrize("way", ["if_absent", "insert_one", "insert", "ignore", "upsert", "update"])
def test_expired_documents_are_inserted_again(things: Any, clock: Clock, way: str) -> None:
    things.put("a", {"n": 1}, ttl=1)
    clock.advance(1)
    match way:
        case "if_absent":
            assert things.put("a", {"n": 2}, if_absent=True) == 1
        case "insert_one":
            assert things.insert_one({"n": 2}, id="a").inserted_id == "a"
        case "insert" | "ignore":
            assert things.put_many({"a": {"n": 2}}, mode=way).inserted_count == 1
        case "upsert":
            result = things.update_one({"$id": "a"}, {"$set": {"n": 2}}, upsert=True)
            assert result.upserted_id == "a"
        case "update":
            assert things.update("a", {"$set": {"n": 2}}, upsert=True).upserted_id == "a"
    assert [(each.id, each.body, each.version) for each in things.list()] == [("a", {"n": 2}, 1)]


def test_documents_that_expire_during_a_batch_cause_no_conflict(store: Any, clock: Clock) -> None:
    clock.tick = 1
    inserted = set()
    for microseconds in range(1, 10):
        store["things"].put("a", 0, ttl=60)
        clock.now = store["things"].document("a").expires_us - microseconds
        with store.transaction() as transaction:
            result = transaction["things"].put_many({"a": 1}, mode="ignore")
        inserted.add(result.inserted_count)
        clock.advance(1)
        assert store["things"].get("a") == (1 if result.inserted_count else None)
    assert inserted == {0, 1}


def test_expired_documents_have_no_version(things: Any, clock: Clock) -> None:
    things.put("a", 1, ttl=1)
    clock.advance(1)
    writes: list[Any] = [
        lambda: things.put("a", 2, if_version=1),
        lambda: things.remove("a", if_version=1),
        lambda: things.update("a", {"$set": {"n": 1}}, if_version=1),
    ]
    for write in writes:
        with pytest.raises(VersionConflict) as caught:
            write()
        assert caught.value.found is None
    assert things.increment("a", "n") == 1
    assert things.change("b", lambda count: count + 1, default=0) == 1


def test_expired_documents_cause_no_duplicates(store: Any, clock: Clock) -> None:
    things = store["things"]
    things.create_index("n", unique=True)
    things.put("old", {"n": 1}, ttl=1)
    with pytest.raises(DuplicateKey):
        things.put("new", {"n": 1})
    clock.advance(1)
    assert things.put("new", {"n": 1}) == 1
    things.put("old", {"n": 2}, ttl=1)
    things.put("other", {"n": 3}, ttl=1)
    clock.advance(1)
    assert things.put_many({"x": {"n": 2}, "y": {"n": 3}}).inserted_count == 2
    things.put("last", {"n": 4}, ttl=1)
    clock.advance(1)
    assert things.update("new", {"$set": {"n": 4}}).modified_count == 1
    with store.transaction() as tx:
        tx["things"].put("inner", {"n": 5}, ttl=1)
        clock.advance(1)
        assert tx["things"].put("other", {"n": 5}) == 1
    assert things.count({"n": 5}) == 1


def test_expired_documents_do_not_prevent_a_unique_index(things: Any, clock: Clock) -> None:
    things.put("a", {"n": 1}, ttl=1)
    things.put("b", {"n": 1})
    with pytest.raises(DuplicateKey):
        things.create_index("n", unique=True)
    clock.advance(1)
    assert things.create_index("n", unique=True) == "n_1"


def test_expiry_time_is_reported(things: Any, clock: Clock) -> None:
    things.put("a", 1, ttl=timedelta(hours=1))
    document = things.document("a")
    assert document.expires_us == clock.now + 3600 * SECOND
    assert document.expires_at == document.updated_at + timedelta(hours=1)
    soon = datetime.fromtimestamp(clock.now / SECOND + 7200, UTC)
    things.put("b", 1)
    assert [each.id for each in things.find({"$expires_at": {"$lt": soon}})] == ["a"]
    assert [each.id for each in things.find({"$expires_at": None})] == ["b"]
    assert things.find_one({"$id": "a"}).expires_at == document.expires_at


def test_put_resets_the_ttl_and_update_keeps_it(things: Any, clock: Clock) -> None:
    things.put("a", {"n": 1}, ttl=10)
    until = clock.now + 10 * SECOND
    clock.advance(5)
    writes: list[Any] = [
        lambda: things.update("a", {"$inc": {"n": 1}}),
        lambda: things.update_many({}, {"$inc": {"n": 1}}),
        lambda: things.replace_one({}, {"n": 7}),
        lambda: things.change("a", lambda body: {"n": body["n"] + 1}),
        lambda: things.increment("a", "n"),
        lambda: things.increment("a", "n", 0.5),
    ]
    for write in writes:
        write()
        assert things.document("a").expires_us == until
    things.put("a", {"n": 1})
    assert things.document("a").expires_at is None


def test_touch(things: Any, clock: Clock) -> None:
    things.put("a", 1, ttl=10)
    before = things.document("a")
    clock.advance(5)
    assert things.touch("a") is True
    touched = things.document("a")
    assert touched.expires_us == clock.now + 10 * SECOND
    assert (touched.version, touched.updated_us) == (1, before.updated_us)
    assert things.touch("a", ttl=100) is True
    clock.advance(50)
    assert things.touch("a") is True
    assert things.document("a").expires_us == clock.now + 100 * SECOND
    assert things.touch("a", ttl=math.inf) is True
    assert things.document("a").expires_at is None
    assert things.touch("a") is True
    assert things.document("a").expires_at is None
    assert things.touch("nothing", ttl=1) is False


def test_default_ttl_of_a_collection(store: Any, clock: Clock) -> None:
    store.create_collection("things", ttl=60)
    things = store["things"]
    things.put("default", 1)
    things.put("own", 1, ttl=5)
    things.put("never", 1, ttl=math.inf)
    things.insert_one(1, id="inserted")
    things.put_many({"many": 1})
    things.update("upserted", {"$set": {"n": 1}}, upsert=True)
    things.increment("counted", "n")
    clock.advance(5)
    assert "own" not in ids(things)
    clock.advance(54)
    assert things.count() == 6
    clock.advance(1)
    assert ids(things) == ["never"]


def test_changed_options_apply_to_later_writes(open_store: Any, clock: Clock) -> None:
    store = open_store()
    others = store if open_store.backend.is_private else open_store()
    store["things"].put("before", 1)
    others["things"].put("other", 1)
    configured = "get_sync_collection" if open_store.variant == "sync" else "get_collection"
    getattr(store, configured)("things", ttl=10)
    others["things"].put("after", 1)
    clock.advance(10)
    assert ids(others["things"]) == ["before", "other"]
    getattr(store, configured)("things", ttl=math.inf)
    others["things"].put("later", 1)
    assert store["things"].document("later").expires_at is None


def test_sliding_expiry(store: Any, clock: Clock) -> None:
    store.create_collection("things", ttl=10, sliding=True)
    things = store["things"]
    things.put("a", {"n": 1})
    things.put("own", {"n": 1}, ttl=100)
    things.put("never", {"n": 1}, ttl=math.inf)
    writes: list[Any] = [
        lambda: things.update_many({}, {"$inc": {"n": 1}}),
        lambda: [things.update(id, {"$inc": {"n": 1}}) for id in ("a", "own", "never")],
        lambda: [things.increment(id, "n") for id in ("a", "own", "never")],
        lambda: [things.change(id, lambda b: {"n": b["n"] + 1}) for id in ("a", "own", "never")],
    ]
    for write in writes:
        clock.advance(9)
        write()
        expected = [clock.now + 10 * SECOND, clock.now + 100 * SECOND, None]
        assert [each.expires_us for each in things.list()] == expected
    clock.advance(10)
    assert ids(things) == ["own", "never"]


@pytest.mark.parametrize(
    "ttl",
    [0, -1, math.nan, -math.inf, True, "5", 1e-9, 1e18, timedelta(0), timedelta(days=-1), [1]],
    ids=repr,
)
def test_invalid_ttls_are_rejected(store: Any, ttl: Any) -> None:
    things = store["things"]
    things.put("a", 1)
    calls: list[Any] = [
        lambda: things.put("b", 1, ttl=ttl),
        lambda: things.touch("a", ttl=ttl),
        lambda: things.put_many({"b": 1}, ttl=ttl),
        lambda: things.insert_one(1, ttl=ttl),
        lambda: store.create_collection("new", ttl=ttl),
    ]
    for call in calls:
        with pytest.raises(InvalidOption, match="ttl"):
            call()
    assert ids(things) == ["a"]
    assert [info.name for info in store.collections()] == ["things"]


def test_purge_of_thousands(things: Any, clock: Clock) -> None:
    things.put_many(((str(n), n) for n in range(2500)), ttl=1)
    things.put("stays", 1)
    clock.advance(1)
    assert things.purge_expired() == 2500
    assert ids(things) == ["stays"]


def test_postgresql_looks_for_expired_documents_by_an_index(postgres_backend: Backend) -> None:
    """Whatever the time is: the plan of a statement that is prepared must not depend on it."""
    with (
        Store(postgres_backend.url, **postgres_backend.options) as store,
        psycopg.connect(postgres_backend.url, autocommit=True) as connection,
    ):
        store["things"].put_many({str(n): {"n": n} for n in range(3000)}, ttl=3600)
        statements = store.run(FindTable("things")).by_id
        connection.execute(f"ANALYZE {store.model('things').__table__}")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        asked = statements.has_expired.replace("%(now)s", "$1")
        connection.execute(f"PREPARE asked (BIGINT) AS {asked}")
        plan = connection.execute("EXPLAIN EXECUTE asked (1)").fetchall()
    assert "Seq Scan" not in str(plan)
