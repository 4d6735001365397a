"""The initial documents of upserts."""

import re
from typing import Any

import pytest

from collections_store import F, Filter, InvalidUpdate, Path
from collections_store.update.apply import seed, seed_id

SEEDS: list[tuple[Any, Any]] = [
    (None, {}),
    ({}, {}),
    ({"a": 1}, {"a": 1}),
    ({"a": None, "b": {"x": [1]}}, {"a": None, "b": {"x": [1]}}),
    ({"a": {"$eq": {"$x": 1}}}, {"a": {"$x": 1}}),
    ({"a.b": 1, "a.c": 2, "d": 3}, {"a": {"b": 1, "c": 2}, "d": 3}),
    ({"a.0.b": 1}, {"a": {"0": {"b": 1}}}),
    ({"$and": [{"a": 1}, {"$and": [{"b": 2}, {"c.d": 3}]}]}, {"a": 1, "b": 2, "c": {"d": 3}}),
    ({"$or": [{"a": 1}]}, {"a": 1}),
    ({"$or": [{"a": 1, "b": 2}]}, {"a": 1, "b": 2}),
    ({"$or": [{"a": 1}, {"b": 2}]}, {}),
    ({"$nor": [{"a": 1}]}, {}),
    ({"a": {"$in": [1]}}, {"a": 1}),
    ({"a": {"$in": [[1]]}}, {"a": [1]}),
    ({"a": {"$in": [None]}}, {"a": None}),
    ({"a": {"$in": [1, 2]}}, {}),
    ({"a": {"$in": [1, "x"]}}, {}),
    ({"a": {"$in": []}}, {}),
    ({"a": {"$all": [1]}}, {"a": 1}),
    ({"a": {"$all": []}}, {}),
    ({"a": {"$all": [{"$elemMatch": {"x": 1}}]}}, {}),
    ({"a": {"$gt": 1}, "b": {"$ne": 2}, "c": {"$not": {"$eq": 3}}, "d": {"$exists": True}}, {}),
    ({"a": {"$elemMatch": {"x": 1}}, "b": re.compile("x"), "c": {"$size": 1}}, {}),
    ({"a": {"$gte": 1, "$eq": 2}}, {"a": 2}),
    ({"$expr": {"$eq": ["$a", 1]}}, {}),
    ({"$id": "x", "$version": 1, "a": 1}, {"a": 1}),
    ({"$body._id": 4, "x": 1}, {"_id": 4, "x": 1}),
    ({"_id": "a", "x": 1}, {"x": 1}),
    ({"$body": [1]}, [1]),
    ({"$body": None}, None),
    ({"$body.a": 1}, {"a": 1}),
    (F(Path("a.b")) == 1, {"a.b": 1}),
]


@pytest.mark.parametrize(("filter", "expected"), SEEDS, ids=repr)
def test_the_equalities_of_a_filter(filter: Any, expected: Any) -> None:
    found = seed(Filter.parse(filter))
    assert found == expected
    if isinstance(expected, dict):
        assert list(found) == list(expected)


@pytest.mark.parametrize(
    ("filter", "problem"),
    [
        ({"a": {"b": 1}, "a.b": 1}, "'a' and 'a.b'"),
        ({"a.b": 1, "a": {"b": 1}}, "'a.b' and 'a'"),
        ({"$and": [{"a": 1}, {"a": 2}]}, "'a' and 'a'"),
        ({"a": {"$all": [1, 2]}}, "'a' and 'a'"),
        ({"$body": {}, "a": 1}, "'$body' and 'a'"),
    ],
    ids=repr,
)
def test_ambiguous_equalities(filter: Any, problem: str) -> None:
    with pytest.raises(InvalidUpdate, match="leaves open what to insert") as caught:
        seed(Filter.parse(filter))
    assert problem in caught.value.problem


def test_a_seed_does_not_share_the_filter() -> None:
    filter = Filter.parse({"a": [1]})
    seed(filter)["a"].append(2)
    assert seed(filter) == {"a": [1]}


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, None),
        ({"a": 1}, None),
        ({"$id": "x"}, "x"),
        ({"$id": {"$in": ["x"]}, "a": 1}, "x"),
        ({"$and": [{"$id": "x"}, {"$or": [{"$id": "x"}]}]}, "x"),
        ({"$id": {"$in": ["x", "y"]}}, None),
        ({"$id": {"$gt": "x"}}, None),
        ({"$or": [{"$id": "x"}, {"$id": "y"}]}, None),
        ({"$version": 1}, None),
    ],
    ids=repr,
)
def test_the_id_of_a_filter(filter: Any, expected: str | None) -> None:
    assert seed_id(Filter.parse(filter)) == expected


@pytest.mark.parametrize("filter", [{"$id": 5}, {"$and": [{"$id": "x"}, {"_id": "y"}]}], ids=repr)
def test_invalid_ids(filter: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"'\$id'"):
        seed_id(Filter.parse(filter))
