"""`$setWindowFields`: fields that are computed from the rows around each row, in the order of a partition."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from functools import cached_property
from itertools import groupby, pairwise
from sys import getsizeof
from typing import Any, Final, Literal, TypeAlias

from ..codec.times import iso
from ..document import Document
from ..errors import InvalidOperand
from ..expressions import numbers, times
from ..expressions.budget import spend
from ..expressions.classes import value_class
from ..expressions.evaluation import OperandError, is_null, named, number, result, sort_key
from ..expressions.nodes import Constant, Node, Reference, evaluate
from ..expressions.numbers import Total
from ..expressions.path import Path
from ..expressions.values import MISSING, is_number
from ..query.sort import Sort
from .group import state_of, value_of
from .rows import ROW, Context, Row, StageMemory, placed, with_body, with_value
from .spill import ExternalSort
from .stages import Accumulator, SetWindowFields, Window, WindowField, WindowFunction

Span: TypeAlias = tuple[int, int]
"""The positions of a window in its partition: the first row, and the first one behind."""


def windowed(
    stage: SetWindowFields, rows: Iterable[Row], context: Context, place: str
) -> Iterator[Row]:
    """Yield the rows with the new fields, sorted by partition and within a partition."""
    memory, by_key = StageMemory(place, context.memory_limit), sort_key(context.ordered)
    is_spilled = place in context.spilled
    held = ExternalSort[tuple[Any, Row]](
        lambda each: by_key(each[0]), context.memory_limit if is_spilled else sys.maxsize
    )
    with placed(place):
        for row in rows:
            spend()
            key = evaluate(stage.partition, context.scope(row))
            if isinstance(key, list):
                problem = f"must not be an array, got {named(key)}"
                raise InvalidOperand("partitionBy", problem, key)
            size = ROW + memory.measure(row.body) + memory.measure(key)
            if not is_spilled:
                memory.hold(size)
            held.add((None if key is MISSING else key, row), size)
    for _, group in groupby(held.in_order(), key=lambda each: by_key(each[0])):
        before, same = memory.held, list[Row]()
        for _, row in group:
            same.append(row)
            if is_spilled:
                memory.hold(ROW + memory.measure(row.body))
        partition = _Partition(stage.sort, same, context, memory)
        with placed(place):
            columns = [_column(field, partition) for field in stage.fields]
            for number, row in enumerate(partition.rows):
                body = row.body
                for field, column in zip(stage.fields, columns, strict=True):
                    body = with_value(body, field.into, column[number])
                yield with_body(row, body)
        memory.release(memory.held - before)


class _Partition:
    """The sorted rows of a partition."""

    def __init__(self, sort: Sort, rows: list[Row], context: Context, memory: StageMemory) -> None:
        documents = (row if isinstance(row, Document) else Document("", row.body) for row in rows)
        keys = [sort.key(each, ordered=context.ordered) for each in documents]
        positions = sorted(range(len(rows)), key=keys.__getitem__)
        self.rows, self.keys = [rows[each] for each in positions], [keys[n] for n in positions]
        self.sort, self.context, self.memory = sort, context, memory

    def values(self, expression: Node) -> list[Any]:
        """Return the value of an expression for each row; null for a missing one."""
        found = list[Any]()
        for row in self.rows:
            spend()
            value = evaluate(expression, self.context.scope(row))
            found.append(None if value is MISSING else value)
            if not isinstance(expression, Reference):  # a part of the row is held
                self.memory.hold_value(found[-1])
        return found

    @cached_property
    def sorted_by(self) -> list[Any]:
        """The values of the sorted field: numbers, or times in the sortable form."""
        [field] = self.sort.fields
        target = field.target
        assert isinstance(target, Path)
        found = [_position(each) for each in self.values(Reference("CURRENT", target.keys))]
        if all(isinstance(each, str) for each in found) and found != sorted(
            found, reverse=field.descending
        ):
            raise OperandError("requires times of one form in the field of sortBy")
        return found

    def spans(self, window: Window) -> list[Span]:
        """Return the window of each row."""
        count, low, high = len(self.rows), window.lower, window.upper
        if not window.is_range:
            begins = (0 if low is None else max(0, n + int(low)) for n in range(count))
            ends = (count if high is None else n + int(high) + 1 for n in range(count))
            return [
                (min(b, count), max(0, min(e, count))) for b, e in zip(begins, ends, strict=True)
            ]
        values = self.sorted_by
        _check_unit(values, window.unit)
        begins = (0 if low is None else bisect_left(values, _moved(v, low, window)) for v in values)
        ends = (
            count if high is None else bisect_right(values, _moved(v, high, window)) for v in values
        )
        return list(zip(begins, ends, strict=True))

    def distance(self, first: int, last: int, unit: str | None) -> float:
        """Return how far the sorted values of two rows are apart."""
        values = self.sorted_by[first], self.sorted_by[last]
        _check_unit(values, unit)
        if unit is None:
            return result(values[1] - values[0])
        return (times.milliseconds(values[1]) - times.milliseconds(values[0])) / times.MILLISECONDS[
            unit
        ]


def _position(value: Any) -> Any:
    if is_number(value):
        return value
    if times.is_time(value) or isinstance(value, str):
        return iso(times.instant(value))
    raise OperandError(
        f"requires numbers or times in the field of sortBy, got {named(value)}", value
    )


def _check_unit(values: Sequence[Any], unit: str | None) -> None:
    """Raise `OperandError` unless a unit stands with times, and only with them."""
    for each in values:
        if isinstance(each, str) is (unit is None):
            problem = (
                "times in the field of sortBy require a unit"
                if unit is None
                else "a unit requires times"
            )
            raise OperandError(f"{problem}, got {named(each)}", each)


def _moved(value: Any, by: float, window: Window) -> Any:
    if window.unit is None:
        return value + by
    try:
        return times.add(times.instant(value), window.unit, int(by), UTC)
    except OperandError:  # beyond the years 1 to 9999
        return "" if by < 0 else "~"


def _column(field: WindowField, partition: _Partition) -> list[Any]:
    """Return the values of a field for each row of a partition."""
    function = field.function
    try:
        if isinstance(function, Accumulator):
            return _accumulated(function, field.window, partition)
        return FUNCTIONS[function.operator].column(function, field.window, partition)
    except OperandError as error:
        raise InvalidOperand(function.operator, error.problem, error.found) from None


def _accumulated(function: Accumulator, window: Window, partition: _Partition) -> list[Any]:
    """Accumulate over each window. A window that only grows from row to row goes on with its state."""
    context, memory, column = partition.context, partition.memory, list[Any]()
    values = list[Any]()
    for row in partition.rows:
        spend()
        values.append(value_of(function, row, context.scope(row)))
        if not isinstance(function.operand, Reference):
            memory.hold_value(values[-1] if function.sort is None else values[-1][1])
    reached, last = 0, None
    for span in partition.spans(window):
        if span != last:
            begin, end = span
            if last is None or window.lower is not None:
                state_memory = StageMemory(memory.place, context.memory_limit)
                state, reached = state_of(function, None, context, state_memory), begin
            for value in values[reached:end]:
                spend()
                state.add(value, 1)
            found, reached, last = state.result(), max(reached, end), span
        if isinstance(found, list | dict):
            spend(len(found))
            memory.hold(getsizeof(found))
            found = found.copy()
        column.append(found)
    return column


def _numbered(function: WindowFunction, _: Window, partition: _Partition) -> list[Any]:
    keys = partition.keys
    if function.operator == "$documentNumber":
        return list(range(1, len(keys) + 1))
    rank, dense, column = 0, 0, list[int]()
    for position, key in enumerate(keys):
        if not position or keys[position - 1] < key:
            rank, dense = position + 1, dense + 1
        column.append(rank if function.operator == "$rank" else dense)
    return column


def _shifted(function: WindowFunction, _: Window, partition: _Partition) -> list[Any]:
    output, default = function.operands
    values, [other] = partition.values(output), partition.values(default)[:1]
    positions = (number + int(function.number) for number in range(len(values)))
    return [values[each] if 0 <= each < len(values) else other for each in positions]


def _smoothed(function: WindowFunction, _: Window, partition: _Partition) -> list[Any]:
    """Return the exponential moving average of the numbers up to each row; null before the first number."""
    column, average = list[float | None](), None
    for value in partition.values(function.operands[0]):
        if is_number(value):
            weight = 1 if average is None else function.number
            average = result(float(value * weight + (average or 0) * (1 - weight)))
        column.append(average)
    return column


def _carried(function: WindowFunction, _: Window, partition: _Partition) -> list[Any]:
    """Return each value, and for null the last value before (`$locf`)."""
    column = list[Any]()
    for value in partition.values(function.operands[0]):
        column.append(column[-1] if value is None and column else value)
    return column


def _interpolated(function: WindowFunction, _: Window, partition: _Partition) -> list[Any]:
    """Return each number, and for null the number on the line between both neighbours (`$linearFill`)."""
    column, at = partition.values(function.operands[0]), partition.sorted_by
    for one, other in pairwise(at):
        if one == other:
            raise OperandError(
                f"requires different values in the field of sortBy, got {named(one)} twice"
            )
    known = [n for n, value in enumerate(column) if value is not None and number(value) is value]
    for first, last in pairwise(known):
        low, high = column[first], column[last]
        for position in range(first + 1, last):
            unit = "millisecond" if isinstance(at[position], str) else None
            part = partition.distance(first, position, unit) / partition.distance(first, last, unit)
            column[position] = result(low + (high - low) * part)
    return column


def _sloped(function: WindowFunction, window: Window, partition: _Partition) -> list[Any]:
    """Return the slope from the first to the last row of each window (`$derivative`)."""
    values, column = partition.values(function.operands[0]), list[Any]()
    for begin, end in partition.spans(window):
        if end - begin < 2 or is_null(values[begin]) or is_null(values[end - 1]):
            column.append(None)
            continue
        run = partition.distance(begin, end - 1, function.unit)
        rise = result(number(values[end - 1]) - number(values[begin]))
        column.append(result(rise / run) if run else None)
    return column


def _area(function: WindowFunction, window: Window, partition: _Partition) -> list[Any]:
    """Return the area below the line through the rows of each window (`$integral`)."""
    values, column = partition.values(function.operands[0]), list[Any]()
    total, areas, first, behind = Total(), dict[int, float](), 0, 0
    for begin, end in partition.spans(window):  # neither moves back, and sums are exact
        for leaving in range(first, begin):
            total.add(-areas.pop(leaving, 0.0))
        for position in range(max(begin, behind), end - 1):
            spend()
            height = number(values[position]) + number(values[position + 1])
            distance = partition.distance(position, position + 1, function.unit)
            areas[position] = area = result(height / 2 * distance)
            total.add(area)
        first, behind = max(first, begin), max(behind, end - 1)
        column.append(total.total() if end > begin else None)
    return column


def _covariance(function: WindowFunction, window: Window, partition: _Partition) -> list[Any]:
    left, right = (partition.values(each) for each in function.operands)
    besides = int(function.operator == "$covarianceSamp")
    covariance, column, first, behind = numbers.Covariance(), list[Any](), 0, 0
    for begin, end in partition.spans(window):  # neither moves back, and sums are exact
        for leaving in range(first, min(begin, behind)):
            covariance.add(left[leaving], right[leaving], -1)
        for position in range(max(begin, behind), end):
            spend()
            covariance.add(left[position], right[position], 1)
        first, behind = max(first, begin), max(behind, end)
        column.append(covariance.result(besides))
    return column


def _scaled(function: WindowFunction, window: Window, partition: _Partition) -> list[Any]:
    """Return each number's place between the least and the greatest of its window, on a scale (`$minMaxScaler`)."""
    values = [number(each) for each in partition.values(function.operands[0])]
    low, high = (each.value for each in function.operands[1:] if isinstance(each, Constant))
    least, greatest = deque[int](), deque[int]()  # positions in ascending and descending order
    column, behind = list[Any](), 0
    for value, (begin, end) in zip(values, partition.spans(window), strict=True):  # as above
        for position in range(behind, end):
            spend()
            while least and values[least[-1]] >= values[position]:
                least.pop()
            while greatest and values[greatest[-1]] <= values[position]:
                greatest.pop()
            least.append(position)
            greatest.append(position)
        behind = max(behind, end)
        for each in (least, greatest):
            while each[0] < begin:
                each.popleft()
        first, length = values[least[0]], result(values[greatest[0]] - values[least[0]])
        column.append(result((value - first) / length * (high - low) + low) if length else low)
    return column


