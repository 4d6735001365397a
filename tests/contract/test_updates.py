"""Methods that update documents, on every backend, sync and async. tests/unit/update and tests/conformance test the
operators.
"""

import re
from typing import Any

import pytest

from collections_store import (
    DeleteOne,
    Document,
    DuplicateKey,
    F,
    InvalidBody,
    InvalidFilter,
    InvalidId,
    InvalidOption,
    InvalidProjection,
    InvalidSort,
    InvalidUpdate,
    Path,
    ReturnDocument,
    Update,
    UpdateMany,
    UpdateOne,
    UpdateRefused,
    UpdateResult,
    VersionConflict,
)
from collections_store.codec import Codec
from collections_store.operations import read as reading
from collections_store.operations.procedures import BULK_BATCH
from collections_store.operations.update import Modification, ModifyMany
from collections_store.query.filter import Filter

pytestmark = pytest.mark.each_backend

PEOPLE = {
    "ada": {"name": "Ada", "age": 36, "likes": ["tea", "chess"], "in": {"city": "London"}},
    "bob": {"name": "Bob", "age": 20, "likes": ["tea"], "in": {"city": "Paris"}},
    "eve": {"name": "Eve", "age": 30, "likes": [], "in": {"city": "Paris"}},
}


@pytest.fixture
def people(things: Any) -> Any:
    things.put_many(PEOPLE)
    return things


def bodies(things: Any) -> dict[str, Any]:
    return {each.id: each.body for each in things.list()}


def test_update_by_id(people: Any) -> None:
    result = people.update("ada", {"$inc": {"age": 1}, "$push": {"likes": "go"}})
    assert result == UpdateResult(1, 1, None)
    assert people.get("ada") == PEOPLE["ada"] | {"age": 37, "likes": ["tea", "chess", "go"]}
    assert people.document("ada").version == 2
    assert people.update("nobody", {"$set": {"age": 1}}) == UpdateResult(0, 0, None)
    assert not people.exists("nobody")
    filters = [{"it": {"$gte": "d"}}]
    people.update("ada", {"$set": {"likes.$[it]": "x"}}, array_filters=filters)
    assert people.get("ada")["likes"] == ["x", "chess", "x"]


def test_a_body_above_a_lower_limit_can_be_made_smaller(open_store: Any) -> None:
    if open_store.backend.is_private:
        pytest.skip("nothing is left of it")
    with open_store() as store:
        store["things"].put("a", {"kept": 1, "long": "x" * 200})
    things = open_store(max_body=100)["things"]
    with pytest.raises(InvalidBody, match="more than the limit of 100"):
        things.update("a", {"$inc": {"kept": 1}})
    assert things.update("a", {"$unset": {"long": ""}}).modified_count == 1
    assert things.get("a") == {"kept": 1}


def test_update_by_id_upserts(people: Any) -> None:
    update = {"$set": {"a.b": 1}, "$setOnInsert": {"new": True}}
    assert people.update("x", update, upsert=True) == UpdateResult(0, 0, "x")
    assert people.update("x", update, upsert=True) == UpdateResult(1, 0, None)
    assert people.get("x") == {"a": {"b": 1}, "new": True}
    with pytest.raises(InvalidId):
        people.update("\0", update, upsert=True)
    assert people.update("", update, upsert=True).upserted_id == ""
    assert people.insert_one(1, id="é").inserted_id == "é"


def test_update_one_updates_the_first_match(people: Any) -> None:
    assert people.update_one({"in.city": "Paris"}, {"$set": {"age": 0}}).modified_count == 1
    assert people.get("bob")["age"] == 0
    people.update_one({}, {"$set": {"oldest": True}}, sort=[("age", -1)])
    assert people.get("ada")["oldest"] is True
    people.update_one(F("age") > 25, {"$unset": {"name": ""}}, sort="age")
    assert "name" not in people.get("eve")
    assert people.update_one({"age": 99}, {"$set": {"x": 1}}) == UpdateResult(0, 0, None)


def test_update_one_updates_the_matched_element(people: Any) -> None:
    people.update_one({"likes": "chess"}, {"$set": {"likes.$": "go"}})
    assert people.get("ada")["likes"] == ["tea", "go"]
    with pytest.raises(UpdateRefused) as caught:
        people.update_one({"name": "Eve"}, {"$set": {"likes.$": "go"}})
    assert caught.value.id == "eve"


