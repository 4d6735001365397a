"""Statements of the catalogue, and statements to create and drop the tables and indexes of collections.

An index consists of several database indexes: an index over the fields' `SortPart`s for equality, ranges and orders,
and a small index of the documents with an array at a prefix of a field's path, for each prefix. The columns do not
see into arrays; the array guard reads the small indexes, and costs next to nothing if these are empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import sqlalchemy as sa

from ..options import CollectionOptions, Feed, Names
from ..query.index import Index
from ..query.text_index import TextIndex
from ..query.vector_index import VectorIndex
from .clauses import hidden_condition, metadata_column, partial_condition, sort_part
from .dialects.protocols import Database
from .elements import ArrayAt, Keys, TypeAt
from .feed import FeedStatements, feed_template
from .keys import column_of, entries_of
from .schema import (
    KEYS,
    body_text,
    catalogue_table,
    checksums_table,
    documents_table,
    identity_table,
    integer,
    listed,
    revision_table,
    stored_from,
)
from .select import Statements
from .statement import TEMPLATE, ZERO, Statement, compiled, on_table
from .vectors import VectorStatements
from .versions import has_other_version

NAMES_CACHED: Final = 16


class CatalogueStatements:
    """The statements of a store's own tables."""

    names: Names
    database: Database
    catalogue: sa.Table
    revisions: sa.Table

    def __init__(self, names: Names, database: Database) -> None:
        self.names, self.database = names, database
        self.catalogue, self.revisions = catalogue_table(names, database), revision_table(names)
        self.identities: sa.Table = identity_table(names)
        self.checksums: sa.Table = checksums_table(names)
        self.c: sa.sql.base.ReadOnlyColumnCollection[str, sa.Column[Any]] = self.catalogue.c
        self.is_named: sa.ColumnElement[bool] = self.c.name == _text("name")

    has_table: Statement = Statement(lambda s: s.database.ddl.has_table)
    """Select a row if there is a table `:reference`."""
    misses_rows: Statement = Statement(lambda s: s.database.ddl.misses_rows)
    """Select a row if the transaction may not see all rows of a locked table `:reference`."""
    revision: Statement = Statement(lambda s: sa.select(s.revisions.c.version_num))
    """Select the schema's revision."""
    stamp: Statement = Statement(
        lambda s: sa.insert(s.revisions).values(version_num=_text("revision"))
    )
    """Record the revision `:revision`."""
    resolve: Statement = Statement(
        lambda s: sa.select(s.c.table_name, s.c.options).where(s.is_named)
    )
    """Select the table and the options of the collection `:name`."""
    tables: Statement = Statement(lambda s: sa.select(s.c.table_name).order_by(s.c.name))
    """Select the table of every collection, by name; every revision of the schema has them."""
    listing: Statement = Statement(
        lambda s: sa.select(s.c.name, s.c.table_name, s.c.created_at, s.c.options).order_by(
            s.c.name
        )
    )
    """Select name, table, time and options of every collection, by name."""
    create_identity: Statement = Statement(lambda s: sa.schema.CreateTable(s.identities))
    """Create the table of the identity."""
    insert_identity: Statement = Statement(
        lambda s: sa.insert(s.identities).values(identity=_text("identity"))
    )
    """Insert the identity."""
    identity: Statement = Statement(lambda s: sa.select(s.identities))
    """Select the identity."""
    create_checksums: Statement = Statement(
        lambda s: sa.schema.CreateTable(s.checksums, if_not_exists=True)
    )
    """Create the table of checksums, unless it is there."""
    clear_checksums: Statement = Statement(lambda s: sa.delete(s.checksums))
    """Delete the checksums."""
    insert_checksum: Statement = Statement(
        lambda s: sa.insert(s.checksums).values(
            name=_text("name"),
            entry=_text("entry"),
            documents=integer("documents"),
            sha256=_text("sha256"),
        )
    )
    """Insert the checksums of the collection `:name`."""
    select_checksums: Statement = Statement(lambda s: sa.select(s.checksums))
    """Select the checksums."""
    set_table: Statement = Statement(
        lambda s: (
            sa.update(s.catalogue)
            .where(s.c.number == integer("number"))
            .values(table_name=_text("table"))
        )
    )
    """Set the table of the collection `:number`."""
    lock: Statement = Statement(
        lambda s: sa.update(s.catalogue).where(s.is_named).values(options=s.c.options)
    )
    """Lock the entry of `:name` against changes until the transaction ends."""
    hold: Statement = Statement(lambda s: sa.select(s.c.number).where(s.is_named).with_for_update())
    """Lock the entry of `:name` against other `hold`s, until the transaction ends."""
    set_options: Statement = Statement(
        lambda s: sa.update(s.catalogue).where(s.is_named).values(options=_text("options"))
    )
    """Set the options of `:name`."""

    @Statement
    def insert(self) -> Any:
        """Insert the collection `:name`; returns the number, or nothing if the collection exists."""
        insert = self.database.compiler.insert(self.catalogue).values(
            name=_text("name"),
            table_name=sa.literal_column("''"),
            created_at=integer("now"),
            options=_text("options"),
        )
        return insert.on_conflict_do_nothing(index_elements=[self.c.name]).returning(self.c.number)

    @Statement
    def insert_copy(self) -> Any:
        """Insert `:name` with the entry of `:old`; returns the new number and the table, or nothing if `:old` does not
        exist or `:name` exists.
        """
        c = self.c
        columns = {each.name: each for each in (c.table_name, c.created_at, c.options)}
        name = sa.cast(_text("name"), sa.Text)
        source = sa.select(name, *columns.values()).where(c.name == _text("old"))
        insert = self.database.compiler.insert(self.catalogue).from_select(
            ["name", *columns], source
        )
        inserted = insert.on_conflict_do_nothing(index_elements=[c.name])
        return inserted.returning(c.number, c.table_name)

    @Statement
    def delete(self) -> Any:
        """Delete the entry of `:name`; returns table, options and time of creation."""
        created = sa.type_coerce(self.c.created_at, sa.BigInteger)
        deleted = sa.delete(self.catalogue).where(self.is_named)
        return deleted.returning(self.c.table_name, self.c.options, created)

    def create_all(self) -> Sequence[str]:
        """Create the store's own tables."""
        tables = self.catalogue, self.revisions
        creating = [compiled(sa.schema.CreateTable(each), self.database) for each in tables]
        return [*self.create_schema(), *creating, *self.place_all()]

    def place_all(self) -> Sequence[str]:
        """Place the store's own tables on the servers of a cluster."""
        place = self.database.placement.place
        return [*place(self.catalogue), *place(self.revisions)]

    def create_schema(self) -> Sequence[str]:
        """Create the schema of the tables, unless the schema exists or is the connection's own."""
        if not self.names.schema:
            return ()
        database = self.database
        return [
            *database.placement.schema_settings,
            *database.ddl.create_schema(self.names.schema),
        ]

    def create_table(self, table: str, *, distributed: bool = False) -> Sequence[str]:
        """Create a collection's table."""
        database = self.dialect_of(distributed=distributed)
        named = self._table(table)
        return [on_table(_creating(database), named, database), *database.placement.place(named)]

    def create_feed(self, feed: Feed) -> Sequence[str]:
        """Create the table of a collection's recorded changes."""
        statements = self.feed(feed)
        return [statements.create, *self.database.placement.place(statements.table)]

    @property
    def can_distribute(self) -> bool:
        """Whether collections may be distributed over the servers of a cluster."""
        return self.database.placement.distributed is not None

    def dialect_of(self, *, distributed: bool) -> Database:
        """Return the dialect of the statements of a collection."""
        found = self.database.placement.distributed if distributed else self.database
        assert found is not None
        return found

    def find_table(self, table: str) -> dict[str, str]:
        """Return the parameter with which `has_table` looks for a collection's table."""
        return {"reference": self.database.ddl.reference(self._table(table))}

    def lock_table(self, table: str, *, readers: bool) -> str | None:
        """Lock a collection's table; None: BEGIN did."""
        return self.database.transactions.lock_table(self._table(table), readers=readers)

    def drop_table(self, table: str) -> str:
        """Drop a collection's table, unless a user did."""
        dropped = sa.schema.DropTable(self._table(table), if_exists=True)
        return compiled(dropped, self.database)

    def rename_table(self, old: str, new: str) -> str:
        """Rename a collection's table."""
        return self.database.compiler.rename_table(self._table(old), new)

    def indexes(self, table: str, present: Iterable[Index] = ()) -> IndexStatements:
        """Return the statements of the indexes of a collection's table, for whose `present` indexes it has keys."""
        return IndexStatements(table, self.names, self.database, present)

    def documents(self, table: str, options: CollectionOptions) -> Statements:
        """Return the statements of a collection's table."""
        feed = None if options.feed is None else self.feed(options.feed)
        database = self.dialect_of(distributed=options.distributed)
        keys = column_of(entries_of(options.indexes)) if database.stores_keys else ""
        documents = documents_table(table, self.names, database, jsonb=options.jsonb, keys=keys)
        return Statements(documents, options, database, feed)

    def feed(self, feed: Feed) -> FeedStatements:
        """Return the statements of the recorded changes of a collection."""
        table, template = self._table(feed.physical), feed_template(self.database)
        return FeedStatements(feed, table, self.database, template)

    def _table(self, table: str) -> sa.Table:
        """Return a table without columns."""
        return sa.Table(table, sa.MetaData(schema=self.names.schema))


