"""Instances of models to JSON text and back."""

import dataclasses
import enum
import json
import pathlib
import sys
import traceback
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store.codec import Codec
from collections_store.errors import InvalidBody, InvalidOption, MissingExtra
from collections_store.models.codec import _Msgspec, _Pydantic, codec_of, json_value, spelled


class Colour(enum.Enum):
    RED = "red"


class Town(pydantic.BaseModel):
    name: str
    code: str | None = pydantic.Field(default=None, alias="zip")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Person(pydantic.BaseModel):
    name: str
    at: datetime
    born: date | None = None
    price: Decimal = Decimal("1.10")
    key: UUID = UUID(int=1)
    colour: Colour = Colour.RED
    data: bytes = b"text"
    every: timedelta = timedelta(minutes=90)
    town: Town | None = None
    logins: list[datetime] = []
    seen: dict[str, datetime] = {}
    pair: tuple[int, datetime] = (1, datetime(2026, 1, 1, tzinfo=UTC))
    unordered: set[str] = {"one"}
    by_number: dict[int, float] = {1: 1.5}
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")] = Cat()

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def initial(self) -> str:
        return self.name[:1]


class TownStruct(msgspec.Struct, frozen=True):
    name: str
    code: str | None = msgspec.field(default=None, name="zip")


class CatStruct(msgspec.Struct, tag="cat", tag_field="kind"):
    lives: int = 9


class DogStruct(msgspec.Struct, tag="dog", tag_field="kind"):
    tricks: list[str] = []


class PersonStruct(msgspec.Struct, kw_only=True):
    name: str
    at: datetime
    born: date | None = None
    price: Decimal = Decimal("1.10")
    key: UUID = UUID(int=1)
    colour: Colour = Colour.RED
    data: bytes = b"\xff\0"
    every: timedelta = timedelta(minutes=90)
    town: TownStruct | None = None
    logins: list[datetime] = []
    seen: dict[str, datetime] = {}
    pair: tuple[int, datetime] = (1, datetime(2026, 1, 1, tzinfo=UTC))
    unordered: set[str] = msgspec.field(default_factory=lambda: {"one"})
    by_number: dict[int, float] = msgspec.field(default_factory=lambda: {1: 1.5})
    pet: CatStruct | DogStruct = msgspec.field(default_factory=CatStruct)


@dataclasses.dataclass
class PersonData:
    name: str
    at: datetime
    town: TownStruct | None = None
    logins: list[datetime] = dataclasses.field(default_factory=list)


@attrs.define
class PersonAttrs:
    name: str
    at: datetime
    logins: list[datetime] = attrs.field(factory=list)


class PersonDict(TypedDict):
    name: str
    at: datetime
    logins: NotRequired[list[datetime]]


@pydantic.dataclasses.dataclass
class PersonPydanticData:
    name: str
    at: datetime
    logins: list[datetime] = dataclasses.field(default_factory=list)


AT = datetime(2026, 11, 22, 10, tzinfo=UTC)
EAST = datetime(2026, 11, 22, 12, tzinfo=timezone(timedelta(hours=2)))
MODELS: list[Any] = [
    Person,
    PersonStruct,
    PersonData,
    PersonAttrs,
    PersonDict,
    PersonPydanticData,
]


@pytest.mark.parametrize("model", MODELS)
def test_round_trip(model: Any) -> None:
    codec = codec_of(model, Codec())
    body = model(name="ada", at=AT, logins=[AT, EAST])
    text = codec.encode_body(body)
    stored = json.loads(text)
    assert stored["at"] == "2026-11-22T10:00:00.000000Z"
    assert stored["logins"] == ["2026-11-22T10:00:00.000000Z"] * 2
    read = codec.decode_body(text)
    assert read == body
    assert type(read) is type(body)
    assert codec.encode_body(read) == text


@pytest.mark.parametrize(("model", "town"), [(Person, Town), (PersonStruct, TownStruct)])
def test_values_of_many_types(model: Any, town: Any) -> None:
    codec = codec_of(model, Codec())
    place = (
        town.model_validate({"name": "Ulm", "zip": "89073"})
        if town is Town
        else town("Ulm", "89073")
    )
    body = model(name="ada", at=AT, born=date(1815, 12, 10), town=place, seen={"ulm": EAST})
    stored = json.loads(codec.encode_body(body))
    assert codec.decode_body(codec.encode_body(body)) == body
    assert stored["born"] == "1815-12-10"
    assert stored["price"] == "1.10"
    assert stored["key"] == "00000000-0000-0000-0000-000000000001"
    assert stored["colour"] == "red"
    assert stored["town"] == {"name": "Ulm", "zip": "89073"}
    assert stored["seen"] == {"ulm": "2026-11-22T10:00:00.000000Z"}
    assert stored["pair"] == [1, "2026-01-01T00:00:00.000000Z"]
    assert stored["unordered"] == ["one"]
    assert stored["by_number"] == {"1": 1.5}
    assert stored["pet"] == {"kind": "cat", "lives": 9}
    assert "initial" not in stored


