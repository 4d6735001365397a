"""`$group`: rows to groups, in the order in which the groups came up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, ClassVar, Final, Protocol

from ..document import Anonymous
from ..errors import InvalidOperand
from ..query.values import MISSING, is_number
from .expressions.nodes import Meta, Reference, evaluate, nodes_of
from .expressions.numbers import Total
from .expressions.operands import OperandError, is_null, key_of, order
from .rows import Context, Row, StageMemory, having, placed
from .stages import AccumulatorName, Group, Keys

_OVERHEAD: Final = 200
"""What a group weighs besides its key and what its accumulators hold."""


class State(Protocol):
    """What an accumulator has come to."""

    def add(self, value: Any, times: int) -> int:
        """Take the next value, which comes so many times; returns how much more is held now."""

    def result(self) -> Any:
        """Return what it comes to."""


class _Sum:
    __slots__ = ("_total",)

    def __init__(self, memory: StageMemory, ordered: bool) -> None:  # noqa: ARG002
        self._total = Total()

    def add(self, value: Any, times: int) -> int:
        if is_number(value):
            self._total.add(value, times)
        return 0

    def result(self) -> Any:
        return self._total.total()


class _Average(_Sum):
    __slots__ = ()

    def result(self) -> Any:
        return self._total.average()


class _One:
    """Holds one of the values."""

    __slots__ = ("_memory", "_ordered", "_value", "_weight")

    def __init__(self, memory: StageMemory, ordered: bool) -> None:
        self._memory, self._ordered, self._value, self._weight = memory, ordered, MISSING, 0

    def _take(self, value: Any) -> int:
        before, self._weight = self._weight, self._memory.weigh(value)
        self._value = value
        return self._weight - before

    def result(self) -> Any:
        return None if self._value is MISSING else self._value


class _First(_One):
    __slots__ = ("_begun",)

    def __init__(self, memory: StageMemory, ordered: bool) -> None:
        super().__init__(memory, ordered)
        self._begun = False

    def add(self, value: Any, times: int) -> int:  # noqa: ARG002
        if self._begun:
            return 0
        self._begun = True
        return self._take(value)


class _Last(_One):
    __slots__ = ()

    def add(self, value: Any, times: int) -> int:  # noqa: ARG002
        return self._take(value)


class _Least(_One):
    __slots__ = ()
    sign: ClassVar = 1

    def add(self, value: Any, times: int) -> int:  # noqa: ARG002
        if is_null(value):
            return 0
        first = self._value is MISSING
        if first or order(value, self._value, ordered=self._ordered) * self.sign < 0:
            return self._take(value)
        return 0


class _Greatest(_Least):
    __slots__ = ()
    sign: ClassVar = -1


class _List:
    __slots__ = ("_memory", "_values")

    def __init__(self, memory: StageMemory, ordered: bool) -> None:  # noqa: ARG002
        self._memory = memory
        self._values: list[Any] = []

    def add(self, value: Any, times: int) -> int:
        if value is MISSING:
            return 0
        self._values.extend([value] * times)
        return self._memory.weigh(value) * times

    def result(self) -> Any:
        return self._values


class _Set:
    __slots__ = ("_memory", "_ordered", "_values")

    def __init__(self, memory: StageMemory, ordered: bool) -> None:
        self._memory, self._ordered = memory, ordered
        self._values: dict[Hashable, Any] = {}

    def add(self, value: Any, times: int) -> int:  # noqa: ARG002
        if value is MISSING:
            return 0
        size, weight = len(self._values), self._memory.weigh(value)
        self._values.setdefault(key_of(value, ordered=self._ordered), value)
        return 2 * weight if len(self._values) > size else 0

    def result(self) -> Any:
        return list(self._values.values())


_STATES: Final[dict[AccumulatorName, Callable[[StageMemory, bool], State]]] = {
    "$sum": _Sum,
    "$avg": _Average,
    "$min": _Least,
    "$max": _Greatest,
    "$first": _First,
    "$last": _Last,
    "$push": _List,
    "$addToSet": _Set,
}


def grouped(stage: Group, rows: Iterable[Row], context: Context, place: str) -> Iterator[Row]:
    """Yield one object for each group, once all rows were read."""
    return counted(stage, ((row, 1) for row in rows), context, place)


def counted(
    stage: Group, rows: Iterable[tuple[Row, int]], context: Context, place: str
) -> Iterator[Row]:
    """Group rows that come so many times each."""
    memory, groups = context.memory(place), dict[Hashable, tuple[Any, list[State]]]()
    with placed(place):
        for row, times in rows:
            scope = context.scope(row)
            key = evaluate(stage.key, scope)
            key = None if key is MISSING else key
            weight = memory.weigh(key)
            hashed = key_of(key, ordered=context.ordered)
            if hashed not in groups:
                memory.hold(_OVERHEAD * (1 + len(stage.fields)) + 2 * weight)
                groups[hashed] = key, _states(stage, memory, context)
            for (_, each), state in zip(stage.fields, groups[hashed][1], strict=True):
                value = evaluate(each.operand, scope)
                memory.hold(_guarded(each.operator, state.add, value, times))
        for key, states in groups.values():
            pairs = zip(stage.fields, states, strict=True)
            found = {name: _guarded(each.operator, state.result) for (name, each), state in pairs}
            yield Anonymous({"_id": key, **found})


def _states(stage: Group, memory: StageMemory, context: Context) -> list[State]:
    return [_STATES[each.operator](memory, context.ordered) for _, each in stage.fields]


def _guarded(operator: str, function: Callable[..., Any], *operands: Any) -> Any:
    try:
        return function(*operands)
    except OperandError as error:
        raise InvalidOperand(operator, error.problem, error.found) from None


_IN_ORDER: Final = frozenset({"$first", "$last", "$push"})


def paths_of(stage: Group) -> tuple[Keys, ...] | None:
    """Return the fields that a group looks at; None: it looks at whole objects, or at their order.

    Of two fields, one within the other, the outer one is all that is needed.
    """
    if any(each.operator in _IN_ORDER for _, each in stage.fields):
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


def slim(paths: tuple[Keys, ...], values: Iterable[Any]) -> Row:
    """Return a row that has nothing but values at paths, `MISSING` where there is none."""
    body: Any = {}
    for keys, value in zip(paths, values, strict=True):
        if value is not MISSING:
            body = having(body, keys, value)
    return Anonymous(body)
