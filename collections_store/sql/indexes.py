"""The statements that make and drop the indexes of a collection.

An index of ours is several of the database's: one over the fields' `SortPart`s, which serves equality,
ranges and orders, and for each place on the way to a field a small one of the objects that have an
array there: the columns do not see into arrays, and that none exists is found out at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from ..options import Names
from ..query.conditions import Equals, Field, OneOf, Target, Value, scalars_of
from ..query.index import Index, partial_conditions
from ..query.path import path_prefixes
from .by_id import compiled
from .dialects.protocols import Database
from .elements import ArrayAt, PartialTest, SortPart, TypeAt
from .order import metadatum_column
from .schema import documents_table


class IndexStatements:
    """The statements of the indexes of one table."""

    def __init__(self, table: str, names: Names, database: Database) -> None:
        self._name, self._names, self._database = table, names, database

    def physical(self, number: int) -> str:
        """Return a name that no table and no other table's index has, however they are renamed."""
        return self._names.index(self._name, number)

    def create(self, index: Index) -> Sequence[str]:
        """Create an index under its physical name."""
        if index.arrays:
            [path] = index.paths
            return self._database.create_array_index(self._table(), path.keys, index.physical)
        return [self._over_fields(index)]

    def create_way(self, way: tuple[str, ...], physical: str) -> str:
        """Create the index of the objects that have an array at a place."""
        table = self._table()
        only = self._only(ArrayAt(table.c.body, way))
        return self._created(sa.Index(physical, TypeAt(table.c.body, way), **only))

    def create_over_body(self, number: int) -> Sequence[str]:
        """Create the index over the whole body, where the database has one."""
        return self._database.create_body_index(self._table(), self.physical(number))

    def create_over_expiry(self) -> str:
        """Create the index of the objects that expire."""
        expires = self._table().c.expires_at
        name = self._names.expiry_index(self._name)
        return self._created(sa.Index(name, expires, **self._only(expires.is_not(None))))

    def drop(self, index: Index) -> Sequence[str]:
        """Drop an index."""
        if index.arrays:
            return self._database.drop_array_index(self._table(), index.physical)
        return [self.drop_way(index.physical)]

    def drop_way(self, physical: str) -> str:
        """Drop what `create_way` made."""
        index = sa.Index(physical, self._table().c.seq)
        return compiled(sa.schema.DropIndex(index, if_exists=True), self._database)

    def _over_fields(self, index: Index) -> str:
        table = self._table()
        columns: list[sa.ColumnElement[Any]] = []
        for field in index.sort.fields:
            parts = self._parts(table, field.target, unique=index.unique)
            columns.extend(part.desc() if field.descending else part for part in parts)
        if not index.unique and self._database.INDEXES_NAME_SEQ:
            columns.append(table.c.seq)
        only = {} if index.where is None else self._only(partial(table, index))
        return self._created(sa.Index(index.physical, *columns, unique=index.unique, **only))

    def _parts(
        self, table: sa.Table, target: Target, *, unique: bool
    ) -> list[sa.ColumnElement[Any]]:
        """Return what a field is ordered by."""
        if isinstance(target, str):
            return [metadatum_column(table, target)]
        names = self._database.index_parts(unique=unique)
        return [SortPart(table.c.body, target.keys, name) for name in names]

    def _only(self, condition: sa.ColumnElement[bool]) -> dict[str, Any]:
        return {f"{self._database.NAME}_where": condition}

    def _created(self, index: sa.Index) -> str:
        return compiled(sa.schema.CreateIndex(index), self._database)

    def _table(self) -> sa.Table:
        return documents_table(self._name, self._names, self._database)


def partial(table: sa.Table, index: Index) -> sa.ColumnElement[bool]:
    """Return the condition of a partial index. An object with an array on the way to one of its
    fields is in it, whatever the array holds; in a unique one it never is.
    """
    parts = partial_conditions(index.where)
    return sa.and_(*(_limit(table, field, unique=index.unique) for field in parts))


def _limit(table: sa.Table, field: Field, *, unique: bool) -> sa.ColumnElement[bool]:
    body, ways = table.c.body, path_prefixes(field.path.keys)
    plain = sa.or_(*(PartialTest(body, each) for each in _one_by_one(field)))
    if unique:
        return plain
    return sa.or_(plain, *(ArrayAt(body, way, apart=True) for way in ways))


def _one_by_one(field: Field) -> list[Field]:
    """Take a list apart: the condition of an index has no subquery."""
    match field.test:
        case OneOf(lists):
            values = [Value.of(each) for given in lists for each in scalars_of(given)]
            return [Field(field.path, Equals(value)) for value in values]
    return [field]