@pytest.mark.parametrize("wanted", [re.compile("^b"), [1], {"k": 1}])
def test_the_matched_element_of_an_in_with_one_value(things: Any, wanted: Any) -> None:
    element = "bb" if isinstance(wanted, re.Pattern) else wanted
    things.put("1", {"a": ["x", element, "y"]})
    assert things.find({"a": {"$in": [wanted]}}, projection={"a.$": 1})[0].body == {"a": [element]}
    things.update_many({"a": {"$in": [wanted]}}, {"$set": {"a.$": "met"}})
    assert things.get("1") == {"a": ["x", "met", "y"]}
    filter = Filter.parse({"a": {"$nin": [wanted]}})
    assert Filter.parse(filter.to_json()) == filter


def test_update_many(people: Any) -> None:
    assert people.update_many({"likes": "tea"}, {"$pull": {"likes": "tea"}}) == UpdateResult(2, 2)
    assert [body["likes"] for body in bodies(people).values()] == [["chess"], [], []]
    assert people.update_many({}, {"$max": {"age": 30}}) == UpdateResult(3, 1)
    assert people.update_many(
        {}, [{"$set": {"twice": {"$add": ["$age", "$age"]}}}]
    ) == UpdateResult(3, 3)
    assert [body["twice"] for body in bodies(people).values()] == [72, 60, 60]
    assert [each.version for each in people.list()] == [3, 4, 2]


def test_update_many_is_all_or_nothing(people: Any) -> None:
    people.put("zoe", {"age": "young"})
    before = people.list()
    with pytest.raises(UpdateRefused) as caught:
        people.update_many({}, {"$inc": {"age": 1}})
    assert (caught.value.id, caught.value.place) == ("zoe", "age")
    assert people.list() == before


def test_update_many_of_thousands(things: Any) -> None:
    things.put_many((str(n), {"n": n}) for n in range(2500))
    assert things.update_many({"n": {"$gte": 100}}, {"$inc": {"n": 1}}) == UpdateResult(2400, 2400)
    assert [each.body["n"] for each in things.stream()] == [*range(100), *range(101, 2501)]
    assert things.count({"$version": 2}) == 2400


STAMPS: list[Any] = [
    {"$currentDate": {"at": {"$type": "timestamp"}}},
    [{"$set": {"at": "$$NOW"}}],
]


@pytest.mark.parametrize("update", STAMPS, ids=["operator", "pipeline"])
def test_a_call_has_one_time(things: Any, update: Any) -> None:
    things.insert_many({"n": n} for n in range(3 * reading.FIRST_BATCH))
    assert things.update_many({}, update).modified_count == 3 * reading.FIRST_BATCH
    assert len(things.distinct("at")) == 1
    nothing = [DeleteOne({"n": -1})] * BULK_BATCH  # so that the last request is in another batch
    for atomic in (True, False):
        requests = [UpdateOne({"n": n}, [{"$unset": "at"}]) for n in range(3)]
        things.bulk_write(requests)
        requests = [UpdateOne({"n": n}, update) for n in range(3)]
        things.bulk_write([*requests[:2], *nothing, requests[2]], atomic=atomic)
        found = [each.body["at"] for each in things.find({"n": {"$lt": 3}})]
        assert len(found) == 3
        assert len(set(found)) == 1


def test_upserts_by_filter(people: Any) -> None:
    result = people.update_one({"name": "Zoe", "age": {"$gt": 5}}, {"$inc": {"n": 2}}, upsert=True)
    assert (result.matched_count, result.modified_count) == (0, 0)
    assert people.get(result.upserted_id) == {"name": "Zoe", "n": 2}
    query = {"$id": "zed", "in.city": "Rome"}
    assert people.update_many(query, {"$set": {"a": 1}}, upsert=True).upserted_id == "zed"
    assert people.get("zed") == {"in": {"city": "Rome"}, "a": 1}
    assert people.replace_one({"$id": "new"}, [1], upsert=True).upserted_id == "new"
    assert people.get("new") == [1]
    either: Any = {"$or": [{"name": "Tom"}, {"name": {"$in": []}}]}
    tom = people.update_one(either, {"$set": {"a": 1}}, upsert=True).upserted_id
    assert people.get(tom) == {"name": "Tom", "a": 1}
    with pytest.raises(DuplicateKey) as caught:
        people.update_one({"$id": "ada", "name": "Zoe"}, {"$set": {"a": 1}}, upsert=True)
    assert (caught.value.index, caught.value.id) == ("$id", "ada")
    assert people.get("ada") == PEOPLE["ada"]


