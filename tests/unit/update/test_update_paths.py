"""`$`, `$[]` and `$[name]`: the elements that an update changes."""

import re
from typing import Any

import pytest
from unit.update.test_update_operators import give

from collections_store import InvalidUpdate, Path, Update, UpdateRefused

FOUND: list[tuple[Any, Any, Any, Any]] = [
    ({"$set": {"a.$": 9}}, {"a": 2}, {"a": [1, 2, 2]}, {"a": [1, 9, 2]}),
    ({"$set": {"a.$": 9}}, {"a": {"$gt": 1}}, {"a": [1, 2, 3]}, {"a": [1, 9, 3]}),
    ({"$inc": {"a.$.n": 1}}, {"a.n": 5}, {"a": [{"n": 4}, {"n": 5}]}, {"a": [{"n": 4}, {"n": 6}]}),
    ({"$inc": {"b.$": 1}}, {"a": 2}, {"a": [1, 2], "b": [0, 0]}, {"a": [1, 2], "b": [0, 1]}),
    ({"$set": {"b.$": 1}}, {"a": 2}, {"a": [1, 2], "b": {}}, {"a": [1, 2], "b": {"1": 1}}),
    ({"$unset": {"a.$": 1}}, {"a": 2}, {"a": [1, 2]}, {"a": [1, None]}),
    (
        {"$set": {"a.$.x": 1}},
        {"a": {"$elemMatch": {"n": 2, "m": 1}}},
        {"a": [{"n": 2}, {"n": 2, "m": 1}]},
        {"a": [{"n": 2}, {"n": 2, "m": 1, "x": 1}]},
    ),
    ({"$set": {"a.$": 9}}, {"a": {"$in": ["y", re.compile("x")]}}, {"a": ["z", "x", "y"]}, {"a": ["z", 9, "y"]}),
    # of two conditions the one on the array applies
    ({"$set": {"a.$": 9}}, {"a": 2, "b": 1}, {"a": [1, 2], "b": [1]}, {"a": [1, 9], "b": [1]}),
    # of two on the array the last in MongoDB's order of evaluation, however they are written
    ({"$set": {"a.$": 0}}, {"a": {"$gte": 80, "$lte": 90}}, {"a": [70, 85, 95]}, {"a": [70, 0, 95]}),
    ({"$set": {"a.$": 0}}, {"a": {"$lte": 90, "$gte": 80}}, {"a": [70, 85, 95]}, {"a": [70, 0, 95]}),
    ({"$set": {"a.$": 0}}, {"$and": [{"a": {"$gt": 80}}, {"a": {"$lt": 90}}]}, {"a": [70, 85, 95]}, {"a": [70, 0, 95]}),
    ({"$set": {"a.$": 0}}, {"a": {"$lt": 90, "$gt": 80}}, {"a": [95, 85]}, {"a": [0, 85]}),
    # together with other changes in the array
    ({"$set": {"a.0": 7, "a.$": 9}}, {"a": 2}, {"a": [1, 2]}, {"a": [7, 9]}),
    ({"$set": {"a.1.x": 7, "a.$.y": 9}}, {"a.n": 2}, {"a": [1, {"n": 2}]}, {"a": [1, {"n": 2, "x": 7, "y": 9}]}),
    ({"$set": {"a.$.b.$[]": 0}}, {"a.n": 2}, {"a": [{"n": 2, "b": [1, 1]}]}, {"a": [{"n": 2, "b": [0, 0]}]}),
    ({"$set": {"a.$[].b.$": 0}}, {"a.b": 2}, {"a": [{"b": [1]}, {"b": [2, 3]}]}, {"a": [{"b": [1, 0]}, {"b": [2, 0]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("update", "filter", "body", "expected"), FOUND, ids=repr)
def test_the_matched_element(update: Any, filter: Any, body: Any, expected: Any) -> None:
    assert give(update, body, found_by=filter) == expected


@pytest.mark.parametrize(
    ("filter", "body"),
    [
        ({}, {"a": [1, 2]}),
        ({"b": 1}, {"a": [1, 2], "b": 1}),
        ({"a": [1, 2]}, {"a": [1, 2]}),
        ({"a.0": 1}, {"a": [1, 2]}),
        ({"$or": [{"a": 2}, {"b": 2}]}, {"a": [1, 2]}),
        ({"$nor": [{"a": 3}, {"a": 4}]}, {"a": [1, 2]}),
        ({"$nor": [{"a": 3}]}, {"a": [1, 2]}),
    ],
    ids=repr,
)
def test_a_filter_without_a_matched_element(filter: Any, body: Any) -> None:
    with pytest.raises(UpdateRefused, match="the filter matched no element") as caught:
        give({"$set": {"a.$": 9}}, body, found_by=filter)
    assert caught.value.place == "a.$"


def test_an_upsert_has_no_matched_element() -> None:
    with pytest.raises(UpdateRefused, match="the filter matched no element"):
        give({"$set": {"a.$": 9}}, {"a": [2]}, found_by={"a": 2}, inserting=True)


EACH: list[tuple[Any, Any, Any, Any]] = [
    ({"$inc": {"a.$[]": 1}}, None, {"a": [1, 2]}, {"a": [2, 3]}),
    ({"$inc": {"a.$[]": 1}}, None, {"a": []}, {"a": []}),
    ({"$set": {"a.$[].b": 1}}, None, {"a": [{}, {"c": 1}]}, {"a": [{"b": 1}, {"c": 1, "b": 1}]}),
    ({"$inc": {"a.$[].$[]": 1}}, None, {"a": [[1], [2, 3]]}, {"a": [[2], [3, 4]]}),
    ({"$unset": {"a.$[]": 1}}, None, {"a": [1, 2]}, {"a": [None, None]}),
    ({"$pull": {"a.$[].b": 1}}, None, {"a": [{"b": [1, 2]}, {}]}, {"a": [{"b": [2]}, {}]}),
    ({"$set": {"a.$[e]": 0}}, [{"e": {"$gt": 1}}], {"a": [1, 2, 3]}, {"a": [1, 0, 0]}),
    ({"$set": {"a.$[e]": 0}}, [{"e": None}], {"a": [1, None]}, {"a": [1, 0]}),
    ({"$set": {"a.$[e].x": 0}}, [{"e.n": 1}], {"a": [{"n": 1}, {"n": 2}, 1]}, {"a": [{"n": 1, "x": 0}, {"n": 2}, 1]}),
    ({"$set": {"a.$[e]": 0}}, [{"$or": [{"e": 1}, {"e": {"$gt": 2}}]}], {"a": [1, 2, 3]}, {"a": [0, 2, 0]}),
    ({"$set": {"a.$[e]": 0}}, [{"e": {"$not": {"$gt": 1}}}], {"a": [1, 2]}, {"a": [0, 2]}),
    ({"$set": {"a.$[e]": 0}}, [{"e": {"x": 1}}], {"a": [{"x": 1}, {"x": 1, "y": 1}]}, {"a": [0, {"x": 1, "y": 1}]}),
    (
        {"$inc": {"a.$[i].b.$[j]": 10}},
        [{"i.n": 1}, {"j": {"$lt": 5}}],
        {"a": [{"n": 1, "b": [1, 9]}, {"n": 2, "b": [1]}]},
        {"a": [{"n": 1, "b": [11, 9]}, {"n": 2, "b": [1]}]},
    ),
    # one name in two paths; two names in one element without a conflict
    ({"$set": {"a.$[e].x": 1, "b.$[e]": 2}}, [{"e.n": 1}], {"a": [{"n": 1}], "b": [1]}, {"a": [{"n": 1, "x": 1}], "b": [1]}),
    ({"$set": {"a.$[e].x": 1, "a.$[f].y": 2}}, [{"e.n": 1}, {"f.n": 1}], {"a": [{"n": 1}]}, {"a": [{"n": 1, "x": 1, "y": 2}]}),
    ({"$set": {"a.$[].x": 1, "a.$[f].y": 2}}, [{"f.n": 1}], {"a": [{"n": 1}, {}]}, {"a": [{"n": 1, "x": 1, "y": 2}, {"x": 1}]}),
]  # fmt: skip


@pytest.mark.parametrize(("update", "filters", "body", "expected"), EACH, ids=repr)
def test_all_and_filtered_positional_operators(
    update: Any, filters: Any, body: Any, expected: Any
) -> None:
    assert give(update, body, filters=filters) == expected


REFUSED: list[tuple[Any, Any, Any, str, str]] = [
    ({"$set": {"a.$[]": 0}}, None, {}, "a", "requires an array, got nothing"),
    ({"$set": {"a.b.$[]": 0}}, None, {}, "a.b", "got nothing"),
    ({"$unset": {"a.$[]": 0}}, None, {}, "a", "got nothing"),
    ({"$set": {"a.$[]": 0}}, None, {"a": 5}, "a", "requires an array, got 5"),
    ({"$set": {"a.$[].b": 0}}, None, {"a": {"b": 1}}, "a", "requires an array, got {'b': 1}"),
    ({"$set": {"a.b.$[]": 0}}, None, {"a": 5}, "a.b", "5 has no arrays in it"),
    ({"$set": {"a.$[].$[]": 0}}, None, {"a": [[], 5]}, "a.1", "requires an array, got 5"),
    ({"$set": {"a.$[e].b": 0}}, [{"e": 5}], {"a": [5]}, "a.0.b", "5 has no field 'b'"),
    ({"$set": {"a.$[e]": 0, "a.$[f]": 1}}, [{"e": 5}, {"f": 5}], {"a": [5]}, "a.0", "two changes meet"),
    ({"$set": {"a.$[].b": 0, "a.$[f]": 1}}, [{"f.b": 5}], {"a": [{"b": 5}]}, "a.0", "two changes meet"),
    ({"$set": {"a.$[e].b": 0}, "$inc": {"a.$[].b": 1}}, [{"e.b": 5}], {"a": [{"b": 5}]}, "a.0", "two changes meet"),
]  # fmt: skip


@pytest.mark.parametrize(("update", "filters", "body", "place", "problem"), REFUSED, ids=repr)
def test_missing_and_unmatched_elements(
    update: Any, filters: Any, body: Any, place: str, problem: str
) -> None:
    with pytest.raises(UpdateRefused) as caught:
        give(update, body, filters=filters)
    assert caught.value.place == place
    assert problem in caught.value.problem


def test_conflicting_paths_to_the_matched_element() -> None:
    with pytest.raises(UpdateRefused, match="two changes meet"):
        give({"$set": {"a.1": 7, "a.$": 9}}, {"a": [1, 2]}, found_by={"a": 2})


INVALID: list[tuple[Any, Any, str, str]] = [
    ({"$set": {"a.$[e]": 1}}, None, "$set.a.$[e]", "array_filters has none for 'e'"),
    ({"$set": {"a.$[e]": 1}}, [{"f": 1}], "$set.a.$[e]", "has none for 'e'"),
    ({"$set": {"a": 1}}, [{"e": 1}], "array_filters", "no path has $[e]"),
    ({"$set": {"a.$[e]": 1}}, [{"e": 1}, {"f": 1}], "array_filters", "no path has $[f]"),
    ({"$set": {"a.$[e]": 1}}, [{"e": 1}, {"e.b": 1}], "array_filters.1", "another filter for 'e'"),
    ({"$set": {"a.$[e]": 1}}, [{"e": 1, "f": 1}], "array_filters.0", "one field at its top, got ['e', 'f']"),
    ({"$set": {"a.$[e]": 1}}, [{"$or": [{"e": 1}, {"f": 1}]}], "array_filters.0", "one field at its top"),
    ({"$set": {"a.$[e]": 1}}, [{}], "array_filters.0", "one field at its top, got []"),
    ({"$set": {"a.$[e]": 1}}, [{"E": 1}], "array_filters.0", "must begin with a lower-case letter"),
    ({"$set": {"a.$[e]": 1}}, [{"e_1": 1}], "array_filters.0", "must begin with a lower-case letter"),
    ({"$set": {"a.$[e]": 1}}, [{"e": {"$foo": 1}}], "array_filters.0.e.$foo", "no such operator"),
    ({"$set": {"a.$[e]": 1}}, [{"$expr": True}], "array_filters.0.$expr", "not in $elemMatch"),
    ({"$set": {"a.$[e]": 1}}, [{"$id": "x"}], "array_filters.0.$id", "no $id"),
    ({"$set": {"a.$[e]": 1}}, [{"$jsonSchema": {}}], "array_filters.0.$jsonSchema", "not for the elements"),
    ({"$set": {"a.$[e]": 1}}, [5], "array_filters.0", "must be a filter document"),
    ({"$set": {"a.$[e]": 1}}, {"e": 1}, "array_filters", "must be a list of filters"),
    ({"$set": {"a.$[E]": 1}}, [{"e": 1}], "$set.a.$[E]", "must be `$[]` or `$[name]`"),
    ({"$set": {"a.$[e.b]": 1}}, [{"e": 1}], "$set.a.$[e.b]", "must be `$[]` or `$[name]`"),
    ({"$set": {"a.$[]]": 1}}, None, "$set.a.$[]]", "must be `$[]` or `$[name]`"),
    ({"$set": {"$": 1}}, None, "$set.$", "$ must follow the path of an array"),
    ({"$set": {"$[].a": 1}}, None, "$set.$[].a", "$[] must follow the path of an array"),
    ({"$set": {"a.$.b.$": 1}}, None, "$set.a.$.b.$", "may stand in a path once"),
    ({"$set": {"": 1}}, None, "$set.", "a part of the path is empty"),
    ({"$set": {"a..b": 1}}, None, "$set.a..b", "a part of the path is empty"),
    ({"$set": {"a.": 1}}, None, "$set.a.", "a part of the path is empty"),
    ({"$set": {"a\0": 1}}, None, "$set.a\0", "NUL"),
    ({"$set": {".".join("a" * 201): 1}}, None, "$set." + ".".join("a" * 201), "at most 200 keys"),
    ({"$set": {"$id": "x"}}, None, "$set.$id", "$id is metadata: an update changes"),
    ({"$inc": {"$version": 1}}, None, "$inc.$version", "an update changes the body only"),
    ({"$set": {"$body": {}}}, None, "$set.$body", "replace_one replaces the body"),
    ({"$set": {"$a.b": 1}}, None, "$set.$a.b", "must not begin with $. For a key of the body write Path('$a', 'b')"),
    ({"$set": {5: 1}}, None, "$set", "a path must be a string or a Path, got 5"),
    ({"$set": {Path(): 1}}, None, "$set", "must be a path to a field"),
    # conflicts
    ({"$set": {"a": 1}, "$inc": {"a": 1}}, None, "$inc.a", "another change of 'a'"),
    ({"$set": {"a": 1, "a.b": 1}}, None, "$set.a.b", "another change of 'a'"),
    ({"$set": {"a.b": 1, "a": 1}}, None, "$set.a", "another change of 'a'"),
    ({"$set": {"a.b.c": 1}, "$unset": {"a.b": 1}}, None, "$unset.a.b", "another change of 'a.b'"),
    ({"$set": {"a.$[]": 1, "a.0": 1}}, None, "$set.a.0", "another change of 'a'"),
    ({"$set": {"a.$": 1, "a.$[]": 1}}, None, "$set.a.$[]", "another change of 'a'"),
    ({"$set": {"a.$": 1}, "$inc": {"a.$": 1}}, None, "$inc.a.$", "another change of 'a.$'"),
    ({"$setOnInsert": {"a": 1}, "$set": {"a": 1}}, None, "$set.a", "another change of 'a'"),
    ({"$rename": {"a": "b"}, "$set": {"a": 1}}, None, "$set.a", "another change of 'a'"),
    ({"$rename": {"a": "b"}, "$set": {"b.c": 1}}, None, "$set.b.c", "another change of 'b'"),
    ({"$rename": {"a": "b", "b": "c"}}, None, "$rename.b", "another change of 'b'"),
    ({"$rename": {"a.b": "a"}}, None, "$rename.a.b", "another change of 'a'"),
]  # fmt: skip


@pytest.mark.parametrize(("update", "filters", "place", "problem"), INVALID, ids=repr)
def test_invalid_paths_and_array_filters(
    update: Any, filters: Any, place: str, problem: str
) -> None:
    with pytest.raises(InvalidUpdate) as caught:
        Update.parse(update, array_filters=filters)
    assert caught.value.place == place
    assert problem in caught.value.problem


def test_keys_of_a_path_are_literal() -> None:
    update = {"$set": {Path("a.b", "$"): 1, Path("$[]"): 2, Path("c", ""): 3}}
    assert give(update, {}) == {"$[]": 2, "a.b": {"$": 1}, "c": {"": 3}}


def test_a_deep_path() -> None:
    found = give({"$set": {".".join("a" * 200): 1}}, {})
    for _ in range(200):
        (found,) = found.values()
    assert found == 1
