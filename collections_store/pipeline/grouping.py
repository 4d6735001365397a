"""`$group`: rows to groups, in the order in which the groups came up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, ClassVar, Final, Protocol

from ..document import Anonymous
from ..errors import InvalidOperand
from ..formula import Total, Unfit, evaluate, is_null, key_of, order
from ..values import MISSING, is_number
from .memory import Memory
from .rows import Context, Row
from .stages import AccumulatorName, Group

_OVERHEAD: Final = 200
"""What a group weighs besides its key and what its accumulators hold."""


class State(Protocol):
    """What an accumulator has come to."""

    def add(self, value: Any) -> int:
        """Take the next value; returns how much more is held now."""

    def result(self) -> Any:
        """Return what it comes to."""


class _Sum:
    __slots__ = ("_total",)

    def __init__(self, memory: Memory, ordered: bool) -> None:  # noqa: ARG002
        self._total = Total()

    def add(self, value: Any) -> int:
        if is_number(value):
            self._total.add(value)
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

    def __init__(self, memory: Memory, ordered: bool) -> None:
        self._memory, self._ordered, self._value, self._weight = memory, ordered, MISSING, 0

    def _take(self, value: Any) -> int:
        before, self._weight = self._weight, self._memory.weigh(value)
        self._value = value
        return self._weight - before

    def result(self) -> Any:
        return None if self._value is MISSING else self._value


class _First(_One):
    __slots__ = ("_begun",)

    def __init__(self, memory: Memory, ordered: bool) -> None:
        super().__init__(memory, ordered)
        self._begun = False

    def add(self, value: Any) -> int:
        if self._begun:
            return 0
        self._begun = True
        return self._take(value)


class _Last(_One):
    __slots__ = ()

    def add(self, value: Any) -> int:
        return self._take(value)


class _Least(_One):
    __slots__ = ()
    sign: ClassVar = 1

    def add(self, value: Any) -> int:
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

    def __init__(self, memory: Memory, ordered: bool) -> None:  # noqa: ARG002
        self._memory = memory
        self._values: list[Any] = []

    def add(self, value: Any) -> int:
        if value is MISSING:
            return 0
        self._values.append(value)
        return self._memory.weigh(value)

    def result(self) -> Any:
        return self._values


class _Set:
    __slots__ = ("_memory", "_ordered", "_values")

    def __init__(self, memory: Memory, ordered: bool) -> None:
        self._memory, self._ordered = memory, ordered
        self._values: dict[Hashable, Any] = {}

    def add(self, value: Any) -> int:
        if value is MISSING:
            return 0
        size, weight = len(self._values), self._memory.weigh(value)
        self._values.setdefault(key_of(value, ordered=self._ordered), value)
        return 2 * weight if len(self._values) > size else 0

    def result(self) -> Any:
        return list(self._values.values())


_STATES: Final[dict[AccumulatorName, Callable[[Memory, bool], State]]] = {
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
    memory, groups = context.memory(place), dict[Hashable, tuple[Any, list[State]]]()
    for row in rows:
        scope = context.scope(row)
        key = evaluate(stage.key, scope)
        key = None if key is MISSING else key
        weight = memory.weigh(key)
        hashed = key_of(key, ordered=context.ordered)
        if hashed not in groups:
            memory.hold(_OVERHEAD * (1 + len(stage.fields)) + 2 * weight)
            groups[hashed] = key, _states(stage, memory, context)
        for (_, each), state in zip(stage.fields, groups[hashed][1], strict=True):
            memory.hold(_guarded(each.operator, state.add, evaluate(each.operand, scope)))
    for key, states in groups.values():
        pairs = zip(stage.fields, states, strict=True)
        found = {name: _guarded(each.operator, state.result) for (name, each), state in pairs}
        yield Anonymous({"_id": key, **found})


def _states(stage: Group, memory: Memory, context: Context) -> list[State]:
    return [_STATES[each.operator](memory, context.ordered) for _, each in stage.fields]


def _guarded(operator: str, function: Callable[..., Any], *operands: Any) -> Any:
    try:
        return function(*operands)
    except Unfit as error:
        raise InvalidOperand(operator, error.problem, error.found) from None
