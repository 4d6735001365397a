"""Vectors: the stored form, and the search for the nearest.

A stored vector is its numbers as 32-bit floats, little-endian; an index of the metric "cosine" has vectors of length 1.

The search is exact. A product of matrices in 32 bits finds the candidates, within the bound of its rounding, and the
scores of the candidates are computed in 64 bits, the same for equal vectors. Equal scores are real.
"""

from __future__ import annotations

import mmap
import struct
import sys
from base64 import b64decode
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ..errors import InvalidSearch, MissingExtra, shortened
from ..expressions.classes import value_class
from .claims import Claims
from .embedders import Embedder

if TYPE_CHECKING:
    import numpy as np

Metric: TypeAlias = Literal["cosine", "l2", "dot"]
"""How two vectors are compared. The score is the cosine of their angle, the negative distance, or the dot product."""
Method: TypeAlias = Literal["exact", "hnsw"]
"""How the nearest vectors are found: among all, or by a graph of the database's, which may miss some."""
Row: TypeAlias = tuple[int, int, bytes | None]
"""The number of a stored vector, the position of its document, and the vector; None: the document has none any more."""
FLOOR: Final = -1
"""The position in a row that has no document: older rows without a vector were deleted."""
RESIDENT_BYTES: Final = 2**29
"""Bytes of the matrices that a store holds in memory. The vectors of a larger index are read for each search."""
_DENSE: Final = 0.25
"""The share of the rows from which on all rows are multiplied: it takes less time than choosing rows."""
_REBUILT: Final = 0.1
"""The share of new or dead rows from which on a matrix is made again."""
_EPSILON: Final = 2.0**-23
_LEAST: Final = 2.0**-149
"""Twice the rounding of 32 bits, and their least number."""


def numpy() -> Any:
    """Return the module; raises `MissingExtra`."""
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtra("numpy", "vector") from error
    return np


def pack(vector: Any, dimensions: int, metric: Metric) -> bytes:
    """Return the stored form of a vector; raises `ValueError` with the problem."""
    return bytes(_read(vector, dimensions, metric).astype("<f4").tobytes())


def unpack(vector: bytes) -> list[float]:
    """Return the numbers of a stored vector."""
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def _read(vector: Any, dimensions: int, metric: Metric) -> np.ndarray[Any, Any]:
    """Return a vector in 64 bits, of length 1 for "cosine"; raises `ValueError` with the problem."""
    np = numpy()
    if isinstance(vector, str):
        vector = _from_base64(vector)
    is_array = isinstance(vector, np.ndarray)
    is_listed = isinstance(vector, Sequence) and not isinstance(vector, str | bytes)
    if not is_listed and not (is_array and vector.ndim and vector.dtype.kind not in "bc"):
        raise ValueError(f"must be an array of {dimensions} numbers, got {shortened(vector)}")
    if len(vector) != dimensions:
        raise ValueError(f"must have {dimensions} numbers, got {len(vector)}")
    if not is_array and not all(type(each) is float or _is_number(each) for each in vector):
        raise ValueError(f"must be an array of {dimensions} numbers, got {shortened(vector)}")
    with np.errstate(over="ignore"):
        try:
            read = np.asarray(vector, dtype=np.float64)
            is_finite = read.ndim == 1 and bool(np.isfinite(read.astype(np.float32)).all())
        except (OverflowError, TypeError, ValueError):
            is_finite = False
    if not is_finite:
        raise ValueError(f"must have finite numbers of 32 bits, got {shortened(vector)}")
    if metric != "cosine":
        return read  # type: ignore[no-any-return]
    largest = np.abs(read).max()
    if not largest:
        raise ValueError("must not be zero, which has no direction: the metric is cosine")
    read = read / largest  # no square is then out of range
    return read / np.sqrt((read * read).sum())  # type: ignore[no-any-return]


