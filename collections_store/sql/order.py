"""An order in SQL: columns that are never null, so that a place in the order is a row of values.

A field of the body is spelled as a few columns (`Database.SORT_PARTS`): its rank, and its value as
the database compares it. They tell scalars apart exactly; `Database.is_rough` knows which values
they do not. What an array holds they do not see: `Order.ways` are the places where one must be looked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa

from ..query.conditions import Compare, Condition, Field
from ..query.path import Path, path_prefixes
from ..query.sort import NULL, Key, Sort, SortField
from ..query.values import value_class
from .dialects.protocols import Database
from .elements import ArrayAt, SortPart, SortValue

Part: TypeAlias = tuple[tuple[str, ...], str]
"""The keys of a field, and one of its `SORT_PARTS`."""


@value_class(eq=True)
class Column:
    """A column of an order, and the parameter that holds a place in it; `part`: of which field of the
    body it is which `SortPart`.
    """

    expression: sa.ColumnElement[Any]
    place: sa.ColumnElement[Any]
    descending: bool
    part: Part | None = None

    @property
    def directed(self) -> sa.ColumnElement[Any]:
        """The column as ORDER BY has it."""
        return self.expression.desc() if self.descending else self.expression.asc()

    @property
    def beyond(self) -> sa.ColumnElement[bool]:
        """It comes after the place."""
        if self.descending:
            return self.expression < self.place
        return self.expression > self.place


class Order:
    """The columns of a sort; the natural order comes last."""

    def __init__(self, table: sa.Table, database: Database, sort: Sort) -> None:
        self._table, self._database, self.sort = table, database, sort
        seq = sa.bindparam("seq", type_=sa.BigInteger)
        self.columns = [*self._columns(), Column(table.c.seq, seq, False)]
        targets = [field.target for field in sort.fields]
        self.can_say = all(isinstance(t, str) or database.can_order(t.keys) for t in targets)
        """Can SQL say it?"""
        self.ways = self._ways()

    def _ways(self) -> frozenset[tuple[str, ...]]:
        """Return the places at which an array would make the columns wrong."""
        targets = (field.target for field in self.sort.fields)
        paths = (target for target in targets if isinstance(target, Path))
        return frozenset(way for path in paths for way in path_prefixes(path.keys))

    def begin(self, level: int | None) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of the rows that are equal to a place in `level` columns and come
        after it by the next; None: all rows.
        """
        if level is None:
            return []
        equal = [column.expression == column.place for column in self.columns[:level]]
        return [*equal, self.columns[level].beyond]

    def directed(self, level: int | None, pinned: Collection[Part]) -> list[sa.ColumnElement[Any]]:
        """Return in what order these rows come, who are all alike in the parts that are `pinned`:
        SQLite sorts by what an index has already, if it is told of what does not vary.
        """
        return [each.directed for each in self.columns[level or 0 :] if each.part not in pinned]

    def is_bounded(self, condition: Condition, level: int | None) -> bool:
        """Does a level bound the rows by the field of a condition, and as closely? An index has one
        bound on each side, and SQLite takes any.
        """
        if level is None or not isinstance(condition, Field):
            return False
        parts = [number for number, each in enumerate(self.columns) if _is_of(each, condition)]
        if not parts or level < parts[0]:
            return False
        if level > parts[-1]:
            return True
        lower = {"$lt", "$lte"} if self.columns[level].descending else {"$gt", "$gte"}
        return isinstance(condition.test, Compare) and condition.test.operator in lower

    def levels(self, keys: Sequence[Key]) -> list[int]:
        """Return the levels that together give all rows after a place, in the order they come."""
        varies = [part for key, f in self._pairs(keys) for part in self._varies(f, key)]
        return [level for level, can in reversed([*enumerate([*varies, True])]) if can]

    def values(self, keys: Sequence[Key], seq: int) -> dict[str, Any]:
        """Return the parameters for a place."""
        values = [part for key, field in self._pairs(keys) for part in self._values(field, key)]
        return {"seq": seq, **{f"s{number}": value for number, value in enumerate(values)}}

    def _pairs(self, keys: Sequence[Key]) -> Iterator[tuple[Key, SortField]]:
        return zip(keys, self.sort.fields, strict=True)

    def _varies(self, field: SortField, key: Key) -> Sequence[bool]:
        if isinstance(field.target, str):
            return (True,)
        return self._database.sort_varies(key)

    def _values(self, field: SortField, key: Key) -> Sequence[Any]:
        if isinstance(field.target, str):
            return (_NEVER if key[0] == NULL else key[1],)
        return self._database.sort_values(key)

    def _columns(self) -> Iterator[Column]:
        number = 0
        for field in self.sort.fields:
            for expression, part in self._expressions(field):
                bound = sa.bindparam(f"s{number}", type_=sa.types.NULLTYPE)
                place = bound if part is None else SortValue(bound, part)
                known = None if part is None else (field.target.keys, part)  # type: ignore[union-attr]
                yield Column(expression, place, field.descending, known)
                number += 1

    def _expressions(self, field: SortField) -> Iterator[tuple[sa.ColumnElement[Any], str | None]]:
        target = field.target
        if isinstance(target, str):
            yield metadatum_column(self._table, target), None
        else:
            for part in self._database.SORT_PARTS:
                yield SortPart(self._table.c.body, target.keys, part), part


def metadatum_column(table: sa.Table, target: str) -> sa.ColumnElement[Any]:
    """Return what orders by a piece of metadata, which is never null."""
    if target == "expires_at":
        return sa.func.coalesce(table.c.expires_at, sa.literal_column(str(_NEVER)))
    return sa.type_coerce(table.c[target], sa.types.NULLTYPE)


def _is_of(column: Column, field: Field) -> bool:
    return column.part is not None and column.part[0] == field.path.keys


def array_on(body: Any, ways: Iterable[tuple[str, ...]]) -> sa.ColumnElement[bool]:
    """An array is at one of the places."""
    return sa.or_(*(ArrayAt(body, way) for way in sorted(ways)))


_NEVER = -(2**62)
"""Null comes first, and no object expires then."""
