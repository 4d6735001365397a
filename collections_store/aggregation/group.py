"""`$group`: rows to groups, in the order of their first rows.

A database can do a part (`fields_of`): equal values are one row with a number of occurrences, and the integers of `$sum`,
`$avg`, `$min` and `$max` come combined (`CountedRow`). All other numbers come as values: a database rounds sums of floats, and does
not return whether 1 or 1.0 came first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Final, NamedTuple, TypeAlias

from ..codec import decode
from ..document import Anonymous, Document
from ..errors import InvalidOperand
from ..expressions.evaluation import OperandError, Scope, integer, key_of, sort_key
from ..expressions.fields import Keys
from ..expressions.nodes import Bucket, Constant, Meta, OperatorCall, Reference, evaluate, nodes_of
from ..expressions.values import MISSING, is_number
from .accumulators import ACCUMULATORS, Integers, Setting, State, maker_of
from .rows import ROW, Context, Row, StageMemory, placed, with_value
from .spill import ExternalSort
from .stages import Accumulator, Group

Totals: TypeAlias = dict[Keys, Integers]
"""The combined integers, by field."""
CountedRow: TypeAlias = tuple[Row, int, Totals]
"""A row, the number of its occurrences, and integers of other rows of its group."""
NO_TOTALS: Final[Totals] = {}
_GROUPS: Final = 256
_MAX_LIMITS: Final = 50
_OVERHEAD: Final = 200
"""Bytes that a group, or a field of it, takes besides its values."""


def grouped(
    stage: Group, rows: Iterable[CountedRow], context: Context, place: str
) -> Iterator[Row]:
    """Yield a body for each group after reading all rows."""
    if place in context.spilled:
        yield from _sorted_groups(stage, rows, context, place)
        return
    groups = Groups(stage, context, place)
    fields = [(each, combined_field(each)) for _, each in stage.fields]
    with placed(place):
        for row, times, totals in rows:
            scope = context.scope(row)
            states = groups.states(evaluate(stage.key, scope))
            for (each, keys), state in zip(fields, states, strict=True):
                accumulate(each, state, row, scope, times)
                if keys in totals:
                    state.add_integers(totals[keys])
        yield from groups.bodies()


class Groups:
    """The groups of a stage, in the order of their first rows."""

    def __init__(self, stage: Group, context: Context, place: str) -> None:
        self._fields, self._context = stage.fields, context
        self._memory = memory = StageMemory(place, context.memory_limit)
        self._size = _OVERHEAD * (1 + len(stage.fields))
        self._found = dict[Hashable, tuple[Any, list[State]]]()
        self._makers = [
            maker_of(each, Setting(memory, context.ordered, each, 1)) for _, each in stage.fields
        ]
        self._counts = any(each.count is not None for _, each in stage.fields)

    def states(self, key: Any) -> list[State]:
        """Return the states of the accumulators in the group of a key."""
        key = None if key is MISSING else key
        size = self._memory.measure(key)
        hashed = key_of(key, ordered=self._context.ordered)
        found = self._found.get(hashed)
        if found is None:
            self._memory.hold(self._size + 2 * size)
            found = self._found[hashed] = key, self._states(key)
        return found[1]

    def _states(self, key: Any) -> list[State]:
        if not self._counts:
            return [make() for make in self._makers]
        return [state_of(each, key, self._context, self._memory) for _, each in self._fields]

    def bodies(self) -> Iterator[Row]:
        """Yield the body of each group."""
        for key, states in self._found.values():
            body = {"_id": key}
            for (name, each), state in zip(self._fields, states, strict=True):
                try:
                    body[name] = state.result()
                except OperandError as error:
                    raise InvalidOperand(each.operator, error.problem, error.found) from None
            yield Anonymous(body)


def _sorted_groups(
    stage: Group, rows: Iterable[CountedRow], context: Context, place: str
) -> Iterator[Row]:
    """Yield a body for each group: the rows are sorted by their groups in a temporary file, and the groups by their first
    rows in another.
    """
    memory, by_key = StageMemory(place, context.memory_limit), sort_key(context.ordered)
    in_memory = replace(context, spilled=frozenset())
    items = ExternalSort[tuple[Any, int, CountedRow]](
        lambda item: by_key(item[0]), context.memory_limit
    )
    with placed(place):
        for number, (row, times, totals) in enumerate(rows):
            key = evaluate(stage.key, context.scope(row))
            key = None if key is MISSING else key
            size = memory.measure(key) + memory.measure(row.body) + ROW
            items.add((key, number, (row, times, totals)), size)
    groups = ExternalSort[tuple[int, Row]](lambda item: item[0], context.memory_limit // 2)
    for _, some in groupby(items.in_order(), key=lambda item: by_key(item[0])):
        number, found = _one_group(stage, some, in_memory, place)
        groups.add((number, found), memory.measure(found.body) + ROW)
    yield from (row for _, row in groups.in_order())


def _one_group(
    stage: Group, items: Iterator[tuple[Any, int, CountedRow]], context: Context, place: str
) -> tuple[int, Row]:
    """Return the number of a group's first row, and the body of the group."""
    first = next(items)
    whole = Group(Constant.of(first[0]), stage.fields)
    rows = (row for _, _, row in chain([first], items))
    [found] = grouped(whole, rows, context, place)
    return first[1], found


