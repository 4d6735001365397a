"""The SQL elements SQLAlchemy lacks; `dialects` says how each database spells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.functions import FunctionElement

from .filter import Condition


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


class AnyOf(FunctionElement[bool]):
    """`column` is one of the texts of a single list parameter, so that a list of any length is one
    statement.
    """

    inherit_cache = True
    type = sa.Boolean()

    def __init__(self, column: sa.ColumnElement[str], texts: sa.BindParameter[Any]) -> None:
        super().__init__(column, texts)


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
