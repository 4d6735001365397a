"""`$lookup`: what other collections hold for each row.

Rows come in batches, so that one filter fetches the objects for a whole batch; which of them belong
to which row is decided here. The rules for equal fields are those of MongoDB's server:

* Of the row's field an array gives its elements. Without any value it is null.
* The other field is looked at as a filter does: an array by its elements and as a whole; null equals
  null and missing, also where a path ends in an array without objects, but not where a number in it names an
  element beyond an array's end.

What the store knows of objects (`$id`) is compared as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

from .. import codec
from ..document import Document, metadatum
from ..query.budget import spend
from ..query.conditions import (
    And,
    Condition,
    Equals,
    Exists,
    Field,
    Metadata,
    MetadataField,
    Not,
    Or,
    Value,
    values_of,
)
from ..query.filter import Filter, conjuncts
from ..query.matcher import values_at
from ..query.parser import one_of
from ..query.path import Path, is_index
from ..query.values import MISSING
from .expressions.operands import key_of
from .rows import Context, Row, StageMemory, computed, having, placed, with_body
from .stages import Keys, Lookup, Match, PlacedStage, Side

BATCH: Final = 100
BATCH_WEIGHT: Final = 2**20
"""What the rows of a batch weigh, about, as long as no single one is larger."""
Runner: TypeAlias = Callable[[tuple[PlacedStage, ...], Iterable[Row], Context], Iterator[Row]]


def joined(
    stage: Lookup, rows: Iterable[Row], context: Context, place: str, run: Runner
) -> Iterator[Row]:
    """Yield the rows with what was found for each; `run` runs the stages within."""
    join = _Join(stage, context, place, run)
    rows = iter(rows)
    with placed(place):
        while batch := _batch(rows, join.memory):
            for row, found in zip(batch, join.found(batch), strict=True):
                weight = join.memory.hold_value(found)
                body = having(row.body, stage.into, found)
                if weight > BATCH_WEIGHT:
                    join.memory.weigh(body)
                yield with_body(row, body)
                join.memory.let_go(weight)


def _batch(rows: Iterator[Row], memory: StageMemory) -> list[Row]:
    """Return the next rows: up to `BATCH`, fewer if they are large."""
    batch: list[Row] = []
    weight = 0
    for row in islice(rows, BATCH):
        batch.append(row)
        weight += memory.weigh(row.body)
        if weight > BATCH_WEIGHT:
            break
    return batch


class _Join:
    def __init__(self, stage: Lookup, context: Context, place: str, run: Runner) -> None:
        self._stage, self._context, self._place, self._run = stage, context, place, run
        self.memory = context.memory(place)
        self._filter, self._steps = _first_filter(stage.steps)
        self._every: list[Document] | None = None
        self._same: list[Any] | None = None

    def found(self, batch: list[Row]) -> Iterator[list[Any]]:
        """Yield what is found for each row."""
        if self._stage.local is None or self._stage.foreign is None:
            for row in batch:
                yield self._for_each(row)
            return
        wanted = [_wanted(row, self._stage.local) for row in batch]
        before = self.memory.held
        documents = self._fetch(_asked(self._stage.foreign, wanted) & self._filter)
        yield from self._equal(batch, wanted, documents, self._stage.foreign)
        self.memory.let_go(self.memory.held - before)

    def _equal(
        self, batch: list[Row], wanted: list[list[Any]], documents: list[Document], foreign: Side
    ) -> Iterator[list[Any]]:
        places = self._places(documents, foreign)
        used: set[int] = set()
        for row, values in zip(batch, wanted, strict=True):
            keys = (key_of(each, ordered=self._context.ordered) for each in values)
            mine = sorted({place for key in keys for place in places.get(key, ())})
            spend(len(mine))
            yield self._ran(row, [_fresh(documents[place], place, used) for place in mine])

    def _places(self, documents: list[Document], foreign: Side) -> dict[Hashable, list[int]]:
        places: dict[Hashable, list[int]] = {}
        for place, document in enumerate(documents):
            values = _foreign_values(document, foreign)
            for key in {key_of(each, ordered=self._context.ordered) for each in values}:
                places.setdefault(key, []).append(place)
        return places

    def _for_each(self, row: Row) -> list[Any]:
        """Run the stages within over all that is there."""
        if self._every is None:
            self._every = self._fetch(self._filter)
        if self._stage.variables:
            return _copied(self._ran(row, self._every))
        if self._same is None:
            self._same = self._ran(row, self._every)
        return _copied(self._same)

    def _ran(self, row: Row, documents: list[Document]) -> list[Any]:
        spend(len(documents))
        variables = self._variables(row)
        if not self._steps:
            return [document.body for document in documents]
        rows = self._run(self._steps, documents, self._context.having(variables))
        return [each.body for each in rows]

    def _variables(self, row: Row) -> dict[str, Any]:
        scope, variables = self._context.scope(row), dict[str, Any]()
        for name, each in self._stage.variables:
            with placed(f"{self._place}.let.{name}"):
                variables[name] = computed(each, scope)
        return variables

    def _fetch(self, filter: Filter) -> list[Document]:
        documents = []
        for document in self._context.source.find(self._stage.collection, filter):
            self.memory.hold_value(document.body)
            documents.append(document)
        return documents


def _wanted(row: Row, local: Side) -> list[Any]:
    if not isinstance(local, str):
        return local_values(row.body, local)
    return [metadatum(row, local) if isinstance(row, Document) else None]


def _foreign_values(document: Document, foreign: Side) -> Iterator[Any]:
    if isinstance(foreign, str):
        yield metadatum(document, foreign)
    else:
        values = list(values_at(document.body, foreign))
        if not values and not _is_beyond(document.body, foreign):
            values = [None]
        yield from (None if each is MISSING else each for each in values)


def _is_beyond(value: Any, keys: Keys) -> bool:
    """Return whether a number in the path names an element beyond the end of an array: it is no null."""
    for key in keys:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and is_index(key):
            if int(key) >= len(value):
                return True
            value = value[int(key)]
        else:
            return False
    return False


def local_values(body: Any, keys: Keys) -> list[Any]:
    """Return what a row's field gives to be looked for; null, if that is nothing."""
    return list(_local(body, keys)) or [None]


