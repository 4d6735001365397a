"""Conditions as clauses of SQL, and what is left to the matcher.

A condition has an *exact form*, which is right for every document, and an *indexed form* over the columns of an index,
which is right where no array is on the path: MongoDB tests the elements of an array too, and an expression has one
value for a document. A statement in the indexed form carries an *array guard* (`select`), which reports whether a
matching document has an array there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa

from ..query.conditions import (
    And,
    Compare,
    Condition,
    Equals,
    Exists,
    Field,
    Metadata,
    Not,
    OneOf,
    Or,
    Parameter,
    Value,
    values_of,
    with_sql,
)
from ..query.filter import Filter, conjuncts
from ..query.index import implied_by, is_in_arrays, is_indexable, keys_of
from ..query.path import path_prefixes
from ..query.values import value_class
from .dialects.protocols import Binding, Database, Keys
from .elements import AnyOf, ArrayAt, ArrayTest, BodyMatches, IndexedTest, IsNot
from .order import Part
from .schema import is_live, now

MAX_CONDITIONS: Final = 100
"""More conditions run in the matcher: SQLite's expressions end at a depth of 1,000."""
MAX_INDEXED: Final = 10
"""More conditions have no indexed form: SQLite's planner considers them in pairs."""
MAX_MIXED: Final = 2
"""Deeper combinations of conditions on the body and on metadata run in the matcher."""

Prefixes: TypeAlias = frozenset[Keys]
"""Positions in a body at which an array makes the indexed form wrong."""


class Rendered(NamedTuple):
    """A clause, and its parameters."""

    clause: sa.ColumnElement[bool]
    bindings: tuple[Binding, ...] = ()


Render: TypeAlias = Callable[[Condition, str], Rendered | None]
"""Renders a condition with parameters of a name; None: SQL does not express it."""


@value_class(eq=True)
class Where:
    """The clauses of a shape.

    A row matches if it is `live` and all `tests` hold. The matcher decides the conditions at the positions `residual`.
    The clauses are right if no matching document has an array at one of the `prefixes`. All rows are the same in the
    parts `constant`.
    """

    live: sa.ColumnElement[bool]
    tests: tuple[sa.ColumnElement[bool], ...]
    bindings: tuple[Binding, ...]
    residual: tuple[int, ...]
    prefixes: Prefixes = frozenset()
    constant: frozenset[Part] = frozenset()

    @property
    def clauses(self) -> tuple[sa.ColumnElement[bool], ...]:
        """All that a row must pass."""
        return (self.live, *self.tests)


@value_class(eq=True)
class Query:
    """A compiled statement over a filter's shape.

    The matcher decides the conditions at the positions `residual`. `guard`: the array guard is the first column of the
    first row, and there always is such a row; if it is true, the rest is wrong. What was found comes after that "row",
    or is in the other columns of all rows, beside a "column".
    """

    sql: str
    bindings: tuple[Binding, ...] = ()
    residual: tuple[int, ...] = ()
    guard: Literal["", "row", "column"] = ""

    def parameters(self, filter: Filter, **others: Any) -> dict[str, Any]:
        """Return the statement's parameters for the values of `filter`."""
        parameters = {"now": now(), **others}
        if self.bindings:
            values = values_of(filter.condition)
            for names, positions, convert in self.bindings:
                if convert is None:
                    for name, position in zip(names, positions, strict=True):
                        parameters[name] = values[position].value
                else:
                    found = convert(list(map(values.__getitem__, positions)))
                    parameters.update(zip(names, found, strict=True))
        return parameters

    def rest(self, filter: Filter) -> Filter:
        """Return the part of `filter` that the matcher must decide."""
        conditions = conjuncts(filter.condition)
        return Filter(And(tuple(conditions[position] for position in self.residual)))


