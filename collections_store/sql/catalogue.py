"""The statements of the catalogue, and those that create and drop the tables and indexes of collections.

An index is several of the database's: one over the fields' `SortPart`s, which serves equality, ranges and orders, and
for each prefix of a field's path a small one of the documents that have an array there. The columns do not see into
arrays; the array guard reads the small ones, and costs next to nothing where they are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from ..options import CollectionOptions, Feed, Names
from ..query.conditions import Target
from ..query.index import Index
from .by_id import FeedStatements, compiled
from .clauses import metadata_column, partial_condition
from .dialects.protocols import Database
from .elements import ArrayAt, Keys, SortPart, TypeAt
from .schema import catalogue_table, documents_table, revision_table
from .select import Statements


class CatalogueStatements:
    """The statements of the catalogue, and those that create and drop the tables and indexes of collections.

    An index is several of the database's: one over the fields' `SortPart`s, which serves equality, ranges and orders, and
    for each prefix of a field's path a small one of the documents that have an array there. The columns do not see into
    arrays; the array guard reads the small ones, and costs next to nothing where they are empty.
    """

    def __init__(self, names: Names, database: Database) -> None:
        self.names, self.database = names, database
        self.catalogue = catalogue_table(names, database)
        self.revisions = revision_table(names)

    @cached_property
    def has_table(self) -> str:
        """Select a row if there is a table `:reference`."""
        return self._sql(self.database.ddl.has_table())

    @cached_property
    def revision(self) -> str:
        """Select the schema's revision."""
        return self._sql(sa.select(self.revisions.c.version_num))

    @cached_property
    def stamp(self) -> str:
        """Record the revision `:revision`."""
        revision = sa.bindparam("revision", type_=sa.Text)
        return self._sql(sa.insert(self.revisions).values(version_num=revision))

    def create_all(self) -> Sequence[str]:
        """Create the store's own tables."""
        tables = (self.catalogue, self.revisions)
        creating: list[Any] = [sa.schema.CreateTable(table) for table in tables]
        if self.names.schema:
            creating.insert(0, sa.schema.CreateSchema(self.names.schema, if_not_exists=True))
        return [self._sql(statement) for statement in creating]

    @cached_property
    def resolve(self) -> str:
        """Select the table and the options of the collection `:name`."""
        c = self.catalogue.c
        return self._sql(sa.select(c.table_name, c.options).where(c.name == _bound("name")))

    @cached_property
    def tables(self) -> str:
        """Select the table of every collection, by name; every revision of the schema has them."""
        c = self.catalogue.c
        return self._sql(sa.select(c.table_name).order_by(c.name))

    @cached_property
    def listing(self) -> str:
        """Select name, table, time and options of every collection, by name."""
        c = self.catalogue.c
        columns = (c.name, c.table_name, c.created_at, c.options)
        return self._sql(sa.select(*columns).order_by(c.name))

    @cached_property
    def insert(self) -> str:
        """Insert the collection `:name`; returns its number, or nothing if it exists."""
        c = self.catalogue.c
        insert = self.database.compiler.insert(self.catalogue).values(
            name=_bound("name"),
            table_name=sa.literal_column("''"),
            created_at=_bound("now"),
            options=_bound("options"),
        )
        return self._sql(insert.on_conflict_do_nothing(index_elements=[c.name]).returning(c.number))

    @cached_property
    def insert_copy(self) -> str:
        """Insert `:name` with the entry of `:old`; returns the new number, or nothing if there is no `:old`, or `:name`
        exists.
        """
        c = self.catalogue.c
        columns = [c.table_name, c.created_at, c.options]
        source = sa.select(sa.cast(_bound("name"), sa.Text), *columns).where(
            c.name == _bound("old")
        )
        insert = self.database.compiler.insert(self.catalogue).from_select(
            ["name", *(k.name for k in columns)], source
        )
        inserted = insert.on_conflict_do_nothing(index_elements=[c.name])
        return self._sql(inserted.returning(c.number, c.table_name))

    @cached_property
    def set_table(self) -> str:
        """Set the table of the collection `:number`."""
        c = self.catalogue.c
        update = sa.update(self.catalogue).where(c.number == _bound("number"))
        return self._sql(update.values(table_name=_bound("table")))

    @cached_property
    def lock(self) -> str:
        """Lock the entry of `:name` against changes until the transaction ends."""
        c = self.catalogue.c
        update = sa.update(self.catalogue).where(c.name == _bound("name"))
        return self._sql(update.values(options=c.options))

    @cached_property
    def hold(self) -> str:
        """Lock the entry of `:name` against other `hold`s, until the transaction ends."""
        c = self.catalogue.c
        return self._sql(sa.select(c.number).where(c.name == _bound("name")).with_for_update())

    @cached_property
    def set_options(self) -> str:
        """Set the options of `:name`."""
        c = self.catalogue.c
        update = sa.update(self.catalogue).where(c.name == _bound("name"))
        return self._sql(update.values(options=_bound("options")))

    @cached_property
    def delete(self) -> str:
        """Delete the entry of `:name`; returns its table, its options and its time."""
        c = self.catalogue.c
        delete = sa.delete(self.catalogue).where(c.name == _bound("name"))
        created = sa.type_coerce(c.created_at, sa.BigInteger)
        return self._sql(delete.returning(c.table_name, c.options, created))

    def create_table(self, table: str) -> str:
        """Create a collection's table."""
        return self._sql(sa.schema.CreateTable(documents_table(table, self.names, self.database)))

    def find_table(self, table: str) -> dict[str, str]:
        """Return the parameter with which `has_table` looks for a collection's table."""
        found = documents_table(table, self.names, self.database)
        return {"reference": self.database.ddl.reference(found)}

    def lock_table(self, table: str, *, readers: bool) -> str | None:
        """Lock a collection's table; None: BEGIN did."""
        locked = documents_table(table, self.names, self.database)
        return self.database.transactions.lock_table(locked, readers=readers)

    def drop_table(self, table: str) -> str:
        """Drop a collection's table, unless a user did."""
        dropped = documents_table(table, self.names, self.database)
        return self._sql(sa.schema.DropTable(dropped, if_exists=True))

    def rename_table(self, old: str, new: str) -> str:
        """Rename a collection's table."""
        table = documents_table(old, self.names, self.database)
        return self.database.compiler.rename_table(table, new)

    def indexes(self, table: str) -> IndexStatements:
        """Return the statements of the indexes of a collection's table."""
        return IndexStatements(table, self.names, self.database)

    def documents(self, table: str, options: CollectionOptions) -> Statements:
        """Return the statements of a collection's table."""
        documents = documents_table(table, self.names, self.database, jsonb=options.jsonb)
        feed = None if options.feed is None else self.feed(options.feed)
        return Statements(documents, options, self.database, feed)

    def feed(self, feed: Feed) -> FeedStatements:
        """Return the statements of the recorded changes of a collection."""
        return FeedStatements(feed, self.names, self.database)

    def _sql(self, statement: Any) -> str:
        return compiled(statement, self.database)


