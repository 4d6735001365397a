"""The table of MongoDB's language, and the page that is made from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance.conformance_page import reference

from collections_store import CollectionsStoreError, Filter, Projection, Update
from collections_store.aggregation.accumulators import ACCUMULATORS
from collections_store.aggregation.pipeline import Pipeline
from collections_store.aggregation.redact import DECISIONS
from collections_store.aggregation.table import STAGES
from collections_store.aggregation.windows import FUNCTIONS
from collections_store.expressions.language import LANGUAGE
from collections_store.expressions.operators import OPERATORS as EXPRESSIONS
from collections_store.expressions.parser import SYSTEM_VARIABLES
from collections_store.query.parser import OPERATORS as FILTERS
from collections_store.update.operators import MODIFIERS
from collections_store.update.operators import OPERATORS as UPDATES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_a_name_stands_once() -> None:
    for place, part in LANGUAGE.items():
        names = [*part.like.split(), *part.differing]
        names += [name for each in part.lacking.values() for name in each.split()]
        assert len(names) == len(set(names)), place


IMPLEMENTED: dict[str, set[str]] = {
    "stages": {*STAGES},
    "accumulators": {*ACCUMULATORS, "$count"},
    "window functions": {*FUNCTIONS},
    "expressions": {*EXPRESSIONS},
    "updates": {*UPDATES, *MODIFIERS, "$", "$[]", "$[<identifier>]"},
    "variables": {f"$${name}" for name in (*SYSTEM_VARIABLES, *DECISIONS, "NOW")},
}


@pytest.mark.parametrize("place", IMPLEMENTED)
def test_the_table_has_what_is_implemented(place: str) -> None:
    part = LANGUAGE[place]
    assert part.names - part.absent == IMPLEMENTED[place]


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
    part = LANGUAGE["filters"]
    assert part.names - part.absent > FILTERS
    for name in part.names - part.absent:
        problems = [problem_of(call, name) for call in CALLS["filters"]]
        assert any("no such" not in each and "not supported" not in each for each in problems), name


def test_the_operators_of_projections_are_there() -> None:
    for projection in ({"a.$": 1}, {"a": {"$elemMatch": {"b": 1}}}, {"a": {"$slice": 1}}):
        Projection.parse(projection)
    Projection.parse({"a": {"$meta": "textScore"}})
    assert LANGUAGE["projections"].names == {"$", "$elemMatch", "$slice", "$meta"}
