"""`$setWindowFields`, `$fill` and `$densify`: the examples of MongoDB 8.2's manual, and what its server refuses."""

import math
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.aggregation.test_stages import give

from collections_store import InvalidOperand, InvalidPipeline, MemoryLimitExceeded
from collections_store.aggregation.accumulators import ACCUMULATORS
from collections_store.aggregation.pipeline import Pipeline
from collections_store.expressions.budget import checked_by

CAKES = [
    {"type": "chocolate", "at": "2020-05-18T14:10:30Z", "state": "CA", "price": 13, "quantity": 120},
    {"type": "chocolate", "at": "2021-03-20T11:30:05Z", "state": "WA", "price": 14, "quantity": 140},
    {"type": "vanilla", "at": "2021-01-11T06:31:15Z", "state": "CA", "price": 12, "quantity": 145},
    {"type": "vanilla", "at": "2020-02-08T13:13:23Z", "state": "WA", "price": 13, "quantity": 104},
    {"type": "strawberry", "at": "2019-05-18T16:09:01Z", "state": "CA", "price": 41, "quantity": 162},
    {"type": "strawberry", "at": "2019-01-08T06:12:03Z", "state": "WA", "price": 43, "quantity": 134},
]  # fmt: skip


def window(output: Any, **changed: Any) -> dict[str, Any]:
    return {
        "$setWindowFields": {"partitionBy": "$state", "sortBy": {"at": 1}, "output": output}
        | changed
    }


def column(rows: list[Any], function: Any, bounds: Any = None, **changed: Any) -> list[Any]:
    field = function | ({"window": bounds} if bounds else {})
    return [each["x"] for each in give(rows, window({"x": field}, **changed))]


def test_cumulative_quantity() -> None:
    bounds = {"documents": ["unbounded", "current"]}
    found = give(CAKES, window({"x": {"$sum": "$quantity", "window": bounds}}))
    assert [(row["state"], row["quantity"], row["x"]) for row in found] == [
        ("CA", 162, 162), ("CA", 120, 282), ("CA", 145, 427),
        ("WA", 134, 134), ("WA", 104, 238), ("WA", 140, 378),
    ]  # fmt: skip


def test_moving_average_for_each_year() -> None:
    by_year = {"partitionBy": {"$year": "$at"}}
    found = column(CAKES, {"$avg": "$quantity"}, {"documents": [-1, 0]}, **by_year)
    assert found == [134, 148, 104, 112, 145, 142.5]


def test_whole_partition() -> None:
    assert column(CAKES, {"$max": "$quantity"}) == [162] * 3 + [140] * 3
    assert column(CAKES, {"$count": {}}, partitionBy=None) == [6] * 6
    computed = {"documents": [{"$subtract": [0, 1]}, {"$literal": 0}]}
    assert column(CAKES, {"$sum": 1}, computed) == [1, 2, 2] * 2
    empty = {"$max": "$quantity", "window": {}}
    assert column(CAKES, empty) == [162] * 3 + [140] * 3


def test_range_of_numbers() -> None:
    by_price = {"sortBy": {"price": 1}, "partitionBy": "$state"}
    bounds = {"range": [-10, 10]}
    assert column(CAKES, {"$sum": "$quantity"}, bounds, **by_price) == [
        265,
        265,
        162,
        244,
        244,
        134,
    ]


def test_range_of_times() -> None:
    bounds = {"range": ["unbounded", 10], "unit": "month"}
    ca, wa = ["2019-05-18T16:09:01Z", "2020-05-18T14:10:30Z", "2021-01-11T06:31:15Z"], [
        "2019-01-08T06:12:03Z", "2020-02-08T13:13:23Z", "2021-03-20T11:30:05Z",
    ]  # fmt: skip
    assert column(CAKES, {"$push": "$at"}, bounds) == [ca[:1], ca, ca, wa[:1], wa[:2], wa]
    later = {"range": [-10, "unbounded"], "unit": "month"}
    assert column(CAKES, {"$push": "$at"}, later) == [ca, ca[1:], ca[1:], wa, wa[1:], wa[2:]]


def test_ranks() -> None:
    rows = [{"n": each} for each in (3, 1, 3, None, 5)]
    by_n = {"partitionBy": None, "sortBy": {"n": -1}}
    assert column(rows, {"$rank": {}}, **by_n) == [1, 2, 2, 4, 5]
    assert column(rows, {"$denseRank": {}}, **by_n) == [1, 2, 2, 3, 4]
    assert column(rows, {"$documentNumber": {}}, **by_n) == [1, 2, 3, 4, 5]


