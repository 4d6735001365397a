"""Operations on collections and their entries in the catalogue, and the locks of a schema change.

A write locks rows of the collection's table first, and the collection's entry in the catalogue when changes are
recorded (see `recorder`). A schema change locks the two in the same order: in the opposite order, each would wait for
the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias

from ..document import moment, now
from ..errors import CollectionExists, CollectionNotFound, InvalidOption
from ..expressions.classes import value_class
from ..options import CollectionOptions, Feed, Settings
from ..results import CollectionInfo
from ..sql.dialects.protocols import TableVanished
from ..sql.select import Statements
from .catalogue import CollectionAbsent, jsonb_problem, read_options
from .dated import has_dated
from .operation import Operation
from .recorder import PendingChange, last_surplus
from .schema import identify
from .session import Session

STAGED: Final = "$"
"""The end of the names of collections that are being restored. No other collection has such a name."""
Entry: TypeAlias = tuple[str, CollectionOptions]
"""The table of a collection, and the options."""


def read_entry(session: Session, collection: str) -> Entry | None:
    """Return the catalogue's entry of a collection, or None."""
    rows = session.entries(session.store.resolve, name=collection)
    return (rows[0][0], read_options(collection, rows[0][1])) if rows else None


def existing(collection: str, entry: Entry | None) -> Entry:
    """Return an entry; raise `CollectionAbsent` for None."""
    if entry is None:
        raise CollectionAbsent(collection)
    return entry


def lock_entry(session: Session, collection: str, *, readers: bool = True) -> Entry | None:
    """Lock a collection against writers, and `readers` too, until the transaction ends; returns the entry in the
    catalogue. Raises `TableVanished` if another transaction changed the collection first.
    """
    read = read_entry(session, collection)
    if read is None:
        return None
    store, table = session.store, read[0]
    sql = store.lock_table(table, readers=readers)
    if sql is not None and session.rows(store.has_table, store.find_table(table)):
        session.changed(sql)  # unless somebody dropped it by hand
    session.changed(store.lock, {"name": collection})
    locked = read_entry(session, collection)
    if locked is None or locked[0] != read[0]:
        raise TableVanished(f"collection {collection} was changed by another transaction")
    return locked


AS_IT_IS: Final = Settings()


@value_class
class CreateCollection(Operation[None]):
    """Create a collection, unless the name exists; `must_be_new`: then raise `CollectionExists`."""

    collection: str
    body_index: bool = True
    settings: Settings = AS_IT_IS
    jsonb: bool = False
    must_be_new: bool = False
    distributed: bool = False
    writes = True

    def __call__(self, session: Session) -> None:
        options = CollectionOptions(
            body_index=self.body_index, jsonb=self.jsonb, distributed=self.distributed
        )
        options = self.settings.apply(options)
        if not create(session, self.collection, options, now()) and self.must_be_new:
            raise CollectionExists(self.collection)


def create(session: Session, collection: str, options: CollectionOptions, created: int) -> bool:
    """Create a collection with options, but without their indexes; returns False if the collection exists."""
    store = session.store
    if options.jsonb and (problem := jsonb_problem(session)):
        raise InvalidOption("jsonb", problem)
    if options.distributed and not store.can_distribute:
        problem = "needs a cluster of Citus: open the store with sharding='collections'"
        raise InvalidOption("distributed", problem)
    row = {"name": collection, "now": created, "options": options.to_text()}
    entered = session.rows(store.insert, row)
    if entered:
        table = _name_table(session, entered[0][0], collection, None, options)
        indexes = store.indexes(table)
        session.changed(indexes.create_over_expiry())
        for statement in indexes.create_over_body(0) if options.body_index else ():
            session.changed(statement)
        if options.feed is not None:
            set_options(session, collection, _with_feed(session, table, options))
    return bool(entered)


@value_class
class Configure(Operation[None]):
    """Change the settings of a collection. The table is renamed: a writer with the old settings must look the table up
    again.
    """

    collection: str
    settings: Settings
    writes = True
    creates_collection = True

    def __call__(self, session: Session) -> None:
        _, options = existing(self.collection, read_entry(session, self.collection))
        if self.settings.apply(options) == options:
            return  # without waiting for a lock
        _, options = existing(self.collection, lock_entry(session, self.collection))
        wanted = self.settings.apply(options)
        if wanted != options:
            self._change(session, options, wanted)

    def _change(
        self, session: Session, options: CollectionOptions, wanted: CollectionOptions
    ) -> None:
        store = session.store
        [(table, _, created)] = session.rows(store.delete, {"name": self.collection})
        row = {"name": self.collection, "now": created, "options": wanted.to_text()}
        [(number,)] = session.rows(store.insert, row)
        table = _name_table(session, number, self.collection, table, options)
        if options.feed is not None and wanted.feed is None:
            _drop_feed(session, self.collection, options.feed)
        elif options.feed is None and wanted.feed is not None:
            set_options(session, self.collection, _with_feed(session, table, wanted))
        session.catalogue.forget(self.collection)


@value_class
class DropCollection(Operation[bool]):
    """Delete a collection, and the remains of an interrupted restore; returns whether the collection existed."""

    collection: str
    method = "drop"
    writes = True

    def __call__(self, session: Session) -> bool:
        drop(session, f"{self.collection}{STAGED}")
        return drop(session, self.collection)


