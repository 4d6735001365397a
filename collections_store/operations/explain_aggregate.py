"""The operation `ExplainAggregate`: how `Aggregate` would run a pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from ..aggregation.group import counted_field
from ..aggregation.pipeline import Pipeline
from ..aggregation.rows import name_at
from ..aggregation.stages import Facet, Group
from ..errors import CollectionNotFound
from ..expressions.classes import value_class
from ..expressions.path import Path
from ..query.explanation import Explanation
from ..query.filter import Filter
from ..query.sort import NATURAL, Sort, SortField
from .aggregate import Aggregate
from .explain import Explain
from .grouping import group_queries
from .operation import Operation
from .session import Session


@value_class
class ExplainAggregate(Operation[Explanation]):
    """Explain how an `Aggregate` would run: by the same choices, in the same order."""

    source: Aggregate
    atomic = True

    @property
    def collection(self) -> str:
        return self.source.collection

    def absent(self) -> Explanation:
        raise CollectionNotFound(self.collection)

    def __call__(self, session: Session) -> Explanation:
        pipeline = self.source.pipeline
        rest = pipeline.filtered()[1]
        first = rest.steps[0].stage if rest.steps else None
        if isinstance(first, Facet) and not pipeline.scored:
            return self._faceted(session, pipeline, rest, first)
        return self._one(session, pipeline)

    def _faceted(
        self, session: Session, pipeline: Pipeline, rest: Pipeline, facet: Facet
    ) -> Explanation:
        """Explain all pipelines of a `$facet` as one."""
        before = pipeline.steps[: len(pipeline.steps) - len(rest.steps)]
        shared, _ = self._reading(session, pipeline)
        names: dict[bool, list[str]] = {True: [], False: []}
        readings = []
        for name, steps in facet.pipelines:
            inner = self.source.branch(before, steps)
            found, number = self._reading(session, inner)
            begins = number > _matched(inner)
            names[begins].append(f"$facet.{name}")
            readings.append(found if begins else shared)
        main = next((each for each in readings if each.scans), readings[0])
        documents = [each.documents for each in readings if each.documents is not None]
        in_database, in_python = _matches(pipeline, shared)
        return replace(
            main,
            indexes=_once(*(each.indexes for each in readings)),
            documents=max(documents, default=None),
            in_database=(*in_database, *names[True]),
            in_python=_once(in_python, names[False], _names(pipeline, len(before) + 1)),
        )

    def _one(self, session: Session, pipeline: Pipeline) -> Explanation:
        found, number = self._reading(session, pipeline)
        in_database, in_python = _matches(pipeline, found)
        return replace(
            found,
            in_database=_once(in_database, _names(pipeline, _matched(pipeline), number)),
            in_python=_once(in_python, _names(pipeline, number)),
        )

    def _reading(self, session: Session, pipeline: Pipeline) -> tuple[Explanation, int]:
        """Return the explanation of the statement that reads, and the number of the stages that the database runs."""
        leading, rest = pipeline.leading(), pipeline.filtered()[1]
        statements, filter = session.collection(self.collection), leading.filter
        explain = Explain(self.collection, filter, NATURAL)
        matched = _matched(pipeline)
        query = statements.count(filter)
        if leading.count is not None and not query.residual:
            arrays = explain.has_arrays(session, query)
            query = statements.count(filter, indexed=False) if arrays else query
            found = explain.explained(session, query, NATURAL, arrays=arrays, by_sql=True)
            return _without_expiry(found), matched + (not query.residual)
        grouped = self._grouped(session, explain, rest)
        if grouped is not None:
            return grouped, matched + 1 + (not isinstance(rest.steps[0].stage, Group))
        if self.source.can_sort(session, leading):
            sort = NATURAL if pipeline.scored else leading.sort  # by the score
            found = Explain(self.collection, filter, sort, leading.skip, leading.limit)(session)
            return found, len(pipeline.steps) - len(leading.rest.steps)
        query = explain.in_batches(session)
        return explain.explained(session, query, NATURAL, arrays=False, by_sql=True), matched

    def _grouped(self, session: Session, explain: Explain, rest: Pipeline) -> Explanation | None:
        """Explain the statement that groups; None: the database cannot group."""
        fields = self.source.grouped_fields(rest)
        if fields is None:
            return None
        arrays, filter = False, explain.filter
        for query, _ in group_queries(session, self.collection, filter, rest, fields):
            if not explain.has_arrays(session, query):
                order = _order(session, filter, rest)
                found = explain.explained(session, query, order, arrays=arrays, by_sql=True)
                return _without_expiry(found)
            arrays = True
        return None


def _without_expiry(found: Explanation) -> Explanation:
    """Leave out the index of expired documents, unless the plan has no other index."""
    others = tuple(each for each in found.indexes if each != "$expires_at")
    return replace(found, indexes=others or found.indexes)


def _matched(pipeline: Pipeline) -> int:
    """Return the number of leading `$match` stages."""
    return len(pipeline.steps) - len(pipeline.filtered()[1].steps)


def _matches(pipeline: Pipeline, found: Explanation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the leading `$match` stages in the database, and in Python."""
    names = _names(pipeline, 0, _matched(pipeline))
    if found.in_matcher is None:
        return names, ()
    return (() if found.in_sql == Filter() else names), names


def _names(pipeline: Pipeline, begin: int, end: int | None = None) -> tuple[str, ...]:
    """Return the names of the stages, each once: `$sortByCount` is a `$group` and a `$sort`."""
    return _once(name_at(step.place) for step in pipeline.steps[begin:end])


def _once(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain(*names)))


def _order(session: Session, filter: Filter, rest: Pipeline) -> Sort:
    """Return the order of an index that would serve a `$group`."""
    first = rest.steps[0].stage
    if filter == Filter() and session.database.counts_in_index and isinstance(first, Group):
        keys = counted_field(first)
        if keys is not None:
            return Sort((SortField(Path(*keys)),))
    return NATURAL