def test_shift() -> None:
    by_quantity = {"sortBy": {"quantity": -1}}
    next_one = {"$shift": {"output": "$quantity", "by": 1, "default": "Not available"}}
    assert column(CAKES, next_one, **by_quantity) == [
        145,
        120,
        "Not available",
        134,
        104,
        "Not available",
    ]
    assert column(CAKES, {"$shift": {"output": "$none", "by": -1}}, **by_quantity) == [None] * 6
    constant = {"$shift": {"output": "$quantity", "by": 9, "default": {"$add": [1, 1]}}}
    assert column(CAKES, constant, **by_quantity) == [2] * 6


def test_exponential_moving_average() -> None:
    prices = [13, 15.4, 12, 11.7]
    rows = [{"state": "S", "at": number, "price": price} for number, price in enumerate(prices)]
    by_count = column(rows, {"$expMovingAvg": {"input": "$price", "N": 2}})
    assert by_count == pytest.approx([13, 14.6, 12.866666667, 12.088888889])
    by_weight = column(rows, {"$expMovingAvg": {"input": "$price", "alpha": 0.75}})
    assert by_weight == pytest.approx([13, 14.8, 12.7, 11.95])


def test_exponential_moving_average_stays_where_a_value_is_no_number() -> None:
    rows = [{"at": n, "price": price} for n, price in enumerate((None, "x", 4, None, 10))]
    found = column(rows, {"$expMovingAvg": {"input": "$price", "N": 3}})
    assert found == [None, None, 4, 4, 7]
    assert [type(each) for each in found[2:]] == [float] * 3


def test_derivative_and_integral() -> None:
    trips = [
        {"at": "2020-05-18T14:10:30Z", "miles": 1295.1}, {"at": "2020-05-18T14:11:00Z", "miles": 1295.63},
        {"at": "2020-05-18T14:11:30Z", "miles": 1296.25}, {"at": "2020-05-18T14:12:00Z", "miles": 1296.76},
    ]  # fmt: skip
    speed = {"$derivative": {"input": "$miles", "unit": "hour"}}
    found = column(trips, speed, {"range": [-30, 0], "unit": "second"})
    assert found[0] is None
    assert found[1:] == pytest.approx([63.6, 74.4, 61.2])
    power = [{"at": number, "kw": kw} for number, kw in enumerate((2.95, 2.7, 2.6, 2.98))]
    area = column(power, {"$integral": {"input": "$kw"}}, {"documents": ["unbounded", "current"]})
    assert area == pytest.approx([0, 2.825, 5.475, 8.265])
    whole = {"documents": ["unbounded", "unbounded"]}
    same = [{"at": 1, "kw": 3}, {"at": 1, "kw": 4}]
    assert column(same, {"$derivative": {"input": "$kw"}}, whole) == [None, None]


def test_covariance() -> None:
    rows = [
        {"at": n, "x": x, "y": y}
        for n, (x, y) in enumerate([(2020, 120), (2020, 145), (2021, 104), (0, "?")])
    ]
    pair = ["$x", "$y"]
    bounds = {"documents": ["unbounded", "current"]}
    assert column(rows, {"$covariancePop": pair}, bounds)[:2] == [0, 0]
    sample = column(rows, {"$covarianceSamp": pair}, bounds)
    assert sample[0] is None
    assert sample[2:] == pytest.approx([-9.5, -9.5])


def test_locf_and_linear_fill() -> None:
    rows = [{"at": at, "p": p} for at, p in ((0, None), (1, 500), (3, None), (5, 520), (6, None))]
    assert column(rows, {"$locf": "$p"}) == [None, 500, 500, 520, 520]
    assert column(rows, {"$linearFill": "$p"}) == [None, 500, 510, 520, None]
    with pytest.raises(InvalidOperand, match="linearFill requires different values"):
        column([{"at": 1}, {"at": 1}], {"$linearFill": "$p"})


