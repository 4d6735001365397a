"""Indexes that a model declares."""

import dataclasses
from typing import Annotated, Any, ClassVar, NewType

import msgspec
import pydantic
import pytest

from collections_store import Index, Indexed, InvalidIndex
from collections_store.models.indexes import declared_indexes


class Town(msgspec.Struct):
    code: Annotated[str, Indexed()] = msgspec.field(default="", name="zip")


class Person(msgspec.Struct, kw_only=True):
    __indexes__: ClassVar = [Index.parse([("country", 1), ("age", -1)], where={"active": True})]
    mail: Annotated[str, Indexed(unique=True)]
    age: Annotated[int | None, Indexed(descending=True, name="by_age")] = None
    tags: Annotated[list[str], Indexed(arrays=True)] = []
    town: Town | None = None
    friend: "Person | None" = None


class PydanticPerson(pydantic.BaseModel):
    __indexes__: ClassVar = [Index.parse("age", unique=True)]
    mail: Annotated[str, Indexed(unique=True)]


@dataclasses.dataclass
class PersonData:
    mail: Annotated[str, Indexed(unique=True)]


def test_declared_indexes() -> None:
    assert list(map(str, declared_indexes(Person))) == [
        "mail_1: {'mail': 1}, unique",
        "by_age: {'age': -1}",
        "tags_arrays: {'tags': 1}, arrays",
        "town.zip_1: {'town.zip': 1}",
        "country_1_age_-1: {'country': 1, 'age': -1}, where {'active': True}",
    ]


@pytest.mark.parametrize("model", [PydanticPerson, PersonData])
def test_models_of_other_kinds(model: Any) -> None:
    assert str(declared_indexes(model)[0]) == "mail_1: {'mail': 1}, unique"


Mail = NewType("Mail", Annotated[str, Indexed()])


class PydanticOptional(pydantic.BaseModel):
    mail: Annotated[str, Indexed(unique=True)] | None = None
    other: Mail = Mail("")
    both: Annotated[Annotated[int, Indexed()] | str, "…"] = 0


@dataclasses.dataclass
class OptionalData:
    mail: Annotated[str, Indexed(unique=True)] | None = None
    other: Mail = Mail("")
    both: Annotated[Annotated[int, Indexed()] | str, "…"] = 0


@pytest.mark.parametrize("model", [PydanticOptional, OptionalData])
def test_declarations_within_unions_and_names(model: Any) -> None:
    found = list(map(str, declared_indexes(model)))
    assert found == ["mail_1: {'mail': 1}, unique", "other_1: {'other': 1}", "both_1: {'both': 1}"]


@pytest.mark.parametrize(
    "tags", [list[Annotated[str, Indexed()]], dict[str, Annotated[str, Indexed()]] | None]
)
def test_declarations_of_elements_are_refused(tags: Any) -> None:
    model = dataclasses.make_dataclass("Tagged", [("tags", tags)])
    with pytest.raises(InvalidIndex, match=r"at 'tags'.*: annotate the field, not what is in it"):
        declared_indexes(model)


def test_invalid_declarations() -> None:
    class Wrong(msgspec.Struct):
        __indexes__: ClassVar = ["age"]

    with pytest.raises(InvalidIndex, match=r"__indexes__ of Wrong must list Index.parse"):
        declared_indexes(Wrong)

    class Unusable(msgspec.Struct):
        tags: Annotated[str, Indexed(sparse=True, where={"on": True})]

    with pytest.raises(InvalidIndex, match="sparse"):
        declared_indexes(Unusable)


RULES = {"locale": "simple", "strength": 2}


class OptionalWithMappings(msgspec.Struct):
    mail: Annotated[str, Indexed(collation=RULES)] | None = None
    name: Annotated[str, Indexed(where={"active": True})] | None = None


def test_a_union_holds_an_index_with_mappings() -> None:
    assert list(map(str, declared_indexes(OptionalWithMappings))) == [
        f"mail_1: {{'mail': 1}}, collation {RULES}",
        "name_1: {'name': 1}, where {'active': True}",
    ]


def test_the_order_of_options_is_that_of_version_0_1() -> None:
    index = Indexed(True, False, None, False, False, None, "login", False)
    assert (index.name, index.collation) == ("login", None)
