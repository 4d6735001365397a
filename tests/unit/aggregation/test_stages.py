"""Results of stages, one by one, as of MongoDB's server on JSON values."""

import copy
import pickle
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import datetime
from sys import getsizeof
from typing import Any

import pytest

from collections_store import (
    Document,
    F,
    Filter,
    InvalidOperand,
    InvalidPipeline,
    MemoryLimitExceeded,
)
from collections_store.aggregation.pipeline import Pipeline
from collections_store.document import Anonymous
from collections_store.expressions import evaluation
from collections_store.query.matcher import matches


class Collections(dict[str, list[Any]]):
    """A source of bodies that records its filters."""

    def __init__(self, **bodies: list[Any]) -> None:
        super().__init__(bodies)
        self.filters: list[Filter] = []

    def find(self, collection: str, filter: Filter) -> Iterable[Document]:
        self.filters.append(filter)
        every = enumerate(self.get(collection, []))
        documents = (Document(str(number), body) for number, body in every)
        return [each for each in documents if matches(filter, each)]


def give(bodies: Iterable[Any], *stages: Any, source: Any = None, **options: Any) -> list[Any]:
    rows = (Document(str(number), body) for number, body in enumerate(bodies))
    pipeline = Pipeline.parse(list(stages))
    return list(pipeline.run(rows, source or Collections(), **options))


BODY: dict[str, Any] = {
    "_id": 1,
    "a": {"b": 1, "c": [{"d": 1, "e": 2}, 5, {"e": 3}, [{"d": 4}]]},
    "n": 2,
    "s": "x",
}

PROJECTS: list[tuple[Any, Any]] = [
    ({"n": 1}, {"_id": 1, "n": 2}),
    ({"n": True, "_id": 0}, {"n": 2}),
    ({"_id": 0}, {k: v for k, v in BODY.items() if k != "_id"}),
    ({"_id": 1}, {"_id": 1}),
    ({"n": 0, "a": 0}, {"_id": 1, "s": "x"}),
    ({"n": 0, "a": 0, "_id": 1}, {"_id": 1, "s": "x"}),
    ({"n": 0, "a": 0, "_id": 0}, {"s": "x"}),
    ({"missing": 1}, {"_id": 1}),
    ({"a.b": 1}, {"_id": 1, "a": {"b": 1}}),
    ({"a": {"b": 1}}, {"_id": 1, "a": {"b": 1}}),
    ({"a.none": 1}, {"_id": 1, "a": {}}),
    ({"n.none": 1}, {"_id": 1}),
    ({"a.c.d": 1, "_id": 0}, {"a": {"c": [{"d": 1}, {}, [{"d": 4}]]}}),
    (
        {"a.c.d": 0, "a.b": 0, "_id": 0, "n": 0, "s": 0},
        {"a": {"c": [{"e": 2}, 5, {"e": 3}, [{}]]}},
    ),
    ({"n.x": 0, "_id": 0, "a": 0}, {"n": 2, "s": "x"}),
    ({"s": 1, "n": {"$add": ["$n", 1]}, "_id": 0}, {"s": "x", "n": 3}),
    ({"x": "$n", "_id": 0}, {"x": 2}),
    ({"x": "n", "y": {"$literal": 1}, "z": ["$n", "$none"], "_id": 0}, {"x": "n", "y": 1, "z": [2, None]}),
    ({"x": "$none", "_id": 0}, {}),
    ({"x.y": "$n", "_id": 0}, {"x": {"y": 2}}),
    ({"a.b": "$n", "_id": 0}, {"a": {"b": 2}}),
    ({"a": {"b": "$n", "c": 1}, "_id": 0}, {"a": {"c": BODY["a"]["c"], "b": 2}}),
    ({"n.y": "$s", "_id": 0}, {"n": {"y": "x"}}),
    ({"_id": "$n"}, {"_id": 2}),
    ({"_id": {"k": "$n"}, "s": 1}, {"s": "x", "_id": {"k": 2}}),
    ({"n": 5, "_id": 0.0}, {"n": 2}),
    ({"id": {"$meta": "id"}, "_id": 0}, {"id": "0"}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "expected"), PROJECTS, ids=str)
def test_project(spec: Any, expected: Any) -> None:
    (found,) = give([BODY], {"$project": spec})
    assert found == expected
    assert list(found) == list(expected)


ADDED: list[tuple[Any, Any, Any]] = [
    ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ({"a": 1, "z": 0}, {"a": {"$add": ["$a", 1]}}, {"a": 2, "z": 0}),
    ({"a": 1}, {"a": "$none"}, {}),
    ({"a": 1}, {"a": "$$REMOVE", "b": "$a"}, {"b": 1}),
    ({"a": {"b": 1}}, {"a.c": 2}, {"a": {"b": 1, "c": 2}}),
    ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    ({"a": 5}, {"a.c": 2}, {"a": {"c": 2}}),
    ({"a": [{"b": 1}, 5]}, {"a.c": 2}, {"a": [{"b": 1, "c": 2}, {"c": 2}]}),
    ({"a": 1, "b": 2}, {"a": "$b", "b": "$a"}, {"a": 2, "b": 1}),
    ({"a": 1}, {"a": {"$literal": {"x": 1}}}, {"a": {"x": 1}}),
    ({"a": 1}, {"v": {"$meta": "version"}}, {"a": 1, "v": 1}),
    (5, {"a": 1}, {"a": 1}),
]


@pytest.mark.parametrize(("body", "spec", "expected"), ADDED, ids=str)
def test_add_fields(body: Any, spec: Any, expected: Any) -> None:
    for name in ("$addFields", "$set"):
        (found,) = give([body], {name: spec})
        assert found == expected
        assert list(found) == list(expected)


def test_unset() -> None:
    assert give([{"a": 1, "b": {"c": 1, "d": 2}}], {"$unset": "a"}) == [{"b": {"c": 1, "d": 2}}]
    assert give([{"a": 1, "b": {"c": 1, "d": 2}}], {"$unset": ["a", "b.c"]}) == [{"b": {"d": 2}}]
    assert give([5], {"$unset": "a"}) == [5]


