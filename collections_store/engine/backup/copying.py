"""Copying collections from a source to a target: stores, and the files of `archive`.

Rules:

1. A store is read in a snapshot: the copy has the documents of a single moment, also under concurrent writes.
2. An interrupted copy is continued by the same call. The collections of the target are marked until all are complete.
   Rows in the target are compared with the source from the beginning, and replaced from the first difference on.
3. A restore writes to staged collections, which `end` renames in a transaction: the store has either the old state or
   the whole backup. If another restore wrote to the staged collections meanwhile, `end` renames none.
4. Rows are written in the natural order of the source. The numbers of the positions may differ.
5. Each batch is compared with the written rows, in the batch's transaction; the counts are compared at the end.
6. `report` is called after each batch. An exception from `report` ends the copy, which can then be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from ...codec import Codec
from ...document import check_names, now
from ...errors import CollectionsStoreError, DatabaseError, InvalidOption
from ...operations.collections import STAGED
from ...operations.copied_vectors import ReadStoredVectors, StoredVector, WriteStoredVectors
from ...operations.copying import (
    BeginCopy,
    Counts,
    CountStored,
    DropStaged,
    EndCopy,
    ListStored,
    ReadStored,
    Restoring,
    StoredCollection,
    StoredRow,
    WriteStored,
    check_counts,
)
from ...operations.indexes import CreateIndex
from ...operations.operation import Work
from ...operations.read import BEFORE_ALL, FIRST_BATCH, next_limit
from ...options import check_flag, check_function
from ...results import CopiedCollection, CopyProgress
from ..core import Core
from ..database_file import identity
from ..permits import between_operations

Run = Callable[[Any], Any]
"""Runs an operation, and returns its result."""
Report = Callable[[CopyProgress], object]
Vectors = Iterable[list[StoredVector]]


def check_report(progress: object) -> Report:
    """Return the caller's function, or a function without effect for None; raise `InvalidOption`."""
    return check_function("progress", (lambda _: None) if progress is None else progress)


def report_of(core: Core, progress: object) -> Report:
    """Return the caller's function. If `core` has several connections, the function may use the store meanwhile."""
    report = check_report(progress)
    return report if core.limit == 1 else between_operations(report)


def is_own_file(core: Core, path: Path) -> bool:
    """Return whether a path leads to the file of a store's database."""
    own = core.database.urls.file_of(core.url)
    return own is not None and identity(path) is not None and identity(path) == identity(own)


def _have_same_tables(core: Core, other: Core) -> bool:
    """Return whether two stores have the same tables, judged by their URLs."""
    if core.options.names() != other.options.names():
        return False
    file = other.database.urls.file_of(other.url)
    if file is not None:
        return is_own_file(core, Path(file))
    return core.url == other.url and not core.is_private


def copy_to(
    source: Core,
    target: Core,
    collections: Iterable[str] | None,
    progress: object,
    *,
    vectors: bool,
) -> tuple[CopiedCollection, ...]:
    """Copy collections of a store to another store: `Store.copy_to`."""
    if _have_same_tables(source, target):
        problem = f"must have other tables than this store, got {target.shown!r}"
        raise InvalidOption("other", problem)
    names, report = check_names(collections), report_of(source, progress)
    check_flag("vectors", vectors)
    copies = StoreTarget(target.run, target.codec)
    return copy_store(source.run, names, copies, report, "copy_to", vectors=vectors)


class CopySource(Protocol):
    """The source of a copy."""

    def entries(self) -> list[StoredCollection]:
        """Return the collections, in the order of the copy."""

    def total(self) -> int:
        """Return the approximate number of documents."""

    def batches(self, entry: StoredCollection) -> Iterator[list[StoredRow]]:
        """Yield the rows of a collection, in natural order."""

    def vectors(self, entry: StoredCollection) -> Iterator[list[StoredVector]]:
        """Yield the vectors of a collection, after its rows; those of a document together."""


class CopyTarget(Protocol):
    """The target of a copy."""

    def begin(self, entries: list[StoredCollection]) -> None:
        """Create the collections."""

    def write(
        self, entry: StoredCollection, batches: Iterable[list[StoredRow]], vectors: Vectors
    ) -> CopiedCollection:
        """Write the rows of a collection, then the vectors."""

    def end(self) -> None:
        """Complete the copy."""


def copy(source: CopySource, target: CopyTarget, report: Report) -> tuple[CopiedCollection, ...]:
    """Copy all collections of the source."""
    entries, total, done = source.entries(), source.total(), 0

    def reported(entry: StoredCollection) -> Iterator[list[StoredRow]]:
        nonlocal done
        for batch in source.batches(entry):
            yield batch
            done += len(batch)
            report(CopyProgress(entry.name, done, max(total, done)))

    target.begin(entries)
    copied = tuple(target.write(each, reported(each), source.vectors(each)) for each in entries)
    target.end()
    return copied


