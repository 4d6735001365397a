"""`$facet`, `$bucket`, `$bucketAuto`, `$unionWith`, `$documents`, `$graphLookup`, `$redact`, `$sample`: the examples of MongoDB 8.2's
manual, and what its server refuses.
"""

import json
import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.aggregation.test_stages import Collections, give

from collections_store import InvalidOperand, InvalidPipeline, MemoryLimitExceeded
from collections_store.aggregation.granularity import POWERS, SERIES, rounded_down, rounded_up
from collections_store.aggregation.pipeline import Pipeline
from collections_store.document import Document

ART: list[dict[str, Any]] = [
    {"title": "The Pillars of Society", "artist": "Grosz", "year": 1926, "price": 199.99},
    {"title": "Melancholy III", "artist": "Munch", "year": 1902, "price": 280.00},
    {"title": "Dancer", "artist": "Miro", "year": 1925, "price": 76.04},
    {"title": "The Great Wave off Kanagawa", "artist": "Hokusai", "price": 167.30},
    {"title": "The Persistence of Memory", "artist": "Dali", "year": 1931, "price": 483.00},
    {"title": "Composition VII", "artist": "Kandinsky", "year": 1913, "price": 385.00},
    {"title": "The Scream", "artist": "Munch", "year": 1893},
    {"title": "Blue Flower", "artist": "O'Keefe", "year": 1918, "price": 118.42},
]


def test_an_id_in_a_facet_is_that_of_the_rows() -> None:
    match, sort = {"$match": {"_id": "1"}}, {"$sort": {"_id": -1}}
    facet = {"$facet": {"match": [match], "sort": [sort]}}
    ids = [{"_id": "0"}, {"_id": "1"}]
    assert give([{"a": "0"}, {"a": "1"}], {"$group": {"_id": "$a"}}, facet) == [
        {"match": ids[1:], "sort": ids[::-1]}
    ]
    assert give([{"a": 0}, {"a": 1}], facet) == [
        {"match": [{"a": 1}], "sort": [{"a": 1}, {"a": 0}]}
    ]


@pytest.mark.parametrize("stage", ["$set", "$addFields", "$project"])
def test_a_field_within_an_id_makes_it_a_field(stage: str) -> None:
    made = {stage: {"_id.x": "$a"}}
    assert give([{"a": 1}, {"a": 2}], made, {"$match": {"_id.x": 2}}, {"$count": "n"}) == [{"n": 1}]


def test_bucket() -> None:
    by_price: dict[str, Any] = {
        "groupBy": "$price",
        "boundaries": [0, 200, 400],
        "default": "Other",
        "output": {"count": {"$sum": 1}, "titles": {"$push": "$title"}},
    }
    assert give(ART, {"$bucket": by_price}) == [
        {"_id": 0, "count": 4, "titles": [
            "The Pillars of Society", "Dancer", "The Great Wave off Kanagawa", "Blue Flower",
        ]},
        {"_id": 200, "count": 2, "titles": ["Melancholy III", "Composition VII"]},
        {"_id": "Other", "count": 2, "titles": ["The Persistence of Memory", "The Scream"]},
    ]  # fmt: skip
    decades = {"groupBy": {"$add": ["$n", 0]}, "boundaries": [0, 10, 20]}
    assert give([{"n": 10}, {"n": 9.5}, {"n": 0}], {"$bucket": decades}) == [
        {"_id": 0, "count": 2},
        {"_id": 10, "count": 1},
    ]


def test_the_limits_of_buckets_are_constant_expressions() -> None:
    limits = [{"$subtract": [3, 3]}, {"$let": {"vars": {"x": 2}, "in": {"$add": ["$$x", 5]}}}]
    stage = {"groupBy": "$n", "boundaries": limits, "default": {"$concat": ["oth", "er"]}}
    assert give([{"n": 5}, {"n": 7}], {"$bucket": stage}) == [
        {"_id": 0, "count": 1},
        {"_id": "other", "count": 1},
    ]


@pytest.mark.parametrize(
    ("stage", "place"),
    [
        ({"$out": {"db": "d", "coll": "c"}}, "0.$out"),
        ({"$merge": {"into": {"db": "d", "coll": "c"}}}, "0.$merge.into"),
    ],
)
def test_another_database_is_not_supported(stage: Any, place: str) -> None:
    with pytest.raises(InvalidPipeline, match="another database is not supported") as caught:
        Pipeline.parse([stage])
    assert caught.value.place == place


