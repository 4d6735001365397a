"""Statements that are compiled on first use."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa

from .dialects.protocols import Database

ONE: Final[sa.ColumnElement[Any]] = sa.literal_column("1")
ZERO: Final[sa.ColumnElement[Any]] = sa.literal_column("0")
"""As an offset: SQLAlchemy binds one of its own where SQLite has a limit alone."""
NEVER: Final[sa.ColumnElement[bool]] = sa.literal_column("(0 = 1)", sa.Boolean)
"""A false condition. SQLAlchemy and SQLite drop what is joined to a constant FALSE or 0, also the condition of the partial
index of a hint; SQLite then refuses the hint."""
OBJECT: Final[sa.ColumnElement[Any]] = sa.literal_column("'object'")
"""Both databases' name of the type."""
TEMPLATE: Final = f"<{secrets.token_hex(8)}>"
"""The table of templates; every dialect quotes such a name. It is random, for paths of users are in templates."""

GUARD: Final = f"guard_{secrets.token_hex(8)}"
"""The place of the array guard in a statement, to compile statements with different guards once."""


def compiled(statement: Any, database: Database, *, is_row: bool = False) -> str:
    """Return the statement's text for the database's driver. `is_row`: the parameters are those of
    `StatementCompiler.row`.
    """
    compiler = database.compiler
    return str(statement.compile(dialect=compiler.row_dialect if is_row else compiler.dialect))


def on_table(template: str, table: sa.Table, database: Database) -> str:
    """Return a template's text over a table."""
    preparer = database.compiler.dialect.identifier_preparer
    return template.replace(preparer.quote(TEMPLATE), preparer.format_table(table))


class Statement:
    """A statement of a class with a `database`. A function builds the statement, and the first use compiles the text.
    A `template`, an instance over the table `TEMPLATE`, compiles once for all tables. Compiling takes 0.3 ms.
    """

    def __init__(
        self,
        build: Callable[[Any], sa.Executable | sa.schema.ExecutableDDLElement],
        *,
        is_row: bool = False,
    ) -> None:
        self._build, self._is_row = build, is_row

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, statements: Any, owner: type) -> str:
        template = getattr(statements, "template", None)
        if template is None:
            text = compiled(self._build(statements), statements.database, is_row=self._is_row)
        else:
            text = on_table(getattr(template, self._name), statements.table, statements.database)
        statements.__dict__[self._name] = text  # found there from now on
        return text
