"""Stages, run over rows: lazily, so that rows which only pass through take no memory, and `$limit`
ends the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from ..document import Anonymous, Document
from ..errors import InvalidOperand, shortened
from ..query.budget import spend
from ..query.matcher import matches
from ..query.sort import Sort
from ..query.values import MISSING
from .expressions.scope import Scope
from .group import grouped
from .lookup import joined
from .project import kept, left, with_fields
from .rows import Context, Row, computed, having, placed, with_body, within
from .stages import (
    AddFields,
    CountRows,
    Group,
    LeaveOut,
    Limit,
    Lookup,
    Match,
    PlacedStage,
    Project,
    ReplaceRoot,
    Skip,
    SortRows,
    Unwind,
)

_Change: TypeAlias = Project | LeaveOut | AddFields | ReplaceRoot
_PART = 64
"""A row is weighed if its expressions hold more than this part of the limit."""
_ROW = 400
"""Bytes that a sorted row takes besides its body."""
_SLACK = 100
"""A bounded sort sorts again when it holds twice its limit plus this many rows."""


def run(steps: tuple[PlacedStage, ...], rows: Iterable[Row], context: Context) -> Iterator[Row]:
    """Return the rows that come out of the last step."""
    rows = iter(rows)
    for number, step in enumerate(steps):
        if isinstance(step.stage, SortRows):
            most = _most(steps[number + 1 :])
            rows = _sorted(step.stage.sort, most, rows, context, step.place)
        else:
            rows = _stepped(step, rows, context)
    return rows


def _stepped(step: PlacedStage, rows: Iterator[Row], context: Context) -> Iterator[Row]:
    match step.stage:
        case Match():
            return _matched(step.stage, rows, context, step.place)
        case Project() | LeaveOut() | AddFields() | ReplaceRoot():
            return _each_changed(step.stage, rows, context, step.place)
        case Skip(count):
            return islice(rows, count, None)
        case Limit(count):
            return islice(rows, count)
        case CountRows(field):
            return _counted(field, rows)
        case Group():
            return grouped(step.stage, rows, context, step.place)
        case Unwind():
            return (each for row in rows for each in _unwound(step.stage, row))
        case Lookup():
            return joined(step.stage, rows, context, step.place, run)
    raise AssertionError(step)


def _matched(stage: Match, rows: Iterator[Row], context: Context, place: str) -> Iterator[Row]:
    with placed(place):
        for row in rows:
            if matches(stage.filter, row, ordered=context.ordered, variables=context.variables):
                yield row


def _each_changed(
    stage: _Change, rows: Iterator[Row], context: Context, place: str
) -> Iterator[Row]:
    memory = context.memory(place)
    with placed(place):
        for row in rows:
            spend()
            scope = context.scope(row)
            body = _changed(stage, row, scope, place)
            if scope.held > context.memory_limit // _PART:
                memory.weigh(body)
            yield with_body(row, body)


def _changed(stage: _Change, row: Row, scope: Scope, place: str) -> Any:
    match stage:
        case Project(fields):
            found = kept(fields, _fields_of(row), scope)
            return {} if found is MISSING else found
        case LeaveOut(fields):
            return left(fields, row.body) if isinstance(row.body, dict) else row.body
        case AddFields(fields):
            return with_fields(fields, _fields_of(row), scope)
        case ReplaceRoot(expression):
            found = computed(expression, scope)
            if not isinstance(found, dict):
                problem = "a missing value" if found is MISSING else shortened(found)
                name = place.rsplit(".", 1)[-1]
                raise InvalidOperand(name, f"requires an object, got {problem}", found)
            return found


def _fields_of(row: Row) -> dict[str, Any]:
    """Return the body, or an empty object in the place of one that is none."""
    return row.body if isinstance(row.body, dict) else {}


def _counted(field: str, rows: Iterator[Row]) -> Iterator[Row]:
    count = sum(1 for _ in rows)
    if count:
        yield Anonymous({field: count})


def _unwound(stage: Unwind, row: Row) -> Iterator[Row]:
    value = within(row.body, stage.path)
    if isinstance(value, list) and value:
        for index, each in enumerate(value):
            spend()
            body = having(row.body, stage.path, each)
            yield with_body(row, _with_index(stage, body, index))
    elif value is MISSING or value is None or value == []:
        if stage.preserve:
            body = having(row.body, stage.path, MISSING) if value == [] else row.body
            yield with_body(row, _with_index(stage, body, None))
    else:
        yield with_body(row, _with_index(stage, row.body, None))


def _with_index(stage: Unwind, body: Any, index: int | None) -> Any:
    return body if stage.index is None else having(body, stage.index, index)


def _most(steps: tuple[PlacedStage, ...]) -> int | None:
    """Return how many sorted rows are looked at, if `$limit` follows at once, or behind `$skip`."""
    skipped = 0
    for step in steps:
        match step.stage:
            case Skip(count):
                skipped += count
            case Limit(count):
                return skipped + count
            case _:
                return None
    return None


def _sorted(
    sort: Sort, most: int | None, rows: Iterator[Row], context: Context, place: str
) -> Iterator[Row]:
    memory, held = context.memory(place), list[tuple[Any, Row, int]]()
    with placed(place):
        for row in rows:
            spend()
            key = sort.key(_document(row), ordered=context.ordered)
            memory.hold(_ROW)
            held.append((key, row, memory.hold_value(row.body) + _ROW))
            if most is not None and len(held) > 2 * most + _SLACK:
                held.sort(key=lambda each: each[0])
                memory.let_go(sum(weight for _, _, weight in held[most:]))
                del held[most:]
    held.sort(key=lambda each: each[0])
    yield from (row for _, row, _ in held)


def _document(row: Row) -> Document:
    return row if isinstance(row, Document) else Document("", row.body)