def test_a_pattern_holds_no_nul() -> None:
    match = {"$regexMatch": {"input": "$x", "regex": "a\0"}}
    with pytest.raises(InvalidPipeline, match="NUL character, as no stored string does") as caught:
        Pipeline.parse([{"$set": {"m": match}}])
    assert caught.value.place == "0.$set.m.$regexMatch.regex"


@pytest.mark.parametrize(
    "stage",
    [
        {"$bucket": {"groupBy": "$n", "boundaries": ["$$v.a", 9]}},
        {"$bucket": {"groupBy": "$n", "boundaries": [{"$add": ["$$v.a", 0]}, 9], "default": "$$v"}},
        {"$setWindowFields": {"sortBy": {"n": 1}, "output": {
            "n": {"$shift": {"output": "$n", "by": 1, "default": "$$v.a"}}}}},
        {"$setWindowFields": {"sortBy": {"n": 1}, "output": {
            "n": {"$sum": "$n", "window": {"documents": [{"$subtract": [0, "$$v.a"]}, "$$v.a"]}}}}},
        {"$facet": {"all": [{"$bucket": {"groupBy": "$n", "boundaries": ["$$v.a", 9]}}]}},
        {"$group": {"_id": None, "p": {"$percentile": {
            "input": "$n", "p": ["$$v.a", {"$divide": ["$$v.a", 2]}], "method": "approximate"}}}},
        {"$project": {"p": {"$map": {"input": [[1, 2]], "in": {"$percentile": {
            "input": "$$this", "p": ["$$v.a"], "method": "approximate"}}}}}},
        {"$bucket": {"groupBy": "$n", "boundaries": [{"$first": [{"$percentile": {
            "input": [1, 2], "p": ["$$v.a"], "method": "approximate"}}]}, 9], "default": "x"}},
        {"$redact": {"$cond": [{"$eq": [[3], {"$percentile": {
            "input": [1, 3], "p": ["$$v.a"], "method": "approximate"}}]}, "$$KEEP", "$$PRUNE"]}},
    ],
)  # fmt: skip
def test_the_variables_of_a_call_are_constants(stage: Any) -> None:
    values = {"v": {"a": 1}}
    text = json.dumps(stage).replace('"$$v.a"', "1").replace('"$$v"', '{"$literal": {"a": 1}}')
    written = json.loads(text)
    rows = [Document(str(n), {"n": n}) for n in (1, 2, 3)]
    found = list(Pipeline.parse([stage], variables=values).run(rows))
    assert found == list(Pipeline.parse([written]).run(rows))
    with pytest.raises(InvalidPipeline, match="no variable|must be a constant"):
        Pipeline.parse([stage])


def test_the_time_of_a_call_is_a_constant() -> None:
    before = {"$dateSubtract": {"startDate": "$$NOW", "unit": "day", "amount": 1}}
    stage = {"$bucket": {"groupBy": "$n", "boundaries": [before, "$$NOW"], "default": "later"}}
    rows = [Document(str(n), {"n": f"2026-11-{n}T00:00:00.000000Z"}) for n in (26, 27, 28)]
    time = 1_795_824_000_000_000
    assert list(Pipeline.parse([stage], time=time).run(rows)) == [
        {"_id": "2026-11-27T00:00:00.000000Z", "count": 1},
        {"_id": "later", "count": 2},
    ]
    with pytest.raises(InvalidPipeline, match="must be a constant"):
        Pipeline.parse([stage])


def test_the_variables_of_a_stage_are_no_constants() -> None:
    bucket = {"$bucket": {"groupBy": "$n", "boundaries": ["$$v", 9]}}
    outer = {"from": "x", "as": "r", "pipeline": [bucket]}
    with pytest.raises(InvalidPipeline, match=r"boundaries.0': must be a constant, got '\$\$v'"):
        Pipeline.parse([{"$lookup": outer | {"let": {"v": "$n"}}}], variables={"v": 1})
    Pipeline.parse([{"$lookup": outer}], variables={"v": 1})


def test_a_value_in_no_bucket_needs_a_default() -> None:
    with pytest.raises(InvalidOperand, match="at '0.\\$bucket': .* no default"):
        give([{"n": 7}], {"$bucket": {"groupBy": "$n", "boundaries": [0, 7]}})


