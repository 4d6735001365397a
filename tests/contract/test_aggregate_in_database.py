"""Stages that the database runs give the results of Python, on documents that are hard for SQL."""

import time
from math import inf, nextafter
from typing import Any

import pytest
import sqlalchemy as sa

from collections_store import InvalidOperand, MemoryLimitExceeded
from collections_store.aggregation import totals
from collections_store.aggregation.pipeline import Pipeline
from collections_store.aggregation.totals import CombinedRows, _readers

pytestmark = pytest.mark.each_backend

VALUES = [
    1.0, 1, True, None, "1", "é", "", "x" * 1500, 0.1, 1e300, 2**62, -5, [1], [1.0, "x"], {"b": 1}, [], False, 1, 0.1, 1e2, 100,
]  # fmt: skip
TAGS: list[Any] = [
    ["b", "a", "b"], ["a"], [], None, "c", [["a"], "a", {"k": 1, "l": [1]}], {"k": 2}, [1, 1.0, True, None], [0.1, 1e300, 2**62],
    [{"k": [1, 2]}, {"k": None}, {}, "é"],
]  # fmt: skip
COUNT: dict[str, Any] = {"$count": {}}
PIPELINES: list[list[Any]] = [
    [{"$sortByCount": "$v"}],
    [{"$group": {"_id": "$v", "n": COUNT, "t": {"$addToSet": {"$type": "$v"}}}}],
    [{"$group": {"_id": {"$mod": ["$n", 3]}, "least": {"$min": "$v"}, "most": {"$max": "$v"}, "sum": {"$sum": "$v"}}}],
    [{"$group": {"_id": "$o.a", "least": {"$min": "$n"}, "most": {"$max": "$n"}, "mean": {"$avg": "$n"}}}],
    [{"$match": {"n": {"$gt": 5}}}, {"$group": {"_id": None, "tags": {"$min": "$tags"}, "o": {"$max": "$o"}, "n": {"$max": "$o.tags"}}}],
    [{"$unwind": "$tags"}, {"$group": {"_id": "$o.a", "least": {"$min": "$tags"}, "k": {"$max": "$tags.k"}}}],
    [{"$group": {"_id": {"$type": "$v"}, "n": COUNT, "least": {"$minN": {"input": "$v", "n": 2}}}}],
    [{"$unwind": "$tags"}, {"$sortByCount": "$tags"}],
    [{"$unwind": "$tags"}, {"$group": {"_id": "$tags.k", "n": COUNT, "s": {"$sum": "$tags.l"}}}],
    [{"$unwind": "$tags"}, {"$group": {"_id": "$v", "n": {"$sum": "$tags"}, "k": {"$addToSet": "$tags.k"}}}],
    [{"$unwind": "$o.tags"}, {"$group": {"_id": "$o.tags", "o": {"$addToSet": "$n"}}}],
    [{"$unwind": "$o.tags"}, {"$group": {"_id": "$o", "n": COUNT}}],
    [{"$match": {"n": {"$lt": 8}}}, {"$unwind": "$tags"}, {"$group": {"_id": None, "n": COUNT}}],
    [{"$unwind": "$tags"}, {"$count": "n"}],
    [{"$sort": {"v": 1}}, {"$group": {"_id": None, "first": {"$first": "$v"}, "last": {"$last": "$n"}}}],
    [{"$project": {"_id": 0, "v": 1, "o": 1, "n": 1}}],
    [{"$project": {"_id": 0, "o.tags": 1}}],
    [{"$project": {"_id": 0, "n": 1}}, {"$project": {"n": 1, "id": {"$meta": "id"}}}],
    [{"$replaceWith": {"o": "$o", "v": "$v"}}, {"$match": {"$id": "03"}}],
    [
        {"$match": {"n": {"$gte": 2}}},
        {
            "$facet": {
                "v": [{"$sortByCount": "$v"}],
                "none": [{"$match": {"n": -1}}, {"$count": "n"}],
                "top": [{"$sort": {"n": -1}}, {"$limit": 2}, {"$project": {"n": 1}}],
                "all": [{"$unwind": "$tags"}, {"$match": {"tags": "a"}}, {"$project": {"n": 1}}],
            }
        },
        {"$project": {"v": {"$size": "$v"}, "none": 1, "top": 1, "all": 1}},
    ],
]  # fmt: skip


