"""The explanation of a pipeline: the stages that the database and Python run, and the documents read."""

from typing import Any

import pytest

from collections_store import CollectionNotFound, InvalidPipeline

pytestmark = pytest.mark.each_backend

GROUP: dict[str, Any] = {"$group": {"_id": "$v", "n": {"$sum": "$n"}}}
CASES: list[tuple[list[Any], str, str, bool]] = [
    ([{"$match": {"v": 1}}, {"$count": "n"}, {"$set": {"a": 1}}], "$match $count", "$set", False),
    ([{"$match": {"v": 1}}, GROUP, {"$sort": {"n": 1}}], "$match $group", "$sort", False),
    ([GROUP, {"$limit": 1}], "$group", "$limit", True),
    ([{"$unwind": "$t"}, {"$sortByCount": "$t"}], "$unwind $sortByCount", "$sortByCount", True),
    ([{"$match": {"v": 1}}, {"$unwind": "$t"}], "$match", "$unwind", False),
    ([{"$sort": {"v": 1}}, {"$limit": 2}, {"$unset": "v"}], "$sort $limit", "$unset", False),
    ([{"$sort": {"v": 1}}, GROUP], "", "$sort $group", True),
    ([{"$group": {"_id": "$v", "all": {"$push": "$n"}}}], "", "$group", True),
    (
        [{"$match": {"v": 1}}, {"$facet": {"a": [GROUP], "b": [{"$sample": {"size": 1}}]}}, {"$unset": "b"}],
        "$match $facet.a",
        "$facet.b $unset",
        False,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pipeline", "in_database", "in_python", "scans"), CASES)
def test_explanation(
    things: Any, pipeline: list[Any], in_database: str, in_python: str, scans: bool
) -> None:
    things.put_many((str(n), {"v": n % 50, "n": n, "t": ["a"]}) for n in range(2000))
    things.create_index("v")
    things.create_index("n")
    found = things.explain_aggregate(pipeline)
    assert " ".join(found.in_database) == in_database
    assert " ".join(found.in_python) == in_python
    assert found.scans is scans
    lines = str(found).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "in the database",
        "in Python",
        "uses",
        "scans",
        "documents",
        "advice",
    ]
    assert lines[0] == f"in the database: {in_database.replace(' ', ', ') or 'nothing'}"


def test_arrays_are_reported(things: Any) -> None:
    things.create_index("v")
    things.put_many({"1": {"v": 1}, "2": {"v": [1, 2]}})
    found = things.explain_aggregate([{"$match": {"v": 1}}, {"$count": "n"}])
    assert found.arrays
    assert found.in_database == ("$match", "$count")
    found = things.explain_aggregate([{"$match": {"v": 1}}, GROUP])
    assert found.in_database == ("$match",)
    assert things.aggregate([{"$match": {"v": 1}}, {"$count": "n"}]) == [{"n": 2}]


def test_a_sort_by_the_score_of_words(things: Any) -> None:
    things.create_text_index("a")
    things.put("1", {"a": "tea"})
    by_score = [{"$sort": {"score": {"$meta": "textScore"}}}, {"$limit": 2}]
    found = things.explain_aggregate([{"$match": {"$text": {"$search": "tea"}}}, *by_score])
    assert found.in_database == ("$match", "$sort", "$limit")
    assert not found.in_python


def test_a_filter_that_python_decides(things: Any) -> None:
    things.put("1", {"a": 1})
    found = things.explain_aggregate([{"$match": {"$expr": {"$eq": ["$a", 1]}}}, {"$count": "n"}])
    assert found.in_database == ()
    assert found.in_python == ("$match", "$count")
    assert str(found).endswith("filter in Python: {'$expr': {'$eq': ['$a', 1]}}")
    things.create_index("b")
    both = {"a": 1, "$expr": {"$eq": ["$a", 1]}}
    found = things.explain_aggregate([{"$match": both}, {"$count": "n"}])
    assert found.in_database == ("$match",)
    assert found.in_python == ("$match", "$count")
    assert "b_1" not in found.indexes  # Python counts documents, no index does


def test_a_pipeline_of_a_facet_that_only_matches_is_in_python(things: Any) -> None:
    """Such a pipeline takes the documents that the `$facet` holds, and reads no index of its own."""
    things.put_many((str(n), {"v": n % 50, "n": n}) for n in range(2000))
    things.create_index("v")
    facets: dict[str, Any] = {"a": [{"$match": {"v": 1}}, {"$unset": "n"}]}
    found = things.explain_aggregate([{"$match": {"n": {"$gte": 0}}}, {"$facet": facets}])
    assert (found.in_database, found.in_python) == (("$match",), ("$facet.a",))
    assert found.scans
    assert found.indexes == ()
    odd = {"$match": {"$expr": {"$gt": ["$n", "$v"]}}}
    found = things.explain_aggregate([odd, {"$facet": {**facets, "b": [{"$count": "n"}]}}])
    assert (found.in_database, found.in_python) == ((), ("$match", "$facet.a", "$facet.b"))


def test_errors(store: Any) -> None:
    with pytest.raises(CollectionNotFound):
        store["absent"].explain_aggregate([])
    with pytest.raises(InvalidPipeline):
        store["absent"].explain_aggregate([{"$nosuch": 1}])


def test_in_a_transaction(store: Any) -> None:
    with store.transaction() as tx:
        tx["things"].put("1", {"v": 1})
        found = tx["things"].explain_aggregate([GROUP])
    assert found.in_database == ("$group",)
