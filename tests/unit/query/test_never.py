"""Conditions that never hold."""

from typing import Any

import pytest

from collections_store import F, Filter
from collections_store.query.conditions import Or

NEVER: list[dict[str, Any]] = [
    {"q": {"$in": []}},
    {"$id": {"$in": []}},
    {"q": {"$gt": None}},
    {"$nor": [{}]},
    {"q": 1, "r": {"$in": []}},
    {"$or": [{"q": {"$in": []}}, {"r": {"$in": []}}]},
]


@pytest.mark.parametrize("never", NEVER, ids=str)
def test_an_or_leaves_out_conditions_that_never_hold(never: dict[str, Any]) -> None:
    for filter, simple in (
        ({"$or": [never, {"n": 1, "m": 2}]}, {"n": 1, "m": 2}),
        ({"$nor": [{"n": 1}, never]}, {"$nor": [{"n": 1}]}),
        (
            {"k": 1, "$or": [{"$or": [never, {"n": 1}]}, {"m": 2}]},
            {"k": 1, "$or": [{"n": 1}, {"m": 2}]},
        ),
        (Filter.parse(never) | (F("n") == 1), {"n": 1}),
    ):
        assert Filter.parse(filter).simplified() == Filter.parse(simple)
    assert Filter.parse({"$or": [never, never]}).simplified().condition == Or(())


def test_a_filter_without_such_conditions_stays_the_same_object() -> None:
    for document in ({"n": 1}, {"n": {"$in": [1]}}, {"$or": [{"n": 1}, {"m": {"$exists": False}}]}):
        filter = Filter.parse(document)
        assert filter.simplified() is filter


@pytest.mark.parametrize("filter", [*NEVER, {"q": {"$nin": []}}, {"$nor": NEVER}], ids=str)
def test_its_printed_form_is_the_same_filter(filter: dict[str, Any]) -> None:
    for each in (Filter.parse(filter), Filter.parse(filter).simplified()):
        printed = Filter.parse(each.to_json())
        assert printed.to_json() == each.to_json()
        assert printed.simplified() == Filter.parse(filter).simplified()
