"""The parser of `$merge`; `operations.merge` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import InvalidPipeline, shortened
from ..expressions.nodes import Node, Reference
from . import stages
from .operands import check_choice, collection_of, path_of
from .parser import PipelineParser
from .stages import PlacedStage, Stage

_MATCHED: Final = ("replace", "keepExisting", "merge", "fail")
_UNMATCHED: Final = ("insert", "discard", "fail")


def parse_merge(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$merge`."""
    if isinstance(operand, str):
        return stages.Output(collection_of(operand, place))
    optional = "on", "let", "whenMatched", "whenNotMatched"
    given = parser.expressions.named(operand, place, ("into",), optional)
    matched, unmatched = (
        given.get(name, default)
        for name, default in (("whenMatched", "merge"), ("whenNotMatched", "insert"))
    )
    names = given.get("on", "_id")
    names = names if isinstance(names, list | tuple) and names else [names]
    on = () if names == ["_id"] else tuple([path_of(each, f"{place}.on") for each in names])
    if len(set(on)) < len(on):
        problem = f"must name each field once, got {shortened(names)}"
        raise InvalidPipeline(f"{place}.on", problem)
    variables, steps = _merging(parser, given, matched, place)
    if not steps:
        check_choice(matched, _MATCHED, f"{place}.whenMatched")
    check_choice(unmatched, _UNMATCHED, f"{place}.whenNotMatched")
    into = collection_of(given["into"], f"{place}.into")
    action: Any = "pipeline" if steps else matched
    return stages.Output(into, on, action, unmatched, variables=variables, steps=steps)


def _merging(
    parser: PipelineParser, given: Mapping[str, Any], matched: Any, place: str
) -> tuple[tuple[tuple[str, Node], ...], tuple[PlacedStage, ...]]:
    """Return the variables and stages of `whenMatched`, if it is a pipeline."""
    if not isinstance(matched, list):
        if "let" in given:
            raise InvalidPipeline(f"{place}.let", "requires a pipeline as whenMatched")
        return (), ()
    variables = parser.let(given, place)
    place = f"{place}.whenMatched"
    if "new" not in given.get("let", ()):
        variables = (*variables, ("new", Reference("ROOT")))
    steps, _ = parser.inner(matched, variables, place)
    for step in steps:
        if not parser.allows(step, "update"):
            problem = "must be $set, $unset, $project or $replaceWith within $merge"
            raise InvalidPipeline(step.place, problem)
    if not steps:
        raise InvalidPipeline(place, "must have a stage")
    return variables, steps
