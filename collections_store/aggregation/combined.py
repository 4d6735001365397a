"""Stages that run pipelines of their own: `$facet` and `$unionWith`, and `$documents`, with which such a pipeline begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from ..document import Anonymous
from ..errors import InvalidOperand
from ..expressions.budget import spend
from ..expressions.evaluation import named
from ..expressions.fields import computed
from ..expressions.nodes import Node
from .lookup import first_filter
from .rows import Context, Row, Runner, StageMemory, placed
from .stages import Facet, PlacedStage, Union


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
    """Yield the rows, and then those of the other collection."""

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
    The first pipeline without results reads the rows, which are held for later pipelines.
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