UNWOUND: list[tuple[Any, Any, list[Any]]] = [
    ({"a": [1, 2]}, "$a", [{"a": 1}, {"a": 2}]),
    ({"a": 1}, "$a", [{"a": 1}]),
    ({"a": []}, "$a", []),
    ({"a": None}, "$a", []),
    ({}, "$a", []),
    ({"a": [None, [1]]}, "$a", [{"a": None}, {"a": [1]}]),
    ({"a": {"b": [1, 2], "c": 0}}, "$a.b", [{"a": {"b": 1, "c": 0}}, {"a": {"b": 2, "c": 0}}]),
    ({"a": [{"b": [1]}]}, "$a.b", []),
    ({"a": [3]}, {"path": "$a", "includeArrayIndex": "i"}, [{"a": 3, "i": 0}]),
    ({"a": 3}, {"path": "$a", "includeArrayIndex": "i"}, [{"a": 3, "i": None}]),
    ({"a": []}, {"path": "$a", "preserveNullAndEmptyArrays": True}, [{}]),
    ({"a": None}, {"path": "$a", "preserveNullAndEmptyArrays": True}, [{"a": None}]),
    ({"b": 1}, {"path": "$a", "preserveNullAndEmptyArrays": True}, [{"b": 1}]),
    (
        {"b": 1},
        {"path": "$a", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "i.j"},
        [{"b": 1, "i": {"j": None}}],
    ),
    (5, "$a", []),
]


@pytest.mark.parametrize(("body", "spec", "expected"), UNWOUND, ids=str)
def test_unwind(body: Any, spec: Any, expected: list[Any]) -> None:
    assert give([body], {"$unwind": spec}) == expected


SALES: list[Any] = [
    {"k": "a", "n": 1, "t": [1]},
    {"k": "b", "n": 2.5},
    {"k": "a", "n": 3, "t": [1]},
    {"k": None, "n": "x"},
    {"n": None},
]


def test_group() -> None:
    found = give(
        SALES,
        {
            "$group": {
                "_id": "$k",
                "sum": {"$sum": "$n"},
                "avg": {"$avg": "$n"},
                "min": {"$min": "$n"},
                "max": {"$max": "$n"},
                "first": {"$first": "$n"},
                "last": {"$last": "$n"},
                "push": {"$push": "$n"},
                "set": {"$addToSet": "$t"},
                "count": {"$count": {}},
            }
        },
    )
    assert found == [
        {"_id": "a", "sum": 4, "avg": 2.0, "min": 1, "max": 3, "first": 1, "last": 3,
         "push": [1, 3], "set": [[1]], "count": 2},
        {"_id": "b", "sum": 2.5, "avg": 2.5, "min": 2.5, "max": 2.5, "first": 2.5, "last": 2.5,
         "push": [2.5], "set": [], "count": 1},
        {"_id": None, "sum": 0, "avg": None, "min": "x", "max": "x", "first": "x", "last": None,
         "push": ["x", None], "set": [], "count": 2},
    ]  # fmt: skip


