"""Stages over all rows at once: `$bucketAuto` and `$sample`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..document import Anonymous
from ..errors import InvalidOperand
from ..expressions.budget import spend
from ..expressions.evaluation import OperandError, named, order, sort_key
from ..expressions.nodes import Constant, evaluate
from ..expressions.values import MISSING, is_number
from .granularity import rounded_down, rounded_up
from .group import NO_TOTALS, grouped
from .operands import integer_of
from .parser import PipelineParser
from .rows import ROW, Context, Row, StageMemory, placed
from .stages import BucketAuto, Group, Sample, Stage


def in_buckets(
    stage: BucketAuto, rows: Iterable[Row], context: Context, place: str
) -> Iterator[Row]:
    """Yield a body for each bucket. The buckets are filled as by MongoDB's server: each takes a share, and then all rows
    with the same key as the last row, or with a key below the rounded limit. The last bucket takes the rest.
    """
    held, begin = _by_key(stage, rows, context, place), 0
    share = max(1, int(len(held) / stage.count + 0.5))
    low = _rounded(rounded_down, held[0][0], stage, place) if held else None
    whole = Group(Constant.of(None), stage.fields)
    for number in range(stage.count):
        if begin == len(held):
            return
        end = len(held) if number == stage.count - 1 else min(begin + share, len(held))
        last = held[end - 1][0]
        high = _rounded(rounded_up, last, stage, place)
        while end < len(held) and (
            order(held[end][0], last, ordered=context.ordered) == 0
            or order(held[end][0], high, ordered=context.ordered) < 0
        ):
            end += 1
        if end < len(held) and (stage.granularity is None or high == 0):
            high = _rounded(rounded_down, held[end][0], stage, place)
        inside = ((row, 1, NO_TOTALS) for _, row in held[begin:end])
        [found] = grouped(whole, inside, context, place)
        yield Anonymous({**found.body, "_id": {"min": low, "max": high}})
        begin, low = end, high


def _by_key(
    stage: BucketAuto, rows: Iterable[Row], context: Context, place: str
) -> list[tuple[Any, Row]]:
    memory, held = StageMemory(place, context.memory_limit), list[tuple[Any, Row]]()
    with placed(place):
        for row in rows:
            spend()
            key = evaluate(stage.key, context.scope(row))
            if stage.granularity is not None and not (is_number(key) and key >= 0):
                problem = f"requires numbers from 0 on with a granularity, got {named(key)}"
                raise InvalidOperand("$bucketAuto", problem, key)
            memory.hold(ROW + memory.measure(row.body) + memory.measure(key))
            held.append((None if key is MISSING else key, row))
    key_of = sort_key(context.ordered)
    held.sort(key=lambda each: key_of(each[0]))
    return held


def _rounded(function: Callable[[Any, str], Any], value: Any, stage: BucketAuto, place: str) -> Any:
    """Return a limit, rounded if the stage has a granularity."""
    if stage.granularity is None:
        return value
    try:
        return function(value, stage.granularity)
    except OperandError as error:
        raise InvalidOperand("$bucketAuto", error.problem, value, place) from None


def parse_sample(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$sample`."""
    given = parser.expressions.named(operand, place, ("size",))
    return Sample(integer_of(given["size"], 1, f"{place}.size"))


def sampled(count: int, rows: Iterable[Row], context: Context, place: str) -> Iterator[Row]:
    """Yield up to `count` rows, each equally likely."""
    memory, kept = StageMemory(place, context.memory_limit), list[tuple[Row, int]]()
    for number, row in enumerate(rows):
        spend()
        position = number if number < count else random.randrange(number + 1)
        if position >= count:
            continue
        if number >= count:
            memory.release(kept[position][1])
        size = ROW + memory.measure(row.body)
        memory.hold(size)
        kept[position : position + 1] = [(row, size)]
    random.shuffle(kept)
    yield from (row for row, _ in kept)
