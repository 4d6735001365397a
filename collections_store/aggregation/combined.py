"""Stages with pipelines of their own: `$facet` and `$unionWith`, and `$documents`, the beginning of such a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from ..document import Anonymous
from ..errors import InvalidOperand, InvalidPipeline, shortened
from ..expressions.budget import spend
from ..expressions.evaluation import named
from ..expressions.fields import computed
from ..expressions.nodes import Node
from .lookup import first_filter
from .operands import collection_of, name_of, source_of
from .parser import PipelineParser
from .rows import Context, Row, Runner, StageMemory, placed
from .stages import Documents, Facet, PlacedStage, Stage, Union


def parse_documents(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$documents`, the first stage of a pipeline within a stage."""
    if not parser.depth or not place.endswith(".0.$documents"):
        problem = "must be the first stage of the pipeline of a $unionWith or $lookup without a collection"
        raise InvalidPipeline(place, problem)
    return Documents(parser.expressions.parse(operand, place))


def parse_facet(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$facet`."""
    if not isinstance(operand, Mapping) or not operand:
        problem = f"must be a document of pipelines, got {shortened(operand)}"
        raise InvalidPipeline(place, problem)
    pipelines = []
    for name, pipeline in operand.items():
        here = f"{place}.{name}"
        name_of(name, here)
        steps = parser.of_same_rows(pipeline, here)
        for step in steps:
            if not parser.allows(step, "facet"):
                raise InvalidPipeline(step.place, "must not be within a $facet")
        pipelines.append((name, steps))
    return Facet(tuple(pipelines))


def parse_union_with(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$unionWith`."""
    if isinstance(operand, str):
        return Union(collection_of(operand, place))
    given = parser.expressions.named(operand, place, (), ("coll", "pipeline"))
    steps, names_id = parser.inner(given.get("pipeline", []), (), f"{place}.pipeline")
    parser.names_id = parser.names_id and names_id
    return Union(source_of(given, "coll", steps, place), steps)


def documents_in(array: Node, context: Context, place: str) -> Iterator[Row]:
    """Yield a row for each object of an array."""
    with placed(place):
        found = computed(array, context.scope(Anonymous({})))
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(found, list) or not isinstance(each, dict):
                problem = f"requires an array of objects, got {named(each)}"
                raise InvalidOperand("$documents", problem, each)
            yield Anonymous(each)


def united(
    stage: Union, rows: Iterable[Row], context: Context, place: str, run: Runner
) -> Iterator[Row]:
    """Yield the rows, and then the rows of another collection."""

    def others() -> Iterator[Row]:
        if stage.collection is None:
            yield from run(stage.steps, (), context)
        else:
            filter, steps = first_filter(stage.steps)
            with placed(place):
                yield from run(steps, context.source.find(stage.collection, filter), context)

    return chain(rows, others())


def faceted(
    stage: Facet,
    rows: Iterable[Row],
    context: Context,
    place: str,
    run: Runner,
    *,
    found_of: Callable[[tuple[PlacedStage, ...]], Iterable[Any] | None] = lambda _: None,
) -> Iterator[Row]:
    """Yield one body with the results of each pipeline. `found_of` returns the results of a pipeline without the rows, or None.
    The first pipeline without results reads the rows and holds the rows for later pipelines.
    """
    memory, held = StageMemory(place, context.memory_limit), list[Row]()
    body: dict[str, list[Any]] = {}
    for name, steps in stage.pipelines:
        bodies = found_of(steps)
        if bodies is None:
            for row in rows:
                spend()
                memory.hold_value(row.body)
                held.append(row)
            rows = ()
            bodies = (row.body for row in run(steps, held, context))
        found = body[name] = []
        for each in bodies:
            memory.hold_shared(each)
            found.append(each)
    yield Anonymous(body)
