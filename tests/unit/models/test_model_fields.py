"""`F(Person)`: the fields of a model, checked when a filter is written."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from collections_store import F, InvalidFilter, InvalidOption, UnknownField
from collections_store.models.fields import ModelField


class Colour(Enum):
    RED = "red"


Email = NewType("Email", str)


class Town(msgspec.Struct):
    name: str
    code: str = msgspec.field(default="", name="zip")


class Person(msgspec.Struct, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=3)]
    age: int | None = None
    height: float = 1.7
    active: bool = True
    mail: Email = Email("")
    colour: Colour = Colour.RED
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    born: date = date(1815, 12, 10)
    price: Decimal = Decimal(0)
    key: UUID = UUID(int=0)
    kind: Literal["a", "b"] = "a"
    town: Town | None = None
    towns: Sequence[Town] = ()
    tags: list[str] = []
    scores: dict[str, int] = {}
    extra: Any = None
    by_name: Mapping[str, Town] = {}
    exists: bool = True
    friend: "Person | None" = None


class PydanticTown(pydantic.BaseModel):
    name: str
    code: str = pydantic.Field(default="", alias="zip")


class PydanticPerson(pydantic.BaseModel):
    name: str
    town: PydanticTown | None = None
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@dataclasses.dataclass
class TownData:
    name: str


@attrs.define
class TownAttrs:
    name: str


class TownDict(TypedDict):
    name: str


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = pydantic.Field(alias="left")


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str
    lives: int


class Point(msgspec.Struct, array_like=True, tag=True):
    x: int
    y: int


class Route(msgspec.Struct):
    points: list[Point]
    ends: tuple[int, str] = (0, "")


PET = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
P = F(Person)
EAST = datetime(2026, 11, 22, 12, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("filter", "document"),
    [
        (P.name == "ada", {"name": "ada"}),
        (P.name >= "a", {"name": {"$gte": "a"}}),
        (P.age == 36, {"age": 36}),
        (P.age > 36.5, {"age": {"$gt": 36.5}}),
        (P.age == None, {"age": None}),  # noqa: E711
        (P.height < 2, {"height": {"$lt": 2}}),
        (P.active == True, {"active": True}),  # noqa: E712
        (P.mail == "a@b", {"mail": "a@b"}),
        (P.colour == Colour.RED, {"colour": "red"}),
        (P.at >= EAST, {"at": {"$gte": "2026-11-22T10:00:00.000000Z"}}),
        (P.born == date(1815, 12, 10), {"born": "1815-12-10"}),
        (P.price == Decimal("1.50"), {"price": "1.50"}),
        (P.key == UUID(int=1), {"key": "00000000-0000-0000-0000-000000000001"}),
        (P.kind == "b", {"kind": "b"}),
        (P.kind.is_in(["a", "b"]), {"kind": {"$in": ["a", "b"]}}),
        (P.town.name == "Ulm", {"town.name": "Ulm"}),
        (P.town.code == "89", {"town.zip": "89"}),
        (P.town == Town("Ulm", "89"), {"town": {"name": "Ulm", "zip": "89"}}),
        (P.towns.name == "Ulm", {"towns.name": "Ulm"}),
        (P.towns.any(F(Town).code == "89"), {"towns": {"$elemMatch": {"zip": "89"}}}),
        (P.tags == "tea", {"tags": "tea"}),
        (P.tags == ["tea"], {"tags": ["tea"]}),
        (P.tags.contains_all(["tea", "cake"]), {"$and": [{"tags": "tea"}, {"tags": "cake"}]}),
        (P.tags.contains("tea"), {"tags": "tea"}),
        (P.name.has("a.b"), {"name": {"$regex": r"a\.b"}}),
        (P.tags.starts_with("t"), {"tags": {"$regex": "^t"}}),
        (P.scores.chess > 3, {"scores.chess": {"$gt": 3}}),
        (P.by_name.ulm.code == "89", {"by_name.ulm.zip": "89"}),
        (P.extra.anything == 5, {"extra.anything": 5}),
        (P["exists"] == False, {"exists": False}),  # noqa: E712
        (P.friend.friend.name == "bob", {"friend.friend.name": "bob"}),
        (P.name.exists(), {"name": {"$exists": True}}),
        (F[Person].name.matches("^a"), {"name": {"$regex": "^a"}}),
        (P.age.between(30, 40), {"age": {"$gte": 30, "$lte": 40}}),
        (P.name.not_in(["ada"]), {"name": {"$nin": ["ada"]}}),
        (F(PydanticPerson).town.code == "89", {"town.zip": "89"}),
        (F(PydanticPerson).at == EAST, {"at": "2026-11-22T10:00:00.000000Z"}),
        (F(TownData).name == "Ulm", {"name": "Ulm"}),
        (F(TownAttrs).name == "Ulm", {"name": "Ulm"}),
        (F(TownDict).name == "Ulm", {"name": "Ulm"}),
        (F[PET].kind == "cat", {"kind": "cat"}),
        (F[PET].kind == "dog", {"kind": "dog"}),
        (F[Cat | Dog].name == "rex", {"name": "rex"}),
        (P.towns[0].code == "89", {"towns.0.zip": "89"}),
        (P.tags["1"] == "tea", {"tags.1": "tea"}),
        (F(Route).points[0].x == 3, {"points.0.1": 3}),
        (F(Route).points.y == 3, {"points.2": 3}),
        (F(Route).ends[1] == "b", {"ends.1": "b"}),
    ],
    ids=str,
)
def test_filters(filter: Any, document: Any) -> None:
    assert filter.to_json() == document


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (lambda: P.nmae, "'nmae': Person has no such field: did you mean 'name'?"),
        (lambda: P.town.nam, "'town.nam': Person has no such field: did you mean 'name'?"),
        (lambda: P.towns.zip, "'towns.zip': Person has no such field: it has name, code"),
        (lambda: P.name.length, "'name.length': Person has no such field: it has none"),
        (
            lambda: F(PydanticPerson).tonw,
            "'tonw': PydanticPerson has no such field: did you mean 'town'?",
        ),
    ],
)
def test_a_field_that_the_model_lacks(field: Any, message: str) -> None:
    with pytest.raises(UnknownField) as caught:
        field()
    assert str(caught.value) == f"filter, at {message}"
    assert isinstance(caught.value, AttributeError)


@pytest.mark.parametrize("field", [P.name, P.mail, P.town.name, P.towns.code])
def test_contains_on_a_string_names_has(field: Any) -> None:
    with pytest.raises(
        InvalidFilter, match=r"is a string in Person: write has\('tea'\) for a part"
    ):
        field.contains("tea")


@pytest.mark.parametrize(
    "compare",
    [
        lambda: P.name == 5,
        lambda: P.age == "36",
        lambda: P.age > True,
        lambda: P.active == 1,
        lambda: P.colour == "red",
        lambda: P.at >= "2026",
        lambda: P.at == date(2026, 1, 1),
        lambda: P.born == datetime(2026, 1, 1),
        lambda: P.kind == "c",
        lambda: P.kind.is_in(["a", "c"]),
        lambda: P.town == "Ulm",
        lambda: P.town == Person(name="ada"),
        lambda: P.tags == 5,
        lambda: P.tags.contains_all(["a", 5]),
        lambda: P.scores.chess == "3",
        lambda: P.age.between(1, "2"),
        lambda: F(PydanticPerson).name == 5,
        lambda: F(PydanticPerson).town == 5,
    ],
)
def test_a_value_of_another_type(compare: Any) -> None:
    with pytest.raises(InvalidFilter, match="must be of type .*, as in P"):
        compare()


def test_the_models_of_a_union() -> None:
    with pytest.raises(InvalidFilter, match=r"as in Cat or Dog, got 'fish'"):
        _ = F[PET].kind == "fish"
    with pytest.raises(InvalidFilter, match=r"Cat or Dog stores it under 'left' and 'lives'"):
        _ = F[PET].lives


@pytest.mark.parametrize("of", [5, None, int, list[str]])
def test_what_has_no_fields(of: Any) -> None:
    with pytest.raises(InvalidFilter, match="a field must be a string, or of a model"):
        F(of)


def test_fields_of_paths_are_not_checked() -> None:
    assert (F("anything") == 5).to_json() == {"anything": 5}
    assert not isinstance(F("name"), ModelField)
    assert not hasattr(P.name, "__wrapped__")


def test_an_annotation_that_nobody_can_read_is_reported() -> None:
    class Lost(TypedDict):
        when: "Unknown"  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(InvalidOption, match="annotation of Lost must be a name of its module"):
        F[Lost]
