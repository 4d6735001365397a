"""The steps of filters, updates and expressions grow linearly with their input."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from collections_store import Change, Document, Filter, InvalidFilter, Projection, Update
from collections_store.document import Anonymous
from collections_store.expressions.evaluation import Scope
from collections_store.expressions.nodes import evaluate
from collections_store.expressions.parser import ExpressionParser
from collections_store.query.change import ChangeFilter
from collections_store.query.matcher import matches
from collections_store.query.shapes import values_of

SMALL, LARGE = 60, 240


def steps(function: Callable[[], Any]) -> int:
    """Return the number of function calls, including those of C."""
    count = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(called)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def objects(count: int, first: int = 0) -> list[Any]:
    return [{"k": number, "x": [number]} for number in range(first, first + count)]


def found(filter: dict[str, Any], body: Any, *, ordered: bool = True) -> bool:
    return matches(Filter.parse(filter), Document("1", body), ordered=ordered)


def given(expression: Any, body: Any) -> Any:
    parsed = ExpressionParser(InvalidFilter).parse(expression, "")
    return evaluate(parsed, Scope(Anonymous(body)))


def changed(update: Any, body: Any) -> Any:
    parsed = Update.parse(update, array_filters=[])  # with which none comes from the cache
    return parsed.apply(Document("1", body), now=0)


def shaped(count: int) -> Any:
    filter = Filter.parse({"a": {"$in": objects(count)}, "b": {"$all": list(range(count))}})
    return hash(filter.shape), len(values_of(filter.condition)), filter == Filter(filter.condition)


def nested(value: Any, depth: int, count: int) -> Any:
    """Return nested arrays with a number of leaf values."""
    for _ in range(depth):
        value = [value]
    return {"a": [value] * count}


def merged(count: int, *operands: Any) -> Any:
    merging = {"$reduce": {"input": "$a", "initialValue": {}, "in": {"$mergeObjects": [*operands]}}}
    return given(merging, {"a": [{str(number): number} for number in range(count)]})


def joined(count: int) -> Any:
    adds = {"$concatArrays": ["$$value", ["$$this"], "$$this.x"]}
    return given(
        {"$reduce": {"input": "$a", "initialValue": [], "in": adds}}, {"a": objects(count)}
    )


GROWING: dict[str, Callable[[int], Any]] = {
    "$all": lambda n: found({"a": {"$all": list(range(n))}}, {"a": list(range(n))}),
    "$all of objects": lambda n: found({"a": {"$all": objects(n)}}, {"a": objects(n)}),
    "$and": lambda n: found({"$and": [{"a": each} for each in objects(n)]}, {"a": objects(n)}),
    "$or": lambda n: found({"$or": [{"a": each} for each in objects(n)]}, {"a": objects(n, n)}),
    "$in": lambda n: found({"a": {"$in": objects(n)}}, {"a": objects(n, n)}),
    "$in without order": lambda n: found(
        {"a": {"$in": objects(n)}}, {"a": objects(n, n)}, ordered=False
    ),
    "$nin": lambda n: found({"a": {"$nin": objects(n)}}, {"a": objects(n, n)}),
    "$elemMatch": lambda n: found({"a": {"$elemMatch": {"$in": objects(n)}}}, {"a": objects(n, n)}),
    "$elemMatch of $nin": lambda n: found(
        {"a": {"$elemMatch": {"$nin": objects(n)}}}, {"a": objects(n)}
    ),
    "shape": shaped,
    "arrays in arrays": lambda n: found(
        {"a.0.0.0.0.0.0.0.0.k": {"$in": objects(n)}}, nested({"k": 1}, 8, n)
    ),
    "$pull": lambda n: changed({"$pull": {"a": {"$in": objects(n)}}}, {"a": objects(n, 7)}),
    "$pull of a field": lambda n: changed(
        {"$pull": {"a": {"k": {"$in": list(range(n))}}}}, {"a": objects(n, 7)}
    ),
    "$pullAll": lambda n: changed({"$pullAll": {"a": objects(n)}}, {"a": objects(n, 7)}),
    "$addToSet": lambda n: changed(
        {"$addToSet": {"a": {"$each": objects(n)}}}, {"a": objects(n, 7)}
    ),
    "$mergeObjects": lambda n: merged(n, "$$value", "$$this"),
    "$concatArrays": joined,
    "$in of an expression": lambda n: given(
        {"$filter": {"input": "$a", "cond": {"$in": ["$$this", objects(n)]}}}, {"a": objects(n)}
    ),
    "$setUnion": lambda n: given(
        {"$setIsSubset": ["$a", "$b"]}, {"a": objects(n), "b": objects(n)}
    ),
    "$setDifference": lambda n: given(
        {"$setDifference": ["$a", "$b"]}, {"a": objects(n), "b": objects(n, 7)}
    ),
    "$indexOfArray": lambda n: given({"$indexOfArray": ["$a", {"k": -1}]}, {"a": objects(n)}),
}


@pytest.mark.parametrize("name", GROWING)
def test_steps_grow_linearly_with_the_input(name: str) -> None:
    run = GROWING[name]
    run(SMALL)
    small, large = steps(lambda: run(SMALL)), steps(lambda: run(LARGE))
    assert large < 6 * small


@pytest.mark.parametrize("wanted", [["a1", "o.b"], {"a1": 0, "o.b": 0}])
def test_steps_of_a_projection_depend_on_its_fields(wanted: Any) -> None:
    projection = Projection.parse(wanted)
    counts = []
    for width in (5, 500):
        body = {f"a{n}": n for n in range(width)} | {"o": {"b": 1, "c": 2}}
        document = Document("1", body)
        counts.append(steps(partial(projection.apply, document, Filter())))
    assert counts[0] == counts[1] < 40


def test_long_lists_match_like_short_ones() -> None:
    values: list[Any] = [None, True, 1, 2.5, "1", [], [1], [[1]], {}, {"a": 1, "b": [True]}]
    many = [f"unlike {number}" for number in range(20)]
    for value in values:
        for body in ({"a": value}, {"a": [value, 7]}, {"a": [7, [value]]}, {}, 5):
            for ordered in (True, False):
                alone = found({"a": {"$in": [value]}}, body, ordered=ordered)
                assert found({"a": {"$in": [*many, value]}}, body, ordered=ordered) is alone
                assert found({"a": {"$nin": [*many, value]}}, body, ordered=ordered) is not alone
                every = {"$and": [{"a": value}] * 10}
                assert found(every, body, ordered=ordered) is found({"a": value}, body)
                assert found({"$or": [{"b": 1}] * 9 + [{"a": value}]}, body) is found(
                    {"a": value}, body
                )


def test_key_order_matters_in_long_lists() -> None:
    many = [{"x": number} for number in range(20)]
    for filter in (
        {"a": {"$in": [*many, {"b": 1, "c": 2}]}},
        {"$or": [{"a": {"b": 1, "c": 2}}] * 9},
    ):
        assert not found(filter, {"a": {"c": 2, "b": 1}})
        assert found(filter, {"a": {"c": 2, "b": 1}}, ordered=False)


def test_accumulating_reduces_give_the_same_result() -> None:
    body = {"a": [{"k": 1}, None, {"k": 2, "m": 3}], "o": {"z": 0}, "l": [[1], [2, 3], []]}
    one = {"$mergeObjects": ["$$value", "$$this"]}
    adds = {"$reduce": {"input": "$a", "initialValue": "$o", "in": one}}
    assert given(adds, body) == {"z": 0, "k": 2, "m": 3}
    assert body["o"] == {"z": 0}
    assert given({"$reduce": {**adds["$reduce"], "input": []}}, body) == {"z": 0}
    add = {
        "$reduce": {
            "input": "$l",
            "initialValue": "$l",
            "in": {"$concatArrays": ["$$value", "$$this"]},
        }
    }
    assert given(add, body) == [[1], [2, 3], [], 1, 2, 3]
    assert body["l"] == [[1], [2, 3], []]
    assert given({"$reduce": {**add["$reduce"], "input": [[1], None, [2]]}}, body) is None
    again = {"$mergeObjects": ["$$value", {"n": {"$size": {"$objectToArray": "$$value"}}}]}
    assert given({"$reduce": {"input": "$l", "initialValue": "$o", "in": again}}, body) == {
        "z": 0,
        "n": 2,
    }


def test_whether_a_change_can_be_filtered_is_known_beforehand() -> None:
    def of_conditions(number: int) -> int:
        wanted = ChangeFilter(Filter.parse({"$or": [{"$id": f"k{n}"} for n in range(number)]}))
        change = Change("update", "a", 2, datetime.now(UTC))
        return steps(lambda: wanted.is_open(change))

    assert of_conditions(SMALL) == of_conditions(LARGE)
