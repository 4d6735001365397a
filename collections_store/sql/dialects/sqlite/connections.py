"""URLs, connections, transactions and errors of SQLite."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from ....errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    InvalidUrl,
    TransactionConflict,
)
from ....options import Options
from ..protocols import (
    Backups,
    Connections,
    Errors,
    Function,
    State,
    TableVanished,
    Transactions,
    UniqueViolated,
    Urls,
)
from .filters import functions, raised_within

PAGE_CACHE: Final = 16 * 2**20
"""Bytes, by default. With SQLite's own 2 MB, repeated gets of some hundred among a million documents take twice as
long (measured)."""
MAX_KIBIBYTES: Final = 2**31 - 1
"""SQLite takes a larger number for 0, and caches next to nothing."""
BUSY_SLICE: Final = 0.25
"""Seconds that SQLite waits for a lock at once: between two waits the caller's timeout is checked."""
_TRUE: Final = ("1", "true", "yes", "on")
_SWITCH: Final = (*_TRUE, "0", "false", "no", "off")
_URL_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "cache": ("shared", "private"),
    "immutable": _SWITCH,
    "mode": ("ro", "rw", "rwc", "memory"),
    "nolock": _SWITCH,
    "psow": _SWITCH,
    "uri": _SWITCH,
    "vfs": (),
}
"""SQLite's options, each with its values, and SQLAlchemy's `uri`."""
_OUR_INDEX: Final = re.compile(r"[\w$]+\$i\d+")
_VANISHED: Final = re.compile("no such (table|index)")
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNAVAILABLE: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB})
_ERRNOS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR_WRITE: errno.EIO,
    sqlite3.SQLITE_IOERR_FSYNC: errno.EIO,
}
_ADVICE: Final = {
    sqlite3.SQLITE_CANTOPEN: "does the folder exist, and may this process write there?",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_READONLY_DIRECTORY: "SQLite creates files beside it, also to read, and the folder is read-only: copy the "
    "file and its -wal elsewhere or, if there is no -wal and nobody writes, append ?immutable=1 to the URL",
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
}


class SqliteUrls(Urls):
    """SQLite's URLs: files, URIs, and databases in memory."""

    def normal_url(self, url: sa.URL) -> sa.URL:
        """Accept SQLAlchemy's URLs and AEA's `sqlite://./file.db`."""
        if url.drivername not in {"sqlite", "sqlite+pysqlite"}:
            usable = url.set(drivername="sqlite").render_as_string()
            raise InvalidUrl(f"{url.drivername!r} is no driver of this library: use {usable}")
        if url.host == "." and url.database:
            url = sa.URL.create("sqlite", database=url.database, query=url.query)
        if url.host:
            raise InvalidUrl(
                f"{url.render_as_string()!r}: an SQLite file has no host: write "
                f"sqlite:///{url.host}{'/' + url.database if url.database else ''} (relative) or "
                "sqlite:////folder/file.db (absolute)"
            )
        if "\0" in (url.database or ""):
            raise InvalidUrl("the path of an SQLite file must not contain NUL characters")
        for option, value in url.query.items():
            _check_option(option, value)
        return url.set(drivername="sqlite+pysqlite")

    def connect_url(self, url: sa.URL) -> sa.URL:
        """Return an SQLite URI, for the URL's options. The URI creates no file: the store has created the file before."""
        path = self.file_of(url)
        options = {**url.query, "uri": "true"}
        if path is None:
            if "mode" in url.query and not _is_on(url, "uri"):
                name = quote(str(url.database).removeprefix("file:"))
                return url.set(database=f"file:{name}", query=options)
            return url
        if self.is_created(url):
            options["mode"] = "rw"
        elif _is_on(url, "immutable"):
            options["mode"] = "ro"
        return url.set(database=Path(path).as_uri(), query=options)

    def is_private(self, url: sa.URL) -> bool:
        """Return whether the database is in memory, and ends with the connection."""
        name = url.database or ":memory:"
        return ":memory:" in name or name == "file:" or url.query.get("mode") == "memory"

    def file_of(self, url: sa.URL) -> str | None:
        """Return the absolute path."""
        if self.is_private(url):
            return None
        name = str(url.database)
        if _is_on(url, "uri") and name.startswith("file:"):
            name = unquote(urlsplit(name).path)
        return os.path.abspath(name)  # noqa: PTH100 - SQLite resolves links itself

    def is_locked(self, url: sa.URL) -> bool:
        return not (_is_on(url, "immutable") or _is_on(url, "nolock"))

    def is_created(self, url: sa.URL) -> bool:
        """Return whether `mode` creates a file; a VFS manages files alone."""
        mode = url.query.get("mode", "rwc")
        return mode == "rwc" and self.is_locked(url) and "vfs" not in url.query

    def is_read_only(self, url: sa.URL) -> bool:
        path, mode = self.file_of(url), url.query.get("mode")
        is_opened_so = mode == "ro" or _is_on(url, "immutable")
        return path is not None and (is_opened_so or not os.access(path, os.W_OK))

    def reading_url(self, url: sa.URL) -> sa.URL:
        """Return the URL of a connection that leaves the log as it is. The last connection to close copies the log into the
        file if the connection may write, and otherwise leaves the empty log that the connection has created.
        """
        path = self.file_of(url)
        if path is None or self.is_read_only(url):
            return url
        mode = "ro" if os.path.exists(f"{path}-wal") else "rw"  # noqa: PTH110
        return url.update_query_dict({"mode": mode})


