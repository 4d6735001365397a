"""The operation `Aggregate`: the database does the first stages if possible, Python runs the rest of the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from operator import itemgetter
from typing import Any, Final

from ..aggregation.group import NO_TOTALS, CountedRow, GroupedFields, row_of
from ..aggregation.pipeline import Leading, Pipeline, run
from ..aggregation.rows import Context, NoCollections, Row, StageMemory, placed
from ..codec.times import iso
from ..document import Anonymous, Document, moment, now
from ..errors import SPILLING, InvalidOperand, InvalidPipeline, MemoryLimitExceeded, shortened
from ..expressions.classes import value_class
from ..expressions.collation import Collation, under
from ..expressions.evaluation import MEMORY_LIMIT
from ..expressions.fields import Keys
from ..query.filter import Filter
from ..query.sort import NATURAL, Sort
from ..sql.select import MAX_VALUE
from .catalogue import CollectionAbsent
from .connection import Inexact
from .find import Count, Find
from .operation import Operation
from .read import matching
from .scores import best, scored, sorts_by_score
from .session import Session

MAX_SORTED: Final = 10_000
"""Rows that the database sorts, at most; more are sorted in Python, where their size is limited."""
FIRST_SORTED: Final = 100
"""Rows of the first read, to learn their size."""
MAX_VALUES: Final = 50_000
"""Different values that the database groups, at most."""


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
            grouped = self._grouped(session)
            if grouped is not None:
                return grouped
            with session.transaction(write=False):
                return self._result(session)
        except CollectionAbsent:
            if not any(self.pipeline.collections()):
                raise
            with session.transaction(write=False):
                return self._run(session, self.pipeline, ())
        except InvalidOperand:
            with placed(self.pipeline.computing()):
                raise

    def _result(self, session: Session) -> list[Any]:
        leading = self.pipeline.leading()
        if leading.count is not None:
            count = Count(self.collection, leading.filter)(session)
            rows = [Anonymous({leading.count: count})] if count else []
            return self._run(session, leading.rest, rows)
        if (
            leading.sort is not None
            and leading.limit is not None
            and leading.place not in self.spilled
            and self._can_sort(session, leading)
        ):
            found = self._sorted(session, leading, leading.limit)
            return self._run(session, leading.rest, found)
        filter, rest = self.pipeline.filtered()
        return self._run(session, rest, self._matching(session, filter))

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

    def _can_sort(self, session: Session, leading: Leading) -> bool:
        """Return whether the database may sort the rows."""
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

    def _matching(self, session: Session, filter: Filter) -> Iterator[Document]:
        with placed(self.pipeline.computing()):
            if self.pipeline.scored:
                yield from scored(session, self.collection, filter)
                return
            for _, document in matching(session, self.collection, filter):
                yield document

    def _run(self, session: Session, rest: Pipeline, rows: Iterable[Row]) -> list[Any]:
        found = run(rest.steps, rows, self.context(session))
        return self.limited(row.body for row in found)

    def limited(self, bodies: Iterable[Any]) -> list[Any]:
        """Return the result, whose memory is limited like a stage's."""
        memory, result = StageMemory("", self.memory_limit), []
        for body in bodies:
            memory.hold_shared(body)
            result.append(body)
        return result

    def _grouped(self, session: Session) -> list[Any] | None:
        """Let the database group the different values, with their counts, and add up the integers; None if the database
        cannot.
        """
        filter, rest = self.pipeline.filtered()
        fields = rest.fields()
        if fields is None:
            return None
        paths = fields.values + fields.sums
        if not all(map(session.database.ordering.can_order, paths)):
            return None
        if any(self.pipeline.collections()):  # `$lookup` reads at the same moment
            with session.transaction(write=False):
                return self._by_group(session, filter, rest, fields)
        return self._by_group(session, filter, rest, fields)

    def _by_group(
        self, session: Session, filter: Filter, rest: Pipeline, fields: GroupedFields
    ) -> list[Any] | None:
        query = session.collection(self.collection).group(filter, *fields)
        if query.residual:
            return None
        try:
            rows = session.select(query, filter, limit=MAX_VALUES)
        except Inexact:
            return None
        if len(rows) == MAX_VALUES or _any_truncated(rows, len(fields.values)):
            return None
        rows.sort(key=itemgetter(0))
        paths = fields.values + fields.sums
        counted = (_counted(row, fields, paths) for row in rows if row[1])
        return self.limited(rest.run_counted(counted, self.context(session)))

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
        return [row.body for row in run(self.pipeline.steps, (), context)]


@value_class
class _OtherCollections:
    """The collections of a session's store, for `$lookup`."""

    session: Session
    collation: Collation | None

    def find(self, collection: str, filter: Filter) -> Iterator[Document]:
        try:
            found = matching(self.session, collection, filter.collated(self.collation))
            yield from (document for _, document in found)
        except CollectionAbsent:
            return


def _is_small(leading: Leading) -> bool:
    return leading.limit is not None and leading.skip + leading.limit <= MAX_SORTED


def _any_truncated(rows: list[Any], values: int) -> bool:
    """Return whether `Statements.group` truncated one of the first `values` of a row."""
    for row in rows:
        for text in row[2 : 2 + values]:
            if text is not None and len(text) > MAX_VALUE:
                return True
    return False


def _counted(row: Any, fields: GroupedFields, paths: tuple[Keys, ...]) -> CountedRow:
    """Return a row of `Statements.group`."""
    end = 2 + len(paths)
    totals = dict(NO_TOTALS)
    for number, keys in enumerate(fields.sums):
        total, count = row[end + 2 * number : end + 2 * number + 2]
        if count:
            totals[keys] = int(total), count
    return row_of(paths, row[2:end]), row[1], totals


def check_memory(limit: Any) -> int:
    """Return a memory limit if it is a number of bytes; raises `InvalidPipeline`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidPipeline("memory_limit", f"must be a number of bytes, got {shortened(limit)}")
    return limit
