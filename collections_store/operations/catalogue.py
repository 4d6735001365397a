"""The store's own tables, the catalogue of the collections, creating and dropping these, the locks of a schema change.

A write locks rows of the collection's table first, and the collection's entry in the catalogue when it records changes
(see `changes`). So a schema change locks the two in that order too: in the other one, each would wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import sqlalchemy as sa

from ..document import moment, now
from ..errors import (
    CollectionExists,
    CollectionNotFound,
    DatabaseError,
    InvalidOption,
    SchemaError,
    SchemaTooNew,
)
from ..expressions.classes import value_class
from ..options import CollectionOptions, Feed, Settings
from ..results import CollectionInfo
from ..sql.catalogue import CatalogueStatements
from ..sql.dialects.protocols import TableVanished
from ..sql.schema import REVISION
from ..sql.select import Statements
from .changes import PendingChange, last_surplus
from .operation import CollectionAbsent, Operation

if TYPE_CHECKING:
    from .connection import Connection


STAGED: Final = "$"
"""The end of the names of collections that are being restored. No other collection has such a name."""
Entry: TypeAlias = tuple[str, CollectionOptions]
"""The table of a collection, and its options."""


def read_entry(connection: Connection, collection: str) -> Entry | None:
    """Return the catalogue's entry of a collection; None: there is none."""
    rows = connection.catalogue.rows(connection, connection.store.resolve, name=collection)
    return (rows[0][0], read_options(collection, rows[0][1])) if rows else None


def read_options(collection: str, text: str) -> CollectionOptions:
    """Return the options in a collection's entry; raises `SchemaTooNew`, and `DatabaseError` where the entry is damaged."""
    try:
        return CollectionOptions.from_text(text)
    except SchemaTooNew:
        raise
    except Exception as error:
        raise DatabaseError(
            f"collection {collection}: its entry in the catalogue is damaged: restore the database from a backup"
        ) from error


def existing(collection: str, entry: Entry | None) -> Entry:
    """Return an entry; raise `CollectionAbsent` if there is none."""
    if entry is None:
        raise CollectionAbsent(collection)
    return entry


def lock_entry(connection: Connection, collection: str, *, readers: bool = True) -> Entry | None:
    """Lock a collection against writers, and `readers` too, until the transaction ends; returns its entry in the catalogue.
    Raises `TableVanished` where another transaction changed it first.
    """
    read = read_entry(connection, collection)
    if read is None:
        return None
    store, table = connection.store, read[0]
    sql = store.lock_table(table, readers=readers)
    if sql is not None and connection.rows(store.has_table, store.find_table(table)):
        connection.changed(sql)  # unless somebody dropped it by hand
    connection.changed(store.lock, {"name": collection})
    locked = read_entry(connection, collection)
    if locked is None or locked[0] != read[0]:
        raise TableVanished(f"collection {collection} was changed by another transaction")
    return locked


def jsonb_problem(connection: Connection) -> str | None:
    """Return why the database has no JSONB, None if it has."""
    database = connection.store.database
    probe = database.ddl.jsonb_probe
    if probe is None:
        return None
    [(version,)] = connection.rows(probe)
    return database.ddl.jsonb_problem(version)


def check_readable(connection: Connection, collection: str, options: CollectionOptions) -> None:
    """Raise `SchemaError` where the database cannot read the bodies of a collection."""
    if options.jsonb and (problem := jsonb_problem(connection)):
        found, expected = problem.split(": ")
        message = f"the collection {collection!r} keeps its bodies as JSONB: {problem}"
        raise SchemaError(message, found=found, expected=expected)


Tables: TypeAlias = dict[str, tuple[str, str, Statements]]
"""Compiled statements by collection, with the table and the options that they are for, as the catalogue has them."""
MOST_TABLES: Final = 1024
"""Collections whose statements are cached, at most: each takes some 60 KB."""


