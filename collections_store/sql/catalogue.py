"""The statements of a store's own tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from ..options import CollectionOptions, Feed, Names
from .by_id import compiled
from .change_records import FeedStatements
from .dialects.protocols import Database
from .elements import RenameTable
from .indexes import IndexStatements
from .schema import catalogue_table, documents_table, revision_table
from .select import Statements


class CatalogueStatements:
    """The statements of a store's own tables."""

    def __init__(self, names: Names, database: Database) -> None:
        self.names, self.database = names, database
        self.catalogue, self.revisions = catalogue_table(names), revision_table(names)

    @cached_property
    def has_table(self) -> str:
        """Give a row if there is a table `:reference`."""
        return self._sql(self.database.has_table())

    @cached_property
    def revision(self) -> str:
        """Give the schema's revision."""
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
        """Give the table and the options of the collection `:name`."""
        c = self.catalogue.c
        return self._sql(sa.select(c.table_name, c.options).where(c.name == _bound("name")))

    @cached_property
    def tables(self) -> str:
        """Give the table of every collection, by name; any revision of the schema knows them."""
        c = self.catalogue.c
        return self._sql(sa.select(c.table_name).order_by(c.name))

    @cached_property
    def listing(self) -> str:
        """Give name, table, time and options of every collection, by name."""
        c = self.catalogue.c
        columns = (c.name, c.table_name, c.created_at, c.options)
        return self._sql(sa.select(*columns).order_by(c.name))

    @cached_property
    def enter(self) -> str:
        """Enter the collection `:name`; gives its number, or nothing if it was there."""
        c = self.catalogue.c
        insert = self.database.insert(self.catalogue).values(
            name=_bound("name"),
            table_name=sa.literal_column("''"),
            created_at=_bound("now"),
            options=_bound("options"),
        )
        return self._sql(insert.on_conflict_do_nothing(index_elements=[c.name]).returning(c.number))

    @cached_property
    def enter_copy(self) -> str:
        """Enter `:name` with what is known of `:old`; gives the new number, or nothing if there is
        no `:old`, or `:name` was there.
        """
        c = self.catalogue.c
        columns = [c.table_name, c.created_at, c.options]
        source = sa.select(sa.cast(_bound("name"), sa.Text), *columns).where(
            c.name == _bound("old")
        )
        insert = self.database.insert(self.catalogue).from_select(
            ["name", *(k.name for k in columns)], source
        )
        entered = insert.on_conflict_do_nothing(index_elements=[c.name])
        return self._sql(entered.returning(c.number, c.table_name))

    @cached_property
    def assign(self) -> str:
        """Give the collection `:number` its table."""
        c = self.catalogue.c
        update = sa.update(self.catalogue).where(c.number == _bound("number"))
        return self._sql(update.values(table_name=_bound("table")))

    @cached_property
    def lock(self) -> str:
        """Keep others from changing the entry of `:name` until the transaction ends."""
        c = self.catalogue.c
        update = sa.update(self.catalogue).where(c.name == _bound("name"))
        return self._sql(update.values(options=c.options))

    @cached_property
    def hold(self) -> str:
        """Have others wait who hold the entry of `:name` too, until the transaction ends."""
        c = self.catalogue.c
        return self._sql(sa.select(c.number).where(c.name == _bound("name")).with_for_update())

    @cached_property
    def keep_options(self) -> str:
        """Give the collection `:name` its `:options`."""
        c = self.catalogue.c
        update = sa.update(self.catalogue).where(c.name == _bound("name"))
        return self._sql(update.values(options=_bound("options")))

    @cached_property
    def forget(self) -> str:
        """Delete the entry of `:name`; gives its table, its options and its time."""
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
        return {"reference": self.database.reference(found)}

    def keep_out(self, table: str, *, readers: bool) -> str | None:
        """Keep others from a collection's table; None: they are kept out already."""
        kept = documents_table(table, self.names, self.database)
        return self.database.keep_out(kept, readers=readers)

    def drop_table(self, table: str) -> str:
        """Drop a collection's table, unless someone did so by hand."""
        dropped = documents_table(table, self.names, self.database)
        return self._sql(sa.schema.DropTable(dropped, if_exists=True))

    def rename_table(self, old: str, new: str) -> str:
        """Give a collection's table another name."""
        table = documents_table(old, self.names, self.database)
        return self._sql(RenameTable(table, new))

    def indexes(self, table: str) -> IndexStatements:
        """Return the statements of the indexes of a collection's table."""
        return IndexStatements(table, self.names, self.database)

    def documents(self, table: str, options: CollectionOptions) -> Statements:
        """Return the statements of a collection's table."""
        made = documents_table(table, self.names, self.database, jsonb=options.jsonb)
        feed = None if options.feed is None else self.feed(options.feed)
        return Statements(made, options, self.database, feed)

    def feed(self, feed: Feed) -> FeedStatements:
        """Return the statements of the recorded changes of a collection."""
        return FeedStatements(feed, self.names, self.database)

    def _sql(self, statement: Any) -> str:
        return compiled(statement, self.database)


def _bound(name: str) -> sa.BindParameter[Any]:
    types = {"now": sa.BigInteger, "number": sa.BigInteger}
    return sa.bindparam(name, type_=types.get(name, sa.Text))
