"""`$lookup`: the documents of another collection for each row.

Rows are read in batches: one filter fetches the documents for a batch, and this module assigns the documents to rows. The rules
for equal fields are as in MongoDB's server up to 8.2:

* An array in the row's field stands for its elements, a missing value and an empty array for null.
* The other field is compared as in a filter: a row finds the same documents as `find` for each value.

Metadata (`$id`) is compared unchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from .. import codec
from ..document import Document, metadatum
from ..errors import InvalidPipeline
from ..expressions.budget import spend
from ..expressions.evaluation import key_of
from ..expressions.fields import Keys, computed
from ..expressions.nodes import Logic, OperatorCall, Reference
from ..expressions.path import Path
from ..expressions.values import MISSING
from ..query.conditions import (
    And,
    Condition,
    Equals,
    Expression,
    Field,
    Metadata,
    Or,
    Value,
)
from ..query.filter import Filter, conjuncts
from ..query.matcher import distinct_values, matches, values_at
from ..query.parser import one_of
from ..query.shapes import values_of
from .operands import path_of, side_of, source_of
from .parser import PipelineParser
from .rows import Context, Row, Runner, StageMemory, placed, with_body, with_value
from .stages import Lookup, Match, PlacedStage, Side, Stage

BATCH: Final = 100
BATCH_SIZE: Final = 2**20
"""Bytes of memory of a batch, about: one row may be larger."""


def parse_lookup(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$lookup`."""
    optional = "from", "localField", "foreignField", "let", "pipeline"
    parser.expressions.named(operand, place, ("as",), optional)
    local, foreign = (
        side_of(operand[name], f"{place}.{name}", names_id) if name in operand else None
        for name, names_id in (("localField", parser.names_id), ("foreignField", True))
    )
    if (local is None) != (foreign is None) or (local is None and "pipeline" not in operand):
        problem = "requires localField and foreignField, or pipeline, or all three"
        raise InvalidPipeline(place, problem)
    if "let" in operand and "pipeline" not in operand:
        raise InvalidPipeline(f"{place}.let", "requires pipeline")
    variables = parser.let(operand, place)
    into = path_of(operand["as"], f"{place}.as")
    steps, _ = parser.inner(operand.get("pipeline", []), variables, f"{place}.pipeline")
    collection = source_of(operand, "from", steps, place)
    return Lookup(collection, into, local, foreign, variables, steps)


def joined(
    stage: Lookup, rows: Iterable[Row], context: Context, place: str, run: Runner
) -> Iterator[Row]:
    """Yield the rows with the documents found for each; `run` runs the inner stages."""
    join = _Join(stage, context, place, run)
    memory, rows = join.memory, iter(rows)
    with placed(place):
        while batch := _batch(rows, memory):
            for row, found in zip(batch, join.found(batch), strict=True):
                size = memory.hold_value(found)
                body = with_value(row.body, stage.into, found)
                if size > BATCH_SIZE:
                    memory.measure(body)
                yield with_body(row, body)
                memory.release(size)


def _batch(rows: Iterator[Row], memory: StageMemory) -> list[Row]:
    """Return the next rows: up to `BATCH`, fewer if they are large."""
    batch: list[Row] = []
    size = 0
    for row in islice(rows, BATCH):
        batch.append(row)
        size += memory.measure(row.body)
        if size > BATCH_SIZE:
            break
    return batch


class _Join:
    def __init__(self, stage: Lookup, context: Context, place: str, run: Runner) -> None:
        self._stage, self._context, self._place, self._run = stage, context, place, run
        self.memory = StageMemory(place, context.memory_limit)
        given, steps = None, stage.steps
        if stage.collection is None:
            given, *rest = stage.steps
            steps = tuple(rest)
        self._given, self._of_row = given, context
        self._filter, self._steps = first_filter(steps)
        self._compared = _comparison(self._steps, dict(stage.variables))
        self._all: list[Document] | None = None
        self._result: list[Any] | None = None

    def found(self, batch: list[Row]) -> Iterator[list[Any]]:
        """Yield the documents found for each row."""
        if self._given is None or not self._stage.variables:
            yield from self._found(batch)
            return
        for row in batch:  # `$documents` may read the variables
            before, self._all = self.memory.held, None
            self._of_row = replace(self._context, variables=self._variables(row))
            yield from self._found([row])
            self.memory.release(self.memory.held - before)

    def _found(self, batch: list[Row]) -> Iterator[list[Any]]:
        local, foreign = self._stage.local, self._stage.foreign
        if local is None or foreign is None:
            yield from self._by_pipeline(batch)
            return
        values = [values_in(row, local) or [None] for row in batch]
        before = self.memory.held
        documents = self._fetch(any_of(foreign, values) & self._filter)
        yield from self._equal(batch, values, documents, foreign)
        self.memory.release(self.memory.held - before)

    def _equal(
        self, batch: list[Row], searched: list[list[Any]], documents: list[Document], foreign: Side
    ) -> Iterator[list[Any]]:
        ordered = self._context.ordered
        positions: dict[Hashable, list[int]] = {}
        for position, document in enumerate(documents):
            values = _foreign_values(document, foreign)
            for key in {key_of(each, ordered=ordered) for each in values}:
                positions.setdefault(key, []).append(position)
        used: set[int] = set()
        for row, local in zip(batch, searched, strict=True):
            keys = (key_of(each, ordered=ordered) for each in local)
            mine = sorted({position for key in keys for position in positions.get(key, ())})
            yield self._results(row, [_fresh(documents[each], each, used) for each in mine])

    def _by_pipeline(self, batch: list[Row]) -> Iterator[list[Any]]:
        """Let the inner stages decide. If they require a field to equal a variable, documents with other values are not
        read: an index may find those that are.
        """
        if self._compared is not None:
            keys, name = self._compared
            values = [self._variables(row)[name] for row in batch]
            if all(isinstance(each, str | int | float) for each in values):
                before = self.memory.held
                searched = [[each] for each in values]
                documents = self._fetch(any_of(keys, searched) & self._filter)
                yield from self._equal(batch, searched, documents, keys)
                self.memory.release(self.memory.held - before)
                return
        for row in batch:
            yield self._without_fields(row)

    def _without_fields(self, row: Row) -> list[Any]:
        """Run the inner stages over all documents; once, if no variable depends on the row."""
        if self._all is None:
            self._all = self._fetch(self._filter)
        if self._stage.variables or self._result is None:
            self._result = self._results(row, self._all)
        copy: list[Any] = _copied(self._result)
        return copy

    def _results(self, row: Row, documents: list[Document]) -> list[Any]:
        spend(len(documents))
        variables = self._variables(row)
        if not self._steps:
            return [document.body for document in documents]
        rows = self._run(self._steps, documents, replace(self._context, variables=variables))
        return [each.body for each in rows]

    def _variables(self, row: Row) -> dict[str, Any]:
        scope, variables = self._context.scope(row), dict(self._context.variables)
        for name, each in self._stage.variables:
            with placed(f"{self._place}.let.{name}"):
                variables[name] = computed(each, scope)
        return variables

    def _source(self, filter: Filter) -> Iterable[Document]:
        if self._stage.collection is not None:
            return self._context.source.find(self._stage.collection, filter)
        rows = self._run((self._given,), (), self._of_row) if self._given else ()
        ordered = self._context.ordered
        found = (Document("", row.body) for row in rows)
        return (each for each in found if matches(filter, each, ordered=ordered))

    def _fetch(self, filter: Filter) -> list[Document]:
        documents = []
        for document in self._source(filter):
            self.memory.hold_value(document.body)
            documents.append(document)
        return documents