@pytest.mark.parametrize(
    ("default", "is_valid"), [(-1, True), (0, False), (6, False), (7, True), ("x", True)]
)
def test_the_default_is_outside_of_the_boundaries(default: Any, is_valid: bool) -> None:
    stage = {"$bucket": {"groupBy": "$n", "boundaries": [0, 3, 7], "default": default}}
    if is_valid:
        assert give([{}], stage) == [{"_id": default, "count": 1}]
    else:
        with pytest.raises(InvalidPipeline, match="default': must be less than the first"):
            give([{}], stage)


def test_bucket_auto() -> None:
    assert give(ART, {"$bucketAuto": {"groupBy": "$price", "buckets": 4}}) == [
        {"_id": {"min": None, "max": 118.42}, "count": 2},
        {"_id": {"min": 118.42, "max": 199.99}, "count": 2},
        {"_id": {"min": 199.99, "max": 385.0}, "count": 2},
        {"_id": {"min": 385.0, "max": 483.0}, "count": 2},
    ]
    same = [{"n": each} for each in (1, 1, 1, 2, 3)]
    output = {"all": {"$push": "$n"}}
    assert give(same, {"$bucketAuto": {"groupBy": "$n", "buckets": 3, "output": output}}) == [
        {"_id": {"min": 1, "max": 2}, "all": [1, 1, 1]},
        {"_id": {"min": 2, "max": 3}, "all": [2, 3]},
    ]
    assert give([], {"$bucketAuto": {"groupBy": "$n", "buckets": 3}}) == []
    assert give(same, {"$bucketAuto": {"groupBy": "$n", "buckets": 1, "output": {}}}) == [
        {"_id": {"min": 1, "max": 3}, "count": 5}
    ]


@given(st.lists(st.integers(0, 9) | st.none() | st.text(max_size=1)), st.integers(1, 7))
def test_buckets_share_the_rows(values: list[Any], count: int) -> None:
    output = {"all": {"$push": "$n"}}
    stage = {"$bucketAuto": {"groupBy": "$n", "buckets": count, "output": output}}
    found = give([{"n": each} for each in values], stage)
    assert len(found) <= count
    shared = [each for bucket in found for each in bucket["all"]]
    assert Counter(map(repr, shared)) == Counter(map(repr, values))
    for lower, upper in pairwise(found):
        assert lower["_id"]["max"] == upper["_id"]["min"] == upper["all"][0]
        assert not set(map(repr, lower["all"])) & set(map(repr, upper["all"]))


LIMITS: list[tuple[str, list[float], list[int]]] = [
    ("R20", [0, 20, 40, 63, 90, 100], [20, 20, 23, 27, 10]),
    ("E24", [0, 20, 43, 68, 91, 100], [20, 23, 25, 23, 9]),
    ("1-2-5", [0, 20, 50, 100], [20, 30, 50]),
    ("POWERSOF2", [0, 32, 64, 128], [32, 32, 36]),
]


@pytest.mark.parametrize(("series", "limits", "counts"), LIMITS)
def test_granularity(series: str, limits: list[float], counts: list[int]) -> None:
    stage = {"$bucketAuto": {"groupBy": "$n", "buckets": 5, "granularity": series}}
    assert give([{"n": n} for n in range(100)], stage) == [
        {"_id": {"min": low, "max": high}, "count": count}
        for (low, high), count in zip(pairwise(limits), counts, strict=True)
    ]


def test_granularity_at_zero_and_at_the_ends_of_floats() -> None:
    def buckets(values: list[float], count: int, series: str) -> list[Any]:
        stage = {"$bucketAuto": {"groupBy": "$n", "buckets": count, "granularity": series}}
        found = give([{"n": each} for each in values], stage)
        return [(*each["_id"].values(), each["count"]) for each in found]

    assert buckets([0, 0, 5], 2, "1-2-5") == [(0, 2.0, 2), (2.0, 10.0, 1)]
    assert buckets([0], 1, "R5") == [(0, 0, 1)]
    assert buckets([5e-324], 8, "R80") == [(0, 1.02e-321, 1)]
    assert buckets([0.8], 1, "E6") == [(0.68, 1.0, 1)]
    assert buckets([3, 4, 4.5], 1, "POWERSOF2") == [(2, 8, 3)]
    assert buckets([0.75, 2**63 - 1], 1, "POWERSOF2") == [(0.5, 2.0**63, 2)]
    with pytest.raises(InvalidOperand, match="at '0.\\$bucketAuto': .*inf"):
        buckets([1.7e308], 1, "E6")


