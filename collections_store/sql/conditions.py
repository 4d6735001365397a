"""Conditions to clauses: what SQL says of a filter's shape, and what is left to the matcher."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

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
)
from ..query.filter import Filter, conjuncts
from ..query.index import implied_by, is_in_arrays, is_indexable, keys_of
from ..query.path import path_prefixes
from ..query.shapes import values_of
from ..query.values import value_class
from .dialects.protocols import Database
from .elements import AnyOf, ArrayAt, ArrayTest, BodyMatches, IsNot, PlainTest
from .order import Part
from .schema import is_live, now

MAX_CONDITIONS: Final = 100
"""More conditions run in the matcher: SQLite's expressions end at a depth of 1,000."""
MAX_PLAIN: Final = 10
"""More conditions are not said in words that indexes serve: SQLite's planner takes them in pairs."""
MAX_MIXED: Final = 2
"""Deeper combinations of what is asked of the body and of the metadata run in the matcher."""

Parameters = Mapping[str, Any]


Bind: TypeAlias = Callable[[Condition], Mapping[str, Any]]
"""Makes the parameters of a clause for a condition of the clause's shape."""
Said: TypeAlias = tuple[sa.ColumnElement[bool], Bind]


Keys: TypeAlias = tuple[str, ...]
Ways: TypeAlias = frozenset[Keys]
"""Places in a body."""


@value_class(eq=True)
class Where:
    """What SQL says of a shape.

    A row matches if it is `live` and all holds that is `asked`. `bind` makes the parameters of a
    filter's values. What the conditions at the places `residual` ask runs in the matcher. The clauses
    are right as long as no object that matches has an array at one of the `ways`. All rows are alike
    in the parts that are `pinned`.
    """

    live: sa.ColumnElement[bool]
    asked: tuple[sa.ColumnElement[bool], ...]
    bind: Bind
    residual: tuple[int, ...]
    ways: Ways = frozenset()
    pinned: frozenset[Part] = frozenset()

    @property
    def clauses(self) -> tuple[sa.ColumnElement[bool], ...]:
        """All that a row must pass."""
        return (self.live, *self.asked)


@value_class(eq=True)
class Query:
    """A compiled statement over a filter's shape.

    `bind` makes the parameters of a filter's values. What the conditions at the places `residual`
    ask runs in the matcher. `doubtful`: the first column of the first row tells whether the rest is
    wrong, because an array is where none was expected; there is such a row always. What was found comes
    after that row, which is "before" it, or, "beside" it, in the other columns of all rows.
    """

    sql: str
    bind: Bind
    residual: tuple[int, ...] = ()
    doubtful: Literal["", "before", "beside"] = ""

    def parameters(self, filter: Filter, **others: Any) -> dict[str, Any]:
        """Return the statement's parameters for the values of `filter`."""
        return {"now": now(), **others, **self.bind(filter.condition)}

    def rest(self, filter: Filter) -> Filter:
        """Return the part of `filter` that the matcher must decide."""
        conditions = conjuncts(filter.condition)
        return Filter(And(tuple(conditions[place] for place in self.residual)))


