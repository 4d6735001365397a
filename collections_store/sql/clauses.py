"""Conditions and orders as clauses of SQL.

A condition has two forms. The *exact form* is right for every document. The *indexed form* over the columns of an index
is right if no array is on the path: MongoDB tests the elements of an array too, but an expression has a single value
for a document. A statement in the indexed form carries an *array guard* (`select`): the guard reports whether a
matching document has an array on the path. Conditions beyond SQL are left to the matcher.

A few columns, never null, order a field (`Ordering.parts`): the rank, and the value as the database compares values. A
position in an order is thus a row of values. The columns order scalars exactly; `Ordering.is_unorderable` reports the
remaining values. `Order.prefixes` are the positions at which the array guard must look for an array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

import sqlalchemy as sa

from ..errors import InvalidFilter
from ..expressions.classes import value_class
from ..expressions.collation import Collation
from ..expressions.path import Path, Wildcard, path_prefixes
from ..query.conditions import (
    And,
    Collated,
    Compare,
    Condition,
    Equals,
    Exists,
    Field,
    Matches,
    Metadata,
    Not,
    OneOf,
    Or,
    Parameter,
    Test,
    Text,
    Value,
    scalars_of,
    uncollated,
)
from ..query.filter import conjuncts, paths_in
from ..query.index import Index, limits_of, prefixes_of
from ..query.joint import served_jointly
from ..query.serving import implied_by, is_in_arrays, is_indexable
from ..query.shapes import values_of, with_sql
from ..query.sort import NULL, Key, Sort
from ..query.text_index import NO_TEXT_INDEX, TextIndex
from .dialects.protocols import Binding, Database
from .elements import (
    AnyOf,
    ArrayAt,
    ArrayTest,
    BodyMatches,
    CollatedPart,
    CollatedTest,
    IndexedTest,
    IsNot,
    Keys,
    PartialTest,
    SortPart,
    SortValue,
)
from .schema import is_live, keys_of
from .statement import NEVER

MAX_CONDITIONS: Final = 100
"""More conditions run in the matcher: SQLite's expressions end at a depth of 1,000."""
MAX_INDEXED: Final = 10
"""More conditions have no indexed form: SQLite's planner considers them in pairs."""
MAX_MIXED: Final = 2
"""Deeper combinations of conditions on the body and on metadata run in the matcher."""

Part: TypeAlias = tuple[Keys, str, Collation | None]
"""The keys of a field, one of its `Ordering.parts`, and how the part orders strings."""
Prefixes: TypeAlias = frozenset[Keys]
"""Positions in a body at which an array makes the indexed form wrong."""

_NEVER = -(2**62)
"""Null sorts first, and no document expires then."""


class IndexedFields(NamedTuple):
    """The fields that indexes serve: by code point; under the collation of a query; and under any collation, whose indexes
    compare all values but strings the same.
    """

    fields: Prefixes = frozenset()
    collated: Mapping[Keys, Index] = {}
    keyed: Mapping[Keys, Index] = {}

    def can_index(self, condition: Condition) -> bool:
        """Return whether a condition has an indexed form."""
        return is_indexable(condition, self.fields, self.collated, self.keyed)

    def keyed_by(self, condition: Condition, field: Field) -> Index | None:
        """Return the index under a collation that serves the condition on a field; None: an index without one does."""
        if isinstance(condition, Collated):
            return self.collated[field.path.keys]
        return None if field.path.keys in self.fields else self.keyed[field.path.keys]

    def collation_of(self, condition: Condition, field: Field) -> Collation | None:
        """Return the collation of the index that serves the condition on a field."""
        index = self.keyed_by(condition, field)
        return None if index is None else index.collation


NO_INDEX: Final = IndexedFields()


class Rendered(NamedTuple):
    """A clause, and the parameters of the clause."""

    clause: sa.ColumnElement[bool]
    bindings: tuple[Binding, ...] = ()