@pytest.mark.parametrize("key", [-1, "a", None, True])
def test_a_granularity_requires_numbers(key: Any) -> None:
    stage = {"$bucketAuto": {"groupBy": "$n", "buckets": 5, "granularity": "R5"}}
    with pytest.raises(InvalidOperand, match="requires numbers from 0 on with a granularity"):
        give([{"n": key}], stage)


@given(
    st.integers(1, 2**63 - 1) | st.floats(1e-300, 1e300),
    st.sampled_from([each for each in SERIES if each != POWERS]),
)
def test_a_rounded_number_is_the_next_of_its_series(number: float, series: str) -> None:
    low, high = rounded_down(number, series), rounded_up(number, series)
    assert low < number < high
    between = [each * 10.0**n for each in SERIES[series] for n in range(-305, 305)]
    assert not any(low * (1 + 1e-12) < each < high * (1 - 1e-12) and
                   not math.isclose(each, number, rel_tol=1e-12) for each in between)  # fmt: skip


@given(st.integers(1, 2**63 - 1) | st.floats(1e-300, 1e300))
def test_powers_of_two(number: float) -> None:
    low, high = rounded_down(number, POWERS), rounded_up(number, POWERS)
    assert low < number < high
    assert high in (2 * low, 4 * low)
    assert (high == 4 * low) is (number == 2 * low)


def test_facet() -> None:
    pipelines: dict[str, Any] = {
        "artists": [{"$sortByCount": "$artist"}, {"$limit": 1}],
        "prices": [
            {"$match": {"price": {"$exists": 1}}},
            {"$bucket": {"groupBy": "$price", "boundaries": [0, 150, 200, 300, 400], "default": "Other"}},
        ],
        "count": [{"$count": "n"}],
        "none": [{"$match": {"no": 1}}],
        "ids": [{"$limit": 1}, {"$project": {"id": {"$meta": "id"}}}],
    }  # fmt: skip
    assert give(ART, {"$match": {"artist": {"$ne": "Dali"}}}, {"$facet": pipelines}) == [
        {
            "artists": [{"_id": "Munch", "count": 2}],
            "prices": [
                {"_id": 0, "count": 2},
                {"_id": 150, "count": 2},
                {"_id": 200, "count": 1},
                {"_id": 300, "count": 1},
            ],
            "count": [{"n": 7}],
            "none": [],
            "ids": [{"id": "0"}],
        }
    ]
    assert give([], {"$facet": {"a": [{"$count": "n"}]}}) == [{"a": []}]


def test_facet_holds_its_rows() -> None:
    with pytest.raises(MemoryLimitExceeded, match="facet"):
        give([{"n": "x" * 500}] * 10, {"$facet": {"a": [{"$count": "n"}]}}, memory_limit=2000)


SUPPLIES: dict[str, list[Any]] = {
    "first": [{"n": 1}, {"n": 2}],
    "second": [{"n": 3, "k": "a"}, {"n": 4, "k": "b"}],
}


def test_union_with() -> None:
    source = Collections(**SUPPLIES)
    pipeline = [{"$match": {"k": "b"}}, {"$project": {"k": 0}}]
    assert give([{"n": 0}], {"$unionWith": "first"}, source=source) == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]
    found = give(
        [{"n": 0}], {"$unionWith": {"coll": "second", "pipeline": pipeline}}, source=source
    )
    assert found == [{"n": 0}, {"n": 4}]
    assert str(source.filters[-1]) == "{'k': 'b'}"
    assert give([{"n": 0}], {"$unionWith": "none"}) == [{"n": 0}]
    made = [{"$documents": [{"n": 8}, {"n": {"$add": [4, 5]}}]}, {"$match": {"n": 9}}]
    assert give([{"n": 0}], {"$unionWith": {"pipeline": made}}) == [{"n": 0}, {"n": 9}]


def test_ids_behind_a_union() -> None:
    source = Collections(b=[{"_id": "x"}])
    by_id = [{"$sort": {"_id": -1}}, {"$project": {"_id": 0, "id": {"$meta": "id"}}}]
    assert give([{}, {}], {"$unionWith": "b"}, *by_id, source=source) == [
        {"id": "1"},
        {"id": "0"},
        {"id": "0"},
    ]
    grouped = {"coll": "b", "pipeline": [{"$group": {"_id": "k"}}]}
    match = {"$match": {"_id": "k"}}  # the field, since the group made one
    assert give([{}], {"$unionWith": grouped}, match, source=source) == [{"_id": "k"}]


