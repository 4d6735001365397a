"""Duplicates of unique indexes: every writing method raises a public, clear error."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from collections_store import (
    BulkWriteError,
    Collection,
    CollectionsStoreError,
    DuplicateKey,
    InsertOne,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
    errors,
)

pytestmark = pytest.mark.each_backend

IN_ARRAY = {"items": [{"sku": 2}], "n": 1}
"""Has the value within an array; it counts as null."""
SET = {"$set": IN_ARRAY}
OTHER = {"$id": "other"}


def edit(things: Any) -> None:
    with things.edit("other") as body:
        body["items"] = IN_ARRAY["items"]


WRITES: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "put": (lambda c: c.put("other", IN_ARRAY), lambda c: c.put("new", IN_ARRAY)),
    "put_many": (
        lambda c: c.put_many({"other": IN_ARRAY, "third": {"items": {"sku": 3}}}),
        lambda c: c.put_many({"new": IN_ARRAY}, mode="insert", atomic=True),
    ),
    "insert_one": (lambda c: c.insert_one(IN_ARRAY),),
    "insert_many": (
        lambda c: c.insert_many([IN_ARRAY, {"items": {"sku": 9}}]),
        lambda c: c.insert_many([IN_ARRAY], atomic=True),
    ),
    "update": (
        lambda c: c.update("other", SET),
        lambda c: c.update("new", SET, upsert=True),
    ),
    "update_one": (
        lambda c: c.update_one(OTHER, SET),
        lambda c: c.update_one({"$id": "new"}, SET, upsert=True),
    ),
    "update_many": (
        lambda c: c.update_many(OTHER, SET),
        lambda c: c.update_many({"$id": "new"}, SET, upsert=True),
    ),
    "replace_one": (
        lambda c: c.replace_one(OTHER, IN_ARRAY),
        lambda c: c.replace_one({"$id": "new"}, IN_ARRAY, upsert=True),
    ),
    "find_one_and_update": (lambda c: c.find_one_and_update(OTHER, SET),),
    "find_one_and_replace": (lambda c: c.find_one_and_replace(OTHER, IN_ARRAY),),
    "bulk_write": (
        lambda c: c.bulk_write([InsertOne(IN_ARRAY), InsertOne({"items": 1})]),
        lambda c: c.bulk_write([UpdateOne(OTHER, SET), ReplaceOne(OTHER, IN_ARRAY)], ordered=False),
        lambda c: c.bulk_write([UpdateMany(OTHER, SET)], atomic=True),
    ),
    "increment": (lambda c: c.increment("new", "n"),),
    "change": (lambda c: c.change("other", lambda _: IN_ARRAY),),
    "edit": (edit,),
    "create_index": (lambda c: c.create_index("shared.value", unique=True),),
}
READS = {
    *("aggregate", "count", "distinct", "document", "exists", "explain", "find", "find_one"),
    *("get", "get_many", "id_prefixes", "indexes", "list", "page", "search", "stream"),
    *("explain_aggregate", "stream_aggregate"),
    *("nearest", "search_backlog"),
    "watch",
}
HARMLESS = {
    *(
        "create_text_index",
        "create_vector_index",
        "reindex",
        "store_vectors",
        "delete_many",
        "delete_one",
        "drop_index",
        "hide_index",
        "unhide_index",
        "find_one_and_delete",
        "purge_expired",
    ),
    *("remove", "remove_many", "touch", "with_options"),
}
"""Methods that no unique index can reject."""
ELSEWHERE = {"upgrade_documents"}
"""It needs a schema version: `test_schema_versions` tests it."""


def test_every_writing_method_is_tested() -> None:
    public = {n for n, v in vars(Collection).items() if not n.startswith("_") and callable(v)}
    assert public == {*WRITES, *READS, *HARMLESS, *ELSEWHERE}


def refusals(error: CollectionsStoreError) -> list[CollectionsStoreError]:
    """Return the rejected documents of an error."""
    return [r.error for r in error.result.refused] if isinstance(error, BulkWriteError) else [error]


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("within", ["nothing", "a transaction"])
def test_values_in_arrays_count_as_null(store: Any, method: str, within: str) -> None:
    things = store["things"]
    things.create_index("items.sku", unique=True)
    things.put("first", {"items": [{"sku": 1}], "shared": [{"value": 1}]})
    things.put("other", {"items": {"sku": 5}, "shared": [{"value": 2}]})
    for write in WRITES[method]:
        with pytest.raises(CollectionsStoreError) as caught:
            if within == "nothing":
                write(things)
            else:
                with store.transaction() as transaction:
                    write(transaction["things"])
        for each in (caught.value, *refusals(caught.value)):
            assert type(each) is getattr(errors, type(each).__name__)
            assert "\n" not in str(each)
        for each in refusals(caught.value):
            assert isinstance(each, DuplicateKey)
            assert method == "increment" or "values in arrays count as null" in str(each)
    assert things.get("first") == {"items": [{"sku": 1}], "shared": [{"value": 1}]}
    assert things.get("other") == {"items": {"sku": 5}, "shared": [{"value": 2}]}


def test_missing_values_are_duplicates(things: Any) -> None:
    things.create_index("items.sku", unique=True)
    firsts = [[1], 5, None, {}, {"items": [7]}, {"items": []}, "x"]
    seconds = [[1], {}, {"items": [{"sku": 1}]}, {"items": {"sku": None}}]
    for first, second in itertools.product(firsts, seconds):
        things.put("first", first)
        with pytest.raises(DuplicateKey) as caught:
            things.put("second", second)
        assert (caught.value.id, caught.value.key) == ("second", {"items.sku": None})


def test_documents_with_arrays_can_be_left_out(things: Any) -> None:
    things.create_index("items.sku", unique=True, where={"items.sku": {"$exists": True}})
    things.put_many({"a": {"items": [{"sku": 1}]}, "b": {"items": [{"sku": 1}]}})
    things.put("c", {"items": {"sku": 1}})
    with pytest.raises(BulkWriteError) as caught:
        things.put_many([("d", {"items": [{"sku": 1}]}), ("e", {"items": {"sku": 1}})])
    assert [each.id for each in caught.value.result.refused] == ["e"]
    assert things.count({"items.sku": 1}) == 4
