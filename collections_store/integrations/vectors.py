"""Documents with texts and vectors: what the adapters of vector stores share.

The vectors are in the bodies, at `embedding`, as their frameworks computed them. The index of the vectors, and of the
words, is created when a write or a search first needs it.
"""

from __future__ import annotations

import json
import math
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from .. import (
    AsyncCollection,
    AsyncStore,
    Collection,
    CollectionExists,
    InvalidBody,
    InvalidOption,
    InvalidSearch,
    TextIndex,
    VectorIndex,
)
from .stores import PairedCollection, run_anywhere
from .words import any_word

EMBEDDING: Final = "embedding"
T = TypeVar("T")


class VectorCollection(PairedCollection):
    """A collection of texts and vectors, sync and async. `text` is the field of the texts."""

    def __init__(
        self,
        store: AsyncStore | str,
        name: str,
        keys: Sequence[str],
        options: Mapping[str, Any],
        *,
        text: str,
        metric: Any,
    ) -> None:
        VectorIndex.parse(EMBEDDING, dimensions=1, metric=metric)  # raises for another metric
        super().__init__(store, name, keys, options)
        self._text, self.metric = text, metric
        self._prepared: set[tuple[int | None, bool]] = set()

    def ready(self, dimensions: int | None = None, *, words: bool = False) -> Collection:
        """Return the collection, with the index of vectors of these dimensions, and of words if `words`. Raise
        `IndexExists` for other dimensions, or another metric, than stored.
        """
        if (dimensions, words) not in self._prepared:
            run_anywhere(self.aready(dimensions, words=words))
        return self.sync

    async def aready(
        self, dimensions: int | None = None, *, words: bool = False
    ) -> AsyncCollection:
        """Async counterpart of `ready`."""
        if (dimensions, words) in self._prepared:
            return self.aio
        existing = {each.name: each for each in await self.aio.indexes()}
        if not existing:
            with suppress(CollectionExists):
                await self.store.create_collection(self.name, body_index=False)
        for key, _ in self._keys:
            if f"{key}_1" not in existing:
                await self.aio.create_index(key)
        if dimensions is not None and not self._has_vectors(existing.get(EMBEDDING), dimensions):
            options: dict[str, Any] = {"dimensions": dimensions, "metric": self.metric}
            await self.aio.create_vector_index(EMBEDDING, name=EMBEDDING, **options)
        texts = (each for each in existing.values() if isinstance(each, TextIndex))
        if words and all(each.substring for each in texts):
            await self.aio.create_text_index(self._text)
        self._prepared.add((dimensions, words))
        return self.aio

    def found(
        self, search: Callable[[Any], T], dimensions: int | None = None, *, words: bool = False
    ) -> T:
        """Return what a search of the collection returns. If another has dropped the indexes, create them again."""
        try:
            return search(self.ready(dimensions, words=words))
        except InvalidSearch:
            self._prepared.clear()
            return search(self.ready(dimensions, words=words))

    async def afound(
        self, search: Callable[[Any], Any], dimensions: int | None = None, *, words: bool = False
    ) -> Any:
        """Async counterpart of `found`."""
        try:
            return await search(await self.aready(dimensions, words=words))
        except InvalidSearch:
            self._prepared.clear()
            return await search(await self.aready(dimensions, words=words))

    def _has_vectors(self, index: Any, dimensions: int) -> bool:
        found = isinstance(index, VectorIndex)
        return found and (index.dimensions, index.metric) == (dimensions, self.metric)


def dimensions_of(vectors: Iterable[Sequence[float]]) -> int | None:
    """Return the number of dimensions of vectors, None without a vector; raise `InvalidOption` if the numbers differ.

    >>> dimensions_of([[1, 0], [0, 1]])
    2
    """
    sizes = {len(vector) for vector in vectors}
    if len(sizes) > 1:
        found = " and ".join(map(str, sorted(sizes)))
        raise InvalidOption(EMBEDDING, f"all must have the same number of dimensions, got {found}")
    return next(iter(sizes), None)


def packed(vector: Sequence[float]) -> str:
    """Return a vector as 32-bit floats in base64; raise `InvalidOption` for other values.

    >>> unpacked(packed([0.5, 2]))
    [0.5, 2.0]
    """
    with suppress(TypeError):
        numbers = array("f", vector)
        if all(map(math.isfinite, numbers)):
            return b64encode(numbers.tobytes()).decode("ascii")
    raise InvalidOption(EMBEDDING, "must have finite numbers of 32 bits")


def unpacked(text: str) -> list[float]:
    """Return the vector that `packed` wrote."""
    numbers = array("f")
    numbers.frombytes(b64decode(text))
    return numbers.tolist()


def as_json(field: str, value: Any) -> Any:
    """Return a value after a round trip through `json`, with lists for tuples; raise `InvalidBody`.

    >>> as_json("metadata", {"pair": (1, 2)})
    {'pair': [1, 2]}
    """
    try:
        return json.loads(json.dumps(value))
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidBody(field, f"is not JSON: {error}") from None


def has_words(text: str | None) -> bool:
    """Return whether a text has a word to search for."""
    return text is not None and any_word(text) != ""