def _bound(name: str) -> sa.BindParameter[Any]:
    types = {"now": sa.BigInteger, "number": sa.BigInteger}
    return sa.bindparam(name, type_=types.get(name, sa.Text))


class IndexStatements:
    """The statements of the indexes of one table."""

    def __init__(self, table: str, names: Names, database: Database) -> None:
        self._name, self._names, self._database = table, names, database
        self._table = documents_table(table, names, database)

    def physical(self, number: int) -> str:
        """Return a name that no table and no other table's index has, however they are renamed."""
        return self._names.index(self._name, number)

    def create(self, index: Index) -> Sequence[str]:
        """Create an index under its physical name."""
        if index.arrays:
            [path] = index.paths
            return self._database.ddl.create_array_index(self._table, path.keys, index.physical)
        return [self._over_fields(index)]

    def create_prefix_index(self, prefix: Keys, physical: str) -> str:
        """Create the index of the documents that have an array at a position."""
        body = self._table.c.body
        only = self._only(ArrayAt(body, prefix))
        return self._sql(sa.schema.CreateIndex(sa.Index(physical, TypeAt(body, prefix), **only)))

    def create_over_body(self, number: int) -> Sequence[str]:
        """Create the index over whole bodies, where the database has one."""
        return self._database.ddl.create_body_index(self._table, self.physical(number))

    def create_over_expiry(self) -> str:
        """Create the index of the documents that expire."""
        expires = self._table.c.expires_at
        name = self._names.expiry_index(self._name)
        index = sa.Index(name, expires, **self._only(expires.is_not(None)))
        return self._sql(sa.schema.CreateIndex(index))

    def drop(self, index: Index) -> Sequence[str]:
        """Drop an index."""
        if index.arrays:
            return self._database.ddl.drop_array_index(index.physical)
        return [self.drop_index(index.physical)]

    def drop_index(self, physical: str) -> str:
        """Drop an index of the database's."""
        index = sa.Index(physical, self._table.c.seq)
        return self._sql(sa.schema.DropIndex(index, if_exists=True))

    def _over_fields(self, index: Index) -> str:
        columns: list[sa.ColumnElement[Any]] = []
        for field in index.sort.fields:
            parts = self._parts(field.target, unique=index.unique)
            columns.extend(part.desc() if field.descending else part for part in parts)
        if not index.unique and not self._database.index_ends_in_seq:
            columns.append(self._table.c.seq)
        only = {} if index.where is None else self._only(partial_condition(self._table, index))
        created = sa.Index(index.physical, *columns, unique=index.unique, **only)
        return self._sql(sa.schema.CreateIndex(created))

    def _parts(self, target: Target, *, unique: bool) -> list[sa.ColumnElement[Any]]:
        """Return the columns that a field is ordered by."""
        if isinstance(target, str):
            return [metadata_column(self._table, target)]
        names = self._database.ordering.index_parts(unique=unique)
        return [SortPart(self._table.c.body, target.keys, name) for name in names]

    def _only(self, condition: sa.ColumnElement[bool]) -> dict[str, Any]:
        return {f"{self._database.name}_where": condition}

    def _sql(self, statement: Any) -> str:
        return compiled(statement, self._database)
