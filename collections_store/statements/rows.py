"""What rows of a collection's table are made of, and which of them have expired."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ..collection_options import CollectionOptions
from ..expressions import ListOf


def body_text(table: sa.Table) -> sa.ColumnElement[str]:
    """Return the body as text."""
    kept: Any = table.c.body.type
    text: sa.ColumnElement[str] = kept.text(
        sa.type_coerce(table.c.body, sa.types.NULLTYPE), sa.Text()
    )
    return text


def body_from(table: sa.Table, text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return JSON text as the table keeps a body."""
    kept: Any = table.c.body.type
    body: sa.ColumnElement[Any] = kept.from_text(text)
    return body


def document_columns(table: sa.Table) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns of a document."""
    c = table.c
    return (c.id, body_text(table), c.version, c.created_at, c.updated_at, c.expires_at)


def deleted_columns(
    table: sa.Table, options: CollectionOptions
) -> tuple[sa.ColumnElement[Any], ...]:
    """Return what is told of rows that are deleted: id, version, and the body, or null where it is not
    kept.
    """
    kept = options.feed is not None and options.feed.bodies == "both"
    return (table.c.id, table.c.version, body_text(table) if kept else sa.null())


def is_live(table: sa.Table) -> sa.ColumnElement[bool]:
    """A row has not expired at `:now`."""
    expires: Any = sa.type_coerce(table.c.expires_at, sa.BigInteger)
    return sa.or_(expires.is_(None), expires > number("now"))


def is_expired(table: sa.Table) -> sa.ColumnElement[bool]:
    """A row has expired at `:now`."""
    expires: Any = sa.type_coerce(table.c.expires_at, sa.BigInteger)
    return sa.and_(expires.is_not(None), expires <= number("now"))


def listed(**types: type[sa.types.TypeEngine[Any]]) -> Any:
    """Return rows whose columns are parameters of their names, lists of values of these types; and, as
    `place`, their order. For databases that take lists.
    """
    lists = [ListOf(name, texts=kind is sa.Text) for name, kind in types.items()]
    valued = sa.func.unnest(*lists).table_valued(*types, with_ordinality="place")
    return valued.render_derived(name="given")


def number(name: str) -> sa.BindParameter[Any]:
    """Return a parameter that is a whole number."""
    return sa.bindparam(name, type_=sa.BigInteger)