@lru_cache(maxsize=NAMES_CACHED)
def catalogue_statements(names: Names, database: Database) -> CatalogueStatements:
    """Return the statements of a store's own tables; stores with the same table names share the compiled statements."""
    return CatalogueStatements(names, database)


@cache
def _creating(database: Database) -> str:
    """Return the statement that creates the table of templates."""
    table = documents_table(TEMPLATE, Names(), database)
    return compiled(sa.schema.CreateTable(table), database)


def _text(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=sa.Text)


class IndexStatements:
    """The statements of the indexes of a table."""

    def __init__(
        self, table: str, names: Names, database: Database, present: Iterable[Index]
    ) -> None:
        self._name, self._names, self._database = table, names, database
        keys = column_of(entries_of(present)) if database.stores_keys else ""
        self._table = documents_table(table, names, database, keys=keys)

    def physical(self, number: int) -> str:
        """Return a name unique among all tables and indexes of tables, whatever renames follow."""
        return self._names.index(self._name, number)

    def create(self, index: Index) -> Sequence[str]:
        """Create an index under its physical name."""
        if index.arrays:
            return self._database.ddl.create_array_index(self._table, index)
        names = self._database.ordering.index_parts(unique=index.unique)
        columns: list[sa.ColumnElement[Any]] = []
        for field in index.sort.fields:
            parts: list[sa.ColumnElement[Any]]
            if isinstance(field.target, str):
                parts = [metadata_column(self._table, field.target)]
            else:
                keys = field.target.keys
                parts = [sort_part(self._table, keys, name, index.key_name) for name in names]
            columns.extend(part.desc() if field.descending else part for part in parts)
        if not index.unique and not self._database.index_ends_in_seq:
            columns.append(self._table.c.seq)
        only = None if not index.is_partial else partial_condition(self._table, index)
        if index.hidden:
            always = hidden_condition(self._table)
            only = always if only is None else sa.and_(only, always)
        return [self._create(index.physical, *columns, only=only, unique=index.unique)]

    def create_prefix_index(self, prefix: Keys, physical: str) -> str:
        """Create the index of the documents that have an array at a position."""
        body = self._table.c.body
        return self._create(physical, TypeAt(body, prefix), only=ArrayAt(body, prefix))

    def create_version_index(self, version: int, physical: str) -> str:
        """Create the index of the documents that do not have a schema version."""
        only = has_other_version(self._table, version)
        return self._create(physical, self._table.c.seq, only=only)

    def create_over_body(self, number: int) -> Sequence[str]:
        """Create the index over whole bodies, if the database supports such an index."""
        return self._database.ddl.create_body_index(self._table, self.physical(number))

    def create_over_expiry(self) -> str:
        """Create the index of the documents that expire."""
        expires = self._table.c.expires_at
        name = self._names.expiry_index(self._name)
        return self._create(name, expires, only=expires.is_not(None))

    def create_text(self, index: TextIndex, extension: str) -> Sequence[str]:
        """Create a text index under its physical name; `extension`: the schema of the extension that it needs."""
        text = self._database.text
        if index.substring:
            return text.create_substrings(self._table, index, extension)
        return text.create(self._table, index)

    def differing_text(self, index: TextIndex) -> str:
        """Select the ids of documents whose words differ from a text index, `:rows` at most."""
        return self._database.text.differing(self._table, index)

    def create_vectors(self, index: VectorIndex) -> Sequence[str]:
        """Create a vector index under its physical name."""
        return VectorStatements(self._table, self._database, index.physical, index).create()

    def drop(self, index: Index | TextIndex | VectorIndex) -> Sequence[str]:
        """Drop an index."""
        if isinstance(index, TextIndex):
            return self._database.text.drop(self._table, index)
        if isinstance(index, VectorIndex):
            return VectorStatements(self._table, self._database, index.physical, index).drop()
        if index.arrays:
            return self._database.ddl.drop_array_index(self._table, index)
        return [self.drop_index(index.physical)]

    def set_keys(self, old: Iterable[Index], new: Iterable[Index]) -> Sequence[str]:
        """Change the table from the keys of `old` indexes to those of `new` ones."""
        old_entries, new_entries = entries_of(old), entries_of(new)
        if old_entries == new_entries:
            return ()
        return self._database.ddl.set_keys(self._table, old_entries, new_entries)

    def bodies(self) -> str:
        """Select position, id and body of the rows past the position `:seq`, `:limit` at most."""
        c = self._table.c
        rows = sa.select(c.seq, c.id, body_text(self._table)).where(c.seq > integer("seq"))
        ordered = rows.order_by(c.seq).limit(integer("limit")).offset(ZERO)
        return compiled(ordered, self._database)

    def write_keys(self) -> str:
        """Write the keys in the lists `:seq` and `:body`, whose texts bring keys."""
        c, rows = self._table.c, listed(seq=sa.BigInteger, body=sa.Text)
        keys = stored_from(self._table, rows.c.body)[KEYS]
        unchanged = {"updated_at": c.updated_at}
        updated = sa.update(self._table).where(c.seq == rows.c.seq).values(keys=keys, **unchanged)
        return compiled(updated, self._database)

    def drop_index(self, physical: str) -> str:
        """Drop an index of the database's."""
        index = sa.Index(physical, self._table.c.seq)
        return compiled(sa.schema.DropIndex(index, if_exists=True), self._database)

    def _create(
        self,
        physical: str,
        *columns: sa.ColumnElement[Any],
        only: sa.ColumnElement[bool] | None,
        unique: bool = False,
    ) -> str:
        where: dict[str, Any] = {} if only is None else {f"{self._database.name}_where": only}
        index = sa.Index(physical, *columns, unique=unique, **where)
        return compiled(sa.schema.CreateIndex(index), self._database)
