"""Stages have the result of a plain loop over the rows, for random rows."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import Document, Filter
from collections_store.aggregation.pipeline import Pipeline
from collections_store.document import Anonymous
from collections_store.expressions.evaluation import key_of
from collections_store.query.matcher import distinct_values, matches

SCALARS = st.one_of(st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, 2, "a", "b", ""]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=5,
)
ROWS = st.lists(st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2), max_size=8)
PATHS = st.sampled_from(["a", "b", "a.b", "a.0", "a.0.b", "b.a"])


class Others:
    def __init__(self, bodies: list[Any]) -> None:
        self._documents = [Document(str(number), body) for number, body in enumerate(bodies)]

    def find(self, collection: str, filter: Filter) -> Iterable[Document]:
        return [each for each in self._documents if matches(filter, each)]


def give(rows: list[Any], *stages: Any, others: list[Any] | None = None) -> list[Any]:
    return list(Pipeline.parse(list(stages)).run(map(Anonymous, rows), Others(others or [])))


@settings(max_examples=300 // sampled(3))
@given(rows=ROWS, others=ROWS, local=PATHS, foreign=PATHS)
def test_lookup(rows: list[Any], others: list[Any], local: str, foreign: str) -> None:
    stage = {"from": "o", "localField": local, "foreignField": foreign, "as": "found"}
    numbered = [{**each, "_id": number} for number, each in enumerate(others)]
    results = give(rows, {"$lookup": stage}, others=numbered)
    for row, result in zip(rows, results, strict=True):
        values = list(distinct_values(row, tuple(local.split(".")))) or [None]
        same = Filter.parse({foreign: {"$in": values}})
        assert result["found"] == [each for each in numbered if matches(same, Anonymous(each))]


@settings(max_examples=200 // sampled(3))
@given(rows=ROWS, path=st.sampled_from(["$a", "$b", "$a.b"]))
def test_group(rows: list[Any], path: str) -> None:
    found = give(rows, {"$group": {"_id": path, "all": {"$push": "$$ROOT"}, "n": {"$count": {}}}})
    assert sum(each["n"] for each in found) == len(rows)
    assert [len(each["all"]) for each in found] == [each["n"] for each in found]
    assert len({key_of(each["_id"]) for each in found}) == len(found)
    counted = give(rows, {"$sortByCount": path})
    assert sorted(each["count"] for each in counted) == sorted(each["n"] for each in found)


@settings(max_examples=200 // sampled(3))
@given(
    rows=ROWS,
    path=PATHS,
    direction=st.sampled_from([1, -1]),
    skip=st.integers(0, 3),
    limit=st.integers(1, 4),
)
def test_a_bounded_sort_is_a_sort(
    rows: list[Any], path: str, direction: int, skip: int, limit: int
) -> None:
    many = [{**each, "number": number} for number, each in enumerate(rows * 30)]
    by = {"$sort": {path: direction}}
    bounded = give(many, by, {"$skip": skip}, {"$limit": limit})
    assert bounded == give(many, by)[skip : skip + limit]


@settings(max_examples=200 // sampled(3))
@given(rows=ROWS)
def test_projections_split_a_row(rows: list[Any]) -> None:
    included = give(rows, {"$project": {"a": 1}})
    left = give(rows, {"$project": {"a": 0}})
    joined = [{**one, **other} for one, other in zip(included, left, strict=True)]
    assert joined == rows
    assert give(rows, {"$unset": "a"}) == left
    assert give(rows, {"$addFields": {"a": "$a", "b": "$b"}}) == rows
    assert give(rows, {"$replaceWith": "$$ROOT"}) == rows
