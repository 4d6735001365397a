"""Orders and the indexed form of conditions: the protocols of a dialect, and the code shared by all databases.

Columns order a field: the rank of the type, then the value as the database compares values. An index over these columns
can serve a condition over these columns. The condition is right if no array is on the path to the field; the array
guard reports arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

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
)
from ...query.shapes import with_sql
from ...query.sort import Key
from ..elements import Keys

Columns = TypeVar("Columns")

SIGNS: Final = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
"""SQL's comparisons."""


class Ordering(Protocol):
    """Columns that order a field of the body, each a `SortPart`, never null.

    If no array is on the path, the columns order all values as MongoDB does, except `is_unorderable` values.
    """

    parts: tuple[str, ...]

    def index_parts(self, *, unique: bool) -> Sequence[str]:
        """Return the columns of a field in an index."""
        return self.parts

    def can_order(self, keys: Keys) -> bool:
        """Return whether a `SortPart` can address these keys."""
        return True

    def values(self, key: Key) -> Sequence[Any]:
        """Return a key as values of the `parts`."""

    def varies(self, key: Key) -> Sequence[bool]:
        """Return for each part whether keys with equal parts before can differ in the part."""

    def is_unorderable(self, key: Key) -> bool:
        """Return whether the parts do not order such keys: objects, and arrays within arrays."""
        return isinstance(key[1], dict | list)

    def is_truncated(self, key: Key) -> bool:
        """Return whether the parts hold only the beginning of a key: different keys may have equal parts."""
        return False

    def part(self, body: str, keys: Keys, name: str) -> str:
        """Render a `SortPart`."""

    def parameter(self, parameter: str, name: str) -> str:
        """Render a `SortValue`."""
        return parameter


class IndexedForm(Protocol[Columns]):
    """The indexed form of conditions over a rank and values; a dialect renders the form."""

    ordering: Ordering
    widths: Mapping[Kind, int]
    """Parameters of a value, where that is not one."""
    constant: Mapping[Kind, Sequence[str]]
    """Parts in which all values are the same that compare with one of a kind."""

    as_they_are: frozenset[Kind]
    """The kinds whose single parameter is the value itself."""
    ordered: frozenset[Kind]
    """The kinds whose values `ordering` orders exactly."""

    def values(self, value: Value) -> Sequence[Any]:
        """Return the parameters of a value."""

    def literal(self, value: Any) -> str:
        """Return an SQL literal."""

    def columns(self, body: str, keys: Keys) -> Columns:
        """Return a field's columns, as the methods below take these columns."""

    def compared(self, columns: Columns, sign: str, given: Operand) -> str:
        """Render a comparison with a non-null scalar; a boolean is compared by rank."""

    def among(self, columns: Columns, given: Operand) -> str:
        """Render a test for the scalars of a list."""

    def begins(self, columns: Columns, given: Operand) -> str:
        """Render a test for a string with a prefix."""

    def null(self, columns: Columns, body: str, keys: Keys) -> Iterable[str]:
        """Render a test for a null or missing field: tests of the columns, and of no array before the end of the path."""

    def exists(self, body: str, keys: Keys) -> str:
        """Render a test for an existing field."""

    def types(self, body: str, keys: Keys, names: Sequence[str]) -> Iterable[str]:
        """Render a test for a field of these types, as alternatives."""

    def type_at(self, body: str, keys: Keys) -> str:
        """Render `TypeAt`."""

    def array_at(self, body: str, keys: Keys, *, null_safe: bool = False) -> str:
        """Render `ArrayAt`."""

    def constant_parts(self, test: Test) -> Sequence[str]:
        """Return the parts of `ordering` with the same value for all values passing a test."""
        match test:
            case Equals():
                return self.ordering.parts
            case Compare(_, given) | Matches(given):
                return self.constant.get(given.kind, ())
        return ()

    def test(self, body: str, keys: Keys, test: Test) -> str:
        """Render an `IndexedTest`; the slots of the test hold the SQL of the parameters."""
        match test:
            case Exists():
                return f"({self.exists(body, keys)})"
            case HasType(types):
                return f"({' OR '.join(self.types(body, keys, types))})"
        return scalar_test(self, self.columns(body, keys), body, keys, test)

    def partial_test(self, body: str, keys: Keys, test: Test) -> str:
        """Render a `PartialTest`."""
        literals = with_sql(test, lambda value: tuple(map(self.literal, self.values(value))))
        return self.test(body, keys, literals)

    def scalar_tests(self, columns: Columns, test: Test, null: str = "") -> Iterator[str]:
        """Yield the alternatives of a test of scalars; `null` is the alternative for null."""
        match test:
            case Equals(given):
                yield null or self.compared(columns, "=", given)
            case OneOf(lists):
                for given in lists:
                    yield null if given.kind == "null" else self.among(columns, given)
            case Compare(operator, given):
                yield self.compared(columns, SIGNS[operator], given)
            case Matches(given):
                yield self.begins(columns, given)


def scalar_test(
    form: IndexedForm[Columns], columns: Columns, body: str, keys: Keys, test: Test
) -> str:
    """Render a test of scalars over a field's columns; the slots of the test hold the SQL of the parameters."""
    null = f"({' AND '.join(form.null(columns, body, keys))})" if takes_missing(test) else ""
    return f"({' OR '.join(form.scalar_tests(columns, test, null))})"