IsExcluded: TypeAlias = Callable[[Condition], bool]
Render: TypeAlias = Callable[[Condition, str, int], Rendered | None]
"""Renders a condition, with the beginning of its parameters' names, and the depth to which it is mixed."""


@value_class(eq=True)
class Where:
    """The clauses of a shape.

    A row matches if it is `live` and all `tests` hold. The matcher decides the conditions at the positions `residual`.
    The clauses are right if no matching document has an array at one of the `prefixes`. All rows are the same in the
    parts `constant`. SQL orders all rows exactly by the fields `ordered`, each with the collation of the order.
    """

    live: sa.ColumnElement[bool]
    tests: tuple[sa.ColumnElement[bool], ...]
    bindings: tuple[Binding, ...]
    residual: tuple[int, ...]
    prefixes: Prefixes = frozenset()
    constant: frozenset[Part] = frozenset()
    ordered: frozenset[tuple[Keys, Collation | None]] = frozenset()

    @property
    def clauses(self) -> tuple[sa.ColumnElement[bool], ...]:
        """All that a row must pass."""
        return (self.live, *self.tests)


class Conditions:
    """The clauses of conditions on a collection's documents."""

    def __init__(
        self,
        table: sa.Table,
        database: Database,
        arrays: Mapping[Path, str],
        text: TextIndex | None = None,
        substrings: TextIndex | None = None,
        *,
        compound: Sequence[Index] = (),
    ) -> None:
        """Take the names of the indexes of arrays by path, the text indexes, and the compound indexes of arrays."""
        self._substrings, self._compound = substrings, compound
        self._text, self._text_indexes = text, database.text
        self._table, self._compiler = table, database.compiler
        self._filters, self._form = database.filters, database.indexed_form
        self._arrays = arrays if database.indexes_arrays else {}
        self._is_exact = database.indexes_arrays

    def where(
        self,
        shape: Condition,
        by: IndexedFields = NO_INDEX,
        *,
        indexed: bool = False,
        is_excluded: IsExcluded = lambda _: False,
    ) -> Where:
        """Return the clauses. Conditions `by` whose fields indexes serve, unless excluded, are in the indexed form;
        without `indexed`, in a form right for every document: the indexed form, or an array on the path and the exact
        form. Without an exact form the matcher decides, too. The remaining conditions are in the exact form.
        """
        every = conjuncts(_numbered(shape))
        index, served = served_jointly(self._compound, every[:MAX_CONDITIONS])
        done = {e.position for e in served if self._is_exact and every[e.position] == e.field}
        wanted = (
            e for n, e in enumerate(every[:MAX_CONDITIONS]) if n not in done and not is_excluded(e)
        )
        chosen = [each for each in wanted if by.can_index(each)][:MAX_INDEXED]
        tests: list[sa.ColumnElement[bool]] = []
        bindings: list[Binding] = []
        residual = list(range(MAX_CONDITIONS, len(every)))
        if index is not None:
            joint = self._array_test([each.field for each in served], "j", index.physical)
            tests.append(joint.clause)
            bindings.extend(joint.bindings)
        for positions in self._groups(every[:MAX_CONDITIONS], chosen):
            if not done.isdisjoint(positions):
                continue
            parts = tuple(every[position] for position in positions)
            condition = parts[0] if len(parts) == 1 else And(parts)
            is_chosen, name = condition in chosen, str(positions[0])
            behind = not any(e.position in positions for e in served)
            render = partial(self._render_indexed, by) if is_chosen else None
            rendered, is_exact = self._rendered(condition, name, behind, render, indexed=indexed)
            if not is_exact:
                residual.extend(positions)
            if rendered is not None:
                tests.append(rendered.clause)
                bindings.extend(rendered.bindings)
        clauses = is_live(self._table), tuple(tests), tuple(bindings), tuple(sorted(residual))
        if not indexed:
            return Where(*clauses)
        prefixes = frozenset(prefix for each in chosen for prefix in _prefixes(each))
        tested = [(each, by.collation_of(outer, each)) for outer, each in _fields(chosen)]
        constant = (
            (each.path.keys, part, collation)
            for each, collation in tested
            for part in self._form.constant_parts(each.test)
        )
        ordered = ((e.path.keys, collation) for e, collation in tested if self._orders_all(e.test))
        return Where(*clauses, prefixes, frozenset(constant), frozenset(ordered))

    def _orders_all(self, test: Test) -> bool:
        """Return whether SQL orders all values passing a test exactly."""
        match test:
            case Equals():
                return True
            case Compare(_, given) | Matches(given):
                return given.kind in self._form.ordered
        return False

    def _groups(
        self, every: Sequence[Condition], chosen: Sequence[Condition]
    ) -> list[tuple[int, ...]]:
        """Return the positions of the conditions, in order and grouped: the conditions of a group are rendered
        together.
        """
        free = [n for n, each in enumerate(every) if each not in chosen]
        groups = self._filters.groups([every[n] for n in free])
        joined = [tuple(free[n] for n in group) for group in groups]
        grouped = {n for group in joined for n in group}
        return sorted([*joined, *((n,) for n in range(len(every)) if n not in grouped)])

    def _rendered(
        self,
        condition: Condition,
        name: str,
        behind: bool,
        render: Render | None,
        *,
        indexed: bool,
    ) -> tuple[Rendered | None, bool]:
        """Return a clause of a condition, by `render` in the indexed form, and whether the clause is exact; else the
        matcher decides the documents that pass it.
        """
        chosen = None if render is None else render(condition, f"q{name}", MAX_MIXED)
        if chosen is not None and indexed:
            return chosen, True
        exact = self._exact(condition, name, behind=behind)
        if chosen is None:
            return exact, exact is not None
        opened = [ArrayAt(self._table.c.body, each) for each in sorted(set(_prefixes(condition)))]
        if exact is None:
            return Rendered(sa.or_(chosen.clause, *opened), chosen.bindings), False
        with_arrays = (sa.and_(array, exact.clause) for array in opened)
        clause = sa.or_(chosen.clause, *with_arrays)
        return Rendered(clause, chosen.bindings + exact.bindings), True

    def _exact(self, condition: Condition, name: str, *, behind: bool) -> Rendered | None:
        """Render the exact form; `behind`: behind all implied tests that an index of arrays serves."""
        rendered = self._render(condition, f"p{name}", MAX_MIXED)
        if rendered is None or not behind:
            return rendered
        for number, implied in enumerate(implied_by(condition)):
            test = self._in_arrays(implied, f"p{name}_i{number}")
            if test is not None:
                rendered = _joined(And, [test, rendered])
        return rendered

    def _render_indexed(
        self, by: IndexedFields, condition: Condition, name: str, depth: int
    ) -> Rendered | None:
        body, field = self._table.c.body, uncollated(condition)
        match field:
            case Field():
                index = by.keyed_by(condition, field)
                if index is None:
                    parameters, bindings = self._indexed_parameters(field, name)
                    return Rendered(IndexedTest(body, field, parameters), bindings)
                parameters, bindings = self._indexed_parameters(field, name, index.collation)
                keys, name = keys_of(self._table), index.key_name
                return Rendered(CollatedTest(body, keys, field, parameters, name), bindings)
            case And() | Or() if depth:
                return self._each(field, name, depth, partial(self._render_indexed, by))
        return None

    def _in_arrays(self, field: Field, name: str) -> Rendered | None:
        """Render a condition that an index of arrays serves."""
        wildcards = (e for e in self._arrays if isinstance(e, Wildcard) and e.has(field.path))
        path = field.path if field.path in self._arrays else next(wildcards, None)
        if path is None or not is_in_arrays(field, {field.path.keys}):
            return None
        wildcard = isinstance(path, Wildcard)
        return self._array_test([field], name, self._arrays[path], wildcard=wildcard)

    def _array_test(
        self, fields: Sequence[Field], name: str, physical: str, *, wildcard: bool = False
    ) -> Rendered:
        every = [self._indexed_parameters(each, f"{name}_{n}") for n, each in enumerate(fields)]
        parameters = [parameter for some, _ in every for parameter in some]
        index = sa.Table(physical, sa.MetaData(schema=self._table.schema))
        clause = ArrayTest(self._table.c.seq, fields, parameters, index, wildcard=wildcard)
        return Rendered(clause, tuple(each for _, bindings in every for each in bindings))

    def _indexed_parameters(
        self, field: Field, name: str, collation: Collation | None = None
    ) -> tuple[list[sa.BindParameter[Any]], tuple[Binding, ...]]:
        kinds = [slot.kind for slot in values_of(field)]
        if collation is None and self._form.as_they_are.issuperset(kinds):
            binding = Binding.as_they_are(_positions(field))
        else:
            width = sum(self._form.widths.get(kind, 1) for kind in kinds)
            names = tuple(f"{name}_{number}" for number in range(width))
            convert = partial(self._indexed_values, collation)
            binding = Binding(names, _positions(field), convert)
        return [_untyped(each) for each in binding.names], (binding,)

    def _indexed_values(self, collation: Collation | None, values: list[Value]) -> list[Any]:
        if collation is not None:
            values = [_keyed(value, collation) for value in values]
        return [each for value in values for each in self._form.values(value)]

    def _render(self, condition: Condition, name: str, depth: int) -> Rendered | None:
        if isinstance(condition, Metadata):
            return self._metadata(condition, name)
        if isinstance(condition, Text):
            return self._words(condition, name)
        if isinstance(condition, Field) and (test := self._in_arrays(condition, name)) is not None:
            return test
        if self._filters.can_render(condition):
            condition = self._filters.simplified(condition)
            binding = self._filters.binding(condition, name, _positions(condition))
            parameters = [_untyped(each) for each in binding.names]
            return Rendered(BodyMatches(self._table.c.body, condition, parameters), (binding,))
        match condition:
            case And() | Or() if depth:
                return self._each(condition, name, depth, self._render)
            case Not(inner) if depth:
                rendered = self._render(inner, name, depth - 1)
                return rendered and Rendered(IsNot(rendered.clause), rendered.bindings)
        return None

    def _each(
        self,
        condition: And | Or,
        name: str,
        depth: int,
        render: Render,
    ) -> Rendered | None:
        """Render the conditions joined by AND or OR; None if SQL does not express every condition."""
        if not 0 < len(condition.conditions) < MAX_CONDITIONS:
            return None
        rendered: list[Rendered] = []
        for number, each in enumerate(condition.conditions):
            part = render(each, f"{name}_{number}", depth - 1)
            if part is None:
                return None
            rendered.append(part)
        return _joined(type(condition), rendered)

    def _words(self, condition: Text, name: str) -> Rendered:
        """Render a search in the text index."""
        if self._text is None:
            raise InvalidFilter("$text", NO_TEXT_INDEX)
        index, indexes, prefix = self._text, self._text_indexes, f"{name}_"
        found = sa.text(indexes.matches(self._table, index, prefix, scored=False))
        rows = found.columns(seq=sa.BigInteger)
        names = tuple(f"{prefix}{each}" for each in indexes.names)

        def convert(values: list[Value]) -> Sequence[Any]:
            return indexes.values(index, index.parsed(values[0].value))

        clause = self._table.c.seq.in_(rows)
        return Rendered(clause, (Binding(names, _positions(condition), convert),))

    def substrings(self, shape: Condition, served: Collection[int]) -> Rendered:
        """Render the test of the index of substrings, of the conditions that the index has `served`."""
        index, indexes = self._substrings, self._text_indexes
        assert index is not None
        every = [each for each in index.substrings(_numbered(shape)) if each[0] in served]
        names = [f"contains_{position}" for position, _, _ in every]

        def convert(field: int, values: list[Value]) -> Sequence[Any]:
            return [indexes.pattern(field, values[0].value.characters.text)]

        bindings = (
            Binding((name,), _positions(condition), partial(convert, field))
            for name, (_, field, condition) in zip(names, every, strict=True)
        )
        clause = indexes.contains(self._table, index, [field for _, field, _ in every], names)
        return Rendered(clause, tuple(bindings))

    def _metadata(self, condition: Metadata, name: str) -> Rendered | None:
        """Render a test of a column; a column has a single type."""
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
                return Rendered(NEVER)
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
    """Return the shape with numbered slots: each part knows the positions of its values."""
    numbers = count()
    return with_sql(shape, lambda _: (str(next(numbers)),))


