"""Steps between schema versions: what is declared, what they make of a body, and what is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from collections_store.document import SCHEMA_VERSION as FIELD
from collections_store.errors import DocumentTooNew, InvalidOption, UpgradeFailed
from collections_store.models.upgrades import Upgrades


def split_name(body: dict[str, Any]) -> dict[str, Any]:
    first, last = body.pop("name").split(" ", 1)
    return {**body, "first": first, "last": last}


def add_tags(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "tags": []}


UPGRADES = Upgrades.parse(3, {1: split_name, 2: add_tags})


def test_a_body_passes_every_step_from_its_version() -> None:
    assert UPGRADES.apply({"name": "Ada Lovelace"}) == {
        "first": "Ada", "last": "Lovelace", "tags": [],
    }  # fmt: skip
    assert UPGRADES.apply({FIELD: 2, "first": "Ada"}) == {"first": "Ada", "tags": []}
    assert UPGRADES.apply({FIELD: 3, "name": "Ada"}) == {"name": "Ada"}


def test_the_order_of_the_declaration_does_not_matter() -> None:
    assert Upgrades.parse(3, {2: add_tags, 1: split_name}).apply({"name": "A B"})["tags"] == []


def test_a_newer_body_is_refused_unless_a_downgrade_is_declared() -> None:
    with pytest.raises(
        DocumentTooNew, match="has schema version 4, which is newer than 3"
    ) as caught:
        UPGRADES.apply({FIELD: 4})
    assert (caught.value.found, caught.value.expected) == (4, 3)
    down = Upgrades.parse(2, downgrades={3: lambda body: {"kept": body["kept"]}, 4: add_tags})
    assert down.apply({FIELD: 4, "kept": 1}) == {"kept": 1}
    with pytest.raises(DocumentTooNew):
        down.apply({FIELD: 5})


def test_a_version_without_a_step_is_refused() -> None:
    only = Upgrades.parse(3, {2: add_tags})
    with pytest.raises(
        UpgradeFailed, match="from schema version 1 to 2: `upgrades` has no step from 1"
    ):
        only.apply({})


@pytest.mark.parametrize("body", [5, "text", None, [1], True])
def test_only_an_object_has_a_version(body: Any) -> None:
    with pytest.raises(UpgradeFailed, match="must be a JSON object"):
        UPGRADES.apply(body)


@pytest.mark.parametrize("version", ["3", 3.0, True, 0, -1, None, [3], 2**31])
def test_the_stored_version_is_an_integer(version: Any) -> None:
    with pytest.raises(UpgradeFailed, match="schema_version must be an integer from 1 on"):
        UPGRADES.apply({FIELD: version})


def cycle(body: dict[str, Any]) -> dict[str, Any]:
    body["self"] = body
    return body


def forever(_: Any) -> Any:
    return forever(_)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (lambda body: body["missing"], "<lambda> raised KeyError in line"),
        (forever, "forever raised RecursionError in line"),
        (lambda _: None, "returned nothing: it must return the new body"),
        (lambda body: [body], "must return a JSON object, got list"),
        (lambda body: {**body, FIELD: 1}, "must return a body of version 2, got schema_version 1"),
        (lambda body: {**body, FIELD: 3}, "must return a body of version 2, got schema_version 3"),
        (lambda body: {**body, "a": {1, 2}}, "returned a body: at 'a': set is not JSON"),
        (cycle, "returned a body:"),
        (lambda _: {"other": 1}, "must keep the field 'id', which is the id of the document"),
        (lambda body: {**body, "id": "bob"}, "must keep the field 'id'"),
    ],
)
def test_a_step_that_fails_is_reported(step: Callable[[Any], Any], problem: str) -> None:
    with pytest.raises(UpgradeFailed) as caught:
        Upgrades.parse(2, {1: step}).apply({"id": "ada", "secret": "s3cret"}, "ada")
    error = caught.value.of("people", "ada")
    assert "collection people: document 'ada' cannot go from schema version 1 to 2" in str(error)
    assert problem in str(error)
    assert "s3cret" not in str(error)
    assert (error.found, error.wanted, error.collection, error.id) == (1, 2, "people", "ada")


def test_the_id_may_change_where_it_is_not_the_documents() -> None:
    assert Upgrades.parse(2, {1: lambda _: {"id": 7}}).apply({"id": "x"}, "ada") == {"id": 7}


def test_a_step_may_state_its_own_version() -> None:
    assert Upgrades.parse(2, {1: lambda body: {**body, FIELD: 2}}).apply({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((0,), "schema_version: must be an integer from 1"),
        (("3",), "schema_version: must be an integer from 1"),
        ((True,), "schema_version: must be an integer from 1"),
        ((3, [split_name]), "upgrades: must be a mapping of versions to functions"),
        ((3, {1: split_name}), "upgrades: must lead from each version to the next, up to 3, got steps from 1"),
        ((4, {1: split_name, 3: add_tags}), "up to 4, got steps from 1, 3"),
        ((2, {1: split_name, 2: add_tags}), "up to 2, got steps from 1, 2"),
        ((2, {"1": split_name}), "upgrades, a version: must be an integer from 1"),
        ((2, {1: "split"}), "option upgrades[1]: must be a function"),
        ((2, None, {2: add_tags}), "downgrades: must lead from each version to the one before, down to 2"),
        ((2, None, {4: add_tags}), "down to 2, got steps from 4"),
        ((2, None, None, 1), "write_back: must be True or False"),
    ],
)  # fmt: skip
def test_declarations_that_are_refused(arguments: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Upgrades.parse(*arguments)
    assert problem in str(caught.value)


class First(pydantic.BaseModel):
    name: str


@dataclass
class Second:
    first: str
    born: int = 1815


class Third(TypedDict):
    first: str


class Fourth(msgspec.Struct):
    first: str
    tags: list[str] = []


def first_to_second(old: First) -> Second:
    return Second(old.name.split()[0])


def second_to_third(old: Second) -> Third:
    return {"first": old.first.upper()}


def third_to_fourth(old: "Third") -> Fourth:
    return Fourth(**old)


def test_a_step_from_a_model_to_its_successor() -> None:
    steps = {1: first_to_second, 2: second_to_third, 3: third_to_fourth}
    assert Upgrades.parse(2, {1: first_to_second}).apply({"name": "Ada L"}) == {
        "first": "Ada", "born": 1815,
    }  # fmt: skip
    assert Upgrades.parse(4, steps).apply({"name": "Ada L"}) == {"first": "ADA", "tags": []}


def returns_the_wrong_one(old: First) -> Second:
    return old  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("step", "body", "problem"),
    [
        (first_to_second, {"title": 5}, "first_to_second cannot take it: at 'name': Field required: it must be a First"),
        (returns_the_wrong_one, {"name": "Ada"}, "returns_the_wrong_one returned a body:"),
        (first_to_second, {"name": ""}, "first_to_second raised IndexError in line"),
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_the_model_of_a_step(
    step: Callable[[Any], Any], body: Any, problem: str
) -> None:
    with pytest.raises(UpgradeFailed) as caught:
        Upgrades.parse(2, {1: step}).apply(body)
    assert problem in str(caught.value)


def test_annotations_that_name_no_model() -> None:
    def strange(body: "dict[str, Nowhere]") -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return {**body, "a": 1}

    class Keeping:
        def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
            return body

    assert Upgrades.parse(2, {1: strange}).apply({}) == {"a": 1}
    assert Upgrades.parse(2, {1: dict}).apply({"a": 1}) == {"a": 1}
    assert Upgrades.parse(2, {1: Keeping()}).apply({"a": 1}) == {"a": 1}
