"""Atomic replacement of files; gzip, of a new file by the ending of the name.

The writer locks an incomplete file. The next writer of the same path removes unlocked incomplete files: their writers
were killed. The lock is a Linux lock of an open file description: closing further descriptors does not release the
lock, and neither SQLite's locks nor NFS conflict with the locked byte. On other systems incomplete files of killed
writers stay.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, cast

from ..database_file import identity, is_open_here

try:
    from fcntl import F_OFD_SETLK, F_WRLCK, fcntl
except ImportError:  # no Linux
    HAS_LOCKS = False
else:
    HAS_LOCKS = True
    _BYTE: Final = struct.pack("hhqqi4x", F_WRLCK, os.SEEK_SET, 2**40, 1, 0)
    """The lock of one byte, far from those that SQLite locks."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_LOGS: Final = ("", "-journal", "-wal", "-shm")
_GZIP: Final = b"\x1f\x8b"
"""Gzip's magic bytes; no JSON, CSV or short document of BSON begins with them."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file in the folder of `path`, which may also be opened by `name`. The new file replaces `path` at the
    end, with the mode of the replaced file, or else 0600. After an exception the new file is removed. A device is
    written to.
    """
    path = path.resolve()
    with _naming(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as device:  # /dev/null, a named pipe: nothing to replace
                yield device
            return
        with _beside(path) as file:
            part = Path(file.name)
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if path.exists():
                    shutil.copymode(path, part)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add `path` to the system's error about a full disk, which names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _FULL:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _beside(path: Path) -> Any:
    """Open and lock a new file in the same folder; errors name `path`."""
    prefix = f".{path.name[:100]}."
    _remove_left(path.parent, prefix)
    try:
        while True:
            file = NamedTemporaryFile(  # noqa: SIM115
                prefix=prefix, suffix=".part", dir=path.parent, delete=False
            )
            is_ours = _lock(file.fileno())
            if is_ours is None or (is_ours and identity(file.name) is not None):
                return file
            file.close()  # another writer took it for one that was left
            Path(file.name).unlink(missing_ok=True)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


def _lock(descriptor: int) -> bool | None:
    """Lock an incomplete file until the file is closed. Return False if another writer has the lock, None if the file
    cannot be locked.
    """
    if not HAS_LOCKS:
        return None
    try:
        fcntl(descriptor, F_OFD_SETLK, _BYTE)
    except OSError as error:
        return False if error.errno in {errno.EAGAIN, errno.EACCES} else None
    return True


def _remove_left(folder: Path, prefix: str) -> None:
    """Remove the incomplete files whose writers were killed."""
    name = re.compile(f"{re.escape(prefix)}[a-z0-9_]{{8}}[.]part")
    with suppress(OSError):
        for part in [each for each in folder.iterdir() if name.fullmatch(each.name)]:
            if stat.S_ISREG(part.lstat().st_mode) and not is_open_here(part):
                with suppress(OSError), part.open("r+b") as file:
                    if _lock(file.fileno()):
                        for end in _LOGS:
                            part.with_name(f"{part.name}{end}").unlink(missing_ok=True)


def compressed(file: IO[bytes], path: Path) -> AbstractContextManager[IO[bytes]]:
    """Return the context of a stream into a file: gzipped if the name of `path` ends in .gz."""
    if path.suffix.lower() != ".gz":
        return nullcontext(file)
    return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))


class DamagedInput(ValueError):
    """Truncated or damaged input: the rest cannot be read."""


def uncompressed(stream: IO[bytes]) -> BufferedReader:
    """Return a stream of the decompressed data, or of the data itself if not gzipped."""
    buffered = stream if isinstance(stream, BufferedReader) else BufferedReader(cast(Any, stream))
    start = buffered.peek(len(_GZIP))[: len(_GZIP)]
    if start and _GZIP.startswith(start):
        buffered = BufferedReader(cast(Any, _Gzip(fileobj=buffered)))
    return buffered


class _Gzip(gzip.GzipFile):
    """A gzipped stream that raises `DamagedInput`."""

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DamagedInput(f"the gzipped data is damaged: {error}") from error