@given(st.lists(st.integers(-5, 5), max_size=9), st.integers(-3, 3), st.integers(0, 3))
def test_windows_of_documents(values: list[int], low: int, width: int) -> None:
    rows = [{"at": number, "v": value} for number, value in enumerate(values)]
    found = column(rows, {"$push": "$v"}, {"documents": [low, low + width]})
    expected = [
        [values[n] for n in range(at + low, at + low + width + 1) if 0 <= n < len(values)]
        for at in range(len(values))
    ]
    assert found == expected
    growing = column(rows, {"$sum": "$v"}, {"documents": ["unbounded", "current"]})
    assert growing == list(accumulate(values))
    by_value = column(rows, {"$push": "$v"}, {"range": [low, low + width]}, sortBy={"v": 1})
    ordered = sorted(values)
    assert by_value == [[v for v in ordered if x + low <= v <= x + low + width] for x in ordered]


def test_fill() -> None:
    hours = [f"2021-03-08T{hour:02}:00:00Z" for hour in range(9, 15)]
    prices = [500, None, 515, None, None, 485]
    rows = [
        {"at": at} | ({} if price is None else {"price": price})
        for at, price in zip(hours, prices, strict=True)
    ]

    def filled(**how: Any) -> list[Any]:
        stage = {"$fill": {"sortBy": {"at": 1}, "output": {"price": how}}}
        return [each["price"] for each in give(rows[::-1], stage)]

    assert filled(method="linear") == [500, 507.5, 515, 505, 495, 485]
    assert filled(method="locf") == [500, 500, 515, 515, 515, 485]
    assert filled(value={"$literal": 0}) == [485, 0, 0, 515, 0, 500]  # as they come
    by_name = {
        "partitionByFields": ["r.name"],
        "sortBy": {"n": 1},
        "output": {"s": {"method": "locf"}},
    }
    scores = [
        {"r": {"name": "a"}, "n": 1, "s": 1},
        {"r": {"name": "b"}, "n": 2},
        {"r": {"name": "a"}, "n": 3},
    ]
    assert [each["s"] for each in give(scores, {"$fill": by_name})] == [1, 1, None]


def densify(**changed: Any) -> dict[str, Any]:
    limits = {"step": changed.pop("step", 1), "bounds": changed.pop("bounds", "full")}
    unit = changed.pop("unit", None)
    return {
        "$densify": {"field": "a", "range": limits | ({"unit": unit} if unit else {})} | changed
    }


def test_densify() -> None:
    coffees = [
        {"a": a, "v": v} for a, v in ((600, "T"), (750, "T"), (950, "T"), (1250, "G"), (1700, "G"))
    ]
    by_variety = {"partitionByFields": ["v"], "step": 200}
    full = [(each["v"], each["a"]) for each in give(coffees, densify(**by_variety))]
    assert full == [
        ("G", 600), ("G", 800), ("G", 1000), ("G", 1200), ("G", 1250), ("G", 1400), ("G", 1600), ("G", 1700),
        ("T", 600), ("T", 750), ("T", 800), ("T", 950), ("T", 1000), ("T", 1200), ("T", 1400), ("T", 1600),
    ]  # fmt: skip
    parts = give(coffees, densify(**by_variety, bounds="partition"))
    assert [each["a"] for each in parts] == [1250, 1450, 1650, 1700, 600, 750, 800, 950]


def test_densify_times() -> None:
    weather = [{"a": f"2021-05-18T{hour:02}:00:00Z", "t": 12} for hour in (0, 4)]
    hours = densify(
        unit="hour", step=2, bounds=["2021-05-18T00:00:00Z", "2021-05-18T06:00:00.000Z"]
    )
    found = give(weather, hours)
    assert found == [weather[0], {"a": "2021-05-18T02:00:00.000000Z"}, weather[1]]
    months = give(
        [{"a": "2024-01-31T00:00:00Z"}, {"a": "2024-04-01T00:00:00Z"}], densify(unit="month")
    )
    assert [each["a"][:10] for each in months] == [
        "2024-01-31",
        "2024-02-29",
        "2024-03-31",
        "2024-04-01",
    ]


def test_densify_keeps_rows_outside_and_without_a_value() -> None:
    rows = [{"a": 9}, {"b": 1}, {"a": 0}, {"a": None}]
    found = give(rows, densify(bounds=[1, 3]))
    assert found == [{"b": 1}, {"a": None}, {"a": 0}, {"a": 1}, {"a": 2}, {"a": 9}]
    with pytest.raises(InvalidOperand, match="adds more than 500,000"):
        give([{"a": 0}], densify(bounds=[1, 10**9]))
    with pytest.raises(InvalidOperand, match="densify requires a number"):
        give([{"a": "x"}], densify())


