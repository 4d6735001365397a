"""SQLAlchemy models: the catalogue, and one table per collection.

The catalogue maps names to tables, because SQLite's table names ignore case and PostgreSQL's end at
63 bytes. A table's name holds a number that is never given twice, so a handle that another process
made stale meets "no such table", never another collection's rows.

What rows of a collection's table are made of, and which of them have expired.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from .. import codec
from ..document import microseconds, moment
from ..options import CollectionOptions, Names
from .dialects import named
from .dialects.protocols import Database
from .elements import BodyFromText, BodyText, JsonbFromText, JsonbText, ListOf

REVISION: Final = "0005"
"""The schema these models describe: the newest file of `migrations/versions`."""


class Body(sa.types.TypeDecorator[Any]):
    """A JSON body: text on SQLite, JSONB on PostgreSQL, spelled by `codec` on both.

    `jsonb`: SQLite keeps JSONB, which is a BLOB in the same column.
    """

    impl = sa.JSON
    cache_ok = True

    def __init__(self, *, jsonb: bool = False) -> None:
        super().__init__()
        self.jsonb = jsonb

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Choose the column's type."""
        return dialect.type_descriptor(named(dialect.name).ddl.body_type())

    def bind_processor(self, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        """Encode, with the default rules for what a body may hold."""
        return codec.Codec().encode

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:  # noqa: ARG002
        """Decode."""
        return lambda text: None if text is None else codec.decode(text)

    def bind_expression(self, bindparam: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
        """Take text."""
        return self.from_text(bindparam)

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Give text."""
        return self.text(column, self)

    def from_text(self, text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return JSON text as the database keeps it."""
        return JsonbFromText(text) if self.jsonb else BodyFromText(text)

    def text(
        self, body: sa.ColumnElement[Any], type: sa.types.TypeEngine[Any]
    ) -> sa.ColumnElement[Any]:
        """Return the text of what is kept; `type` says what becomes of it."""
        return JsonbText(body, type) if self.jsonb else BodyText(body, type)


class UtcMicroseconds(sa.types.TypeDecorator[datetime]):
    """A UTC time, kept as microseconds since 1970: exact, and the same on every database."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:  # noqa: ARG002
        """Encode."""
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Decode."""
        return None if value is None else moment(value)


def now() -> int:
    """Return the microseconds since 1970."""
    return time.time_ns() // 1000


def revision_table(names: Names) -> sa.Table:
    """Return the table that alembic keeps the revision in."""
    return sa.Table(
        names.revision,
        sa.MetaData(schema=names.schema),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{names.revision}_pkc"),
    )


def catalogue_table(names: Names) -> sa.Table:
    """Return the table of collections; `options` is JSON text."""
    return sa.Table(
        names.catalogue,
        sa.MetaData(schema=names.schema),
        sa.Column("number", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column(
            "name",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
            unique=True,
        ),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("created_at", UtcMicroseconds, nullable=False),
        sa.Column("options", sa.Text, nullable=False, server_default="{}"),
        sqlite_autoincrement=True,
    )


def documents_table(
    name: str, names: Names, database: Database, *, jsonb: bool = False
) -> sa.Table:
    """Return a collection's table; `ttl` is how many microseconds an object lives from when it is
    written or touched. `jsonb`: SQLite keeps bodies as JSONB.
    """
    return sa.Table(
        name,
        sa.MetaData(schema=names.schema),
        *database.ddl.document_columns(),
        sa.Column("body", Body(jsonb=jsonb), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, default=1),
        sa.Column("created_at", UtcMicroseconds, nullable=False, default=_utc_now),
        sa.Column(
            "updated_at", UtcMicroseconds, nullable=False, default=_utc_now, onupdate=_utc_now
        ),
        sa.Column("expires_at", UtcMicroseconds),
        sa.Column("ttl", sa.BigInteger),
    )


def feed_table(name: str, names: Names) -> sa.Table:
    """Return the table of a collection's recorded changes, in the order in which they took place."""
    place = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Table(
        name,
        sa.MetaData(schema=names.schema),
        sa.Column("seq", place, sa.Identity(), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("time", UtcMicroseconds, nullable=False),
        sa.Column("before", Body),
        sa.Column("after", Body),
    )


def mapped_class(table: sa.Table, collection: str) -> type[Any]:
    """Return a class that SQLAlchemy's ORM maps to the collection's table.

    The version is the mapper's `version_id_col`: the ORM's own updates count it up and notice those
    of others.
    """
    from sqlalchemy.orm import registry

    model = type(collection, (), {"__doc__": f"An object of the collection {collection}."})
    properties = {"primary_key": [table.c.id], "version_id_col": table.c.version}
    registry(metadata=table.metadata).map_imperatively(model, table, **properties)
    return model


def _utc_now() -> datetime:
    return moment(now())


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
    return sa.or_(expires.is_(None), expires > integer("now"))


def is_expired(table: sa.Table) -> sa.ColumnElement[bool]:
    """A row has expired at `:now`."""
    expires: Any = sa.type_coerce(table.c.expires_at, sa.BigInteger)
    return sa.and_(expires.is_not(None), expires <= integer("now"))


def listed(**types: type[sa.types.TypeEngine[Any]]) -> Any:
    """Return rows whose columns are parameters of their names, lists of values of these types; and, as
    `position`, their order. For databases that take lists.
    """
    lists = [ListOf(name, texts=kind is sa.Text) for name, kind in types.items()]
    valued = sa.func.unnest(*lists).table_valued(*types, with_ordinality="position")
    return valued.render_derived(name="given")


def integer(name: str) -> sa.BindParameter[Any]:
    """Return a parameter that is an integer."""
    return sa.bindparam(name, type_=sa.BigInteger)
