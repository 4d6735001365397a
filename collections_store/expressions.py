"""The SQL elements SQLAlchemy lacks; `dialects` says how each database spells them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.functions import FunctionElement

from .filter import Kind
from .path import Path


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


class FieldEquals(FunctionElement[bool]):
    """Some value that `path` reaches in `body` equals the parameter `value`, a JSON `kind`.

    `matcher` holds the exact meaning. What the parameter must be differs by database: see
    `Database.probe`.
    """

    inherit_cache = False
    type = sa.Boolean()

    def __init__(
        self, body: sa.ColumnElement[Any], path: Path, kind: Kind, value: sa.BindParameter[Any]
    ) -> None:
        super().__init__(body, value)
        self.path, self.kind = path, kind


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
