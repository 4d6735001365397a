"""Copies of collections: the stored rows and options, and their form in another store.

A row is copied with its id, body, version and times, in natural order. Each batch is read back and compared in the
transaction of the write. `engine.backup.copying` puts these operations in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from ..codec import Codec, canonical, decode
from ..errors import (
    CollectionExists,
    CollectionNotFound,
    CopyFailed,
    InvalidBody,
    InvalidIndex,
    shortened,
)
from ..expressions.classes import value_class
from ..options import CollectionOptions
from ..query.index import Index
from ..query.text_index import TextIndex
from ..query.vector_index import VectorIndex
from ..sql.schema import REVISION
from .by_id import body_of
from .catalogue import read_options
from .collections import STAGED, Rename, create, drop, existing, lock_entry, read_entry, set_options
from .operation import Operation
from .read import BEFORE_ALL
from .schema import has_table
from .session import DriverSession, Session

BEGINNING: Final = -(2**63)
"""A time before every expiry: expired rows are read too."""
COPY_ADVICE: Final = "drop it first"
OTHER_RESTORE: Final = "another restore of it has begun since, or ended"
RESTORE_ADVICE: Final = "restore into an empty store, or pass replace=True"


class StoredRow(NamedTuple):
    """A stored document; times, and the time to live, in microseconds."""

    id: str
    body: Any
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None
    ttl: int | None

    def line(self) -> bytes:
        """Return the document's line of the checksum."""
        return canonical(list(self)) + b"\n"


class StoredRows(NamedTuple):
    """Rows with their positions, and the number of characters of JSON read."""

    rows: list[StoredRow]
    positions: list[int]
    characters: int = 0


@value_class
class StoredCollection:
    """The entry of a copied collection. `source` identifies the original of an interrupted copy."""

    name: str
    options: Mapping[str, Any] = field(repr=False)
    created_at: int
    source: str

    def checksum(self) -> str:
        """Return the checksum of everything but the documents."""
        return sha256(canonical([self.name, self.created_at, self.options])).hexdigest()

    @property
    def indexes(self) -> tuple[Index | TextIndex | VectorIndex, ...]:
        """The collection's indexes."""
        return self.parsed().every_index

    def parsed(self) -> CollectionOptions:
        """Return the options, parsed."""
        return CollectionOptions.from_portable(self.options)

    def check(self) -> None:
        """Raise the errors of `parsed`, and `InvalidIndex` and `InvalidFilter` for invalid indexes."""
        names = set()
        for index in self.indexes:
            index.check()
            if index.name in names:
                raise InvalidIndex("name", f"two indexes are called {shortened(index.name)}")
            names.add(index.name)


class Copies(Operation[Any]):
    """The base class of operations over several collections, or over the catalogue."""

    @property
    def collections(self) -> tuple[str, ...]:
        """None: the operation reads the names from the catalogue."""
        return ()


@value_class
class ListStored(Copies):
    """List the entries of the named collections, or of all, by name; raises `CollectionNotFound`. `must_exist`: raise
    the error of the database if the store has no tables.
    """

    names: tuple[str, ...] | None = None
    must_exist: bool = False

    def __call__(self, session: Session) -> list[StoredCollection]:
        sql = session.store.listing
        rows = session.rows if self.must_exist else session.entries
        found = {
            name: _stored(name, created, text)
            for name, _, created, text in rows(sql)
            if not name.endswith(STAGED)
        }
        for name in self.names or ():
            if name not in found:
                raise CollectionNotFound(name, found)
        return [each for each in found.values() if self.names is None or each.name in self.names]


def _stored(name: str, created: int, text: str) -> StoredCollection:
    options = read_options(name, text)
    portable = options.to_portable()
    source = sha256(canonical([options.cursor_key, created, name, portable])).hexdigest()[:32]
    return StoredCollection(name, portable, created, source)


class Counts(NamedTuple):
    """The number of rows of a collection, and the number of rows with an expiry."""

    total: int
    expiring: int


