"""Regressions of writing methods that `property/test_stateful.py` found."""

import math
from typing import Any

import pytest

from collections_store import BulkWriteError, DuplicateKey, InsertOne, ReplaceOne, VersionConflict


def test_an_atomic_batch_with_a_rejected_document_writes_nothing(things: Any) -> None:
    things.put("there", 1)
    with pytest.raises(VersionConflict):
        things.put_many([("a", 1, 7), ("b", 1, None)], mode="if_version", atomic=True)
    with pytest.raises(DuplicateKey):
        things.put_many({"a": 1, "there": 2}, mode="insert", atomic=True)
    with pytest.raises(DuplicateKey):
        things.insert_many({"there": 2, "a": 1}, atomic=True)
    with pytest.raises(DuplicateKey):
        things.bulk_write([InsertOne(1, id="a"), InsertOne(2, id="there")], atomic=True)
    assert [tuple(each) for each in things.list()] == [("there", 1)]


def test_an_atomic_batch_from_an_iterator_creates_the_collection(
    store: Any,
) -> None:
    assert len(store["a"].insert_many(iter([1, 2]), atomic=True).inserted_ids) == 2
    assert (
        store["b"].put_many(((str(n), n) for n in range(2500)), atomic=True).written_count == 2500
    )
    requests = (InsertOne(n) for n in range(1200))
    assert store["c"].bulk_write(requests, atomic=True).inserted_count == 1200
    assert [store[name].count() for name in "abc"] == [2, 2500, 1200]


def test_rejected_documents_do_not_block_later_ones(things: Any) -> None:
    things.create_index("k", unique=True)
    things.put_many({"a": {"k": 1}, "c": {"k": 2}})
    given = [("a", {}, None), ("b", {}, None), ("d", {}, None), ("c", {"k": 3}, 1)]
    with pytest.raises(BulkWriteError) as caught:
        things.put_many(given, mode="if_version")
    refused = [(each.id, type(each.error)) for each in caught.value.result.refused]
    assert refused == [("a", VersionConflict), ("d", DuplicateKey)]
    with pytest.raises(BulkWriteError) as caught:
        things.put_many({"a": {"k": 4}, "e": {"k": 4}, "f": {"k": 4}}, mode="insert")
    assert [each.id for each in caught.value.result.refused] == ["a", "f"]
    assert [each.id for each in things.list()] == ["a", "c", "b", "e"]


def test_replacing_by_an_equal_body_is_not_a_modification(things: Any) -> None:
    body = {"long": 1, "b": {"y": [{"zz": 1, "a": 2}], "x": 1.0}, "a": None}
    things.put("a", body)
    assert things.replace_one({"$id": "a"}, body).modified_count == 0
    assert things.update("a", {"$set": {"b": body["b"]}}).modified_count == 0
    assert things.update("a", [{"$replaceWith": {"$literal": body}}]).modified_count == 0
    assert things.bulk_write([ReplaceOne({}, body)]).modified_count == 0
    assert things.find_one_and_replace({}, body, return_document=True).version == 1
    assert things.replace_one({}, {**body, "long": 1.0}).modified_count == 1


def test_touch_changes_only_the_ttl(things: Any) -> None:
    things.put("a", 1, ttl=60)
    before = things.document("a")
    assert not things.touch("b")
    for ttl, lives in ((None, True), (3600, True), (math.inf, False)):
        assert things.touch("a", ttl)
        after = things.document("a")
        assert (after.version, after.updated_us) == (1, before.updated_us)
        assert (after.expires_us is not None) == lives
