"""What differs between two versions of a body, as an update."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store.document import Document
from collections_store.update import Update
from collections_store.update.difference import difference

keys = st.sampled_from(["a", "b", "c", "0", "1", "", "a.b", "$set"])
values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, "", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
bodies = st.dictionaries(keys, values, max_size=4)


@given(values | bodies, values | bodies)
def test_the_update_makes_one_of_the_other(before: Any, after: Any) -> None:
    update = difference(before, after)
    if update is None:
        return
    made = Update.parse(update).apply(Document("a", before), now=0) if update else before
    if (
        isinstance(made, dict) and made.keys() == after.keys()
    ):  # an update adds fields in its own order
        after = {key: after[key] for key in made}
    assert json.dumps(made) == json.dumps(after)


@given(bodies)
def test_equal_bodies(body: Any) -> None:
    assert difference(body, json.loads(json.dumps(body))) == {}


@pytest.mark.parametrize(
    ("before", "after", "update"),
    [
        ({"n": 1}, {"n": 1.0}, {"$set": {"n": 1.0}}),
        ({"n": 1}, {"n": True}, {"$set": {"n": True}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"$set": {"a.c": 3}}),
        ({"a": {"b": 1}}, {"a": {}}, {"$set": {"a": {}}}),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, {"$set": {"a": [1, 2, 3]}}),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, {"$set": {"a.0.b": 2}}),
        ({"a": {"b.c": 1}}, {"a": {"b.c": 2}}, {"$set": {"a": {"b.c": 2}}}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, {"$set": {"a": {"y": 2, "x": 1}}}),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}, None),
        ({}, {"b": 1, "a": 2}, {"$set": {"b": 1, "a": 2}}),
        ({"x": {"y": 1}}, {"x": {"y": 1, "a": 2, "b": 3}}, {"$set": {"x.a": 2, "x.b": 3}}),
        (
            {"x": {"y": 1}},
            {"x": {"y": 1, "b": 3, "a": 2}},
            {"$set": {"x": {"y": 1, "b": 3, "a": 2}}},
        ),
        (
            {"x": {"y": 1}},
            {"x": {"y": 1, "a": 2, "10": 3}},
            {"$set": {"x": {"y": 1, "a": 2, "10": 3}}},
        ),
        ({"a": 1, "b": 2}, {"b": 2, "c": 3}, {"$set": {"c": 3}, "$unset": {"a": ""}}),
        ({"a.b": 1}, {"a.b": 2}, None),
        ([1], [2], None),
        ([1], [1], {}),
    ],
)
def test_the_fewest_fields(before: Any, after: Any, update: Any) -> None:
    assert difference(before, after) == update
    assert difference(after, after) == {}


@pytest.mark.parametrize(
    ("before", "after", "stored", "update"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {}, {"$set": {"a": {"b": 1, "c": 3}}}),
        ({"a": [1, 2]}, {"a": [1, 3]}, {}, {"$set": {"a": [1, 3]}}),
        ({"a": [1, 2]}, {"a": [3, 2]}, {"a": [2, 1]}, {"$set": {"a": [3, 2]}}),
        ({"a": [1, 2]}, {"a": [3, 2]}, {"a": [0, 1, 2]}, {"$set": {"a": [3, 2]}}),
        (
            {"a": [{"b": [1], "d": 0}]},
            {"a": [{"b": [2], "d": 0}]},
            {"a": [{"b": [1], "x": 1}]},
            {"$set": {"a.0.b.0": 2}},
        ),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, {"a": [{"b": "1"}]}, {"$set": {"a": [{"b": 2}]}}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": "1", "x": 1}}, {"$set": {"a.b": 2}}),
        ({"a": 1}, {"a": 2}, [1], None),
        ({"a": 1}, {"a": 1}, [1], {}),
    ],
)
def test_a_body_that_is_stored_in_another_spelling(
    before: Any, after: Any, stored: Any, update: Any
) -> None:
    assert difference(before, after, stored) == update
