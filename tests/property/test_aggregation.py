"""Leading stages in the database have the same result as in Python, for random bodies, indexes and pipelines."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_orders import BODIES, WILD
from property.test_sql_is_the_matcher import documents_of
from property.test_sql_is_the_matcher import postgres_store as postgres_store
from property.test_sql_is_the_matcher import sqlite_store as sqlite_store
from selection import sampled

from collections_store import CollectionsStoreError, Store
from collections_store.aggregation.pipeline import Pipeline

FIELDS = st.sampled_from(["a", "b", "a.b", "a.a", "é", "a.0"])
ENDS = [-(10**8), 1 - 10**8, 10**9 - 1, 10**9, 10**18 - 1, 10**18, 2**62, 2**63 - 1]
"""The ends of the integers that a database adds up."""
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([-0.0, 0.1, 0.2, 1.0, 2**53, 1e300, *ENDS]))
NUMBERED = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.one_of(
        NUMBERS,
        NUMBERS,
        st.sampled_from(["x", None, True, [1], {"b": 1}, {"b": 1.0}]),
        st.lists(NUMBERS, max_size=4),
        st.lists(
            st.sampled_from(
                ["x", "é", 1, 1.0, None, [], [{"b": 1}], {"b": 1}, {"b": [1, "x"]}, {}, True]
            ),
            max_size=4,
        ),
    ),
    max_size=2,
)
FORMULAS = st.one_of(
    FIELDS.map("${}".format),
    FIELDS.map("${}".format),
    st.sampled_from([{"$literal": 1}, {"$meta": "id"}]),
    FIELDS.map(lambda field: {"$ifNull": [f"${field}", "none"]}),
    FIELDS.map(lambda field: {"$type": f"${field}"}),
)
KEYS = st.one_of(
    st.none(),
    FORMULAS,
    st.tuples(FORMULAS, FORMULAS).map(lambda pair: {"x": pair[0], "y": pair[1]}),
)
ACCUMULATORS: st.SearchStrategy[Any] = st.one_of(
    st.just({"$count": {}}),
    st.just({"$count": {}}),
    st.tuples(
        st.sampled_from(["$sum", "$avg", "$min", "$max", "$addToSet", "$first", "$last", "$push"]),
        FORMULAS,
    ).map(lambda pair: {pair[0]: pair[1]}),
    st.tuples(st.sampled_from(["$minN", "$maxN", "$firstN"]), FORMULAS, st.integers(1, 3)).map(
        lambda given: {given[0]: {"input": given[1], "n": given[2]}}
    ),
    FORMULAS.map(lambda formula: {"$median": {"input": formula, "method": "approximate"}}),
)
GROUPS = st.tuples(
    KEYS, st.dictionaries(st.sampled_from(["s", "t", "u"]), ACCUMULATORS, max_size=3)
)
PROJECTED = st.sampled_from([["a"], ["b"], ["b", "a"], ["a.b", "b"], ["b.a", "a.a"]]).flatmap(
    lambda fields: st.fixed_dictionaries({each: st.one_of(st.just(1), FORMULAS) for each in fields})
)
SIMPLE: st.SearchStrategy[Any] = st.one_of(
    GROUPS.map(lambda pair: {"$group": {"_id": pair[0], **pair[1]}}),
    GROUPS.map(lambda pair: {"$group": {"_id": pair[0], **pair[1]}}),
    st.just({"$count": "n"}),
    st.dictionaries(FIELDS, st.sampled_from([1, -1]), min_size=1, max_size=2).map(
        lambda fields: {"$sort": fields}
    ),
    st.integers(1, 4).map(lambda count: {"$limit": count}),
    st.integers(0, 3).map(lambda count: {"$skip": count}),
    FORMULAS.map(lambda formula: {"$sortByCount": formula}),
    st.tuples(FORMULAS, st.lists(NUMBERS, min_size=2, max_size=4, unique=True)).map(
        lambda given: {
            "$bucket": {"groupBy": given[0], "boundaries": sorted(given[1]), "default": "other"}
        }
    ),
    FIELDS.map(lambda field: {"$unwind": f"${field}"}),
    FIELDS.map(
        lambda field: {"$unwind": {"path": f"${field}", "preserveNullAndEmptyArrays": True}}
    ),
    PROJECTED.map(lambda fields: {"$project": {"_id": 0, **fields}}),
    FIELDS.map(lambda field: {"$project": {field: 0}}),
    st.dictionaries(FIELDS, FORMULAS, max_size=1).map(
        lambda fields: {"$addFields": fields or {"z": 1}}
    ),
    FORMULAS.map(lambda formula: {"$replaceWith": {"r": formula}}),
    st.sampled_from([{"$match": {"$id": "1"}}, {"$sort": {"$id": -1}}, {"$match": {"a": 1}}]),
)
PIPELINES = st.lists(SIMPLE, min_size=1, max_size=3)
STAGES: st.SearchStrategy[Any] = st.one_of(
    SIMPLE,
    SIMPLE,
    st.dictionaries(st.sampled_from(["p", "q"]), PIPELINES, min_size=1, max_size=2).map(
        lambda pipelines: {"$facet": pipelines}
    ),
)
MATCHES = documents_of(NUMBERS, deep=False).map(lambda condition: [{"$match": condition}])


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[Any], list[Any], bool]:
    bodies = draw(st.one_of(BODIES, st.lists(NUMBERED, max_size=12), st.lists(WILD, max_size=8)))
    first = draw(st.one_of(st.just([]), MATCHES))
    unwound = draw(st.sampled_from([[], [], [{"$unwind": "$a"}], [{"$unwind": "$a.b"}]]))
    stages = [*unwound, *draw(st.lists(STAGES, min_size=1, max_size=3))]
    return bodies, [*first, *stages], draw(st.booleans())


def disagreements(store: Store, question: Any, *, ordered: bool) -> Iterator[str]:
    bodies, stages, indexed = question
    things = store["things"]
    things.delete_many({})
    if indexed:
        things.create_index("a")
    else:
        things.drop_index("a_1")
    things.put_many((str(number), body) for number, body in enumerate(bodies))
    pipeline = Pipeline.parse(stages)
    expected, found = (
        outcome(lambda: list(pipeline.run(things.list(), ordered=ordered))),
        outcome(lambda: things.aggregate(pipeline)),
    )
    if repr(expected) != repr(found):
        yield f"{stages} of {bodies}: {found}, not {expected}"


def outcome(function: Any) -> Any:
    try:
        return function()
    except CollectionsStoreError as error:
        return str(error)


@settings(max_examples=150 // sampled(3))
@given(question=questions())
def test_on_sqlite(sqlite_store: Store, question: Any) -> None:
    assert not list(disagreements(sqlite_store, question, ordered=True))


@settings(max_examples=75 // sampled(3))
@given(question=questions())
def test_on_postgresql(postgres_store: Store, question: Any) -> None:
    assert not list(disagreements(postgres_store, question, ordered=False))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("part")
@settings(max_examples=500)
@given(question=questions())
def test_on_both_for_longer(sqlite_store: Store, postgres_store: Store, question: Any) -> None:
    assert not list(disagreements(sqlite_store, question, ordered=True))
    assert not list(disagreements(postgres_store, question, ordered=False))
