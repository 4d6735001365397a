"""The keys of a document in an index through arrays: MongoDB's."""

from typing import Any

import pytest

from collections_store import Path
from collections_store.query.multikey import EMPTY, ParallelArrays, index_keys


def keys(body: Any, *paths: str) -> list[Any]:
    found = index_keys(body, [Path(*each.split(".")) for each in paths])
    return [key[0] if len(paths) == 1 else key for key in found]


@pytest.mark.parametrize(
    ("body", "paths", "expected"),
    [
        ({"a": [1, 1, "x"]}, ["a"], [1, 1, "x"]),
        ({"a": [[1, 2], []]}, ["a"], [[1, 2], []]),
        ({}, ["a"], [None]),
        (5, ["a"], [None]),
        ([{"a": 1}], ["a"], [None]),
        ({"a": 5}, ["a.b"], [None]),
        ({"a": []}, ["a.b"], [None]),
        ({"a": [{"b": 1}, 5, {}, [{"b": 2}]]}, ["a.b"], [1, None, None, None]),
        ({"a": [{"b": [1, 2]}, {"b": 3}]}, ["a.b"], [1, 2, 3]),
        ({"a": [{"b": 1, "c": 2}, {"b": 3}]}, ["a.b", "a.c"], [(1, 2), (3, None)]),
        ({"a": [1, 2], "b": 3}, ["a", "b"], [(1, 3), (2, 3)]),
        ({"a": [{"b": [5, 6]}]}, ["a", "a.b"], [({"b": [5, 6]}, 5), ({"b": [5, 6]}, 6)]),
        ({"a": [{"b": [1], "c": 2}, {"b": 1, "c": [2]}]}, ["a.b", "a.c"], [(1, 2), (1, 2)]),
    ],
)
def test_keys(body: Any, paths: list[str], expected: list[Any]) -> None:
    assert keys(body, *paths) == expected


def test_an_empty_array_has_its_own_key() -> None:
    assert keys({"a": []}, "a")[0] is EMPTY
    assert keys({"a": [{"b": []}, {"b": [[]]}]}, "a.b")[0] is EMPTY
    assert keys({"a": [[]]}, "a")[0] is not EMPTY


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"a": [1], "b": [2]}, ["a", "b"]),
        ({"a": [], "b": []}, ["a", "b"]),
        ({"a": [{"b": 1}], "c": [1]}, ["a.b", "c"]),
        ({"a": [{"b": [1], "c": [2]}]}, ["a.b", "a.c"]),
    ],
)
def test_arrays_side_by_side(body: Any, paths: list[str]) -> None:
    with pytest.raises(ParallelArrays) as caught:
        keys(body, *paths)
    assert (caught.value.first, caught.value.second) == (0, 1)
