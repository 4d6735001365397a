"""`$sort`: sorts the rows, in memory or in a temporary file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..document import Document
from ..errors import InvalidFilter, InvalidPipeline, InvalidSort
from ..expressions.budget import spend
from ..expressions.operand_parser import check_keys
from ..expressions.path import Path
from ..query.sort import BY_SCORE, Sort
from . import stages
from .parser import PipelineParser
from .rows import ROW, Context, Row, StageMemory, placed
from .spill import ExternalSort
from .stages import PlacedStage

_SLACK: Final = 100
"""A bounded sort sorts again when it holds twice its limit plus this many rows."""


def parse_sort(parser: PipelineParser, operand: Any, place: str) -> stages.SortRows:
    """Parse `$sort`, or a `sortBy`."""
    if not isinstance(operand, dict) or not operand:
        raise InvalidPipeline(place, "must be a document of fields and 1 or -1")
    try:
        named = {_sorted_by(parser, key, f"{place}.{key}"): each for key, each in operand.items()}
        order = Sort.parse(named, scored=True)
    except InvalidFilter as error:
        raise InvalidPipeline(f"{place}.{error.place}", error.problem) from error
    except InvalidSort as error:
        where = f"{place}.{error.field}" if error.field else place
        raise InvalidPipeline(where, error.problem) from error
    if order.by_score:
        parser.expressions.parse(BY_SCORE, place)  # needs a `$text`, too
    return stages.SortRows(order)


def _sorted_by(parser: PipelineParser, name: str, place: str) -> str | Path:
    if not name.startswith("$"):
        check_keys(name.split("."), place, InvalidPipeline)
    is_field = name.startswith("_id") and not parser.names_id
    return Path.parse(name) if is_field else name


def needed(steps: tuple[PlacedStage, ...]) -> int | None:
    """Return how many sorted rows are needed, if `$limit` follows a sort directly or behind `$skip`."""
    skipped = 0
    for step in steps:
        match step.stage:
            case stages.Skip(count):
                skipped += count
            case stages.Limit(count):
                return skipped + count
            case _:
                return None
    return None


def in_order(
    sort: Sort, most: int | None, rows: Iterator[Row], context: Context, place: str
) -> Iterator[Row]:
    """Yield the rows in order. The first `most` rows are enough."""
    memory, held = StageMemory(place, context.memory_limit), list[tuple[Any, Row, int]]()

    def key_of(row: Row) -> Any:
        document = row if isinstance(row, Document) else Document("", row.body)
        return sort.key(document, ordered=context.ordered)

    if place in context.spilled:
        rows_by_key = ExternalSort(key_of, context.memory_limit)
        for row in rows:
            rows_by_key.add(row, memory.measure(row.body) + 2 * ROW)
        yield from rows_by_key.in_order()
        return
    with placed(place):
        for row in rows:
            spend()
            key = key_of(row)
            memory.hold(ROW)
            held.append((key, row, memory.hold_value(row.body) + ROW))
            if most is not None and len(held) > 2 * most + _SLACK:
                held.sort(key=lambda each: each[0])
                memory.release(sum(size for _, _, size in held[most:]))
                del held[most:]
    held.sort(key=lambda each: each[0])
    yield from (row for _, row, _ in held)
