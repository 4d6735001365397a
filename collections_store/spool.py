"""What a caller's iterable gives, read to its end before anything is written.

An iterable may do anything, even use the store that its objects are for. While it is read no lock is
held and no transaction is open; what it gave waits on the disk, if it is much, and can be read again.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
IN_MEMORY: Final = 8 * 2**20
"""Bytes; what is more goes to a temporary file."""


class Spool(Generic[T]):
    """Values that were read, in their order."""

    def __init__(self, values: Iterable[T]) -> None:
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._count = 0
        try:
            for value in values:
                pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
                self._count += 1
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[T]:
        self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)

    def close(self) -> None:
        """Delete them."""
        self._file.close()