REFRESHED_AFTER: Final = 5.0
"""Seconds after which a collection is looked up again, and the indexes of another process are seen."""


AS_IT_IS: Final = Settings()


class Catalogue:
    """A cache of which table is whose. It may be out of date for `REFRESHED_AFTER` seconds: see `forget`.

    Statements that were compiled are cached apart, by table and options, for a lookup alone makes them no worse.
    """

    statements: CatalogueStatements

    def __init__(
        self,
        statements: CatalogueStatements,
        parent: Catalogue | None = None,
        *,
        caches: bool = True,
    ) -> None:
        """A transaction of the store has a catalogue with a `parent`: what that reads may be rolled back."""
        self.statements, self._parent, self._caches = statements, parent, caches
        self.changed: Callable[[Iterable[str]], None] = (
            (lambda _: None) if parent is None else parent.changed
        )
        """Called after each commit that recorded changes, with the collections."""
        self.known: dict[str, tuple[Statements, float]] = {}
        """The statements of collections, and when they are looked up again."""
        self.of_replicas: Catalogue | None = None
        """What is cached of replicas, which is of other moments; it forgets the same."""
        self._tables: Tables = {} if parent is None else parent._tables
        self.exists: bool = parent is not None and parent.exists
        """Whether the store's own tables are known to exist."""
        self._forgotten: set[str] = set()

    def look_up(self, connection: Connection, name: str) -> Statements:
        """Read which table is a collection's, and return its statements; raises `CollectionAbsent`."""
        rows = self.rows(connection, self.statements.resolve, name=name)
        if not rows:
            self._tables.pop(name, None)
            raise CollectionAbsent(name)
        table, options = rows[0]
        known = self._tables.get(name)
        if known is None or known[:2] != (table, options):
            read = read_options(name, options)
            check_readable(connection, name, read)
            self._evict()
            known = self._tables[name] = table, options, self.statements.documents(table, read)
        if self._caches:
            self.known[name] = known[2], monotonic() + REFRESHED_AFTER
        return known[2]

    def rows(self, connection: Connection, sql: str, **parameters: str) -> list[Any]:
        """Return rows of the catalogue's table; before the first write creates that, there are none."""
        return connection.rows(sql, parameters) if self.exists else []

    def note_tables(self) -> None:
        """Note that the store's own tables exist."""
        self.exists = True
        if self.of_replicas is not None:
            self.of_replicas.exists = True

    def _evict(self) -> None:
        """Make room in the cache: collections that other processes dropped would stay in it for ever."""
        while len(self._tables) >= MOST_TABLES:
            for name in tuple(self._tables)[: MOST_TABLES // 4]:
                self._tables.pop(name, None)
                self.known.pop(name, None)

    def forget(self, name: str) -> None:
        """Look the collection up again, the next time."""
        self.known.pop(name, None)
        if self.of_replicas is not None:
            self.of_replicas.forget(name)
        if self._parent is not None:
            self._forgotten.add(name)
        elif self._caches:
            self._tables.pop(name, None)

    def forget_all(self) -> None:
        """Look each collection up again: a rollback may have undone what was read."""
        self.known.clear()

    def of_store(self) -> Catalogue:
        """Return the store's catalogue: this one, unless it is a transaction's."""
        return self._parent or self

    def after_commit(self) -> Catalogue:
        """Return the store's catalogue, in which the collections are forgotten that the transaction changed."""
        store = self._parent or self
        for name in self._forgotten:
            store.forget(name)
        return store

    def uncached(self) -> Catalogue:
        """Return a catalogue for a caller's transaction, which looks up each time: what that reads may be rolled back,
        and another table get the same name.
        """
        catalogue = Catalogue(self.statements, caches=False)
        catalogue._tables, catalogue.exists = self._tables, self.exists
        return catalogue


@value_class
class CreateCollection(Operation[None]):
    """Create a collection, unless it exists; `must_be_new`: then raise `CollectionExists`."""

    collection: str
    body_index: bool = True
    settings: Settings = AS_IT_IS
    jsonb: bool = False
    must_be_new: bool = False
    distributed: bool = False
    writes = True

    def __call__(self, connection: Connection) -> None:
        options = CollectionOptions(
            body_index=self.body_index, jsonb=self.jsonb, distributed=self.distributed
        )
        options = self.settings.apply(options)
        if not create(connection, self.collection, options, now()) and self.must_be_new:
            raise CollectionExists(self.collection)


def create(
    connection: Connection, collection: str, options: CollectionOptions, created: int
) -> bool:
    """Create a collection with options, but without their indexes; returns False if it exists."""
    store = connection.store
    if options.jsonb and (problem := jsonb_problem(connection)):
        raise InvalidOption("jsonb", problem)
    if options.distributed and connection.database.distributed is None:
        problem = "needs a cluster of Citus: open the store with sharding='collections'"
        raise InvalidOption("distributed", problem)
    row = {"name": collection, "now": created, "options": options.to_text()}
    entered = connection.rows(store.insert, row)
    if entered:
        table = _name_table(connection, entered[0][0], collection, None, options)
        indexes = store.indexes(table)
        connection.changed(indexes.create_over_expiry())
        for statement in indexes.create_over_body(0) if options.body_index else ():
            connection.changed(statement)
        if options.feed is not None:
            set_options(connection, collection, _with_feed(connection, table, options))
    return bool(entered)


@value_class
class Configure(Operation[None]):
    """Change the settings of a collection. Its table is renamed, so that a writer with the old settings must look it up
    again.
    """

    collection: str
    settings: Settings
    writes = True
    creates_collection = True

    def __call__(self, connection: Connection) -> None:
        _, options = existing(self.collection, read_entry(connection, self.collection))
        if self.settings.apply(options) == options:
            return  # without waiting for a lock
        _, options = existing(self.collection, lock_entry(connection, self.collection))
        wanted = self.settings.apply(options)
        if wanted != options:
            self._change(connection, options, wanted)

    def _change(
        self, connection: Connection, options: CollectionOptions, wanted: CollectionOptions
    ) -> None:
        store = connection.store
        [(table, _, created)] = connection.rows(store.delete, {"name": self.collection})
        row = {"name": self.collection, "now": created, "options": wanted.to_text()}
        [(number,)] = connection.rows(store.insert, row)
        table = _name_table(connection, number, self.collection, table, options)
        if options.feed is not None and wanted.feed is None:
            _drop_feed(connection, self.collection, options.feed)
        elif options.feed is None and wanted.feed is not None:
            set_options(connection, self.collection, _with_feed(connection, table, wanted))
        connection.catalogue.forget(self.collection)


@value_class
class DropCollection(Operation[bool]):
    """Delete a collection with all its documents, and what an interrupted restore left of it; returns whether it existed."""

    collection: str
    writes = True

    def __call__(self, connection: Connection) -> bool:
        drop(connection, f"{self.collection}{STAGED}")
        return drop(connection, self.collection)


def drop(connection: Connection, collection: str) -> bool:
    """Drop a collection; returns whether it existed."""
    store = connection.store
    lock_entry(connection, collection)
    deleted = connection.rows(store.delete, {"name": collection})
    for table, text, _ in deleted:
        options = read_options(collection, text)
        for index in options.indexes:
            for statement in store.indexes(table).drop(index):
                connection.changed(statement)
        connection.changed(store.drop_table(table))
        if options.feed is not None:
            _drop_feed(connection, collection, options.feed)
    connection.catalogue.forget(collection)
    return bool(deleted)


@value_class
class Rename(Operation[None]):
    """Rename a collection. Its tables are renamed too, so that a user of the old names must look them up again, and
    can neither write to nor watch the wrong collection.
    """

    collection: str
    new: str
    writes = True

    def __call__(self, connection: Connection) -> None:
        store = connection.store
        entry = lock_entry(connection, self.collection)  # before its entry is copied
        entered = connection.rows(store.insert_copy, {"name": self.new, "old": self.collection})
        if not entered and connection.rows(store.resolve, {"name": self.new}):
            raise CollectionExists(self.new)
        if not entered:
            raise CollectionNotFound(self.collection)
        number, table = entered[0]
        if entry is None or not connection.rows(store.delete, {"name": self.collection}):
            raise CollectionNotFound(self.collection)  # another process renamed or dropped it
        table = _name_table(connection, number, self.new, table, entry[1])
        _rename_feed(connection, self.new, table, entry[1])
        for name in (self.collection, self.new):
            connection.catalogue.forget(name)


@value_class
class ListCollections(Operation[list[CollectionInfo]]):
    """List the collections, by name."""

    snapshot = False
    collections = ()

    def __call__(self, connection: Connection) -> list[CollectionInfo]:
        measured: dict[str, tuple[int, int]] = {}
        while True:
            listed = connection.catalogue.rows(connection, connection.store.listing)
            new = [row for row in listed if row[1] not in measured]
            if not new:
                return [CollectionInfo(name, *measured[table], moment(created))
                        for name, table, created, _ in listed if not name.endswith(STAGED)]  # fmt: skip
            for name, table, _, options in new:
                found = self._measure(connection, name, table, options)
                if found is not None:
                    measured[table] = found

    def _measure(
        self, connection: Connection, name: str, table: str, options: str
    ) -> tuple[int, int] | None:
        """Return count and size; None: the collection was dropped or renamed since it was listed."""
        documents = connection.store.documents(table, read_options(name, options))
        try:
            with connection.savepoint():
                [(count, size)] = connection.rows(documents.statistics, {"now": now()})
        except connection.database.errors.types() as error:
            entry = read_entry(connection, name)
            vanished = isinstance(connection.database.errors.translate(error), TableVanished)
            if not vanished or (entry is not None and entry[0] == table):
                raise
            return None
        return count, size


@value_class
class FindTable(Operation[Statements]):
    """Return the statements of a collection's table."""

    collection: str
    writes = True
    atomic = True
    creates_collection = True

    def __call__(self, connection: Connection) -> Statements:
        return connection.collection(self.collection)


def _name_table(
    connection: Connection, number: int, name: str, old: str | None, options: CollectionOptions
) -> str:
    store = connection.store
    table = store.names.documents(number, name)
    if old is None:
        for sql in store.create_table(table, distributed=options.distributed):
            connection.changed(sql)
    else:
        connection.changed(store.rename_table(old, table))
    connection.changed(store.set_table, {"number": number, "table": table})
    return table


def _with_feed(connection: Connection, table: str, options: CollectionOptions) -> CollectionOptions:
    """Create the table of changes that belongs to a collection's table."""
    assert options.feed is not None
    store = connection.store
    feed = replace(options.feed, physical=store.names.feed(table))
    statements = store.feed(feed)
    for sql in (statements.create, *connection.database.ddl.place(statements.table)):
        connection.changed(sql)
    return replace(options, feed=feed)


def _rename_feed(connection: Connection, new: str, table: str, options: CollectionOptions) -> None:
    """Rename the table of changes after a collection's table."""
    if options.feed is None:
        return
    store = connection.store
    connection.record_pending()  # in the table of the old name
    renamed = replace(options.feed, physical=store.names.feed(table))
    connection.changed(store.rename_table(options.feed.physical, renamed.physical))
    set_options(connection, new, replace(options, feed=renamed))


def _drop_feed(connection: Connection, collection: str, feed: Feed) -> None:
    """Drop the table of changes, and the pending changes."""
    statements = connection.store.feed(feed)
    connection.record(PendingChange(collection, statements, None))
    connection.changed(statements.drop)


def set_options(connection: Connection, collection: str, options: CollectionOptions) -> None:
    """Change the options of a collection in the catalogue."""
    row = {"name": collection, "options": options.to_text()}
    connection.changed(connection.store.set_options, row)


@value_class
class ListPurgeable(Operation[list[str]]):
    """List the collections in which documents have expired or changes are surplus, except those that the database cannot
    read.
    """

    collections = ()

    def __call__(self, connection: Connection) -> list[str]:
        listing = connection.catalogue.rows(connection, connection.store.listing)
        return [
            name for name, table, _, text in listing if _is_purgeable(connection, name, table, text)
        ]


def _is_purgeable(connection: Connection, name: str, table: str, text: str) -> bool:
    options = read_options(name, text)
    if options.jsonb and jsonb_problem(connection):
        return False
    statements = connection.store.documents(table, options)
    return bool(connection.rows(statements.by_id.has_expired, {"now": now()})) or (
        statements.feed is not None and last_surplus(connection, statements.feed) > 0
    )


def read_revision(connection: Connection) -> str | None:
    """Return the revision of the store's own tables; None: there are none. Raises `SchemaError` where they are incomplete.

    The catalogue is looked for first. One commit creates both tables, so a reader that sees it sees the revision too.
    """
    _check_database(connection)
    store = connection.store
    has_catalogue = has_table(connection, store.catalogue)
    if has_table(connection, store.revisions):
        rows = connection.rows(store.revision)
        if rows and not has_catalogue and not has_table(connection, store.catalogue):
            raise _incomplete(connection, store.catalogue, "is missing", "collections")
        if not rows:
            raise _incomplete(connection, store.revisions, "is empty", "schema's revision")
        return str(rows[0][0])
    if has_catalogue:
        raise _incomplete(connection, store.revisions, "is missing", "schema's revision")
    return None


def create_or_find(connection: Connection) -> str | None:
    """Create the store's own tables, and return None; if another process did first, return the revision of its tables."""
    try:
        with connection.transaction(write=True):
            for statement in connection.store.create_all():
                connection.changed(statement)
            connection.changed(connection.store.stamp, {"revision": REVISION})
    except connection.database.errors.types():
        found = read_revision(connection)
        if found is None:
            raise
        return found
    return None


def has_table(connection: Connection, table: sa.Table) -> bool:
    """Return whether the database has a table."""
    reference = {"reference": connection.database.ddl.reference(table)}
    return bool(connection.rows(connection.store.has_table, reference))


def _check_database(connection: Connection) -> None:
    """Raise `DatabaseError` for an encoding that lacks characters, `InvalidOption` for a wrong `sharding`."""
    database, schema = connection.database, connection.store.names.schema
    if database.connections.probe is None:
        return
    [(encoding, version)] = connection.rows(database.connections.probe)
    if encoding != "UTF8":
        raise DatabaseError(
            f"the database's encoding must be UTF8, got {encoding}: use another database, made by "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
    found = None
    if database.ddl.distributes(version):
        catalogue = database.ddl.reference(connection.store.catalogue)
        where = {"schema": schema, "catalogue": catalogue}
        found = next(iter(connection.rows(database.ddl.sharding_probe, where)), None)
    problem = database.ddl.sharding_problem(schema, version, found)
    if problem is not None:
        raise InvalidOption("sharding", problem)


def _incomplete(connection: Connection, table: sa.Table, problem: str, unknown: str) -> SchemaError:
    store, reference = connection.store, connection.database.ddl.reference
    revisions, catalogue = reference(store.revisions), reference(store.catalogue)
    return SchemaError(
        f"the tables of collections_store are incomplete: {reference(table)} {problem}, so the {unknown} "
        "cannot be read; restore them from a backup or, to start without their "
        f"documents, drop {revisions}, {catalogue} and the collections' tables "
        f"({store.names.prefix}<number>_<name>)",
        found="nothing",
        expected=REVISION,
    )