class Conditions:
    """The clauses of conditions on one collection's documents."""

    def __init__(self, table: sa.Table, database: Database, arrays: Mapping[Keys, str]) -> None:
        """Take the names of the indexes of arrays by field."""
        self._table, self._compiler = table, database.compiler
        self._filters, self._form = database.filters, database.indexed_form
        self._arrays = arrays if database.indexes_arrays else {}

    def exact(self, shape: Condition) -> Where:
        """Return the exact form."""
        return self._where(conjuncts(_numbered(shape)), (), self._exact)

    def indexed(
        self, shape: Condition, fields: Prefixes, is_excluded: Callable[[Condition], bool]
    ) -> Where:
        """Return the indexed form of the conditions that indexes over `fields` serve and that are not excluded, and the
        exact form of the others.
        """
        every = conjuncts(_numbered(shape))
        wanted = (each for each in every[:MAX_CONDITIONS] if not is_excluded(each))
        chosen = [each for each in wanted if is_indexable(each, fields)][:MAX_INDEXED]
        where = self._where(every, chosen, self._indexed)
        prefixes = frozenset(prefix for each in chosen for prefix in _prefixes(each))
        return replace(where, prefixes=prefixes, constant=frozenset(self._constant(chosen)))

    def combined(self, shape: Condition, fields: Prefixes) -> Where:
        """Return a form that is right for every document and that indexes serve: the indexed form, or an array on the
        path and the exact form.
        """
        every = conjuncts(_numbered(shape))
        chosen = [each for each in every if is_indexable(each, fields)][:MAX_INDEXED]
        return self._where(every, chosen, self._combined)

    def _constant(self, conditions: Iterable[Condition]) -> Iterator[Part]:
        for each in conditions:
            match each:
                case And(inner):
                    yield from self._constant(inner)
                case Field(path, test):
                    yield from ((path.keys, part) for part in self._form.constant_parts(test))

    def _where(
        self, every: tuple[Condition, ...], chosen: Sequence[Condition], render: Render
    ) -> Where:
        """Render the `chosen` conditions one by one, the others in the exact form, some of them as one."""
        tests: list[sa.ColumnElement[bool]] = []
        bindings: list[Binding] = []
        residual = list(range(MAX_CONDITIONS, len(every)))
        for positions in self._groups(every[:MAX_CONDITIONS], chosen):
            parts = tuple(every[position] for position in positions)
            condition = parts[0] if len(parts) == 1 else And(parts)
            form = render if condition in chosen else self._exact
            rendered = form(condition, str(positions[0]))
            if rendered is None:
                residual.extend(positions)
            else:
                tests.append(rendered.clause)
                bindings.extend(rendered.bindings)
        return Where(is_live(self._table), tuple(tests), tuple(bindings), tuple(sorted(residual)))

    def _groups(
        self, every: Sequence[Condition], chosen: Sequence[Condition]
    ) -> list[tuple[int, ...]]:
        """Return the positions of the conditions, in order, those together that are rendered as one."""
        free = [n for n, each in enumerate(every) if each not in chosen]
        groups = self._filters.groups([every[n] for n in free])
        joined = [tuple(free[n] for n in group) for group in groups]
        grouped = {n for group in joined for n in group}
        return sorted([*joined, *((n,) for n in range(len(every)) if n not in grouped)])

    def _exact(self, condition: Condition, name: str) -> Rendered | None:
        """Render the exact form, behind tests that an index of arrays serves where the condition implies some."""
        rendered = self._render(condition, f"p{name}", MAX_MIXED)
        if rendered is None or not self._arrays:
            return rendered
        for number, implied in enumerate(implied_by(condition)):
            if is_in_arrays(implied, self._arrays):
                test = self._array_test(implied, f"p{name}_i{number}")
                rendered = _all_of([test, rendered])
        return rendered

    def _indexed(self, condition: Condition, name: str) -> Rendered | None:
        rendered = self._render_indexed(condition, f"q{name}", MAX_MIXED)
        return rendered or self._exact(condition, name)

    def _combined(self, condition: Condition, name: str) -> Rendered | None:
        exact = self._exact(condition, name)
        indexed = self._render_indexed(condition, f"q{name}", MAX_MIXED)
        if exact is None or indexed is None:
            return exact
        arrays = (ArrayAt(self._table.c.body, each) for each in sorted(set(_prefixes(condition))))
        with_arrays = (sa.and_(array, exact.clause) for array in arrays)
        clause = sa.or_(indexed.clause, *with_arrays)
        return Rendered(clause, indexed.bindings + exact.bindings)

    def _render_indexed(self, condition: Condition, name: str, depth: int) -> Rendered | None:
        match condition:
            case Field():
                parameters, bindings = self._indexed_parameters(condition, name)
                return Rendered(IndexedTest(self._table.c.body, condition, parameters), bindings)
            case And() | Or() if depth:
                return _joined(condition, name, depth, self._render_indexed)
        return None

    def _array_test(self, field: Field, name: str) -> Rendered:
        parameters, bindings = self._indexed_parameters(field, name)
        physical = self._arrays[field.path.keys]
        return Rendered(ArrayTest(self._table.c.seq, field, parameters, physical), bindings)

    def _indexed_parameters(
        self, field: Field, name: str
    ) -> tuple[list[sa.BindParameter[Any]], tuple[Binding, ...]]:
        width = sum(self._form.width(slot.kind) for slot in values_of(field))
        names = tuple(f"{name}_{number}" for number in range(width))
        binding = Binding(names, _positions(field), self._indexed_values)
        return [_untyped(each) for each in names], (binding,)

    def _indexed_values(self, values: list[Value]) -> list[Any]:
        return [each for value in values for each in self._form.values(value)]

    def _render(self, condition: Condition, name: str, depth: int) -> Rendered | None:
        if isinstance(condition, Metadata):
            return self._metadata(condition, name)
        if isinstance(condition, Field) and is_in_arrays(condition, self._arrays):
            return self._array_test(condition, name)
        if self._filters.can_render(condition):
            binding = self._filters.binding(condition, name, _positions(condition))
            parameters = [_untyped(each) for each in binding.names]
            return Rendered(BodyMatches(self._table.c.body, condition, parameters), (binding,))
        match condition:
            case And() | Or() if depth:
                return _joined(condition, name, depth, self._render)
            case Not(inner) if depth:
                rendered = self._render(inner, name, depth - 1)
                return rendered and Rendered(IsNot(rendered.clause), rendered.bindings)
        return None

    def _metadata(self, condition: Metadata, name: str) -> Rendered | None:
        """Render a test of a column, which has one type."""
        wanted = "string" if condition.field == "id" else "number"
        # a number is bound as it is: a cast to the column's type would round it
        type = sa.Text() if wanted == "string" else sa.types.NULLTYPE
        column: sa.ColumnElement[Any] = sa.type_coerce(self._table.c[condition.field], type)
        parameter, positions = sa.bindparam(name, type_=type), _positions(condition)
        match condition.test:
            case Exists():
                return Rendered(sa.true())
            case Equals(Parameter(kind="null")):
                return Rendered(column.is_(None))
            case Equals(Parameter(kind=kind)) | Compare(_, Parameter(kind=kind)) if kind != wanted:
                return Rendered(sa.false())
            case OneOf((Parameter(kind="strings"),)) if wanted == "string":
                binding = Binding((name,), positions, self._list_parameter)
                return Rendered(AnyOf(column, _untyped(name)), (binding,))
            case Equals():
                return Rendered(column == parameter, (Binding((name,), positions, None),))
            case Compare(operator):
                compared = _COMPARED[operator](column, parameter)
                return Rendered(compared, (Binding((name,), positions, None),))
        return None

    def _list_parameter(self, values: list[Value]) -> tuple[Any]:
        return (self._compiler.list_parameter(values[0].value),)


