"""The files of SQLite databases, as the operating system knows them: by device and inode.

Rules:

1. SQLite's locks belong to the process and the inode. Closing any descriptor of a database file drops all locks of
   this process on the file. A file that SQLite may have open here is checked with `stat`, never opened. The same
   holds for the -shm file, which SQLite must not open as a database either.
2. A fork inherits SQLite's record of the locks, but no lock. A file still open at a fork is refused in the child.
   `workers` closes the connections of stores before a fork.
3. A store writes nothing more once the database file or the log is replaced.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Final, TypeAlias

from ..errors import DatabaseUnavailable
from .forks import at_fork

Identity: TypeAlias = tuple[int, int]

CHECK_EVERY: Final = 0.001
"""Seconds; a check takes 3 µs, where a `get` takes 5."""
INHERITED: Final = (
    "it was open in the parent process when this process was forked, and SQLite's locks do not survive a fork: "
    "start processes with spawn or forkserver, or by exec, or close what uses the file before the fork"
)
LOG_LOST: Final = (
    "its -wal file was removed or replaced while a store had it open: nothing more is written, and this process "
    "cannot open it again: restart the process, and restore the database from a backup if it is damaged"
)
READ_BY_SQLITE: Final = "a store of this process has it open, and to read it otherwise would drop its locks: name another file"
REPLACED: Final = (
    "it was replaced, moved or deleted while the store had it open: nothing more is written; close the store, and "
    "open another"
)
SHARED_MEMORY: Final = (
    "it is the -shm file of a database that is open in this process: name the database file itself"
)

_MAGIC: Final = b"SQLite format 3\0"
_SHARED_MEMORY_MAGIC: Final = (3_007_000).to_bytes(4, sys.byteorder)
_LOCKED: Final = (_MAGIC, _SHARED_MEMORY_MAGIC, bytes(4))
"""The beginnings of files that SQLite locks: databases, and -shm files, which begin with zeros at first."""
START: Final = 32
"""Bytes by which such a file is recognized."""
_refused: Final[dict[Identity, str]] = {}
"""The files that SQLite in this process must not open, and why."""
_valid_until: Final[dict[str, float]] = {}
MOST_PATHS: Final = 1000
"""Paths that are remembered to be valid."""
"""The time until which the last check of a caller's file holds, by path."""
_opening = threading.RLock()


