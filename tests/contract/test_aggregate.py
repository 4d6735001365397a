"""Pipelines, with the same results on every backend, sync and async."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from conformance.cases import of_bodies
from conftest import SHARED

from collections_store import (
    Document,
    F,
    InvalidFilter,
    InvalidOperand,
    InvalidOption,
    InvalidPipeline,
    MemoryLimitExceeded,
    Store,
)
from collections_store.aggregation.pipeline import Pipeline

pytestmark = pytest.mark.each_backend

CITIES: dict[str, Any] = {
    "berlin": {"in": "de", "people": 3.7, "rivers": ["Spree", "Havel"], "at": {"lat": 52}},
    "bonn": {"in": "de", "people": 0.3, "rivers": ["Rhein"], "at": {"lat": 50}},
    "paris": {"in": "fr", "people": 2.1, "rivers": ["Seine"], "at": {"lat": 48}},
    "lyon": {"in": "fr", "people": 0.5, "rivers": ["Rhône", "Saône"], "at": {"lat": 45}},
    "atlantis": {"in": None, "rivers": []},
    "nowhere": 5,
}
COUNTRIES: dict[str, Any] = {
    "de": {"code": "de", "name": "Germany"},
    "fr": {"code": "fr", "name": "France"},
    "?": {"name": "unknown"},
}

CASES: list[tuple[list[Any], list[Any]]] = [
    ([{"$match": {"in": "de"}}, {"$project": {"people": 1}}], [{"people": 3.7}, {"people": 0.3}]),
    (
        [{"$group": {"_id": "$in", "n": {"$sum": 1}, "rivers": {"$sum": {"$size": {"$ifNull": ["$rivers", []]}}}}}],
        [
            {"_id": "de", "n": 2, "rivers": 3},
            {"_id": "fr", "n": 2, "rivers": 3},
            {"_id": None, "n": 2, "rivers": 0},
        ],
    ),
    (
        [{"$match": {"people": {"$gt": 0.4}}}, {"$sort": {"people": -1}}, {"$limit": 2}, {"$project": {"at.lat": 1}}],
        [{"at": {"lat": 52}}, {"at": {"lat": 48}}],
    ),
    ([{"$match": {"in": "de"}}, {"$count": "n"}], [{"n": 2}]),
    ([{"$match": {"in": "it"}}, {"$count": "n"}], []),
    ([{"$match": {"in": "it"}}, {"$group": {"_id": None, "n": {"$sum": 1}}}], []),
    (
        [{"$unwind": "$rivers"}, {"$match": {"rivers": {"$regex": "^S"}}}, {"$project": {"river": "$rivers", "city": {"$meta": "id"}}}],
        [
            {"river": "Spree", "city": "berlin"},
            {"river": "Seine", "city": "paris"},
            {"river": "Saône", "city": "lyon"},
        ],
    ),
    ([{"$match": {"$id": {"$in": ["paris", "nobody"]}}}, {"$replaceWith": "$at"}], [{"lat": 48}]),
    ([{"$skip": 5}], [5]),
    ([{"$limit": 1}, {"$unset": ["rivers", "at", "people"]}], [{"in": "de"}]),
    (
        [
            {"$match": {"rivers": {"$size": 1}}},
            {"$lookup": {"from": "countries", "localField": "in", "foreignField": "code", "as": "c"}},
            {"$project": {"name": {"$first": "$c.name"}}},
        ],
        [{"name": "Germany"}, {"name": "France"}],
    ),
    (
        [
            {"$match": {"in": None}},
            {"$lookup": {"from": "countries", "localField": "in", "foreignField": "code", "as": "c"}},
            {"$project": {"c.name": 1}},
        ],
        [{"c": [{"name": "unknown"}]}, {"c": [{"name": "unknown"}]}],
    ),
    (
        [
            {"$limit": 1},
            {"$lookup": {
                "from": "countries",
                "let": {"in": "$in"},
                "pipeline": [{"$match": {"name": {"$ne": "x"}, "$expr": {"$ne": ["$code", "$$in"]}}}, {"$sortByCount": "$name"}],
                "as": "others",
            }},
            {"$project": {"others": 1}},
        ],
        [{"others": [{"_id": "France", "count": 1}, {"_id": "unknown", "count": 1}]}],
    ),
    (
        [{"$limit": 1}, {"$lookup": {"from": "atlantis", "pipeline": [], "as": "x"}}, {"$project": {"x": 1}}],
        [{"x": []}],
    ),
    (
        [{"$limit": 1}, {"$lookup": {"from": "atlantis", "localField": "in", "foreignField": "x", "as": "x"}}, {"$project": {"x": 1}}],
        [{"x": []}],
    ),
    (
        [
            {"$match": {"people": {"$exists": True}}},
            {"$facet": {
                "sizes": [{"$bucket": {"groupBy": "$people", "boundaries": [0, 1, 3], "default": "large"}}],
                "halves": [{"$bucketAuto": {"groupBy": "$people", "buckets": 2}}],
                "of": [{"$lookup": {
                    "from": "countries",
                    "let": {"in": "$in"},
                    "pipeline": [{"$match": {"$expr": {"$eq": ["$$in", "$code"]}}}],
                    "as": "c",
                }}, {"$group": {"_id": "$c.name"}}],
            }},
        ],
        [{
            "sizes": [{"_id": 0, "count": 2}, {"_id": 1, "count": 1}, {"_id": "large", "count": 1}],
            "halves": [{"_id": {"min": 0.3, "max": 2.1}, "count": 2}, {"_id": {"min": 2.1, "max": 3.7}, "count": 2}],
            "of": [{"_id": ["Germany"]}, {"_id": ["France"]}],
        }],
    ),
    (
        [
            {"$match": {"in": "fr"}},
            {"$project": {"n": {"$meta": "id"}}},
            {"$unionWith": {"coll": "countries", "pipeline": [{"$match": {"code": "de"}}, {"$project": {"n": "$name"}}]}},
            {"$unionWith": "nothing"},
        ],
        [{"n": "paris"}, {"n": "lyon"}, {"n": "Germany"}],
    ),
    (
        [
            {"$match": {"$id": "paris"}},
            {"$graphLookup": {
                "from": "things",
                "startWith": "$in",
                "connectFromField": "in",
                "connectToField": "in",
                "restrictSearchWithMatch": {"people": {"$lt": 1}},
                "as": "near",
            }},
            {"$project": {"near.people": 1}},
        ],
        [{"near": [{"people": 0.5}]}],
    ),
    (
        [{"$redact": {"$cond": [{"$gt": ["$lat", 49]}, "$$PRUNE", "$$DESCEND"]}}, {"$match": {"at": {"$exists": 0}}}, {"$count": "n"}],
        [{"n": 4}],
    ),
]  # fmt: skip


@pytest.fixture
def filled(store: Any) -> Any:
    things = store["things"]
    things.put_many(CITIES)
    store["countries"].put_many(COUNTRIES)
    return things


def test_pipelines(filled: Any) -> None:
    wrong = {}
    for pipeline, expected in CASES:
        found = filled.aggregate(pipeline)
        if found != expected:
            wrong[str(pipeline)] = found
    assert not wrong


def test_an_empty_pipeline_returns_all_documents(filled: Any) -> None:
    assert filled.aggregate([]) == list(CITIES.values())


@pytest.mark.parametrize(
    "pipeline",
    [
        [],
        [{"$match": {"a": 1}}],
        [{"$count": "n"}],
        [{"$group": {"_id": None, "n": {"$sum": 1}}}],
        [{"$sort": {"a": 1}}, {"$limit": 1}],
        [{"$lookup": {"from": "countries", "pipeline": [], "as": "x"}}],
    ],
    ids=str,
)
def test_a_missing_collection_returns_no_rows(store: Any, pipeline: Any) -> None:
    things = store["things"]
    assert things.aggregate(pipeline) == []
    things.put("a", 1)
    things.remove("a")
    assert things.aggregate(pipeline) == []


def test_match_takes_every_filter(filled: Any) -> None:
    one = [d.body for d in filled.find("in", "fr")]
    assert filled.aggregate([{"$match": F("in") == "fr"}]) == one
    assert filled.aggregate([{"$match": {"$expr": {"$eq": ["$in", "fr"]}}}]) == one
    assert (
        filled.aggregate([{"$match": {"in": "fr"}}, {"$match": {"people": {"$gt": 1}}}]) == one[:1]
    )
    assert filled.aggregate([{"$sort": {"people": 1}}, {"$match": {"in": "fr"}}]) == one[::-1]


def test_many_rows(store: Any) -> None:
    things = store["things"]
    things.put_many((str(n), {"n": n, "k": n % 7, "o": n % 250}) for n in range(1050))
    store["others"].put_many((str(n), {"o": n, "name": f"o{n}"}) for n in range(250))
    groups = things.aggregate(
        [{"$group": {"_id": "$k", "n": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}]
    )
    assert groups == [{"_id": k, "n": sum(range(k, 1050, 7))} for k in range(7)]
    look_up = {"from": "others", "localField": "o", "foreignField": "o", "as": "other"}
    found = things.aggregate([{"$lookup": look_up}, {"$match": {"n": {"$gte": 1048}}}])
    assert [each["other"] for each in found] == [[{"o": n, "name": f"o{n}"}] for n in (48, 49)]
    assert things.aggregate([{"$limit": 150}, {"$count": "n"}]) == [{"n": 150}]


def test_lookup_by_id(store: Any) -> None:
    things = store["things"]
    things.put_many({"1": {"by": "a"}, "2": {"by": ["b", "a"]}, "3": {"by": 5}, "4": {}})
    store["others"].put_many({"a": {"n": 0, "of": "2"}, "b": {"n": 1, "of": ["1", "4"]}})
    for stage, expected in [
        ({"localField": "by", "foreignField": "$id"}, [[0], [0, 1], [], []]),
        ({"localField": "$id", "foreignField": "of"}, [[1], [0], [], [1]]),
        ({"localField": "$version", "foreignField": "$version"}, [[0, 1]] * 4),
        ({"localField": "none", "foreignField": "$expires_at"}, [[0, 1]] * 4),
        ({"localField": "by", "foreignField": "$created_at"}, [[]] * 4),
    ]:
        found = things.aggregate([{"$lookup": {"from": "others", "as": "o", **stage}}])
        assert [[each["n"] for each in one["o"]] for one in found] == expected, stage


def test_objects_are_keys_of_groups_and_lookups(store: Any) -> None:
    things = store["things"]
    things.put_many(
        {"a": {"k": {"x": 1, "y": [1]}}, "b": {"k": {"x": 1.0, "y": [1]}}, "c": {"k": [2]}}
    )
    store["others"].put_many({"1": {"k": {"x": 1, "y": [1]}}, "2": {"k": [[2], 3]}, "3": {"k": 2}})
    found = things.aggregate([{"$group": {"_id": "$k", "n": {"$sum": 1}}}])
    assert [each["n"] for each in found] == [2, 1]
    look_up = {"from": "others", "localField": "k", "foreignField": "k", "as": "o"}
    found = things.aggregate([{"$lookup": look_up}])
    assert [[other["k"] for other in each["o"]] for each in found] == [
        [{"x": 1, "y": [1]}],
        [{"x": 1, "y": [1]}],
        [2],
    ]


def test_sort_gives_the_same_order_in_the_database_and_in_python(things: Any) -> None:
    objects = [
        {"b": 1, "a": 2},
        {"a": 2, "b": 1},
        {"b": 1, "a": 3},
        {"b": 1, "aa": 2},
        {"b": 0, "aa": 3},
    ]
    things.put_many((str(n), {"o": each, "n": n}) for n, each in enumerate(objects))
    by = {"$sort": {"o": -1, "n": -1}}
    in_database = things.aggregate([by, {"$limit": 10}])
    assert things.aggregate([by]) == in_database
    assert things.aggregate([{"$skip": 0}, {"$project": {"o": 1, "n": 1}}, by]) == in_database


def test_sums_are_equal_in_the_database_and_in_python(things: Any) -> None:
    numbers = [1e308, -1e308, 1e308, 0.1, 0.1, 0.1, -1e308, 2**62, 2**62, 0.1, 1e308]
    things.put_many((str(n), {"n": each}) for n, each in enumerate(numbers))
    group = {"$group": {"_id": None, "sum": {"$sum": "$n"}, "avg": {"$avg": "$n"}}}
    expected = [{"_id": None, "sum": 1e308, "avg": 1e308 / 11}]
    assert things.aggregate([group]) == expected
    assert things.aggregate([{"$skip": 0}, group]) == expected


def test_errors(filled: Any) -> None:
    with pytest.raises(InvalidPipeline, match=r"'0\.\$foo': no such stage"):
        filled.aggregate([{"$foo": 1}])
    with pytest.raises(InvalidOperand, match=r"\$add requires a number, got 'de'"):
        filled.aggregate([{"$project": {"x": {"$add": ["$in", 1]}}}])
    bad = {"$expr": {"$add": ["$in", 1]}}
    for stages, position in [
        ([{"$match": bad}, {"$unset": "a"}], "0.$match"),
        (
            [{"$match": {"in": "de"}}, {"$match": bad}, {"$sort": {"a": 1}}, {"$limit": 1}],
            "1.$match",
        ),
        ([{"$match": bad}, {"$count": "n"}], "0.$match"),
        ([{"$match": bad}, {"$group": {"_id": "$in"}}], "0.$match"),
        ([{"$match": {"in": "de"}}, {"$group": {"_id": {"$add": ["$in", 1]}}}], "1.$group"),
    ]:
        with pytest.raises(InvalidOperand) as caught:
            filled.aggregate(stages)
        assert caught.value.place == position
    with pytest.raises(InvalidOperand, match=r"^\$add requires") as caught:
        filled.find(bad)
    assert caught.value.place is None
    with pytest.raises(MemoryLimitExceeded, match="larger memory_limit"):
        filled.aggregate([{"$sort": {"in": 1}}], memory_limit=50)
    for limit in (0, True, "1", None):
        with pytest.raises(InvalidPipeline, match="memory_limit"):
            filled.aggregate([], memory_limit=limit)
    assert filled.aggregate([{"$count": "n"}]) == [{"n": 6}]


def test_aggregate_within_a_transaction_of_the_caller(shared_backend: Backend) -> None:
    engine = sa.create_engine(shared_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    look_up = {"from": "a", "localField": "n", "foreignField": "n", "as": "again"}
    absent = {"from": "b", "pipeline": [], "as": "b"}
    with Store(engine=engine, **shared_backend.options) as store:
        with engine.begin() as connection:
            mine = store.bind(connection)["a"]
            mine.put("1", {"n": 1})
            assert mine.aggregate([{"$lookup": look_up}]) == [{"n": 1, "again": [{"n": 1}]}]
            assert mine.aggregate([{"$lookup": absent}]) == [{"n": 1, "b": []}]
            mine.put("2", {"n": 2})
        assert store["a"].count() == 2
    engine.dispose()


def test_a_collection_recreated_meanwhile_is_found_again(open_store: Any) -> None:
    if open_store.backend.is_private:
        pytest.skip("stores do not share it")
    one, other = open_store(), open_store()
    one["rows"].put("1", {"k": 1})
    one["others"].put("1", {"k": 1, "v": "old"})
    pipeline = [{"$lookup": {"from": "others", "localField": "k", "foreignField": "k", "as": "o"}}]
    assert one["rows"].aggregate(pipeline)[0]["o"] == [{"k": 1, "v": "old"}]
    other.drop("others")
    assert one["rows"].aggregate(pipeline)[0]["o"] == []
    other["others"].put("1", {"k": 1, "v": "new"})
    assert one["rows"].aggregate(pipeline)[0]["o"] == [{"k": 1, "v": "new"}]


def conformance() -> list[Any]:
    found = []
    for path in sorted(Path(SHARED / "conformance").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = json.loads(line)
            runs = {each["op"] for each in case["ops"]} <= {"insert", "aggregate"}
            if runs and "aggregate" in case["tags"] and case["profile"] == "json":
                found.append(pytest.param(case["ops"], id=case["id"]))
    return found


@pytest.mark.parametrize("script", conformance())
def test_the_cases_of_mongodb_drivers(things: Any, script: list[Any]) -> None:
    for step in script:
        if step["op"] == "insert":
            things.put_many((str(body["_id"]), body) for body in step["docs"])
        else:
            found = things.aggregate(of_bodies(step)["pipeline"])
            if step["expect"]["docs"] is not None:
                assert found == step["expect"]["docs"]


@pytest.mark.parametrize("stage", [{"$sort": {"n": 1}}, {"$group": {"_id": "$s"}}])
def test_memory_limit_includes_rows_grouped_by_the_database(things: Any, stage: Any) -> None:
    things.put_many((str(n), {"n": n, "s": f"{n} {'x' * 5000}"}) for n in range(40))
    pipeline = [stage, {"$limit": 50}]
    with pytest.raises(MemoryLimitExceeded, match=next(iter(stage)).replace("$", r"\$")):
        things.aggregate(pipeline, memory_limit=100_000)
    assert len(things.aggregate(pipeline)) == 40


def test_memory_limit_includes_the_result(things: Any) -> None:
    things.put_many((str(n), {"n": n, "a": [1, 2], "s": "x" * 1000}) for n in range(60))
    for pipeline in (
        [],
        [{"$unset": "n"}],
        [{"$unwind": "$a"}],
        [{"$project": {"x": {"$concat": ["$s", "$s"]}}}],
    ):
        with pytest.raises(MemoryLimitExceeded, match="the result holds more than 50,000 bytes"):
            things.aggregate(pipeline, memory_limit=50_000)
    assert len(things.aggregate([{"$project": {"n": 1}}], memory_limit=50_000)) == 60


def test_shared_values_count_once_towards_the_memory_limit(things: Any) -> None:
    things.put("1", {"a": list(range(500)), "shared": list(range(1000))})
    assert len(things.aggregate([{"$unwind": "$a"}], memory_limit=500_000)) == 500


def test_a_sorted_page_stops_reading_at_the_memory_limit(things: Any) -> None:
    things.put_many((str(n), {"n": -n, "s": f"{n}{'x' * 5000}"}) for n in range(600))
    pipeline = [{"$sort": {"n": 1}}, {"$skip": 10}, {"$limit": 580}, {"$project": {"n": 1}}]
    found = things.aggregate(pipeline)
    assert [each["n"] for each in found] == list(range(-589, -9))
    tracemalloc.start()
    try:
        with pytest.raises(MemoryLimitExceeded, match=r"'0\.\$sort'"):
            things.aggregate(pipeline, memory_limit=700_000)
        assert tracemalloc.get_traced_memory()[1] < 600 * 5000
    finally:
        tracemalloc.stop()


def test_counted_values_give_the_same_as_documents(things: Any) -> None:
    """A database returns equal values once, with their number."""
    bodies = [
        {"n": n % 7 / 2, "k": n % 3, "a": [n % 4], "s": None if n % 5 else "x"} for n in range(100)
    ]
    things.insert_many(bodies)
    fields = {
        "pop": {"$stdDevPop": "$n"},
        "samp": {"$stdDevSamp": "$n"},
        "median": {"$median": {"input": "$n", "method": "approximate"}},
        "p": {"$percentile": {"input": "$n", "p": [0.1, 0.95], "method": "approximate"}},
        "min": {"$minN": {"input": "$n", "n": 20}},
        "max": {"$maxN": {"input": "$s", "n": 3}},
    }
    rows = [Document(str(number), body) for number, body in enumerate(bodies)]
    whole = {"all": {"$setUnion": "$a"}, "first": {"$firstN": {"input": "$n", "n": 2}}}
    for more in ({}, whole):
        stages = [{"$group": {"_id": "$k", **fields, **more}}, {"$sort": {"_id": 1}}]
        assert things.aggregate(stages) == list(Pipeline.parse(stages).run(rows))
    random = things.aggregate([{"$group": {"_id": None, "r": {"$addToSet": {"$rand": {}}}}}])
    assert len(random[0]["r"]) == 100


def test_a_sample_of_documents(things: Any) -> None:
    things.insert_many([{"n": n} for n in range(200)])
    assert things.count({"$sampleRate": 1}) == 200
    assert things.count({"$sampleRate": 0.0}) == 0
    assert 0 < len(things.aggregate([{"$match": {"$sampleRate": 0.5}}])) < 200
    for wrong in (2, -0.1, "x", True, None):
        with pytest.raises(InvalidFilter, match="a number from 0 to 1"):
            things.count({"$sampleRate": wrong})


def test_a_collection_that_does_not_exist_beside_one_that_does(store: Any) -> None:
    store["fruits"].put_many({"1": {"n": 1}, "2": {"n": 2}})
    union, count = {"$unionWith": "fruits"}, {"$count": "all"}
    absent = store["nothing"]
    assert absent.aggregate([{"$match": {"n": 3}}, union]) == [{"n": 1}, {"n": 2}]
    assert absent.aggregate([{"$count": "all"}, union, count]) == [{"all": 2}]
    assert absent.aggregate([{"$group": {"_id": "$n"}}, union, count]) == [{"all": 2}]
    assert absent.aggregate([{"$sort": {"n": 1}}, {"$limit": 1}, union, count]) == [{"all": 2}]
    assert absent.aggregate([{"$facet": {"a": [union, count]}}]) == [{"a": [{"all": 2}]}]
    assert absent.aggregate([union, {"$out": "copies"}]) == []
    assert {each.id: each.body for each in store["copies"].find()} == {"1": {"n": 1}, "2": {"n": 2}}
    with store.transaction() as mine:
        assert mine["nothing"].aggregate([union, count]) == [{"all": 2}]


def test_variables_in_the_search_of_a_graph(store: Any) -> None:
    store["parts"].put_many({str(n): {"n": n, "next": n + 1} for n in range(5)})
    graph = {
        "from": "parts",
        "startWith": "$n",
        "connectFromField": "next",
        "connectToField": "n",
        "as": "found",
    }
    small = {"n": {"$gt": 0}, "$expr": {"$lt": ["$n", "$$most"]}}
    found = store["parts"].aggregate([
        {"$match": {"n": 1}},
        {"$lookup": {
            "from": "parts",
            "let": {"most": 4},
            "pipeline": [
                {"$match": {"n": 1}},
                {"$graphLookup": {**graph, "restrictSearchWithMatch": small}},
            ],
            "as": "inner",
        }},
    ])  # fmt: skip
    assert [each["n"] for each in found[0]["inner"][0]["found"]] == [1, 2, 3]
    now = {
        "$graphLookup": {**graph, "restrictSearchWithMatch": {"$expr": {"$lt": ["$n", "$$NOW"]}}}
    }
    assert len(store["parts"].aggregate([{"$limit": 1}, now])[0]["found"]) == 5


@pytest.mark.parametrize("stage", ["$unionWith", "$graphLookup", "$lookup"])
def test_an_error_within_a_stage_names_the_stage(store: Any, stage: str) -> None:
    store["parts"].put("1", {"n": "a"})
    match = {"$expr": {"$gt": [{"$add": ["$n", 1]}, 1]}}
    inner = {
        "$unionWith": {"coll": "parts", "pipeline": [{"$match": match}]},
        "$lookup": {"from": "parts", "pipeline": [{"$match": match}], "as": "x"},
        "$graphLookup": {
            "from": "parts", "startWith": "$n", "connectFromField": "n", "connectToField": "n",
            "as": "x", "restrictSearchWithMatch": match,
        },
    }  # fmt: skip
    with pytest.raises(InvalidOperand, match=rf"at '0\.\{stage}.*\$add requires a number"):
        store["parts"].aggregate([{stage: inner[stage]}])


# -- stages that sort in a temporary file ------------------------------------------------------

SPILLING: list[Any] = [
    [{"$set": {"m": "$n"}}, {"$sort": {"m": -1}}, {"$skip": 100}, {"$limit": 200}, {"$skip": 190}],
    [{"$sort": {"n": -1}}, {"$limit": 400}, {"$group": {"_id": None, "n": {"$sum": "$n"}}}],
    [{"$group": {"_id": "$$ROOT.n", "all": {"$push": "$$ROOT"}}}, {"$count": "groups"}],
    [{"$group": {"_id": "$n", "most": {"$max": "$text"}}}, {"$limit": 3}],
    [
        {"$setWindowFields": {"partitionBy": "$g", "output": {"n": {"$sum": "$n"}}}},
        {"$limit": 5},
    ],
    [{"$sort": {"n": 1}}, {"$group": {"_id": "$n", "x": {"$push": "$text"}}}, {"$skip": 498}],
    [
        {"$limit": 1},
        {"$unionWith": {"coll": "things", "pipeline": [{"$sort": {"n": -1}}, {"$skip": 499}]}},
    ],
]


def test_allow_disk_use_gives_equal_answers(things: Any) -> None:
    rows = ({"n": n * 7 % 500, "g": n % 50, "text": str(n) * 40} for n in range(500))
    things.put_many((f"{n:03}", row) for n, row in enumerate(rows))
    little: dict[str, Any] = {"memory_limit": 100_000}
    for pipeline in SPILLING:
        expected = things.aggregate(pipeline)
        assert things.aggregate(pipeline, **little, allow_disk_use=True) == expected
        found = list(things.stream_aggregate(pipeline, **little, allow_disk_use=True))
        assert found == expected
        with pytest.raises(MemoryLimitExceeded, match=r"memory_limit or allow_disk_use=True$"):
            things.aggregate(pipeline, **little)
    with pytest.raises(MemoryLimitExceeded, match=r"the result holds.*larger memory_limit$"):
        things.aggregate([{"$sort": {"n": 1}}], **little, allow_disk_use=True)
    with pytest.raises(MemoryLimitExceeded, match=r"larger memory_limit$"):
        things.aggregate([{"$sample": {"size": 499}}], **little, allow_disk_use=True)


def test_allow_disk_use_is_a_flag(things: Any) -> None:
    with pytest.raises(InvalidOption, match="allow_disk_use: must be True or False, got 1"):
        things.aggregate([], allow_disk_use=1)
