"""Searches by words and by meaning at once: both rankings, fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expressions.classes import value_class
from ..results import SearchPage, SearchResult
from ..search.fusion import TIER, maximal_marginal_relevance, reciprocal_rank
from ..search.vectors import directions
from .operation import Steps
from .search import FindWords
from .session import Session
from .vectors import VectorOperation, open_index


@value_class
class Hybrid:
    """A search by words, if there is a query, and by meaning, fused: `limit` results after the first `skip`."""

    words: FindWords | None
    near: Steps[list[SearchResult[Any]]]
    collection: str
    index: str | None
    skip: int
    limit: int
    diversity: float | None

    def steps(self) -> Steps[SearchPage[Any]]:
        """Run the search."""
        near = yield from self.near
        words = () if self.words is None else tuple((yield self.words))
        by_id = {each.id: each for each in (*words, *near)}
        places = {each.id: each for each in near}
        snippets = {each.id: each.snippets for each in words}
        fused = reciprocal_rank([[each.id for each in some] for some in (words, near) if some])
        if self.diversity is not None and fused:
            fused = yield from self._diverse(fused)
        results = []
        for id, score in fused[self.skip : self.skip + self.limit]:
            place = places.get(id, by_id[id])
            part = place.place, place.start, place.stop
            document = by_id[id].document
            results.append(SearchResult(document, score, snippets.get(id, {}), *part))
        return SearchPage(tuple(results))

    def _diverse(self, fused: list[tuple[str, float]]) -> Steps[list[tuple[str, float]]]:
        """Choose among the first `TIER` results, then among the next: a page is the same whatever is read besides."""
        assert self.diversity is not None
        most = self.skip + self.limit
        ids = [id for id, _ in fused[: most + TIER]]
        stored = yield ReadVectors(self.collection, self.index, ids)
        vectors = directions([stored.get(id) for id in ids])
        scores = [score for _, score in fused]
        chosen: list[int] = []
        for first in range(0, min(most, len(ids)), TIER):
            tier = slice(first, min(first + TIER, len(ids)))
            found = maximal_marginal_relevance(
                scores[tier], vectors[tier], self.diversity, most - first, vectors[chosen]
            )
            chosen += [first + n for n in found]
        return [fused[n] for n in chosen]


@value_class
class ReadVectors(VectorOperation[dict[str, bytes]]):
    """Read the first stored vector of each of some documents."""

    collection: str
    name: str | None
    ids: Sequence[str]

    def __call__(self, session: Session) -> dict[str, bytes]:
        _, statements = open_index(session, self.collection, self.name)
        listed = session.database.compiler.list_parameter(self.ids)
        found: dict[str, bytes] = {}
        for id, vector in session.rows(statements.of_ids, {"ids": listed}):
            found.setdefault(id, vector)
        return found
