"""An order in SQL: columns that are never null, so that a position in the order is a row of values.

A field of the body is rendered as a few columns (`Ordering.parts`): its rank, and its value as the database compares it.
They order scalars exactly; `Ordering.is_unorderable` knows the values that they do not. An array they do not see into:
`Order.prefixes` are the positions at which the array guard must look for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa

from ..query.conditions import Compare, Condition, Field
from ..query.path import Path, path_prefixes
from ..query.sort import NULL, Key, Sort, SortField
from ..query.values import value_class
from .dialects.protocols import Keys, Ordering
from .elements import ArrayAt, SortPart, SortValue

Part: TypeAlias = tuple[Keys, str]
"""The keys of a field, and one of its `Ordering.parts`."""
_NEVER = -(2**62)
"""Null sorts first, and no document expires then."""


@value_class(eq=True)
class Column:
    """A column of an order, and the parameter that holds a position in it; `part` is None for metadata."""

    expression: sa.ColumnElement[Any]
    position: sa.ColumnElement[Any]
    descending: bool
    part: Part | None = None

    @property
    def directed(self) -> sa.ColumnElement[Any]:
        """The column in ORDER BY."""
        return self.expression.desc() if self.descending else self.expression.asc()

    @property
    def beyond(self) -> sa.ColumnElement[bool]:
        """The column comes after the position."""
        if self.descending:
            return self.expression < self.position
        return self.expression > self.position


class Order:
    """The columns of a sort; the natural order comes last."""

    def __init__(self, table: sa.Table, ordering: Ordering, sort: Sort) -> None:
        self._table, self._ordering, self.sort = table, ordering, sort
        seq = sa.bindparam("seq", type_=sa.BigInteger)
        self.columns = [*self._columns(), Column(table.c.seq, seq, False)]
        targets = (field.target for field in sort.fields)
        paths = [target.keys for target in targets if isinstance(target, Path)]
        self.can_render = all(map(ordering.can_order, paths))
        """SQL can sort so."""
        self.prefixes = frozenset(prefix for keys in paths for prefix in path_prefixes(keys))

    def begin(self, level: int | None) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of the rows that equal a position in `level` columns and come after it in the next
        column; None: all rows.
        """
        if level is None:
            return []
        equal = [column.expression == column.position for column in self.columns[:level]]
        return [*equal, self.columns[level].beyond]

    def directed(
        self, level: int | None, constant: Collection[Part]
    ) -> list[sa.ColumnElement[Any]]:
        """Return ORDER BY for these rows, without the parts that are `constant`: SQLite sorts what an index has in this
        order already, unless columns that do not vary are left out.
        """
        return [each.directed for each in self.columns[level or 0 :] if each.part not in constant]

    def is_bounded(self, condition: Condition, level: int | None) -> bool:
        """Return whether a level bounds the rows by the field of a condition as closely as the condition: a search in an
        index has one bound on each side, and SQLite takes any.
        """
        if level is None or not isinstance(condition, Field):
            return False
        keys = condition.path.keys
        parts = [n for n, each in enumerate(self.columns) if each.part and each.part[0] == keys]
        if not parts or level < parts[0]:
            return False
        if level > parts[-1]:
            return True
        lower = {"$lt", "$lte"} if self.columns[level].descending else {"$gt", "$gte"}
        return isinstance(condition.test, Compare) and condition.test.operator in lower

    def levels(self, keys: Sequence[Key]) -> list[int]:
        """Return the levels that together give all rows after a position, in order."""
        varies = [part for key, field in self._pairs(keys) for part in self._varies(field, key)]
        return [level for level, can in reversed([*enumerate([*varies, True])]) if can]

    def values(self, keys: Sequence[Key], seq: int) -> dict[str, Any]:
        """Return the parameters of a position."""
        values = [part for key, field in self._pairs(keys) for part in self._values(field, key)]
        return {"seq": seq, **{f"s{number}": value for number, value in enumerate(values)}}

    def _pairs(self, keys: Sequence[Key]) -> Iterator[tuple[Key, SortField]]:
        return zip(keys, self.sort.fields, strict=True)

    def _varies(self, field: SortField, key: Key) -> Sequence[bool]:
        return (True,) if isinstance(field.target, str) else self._ordering.varies(key)

    def _values(self, field: SortField, key: Key) -> Sequence[Any]:
        if isinstance(field.target, str):
            return (_NEVER if key[0] == NULL else key[1],)
        return self._ordering.values(key)

    def _columns(self) -> Iterator[Column]:
        number = 0
        for field in self.sort.fields:
            for expression, part in self._expressions(field):
                bound = sa.bindparam(f"s{number}", type_=sa.types.NULLTYPE)
                position = bound if part is None else SortValue(bound, part[1])
                yield Column(expression, position, field.descending, part)
                number += 1

    def _expressions(self, field: SortField) -> Iterator[tuple[sa.ColumnElement[Any], Part | None]]:
        target = field.target
        if isinstance(target, str):
            yield metadata_column(self._table, target), None
        else:
            for part in self._ordering.parts:
                yield SortPart(self._table.c.body, target.keys, part), (target.keys, part)


def metadata_column(table: sa.Table, target: str) -> sa.ColumnElement[Any]:
    """Return the column that orders by a piece of metadata, never null."""
    if target == "expires_at":
        return sa.func.coalesce(table.c.expires_at, sa.literal_column(str(_NEVER)))
    return sa.type_coerce(table.c[target], sa.types.NULLTYPE)


def any_array(body: Any, prefixes: Iterable[Keys]) -> sa.ColumnElement[bool]:
    """Return the test for an array at one of the positions."""
    return sa.or_(*(ArrayAt(body, each) for each in sorted(prefixes)))