def identity(path: str | Path) -> Identity | None:
    """Return the identity of the file at a path; None if no file exists."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the time of Path.stat
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _open_files() -> Iterator[tuple[int, os.stat_result]]:
    """Yield the descriptor and the status of each file that this process has open."""
    try:
        descriptors: Iterable[int] = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    except OSError:  # no Linux
        descriptors = range(min(os.sysconf("SC_OPEN_MAX"), 2**16) if hasattr(os, "sysconf") else 0)
    for descriptor in descriptors:
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                yield descriptor, status


def opening() -> AbstractContextManager[bool]:
    """Return the lock for opening a database file in this process, by SQLite or to read a file not open here."""
    return _opening


def is_open_here(path: Path) -> bool:
    """Return whether this process has a file open. Only SQLite may open such a file."""
    return identity(path) in {(each.st_dev, each.st_ino) for _, each in _open_files()}


def locked_start(path: Path) -> bytes | None:
    """Return the first bytes of a file that SQLite in this process may have locked, read through the open descriptor;
    None for any other file. Only SQLite may open a locked file.
    """
    here = identity(path)
    for descriptor, status in _open_files():
        if (status.st_dev, status.st_ino) == here:
            with suppress(OSError):  # one that only writes is not SQLite's
                start = os.pread(descriptor, START, 0)
                if not start or start.startswith(_LOCKED):
                    return start
    return None


def open_to_read(path: Path) -> IO[bytes]:
    """Open a file for reading; raise `DatabaseUnavailable` if SQLite may have locked the file in this process, and
    `OSError`.
    """
    with opening():
        if locked_start(path) is not None:
            raise _unavailable(str(path), READ_BY_SQLITE)
        return path.open("rb")


def _inherited() -> Iterator[Identity]:
    """Yield the open files that may be databases. A new database may later get the inode of any other file."""
    for descriptor, status in _open_files():
        with suppress(OSError):
            if not status.st_size or os.pread(descriptor, len(_MAGIC), 0) == _MAGIC:
                yield status.st_dev, status.st_ino


def refuse(path: str) -> None:
    """Raise `DatabaseUnavailable` if SQLite must not open the file in this process."""
    reason = _refused.get(identity(path) or (0, 0))
    if os.path.realpath(path).endswith("-shm") and is_open_here(Path(path)):
        reason = SHARED_MEMORY
    if Path(path).is_dir():
        reason = "it is a folder: name a file"
    if reason is not None:
        raise _unavailable(path, reason)


def refuse_at_times(path: str) -> None:
    """Call `refuse` unless the path was checked just now."""
    time_now = time.monotonic()
    if time_now > _valid_until.get(path, 0.0):
        refuse(path)
        if len(_valid_until) >= MOST_PATHS:
            _valid_until.clear()
        _valid_until[path] = time_now + CHECK_EVERY


class DatabaseFile:
    """The file of a store."""

    path: str
    log: str

    def __init__(self, path: str, *, is_created: bool) -> None:
        self.path, self._is_created = path, is_created
        self.log = f"{os.path.realpath(path)}-wal"
        self.identity: Identity | None = None
        self.problem: str | None = None

    def prepare(self) -> None:
        """Create the file if the store may; raise `DatabaseUnavailable` for a file that must not be opened. The caller
        holds `opening()` until the connection is open.
        """
        if self.identity is None and self._is_created:
            _create_private(self.path)
        if self.identity is not None and self.problem is None:
            self.look()
        if self.problem is not None:
            raise _unavailable(self.path, self.problem)
        refuse(self.path)

    def opened(self) -> OpenFile:
        """Return the watcher of the file for a new connection that has already read."""
        if self.identity is None:
            self.identity = identity(self.path)
        return OpenFile(self)

    def look(self) -> None:
        """Check that the path still leads to the opened file; set `problem` otherwise."""
        if identity(self.path) != self.identity:
            self.problem = REPLACED


class OpenFile:
    """A file that a connection has open: nobody may remove the log meanwhile."""

    valid_until: float

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._log = identity(file.log)
        self.valid_until = time.monotonic() + CHECK_EVERY
        """The time until which the last check holds."""

    def is_intact(self) -> bool:
        """Return whether neither the file nor the log was replaced, and note the time of the check."""
        file = self._file
        if file.problem is None:
            here, log = identity(file.path), identity(file.log)
            if self._log is None:
                self._log = log  # SQLite creates it with the first write
            if here != file.identity:
                file.problem = REPLACED
            elif log != self._log:
                file.problem = LOG_LOST
                _refused[file.identity or (0, 0)] = LOG_LOST
                _valid_until.clear()
        if file.problem is None:
            self.valid_until = time.monotonic() + CHECK_EVERY
        return file.problem is None

    def error(self) -> DatabaseUnavailable:
        """Return the error of a file that is not intact."""
        return _unavailable(self._file.path, str(self._file.problem))

    @property
    def is_replaced(self) -> bool:
        """Return whether the file was replaced, moved or deleted."""
        return self._file.problem == REPLACED

    @property
    def can_be_closed(self) -> bool:
        """Return whether SQLite may close the connection: a close would copy a lost log over the file."""
        return self.is_intact() or self._file.problem != LOG_LOST


def _create_private(path: str) -> None:
    """Create a file with mode 0600 unless the file exists; SQLite gives the logs the same mode."""
    with suppress(OSError):  # SQLite says what is the matter
        target = os.path.realpath(path)  # O_EXCL takes a link that leads nowhere for a file
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _unavailable(path: str, reason: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the SQLite file {path!r}: {reason}", is_final=True)


def leak(thing: object) -> None:
    """Keep `thing` until the process ends: the end of the interpreter would close `thing`."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    global _opening  # noqa: PLW0603 - a thread of the parent may hold it
    _opening = threading.RLock()
    _refused.update(dict.fromkeys(_inherited(), INHERITED))
    _valid_until.clear()


at_fork("files", in_child=_after_fork)