def drop(session: Session, collection: str) -> bool:
    """Drop a collection; returns whether the collection existed."""
    store = session.store
    lock_entry(session, collection)
    deleted = session.rows(store.delete, {"name": collection})
    for table, text, _ in deleted:
        options = read_options(collection, text)
        for index in options.every_index:
            for statement in store.indexes(table).drop(index):
                session.changed(statement)
        session.changed(store.drop_table(table))
        if options.feed is not None:
            _drop_feed(session, collection, options.feed)
    session.catalogue.forget(collection)
    return bool(deleted)


@value_class
class Rename(Operation[None]):
    """Rename a collection and the tables. A user of the old names must look the tables up again, and can neither write
    to nor watch the wrong collection.
    """

    collection: str
    new: str
    writes = True

    def __call__(self, session: Session) -> None:
        store = session.store
        entry = lock_entry(session, self.collection)  # before its entry is copied
        entered = session.rows(store.insert_copy, {"name": self.new, "old": self.collection})
        if not entered and session.rows(store.resolve, {"name": self.new}):
            raise CollectionExists(self.new)
        if not entered:
            raise CollectionNotFound(self.collection)
        number, table = entered[0]
        if entry is None or not session.rows(store.delete, {"name": self.collection}):
            raise CollectionNotFound(self.collection)  # another process renamed or dropped it
        table = _name_table(session, number, self.new, table, entry[1])
        _rename_feed(session, self.new, table, entry[1])
        for name in (self.collection, self.new):
            session.catalogue.forget(name)


@value_class
class ListCollections(Operation[list[CollectionInfo]]):
    """List the collections, by name."""

    method = "collections"
    snapshot = False
    collections = ()

    def __call__(self, session: Session) -> list[CollectionInfo]:
        measured: dict[str, tuple[int, int]] = {}
        while True:
            listed = session.entries(session.store.listing)
            new = [row for row in listed if row[1] not in measured]
            if not new:
                return [CollectionInfo(name, *measured[table], moment(created))
                        for name, table, created, _ in listed if not name.endswith(STAGED)]  # fmt: skip
            for name, table, _, options in new:
                found = self._measure(session, name, table, options)
                if found is not None:
                    measured[table] = found

    def _measure(
        self, session: Session, name: str, table: str, options: str
    ) -> tuple[int, int] | None:
        """Return count and size; None: the collection was dropped or renamed since the listing."""
        documents = session.store.documents(table, read_options(name, options))
        try:
            with session.savepoint():
                [(count, size)] = session.rows(documents.statistics, {"now": now()})
        except session.database.errors.types() as error:
            entry = read_entry(session, name)
            vanished = isinstance(session.database.errors.translate(error), TableVanished)
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

    def __call__(self, session: Session) -> Statements:
        return session.collection(self.collection)


def _name_table(
    session: Session, number: int, name: str, old: str | None, options: CollectionOptions
) -> str:
    store = session.store
    table = store.names.documents(number, name)
    if old is None:
        for sql in store.create_table(table, distributed=options.distributed):
            session.changed(sql)
    else:
        session.changed(store.rename_table(old, table))
    session.changed(store.set_table, {"number": number, "table": table})
    return table


def _with_feed(session: Session, table: str, options: CollectionOptions) -> CollectionOptions:
    """Create the table of changes of a collection's table."""
    assert options.feed is not None
    store = session.store
    identify(session)
    feed = replace(options.feed, physical=store.names.feed(table))
    for sql in store.create_feed(feed):
        session.changed(sql)
    return replace(options, feed=feed)


def _rename_feed(session: Session, new: str, table: str, options: CollectionOptions) -> None:
    """Rename the table of changes after a collection's table."""
    if options.feed is None:
        return
    store = session.store
    session.record_pending()  # in the table of the old name
    renamed = replace(options.feed, physical=store.names.feed(table))
    session.changed(store.rename_table(options.feed.physical, renamed.physical))
    set_options(session, new, replace(options, feed=renamed))


def _drop_feed(session: Session, collection: str, feed: Feed) -> None:
    """Drop the table of changes, and the pending changes."""
    statements = session.store.feed(feed)
    session.record(PendingChange(collection, statements, None))
    session.changed(statements.drop)


def set_options(session: Session, collection: str, options: CollectionOptions) -> None:
    """Change the options of a collection in the catalogue."""
    row = {"name": collection, "options": options.to_text()}
    session.changed(session.store.set_options, row)


@value_class
class ListPurgeable(Operation[list[str]]):
    """List the readable collections with expired documents or surplus changes."""

    collections = ()

    def __call__(self, session: Session) -> list[str]:
        listing = session.entries(session.store.listing)
        return [
            name for name, table, _, text in listing if _is_purgeable(session, name, table, text)
        ]


def _is_purgeable(session: Session, name: str, table: str, text: str) -> bool:
    options = read_options(name, text)
    if options.jsonb and jsonb_problem(session):
        return False
    statements = session.store.documents(table, options)
    if has_dated(session, name, options.indexes):
        return True
    return bool(session.rows(statements.by_id.has_expired, {"now": now()})) or (
        statements.feed is not None and last_surplus(session, statements.feed) > 0
    )
