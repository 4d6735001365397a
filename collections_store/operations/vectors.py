"""Vector indexes: storing the vectors of changed documents. `embedding` has the steps, and `nearest` the search.

Rules, besides those of `sql.vectors`:

1. The database notes each change of a document in the journal of each vector index, also a change by another program.
2. A search first stores the vectors of the noted documents, in batches: a batch is read in one transaction, its vectors
   are computed outside of transactions and locks, and another transaction stores them.
3. A document whose vectors cannot be computed stays in the journal, with the problem, and is tried again after
   `RETRIED_AFTER` seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ..codec import decode
from ..document import now
from ..errors import InvalidSearch
from ..expressions.classes import value_class
from ..options import CollectionOptions
from ..query.vector_index import VectorIndex
from ..results import Unindexed
from ..search.claims import Claim, Claims
from ..search.embedders import Embedder
from ..search.vectors import FLOOR, pack, unpack
from ..sql.vectors import MAX_DEAD, VectorStatements
from .by_id import body_of
from .collections import existing, read_entry
from .indexes import CreateIndex, DropIndex
from .operation import Operation
from .session import Session

HASH_BYTES: Final = 16
_COLUMNS: Final = ("place", "start", "stop", "hash", "vector")
Key: TypeAlias = tuple[str, int | None, int | None, bytes]
"""The place of a vector, the part of the text there, and the hash of what the vector was made of."""
T_co = TypeVar("T_co", covariant=True)


class Waiting(NamedTuple):
    """A document in the journal: its position, its rows in the journal, and the keys of its stored vectors. `id` is None
    for a document that does not exist.
    """

    position: int
    numbers: list[int]
    id: str | None
    body: Any
    stored: list[Key]


class Computed(NamedTuple):
    """The vectors of a document; None for a vector that is stored. `parts` is None where nothing changes."""

    document: Waiting
    parts: list[tuple[Key, bytes | None]] | None


def find_vectors(options: CollectionOptions, name: str | None) -> VectorIndex:
    """Return the vector index of a name, or the only one; raises `InvalidSearch`."""
    every = options.vector_indexes
    found = [each for each in every if name is None or each.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(repr(each.name) for each in every) or "none: call create_vector_index"
    problem = (
        "must be the name of a vector index" if name or not every else "must be named by index="
    )
    raise InvalidSearch(name or "", f"the index {problem}; there is {names}")


def open_index(
    session: Session, collection: str, name: str | None
) -> tuple[VectorIndex, VectorStatements]:
    """Return a vector index as the catalogue has it now, and its statements; raises `InvalidSearch`."""
    options = existing(collection, read_entry(session, collection))[1]
    session.catalogue.resident.forget(
        collection, existing={each.physical for each in options.vector_indexes}
    )
    index = find_vectors(options, name)
    return index, session.collection(collection).vectors(index.physical, index)


def open_same(session: Session, collection: str, index: VectorIndex) -> VectorStatements | None:
    """Return the statements of a vector index; None if another has taken its place."""
    found, statements = open_index(session, collection, index.name)
    return statements if found.physical == index.physical else None


class VectorOperation(Operation[T_co]):
    """The base class of operations on the vector index of a name, or the only one; None: the only one."""

    __slots__ = ()

    def absent(self) -> Any:
        """Raise `InvalidSearch`."""
        raise InvalidSearch("", f"the collection {self.collection!r} does not exist")


@value_class
class FindVectorIndex(VectorOperation[tuple[VectorIndex, Embedder | None, bool]]):
    """Return a vector index, its embedder, and whether its journal has rows that nobody tried since `since`; None for a missing
    collection. Raises `InvalidSearch`. No transaction: another search may store what waits.
    """

    collection: str
    name: str | None = None
    since: int = 0

    atomic = True

    def __call__(self, session: Session) -> tuple[VectorIndex, Embedder | None, bool]:
        index, statements = open_index(session, self.collection, self.name)
        embedder = session.catalogue.resident.embedders.get((index.physical, index))
        waiting = session.rows(statements.has_waiting, {"since": self.since})
        return index, embedder, bool(waiting)

    def absent(self) -> Any:
        return None


@value_class
class UseEmbedder(VectorOperation[None]):
    """Use an embedder for a vector index from now on."""

    collection: str
    name: str
    embedder: Embedder = field(repr=False)

    atomic = True

    def __call__(self, session: Session) -> None:
        index, _ = open_index(session, self.collection, self.name)
        session.catalogue.resident.embedders[index.physical, index] = self.embedder


@value_class
class Reindex(VectorOperation[None]):
    """Replace a vector index by another of the same name: all documents are in the journal again."""

    collection: str
    index: VectorIndex
    writes = True
    snapshot = False  # as of `CreateIndex`

    def __call__(self, session: Session) -> None:
        open_index(session, self.collection, self.index.name)
        DropIndex(self.collection, self.index.name)(session)
        CreateIndex(self.collection, self.index)(session)


class WaitingBatch(NamedTuple):
    """Documents in the journal, and how many of those that were read others have claimed; `is_last`: no more were there."""

    documents: list[Waiting]
    claimed: int = 0
    is_last: bool = True


@value_class
class ReadWaiting(VectorOperation[WaitingBatch]):
    """Read the documents of the first `limit` rows in the journal that nobody tried since `since`, and claim them."""

    collection: str
    index: VectorIndex
    since: int
    limit: int
    claim: Claim = field(repr=False)

    def __call__(self, session: Session) -> WaitingBatch:
        claims = session.catalogue.resident.claims
        before = claims.ended
        statements = open_same(session, self.collection, self.index)
        if statements is None:
            return WaitingBatch([])
        window = {"since": self.since, "limit": self.limit, "now": now()}
        found: dict[int, Waiting] = {}
        rows = session.rows(statements.waiting, window)
        for number, position, id, text in rows:
            if position not in found:
                body = None if id is None else body_of(self.collection, id, text, decode)
                found[position] = Waiting(position, [], id, body, [])
            found[position].numbers.append(number)
        if not found:
            return WaitingBatch([])
        for number, position in rows_of(session, statements.failed, found):
            if number not in found[position].numbers:
                found[position].numbers.append(number)
        for position, *key in rows_of(session, statements.stored, found):
            found[position].stored.append(tuple(key))
        mine = [each for each in found.values() if self._take(claims, each)]
        if claims.ended is not before:
            self.claim.give_up()
            mine = []
        return WaitingBatch(mine, len(found) - len(mine), len(rows) < self.limit)

    def _take(self, claims: Claims, document: Waiting) -> bool:
        names = ((self.index.physical, number) for number in document.numbers)
        return self.claim.take(claims, names)


def rows_of(session: Session, sql: str, positions: Iterable[int], **others: Any) -> list[Any]:
    """Return the rows of a statement over `:positions`."""
    listed = session.database.compiler.list_parameter(list(positions))
    return session.rows(sql, {"positions": listed, **others})


@value_class
class StoreVectors(VectorOperation[int]):
    """Store vectors of documents that have not changed since they were read; returns how many documents."""

    collection: str
    index: VectorIndex
    computed: Sequence[Computed] = field(repr=False)
    writes = True
    snapshot = False

    def __call__(self, session: Session) -> int:
        statements = open_same(session, self.collection, self.index)
        if statements is None:
            return 0
        numbers = [n for each in self.computed for n in each.document.numbers]
        there = {number for (number,) in rows_of(session, statements.lock, numbers)}
        same = [each for each in self.computed if there.issuperset(each.document.numbers)]
        if not same:
            return 0
        settled = [n for each in same for n in each.document.numbers]
        listed = session.database.compiler.list_parameter(settled)
        session.changed(statements.settle, {"positions": listed})
        changed = [each for each in same if each.parts is not None]
        if changed:
            rows = [row for each in changed for row in self._rows(session, statements, each)]
            positions = [each.document.position for each in changed]
            listed = session.database.compiler.list_parameter(positions)
            session.changed(statements.remove, {"positions": listed})
            # the numbers of later transactions are greater
            session.rows(session.store.hold, {"name": self.collection})
            for row in rows:
                session.changed(statements.add, self._near(statements, row))
            self._remove_dead(session, statements)
        return len(same)

    def _rows(
        self, session: Session, statements: VectorStatements, each: Computed
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a document, or a row without a vector."""
        assert each.parts is not None
        position, kept = each.document.position, {}
        if any(vector is None for _, vector in each.parts):
            kept = dict(session.rows(statements.kept, {"seq": position}))
        # a stored vector is gone where the document was deleted, which the journal has
        rows = [(*key, vector or kept.get(key[3])) for key, vector in each.parts]
        whole: list[Any] = [row for row in rows if row[4] is not None]
        for row in whole or [(None,) * len(_COLUMNS)]:
            yield {"seq": position, **dict(zip(_COLUMNS, row, strict=True))}

    def _near(self, statements: VectorStatements, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with the parameter of an approximate index."""
        if self.index.method == "exact":
            return row
        vector = row["vector"]
        numbers = None if vector is None else statements.approximate.parameter(unpack(vector))
        return {**row, "near": numbers}

    def _remove_dead(self, session: Session, statements: VectorStatements) -> None:
        """Delete rows without a vector if there are many. A row says so to those who know vectors before it."""
        [(dead,)] = session.rows(statements.count_dead)
        if dead > MAX_DEAD:
            session.changed(statements.remove_dead)
            row = {"seq": FLOOR, **dict.fromkeys(_COLUMNS)}
            session.changed(statements.add, self._near(statements, row))


@value_class
class NoteProblems(VectorOperation[None]):
    """Note why the vectors of documents cannot be computed: the rows of each in the journal, and the problem."""

    collection: str
    index: VectorIndex
    problems: Sequence[tuple[Sequence[int], str]]
    writes = True

    def __call__(self, session: Session) -> None:
        statements = open_same(session, self.collection, self.index)
        if statements is None:
            return
        for numbers, problem in self.problems:
            listed = session.database.compiler.list_parameter(numbers)
            row = {"positions": listed, "now": now(), "problem": problem}
            session.changed(statements.note_problem, row)


@value_class
class ListUnindexed(Operation[list[Unindexed]]):
    """List the documents in the journals of all vector indexes, the first `limit` of each."""

    collection: str
    limit: int
    method = "search_backlog"
    empty = list

    def __call__(self, session: Session) -> list[Unindexed]:
        options = existing(self.collection, read_entry(session, self.collection))[1]
        found: dict[Unindexed, None] = {}
        for index in options.vector_indexes:
            statements = session.collection(self.collection).vectors(index.physical, index)
            rows = session.rows(statements.backlog, {"limit": self.limit, "now": now()})
            found.update((Unindexed(id, index.name, problem), None) for id, problem in rows)
        return list(found)


def packed(index: VectorIndex, document: Waiting) -> Computed:
    """Return the vectors at the fields of a document; raises `ValueError`."""
    parts: list[tuple[Key, bytes | None]] = []
    for place, value in index.vectors(document.body) if document.id is not None else ():
        try:
            vector = pack(value, index.dimensions, index.metric)
        except ValueError as error:
            raise ValueError(f"{place} {error}") from None
        parts.append(((place, None, None, hash_of(vector)), vector))
    same = document.stored and [key for key, _ in parts] == document.stored
    return Computed(document, None if same else parts)


def hash_of(data: bytes) -> bytes:
    """Return the hash of what a vector is made of."""
    return sha256(data).digest()[:HASH_BYTES]