def test_lookup_in_documents() -> None:
    zips = [{"$documents": [{"zip": 1, "city": "Palo Alto"}, {"zip": 2, "city": "Gotham"}]}]
    fields = {"localField": "zip", "foreignField": "zip", "as": "c"}
    found = give([{"zip": 2}, {}], {"$lookup": {**fields, "pipeline": zips}})
    assert found == [{"zip": 2, "c": [{"zip": 2, "city": "Gotham"}]}, {"c": []}]
    every = give([{"n": 1}], {"$lookup": {"pipeline": [*zips, {"$match": {"zip": 1}}], "as": "c"}})
    assert every == [{"n": 1, "c": [{"zip": 1, "city": "Palo Alto"}]}]


@pytest.mark.parametrize("made", [{"n": 1}, [1], "$$REMOVE"])
def test_documents_are_objects(made: Any) -> None:
    with pytest.raises(InvalidOperand, match="requires an array of objects"):
        give([], {"$unionWith": {"pipeline": [{"$documents": made}]}})


EMPLOYEES = [
    {"name": "Dev"},
    {"name": "Eliot", "reportsTo": "Dev"},
    {"name": "Ron", "reportsTo": "Eliot"},
    {"name": "Andrew", "reportsTo": "Eliot"},
    {"name": "Asya", "reportsTo": "Ron"},
    {"name": "Dan", "reportsTo": "Andrew"},
]


def graph(**changed: Any) -> dict[str, Any]:
    stage = {
        "from": "employees",
        "startWith": "$reportsTo",
        "connectFromField": "reportsTo",
        "connectToField": "name",
        "as": "above",
    }
    return {"$graphLookup": stage | changed}


def test_graph_lookup() -> None:
    source = Collections(employees=EMPLOYEES)
    found = give(EMPLOYEES, graph(depthField="depth"), source=source)
    assert {each["name"]: [(a["name"], a["depth"]) for a in each["above"]] for each in found} == {
        "Dev": [],
        "Eliot": [("Dev", 0)],
        "Ron": [("Eliot", 0), ("Dev", 1)],
        "Andrew": [("Eliot", 0), ("Dev", 1)],
        "Asya": [("Ron", 0), ("Eliot", 1), ("Dev", 2)],
        "Dan": [("Andrew", 0), ("Eliot", 1), ("Dev", 2)],
    }
    [asya] = give([EMPLOYEES[4]], graph(maxDepth=1), source=source)
    assert [each["name"] for each in asya["above"]] == ["Ron", "Eliot"]
    [dan] = give(
        [EMPLOYEES[5]], graph(restrictSearchWithMatch={"name": {"$ne": "Eliot"}}), source=source
    )
    assert [each["name"] for each in dan["above"]] == ["Andrew"]


def test_a_circle_ends() -> None:
    friends = [
        {"name": "Tanya", "friends": ["Shirley", "Terry"]},
        {"name": "Terry", "friends": ["Tanya"]},
        {"name": "Shirley", "friends": ["Tanya", "Terry"]},
    ]
    stage = graph(
        **{"from": "people", "startWith": "$friends", "connectFromField": "friends", "as": "all"}
    )
    found = give(friends, stage, source=Collections(people=friends))
    assert [sorted(each["name"] for each in row["all"]) for row in found] == [
        ["Shirley", "Tanya", "Terry"]
    ] * 3


def test_redact() -> None:
    report = {
        "title": "123 Department Report",
        "tags": ["G", "STLW"],
        "year": 2014,
        "subsections": [
            {"subtitle": "Section 1", "tags": ["SI", "G"], "content": "of section 1"},
            {"subtitle": "Section 2", "tags": ["STLW"], "content": "of section 2"},
            {"subtitle": "Section 3", "tags": ["TK"], "content": {"text": "x", "tags": ["HCS"]}},
        ],
    }
    allowed = {"$gt": [{"$size": {"$setIntersection": ["$tags", ["STLW", "G"]]}}, 0]}
    stage = {"$redact": {"$cond": [allowed, "$$DESCEND", "$$PRUNE"]}}
    subsections: Any = report["subsections"]
    assert give([report], stage) == [{**report, "subsections": subsections[:2]}]


