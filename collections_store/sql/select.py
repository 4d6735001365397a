"""Filters, orders and documents to statements, compiled once.

`Statements` holds what is asked of one collection's table. A filter's statement is kept under the
filter's shape, so that filters that differ in values only share one; the cache is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from functools import partial as partial_of
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from ..options import CollectionOptions
from ..query.conditions import Condition, Field, Metadata, Target
from ..query.filter import EVERYTHING, Filter, conjuncts
from ..query.index import Index, every_conjunct, partial_conditions
from ..query.path import path_prefixes
from ..query.sort import Sort
from .by_id import ZERO, IdStatements, compiled
from .change_records import FeedStatements
from .conditions import Bind, Conditions, Query, Ways, Where
from .dialects.protocols import Database
from .elements import ArrayAt, IsNot, TableSize, ValueText
from .indexes import partial
from .order import Order, array_on
from .schema import body_text, deleted_columns, document_columns, is_expired, number

NATURAL: Final = Sort()
SHAPES_KEPT: Final = 256
MAX_VALUE: Final = 1000
"""Characters of JSON of a value that `Statements.group` tells."""
MAX_TESTS: Final = 400
"""Conditions times places where arrays must be looked for; with more, indexes and orders are not said
in SQL, whose expressions end at a depth of 1,000 on SQLite.
"""


Paths: TypeAlias = tuple[tuple[str, ...], ...]
Without: TypeAlias = Callable[[Condition], bool]
Implied: TypeAlias = tuple[str, ...]
"""The names of the partial indexes whose condition a filter implies."""


def _nothing(condition: Condition) -> bool:  # noqa: ARG001
    return False


class Statements:
    """The statements of one collection's table."""

    def __init__(
        self,
        table: sa.Table,
        options: CollectionOptions,
        database: Database,
        feed: FeedStatements | None = None,
    ) -> None:
        self.table, self.options, self.database = table, options, database
        self.by_id, self.feed = IdStatements(table, options, database), feed
        arrays = {each.paths[0].keys: each.physical for each in options.indexes if each.arrays}
        self._conditions = Conditions(table, database, arrays)
        self._partial = [index for index in options.indexes if index.where is not None]
        cached = lru_cache(maxsize=SHAPES_KEPT)
        self.order = cached(self._order)
        self._select_cached, self._count_cached = cached(self._select), cached(self._count)
        self._delete_cached, self._distinct_cached = cached(self._delete), cached(self._distinct)
        self._apart_cached, self._wrong_cached = cached(self._select_apart), cached(self._wrong)
        self._group_cached, self._ids_cached = cached(self._group), cached(self._ids)
        self._doubt_cached, self._with_array_cached = cached(self._doubt), cached(self._with_array)

    def select(
        self, filter: Filter, sort: Sort = NATURAL, level: int | None = None, *, plain: bool = True
    ) -> Query:
        """Give rows in order, after `:skip`, `:limit` at most: place in natural order, and the
        document's columns; with a `level` those that `Order.begin` means.

        If `plain`, in words that indexes serve, see `Query.doubtful`; else, whatever the objects
        hold: then the order is the natural one.
        """
        return self._select_cached(*self._shape(filter, sort), sort, level, plain)

    def can_order(self, filter: Filter, sort: Sort) -> bool:
        """Can SQL say an order, in not too many words?"""
        order = self.order(sort)
        return (
            order.can_say and len(order.ways) * (1 + len(conjuncts(filter.condition))) <= MAX_TESTS
        )

    def has_index(self, sort: Sort) -> bool:
        """Has an index, be it that of the ids or of the places, the order of a sort?"""
        if all(field.target == "id" for field in sort.fields):
            return True
        whole = (
            index for index in self.options.indexes if index.where is None and not index.arrays
        )
        return any(index.sort.fields[: len(sort.fields)] == sort.fields for index in whole)

    def select_apart(self, filter: Filter, sort: Sort, level: int | None = None) -> Query:
        """Give rows as `select` does in plain words, but for those that would make it wrong."""
        return self._apart_cached(*self._shape(filter, sort), sort, level)

    def select_wrong(self, filter: Filter, sort: Sort) -> Query:
        """Give the rows that make `select` wrong in plain words."""
        return self._wrong_cached(*self._shape(filter, sort), sort)

    def count(self, filter: Filter, *, plain: bool = True) -> Query:
        """Give the number of rows and, if `doubtful`, first whether it is wrong."""
        return self._count_cached(*self._shape(filter), plain)

    def ids(self, filter: Filter) -> Query:
        """Give the ids of rows, in order, `:limit` at most."""
        return self._ids_cached(*self._shape(filter))

    def doubt(self, filter: Filter) -> Query | None:
        """Return whether `delete` would be wrong in plain words; None: it is not."""
        return self._doubt_cached(*self._shape(filter))

    def delete(self, filter: Filter, *, plain: bool) -> Query:
        """Delete rows. Where changes are recorded, the first `:limit` of them past the place `:seq`; gives
        the place of each and its `deleted_columns`.
        """
        return self._delete_cached(*self._shape(filter), plain)

    def distinct(self, filter: Filter, keys: tuple[str, ...]) -> Query:
        """Give the values of a field as JSON text, each with the place of the first row that has it,
        of the rows without an array on the way.
        """
        return self._distinct_cached(*self._shape(filter), keys)

    def with_array(self, filter: Filter, keys: tuple[str, ...]) -> Query:
        """Give place and body of the first `:limit` rows past the place `:seq` with an array on the way to a
        field.
        """
        return self._with_array_cached(*self._shape(filter), keys)

    def group(self, filter: Filter, paths: Paths) -> Query:
        """Give the different combinations of the values at some paths as JSON text, null where there
        is none, in the order in which they come up, after `:skip`, `:limit` at most: each behind the place where it
        does, and how many rows have it. A value of more than `MAX_VALUE` characters is cut behind one
        more. Without paths there is one combination, be it for no rows.
        """
        return self._group_cached(*self._shape(filter), paths)

    def arrays_at(self, filter: Filter, keys: tuple[str, ...]) -> Query:
        """Return whether a matching row has an array on the way to a field."""
        shape = filter.shape
        some = self._array(shape, frozenset(path_prefixes(keys)))
        assert some is not None
        return Query(self._sql(sa.select(some)), self._conditions.exact(shape).bind)

    @cached_property
    def statistics(self) -> str:
        """Give the number of objects and the bytes on the disk."""
        everything = self._conditions.exact(EVERYTHING)
        return self._sql(sa.select(self._number(everything), TableSize(self.table)))

    def _shape(self, filter: Filter, sort: Sort = NATURAL) -> tuple[Condition, Implied]:
        implied = [index.name for index in self._partial if _is_of_use(index, filter, sort)]
        return filter.shape, tuple(implied)

    def _order(self, sort: Sort) -> Order:
        """Give the columns of a sort."""
        return Order(self.table, self.database, sort)

    def _where(
        self, shape: Condition, implied: Implied, plain: bool, without: Without = _nothing
    ) -> Where:
        usable = [
            each for each in self.options.indexes if each.where is None or each.name in implied
        ]
        opened = {path for each in usable if each.arrays for path in each.paths}
        opened = opened if self.database.INDEXES_ARRAYS else set()
        fields = {path for each in usable if not each.arrays for path in each.paths}
        indexed = frozenset(path.keys for path in fields - opened)
        where = self._said(shape, indexed, plain, without)
        limiting = [e for e in usable if e.where is not None and (plain or not e.unique)]
        limits = [partial(self.table, each) for each in limiting]
        paths = [part.path for each in limiting for part in partial_conditions(each.where)]
        ways = {way for path in paths for way in path_prefixes(path.keys)}
        blind = ways if any(each.unique for each in limiting) else set()
        return replace(where, asked=(*where.asked, *limits), ways=where.ways | blind)

    def _said(self, shape: Condition, indexed: Ways, plain: bool, without: Without) -> Where:
        """Say a shape in words that indexes serve, unless that takes too many."""
        where = None
        if indexed and plain:
            where = self._conditions.plain(shape, indexed, without)
        elif indexed:
            where = self._conditions.opened(shape, indexed)
        if where is None or len(where.ways) * len(conjuncts(shape)) > MAX_TESTS:
            return self._conditions.exact(shape)
        return where

    def _select(
        self, shape: Condition, implied: Implied, sort: Sort, level: int | None, plain: bool
    ) -> Query:
        order = self.order(sort if plain else NATURAL)
        where = self._where(shape, implied, plain, partial_of(order.is_bounded, level=level))
        statement = self._in_order(where, order, level)
        return self._with_doubt(shape, where, statement, order.ways)

    def _select_apart(
        self, shape: Condition, implied: Implied, sort: Sort, level: int | None
    ) -> Query:
        order = self.order(sort)
        where = self._where(shape, implied, True, partial_of(order.is_bounded, level=level))
        some = array_on(self.table.c.body, where.ways | order.ways)
        statement = self._in_order(where, order, level).where(IsNot(some))
        return Query(self._sql(statement), where.bind, where.residual)

    def _wrong(self, shape: Condition, implied: Implied, sort: Sort) -> Query:
        ways = self._where(shape, implied, plain=True).ways | self.order(sort).ways
        where, some = self._conditions.exact(shape), array_on(self.table.c.body, ways)
        statement = sa.select(self.table.c.seq, *document_columns(self.table)).where(
            *where.clauses, some
        )
        return Query(self._sql(statement), where.bind, where.residual)

    def _in_order(self, where: Where, order: Order, level: int | None) -> sa.Select[Any]:
        chosen: sa.Select[Any] = sa.select(self.table.c.seq, *document_columns(self.table))
        return (
            chosen.where(*where.clauses, *order.begin(level))
            .order_by(*order.directed(level, where.pinned))
            .limit(sa.bindparam("limit", type_=sa.BigInteger))
            .offset(sa.bindparam("skip", type_=sa.BigInteger))
        )

    def _with_doubt(
        self, shape: Condition, where: Where, statement: sa.Select[Any], ways: Ways
    ) -> Query:
        """Have a statement tell whether arrays at its own `ways`, or at those of the clauses, make it
        wrong. Both see one moment. The one row on the left leaves the rows on the right in their order; but SQLite
        copies what it joins so, and is told to unite them.
        """
        doubt = self._array(shape, where.ways | ways)
        if doubt is None:
            return Query(self._sql(statement), where.bind, where.residual)
        bind, found = self._also(shape, where), statement.subquery("found")
        if self.database.UNITES_IN_ORDER:
            told: Any = sa.select(doubt, *(sa.null() for _ in list(found.c)[1:]))
            whole = told.union_all(sa.select(*found.c))
            return Query(self._sql(whole), bind, where.residual, doubtful="before")
        known = sa.select(doubt.label("doubt")).subquery("known")
        either = sa.select(known.c.doubt, *found.c).select_from(known.outerjoin(found, sa.true()))
        return Query(self._sql(either), bind, where.residual, doubtful="beside")

    def _group(self, shape: Condition, implied: Implied, paths: Paths) -> Query:
        where = self._where(shape, implied, plain=True)
        values = [ValueText(self.table.c.body, keys) for keys in paths]
        first, times = sa.func.min(self.table.c.seq), sa.func.count(self.table.c.seq)
        begin: Any = sa.literal_column("1")
        length: Any = sa.literal_column(str(MAX_VALUE + 1))
        told = [sa.func.substr(value, begin, length) for value in values]
        chosen: sa.Select[*tuple[Any, ...]] = sa.select(first, times, *told)
        statement = (
            chosen.where(*where.clauses)
            .group_by(*values)
            .order_by(first)
            .limit(sa.bindparam("limit", type_=sa.BigInteger))
            .offset(sa.bindparam("skip", type_=sa.BigInteger))
        )
        ways = frozenset(way for keys in paths for way in path_prefixes(keys)[:-1])
        return self._with_doubt(shape, where, statement, ways)

    def _count(self, shape: Condition, implied: Implied, plain: bool) -> Query:
        where = self._where(shape, implied, plain)
        count, doubt = self._number(where), self._array(shape, where.ways)
        if doubt is None:
            return Query(self._sql(sa.select(count)), where.bind, where.residual)
        both = sa.select(doubt, count)
        return Query(self._sql(both), self._also(shape, where), where.residual, doubtful="beside")

    def _number(self, where: Where) -> sa.ColumnElement[int]:
        """How many objects there are: all rows, which databases count in an index without reading them,
        but for those that have expired, which the index of expiry times knows.
        """
        rows = sa.select(sa.func.count()).select_from(self.table)
        if where.asked and not self.database.COUNTS_IN_INDEX:
            return rows.where(*where.clauses).scalar_subquery()
        expired: sa.Select[Any] = sa.select(self.table.c.seq).where(is_expired(self.table))
        expired = expired.correlate(None)
        nothing: sa.ColumnElement[int] = sa.literal_column("0")
        gone = rows.where(*where.asked, self.table.c.seq.in_(expired)).scalar_subquery()
        some_gone = sa.case((sa.exists(expired), gone), else_=nothing)
        return rows.where(*where.asked).scalar_subquery() - some_gone

    def _ids(self, shape: Condition, implied: Implied) -> Query:
        where = self._where(shape, implied, plain=False)
        statement = sa.select(self.table.c.id).where(*where.clauses).order_by(self.table.c.id)
        limited = statement.limit(number("limit")).offset(ZERO)
        return Query(self._sql(limited), where.bind, where.residual)

    def _doubt(self, shape: Condition, implied: Implied) -> Query | None:
        where = self._where(shape, implied, plain=True)
        doubt = self._array(shape, where.ways)
        if doubt is None:
            return None
        return Query(self._sql(sa.select(doubt)), self._also(shape, where))

    def _delete(self, shape: Condition, implied: Implied, plain: bool) -> Query:
        where = self._where(shape, implied, plain)
        statement: Any = sa.delete(self.table).where(*where.clauses)
        if self.feed is not None:
            statement = self._delete_some(where)
        return Query(self._sql(statement), where.bind, where.residual)

    def _delete_some(self, where: Where) -> Any:
        """Rows that others change meanwhile are looked at again, before they count as some."""
        seq = self.table.c.seq
        chosen = sa.select(seq).where(*where.clauses, seq > number("seq")).order_by(seq)
        limited = chosen.limit(number("limit")).offset(ZERO).with_for_update()
        deleted = sa.delete(self.table).where(seq.in_(limited.scalar_subquery()))
        return deleted.returning(seq, *deleted_columns(self.table, self.options))

    def _array(self, shape: Condition, ways: Ways) -> sa.ColumnElement[bool] | None:
        """Some matching row has an array at one of the places; each is looked for by itself, and first
        in any row, so that its small index serves.
        """
        if not ways:
            return None
        exact = self._conditions.exact(shape)
        return sa.or_(*(self._array_at(way, exact.clauses) for way in sorted(ways)))

    def _array_at(
        self, way: tuple[str, ...], clauses: Sequence[sa.ColumnElement[bool]]
    ) -> sa.ColumnElement[bool]:
        one: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(self.table)
        some = one.where(ArrayAt(self.table.c.body, way)).correlate(None)
        return sa.and_(sa.exists(some), sa.exists(some.where(*clauses)))

    def _also(self, shape: Condition, where: Where) -> Bind:
        exact = self._conditions.exact(shape)
        return lambda condition: {**exact.bind(condition), **where.bind(condition)}

    def _distinct(self, shape: Condition, implied: Implied, keys: tuple[str, ...]) -> Query:
        where = self._where(shape, implied, plain=False)
        value = ValueText(self.table.c.body, keys)
        some = array_on(self.table.c.body, path_prefixes(keys))
        statement = (
            sa.select(sa.func.min(self.table.c.seq), value)
            .where(*where.clauses, IsNot(some), value.is_not(None))
            .group_by(value)
        )
        return Query(self._sql(statement), where.bind, where.residual)

    def _with_array(self, shape: Condition, implied: Implied, keys: tuple[str, ...]) -> Query:
        where = self._where(shape, implied, plain=False)
        some = array_on(self.table.c.body, path_prefixes(keys))
        seq = self.table.c.seq
        chosen = sa.select(seq, body_text(self.table)).where(*where.clauses, some)
        limited = chosen.where(seq > number("seq")).order_by(seq).limit(number("limit"))
        return Query(self._sql(limited.offset(ZERO)), where.bind, where.residual)

    def _sql(self, statement: sa.Executable) -> str:
        return compiled(statement, self.database)


def _is_of_use(index: Index, filter: Filter, sort: Sort) -> bool:
    """Return whether a filter asks for all that the condition of a partial index asks, and a question
    begins with the first field of the index.
    """
    asked = list(every_conjunct(filter.condition))
    if not all(each in asked for each in partial_conditions(index.where)):
        return False
    first: set[Target] = {each.path for each in asked if isinstance(each, Field)}
    first |= {each.field for each in asked if isinstance(each, Metadata)}
    first |= {each.target for each in sort.fields[:1]}
    return index.sort.fields[0].target in first