def test_replace_one(people: Any) -> None:
    before = people.document("bob")
    assert people.replace_one({"age": 20}, {"name": "Bobby"}) == UpdateResult(1, 1)
    after = people.document("bob")
    assert (after.body, after.version) == ({"name": "Bobby"}, 2)
    assert after.created_us == before.created_us
    assert [each.id for each in people.list()] == list(PEOPLE)
    assert people.replace_one({}, None, sort=[("age", -1)]).modified_count == 1
    assert people.get("ada", "none") is None
    with pytest.raises(InvalidUpdate, match="update_one"):
        people.replace_one({}, {"$set": {"a": 1}})
    with pytest.raises(InvalidBody):
        people.replace_one({}, {"a": {1}})


def test_find_one_and_update(people: Any) -> None:
    old = people.find_one_and_update({"age": {"$gt": 25}}, {"$inc": {"age": 1}}, sort="age")
    assert isinstance(old, Document)
    assert (old.id, old.body["age"], old.version) == ("eve", 30, 1)
    after = {"return_document": ReturnDocument.AFTER}
    new = people.find_one_and_update({"$id": "eve"}, {"$inc": {"age": 1}}, **after)
    assert new == people.document("eve")
    assert (new.body["age"], new.version) == (32, 3)
    part = people.find_one_and_update(
        {"likes": "tea"}, {"$set": {"seen": True}}, projection=["name"], **after
    )
    assert (part.id, part.body) == ("ada", {"name": "Ada"})
    assert people.find_one_and_update({"age": 99}, {"$set": {"a": 1}}) is None
    assert people.find_one_and_update({"$id": "x"}, {"$set": {"a": 1}}, upsert=True) is None
    made = people.find_one_and_update({"$id": "y"}, {"$set": {"a": 1}}, upsert=True, **after)
    assert (made.id, made.body, made.version) == ("y", {"a": 1}, 1)


def test_find_one_and_update_of_a_version(people: Any) -> None:
    change = {"$inc": {"age": 1}}
    found = people.find_one_and_update({"name": "Ada"}, change, if_version=1)
    assert (found.version, people.document("ada").version) == (1, 2)
    with pytest.raises(VersionConflict) as caught:
        people.find_one_and_update({"name": "Ada"}, change, if_version=1)
    assert (caught.value.id, caught.value.expected, caught.value.found) == ("ada", 1, 2)
    assert people.document("ada").version == 2
    assert people.find_one_and_update({"name": "X"}, change, if_version=1) is None
    for wrong in ({"if_version": 0}, {"if_version": "1"}, {"if_version": 1, "upsert": True}):
        with pytest.raises(InvalidOption, match="if_version"):
            people.find_one_and_update({"name": "Ada"}, change, **wrong)


def test_update_returns_the_new_version(people: Any) -> None:
    add = {"$inc": {"age": 1}}
    assert people.update("ada", add).version == 2
    assert people.update("ada", {"$set": {"name": "Ada"}}).version == 2
    assert people.update("ada", add, if_version=2).version == 3
    assert people.update_one({"name": "Ada"}, add).version == 4
    assert people.replace_one({"name": "Ada"}, {"name": "Ada"}).version == 5
    assert people.update("new", add, upsert=True).version == 1
    assert people.update_many({"name": "New"}, add, upsert=True).version == 1
    for nothing in (people.update("nobody", add), people.update_many({}, add)):
        assert nothing.version is None
    assert people.document("ada").version == 6


def test_branches_of_or_on_one_field_select_the_element(people: Any) -> None:
    either = {"$or": [{"likes": "chess"}, {"likes": "go"}]}
    assert people.update_one(either, {"$set": {"likes.$": "x"}}).modified_count == 1
    assert people.get("ada")["likes"] == ["tea", "x"]


