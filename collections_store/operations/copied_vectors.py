"""Copies of stored vectors, for indexes with a model: the vectors at fields are in the documents.

A vector is copied with the version of its document, and stored if the copy of the document has this version and is still in
the journal of the copy's index. What is not stored stays in the journal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import groupby
from typing import Final, NamedTuple

from ..errors import shortened
from ..expressions.classes import value_class
from ..query.vector_index import VectorIndex
from ..search.vectors import unpack
from .operation import Operation
from .read import BEFORE_ALL
from .session import Session
from .vectors import HASH_BYTES, Computed, Key, StoreVectors, Waiting, open_index

DOCUMENTS: Final = 100
"""Documents whose vectors are read at once."""
_LAST: Final = 2**31 - 1
"""The last position in a text that every database has."""


class StoredVector(NamedTuple):
    """A vector of the version of a document; all but the first four are None for a document without vectors."""

    index_name: str
    id: str
    version: int
    updated_at: int
    place: str | None = None
    start: int | None = None
    stop: int | None = None
    hash: bytes | None = None
    vector: bytes | None = None

    def check(self, indexes: Iterable[VectorIndex]) -> None:
        """Raise `ValueError` for a vector that no index with a model can have."""
        index = next(
            (each for each in indexes if each.name == self.index_name and each.model), None
        )
        if index is None:
            raise ValueError(f"{shortened(self.index_name)} must be a vector index with a model")
        if self.vector is None:
            return
        is_text = isinstance(self.place, str) and "\0" not in self.place
        if not is_text or len(self.hash or b"") != HASH_BYTES:
            raise ValueError("a vector must have a place and a hash")
        for name, position in (("start", self.start), ("stop", self.stop)):
            is_position = type(position) is int and 0 <= position <= _LAST
            if position is not None and not is_position:
                raise ValueError(
                    f"{name} must be an integer from 0 to {_LAST}, got {shortened(position)}"
                )
        numbers = unpack(self.vector) if len(self.vector) == 4 * index.dimensions else []
        usable = any(numbers) or index.metric != "cosine"
        if not numbers or not usable or not all(map(math.isfinite, numbers)):
            raise ValueError(f"a vector must have {index.dimensions} numbers, finite and not all 0")


class StoredVectors(NamedTuple):
    """Vectors, those of a document together, and the position of the last document."""

    rows: list[StoredVector]
    last: int


@value_class
class ReadStoredVectors(Operation[StoredVectors]):
    """Read the vectors of up to `DOCUMENTS` documents past the position `after` that are not in the journal."""

    collection: str
    index: str
    after: int = BEFORE_ALL
    atomic = True

    def __call__(self, session: Session) -> StoredVectors:
        _, statements = open_index(session, self.collection, self.index)
        window = {"seq": self.after, "limit": DOCUMENTS}
        found = session.rows(statements.copies, window)
        rows = [StoredVector(self.index, *columns) for _, *columns in found]
        return StoredVectors(rows, found[-1][0] if found else self.after)


@value_class
class WriteStoredVectors(Operation[None]):
    """Store vectors, those of a document together, of documents that have not changed."""

    collection: str
    rows: Sequence[StoredVector] = field(repr=False)
    writes = True
    snapshot = False

    def __call__(self, session: Session) -> None:
        for name, rows in groupby(self.rows, lambda each: each.index_name):
            index, statements = open_index(session, self.collection, name)
            given = {id: list(each) for id, each in groupby(rows, lambda each: each.id)}
            listed = session.database.compiler.list_parameter(list(given))
            noted: dict[str, Waiting] = {}
            for number, position, id, version, updated in session.rows(
                statements.noted, {"ids": listed}
            ):
                if (version, updated) == given[id][0][2:4]:
                    waiting = noted.setdefault(id, Waiting(position, [], id, None, []))
                    waiting.numbers.append(number)
            computed = [Computed(each, _parts(given[id])) for id, each in noted.items()]
            if computed:
                StoreVectors(self.collection, index, computed)(session)


def _parts(rows: Sequence[StoredVector]) -> list[tuple[Key, bytes | None]]:
    return [
        ((each.place, each.start, each.stop, each.hash), each.vector)
        for each in rows
        if each.vector is not None and each.place is not None and each.hash is not None
    ]
