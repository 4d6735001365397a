"""Which fields filters, sort orders, indexes and updates may name in a collection with a model."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest
from pydantic.alias_generators import to_camel

from collections_store import (
    Filter,
    Index,
    Path,
    Sort,
    UnknownField,
    Update,
)
from collections_store.codec import Codec
from collections_store.models.codec import codec_of
from collections_store.update import PipelineResult

T = TypeVar("T")


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Address:
    city: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Person:
    name: str
    address: Address | None = None
    homes: list[Address] = field(default_factory=list)
    pairs: tuple[tuple[str, Address], ...] = ()
    others: dict[str, Address] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    any: Any = None
    parent: "Person | None" = None


@attrs.define
class Attrs:
    name: str
    address: Address


class Typed(TypedDict, total=False):
    name: str
    address: Address


class Cat(msgspec.Struct, tag=True, rename="camel"):
    full_name: str
    lives: int = 9


class Dog(msgspec.Struct, tag=True, rename="camel"):
    full_name: str
    master: Person | None = None


class Row(msgspec.Struct, array_like=True):
    name: str
    address: Address


class Table(msgspec.Struct):
    rows: list[Row]


class Renamed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)
    full_name: str
    home_address: Address | None = None
    point: Point = Point(0, 0)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def length(self) -> int:
        return 1


class Open(pydantic.BaseModel, extra="allow"):
    name: str


class Root(pydantic.RootModel[list[Address]]):
    pass


class Box(pydantic.BaseModel, Generic[T]):
    inside: T


def as_json(value: int) -> Any:
    return {"value": value}


class Serialized(pydantic.BaseModel):
    roots: Root
    one: Annotated[int, pydantic.PlainSerializer(as_json), pydantic.BeforeValidator(int)]
    open: Open
    kind: Literal["a", "b"] = "a"


def check(model: Any, parsed: object, **options: Any) -> None:
    codec_of(model, Codec(), **options).check_fields(parsed)


@pytest.mark.parametrize(
    ("model", "known", "unknown"),
    [
        (
            Person,
            [
                "name", "address.city", "address.lines.0", "homes", "homes.city", "homes.0.city",
                "homes.lines", "pairs.1.city", "pairs.0.1.city", "others.any.city", "more.a.b.c",
                "any.a", "parent.parent.parent.name", "schema_version",
            ],
            [
                "nmae", "name.first", "address.cty", "address.0", "address.lines.x", "homes.cty",
                "homes.0.cty", "others.any.cty", "parent.parent.nmae", "",
            ],
        ),
        (Attrs, ["name", "address.city"], ["address.cty", "nmae"]),
        (Typed, ["name", "address.city"], ["address.cty", "nmae"]),
        (
            Cat | Dog,
            ["type", "fullName", "lives", "master.address.city"],
            ["full_name", "master.fullName", "master.address.cty"],
        ),
        (Table, ["rows.0.1.city", "rows.0.0"], ["rows.name", "rows.0.1.cty"]),
        (
            Renamed,
            ["fullName", "homeAddress.city", "point.0"],
            ["full_name", "home_address", "length", "point.x"],
        ),
        (Open, ["name", "other", "other.more"], ["name.more"]),
        (Root, ["city", "0.city"], ["cty", "root"]),
        (Box[list[Address]], ["inside.city"], ["inside.cty", "insid"]),
        (
            Serialized,
            ["roots.city", "one", "one.value", "open.else", "kind"],
            ["roots.cty", "open.name.x", "knd"],
        ),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_a_path_names_what_the_model_stores(
    model: Any, known: list[str], unknown: list[str]
) -> None:
    for path in known:
        check(model, Path.parse(path))
        check(model, Filter.parse({path: 1}))
        check(model, Sort.parse([(path, -1)]))
    for path in unknown:
        with pytest.raises(UnknownField) as caught:
            check(model, Filter.parse({path: 1}))
        assert caught.value.place == path
        check(model, Filter.parse({path: 1}), extra="allow")


@dataclass
class Tree:
    children: "dict[str, Tree] | list[Tree]"


def test_a_long_path_in_a_recursive_model_is_checked() -> None:
    """The number of schemas that are followed does not grow with each key."""
    check(Tree, Path(*["children"] * 200))


@pytest.mark.parametrize(
    ("parsed", "place"),
    [
        (Filter.parse({"$or": [{"name": 1}, {"$nor": [{"nmae": 1}]}]}), "nmae"),
        (Filter.parse({"homes": {"$elemMatch": {"cty": 1}}}), "homes.$elemMatch.cty"),
        (
            Filter.parse({"homes": {"$not": {"$elemMatch": {"cty": 1}}}}),
            "homes.$elemMatch.cty",
        ),
        (
            Filter.parse({"homes": {"$all": [{"$elemMatch": {"cty": 1}}]}}),
            "homes.$elemMatch.cty",
        ),
        (
            Filter.parse({"pairs": {"$elemMatch": {"$elemMatch": {"cty": 1}}}}),
            "pairs.$elemMatch.$elemMatch.cty",
        ),
        (Sort.parse({"name": 1, "nmae": -1}), "nmae"),
        (Index.parse("nmae"), "nmae"),
        (Index.parse("name", where={"nmae": 1}), "nmae"),
        (Update.parse({"$set": {"name": 1, "nmae": 1}}), "$set.nmae"),
        (Update.parse({"$set": {"address": {"city": "", "cty": ""}}}), "$set.address.cty"),
        (Update.parse({"$set": {"homes": [{"cty": ""}]}}), "$set.homes.$[].cty"),
        (Update.parse({"$set": {"homes.$.cty": 1}}), "$set.homes.$.cty"),
        (Update.parse({"$set": {"homes.$[].cty": 1}}), "$set.homes.$[].cty"),
        (Update.parse({"$set": {"homes.0.cty": 1}}), "$set.homes.0.cty"),
        (Update.parse({"$set": {"more.a.b": 1, "others.x.cty": 1}}), "$set.others.x.cty"),
        (Update.parse({"$push": {"homes": {"cty": ""}}}), "$push.homes.$[].cty"),
        (Update.parse({"$push": {"homes": {"$each": [{"cty": 1}]}}}), "$push.homes.$[].cty"),
        (
            Update.parse({"$push": {"homes": {"$each": [], "$sort": {"cty": 1}}}}),
            "$push.homes.$[].cty",
        ),
        (
            PipelineResult({"homes": [{"old": 1}, {"cty": 1}]}, {"homes": [{}, {"old": 1}]}),
            "homes.$[].cty",
        ),
        (Update.parse({"$addToSet": {"homes": {"cty": 1}}}), "$addToSet.homes.$[].cty"),
        (Update.parse({"$pull": {"homes": {"cty": 1}}}), "$pull.homes.$elemMatch.cty"),
        (Update.parse({"$rename": {"name": "nmae"}}), "$rename.nmae"),
        (Update.parse({"$unset": {"nmae": ""}}), "$unset.nmae"),
        (Update.parse({"$currentDate": {"nmae": True}}), "$currentDate.nmae"),
        (
            Update.parse({"$set": {"homes.$[home].city": 1}}, array_filters=[{"home.cty": 1}]),
            "array_filters.homes.$[home].cty",
        ),
    ],
)
def test_the_error_names_the_place(parsed: object, place: str) -> None:
    with pytest.raises(UnknownField) as caught:
        check(Person, parsed)
    assert caught.value.place == place
    assert "did you mean" in str(caught.value)
    check(Person, parsed, extra="allow")


@pytest.mark.parametrize(
    "parsed",
    [
        Filter.parse({"$id": "x", "$version": 1, "$updated_at": {"$gt": 0}, "$body": None}),
        Filter.parse({"homes": {"$elemMatch": {"city": "", "lines": {"$elemMatch": {"$gt": ""}}}}}),
        Filter.parse({"$expr": {"$gt": ["$any", 1]}}),
        Sort.parse([("$created_at", 1), ("address.city", 1)]),
        Index.parse(["address.city", "$created_at"], where={"name": {"$gt": ""}}),
        Update.parse({"$set": {"homes.$[a].lines.$[]": 1}}, array_filters=[{"a.city": 1}]),
        Update.parse({"$set": {"address": {"city": "", "lines": ["a"]}, "more": {"a": {"b": 1}}}}),
        Update.parse({"$push": {"homes": {"$each": [{"city": ""}], "$sort": {"city": 1}}}}),
        Update.parse({"$pull": {"homes": {"city": 1}, "address.lines": {"$in": ["a"]}}}),
        Update.parse({"$pullAll": {"homes": [{"city": "x"}]}}),
        Update.parse([{"$set": {"temporary": 1}}, {"$unset": "temporary"}]),
        None,
    ],
    ids=str,
)
def test_what_the_model_declares_may_be_named(parsed: object) -> None:
    check(Person, parsed)


@pytest.mark.parametrize(
    ("model", "name", "advice"),
    [
        (Person, "adress", "did you mean 'address'?"),
        (Renamed, "home_address", "did you mean 'homeAddress'?"),
        (Attrs, "zzz", "it has name, address; with extra='allow' names are not checked"),
    ],
)
def test_the_error_names_the_nearest_field(model: Any, name: str, advice: str) -> None:
    with pytest.raises(UnknownField) as caught:
        check(model, Filter.parse({name: 1}))
    assert str(caught.value).endswith(f": {model.__name__} has no such field: {advice}")