def test_find_one_and_replace(people: Any) -> None:
    old = people.find_one_and_replace({"in.city": "Paris"}, {"age": 1}, sort=[("age", -1)])
    assert (old.id, old.body) == ("eve", PEOPLE["eve"])
    new = people.find_one_and_replace(
        {"age": 1}, {"age": 2, "name": "E"}, projection={"age": 1}, return_document=True
    )
    assert (new.id, new.body, new.version) == ("eve", {"age": 2}, 3)
    assert people.find_one_and_replace({"age": 99}, {}) is None


def test_find_one_and_delete(people: Any) -> None:
    gone = people.find_one_and_delete({"in.city": "Paris"}, sort="age", projection=["name"])
    assert (gone.id, gone.body) == ("bob", {"name": "Bob"})
    assert people.find_one_and_delete({"$id": "bob"}) is None
    assert list(bodies(people)) == ["ada", "eve"]


MISTAKES: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception]]] = [
    ("update", ("ada", {"$foo": {"a": 1}}), {}, InvalidUpdate),
    ("update", ("ada", {"a": 1}), {}, InvalidUpdate),
    ("update", ("ada", {"$set": {"a": 1, "a.b": 2}}), {}, InvalidUpdate),
    ("update", ("ada", {"$set": {"$id": "x"}}), {}, InvalidUpdate),
    ("update", ("ada", {"$set": {"a": {1}}}), {}, InvalidUpdate),
    ("update", ("ada", {"$set": {"a": 1}}), {"upsert": 1}, InvalidOption),
    ("update", ("ada", {"$inc": {"name": 1}}), {}, UpdateRefused),
    ("update", (5, {"$set": {"a": 1}}), {}, InvalidId),
    ("update_one", (None, {"$set": {"a": 1}}), {}, InvalidFilter),
    ("update_many", (None, {"$set": {"a": 1}}), {}, InvalidFilter),
    ("update_one", ({"a": {"$foo": 1}}, {"$set": {"a": 1}}), {}, InvalidFilter),
    ("update_one", ({}, {"$set": {"a": 1}}), {"sort": 5}, InvalidSort),
    ("update_one", ({}, {"$set": {"a.$[x]": 1}}), {}, InvalidUpdate),
    ("update_one", ({}, {"$set": {"a": 1}}), {"array_filters": [{"x": 1}]}, InvalidUpdate),
    ("update_one", ({"a": 1, "a.b": 2}, {"$set": {"c": 1}}), {"upsert": True}, InvalidUpdate),
    ("update_one", ({"$id": 5}, {"$set": {"c": 1}}), {"upsert": True}, InvalidUpdate),
    ("update_one", ({"$id": "\0"}, {"$set": {"c": 1}}), {"upsert": True}, InvalidFilter),
    ("replace_one", (None, {}), {}, InvalidFilter),
    ("find_one_and_update", ({}, {"$set": {"a": 1}}), {"projection": 5}, InvalidProjection),
    ("find_one_and_update", ({}, {"$set": {"a": 1}}), {"return_document": "after"}, InvalidOption),
    ("find_one_and_replace", ({}, {"$inc": {"a": 1}}), {}, InvalidUpdate),
    ("find_one_and_delete", (None,), {}, InvalidFilter),
    ("increment", ("ada", "age", "1"), {}, InvalidUpdate),
    ("increment", ("ada", "age", True), {}, InvalidUpdate),
    ("increment", ("ada", "age", float("nan")), {}, InvalidUpdate),
    ("increment", ("ada", "", 1), {}, InvalidUpdate),
    ("increment", ("ada", "$id", 1), {}, InvalidUpdate),
    ("increment", ("ada", "likes.$", 1), {}, InvalidUpdate),
    ("increment", ("ada", "likes.$[]", 1), {}, InvalidUpdate),
    ("increment", ("ada", 5, 1), {}, InvalidUpdate),
    ("increment", ("ada", "age", 1), {"initial": None}, InvalidUpdate),
]


@pytest.mark.parametrize(("method", "given", "options", "error"), MISTAKES, ids=str)
def test_an_invalid_update_changes_nothing(
    people: Any, method: str, given: Any, options: Any, error: type[Exception]
) -> None:
    before = people.list()
    with pytest.raises(error):
        getattr(people, method)(*given, **options)
    assert people.list() == before