def _local(value: Any, keys: Keys) -> Iterator[Any]:
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            if not is_index(key):
                objects = (each for each in value if isinstance(each, dict))
                for each in objects:
                    yield from _local(each, keys[depth:])
                return
            if int(key) >= len(value):
                return
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return
    yield from value if isinstance(value, list) else [value]


def _asked(foreign: Side, wanted: list[list[Any]]) -> Filter:
    """Return the filter that finds what any row of a batch looks for."""
    distinct = {key_of(each): each for values in wanted for each in values}
    values = [Value.of(each) for each in distinct.values()]
    if isinstance(foreign, str):
        return Filter(_known(foreign, values))
    path = Path(*foreign)
    composed = [value for value in values if value.kind in {"array", "object"}]
    conditions: list[Condition] = [Field(path, Equals(value)) for value in composed]
    scalars = [value for value in values if value.kind not in {"array", "object"}]
    if scalars:
        conditions.append(Field(path, one_of(scalars)))
    if any(value.kind == "null" for value in scalars):
        conditions.append(Not(Field(path, Exists())))
    return Filter(conditions[0] if len(conditions) == 1 else Or(tuple(conditions)))


def _known(field: MetadataField, values: list[Value]) -> Condition:
    """Ask for what the store knows of objects: ids are strings, all else numbers, or null."""
    kinds = {"string"} if field == "id" else {"number", "null"}
    fitting = [value for value in values if value.kind in kinds]
    return Metadata(field, one_of(fitting)) if fitting else Or(())


def _first_filter(steps: tuple[PlacedStage, ...]) -> tuple[Filter, tuple[PlacedStage, ...]]:
    """Split off what the stages within ask at first and a database may answer: no variables."""
    if not steps or not isinstance(steps[0].stage, Match):
        return Filter(), steps
    conditions = conjuncts(steps[0].stage.filter.condition)
    later = tuple(each for each in conditions if _has_variables(each))
    asked = Filter(And(tuple(each for each in conditions if each not in later)))
    rest = (PlacedStage(steps[0].place, Match(Filter(And(later)))),) if later else ()
    return asked, (*rest, *steps[1:])


def _has_variables(condition: Condition) -> bool:
    return any('"$$' in each.text for each in values_of(condition) if each.kind == "expression")


def _fresh(document: Document, place: int, used: set[int]) -> Document:
    """Return the object; from its second use on a copy, so that no two rows share one."""
    if place not in used:
        used.add(place)
        return document
    return Document(
        document.id,
        codec.decode(codec.spell(document.body)),
        document.version,
        document.created_us,
        document.updated_us,
        document.expires_us,
    )


def _copied(bodies: list[Any]) -> list[Any]:
    copy: list[Any] = codec.decode(codec.spell(bodies))
    return copy