@value_class
class DeclaredFunction:
    """A declared window function: `column` returns the values of a field, `form` is the form of the operand, `sort` the
    required `sortBy`: anything, one field, or one field of the body with values to calculate with.
    """

    column: Callable[[WindowFunction, Window, _Partition], list[Any]]
    form: Literal["empty", "value", "shift", "average", "slope", "pair", "scale"]
    window: Literal["none", "optional", "required"] = "none"
    sort: Literal["", "any", "one", "body"] = "any"


FUNCTIONS: Final[dict[str, DeclaredFunction]] = {
    "$rank": DeclaredFunction(_numbered, "empty", sort="one"),
    "$denseRank": DeclaredFunction(_numbered, "empty", sort="one"),
    "$documentNumber": DeclaredFunction(_numbered, "empty"),
    "$shift": DeclaredFunction(_shifted, "shift"),
    "$expMovingAvg": DeclaredFunction(_smoothed, "average"),
    "$locf": DeclaredFunction(_carried, "value"),
    "$linearFill": DeclaredFunction(_interpolated, "value", sort="body"),
    "$derivative": DeclaredFunction(_sloped, "slope", "required", "body"),
    "$integral": DeclaredFunction(_area, "slope", "optional", "body"),
    "$covariancePop": DeclaredFunction(_covariance, "pair", "optional", ""),
    "$covarianceSamp": DeclaredFunction(_covariance, "pair", "optional", ""),
    "$minMaxScaler": DeclaredFunction(_scaled, "scale", "optional", ""),
}
