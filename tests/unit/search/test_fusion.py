"""Reciprocal rank fusion and maximal marginal relevance against their definitions."""

import random
from fractions import Fraction
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from collections_store.search.fusion import maximal_marginal_relevance, reciprocal_rank

RANKINGS = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=8), max_size=4)


@given(RANKINGS, st.integers(0, 100))
def test_a_key_scores_the_sum_of_its_reciprocal_ranks(
    rankings: list[list[int]], constant: int
) -> None:
    fused = reciprocal_rank(rankings, constant)
    exact = {
        key: sum(Fraction(1, constant + each.index(key) + 1) for each in rankings if key in each)
        for key in {key for each in rankings for key in each}
    }
    assert {key for key, _ in fused} == exact.keys()
    assert all(abs(score - float(exact[key])) < 1e-12 for key, score in fused)
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)


@given(st.lists(st.integers(0, 9), unique=True))
def test_a_single_ranking_keeps_its_order(ranking: list[int]) -> None:
    assert [key for key, _ in reciprocal_rank([ranking])] == ranking
    assert [key for key, _ in reciprocal_rank([ranking, ranking])] == ranking


def test_equal_scores_keep_the_order_of_the_first_ranking() -> None:
    assert [key for key, _ in reciprocal_rank([["a", "b"], ["b", "a"]])] == ["a", "b"]


SCORES = st.lists(st.integers(0, 8).map(lambda n: n / 8), max_size=6)


@given(SCORES, st.integers(0, 4).map(lambda n: n / 4), st.integers(0, 7), st.randoms())
def test_each_choice_is_the_best_of_those_left(
    scores: list[float], diversity: float, most: int, generator: random.Random
) -> None:
    similar = {
        frozenset(pair): generator.randrange(9) / 8 for pair in permutations(range(len(scores)), 2)
    }

    def similarity(one: int, other: int) -> float:
        return similar[frozenset((one, other))]

    chosen = maximal_marginal_relevance(scores, similarity, diversity, most)
    assert len(chosen) == len(set(chosen)) == min(most, len(scores))
    greatest = max(scores, default=0.0) or 1.0

    def value(n: int, before: list[int]) -> float:
        alike = max((similarity(n, each) for each in before), default=0.0)
        return (1 - diversity) * scores[n] / greatest - diversity * alike

    for count, each in enumerate(chosen):
        before = chosen[:count]
        left = [n for n in range(len(scores)) if n not in before]
        assert value(each, before) == max(value(n, before) for n in left)


@given(SCORES)
def test_without_diversity_the_scores_decide(scores: list[float]) -> None:
    chosen = maximal_marginal_relevance(scores, lambda *_: 1.0, 0, len(scores))
    assert chosen == sorted(range(len(scores)), key=lambda n: -scores[n])


def test_the_best_of_one_ranking_precedes_what_is_far_down_in_both() -> None:
    first = ["best", *(f"a{n}" for n in range(11))]
    second = [f"b{n}" for n in range(12)]
    both = ["x", "y", "z"]
    fused = [key for key, _ in reciprocal_rank([first + both, second + both])]
    assert fused.index("best") < fused.index("x") < fused.index("a10")
