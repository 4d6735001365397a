"""Backups of a store: as text, whatever the database, or as a database file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from ...codec import Codec
from ...document import check_names, now
from ...errors import (
    CollectionNotFound,
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    InvalidBackup,
    InvalidOption,
    SchemaError,
    TransactionConflict,
    shortened,
)
from ...operations.catalogue import Catalogue
from ...operations.copied_vectors import StoredVector
from ...operations.copying import (
    BEGINNING,
    BackUp,
    Checksum,
    FindDamage,
    ListStored,
    ReadChecksums,
    Restoring,
    Seal,
    StoredCollection,
    StoredRow,
)
from ...operations.operation import Work
from ...operations.session import DriverSession
from ...options import Options, check_flag
from ...results import CopiedCollection, CopyProgress
from ...sql.catalogue import CatalogueStatements
from ...sql.dialects import backup_url, is_sealed, named
from ..core import Core
from ..database_file import START, locked_start, opening
from ..executor import translated
from ..pool import open_engine
from .archive import NO_BACKUP, UNPARSED, ArchiveSource, ArchiveTarget, check_row
from .atomic_file import compressed, replacing
from .copying import (
    Report,
    Run,
    StoreSource,
    StoreTarget,
    Vectors,
    check_report,
    copy,
    copy_store,
    is_own_file,
    report_of,
)

CHANGED: Final = (
    "the documents are not those of the backup: they were changed, or the file is damaged"
)
TEXT: Final = (".jsonl", ".jsonl.gz")
"""The endings of backups as text."""
_LOGS: Final = ("-wal", "-shm", "-journal")


def back_up(
    core: Core, path: Any, collections: Iterable[str] | None, progress: object, *, vectors: bool
) -> None:
    """Write a backup of a store: `Store.backup`."""
    file, names, report = read_path(path), check_names(collections), report_of(core, progress)
    check_flag("vectors", vectors)
    if is_own_file(core, file):
        raise InvalidOption("path", "is the store's own file: name another")
    if is_text(file):
        write_text(core.run, names, file, report, vectors=vectors)
    elif names is not None:
        raise InvalidOption("collections", "a database file has all collections: name a .jsonl")
    else:
        write_database(core.run, core.url, core.catalogue.statements, file, report)


def restore(
    core: Core, path: Any, collections: Iterable[str] | None, progress: object, *, replace: bool
) -> tuple[CopiedCollection, ...]:
    """Restore a backup into a store: `Store.restore`."""
    file, names, report = read_path(path), check_names(collections), check_report(progress)
    restoring = Restoring(check_flag("replace", replace), names is None)
    if is_own_file(core, file):
        raise InvalidOption("path", "is the store's own file: name a backup")
    target = StoreTarget(core.run, core.codec, restoring)
    database = database_backup(file)
    if database is None:
        with closing(ArchiveSource(str(file), core.codec, names)) as source:
            return copy(source, target, report)
    prefix = core.options.prefix
    with closing(Core(database.url, None, {"prefix": prefix, "upgrade": "manual"})) as backup:
        return database.restore(backup.run, prefix, names, target, report)


def is_text(path: Path) -> bool:
    """Return whether a backup of this name is text."""
    return path.name.lower().endswith(TEXT)


def write_text(
    run: Run, names: tuple[str, ...] | None, path: Path, report: Report, *, vectors: bool
) -> None:
    """Write collections to a file. The complete file replaces `path`."""
    _check_target(path)
    with replacing(path) as file, compressed(file, path) as stream:
        target = ArchiveTarget(stream, vectors)
        copy_store(run, names, target, report, "backup", vectors=vectors)


def write_database(
    run: Run, url: sa.URL, statements: CatalogueStatements, path: Path, report: Report
) -> None:
    """Write the store's database, and checksums, to a file. The complete file replaces `path`."""
    database = statements.database
    pages = database.backups.pages
    if pages is None:
        raise InvalidOption("path", f"must end in {' or '.join(TEXT)}, got {path.name!r}")
    _check_target(path)
    with replacing(path) as file:
        engine = open_engine(
            sa.URL.create(url.drivername, database=file.name), database, Options(busy_timeout=1.0)
        )
        with closing(engine.raw_connection()) as raw:
            target = DriverSession(raw.driver_connection, Catalogue(statements))
            try:
                fill = partial(_fill, target=target, pages=pages, report=report)
                run(Work((), fill, writes=False, method="backup"))
            except DatabaseError as error:  # it names the store's own file
                number = database.errors.errno(error.__cause__)
                if number is None:
                    raise
                raise OSError(number, os.strerror(number), str(path)) from error
        engine.dispose()


def _fill(run: Run, target: DriverSession, pages: int, report: Report) -> None:
    """Copy a database, and record the checksums of the collections."""
    source = StoreSource(run, None, BEGINNING)
    documents, copied = source.total(), 0

    def count(done: int, total: int) -> None:
        nonlocal copied
        copied = total
        report(CopyProgress("", done, total + documents))

    def count_documents(progress: CopyProgress) -> None:
        report(CopyProgress("", copied + progress.done, copied + progress.total))

    run(BackUp(target, pages, count))
    checksums = Checksums()
    copy(source, checksums, count_documents)
    run(Seal(target, tuple(checksums.found)))