def _from_base64(text: str) -> Any:
    """Return the 32-bit floats in base64, or any other text unchanged."""
    try:
        return numpy().frombuffer(b64decode(text, validate=True), "<f4")
    except ValueError:
        return text


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) or (hasattr(value, "__float__") and not isinstance(value, str))  # fmt: skip


@value_class
class VectorQuery:
    """A vector to search for: in 64 bits, and of length 1 for "cosine"."""

    vector: Any
    metric: Metric

    @classmethod
    def parse(cls, vector: Any, dimensions: int, metric: Metric) -> VectorQuery:
        """Read a vector; raises `InvalidSearch`."""
        try:
            return cls(_read(vector, dimensions, metric), metric)
        except ValueError as error:
            raise InvalidSearch(vector, f"the vector {error}") from None

    def scores(self, vectors: Any) -> Any:
        """Return the exact scores of vectors."""
        np = numpy()
        wide = vectors.astype(np.float64)
        if self.metric == "l2":
            wide -= self.vector
            return -np.sqrt((wide * wide).sum(axis=1))
        products = (wide * self.vector).sum(axis=1)
        if self.metric == "dot":
            return products
        return np.clip(products / np.sqrt((wide * wide).sum(axis=1)), -1.0, 1.0)

    def estimates(self, block: Block, rows: Any = ...) -> tuple[Any, float]:
        """Return what orders the rows of a block about as their scores, and the greatest error."""
        np = numpy()
        vectors = block.vectors if rows is ... else block.vectors[rows]
        narrow = self.vector.astype(np.float32)
        found = vectors @ narrow
        if self.metric == "cosine":
            longest = 1.001
        else:
            longest = block.largest * float(np.sqrt((self.vector * self.vector).sum()))
        if self.metric == "l2":
            squares = block.squares if rows is ... else block.squares[rows]
            found = found - squares / 2
            longest += block.largest**2
        return found, (len(narrow) + 2) * (_EPSILON * longest + _LEAST)


class Block:
    """Vectors in a matrix, with their numbers and the positions of their documents. `live`: the rows that count; None: all."""

    numbers: Any
    positions: Any
    vectors: Any
    live: Any

    def __init__(self, numbers: Any, positions: Any, vectors: Any, live: Any = None) -> None:
        self.numbers, self.positions, self.vectors, self.live = numbers, positions, vectors, live

    @classmethod
    def of(cls, rows: Sequence[Row], dimensions: int) -> Block:
        """Return the vectors of rows, each with a vector."""
        np = numpy()
        numbers, positions, packed = zip(*rows, strict=True) if rows else ((), (), ())
        vectors = np.frombuffer(b"".join(packed), "<f4").reshape(len(rows), dimensions)
        return cls(np.array(numbers, np.int64), np.array(positions, np.int64), vectors)

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def squares(self) -> Any:
        """The square of the length of each vector, in 32 bits."""
        return numpy().einsum("ij,ij->i", self.vectors, self.vectors)

    @cached_property
    def largest(self) -> float:
        """The greatest length of a vector, about."""
        return float(numpy().sqrt(self.squares.max(initial=0.0))) * (1 + 1e-3)

    def without(self, positions: Any) -> Block:
        """Return the block without the vectors of some documents."""
        np = numpy()
        dead = np.isin(self.positions, positions)
        if not dead.any():
            return self
        block = Block(self.numbers, self.positions, self.vectors)
        block.live = ~dead if self.live is None else self.live & ~dead
        block.__dict__.update(
            {k: v for k, v in self.__dict__.items() if k in ("squares", "largest")}
        )
        return block


class VectorMatch(NamedTuple):
    """A vector near another: the score, the position of the document, and the number of the vector."""

    score: float
    position: int
    number: int


