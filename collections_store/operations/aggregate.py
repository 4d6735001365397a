"""The operation `Aggregate`: the database does the first stages if possible, Python runs the rest of the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from ..aggregation.combined import faceted
from ..aggregation.dependencies import fields_read
from ..aggregation.group import GroupedFields
from ..aggregation.pipeline import Leading, Pipeline, run
from ..aggregation.rows import Context, NoCollections, Row, StageMemory, placed
from ..aggregation.stages import CountRows, Facet, PlacedStage
from ..codec.times import iso
from ..document import Anonymous, Document, moment, now
from ..errors import SPILLING, InvalidOperand, InvalidPipeline, MemoryLimitExceeded, shortened
from ..expressions.classes import value_class
from ..expressions.collation import Collation, under
from ..expressions.evaluation import MEMORY_LIMIT
from ..expressions.fields import Keys
from ..query.filter import Filter
from ..query.sort import NATURAL, Sort
from ..results import AggregationResults
from .catalogue import CollectionAbsent
from .find import Count, Find
from .grouping import grouped_rows, parts
from .operation import Operation
from .read import NaturalBatches, matching
from .scores import best, scored, sorts_by_score
from .session import Session

Steps: TypeAlias = tuple[PlacedStage, ...]
MAX_SORTED: Final = 10_000
"""Rows that the database sorts, at most; more are sorted in Python, where their size is limited."""
FIRST_SORTED: Final = 100
"""Rows of the first read, to learn their size."""


@value_class
class Aggregate(Operation[list[Any]]):
    """Run a pipeline over the documents of a collection, all read in one statement or one transaction."""

    collection: str
    pipeline: Pipeline
    memory_limit: int = MEMORY_LIMIT
    time: int = field(default_factory=now)
    """What `$$NOW` is, in microseconds."""
    let: Mapping[str, Any] = field(default_factory=dict)
    """The values of variables."""
    allow_disk_use: bool = False
    spilled: frozenset[str] = frozenset()
    """The places of the stages that sort in a temporary file."""
    collation: Collation | None = None
    atomic = True

    def __call__(self, session: Session) -> list[Any]:
        """Run the pipeline; with `allow_disk_use` again, with a stage that exceeded the limit sorting in a file."""
        try:
            return self._attempted(session)
        except MemoryLimitExceeded as error:
            again = self.spilling(error)
        return again(session)

    def spilling(self, error: MemoryLimitExceeded) -> Aggregate:
        """Return the operation in which the stage of the error sorts in a temporary file; raise the error if impossible."""
        if not self.allow_disk_use or error.stage not in SPILLING or error.place in self.spilled:
            raise error
        return replace(self, spilled=self.spilled | {error.place})

    def _attempted(self, session: Session) -> list[Any]:
        """Let the database do the first stages if possible, and run the rest."""
        try:
            alone = not any(self.pipeline.collections())  # else all is read at the same moment
            found = self._by_statement(session, self.pipeline) if alone else None
            if found is not None:
                return self.limited(found)
            with session.transaction(write=False):
                return self.limited(self._bodies(session, tried=alone))
        except CollectionAbsent:
            if not any(self.pipeline.collections()):
                raise
            with session.transaction(write=False):
                return self.limited(self._run(session, self.pipeline, ()))
        except InvalidOperand:
            with placed(self.pipeline.computing()):
                raise

    def _bodies(self, session: Session, *, tried: bool) -> Iterator[Any]:
        """Return the results: by the database, by a `$facet` of which the database does a part, or else by Python.
        `tried`: a single statement does not suffice.
        """
        found = None if tried else self._by_statement(session, self.pipeline)
        if found is None:
            found = self._by_sort(session, self.pipeline)
        if found is not None:
            return found
        filter, rest = self.pipeline.filtered()
        rows = self._rows(session, filter, rest)
        match rest.steps:
            case [PlacedStage(place, Facet() as facet), *_] if not self.pipeline.scored:
                first = self.pipeline.steps[: len(self.pipeline.steps) - len(rest.steps)]
                found_of = partial(self._branch, session, first)
                given = facet, rows, self.context(session), place, run
                rows, rest = faceted(*given, found_of=found_of), Pipeline(rest.steps[1:])
        return self._run(session, rest, rows)

    def _branch(self, session: Session, first: Steps, steps: Steps) -> Iterator[Any] | None:
        """Let the database do the first stages of a pipeline of a `$facet`, each by its own statement."""
        pipeline = self.branch(first, steps)
        with placed(pipeline.computing()):
            found = self._by_statement(session, pipeline)
            return self._by_sort(session, pipeline) if found is None else found

    def branch(self, first: Steps, steps: Steps) -> Pipeline:
        """Return a pipeline of a `$facet` behind the stages before the `$facet`."""
        return Pipeline((*first, *steps)).at(self.time, self.let).collated(self.collation)

    def _by_sort(self, session: Session, pipeline: Pipeline) -> Iterator[Any] | None:
        """Let the database sort, if a limit follows; None if the database cannot."""
        leading = pipeline.leading()
        if leading.limit is None or not self.can_sort(session, leading):
            return None
        rows = self._sorted(session, leading, leading.limit)
        return self._run(session, leading.rest, rows)

    def _by_statement(self, session: Session, pipeline: Pipeline) -> Iterator[Any] | None:
        """Let the database count or group, in one statement; None if the database cannot."""
        filter, rest = pipeline.filtered()
        match rest.steps:
            case [PlacedStage(stage=CountRows(field)), *_]:
                if session.collection(self.collection).count(filter).residual:
                    return None  # Python counts
                count = Count(self.collection, filter)(session)
                rows = [Anonymous({field: count})] if count else []
                return self._run(session, Pipeline(rest.steps[1:]), rows)
        return self._grouped(session, filter, rest)

    def _sorted(self, session: Session, leading: Leading, limit: int) -> list[Document]:
        """Let the database sort; read the rows that fit the memory limit, by the size of the earlier rows."""
        memory, found = StageMemory(leading.place, self.memory_limit), list[Document]()
        some = FIRST_SORTED
        while some > 0:
            skip, most = leading.skip + len(found), min(some, limit - len(found))
            window = leading.sort or NATURAL, skip, most
            read = self._window(session, leading.filter, *window)
            for each in read:
                memory.hold_value(each.body)
            found.extend(read)
            room = (self.memory_limit - memory.held) * len(found) // (memory.held or 1)
            some = min(limit - len(found), max(room, 1)) if len(read) == most else 0
        return found

    def can_sort(self, session: Session, leading: Leading) -> bool:
        """Return whether the database may sort the rows."""
        if leading.sort is None or leading.place in self.spilled:
            return False
        if self.pipeline.scored and not sorts_by_score(
            session, self.collection, leading.filter, leading.sort
        ):
            return False
        return _is_small(leading)

    def _window(
        self, session: Session, filter: Filter, sort: Sort, skip: int, limit: int
    ) -> Sequence[Document]:
        if self.pipeline.scored:
            return best(session, self.collection, filter, skip, limit)
        return Find(self.collection, filter, sort, skip, limit)(session)

    def _rows(self, session: Session, filter: Filter, rest: Pipeline) -> Iterator[Row]:
        """Yield the matching documents, or the parts that the stages read."""
        with placed(self.pipeline.computing()):
            if self.pipeline.scored:
                yield from scored(session, self.collection, filter)
                return
            keys = fields_read(rest.steps, ordered=session.database.ordered_keys)
            if keys is not None and self._reads_parts(session, filter, keys):
                window = rest.leading()
                enough = None if window.limit is None else window.skip + window.limit
                where = self.collection, filter, keys
                yield from parts(session, *where, None if window.sort else enough)
                return
            for _, document in matching(session, self.collection, filter):
                yield document

    def _reads_parts(self, session: Session, filter: Filter, keys: Keys) -> bool:
        """Return whether the database can return the values under `keys` of the matching documents."""
        if not session.database.ordering.can_order(keys):
            return False
        return not session.collection(self.collection).parts(filter, keys).residual

    def _run(self, session: Session, rest: Pipeline, rows: Iterable[Row]) -> Iterator[Any]:
        return (row.body for row in run(rest.steps, rows, self.context(session)))

    def limited(self, bodies: Iterable[Any]) -> list[Any]:
        """Return the result, whose memory is limited like a stage's."""
        memory, result = StageMemory("", self.memory_limit), AggregationResults()
        for body in bodies:
            memory.hold_shared(body)
            result.append(body)
        return result

    def _grouped(self, session: Session, filter: Filter, rest: Pipeline) -> Iterator[Any] | None:
        """Let the database group the different values, with their counts, and combine the integers; None if the database
        cannot.
        """
        fields = self.grouped_fields(rest)
        if fields is None:
            return None
        rows = grouped_rows(session, self.collection, filter, rest, fields)
        return None if rows is None else rest.run_combined(rows, self.context(session))

    def grouped_fields(self, rest: Pipeline) -> GroupedFields | None:
        """Return the fields by which the database groups for the stages after the `$match`, or None."""
        fields = rest.fields()
        if fields is None or self.collation is None:
            return fields
        return fields.without_extremes()  # those of strings are Python's

    def context(self, session: Session) -> Context:
        """Return the context of the stages."""
        source = _OtherCollections(session, self.collation)
        ordered = under(self.collation, session.database.ordered_keys)
        return Context(source, self.memory_limit, ordered, self.variables(), self.spilled)

    def variables(self) -> dict[str, Any]:
        """Return the values of all variables."""
        return {"NOW": iso(moment(self.time)), **self.let}

    @property
    def collections(self) -> tuple[str, ...]:
        """Every collection read, including the collections of `$lookup`."""
        return (self.collection, *self.pipeline.collections())

    def absent(self) -> list[Any]:
        context = Context(NoCollections(), self.memory_limit, variables=self.variables())
        return AggregationResults(row.body for row in run(self.pipeline.steps, (), context))


@value_class
class _OtherCollections:
    """The collections of a session's store, for `$lookup`. A hint is for the pipeline's own reading, also where the pipeline
    reads its collection again.
    """

    session: Session
    collation: Collation | None

    def find(self, collection: str, filter: Filter) -> Iterator[Document]:
        session, filter = self.session, filter.collated(self.collation)
        batches = NaturalBatches(collection, filter)
        while (operation := batches.next()) is not None:
            try:
                with session.unhinted():
                    batch = operation(session)
            except CollectionAbsent:
                return
            yield from batches.advance(batch)


def _is_small(leading: Leading) -> bool:
    return leading.limit is not None and leading.skip + leading.limit <= MAX_SORTED


def check_memory(limit: Any) -> int:
    """Return a memory limit if it is a number of bytes; raises `InvalidPipeline`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidPipeline("memory_limit", f"must be a number of bytes, got {shortened(limit)}")
    return limit
