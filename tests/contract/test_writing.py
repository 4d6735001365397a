"""Writing methods: what `property/test_stateful.py` found, and bodies with a field `_id`."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field

from collections_store import (
    BulkWriteError,
    DuplicateKey,
    InsertOne,
    InvalidBody,
    InvalidUpdate,
    Path,
    ReplaceOne,
    UpdateRefused,
    VersionConflict,
)


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


class User(BaseModel):
    key: str = Field(alias="_id")


def test_a_model_with_a_field_for_the_id(store: Any) -> None:
    users = store.collection("users", model=User)
    with pytest.raises(InvalidBody, match=r"beside the body"):
        users.insert_one(User.model_validate({"_id": "ada"}))
    users.put("ada", User.model_validate({"_id": "ada"}))
    assert users.get("ada").key == "ada"


def test_a_body_without_an_id_has_no_field_for_it(things: Any) -> None:
    body = {"_id": "ada", "n": 1}
    writes: list[Callable[[], Any]] = [
        lambda: things.insert_one(body),
        lambda: things.insert_many([body], atomic=True),
        lambda: things.bulk_write([InsertOne(body)], atomic=True),
    ]
    for write in writes:
        with pytest.raises(InvalidBody, match=r"_id.*beside the body, got 'ada' in it.*id=…"):
            write()
    with pytest.raises(BulkWriteError) as caught:
        things.insert_many([{"n": 1}, body])
    assert isinstance(caught.value.result.refused[0].error, InvalidBody)
    assert things.count() == 1
    with pytest.raises(InvalidUpdate, match="'_id': the id is beside the body"):
        things.replace_one({}, body)
    with pytest.raises(InvalidUpdate, match="'_id'"):
        things.bulk_write([ReplaceOne({}, body, upsert=True)], atomic=True)
    # nested, or beside an id that the call gives, it is a field as any other
    things.insert_one({"_ids": "_id", "in": {"_id": 1}})
    things.put("a", body)
    things.insert_one(body, id="b")
    things.insert_many({"c": body})
    assert things.change("c", lambda old: old | {"n": 2}) == {"_id": "ada", "n": 2}
    with things.edit("c") as edited:
        edited["_id"], edited["n"] = "eve", 3
    assert things.get("c") == {"_id": "eve", "n": 3}


def test_an_update_does_not_write_an_id(things: Any) -> None:
    things.put_many({"a": {"n": 1}, "b": {"n": 2, "_id": 7}})
    for update in (
        {"$set": {"_id": "x"}},
        {"$unset": {"_id.x": 1}},
        {"$rename": {"n": "_id"}},
        {"$setOnInsert": {"_id": "x"}},
        [{"$set": {"_id": "x"}}],
        [{"$replaceWith": {"_id": 8}}],
    ):
        with pytest.raises((InvalidUpdate, UpdateRefused), match=r"_id"):
            things.update_many({}, update)
    assert things.update_many({}, {"$inc": {"n": 1}}).modified_count == 2
    assert things.update_many({}, [{"$set": {"n": 9}}]).modified_count == 2
    assert things.get("b") == {"n": 9, "_id": 7}
    assert things.update_one({"$id": "b"}, {"$unset": {Path("_id"): 1}}).modified_count == 1
    assert things.get("b") == {"n": 9}