def bodies() -> dict[str, Any]:
    """Return documents with each value and each list of tags."""
    found: dict[str, Any] = {}
    for n, value in enumerate(VALUES):
        tags = TAGS[n % len(TAGS)]
        found[f"{n:02d}"] = {"n": n, "v": value, "o": {"tags": tags, "a": 1}, "tags": tags}
    return {**found, "97": {"n": 97}, "98": 5, "99": [{"v": 1, "tags": ["a"]}]}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_same_as_in_python(things: Any, pipeline: list[Any], indexed: bool) -> None:
    things.put_many(bodies())
    if indexed:
        things.create_index("v")
    expected = list(Pipeline.parse(pipeline).run(things.list()))
    assert repr(things.aggregate(pipeline)) == repr(expected)


def test_documents_that_expired_are_not_counted(things: Any) -> None:
    things.create_index("v")
    things.put("1", {"v": "x"}, ttl=0.05)
    things.put("2", {"v": "x"})
    things.put("3", {"v": "y"})
    time.sleep(0.1)
    assert things.aggregate([{"$sortByCount": "$v"}]) == [
        {"_id": "x", "count": 1},
        {"_id": "y", "count": 1},
    ]


def test_the_least_of_equal_numbers_are_the_first(things: Any) -> None:
    """1 and 1.0 are equal: which of them are the least depends on the order of the documents."""
    numbers = [1, 1.0, 1, 1.0, 0, -0.0, 0]
    things.put_many((str(n), {"n": each, "k": each < 1}) for n, each in enumerate(numbers))
    fields = {
        "least": {"$minN": {"input": "$n", "n": 2}},
        "most": {"$maxN": {"input": "$n", "n": 2}},
        "median": {"$median": {"input": "$n", "method": "approximate"}},
    }
    pipeline = [{"$group": {"_id": "$k", **fields}}]
    expected = list(Pipeline.parse(pipeline).run(things.list()))
    assert repr(things.aggregate(pipeline)) == repr(expected)


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 2],
        [1, 1.0],
        [5, 1.0, 1],
        [1, 5.0, 5],
        [2, 1.5],
        [None, "x", 2],
        [2**53, 2**53 + 1],
        [True, 1],
        [],
    ],
)
def test_the_extremes_of_integers_and_other_values(things: Any, values: list[Any]) -> None:
    things.put_many((str(n), {"n": each}) for n, each in enumerate(values))
    fields = {"least": {"$min": "$n"}, "most": {"$max": "$n"}, "sum": {"$sum": "$n"}}
    pipeline = [{"$group": {"_id": None, **fields}}]
    expected = list(Pipeline.parse(pipeline).run(things.list()))
    assert repr(things.aggregate(pipeline)) == repr(expected)


