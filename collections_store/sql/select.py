"""Statements over filters and sorts, compiled once per shape.

`Statements` has the statements of a collection's table. A statement is cached under the filter's shape: filters with
different values share a statement. The caches are bounded.

The array guard: a statement in the indexed form reports in the first column whether a *matching* document has an array
where the form expects none. If true, the result is discarded, and a statement right for every document is run. Guard
and result see the same moment, because the guard is part of the statement.

Most collections have no array there. A shorter guard looks for an array in *any* document: both databases take up to
15 % less time. Once this guard was true, the statement with the guard for matching documents is run, for this shape
from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final

import sqlalchemy as sa

from ..errors import InvalidOption, InvalidSearch
from ..expressions.collation import Collation
from ..expressions.path import Path, path_prefixes
from ..options import CollectionOptions, Feed, Names
from ..options.calls import Hint
from ..query.conditions import (
    Collated,
    Condition,
    Field,
    Metadata,
    Target,
    leaves,
    uncollated,
)
from ..query.filter import EVERYTHING, Filter, conjuncts
from ..query.index import ID_INDEX, Index, limits_of
from ..query.serving import (
    BY_ID,
    bounds_only,
    equal_targets,
    every_conjunct,
    free_fields,
    implies,
    plan_order,
)
from ..query.shapes import PlainShape, condition_of
from ..query.sort import NATURAL, Sort
from ..query.text_index import NO_TEXT_INDEX
from .by_id import IdStatements
from .clauses import (
    Conditions,
    IndexedFields,
    IsExcluded,
    Order,
    Prefixes,
    Where,
    any_array,
    hidden_condition,
    partial_condition,
)
from .dialects.protocols import Binding, Database, Rows
from .elements import ArrayAt, BodyText, IsNot, Keys, TypeAt, ValueText
from .feed import FeedStatements
from .groups import GroupedColumns, in_index
from .query import SHAPES_CACHED, GuardKind, Implied, PerShape, Query
from .schema import (
    body_text,
    deleted_columns,
    document_columns,
    documents_table,
    integer,
    is_expired,
    is_live,
    string,
)
from .statement import GUARD, OBJECT, ONE, TEMPLATE, ZERO, Statement, compiled, on_table
from .vectors import VectorStatements
from .versions import VersionStatements

HINTS_CACHED: Final = 8
DIRECTIONS: Final = 3
VERSIONS_CACHED: Final = 8
VECTORS_CACHED: Final = 8
TEMPLATES_CACHED: Final = 16
MAX_TESTS: Final = 400
"""Conditions times positions at which arrays are looked for. With more, the exact form is used and Python sorts:
SQLite's expressions end at a depth of 1,000."""

_GUARD: Final[sa.ColumnElement[bool]] = sa.literal_column(GUARD, sa.Boolean)
_LEAST_SCORE: Final[sa.ColumnElement[Any]] = sa.literal_column("-1e300")
_ID_RANGE: Final = Filter.parse({"$id": {"$gte": "a", "$lt": "b"}})


