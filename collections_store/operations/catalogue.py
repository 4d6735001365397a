"""The collections there are: which table is whose, and how one comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from ..collection_options import CollectionOptions, Feed, Settings
from ..document import CollectionInfo, moment
from ..errors import (
    CollectionExists,
    CollectionNotFound,
    CollectionsStoreError,
    InvalidOption,
)
from ..frozen import frozen
from ..schema import now
from ..statements import CatalogueStatements, Statements
from .locking import Entry, check_readable, jsonb_problem, lock_entry, read_entry
from .recording import Pending

if TYPE_CHECKING:
    from .connection import Connection


Tables: TypeAlias = dict[str, tuple[str, Statements]]
"""What is known of tables: the options, as the catalogue has them, and the statements."""


REFRESHED_AFTER: Final = 5.0
"""Seconds after which another process's indexes are noticed."""


AS_IT_IS: Final = Settings()


class CollectionAbsent(CollectionsStoreError):
    """The collection `name` has not come into being yet."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collection {name!r}")
        self.name = name


def _nobody(collections: Iterable[str]) -> None:
    """Listen to nothing."""


class Catalogue:
    """What is known of which table is whose. It may be out of date: see `forget`."""

    def __init__(
        self,
        statements: CatalogueStatements,
        tables: Tables | None = None,
        *,
        remembers: bool = True,
        above: Catalogue | None = None,
    ) -> None:
        self.statements, self._above = statements, above
        self.changed: Callable[[Iterable[str]], None] = _nobody if above is None else above.changed
        """Hears of each commit that records changes, and of which collections."""
        self._known: dict[str, tuple[Statements, float]] | None = {} if remembers else None
        self._tables: Tables = {} if tables is None else tables
        self._changed: set[str] = set()

    def find(self, connection: Connection, name: str) -> Statements:
        """Return the statements of a collection's table; raises `CollectionAbsent`."""
        if self._known is None:
            return self._look_up(connection, name)
        known = self._known.get(name)
        if known is None or monotonic() > known[1]:
            known = self._look_up(connection, name), monotonic() + REFRESHED_AFTER
            self._known[name] = known
        return known[0]

    def _look_up(self, connection: Connection, name: str) -> Statements:
        rows = connection.rows(self.statements.resolve, {"name": name})
        if not rows:
            raise CollectionAbsent(name)
        table, options = rows[0]
        known = self._tables.get(table)
        if known is None or known[0] != options:
            read = CollectionOptions.from_text(options)
            check_readable(connection, name, read)
            known = self._tables[table] = options, self.statements.documents(table, read)
        return known[1]

    def forget(self, name: str | None) -> None:
        """Look the collection up anew, the next time."""
        if name is None or self._known is None:
            return
        self._known.pop(name, None)
        if self._above is not None:
            self._changed.add(name)

    def forget_all(self) -> None:
        """Look each collection up anew: what was learnt may have been undone."""
        if self._known is not None:
            self._known.clear()

    def for_transaction(self) -> Catalogue:
        """Return a catalogue for a transaction of the store's own, which keeps to itself what it
        learns: it may be rolled back.
        """
        return Catalogue(self.statements, self._tables, above=self)

    def of_the_store(self) -> Catalogue:
        """Return the store's catalogue: this one, unless it is a transaction's."""
        return self._above or self

    def tell(self) -> None:
        """Have the store's catalogue forget what the transaction changed; it was committed."""
        for name in self._changed:
            self.of_the_store().forget(name)

    def without_memory(self) -> Catalogue:
        """Return a catalogue for a caller's transaction, which looks up each time: what it sees may
        be rolled back, and the name of a table be given again.
        """
        return Catalogue(self.statements, self._tables, remembers=False)


@frozen
class CreateCollection:
    """Have a collection, whether or not it was there; tells whether it is a new one."""

    collection: str
    body_index: bool = True
    settings: Settings = AS_IT_IS
    jsonb: bool = False
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> bool:
        store = connection.store
        if self.jsonb and (problem := jsonb_problem(connection)):
            raise InvalidOption("jsonb", problem)
        options = CollectionOptions(body_index=self.body_index, jsonb=self.jsonb)
        options = self.settings.apply(options)
        row = {"name": self.collection, "now": now(), "options": options.to_text()}
        entered = connection.rows(store.enter, row)
        if entered:
            table = _give_table(connection, entered[0][0], self.collection, None)
            _index_anew(connection, table, bodies=self.body_index)
            if options.feed is not None:
                _keep_options(connection, self.collection, _with_feed(connection, table, options))
        return bool(entered)


@frozen
class NewCollection:
    """Create a collection that is not there yet."""

    collection: str
    body_index: bool
    settings: Settings = AS_IT_IS
    jsonb: bool = False
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> None:
        creating = CreateCollection(self.collection, self.body_index, self.settings, self.jsonb)
        if not creating(connection):
            raise CollectionExists(self.collection)