class Matrix(NamedTuple):
    """All vectors of an index at a position: the last number of a row. An update makes a new matrix."""

    position: int
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """The bytes of the vectors."""
        return sum(block.vectors.nbytes for block in self.blocks)

    @classmethod
    def read(
        cls, position: int, most: int, dimensions: int, batches: Iterable[Sequence[Row]]
    ) -> Matrix:
        """Return the matrix of up to `most` rows, each with a vector."""
        np = numpy()
        vectors = _pages(most, dimensions)
        numbers, positions = np.empty(most, np.int64), np.empty(most, np.int64)
        count = 0
        for rows in batches:
            block = Block.of(rows, dimensions)
            part = slice(count, count + len(block))
            vectors[part], numbers[part], positions[part] = (
                block.vectors,
                block.numbers,
                block.positions,
            )
            count += len(block)
        return cls(position, (Block(numbers[:count], positions[:count], vectors[:count]),))

    def updated(self, rows: Sequence[Row], dimensions: int) -> Matrix | None:
        """Return the matrix with the rows after its position; None: all rows must be read again."""
        if not rows:
            return self
        if any(row[1] == FLOOR for row in rows):
            return None
        np = numpy()
        changed = np.array(sorted({row[1] for row in rows}), dtype=np.int64)
        old, *more = self.blocks or (Block.of((), dimensions),)
        added = Block.of([row for row in rows if row[2] is not None], dimensions)
        recent = _joined([*(each.without(changed) for each in more), added])
        old = old.without(changed)
        dead = 0 if old.live is None else len(old) - int(old.live.sum())
        if len(recent) + dead > 1000 + _REBUILT * len(old):
            return Matrix(rows[-1][0], (_joined([old, recent]),))
        return Matrix(rows[-1][0], (old, recent))


def _pages(rows: int, dimensions: int) -> Any:
    """Return a new matrix in pages of its own. `np.empty` asks for huge pages, which may take four times as long as the
    copy, and a bytearray is not aligned: a product takes a third longer (measured).
    """
    size = rows * dimensions
    length = max(1, 4 * size)
    if sys.platform == "win32":
        memory = mmap.mmap(-1, length)
    else:
        memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return numpy().frombuffer(memory, "<f4", count=size).reshape(rows, dimensions)


