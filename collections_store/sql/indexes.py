"""Statements that create and drop the indexes of a collection.

An index is several of the database's: one over the fields' `SortPart`s, which serves equality, ranges and orders, and
for each prefix of a field's path a small one of the documents that have an array there. The columns do not see into
arrays; the array guard reads the small ones, and costs next to nothing where they are empty.
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
from .dialects.protocols import Database, Keys
from .elements import ArrayAt, PartialTest, SortPart, TypeAt
from .order import metadata_column
from .schema import documents_table


class IndexStatements:
    """The statements of the indexes of one table."""

    def __init__(self, table: str, names: Names, database: Database) -> None:
        self._name, self._names, self._database = table, names, database
        self._table = documents_table(table, names, database)

    def physical(self, number: int) -> str:
        """Return a name that no table and no other table's index has, however they are renamed."""
        return self._names.index(self._name, number)

    def create(self, index: Index) -> Sequence[str]:
        """Create an index under its physical name."""
        if index.arrays:
            [path] = index.paths
            return self._database.ddl.create_array_index(self._table, path.keys, index.physical)
        return [self._over_fields(index)]

    def create_prefix_index(self, prefix: Keys, physical: str) -> str:
        """Create the index of the documents that have an array at a position."""
        body = self._table.c.body
        only = self._only(ArrayAt(body, prefix))
        return self._sql(sa.schema.CreateIndex(sa.Index(physical, TypeAt(body, prefix), **only)))

    def create_over_body(self, number: int) -> Sequence[str]:
        """Create the index over whole bodies, where the database has one."""
        return self._database.ddl.create_body_index(self._table, self.physical(number))

    def create_over_expiry(self) -> str:
        """Create the index of the documents that expire."""
        expires = self._table.c.expires_at
        name = self._names.expiry_index(self._name)
        index = sa.Index(name, expires, **self._only(expires.is_not(None)))
        return self._sql(sa.schema.CreateIndex(index))

    def drop(self, index: Index) -> Sequence[str]:
        """Drop an index."""
        if index.arrays:
            return self._database.ddl.drop_array_index(index.physical)
        return [self.drop_index(index.physical)]

    def drop_index(self, physical: str) -> str:
        """Drop an index of the database's."""
        index = sa.Index(physical, self._table.c.seq)
        return self._sql(sa.schema.DropIndex(index, if_exists=True))

    def _over_fields(self, index: Index) -> str:
        columns: list[sa.ColumnElement[Any]] = []
        for field in index.sort.fields:
            parts = self._parts(field.target, unique=index.unique)
            columns.extend(part.desc() if field.descending else part for part in parts)
        if not index.unique and not self._database.index_ends_in_seq:
            columns.append(self._table.c.seq)
        only = {} if index.where is None else self._only(partial_condition(self._table, index))
        created = sa.Index(index.physical, *columns, unique=index.unique, **only)
        return self._sql(sa.schema.CreateIndex(created))

    def _parts(self, target: Target, *, unique: bool) -> list[sa.ColumnElement[Any]]:
        """Return the columns that a field is ordered by."""
        if isinstance(target, str):
            return [metadata_column(self._table, target)]
        names = self._database.ordering.index_parts(unique=unique)
        return [SortPart(self._table.c.body, target.keys, name) for name in names]

    def _only(self, condition: sa.ColumnElement[bool]) -> dict[str, Any]:
        return {f"{self._database.name}_where": condition}

    def _sql(self, statement: Any) -> str:
        return compiled(statement, self._database)


def partial_condition(table: sa.Table, index: Index) -> sa.ColumnElement[bool]:
    """Return the condition of a partial index. It holds documents with an array on the path of one of its fields,
    whatever the array holds; a unique one never holds them.
    """
    fields = partial_conditions(index.where)
    return sa.and_(*(_limit(table, field, unique=index.unique) for field in fields))


def _limit(table: sa.Table, field: Field, *, unique: bool) -> sa.ColumnElement[bool]:
    body = table.c.body
    test = sa.or_(*(PartialTest(body, each) for each in _one_by_one(field)))
    if unique:
        return test
    prefixes = path_prefixes(field.path.keys)
    return sa.or_(test, *(ArrayAt(body, prefix, null_safe=True) for prefix in prefixes))


def _one_by_one(field: Field) -> list[Field]:
    """Split a list: the condition of an index has no subquery."""
    match field.test:
        case OneOf(lists):
            values = [Value.of(each) for given in lists for each in scalars_of(given)]
            return [Field(field.path, Equals(value)) for value in values]
    return [field]