@frozen
class Configure:
    """Change what the catalogue keeps of a collection. Its table is renamed: whoever writes by what it
    was must look it up again.
    """

    collection: str
    settings: Settings
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> None:
        options = self._found(read_entry(connection, self.collection))
        if self.settings.apply(options) == options:
            return  # nobody was waited for
        options = self._found(lock_entry(connection, self.collection))
        wanted = self.settings.apply(options)
        if wanted != options:
            self._change(connection, options, wanted)

    def _found(self, entry: Entry | None) -> CollectionOptions:
        if entry is None:
            raise CollectionAbsent(self.collection)
        return entry[1]

    def _change(
        self, connection: Connection, options: CollectionOptions, wanted: CollectionOptions
    ) -> None:
        store = connection.store
        [(table, _, created)] = connection.rows(store.forget, {"name": self.collection})
        row = {"name": self.collection, "now": created, "options": wanted.to_text()}
        [(number,)] = connection.rows(store.enter, row)
        table = _give_table(connection, number, self.collection, table)
        if options.feed is not None and wanted.feed is None:
            _drop_feed(connection, self.collection, options.feed)
        elif options.feed is None and wanted.feed is not None:
            _keep_options(connection, self.collection, _with_feed(connection, table, wanted))
        connection.catalogue.forget(self.collection)


@frozen
class Drop:
    """Delete a collection with all its objects; tells whether it was there."""

    collection: str
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> bool:
        store = connection.store
        lock_entry(connection, self.collection)
        forgotten = connection.rows(store.forget, {"name": self.collection})
        for table, text, _ in forgotten:
            options = CollectionOptions.from_text(text)
            for index in options.indexes:
                for statement in store.indexes(table).drop(index):
                    connection.changed(statement)
            connection.changed(store.drop_table(table))
            if options.feed is not None:
                _drop_feed(connection, self.collection, options.feed)
        connection.catalogue.forget(self.collection)
        return bool(forgotten)


@frozen
class Rename:
    """Give a collection another name. Its tables are renamed too: what still holds the old ones must
    look them up again, and can neither write to nor watch the wrong collection.
    """

    collection: str
    new: str
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> None:
        store = connection.store
        entry = lock_entry(connection, self.collection)  # what is copied must be the last
        entered = connection.rows(store.enter_copy, {"name": self.new, "old": self.collection})
        if not entered and connection.rows(store.resolve, {"name": self.new}):
            raise CollectionExists(self.new)
        if not entered:
            raise CollectionNotFound(self.collection)
        number, table = entered[0]
        if entry is None or not connection.rows(store.forget, {"name": self.collection}):
            raise CollectionNotFound(self.collection)  # another process was faster
        table = _give_table(connection, number, self.new, table)
        _rename_feed(connection, self.new, table, entry[1])
        for name in (self.collection, self.new):
            connection.catalogue.forget(name)


@frozen
class ListCollections:
    """Read what there is, by name."""

    WRITES: ClassVar = False
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> list[CollectionInfo]:
        return list(self._each(connection))

    def _each(self, connection: Connection) -> Iterator[CollectionInfo]:
        store = connection.store
        for name, table, created, options in connection.rows(store.listing):
            documents = store.documents(table, CollectionOptions.from_text(options))
            [(count, size)] = connection.rows(documents.statistics, {"now": now()})
            yield CollectionInfo(name, count, size, moment(created))


@frozen
class FindTable:
    """Return the statements of a collection's table."""

    collection: str
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Statements:
        return connection.collection(self.collection)


def _give_table(connection: Connection, number: int, name: str, old: str | None) -> str:
    store = connection.store
    table = store.names.documents(number, name)
    words = store.create_table(table) if old is None else store.rename_table(old, table)
    connection.changed(words)
    connection.changed(store.assign, {"number": number, "table": table})
    return table


def _index_anew(connection: Connection, table: str, *, bodies: bool) -> None:
    statements = connection.store.indexes(table)
    connection.changed(statements.create_over_expiry())
    for statement in statements.create_over_body(0) if bodies else ():
        connection.changed(statement)


def _with_feed(connection: Connection, table: str, options: CollectionOptions) -> CollectionOptions:
    """Create the table for the changes of a collection's table."""
    assert options.feed is not None
    store = connection.store
    feed = replace(options.feed, physical=store.names.feed(table))
    connection.changed(store.feed(feed).create)
    return replace(options, feed=feed)


def _rename_feed(connection: Connection, new: str, table: str, options: CollectionOptions) -> None:
    """Give the table of changes the name that goes with a collection's table."""
    if options.feed is None:
        return
    store = connection.store
    connection.record_now()  # by the old names
    renamed = replace(options.feed, physical=store.names.feed(table))
    connection.changed(store.rename_table(options.feed.physical, renamed.physical))
    _keep_options(connection, new, replace(options, feed=renamed))


def _drop_feed(connection: Connection, collection: str, feed: Feed) -> None:
    """Drop the table of changes, and what the transaction was to record in it."""
    statements = connection.store.feed(feed)
    connection.record(Pending(collection, statements, None))
    connection.changed(statements.drop)


def _keep_options(connection: Connection, collection: str, options: CollectionOptions) -> None:
    row = {"name": collection, "options": options.to_text()}
    connection.changed(connection.store.keep_options, row)