def _check_option(option: str, value: object) -> None:
    if option not in _URL_OPTIONS:
        known = ", ".join(sorted(_URL_OPTIONS))
        raise InvalidUrl(
            f"an SQLite URL takes the options {known}, got {option!r}; others, such as busy_timeout, are arguments "
            "of the store"
        )
    values = _URL_OPTIONS[option]
    if not isinstance(value, str) or (values and value.lower() not in values):
        must = f"one of {', '.join(values)}" if values else "given once"
        raise InvalidUrl(f"the option {option!r} of an SQLite URL must be {must}, got {value!r}")


def _is_on(url: sa.URL, option: str) -> bool:
    return str(url.query.get(option, "")).lower() in _TRUE


class SqliteConnections(Connections):
    """Pragmas, and SQL functions in Python."""

    persistent_settings = ("PRAGMA journal_mode = WAL",)
    """WAL: readers do not wait for the writer."""
    flush_log = (
        "ROLLBACK",
        f"PRAGMA busy_timeout = {int(BUSY_SLICE * 1000)}",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    )
    """A checkpoint cannot run within a transaction, and waits for readers. A connection that writes waits for nothing."""

    def configure(self, connection: Any, url: sa.URL, *, is_pooled: bool | None) -> None:
        """Change nothing: the driver's own cache of statements suffices."""

    def engine_arguments(self, url: sa.URL, *, busy_timeout: float) -> dict[str, Any]:
        """Return the driver's autocommit mode, and no pool: the store pools connections."""
        timeout = min(busy_timeout, BUSY_SLICE)
        connect = {"check_same_thread": False, "isolation_level": None, "timeout": timeout}
        return {"connect_args": connect, "poolclass": NullPool}

    def settings(self, options: Options, *, busy_timeout: float) -> Sequence[str]:
        """Return the pragmas. FULL: an acknowledged commit survives a power cut. NORMAL: the last commits may be lost."""
        kibibytes = -(-(options.page_cache or PAGE_CACHE) // 1024)
        return (
            f"PRAGMA cache_size = -{min(kibibytes, MAX_KIBIBYTES)}",
            f"PRAGMA busy_timeout = {int(min(busy_timeout, BUSY_SLICE) * 1000)}",
            f"PRAGMA synchronous = {'FULL' if options.durability == 'full' else 'NORMAL'}",
        )

    def functions(self) -> Sequence[Function]:
        return functions()

    def interrupt(self, connection: Any) -> None:
        """Harmless if no statement runs."""
        connection.interrupt()


BACKUPS: Final = Backups(
    pages=1024,  # 4 MB: between two steps the backup can be stopped
    sealing_settings=("PRAGMA journal_mode = DELETE",),  # every store that may write sets it to WAL
    integrity_probe="PRAGMA quick_check(1)",
)


class SqliteTransactions(Transactions):
    """One writer at a time: BEGIN IMMEDIATE takes the write lock.

    Of two deferred read-modify-write transactions, the first or the second would fail. A writing transaction is alone,
    and a reading transaction sees a snapshot: every isolation level is serializable.
    """

    def begin(self, *, write: bool, isolation: str) -> str:
        return "BEGIN IMMEDIATE" if write else "BEGIN"

    def join(self, connection: Any) -> str | None:
        """Return the BEGIN that a savepoint needs: the driver begins a transaction at the first INSERT at the earliest."""
        return None if connection.in_transaction else "BEGIN IMMEDIATE"

    def state(self, connection: Any) -> State:
        """Return the state. A full disk or an interrupt ends a transaction; any other error leaves the transaction
        open.
        """
        return "open" if connection.in_transaction else "none"


class SqliteErrors(Errors):
    """SQLite's result codes."""

    def types(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, sa.exc.DBAPIError, sa.exc.ResourceClosedError)

    def translate(self, error: Exception) -> CollectionsStoreError:
        cause = getattr(error, "orig", None) or error
        extended = getattr(cause, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code == sqlite3.SQLITE_ERROR and _VANISHED.search(str(cause)):
            return TableVanished(str(cause))
        if str(cause).startswith("Could not decode"):  # Python's message quotes the text
            return DatabaseError(f"text is not UTF-8: {_ADVICE[sqlite3.SQLITE_CORRUPT]}")
        if extended == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            found = _OUR_INDEX.search(str(cause))
            return UniqueViolated(found[0] if found else str(cause))
        if extended == sqlite3.SQLITE_CONSTRAINT_NOTNULL and (
            found := _OUR_INDEX.search(str(cause))
        ):
            return UniqueViolated(found[0])  # no rank: two arrays side by side
        if code in _BUSY:
            return DatabaseBusy(
                f"{cause}: another process kept the SQLite file locked for longer than busy_timeout"
            )
        if code == sqlite3.SQLITE_SCHEMA:
            # SQLite compiles a statement only twice; 3.40 compares the schema also where it opens a table of FTS5
            return TransactionConflict("another connection changed the schema meanwhile")
        if code == sqlite3.SQLITE_INTERRUPT:
            return TransactionConflict("interrupted")
        advice = _ADVICE.get(extended) or _ADVICE.get(code)
        message = f"{cause}: {advice}" if advice else str(cause)
        kind = DatabaseUnavailable if code in _UNAVAILABLE else DatabaseError
        return kind(message)

    def of_damage(self, error: UnicodeDecodeError) -> Exception:
        """Return a fixed message: SQLite's message quotes the damaged text."""
        return sqlite3.DatabaseError(_ADVICE[sqlite3.SQLITE_CORRUPT])

    def errno(self, error: BaseException | None) -> int | None:
        cause = getattr(error, "orig", None) or error
        return _ERRNOS.get(getattr(cause, "sqlite_errorcode", 0))

    def is_read_only(self, error: Exception) -> bool:
        cause = getattr(error, "orig", None) or error
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY

    def raised_within(self, error: Exception) -> BaseException | None:
        return raised_within(error)
