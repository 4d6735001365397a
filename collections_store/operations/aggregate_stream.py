"""Pipelines whose results are read in batches: `stream_aggregate`.

A pipeline of `$match`, and then of stages that need only one document, has its results in batches, each an operation
that reads some documents and runs all stages over them. `$skip` and `$limit` go on with the rows that earlier batches
left. Any other pipeline is one operation, `Aggregate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ..aggregation import stages
from ..aggregation.pipeline import run
from ..aggregation.rows import Row, placed
from ..aggregation.stages import PlacedStage
from ..errors import InvalidPipeline, MemoryLimitExceeded
from ..expressions.classes import value_class
from .aggregate import Aggregate
from .find import Batches
from .operation import Operation
from .read import Batch, NaturalBatches, ReadBatch
from .session import Session

_BY_ROW: Final = (
    stages.Match, stages.Project, stages.ExcludeFields, stages.AddFields, stages.ReplaceRoot, stages.Unwind,
    stages.Redact, stages.Lookup, stages.GraphLookup, stages.Skip, stages.Limit,
)  # fmt: skip
"""The stages whose rows do not depend on the rows of other batches, but for `$skip` and `$limit`."""


def aggregate_batches(source: Aggregate) -> Batches:
    """Return the batches of a pipeline's results; raise `InvalidPipeline` for a stage that writes."""
    pipeline = source.pipeline
    last = pipeline.output()[1]
    if last is not None:
        raise InvalidPipeline(last.place, "writes, and returns no results to stream: use aggregate")
    filter, rest = pipeline.filtered()
    if pipeline.scored or not all(isinstance(step.stage, _BY_ROW) for step in rest.steps):
        return _Whole(source)
    return _ByRow(source, NaturalBatches(source.collection, filter), rest.steps)


class _Whole:
    """All results in one batch."""

    def __init__(self, source: Aggregate) -> None:
        self._operation: Aggregate | None = source

    def next(self) -> Aggregate | None:
        operation, self._operation = self._operation, None
        return operation

    def advance(self, batch: list[Any]) -> Iterable[Any]:
        return batch


@value_class
class ResultBatch:
    """Results of a batch of documents; `counts`: the rows that reached each `$skip` and `$limit`."""

    read: Batch
    bodies: list[Any]
    counts: tuple[int, ...] = ()


@value_class
class AggregateBatch(Operation[ResultBatch]):
    """Read a batch of documents, and run the stages over them, all in one transaction."""

    read: ReadBatch
    steps: tuple[PlacedStage, ...]
    source: Aggregate
    method = "stream_aggregate"
    atomic = True
    empty = partial(ResultBatch, Batch((), (), None), [])

    @property
    def collection(self) -> str:
        return self.read.collection

    @property
    def collections(self) -> tuple[str, ...]:
        return self.source.collections

    def __call__(self, session: Session) -> ResultBatch:
        try:
            return self._attempted(session)
        except MemoryLimitExceeded as error:
            again = replace(self, source=self.source.spilling(error))
        return again(session)

    def _attempted(self, session: Session) -> ResultBatch:
        with session.transaction(write=False):
            with placed(self.source.pipeline.computing()):
                batch = self.read(session)
                rows: Iterator[Row] = iter(batch.documents)
            windows, context = list[_Counted](), self.source.context(session)
            for step in self.steps:
                if isinstance(step.stage, stages.Skip | stages.Limit):
                    windows.append(_Counted(rows))
                    rows = windows[-1]
                rows = run((step,), rows, context)
            bodies = self.source.limited(row.body for row in rows)
        return ResultBatch(batch, bodies, tuple(each.count for each in windows))


class _Counted(Iterator[Any]):
    """Rows, and the number of the rows that were taken."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows, self.count = rows, 0

    def __next__(self) -> Row:
        row = next(self._rows)
        self.count += 1
        return row


class _ByRow:
    """The results of stages that need only one document."""

    def __init__(
        self, source: Aggregate, batches: NaturalBatches, steps: tuple[PlacedStage, ...]
    ) -> None:
        self._source, self._batches, self._steps = source, batches, steps

    def next(self) -> AggregateBatch | None:
        limits = [each.stage.count for each in self._steps if isinstance(each.stage, stages.Limit)]
        read = None if 0 in limits else self._batches.next()
        return None if read is None else AggregateBatch(read, self._steps, self._source)

    def advance(self, batch: ResultBatch) -> Iterable[Any]:
        self._batches.advance(batch.read)
        counts = iter(batch.counts)
        self._steps = tuple([_left(step, counts) for step in self._steps])
        return batch.bodies


def _left(step: PlacedStage, counts: Iterator[int]) -> PlacedStage:
    """Return a stage for the next batch."""
    match step.stage:
        case stages.Skip(count):
            return PlacedStage(step.place, stages.Skip(max(0, count - next(counts, 0))))
        case stages.Limit(count):
            return PlacedStage(step.place, stages.Limit(count - next(counts, 0)))
    return step
