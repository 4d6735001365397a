"""Which conditions a dialect renders; the matcher decides the others."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from collections_store.expressions.path import Path
from collections_store.query.conditions import Fails, Field, HasElement, HasObject, Not, Passes
from collections_store.query.filter import Filter
from collections_store.sql.dialects import named
from collections_store.sql.dialects.protocols import inner_tests
from collections_store.sql.dialects.sqlite.filters import rendered

DIALECTS = ("sqlite", "postgresql")


@dataclass(frozen=True)
class IsNew:
    """A test that no dialect knows."""


UNKNOWN: Any = IsNew()
FIELD = Field(Path("a"), UNKNOWN)


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(
    "condition",
    [
        FIELD,
        Not(FIELD),
        Field(Path("a"), Passes((UNKNOWN,))),
        Field(Path("a"), Fails((UNKNOWN,))),
        Field(Path("a"), HasElement((UNKNOWN,))),
        Field(Path("a"), HasObject(FIELD)),
    ],
)
def test_a_dialect_renders_no_test_that_it_does_not_know(name: str, condition: Any) -> None:
    assert not named(name).filters.can_render(condition)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_keys_within_elements_count_as_part_of_the_path(name: str) -> None:
    filters = named(name).filters
    keys = 6 if name == "sqlite" else 21
    nested: dict[str, Any] = {"c" * keys: 1}
    for _ in range(keys - 1):
        nested = {"a": {"$elemMatch": nested}}
    assert not filters.can_render(Filter.parse(nested).shape)
    assert filters.can_render(Filter.parse({"a.b": {"$elemMatch": {"c": 1}}}).shape)


def test_one_long_path_of_several_is_for_the_matcher() -> None:
    filters = named("postgresql").filters
    for keys, can_render in ((20, True), (21, False)):
        shape = Filter.parse({"$or": [{"a": 1}, {".".join("b" * keys): 1}]}).shape
        assert filters.can_render(shape) is can_render


def test_inner_tests_have_the_keys_of_all_paths_to_them() -> None:
    condition = Filter.parse({"a.b": {"$elemMatch": {"c": 1, "d": {"$exists": True}}}}).condition
    found = [(keys, type(test).__name__) for keys, test in inner_tests(condition)]
    assert found == [
        (("a", "b"), "HasObject"),
        (("a", "b", "c"), "Equals"),
        (("a", "b", "d"), "Exists"),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a" : 30}', 30),
        ('{"a": [ 1, 30.0 ]}', 30),
        ('{"a": 1e+05}', 100_000),
        ('{"a": 1.0e-1}', 0.1),
        ('{"a": 1.5E0}', 1.5),
        ('{"a": "x\\/y"}', "x/y"),
        ('{"a": "\\u0026"}', "&"),
        ('{"a": "\\u00e9"}', "é"),
    ],
)
def test_equality_holds_for_bodies_that_other_programs_wrote(text: str, value: Any) -> None:
    sql = rendered("body", Filter.parse("a", value).shape, iter([":value"]))
    with closing(sqlite3.connect(":memory:")) as connection:
        query = f"SELECT ({sql}) IS TRUE FROM (SELECT :text AS body)"
        assert connection.execute(query, {"text": text, "value": value}).fetchone() == (1,)
        assert connection.execute(query, {"text": '{"a": "-"}', "value": value}).fetchone() == (0,)