def check_counts(name: str, there: Counts, copied: Counts) -> None:
    """Raise `CopyFailed` unless all copied documents exist; documents with an expiry may have been purged."""
    lasting = there.total - there.expiring == copied.total - copied.expiring
    if not lasting or there.expiring > copied.expiring:
        problem = f"it has {there.total:,} documents, and {copied.total:,} were copied to it"
        raise CopyFailed(name, problem)


@value_class
class CountStored(Operation[Counts]):
    """Count the rows of a collection, and the rows with an expiry, including expired rows."""

    collection: str
    atomic = True
    empty = partial(Counts, 0, 0)

    def __call__(self, session: Session) -> Counts:
        [found] = session.rows(session.collection(self.collection).by_id.counts)
        return Counts(*found)


@value_class
class ReadStored(Operation[StoredRows]):
    """Read up to `limit` rows past the position `after` that have not expired at `now`."""

    collection: str
    after: int = BEFORE_ALL
    limit: int = 1000
    now: int = BEGINNING
    atomic = True
    empty = partial(StoredRows, [], [])

    def __call__(self, session: Session) -> StoredRows:
        parameters = {"seq": self.after, "limit": self.limit, "now": self.now}
        found = session.rows(session.collection(self.collection).by_id.copies, parameters)
        rows = [
            StoredRow(id, body_of(self.collection, id, text, decode), *columns)
            for _, id, text, *columns in found
        ]
        return StoredRows(rows, [row[0] for row in found], sum(len(row[2]) for row in found))


@value_class
class WriteStored(Operation[int]):
    """Write rows past `after`, the last position of the collection, read the rows back and compare with `lines`; return
    the last position. `truncate`: delete the rows past `after` first.
    """

    collection: str
    after: int
    rows: Sequence[StoredRow] = field(repr=False)
    lines: Sequence[bytes] = field(repr=False)
    codec: Codec
    truncate: bool = False
    writes = True

    def __call__(self, session: Session) -> int:
        statements = session.collection(self.collection).by_id
        if self.truncate:
            session.changed(statements.remove_after, {"seq": self.after})
        if not self.rows:
            return self.after
        text = statements.text
        parameters = [{**each._asdict(), "body": text(self._text(each))} for each in self.rows]
        session.changed_many(statements.insert_copies, parameters)
        there = ReadStored(self.collection, self.after, len(self.rows) + 1)(session)
        for given, line, found in zip(self.rows, self.lines, there.rows, strict=False):
            if line != found.line():
                raise CopyFailed(
                    self.collection, f"{given.id!r} was written, and {found.id!r} read"
                )
        if len(there.rows) != len(self.rows):
            read = f"{len(there.rows):,} were read: an id is there twice, or others wrote to it"
            problem = f"{len(self.rows):,} documents were written, and {read}"
            raise CopyFailed(self.collection, problem)
        return there.positions[-1]

    def _text(self, row: StoredRow) -> str:
        try:
            return self.codec.encode(row.body)
        except InvalidBody as error:
            raise error.of(self.collection, row.id) from error.__cause__


@value_class
class Restoring:
    """How collections are restored. `replace`: replace collections of the same names; otherwise none may exist.
    `whole`: without `replace`, the store must have no collections at all.
    """

    replace: bool
    whole: bool


@value_class
class BeginCopy(Copies):
    """Create the missing collections of a copy, all or none. The names of collections to restore end in `STAGED`."""

    entries: tuple[StoredCollection, ...]
    restoring: Restoring | None = None
    writes = True

    def __call__(self, session: Session) -> None:
        listing = session.rows(session.store.listing)
        there = {row[0]: read_options(row[0], row[3]).copy_of for row in listing}
        if self.restoring is not None and not self.restoring.replace:
            self._check_absent([name for name in there if not name.endswith(STAGED)])
        for each in self.entries:
            name = each.name if self.restoring is None else f"{each.name}{STAGED}"
            if there.get(name) != each.source:
                if self.restoring is not None:
                    drop(session, name)
                _create_copy(session, name, each)

    def _check_absent(self, there: list[str]) -> None:
        whole = self.restoring is not None and self.restoring.whole
        names = {each.name for each in self.entries}
        for name in there:
            if whole or name in names:
                raise CollectionExists(name, RESTORE_ADVICE)