def _positions(condition: Condition) -> tuple[int, ...]:
    return tuple(int(slot.sql[0]) for slot in values_of(condition))


def _prefixes(condition: Condition) -> Iterator[Keys]:
    return (prefix for path in paths_in(condition) for prefix in path_prefixes(path.keys))


def _fields(conditions: Iterable[Condition]) -> Iterator[tuple[Condition, Field]]:
    """Yield the conditions on fields that all hold, each also without its collation."""
    for each in conditions:
        match uncollated(each):
            case And(inner):
                yield from _fields(inner)
            case Field() as field:
                yield each, field


def _keyed(value: Value, collation: Collation) -> Value:
    """Return a value with the keys of a collation in place of strings."""
    if value.kind == "string":
        return Value.of(collation.key(value.value))
    if value.kind == "strings":
        return Value.of_list(value.kind, [Value.of(collation.key(each)) for each in value.value])
    return value


def _untyped(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=sa.types.NULLTYPE)


def _joined(kind: type[Condition], rendered: Sequence[Rendered]) -> Rendered:
    clauses = [each.clause for each in rendered]
    clause = sa.and_(*clauses) if kind is And else sa.or_(*clauses)
    return Rendered(clause, tuple(binding for each in rendered for binding in each.bindings))


class Column(NamedTuple):
    """A column of an order, and the parameter for a position in the column; `part` is None for metadata."""

    expression: sa.ColumnElement[Any]
    position: sa.ColumnElement[Any]
    descending: bool
    part: Part | None = None