def state_of(accumulator: Accumulator, key: Any, context: Context, memory: StageMemory) -> State:
    """Return the state of an accumulator before the first value; its `n` may read the key of the group."""
    count = 1
    if accumulator.count is not None:
        given = evaluate(accumulator.count, context.scope(Anonymous(key)))
        try:
            count = integer(given, 1)
        except OperandError as error:
            problem = f"n {error.problem}"
            raise InvalidOperand(accumulator.operator, problem, error.found) from None
    setting = Setting(memory, context.ordered, accumulator, count)
    return ACCUMULATORS[accumulator.operator].state(setting)


def accumulate(
    accumulator: Accumulator, state: State, row: Row, scope: Scope, times: int = 1
) -> None:
    """Add the value of a row that occurs `times` times."""
    try:
        state.add(value_of(accumulator, row, scope), times)
    except OperandError as error:
        raise InvalidOperand(accumulator.operator, error.problem, error.found) from None


def value_of(accumulator: Accumulator, row: Row, scope: Scope) -> Any:
    """Return the value for the state of an accumulator."""
    value = evaluate(accumulator.operand, scope)
    if accumulator.sort is None:
        return value
    document = row if isinstance(row, Document) else Document("", row.body)
    return accumulator.sort.keys(document, ordered=scope.ordered), value


class GroupedFields(NamedTuple):
    """The fields that a group reads: for their values, and for their numbers, combined. `extremes` are the fields of
    `$min` and `$max` in `numbers`: all their values count. The elements of the array `unwound` take the array's place.
    """

    values: tuple[Keys, ...]
    numbers: tuple[Keys, ...]
    extremes: tuple[Keys, ...] = ()
    unwound: Keys | None = None
    limits: tuple[float, ...] = ()
    """The boundaries of a `$bucket` by the only one of `values`: for a number between two of them, the lower one comes."""

    def without_extremes(self) -> GroupedFields:
        """Return the fields with the extremes read for their values."""
        numbers = tuple(each for each in self.numbers if each not in self.extremes)
        return GroupedFields((*self.values, *self.extremes), numbers, (), self.unwound)


@lru_cache(maxsize=_GROUPS)
def fields_of(stage: Group, unwound: Keys | None = None) -> GroupedFields | None:
    """Return the fields that a group reads; None: the group reads whole documents, their order, or more of the object
    around an unwound array.

    A field within a field of `values` is left out.
    """
    if any(ACCUMULATORS[each.operator].in_order for _, each in stage.fields):
        return None
    numbers = {keys for _, each in stage.fields if (keys := combined_field(each))}
    found = set()
    operands = (each.operand for _, each in stage.fields if not combined_field(each))
    for expression in (stage.key, *operands):
        for node in nodes_of(expression):
            match node:
                case Meta() | OperatorCall("$rand") | Reference("CURRENT" | "ROOT", ()):
                    return None
                case Reference("CURRENT" | "ROOT", keys):
                    found.add(keys)
    read = found | numbers
    if unwound and any(keys == unwound[: len(keys)] != unwound for keys in read):
        return None
    extremes = {
        combined_field(e) for _, e in stage.fields if e.operator in {"$min", "$max"}
    } & numbers
    outer = {keys for keys in extremes if any(keys == e[: len(keys)] != e for e in read)}
    found |= outer  # the value of such a field has the others in it
    inner = {keys for keys in read if any(keys[:n] in found for n in range(len(keys)))}
    numbers -= found | inner
    values, extremes = tuple(sorted(found - inner)), extremes & numbers
    limits = _limits(stage, values)
    return GroupedFields(values, tuple(sorted(numbers)), tuple(sorted(extremes)), unwound, limits)


def _limits(stage: Group, values: tuple[Keys, ...]) -> tuple[float, ...]:
    """Return the boundaries of a `$bucket`, if they are numbers, and nothing else reads its field."""
    match stage.key:
        case Bucket(Reference("CURRENT" | "ROOT", keys), boundaries) if values == (keys,):
            limits = tuple([each.value for each in boundaries])
            nodes = nodes_of(tuple([each.operand for _, each in stage.fields]))
            others = (each.keys for each in nodes if isinstance(each, Reference))
            is_free = not any(each[: len(keys)] == keys for each in others)
            if is_free and len(limits) <= _MAX_LIMITS and all(map(_is_limit, limits)):
                return limits
    return ()


def _is_limit(value: Any) -> bool:
    return is_number(value) and abs(value) < 10**15


@lru_cache(maxsize=_GROUPS)
def counted_field(stage: Group) -> Keys | None:
    """Return the field whose values a group only counts; None: the group reads more, or may distinguish 1 and 1.0."""
    operands = [each.operand for _, each in stage.fields]
    if fields_of(stage) is None or any(isinstance(n, Reference) for n in nodes_of((*operands,))):
        return None
    match stage.key:
        case Reference("CURRENT" | "ROOT", keys):
            return keys
    return None


def combined_field(accumulator: Accumulator) -> Keys:
    """Return the field whose integers a database combines; no keys for any other accumulator."""
    match accumulator:
        case Accumulator("$sum" | "$avg" | "$min" | "$max", Reference("CURRENT" | "ROOT", keys)):
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