class Statements:
    """The statements of a collection's table.

    `shared` compiles the statements of a filter over the table `TEMPLATE`, for all collections of a process with equal
    options. A collection with partial indexes or indexes of arrays compiles separately, because the SQL depends on more
    of the options.
    """

    table: sa.Table
    options: CollectionOptions
    database: Database
    feed: FeedStatements | None
    order: Callable[..., Order]
    """Return the columns of a sort."""
    index_group: Callable[..., Query | None]
    id_range: Callable[..., tuple[str, str, str]]
    versions: Callable[..., VersionStatements]
    """Return the statements for a schema version."""
    vectors: Callable[..., VectorStatements]
    """Return the statements of a vector index: of its physical name and its definition."""

    def __init__(
        self,
        table: sa.Table,
        options: CollectionOptions,
        database: Database,
        feed: FeedStatements | None = None,
        hint: Index | Sort | None = None,
    ) -> None:
        self._hint = hint
        """The only index of fields to use; `NATURAL`: none; `BY_ID`: none but the index of the ids."""
        self.hinted: Callable[..., Statements] = lru_cache(maxsize=HINTS_CACHED)(self._hinted)
        self.forms: tuple[bool, ...] = (False,) if hint is None else (True, False)
        """Whether a statement in natural order is in the indexed form; where the first is inexact, the next is exact."""
        self.table, self.options, self.database, self.feed = table, options, database, feed
        self.shared: Statements | None = None
        self._indexes = [each for each in options.indexes if not each.hidden or each is hint]
        has_own_sql = (
            bool(options.text_indexes)
            or any(e.arrays or e.is_partial for e in self._indexes)
            or any(e.collation is not None for e in options.indexes)  # writes may bring keys
        )
        if table.name != TEMPLATE and not has_own_sql and hint is None:
            self.shared = _template(_sql_options(options), database)
        template = None if self.shared is None else self.shared.by_id
        self.by_id: IdStatements = IdStatements(table, options, database, template)
        of_arrays = [e for e in self._indexes if e.arrays and hint in {None, e}]
        arrays = {each.paths[0]: each.physical for each in of_arrays}
        indexes = options.text, options.substrings
        compound = [each for each in of_arrays if len(each.paths) > 1]
        self._conditions = Conditions(table, database, arrays, *indexes, compound=compound)
        self.partial: list[Index] = [index for index in self._indexes if index.is_partial]
        self.reads_values: bool = bool(self.partial) or options.substrings is not None
        """Statements depend on values of filters, see `implied`."""
        self.can_refuse: bool = any(index.refuses for index in options.indexes)
        self._keyed = [
            e for e in self._indexes if e.collation is not None and e.serves(e.collation)
        ]
        names = {e.collation: e.key_name for e in self._keyed}
        self.order = lru_cache(maxsize=SHAPES_CACHED)(partial(Order, table, database, names))
        self._planned = lru_cache(maxsize=SHAPES_CACHED)(self._plan)
        self.index_group = lru_cache(maxsize=SHAPES_CACHED)(self._compile_index_group)
        self.id_range = lru_cache(maxsize=DIRECTIONS)(self._compile_id_range)
        self.versions = lru_cache(maxsize=VERSIONS_CACHED)(
            partial(VersionStatements, table, database)
        )
        self.vectors = lru_cache(maxsize=VECTORS_CACHED)(partial(VectorStatements, table, database))

    def _hinted(
        self, collection: str, hint: Hint | Index, collation: Collation | None
    ) -> Statements:
        """Return the statements that use one index of fields only; raises `InvalidOption`. Of several indexes of the same
        fields, one with the collation of the query goes first. An `Index` may be hidden, or meanwhile gone.
        """
        if isinstance(hint, Index):
            there = next((each for each in self.options.indexes if each == hint), None)
            return Statements(self.table, self.options, self.database, self.feed, there)
        found: list[Index | Sort] = [NATURAL] if hint == NATURAL else []
        best_first = sorted(
            self.options.indexes,
            key=lambda each: (each.hidden, each.collation != collation, each.is_partial),
        )
        found += [each for each in best_first if hint in {each.name, each.sort}]
        found += [BY_ID] if hint in {ID_INDEX, BY_ID} else []
        if found and isinstance(found[0], Index) and found[0].hidden:
            problem = f"{found[0].name} is hidden: use unhide_index, or another index"
            raise InvalidOption("hint", problem)
        if not found:
            known = ", ".join(each.name for each in self._indexes) or "none"
            given = repr(hint) if isinstance(hint, str) else str(hint)
            problem = f"must be an index of fields of {collection!r} ({known}), got {given}"
            raise InvalidOption("hint", problem)
        return Statements(self.table, self.options, self.database, self.feed, found[0])

    @PerShape
    def select(
        self,
        shape: Condition,
        implied: Implied,
        sort: Sort = NATURAL,
        level: int | None = None,
        *,
        indexed: bool = True,
        first: bool = False,
    ) -> Query:
        """Select rows in order, after `:skip`, `:limit` at most, or the `first` row: the position in natural order, and
        the document's columns; with a `level`, the rows of `Order.begin`.

        `indexed`: in the indexed form, see `Query.guard`; else in a form right for every document, in natural order.
        """
        order = self.order(sort if indexed else NATURAL)
        is_bounded = partial(order.is_bounded, level=level)
        where = self._where(shape, implied, indexed, is_bounded, sort.collation)
        statement = self._by_hint(self._in_order(where, order, level, first=first), indexed=indexed)
        return self._guarded(shape, where, statement, order.prefixes)

    @PerShape
    def exact(
        self, shape: Condition, implied: Implied, sort: Sort, *, first: bool = False
    ) -> Query | None:
        """Return the `select` whose rows and order are right unless the array guard is set; None: Python decides a part
        of the filter, or whether the order of the found rows is right.
        """
        paths = {
            (each.target.keys, sort.collation)
            for each in sort.fields
            if isinstance(each.target, Path)
        }
        compile = partial(self._where, shape, implied, True, collation=sort.collation)
        if paths and not paths <= compile().ordered:
            return None
        if not self._can_order(shape, implied, sort):
            return None
        compiled: Any = self.select
        query: Query = compiled.__wrapped__(shape, implied, sort, first=first)
        return None if query.residual else query

    def _compile_id_range(self, direction: int) -> tuple[str, str, str]:
        """Return the SQL and the names of both parameters of a range of ids: from the first parameter to before the
        second. Rows are selected as by `select`, in a direction of the ids; 0: in natural order.
        """
        query = self.select(_ID_RANGE, Sort.parse([("$id", direction)]) if direction else NATURAL)
        [first], [end] = (names for names, _, _ in query.bindings)
        return query.sql, first, end

    @PerShape
    def search(
        self,
        shape: Condition,
        implied: Implied,  # noqa: ARG002
        *,
        after: bool = False,
        natural: bool = False,
    ) -> Query:
        """Select rows that a query finds in the text index, best first, then by id, or in `natural` order, after `:skip`,
        `:limit` at most: the score, the position in natural order, and the document's columns. `after`: only rows past
        `:score` and `:id`.
        """
        found, c = self._scored().subquery("found"), self.table.c
        where = self._conditions.where(shape)
        rows: sa.Select[Any] = sa.select(found.c.score, c.seq, *document_columns(self.table))
        rows = rows.select_from(found.join(self.table, c.seq == found.c.seq)).where(*where.clauses)
        if after:
            score = sa.cast(sa.bindparam("score"), sa.Float)
            same = sa.and_(found.c.score == score, c.id > string("id"))
            rows = rows.where(sa.or_(found.c.score < score, same))
        ordered = rows.order_by(found.c.score.desc(), c.seq if natural else c.id)
        return self._query(ordered.limit(integer("limit")).offset(integer("skip")), where)

    @Statement
    def best(self) -> Any:
        """Select rows as `search` does without a filter, from `:skip` on, `:limit` at most, but read only the documents
        whose score is one of the highest `:skip` + `:limit`. The first column is the number of rows in the index.
        """
        found, c = self._scored(alone=True).cte("found").prefix_with("MATERIALIZED"), self.table.c
        last = sa.select(found.c.score).order_by(found.c.score.desc()).limit(ONE)
        least = sa.func.coalesce(
            last.offset(integer("skip") + integer("limit") - ONE).scalar_subquery(), _LEAST_SCORE
        )
        number = sa.select(sa.func.count()).select_from(found).scalar_subquery()
        rows = sa.select(number, found.c.score, c.seq, *document_columns(self.table))
        rows = rows.select_from(found.join(self.table, c.seq == found.c.seq))
        rows = rows.where(found.c.score >= least, is_live(self.table))
        rows = rows.order_by(found.c.score.desc(), c.id)
        return rows.limit(integer("limit")).offset(integer("skip"))

    @Statement
    def scores(self) -> Any:
        """Select the position and the score of the rows that a query finds in the text index."""
        found = self._scored().subquery("found")
        return sa.select(found.c.seq, found.c.score)

    def _scored(self, *, alone: bool = False) -> Any:
        """Return the rows that a query finds in the text index, with their scores. `alone`: all of them."""
        index = self.options.text
        assert index is not None
        options = {"scored": True, "alone": alone}
        matches = self.database.text.matches(self.table, index, "search_", **options)
        return sa.text(matches).columns(seq=sa.BigInteger, score=sa.Float)

    def search_parameters(self, query: str) -> dict[str, str]:
        """Return the parameters of `search` for a query; raises `InvalidSearch`."""
        text, index = self.database.text, self.options.text
        if index is None:
            raise InvalidSearch(query, NO_TEXT_INDEX)
        values = text.values(index, index.parsed(query))
        return {f"search_{name}": value for name, value in zip(text.names, values, strict=True)}

    @PerShape
    def select_without_arrays(
        self, shape: Condition, implied: Implied, sort: Sort, level: int | None = None
    ) -> Query:
        """Select rows as `select` does in the indexed form, except the rows of `select_with_arrays`."""
        order = self.order(sort)
        is_bounded = partial(order.is_bounded, level=level)
        where = self._where(shape, implied, True, is_bounded, sort.collation)
        arrays = any_array(self.table.c.body, where.prefixes | order.prefixes)
        rows = self._by_hint(self._in_order(where, order, level), indexed=True)
        return self._query(rows.where(IsNot(arrays)), where)

    @PerShape
    def select_with_arrays(self, shape: Condition, implied: Implied, sort: Sort) -> Query:
        """Select the rows for which the indexed form of `select` is wrong."""
        where = self._where(shape, implied, True, collation=sort.collation)
        prefixes = where.prefixes | self.order(sort).prefixes
        where, arrays = self._conditions.where(shape), any_array(self.table.c.body, prefixes)
        rows = sa.select(self.table.c.seq, *document_columns(self.table))
        return self._query(rows.where(*where.clauses, arrays), where)

    @PerShape
    def count(self, shape: Condition, implied: Implied, *, indexed: bool = True) -> Query:
        """Count rows."""
        where = self._where(shape, implied, indexed)
        if not self.database.takes_subqueries:
            counted = sa.select(sa.func.count()).select_from(self.table).where(*where.clauses)
            return self._apart(counted, where, shape, where.prefixes)
        number = self._number(where, indexed=indexed)
        if not where.prefixes:
            return self._query(sa.select(number), where)
        both = sa.select(_GUARD, number)
        return self._with_guards(both, "column", shape, where, where.prefixes)

    @PerShape
    def ids(self, shape: Condition, implied: Implied) -> Query:
        """Select the ids of rows, in order, `:limit` at most."""
        where = self._where(shape, implied, False)
        rows = sa.select(self.table.c.id).where(*where.clauses).order_by(self.table.c.id)
        return self._query(rows.limit(integer("limit")).offset(ZERO), where)

    @PerShape
    def positions(self, shape: Condition, implied: Implied) -> Query:
        """Select the positions of rows."""
        where = self._where(shape, implied, False)
        return self._query(sa.select(self.table.c.seq).where(*where.clauses), where)

    @PerShape
    def guard(self, shape: Condition, implied: Implied) -> Query | None:
        """Select the array guard of `delete`; None: the indexed form is right."""
        prefixes = self._where(shape, implied, True).prefixes
        return self._arrays(shape, prefixes) if prefixes else None

    @PerShape
    def delete(self, shape: Condition, implied: Implied, *, indexed: bool) -> Query:
        """Delete rows. If changes are recorded, delete the first `:limit` rows past the position `:seq`; returns the
        position and the `deleted_columns` of each row.
        """
        where = self._where(shape, implied, indexed)
        if self.options.feed is None:
            every = self._by_hint(sa.delete(self.table), indexed=indexed)
            return self._query(every.where(*where.clauses), where)
        # FOR UPDATE tests again the rows that others change meanwhile, before they count towards the limit
        seq = self.table.c.seq
        rows = self._by_hint(sa.select(seq), indexed=indexed).order_by(seq)
        rows = rows.where(*where.clauses, seq > integer("seq"))
        some = rows.limit(integer("limit")).offset(ZERO).with_for_update().scalar_subquery()
        deleted = sa.delete(self.table).where(seq.in_(some))
        return self._query(
            deleted.returning(seq, *deleted_columns(self.table, self.options.feed)), where
        )

    @PerShape
    def distinct(
        self, shape: Condition, implied: Implied, keys: Keys, *, indexed: bool = False
    ) -> Query:
        """Select the values of a field as JSON text, each with the position of the first row with the value, from the
        rows without an array on the path.
        """
        where = self._where(shape, implied, indexed)
        value, seq = ValueText(self.table.c.body, keys), self.table.c.seq
        arrays = any_array(self.table.c.body, path_prefixes(keys))
        rows = self._by_hint(sa.select(sa.func.min(seq), value), indexed=indexed)
        rows = rows.where(*where.clauses, IsNot(arrays), value.is_not(None))
        return self._guarded(shape, where, rows.group_by(value))

    @PerShape
    def bodies_with_array(self, shape: Condition, implied: Implied, keys: Keys) -> Query:
        """Select position and body of the first `:limit` rows past the position `:seq` with an array on the path."""
        where = self._where(shape, implied, False)
        arrays, seq = any_array(self.table.c.body, path_prefixes(keys)), self.table.c.seq
        rows = sa.select(seq, body_text(self.table)).where(*where.clauses, arrays)
        some = rows.where(seq > integer("seq")).order_by(seq).limit(integer("limit"))
        return self._query(some.offset(ZERO), where)

    @PerShape
    def has_array(self, shape: Condition, implied: Implied, keys: Keys) -> Query:  # noqa: ARG002
        """Select whether a matching row has an array on a path."""
        return self._arrays(shape, path_prefixes(keys))

    @PerShape
    def parts(
        self, shape: Condition, implied: Implied, keys: Keys, *, indexed: bool = False
    ) -> Query:
        """Select values at the top of the first `:limit` bodies past the position `:seq`: the position, the whole body if the
        body is no object, and each value as JSON text, null for a missing value.
        """
        where, seq, body = self._where(shape, implied, indexed), self.table.c.seq, self.table.c.body
        whole = sa.case((TypeAt(body, ()) != OBJECT, body_text(self.table)))
        values = (ValueText(body, (key,)) for key in keys)
        rows = self._by_hint(sa.select(seq, whole, *values), indexed=indexed).order_by(seq)
        rows = rows.where(*where.clauses, seq > integer("seq"))
        return self._guarded(shape, where, rows.limit(integer("limit")).offset(ZERO))

    @PerShape
    def group(
        self,
        shape: Condition,
        implied: Implied,
        paths: tuple[Keys, ...],
        *,
        numbers: tuple[Keys, ...] = (),
        extremes: tuple[Keys, ...] = (),
        unwound: Keys | None = None,
        limits: tuple[float, ...] = (),
    ) -> Query:
        """Select the distinct combinations of the values at `paths`, `:limit` at most, in no order. A row has the
        position of the combination's first row, the number of rows, and the values as JSON text, null for a missing
        value. A value of more than `MAX_VALUE` characters is truncated to `MAX_VALUE` + 1. Without paths the result is
        a single combination, even of no rows.

        The values at `numbers` are columns, too: each `NumberText`, or `OtherText` for those of `extremes`, is part of the
        combination. Then come the sum and the number of the `Addend`s, and the least and the greatest for `extremes`. `unwound`: each element of the array there is a row, its position counts the element
        too, and further columns are not zero if a position or a value is wrong. `limits`: the only value at `paths` is a `WithinLimits`.
        """
        columns = GroupedColumns(paths, numbers, extremes, unwound, limits)
        where = self._where(shape, implied, True)
        by_hint = partial(self._by_hint, indexed=True)
        statement = columns.select(self.table, self.database, list(where.clauses), by_hint)
        return self._guarded(shape, where, statement, columns.prefixes())

    def _compile_index_group(self, keys: Keys) -> Query | None:
        """Select the values of a field as `group` does, without reading rows; None: no index begins with the field, or the
        database reads rows for an index. The index also has expired documents: these set the guard.
        """
        usable = (e for e in self._usable(()) if not e.arrays and e.collation is None)
        indexes = (each.sort.fields[0].target for each in usable)
        if not self.database.counts_in_index or Path(*keys) not in indexes:
            return None
        some: sa.Select[Any] = sa.select(ONE).where(is_expired(self.table)).correlate(None)
        guard: sa.ColumnElement[bool] = sa.exists(some)
        if prefixes := path_prefixes(keys)[:-1]:
            guard = sa.or_(guard, self._array_guard(prefixes, is_live(self.table)))
        rows = in_index(self.table, self.database, keys, partial(self._by_hint, indexed=True))
        both = sa.select(guard, sa.null(), sa.null()).union_all(rows)
        return Query(self._sql(both), self._conditions.where(EVERYTHING).bindings, guard="row")

    statistics: Statement = Statement(
        lambda s: sa.select(
            s._number(s._conditions.where(EVERYTHING)),
            sa.literal_column(s.database.placement.size(s.table), sa.BigInteger),
        )
    )
    """Select the number of documents and the bytes on disk."""

    def can_order(self, filter: Filter, sort: Sort) -> bool:
        """Return whether SQL sorts, without too many tests. Under a collation, only an index sorts: it has the keys."""
        implied = self.implied(filter, sort) if self.reads_values else ()
        return self._can_order(filter.condition, implied, sort)

    def _can_order(self, condition: Condition, implied: Implied, sort: Sort) -> bool:
        order = self.order(sort)
        tests = len(order.prefixes) * (1 + len(conjuncts(condition)))
        if not order.can_render or tests > MAX_TESTS:
            return False
        return sort.collation is None or self._has_index(condition, implied, sort)

    def planned(self, filter: Filter, *, first: bool = False) -> tuple[Sort, Query | None]:
        """Return the order of the index that serves a filter, or without such an index natural order, and the query
        that is `exact` in this order. `first`: a query with this limit, if it is sure that the index finds the row.

        For a limit that is a parameter, PostgreSQL assumes a tenth of the rows, and plans each execution (measured: 3.5
        times the server's time). With a condition on another field, the index could read many rows before the first.
        """
        shape = filter.plain or filter.shape
        return self._planned(shape, self.implied(filter) if self.reads_values else (), first)

    def _plan(
        self, given: Condition | PlainShape, implied: Implied, first: bool
    ) -> tuple[Sort, Query | None]:
        shape = condition_of(given)
        match self._hint:
            case Index(sort=sort, arrays=False, collation=collation) as hint if hint.serves(
                collation
            ):
                free = free_fields(sort.fields, set(equal_targets(shape, collation)))
                order = Sort(free).collated(collation)
            case Sort() as order:
                pass
            case None:
                usable = (e for e in self._usable(implied) if not e.arrays and e.collation is None)
                order = plan_order(shape, (each.sort for each in usable)) or NATURAL
            case _:
                order = NATURAL
        compiled: Any = self.exact
        is_sure = first and bool(order.fields) and bounds_only(shape, order.fields[0].target)
        return order, compiled.__wrapped__(shape, implied, order, first=is_sure)

    def has_index(self, filter: Filter, sort: Sort) -> bool:
        """Return whether an index returns matching documents in the order of a sort, by id and natural order included."""
        return self._has_index(filter.condition, self.implied(filter, sort), sort)

    def _has_index(self, condition: Condition, implied: Implied, sort: Sort) -> bool:
        if sort.collation is None and all(field.target == "id" for field in sort.fields):
            return True
        equal = set(equal_targets(condition, sort.collation))
        wanted = tuple(each for each in sort.fields if each.target not in equal)
        usable = (e for e in self._usable(implied) if not e.arrays and e.serves(sort.collation))
        return any(free_fields(each.sort.fields, equal)[: len(wanted)] == wanted for each in usable)

    def implied(self, filter: Filter, sort: Any = NATURAL, *_: object) -> Implied:
        """Return the partial indexes whose condition a filter implies and whose first field the filter, the sort or the
        hint uses, and the numbers of the conditions that the index of substrings serves.
        """
        index = self.options.substrings
        served = () if index is None else index.served(filter.condition)
        conditions = list(every_conjunct(filter.condition))
        plain = [uncollated(each) for each in conditions]
        used: set[Target | str] = {each.path for each in plain if isinstance(each, Field)}
        used |= {each.field for each in plain if isinstance(each, Metadata)}
        used |= {each.target for each in sort.fields[:1]} if isinstance(sort, Sort) else set()
        names = (
            index.name
            for index in self.partial
            if (index is self._hint or index.sort.fields[0].target in used)
            and all(_is_implied(limit, conditions) for limit in limits_of(index))
        )
        return (*names, *served)

    def _usable(self, implied: Implied) -> list[Index]:
        """Return the indexes that hold all matches of a filter."""
        usable = [e for e in self._indexes if not e.is_partial or e.name in implied]
        if self._hint is None:
            return usable
        if isinstance(self._hint, Index) and self._hint not in usable:
            where = self._hint.where
            condition = "that a field of the index exists" if where is None else where
            problem = f"{self._hint.name} is a partial index: the filter must have its condition"
            raise InvalidOption("hint", f"{problem}, {condition}")
        return [each for each in usable if each == self._hint]

    def explaining(self, query: Query) -> str:
        """Return the statement that explains a query. The text changes with the indexes: drivers cache compiled statements,
        and SQLite never compiles a cached explanation again.
        """
        return f"{self.database.compiler.explain}/* {self.options.counter} */ {query.sql}"

    def on_table(self, query: Query | None) -> Query | None:
        """Return a query of the template over this table."""
        if query is None:
            return None
        sql = on_table(query.sql, self.table, self.database)
        arrays, precise = self.on_table(query.arrays), self.on_table(query.precise)
        return replace(query, sql=sql, arrays=arrays, precise=precise)

    def _where(
        self,
        shape: Condition,
        implied: Implied,
        indexed: bool,
        is_excluded: IsExcluded = lambda _: False,
        collation: Collation | None = None,
    ) -> Where:
        """Return the clauses of a shape, with the conditions of implied partial indexes: both planners use a partial
        index only if a query repeats the index's condition. `collation`: that of the order.
        """
        usable = self._usable(implied)
        by = self._served(shape, usable, collation)
        where = self._conditions.where(shape, by, indexed=indexed, is_excluded=is_excluded)
        if len(where.prefixes) * len(conjuncts(shape)) > MAX_TESTS:
            where = self._conditions.where(shape)
        limiting = [e for e in usable if e.is_partial and (indexed or not e.unique)]
        limits = [partial_condition(self.table, each) for each in limiting]
        if indexed and isinstance(self._hint, Index) and self._hint.hidden:
            limits.append(hidden_condition(self.table))
        prefixes: set[Keys] = set()
        if any(each.unique for each in limiting):  # these do not hold documents with arrays there
            limited = [part.path for e in limiting for limit in limits_of(e) for part in limit]
            prefixes = {prefix for path in limited for prefix in path_prefixes(path.keys)}
        bindings: tuple[Binding, ...] = ()
        served = [each for each in implied if isinstance(each, int)]
        if served:
            clause, bindings = self._conditions.substrings(shape, served)
            limits.append(clause)
        return replace(
            where,
            tests=(*where.tests, *limits),
            bindings=where.bindings + bindings,
            prefixes=where.prefixes | prefixes,
        )

    def _served(
        self, shape: Condition, usable: list[Index], collation: Collation | None
    ) -> IndexedFields:
        """Return the fields that the usable indexes serve. An index with the collation of an order may yield the order,
        hence goes before an index without a collation.
        """
        plain = [each for each in usable if each.serves(None)]
        arrays = {path for each in plain if each.arrays for path in each.paths}
        paths = {path for each in plain if not each.arrays for path in each.paths}
        if self.database.indexes_arrays:  # an index of arrays is better than another of the field
            paths -= arrays
        fields = frozenset(path.keys for path in paths)
        every = [each for each in self._keyed if each in usable]
        of_filter = _collation_of(shape)
        ordered = _by_keys(e for e in every if e.collation == (collation or of_filter))
        collated = _by_keys(e for e in every if e.collation == of_filter)
        if collation is not None:
            fields -= ordered.keys()
        return IndexedFields(fields, collated, _by_keys(every) | ordered)

    def _in_order(
        self, where: Where, order: Order, level: int | None, *, first: bool = False
    ) -> sa.Select[Any]:
        limit, skip = (ONE, ZERO) if first else (integer("limit"), integer("skip"))
        rows: sa.Select[Any] = sa.select(self.table.c.seq, *document_columns(self.table))
        return (
            rows.where(*where.clauses, *order.begin(level))
            .order_by(*order.directed(level, where.constant))
            .limit(limit)
            .offset(skip)
        )

    def _guarded(
        self,
        shape: Condition,
        where: Where,
        statement: sa.Select[Any],
        prefixes: Prefixes = frozenset(),
    ) -> Query:
        """Add the array guard for `prefixes` and the prefixes of the clauses.

        An outer join of the guard's single row keeps the order of the rows on the right. SQLite copies the rows of such
        a join; a UNION ALL in SQLite keeps the order too.
        """
        if not self.database.takes_subqueries:
            return self._apart(statement, where, shape, where.prefixes | prefixes)
        prefixes = where.prefixes | prefixes
        if not prefixes:
            return self._query(statement, where)
        if self.database.orders_union_all:
            found = statement.subquery("found")
            first: Any = sa.select(_GUARD, *(sa.null() for _ in list(found.c)[1:]))
            both = first.union_all(sa.select(*found.c))
            return self._with_guards(both, "row", shape, where, prefixes)
        # PostgreSQL would render the bodies of all sorted rows as text, also of those past the limit
        columns = (
            self.table.c.body if isinstance(e, BodyText) else e for e in statement.selected_columns
        )
        found = statement.with_only_columns(*columns).subquery("found")
        row = sa.select(_GUARD.label("guard")).subquery("guarded")
        shown = (body_text(found) if each.name == "body" else each for each in found.c)
        both = sa.select(row.c.guard, *shown).select_from(row.outerjoin(found, sa.true()))
        return self._with_guards(both, "column", shape, where, prefixes)

    def _with_guards(
        self,
        statement: sa.Executable,
        guard: GuardKind,
        shape: Condition,
        where: Where,
        prefixes: Prefixes,
    ) -> Query:
        """Return a statement with the guard that looks for an array in any document, and as `precise` in matching
        documents.
        """
        exact, sql = self._conditions.where(shape), self._sql(statement)
        in_any = self._sql(self._array_guard(prefixes))
        in_matching = self._sql(self._array_guard(prefixes, *exact.clauses))
        bindings = exact.bindings + where.bindings
        precise = Query(sql.replace(GUARD, in_matching), bindings, where.residual, guard)
        sql = sql.replace(GUARD, in_any)
        return Query(sql, where.bindings, where.residual, guard, precise=precise)

    def _by_hint(self, rows: Rows, table: sa.FromClause | None = None, *, indexed: bool) -> Rows:
        """Return the statement that reads the table, or an alias of it, by the index of the hint; an index serves the
        indexed form only.
        """
        table, read_by = self.table if table is None else table, self.database.compiler.read_by
        match self._hint:
            case Sort(fields=()):
                return read_by(rows, table, None)
            case Sort() if indexed:
                return read_by(rows, table, "$id")
            case Index(arrays=False, physical=physical) if indexed:
                return read_by(rows, table, physical)
        return rows

    def _number(self, where: Where, *, indexed: bool = True) -> sa.ColumnElement[int]:
        """Return the number of documents: all rows less the expired rows. SQLite counts both in indexes, without
        reading rows.
        """
        rows = self._by_hint(sa.select(sa.func.count()).select_from(self.table), indexed=indexed)
        if not self.database.takes_subqueries or (
            where.tests and not self.database.counts_in_index
        ):
            return rows.where(*where.clauses).scalar_subquery()
        expired: sa.Select[Any] = sa.select(self.table.c.seq).where(is_expired(self.table))
        expired = expired.correlate(None)
        zero: sa.ColumnElement[int] = ZERO
        not_live = rows.where(*where.tests, self.table.c.seq.in_(expired)).scalar_subquery()
        some_expired = sa.case((sa.exists(expired), not_live), else_=zero)
        return rows.where(*where.tests).scalar_subquery() - some_expired

    def _apart(
        self, statement: sa.Select[Any], where: Where, shape: Condition, prefixes: Prefixes
    ) -> Query:
        """Return a statement with a separate array guard for the prefixes. In a subquery, all servers would execute
        the guard and receive the result before the rest (measured: 12 ms, not 3).
        """
        query = self._query(statement, where)
        if not prefixes:
            return query
        return replace(query, guard="apart", arrays=self._arrays(shape, prefixes))

    def _arrays(self, shape: Condition, prefixes: Iterable[Keys]) -> Query:
        """Select whether a matching row has an array at any of the positions; no row means false."""
        where = self._conditions.where(shape)
        if not self.database.takes_subqueries:
            some = sa.select(ONE).select_from(self.table)
            some = some.where(any_array(self.table.c.body, prefixes), *where.clauses)
            return self._query(some.limit(ONE).offset(ZERO), where)
        guard = self._array_guard(prefixes, *where.clauses)
        return Query(self._sql(sa.select(guard)), where.bindings)

    def _array_guard(
        self, prefixes: Iterable[Keys], *clauses: sa.ColumnElement[bool]
    ) -> sa.ColumnElement[bool]:
        """Return the test for a row with an array at any of the positions, of all rows or of those that match `clauses`.

        Each position is tested separately, and first for any row: the small partial index at the position is read, and
        if the index is empty, nothing else.
        """
        one: sa.Select[Any] = sa.select(ONE).select_from(self.table)
        body = self.table.c.body
        arrays = [one.where(ArrayAt(body, each)).correlate(None) for each in sorted(prefixes)]
        if not clauses:
            return sa.or_(*map(sa.exists, arrays))
        return sa.or_(
            *(sa.and_(sa.exists(some), sa.exists(some.where(*clauses))) for some in arrays)
        )

    def _query(self, statement: sa.Executable, where: Where) -> Query:
        return Query(self._sql(statement), where.bindings, where.residual)

    def _sql(self, statement: sa.Executable | sa.ColumnElement[bool]) -> str:
        return compiled(statement, self.database)


def _collation_of(shape: Condition) -> Collation | None:
    """Return the collation of the query of a shape that compares strings."""
    every = (each.collation for each in leaves(shape) if isinstance(each, Collated))
    return next(every, None)


def _by_keys(indexes: Iterable[Index]) -> dict[Keys, Index]:
    return {path.keys: each for each in indexes for path in each.paths}


def _is_implied(limit: Iterable[Field], conditions: Iterable[Condition]) -> bool:
    return any(implies(each, part) for part in limit for each in conditions)


def _sql_options(options: CollectionOptions) -> CollectionOptions:
    """Return the options that affect compilation: equal indexes may differ in `hidden`."""
    feed = options.feed and Feed(key="", bodies=options.feed.bodies)
    return CollectionOptions(
        cursor_key="",
        indexes=tuple(each for each in options.indexes if not each.hidden),
        sliding=options.sliding,
        feed=feed,
        jsonb=options.jsonb,
    )


@lru_cache(maxsize=TEMPLATES_CACHED)
def _template(options: CollectionOptions, database: Database) -> Statements:
    table = documents_table(TEMPLATE, Names(), database, jsonb=options.jsonb)
    return Statements(table, options, database)