REFUSED: list[tuple[Any, str]] = [
    (window(5), "output': must be a document"),
    (window({"a": {"$sum": 1, "$avg": 1}}), "must have one function"),
    (window({"a": {"$foo": 1}}), "no such accumulator"),
    (window({"a": {"$rank": 1}}), "takes an empty document"),
    (window({"a": {"$rank": {}, "window": {"documents": [0, 1]}}}), "takes no window"),
    ({"$setWindowFields": {"output": {"a": {"$rank": {}}}}}, "rank': requires sortBy"),
    (window({"a": {"$rank": {}}}, sortBy={"a": 1, "b": 1}), "a sortBy of one field"),
    (window({"a": {"$sum": 1, "window": {"documents": [1, 0]}}}), "must not be greater"),
    (window({"a": {"$sum": 1, "window": {"documents": [0.5, 1]}}}), "documents.0': must be an integer"),
    (window({"a": {"$sum": 1, "window": {"documents": [0]}}}), "a list of two bounds"),
    (window({"a": {"$sum": 1, "window": {"documents": ["$b", 0]}}}), "documents.0': must be a constant"),
    (window({"a": {"$sum": 1, "window": {"documents": [0, 2**31]}}}), "documents.1': must be an integer from -2147483648"),
    (window({"a": {"$shift": {"output": "$x", "by": -2**31 - 1}}}), "by': must be an integer from -2147483648"),
    (window({"a": {"$sum": 1, "window": {"unit": "day"}}}), "either documents or range"),
    (window({"a": {"$sum": 1, "window": {"range": [0, 1]}}}, sortBy={"b": -1}), "one ascending field"),
    (window({"a": {"$sum": 1, "window": {"documents": [0, 1], "unit": "day"}}}), "requires a range"),
    (window({"a": {"$sum": 1, "window": {"range": [0, 1], "unit": "age"}}}), "unit'"),
    (window({"a": {"$expMovingAvg": {"input": "$x"}}}), "either N or alpha"),
    (window({"a": {"$expMovingAvg": {"input": "$x", "alpha": 1}}}), "between 0 and 1"),
    (window({"a": {"$integral": {"input": "$x", "unit": "month"}}}), "must be one of day"),
    (window({"a": {"$derivative": {"input": "$x"}}}), "window': \\$derivative requires a window"),
    ({"$fill": {"partitionBy": 5, "output": {"a": {"value": 1}}}}, "partitionBy': must be an expression, got 5"),
    ({"$fill": {"partitionBy": "x", "output": {"a": {"value": 1}}}}, "partitionBy': must be a path that begins with \\$, got 'x'"),
    (window({"a": {"$minMaxScaler": {"input": "$x", "min": 0}}}), "both min and max, or neither"),
    (window({"a": {"$minMaxScaler": {"input": "$x", "min": 1, "max": 1}}}), "min must be a number less"),
    (window({"a": {"$minMaxScaler": {"input": "$x", "min": "$a", "max": 1}}}), "min': must be a constant"),
    (window({"a": {"$minMaxScaler": "$x", "window": {"documents": [1, 2]}}}), "requires the document itself"),
    (window({"a": {"$minMaxScaler": "$x", "window": {"documents": [-2, -1]}}}), "requires the document itself"),
    (window({"a": {"$covariancePop": ["$x"]}}), "two operands"),
    (window({"a": {"$shift": {"output": "$x", "by": 1, "default": "$y"}}}), "must be a constant"),
    (window({"a": {"$sum": 1}, "a.b": {"$sum": 1}}), "another path names this field"),
    ({"$fill": {"output": {}}}, "at least one field"),
    ({"$fill": {"output": {"a": {"method": "locf"}}}}, "requires sortBy"),
    ({"$fill": {"output": {"a": {"method": "x"}}, "sortBy": {"b": 1}}}, "must be locf or linear"),
    ({"$fill": {"output": {"a": {"value": 1, "method": "locf"}}}}, "either value or method"),
    (densify(step=0), "step': must be a positive number"),
    (densify(step=1.5, unit="day"), "whole with a unit"),
    (densify(bounds="partition"), "requires partitionByFields"),
    (densify(partitionByFields=["b", "a"]), "partitionByFields': must not have a path of the field"),
    (densify(partitionByFields=["a.b"]), "partitionByFields': must not have a path of the field"),
    (densify(field="a.b", partitionByFields=["a"]), "partitionByFields': must not have a path of the field"),
    (densify(bounds=[3, 1]), "the first value must not be greater"),
    (densify(bounds=["2021-01-01T00:00:00Z", 1]), "times with a unit"),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "problem"), REFUSED)
