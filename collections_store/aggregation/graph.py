"""`$graphLookup`: documents found from document to document.

Each level of the search is one filter. A document is found once. Values are compared as by `$lookup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..document import Document
from ..expressions.budget import spend
from ..expressions.evaluation import distinct
from ..expressions.fields import computed
from ..expressions.values import MISSING
from ..query.filter import Filter
from ..query.matcher import matches
from .lookup import any_of, values_in, without_variables
from .operands import collection_of, integer_of, path_of, side_of
from .parser import PipelineParser
from .rows import Context, Row, StageMemory, placed, with_body, with_value
from .stages import GraphLookup, Stage


def parse_graph_lookup(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$graphLookup`."""
    required = "from", "startWith", "connectFromField", "connectToField", "as"
    optional = "maxDepth", "depthField", "restrictSearchWithMatch"
    parser.expressions.named(operand, place, required, optional)
    limit, field = operand.get("maxDepth", MISSING), operand.get("depthField", MISSING)
    condition = operand.get("restrictSearchWithMatch", {})
    match = parser.of_stage().match(condition, f"{place}.restrictSearchWithMatch")
    start = parser.plain(operand["startWith"], f"{place}.startWith")
    return GraphLookup(
        collection_of(operand["from"], f"{place}.from"),
        path_of(operand["as"], f"{place}.as"),
        parser.expressions.parse(start, f"{place}.startWith"),
        side_of(operand["connectFromField"], f"{place}.connectFromField", True),
        side_of(operand["connectToField"], f"{place}.connectToField", True),
        None if limit is MISSING else integer_of(limit, 0, f"{place}.maxDepth"),
        None if field is MISSING else path_of(field, f"{place}.depthField"),
        match.filter,
    )


def connected(
    stage: GraphLookup, rows: Iterable[Row], context: Context, place: str
) -> Iterator[Row]:
    """Yield the rows with the documents found for each."""
    with placed(place):
        for row in rows:
            start = computed(stage.start, context.scope(row))
            found = _found(stage, start if isinstance(start, list) else [start], context, place)
            yield with_body(row, with_value(row.body, stage.into, found))


def _found(stage: GraphLookup, start: list[Any], context: Context, place: str) -> list[Any]:
    memory, found = StageMemory(place, context.memory_limit), dict[str, Any]()
    filter, later = without_variables(stage.filter)
    seen = distinct((None if each is MISSING else each for each in start), ordered=context.ordered)
    values, depth = list(seen.values()), 0
    while values and (stage.depth is None or depth <= stage.depth):
        level: list[Document] = []
        for each in context.source.find(stage.collection, any_of(stage.to, [values]) & filter):
            spend()
            if each.id not in found and (later is None or _fits(later, each, context)):
                memory.hold_value(each.body)
                found[each.id] = (
                    each.body
                    if stage.depth_field is None
                    else with_value(each.body, stage.depth_field, depth)
                )
                level.append(each)
        next_values = distinct(
            (value for each in level for value in values_in(each, stage.origin)),
            ordered=context.ordered,
        )
        values = [value for key, value in next_values.items() if key not in seen]
        seen |= next_values
        depth += 1
    return list(found.values())


def _fits(filter: Filter, document: Document, context: Context) -> bool:
    return matches(filter, document, ordered=context.ordered, variables=context.variables)