def _create_copy(session: Session, name: str, entry: StoredCollection) -> None:
    none: dict[str, Any] = {
        "indexes": (),
        "text": None,
        "substrings": None,
        "vector_indexes": (),
    }
    options = replace(entry.parsed(), **none, copy_of=entry.source)
    if not session.store.can_distribute:
        options = replace(options, distributed=False)
    if not create(session, name, options, entry.created_at):
        raise CollectionExists(name, COPY_ADVICE)


@value_class
class EndCopy(Copies):
    """Mark copied collections as complete, and give restored collections their names; all or none. Raise `CopyFailed`
    if another restore has written to a collection.
    """

    copied: tuple[tuple[StoredCollection, Counts], ...]
    restoring: Restoring | None = None
    writes = True
    snapshot = False
    """Statements after the lock of a collection see all earlier writes."""

    def __call__(self, session: Session) -> None:
        for entry, counts in self.copied:
            name = entry.name
            if self.restoring is not None:
                _check_staged(session, entry, counts)
                if self.restoring.replace:
                    drop(session, name)
                Rename(f"{name}{STAGED}", name)(session)
            _, options = existing(name, lock_entry(session, name, readers=False))
            set_options(session, name, replace(options, copy_of=""))
            session.catalogue.forget(name)


def _check_staged(session: Session, entry: StoredCollection, counts: Counts) -> None:
    staged = f"{entry.name}{STAGED}"
    locked = lock_entry(session, staged, readers=False)
    if locked is None or locked[1].copy_of != entry.source:
        raise CopyFailed(entry.name, OTHER_RESTORE)
    check_counts(entry.name, CountStored(staged)(session), counts)


@value_class
class DropStaged(Copies):
    """Drop the staged collections of a failed restore."""

    entries: tuple[StoredCollection, ...]
    writes = True

    def __call__(self, session: Session) -> None:
        for each in self.entries:
            name = f"{each.name}{STAGED}"
            there = read_entry(session, name)
            if there is not None and there[1].copy_of == each.source:
                drop(session, name)


@value_class
class BackUp(Copies):
    """Copy the database to another session's database, `pages` pages at a time, in a single snapshot. `report` is
    called with the number of copied pages and the total.
    """

    target: DriverSession
    pages: int
    report: Callable[[int, int], object]

    def __call__(self, session: Session) -> None:
        session.entries(session.store.listing)  # the snapshot begins with the first statement

        def progress(_status: int, remaining: int, total: int) -> None:
            self.report(total - remaining, total)

        source: Any = session  # both kinds have the driver's
        source.driver.backup(self.target.driver, pages=self.pages, progress=progress, sleep=0)
        if not session.catalogue.exists:  # a backup has the tables nevertheless
            for sql in session.store.create_all():
                self.target.command(sql)
            self.target.changed(session.store.stamp, {"revision": REVISION})


class Checksum(NamedTuple):
    """The record of a collection in a backup file: the checksum of the entry, the number of documents, and the
    documents' checksum.
    """

    name: str
    entry: str
    documents: int
    sha256: str


@value_class
class Seal(Copies):
    """Record checksums in the database of another session, a backup."""

    target: DriverSession
    checksums: tuple[Checksum, ...]

    def __call__(self, session: Session) -> None:
        store = session.store
        for setting in session.database.backups.sealing_settings:
            self.target.command(setting)
        with self.target.transaction(write=True):
            self.target.changed(store.create_checksums)
            self.target.changed(store.clear_checksums)
            rows = [each._asdict() for each in self.checksums]
            self.target.changed_many(store.insert_checksum, rows)


@value_class
class ReadChecksums(Copies):
    """Read the checksums of a backup; None without checksums."""

    def __call__(self, session: Session) -> dict[str, Checksum] | None:
        if not has_table(session, session.store.checksums):
            return None
        rows = session.rows(session.store.select_checksums)
        return {row[0]: Checksum(*row) for row in rows}


@value_class
class FindDamage(Copies):
    """Return a damage of the database's file; None for an intact file."""

    def __call__(self, session: Session) -> str | None:
        probe = session.database.backups.integrity_probe
        [(found,), *_] = [("ok",)] if probe is None else session.rows(probe)
        return None if found == "ok" else str(found)