class Order:
    """The columns of a sort; the natural order comes last."""

    def __init__(
        self,
        table: sa.Table,
        database: Database,
        key_names: Mapping[Collation | None, str],
        sort: Sort,
    ) -> None:
        """Take the names of the keys in the indexes under each collation."""
        self._ordering, self._sort = database.ordering, sort
        ordering, collation = self._ordering, sort.collation
        paths = [each.target.keys for each in sort.fields if isinstance(each.target, Path)]
        has_ids = any(each.target == "id" for each in sort.fields)
        key_name = "" if collation is None else key_names.get(collation, "")
        has_keys = collation is None or (bool(key_name) and not has_ids)
        self.can_render: bool = has_keys and all(map(ordering.can_order, paths))
        """SQL can sort so."""
        self.prefixes: frozenset[tuple[str, ...]] = frozenset(
            prefix for keys in paths for prefix in path_prefixes(keys)
        )
        self.columns: list[Column] = []
        for field in sort.fields:
            if isinstance(field.target, str):
                self._add(metadata_column(table, field.target), field.descending)
                continue
            for name in ordering.parts:
                keys = field.target.keys
                part = sort_part(table, keys, name, key_name)
                self._add(part, field.descending, (keys, name, collation))
        seq = sa.bindparam("seq", type_=sa.BigInteger)
        self.columns.append(Column(table.c.seq, seq, descending=False))

    def _add(
        self, expression: sa.ColumnElement[Any], descending: bool, part: Part | None = None
    ) -> None:
        bound = sa.bindparam(f"s{len(self.columns)}", type_=sa.types.NULLTYPE)
        position = bound if part is None else SortValue(bound, part[1])
        self.columns.append(Column(expression, position, descending, part))

    def begin(self, level: int | None) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of the rows that equal a position in `level` columns and come after the position in the
        next column; None: all rows.
        """
        if level is None:
            return []
        *equal, (column, position, descending, _) = self.columns[: level + 1]
        beyond = column < position if descending else column > position
        return [*(each.expression == each.position for each in equal), beyond]

    def directed(
        self, level: int | None, constant: Collection[Part]
    ) -> list[sa.ColumnElement[Any]]:
        """Return ORDER BY for these rows, without the `constant` parts: with constant columns, SQLite would sort even
        rows that an index returns in this order.
        """
        return [
            each.expression.desc() if each.descending else each.expression.asc()
            for each in self.columns[level or 0 :]
            if each.part not in constant
        ]

    def is_bounded(self, condition: Condition, level: int | None) -> bool:
        """Return whether a level bounds the rows by the field of a condition as closely as the condition: a search in
        an index has a single bound on each side, and SQLite takes any bound.
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
        varies: list[bool] = []
        for key, field in zip(keys, self._sort.fields, strict=True):
            varies += [True] if isinstance(field.target, str) else self._ordering.varies(key)
        return [level for level, can in reversed([*enumerate([*varies, True])]) if can]

    def values(self, keys: Sequence[Key], seq: int) -> dict[str, Any]:
        """Return the parameters of a position."""
        values: list[Any] = []
        for key, field in zip(keys, self._sort.fields, strict=True):
            if isinstance(field.target, str):
                values.append(_NEVER if key[0] == NULL else key[1])
            else:
                values += self._ordering.values(key)
        return {"seq": seq, **{f"s{number}": value for number, value in enumerate(values)}}


