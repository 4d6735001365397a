"""`edit`: only what changed is written, also where others wrote meanwhile."""

from itertools import permutations
from typing import Any

import msgspec
import pytest

from collections_store import (
    DocumentNotFound,
    InvalidBody,
    InvalidOption,
    VersionConflict,
)


class Person(msgspec.Struct):
    name: str
    age: int = 0
    likes: list[str] = []
    address: dict[str, str] = {}


@pytest.fixture
def people(store: Any) -> Any:
    return store.collection("people", model=Person)


def test_what_changed_is_written(people: Any, store: Any) -> None:
    store["people"].put("ada", {"name": "ada", "undeclared": 1, "likes": ["tea"]})
    with people.edit("ada") as person:
        person.age = 36
        person.likes.append("cake")
    assert store["people"].get("ada") == {
        "name": "ada",
        "undeclared": 1,
        "likes": ["tea", "cake"],
        "age": 36,
    }
    assert people.document("ada").version == 2


def test_nothing_is_written_if_nothing_changed_or_the_block_fails(people: Any) -> None:
    people.put("ada", Person("ada"))
    with people.edit("ada"):
        pass
    with pytest.raises(LookupError), people.edit("ada") as person:
        person.age = 1
        raise LookupError
    with pytest.raises(InvalidBody, match="at 'age'"), people.edit("ada") as person:
        person.age = "old"
    assert people.document("ada").version == 1
    with pytest.raises(DocumentNotFound), people.edit("bob"):
        pass
    with pytest.raises(InvalidOption, match="attempts"):
        people.edit("ada", attempts=0)


def test_other_fields_that_others_changed_meanwhile_stay(people: Any) -> None:
    people.put("ada", Person("ada", address={"city": "Bonn"}))
    with people.edit("ada") as person:
        person.age = 36
        person.address["street"] = "Long"
        people.update("ada", {"$set": {"name": "Ada", "address.city": "Berlin"}})
    assert people.get("ada") == Person("Ada", 36, [], {"city": "Berlin", "street": "Long"})


@pytest.mark.parametrize(
    "update",
    [
        {"$set": {"age": 5}},
        {"$push": {"likes": "milk"}},
        {"$set": {"likes": []}},
        {"$set": {"address.city": "Ulm"}},
        {"$set": {"address": {}}},
    ],
    ids=str,
)
def test_the_same_field_is_a_conflict(people: Any, update: Any) -> None:
    people.put("ada", Person("ada", 1, ["tea"], {"city": "Bonn"}))
    with pytest.raises(VersionConflict), people.edit("ada") as person:
        person.age, person.likes[0], person.address["city"] = 2, "cake", "Rome"
        people.update("ada", update)
        theirs = people.get("ada")
    assert people.get("ada") == theirs


def test_a_removed_document_and_the_last_attempt_are_conflicts(people: Any) -> None:
    people.put_many({"ada": Person("ada"), "bob": Person("bob")})
    with pytest.raises(VersionConflict), people.edit("ada") as person:
        person.age = 2
        people.remove("ada")
    with pytest.raises(VersionConflict), people.edit("bob", attempts=1) as person:
        person.age = 2
        people.update("bob", {"$set": {"name": "Bob"}})
    assert people.get("bob") == Person("Bob")


def test_an_untyped_body(store: Any) -> None:
    store["things"].put("a", {"n": {"x": 1, "y.z": 2}, "old": True})
    with store["things"].edit("a") as body:
        body["n"]["x"] = 5
        body["n"]["y.z"] = 3
        del body["old"]
    assert store["things"].get("a") == {"n": {"x": 5, "y.z": 3}}
    store["things"].put("list", [1, 2])
    with store["things"].edit("list") as body:
        body.append(3)
    assert store["things"].get("list") == [1, 2, 3]


@pytest.mark.parametrize("invalid", ["raise", "return", "skip"])
def test_a_body_that_does_not_fit_cannot_be_changed(store: Any, invalid: str) -> None:
    store["people"].put("old", {"name": 5})
    people = store.collection("people", model=Person, invalid=invalid)
    with pytest.raises(InvalidBody, match="document 'old': at 'name'"), people.edit("old"):
        pass
    with pytest.raises(InvalidBody, match="document 'old': at 'name'"):
        people.change("old", lambda body: body)


def test_in_a_transaction(store: Any) -> None:
    store["things"].put("a", {"n": 1})
    with store.transaction() as tx, tx["things"].edit("a") as body:
        body["n"] = 2
    assert store["things"].get("a") == {"n": 2}


def test_an_older_schema_version(store: Any) -> None:
    store["people"].put("ada", {"called": "ada"})
    upgrades = {1: lambda body: {"name": body["called"]}}
    people = store.collection("people", model=Person, schema_version=2, upgrades=upgrades)
    with people.edit("ada") as person:
        person.age = 3
    assert store["people"].get("ada") == {"schema_version": 2, "name": "ada", "age": 3}


class Address(msgspec.Struct):
    city: str
    country: str


class Member(msgspec.Struct):
    tags: set[int]
    address: Address = msgspec.field(default_factory=lambda: Address("Bonn", "de"))
    scores: list[int] = msgspec.field(default_factory=lambda: [1, 2])


def test_an_array_that_the_model_reads_in_another_order(store: Any) -> None:
    members = store.collection("members", model=Member)
    for order in permutations([1, 2, 3]):
        store["members"].put("ada", {"tags": [*order]})
        with members.edit("ada") as member:
            member.tags -= {3}
            member.tags |= {11}
        assert members.get("ada").tags == {1, 2, 11}


def test_values_that_the_model_adds_where_none_are_stored(store: Any) -> None:
    members = store.collection("members", model=Member)
    store["members"].put("ada", {"tags": [], "undeclared": 1})
    with members.edit("ada") as member:
        member.address.city = "Ulm"
        member.scores[1] = 3
    address = {"city": "Ulm", "country": "de"}
    changed = {"tags": [], "undeclared": 1, "address": address, "scores": [1, 3]}
    assert store["members"].get("ada") == changed
