"""Pipelines: MongoDB's aggregation, parsed into frozen stages and run over rows.

`Pipeline.leading` tells what a database can do first: the rest runs here, lazily.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from operator import and_
from typing import Any

from ..codec import Codec
from ..query.filter import Filter
from ..query.sort import Sort
from .expressions.scope import MEMORY_LIMIT
from .group import counted, paths_of
from .parser import PipelineParser
from .rows import Context, Nowhere, Row, Source
from .run import run
from .stages import (
    CountRows,
    Group,
    Keys,
    Limit,
    Lookup,
    Match,
    PlacedStage,
    Skip,
    SortRows,
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages, one after the other. Without any, every object comes out as it is.

    >>> people = [{"city": "Rome"}, {"city": "Oslo"}, {"city": "Rome"}]
    >>> pipeline = Pipeline.parse([{"$sortByCount": "$city"}])
    >>> list(pipeline.run(Document(str(n), body) for n, body in enumerate(people)))
    [{'_id': 'Rome', 'count': 2}, {'_id': 'Oslo', 'count': 1}]
    """

    steps: tuple[PlacedStage, ...] = ()

    @classmethod
    def parse(cls, what: Any, rules: Codec = Codec()) -> Pipeline:  # noqa: B008
        """Read a list of stages, or take a `Pipeline`; raises `InvalidPipeline` naming the place."""
        return what if isinstance(what, Pipeline) else cls(PipelineParser(rules).steps(what))

    def run(
        self,
        rows: Iterable[Row],
        source: Source = Nowhere(),  # noqa: B008
        *,
        memory_limit: int = MEMORY_LIMIT,
        ordered: bool = True,
    ) -> Iterator[Any]:
        """Return the bodies that come out. Rows are read as they are needed.

        `source` is where `$lookup` looks. Raises `InvalidOperand` and `MemoryLimitExceeded`.
        """
        context = Context(source, memory_limit, ordered)
        return (row.body for row in run(self.steps, rows, context))

    def fields(self) -> tuple[Keys, ...] | None:
        """Return the fields that are all that the pipeline looks at, because it begins with a
        `$group`; None: it does not, or that looks at whole objects or at their order.
        """
        stage = self.steps[0].stage if self.steps else None
        return paths_of(stage) if isinstance(stage, Group) else None

    def run_counted(
        self,
        rows: Iterable[tuple[Row, int]],
        source: Source,
        *,
        memory_limit: int,
        ordered: bool,
    ) -> Iterator[Any]:
        """Run a pipeline that begins with a `$group` over rows that come so many times each."""
        context, (first, *others) = Context(source, memory_limit, ordered), self.steps
        assert isinstance(first.stage, Group)
        groups = counted(first.stage, rows, context, first.place)
        return (row.body for row in run(tuple(others), groups, context))

    def collections(self) -> Iterator[str]:
        """Yield the collections that `$lookup` looks into."""
        for step in self.steps:
            if isinstance(step.stage, Lookup):
                yield step.stage.collection
                yield from Pipeline(step.stage.steps).collections()

    def filtered(self) -> tuple[Filter, Pipeline]:
        """Return what the first stages ask for as one filter, and the pipeline behind it."""
        first = takewhile(lambda stage: isinstance(stage, Match), (s.stage for s in self.steps))
        filters = [stage.filter for stage in first if isinstance(stage, Match)]
        asked = reduce(and_, filters) if filters else Filter()
        return asked, Pipeline(self.steps[len(filters) :])

    def asking(self) -> str | None:
        """Return the place of the first of the stages in `filtered` that has an expression."""
        first = takewhile(lambda step: isinstance(step.stage, Match), self.steps)
        return next(
            (s.place for s in first if isinstance(s.stage, Match) and s.stage.computes()), None
        )

    def leading(self) -> Leading:
        """Return what a database can do first, and the pipeline behind it."""
        asked, behind = self.filtered()
        sort, skip, limit, number, place = None, 0, None, 0, ""
        for step in behind.steps:
            match step.stage:
                case SortRows() if number == 0:
                    sort, place = step.stage.sort, step.place
                case Skip(count) if limit is None:
                    skip += count
                case Limit(count):
                    limit = count if limit is None else min(limit, count)
                case _:
                    break
            number += 1
        steps = behind.steps[number:]
        if number == 0 and steps and isinstance(steps[0].stage, CountRows):
            return Leading(asked, count=steps[0].stage.field, rest=Pipeline(steps[1:]))
        return Leading(asked, sort, skip, limit, rest=Pipeline(steps), place=place)


@dataclass(frozen=True, slots=True)
class Leading:
    """What a pipeline begins with, in this order: a filter, a sort, a window.

    `count` is the field of a `$count` that comes right behind the filter: then there is no sort and
    no window. `rest` is what remains to be run, `place` that of the sort.
    """

    filter: Filter
    sort: Sort | None = None
    skip: int = 0
    limit: int | None = None
    count: str | None = None
    rest: Pipeline = Pipeline()
    place: str = ""
