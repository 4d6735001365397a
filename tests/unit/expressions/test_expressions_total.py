"""Sums are exact for any order and weights of the numbers."""

import math
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store.expressions.evaluation import OperandError
from collections_store.expressions.numbers import Total

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
LARGE = st.sampled_from([1e308, -1e308, 1.7e308, -1.7e308, 1e292, -1e-320])
TIMES = st.integers(1, 5)


def total(pairs: list[tuple[Any, int]]) -> Total:
    found = Total()
    for value, times in pairs:
        found.add(value, times)
    return found


@pytest.mark.parametrize("numbers", list(permutations([1e308, -1e308, 1e308, 5, 0.5])), ids=str)
def test_intermediate_overflows(numbers: tuple[float, ...]) -> None:
    assert total([(each, 1) for each in numbers]).total() == 1e308
    assert total([(each, 1) for each in numbers]).average() == 1e308 / 5


def test_overflows_of_the_total() -> None:
    for pairs in ([(1e308, 1), (1e308, 1)], [(1e308, 2)], [(1e308, 3), (-1e308, 1)]):
        with pytest.raises(OperandError, match="JSON cannot hold"):
            total(pairs).total()


def test_values_with_a_large_weight() -> None:
    assert total([(0.1, 10**18)]).total() == float(Fraction(0.1) * 10**18)
    assert total([(1e300, 10**9), (-1e300, 10**9 - 1)]).total() == 1e300


@settings(max_examples=300 // sampled(3))
@given(pairs=st.lists(st.tuples(FLOATS | INTEGERS, TIMES), max_size=8))
def test_a_weighted_sum_equals_that_of_the_expanded_list(pairs: list[tuple[Any, int]]) -> None:
    expanded = [value for value, times in pairs for _ in range(times)]
    try:
        expected = math.fsum(expanded)
    except OverflowError:
        return
    if any(isinstance(each, float) for each in expanded):
        exact = float(sum(map(Fraction, expanded), Fraction(0)))
        assert total(pairs).total() == exact
        if all(isinstance(each, float) for each in expanded):
            assert exact == expected


@settings(max_examples=300 // sampled(3))
@given(pairs=st.lists(st.tuples(FLOATS | LARGE, TIMES), min_size=1, max_size=6), data=st.data())
def test_order_does_not_matter(pairs: list[tuple[float, int]], data: st.DataObject) -> None:
    singles = [(value, 1) for value, times in pairs for _ in range(times)]
    shuffled = data.draw(st.permutations(singles))
    try:
        expected = float(sum((Fraction(value) * times for value, times in pairs), Fraction(0)))
    except OverflowError:
        for each in (pairs, singles, shuffled):
            with pytest.raises(OperandError):
                total(each).total()
        return
    assert total(pairs).total() == total(singles).total() == total(shuffled).total() == expected
