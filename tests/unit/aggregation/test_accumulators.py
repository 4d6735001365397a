"""Accumulators of `$group`: the examples of MongoDB's manual, and the edges of each."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store import Document, InvalidOperand, InvalidPipeline, MemoryLimitExceeded
from collections_store.aggregation.pipeline import Pipeline


def group(bodies: list[Any], accumulator: Any, key: Any = None, **options: Any) -> Any:
    """Return the results by the values of the key, or the only result."""
    stage = {"$group": {"_id": key, "r": accumulator}}
    rows = [Document(str(number), body) for number, body in enumerate(bodies)]
    found = {str(row["_id"]): row["r"] for row in Pipeline.parse([stage]).run(rows, **options)}
    return found if key is not None else found["None"]


GAMES = [  # as in the manual's examples of $top, $firstN and their neighbours
    {"player": player, "game": game, "score": score}
    for game, scores in {"G1": (31, 33, 99, 1), "G2": (10, 14, 66, 80)}.items()
    for player, score in zip("ABCD", scores, strict=True)
]
PAIR = ["$player", "$score"]
DOWN = {"score": -1}
N = {"$cond": {"if": {"$eq": ["$game", "G2"]}, "then": 1, "else": 3}}
USERS = [
    {"quiz": 1, "score": 85},
    {"quiz": 1, "score": 90},
    {"quiz": 1, "score": 71},
    {"quiz": 2, "score": 96},
    {"quiz": 2, "score": 77},
    {"quiz": 2, "score": 88},
]


@pytest.mark.parametrize(
    ("accumulator", "expected"),
    [
        ({"$top": {"output": PAIR, "sortBy": DOWN}}, (["C", 99], ["D", 80])),
        ({"$bottom": {"output": PAIR, "sortBy": DOWN}}, (["D", 1], ["A", 10])),
        (
            {"$topN": {"output": PAIR, "sortBy": DOWN, "n": 3}},
            ([["C", 99], ["B", 33], ["A", 31]], [["D", 80], ["C", 66], ["B", 14]]),
        ),
        (
            {"$bottomN": {"output": PAIR, "sortBy": DOWN, "n": 3}},
            ([["B", 33], ["A", 31], ["D", 1]], [["C", 66], ["B", 14], ["A", 10]]),
        ),
        ({"$firstN": {"input": "$score", "n": 3}}, ([31, 33, 99], [10, 14, 66])),
        ({"$lastN": {"input": "$score", "n": 3}}, ([33, 99, 1], [14, 66, 80])),
        ({"$maxN": {"input": PAIR[::-1], "n": 2}}, ([[99, "C"], [33, "B"]], [[80, "D"], [66, "C"]])),
        ({"$minN": {"input": "$score", "n": 2.0}}, ([1, 31], [10, 14])),
    ],
)  # fmt: skip
def test_games(accumulator: Any, expected: tuple[Any, Any]) -> None:
    assert group(GAMES, accumulator, "$game") == dict(zip(("G1", "G2"), expected, strict=True))


@pytest.mark.parametrize("name", ["$firstN", "$lastN", "$minN", "$maxN", "$topN", "$bottomN"])
def test_n_can_depend_on_the_key(name: str) -> None:
    form = (
        {"output": "$score", "sortBy": DOWN} if "p" in name or "b" in name else {"input": "$score"}
    )
    stage = {"$group": {"_id": {"game": "$game"}, "r": {name: {**form, "n": N}}}}
    rows = [Document(str(number), body) for number, body in enumerate(GAMES)]
    assert [len(row["r"]) for row in Pipeline.parse([stage]).run(rows)] == [3, 1]


CASES: list[tuple[list[Any], Any, Any]] = [
    ([{}, {"a": None}, {"a": 1}], {"$firstN": {"input": "$a", "n": 5}}, [None, None, 1]),
    ([{"a": 1}, {}], {"$lastN": {"input": "$a", "n": 1}}, [None]),
    ([{}, {"a": None}, {"a": "x"}, {"a": 1}], {"$minN": {"input": "$a", "n": 5}}, [1, "x"]),
    ([{}, {"a": None}, {"a": "x"}, {"a": 1}], {"$maxN": {"input": "$a", "n": 5}}, ["x", 1]),
    ([{"a": 1}, {}], {"$topN": {"output": "$b", "sortBy": {"a": 1}, "n": 9}}, [None, None]),
    # equal keys stay in the order of the documents
    ([{"a": 1, "b": n} for n in range(5)], {"$topN": {"output": "$b", "sortBy": {"a": 1}, "n": 2}}, [0, 1]),
    ([{"a": 1, "b": n} for n in range(5)], {"$bottomN": {"output": "$b", "sortBy": {"a": 1}, "n": 2}}, [3, 4]),
    ([{"a": [3, 1], "b": 1}, {"a": 2, "b": 2}], {"$top": {"output": "$b", "sortBy": {"a": 1}}}, 1),
    ([{"a": [3, 1], "b": 1}, {"a": 2, "b": 2}], {"$bottom": {"output": "$b", "sortBy": {"a": 1, "b": -1}}}, 2),
    ([{"a": {"x": 1, "y": 1}}, {}, {"a": None}, {"a": {"y": 2}}], {"$mergeObjects": "$a"}, {"x": 1, "y": 2}),
    ([{}], {"$mergeObjects": "$a"}, {}),
    ([{"a": [1, 2]}, {}, {"a": []}, {"a": [2]}], {"$concatArrays": "$a"}, [1, 2, 2]),
    ([{"a": [1, 2]}, {}, {"a": [2.0, 3]}], {"$setUnion": "$a"}, [1, 2, 3]),
    ([{}], {"$concatArrays": "$a"}, []),
    (USERS[:3], {"$stdDevPop": "$score"}, 8.04155872120988),
    (USERS[3:], {"$stdDevPop": "$score"}, 7.788880963698615),
    (USERS, {"$stdDevSamp": "$score"}, math.sqrt(82.7)),
    ([{"a": 1}], {"$stdDevPop": "$a"}, 0.0),
    ([{"a": 1}, {"a": "x"}], {"$stdDevSamp": "$a"}, None),
    ([{"a": "x"}], {"$stdDevPop": "$a"}, None),
    ([{"a": 1e308}, {"a": -1e308}], {"$stdDevPop": "$a"}, 1e308),
    ([{"a": 2**62}, {"a": 2**62 + 2}], {"$stdDevPop": "$a"}, 1.0),
    ([{"s": s} for s in (81, 72, 70, 66, 68)], {"$median": {"input": "$s", "method": "approximate"}}, 70.0),
    (
        [{"s": s} for s in (62, 81, 80, 64, 79)],
        {"$percentile": {"input": "$s", "p": [0.95, 0.5, 0], "method": "approximate"}},
        [81.0, 79.0, 62.0],
    ),
    ([{"s": "x"}, {}], {"$median": {"input": "$s", "method": "approximate"}}, None),
    ([{}], {"$percentile": {"input": "$s", "p": [1, 0.5], "method": "approximate"}}, [None, None]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("bodies", "accumulator", "expected"), CASES, ids=lambda each: str(each)[:50]
)
def test_results(bodies: list[Any], accumulator: Any, expected: Any) -> None:
    found = group(bodies, accumulator)
    if isinstance(expected, float):
        assert math.isclose(found, expected, rel_tol=1e-15)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("accumulator", "message"),
    [
        ({"$mergeObjects": "$a"}, r"\$mergeObjects requires an object, got 1"),
        ({"$concatArrays": "$a"}, r"'0\.\$group': \$concatArrays requires an array, got 1"),
        ({"$setUnion": "$a"}, r"\$setUnion requires an array"),
        ({"$firstN": {"input": "$a", "n": "$x"}}, r"\$firstN n requires an integer from 1"),
        ({"$minN": {"input": "$a", "n": {"$add": [0, 0]}}}, "n requires an integer from 1"),
    ],
)
def test_invalid_values(accumulator: Any, message: str) -> None:
    with pytest.raises(InvalidOperand, match=message):
        group([{"a": 1}], accumulator)


@pytest.mark.parametrize(
    ("accumulator", "message"),
    [
        ({"$firstN": "$a"}, r"r\.\$firstN': must be a document of input, n"),
        ({"$firstN": {"input": "$a"}}, "requires n"),
        ({"$firstN": {"input": "$a", "n": 0}}, r"\$firstN\.n': must be an integer from 1"),
        ({"$top": {"output": "$a", "sortBy": {"a": 1}, "n": 1}}, r"\$top\.n': must be one of"),
        ({"$top": {"output": "$a", "sortBy": {"a": 2}}}, r"\$top\.sortBy"),
        ({"$topN": {"output": "$a", "sortBy": 1, "n": 1}}, r"sortBy': must be a document"),
        ({"$median": {"input": "$a", "method": "exact"}}, r"method': must be 'approximate'"),
        ({"$percentile": {"input": "$a", "method": "approximate"}}, "requires p"),
        ({"$percentile": {"input": "$a", "p": [2], "method": "approximate"}}, r"p': must be a list of numbers"),
        ({"$stdDevPop": ["$a"]}, "takes one operand"),
        ({"$accumulator": {}}, "this accumulator is not supported"),
        ({"$most": 1}, "no such accumulator"),
    ],
)  # fmt: skip
def test_invalid_syntax(accumulator: Any, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        group([], accumulator)


BY_N: dict[str, Any] = {"output": "$n", "sortBy": {"a": 1}}
INPUT: dict[str, Any] = {"input": "$a"}


@pytest.mark.parametrize(
    ("name", "form"),
    [("$topN", BY_N), ("$bottomN", BY_N), ("$minN", INPUT), ("$maxN", INPUT), ("$lastN", INPUT)],
)
def test_only_n_values_and_their_keys_are_held(name: str, form: Any) -> None:
    bodies = [{"a": f"{n:05}{'x' * 1000}", "n": n} for n in range(300)]
    options = {"memory_limit": 30_000}
    assert len(group(bodies, {name: {**form, "n": 10}}, **options)) == 10
    with pytest.raises(MemoryLimitExceeded):
        group(bodies, {name: {**form, "n": 100}}, **options)


NUMBERS = st.lists(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6), min_size=2, max_size=30)


@given(values=NUMBERS)
def test_deviations_do_not_depend_on_the_order(values: list[float]) -> None:
    bodies = [{"a": each} for each in values]
    found = group(bodies, {"$stdDevPop": "$a"})
    assert group(bodies[::-1], {"$stdDevPop": "$a"}) == found
    exact = [Fraction(each) for each in values]
    mean = sum(exact) / len(exact)
    variance = sum((each - mean) ** 2 for each in exact) / len(exact)
    assert math.isclose(found, math.sqrt(variance), rel_tol=1e-15)


def test_merged_objects_are_held_once() -> None:
    many = [{"o": {"a": "x" * 1000}} for _ in range(1000)]
    rows = (Document(str(n), body) for n, body in enumerate(many))
    group = Pipeline.parse([{"$group": {"_id": None, "m": {"$mergeObjects": "$o"}}}])
    assert list(group.run(rows, memory_limit=5000)) == [{"_id": None, "m": many[0]["o"]}]
    different = (Document(str(n), {"o": {str(n): n}}) for n in range(1000))
    with pytest.raises(MemoryLimitExceeded):
        list(group.run(different, memory_limit=5000))