def test_invalid_windows_name_the_position(stage: Any, problem: str) -> None:
    with pytest.raises(InvalidPipeline, match=problem):
        Pipeline.parse([stage])


@pytest.mark.parametrize(
    ("rows", "field", "problem"),
    [
        ([{"at": "x"}], {"$sum": 1, "window": {"range": [0, 1]}}, "sum requires"),
        ([{"at": None}], {"$sum": 1, "window": {"range": [0, 1]}}, "sum requires numbers or times"),
        (
            [{"at": 1}],
            {"$sum": 1, "window": {"range": [0, 1], "unit": "day"}},
            "a unit requires times",
        ),
        ([{"at": 1, "v": "x"}] * 2, {"$integral": {"input": "$v"}}, "integral requires a number"),
        ([{"at": 1}], {"$minMaxScaler": "$v"}, "minMaxScaler requires a number, got None"),
    ],
)
def test_values_that_a_window_does_not_take(rows: list[Any], field: Any, problem: str) -> None:
    with pytest.raises(InvalidOperand, match=problem):
        give(rows, window({"x": field}))


def test_windows_hold_their_rows() -> None:
    with pytest.raises(MemoryLimitExceeded, match="setWindowFields"):
        give([{"n": "x" * 500}] * 10, window({"a": {"$sum": 1}}), memory_limit=2000)
    with pytest.raises(InvalidOperand, match="must not be an array"):
        give([{"state": [1]}], window({"a": {"$sum": 1}}))


def test_the_results_of_a_growing_window_are_independent() -> None:
    rows = [{"n": 1, "o": {"a": 1}}, {"n": 2}, {"n": 3, "o": {"a": 2, "b": 3}}]
    by_n, grows = {"sortBy": {"n": 1}, "partitionBy": None}, {"documents": ["unbounded", "current"]}
    merged = [{"a": 1}, {"a": 1}, {"a": 2, "b": 3}]
    assert column(rows, {"$mergeObjects": "$o"}, grows, **by_n) == merged
    assert column(rows, {"$mergeObjects": "$o"}, {"documents": [-2, -1]}, **by_n) == [
        {},
        *merged[:2],
    ]
    first, *others = column(rows, {"$push": "$n"}, **by_n)
    first.append(4)
    assert others == [[1, 2, 3]] * 2


SCALED: list[tuple[Any, Any, list[float]]] = [
    ("$a", None, [0, 0.2, 0.6, 1]),  # the examples of MongoDB 8.2's manual
    ({"input": "$a", "min": 0, "max": 100}, None, [0, 20, 60, 100]),
    ({"input": {"$multiply": ["$a", 2]}}, None, [0, 0.2, 0.6, 1]),
    ({"$multiply": ["$a", -1]}, None, [1, 0.8, 0.4, 0]),
    ("$a", {"documents": [-1, 0]}, [0, 1, 1, 1]),
    ("$a", {"documents": [0, 1]}, [0, 0, 0, 0]),
    ({"input": "$a", "min": -5, "max": 5}, {"documents": ["current", "current"]}, [-5] * 4),
    ("$a", {"range": [-8, 8]}, [0, 1 / 3, 0.5, 1]),
]


@pytest.mark.parametrize(("operand", "bounds", "expected"), SCALED)
def test_scaled(operand: Any, bounds: Any, expected: list[float]) -> None:
    rows = [{"a": each} for each in (1, 5, 13, 21)]
    found = column(rows, {"$minMaxScaler": operand}, bounds, sortBy={"a": 1}, partitionBy=None)
    assert found == pytest.approx(expected)


@given(
    st.lists(st.integers(-9, 9), min_size=1), st.integers(-3, 0), st.integers(0, 3), st.booleans()
)
def test_a_scale_is_that_of_its_window(values: list[int], low: int, high: int, grows: bool) -> None:
    bounds = {"documents": ["unbounded" if grows else low, high]}
    rows = [{"n": n, "a": each} for n, each in enumerate(values)]
    found = column(rows, {"$minMaxScaler": "$a"}, bounds, sortBy={"n": 1}, partitionBy=None)
    for n, value in enumerate(values):
        inside = values[0 if grows else max(0, n + low) : n + high + 1]
        length = max(inside) - min(inside)
        assert found[n] == ((value - min(inside)) / length if length else 0)


