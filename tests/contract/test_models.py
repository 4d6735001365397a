"""Typed collections: bodies that are instances of classes of each library, on each backend."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pydantic.alias_generators
import pydantic.dataclasses
import pytest

from collections_store import (
    DuplicateKey,
    F,
    Index,
    Indexed,
    IndexExists,
    InsertOne,
    Invalid,
    InvalidBody,
    InvalidFilter,
    InvalidName,
    InvalidOption,
    InvalidProjection,
    ReplaceOne,
    ReturnDocument,
    UnknownField,
    UpdateOne,
)


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class PydanticAddress(pydantic.BaseModel):
    city: str


class PydanticPerson(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=0)]
    likes: list[str] = []
    address: PydanticAddress | None = None


@pydantic.dataclasses.dataclass
class PydanticData:
    name: str
    age: Annotated[int, pydantic.Field(ge=0)]
    likes: list[str] = field(default_factory=list)
    address: PydanticAddress | None = None


class Address(msgspec.Struct):
    city: str


Age = Annotated[int, msgspec.Meta(ge=0)]


class Struct(msgspec.Struct):
    name: str
    age: Age
    likes: list[str] = []
    address: Address | None = None


@dataclass
class Data:
    name: str
    age: Age
    likes: list[str] = field(default_factory=list)
    address: Address | None = None


@attrs.define
class Attrs:
    name: str
    age: Age
    likes: list[str] = attrs.Factory(list)
    address: Address | None = None


class Typed(TypedDict):
    name: str
    age: Age
    likes: NotRequired[list[str]]


MODELS: list[Any] = [PydanticPerson, PydanticData, Struct, Data, Attrs, Typed]


@pytest.fixture(params=MODELS, ids=lambda model: model.__name__)
def model(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def people(store: Any, model: Any) -> Any:
    return store.collection("people", model=model, changes="both")


def attribute(person: Any, name: str) -> Any:
    return person[name] if isinstance(person, dict) else getattr(person, name)


def test_instances_come_back(people: Any, model: Any, store: Any) -> None:
    ada = model(name="ada", age=36, likes=["tea"])
    people.put("ada", ada)
    assert people.get("ada") == people.document("ada").body == ada
    assert type(people.get("ada")) is type(ada)
    assert store["people"].get("ada")["likes"] == ["tea"]
    people.insert_one(model(name="bob", age=1, likes=[]), id="bob")
    people.put_many({"eve": model(name="eve", age=2, likes=[])})
    people.bulk_write([InsertOne(model(name="joe", age=3, likes=[]), id="joe")])
    people.bulk_write([ReplaceOne({"name": "joe"}, model(name="joe", age=4, likes=[]))])
    found = people.find({"age": {"$lt": 10}}, sort=[("age", -1)])
    assert [attribute(each.body, "age") for each in found] == [4, 2, 1]
    assert all(type(each.body) is type(ada) for each in found)
    page = people.page(sort="name", limit=1)
    assert page.documents[0].body == ada
    assert next(iter(people.stream())).body == ada
    changed = people.change("bob", lambda _: model(name="bobby", age=9, likes=[]))
    assert changed == people.get("bob") == model(name="bobby", age=9, likes=[])


def test_updates_are_validated(people: Any, model: Any, store: Any) -> None:
    people.put("ada", model(name="ada", age=36, likes=[]))
    store["people"].update("ada", {"$set": {"undeclared": 1}})
    after = {"return_document": ReturnDocument.AFTER}
    updated = people.find_one_and_update({"name": "ada"}, {"$inc": {"age": 1}}, **after)
    assert attribute(updated.body, "age") == 37
    assert people.increment("ada", "age", 2) == 39
    calls: list[Any] = [
        lambda: people.increment("ada", "age", -100),
        lambda: people.update("ada", {"$set": {"age": "old"}}),
        lambda: people.update_many({}, {"$unset": {"name": ""}}),
        lambda: people.bulk_write([UpdateOne({}, {"$set": {"age": -1}})], atomic=True),
        lambda: people.put("ada", {"name": "ada", "age": -1}),
        lambda: people.put("ada", object()),
        lambda: people.change("ada", lambda _: {"name": "ada", "age": "x"}),
    ]
    for call in calls:
        with pytest.raises(InvalidBody, match=model.__name__) as caught:
            call()
        assert caught.value.path in {"age", "name", ""}
    assert people.document("ada").version == 4
    assert store["people"].get("ada")["undeclared"] == 1


class Other:
    """No model."""

    def __init__(self, _: object = None) -> None:
        """Take what `change` passes."""


def test_a_body_of_another_class_is_named(people: Any, model: Any) -> None:
    wanted = f"must be a {model.__name__}, or a dict with its fields, got a "
    for body in object(), Other(), 1, None, [], Address("Rome"):
        with pytest.raises(InvalidBody, match=wanted) as caught:
            people.put("ada", body)
        assert str(caught.value).endswith(type(body).__qualname__)
    with pytest.raises(InvalidBody, match=wanted):
        people.change("ada", Other, default={"name": "ada", "age": 1})
    assert people.count() == 0


@pytest.mark.parametrize("model", [PydanticPerson, Struct], indirect=True)
def test_documents_that_do_not_fit(
    people: Any, model: Any, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plain = store["people"]
    plain.put_many({"ada": {"name": "ada", "age": 36}, "old": {"name": "old", "age": "?"}})
    with pytest.raises(InvalidBody, match="collection people: document 'old': at 'age'") as caught:
        people.find()
    assert (caught.value.id, caught.value.path) == ("old", "age")
    returning = store.collection("people", model=model, invalid="return")
    assert returning.get("ada") == model(name="ada", age=36)
    invalid = returning.get("old")
    assert isinstance(invalid, Invalid)
    assert (invalid.body, invalid.path) == ({"name": "old", "age": "?"}, "age")
    assert [type(each.body) for each in returning.find({}, sort="name")] == [model, Invalid]
    skipping = store.collection("people", model=model, invalid="skip")
    assert [each.id for each in skipping.find()] == ["ada"]
    assert "left out: collection people: document 'old': at 'age'" in caplog.text


def test_a_write_that_returns_a_document_that_does_not_fit_is_refused_or_returns_it(
    people: Any, model: Any, store: Any
) -> None:
    store["people"].put("old", {"name": "old"})
    with pytest.raises(InvalidBody, match="document 'old'"):
        people.find_one_and_delete({"name": "old"})
    assert people.exists("old")
    skipping = store.collection("people", model=model, invalid="skip")
    writes: list[Any] = [
        lambda: skipping.find_one_and_delete({"name": "old"}),
        lambda: skipping.find_one_and_update({"name": "old"}, {"$set": {"age": 1}}),
        lambda: skipping.find_one_and_replace({"name": "old"}, model(name="old", age=1)),
    ]
    for write in writes:
        with pytest.raises(InvalidBody, match="collection people: document 'old'"):
            write()
    assert store["people"].document("old").version == 1
    returning = store.collection("people", model=model, invalid="return")
    assert isinstance(returning.find_one_and_delete({"name": "old"}).body, Invalid)
    assert not people.exists("old")


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class PydanticCat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class PydanticDog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


PydanticPet = Annotated[PydanticCat | PydanticDog, pydantic.Field(discriminator="kind")]


def test_a_union_needs_a_name(store: Any) -> None:
    with pytest.raises(InvalidName, match="Dog cannot name a collection: give it a name, and"):
        store.collection(Cat | Dog)
    with pytest.raises(InvalidName, match="5 cannot name a collection: use 1 to 200"):
        store.collection(5)


@pytest.mark.parametrize(
    ("union", "cat", "dog"),
    [(Cat | Dog, Cat(9), Dog("rex")), (PydanticPet, PydanticCat(lives=9), PydanticDog(name="rex"))],
    ids=["msgspec", "pydantic"],
)
def test_unions_by_discriminator(store: Any, union: Any, cat: Any, dog: Any) -> None:
    pets = store.collection("pets", model=union)
    pets.put_many({"tom": cat, "rex": dog})
    assert pets.get_many(["rex", "tom"]) == {"rex": dog, "tom": cat}
    assert pets.find_one("name", "rex").body == dog


class Values(msgspec.Struct, rename="camel"):
    when_seen: datetime
    born: date
    price: Decimal
    key: UUID
    level: Level
    raw: bytes


class PydanticValues(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        alias_generator=pydantic.alias_generators.to_camel, populate_by_name=True
    )
    when_seen: datetime
    born: date
    price: Decimal
    key: UUID
    level: Level
    raw: bytes


@pytest.mark.parametrize("kind", [Values, PydanticValues])
def test_other_values_come_back_and_are_found(store: Any, kind: Any) -> None:
    values = store.collection("values", model=kind)
    moment = datetime(2026, 11, 22, 10, tzinfo=timezone(timedelta(hours=2)))
    fields: Any = {"born": date(2026, 1, 1), "price": Decimal("1.50"), "key": UUID(int=7)}
    one = kind(when_seen=moment, level=Level.HIGH, raw=b"ab", **fields)
    other = kind(when_seen=moment + timedelta(1), level=Level.LOW, raw=b"", **fields)
    values.put_many({"one": one, "other": other})
    assert values.get("one") == one
    assert store["values"].get("one")["whenSeen"] == "2026-11-22T08:00:00.000000Z"
    in_utc = moment.astimezone(UTC)
    for wanted in (
        {"whenSeen": in_utc},
        F(kind).when_seen == moment,
        F(kind).when_seen < moment + timedelta(hours=1),
        {"level": Level.HIGH},
        F(kind).level == Level.HIGH,
    ):
        assert [each.id for each in values.find(wanted)] == ["one"]
    assert values.count({"key": UUID(int=7), "born": date(2026, 1, 1)}) == 2
    values.update("one", {"$set": {"whenSeen": moment + timedelta(2)}})
    assert values.get("one").when_seen == moment + timedelta(2)
    newest = values.find({}, sort=[("whenSeen", -1)])
    assert [each.id for each in newest] == ["one", "other"]


def test_fields_are_checked(people: Any, model: Any) -> None:
    people.put("ada", model(name="ada", age=36, likes=["tea"]))
    assert people.count((F(model).age >= 36) & F(model).likes.contains("tea")) == 1
    with pytest.raises(UnknownField, match="did you mean 'name'"):
        F(model).nmae  # noqa: B018
    with pytest.raises(InvalidFilter, match="must be of type int, as in"):
        F(model).age == "36"  # noqa: B015


MISSPELT: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("find", ({"nmae": "ada"},), {}),
    ("find", ("nmae", "ada"), {}),
    ("find", ({"$or": [{"nmae": {"$in": []}}, {"name": "ada"}]},), {}),
    ("find", ({},), {"sort": "nmae"}),
    ("find_one", (F("nmae") == "ada",), {}),
    ("page", ({},), {"sort": [("nmae", -1)]}),
    ("count", ({"nmae": "ada"},), {}),
    ("stream", ({"nmae": "ada"},), {}),
    ("stream", ({},), {"sort": "nmae"}),
    ("watch", ({"nmae": "ada"},), {}),
    ("explain", ({},), {"sort": "nmae"}),
    ("distinct", ("nmae",), {}),
    ("distinct", ("name", {"nmae": "ada"}), {}),
    ("aggregate", ([{"$match": {"nmae": "ada"}}],), {}),
    ("aggregate", ([{"$match": {}}, {"$match": {"nmae": {"$in": []}}}],), {}),
    ("stream_aggregate", ([{"$match": {"nmae": "ada"}}],), {}),
    ("create_index", ("nmae",), {}),
    ("create_index", ("name",), {"where": {"nmae": "ada"}}),
    ("update", ("ada", {"$set": {"nmae": "Ada"}}), {}),
    ("update", ("ada", {"$set": {"address.cty": "Rome"}}), {}),
    ("update", ("ada", [{"$set": {"nmae": "Ada"}}]), {}),
    ("update_many", ({}, [{"$replaceWith": {"name": "Ada", "aeg": 36}}]), {}),
    ("update_one", ({"$id": "eve"}, [{"$set": {"nmae": "Eve"}}]), {"upsert": True}),
    ("update_one", ({"nmae": "ada"}, {"$set": {"name": "Ada"}}), {}),
    ("update_one", ({}, {"$set": {"name": "Ada"}}), {"sort": "nmae"}),
    ("update_many", ({}, {"$inc": {"aeg": 1}}), {}),
    ("find_one_and_update", ({}, {"$unset": {"nmae": ""}}), {}),
    ("find_one_and_delete", ({"nmae": "ada"},), {}),
    ("delete_one", ({"nmae": "ada"},), {}),
    ("delete_many", ("nmae", "ada"), {}),
    ("increment", ("ada", "aeg"), {}),
    ("bulk_write", ([UpdateOne({}, {"$set": {"nmae": "Ada"}})],), {"atomic": True}),
]  # fmt: skip


@pytest.mark.parametrize("version", [{}, {"schema_version": 1}], ids=str)
def test_misspelt_fields_are_refused(store: Any, version: Any) -> None:
    people = store.collection("people", model=Data, changes="both", **version)
    people.put("ada", Data("ada", 36))
    for method, arguments, options in MISSPELT:
        with pytest.raises(UnknownField, match="did you mean '"):
            result = getattr(people, method)(*arguments, **options)
            next(iter(result))
    assert people.document("ada").version == 1
    assert people.indexes() == []


def test_extra_fields_are_allowed_by_an_option(store: Any) -> None:
    people = store.collection("people", model=Data, extra="allow")
    people.put("ada", Data("ada", 36))
    people.update("ada", {"$set": {"other": 1}})
    assert people.find({"other": 1}, sort="other")[0].body == Data("ada", 36)
    strict = store.collection("people", model=Data)
    strict.update("ada", {"$inc": {"age": 1}})
    strict.update(
        "ada", [{"$set": {"age": {"$add": ["$age", "$other"]}, "tmp": 1}}, {"$unset": "tmp"}]
    )
    assert strict.get("ada") == Data("ada", 38)
    assert store["people"].get("ada")["other"] == 1
    with pytest.raises(InvalidOption, match="option extra: must be 'forbid' or 'allow'"):
        store.collection("people", model=Data, extra="ignore")
    with pytest.raises(InvalidOption, match="option model: must be given with extra"):
        store.collection("people", extra="allow")


class Misspelt(msgspec.Struct):
    name: str
    __indexes__: ClassVar[list[Index]] = [Index.parse("nmae")]


def test_misspelt_declared_indexes_are_refused(store: Any) -> None:
    with pytest.raises(UnknownField, match="index, at 'nmae': Misspelt has no such field"):
        store.collection("people", model=Misspelt)
    assert store.collections() == []


def test_fields_of_a_model_stand_for_their_paths(store: Any, model: Any) -> None:
    people, plain = store.collection("people", model=model), store["people"]
    name, age, likes = F(model).name, F(model).age, F(model).likes
    people.put("ada", model(name="ada", age=36, likes=["tea"]))
    people.put("bob", model(name="bob", age=1, likes=[]))
    ids = [["ada", "bob"], ["bob", "ada"]]
    assert [each.id for each in people.find(sort=name)] == ids[0]
    assert [each.id for each in people.find(sort=[(name, -1)])] == ids[1]
    assert [each.id for each in people.find(sort={age: -1, name: 1})] == ids[0]
    assert people.count(name, "ada") == people.count({name: "ada", age: {"$gt": 2}}) == 1
    assert people.distinct(name, {age: 1}) == ["bob"]
    assert plain.find_one({}, projection=[name]).body == {"name": "ada"}
    assert plain.find_one({}, projection={name: 0, likes: {"$slice": 0}}).body["age"] == 36
    assert people.create_index([name, (age, -1)]) == "name_1_age_-1"
    assert people.create_index(age, where={name: {"$gt": ""}}) == "age_1"
    people.update("ada", {"$set": {name: "Ada"}, "$inc": {age: 1}, "$push": {likes: "chess"}})
    assert people.get("ada") == model(name="Ada", age=37, likes=["tea", "chess"])
    people.update_one({name: "Ada"}, {"$pull": {likes: "tea"}})
    assert people.increment("ada", age, 2) == 39
    assert plain.count(F("likes") == "chess") == plain.count({F("likes"): "chess"}) == 1
    assert plain.find({F("$id"): "ada"})[0].id == "ada"


class Account(msgspec.Struct):
    __collection__: ClassVar[str] = "accounts"
    email: Annotated[str, Indexed(unique=True)]
    city: str = ""
    __indexes__: ClassVar[list[Index]] = [Index.parse([("city", 1), ("email", -1)])]


def test_declared_indexes_are_created_once(store: Any) -> None:
    for _ in range(2):
        accounts = store.collection(Account)
        assert accounts.name == "accounts"
        assert [each.name for each in accounts.indexes()] == ["email_1", "city_1_email_-1"]
    accounts.put("a", Account("a@b.c"))
    with pytest.raises(DuplicateKey):
        accounts.put("b", Account("a@b.c"))


def test_an_index_that_differs_is_reported(store: Any) -> None:
    store["accounts"].create_index("email")
    with pytest.raises(IndexExists, match=r"'email_1'.*email_1: \{'email': 1\}"):
        store.collection(Account)
    assert len(store["accounts"].indexes()) == 1


def test_in_a_transaction(store: Any) -> None:
    with store.transaction() as tx:
        accounts = tx.collection(Account)
        accounts.put("a", Account("a@b.c"))
        assert accounts.get("a") == Account("a@b.c")
    assert store.collection(Account).get("a").email == "a@b.c"


class Strange(msgspec.Struct):
    name: str
    stream: object | type[int]


def test_invalid_options(store: Any) -> None:
    calls: list[Any] = [
        (("people",), {"model": 5}, InvalidOption, "model"),
        (("people",), {"invalid": "skip"}, InvalidOption, "model"),
        (("people",), {"model": Struct, "invalid": "no"}, InvalidOption, "invalid"),
        (("people",), {"model": Struct, "trusted": 1}, InvalidOption, "trusted"),
        ((5,), {}, InvalidName, "5"),
        (("people",), {"model": type("Other", (), {})}, InvalidOption, "model"),
    ]
    for name, options, error, part in calls:
        with pytest.raises(error, match=part):
            store.collection(*name, **options)
    assert store.collections() == []
    people = store.collection("people", model=Struct)
    with pytest.raises(InvalidProjection, match="whole bodies"):
        people.find({}, projection=["name"])


class NewAccount(msgspec.Struct):
    email: Annotated[str, Indexed()]
    level: int = 1


def test_a_model_with_a_schema_version(store: Any) -> None:
    store["accounts"].put("a", {"mail": "a@b.c"})
    accounts = store.collection(
        "accounts",
        model=NewAccount,
        schema_version=2,
        upgrades={1: lambda body: {"email": body["mail"]}},
    )
    assert accounts.get("a") == NewAccount("a@b.c")
    accounts.put("b", NewAccount("b@b.c", 2))
    accounts.upgrade_documents()
    assert accounts.find({}, sort="email")[1].body == NewAccount("b@b.c", 2)
    with pytest.raises(InvalidProjection):
        accounts.find({}, projection=["email"])
