"""How a query is executed, by the database's own plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CollectionNotFound
from ..options import CollectionOptions
from ..query.conditions import And
from ..query.explain import Explanation, Ordered, Plan, advise, indexable_keys
from ..query.filter import Filter, conjuncts
from ..query.sort import NATURAL, Sort
from ..query.values import value_class
from ..sql.conditions import Query
from ..sql.select import Statements
from .operation import Operation
from .read import NO_LIMIT

if TYPE_CHECKING:
    from .connection import Connection


@value_class
class Explain(Operation[Explanation]):
    """Explain how `Find` would read."""

    collection: str
    filter: Filter
    sort: Sort
    skip: int = 0
    limit: int | None = None

    def __call__(self, connection: Connection) -> Explanation:
        statements = connection.collection(self.collection)
        query = statements.select(self.filter, self.sort)
        arrays = bool(query.guard) and self._has_arrays(connection, query)
        by_sql = statements.can_order(self.filter, self.sort) and not query.residual and not arrays
        if not by_sql:
            query = statements.select(self.filter, NATURAL, indexed=False)
        return self._explained(connection, statements, query, arrays=arrays, by_sql=by_sql)

    def absent(self) -> Explanation:
        raise CollectionNotFound(self.collection)

    def _has_arrays(self, connection: Connection, query: Query) -> bool:
        rows = connection.rows(query.sql, query.parameters(self.filter, skip=0, limit=0))
        return bool(rows[0][0])

    def _explained(
        self,
        connection: Connection,
        statements: Statements,
        query: Query,
        *,
        arrays: bool,
        by_sql: bool,
    ) -> Explanation:
        database, limit = connection.database, NO_LIMIT if self.limit is None else self.limit
        parameters = query.parameters(self.filter, skip=self.skip, limit=limit)
        rows = connection.rows(database.compiler.explain(query.sql), parameters)
        plan: Plan = database.compiler.plan(rows, statements.table)
        walked = set(plan.walked) - {physical for _, physical in statements.options.ways}
        stops = by_sql and self.limit is not None and self.filter == Filter() and not plan.sorts
        scans = (plan.scans or bool(walked)) and not stops
        advice = None
        if arrays or (plan.sorts and self.sort.fields) or (plan.scans and scans):
            advice = self._advice(connection, statements, arrays=arrays)
        return Explanation(
            sql=query.sql,
            parameters=parameters,
            in_sql=_without(self.filter, query.residual),
            in_matcher=query.rest(self.filter) if query.residual else None,
            indexes=_names(plan, statements.options),
            scans=scans,
            order=self._order(plan, by_sql=by_sql),
            arrays=arrays,
            plan=plan.lines,
            advice=advice,
        )

    def _advice(
        self, connection: Connection, statements: Statements, *, arrays: bool
    ) -> str | None:
        """Return the advice to create an index: of arrays where there are some, if the database has such indexes."""
        existing = statements.options.indexes
        keys = next(indexable_keys(self.filter), None)
        if keys is not None and connection.database.ordering.can_order(keys):
            some = statements.has_array(self.filter, keys)
            [(found,)] = connection.rows(some.sql, some.parameters(self.filter))
            arrays = arrays or bool(found)
        if arrays and not connection.database.indexes_arrays:
            return None
        return advise(self.filter, self.sort, existing, arrays=arrays)

    def _order(self, plan: Plan, *, by_sql: bool) -> Ordered:
        if not self.sort.fields:
            return "natural"
        if not by_sql:
            return "python"
        return "database" if plan.sorts else "index"


def _without(filter: Filter, residual: tuple[int, ...]) -> Filter:
    conditions = enumerate(conjuncts(filter.condition))
    return Filter(And(tuple(each for number, each in conditions if number not in residual)))


def _names(plan: Plan, options: CollectionOptions) -> tuple[str, ...]:
    """Return the names that users know, without the indexes of array guards."""
    ways = {physical for _, physical in options.ways}
    named = {index.physical: index.name for index in options.indexes}
    known = (named.get(each, each) for each in plan.indexes if each not in ways)
    return tuple(dict.fromkeys(known))
