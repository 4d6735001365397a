"""Sorting in bounded memory: an external merge sort, in a temporary file, and a list of the sorted ids.

Items are collected up to a limit of memory, sorted, and written as a *run*. At the end all runs are merged. Items whose
keys are equal stay in the order of their addition. A file of this kind has no name, and ends with the process at the latest.
"""

from __future__ import annotations

import heapq
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ..expressions.budget import spend

T = TypeVar("T")
Run: TypeAlias = tuple[int, int]
"""The positions in the file at which a run begins and ends."""
RUNS: Final = 32
"""Runs that are merged at once: each has a block in memory."""
_LEAST_BLOCK: Final = 4096
_PART: Final = 2**16
"""Bytes of a list of ids that are read at once: more than an id has."""


class ExternalSort(Generic[T]):
    """Items that are sorted by a key, with up to about `limit` bytes in memory."""

    def __init__(self, key: Callable[[T], Any], limit: int) -> None:
        self._key, self._limit = key, limit
        self._block = max(_LEAST_BLOCK, limit // (4 * RUNS))
        self._held: list[T] = []
        self._size = 0
        self._levels: list[list[Run]] = []
        """The runs, those of merged runs in the higher levels. Within a level, and from higher to lower levels, runs are in
        the order of their items' addition.
        """
        self._file: Any = None

    def add(self, item: T, size: int) -> None:
        """Add an item that takes `size` bytes of memory; raise `OSError` if the disk is full."""
        spend()
        if self._held and self._size + size > self._limit:
            self._held.sort(key=self._key)
            self._add_run(self._held, 0)
            self._held, self._size = [], 0
        self._held.append(item)
        self._size += size

    def in_order(self) -> Iterator[T]:
        """Yield all items; the memory and the file are released at the end, and when the iterator is closed."""
        runs = [run for level in reversed(self._levels) for run in level]
        try:
            self._held.sort(key=self._key)
            yield from self._merged(runs, self._held) if runs else self._held
        finally:
            self._held = []
            self.close()

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            with suppress(OSError):  # of a full disk, which `_append` has raised
                self._file.close()

    __del__ = close

    def _add_run(self, items: Iterable[T], level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(self._written(items))
        if len(runs) == RUNS:
            self._levels[level] = []
            self._add_run(self._merged(runs), level + 1)

    def _merged(self, runs: list[Run], *held: list[T]) -> Iterator[T]:
        for item in heapq.merge(*map(self._read, runs), *held, key=self._key):
            spend()
            yield item

    def _written(self, items: Iterable[T]) -> Run:
        """Write a run at the end of the file, in blocks."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `in_order` closes it
        begin = end = self._file.seek(0, 2)
        block, size = list[bytes](), 0
        for item in items:
            block.append(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))
            size += len(block[-1])
            if size > self._block:
                end, block, size = self._append(block, end), [], 0
        return begin, self._append(block, end)

    def _append(self, block: list[bytes], position: int) -> int:
        with _naming_folder():
            self._file.seek(position)  # a merge reads between two blocks
            pickle.dump(block, self._file, pickle.HIGHEST_PROTOCOL)
            self._file.flush()
        end: int = self._file.tell()
        return end

    def _read(self, run: Run) -> Iterator[T]:
        position, end = run
        while position < end:
            self._file.seek(position)
            block = pickle.load(self._file)
            position = self._file.tell()
            yield from map(pickle.loads, block)


class IdList:
    """Ids in their order, with up to about `limit` bytes in memory, else in a file. Raise `OSError` if the disk is full.

    A read begins at any position, and moves none: the list may be read in other threads, again, and in forked processes.
    """

    _file: Any = None

    def __init__(self, ids: Iterable[str], limit: int) -> None:
        self._text = bytearray()
        for id in ids:
            self._text += id.encode() + b"\0"
            if len(self._text) > limit:
                self._write()
        if self._file is not None:
            self._write()

    def read(self, start: int, count: int) -> tuple[list[str], int]:
        """Return up to `count` ids from a position on, and the position after them; no ids at the end."""
        found: list[str] = []
        while len(found) < count and (part := self._part(start)):
            whole = part.split(b"\0")[:-1][: count - len(found)]
            found += [each.decode() for each in whole]
            start += sum(map(len, whole)) + len(whole)
        return found, start

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            with suppress(OSError):  # of a full disk, which `_write` has raised
                self._file.close()

    __del__ = close

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        with _naming_folder():
            self._file.write(self._text)
            self._file.flush()
        self._text.clear()

    def _part(self, start: int) -> bytes | bytearray:
        if self._file is None:
            return self._text[start : start + _PART]
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), _PART, start)
        self._file.seek(start)  # on Windows, where no process is forked
        part: bytes = self._file.read(_PART)
        return part


@contextmanager
def _naming_folder() -> Iterator[None]:
    """Add the folder of temporary files to the system's error about a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from None