def _joined(blocks: Sequence[Block]) -> Block:
    """Return the live rows of blocks in one block."""
    np = numpy()
    parts = [
        (b.numbers, b.positions, b.vectors)
        if b.live is None
        else (b.numbers[b.live], b.positions[b.live], b.vectors[b.live])
        for b in blocks
    ]
    return Block(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def nearest(
    blocks: Iterable[Block],
    query: VectorQuery,
    k: int,
    *,
    only: Iterable[int] | None = None,
    never: Iterable[int] = (),
    min_score: float | None = None,
) -> list[VectorMatch]:
    """Return the best match of each of the `k` nearest documents, and of the documents as near as the last; best first.

    `only` and `never` are positions of documents: only these are returned, and these are not.
    """
    np = numpy()
    chosen = None if only is None else np.unique(np.fromiter(only, np.int64))
    out = np.fromiter(never, np.int64)
    found: list[VectorMatch] = []
    for block in blocks:
        with np.errstate(all="ignore"):  # what overflows in 32 bits is computed in 64
            found = best([*found, *_of_block(block, query, k, chosen, out)], k)
    if min_score is not None:
        found = [each for each in found if each.score >= min_score]
    return found


def best(matches: list[VectorMatch], k: int) -> list[VectorMatch]:
    """Return the best match of each of the `k` nearest documents, and of equally near documents."""
    found: dict[int, VectorMatch] = {}
    for each in sorted(matches, key=lambda match: (-match.score, match.number)):
        found.setdefault(each.position, each)
    ranked = list(found.values())
    if len(ranked) <= k:
        return ranked
    return [each for each in ranked if each.score >= ranked[k - 1].score]


def _of_block(block: Block, query: VectorQuery, k: int, only: Any, never: Any) -> list[VectorMatch]:
    """Return matches of the block, the matches that `best` returns included."""
    np = numpy()
    rows = _rows(block, only, never)
    if rows is not ... and not len(rows):
        return []
    if rows is not ... and len(rows) > _DENSE * len(block):
        estimates, error = query.estimates(block)
        estimates = estimates[rows]
    else:
        estimates, error = query.estimates(block, rows)
    # where 32 bits overflow, all rows are candidates
    is_bounded = bool(np.isfinite(error) and np.isfinite(estimates).all())
    for wanted in _growing(k, len(estimates)) if is_bounded else (len(estimates),):
        least = np.partition(estimates, len(estimates) - wanted)[len(estimates) - wanted]
        near = np.flatnonzero((estimates >= least - 2 * error) | (not is_bounded))
        places = near if rows is ... else rows[near]
        if wanted == len(estimates) or len(np.unique(block.positions[places])) >= k:
            break
    scores = query.scores(block.vectors[places])
    columns = scores.tolist(), block.positions[places].tolist(), block.numbers[places].tolist()
    return [VectorMatch(*row) for row in zip(*columns, strict=True)]


def _growing(k: int, most: int) -> Iterator[int]:
    while k < most:
        yield k
        k *= 4
    yield most


def _rows(block: Block, only: Any, never: Any) -> Any:
    """Return the rows of a block that count; `...` is all."""
    np = numpy()
    if only is None and not len(never) and block.live is None:
        return ... if len(block) else np.empty(0, np.int64)
    counts = np.ones(len(block), bool) if block.live is None else block.live.copy()
    if only is not None:
        counts &= np.isin(block.positions, only)
    if len(never):
        counts &= ~np.isin(block.positions, never)
    return np.flatnonzero(counts)


def directions(vectors: Sequence[bytes | None]) -> Any:
    """Return the rows of a matrix, in 64 bits and of length 1: the vectors; of length 0 without a vector."""
    np = numpy()
    size = max((len(each) for each in vectors if each is not None), default=0)
    rows = np.frombuffer(b"".join(each or bytes(size) for each in vectors), "<f4")
    wide = rows.reshape(len(vectors), size // 4).astype(np.float64)
    with np.errstate(all="ignore"):
        lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return wide / np.where(lengths == 0, 1, lengths)


class Resident:
    """The memory of a store for vector indexes: embedders, and matrices up to `limit` bytes."""

    limit: int = RESIDENT_BYTES

    def __init__(self) -> None:
        self.embedders: dict[tuple[str, Hashable], Embedder] = {}
        """By the physical name of an index, and its definition."""
        self.claims: Claims = Claims()
        """Rows of journals whose documents a search embeds, each with the physical name of its index."""
        self._matrices: dict[str, tuple[str, Matrix]] = {}
        """By the physical name of an index, each with the name of the collection."""

    @property
    def size(self) -> int:
        """The bytes of all matrices."""
        return sum(matrix.size for _, matrix in tuple(self._matrices.values()))

    def matrix(self, physical: str) -> Matrix:
        """Return the last matrix of an index; without one, the empty matrix of the position 0."""
        return self._matrices.get(physical, ("", Matrix(0, ())))[1]

    def clear(self) -> None:
        """Forget the matrices."""
        self._matrices.clear()

    def forget(self, collection: str, existing: Container[str] = ()) -> None:
        """Forget the matrices of a collection, except those of the `existing` indexes."""
        for physical, (owner, _) in tuple(self._matrices.items()):
            if owner == collection and physical not in existing:
                self._matrices.pop(physical, None)

    def keep(self, collection: str, physical: str, matrix: Matrix) -> None:
        """Hold a matrix, in place of others if need be."""
        self._matrices.pop(physical, None)
        for other in tuple(self._matrices):
            if matrix.size + self.size <= self.limit:
                break
            self._matrices.pop(other, None)
        if matrix.size <= self.limit:
            self._matrices[physical] = collection, matrix
