"""`$group`: rows to groups, in the order of their first rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, ClassVar, Final

from ..document import Anonymous
from ..errors import InvalidOperand
from ..expressions.evaluation import OperandError, is_null, key_of, order
from ..expressions.nodes import Meta, Reference, evaluate, nodes_of
from ..expressions.numbers import Total
from ..expressions.values import MISSING, is_number
from .rows import Context, Row, StageMemory, placed, with_value
from .stages import AccumulatorName, Group, Keys

_OVERHEAD: Final = 200
"""Bytes that a group, or a field of it, takes besides its values."""


class State:
    """The state of an accumulator in a group. The base class is `$sum`."""

    __slots__ = ("_total",)

    def __init__(self, memory: StageMemory, ordered: bool) -> None:  # noqa: ARG002
        self._total = Total()

    def add(self, value: Any, times: int) -> None:
        """Add a value that occurs `times` times."""
        if is_number(value):
            self._total.add(value, times)

    def result(self) -> Any:
        """Return the accumulated value; raises `OperandError`."""
        return self._total.total()


class _Average(State):
    __slots__ = ()

    def result(self) -> Any:
        return self._total.average()


class _Last(State):
    """Holds a value. `_size` is 0 before the first."""

    __slots__ = ("_memory", "_ordered", "_size", "_value")

    def __init__(self, memory: StageMemory, ordered: bool) -> None:
        self._memory, self._ordered, self._value, self._size = memory, ordered, MISSING, 0

    def add(self, value: Any, times: int) -> None:  # noqa: ARG002
        before, self._size = self._size, self._memory.measure(value)
        self._memory.hold(self._size - before)
        self._value = value

    def result(self) -> Any:
        return None if self._value is MISSING else self._value


class _First(_Last):
    __slots__ = ()

    def add(self, value: Any, times: int) -> None:
        if not self._size:
            super().add(value, times)


class _Least(_Last):
    __slots__ = ()
    sign: ClassVar = 1

    def add(self, value: Any, times: int) -> None:
        if is_null(value):
            return
        first = self._value is MISSING
        if first or order(value, self._value, ordered=self._ordered) * self.sign < 0:
            super().add(value, times)


class _Greatest(_Least):
    __slots__ = ()
    sign: ClassVar = -1


class _List(State):
    __slots__ = ("_memory", "_values")

    def __init__(self, memory: StageMemory, ordered: bool) -> None:  # noqa: ARG002
        self._memory, self._values = memory, list[Any]()

    def add(self, value: Any, times: int) -> None:
        if value is not MISSING:
            self._memory.hold(self._memory.measure(value) * times)
            self._values.extend([value] * times)

    def result(self) -> Any:
        return self._values


class _Set(State):
    __slots__ = ("_memory", "_ordered", "_values")

    def __init__(self, memory: StageMemory, ordered: bool) -> None:
        self._memory, self._ordered, self._values = memory, ordered, dict[Hashable, Any]()

    def add(self, value: Any, times: int) -> None:  # noqa: ARG002
        if value is MISSING:
            return
        size, key = self._memory.measure(value), key_of(value, ordered=self._ordered)
        if key not in self._values:
            self._memory.hold(2 * size)
            self._values[key] = value

    def result(self) -> Any:
        return list(self._values.values())


_STATES: Final[dict[AccumulatorName, Callable[[StageMemory, bool], State]]] = {
    "$sum": State,
    "$avg": _Average,
    "$min": _Least,
    "$max": _Greatest,
    "$first": _First,
    "$last": _Last,
    "$push": _List,
    "$addToSet": _Set,
}


def grouped(
    stage: Group, rows: Iterable[tuple[Row, int]], context: Context, place: str
) -> Iterator[Row]:
    """Yield a body for each group after reading all rows, with their numbers of occurrences."""
    memory = StageMemory(place, context.memory_limit)
    groups = dict[Hashable, tuple[Any, list[State]]]()
    with placed(place):
        for row, times in rows:
            scope = context.scope(row)
            key = evaluate(stage.key, scope)
            key = None if key is MISSING else key
            size = memory.measure(key)
            hashed = key_of(key, ordered=context.ordered)
            if hashed not in groups:
                memory.hold(_OVERHEAD * (1 + len(stage.fields)) + 2 * size)
                accumulators = (_STATES[each.operator] for _, each in stage.fields)
                groups[hashed] = key, [make(memory, context.ordered) for make in accumulators]
            for (_, each), state in zip(stage.fields, groups[hashed][1], strict=True):
                state.add(evaluate(each.operand, scope), times)
        for key, states in groups.values():
            body = {"_id": key}
            for (name, each), state in zip(stage.fields, states, strict=True):
                try:
                    body[name] = state.result()
                except OperandError as error:
                    raise InvalidOperand(each.operator, error.problem, error.found) from None
            yield Anonymous(body)


def paths_of(stage: Group) -> tuple[Keys, ...] | None:
    """Return the fields that a group reads; None: the group reads whole documents, or their order.

    A field within another field of the group is left out.
    """
    if any(each.operator in {"$first", "$last", "$push"} for _, each in stage.fields):
        return None
    found = set()
    for expression in (stage.key, *(each.operand for _, each in stage.fields)):
        for node in nodes_of(expression):
            match node:
                case Meta() | Reference("CURRENT" | "ROOT", ()):
                    return None
                case Reference("CURRENT" | "ROOT", keys):
                    found.add(keys)
    inner = {keys for keys in found if any(keys[:depth] in found for depth in range(len(keys)))}
    return tuple(sorted(found - inner))


def row_of(paths: tuple[Keys, ...], values: Iterable[Any]) -> Row:
    """Return a row with values at paths only; `MISSING` is no value."""
    body: Any = {}
    for keys, value in zip(paths, values, strict=True):
        if value is not MISSING:
            body = with_value(body, keys, value)
    return Anonymous(body)
