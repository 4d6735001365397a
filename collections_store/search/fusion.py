"""Fusion: one ranking of several, and a ranking of different results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

Key = TypeVar("Key", bound=Hashable)
RANK_CONSTANT: Final = 10
"""The constant of reciprocal rank fusion: the best of one ranking precedes what comes 12th or later in both. With 60, as of the
paper (Cormack, Clarke and Büttcher, 2009), that begins at the 62nd place: two long rankings then outvote the better one.
tests/benchmarks/test_relevance.py measures it.
"""


def reciprocal_rank(
    rankings: Sequence[Sequence[Key]], constant: int = RANK_CONSTANT
) -> list[tuple[Key, float]]:
    """Return the keys of rankings with their scores, the best first, equal ones in the order of their first ranking.

    A key scores 1 / (constant + rank) in each ranking with the key, with ranks from 1 on. The scores of the rankings
    cannot be compared, and do not count.

    >>> [key for key, _ in reciprocal_rank([["a", "b"], ["b", "c"]])]
    ['b', 'a', 'c']
    """
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (constant + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])


def maximal_marginal_relevance(
    scores: Sequence[float], similarity: Callable[[int, int], float], diversity: float, most: int
) -> list[int]:
    """Return the positions of up to `most` scores: each has a high score, and is not similar to the previous ones.

    `diversity` 0 counts the scores alone, relative to the greatest, and 1 the greatest similarity to a chosen result
    alone. Carbonell and Goldstein, 1998.

    >>> alike = {(0, 1): 1.0, (0, 2): 0.0, (1, 2): 0.0}
    >>> maximal_marginal_relevance([0.9, 0.8, 0.5], lambda *pair: alike[tuple(sorted(pair))], 0.5, 2)
    [0, 2]
    """
    greatest = max(scores, default=0.0) or 1.0
    left = list(range(len(scores)))
    nearest = [0.0] * len(scores)
    chosen: list[int] = []
    while left and len(chosen) < most:
        value = {n: (1 - diversity) * scores[n] / greatest - diversity * nearest[n] for n in left}
        best = max(left, key=lambda n: (value[n], -n))
        chosen.append(best)
        left.remove(best)
        for n in left:
            found = similarity(best, n)
            nearest[n] = found if len(chosen) == 1 else max(nearest[n], found)
    return chosen
