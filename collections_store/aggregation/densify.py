"""`$densify`: adds rows where the values of a field have gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any, Final

from ..codec.times import iso
from ..document import Anonymous
from ..errors import InvalidOperand, InvalidPipeline, shortened
from ..expressions import times
from ..expressions.budget import spend
from ..expressions.evaluation import OperandError, is_null, key_of, named, sort_key
from ..expressions.fields import Keys
from ..expressions.nodes import Reference, evaluate
from ..expressions.values import MISSING, is_number
from .operands import path_of, unit_of
from .parser import PipelineParser
from .rows import ROW, Context, Row, StageMemory, placed, with_value
from .stages import Densify, Stage

MAX_ADDED: Final = 500_000
"""Rows that the stage adds at most; MongoDB's limit."""


def parse_densify(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$densify`."""
    given = parser.expressions.named(operand, place, ("field", "range"), ("partitionByFields",))
    names = given.get("partitionByFields", [])
    if not isinstance(names, list):
        raise InvalidPipeline(f"{place}.partitionByFields", "must be a list of fields")
    partition = tuple(path_of(each, f"{place}.partitionByFields") for each in names)
    field = path_of(given["field"], f"{place}.field")
    for each in partition:
        if each[: len(field)] == field[: len(each)]:
            problem = f"must not have a path of the field, got {shortened('.'.join(each))}"
            raise InvalidPipeline(f"{place}.partitionByFields", problem)
    here = f"{place}.range"
    limits = parser.expressions.named(given["range"], here, ("step", "bounds"), ("unit",))
    step, unit, bounds = limits["step"], unit_of(limits, here), limits["bounds"]
    if not is_number(step) or step <= 0 or (unit is not None and step != int(step)):
        problem = f"must be a positive number, and whole with a unit, got {shortened(step)}"
        raise InvalidPipeline(f"{here}.step", problem)
    if isinstance(bounds, str) and bounds in {"full", "partition"}:
        if bounds == "partition" and not partition:
            raise InvalidPipeline(f"{here}.bounds", "partition requires partitionByFields")
        whole: Any = bounds
        return Densify(field, partition, step, unit, whole)
    if not isinstance(bounds, list) or len(bounds) != 2:
        problem = f"must be full, partition, or a list of two values, got {shortened(bounds)}"
        raise InvalidPipeline(f"{here}.bounds", problem)
    low, high = (_bound(each, unit, f"{here}.bounds") for each in bounds)
    if low > high:
        raise InvalidPipeline(f"{here}.bounds", "the first value must not be greater")
    return Densify(field, partition, step, unit, (low, high))


def _bound(value: Any, unit: str | None, place: str) -> Any:
    if unit is None and is_number(value):
        return value
    if unit is not None and isinstance(value, str):
        try:
            return iso(times.instant(value))
        except OperandError as error:
            raise InvalidPipeline(place, error.problem) from None
    wanted = "numbers, or times with a unit" if unit is None else "times"
    raise InvalidPipeline(place, f"must be {wanted}, got {shortened(value)}")


def densified(stage: Densify, rows: Iterable[Row], context: Context, place: str) -> Iterator[Row]:
    """Yield the rows and the added rows, sorted by partition and field. Rows without a value come first."""
    memory, partitions = StageMemory(place, context.memory_limit), dict[Any, _Partition]()
    order = sort_key(context.ordered)
    with placed(place):
        for row in rows:
            spend()
            value = _at(stage.field, row, context)
            if is_null(value):
                yield row
                continue
            memory.hold(ROW + memory.measure(row.body))
            names = [_at(keys, row, context) for keys in stage.partition]
            hashed = key_of([None if n is MISSING else n for n in names], ordered=context.ordered)
            if hashed not in partitions:
                partitions[hashed] = _Partition(tuple(map(order, names)), names)
            partition = partitions[hashed]
            partition.held.append((_checked(value, stage.unit), row))
        found = sorted(partitions.values(), key=lambda each: each.key)
        if not found and not stage.partition and not isinstance(stage.bounds, str):
            found = [_Partition((), [])]
        for each in found:
            each.held.sort(key=lambda pair: pair[0])
        yield from _filled(stage, found)


class _Partition:
    def __init__(self, key: tuple[Any, ...], names: list[Any]) -> None:
        self.key, self.names, self.held = key, names, list[tuple[Any, Row]]()


def _at(keys: Keys, row: Row, context: Context) -> Any:
    return evaluate(Reference("CURRENT", keys), context.scope(row))


def _checked(value: Any, unit: str | None) -> Any:
    if unit is None and is_number(value):
        return value
    if unit is not None and isinstance(value, str):
        try:
            return iso(times.instant(value))
        except OperandError as error:
            raise InvalidOperand("$densify", error.problem, value) from None
    wanted = "a number, or a unit for times" if unit is None else "a time"
    raise InvalidOperand("$densify", f"requires {wanted}, got {named(value)}", value)


def _filled(stage: Densify, partitions: list[_Partition]) -> Iterator[Row]:
    left, includes = MAX_ADDED, isinstance(stage.bounds, str)
    if stage.bounds == "full":
        lowest = min((each.held[0][0] for each in partitions), default=None)
        highest = max((each.held[-1][0] for each in partitions), default=None)
    for partition in partitions:
        match stage.bounds:
            case "full":
                low, high = lowest, highest
            case "partition":
                low, high = partition.held[0][0], partition.held[-1][0]
            case (low, high):
                pass
        present = iter([*partition.held, (None, None)])
        next_value, next_row = next(present)
        for value in _steps(stage, low, high, includes=includes):
            spend()
            while next_row is not None and next_value < value:
                yield next_row
                next_value, next_row = next(present)
            if next_row is not None and next_value == value:
                continue
            left -= 1
            if left < 0:
                raise InvalidOperand("$densify", f"adds more than {MAX_ADDED:,} documents")
            yield _added(stage, partition.names, value)
        while next_row is not None:
            yield next_row
            next_value, next_row = next(present)


def _steps(stage: Densify, low: Any, high: Any, *, includes: bool) -> Iterator[Any]:
    number, value = 0, low
    while value < high or (includes and value == high):
        yield value
        number, before = number + 1, value
        try:
            value = _later(low, number * stage.step, stage.unit)
        except OperandError:  # behind the year 9999
            return
        if value == before:
            raise InvalidOperand("$densify", f"requires a larger step: it does not change {value}")


def _later(low: Any, by: float, unit: str | None) -> Any:
    return low + by if unit is None else times.add(times.instant(low), unit, int(by), UTC)


def _added(stage: Densify, names: list[Any], value: Any) -> Row:
    body: Any = {}
    for keys, name in zip(stage.partition, names, strict=True):
        body = with_value(body, keys, name)
    return Anonymous(with_value(body, stage.field, value))
