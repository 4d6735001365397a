"""The types of typed collections; mypy and pyright (`nox -s types`) are the tests. Each ignored line must be an error."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from collections_store import (
    AsyncChangeDocumentStream,
    AsyncChangeStream,
    AsyncCollection,
    AsyncStore,
    Change,
    ChangeDocumentStream,
    ChangeStream,
    Collection,
    Document,
    F,
    Invalid,
    ModelSettings,
    Page,
    Store,
    Transaction,
    VersionSettings,
)


@dataclass
class Person:
    name: str
    age: int = 0


class Pet(TypedDict):
    name: str


def sync(store: Store, tx: Transaction, connection: Any) -> None:
    people = store.collection("people", model=Person)
    assert_type(people, Collection[Person])
    assert_type(store.collection(Person), Collection[Person])
    assert_type(store.get_sync_collection("people", model=Person, ttl=60), Collection[Person])
    assert_type(store.collection("pets", model=Pet, invalid="skip"), Collection[Pet])
    assert_type(tx.collection(Person), Collection[Person])
    assert_type(store.bind(connection).collection(Person), Collection[Person])
    either: Collection[Person | Pet] = store.collection("either", model=Person | Pet)
    assert_type(either.get("x"), Person | Pet | None)
    assert_type(people.get("ada"), Person | None)
    assert_type(people.get("ada", "none"), Person | str)
    assert_type(people.get_many(["ada"]), dict[str, Person])
    assert_type(people.document("ada"), Document[Person] | None)
    assert_type(people.find(F(Person).age >= 30, sort=[("age", -1)]), list[Document[Person]])
    assert_type(people.find_one({"age": 1}), Document[Person] | None)
    assert_type(people.page(), Page[Person])
    assert_type([each.body for each in people.page()], list[Person])
    assert_type([each.body.age for each in people.stream()], list[int])
    assert_type(people.change("ada", lambda person: person), Person)
    assert_type(people.edit("ada"), AbstractContextManager[Person])
    assert_type(people.find_one_and_update({}, {"$inc": {"age": 1}}), Document[Person] | None)
    assert_type(people.watch(), ChangeStream[Person])
    assert_type(next(people.watch()), Change[Person])
    assert_type(people.watch(pipeline=[]), ChangeDocumentStream)
    assert_type(next(people.watch(pipeline=[])), dict[str, Any])
    assert_type([each.body.age for each in people.watch()], list[int])
    people.put("ada", Person("ada"))
    people.put_many({"ada": Person("ada")})
    people.put_many([("ada", Person("ada"))])
    people.insert_many([Person("ada")])


def rename(body: dict[str, Any]) -> dict[str, Any]:
    return body


PEOPLE: VersionSettings = {"schema_version": 2, "upgrades": {1: rename}}
SKIPPING: ModelSettings = {"invalid": "skip", "upgrades": {1: lambda body: body}}


def options(store: Store, tx: Transaction) -> None:
    assert_type(store.collection("people", **PEOPLE), Collection[Any])
    assert_type(store.collection("people", model=Person, **PEOPLE), Collection[Person])
    assert_type(store.collection(Person, **SKIPPING), Collection[Person])
    both = store.collection(Person, invalid="return", **PEOPLE)
    assert_type(both, Collection[Person | Invalid])
    assert_type(both.get("ada"), Person | Invalid | None)
    assert_type(next(both.watch()), Change[Person | Invalid])
    named = tx.collection("people", model=Person, invalid="return", extra="allow")
    assert_type(named.find(), list[Document[Person | Invalid]])


def untyped(store: Store) -> None:
    things = store["things"]
    assert_type(things, Collection[Any])
    assert_type(things.get("a"), Any)
    assert_type(things.find(), list[Document[Any]])
    things.get("a")["b"].upper()
    assert_type(next(things.watch()), Change[Any])
    next(things.watch()).body["b"].upper()
    things.put("a", object())


def wrong(store: Store) -> None:
    people = store.collection(Person)
    people.put("ada", object())  # type: ignore[arg-type]
    people.put_many({"ada": 5})  # type: ignore[arg-type]
    people.insert_one("ada")  # type: ignore[arg-type]
    people.find(5)  # type: ignore[arg-type]
    people.find(sort=5)  # type: ignore[arg-type]
    people.update("ada", 5)  # type: ignore[arg-type]
    people.replace_one({}, 5)  # type: ignore[arg-type]
    people.get("ada").name.upper()  # type: ignore[union-attr]
    store["things"].find(5)  # type: ignore[arg-type]
    store["things"].update("a", 5)  # type: ignore[arg-type]
    store.collection(Person, invalid="no")  # type: ignore[call-overload]


async def asynchronous(store: AsyncStore) -> None:
    people = store.collection("people", model=Person)
    assert_type(people, AsyncCollection[Person])
    assert_type(store.get_collection(Person), AsyncCollection[Person])
    assert_type(store.get_sync_collection(Person), Collection[Person])
    assert_type(await people.get("ada"), Person | None)
    assert_type(await people.find(), list[Document[Person]])
    assert_type(await people.page(), Page[Person])
    assert_type(await people.find_one_and_delete({}), Document[Person] | None)
    assert_type(people.edit("ada"), AbstractAsyncContextManager[Person])
    assert_type([each.body async for each in people.stream()], list[Person])
    assert_type(await store["things"].get("a"), Any)
    assert_type(people.watch(), AsyncChangeStream[Person])
    assert_type(people.watch(pipeline=[]), AsyncChangeDocumentStream)
    assert_type([each.body.age async for each in people.watch()], list[int])
    assert_type(store.collection("people", model=Person, **PEOPLE), AsyncCollection[Person])
    both = store.collection(Person, invalid="return")
    assert_type(await both.find_one(), Document[Person | Invalid] | None)
    assert_type(store.get_sync_collection(Person, invalid="return"), Collection[Person | Invalid])
    await people.find(F(Person).age >= 30, sort=F(Person).age)
    await people.update("ada", {"$inc": {F(Person).age: 1}})
    assert_type(await people.distinct(F(Person).name), list[Any])
    await people.put("ada", object())  # type: ignore[arg-type]
    await people.update("ada", 5)  # type: ignore[arg-type]
