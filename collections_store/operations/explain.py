"""The operation `Explain`: how a `find` would run."""

from __future__ import annotations

import re

from ..errors import CollectionNotFound
from ..expressions.classes import value_class
from ..options import CollectionOptions
from ..query.conditions import And
from ..query.explanation import (
    Explanation,
    Ordered,
    Plan,
    creation,
    hidden_collated_index,
    indexable_keys,
    missing_index,
)
from ..query.filter import Filter, conjuncts
from ..query.index import Index
from ..query.shapes import is_never
from ..query.sort import NATURAL, Sort
from ..sql.clauses import can_index
from ..sql.query import Query
from ..sql.select import Statements
from .find import Count
from .operation import Operation
from .read import NO_LIMIT
from .session import Session


@value_class
class Explain(Operation[Explanation]):
    """Explain how `Find` would read."""

    collection: str
    filter: Filter
    sort: Sort | None
    skip: int = 0
    limit: int | None = None
    atomic = True  # in a transaction that has read a table of its coordinator, Citus explains none

    def __call__(self, session: Session) -> Explanation:
        statements = session.collection(self.collection)
        sort = statements.planned(self.filter)[0] if self.sort is None else self.sort
        query = statements.select(self.filter, sort)
        arrays = self.has_arrays(session, query)
        in_batches = self.limit is not None and statements.has_index(self.filter, sort)
        by_sql = statements.can_order(self.filter, sort) and not arrays
        by_sql = by_sql and (in_batches or not query.residual)
        if not by_sql:
            query = self.in_batches(session)
        return self.explained(session, query, sort, arrays=arrays, by_sql=by_sql)

    def absent(self) -> Explanation:
        raise CollectionNotFound(self.collection)

    def has_arrays(self, session: Session, query: Query) -> bool:
        """Return whether the guard of a statement is set."""
        if not query.guard:
            return False
        if query.arrays is not None:
            return session.finds(query.arrays, self.filter)
        rows = session.rows(query.sql, query.parameters(self.filter, {"skip": 0, "limit": 0}))
        if rows[0][0] and query.precise is not None:
            return self.has_arrays(session, query.precise)
        return bool(rows[0][0])

    def in_batches(self, session: Session) -> Query:
        """Return the statement that reads in natural order: the statement of `ReadBatch`."""
        statements = session.collection(self.collection)
        forms = (statements.select(self.filter, NATURAL, indexed=e) for e in statements.forms)
        return next(each for each in forms if not self.has_arrays(session, each))

    def explained(
        self,
        session: Session,
        query: Query,
        sort: Sort,
        *,
        arrays: bool,
        by_sql: bool,
    ) -> Explanation:
        """Explain a statement."""
        statements = session.collection(self.collection)
        database, limit = session.database, NO_LIMIT if self.limit is None else self.limit
        parameters = query.parameters(self.filter, {"skip": self.skip, "limit": limit})
        rows = session.rows(statements.explaining(query), parameters)
        plan: Plan = database.compiler.plan(rows, statements.table)
        walked = set(plan.walked) - {physical for _, physical in statements.options.array_guards}
        stops = by_sql and self.limit is not None and self.filter == Filter() and not plan.sorts
        ends = stops or is_never(
            self.filter.condition
        )  # SQLite's plan has a scan that it does not begin
        scans = (plan.scans or bool(walked)) and not ends
        missing = None
        if arrays or (plan.sorts and sort.fields) or (plan.scans and scans):
            missing = self._missing_index(session, statements, sort, arrays=arrays)
        return Explanation(
            sql=query.sql,
            parameters=parameters,
            in_sql=_without(self.filter, query.residual),
            in_matcher=query.rest(self.filter) if query.residual else None,
            indexes=_names(plan, statements.options),
            scans=scans,
            order=_order(plan, sort, by_sql=by_sql),
            arrays=arrays,
            plan=plan.lines,
            advice=None if missing is None else creation(missing),
            missing_index=missing,
            documents=self._documents(session, plan) if scans else self._read(plan, stops=stops),
        )

    def _read(self, plan: Plan, *, stops: bool) -> int | None:
        """Return about the number of rows that the plan reads; `stops`: no more than the limit needs."""
        if not stops or self.limit is None:
            return plan.rows
        most = self.skip + self.limit
        return most if plan.rows is None else min(most, plan.rows)

    def _documents(self, session: Session, plan: Plan) -> int:
        """Return about the number of documents in the collection: estimated by the database, or else counted."""
        everything = Filter()
        with session.unhinted():
            if plan.rows is None:
                return Count(self.collection, everything)(session)
            statements = session.collection(self.collection)
        query = statements.select(everything, NATURAL)
        parameters = query.parameters(everything, {"skip": 0, "limit": NO_LIMIT})
        rows = session.rows(statements.explaining(query), parameters)
        return session.database.compiler.plan(rows, statements.table).rows or 0

    def _missing_index(
        self, session: Session, statements: Statements, sort: Sort, *, arrays: bool
    ) -> Index | None:
        """Return an index that would help: an array index for fields with arrays, if the database has such indexes."""
        existing = statements.options.indexes
        if hidden := hidden_collated_index(self.filter, sort, existing):
            return hidden
        keys = next(indexable_keys(self.filter), None)
        if keys is not None and session.database.ordering.can_order(keys):
            arrays = arrays or session.finds(statements.has_array(self.filter, keys), self.filter)
        if arrays and not session.database.indexes_arrays:
            return None
        index = missing_index(self.filter, sort, existing, arrays=arrays)
        return index if index is not None and can_index(session.database, index) else None


def _order(plan: Plan, sort: Sort, *, by_sql: bool) -> Ordered:
    if not sort.fields:
        return "natural"
    if not by_sql:
        return "python"
    return "database" if plan.sorts else "index"


def _without(filter: Filter, residual: tuple[int, ...]) -> Filter:
    conditions = enumerate(conjuncts(filter.condition))
    return Filter(And(tuple(each for number, each in conditions if number not in residual)))


def _names(plan: Plan, options: CollectionOptions) -> tuple[str, ...]:
    """Return the names that users know, without the indexes of array guards."""
    guards = {physical for _, physical in options.array_guards}
    named = {index.physical: index.name for index in options.every_index}
    names = (re.sub("_(words|rest|keys)$", "", each) for each in plan.indexes if each not in guards)
    known = (named.get(each, each) for each in names)
    return tuple(dict.fromkeys(known))
