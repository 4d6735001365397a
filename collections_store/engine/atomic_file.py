"""Files that replace others once they are complete, and gzip by the name's ending."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, cast


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file beside `path`, under the `name` of which it may be opened too. It replaces that at the end, or is
    removed after an exception. It is private (mode 0600), unless the replaced file was not. A device is written to.
    """
    path = path.resolve()
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


def _beside(path: Path) -> Any:
    """Open a new file in the same folder; errors name `path`."""
    try:
        return NamedTemporaryFile(
            prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent, delete=False
        )
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


def compressed(file: IO[bytes], path: Path) -> AbstractContextManager[IO[bytes]]:
    """Return the context of a stream into a file: gzipped if the name of `path` ends in .gz."""
    if path.suffix.lower() != ".gz":
        return nullcontext(file)
    return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