@pytest.mark.parametrize(
    ("model", "cat", "dog"), [(Person, Cat, Dog), (PersonStruct, CatStruct, DogStruct)]
)
def test_unions_by_discriminator(model: Any, cat: Any, dog: Any) -> None:
    codec = codec_of(cat | dog, Codec())
    for body in (cat(lives=3), dog(tricks=["roll"])):
        assert codec.decode_body(codec.encode_body(body)) == body
    assert json.loads(codec.encode_body(dog()))["kind"] == "dog"
    pet = model(name="ada", at=AT, pet=dog(tricks=["roll"]))
    assert codec_of(model, Codec()).decode_body(codec_of(model, Codec()).encode_body(pet)) == pet


def test_a_dict_is_validated_as_an_instance() -> None:
    codec = codec_of(Town, Codec())
    assert codec.encode_body({"name": "Ulm", "zip": "1"}) == '{"name":"Ulm","zip":"1"}'
    struct = codec_of(TownStruct, Codec())
    assert struct.encode_body({"name": "Ulm", "zip": "1"}) == '{"name":"Ulm","zip":"1"}'


@pytest.mark.parametrize("model", MODELS)
def test_invalid_bodies(model: Any) -> None:
    codec = codec_of(model, Codec())
    for body, path in (
        ({"name": 5, "at": AT}, "name"),
        ({"name": "ada", "at": "soon"}, "at"),
        ({"name": "ada", "at": AT, "logins": [AT, "never"]}, "logins.1"),
        (5, ""),
        (object(), ""),
        (None, ""),
    ):
        with pytest.raises(InvalidBody) as caught:
            codec.encode_body(body)
        assert caught.value.path == path, body
        assert model.__name__ in str(caught.value)


@pytest.mark.parametrize("model", [Person, PersonStruct, PersonData, PersonAttrs])
def test_an_instance_that_was_changed_is_validated(model: Any) -> None:
    body = model(name="ada", at=AT)
    body.name = 5
    with pytest.raises(InvalidBody, match="name"):
        codec_of(model, Codec()).encode_body(body)


def test_no_value_is_in_an_error() -> None:
    for model in (Person, PersonStruct):
        with pytest.raises(InvalidBody) as caught:
            codec_of(model, Codec()).encode_body({"name": ["secret"], "at": AT})
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("model", [Person, PersonStruct])
def test_the_rules_of_bodies_hold(model: Any) -> None:
    codec = codec_of(model, Codec(max_bytes=1000))
    with pytest.raises(InvalidBody, match="NUL"):
        codec.encode_body(model(name="a\0", at=AT))
    with pytest.raises(InvalidBody, match="limit"):
        codec.encode_body(model(name="a" * 1000, at=AT))


class Opaque:
    pass


class OpaqueStruct(msgspec.Struct):
    name: str
    inside: list[Opaque]


