"""The caches of a checkpointer: large values, the positions of large values, and written documents of writes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, TypeVar

V = TypeVar("V")
CACHED_BYTES: Final = 16 * 2**20
"""Bytes of large values that a checkpointer remembers."""
CACHED_CHECKPOINTS: Final = 1000
"""Checkpoints of which a checkpointer remembers where their large values are."""


class BoundedCache(Generic[V]):
    """The most recently used values, by id, up to a total `size`. Threads share the cache."""

    def __init__(self, size: int, size_of: Callable[[V], int]) -> None:
        self._left, self._size_of, self._lock = size, size_of, Lock()
        self._values: OrderedDict[str, V] = OrderedDict()

    def get(self, ids: Iterable[str]) -> dict[str, V]:
        """Return the cached values of the ids."""
        found: dict[str, V] = {}
        with self._lock:
            for id in ids:
                if id in self._values:
                    found[id] = self._values[id]
                    self._values.move_to_end(id)
        return found

    def add(self, values: Mapping[str, V]) -> None:
        """Add or replace values, and drop the least recently used values beyond the size."""
        with self._lock:
            for id, value in values.items():
                if id in self._values:
                    self._left += self._size_of(self._values.pop(id))
                self._values[id] = value
                self._left -= self._size_of(value)
            while self._left < 0:
                self._left += self._size_of(self._values.popitem(last=False)[1])


class Caches(NamedTuple):
    """The caches of a checkpointer, by id: large values as written by the serializer, and the positions of the
    large values of written checkpoints, by channel. Neither changes: the id of a value is its digest, and no
    checkpoint is written again with other values. `tasks`: the written documents of writes; a document may have
    been deleted since.
    """

    values: BoundedCache[tuple[str, bytes]]
    places: BoundedCache[dict[str, Any]]
    tasks: BoundedCache[bool]

    @classmethod
    def empty(cls) -> Caches:
        """Return caches of the default size."""
        values = BoundedCache[tuple[str, bytes]](CACHED_BYTES, lambda written: len(written[1]))
        places = BoundedCache[dict[str, Any]](CACHED_CHECKPOINTS, lambda _: 1)
        return cls(values, places, BoundedCache(CACHED_CHECKPOINTS, lambda _: 1))
