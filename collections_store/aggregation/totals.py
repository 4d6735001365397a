"""`$group` of rows that a database has combined: `sql.select.Statements.group` names their columns.

Each row can be read like a document (`CombinedRows.counted`). If the key is one field, or a constant, and every accumulator
reads a constant or a combined field, the columns are read as they are, in 0.6 of the time (`_readers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from ..codec import decode
from ..expressions.fields import Keys
from ..expressions.nodes import Constant, Reference
from .accumulators import Integers, State
from .group import (
    NO_TOTALS,
    CountedRow,
    GroupedFields,
    Groups,
    combined_field,
    grouped,
    row_of,
)
from .rows import Context, Row, placed
from .stages import Accumulator, Group

_Reader: TypeAlias = Callable[[State, Any], None]
"""Adds what an accumulator reads of a row."""
_STAGES: Final = 256
_SCALARS: Final = (str, int, float, type(None))


class CombinedRows(NamedTuple):
    """Rows in the order of their first documents, and the fields whose values and numbers are the columns."""

    rows: list[Any]
    fields: GroupedFields

    def grouped(self, stage: Group, context: Context, place: str) -> Iterator[Row]:
        """Yield a body for each group after reading all rows."""
        readers = None if place in context.spilled else _readers(stage, self.fields)
        if readers is None:
            yield from grouped(stage, self.counted(), context, place)
            return
        groups, by_text = Groups(stage, context, place), dict[Any, list[State]]()
        constant = stage.key.value if isinstance(stage.key, Constant) else None
        with placed(place):
            for row in self.rows:
                text = row[2] if self.fields.values else None
                states = by_text.get(text)
                if states is None:
                    key = constant if text is None else decode(text)
                    states = by_text[text] = groups.states(key)
                for read, state in zip(readers, states, strict=True):
                    read(state, row)
            yield from groups.bodies()

    def counted(self) -> Iterator[CountedRow]:
        """Yield the rows as documents with a number of occurrences."""
        values, numbers = self.fields[:2]
        paths, totals = values + numbers, NO_TOTALS
        columns = [(keys, _columns(self.fields, keys)) for keys in numbers]
        for row in self.rows:
            if numbers:
                found = ((keys, _integers(row, total, ends)) for keys, (_, total, ends) in columns)
                totals = {keys: each for keys, each in found if each}
            yield row_of(paths, row[2 : 2 + len(paths)]), row[1], totals


@lru_cache(maxsize=_STAGES)
def _readers(stage: Group, fields: GroupedFields) -> tuple[_Reader, ...] | None:
    """Return the reader of each accumulator; None: a row must be read like a document."""
    match stage.key:
        case Constant(value=value) if isinstance(value, _SCALARS) and not fields.values:
            pass
        case Reference("CURRENT" | "ROOT", keys) if fields.values == (keys,):
            pass
        case _:
            return None
    readers = [_reader(each, fields) for _, each in stage.fields]
    return None if None in readers else tuple(each for each in readers if each)


def _reader(accumulator: Accumulator, fields: GroupedFields) -> _Reader | None:
    match accumulator:
        case Accumulator("$sum", Constant(value=value)) if isinstance(value, _SCALARS):
            return lambda state, row: state.add(value, row[1])
    keys = combined_field(accumulator)
    if keys not in fields.numbers:
        return None
    text, total, ends = _columns(fields, keys)

    def read(state: State, row: Any) -> None:
        if row[text] is not None:
            state.add(decode(row[text]), row[1])
        integers = _integers(row, total, ends)
        if integers is not None:
            state.add_integers(integers)

    return read


def _columns(fields: GroupedFields, keys: Keys) -> tuple[int, int, int | None]:
    """Return the columns of a number's text, of its sum and number, and of its extremes."""
    values, numbers, extremes = fields[:3]
    position, end = numbers.index(keys), 2 + len(values)
    ends = end + 3 * len(numbers) + 2 * extremes.index(keys) if keys in extremes else None
    return end + position, end + len(numbers) + 2 * position, ends


def _integers(row: Any, total: int, ends: int | None) -> Integers | None:
    """Return the combined integers of a row, or None without any."""
    if not row[total + 1]:
        return None
    extremes = () if ends is None else row[ends : ends + 2]
    return Integers(int(row[total]), row[total + 1], *extremes)
