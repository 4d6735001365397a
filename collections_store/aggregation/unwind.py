"""`$unwind`: a row for each element of an array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InvalidPipeline, shortened
from ..expressions.budget import spend
from ..expressions.values import MISSING
from .operands import path_of
from .parser import PipelineParser
from .rows import Row, with_body, with_value
from .stages import Stage, Unwind


def parse_unwind(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$unwind`."""
    given = operand if isinstance(operand, dict) else {"path": operand}
    optional = "includeArrayIndex", "preserveNullAndEmptyArrays"
    parser.expressions.named(given, place, ("path",), optional)
    dotted, preserve = given["path"], given.get("preserveNullAndEmptyArrays", False)
    if not isinstance(dotted, str) or not dotted.startswith("$"):
        problem = f"the path must begin with $, as in '$tags', got {shortened(dotted)}"
        raise InvalidPipeline(place, problem)
    if not isinstance(preserve, bool):
        raise InvalidPipeline(f"{place}.preserveNullAndEmptyArrays", "must be true or false")
    keys = None
    if "includeArrayIndex" in given:
        keys = path_of(given["includeArrayIndex"], f"{place}.includeArrayIndex")
    return Unwind(path_of(dotted[1:], place), keys, preserve)


def unwound(stage: Unwind, row: Row) -> Iterator[Row]:
    """Yield a row for each element of a row's array."""
    value = row.body
    for key in stage.path:
        value = value.get(key, MISSING) if isinstance(value, dict) else MISSING
    if isinstance(value, list) and value:
        for index, each in enumerate(value):
            spend()
            body = with_value(row.body, stage.path, each)
            yield _with_index(stage, row, body, index)
    elif value is MISSING or value is None or value == []:
        if stage.preserve:
            body = with_value(row.body, stage.path, MISSING) if value == [] else row.body
            yield _with_index(stage, row, body, None)
    else:
        yield _with_index(stage, row, row.body, None)


def _with_index(stage: Unwind, row: Row, body: Any, index: int | None) -> Row:
    return with_body(row, body if stage.index is None else with_value(body, stage.index, index))