@dataclass
class Checksums:
    """The target of a copy: computes checksums, stores nothing. `check` is called with each document and vector first."""

    check: Callable[[StoredCollection, StoredRow | StoredVector], None] = lambda _entry, _row: None
    found: list[Checksum] = field(default_factory=list)

    def begin(self, entries: list[StoredCollection]) -> None:
        """Do nothing."""

    def write(
        self, entry: StoredCollection, batches: Iterable[list[StoredRow]], vectors: Vectors
    ) -> CopiedCollection:
        digest, count = sha256(), 0
        for batch in batches:
            for row in batch:
                self.check(entry, row)
                digest.update(row.line())
            count += len(batch)
        for some in vectors:
            for each in some:
                self.check(entry, each)
        self.found.append(Checksum(entry.name, entry.checksum(), count, digest.hexdigest()))
        return CopiedCollection(entry.name, count, digest.hexdigest())

    def end(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class DatabaseBackup:
    """A backup in the form of a database file. `is_sealed`: no store has written to the file."""

    file: str
    url: sa.URL
    is_sealed: bool

    def restore(
        self,
        backup: Run,
        prefix: str,
        names: tuple[str, ...] | None,
        target: StoreTarget,
        report: Report,
    ) -> tuple[CopiedCollection, ...]:
        """Check the backup's database, then copy collections; raise `InvalidBackup`. `backup` runs operations on the
        database.
        """

        def check_and_copy(run: Run) -> tuple[CopiedCollection, ...]:
            self._check(run, names, target.codec)
            return copy(StoreSource(run, names, now(), True), target, report)

        problem = (
            f"it is no SQLite file that backup wrote, with prefix {prefix!r}, or it is damaged"
        )
        with self._refusing(problem, shows_error=False):  # "read-only", as the tables are missing
            backup(ListStored(names, must_exist=True))
        restored: tuple[CopiedCollection, ...] = backup(Work((), check_and_copy, writes=False))
        return restored

    def _check(self, run: Run, names: tuple[str, ...] | None, codec: Codec) -> None:
        checksums = Checksums(partial(self._check_row, codec))
        source = StoreSource(run, names, BEGINNING, True)
        database = named(self.url.get_backend_name())
        with self._refusing("the file is damaged"), translated(database):
            damage = run(FindDamage())
            if damage is not None:
                raise DatabaseError(damage)
            recorded = run(ReadChecksums()) if self.is_sealed else None
            for entry in source.entries():
                entry.check()
            copy(source, checksums, lambda _: None)
        for each in checksums.found:
            if recorded is not None and recorded.pop(each.name, None) != each:
                raise InvalidBackup(self.file, f"collection {each.name!r}", CHANGED)
        if recorded and names is None:
            raise InvalidBackup(self.file, f"collection {min(recorded)!r}", "it is missing")

    def _check_row(
        self, codec: Codec, entry: StoredCollection, row: StoredRow | StoredVector
    ) -> None:
        with self._refusing(f"document {shortened(row.id)} of the collection {entry.name!r}"):
            if isinstance(row, StoredVector):
                row.check(entry.parsed().vector_indexes)
            else:
                check_row(row, codec)

    @contextmanager
    def _refusing(self, problem: str, *, shows_error: bool = True) -> Iterator[None]:
        """Raise `InvalidBackup` for an error caused by the content of the file."""
        try:
            yield
        except (CollectionNotFound, DatabaseBusy, InvalidBackup, SchemaError, TransactionConflict):
            raise
        except (CollectionsStoreError, *UNPARSED) as error:
            details = f": {error}" if shows_error else ""
            raise InvalidBackup(self.file, "", f"{problem}{details}") from error


def _check_target(path: Path) -> None:
    """Raise `InvalidOption` if no backup can be written to a path."""
    if path.exists() and not path.is_file():
        raise InvalidOption("path", f"must name a file, got {str(path)!r}")
    if path.resolve().name.endswith(_LOGS):
        raise InvalidOption("path", f"must not end in {', '.join(_LOGS)}: SQLite names its logs so")
    if _has_log(path) or locked_start(path):
        raise InvalidOption("path", f"{str(path)!r} is a database in use: name another file")


def _has_log(path: Path) -> bool:
    return any(path.with_name(f"{path.name}{end}").exists() for end in _LOGS)


def database_backup(path: Path) -> DatabaseBackup | None:
    """Return the backup at a path; None if the file is not a database. Raise `InvalidBackup`, `InvalidOption` and
    `OSError`.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise InvalidOption("path", f"must name a file, got {str(path)!r}")
    real = path.resolve()
    with opening():
        start = locked_start(real)
        is_locked = start is not None
        if start is None:
            with path.open("rb") as stream:
                start = stream.read(START)
    url = backup_url(str(real), start, is_in_use=is_locked or _has_log(real))
    if url is not None:
        return DatabaseBackup(str(path), url, is_sealed(start))
    if is_locked:
        raise InvalidBackup(str(path), "", NO_BACKUP)
    return None


def read_path(path: Any) -> Path:
    """Return the path of a backup; raise `InvalidOption`."""
    try:
        found = Path(path)
        is_name = found.name != "" and b"\0" not in os.fsencode(found)
    except (TypeError, UnicodeEncodeError):
        is_name = False
    if not is_name:
        raise InvalidOption("path", f"must be the path of a file, got {shortened(path)}")
    return found
