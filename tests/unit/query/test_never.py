"""Conditions that never hold."""

from typing import Any

import pytest

from collections_store import Filter
from collections_store.query.conditions import Or

NEVER: list[dict[str, Any]] = [
    {"q": {"$in": []}},
    {"$id": {"$in": []}},
    {"q": {"$gt": None}},
    {"q": 1, "r": {"$in": []}},
    {"$or": [{"q": {"$in": []}}, {"r": {"$in": []}}]},
]


@pytest.mark.parametrize("never", NEVER, ids=str)
def test_an_or_leaves_out_conditions_that_never_hold(never: dict[str, Any]) -> None:
    assert Filter.parse({"$or": [never, {"n": 1}]}) == Filter.parse({"n": 1})
    assert Filter.parse({"$nor": [{"n": 1}, never]}) == Filter.parse({"$nor": [{"n": 1}]})
    assert Filter.parse({"$or": [never, never]}).condition == Or(())


@pytest.mark.parametrize("filter", [*NEVER, {"q": {"$nin": []}}, {"$nor": NEVER}], ids=str)
def test_its_printed_form_is_the_same_filter(filter: dict[str, Any]) -> None:
    printed = Filter.parse(filter).to_json()
    assert Filter.parse(printed).to_json() == printed