class Conditions:
    """What SQL says of conditions on one collection's objects."""

    def __init__(self, table: sa.Table, database: Database, arrays: Mapping[Keys, str]) -> None:
        self.table, self.database = table, database
        self._arrays = arrays if database.INDEXES_ARRAYS else {}
        """The names of the indexes of arrays."""

    def exact(self, shape: Condition) -> Where:
        """Say a shape whatever the objects hold."""
        return self._where(shape, self._say_exactly)

    def plain(self, shape: Condition, indexed: Ways, without: Callable[[Condition], bool]) -> Where:
        """Say a shape in words that the indexes over the fields `indexed` serve, `without` those
        conditions that shall not be.
        """
        wanted = (each for each in conjuncts(shape)[:MAX_CONDITIONS] if not without(each))
        spoken = [each for each in wanted if is_indexable(each, indexed)][:MAX_PLAIN]
        where = self._where(
            shape,
            lambda c, n: (c in spoken and self._plainly(c, n, indexed)) or self._say_exactly(c, n),
            spoken,
        )
        ways = (way for each in spoken for keys in keys_of(each) for way in path_prefixes(keys))
        return replace(where, ways=frozenset(ways), pinned=frozenset(self._pinned(spoken)))

    def _pinned(self, spoken: Iterable[Condition]) -> Iterator[Part]:
        """Yield the parts of fields in which all rows are alike, by what is said of them."""
        for each in spoken:
            match each:
                case And(conditions):
                    yield from self._pinned(conditions)
                case Field(path, test):
                    yield from ((path.keys, part) for part in self.database.pinned(test))

    def opened(self, shape: Condition, indexed: Ways) -> Where:
        """Say a shape whatever the objects hold, the indexes' words first."""
        spoken = [c for c in conjuncts(shape) if is_indexable(c, indexed)][:MAX_PLAIN]
        return self._where(
            shape,
            lambda c, n: self._either(c, n, indexed) if c in spoken else self._say_exactly(c, n),
            spoken,
        )

    def _where(
        self,
        shape: Condition,
        say: Callable[[Condition, str], Said | None],
        spoken: Sequence[Condition] = (),
    ) -> Where:
        """Say each condition, those that are not `spoken` in an index's words several at once."""
        asked, binds = [], []
        residual: list[int] = []
        every = conjuncts(shape)[:MAX_CONDITIONS]
        for places in self._together(every, spoken):
            place, *others = places
            condition = And(tuple(every[n] for n in places)) if others else every[place]
            said = say(condition, f"p{place}")
            if said is None:
                residual.extend(places)
            else:
                asked.append(said[0])
                binds.append((places, said[1]))
        residual.extend(range(len(every), len(conjuncts(shape))))

        def bind(condition: Condition) -> dict[str, Any]:
            every = conjuncts(condition)
            return {k: v for n, bound in binds for k, v in bound(_at(every, n)).items()}

        return Where(is_live(self.table), tuple(asked), bind, tuple(sorted(residual)))

    def _together(
        self, every: Sequence[Condition], spoken: Sequence[Condition]
    ) -> list[tuple[int, ...]]:
        """Return the places of the conditions, in order, those together that are best said as one."""
        free = [n for n, each in enumerate(every) if each not in spoken]
        groups = self.database.together([every[n] for n in free])
        joined = [tuple(free[n] for n in group) for group in groups]
        taken = {n for group in joined for n in group}
        return sorted([*joined, *((n,) for n in range(len(every)) if n not in taken)])

    def _say_exactly(self, condition: Condition, name: str) -> Said | None:
        said = self._say(condition, name, MAX_MIXED)
        if said is None or not self._arrays:
            return said
        for number, implied in enumerate(implied_by(condition)):
            if is_in_arrays(implied, self._arrays):
                clause, _ = self._array_test(implied, f"{name}_i{number}")
                said = sa.and_(clause, said[0]), self._with_implied(said[1], name)
        return said

    def _with_implied(self, bind: Bind, name: str) -> Bind:
        def bound(actual: Condition) -> dict[str, Any]:
            values = dict(bind(actual))
            for number, implied in enumerate(implied_by(actual)):
                if is_in_arrays(implied, self._arrays):
                    values.update(self._values(implied, f"{name}_i{number}")[1](implied))
            return values

        return bound

    def _array_test(self, field: Field, name: str) -> Said:
        physical, seq = self._arrays[field.path.keys], self.table.c.seq
        parameters, bind = self._values(field, name)
        return ArrayTest(seq, field, parameters, physical), bind

    def _either(self, condition: Condition, name: str, indexed: Ways) -> Said | None:
        said, plain = self._say_exactly(condition, name), self._plainly(condition, name, indexed)
        if said is None or plain is None:
            return said
        ways = sorted({way for keys in keys_of(condition) for way in path_prefixes(keys)})
        opened = (sa.and_(ArrayAt(self.table.c.body, way), said[0]) for way in ways)
        return sa.or_(plain[0], *opened), lambda actual: {**plain[1](actual), **said[1](actual)}

    def _plainly(self, condition: Condition, name: str, indexed: Ways) -> Said | None:
        return (
            self._plain(condition, name.replace("p", "q"), MAX_MIXED)
            if is_indexable(condition, indexed)
            else None
        )

    def _plain(self, condition: Condition, name: str, depth: int) -> Said | None:
        match condition:
            case Field():
                return self._plain_test(condition, name)
            case And(conditions) | Or(conditions) if depth and 0 < len(conditions) < MAX_CONDITIONS:
                return self._join(
                    condition, conditions, name, lambda c, n: self._plain(c, n, depth - 1)
                )
        return None

    def _plain_test(self, field: Field, name: str) -> Said:
        parameters, bind = self._values(field, name)
        return PlainTest(self.table.c.body, field, parameters), bind

    def _values(self, field: Field, name: str) -> tuple[list[sa.BindParameter[Any]], Bind]:
        width, values = self.database.plain_width, self.database.plain_values
        total = sum(width(slot.kind) for slot in values_of(field))
        names = [f"{name}_{n}" for n in range(total)]

        def bind(actual: Condition) -> dict[str, Any]:
            bound = [each for value in values_of(actual) for each in values(value)]
            return dict(zip(names, bound, strict=True))

        return [sa.bindparam(each, type_=sa.types.NULLTYPE) for each in names], bind

    def _say(self, condition: Condition, name: str, depth: int) -> Said | None:
        """Return the clause of a shape, and what makes its parameters; None: SQL has no words."""
        if isinstance(condition, Metadata):
            return self._metadata(condition, name)
        if isinstance(condition, Field) and is_in_arrays(condition, self._arrays):
            return self._array_test(condition, name)
        if self.database.can_say(condition):
            names = [f"{name}_{n}" for n in range(self.database.count_parameters(condition))]
            parameters = [sa.bindparam(each, type_=sa.types.NULLTYPE) for each in names]
            clause = BodyMatches(self.table.c.body, condition, parameters)
            make = self.database.binder(condition)
            return clause, lambda actual: dict(zip(names, make(actual), strict=True))
        match condition:
            case And(conditions) | Or(conditions) if depth and 0 < len(conditions) < MAX_CONDITIONS:
                return self._join(
                    condition, conditions, name, lambda c, n: self._say(c, n, depth - 1)
                )
            case Not(inner) if depth:
                said = self._say(inner, name, depth - 1)
                return None if said is None else (IsNot(said[0]), _within_not(said[1]))
        return None

    def _join(
        self,
        condition: And | Or,
        inner: tuple[Condition, ...],
        name: str,
        say: Callable[[Condition, str], Said | None],
    ) -> Said | None:
        said = [say(each, f"{name}_{place}") for place, each in enumerate(inner)]
        clauses = [each[0] for each in said if each is not None]
        if len(clauses) < len(said):
            return None
        binds = [each[1] for each in said if each is not None]
        joined = sa.and_(*clauses) if isinstance(condition, And) else sa.or_(*clauses)
        return joined, _within_each(binds)

    def _metadata(self, condition: Metadata, name: str) -> Said | None:
        """Spell a test of a column, which is of one type."""
        wanted = "string" if condition.field == "id" else "number"
        # a number is bound as it is: a cast to the column's type would round it
        type = sa.Text() if wanted == "string" else sa.types.NULLTYPE
        column: sa.ColumnElement[Any] = sa.type_coerce(self.table.c[condition.field], type)
        match condition.test:
            case Exists():
                return sa.true(), lambda _: {}
            case Equals(Parameter(kind="null")):
                return column.is_(None), lambda _: {}
            case Equals(Parameter(kind=kind)) | Compare(_, Parameter(kind=kind)) if kind != wanted:
                return sa.false(), lambda _: {}
            case OneOf((Parameter(kind="strings"),)) if wanted == "string":
                listed = sa.bindparam(name, type_=sa.types.NULLTYPE)
                return AnyOf(column, listed), self._listed(name)
            case Equals():
                return column == sa.bindparam(name, type_=type), _one_value(name)
            case Compare(operator):
                return _COMPARED[operator](column, sa.bindparam(name, type_=type)), _one_value(name)
        return None

    def _listed(self, name: str) -> Bind:
        make = self.database.list_parameter
        return lambda condition: {name: make(values_of(condition)[0].value)}


def _at(every: Sequence[Condition], places: tuple[int, ...]) -> Condition:
    """Return the condition at a place, or all of those at several."""
    if len(places) == 1:
        return every[places[0]]
    return And(tuple([every[n] for n in places]))


_COMPARED: Final[Mapping[str, Callable[[Any, Any], sa.ColumnElement[bool]]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _one_value(name: str) -> Bind:
    return lambda condition: {name: values_of(condition)[0].value}


def _within_not(bind: Bind) -> Bind:
    def within(condition: Condition) -> Mapping[str, Any]:
        assert isinstance(condition, Not)
        return bind(condition.condition)

    return within


def _within_each(binds: Sequence[Bind]) -> Bind:
    def within(condition: Condition) -> Mapping[str, Any]:
        assert isinstance(condition, And | Or)
        pairs = zip(binds, condition.conditions, strict=True)
        return {k: v for bind, inner in pairs for k, v in bind(inner).items()}

    return within