def test_group_keys_are_equal_if_values_are() -> None:
    keys = [1, 1.0, True, "1", None, [1], [1.0], {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    rows = [{"k": key} for key in keys]
    found = give(rows, {"$group": {"_id": "$k", "n": {"$sum": 1}}})
    assert [(each["_id"], each["n"]) for each in found] == [
        (1, 2), (True, 1), ("1", 1), (None, 1), ([1], 2), ({"a": 1, "b": 2}, 1), ({"b": 2, "a": 1}, 1),
    ]  # fmt: skip
    unordered = give(rows, {"$group": {"_id": "$k"}}, ordered=False)
    assert len(unordered) == 6
    composed = give([{}, {"k": None}], {"$group": {"_id": {"k": "$k"}}})
    assert composed == [{"_id": {}}, {"_id": {"k": None}}]
    assert give([{}, {}], {"$group": {"_id": None, "n": {"$sum": 1}}}) == [{"_id": None, "n": 2}]
    assert give([], {"$group": {"_id": None, "n": {"$sum": 1}}}) == []


def test_sums_are_exact() -> None:
    rows = [{"n": n} for n in (0.1, 1e16, 0.2, -1e16, 2**53, 1, -(2**53))]
    (found,) = give(rows, {"$group": {"_id": None, "sum": {"$sum": "$n"}}})
    assert found["sum"] == pytest.approx(1.3, abs=1e-15)
    big = [{"n": 2**63 - 1}, {"n": 1}]
    (found,) = give(big, {"$group": {"_id": None, "sum": {"$sum": "$n"}}})
    assert found["sum"] == 2.0**63
    assert isinstance(found["sum"], float)


def test_groups_have_no_metadata() -> None:
    stages = [{"$group": {"_id": None}}, {"$addFields": {"id": {"$meta": "id"}}}]
    assert give([1], *stages) == [{"_id": None}]
    assert give([1], stages[0], {"$match": {"$id": "0"}}) == []
    assert give([1], stages[0], {"$match": {"$version": {"$exists": False}}}) == [{"_id": None}]
    assert give([{"a": [7, 8]}], {"$unwind": "$a"}, {"$match": {"$id": "0", "a": 8}}) == [{"a": 8}]


def test_skip_limit_and_count() -> None:
    assert give(range(5), {"$skip": 1}, {"$limit": 3}, {"$skip": 1}) == [2, 3]
    assert give(range(5), {"$limit": 2.0}) == [0, 1]
    assert give(range(5), {"$count": "n"}) == [{"n": 5}]
    assert give([], {"$count": "n"}) == []
    assert give(range(3)) == [0, 1, 2]


def test_sort_by_count() -> None:
    rows = [{"t": ["a", "b"]}, {"t": ["b"]}, {"t": "c"}]
    found = give(rows, {"$unwind": "$t"}, {"$sortByCount": "$t"})
    assert found == [{"_id": "b", "count": 2}, {"_id": "a", "count": 1}, {"_id": "c", "count": 1}]
    found = give(rows, {"$sortByCount": {"$type": "$t"}})
    assert found == [{"_id": "array", "count": 2}, {"_id": "string", "count": 1}]


def test_replace_root() -> None:
    assert give([{"a": {"b": 1}}], {"$replaceRoot": {"newRoot": "$a"}}) == [{"b": 1}]
    merged = {"$mergeObjects": [{"x": 0, "y": 0}, "$$ROOT"]}
    assert give([{"x": 1}], {"$replaceWith": merged}) == [{"x": 1, "y": 0}]
    for body in ({"a": 1}, {}):
        with pytest.raises(InvalidOperand, match=r"\$replaceRoot requires an object"):
            give([body], {"$replaceRoot": {"newRoot": "$a"}})


def test_sort() -> None:
    values = [True, "b", None, [], {"x": 1}, 2, "a", [5, 0], 1.5]
    rows = [*({"v": value} for value in values), {}]
    found = [each.get("v") for each in give(rows, {"$sort": {"v": 1}})]
    assert found == [[], None, None, [5, 0], 1.5, 2, "a", "b", {"x": 1}, True]
    found = [each.get("v") for each in give(rows, {"$sort": {"v": -1}})]
    assert found == [True, {"x": 1}, "b", "a", [5, 0], 2, 1.5, None, None, []]
    rows = [{"a": n % 3, "b": n} for n in range(9)]
    found = [each["b"] for each in give(rows, {"$sort": {"a": -1}})]
    assert found == [2, 5, 8, 1, 4, 7, 0, 3, 6]


def test_sort_respects_key_order_if_the_database_keeps_it() -> None:
    rows = [{"o": {"b": 1, "a": 2}, "n": 1}, {"o": {"a": 2, "b": 1}, "n": 0}]
    by = {"$sort": {"o": -1, "n": 1}}
    assert [each["n"] for each in give(rows, by, ordered=True)] == [1, 0]
    assert [each["n"] for each in give(rows, by, ordered=False)] == [0, 1]


def test_match() -> None:
    rows = [{"a": n} for n in range(4)]
    assert give(rows, {"$match": {"a": {"$gt": 2}}}) == [{"a": 3}]
    assert give(rows, {"$match": F("a") < 1}) == [{"a": 0}]
    assert give(rows, {"$match": {"$expr": {"$eq": [{"$mod": ["$a", 2]}, 1]}}}) == [
        {"a": 1},
        {"a": 3},
    ]


# -- $lookup -----------------------------------------------------------------------------------


def look_up(local: Any, foreign: list[Any], local_field: str, foreign_field: str) -> list[Any]:
    stage = {"from": "f", "localField": local_field, "foreignField": foreign_field, "as": "found"}
    (found,) = give([local], {"$lookup": stage}, source=Collections(f=foreign))
    return [each["_id"] for each in found["found"]]


TOP: list[dict[str, Any]] = [
    {"_id": 0, "no_a": 1}, {"_id": 1, "a": None}, {"_id": 2, "a": [None, 1]}, {"_id": 10, "a": []},
    {"_id": 20, "a": 1}, {"_id": 21, "a": {"x": None}}, {"_id": 22, "a": [[None, 1], 2]},
    {"_id": 23, "a": False}, {"_id": 24, "a": 0}, {"_id": 25, "a": {}}, {"_id": 26, "a": ""},
    {"_id": 27, "a": [[]]}, {"_id": 28, "a": [1, 2]}, {"_id": 29, "a": [[1, 2], 3]},
    {"_id": 30, "a": 1.0},
]  # fmt: skip
DEEP: list[dict[str, Any]] = [
    {"_id": 0, "a": {"no_x": 1}}, {"_id": 1, "a": [{"no_x": 1}, {"no_x": 2}]},
    {"_id": 3, "a": [{"no_x": 2}, {"x": 1}]}, {"_id": 5, "a": {"x": None}},
    {"_id": 6, "a": [{"x": None}, {"x": 1}]}, {"_id": 8, "no_a": 1}, {"_id": 9, "a": [1]},
    {"_id": 10, "a": []}, {"_id": 11, "a": [[1]]}, {"_id": 12, "a": [[]]},
    {"_id": 20, "a": {"x": 2, "y": 1}}, {"_id": 21, "a": [{"x": 2}, {"x": 3}]},
    {"_id": 22, "a": {"x": [[1], 2]}}, {"_id": 23, "a": 4},
]  # fmt: skip

LOCAL: list[tuple[Any, list[Any], str, list[int]]] = [
    # the value of the one foreign document, the rows, their field, the rows that match
    (None, TOP, "a", [0, 1, 2, 10]),
    (1, TOP, "a", [2, 20, 28, 30]),
    ([1, 2], TOP, "a", [2, 20, 22, 28, 29, 30]),
    ([], TOP, "a", [27]),
    ({"x": None}, TOP, "a", [21]),
    (False, TOP, "a", [23]),
    (None, DEEP, "a.x", [0, 1, 5, 6, 8, 9, 10, 11, 12, 23]),
    (1, DEEP, "a.x", [3, 6]),
    ([1], DEEP, "a.x", [3, 6, 22]),
]
FOREIGN: list[tuple[Any, list[Any], str, list[int]]] = [
    # the value of the one row, the foreign documents, their field, the matches
    (None, TOP, "a", [0, 1, 2]),
    (1, TOP, "a", [2, 20, 28, 30]),
    ([1, 2], TOP, "a", [2, 20, 22, 28, 30]),
    ([[1, 2], 42], TOP, "a", [28, 29]),
    ([], TOP, "a", [0, 1, 2]),
    ([[], 42], TOP, "a", [10, 27]),
    ("", TOP, "a", [26]),
    (None, DEEP, "a.x", [0, 1, 3, 5, 6, 8, 23]),
    (1, DEEP, "a.x", [3, 6]),
    (2, DEEP, "a.x", [20, 21, 22]),
]


@pytest.mark.parametrize(("value", "rows", "field", "expected"), LOCAL, ids=str)
def test_lookup_for_many_rows(value: Any, rows: list[Any], field: str, expected: list[int]) -> None:
    stage = {"from": "f", "localField": field, "foreignField": "b", "as": "found"}
    found = give(rows, {"$lookup": stage}, source=Collections(f=[{"b": value}]))
    assert [each["_id"] for each in found if each["found"]] == expected
    if value is None:
        found = give(rows, {"$lookup": stage}, source=Collections(f=[{}]))
        assert [each["_id"] for each in found if each["found"]] == expected


@pytest.mark.parametrize(("value", "rows", "field", "expected"), FOREIGN, ids=str)
def test_lookup_of_many_documents(
    value: Any, rows: list[Any], field: str, expected: list[int]
) -> None:
    assert look_up({"b": value}, rows, "b", field) == expected
    if value is None:
        assert look_up({}, rows, "b", field) == expected


def joined_by(
    local_field: str, foreign_field: str, source: Any, *rows: Any, first: Any = ()
) -> Any:
    stage = {"from": "f", "localField": local_field, "foreignField": foreign_field, "as": "found"}
    found = give(rows, *first, {"$lookup": stage}, source=source)
    return [[each["n"] for each in row["found"]] for row in found]


def test_lookup_by_a_field_of_a_body_that_is_an_array() -> None:
    rows: list[Any] = [[{"a": 1}], {"a": [1]}]
    stages = [{"$lookup": {"from": "f", "localField": "a", "foreignField": "b", "as": "o"}}]
    found = give(
        rows, *stages, {"$project": {"_id": 0, "o.b": 1}}, source=Collections(f=[{"b": 1}])
    )
    assert found == [{"o": []}, {"o": [{"b": 1}]}]


def test_lookup_by_id() -> None:
    source = Collections(f=[{"n": 0, "by": "1"}, {"n": 1, "by": ["0", "1"]}, {"n": 2}])
    rows = [{"by": "2"}, {"by": ["0", "1", None, 7, {"a": 1}]}, {"by": 1}, {}]
    assert joined_by("by", "$id", source, *rows) == [[2], [0, 1], [], []]
    assert [each.to_json() for each in source.filters] == [{"$id": {"$in": ["2", "0", "1"]}}]
    assert joined_by("$id", "by", source, {}, {}, {}) == [[1], [0, 1], []]
    assert joined_by("$id", "$id", source, {}, {}) == [[0], [1]]
    assert joined_by("$id", "$body.by", source, {}) == [[1]]
    assert joined_by("none", "$id", source, {}) == [[]]


def test_lookup_by_other_metadata() -> None:
    source = Collections(f=[{"n": 0, "v": 1}, {"n": 1}])
    assert joined_by("v", "$version", source, {"v": [1.0, "x"]}, {"v": 2}, {}) == [[0, 1], [], []]
    assert joined_by("$version", "v", source, {}) == [[0]]
    assert joined_by("$expires_at", "v", source, {}) == [[1]]
    assert joined_by("none", "$expires_at", source, {}) == [[0, 1]]


def test_lookup_by_an_id_removed_by_a_group() -> None:
    source = Collections(f=[{"n": 0, "by": "0"}, {"n": 1}])
    group = [{"$group": {"_id": None}}]
    assert joined_by("$id", "$id", source, {}, first=group) == [[]]
    assert joined_by("$id", "by", source, {}, first=group) == [[1]]


def test_lookup_queries_once_per_batch() -> None:
    source = Collections(f=[{"k": n, "v": n} for n in range(300)])
    stage = {"from": "f", "localField": "k", "foreignField": "k", "as": "f"}
    rows = [{"k": n} for n in range(250)]
    found = give(rows, {"$lookup": stage}, source=source)
    assert [each["f"] for each in found] == [[{"k": n, "v": n}] for n in range(250)]
    assert len(source.filters) == 3


def test_lookup_results_are_not_shared() -> None:
    stages: list[dict[str, Any]] = [
        {"from": "f", "localField": "k", "foreignField": "k", "as": "f"},
        {"from": "f", "pipeline": [], "as": "f"},
    ]
    for stage in stages:
        one, other = give([{}, {}], {"$lookup": stage}, source=Collections(f=[{"o": {}}]))
        one["f"][0]["o"]["x"] = 1
        assert other["f"] == [{"o": {}}]


def test_lookup_as_a_path() -> None:
    stage = {"from": "f", "pipeline": [], "as": "a.b"}
    assert give([{"a": {"c": 1}}], {"$lookup": stage}) == [{"a": {"c": 1, "b": []}}]
    assert give([{"a": 5}], {"$lookup": stage}) == [{"a": {"b": []}}]


ORDERS = [{"item": "a", "wanted": 5}, {"item": "b", "wanted": 1}]
STOCK = [{"item": "a", "there": 9}, {"item": "a", "there": 1}, {"item": "b", "there": 3}]


def test_lookup_with_a_pipeline() -> None:
    pipeline = [
        {"$match": {"there": {"$gt": 0}, "$expr": {"$and": [
            {"$eq": ["$item", "$$i"]}, {"$gte": ["$there", "$$wanted"]},
        ]}}},
        {"$project": {"_id": 0, "there": 1, "left": {"$subtract": ["$there", "$$wanted"]}}},
    ]  # fmt: skip
    stage = {
        "from": "stock",
        "let": {"i": "$item", "wanted": "$wanted"},
        "pipeline": pipeline,
        "as": "stock",
    }
    source = Collections(stock=STOCK)
    found = give(ORDERS, {"$lookup": stage}, source=source)
    assert [each["stock"] for each in found] == [
        [{"there": 9, "left": 4}],
        [{"there": 3, "left": 2}],
    ]
    [read] = source.filters  # an index may find the items
    assert str(read) == "{'item': {'$in': ['a', 'b']}, 'there': {'$gt': 0}}"


def test_lookup_with_fields_and_a_pipeline() -> None:
    stage = {
        "from": "stock",
        "localField": "item",
        "foreignField": "item",
        "let": {"wanted": "$wanted"},
        "pipeline": [{"$match": {"$expr": {"$lt": ["$there", "$$wanted"]}}}],
        "as": "short",
    }
    found = give(ORDERS, {"$lookup": stage}, source=Collections(stock=STOCK))
    assert [each["short"] for each in found] == [[{"item": "a", "there": 1}], []]


def test_lookups_within_lookups_see_all_variables() -> None:
    inner = {
        "from": "g",
        "let": {"y": "$y"},
        "pipeline": [{"$match": {"$expr": {"$eq": ["$z", {"$add": ["$$x", "$$y"]}]}}}],
        "as": "g",
    }
    outer = {"from": "f", "let": {"x": "$x"}, "pipeline": [{"$lookup": inner}], "as": "f"}
    source = Collections(f=[{"y": 10}], g=[{"z": 11}, {"z": 12}])
    found = give([{"x": 1}, {"x": 2}], {"$lookup": outer}, source=source)
    assert [each["f"] for each in found] == [
        [{"y": 10, "g": [{"z": 11}]}],
        [{"y": 10, "g": [{"z": 12}]}],
    ]


# -- laziness and memory -----------------------------------------------------------------------


def endless() -> Iterator[Any]:
    number = 0
    while True:
        yield {"n": number, "t": [number, -number]}
        number += 1


def test_limit_stops_reading() -> None:
    stages: list[dict[str, Any]] = [
        {"$match": {"n": {"$gte": 5}}},
        {"$addFields": {"m": {"$multiply": ["$n", 2]}}},
        {"$unwind": "$t"},
        {"$project": {"m": 1, "t": 1}},
        {"$limit": 3},
    ]
    assert give(endless(), *stages) == [{"m": 10, "t": 5}, {"m": 10, "t": -5}, {"m": 12, "t": 6}]
    seen: list[int] = []

    def rows() -> Iterator[int]:
        for number in range(10):
            seen.append(number)
            yield number

    assert give(rows(), {"$limit": 2}) == [0, 1]
    assert seen == [0, 1]


def test_a_sort_with_a_limit_keeps_few_rows() -> None:
    rows = [{"n": (n * 7919) % 10007, "text": "x" * 100} for n in range(10007)]
    by = {"$sort": {"n": 1}}
    few = give(rows, by, {"$skip": 2}, {"$limit": 3}, memory_limit=120_000)
    assert [each["n"] for each in few] == [2, 3, 4]
    with pytest.raises(
        MemoryLimitExceeded, match=r"'0\.\$sort': \$sort holds more than 120,000 byt"
    ):
        give(rows, by, memory_limit=120_000)
    ties = [{"k": 1, "n": n} for n in range(1000)]
    found = give(ties, {"$sort": {"k": 1}}, {"$limit": 5})
    assert [each["n"] for each in found] == [0, 1, 2, 3, 4]


HOLDS: list[tuple[Any, str]] = [
    ({"$sort": {"n": 1}}, r"\$sort"),
    ({"$group": {"_id": "$n"}}, r"\$group"),
    ({"$group": {"_id": None, "all": {"$push": "$text"}}}, r"\$group"),
    ({"$group": {"_id": None, "all": {"$addToSet": "$n"}}}, r"\$group"),
    ({"$lookup": {"from": "f", "pipeline": [], "as": "f"}}, r"\$lookup"),
    ({"$lookup": {"from": "f", "localField": "n", "foreignField": "n", "as": "f"}}, r"\$lookup"),
]


@pytest.mark.parametrize(("stage", "name"), HOLDS, ids=str)
def test_stages_respect_the_memory_limit(stage: Any, name: str) -> None:
    rows = [{"n": n, "text": "x" * 50} for n in range(1000)]
    with pytest.raises(MemoryLimitExceeded, match=name) as caught:
        give(rows, {"$match": {}}, stage, source=Collections(f=rows), memory_limit=5_000)
    assert (caught.value.place, caught.value.limit) == (f"1.{next(iter(stage))}", 5_000)
    assert len(give(rows[:20], stage, source=Collections(f=rows[:20]))) > 0


GROWING: list[list[Any]] = [
    [{"$addFields": {f"f{n}": {"$range": [0, 5_000]} for n in range(50)}}],
    [{"$project": {f"f{n}": {"$range": [0, 5_000]} for n in range(50)}}],
    [{"$replaceWith": {f"f{n}": {"$range": [0, 5_000]} for n in range(50)}}],
    [{"$addFields": {f"f{n}": {"$range": [0, 10_000]}}} for n in range(50)],
    [{"$addFields": {"a": {f"f{n}": {"$range": [0, 10_000]}}}} for n in range(50)],
    [{"$group": {"_id": None, "a": {"$push": {"$range": [0, 10_000]}}}}],
    [{"$group": {"_id": None, "a": {"$addToSet": {"$range": ["$n", 10_000]}}}}],
    [{"$group": {"_id": {"$range": ["$n", 10_000]}}}],
    [{"$addFields": {"a": {"$range": ["$n", 10_000]}}}, {"$sort": {"n": 1}}],
]


@pytest.mark.parametrize("pipeline", GROWING, ids=lambda each: str(each)[:60])
def test_the_limit_measures_memory(pipeline: list[Any]) -> None:
    limit = 2**20
    tracemalloc.start()
    try:
        with pytest.raises(
            (InvalidOperand, MemoryLimitExceeded), match="more than 1,048,576 bytes"
        ):
            give([{"n": n} for n in range(30)], *pipeline, memory_limit=limit)
        assert tracemalloc.get_traced_memory()[1] < 3 * limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("more", [{}, {"text": "x", "list": [1, {}]}])
def test_a_sort_over_the_memory_limit_is_an_error(more: dict[str, Any]) -> None:
    limit, bodies = 2**20, ({"n": n, **copy.deepcopy(more)} for n in range(10**6))
    tracemalloc.start()
    try:
        with pytest.raises(MemoryLimitExceeded):
            give(bodies, {"$sort": {"n": 1}}, memory_limit=limit)
        assert limit / 2 < tracemalloc.get_traced_memory()[1] < 1.5 * limit
    finally:
        tracemalloc.stop()


def test_streaming_stages_hold_nothing() -> None:
    stages: list[dict[str, Any]] = [
        {"$unwind": "$t"},
        {"$project": {"t": 1}},
        {"$limit": 5000},
        {"$group": {"_id": None, "n": {"$sum": 1}, "last": {"$last": "$t"}}},
    ]
    assert give(endless(), *stages, memory_limit=2000) == [{"_id": None, "n": 5000, "last": -2499}]


# -- errors ------------------------------------------------------------------------------------


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED: list[tuple[Any, str]] = [
    ({"$match": {}}, "a pipeline must be a list of stages"),
    ([{"$match": {}}, {"$foo": 1}], r"'1\.\$foo': no such stage"),
    ([{"$collStats": {}}], r"'0\.\$collStats': this stage is not supported"),
    (["$match"], "'0': a stage must be a document of one key"),
    ([{"$match": {}, "$limit": 1}], "a document of one key"),
    ([{"$match": {"a": {"$gtt": 1}}}], r"'0\.\$match\.a\.\$gtt': no such operator"),
    ([{"$match": 5}], r"0\.\$match"),
    ([{"$match": {"$expr": {"$foo": 1}}}], r"'0\.\$match\.\$expr\.\$foo'"),
    ([{"$project": {}}], r"0\.\$project"),
    ([{"$project": {"a": 1, "b": 0}}], r"'0\.\$project\.b': .* do not mix"),
    ([{"$project": {"a": 0, "b": "$x"}}], r"'0\.\$project\.b'"),
    ([{"$project": {"a": 0, "_id": "$x"}}], r"'0\.\$project\._id'"),
    ([{"$project": {"a": 1, "a.b": 1}}], r"'0\.\$project\.a\.b'"),
    ([{"$project": {"a.b": 1, "a": 1}}], r"'0\.\$project\.a'"),
    ([{"$project": {"_id": 0, "_id.a": 1}}], r"'0\.\$project\._id\.a': another path names this field"),
    ([{"$project": {"_id.a": 1, "_id": 0}}], r"'0\.\$project\._id': another path names this field"),
    ([{"$project": {"_id": 1, "_id.a": 0, "b": 0}}], r"'0\.\$project\._id\.a'"),
    ([{"$project": {"a": {}}}], r"'0\.\$project\.a': must not be an empty object"),
    ([{"$project": {"a..b": 1}}], "must be a path without empty keys"),
    ([{"$project": {"$a": 1}}], "must be a path without empty keys"),
    ([{"$project": {"a": {"$add": [1, {"$foo": 2}]}}}], r"'0\.\$project\.a\.\$add\.1\.\$foo'"),
    ([{"$group": {"_id": {"a": 1}}}], r"'0\.\$group\._id\.a': 1 does not choose a field"),
    ([{"$group": {"_id": {"k": "$k", "a": True}}}], r"'0\.\$group\._id\.a': True"),
    ([{"$addFields": {"a": "$$x"}}], "no variable"),
    ([{"$unset": []}], r"0\.\$unset"),
    ([{"$unset": ["a", "a.b"]}], "another path names"),
    ([{"$sort": {}}], r"0\.\$sort"),
    ([{"$sort": {"a": 2}}], r"0\.\$sort"),
    ([{"$skip": -1}], r"'0\.\$skip': must be an integer from 0 on, got -1"),
    ([{"$skip": "1"}], r"0\.\$skip"),
    ([{"$limit": 0}], r"0\.\$limit"),
    ([{"$limit": True}], r"0\.\$limit"),
    ([{"$limit": 1.5}], r"0\.\$limit"),
    ([{"$count": ""}], r"0\.\$count"),
    ([{"$count": "$a"}], r"0\.\$count"),
    ([{"$count": "a.b"}], r"0\.\$count"),
    ([{"$group": {"n": {"$sum": 1}}}], r"'0\.\$group': must be a document with _id"),
    ([{"$group": {"_id": 1, "n": 5}}], r"'0\.\$group\.n'"),
    ([{"$group": {"_id": 1, "n": {"$sum": 1, "$avg": 1}}}], r"0\.\$group\.n"),
    ([{"$group": {"_id": 1, "n": {"$mean": 1}}}], r"'0\.\$group\.n\.\$mean': no such accumulator"),
    ([{"$group": {"_id": 1, "n": {"$accumulator": 1}}}], r"n\.\$accumulator': this acc.* not supp"),
    ([{"$group": {"_id": 1, "n": {"$rank": {}}}}], "is a function of .setWindowFields"),
    ([{"$count": "_id"}], r"'0\.\$count': must be a field other than _id"),
    ([{"$sort": {"a.": 1}}], r"'0\.\$sort\.a\.': must be a path without empty keys"),
    ([{"$sort": {"": 1}}], "must be a path without empty keys"),
    ([{"$sort": {"$natural": 1}}], r"'0\.\$sort\.\$natural': this operator is not supported"),
    ([{"$sort": {"a.$b": 1}}], "keys that begin with"),
    ([{"$unwind": {"path": "$a", "includeArrayIndex": None}}], "includeArrayIndex': must be the name"),
    ([{"$group": {"_id": 1, "n": {"$sum": [1]}}}], r"'0\.\$group\.n\.\$sum': takes one operand"),
    ([{"$group": {"_id": 1, "n": {"$count": 1}}}], r"\$count"),
    ([{"$group": {"_id": 1, "a.b": {"$sum": 1}}}], r"0\.\$group\.a\.b"),
    ([{"$group": {"_id": {"$foo": 1}}}], r"0\.\$group\._id\.\$foo"),
    ([{"$unwind": "a"}], "must begin with"),
    ([{"$unwind": {"path": "$a", "index": "i"}}], r"'0\.\$unwind\.index'"),
    ([{"$unwind": {"path": "$a", "includeArrayIndex": "$i"}}], "includeArrayIndex"),
    ([{"$unwind": {}}], r"0\.\$unwind': requires path"),
    ([{"$sortByCount": "a"}], r"0\.\$sortByCount"),
    ([{"$sortByCount": {"a": 1}}], r"0\.\$sortByCount"),
    ([{"$replaceRoot": "$a"}], "newRoot"),
    ([{"$lookup": {"from": "x"}}], r"0\.\$lookup': requires as"),
    ([{"$lookup": {"from": "x", "as": "y"}}], "requires localField and foreignField"),
    ([{"$lookup": {"from": "x", "as": "y", "localField": "a"}}], "requires localField and foreignField"),
    ([{"$lookup": {"from": 1, "as": "y", "pipeline": []}}], r"\$lookup\.from"),
    ([{"$lookup": {"from": "x", "as": "y", "localField": "a", "foreignField": "$ids"}}],
     r"\$lookup\.foreignField': no such operator or metadata; there is \$body"),
    ([{"$lookup": {"from": "x", "as": "y", "localField": "$body.\0", "foreignField": "a"}}],
     r"\$lookup\.localField': a key must not hold"),
    ([{"$lookup": {"from": "", "as": "y", "pipeline": []}}], r"\$lookup\.from': '' cannot name"),
    ([{"$lookup": {"from": "a b", "as": "y", "pipeline": []}}], r"\$lookup\.from': 'a b' cannot"),
    ([{"$lookup": {"from": "a\0b", "as": "y", "pipeline": []}}], r"\$lookup\.from"),
    ([{"$lookup": {"from": "é", "as": "y", "pipeline": []}}], r"\$lookup\.from"),
    ([{"$lookup": {"from": "x", "as": "y", "pipeline": [{"$limit": 0}]}}],
     r"'0\.\$lookup\.pipeline\.0\.\$limit'"),
    ([{"$lookup": {"from": "x", "as": "y", "pipeline": [{"$match": {"$expr": "$$z"}}]}}], "'z'"),
    ([{"$lookup": {"from": "x", "as": "y", "let": {"Z": 1}, "pipeline": []}}], r"\$lookup\.let\.Z"),
    ([{"$lookup": {"from": "x", "as": "y", "localField": "a", "foreignField": "b", "let": {}}}],
     r"\$lookup\.let': requires pipeline"),
    ([{"$addFields": {"a": {1, 2}}}], r"0\.\$addFields\.a"),
    ([{"$addFields": {"a": [datetime(2026, 1, 1)]}}], r"'0\.\$addFields\.a\.0': datetime is not JSON: a time requires"),
    ([{"$match": {"$expr": {"$gt": ["$a", {"x": object()}]}}}], r"\$expr\.\$gt\.1\.x"),
    ([{"$addFields": {"a": deep(101)}}], "nested deeper than 100 levels"),
    ([{"$addFields": {"a": deep(300)}}], "nested deeper than 200 levels"),
    ([{"$lookup": {"from": "x", "as": "y", "let": {"CURRENT": 1}, "pipeline": []}}], r"let\.CURRENT"),
    ([{"$limit": 1}] * 201, "more than 200 stages"),
]  # fmt: skip


@pytest.mark.parametrize(("pipeline", "message"), REFUSED, ids=lambda each: str(each)[:60])
def test_invalid_pipelines_name_the_position(pipeline: Any, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        Pipeline.parse(pipeline)


def test_many_stages() -> None:
    assert give([{"n": 0}], *[{"$addFields": {"n": {"$add": ["$n", 1]}}}] * 200) == [{"n": 200}]
    assert len(give([{}], *nested(20), source=Collections(f=[{}]))) == 1
    with pytest.raises(InvalidPipeline, match="more than 20 pipelines within each other"):
        Pipeline.parse(nested(21))


def nested(levels: int) -> list[Any]:
    inner: list[Any] = [{"$addFields": {"a": {"$add": [1, 1]}}}]
    for _ in range(levels):
        inner = [{"$lookup": {"from": "f", "pipeline": inner, "as": "f"}}]
    return inner


# -- interface for operations ------------------------------------------------------------------


def test_leading_stages_for_the_database() -> None:
    match, more = {"$match": {"a": 1}}, {"$match": {"b": {"$gt": 2}}}
    sort, skip, limit = {"$sort": {"a": -1}}, {"$skip": 2}, {"$limit": 5}
    leading = Pipeline.parse(
        [match, more, sort, skip, limit, {"$limit": 3}, {"$unset": "a"}]
    ).leading()
    assert leading.filter == Filter.parse({"a": 1, "b": {"$gt": 2}})
    assert leading.sort is not None
    assert (leading.skip, leading.limit, leading.count) == (2, 3, None)
    assert [step.place for step in leading.rest.steps] == ["6.$unset"]
    counted = Pipeline.parse([match, {"$count": "n"}, limit]).leading()
    assert (counted.count, len(counted.rest.steps)) == ("n", 1)
    late = Pipeline.parse([limit, sort, {"$count": "n"}]).leading()
    assert (late.sort, late.limit, late.count, len(late.rest.steps)) == (None, 5, None, 2)
    again = Pipeline.parse([limit, skip]).leading()
    assert (again.skip, again.limit, len(again.rest.steps)) == (0, 5, 1)
    assert Pipeline.parse([]).leading().rest == Pipeline()


def test_pipelines_are_values() -> None:
    stages = [
        {"$match": {"a": 1}},
        {"$group": {"_id": "$k", "n": {"$sum": 1}}},
        {"$sort": {"n": 1}},
    ]
    one = Pipeline.parse(stages)
    assert one == Pipeline.parse(stages) == Pipeline.parse(one)
    assert hash(one) == hash(Pipeline.parse(stages))
    assert one != Pipeline.parse(stages[:2])


def test_results_do_not_share_the_pipeline() -> None:
    pipeline = Pipeline.parse(
        [
            {"$project": {"x": {"$literal": {"a": [1]}}}},
            {"$addFields": {"y": {"$map": {"input": [1], "in": {"$literal": [{}]}}}}},
        ]
    )
    one, other = pipeline.run([Anonymous({}), Anonymous({})])
    one["x"]["a"].append(2)
    one["x"]["b"] = one["y"][0][0]["c"] = 3
    assert other == {"x": {"a": [1]}, "y": [[{}]]}
    assert list(pipeline.run([Anonymous({})])) == [other]


BAD: Any = {"$add": ["$s", 1]}
LOOKUP: Any = {"from": "f", "as": "x", "let": {"v": "$s"}}
PLACED: list[tuple[list[Any], str, str]] = [
    ([{"$skip": 0}, {"$project": {"x": BAD}}, {"$limit": 1}], "1.$project", "$add"),
    ([{"$addFields": {"x": BAD}}, {"$sort": {"x": 1}}], "0.$addFields", "$add"),
    ([{"$skip": 0}, {"$match": {"$expr": BAD}}, {"$count": "n"}], "1.$match", "$add"),
    ([{"$group": {"_id": BAD}}, {"$unset": "a"}], "0.$group", "$add"),
    ([{"$group": {"_id": 1, "x": {"$max": BAD}}}], "0.$group", "$add"),
    ([{"$replaceWith": "$s"}], "0.$replaceWith", "$replaceWith"),
    ([{"$replaceRoot": {"newRoot": "$s"}}], "0.$replaceRoot", "$replaceRoot"),
    ([{"$lookup": {**LOOKUP, "let": {"v": BAD}, "pipeline": [{"$limit": 1}]}}], "0.$lookup.let.v", "$add"),
    ([{"$lookup": {**LOOKUP, "let": {"v": 1, "w": BAD}, "pipeline": []}}], "0.$lookup.let.w", "$add"),
    ([{"$lookup": {**LOOKUP, "pipeline": [{"$skip": 0}, {"$project": {"x": {"$size": "$$v"}}}]}}],
     "0.$lookup.pipeline.1.$project", "$size"),
]  # fmt: skip


@pytest.mark.parametrize(("pipeline", "place", "operator"), PLACED, ids=str)
def test_an_error_names_the_stage(pipeline: list[Any], place: str, operator: str) -> None:
    with pytest.raises(InvalidOperand, match=r"^pipeline, at '\d\.\$") as caught:
        give([{"s": "x"}], *pipeline, source=Collections(f=[{}]))
    again = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, again):
        assert (error.place, error.operator) == (place, operator)
        assert str(error).startswith(f"pipeline, at {place!r}: {operator} requires ")


def test_add_fields_without_fields() -> None:
    for stage in ("$addFields", "$set"):
        assert give([{"a": 1}], {stage: {}}) == [{"a": 1}]
        assert give([{"a": 1}], {stage: {"a": {}, "b": {"c": {}}}}) == [{"a": {}, "b": {"c": {}}}]


def test_a_group_of_constants() -> None:
    assert give([{}, {}], {"$group": {"_id": {"a": {"$literal": 1}}, "n": {"$sum": 1}}}) == [
        {"_id": {"a": 1}, "n": 2}
    ]
    assert give([{}], {"$group": {"_id": {"a": {"b": 1}, "c": "x"}}}) == [
        {"_id": {"a": {"b": 1}, "c": "x"}}
    ]
    assert give([{}], {"$group": {"_id": {}}}) == [{"_id": {}}]


ITEMS: list[Any] = [
    {"a": {"x": 1}},
    {"a": [{"y": 1}, {"x": 1}]},
    {"a": [{"x": None}, {"x": 1}]},
    {"a": [1, 2]},
    {},
    {"a": []},
    {"a": [{"x": 1}]},
    {"a": {"3": 4}},
    {"a": [0, 0, 0, None]},
]
NULLS: list[tuple[str, list[int]]] = [
    ("a.0.x", [0, 1, 2, 4, 6, 7]),
    ("a.3", [0, 1, 2, 4, 6, 8]),
    ("a.3.x", [0, 1, 2, 4, 6, 7]),
    ("a.x", [1, 2, 4, 7]),
]


@pytest.mark.parametrize(("foreign", "expected"), NULLS)
def test_lookup_of_null(foreign: str, expected: list[int]) -> None:
    others = [{"n": n, **each} for n, each in enumerate(ITEMS)]
    look_up = {"from": "f", "localField": "k", "foreignField": foreign, "as": "f"}
    (found,) = give([{}], {"$lookup": look_up}, source=Collections(f=others))
    assert [each["n"] for each in found["f"]] == expected


def test_rows_without_a_document() -> None:
    rows = [Anonymous({"a": 1})]
    assert list(Pipeline.parse([{"$sort": {"a": 1}}]).run(rows)) == [{"a": 1}]


# -- limits of memory ------------------------------------------------------------------------------

TWICE = {"x": "$$ROOT", "y": "$$ROOT"}
GREEDY: list[list[Any]] = [
    [{"$addFields": TWICE}] * 60,
    [{"$project": {"_id": 0, **TWICE}}] * 60,
    [{"$replaceWith": TWICE}] * 60,
    [{"$group": {"_id": None, "x": {"$push": "$$ROOT"}, "y": {"$push": "$$ROOT"}}}] * 60,
    [{"$group": {"_id": ["$$ROOT", "$$ROOT"]}}] * 60,
    [{"$group": {"_id": None, "x": {"$first": "$$ROOT"}, "y": {"$last": "$$ROOT"}}}] * 60,
]


@pytest.mark.parametrize("pipeline", GREEDY, ids=lambda each: str(each)[:60])
def test_doubling_rows_reach_the_limit(pipeline: list[Any]) -> None:
    with pytest.raises((InvalidOperand, MemoryLimitExceeded), match="more than"):
        give([{"a": "x" * 10_000}], *pipeline, memory_limit=1_000_000)


def test_multiplying_lookups_reach_the_limit() -> None:
    others = [{"k": number} for number in range(10)]
    with pytest.raises(MemoryLimitExceeded, match=r"\$lookup holds more than 1,000,000 bytes"):
        give([{}], *nested(20), source=Collections(f=others), memory_limit=1_000_000)


# -- _id -------------------------------------------------------------------------------------------

OF_IDS: list[tuple[list[Any], list[Any]]] = [
    ([{"$match": {"_id": "b"}}], [2]),
    ([{"$match": {"n": {"$gt": 0}}}, {"$sort": {"_id": -1}}, {"$limit": 1}], [3]),
    ([{"$project": {"n": 1}}, {"$match": {"_id": "b"}}], [2]),
    ([{"$set": {"m": 1}}, {"$unset": "m"}, {"$match": {"_id": {"$ne": "b"}}}], [1, 3]),
    # of rows of their own it is a field
    ([{"$group": {"_id": "$n", "n": {"$sum": "$n"}}}, {"$match": {"_id": {"$gte": 2}}}], [2, 3]),
    ([{"$group": {"_id": "$n", "n": {"$sum": "$n"}}}, {"$sort": {"_id": -1}}], [3, 2, 1]),
    ([{"$set": {"_id": "$n"}}, {"$match": {"_id": 2}}], [2]),
    ([{"$project": {"_id": "$n", "n": 1}}, {"$match": {"_id": 2}}], [2]),
    ([{"$match": {"$body._id": 7}}], [3]),
]


@pytest.mark.parametrize(("pipeline", "expected"), OF_IDS, ids=str)
def test_ids_in_a_pipeline(pipeline: list[Any], expected: list[int]) -> None:
    rows = [Document("a", {"n": 1}), Document("b", {"n": 2}), Document("c", {"n": 3, "_id": 7})]
    found = Pipeline.parse(pipeline).run(rows, Collections())
    assert [each["n"] for each in found] == expected


def test_ids_in_a_lookup() -> None:
    look_up = {"from": "f", "localField": "k", "foreignField": "_id", "as": "f"}
    foreign = Collections(f=[{"n": 0}, {"n": 1}])
    rows = [Document("1", {"k": "0"})]
    (found,) = Pipeline.parse([{"$lookup": look_up}]).run(rows, foreign)
    assert found["f"] == [{"n": 0}]
    back = {**look_up, "localField": "_id", "foreignField": "$id"}
    assert next(iter(Pipeline.parse([{"$lookup": back}]).run(rows, foreign)))["f"] == [{"n": 1}]
    grouped = [{"$group": {"_id": "$k"}}, {"$lookup": back}]
    assert next(iter(Pipeline.parse(grouped).run(rows, foreign)))["f"] == [{"n": 0}]


def test_each_result_of_a_map_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = 0

    def counted(value: Any) -> int:
        nonlocal measured
        measured += 1
        return getsizeof(value)

    monkeypatch.setattr(evaluation, "getsizeof", counted)
    numbers = {"$range": [0, 300]}
    for inside, most in ((numbers, 3), ({"$map": {"input": numbers, "in": "$$this"}}, 5)):
        measured = 0
        found = give([{}], {"$project": {"x": {"$map": {"input": numbers, "in": inside}}}})
        assert found[0]["x"] == [[*range(300)]] * 300
        assert measured < most * 300 * 300


def test_what_a_map_holds_has_a_limit() -> None:
    numbers = {"$range": [0, 3000]}
    for inside in (numbers, {"a": numbers}, {"$concatArrays": [numbers, numbers]}):
        with pytest.raises(InvalidOperand, match="more than"):
            give([{}], {"$project": {"x": {"$map": {"input": numbers, "in": inside}}}})


@pytest.mark.parametrize(
    ("group", "values", "numbers"),
    [
        ({"_id": "$a", "s": {"$sum": "$b.c"}}, [("a",)], [("b", "c")]),
        ({"_id": None, "s": {"$avg": "$b"}, "t": {"$sum": "$$ROOT.b"}}, [], [("b",)]),
        ({"_id": "$b", "s": {"$sum": "$b"}}, [("b",)], []),
        ({"_id": "$b", "s": {"$sum": "$b.c"}}, [("b",)], []),
        ({"_id": "$b.c", "s": {"$sum": "$b"}}, [("b", "c")], [("b",)]),
        ({"_id": 1, "s": {"$sum": "$b"}, "t": {"$max": "$b"}}, [], [("b",)]),
        ({"_id": "$b", "t": {"$max": "$b"}}, [("b",)], []),
        ({"_id": 1, "s": {"$sum": "$b.c"}, "t": {"$max": "$b"}}, [("b",)], []),
        ({"_id": 1, "s": {"$sum": "$b"}, "t": {"$max": "$b.c"}}, [], [("b",), ("b", "c")]),
        ({"_id": 1, "s": {"$min": "$b.d"}, "t": {"$max": "$b.c"}}, [], [("b", "c"), ("b", "d")]),
        ({"_id": 1, "s": {"$sum": {"$add": ["$b", 1]}}, "t": {"$sum": 2}}, [("b",)], []),
    ],
)
def test_the_fields_whose_numbers_a_database_may_combine(
    group: Any, values: Any, numbers: Any
) -> None:
    fields = Pipeline.parse([{"$group": group}]).fields()
    assert fields is not None
    assert (list(fields.values), list(fields.numbers)) == (values, numbers)
