"""SQLAlchemy models: the catalogue, and one table per collection.

The catalogue maps names to tables, because SQLite's table names ignore case and PostgreSQL's end at
63 bytes. A table's name holds a number that is never given twice, so a handle that another process
made stale meets "no such table", never another collection's rows.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from . import codec
from .dialects import Database, named
from .document import microseconds, moment
from .errors import InvalidOption
from .expressions import BodyFromText, BodyText, JsonbFromText, JsonbText

REVISION: Final = "0004"
"""The schema these models describe: the newest file of `migrations/versions`."""

_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,19}", re.ASCII)
_SCHEMA: Final = re.compile(r"[ -$&-~]{1,63}", re.ASCII)
_SLUG_LENGTH: Final = 20


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
        return dialect.type_descriptor(named(dialect.name).body_type())

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


class Moment(sa.types.TypeDecorator[datetime]):
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


@dataclass(frozen=True, slots=True)
class Names:
    """What the tables of one store are called."""

    prefix: str = "cs_"
    schema: str | None = None

    def __post_init__(self) -> None:
        prefix: Any = self.prefix
        schema: Any = self.schema
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise InvalidOption(
                "prefix", f"{prefix!r} must be 1 to 20 of a-z, 0-9 and _, a letter first"
            )
        if re.search("_[0-9]+(_|$)", prefix):  # cs_1_collections may be a collection's, of cs_
            raise InvalidOption(
                "prefix", f"{prefix!r} may name another prefix's tables: no number after a _"
            )
        if schema is not None and not (isinstance(schema, str) and _SCHEMA.fullmatch(schema)):
            raise InvalidOption("schema", f"{schema!r} must be 1 to 63 ASCII characters without %")

    @property
    def revision(self) -> str:
        """Name the table that holds the schema's revision (alembic's version table)."""
        return f"{self.prefix}revision"

    @property
    def catalogue(self) -> str:
        """Name the table of collections."""
        return f"{self.prefix}collections"

    def documents(self, number: int, collection: str) -> str:
        """Name a collection's table."""
        return f"{self.prefix}{number}_{collection[:_SLUG_LENGTH].lower()}"

    def index(self, table: str, number: int) -> str:
        """Name an index of a collection's table; no table has such a name."""
        return f"{self.prefix}{self._number(table)}$i{number}"

    def expiry_index(self, table: str) -> str:
        """Name the index of those objects of a collection's table that expire."""
        return f"{self.prefix}{self._number(table)}$x"

    def feed(self, table: str) -> str:
        """Name the table of the recorded changes of a collection's table; no collection has it."""
        return f"{self.prefix}{self._number(table)}$changes"

    def _number(self, table: str) -> str:
        [number] = re.findall("^[0-9]+", table.removeprefix(self.prefix))
        return str(number)


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
        sa.Column("created_at", Moment, nullable=False),
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
        *database.document_columns(),
        sa.Column("body", Body(jsonb=jsonb), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, default=1),
        sa.Column("created_at", Moment, nullable=False, default=_utc_now),
        sa.Column("updated_at", Moment, nullable=False, default=_utc_now, onupdate=_utc_now),
        sa.Column("expires_at", Moment),
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
        sa.Column("time", Moment, nullable=False),
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