BEYOND: list[Any] = [
    {"$setWindowFields": {"output": {"x": {"$push": "$n"}}}},
    {"$setWindowFields": {"sortBy": {"n": 1}, "output": {"x": {"$push": {"$range": [0, 1000]}, "window": {"documents": [0, 0]}}}}},
    {"$setWindowFields": {"sortBy": {"n": 1}, "output": {"x": {"$shift": {"output": {"$range": [0, 1000]}, "by": 1}}}}},
    {"$setWindowFields": {"partitionBy": {"x": {"$range": ["$n", {"$add": ["$n", 1000]}]}}, "output": {}}},
    {"$bucketAuto": {"groupBy": {"$range": ["$n", {"$add": ["$n", 1000]}]}, "buckets": 2}},
]  # fmt: skip


@pytest.mark.parametrize("stage", BEYOND)
def test_what_a_stage_computes_is_limited(stage: Any) -> None:
    rows = [{"n": n} for n in range(300)]
    with pytest.raises(MemoryLimitExceeded):
        give(rows, stage, {"$count": "n"}, memory_limit=500_000)
    assert give(rows, stage, {"$limit": 1}, memory_limit=100_000_000)


def test_partitions_are_held_one_after_the_other() -> None:
    one_window = {"output": {"x": {"$push": "$n"}}}
    rows = [{"n": n} for n in range(300)]
    whole = {"$setWindowFields": one_window}
    parts = {"$setWindowFields": {"partitionBy": {"$mod": ["$n", 10]}, **one_window}}
    assert len(give(rows, parts, memory_limit=500_000)) == 300
    with pytest.raises(MemoryLimitExceeded):
        give(rows, whole, memory_limit=500_000)


def test_a_range_of_large_integers_is_exact() -> None:
    rows = [{"n": 2**53 + n} for n in range(4)]
    found = column(rows, {"$sum": 1}, {"range": [-1, 0]}, sortBy={"n": 1}, partitionBy=None)
    assert found == [1, 2, 2, 2]


def test_ranges_at_the_ends_of_time() -> None:
    rows = [{"at": "0001-01-01T00:00:00Z"}, {"at": "9999-12-31T12:00:00Z"}]
    for bounds in ([-1, 1], ["current", 3], [-3, "current"]):
        window = {"range": bounds, "unit": "day"}
        assert column(rows, {"$sum": 1}, window, partitionBy=None) == [1, 1]
    assert column(rows, {"$sum": 1}, {"range": [1, 2], "unit": "year"}, partitionBy=None) == [0, 0]


@given(
    st.lists(st.integers(-3, 3), max_size=12),
    st.sampled_from(["documents", "range"]),
    *[st.one_of(st.just("unbounded"), st.integers(-3, 3))] * 2,
)
def test_windows_are_those_of_their_definition(
    numbers: list[int], kind: str, low: Any, high: Any
) -> None:
    if isinstance(low, int) and isinstance(high, int) and low > high:
        low, high = high, low
    numbers.sort()
    below = -99 if low == "unbounded" else low
    above = 99 if high == "unbounded" else high
    places = numbers if kind == "range" else range(len(numbers))
    expected = [
        [n for n, other in zip(numbers, places, strict=True) if below <= other - place <= above]
        for place in places
    ]
    found = column(
        [{"n": n} for n in numbers],
        {"$push": "$n"},
        {kind: [low, high]},
        sortBy={"n": 1},
        partitionBy=None,
    )
    assert found == expected


