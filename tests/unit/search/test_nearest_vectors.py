"""The nearest vectors are those of brute force in 64 bits, whatever the vectors, the blocks and the updates."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store import InvalidSearch
from collections_store.search.vectors import (
    FLOOR,
    Block,
    Matrix,
    Metric,
    Resident,
    Row,
    VectorMatch,
    VectorQuery,
    nearest,
    pack,
)

METRICS: tuple[Metric, ...] = ("cosine", "l2", "dot")
SMALL = st.integers(-3, 3).map(float)
"""Few values: many scores are equal."""
WIDE = st.floats(-(2.0**120), 2.0**120, width=32)
NUMBERS = st.one_of(SMALL, st.floats(-1, 1, width=32), WIDE)


def score(metric: Metric, stored: bytes, query: Any) -> float:
    """Return the score of a stored vector as a sum, one number at a time."""
    vector = struct.unpack(f"<{len(stored) // 4}f", stored)
    if metric == "l2":
        return -math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(vector, query, strict=True)))
    product = math.fsum(a * b for a, b in zip(vector, query, strict=True))
    return product / math.hypot(*vector) if metric == "cosine" else product


@st.composite
def cases(draw: st.DrawFn) -> tuple[Metric, list[Row], VectorQuery, int]:
    metric, size = draw(st.sampled_from(METRICS)), draw(st.integers(1, 9))
    numbers = draw(st.sampled_from([SMALL, NUMBERS]))
    vectors = st.lists(numbers, min_size=size, max_size=size)
    if metric == "cosine":
        vectors = vectors.filter(any)
    rows: list[Row] = [
        (number, draw(st.integers(1, 12)), pack(draw(vectors), size, metric))
        for number in range(1, draw(st.integers(0, 40)) + 1)
    ]
    query = VectorQuery.parse(draw(vectors), size, metric)
    return metric, rows, query, draw(st.integers(1, 8))


def expected(metric: Metric, rows: list[Row], query: VectorQuery) -> dict[int, float]:
    best: dict[int, float] = {}
    for _, position, stored in rows:
        found = score(metric, stored or b"", query.vector.tolist())
        best[position] = max(found, best.get(position, -math.inf))
    return best


def check(
    found: list[VectorMatch], query: VectorQuery, rows: list[Row], best: dict[int, float], k: int
) -> None:
    """The documents are the nearest, each with its score, up to the rounding of 64 bits."""
    assert len({each.position for each in found}) == len(found) >= min(k, len(best))
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    of_number = {number: position for number, position, _ in rows}
    lengths = [
        math.hypot(*struct.unpack(f"<{len(each or b'') // 4}f", each or b"")) for _, _, each in rows
    ]
    own = math.hypot(*query.vector.tolist())
    rounding = 1e-13 * max([1.0, own, *lengths]) * (own + 1) + 1e-30
    for each in found:
        assert each.score == pytest.approx(best[each.position], rel=1e-12, abs=rounding)
        assert of_number[each.number] == each.position
    chosen = {each.position for each in found}
    left = [value for position, value in best.items() if position not in chosen]
    if left:
        assert scores[min(k, len(scores)) - 1] >= max(left) - rounding


@given(cases(), st.integers(1, 50))
def test_the_nearest_are_those_of_brute_force(
    case: tuple[Metric, list[Row], VectorQuery, int], size: int
) -> None:
    metric, rows, query, k = case
    dimensions = len(query.vector)
    blocks = [Block.of(rows[n : n + size], dimensions) for n in range(0, len(rows), size)]
    found = nearest(blocks, query, k)
    check(found, query, rows, expected(metric, rows, query), k)
    whole = nearest([Block.of(rows, dimensions)], query, k)
    assert {(e.score, e.position) for e in whole} == {(e.score, e.position) for e in found}


@given(cases(), st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)))
def test_only_and_never_are_applied_first(
    case: tuple[Metric, list[Row], VectorQuery, int], only: set[int], never: set[int]
) -> None:
    metric, rows, query, k = case
    found = nearest([Block.of(rows, len(query.vector))], query, k, only=only, never=never)
    left = [row for row in rows if row[1] in only - never]
    check(found, query, left, expected(metric, left, query), k)


@given(cases(), st.data())
def test_an_updated_matrix_has_the_last_rows_of_each_document(
    case: tuple[Metric, list[Row], VectorQuery, int], data: st.DataObject
) -> None:
    """Rows of a document replace the older ones; a row without a vector removes them."""
    metric, rows, query, k = case
    matrix, there, dimensions = Matrix(0, ()), dict[int, list[Row]](), len(query.vector)
    while rows:
        count = data.draw(st.integers(1, len(rows)))
        some, rows = rows[:count], rows[count:]
        changed = {position for _, position, _ in some}
        there = {position: each for position, each in there.items() if position not in changed}
        gone = {p for p in changed if data.draw(st.booleans())}
        some = [(n, p, None if p in gone else vector) for n, p, vector in some]
        for row in some:
            if row[2] is not None:
                there.setdefault(row[1], []).append(row)
        updated = matrix.updated(some, dimensions)
        assert updated is not None
        matrix = updated
        left = [row for each in there.values() for row in each]
        found = nearest(matrix.blocks, query, k)
        check(found, query, left, expected(metric, left, query), k)


def test_a_matrix_is_read_again_where_older_rows_were_deleted() -> None:
    assert Matrix(5, ()).updated([(6, 1, None), (7, FLOOR, None)], 2) is None


def test_equal_vectors_have_equal_scores_wherever_they_are() -> None:
    generator = np.random.default_rng(1)
    one = pack(generator.normal(size=37), 37, "cosine")
    rows: list[Row] = [(n, n, one) for n in range(1, 1001)]
    query = VectorQuery.parse(generator.normal(size=37), 37, "cosine")
    found = nearest([Block.of(rows[:333], 37), Block.of(rows[333:], 37)], query, 3)
    assert len(found) == 1000
    assert len({each.score for each in found}) == 1


def test_the_score_of_the_same_direction_is_1() -> None:
    generator = np.random.default_rng(2)
    for _ in range(100):
        vector = generator.normal(size=50)
        block = Block.of([(1, 1, pack(vector, 50, "cosine"))], 50)
        query = VectorQuery.parse(vector * 7, 50, "cosine")
        assert nearest([block], query, 1)[0].score == pytest.approx(1.0, abs=1e-7)
        assert nearest([block], query, 1)[0].score <= 1.0


def test_a_score_below_the_least_is_left_out() -> None:
    block = Block.of([(n, n, pack([n], 1, "dot")) for n in range(1, 5)], 1)
    query = VectorQuery.parse([1], 1, "dot")
    assert [each.position for each in nearest([block], query, 9, min_score=3)] == [4, 3]


@pytest.mark.parametrize("vector", [None, "ab", b"ab", {1, 2}, [1, None], [1, "1"], [[1], [2]], 5])
def test_other_values_are_no_vectors(vector: Any) -> None:
    with pytest.raises(InvalidSearch):
        VectorQuery.parse(vector, 2, "dot")


@pytest.mark.parametrize(
    "vector", [(1, 2), [1.0, 2.0], np.array([1, 2]), np.array([1, 2], np.float32)]
)
def test_sequences_and_arrays_are_vectors(vector: Any) -> None:
    assert pack(vector, 2, "dot") == struct.pack("<2f", 1, 2)


def test_a_store_holds_matrices_up_to_its_limit() -> None:
    def matrix(rows: int) -> Matrix:
        return Matrix(rows, (Block.of([(n, n, bytes(8)) for n in range(rows)], 2),))

    resident = Resident()
    resident.limit = 100
    resident.keep("c", "a", matrix(5))
    resident.keep("c", "b", matrix(7))
    assert [resident.matrix(name).position for name in "abc"] == [5, 7, 0]
    resident.keep("c", "c", matrix(3))
    assert [resident.matrix(name).position for name in "abc"] == [0, 7, 3]
    resident.keep("c", "d", matrix(13))
    assert resident.matrix("d").position == 0
