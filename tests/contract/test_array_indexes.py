"""Unique and compound indexes through arrays: MongoDB's keys, on both databases."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from backends import Backend

from collections_store import (
    BulkWriteError,
    CollectionsStoreError,
    DuplicateKey,
    InsertOne,
    InvalidBody,
    Path,
    Store,
    TransactionConflict,
    UpdateOne,
)

pytestmark = pytest.mark.each_backend


def test_an_element_is_in_one_document(things: Any) -> None:
    assert things.create_index("tags", unique=True, arrays=True) == "tags_arrays"
    things.put("1", {"tags": ["a", "a", 1, [2]]})  # unique among documents, not within one
    elements: list[Any] = [["b", "a"], "a", [1.0], 1, [[2]]]
    for taken in elements:
        with pytest.raises(DuplicateKey) as caught:
            things.put("2", {"tags": taken})
        assert (caught.value.index, caught.value.id) == ("tags_arrays", "2")
    assert caught.value.key == {"tags": [2]}
    things.put("2", {"tags": ["b", True, "1", 2]})
    things.put("1", {"tags": ["c"]})
    things.put("3", {"tags": ["a", 1]})
    things.remove("3")
    things.put("4", {"tags": ["a", 1]})


def test_missing_is_null_and_an_empty_array_is_neither(things: Any) -> None:
    things.create_index("a.b", unique=True, arrays=True)
    things.put("null", {"a": [5]})
    missing: list[Any] = [{}, {"a": None}, {"a": []}, {"a": [{"b": 1}, {}]}, 7, [{"a": 1}]]
    for taken in missing:
        with pytest.raises(DuplicateKey) as caught:
            things.put("other", taken)
        assert caught.value.key == {"a.b": None}
    things.put("empty", {"a": {"b": []}})
    with pytest.raises(DuplicateKey) as caught:
        things.put("other", {"a": [{"b": 1}, {"b": []}]})
    assert caught.value.key == {"a.b": []}
    things.put("nested", {"a": {"b": [[]]}})


def test_the_fields_of_an_element_belong_together(things: Any) -> None:
    things.create_index(
        [("items.sku", 1), ("items.size", -1), ("shop", 1)], unique=True, arrays=True
    )
    things.put("1", {"shop": 1, "items": [{"sku": 1, "size": 1}, {"sku": 2, "size": 2}]})
    things.put("2", {"shop": 1, "items": [{"sku": 1, "size": 2}, {"sku": 2, "size": 1}]})
    things.put("3", {"shop": 2, "items": [{"sku": 1, "size": 1}]})
    with pytest.raises(DuplicateKey) as caught:
        things.put("4", {"shop": 1, "items": {"sku": 2, "size": [5, 2]}})
    assert caught.value.key == {"items.sku": 2, "items.size": 2, "shop": 1}


@pytest.mark.parametrize("unique", [True, False])
def test_two_arrays_side_by_side_are_refused(store: Any, unique: bool) -> None:
    things = store["things"]
    name = things.create_index(["a.b", "a.c", "d"], unique=unique, arrays=True)
    assert name == "a.b_1_a.c_1_d_1_arrays"
    things.put("1", {"a": [{"b": [1], "c": 2}, {"b": 3, "c": [4]}], "d": 1})
    for body in ({"a": [], "d": list[int]()}, {"a": [{"b": 1}], "d": [1]}):
        with pytest.raises(InvalidBody, match=f"document '2': at 'd': the index '{name}'"):
            things.put("2", body)
    with pytest.raises(BulkWriteError) as caught:
        things.put_many([("3", {"a": {"b": [1], "c": [1]}}), ("4", {"d": 4})])
    [refused] = caught.value.result.refused
    assert (refused.id, type(refused.error)) == ("3", InvalidBody)
    with pytest.raises(InvalidBody), store.transaction() as transaction:
        transaction["things"].update("4", {"$set": {"d": [5], "a": [1]}})
    assert things.get("4") == {"d": 4}
    assert sorted(document.id for document in things.find()) == ["1", "4"]


WRITES: list[Callable[[Any], Any]] = [
    lambda c: c.put("other", {"t": [9, 1]}),
    lambda c: c.put_many({"other": {"t": [9, 1]}}, atomic=True),
    lambda c: c.put_many({"new": {"t": [9, 1]}}, mode="insert"),
    lambda c: c.insert_many([{"t": [9]}, {"t": [8, 1]}]),
    lambda c: c.update("other", {"$push": {"t": 1}}),
    lambda c: c.update_one({"t": 2}, {"$set": {"t.0": 1}}),
    lambda c: c.update_many({}, {"$addToSet": {"t": 1}}),
    lambda c: c.find_one_and_replace({"t": 2}, {"t": 1}),
    lambda c: c.bulk_write([InsertOne({"t": [7]}), UpdateOne({"t": 2}, {"$push": {"t": 1}})]),
    lambda c: c.change("other", lambda body: {"t": [*body["t"], 1]}),
    lambda c: c.increment("other", "t.0", -1),
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("within", ["nothing", "a transaction"])
@pytest.mark.parametrize("changes", [False, True])
def test_every_write_names_the_duplicate(
    store: Any, write: Callable[[Any], Any], within: str, changes: bool
) -> None:
    things = store.collection("things", changes=changes)
    things.create_index("t", unique=True, arrays=True)
    things.put("first", {"t": [1]})
    things.put("other", {"t": [2]})
    with pytest.raises(CollectionsStoreError) as caught:
        if within == "nothing":
            write(things)
        else:
            with store.transaction() as transaction:
                write(transaction["things"])
    error: Any = caught.value
    if isinstance(error, BulkWriteError):
        [refused] = error.result.refused
        error = refused.error
    assert isinstance(error, DuplicateKey)
    assert error.key == {"t": 1}
    assert things.get("first") == {"t": [1]}
    assert things.get("other") == {"t": [2]}


def test_an_expired_document_is_no_duplicate(things: Any, clock: Any) -> None:
    things.create_index("t", unique=True, arrays=True)
    things.put("1", {"t": [1, 2]}, ttl=10)
    clock.advance(11)
    things.put("2", {"t": [2, 3]})


def test_duplicates_prevent_the_index(things: Any) -> None:
    things.put_many({"1": {"t": [1, 2]}, "2": {"t": [2], "u": [1]}})
    with pytest.raises(DuplicateKey) as caught:
        things.create_index("t", unique=True, arrays=True)
    assert (caught.value.id, caught.value.key) == ("2", {"t": 2})
    with pytest.raises(InvalidBody, match="document '2'"):
        things.create_index(["t", "u"], arrays=True)
    assert things.indexes() == []
    things.put("2", {"t": [3]})
    things.create_index("t", unique=True, arrays=True)


def test_a_long_array(things: Any) -> None:
    """The keys take time in proportion to the elements: a test of the whole body for each would take seconds."""
    things.create_index(["t", "u"], unique=True, arrays=True)
    things.put("1", {"t": list(range(40_000)), "u": 1})
    things.put("2", {"t": 1, "u": list(range(2, 40_000))})
    with pytest.raises(DuplicateKey) as caught:
        things.put("3", {"t": [39_999], "u": 1})
    assert caught.value.key == {"t": 39_999, "u": 1}
    with pytest.raises(DuplicateKey):
        things.put("3", {"t": 1, "u": [39_999]})


def test_keys_may_hold_any_characters(things: Any) -> None:
    odd = [Path("a); END %:b", "it's"), Path("é\\n", "$i"), Path("%s")]
    things.create_index([(each, 1) for each in odd], unique=True, arrays=True)
    body = {"a); END %:b": [{"it's": "100%"}], "é\\n": {"$i": "%(x)s"}, "%s": "'"}
    things.put("1", body)
    with pytest.raises(DuplicateKey) as caught:
        things.put("2", {**body, "a); END %:b": {"it's": [1, "100%"]}})
    assert list(caught.value.key.values()) == ["100%", "%(x)s", "'"]
    things.update("1", {"$set": {"%s": '"'}})
    things.put("2", body)


def test_the_index_follows_its_collection(store: Any) -> None:
    for _ in range(2):
        store["one"].create_index("t", unique=True, arrays=True)
        store["one"].put("x", {"t": ["y"]})
        store.rename("one", "two")
        with pytest.raises(DuplicateKey):
            store["two"].put("z", {"t": ["y"]})
        store["two"].create_index("u", unique=True, arrays=True)
        assert store["two"].drop_index("t_arrays")
        store["two"].put("z", {"t": ["y"], "u": 1})
        assert store.drop("two")


def test_a_copy_has_the_index(shared_backend: Backend) -> None:
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        Store("sqlite://") as target,
    ):
        store["things"].create_index(["t", "u"], unique=True, arrays=True)
        store["things"].put("1", {"t": [1, 2]})
        store.copy_to(target)
        assert target["things"].indexes() == store["things"].indexes()
        with pytest.raises(DuplicateKey):
            target["things"].put("2", {"t": [2]})


def test_an_index_of_arrays_may_be_beside_a_unique_one(things: Any) -> None:
    things.create_index("t", arrays=True)
    assert things.create_index("t", unique=True, arrays=True, name="other") == "other"
    assert [str(each) for each in things.indexes()] == [
        "t_arrays: {'t': 1}, arrays",
        "other: {'t': 1}, unique, arrays",
    ]
    things.put("1", {"t": [1, 2]})
    assert things.count({"t": 2}) == 1
    assert things.drop_index("other")
    assert things.count({"t": 2}) == 1


JOINT: list[Any] = [
    {"tags": "t7", "at": {"$gt": 4900}},
    {"tags": {"$in": ["t7", "t8"]}, "at": 4007},
    {"at": {"$gte": 4800, "$lt": 4990}, "tags": "t7", "n": {"$ne": 5}},
    {"items": {"$elemMatch": {"sku": "s7", "size": {"$lt": 3}}}},
    {"items": {"$elemMatch": {"size": 4, "sku": {"$regex": "^s399"}}}},
]
APART: list[Any] = [
    {"items.sku": "s7", "items.size": 1},
    {"tags": "t7", "at": None},
    {"tags": {"$gte": "t7"}, "$or": [{"at": 7}, {"at": 8}]},
    {"at": 7},
]


def test_a_compound_index_serves_conditions_on_all_its_fields(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        check_joint(store.create_collection("things", body_index=False), shared_backend.url)


def check_joint(things: Any, url: str) -> None:
    items = [{"sku": f"s{n}", "size": n % 5} for n in range(5003)]
    things.put_many(
        (str(n), {"tags": [f"t{n % 100}", f"t{n % 70}", n], "at": n, "items": items[n : n + 3]})
        for n in range(5000)
    )
    before = [[each.id for each in things.find(filter)] for filter in (*JOINT, *APART)]
    tags = things.create_index([("tags", 1), ("at", -1)], arrays=True)
    sizes = things.create_index(["items.sku", "items.size"], arrays=True)
    if not url.startswith("sqlite"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
    for filter in JOINT:
        assert things.explain(filter).indexes == (sizes if "items" in filter else tags,), filter
        assert not things.explain(filter).scans
    assert [[each.id for each in things.find(filter)] for filter in (*JOINT, *APART)] == before
    assert [things.count(each) for each in (*JOINT, *APART)] == [len(each) for each in before]
    assert things.delete_many(JOINT[0]).deleted_count == len(before[0])
    assert things.count(JOINT[0]) == 0


def test_a_transaction_older_than_the_index_conflicts(shared_backend: Backend) -> None:
    """Its snapshot has none of the keys to delete."""
    if not shared_backend.is_postgresql:
        pytest.skip("an SQLite file has one writer at a time")
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store["things"]
        things.put_many({"1": {"t": [1]}, "2": {"t": [2]}})
        with pytest.raises(TransactionConflict), store.transaction() as older:
            assert older["things"].count() == 2
            things.create_index("t", unique=True, arrays=True)
            older["things"].put("1", {"t": [3]})
        things.put("2", {"t": [3]})
        with pytest.raises(DuplicateKey):
            things.put("3", {"t": [1]})