class OpaquePydantic(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    name: str
    inside: list[Opaque]


@pytest.mark.parametrize("model", [OpaqueStruct, OpaquePydantic])
def test_a_type_that_json_cannot_hold_is_refused(model: Any) -> None:
    with pytest.raises(InvalidOption, match=r"cannot hold the field 'inside' of Opaque") as caught:
        codec_of(model, Codec())
    assert caught.value.option == "model"


class OtherAlias(pydantic.BaseModel):
    name: str = pydantic.Field("", serialization_alias="n")


class ReadAlias(pydantic.BaseModel):
    name: str = pydantic.Field("", validation_alias=pydantic.AliasPath("n", 0))


class Secret(pydantic.BaseModel):
    name: pydantic.SecretStr


class SecretsWithin(pydantic.BaseModel):
    name: dict[str, pydantic.Secret[int] | None]


@attrs.define
class Private:
    _name: str = ""


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (OtherAlias, "of OtherAlias must be read under the key 'n'"),
        (list[ReadAlias], "of ReadAlias must be read under the key 'name'"),
        (Secret, "of Secret: a secret is written as asterisks"),
        (SecretsWithin, "of SecretsWithin: a secret is written as asterisks"),
        (Private, "'_name' of Private must not begin with _"),
    ],
)
def test_a_field_that_would_be_lost_is_refused(model: Any, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        codec_of(model, Codec())


def test_an_instance_of_a_class_with_more_fields_is_refused() -> None:
    class Base(pydantic.BaseModel):
        name: str = ""

    class Employee(Base):
        salary: int = 0

    class Manager(Employee):
        pass

    class Renamed(Base):
        pass

    codec = codec_of(Base, Codec())
    for body in (Employee(salary=1), Manager(salary=1)):
        with pytest.raises(InvalidBody, match="has fields that would be lost: salary"):
            codec.encode_body(body)
    assert codec.decode_body(codec.encode_body(Renamed(name="ada"))) == Base(name="ada")
    either = codec_of(Employee | Base, Codec())
    assert either.decode_body(either.encode_body(Employee(salary=1))) == Employee(salary=1)


def test_aliases_and_secrets_that_come_back() -> None:
    class Both(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(populate_by_name=True)
        one: str = pydantic.Field("", alias="1")
        two: str = pydantic.Field("", validation_alias=pydantic.AliasChoices("b", "two"))
        three: str = pydantic.Field("", validation_alias="c")
        four: str = pydantic.Field("", exclude=True, validation_alias="d")
        five: pydantic.SecretStr

        @pydantic.field_serializer("five")
        def revealed(self, secret: pydantic.SecretStr) -> str:
            return secret.get_secret_value()

    codec = codec_of(Both, Codec())
    body = Both.model_validate({"1": "1", "two": "2", "three": "3", "five": "5"})
    assert codec.decode_body(codec.encode_body(body)) == body


moments = st.datetimes(timezones=st.timezones())


@given(moments, moments)
def test_spellings_sort_as_the_times_do(one: datetime, other: datetime) -> None:
    assert (spelled(one) < spelled(other)) == (one < other)
    assert (spelled(one) == spelled(other)) == (one == other)


@given(st.datetimes(), st.datetimes())
def test_spellings_without_a_time_zone(one: datetime, other: datetime) -> None:
    assert (spelled(one) < spelled(other)) == (one < other)


def test_values_of_filters() -> None:
    assert json_value(EAST) == "2026-11-22T10:00:00.000000Z"
    assert json_value(date(2026, 1, 2)) == "2026-01-02"
    assert json_value(time(1, 2)) == "01:02:00"
    assert json_value(Decimal("1.10")) == "1.10"
    assert json_value(UUID(int=1)) == "00000000-0000-0000-0000-000000000001"
    assert json_value(Colour.RED) == "red"
    assert json_value(Town(name="Ulm")) == {"name": "Ulm", "zip": None}
    with pytest.raises(TypeError, match="use a value of JSON"):
        json_value(Opaque())


@pytest.mark.parametrize(("library", "adapter"), [("pydantic", _Pydantic), ("msgspec", _Msgspec)])
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, library: str, adapter: Any
) -> None:
    """As where the library is not installed: its import fails."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"collections-store\[{library}\]"):
        adapter(int)


def test_a_value_of_a_body_is_not_in_the_traceback() -> None:
    """The text of a library's error has the value, which a log must not have."""
    codec, value = codec_of(Person, Codec()), "secret"[::-1]
    with pytest.raises(InvalidBody) as caught:
        codec.decode_body(json.dumps({"name": "ada", "at": value}))
    assert value not in "".join(traceback.format_exception(caught.value))


class Inner(pydantic.BaseModel):
    n: int

    @pydantic.model_validator(mode="after")
    def is_small(self) -> "Inner":
        CALLS.append("inner")
        return self


class Outer(pydantic.BaseModel):
    path: pathlib.PurePath
    name: Annotated[str, pydantic.AfterValidator(lambda name: CALLS.append("name") or name)]
    inner: Inner
    others: list[Inner] = []
    next: "Outer | None" = None

    @pydantic.field_validator("name")
    @classmethod
    def has_name(cls, name: str) -> str:
        CALLS.append("field")
        return name


CALLS: list[str] = []


def test_trusted_reads_skip_the_functions_of_a_model() -> None:
    checked, trusted = codec_of(Outer, Codec()), codec_of(Outer, Codec(), trusted=True)
    inner = Outer(path=pathlib.PurePath("b"), name="in", inner=Inner(n=1), others=[Inner(n=2)])
    outer = Outer(path=pathlib.PurePath("a"), name="ada", inner=Inner(n=1), next=inner)
    text = trusted.encode_body(outer)
    CALLS.clear()
    assert trusted.decode_body(text) == outer
    assert CALLS == []
    assert checked.decode_body(text) == outer
    assert {*CALLS} == {"inner", "name", "field"}
    with pytest.raises(InvalidBody, match="at 'name'"):
        trusted.decode_body('{"path": "a", "name": 5, "inner": {"n": 1}}')