def test_redact_whole_documents() -> None:
    rows = [{"level": 5, "in": {"level": 1}}, {"level": 1, "in": {"level": 5}}]
    keep = {"$redact": {"$cond": [{"$eq": ["$level", 5]}, "$$PRUNE", "$$KEEP"]}}
    assert give(rows, keep) == rows[1:]
    descend = {"$redact": {"$cond": [{"$eq": ["$level", 5]}, "$$PRUNE", "$$DESCEND"]}}
    assert give(rows, descend) == [{"level": 1}]
    by_root = {"$redact": {"$cond": [{"$eq": ["$$ROOT.level", 5]}, "$$KEEP", "$$PRUNE"]}}
    assert give(rows, by_root) == rows[:1]
    with pytest.raises(InvalidOperand, match="requires \\$\\$DESCEND, .* got 1"):
        give(rows, {"$redact": "$$ROOT.in.level"})
    with pytest.raises(InvalidPipeline, match="no variable"):
        give(rows, {"$project": {"x": "$$PRUNE"}})


def test_sample() -> None:
    rows = [{"n": number} for number in range(20)]
    seen = Counter(row["n"] for _ in range(400) for row in give(rows, {"$sample": {"size": 5}}))
    assert sum(seen.values()) == 2000
    assert set(seen) == set(range(20))  # one is left out by chance once in 10^48 runs
    assert sorted(row["n"] for row in give(rows, {"$sample": {"size": 50}})) == list(range(20))
    assert (
        len({tuple(row["n"] for row in give(rows, {"$sample": {"size": 20}})) for _ in range(9)})
        > 1
    )


def test_a_sample_holds_as_many_rows_as_it_returns() -> None:
    rows = ({"n": "x" * 100} for _ in range(1000))
    assert len(give(rows, {"$sample": {"size": 2}}, memory_limit=3000)) == 2


REFUSED: list[tuple[Any, str]] = [
    ({"$facet": {}}, "must be a document of pipelines"),
    ({"$facet": {"a": 1}}, "'0.\\$facet.a': a pipeline must be a list"),
    ({"$facet": {"a.b": []}}, "a field's name"),
    ({"$facet": {"a": [{"$facet": {"b": []}}]}}, "'0.\\$facet.a.0.\\$facet': must not be within"),
    ({"$facet": {"a": [{"$documents": []}]}}, "must not be within a \\$facet"),
    ({"$facet": {"a": [{"$match": {"$text": {"$search": "x"}}}]}}, "must be in the first stage"),
    ({"$documents": [{}]}, "must be the first stage of the pipeline of"),
    ({"$unionWith": {"coll": "a", "pipeline": [{"$match": {}}, {"$documents": []}]}}, "must be the first stage"),
    ({"$unionWith": {"coll": "a", "pipeline": [{"$documents": []}]}}, "requires either coll, or"),
    ({"$unionWith": {}}, "requires either coll, or"),
    ({"$unionWith": 5}, "must be a document of coll, pipeline"),
    ({"$unionWith": ""}, "unionWith'"),
    ({"$lookup": {"as": "x", "pipeline": []}}, "requires either from, or"),
    ({"$bucket": {"groupBy": "$a"}}, "requires boundaries"),
    ({"$bucket": {"groupBy": "a", "boundaries": [1, 2]}}, "groupBy': must be a path"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [1]}}, "at least two values"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [1, "a"]}}, "boundaries.1': must be of the type"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [1, 1]}}, "and greater"),
    ({"$bucket": {"groupBy": "$a", "boundaries": ["$a", 1]}}, "must be a constant"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [0, {"$add": [1, "$a"]}]}}, "must be a constant"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [0, {"$rand": {}}]}}, "must be a constant"),
    ({"$bucket": {"groupBy": "$a", "boundaries": ["$$NOW", "z"]}}, "must be a constant"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [0, "$$x"]}}, "there is no variable 'x'"),
    (
        {"$lookup": {"from": "a", "let": {"x": 1}, "as": "b", "pipeline": [
            {"$bucket": {"groupBy": "$a", "boundaries": [0, {"$add": [1, "$$x"]}]}},
        ]}},
        "boundaries.1': must be a constant, got",
    ),
    ({"$bucket": {"groupBy": "$a", "boundaries": [0, {"$meta": "textScore"}]}}, "boundaries.1.\\$meta'"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [0, {"$divide": [1, 0]}]}}, "has no value: \\$divide"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [0, {"$add": [1, -1]}]}}, "and greater"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [1, 2], "output": 1}}, "a document of accumulators"),
    ({"$bucketAuto": {"groupBy": "$a", "buckets": 0}}, "buckets': must be an integer from 1 to 2147483647"),
    ({"$bucketAuto": {"groupBy": "$a", "buckets": 2**31}}, "buckets': must be an integer from 1 to 2147483647"),
    ({"$bucketAuto": {"groupBy": {"x": 1}, "buckets": 1}}, "groupBy': must be a path that begins with \\$, or an operator"),
    ({"$bucket": {"groupBy": {}, "boundaries": [1, 2]}}, "groupBy': must be a path that begins with \\$, or an operator"),
    ({"$bucket": {"groupBy": "$a", "boundaries": [1, 2], "output": {"_id": {"$sum": 1}}}}, "output._id': must be another field"),
    ({"$bucketAuto": {"groupBy": "$a", "buckets": 1, "output": {"_id": {"$sum": 1}}}}, "output._id': must be another field"),
    ({"$bucketAuto": {"groupBy": "$a", "buckets": 1, "granularity": "R6"}}, "granularity': must be one of R5, R10"),
    ({"$bucketAuto": {"groupBy": "$a", "buckets": 1, "granularity": None}}, "granularity': must be one of"),
    ({"$sample": 3}, "must be a document of size"),
    ({"$sample": {"size": 0}}, "an integer from 1 on"),
    ({"$redact": {"$foo": 1}}, "no such operator"),
    ({"$graphLookup": {"from": "a"}}, "requires startWith"),
    (graph(maxDepth=-1), "maxDepth': must be an integer from 0 on"),
    (graph(restrictSearchWithMatch={"$foo": 1}), "restrictSearchWithMatch.\\$foo"),
    (graph(depthField="$x"), "depthField"),
    (graph(maxDepth=None), "maxDepth': must be an integer from 0 on"),
    (graph(depthField=None), "depthField': must be the name of a field"),
    (graph(restrictSearchWithMatch=None), "restrictSearchWithMatch': .*must be"),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "problem"), REFUSED)