def test_a_group_of_more_values_than_the_database_returns(things: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("collections_store.operations.grouping.MAX_VALUES", 3)
    things.put_many((str(n), {"n": n, "tags": [n, -n]}) for n in range(5))
    assert len(things.aggregate([{"$group": {"_id": "$n"}}])) == 5
    assert len(things.aggregate([{"$unwind": "$tags"}, {"$group": {"_id": "$tags"}}])) == 9


def test_an_array_with_more_elements_than_a_position_counts(things: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("collections_store.sql.groups._ELEMENTS", sa.literal_column("1"))
    things.put_many((str(n), {"far": [5, n, 3, 5, 2, 4]}) for n in range(3))
    pipeline = [{"$unwind": "$far"}, {"$sortByCount": "$far"}]
    assert things.aggregate(pipeline) == list(Pipeline.parse(pipeline).run(things.list()))


TOTALS: list[dict[str, Any]] = [
    {"_id": "$k", "n": COUNT, "two": {"$sum": 2}, "half": {"$sum": 0.5}, "none": {"$sum": "x"}},
    {"_id": "$k", "sum": {"$sum": "$n"}, "mean": {"$avg": "$f"}, "far": {"$sum": {"$literal": 2**62}}},
    {"_id": "$o.a", "least": {"$min": "$i"}, "most": {"$max": "$i"}, "sum": {"$sum": "$f"}},
    {"_id": None, "sum": {"$sum": "$f"}, "least": {"$min": "$n"}, "n": COUNT},
    {"_id": "all", "mean": {"$avg": "$k"}},
]  # fmt: skip


@pytest.mark.parametrize("limit", [500, 5_000, 10**6])
@pytest.mark.parametrize("group", TOTALS)
def test_columns_give_the_groups_of_documents(
    things: Any, monkeypatch: Any, group: dict[str, Any], limit: int
) -> None:
    """The columns of combined rows are read as they are, or like documents: with the same results and errors."""
    numbers = [0.1, 1, -0.0, 1e300, None, "x", 5, 0.2]
    for n, value in enumerate(each for each in VALUES if each != "x" * 1500):
        things.put(f"{n:02d}", {"k": value, "n": n, "f": numbers[n % 8], "i": n % 3, "o": {"a": 1}})
    things.put_many({"97": {"n": 97}, "98": 5, "99": [{"k": 1}]})
    pipeline, ways = [{"$group": group}, {"$sort": {"n": 1}}], []

    def outcome() -> str:
        try:
            return repr(things.aggregate(pipeline, memory_limit=limit))
        except MemoryLimitExceeded as error:
            return str(error)

    def noted(*given: Any) -> Any:
        ways.append(_readers(*given))
        return ways[-1]

    monkeypatch.setattr(totals, "_readers", noted)
    by_columns = outcome()
    assert ways
    assert None not in ways
    monkeypatch.setattr(totals, "_readers", lambda *_: None)
    assert outcome() == by_columns


LIMITS: list[list[Any]] = [
    [0, 10, 20],
    [-0.0, 0.1, 0.3, 5],
    [-(10**14), 1, 1e9],
    [1, 2**60],
    ["a", "n", "z"],
]


@pytest.mark.parametrize("limits", LIMITS)
def test_a_bucket_holds_what_is_within_its_boundaries(
    things: Any, monkeypatch: Any, limits: list[Any]
) -> None:
    """The database replaces numbers by boundaries, but for those whose order it may mistake."""
    near = [
        found
        for each in (0, 0.1, 0.3, 1, 5, 10, 20, 1e9)
        for found in (each, nextafter(each, -inf), nextafter(each, inf), each - 1, each + 0.25)
    ]
    values = [*near, 5e-324, 1e300, 2**62, 2**53 + 1, 10**14, True, None, "n", [1], {"a": 1}, 0.2]
    things.put_many((f"{n:02d}", {"n": each, "k": n}) for n, each in enumerate(values))
    things.put("98", {"k": 1})
    output = {"n": COUNT, "sum": {"$sum": "$k"}}
    bucket = {"groupBy": "$n", "boundaries": limits, "default": "zz", "output": output}
    rows = []

    def noted(found: Any, fields: Any) -> CombinedRows:
        rows.extend(found)
        return CombinedRows(found, fields)

    monkeypatch.setattr("collections_store.operations.grouping.CombinedRows", noted)
    expected = list(Pipeline.parse([{"$bucket": bucket}]).run(things.list()))
    assert things.aggregate([{"$bucket": bucket}]) == expected
    fewer = len(rows) < len(set(map(repr, values))) - 5
    assert fewer == (limits not in ([1, 2**60], ["a", "n", "z"]))
    by_key = {**bucket, "output": {**output, "mean": {"$avg": "$n"}}}  # reads the field itself
    expected = list(Pipeline.parse([{"$bucket": by_key}]).run(things.list()))
    assert repr(things.aggregate([{"$bucket": by_key}])) == repr(expected)
    del bucket["default"]
    with pytest.raises(InvalidOperand, match="no bucket"):
        things.aggregate([{"$bucket": bucket}])


def test_a_bucket_within_a_field_that_is_read_whole(things: Any) -> None:
    things.put_many((str(n), {"a": each}) for n, each in enumerate([7, {"b": 7}, {"b": 3}, 12]))
    output = {"all": {"$addToSet": "$a"}}
    bucket = {"groupBy": "$a.b", "boundaries": [0, 5, 10], "default": 99, "output": output}
    pipeline: list[Any] = [{"$bucket": bucket}]
    assert things.aggregate(pipeline) == list(Pipeline.parse(pipeline).run(things.list()))


def test_the_extremes_of_a_bucket_of_integers_and_other_numbers(things: Any) -> None:
    things.put_many(
        (str(n), {"a": n, "k": each}) for n, each in enumerate([1, 1.0, 2, 0.5, 7, 7.0])
    )
    output = {"least": {"$min": "$k"}, "most": {"$max": "$k"}, "sum": {"$sum": "$k"}}
    bucket = {"groupBy": "$a", "boundaries": [0, 3, 10], "output": output}
    pipeline: list[Any] = [{"$bucket": bucket}]
    expected = list(Pipeline.parse(pipeline).run(things.list()))
    assert repr(things.aggregate(pipeline)) == repr(expected)
