"""Finding the nearest documents by a vector index.

A search reads one snapshot: the vectors up to a position, the journal, the filter's documents, and the results. Vectors
that need no embedder are also computed from the documents in the journal: in a transaction, nothing is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any, Final, NamedTuple

from ..codec import Decode, decode
from ..document import Document, documents_of, now
from ..expressions.classes import value_class
from ..query.filter import Filter
from ..query.vector_index import VectorIndex
from ..results import SearchResult
from ..search.vectors import Block, Matrix, Row, VectorMatch, VectorQuery, best, nearest
from ..sql.vectors import VectorStatements
from .by_id import body_of, raise_unless_skipped
from .read import matching
from .session import Session
from .vectors import VectorOperation, Waiting, open_index, packed, rows_of

CONSIDERED: Final = 200
"""The vectors that a search of an approximate index considers, at least. With half of them it misses a sixth of the nearest of
a query that is far from all vectors, with these a twentieth; of a query among the vectors none (measured).
"""
MOST_CONSIDERED: Final = 1000
"""The vectors that a search can consider before it looks for more, and the documents up to which it is exact."""
SPARE: Final = 20
"""Candidates besides those that are needed: the index compares less exactly."""
MOST_CANDIDATES: Final = 20_000
"""Candidates from which on a search reads all vectors."""
READ_AT_ONCE: Final = 256
"""Rows with a vector. More take longer: freed memory goes back to the system, and comes again page by page (measured)."""


@value_class
class Nearest(VectorOperation[list[SearchResult[Any]]]):
    """Find the documents with the nearest vectors, best first."""

    collection: str
    name: str
    vector: Any = field(repr=False)
    k: int
    filter: Filter
    min_score: float | None
    decode: Decode = field(default=decode, repr=False)

    def __call__(self, session: Session) -> list[SearchResult[Any]]:
        index, statements = open_index(session, self.collection, self.name)
        query = VectorQuery.parse(self.vector, index.dimensions, index.metric)
        state: tuple[list[int], ...] = [], [], []
        for kind, value in session.rows(statements.state, {"now": now()}):
            state[kind].append(value)
        [last], noted, expired = state
        limits: Any = {"only": self._chosen(session), "min_score": self.min_score}
        never = [*noted, *expired]
        if index.method == "exact":
            blocks = self._blocks(session, statements, index, last)
        else:
            near = Candidates(session, statements, query, self.k)
            blocks = near.blocks(limits["only"], never)
        matches = nearest(blocks, query, self.k, never=never, **limits)
        places: dict[int, str] = {}
        if noted and index.model is None:
            computed = self._computed(session, statements, index, noted, places)
            matches = best([*matches, *nearest(computed, query, self.k, **limits)], self.k)
        matches = self._first(session, statements, matches)
        return self._found(session, statements, matches, places)

    def _computed(
        self,
        session: Session,
        statements: VectorStatements,
        index: VectorIndex,
        positions: list[int],
        places: dict[int, str],
    ) -> Iterator[Block]:
        """Yield the vectors of documents in the journal, which is not changed; enter their `places`."""
        for first in range(0, len(positions), READ_AT_ONCE):
            some, rows = positions[first : first + READ_AT_ONCE], list[Row]()
            for position, id, text in rows_of(session, statements.bodies, some, now=now()):
                body = body_of(self.collection, id, text, decode)
                with suppress(ValueError):
                    computed = packed(index, Waiting(position, [], id, body, []))
                    for (place, *_), vector in computed.parts or ():
                        number = -1 - len(places)
                        places[number] = place
                        rows.append((number, position, vector))
            yield Block.of(rows, index.dimensions)

    def _chosen(self, session: Session) -> list[int] | None:
        """Return the positions of the documents that the filter matches; None: of all."""
        if self.filter == Filter():
            return None
        query = session.collection(self.collection).positions(self.filter)
        if query.residual:
            return [position for position, _ in matching(session, self.collection, self.filter)]
        return [position for (position,) in session.select(query, self.filter)]

    def _blocks(
        self, session: Session, statements: VectorStatements, index: VectorIndex, last: int
    ) -> Iterable[Block]:
        """Return all vectors: of the matrix in memory if it is, or can be, up to date, else as they are read."""
        resident, physical = session.catalogue.resident, index.physical
        held = resident.matrix(physical)
        if held.position == last:
            return held.blocks
        found: Matrix | None = None
        if 0 < held.position < last:
            rows = _after(session, statements, held.position)
            found = held.updated([row for some in rows for row in some], index.dimensions)
        if found is None:
            [(count,)] = session.rows(statements.count)
            if count * index.dimensions * 4 > resident.limit:
                of_rows = partial(Block.of, dimensions=index.dimensions)
                return map(of_rows, _read(session, statements))
            found = Matrix.read(last, count, index.dimensions, _read(session, statements))
        if held.position < last:
            resident.keep(self.collection, physical, found)
        return found.blocks

    def _first(
        self, session: Session, statements: VectorStatements, matches: list[VectorMatch]
    ) -> list[VectorMatch]:
        """Return the first `k` matches: of equal scores, the least ids."""
        if len({each.score for each in matches}) == len(matches):
            return matches
        ids = dict(rows_of(session, statements.ids, (each.position for each in matches)))
        return sorted(matches, key=lambda each: (-each.score, ids[each.position]))[: self.k]

    def _found(
        self,
        session: Session,
        statements: VectorStatements,
        matches: list[VectorMatch],
        places: Mapping[int, str],
    ) -> list[SearchResult[Any]]:
        rows = rows_of(session, statements.found, (each.position for each in matches))
        positions = {row[1]: row[0] for row in rows}
        documents = documents_of(rows, self.decode, self.collection, raise_unless_skipped)
        by_position: dict[int, Document[Any]] = {positions[each.id]: each for each in documents}
        parts: dict[int, tuple[Any, ...]] = {each: (place,) for each, place in places.items()}
        numbers = [each.number for each in matches if each.number not in parts]
        for number, *part in rows_of(session, statements.places, numbers):
            parts[number] = tuple(part)
        return [
            SearchResult(by_position[each.position], each.score, {}, *parts[each.number])
            for each in matches
            if each.position in by_position
        ]


class Candidates(NamedTuple):
    """Vectors of an approximate index that are near a query: enough for `k` documents."""

    session: Session
    statements: VectorStatements
    query: VectorQuery
    k: int

    def blocks(self, only: list[int] | None, never: list[int]) -> Iterable[Block]:
        """Return vectors, of the documents `only`. Where the index has too few, and of few documents, these are all."""
        if only is not None and len(only) <= MOST_CONSIDERED:
            return self._of(only)
        candidates = max(CONSIDERED, min(2 * self.k, MOST_CONSIDERED))
        self.session.rows(self.statements.prepare, {"candidates": candidates})
        lists = self.session.database.compiler.list_parameter
        near = self.statements.approximate.parameter(self.query.vector.tolist())
        parameters = {"near": near, "never": lists(never)}
        sql = self.statements.candidates
        if only is not None:
            sql, parameters["positions"] = self.statements.candidates_of, lists(only)
        limit = 2 * self.k + SPARE
        while limit <= MOST_CANDIDATES:
            rows = self.session.rows(sql, {**parameters, "limit": limit})
            if len({position for _, position, _ in rows}) >= self.k:
                return [Block.of(rows, self.statements.index.dimensions)]
            if len(rows) < limit:
                break
            limit *= 4
        return self._all() if only is None else self._of(only)

    def _of(self, positions: list[int]) -> Iterator[Block]:
        for first in range(0, len(positions), READ_AT_ONCE):
            some = positions[first : first + READ_AT_ONCE]
            rows = rows_of(self.session, self.statements.of_documents, some)
            yield Block.of(rows, self.statements.index.dimensions)

    def _all(self) -> Iterator[Block]:
        for rows in _read(self.session, self.statements):
            yield Block.of(rows, self.statements.index.dimensions)


def _after(session: Session, statements: VectorStatements, number: int) -> Iterator[list[Row]]:
    """Yield the rows after a number, in order."""
    while True:
        rows = session.rows(statements.after, {"number": number, "limit": READ_AT_ONCE})
        if rows:
            yield rows
        if len(rows) < READ_AT_ONCE:
            return
        number = rows[-1][0]


def _read(session: Session, statements: VectorStatements) -> Iterator[list[Row]]:
    """Yield all rows with a vector."""
    for rows in _after(session, statements, 0):
        yield [row for row in rows if row[2] is not None]
