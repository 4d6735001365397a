"""The indexed form of conditions, as far as it is the same on every database.

A field is ordered by columns: the rank of its type, then its value as the database compares it. A condition over these
columns can use an index over them. It is right where no array is on the path to the field: the array guard finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
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
    takes_missing,
    with_sql,
)
from ...query.path import path_prefixes
from ...query.sort import FALSE
from ..elements import (
    ArrayAt,
    IndexedTest,
    IsNot,
    Keys,
    PartialTest,
    SortPart,
    SortValue,
    TypeAt,
)
from .protocols import SIGNS, Database, IndexedForm, Ordering, Renderer

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
        alternatives: Iterable[str]
        match test:
            case Exists():
                alternatives = [self.exists(body, keys)]
            case HasType(types):
                alternatives = self.types(body, keys, types)
            case _:
                null = f"({' AND '.join(self.null(body, keys))})" if takes_missing(test) else ""
                alternatives = self.scalar_tests(self.columns(body, keys), test, null)
        return f"({' OR '.join(alternatives)})"

    def partial_test(self, body: str, keys: Keys, test: Test) -> str:
        literals = with_sql(test, lambda value: tuple(map(self.literal, self.values(value))))
        return self.test(body, keys, literals)

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
    """Register with SQLAlchemy how a dialect renders the elements, those of orders and of the indexed form included."""
    ordering, form = database.ordering, database.indexed_form
    shared: dict[type[Any], Renderer] = {
        SortPart: lambda sort, body: ordering.part(body, sort.keys, sort.part),
        SortValue: lambda sort, value: ordering.parameter(value, sort.part),
        TypeAt: lambda at, body: form.type_at(body, at.keys),
        ArrayAt: lambda at, body: form.array_at(body, at.keys, null_safe=at.null_safe),
        IndexedTest: lambda indexed, body, *parameters: form.test(
            body, indexed.field.path.keys, indexed.test(parameters, form.width)
        ),
        PartialTest: lambda limit, body: form.partial_test(
            body, limit.field.path.keys, limit.field.test
        ),
        IsNot: lambda _, condition: f"(({condition}) IS NOT TRUE)",
    }
    for kind, render in {**shared, **database.compiler.elements}.items():
        compiles(kind, database.name)(partial(_rendered, render))


def _rendered(render: Renderer, element: Any, compiler: Any, **kw: Any) -> str:
    return render(element, *(compiler.process(clause, **kw) for clause in element.clauses))
