"""Orders and the indexed form of conditions: what a dialect provides, and what is the same on every database.

A field is ordered by columns: the rank of its type, then its value as the database compares it. A condition over these
columns can use an index over them. It is right where no array is on the path to the field: the array guard finds out.
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
    with_sql,
)
from ...query.sort import Key
from ..elements import Keys

Columns = TypeVar("Columns")

SIGNS: Final = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
"""SQL's comparisons."""


class Ordering(Protocol):
    """Columns by which a field of the body is ordered, each a `SortPart`, never null.

    They order all values that are not `is_unorderable` as MongoDB does, where no array is on the path.
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
        """Return which parts differ among keys that equal `key` in the parts before."""

    def is_unorderable(self, key: Key) -> bool:
        """Return whether the parts do not order such keys: objects, and arrays within arrays."""
        return isinstance(key[1], dict | list)

    def is_truncated(self, key: Key) -> bool:
        """Return whether the parts hold only the beginning of a key, so that another may have the same."""
        return False

    def part(self, body: str, keys: Keys, name: str) -> str:
        """Render a `SortPart`."""

    def parameter(self, parameter: str, name: str) -> str:
        """Render a `SortValue`."""
        return parameter


class IndexedForm(Protocol[Columns]):
    """The indexed form of conditions over a rank and values, which a dialect renders."""

    ordering: Ordering
    widths: Mapping[Kind, int]
    """Parameters of a value, where that is not one."""
    constant: Mapping[Kind, Sequence[str]]
    """Parts in which all values are the same that compare with one of a kind."""

    def values(self, value: Value) -> Sequence[Any]:
        """Return the parameters of a value."""

    def literal(self, value: Any) -> str:
        """Return an SQL literal."""

    def columns(self, body: str, keys: Keys) -> Columns:
        """Return what the methods below need of a field's columns."""

    def compared(self, columns: Columns, sign: str, given: Operand) -> str:
        """Render a comparison with a scalar that is not null; a boolean is compared by its rank."""

    def among(self, columns: Columns, given: Operand) -> str:
        """Render a test for one of the scalars of a list."""

    def begins(self, columns: Columns, given: Operand) -> str:
        """Render a test for a string with a prefix."""

    def null(self, body: str, keys: Keys) -> Iterable[str]:
        """Render that a field is null or missing: the columns, and that no array before the end of the path hides it."""

    def exists(self, body: str, keys: Keys) -> str:
        """Render that a field exists."""

    def types(self, body: str, keys: Keys, names: Sequence[str]) -> Iterable[str]:
        """Render that a field is of a type, an alternative for one or several."""

    def type_at(self, body: str, keys: Keys) -> str:
        """Render `TypeAt`."""

    def array_at(self, body: str, keys: Keys, *, null_safe: bool = False) -> str:
        """Render `ArrayAt`."""

    def constant_parts(self, test: Test) -> Sequence[str]:
        """Return the parts of `ordering` that are the same for all values that pass a test."""
        match test:
            case Equals():
                return self.ordering.parts
            case Compare(_, given) | Matches(given):
                return self.constant.get(given.kind, ())
        return ()

    def test(self, body: str, keys: Keys, test: Test) -> str:
        """Render an `IndexedTest`; the slots of the test hold the SQL of its parameters."""
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
        """Render a `PartialTest`."""
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
                yield self.compared(columns, SIGNS[operator], given)
            case Matches(given):
                yield self.begins(columns, given)