def metadata_column(table: sa.Table, target: str) -> sa.ColumnElement[Any]:
    """Return the column for ordering by a piece of metadata, never null."""
    if target == "expires_at":
        return sa.func.coalesce(table.c.expires_at, sa.literal_column(str(_NEVER)))
    return sa.type_coerce(table.c[target], sa.types.NULLTYPE)


def sort_part(table: sa.Table, keys: Keys, name: str, key_name: str) -> sa.ColumnElement[Any]:
    """Return the column for ordering by a part of a field, under a collation if its keys have a name."""
    if key_name:
        return CollatedPart(keys_of(table), keys, name, key_name)
    return SortPart(table.c.body, keys, name)


def any_array(body: Any, prefixes: Iterable[Keys]) -> sa.ColumnElement[bool]:
    """Return the test for an array at any of the positions."""
    return sa.or_(*(ArrayAt(body, each) for each in sorted(prefixes)))


def partial_condition(table: sa.Table, index: Index) -> sa.ColumnElement[bool]:
    """Return the condition of a partial index. The index holds documents with an array on the path of a field,
    whatever the array holds; a unique index never holds such documents.
    """
    body, limits = table.c.body, []
    for alternatives in limits_of(index):
        tests: list[sa.ColumnElement[bool]] = []
        for field in alternatives:
            fields = [field]
            if isinstance(field.test, OneOf):  # the condition of an index has no subquery
                values = [Value.of(each) for one in field.test.lists for each in scalars_of(one)]
                fields = [Field(field.path, Equals(value)) for value in values]
            tests += [PartialTest(body, each) for each in fields]
            if not index.unique:
                prefixes = path_prefixes(field.path.keys)
                tests += [ArrayAt(body, prefix, null_safe=True) for prefix in prefixes]
        limits.append(sa.or_(*tests))
    return sa.and_(*limits)


def hidden_condition(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition of a hidden index: always true, and in no query that does not name the index."""
    return sa.func.abs(table.c.seq) >= sa.literal_column("0")


def can_index(database: Database, index: Index) -> bool:
    """Return whether the database can address the keys of an index."""
    keys = [*prefixes_of(index), *(path.keys for path in index.paths)]
    return all(map(database.ordering.can_order, keys))
