"""The tables: the catalogue, and a table per collection.

The catalogue maps names to tables, because SQLite's table names ignore case and PostgreSQL's end at 63 bytes. A table's
name holds a number that is never used twice: a handle made stale by another process meets "no such table", never
another collection's rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from .. import codec
from ..document import microseconds, moment, now
from ..options import Feed, Names
from .dialects import named
from .dialects.protocols import Database
from .elements import (
    BodyFromText,
    BodyText,
    JsonbFromText,
    JsonbText,
    KeyedBodyFromText,
    KeysFromText,
    ListOf,
)

REVISION: Final = "0005"
"""The schema of these tables: the newest file of `migrations/versions`."""


KEYS: Final = "keys"
"""The key in a table of the column of `sql.keys`, whose name depends on the indexes."""


class Body(sa.types.TypeDecorator[Any]):
    """A JSON body: text on SQLite, JSONB on PostgreSQL; `codec` encodes it for both.

    `jsonb`: SQLite stores JSONB, a BLOB in the same column.
    """

    impl = sa.JSON
    cache_ok = True

    def __init__(self, *, jsonb: bool = False) -> None:
        super().__init__()
        self.jsonb = jsonb

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return dialect.type_descriptor(named(dialect.name).ddl.body_type)

    def bind_processor(self, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        return codec.Codec().encode

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:  # noqa: ARG002
        return lambda text: None if text is None else codec.decode(text)

    def bind_expression(self, bindparam: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
        return self.from_text(bindparam)

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return self.text(column, self)

    def from_text(self, text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return JSON text in the form stored by the database."""
        return JsonbFromText(text) if self.jsonb else BodyFromText(text)

    def text(
        self, body: sa.ColumnElement[Any], type: sa.types.TypeEngine[Any]
    ) -> sa.ColumnElement[Any]:
        """Return the text of a stored body; `type` decides how the text is read."""
        return JsonbText(body, type) if self.jsonb else BodyText(body, type)


class UtcMicroseconds(sa.types.TypeDecorator[datetime]):
    """A UTC time as microseconds since 1970: exact, and the same on every database."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else moment(value)


def _utc_now() -> datetime:
    return moment(now())


def revision_table(names: Names) -> sa.Table:
    """Return alembic's table of the revision."""
    return sa.Table(
        names.revision,
        sa.MetaData(schema=names.schema),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{names.revision}_pkc"),
    )


def catalogue_table(names: Names, database: Database) -> sa.Table:
    """Return the table of collections; `options` is JSON text."""
    return sa.Table(
        names.catalogue,
        sa.MetaData(schema=names.schema),
        sa.Column("number", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("name", database.ddl.name_type, nullable=False, unique=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("created_at", UtcMicroseconds, nullable=False),
        sa.Column("options", sa.Text, nullable=False, server_default="{}"),
        **database.ddl.serial_options,
    )


def identity_table(names: Names) -> sa.Table:
    """Return the table of the database's identity: a row, 16 hexadecimal digits."""
    identity = sa.Column("identity", sa.Text, primary_key=True)
    return sa.Table(names.identity, sa.MetaData(schema=names.schema), identity)


def checksums_table(names: Names) -> sa.Table:
    """Return the table of a backup's checksums: of each collection and of the collection's documents."""
    return sa.Table(
        names.checksums,
        sa.MetaData(schema=names.schema),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("entry", sa.Text, nullable=False),
        sa.Column("documents", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
    )


def documents_table(
    name: str, names: Names, database: Database, *, jsonb: bool = False, keys: str = ""
) -> sa.Table:
    """Return a collection's table; `ttl` is the time to live in microseconds from a write or a touch. `keys`: the
    column of `sql.keys`.
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
        *([sa.Column(keys, database.ddl.body_type, key=KEYS)] if keys else ()),
    )


def feed_table(name: str, names: Names, database: Database) -> sa.Table:
    """Return the table of a collection's recorded changes, in order."""
    return sa.Table(
        name,
        sa.MetaData(schema=names.schema),
        sa.Column("seq", database.ddl.serial_type, sa.Identity(), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("time", UtcMicroseconds, nullable=False),
        sa.Column("before", Body),
        sa.Column("after", Body),
    )


def mapped_class(table: sa.Table, collection: str) -> type[Any]:
    """Return a class that SQLAlchemy's ORM maps to the collection's table.

    The version is the mapper's `version_id_col`: the ORM increments the version and detects concurrent updates.
    """
    from sqlalchemy.orm import registry

    model = type(collection, (), {"__doc__": f"A document of the collection {collection}."})
    properties = {"primary_key": [table.c.id], "version_id_col": table.c.version}
    registry(metadata=table.metadata).map_imperatively(model, table, **properties)
    return model


def body_text(table: sa.FromClause) -> sa.ColumnElement[str]:
    """Return the body as text."""
    body: Body = table.c.body.type  # type: ignore[assignment]
    return body.text(sa.type_coerce(table.c.body, sa.types.NULLTYPE), sa.Text())


def body_from(table: sa.Table, text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return JSON text as the table stores a body."""
    body: Body = table.c.body.type  # type: ignore[assignment]
    return body.from_text(text)


def stored_from(table: sa.Table, text: sa.ColumnElement[Any]) -> dict[str, sa.ColumnElement[Any]]:
    """Return the columns that a written text sets: the body, and the keys where the table has them."""
    if KEYS in table.c:
        return {"body": KeyedBodyFromText(text), KEYS: KeysFromText(text)}
    return {"body": body_from(table, text)}


def keys_of(table: sa.Table) -> sa.ColumnElement[Any]:
    """Return what the keys of an index under a collation are made of: stored keys, or the body."""
    return table.c.get(KEYS, table.c.body)


def document_columns(table: sa.Table) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns of a document."""
    c = table.c
    return (c.id, body_text(table), c.version, c.created_at, c.updated_at, c.expires_at)


def deleted_columns(table: sa.Table, feed: Feed) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns of deleted rows: id, version, and the body, or null where changes do not record the body."""
    return (table.c.id, table.c.version, body_text(table) if feed.bodies == "both" else sa.null())


def is_live(table: sa.Table, time: sa.ColumnElement[Any] | None = None) -> sa.ColumnElement[bool]:
    """Return the test that a row has not expired at a `time`, by default `:now`."""
    expires: Any = sa.type_coerce(table.c.expires_at, sa.BigInteger)
    return sa.or_(expires.is_(None), expires > (integer("now") if time is None else time))


def is_expired(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the test that a row has expired at `:now`."""
    expires: Any = sa.type_coerce(table.c.expires_at, sa.BigInteger)
    return sa.and_(expires.is_not(None), expires <= integer("now"))


def listed(**types: type[sa.types.TypeEngine[Any]]) -> Any:
    """Return rows with the columns of `types` and `position`, the order of the rows. Each column is a parameter of the
    same name: a list of values. For databases that take lists.
    """
    lists = [ListOf(name, texts=kind is sa.Text) for name, kind in types.items()]
    valued = sa.func.unnest(*lists).table_valued(*types, with_ordinality="position")
    return valued.render_derived(name="given")


def string(name: str) -> sa.BindParameter[Any]:
    """Return a string parameter."""
    return sa.bindparam(name, type_=sa.Text)


def integer(name: str) -> sa.BindParameter[Any]:
    """Return an integer parameter."""
    return sa.bindparam(name, type_=sa.BigInteger)