def copy_store(
    read: Run,
    names: tuple[str, ...] | None,
    target: CopyTarget,
    report: Report,
    method: str,
    *,
    vectors: bool,
) -> tuple[CopiedCollection, ...]:
    """Copy collections of a store in a snapshot, for a `method` of the store. `read` runs the store's operations."""
    return read(  # type: ignore[no-any-return]
        Work(
            (),
            lambda run: copy(StoreSource(run, names, now(), vectors), target, report),
            False,
            method=method,
        )
    )


@dataclass
class StoreSource:
    """Collections of a store, all or by `names`. `run` runs operations in a snapshot. `has_vectors`: with the vectors that
    models made.
    """

    run: Run
    names: tuple[str, ...] | None
    moment: int
    has_vectors: bool = False

    def entries(self) -> list[StoredCollection]:
        """Return the collections by name; raise `CollectionNotFound`."""
        found: list[StoredCollection] = self.run(ListStored(self.names))
        return found

    def total(self) -> int:
        """Return the number of rows, including expired documents."""
        return sum(self.run(CountStored(each.name))[0] for each in self.entries())

    def batches(self, entry: StoredCollection) -> Iterator[list[StoredRow]]:
        """Yield the documents that have not expired at `moment`."""
        after, limit = BEFORE_ALL, FIRST_BATCH
        while True:
            read = self.run(ReadStored(entry.name, after, limit, self.moment))
            if read.rows:
                yield read.rows
            if len(read.rows) < limit:
                return
            after, limit = read.positions[-1], next_limit(limit, read.characters)

    def vectors(self, entry: StoredCollection) -> Iterator[list[StoredVector]]:
        """Yield the vectors of the documents whose texts have not changed since."""
        indexes = entry.parsed().vector_indexes if self.has_vectors else ()
        for index in indexes:
            read = ReadStoredVectors(entry.name, index.name)
            while index.model is not None and (found := self.run(read)).rows:
                yield found.rows
                read = ReadStoredVectors(entry.name, index.name, found.last)


@dataclass
class StoreTarget:
    """The target store of a copy, or of a restore if `restoring` is given."""

    run: Run
    codec: Codec
    restoring: Restoring | None = None
    _entries: tuple[StoredCollection, ...] = ()
    _copied: list[tuple[StoredCollection, Counts]] = field(default_factory=list)

    def begin(self, entries: list[StoredCollection]) -> None:
        """Create the collections, all or none, unless the same copy has created them before."""
        self._entries, self._copied = tuple(entries), []
        self.run(BeginCopy(self._entries, self.restoring))

    def write(
        self, entry: StoredCollection, batches: Iterable[list[StoredRow]], vectors: Vectors
    ) -> CopiedCollection:
        """Write the missing rows, then the indexes with their vectors; raise `CopyFailed`."""
        if self.restoring is None:
            return self._write(entry, entry.name, batches, vectors)
        staged = f"{entry.name}{STAGED}"
        try:
            return self._write(entry, staged, batches, vectors)
        except DatabaseError:  # the same call goes on
            raise
        except CollectionsStoreError as error:
            with suppress(CollectionsStoreError):
                self.run(DropStaged(self._entries))
            _name_collection(error, staged, entry.name)
            raise

    def _write(
        self,
        entry: StoredCollection,
        name: str,
        batches: Iterable[list[StoredRow]],
        vectors: Vectors,
    ) -> CopiedCollection:
        digest, count, expiring, comparing, after = sha256(), 0, 0, True, BEFORE_ALL
        for batch in batches:
            lines, same = [row.line() for row in batch], 0
            if comparing:
                same, after = self._compare(name, after, lines)
            if same < len(batch):
                rest = batch[same:], lines[same:]
                after = self.run(WriteStored(name, after, *rest, self.codec, comparing))
                comparing = False
            digest.update(b"".join(lines))
            expiring += sum(row.expires_at is not None for row in batch)
            count += len(batch)
        if comparing:
            self.run(WriteStored(name, after, (), (), self.codec, True))
        counts = Counts(count, expiring)
        check_counts(name, self.run(CountStored(name)), counts)
        self._copied.append((entry, counts))
        for index in entry.indexes:
            self.run(CreateIndex(name, index))
        for some in vectors:
            self.run(WriteStoredVectors(name, some))
        return CopiedCollection(entry.name, count, digest.hexdigest())

    def _compare(self, name: str, after: int, lines: list[bytes]) -> tuple[int, int]:
        """Return the number of leading rows of a batch already stored past a position, and the position of the last."""
        there = self.run(ReadStored(name, after, len(lines)))
        same = 0
        for line, found, position in zip(lines, there.rows, there.positions, strict=False):
            if line != found.line():
                break
            same, after = same + 1, position
        return same, after

    def end(self) -> None:
        """Mark the collections as complete, and rename restored collections to their final names."""
        self.run(EndCopy(tuple(self._copied), self.restoring))


def _name_collection(error: CollectionsStoreError, staged: str, name: str) -> None:
    """Replace the name of a staged collection in an error by the final name."""
    known: Any = error
    if getattr(error, "collection", None) == staged:
        known.collection = name
        error.args = (str(error).replace(staged, name), *error.args[1:])
