"""Filters of `$id` that are read by a list of ids, without the filter language."""

import pytest

from collections_store.operations.find import read_ids


class Name(str):
    __slots__ = ()


def test_a_list_of_plain_ids_is_read_as_it_is() -> None:
    assert read_ids({"$in": ["b", "a", "b", ""]}) == ("b", "a", "b", "")


@pytest.mark.parametrize("odd", [Name("b"), b"b", 1, None, ["b"], "ü", "b\0", "\0"])
def test_a_list_with_any_other_id_is_left_to_the_filter_language(odd: object) -> None:
    assert read_ids({"$in": ["a", odd]}) is None
    assert read_ids({"$in": [odd, "a"]}) is None


@pytest.mark.parametrize(
    "other", ["a", ["a"], {}, {"$in": ("a",)}, {"$in": "a"}, {"$in": ["a"], "$gt": "0"}]
)
def test_no_other_filter_is_a_list_of_ids(other: object) -> None:
    assert read_ids(other) is None


def test_an_empty_list_is_left_to_the_filter_language() -> None:
    assert not read_ids({"$in": []})