def values_in(row: Row, field: Side) -> list[Any]:
    """Return the values of a field; of an array, the values of the elements."""
    if not isinstance(field, str):
        return list(distinct_values(row.body, field))
    return [metadatum(row, field)] if isinstance(row, Document) else []


def _comparison(
    steps: tuple[PlacedStage, ...], variables: Mapping[str, Any]
) -> tuple[Keys, str] | None:
    """Return a path and a variable that a first `$match` requires to be equal by `$expr`."""
    match = steps[0].stage if steps else None
    if not isinstance(match, Match):
        return None
    conditions = conjuncts(match.filter.condition)
    values = (each.expression for each in conditions if isinstance(each, Expression))
    nodes = [each.value for each in values if isinstance(each, Value)]
    for node in nodes:
        match node:
            case Logic("$and", operands):
                nodes.extend(operands)
            case OperatorCall("$eq", (Reference("CURRENT", keys), Reference(name, ()))) | (
                OperatorCall("$eq", (Reference(name, ()), Reference("CURRENT", keys)))
            ) if keys and name in variables:
                return keys, name
    return None


def _foreign_values(document: Document, foreign: Side) -> Iterator[Any]:
    if isinstance(foreign, str):
        yield metadatum(document, foreign)
    else:
        values = values_at(document.body, foreign)
        yield from (None if each is MISSING else each for each in values)


def any_of(foreign: Side, searched: list[list[Any]]) -> Filter:
    """Return the filter for the documents of all rows of a batch."""
    distinct = {key_of(each): each for values in searched for each in values}
    values = [Value.of(each) for each in distinct.values()]
    if isinstance(foreign, str):  # ids are strings, other metadata numbers or null
        kinds = {"string"} if foreign == "id" else {"number", "null"}
        fitting = [value for value in values if value.kind in kinds]
        return Filter(Metadata(foreign, one_of(fitting)) if fitting else Or(()))
    path = Path(*foreign)
    composed = [value for value in values if value.kind in {"array", "object"}]
    conditions: list[Condition] = [Field(path, Equals(value)) for value in composed]
    scalars = [value for value in values if value.kind not in {"array", "object"}]
    if scalars:
        conditions.append(Field(path, one_of(scalars)))
    return Filter(conditions[0] if len(conditions) == 1 else Or(tuple(conditions)))


def first_filter(steps: tuple[PlacedStage, ...]) -> tuple[Filter, tuple[PlacedStage, ...]]:
    """Split off the conditions of a first `$match` without variables: a database may evaluate them."""
    if not steps or not isinstance(steps[0].stage, Match):
        return Filter(), steps
    first, later = without_variables(steps[0].stage.filter)
    rest = () if later is None else (PlacedStage(steps[0].place, Match(later)),)
    return first, (*rest, *steps[1:])


def without_variables(filter: Filter) -> tuple[Filter, Filter | None]:
    """Return the conditions without variables, and those with variables or None."""
    conditions = conjuncts(filter.condition)
    later = tuple(
        condition
        for condition in conditions
        if any('"$$' in each.text for each in values_of(condition) if each.kind == "expression")
    )
    first = Filter(And(tuple(each for each in conditions if each not in later)))
    return first, Filter(And(later)) if later else None


def _fresh(document: Document, position: int, used: set[int]) -> Document:
    """Return the document; from its second use on a copy, because rows must not share documents."""
    if position in used:
        return replace(document, body=_copied(document.body))
    used.add(position)
    return document


def _copied(value: Any) -> Any:
    return codec.decode(codec.spell(value))
