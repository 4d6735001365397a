"""The files of SQLite databases, as the operating system knows them: by device and inode.

Rules:

1. SQLite's locks belong to the process and the inode. Closing any descriptor of a database file drops all locks that
   this process has on it: so a file that SQLite may have open here is checked with `stat`, never opened. The same
   holds for the -shm file beside it, which SQLite itself must not open as a database either.
2. A fork inherits SQLite's record of the locks, and none of the locks. A file that is still open at a fork is
   refused in the child. `workers` closes the connections of stores before.
3. A store that finds its file or the log beside it replaced writes nothing more.
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
from ..forks import at_fork

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
_opening = threading.RLock()


def identity(path: str | Path) -> Identity | None:
    """Return which file a path leads to; None: there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the time of Path.stat
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _open_files() -> Iterator[tuple[int, os.stat_result]]:
    """Yield the descriptors of the files that this process has open."""
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
    """Return the lock under which this process opens database files: by SQLite, or to look into one that it has not open."""
    return _opening


def is_open_here(path: Path) -> bool:
    """Return whether this process has a file open. Then nothing but SQLite may open it."""
    return identity(path) in {(each.st_dev, each.st_ino) for _, each in _open_files()}


def locked_start(path: Path) -> bytes | None:
    """Return the first bytes of a file that SQLite in this process may have locked; None if it has not. They are read
    through the descriptor that is open. Only SQLite may open such a file.
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
    """Open a file that SQLite has not locked in this process; raise `DatabaseUnavailable`, and `OSError`."""
    with opening():
        if locked_start(path) is not None:
            raise _unavailable(str(path), READ_BY_SQLITE)
        return path.open("rb")


def _inherited() -> Iterator[Identity]:
    """Yield the open files that may be databases. Of others, the inode may once be that of a new database."""
    for descriptor, status in _open_files():
        with suppress(OSError):
            if not status.st_size or os.pread(descriptor, len(_MAGIC), 0) == _MAGIC:
                yield status.st_dev, status.st_ino


def refuse(path: str) -> None:
    """Raise `DatabaseUnavailable` if SQLite must not open the file in this process."""
    reason = _refused.get(identity(path) or (0, 0))
    if os.path.realpath(path).endswith("-shm") and is_open_here(Path(path)):
        reason = SHARED_MEMORY
    if reason is not None:
        raise _unavailable(path, reason)


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
        """Make the file if it is the store's to make; raises `DatabaseUnavailable` if it must not be opened. Who
        calls holds `opening()` until the connection is open.
        """
        if self.identity is None and self._is_created:
            _create_private(self.path)
        if self.identity is not None and self.problem is None:
            self.look()
        if self.problem is not None:
            raise _unavailable(self.path, self.problem)
        refuse(self.path)

    def opened(self) -> OpenFile:
        """Return what watches the file for a connection that has just been opened, and has read."""
        if self.identity is None:
            self.identity = identity(self.path)
        return OpenFile(self)

    def look(self) -> None:
        """See whether it still is the file that was opened."""
        if identity(self.path) != self.identity:
            self.problem = REPLACED


class OpenFile:
    """A file while a connection has it open: as long as that is so, nobody may remove its log."""

    valid_until: float

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._log = identity(file.log)
        self.valid_until = time.monotonic() + CHECK_EVERY
        """The time until which the last check holds."""

    def is_intact(self) -> bool:
        """Return whether both are those that were opened, and note that they were checked."""
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
        if file.problem is None:
            self.valid_until = time.monotonic() + CHECK_EVERY
        return file.problem is None

    def error(self) -> DatabaseUnavailable:
        """Return the error of a file that is not intact."""
        return _unavailable(self._file.path, str(self._file.problem))

    @property
    def is_replaced(self) -> bool:
        """Return whether another file, or none, is in the place of this one."""
        return self._file.problem == REPLACED

    @property
    def can_be_closed(self) -> bool:
        """Return whether SQLite may close the connection: it would copy a log that is no more over the file."""
        return self.is_intact() or self._file.problem != LOG_LOST


def _create_private(path: str) -> None:
    """Make a file that only its owner can read, unless it is there; SQLite gives its logs the same mode."""
    with suppress(OSError):  # SQLite says what is the matter
        target = os.path.realpath(path)  # O_EXCL takes a link that leads nowhere for a file
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _unavailable(path: str, reason: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the SQLite file {path!r}: {reason}", is_final=True)


def leak(thing: object) -> None:
    """Keep something until the process ends; the end of the interpreter would close it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    global _opening  # noqa: PLW0603 - a thread of the parent may hold it
    _opening = threading.RLock()
    _refused.update(dict.fromkeys(_inherited(), INHERITED))


at_fork("files", in_child=_after_fork)
