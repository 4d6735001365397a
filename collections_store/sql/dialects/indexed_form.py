"""The indexed form of conditions, as far as it is the same on every database.

A field is ordered by columns: the rank of its type, then its value as the database compares it. A condition over these
columns can use an index over them. It is right where no array is on the path to the field: the array guard finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy.ext.compiler import compiles

from ...query.conditions import (
    Compare,
    Equals,
    Exists,
    HasType,
    Kind,
    Matches,
    OneOf,
    Operand,
    Test,
    Value,
    takes_missing,
    test_with_sql,
)
from ...query.path import path_prefixes
from ...query.sort import FALSE
from ..elements import (
    ArrayAt,
    IndexedTest,
    IsNot,
    PartialTest,
    RenameTable,
    SortPart,
    SortValue,
    TypeAt,
)
from .protocols import SIGNS, Database, IndexedForm, Keys, Ordering

Columns = TypeVar("Columns")


class RankedForm(IndexedForm, Generic[Columns]):
    """The indexed form over a rank and values; a dialect renders its parts."""

    ordering: Ordering
    WIDTHS: ClassVar[dict[Kind, int]]
    """Parameters of a value, where that is not one."""
    CONSTANT: ClassVar[dict[Kind, tuple[str, ...]]]
    """Parts in which all values are the same that compare with one of a kind."""

    def columns(self, body: str, keys: Keys) -> Columns:
        """Return what the methods below need of a field's columns."""
        raise NotImplementedError

    def rank(self, columns: Columns) -> str:
        """Render the rank."""
        raise NotImplementedError

    def compared(self, columns: Columns, sign: str, given: Operand) -> str:
        """Render a comparison with a scalar that is not null."""
        raise NotImplementedError

    def among(self, columns: Columns, given: Operand) -> str:
        """Render a test for one of the scalars of a list."""
        raise NotImplementedError

    def begins(self, columns: Columns, given: Operand) -> str:
        """Render a test for a string with a prefix."""
        raise NotImplementedError

    def null(self, body: str, keys: Keys) -> Iterable[str]:
        """Render that a field is null or missing: the columns, and that no array hides it."""
        raise NotImplementedError

    def exists(self, body: str, keys: Keys) -> str:
        """Render that a field exists."""
        raise NotImplementedError

    def types(self, body: str, keys: Keys, names: Sequence[str]) -> Iterable[str]:
        """Render that a field is of a type, an alternative for one or several."""
        raise NotImplementedError

    def literal(self, value: Any) -> str:
        """Return an SQL literal."""
        raise NotImplementedError

    def width(self, kind: Kind) -> int:
        return self.WIDTHS.get(kind, 1)

    def constant_parts(self, test: Test) -> Sequence[str]:
        match test:
            case Equals():
                return self.ordering.parts
            case Compare(_, given) | Matches(given):
                return self.CONSTANT.get(given.kind, ())
        return ()

    def test(self, body: str, keys: Keys, test: Test) -> str:
        return f"({' OR '.join(self._alternatives(body, keys, test))})"

    def partial_test(self, body: str, keys: Keys, test: Test) -> str:
        return self.test(body, keys, test_with_sql(test, self._literals))

    def _literals(self, value: Value) -> tuple[str, ...]:
        return tuple(map(self.literal, self.values(value)))

    def _alternatives(self, body: str, keys: Keys, test: Test) -> Iterable[str]:
        match test:
            case Exists():
                return [self.exists(body, keys)]
            case HasType(types):
                return self.types(body, keys, types)
        null = f"({' AND '.join(self.null(body, keys))})" if takes_missing(test) else ""
        return self.scalar_tests(self.columns(body, keys), test, null)

    def scalar_tests(self, columns: Columns, test: Test, null: str = "") -> Iterator[str]:
        """Yield the alternatives of a test of scalars; `null` is that of null."""
        match test:
            case Equals(given):
                yield null or self.compared(columns, "=", given)
            case OneOf(lists):
                for given in lists:
                    yield null if given.kind == "null" else self.among(columns, given)
            case Compare(operator, given):
                compared = self.compared(columns, SIGNS[operator], given)
                is_boolean = given.kind == "boolean"  # false has the lowest rank of booleans
                yield (
                    f"({compared} AND {self.rank(columns)} >= {FALSE})" if is_boolean else compared
                )
            case Matches(given):
                yield self.begins(columns, given)


def open_prefixes(keys: Keys) -> list[Keys]:
    """Return the positions before the end of a path: an array there hides what is missing in it."""
    return path_prefixes(keys)[:-1]


def register(database: Database) -> None:
    """Register with SQLAlchemy how a dialect compiles the elements of orders and of the indexed form."""
    name, ordering, form = database.name, database.ordering, database.indexed_form

    @compiles(SortPart, name)
    def _sort_part(element: SortPart, compiler: Any, **kw: Any) -> str:
        return ordering.part(compiler.process(element.clauses, **kw), element.keys, element.part)

    @compiles(SortValue, name)
    def _sort_value(element: SortValue, compiler: Any, **kw: Any) -> str:
        return ordering.parameter(compiler.process(element.clauses, **kw), element.part)

    @compiles(TypeAt, name)
    def _type_at(element: TypeAt, compiler: Any, **kw: Any) -> str:
        return form.type_at(compiler.process(element.clauses, **kw), element.keys)

    @compiles(ArrayAt, name)
    def _array_at(element: ArrayAt, compiler: Any, **kw: Any) -> str:
        body = compiler.process(element.clauses, **kw)
        return form.array_at(body, element.keys, null_safe=element.null_safe)

    @compiles(IndexedTest, name)
    def _indexed_test(element: IndexedTest, compiler: Any, **kw: Any) -> str:
        body, *parameters = (compiler.process(clause, **kw) for clause in element.clauses)
        return form.test(body, element.field.path.keys, element.test(parameters, form.width))

    @compiles(PartialTest, name)
    def _partial_test(element: PartialTest, compiler: Any, **kw: Any) -> str:
        body, field = compiler.process(element.clauses, **kw), element.field
        return form.partial_test(body, field.path.keys, field.test)

    @compiles(IsNot, name)
    def _is_not(element: IsNot, compiler: Any, **kw: Any) -> str:
        return f"(({compiler.process(element.clauses, **kw)}) IS NOT TRUE)"

    @compiles(RenameTable, name)
    def _rename_table(element: RenameTable, compiler: Any, **kw: Any) -> str:  # noqa: ARG001
        table = compiler.preparer.format_table(element.table)
        return f"ALTER TABLE {table} RENAME TO {compiler.preparer.quote(element.new)}"
