"""Pipelines, and how stages run over rows.

Stages run lazily: rows that only pass through take no memory, and `$limit` ends the reading. `Pipeline.leading`
returns the part for the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ..codec import Codec
from ..codec.times import iso
from ..document import Anonymous, moment
from ..expressions.collation import Collation, Ordered, under
from ..expressions.evaluation import MEMORY_LIMIT, NO_VARIABLES
from ..expressions.nodes import Meta, ObjectOf, Reference
from ..query.filter import Filter
from ..query.matcher import matches
from ..query.sort import Sort
from . import stages
from .buckets import in_buckets, sampled
from .changed import changed
from .combined import documents_in, faceted, united
from .densify import densified
from .graph import connected
from .group import NO_TOTALS, GroupedFields, fields_of, grouped
from .lookup import joined
from .order import in_order, needed
from .parser import PipelineParser
from .redact import redacted
from .rows import (
    Context,
    NoCollections,
    Row,
    Source,
    placed,
)
from .stages import Group, PlacedStage
from .table import STAGES
from .totals import CombinedRows
from .unwind import unwound
from .windows import windowed

WHOLE = Reference("ROOT")
"""The body of a row."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in their order. An empty pipeline returns every body unchanged.

    >>> people = [{"city": "Rome"}, {"city": "Oslo"}, {"city": "Rome"}]
    >>> pipeline = Pipeline.parse([{"$sortByCount": "$city"}])
    >>> list(pipeline.run(Document(str(n), body) for n, body in enumerate(people)))
    [{'_id': 'Rome', 'count': 2}, {'_id': 'Oslo', 'count': 1}]
    """

    steps: tuple[PlacedStage, ...] = ()
    scored: bool = False
    """Whether stages read the score of the `$text` in the first `$match`."""

    @classmethod
    def parse(
        cls,
        pipeline: Any,
        codec: Codec = Codec(),  # noqa: B008
        variables: Mapping[str, Any] = NO_VARIABLES,
        collation: Collation | None = None,
        time: int | None = None,
    ) -> Pipeline:
        """Parse a list of stages, or return a `Pipeline`; raise `InvalidPipeline`, which names the place. `variables` are
        those of `let`, with their values; `time` is `$$NOW` in constants, in microseconds; constants compare
        under the collation.
        """
        if isinstance(pipeline, Pipeline):
            return pipeline
        parser = PipelineParser(STAGES, codec, frozenset(variables), ordered=under(collation, True))
        instant = {} if time is None else {"NOW": iso(moment(time))}
        parser.expressions.values = {**instant, **variables}
        return cls(parser.steps(pipeline), parser.scored)

    def at(self, time: int, variables: Mapping[str, Any] = NO_VARIABLES) -> Pipeline:
        """Return the pipeline with `$$NOW` and `variables` in the leading `$match` stages replaced by values;
        `$$NOW` is a time in microseconds.
        """
        if all(match.filter.plain for _, match in self.leading_matches()):
            return self
        leading = [
            PlacedStage(place, stages.Match(match.filter.at(time, variables)))
            for place, match in self.leading_matches()
        ]
        return replace(self, steps=(*leading, *self.steps[len(leading) :]))

    def collated(self, collation: Collation | None) -> Pipeline:
        """Return the pipeline with the `$match` and `$sort` stages under a collation, for a database. The context has the
        collation for all further stages.
        """
        if collation is None:
            return self
        return replace(self, steps=tuple(_collated(each, collation) for each in self.steps))

    def run(
        self,
        rows: Iterable[Row],
        source: Source = NoCollections(),  # noqa: B008
        *,
        memory_limit: int = MEMORY_LIMIT,
        ordered: Ordered = True,
    ) -> Iterator[Any]:
        """Yield the resulting bodies. Rows are read as they are needed.

        `source` has the other collections. Raises `InvalidOperand` and `MemoryLimitExceeded`.
        """
        context = Context(source, memory_limit, ordered)
        return (row.body for row in run(self.steps, rows, context))

    def fields(self) -> GroupedFields | None:
        """Return the fields that a pipeline with a leading `$group`, or an `$unwind` and a `$group`, reads. None: another
        pipeline, or the stages read whole documents or their order.
        """
        match [step.stage for step in self.steps[:2]]:
            case [Group() as group, *_]:
                return fields_of(group)
            case [stages.Unwind(path, None, False), Group() as group]:
                return fields_of(group, path)
        return None

    def run_combined(self, rows: CombinedRows, context: Context) -> Iterator[Any]:
        """Run a pipeline from its first `$group` on."""
        number = next(n for n, step in enumerate(self.steps) if isinstance(step.stage, Group))
        first, others = self.steps[number], self.steps[number + 1 :]
        assert isinstance(first.stage, Group)
        groups = rows.grouped(first.stage, context, first.place)
        return (row.body for row in run(others, groups, context))

    def output(self) -> tuple[Pipeline, PlacedStage | None]:
        """Return the pipeline without a writing last stage, and this stage. The results are documents of `body`, of the
        body's field `_id`, of `id`, the id of the document or missing, and of `let`, the variables of the stage
        except `WHOLE`.
        """
        last = self.steps[-1] if self.steps else None
        if last is None or not isinstance(last.stage, stages.Output):
            return self, None
        ids = ("_id", Reference("CURRENT", ("_id",))), ("id", Meta("id"))
        let = tuple([(name, each) for name, each in last.stage.variables if each != WHOLE])
        parts = ObjectOf((*ids, ("let", ObjectOf(let)), ("body", WHOLE)))
        named = PlacedStage(last.place, stages.ReplaceRoot(parts))
        return replace(self, steps=(*self.steps[:-1], named)), last

    def collections(self) -> Iterator[str]:
        """Yield the further collections read by the stages."""
        for step in self.steps:
            match step.stage:
                case stages.Lookup(collection=name, steps=steps) | stages.Union(name, steps):
                    if name is not None:
                        yield name
                    yield from Pipeline(steps).collections()
                case stages.GraphLookup(collection=name):
                    yield name
                case stages.Facet(pipelines):
                    for _, steps in pipelines:
                        yield from Pipeline(steps).collections()

    def filtered(self) -> tuple[Filter, Pipeline]:
        """Return the leading `$match` stages as one simplified filter, and the rest of the pipeline."""
        filter: Filter | None = None
        number = 0
        for _, match in self.leading_matches():
            filter = match.filter if filter is None else filter & match.filter
            number += 1
        return Filter() if filter is None else filter.simplified(), Pipeline(self.steps[number:])

    def computing(self) -> str | None:
        """Return the place of the first stage in `filtered` with an expression."""
        return next((place for place, match in self.leading_matches() if match.computes()), None)

    def leading_matches(self) -> Iterator[tuple[str, stages.Match]]:
        """Yield the leading `$match` stages, with their places."""
        for step in self.steps:
            if not isinstance(step.stage, stages.Match):
                return
            yield step.place, step.stage

    def leading(self) -> Leading:
        """Return the part of the pipeline for the database, and the rest."""
        filter, behind = self.filtered()
        sort, skip, limit, number, place = None, 0, None, 0, ""
        for step in behind.steps:
            match step.stage:
                case stages.SortRows() if number == 0:
                    sort, place = step.stage.sort, step.place
                case stages.Skip(count) if limit is None:
                    skip += count
                case stages.Limit(count):
                    limit = count if limit is None else min(limit, count)
                case _:
                    break
            number += 1
        steps = behind.steps[number:]
        if number == 0 and steps and isinstance(steps[0].stage, stages.CountRows):
            return Leading(filter, count=steps[0].stage.field, rest=Pipeline(steps[1:]))
        return Leading(filter, sort, skip, limit, rest=Pipeline(steps), place=place)


@dataclass(frozen=True, slots=True)
class Leading:
    """The beginning of a pipeline, in this order: a filter, a sort, a window.

    `count` is the field of a `$count` directly behind the filter: then sort and window are empty. `rest` is the rest
    of the pipeline, `place` the place of the sort.
    """

    filter: Filter
    sort: Sort | None = None
    skip: int = 0
    limit: int | None = None
    count: str | None = None
    rest: Pipeline = Pipeline()
    place: str = ""


def _collated(step: PlacedStage, collation: Collation) -> PlacedStage:
    match step.stage:
        case stages.Match(filter):
            return PlacedStage(step.place, stages.Match(filter.collated(collation)))
        case stages.SortRows(sort):
            return PlacedStage(step.place, stages.SortRows(sort.collated(collation)))
    return step


# -- running -----------------------------------------------------------------------------------


def run(steps: tuple[PlacedStage, ...], rows: Iterable[Row], context: Context) -> Iterator[Row]:
    """Return the rows of the last step."""
    rows = iter(rows)
    for number, step in enumerate(steps):
        rows = _stepped(step, rows, context, steps[number + 1 :])
    return rows


def _stepped(
    step: PlacedStage, rows: Iterator[Row], context: Context, later: tuple[PlacedStage, ...]
) -> Iterator[Row]:
    stage, place = step.stage, step.place
    match stage:
        case stages.Match():
            return _matched(stage, rows, context, place)
        case stages.Project() | stages.ExcludeFields() | stages.AddFields() | stages.ReplaceRoot():
            return changed(stage, rows, context, place)
        case stages.SortRows(sort):
            return in_order(sort, needed(later), rows, context, place)
        case stages.Skip(count):
            return islice(rows, count, None)
        case stages.Limit(count):
            return islice(rows, count)
        case stages.CountRows(field):
            return _counted(field, rows)
        case Group():
            return grouped(stage, ((row, 1, NO_TOTALS) for row in rows), context, place)
        case stages.BucketAuto():
            return in_buckets(stage, rows, context, place)
        case stages.SetWindowFields():
            return windowed(stage, rows, context, place)
        case stages.Densify():
            return densified(stage, rows, context, place)
        case stages.Sample(count):
            return sampled(count, rows, context, place)
        case stages.Unwind():
            return (each for row in rows for each in unwound(stage, row))
        case stages.Redact(decision):
            return redacted(decision, rows, context, place)
        case stages.Documents(array):
            return documents_in(array, context, place)
        case stages.Facet():
            return faceted(stage, rows, context, place, run)
        case stages.Union():
            return united(stage, rows, context, place, run)
        case stages.GraphLookup():
            return connected(stage, rows, context, place)
        case stages.Lookup():
            return joined(stage, rows, context, place, run)
        case stages.Output():
            return rows


def _matched(
    stage: stages.Match, rows: Iterator[Row], context: Context, place: str
) -> Iterator[Row]:
    with placed(place):
        for row in rows:
            if matches(stage.filter, row, ordered=context.ordered, variables=context.variables):
                yield row


def _counted(field: str, rows: Iterator[Row]) -> Iterator[Row]:
    if count := sum(1 for _ in rows):
        yield Anonymous({field: count})
