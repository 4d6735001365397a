"""Fusion: one ranking of several, and a ranking of different results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeVar

from .vectors import numpy

Key = TypeVar("Key", bound=Hashable)
TIER: Final = 100
"""The results of each ranking that are fused at once."""
RANK_CONSTANT: Final = 10
"""The constant of reciprocal rank fusion: the best of one ranking precedes what comes 12th or later in both. With 60, as of the
paper (Cormack, Clarke and Büttcher, 2009), that begins at the 62nd place: two long rankings then outvote the better one.
tests/benchmarks/test_relevance.py measures it.
"""


def reciprocal_rank(
    rankings: Sequence[Sequence[Key]], constant: int = RANK_CONSTANT, tier: int = TIER
) -> list[tuple[Key, float]]:
    """Return the keys of rankings with their scores, the best first, equal ones in the order of their first ranking.

    A key scores 1 / (constant + rank) in each ranking with the key, with ranks from 1 on. The scores of the rankings
    cannot be compared, and do not count. The first `tier` of each ranking are fused, then the next, and so on: a caller that
    reads `n` tiers of each ranking has the first `n * tier` results, however long the rankings are.

    >>> [key for key, _ in reciprocal_rank([["a", "b"], ["b", "c"]])]
    ['b', 'a', 'c']
    """
    tiers: dict[Key, int] = {}
    for first in range(0, max(map(len, rankings), default=0), tier):
        for ranking in rankings:
            for key in ranking[first : first + tier]:
                tiers.setdefault(key, first)
    scores = dict.fromkeys(tiers, 0.0)
    for ranking in rankings:
        for rank, key in enumerate(ranking):
            if rank - rank % tier == tiers[key]:
                scores[key] += 1 / (constant + 1 + rank)
    return sorted(scores.items(), key=lambda pair: (tiers[pair[0]], -pair[1]))


def maximal_marginal_relevance(
    scores: Sequence[float],
    vectors: Any,
    diversity: float,
    most: int,
    chosen: Any = (),
) -> list[int]:
    """Return the positions of up to `most` scores: each has a high score, and its vector is not similar to the previous ones.

    `vectors` are the rows of a matrix, of length 1 or 0; `chosen` are the vectors that were chosen before. `diversity` 0
    counts the scores alone, relative to the greatest, and 1 the greatest similarity to a chosen result alone. Carbonell
    and Goldstein, 1998.

    >>> import numpy as np
    >>> maximal_marginal_relevance([0.9, 0.8, 0.5], np.array([[1, 0], [1, 0], [0, 1]]), 0.5, 2)
    [0, 2]
    """
    np = numpy()
    relevance = (1 - diversity) * np.asarray(scores) / (max(scores, default=0.0) or 1.0)
    alike = np.max(vectors @ np.asarray(chosen).T, axis=1) if len(chosen) else 0.0
    found: list[int] = []
    while len(found) < min(most, len(scores)):
        best = int(np.argmax(relevance - diversity * alike))
        found.append(best)
        similar = vectors @ vectors[best]
        alike = np.maximum(alike, similar) if len(chosen) or len(found) > 1 else similar
        relevance[best] = -np.inf
    return found
