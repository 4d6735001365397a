"""Stages that choose among all rows: `$bucketAuto` and `$sample`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from ..document import Anonymous
from ..expressions.budget import spend
from ..expressions.evaluation import order, sort_key
from ..expressions.nodes import Constant, evaluate
from ..expressions.values import MISSING
from .group import NO_TOTALS, grouped
from .rows import ROW, Context, Row, StageMemory, placed
from .stages import BucketAuto, Group


def in_buckets(
    stage: BucketAuto, rows: Iterable[Row], context: Context, place: str
) -> Iterator[Row]:
    """Yield a body for each bucket. The buckets are filled as by MongoDB's server: each takes its share, and then all rows
    with the same key as its last row. The last bucket takes all that is left.
    """
    memory, held = StageMemory(place, context.memory_limit), list[tuple[Any, Row]]()
    with placed(place):
        for row in rows:
            spend()
            key = evaluate(stage.key, context.scope(row))
            memory.hold(ROW + memory.measure(row.body) + memory.measure(key))
            held.append((None if key is MISSING else key, row))
    key_of = sort_key(context.ordered)
    held.sort(key=lambda each: key_of(each[0]))
    share, begin = max(1, int(len(held) / stage.count + 0.5)), 0
    whole = Group(Constant.of(None), stage.fields)
    for number in range(stage.count):
        if begin == len(held):
            return
        end = len(held) if number == stage.count - 1 else min(begin + share, len(held))
        last = held[end - 1][0]
        while end < len(held) and not order(held[end][0], last, ordered=context.ordered):
            end += 1
        inside = ((row, 1, NO_TOTALS) for _, row in held[begin:end])
        [found] = grouped(whole, inside, context, place)
        limits = {"min": held[begin][0], "max": held[end][0] if end < len(held) else last}
        yield Anonymous({**found.body, "_id": limits})
        begin = end


def sampled(count: int, rows: Iterable[Row], context: Context, place: str) -> Iterator[Row]:
    """Yield up to `count` rows, each as likely as any other."""
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
