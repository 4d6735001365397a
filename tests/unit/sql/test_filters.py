"""Which conditions a dialect renders, the matcher decides the others; two forms of a condition on PostgreSQL."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from collections_store.document import Anonymous
from collections_store.expressions.path import Path
from collections_store.query.conditions import And, Fails, Field, HasElement, HasObject, Not, Passes
from collections_store.query.filter import Filter
from collections_store.query.matcher import matches
from collections_store.sql.dialects import named
from collections_store.sql.dialects.postgresql.filters import parameter
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
        ('{"a"\n:\n30}', 30),
        ('{"a":[30]}', 30),
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


@pytest.mark.parametrize(
    "path", ["a.0", "a'b", "a]b", "é", "a-z.b c", pytest.param("k" * 50_000, id="long")]
)
def test_equality_with_a_number_holds_under_any_key(path: str) -> None:
    sql = rendered("body", Filter.parse(path, 7).shape, iter([":value"]))
    first, *rest = path.split(".")
    body = {first: [7] if rest == ["0"] else {rest[0]: 7} if rest else 7}
    with closing(sqlite3.connect(":memory:")) as connection:
        query = f"SELECT ({sql}) IS TRUE FROM (SELECT :text AS body)"
        text = json.dumps(body, ensure_ascii=False)
        assert connection.execute(query, {"text": text, "value": 7}).fetchone() == (1,)


BODIES: tuple[Any, ...] = (
    {}, {"a": 1}, {"a": [1]}, {"a": [[1]]}, {"a": {"b": 1}}, {"a": {"b": [2, "x"]}},
    {"a": [{"b": 1}, {"b": None}]}, {"a": [[{"b": 1}]]}, {"a": "x"}, {"a": None}, {"a": True},
)  # fmt: skip
TESTS: tuple[Any, ...] = (
    1, "x", True, {"$gt": 0}, {"$lte": "x"}, {"$in": [1, "x"]}, {"$mod": [2, 0]},
    {"$type": ["string", "number"]}, {"$type": "null"}, {"$regex": "^x"},
)  # fmt: skip


@pytest.mark.parametrize("path", ["a", "a.b"])
def test_a_filter_of_values_finds_what_the_whole_predicate_finds(
    postgres_url: str, path: str
) -> None:
    import psycopg

    find = (
        "SELECT body @? %s::jsonpath, body @? %s::jsonpath FROM (SELECT %s::jsonb AS body) AS row"
    )
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for test in TESTS:
            filter = Filter.parse({path: test})
            short, whole = parameter(filter.condition), parameter(And((filter.condition,)))
            assert "exists" in whole
            assert "exists" not in short
            for body in BODIES:
                [found] = connection.execute(find, (short, whole, json.dumps(body)))
                assert found == (matches(filter, Anonymous(body)),) * 2, (test, body)


@pytest.mark.parametrize(
    "test", [None, {"$exists": True}, {"$size": 1}, {"$type": "array"}, {"$ne": 1}, {"$not": {"$gt": 1}}]
)  # fmt: skip
def test_a_test_of_more_than_values_is_a_predicate(test: Any) -> None:
    assert parameter(Filter.parse({"a": test}).condition).startswith("$ ? (")
    assert parameter(Filter.parse({"a.0.b": 1}).condition).startswith("$ ? (")
