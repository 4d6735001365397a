"""SQL elements that SQLAlchemy lacks; `dialects` compiles them for each database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.functions import FunctionElement

from ..query.conditions import Condition, Field, Kind, Test, test_with_sql

Clause = sa.ColumnElement[Any]
Keys = tuple[str, ...]


class BodyText(FunctionElement[Any]):
    """A stored body as JSON text; `type` decides how the text is read."""

    inherit_cache = True

    def __init__(self, body: Clause, type: sa.types.TypeEngine[Any]) -> None:
        self.type = type
        super().__init__(body)


class BodyFromText(FunctionElement[Any]):
    """JSON text as the database stores a body."""

    inherit_cache = True
    type = sa.Text()


class JsonbText(BodyText):
    """`BodyText` of a collection whose bodies SQLite stores as JSONB."""

    inherit_cache = True


class JsonbFromText(BodyFromText):
    """`BodyFromText` of such a collection."""

    inherit_cache = True


class AnyOf(FunctionElement[bool]):
    """A column is one of the strings of a list, which is a single parameter: a list of any length is one statement."""

    inherit_cache = True
    type = sa.Boolean()


class ListOf(FunctionElement[Any]):
    """The parameter `name`: a list of strings or of integers that is not empty."""

    inherit_cache = False

    def __init__(self, name: str, *, texts: bool) -> None:
        super().__init__()
        self.parameter, self.texts = name, texts


class BodyMatches(FunctionElement[bool]):
    """The exact form of a condition on a body; `matcher` is the reference for its meaning.

    What the parameters are is up to the dialect: see `Filters.binding`.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(
        self, body: Clause, condition: Condition, parameters: Sequence[sa.BindParameter[Any]]
    ) -> None:
        super().__init__(body, *parameters)
        self.condition = condition


class IsNot(FunctionElement[bool]):
    """A condition is false or unknown: NOT alone leaves NULL unknown."""

    inherit_cache = True
    type = sa.Boolean()


class SortPart(FunctionElement[Any]):
    """A column by which a field of the body is ordered: one of `Ordering.parts`, never null."""

    inherit_cache = False
    type = sa.types.NULLTYPE

    def __init__(self, body: Clause, keys: Keys, part: str) -> None:
        super().__init__(body)
        self.keys, self.part = keys, part


class SortValue(FunctionElement[Any]):
    """A parameter that a `SortPart` is compared with."""

    inherit_cache = False
    type = sa.types.NULLTYPE

    def __init__(self, value: Clause, part: str) -> None:
        super().__init__(value)
        self.part = part


class _AtPath(FunctionElement[Any]):
    """Something about the value at the end of keys that only objects have."""

    inherit_cache = False
    type: sa.types.TypeEngine[Any] = sa.types.NULLTYPE

    def __init__(self, body: Clause, keys: Keys, *others: Clause) -> None:
        super().__init__(body, *others)
        self.keys = keys


class ArrayAt(_AtPath):
    """An array is at the end of a path.

    `null_safe`: compare with IS (NOT DISTINCT FROM) in place of =, so that no planner takes the condition of one partial
    index to be implied by another that holds the same test.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(self, body: Clause, keys: Keys, *, null_safe: bool = False) -> None:
        super().__init__(body, keys)
        self.null_safe = null_safe


class TypeAt(_AtPath):
    """The database's name of the type at the end of a path."""

    inherit_cache = False
    type = sa.Text()


class ValueText(_AtPath):
    """The value at the end of a path as JSON text; null where it is missing."""

    inherit_cache = False


class HasInteger(_AtPath):
    """An integer of at most 18 digits is at the end of a path."""

    inherit_cache = False
    type = sa.Boolean()


class Increased(_AtPath):
    """The body with that integer increased by a parameter of at most 18 digits."""

    inherit_cache = False


class _FieldTest(FunctionElement[bool]):
    """A test of a field with parameters."""

    inherit_cache = False
    type = sa.Boolean()

    def __init__(
        self, subject: Clause, field: Field, parameters: Sequence[sa.BindParameter[Any]]
    ) -> None:
        super().__init__(subject, *parameters)
        self.field = field

    def test(self, parameters: Sequence[str], width: Callable[[Kind], int]) -> Test:
        """Return the test with the parameters, `width` of them for a kind of value, in its slots."""
        sql = iter(parameters)
        return test_with_sql(self.field.test, lambda slot: tuple(islice(sql, width(slot.kind))))


class IndexedTest(_FieldTest):
    """The indexed form of a condition on a field: over its `SortPart`s, right where no array is on the path."""

    inherit_cache = False


class ArrayTest(_FieldTest):
    """Some scalar that a path reaches passes a test; the index of arrays `physical` has them."""

    inherit_cache = False

    def __init__(
        self,
        seq: Clause,
        field: Field,
        parameters: Sequence[sa.BindParameter[Any]],
        physical: str,
    ) -> None:
        super().__init__(seq, field, parameters)
        self.physical = physical


class PartialTest(FunctionElement[bool]):
    """A condition of a partial index on a field: its indexed form, with literals."""

    inherit_cache = False
    type = sa.Boolean()

    def __init__(self, body: Clause, field: Field) -> None:
        super().__init__(body)
        self.field = field


class TextFits(FunctionElement[bool]):
    """The text of a body has at most as many bytes as a parameter. It may be counted longer by white space."""

    inherit_cache = True
    type = sa.Boolean()


class TableSize(FunctionElement[int]):
    """The bytes of a table and its indexes on disk."""

    inherit_cache = False
    type = sa.BigInteger()

    def __init__(self, table: sa.Table) -> None:
        super().__init__()
        self.table = table


class RenameTable(sa.schema.ExecutableDDLElement):
    """Rename `table` to `new`."""

    inherit_cache = False

    def __init__(self, table: sa.Table, new: str) -> None:
        self.table, self.new = table, new