def test_updates_of_bodies_that_are_not_objects(things: Any) -> None:
    for id, body in (("list", [1]), ("text", "x"), ("null", None)):
        things.put(id, body)
        with pytest.raises(UpdateRefused, match="replace it"):
            things.update(id, {"$set": {"a": 1}})
        assert things.get(id, "none") == body
        assert things.replace_one({"$id": id}, {"a": 1}).modified_count == 1


def test_a_parsed_update_is_reusable(people: Any) -> None:
    older = Update.parse({"$inc": {"age": 1}, "$set": {Path("a.b"): 1}})
    for method in (people.update_many, people.update_one):
        method({}, older)
    assert people.get("ada")["a.b"] == 1
    assert [body["age"] for body in bodies(people).values()] == [38, 21, 31]


def test_updates_respect_unique_indexes(people: Any) -> None:
    people.create_index("name", unique=True)
    before = people.list()
    writes: list[Any] = [
        lambda: people.update("bob", {"$set": {"name": "Ada"}}),
        lambda: people.update_one({"$id": "bob"}, {"$set": {"name": "Ada"}}),
        lambda: people.update_many({"in.city": "Paris"}, {"$set": {"name": "Zoe"}}),
        lambda: people.replace_one({"$id": "bob"}, {"name": "Ada"}),
        lambda: people.find_one_and_update({"$id": "bob"}, {"$set": {"name": "Ada"}}),
        lambda: people.update("x", {"$set": {"name": "Ada"}}, upsert=True),
        lambda: people.change("bob", lambda body: {**body, "name": "Ada"}),
        lambda: people.insert_one({"name": "Ada"}, id="x"),
    ]
    for write in writes:
        with pytest.raises(DuplicateKey) as caught:
            write()
        assert caught.value.id in {"bob", "eve", "x"}
        assert caught.value.index == "name_1"
        assert people.list() == before
    people.create_index("in.n", unique=True, where={"in.n": {"$exists": True}})
    people.increment("ada", "in.n")
    with pytest.raises(DuplicateKey):
        people.increment("bob", "in.n")
    people.update("bob", {"$set": {"in.n": 0}})
    before = people.list()
    with pytest.raises(DuplicateKey) as caught:
        people.increment("bob", "in.n")
    assert caught.value.key == {"in.n": 1}
    assert people.list() == before


def test_errors_of_update_many_name_the_document(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any batch; the values of all documents are not held for that."""
    things = store["things"]
    monkeypatch.setattr(reading, "FIRST_BATCH", 3)
    monkeypatch.setattr(reading, "MAX_BATCH", 3)
    things.put_many({str(n): {"n": n} for n in range(12)})
    things.create_index("k", unique=True, where={"k": {"$exists": True}})
    before = things.list()
    to_seven: Any = [{"$set": {"k": {"$mod": ["$n", 7]}}}]

    def again() -> None:
        with store.transaction() as tx:
            tx["things"].update_many({}, to_seven)

    def bulk() -> None:
        things.bulk_write([UpdateMany({}, to_seven)], atomic=True)

    for write in (lambda: things.update_many({}, to_seven), again, bulk):
        with pytest.raises(DuplicateKey) as caught:
            write()
        assert (caught.value.id, caught.value.key) == ("7", {"k": 0})
        assert things.list() == before
    rules = Modification(Update.parse([{"$set": {"k": "$n"}}]), Codec(), upsert=False, time=0)
    operation = ModifyMany("things", rules, Filter())
    assert store.run(operation).modified_count == 12
    assert operation._written == {}


def test_updates_within_a_transaction(store: Any) -> None:
    store["things"].put_many(PEOPLE)
    with store.transaction() as tx:
        tx["things"].update("ada", {"$inc": {"age": 1}})
        with pytest.raises(UpdateRefused):
            tx["things"].update_many({}, {"$inc": {"name": 1}})
        assert tx["things"].find_one_and_update({}, {"$inc": {"age": 1}}).body["age"] == 37
        assert tx["things"].increment("ada", "age") == 39
        assert tx["things"].change("ada", lambda body: body | {"age": 1})["age"] == 1
        assert tx["things"].put_many({"x": 1}, mode="insert", atomic=True).inserted_count == 1
    assert store["things"].get("ada")["age"] == 1
    assert store["things"].document("ada").version == 5
