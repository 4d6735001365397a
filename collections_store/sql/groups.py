"""The SELECTs of `$group`: distinct values with their counts, also of the elements of an array.

Two subqueries with a limit keep a database from flattening them: GROUP BY would sort the bodies that its expressions read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from ..expressions.classes import value_class
from ..expressions.path import path_prefixes
from .clauses import any_array
from .dialects.protocols import Database
from .elements import (
    Addend,
    Clause,
    Keys,
    NumberText,
    OtherText,
    SortPart,
    TypeAt,
    Unwound,
    ValueText,
    WithinLimits,
)
from .schema import integer
from .statement import ONE, ZERO

ByHint: TypeAlias = Callable[..., sa.Select[Any]]
"""Returns a SELECT that reads a table by the index of a hint, if there is one: `Statements._by_hint`."""
MAX_VALUE: Final = 1000
"""Characters of JSON that `GroupedColumns.select` returns of a value."""
_TRUNCATED: Final[sa.ColumnElement[Any]] = sa.literal_column(str(MAX_VALUE + 1))
_EVERY_ROW: Final[sa.ColumnElement[Any]] = sa.literal_column(str(2**62))
_ELEMENTS: Final[sa.ColumnElement[Any]] = sa.literal_column("20")
"""Bits of a position for the number of an element."""
_ROWS: Final[sa.ColumnElement[Any]] = sa.literal_column("43")
"""Bits of a position for the row."""


@value_class(eq=True)
class GroupedColumns:
    """The values that a group reads: at `paths`, and the numbers at `numbers`; at those of `extremes` also the other values.
    `unwound`: each element of the array there is a row, and paths through it lead into the element.
    """

    paths: tuple[Keys, ...]
    numbers: tuple[Keys, ...] = ()
    extremes: tuple[Keys, ...] = ()
    unwound: Keys | None = None
    limits: tuple[float, ...] = ()

    def select(
        self, table: sa.Table, database: Database, clauses: list[Clause], by_hint: ByHint
    ) -> sa.Select[Any]:
        """Return the SELECT of the distinct combinations, as of `Statements.group`."""
        rows, rest = self._computed(table, database, clauses, by_hint)
        position, values, types, inexact = self._split(rows)
        if self.limits:
            values[0] = WithinLimits(types.pop(), values[0], self.limits)
        numbers = list(zip(types, values[len(self.paths) :], strict=True))
        is_extreme = [each in self.extremes for each in self.numbers]
        values[len(self.paths) :] = [
            OtherText(*each) if extreme else NumberText(*each)
            for each, extreme in zip(numbers, is_extreme, strict=True)
        ]
        shown: list[Any] = [sa.func.substr(e, ONE, _TRUNCATED) for e in values[: len(self.paths)]]
        shown += values[len(self.paths) :]
        added: list[Any] = [
            f(Addend(*each)) for each in numbers for f in (sa.func.sum, sa.func.count)
        ]
        for each in compress(numbers, is_extreme):
            added += [sa.func.min(Addend(*each)), sa.func.max(Addend(*each))]
        least, checks = sa.func.min(position), (sa.func.max(each) for each in inexact)
        groups = sa.select(least, sa.func.count(position), *shown, *added, *checks).where(*rest)
        return groups.group_by(*values).limit(integer("limit")).offset(ZERO)

    def prefixes(self) -> frozenset[Keys]:
        """Return the prefixes at which an array makes the values wrong."""
        outside = (keys for keys in (*self.paths, *self.numbers) if not self._is_inside(keys))
        return frozenset(prefix for keys in outside for prefix in path_prefixes(keys)[:-1])

    @property
    def _typed(self) -> tuple[Keys, ...]:
        """The paths whose types are columns."""
        return (*self.numbers, *self.paths) if self.limits else self.numbers

    def _computed(
        self, table: sa.Table, database: Database, clauses: list[Clause], by_hint: ByHint
    ) -> tuple[list[Any], list[Clause]]:
        """Return position, texts, types and the checks of each row, and the clauses that are left."""
        body = table.c.body
        columns = [table.c.seq, *self._values(body, inside=False)]
        if self.unwound is not None:
            columns.append(Unwound(body, self.unwound))
        elif not database.takes_subqueries:
            return columns, clauses
        computed = by_hint(sa.select(*_labelled(columns)))
        found = _limited(computed.where(*clauses), "computed")
        if self.unwound is None:
            return list(found.c), []
        seq, *outside, array = found.c
        table_of, element, number = database.compiler.elements_of(array)
        inside, beyond = iter(self._values(element, inside=True)), iter(outside)
        keys = (*self.paths, *self.numbers, *self._typed)
        values = [next(inside if self._is_inside(each) else beyond) for each in keys]
        position = seq.op("<<")(_ELEMENTS).op("|")(number)
        too_far = seq.op(">>")(_ROWS).op("|")(number.op(">>")(_ELEMENTS))
        checks = [too_far, *(sa.case((each, ONE), else_=ZERO) for each in self._arrays(element))]
        rows = sa.select(*_labelled([position, *values, *checks]))
        rows = rows.select_from(found.join(table_of, sa.true()))
        return list(_limited(rows, "elements").c), []

    def _values(self, body: Clause, *, inside: bool) -> Iterator[Clause]:
        """Yield the texts of the paths and the numbers, and then the types of the numbers, inside of the element or outside."""
        start = len(self.unwound or ()) if inside else 0
        for kind, paths in (
            (ValueText, self.paths),
            (ValueText, self.numbers),
            (TypeAt, self._typed),
        ):
            yield from (kind(body, e[start:]) for e in paths if self._is_inside(e) == inside)

    def _arrays(self, element: Clause) -> Iterator[Clause]:
        """Yield a test for an array within an element, where the values are then wrong."""
        below = [
            keys[len(self.unwound or ()) :]
            for keys in (*self.paths, *self.numbers)
            if self._is_inside(keys)
        ]
        prefixes = {keys[:n] for keys in below for n in range(len(keys))}
        if prefixes:
            yield any_array(element, prefixes)

    def _is_inside(self, keys: Keys) -> bool:
        return self.unwound is not None and keys[: len(self.unwound)] == self.unwound

    def _split(self, columns: list[Any]) -> tuple[Any, list[Any], list[Any], list[Any]]:
        """Return the parts of the columns of `_computed`."""
        texts = 1 + len(self.paths) + len(self.numbers)
        types = texts + len(self._typed)
        return columns[0], columns[1:texts], columns[texts:types], columns[types:]


def in_index(table: sa.Table, database: Database, keys: Keys, by_hint: ByHint) -> sa.Select[Any]:
    """Return the SELECT of a field's values, as of `Statements.group`, from an index of the field. Equal values are one row, with
    the text of the first. To find each first row in the index is faster than the least position of all rows.
    """

    def parts(of: Any) -> list[Any]:
        return [SortPart(of.c.body, keys, part) for part in database.ordering.parts]

    values = [each.label(f"v{number}") for number, each in enumerate(parts(table))]
    groups = by_hint(sa.select(sa.func.count().label("number"), *values).select_from(table))
    number, *equal = _few(groups.group_by(*parts(table)), "groups").c
    first, row = table.alias("first"), table.alias("row")
    same = (part == value for part, value in zip(parts(first), equal, strict=True))
    position = by_hint(sa.select(first.c.seq), first).where(*same)
    position = position.order_by(first.c.seq).limit(ONE).offset(ZERO)
    found = _few(sa.select(position.scalar_subquery().label("c0"), number.label("c1")), "found")
    text = sa.func.substr(ValueText(row.c.body, keys), ONE, _TRUNCATED)
    value = sa.select(text).where(row.c.seq == found.c.c0).scalar_subquery()
    return sa.select(found.c.c0, found.c.c1, value.label("c2"))


def _few(rows: sa.Select[Any], name: str) -> sa.Subquery:
    return rows.limit(integer("limit")).offset(ZERO).subquery(name)


def _labelled(columns: list[Any]) -> Iterator[Any]:
    return (each.label(f"c{number}") for number, each in enumerate(columns))


def _limited(rows: sa.Select[Any], name: str) -> sa.Subquery:
    return rows.limit(_EVERY_ROW).offset(ZERO).subquery(name)
