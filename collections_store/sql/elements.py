"""The SQL elements SQLAlchemy lacks; `dialects` says how each database spells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.functions import FunctionElement

from ..query.conditions import Condition, Field, Kind, Test
from ..query.shapes import test_with_sql


class BodyText(FunctionElement[Any]):
    """A stored body as JSON text, however the database keeps it; `type` says what becomes of the
    text.
    """

    inherit_cache = True

    def __init__(self, body: sa.ColumnElement[Any], type: sa.types.TypeEngine[Any]) -> None:
        self.type = type
        super().__init__(body)


class BodyFromText(FunctionElement[Any]):
    """JSON text as the database keeps a body."""

    inherit_cache = True
    type = sa.Text()

    def __init__(self, text: sa.ColumnElement[Any]) -> None:
        super().__init__(text)


class JsonbText(BodyText):
    """The same, of a body that SQLite keeps as JSONB where its collection says so."""

    inherit_cache = True


class JsonbFromText(BodyFromText):
    """The same, where SQLite shall keep JSONB."""

    inherit_cache = True


class AnyOf(FunctionElement[bool]):
    """`column` is one of the texts of a single list parameter, so that a list of any length is one
    statement.
    """

    inherit_cache = True
    type = sa.Boolean()

    def __init__(self, column: sa.ColumnElement[str], texts: sa.BindParameter[Any]) -> None:
        super().__init__(column, texts)


class ListOf(FunctionElement[Any]):
    """The parameter `name`: a list of texts, or of whole numbers, which is not empty."""

    inherit_cache = False

    def __init__(self, name: str, *, texts: bool) -> None:
        super().__init__()
        self.parameter, self.texts = name, texts


class BodyMatches(FunctionElement[bool]):
    """A condition on nothing but `body` holds; its values are the `parameters`, in their order.

    `matcher` holds the exact meaning. What the parameters are differs by database: see
    `Database.parameters`.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(
        self,
        body: sa.ColumnElement[Any],
        condition: Condition,
        parameters: Sequence[sa.BindParameter[Any]],
    ) -> None:
        super().__init__(body, *parameters)
        self.condition = condition


class IsNot(FunctionElement[bool]):
    """`condition` is false or unknown."""

    inherit_cache = True
    type = sa.Boolean()

    def __init__(self, condition: sa.ColumnElement[bool]) -> None:
        super().__init__(condition)


class SortPart(FunctionElement[Any]):
    """A column by which a field of the body is ordered: one of `Database.SORT_PARTS`, never null."""

    inherit_cache = False
    type = sa.types.NULLTYPE

    def __init__(self, body: sa.ColumnElement[Any], keys: tuple[str, ...], part: str) -> None:
        super().__init__(body)
        self.keys, self.part = keys, part


class SortValue(FunctionElement[Any]):
    """A parameter that a `SortPart` is compared with."""

    inherit_cache = False
    type = sa.types.NULLTYPE

    def __init__(self, value: sa.ColumnElement[Any], part: str) -> None:
        super().__init__(value)
        self.part = part


class ArrayAt(FunctionElement[bool]):
    """An array is at the end of a path in the body. `apart`: in other words, so that no database takes
    the condition of a partial index for one that this one implies.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(
        self, body: sa.ColumnElement[Any], keys: tuple[str, ...], *, apart: bool = False
    ) -> None:
        super().__init__(body)
        self.keys, self.apart = keys, apart


class TypeAt(FunctionElement[str]):
    """The database's name of the type of what is at the end of a path in the body."""

    inherit_cache = False
    type = sa.Text()

    def __init__(self, body: sa.ColumnElement[Any], keys: tuple[str, ...]) -> None:
        super().__init__(body)
        self.keys = keys


class ArrayTest(FunctionElement[bool]):
    """Some scalar that a path reaches passes a test, by way of the index of arrays `physical`. The
    values of the test are the `parameters`.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(
        self,
        seq: sa.ColumnElement[int],
        field: Field,
        parameters: Sequence[sa.BindParameter[Any]],
        physical: str,
    ) -> None:
        super().__init__(seq, *parameters)
        self.field, self.physical = field, physical

    def in_words(self, parameters: Sequence[str], width: Callable[[Kind], int]) -> Test:
        """Return the test with the parameters, `width` of them for a kind of value, in its slots."""
        return _in_words(self.field, parameters, width)


class PlainTest(FunctionElement[bool]):
    """A condition on a field holds, if no array is on the way to it: in words that an index over the
    field's `SortPart`s serves. Its values are the `parameters`.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(
        self,
        body: sa.ColumnElement[Any],
        field: Field,
        parameters: Sequence[sa.BindParameter[Any]],
    ) -> None:
        super().__init__(body, *parameters)
        self.field = field

    def in_words(self, parameters: Sequence[str], width: Callable[[Kind], int]) -> Test:
        """Return the test with the parameters, `width` of them for a kind of value, in its slots."""
        return _in_words(self.field, parameters, width)


class PartialTest(FunctionElement[bool]):
    """A condition on a field holds, or an array is on the way to it: in words that the condition of an
    index may have, with its values as literals.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(self, body: sa.ColumnElement[Any], field: Field) -> None:
        super().__init__(body)
        self.field = field


class ValueText(FunctionElement[Any]):
    """The value of a field that no array is on the way to, as JSON text; null where it is missing."""

    inherit_cache = False
    type = sa.types.NULLTYPE

    def __init__(self, body: sa.ColumnElement[Any], keys: tuple[str, ...]) -> None:
        super().__init__(body)
        self.keys = keys


class HasInteger(FunctionElement[bool]):
    """An integer of at most 18 digits is at the end of keys that only objects have."""

    inherit_cache = False
    type = sa.Boolean()

    def __init__(self, body: sa.ColumnElement[Any], keys: tuple[str, ...]) -> None:
        super().__init__(body)
        self.keys = keys


class Increased(FunctionElement[Any]):
    """The body with that integer increased by a parameter of at most 18 digits."""

    inherit_cache = False
    type = sa.types.NULLTYPE

    def __init__(
        self, body: sa.ColumnElement[Any], keys: tuple[str, ...], by: sa.ColumnElement[int]
    ) -> None:
        super().__init__(body, by)
        self.keys = keys


class TextFits(FunctionElement[bool]):
    """The text of the body has at most as many bytes as a parameter says. It may be taken for longer
    than it is, but by white space only.
    """

    inherit_cache = True
    type = sa.Boolean()

    def __init__(self, body: sa.ColumnElement[Any], room: sa.ColumnElement[int]) -> None:
        super().__init__(body, room)


class TableSize(FunctionElement[int]):
    """The bytes a table and its indexes take on the disk."""

    inherit_cache = False
    type = sa.BigInteger()

    def __init__(self, table: sa.Table) -> None:
        super().__init__()
        self.table = table


class RenameTable(sa.schema.ExecutableDDLElement):
    """Give `table` the name `new`."""

    inherit_cache = False

    def __init__(self, table: sa.Table, new: str) -> None:
        self.table, self.new = table, new


def _in_words(field: Field, parameters: Sequence[str], width: Callable[[Kind], int]) -> Test:
    words = iter(parameters)
    return test_with_sql(field.test, lambda slot: tuple(islice(words, width(slot.kind))))