def test_invalid_stages_name_the_position(stage: Any, problem: str) -> None:
    with pytest.raises(InvalidPipeline, match=problem):
        Pipeline.parse([stage])


SCALARS = st.sampled_from([0, 1, 1.0, True, "a", None, [1], [1, "a"], {"x": 1}])
BODIES = st.lists(st.fixed_dictionaries({}, optional={"v": SCALARS}), max_size=6)


@given(BODIES, BODIES)
def test_a_lookup_that_compares_by_an_expression_reads_enough(
    left: list[Any], right: list[Any]
) -> None:
    compared: Any = {"$eq": ["$v", "$$mine"]}
    both: Any = {"from": "b", "let": {"mine": "$v"}, "as": "found"}
    fast = both | {"pipeline": [{"$match": {"$expr": compared}}]}
    slow = both | {"pipeline": [{"$match": {"$expr": {"$or": [compared]}}}]}
    source = Collections(b=right)
    assert give(left, {"$lookup": fast}, source=source) == give(
        left, {"$lookup": slow}, source=source
    )


def test_the_collections_that_a_pipeline_reads() -> None:
    pipeline: list[dict[str, Any]] = [
        {"$facet": {"a": [{"$unionWith": "one"}], "b": [graph()]}},
        {"$unionWith": {"pipeline": [{"$documents": [{}]}, {"$lookup": {"from": "two", "pipeline": [], "as": "x"}}]}},
    ]  # fmt: skip
    assert list(Pipeline.parse(pipeline).collections()) == ["one", "employees", "two"]
    assert list(Pipeline.parse([]).run([Document("1", {})])) == [{}]


@pytest.mark.parametrize("fields", [{}, {"localField": "n", "foreignField": "a"}])
def test_documents_of_a_lookup_read_its_variables(fields: Any) -> None:
    given = {"$documents": [{"a": "$$x"}, {"a": 0}]}
    lookup = {"as": "found", "let": {"x": "$n"}, "pipeline": [given], **fields}
    expected = [[{"a": 1}], [{"a": 2}]] if fields else [[{"a": 1}, {"a": 0}], [{"a": 2}, {"a": 0}]]
    rows = give([{"n": 1}, {"n": 2}], {"$lookup": lookup})
    assert [each["found"] for each in rows] == expected
