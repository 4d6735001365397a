"""The table of MongoDB's language, and the page that is made from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance.conformance_page import IMPLEMENTED, reference

from collections_store import CollectionsStoreError, Filter, Projection, Update
from collections_store.aggregation.pipeline import Pipeline
from collections_store.expressions.language import LANGUAGE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def test_the_page_is_made_from_the_table() -> None:
    advice = "PYTHONPATH=tests python tests/conformance/conformance_page.py > docs/reference/conformance.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), advice


def test_a_name_stands_once() -> None:
    for place, part in LANGUAGE.items():
        names = [name for each in part.lacking.values() for name in each.split()]
        assert len(names) == len(set(names)), place
        assert not part.absent & IMPLEMENTED[place], place


def test_an_operator_that_differs_is_implemented() -> None:
    for place, part in LANGUAGE.items():
        assert part.differing.keys() <= IMPLEMENTED[place], place


CALLS: dict[str, list[Callable[[str], Any]]] = {
    "filters": [lambda name: Filter.parse({name: 1}), lambda name: Filter.parse({"a": {name: 1}})],
    "projections": [lambda name: Projection.parse({"a": {name: {"x": {}}}})],
    "updates": [lambda name: Update.parse({name: 1})],
    "stages": [lambda name: Pipeline.parse([{name: 3}])],
    "accumulators": [lambda name: Pipeline.parse([{"$group": {"_id": 1, "a": {name: [1]}}}])],
    "window functions": [
        lambda name: Pipeline.parse([{"$setWindowFields": {"output": {"a": {name: [1]}}}}])
    ],
    "expressions": [lambda name: Filter.parse({"$expr": {name: 1}})],
    "variables": [lambda name: Filter.parse({"$expr": name})],
}
"""What parses an operator of each place, with an operand that few take."""
UNKNOWN = {"variables": "$$FROBNICATE"}


def problem_of(call: Callable[[str], Any], name: str) -> str:
    try:
        call(name)
    except CollectionsStoreError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("place", "name"),
    [(place, name) for place, part in LANGUAGE.items() for name in sorted(part.absent)],
)
def test_an_absent_operator_is_named_as_not_supported(place: str, name: str) -> None:
    for call in CALLS[place]:
        assert "not supported" in problem_of(call, name)


@pytest.mark.parametrize("place", CALLS)
def test_another_name_is_none_of_the_language(place: str) -> None:
    for call in CALLS[place]:
        problem = problem_of(call, UNKNOWN.get(place, "$frobnicate"))
        assert "no such" in problem or "there is no variable" in problem


def test_the_operators_of_filters_are_there() -> None:
    for name in IMPLEMENTED["filters"]:
        problems = [problem_of(call, name) for call in CALLS["filters"]]
        assert any("no such" not in each and "not supported" not in each for each in problems), name


def test_the_operators_of_projections_are_there() -> None:
    for projection in ({"a.$": 1}, {"a": {"$elemMatch": {"b": 1}}}, {"a": {"$slice": 1}}):
        Projection.parse(projection)
    Projection.parse({"a": {"$meta": "textScore"}})
    assert IMPLEMENTED["projections"] == {"$", "$elemMatch", "$slice", "$meta"}
