"""`$group`: rows to groups, in the order of their first rows.

A database can do a part (`fields_of`): equal values are one row with a number of occurrences, and integers of `$sum` and
`$avg` come added up (`CountedRow`). All other numbers come as values: the database rounds when it adds floats.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from ..codec import decode
from ..document import Anonymous
from ..errors import InvalidOperand
from ..expressions.evaluation import OperandError, is_null, key_of, order
from ..expressions.nodes import Meta, Reference, evaluate, nodes_of
from ..expressions.numbers import Total
from ..expressions.values import MISSING, is_number
from .rows import Context, Row, StageMemory, placed, with_value
from .stages import Accumulator, AccumulatorName, Group, Keys

Totals: TypeAlias = dict[Keys, tuple[int, int]]
"""The sum and the number of integers, by field."""
CountedRow: TypeAlias = tuple[Row, int, Totals]
"""A row, the number of its occurrences, and integers of other rows of its group."""
NO_TOTALS: Final[Totals] = {}
_GROUPS: Final = 256
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

    def add_total(self, total: int, count: int) -> None:
        """Add the sum of `count` integers."""
        self._total.add_integers(total, count)

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


def state_of(accumulator: Accumulator, memory: StageMemory, ordered: bool) -> State:
    """Return the state of an accumulator before the first value."""
    return _STATES[accumulator.operator](memory, ordered)


def grouped(
    stage: Group, rows: Iterable[CountedRow], context: Context, place: str
) -> Iterator[Row]:
    """Yield a body for each group after reading all rows."""
    memory = StageMemory(place, context.memory_limit)
    groups = dict[Hashable, tuple[Any, list[State]]]()
    fields = [(each.operand, _added(each)) for _, each in stage.fields]
    with placed(place):
        for row, times, totals in rows:
            scope = context.scope(row)
            key = evaluate(stage.key, scope)
            key = None if key is MISSING else key
            size = memory.measure(key)
            hashed = key_of(key, ordered=context.ordered)
            if hashed not in groups:
                memory.hold(_OVERHEAD * (1 + len(stage.fields)) + 2 * size)
                ordered = context.ordered
                states = [state_of(each, memory, ordered) for _, each in stage.fields]
                groups[hashed] = key, states
            for (operand, keys), state in zip(fields, groups[hashed][1], strict=True):
                state.add(evaluate(operand, scope), times)
                if keys in totals:
                    state.add_total(*totals[keys])
        for key, states in groups.values():
            body = {"_id": key}
            for (name, each), state in zip(stage.fields, states, strict=True):
                try:
                    body[name] = state.result()
                except OperandError as error:
                    raise InvalidOperand(each.operator, error.problem, error.found) from None
            yield Anonymous(body)


class GroupedFields(NamedTuple):
    """The fields that a group reads: for their values, and for the sum of their numbers."""

    values: tuple[Keys, ...]
    sums: tuple[Keys, ...]


@lru_cache(maxsize=_GROUPS)
def fields_of(stage: Group) -> GroupedFields | None:
    """Return the fields that a group reads; None: the group reads whole documents, or their order.

    A field within a field that is read for its value is left out.
    """
    if any(each.operator in {"$first", "$last", "$push"} for _, each in stage.fields):
        return None
    sums = {keys for _, each in stage.fields if (keys := _added(each))}
    found = set()
    operands = (each.operand for _, each in stage.fields if not _added(each))
    for expression in (stage.key, *operands):
        for node in nodes_of(expression):
            match node:
                case Meta() | Reference("CURRENT" | "ROOT", ()):
                    return None
                case Reference("CURRENT" | "ROOT", keys):
                    found.add(keys)
    inner = {keys for keys in found | sums if any(keys[:n] in found for n in range(len(keys)))}
    return GroupedFields(tuple(sorted(found - inner)), tuple(sorted(sums - found - inner)))


def _added(accumulator: Accumulator) -> Keys:
    """Return the field whose numbers are added up; no keys for any other accumulator."""
    match accumulator:
        case Accumulator("$sum" | "$avg", Reference("CURRENT" | "ROOT", keys)):
            return keys
    return ()


def row_of(paths: tuple[Keys, ...], texts: Iterable[str | None]) -> Row:
    """Return a row with values at paths only, from their JSON texts; None is no value."""
    body: Any = {}
    for keys, text in zip(paths, texts, strict=True):
        if text is not None:
            value = decode(text)
            if len(keys) == 1:  # sooner
                body[keys[0]] = value
            else:
                body = with_value(body, keys, value)
    return Anonymous(body)