_COMPARED: Final[Mapping[str, Callable[[Any, Any], sa.ColumnElement[bool]]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _numbered(shape: Condition) -> Condition:
    """Return the shape with its slots numbered, so that each part of it knows the positions of its values."""
    numbers = count()
    return with_sql(shape, lambda _: (str(next(numbers)),))


def _positions(condition: Condition) -> tuple[int, ...]:
    return tuple(int(slot.sql[0]) for slot in values_of(condition))


def _prefixes(condition: Condition) -> Iterator[Keys]:
    return (prefix for keys in keys_of(condition) for prefix in path_prefixes(keys))


def _untyped(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=sa.types.NULLTYPE)


def _joined(
    condition: And | Or,
    name: str,
    depth: int,
    render: Callable[[Condition, str, int], Rendered | None],
) -> Rendered | None:
    if not 0 < len(condition.conditions) < MAX_CONDITIONS:
        return None
    rendered: list[Rendered] = []
    for number, each in enumerate(condition.conditions):
        part = render(each, f"{name}_{number}", depth - 1)
        if part is None:
            return None
        rendered.append(part)
    if isinstance(condition, And):
        return _all_of(rendered)
    clause = sa.or_(*(each.clause for each in rendered))
    return Rendered(clause, tuple(binding for each in rendered for binding in each.bindings))


def _all_of(rendered: Sequence[Rendered]) -> Rendered:
    clause = sa.and_(*(each.clause for each in rendered))
    return Rendered(clause, tuple(binding for each in rendered for binding in each.bindings))