@pytest.mark.parametrize("name", sorted(ACCUMULATORS))
def test_accumulators_over_no_rows(name: str) -> None:
    operands: dict[str, Any] = {
        "value": "$n",
        "n": {"input": "$n", "n": 1},
        "sorted": {"output": "$n", "sortBy": {"n": 1}},
        "sorted n": {"output": "$n", "sortBy": {"n": 1}, "n": 1},
        "median": {"input": "$n", "method": "approximate"},
        "percentile": {"input": "$n", "p": [0.5], "method": "approximate"},
    }
    function = {name: operands[ACCUMULATORS[name].form]}
    bounds = {"documents": [1, 2]}
    [found] = column([{"n": 1}], function, bounds, sortBy={"n": 1}, partitionBy=None)
    assert found in (None, 0, [], {}, [None])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.floats(-1e9, 1e9)), min_size=1, max_size=9),
    st.integers(-3, 3),
    st.integers(0, 4),
)
def test_an_integral_is_the_sum_of_its_parts(
    points: list[tuple[int, float]], low: int, size: int
) -> None:
    points.sort()
    parts = [(two[0] - one[0]) * (one[1] + two[1]) / 2 for one, two in pairwise(points)]
    expected: list[float | None] = []
    for n in range(len(points)):
        begin, end = max(0, n + low), min(len(points), n + low + size + 1)
        expected.append(math.fsum(parts[begin : end - 1]) if begin < end else None)
    found = column(
        [{"at": at, "n": n} for at, n in points],
        {"$integral": {"input": "$n"}},
        {"documents": [low, low + size]},
        sortBy={
            "at": 1,
        },
        partitionBy=None,
    )
    assert found == expected


@given(
    st.lists(
        st.tuples(*[st.one_of(st.integers(-9, 9), st.floats(-1e9, 1e9), st.none())] * 2),
        min_size=1,
        max_size=9,
    ),
    st.integers(-3, 3),
    st.integers(0, 4),
    st.sampled_from([0, 1]),
)
def test_a_covariance_is_that_of_the_window(
    points: list[tuple[Any, Any]], low: int, size: int, besides: int
) -> None:
    expected: list[float | None] = []
    for n in range(len(points)):
        inside = points[max(0, n + low) : max(0, n + low + size + 1)]
        pairs = [(Fraction(x), Fraction(y)) for x, y in inside if None not in (x, y)]
        if len(pairs) <= besides:
            expected.append(None)
            continue
        left, right = (sum(each) / len(pairs) for each in zip(*pairs, strict=True))
        products = sum((x - left) * (y - right) for x, y in pairs)
        expected.append(float(products / (len(pairs) - besides)))
    found = column(
        [{"at": n, "x": x, "y": y} for n, (x, y) in enumerate(points)],
        {"$covarianceSamp" if besides else "$covariancePop": ["$x", "$y"]},
        {"documents": [low, low + size]},
        sortBy={"at": 1},
        partitionBy=None,
    )
    assert found == expected


@pytest.mark.parametrize(
    "function", [{"$integral": {"input": "$n"}}, {"$covariancePop": ["$n", "$n"]}]
)
def test_a_growing_window_takes_time_for_each_row_only(function: Any) -> None:
    steps = []
    grows = {"documents": ["unbounded", "current"]}
    with checked_by(lambda: steps.append(1)):
        column(
            [{"n": n} for n in range(2000)],
            function,
            grows,
            sortBy={"n": 1},
            partitionBy=None,
        )
    assert len(steps) < 40


def test_densify_an_empty_input_within_bounds() -> None:
    assert give([], densify(bounds=[1, 3])) == [{"a": 1}, {"a": 2}]
    assert give([], densify(bounds="full")) == []
    assert give([], densify(bounds=[1, 3], partitionByFields=["p"])) == []


def test_densify_partitions_by_equal_values() -> None:
    rows = [{"p": 1, "a": 0}, {"p": 1.0, "a": 2}, {"a": 0}, {"p": None, "a": 2}]
    found = give(rows, densify(partitionByFields=["p"], bounds="partition"))
    assert [each["a"] for each in found] == [0, 1, 2, 0, 1, 2]


def test_densify_to_the_end_of_time() -> None:
    rows = [{"a": "9999-12-30T00:00:00Z"}, {"a": "9999-12-31T12:00:00Z"}]
    found = give(rows, densify(unit="day"))
    assert [each["a"][8:13] for each in found] == ["30T00", "31T00", "31T12"]


def test_densify_requires_a_step_that_changes_the_value() -> None:
    with pytest.raises(InvalidOperand, match="\\$densify requires a larger step"):
        give([{"a": 1e18}, {"a": 2e18}], densify(step=1e-9))


def test_densify_holds_no_rows_without_a_value() -> None:
    count = {"$count": "n"}
    rows = [{"b": n} for n in range(1000)]
    assert give(rows, densify(), count, memory_limit=5000) == [{"n": 1000}]
    with pytest.raises(MemoryLimitExceeded):
        give([{"a": n} for n in range(1000)], densify(), count, memory_limit=5000)
