"""`{"$meta": "textScore"}`: the score of a `$text` in orders, projections and pipelines, as `search` returns it."""

from typing import Any

import pytest

from collections_store import (
    CollectionsStoreError,
    InvalidFilter,
    InvalidPipeline,
    InvalidProjection,
    InvalidSort,
    UpdateOne,
)

pytestmark = pytest.mark.each_backend

SCORE = {"$meta": "textScore"}
TEA = {"$text": {"$search": "tea"}}
NUMBER = 250


@pytest.fixture
def notes(store: Any) -> Any:
    notes = store["notes"]
    notes.create_text_index({"title": 3, "body": 1})
    notes.put_many(
        (
            f"{NUMBER - n:03}",
            {"title": "tea" if n % 50 == 0 else "x", "body": "tea " * (n % 7 + 1), "n": n % 3},
        )
        for n in range(NUMBER)
    )
    notes.put("other", {"title": "cake", "n": 0})
    return notes


def scores(notes: Any, filter: Any = None) -> dict[str, float]:
    return {each.id: each.score for each in notes.search("tea", filter=filter, limit=1000)}


def by_score(notes: Any, filter: Any = None) -> list[str]:
    """Return the ids, the best first, equal ones in natural order."""
    of = scores(notes, filter)
    return sorted(of, key=lambda each: (-of[each], -int(each)))


def ids(found: Any) -> list[str]:
    return [each.id for each in found]


REST: list[Any] = [
    {},
    {"n": 1},
    {"$expr": {"$eq": ["$n", 1]}},
    {"n": {"$mod": [3, 1]}, "title": "x"},
]
"""Filters beside the `$text`: none, of SQL, and of the matcher."""


@pytest.mark.parametrize("rest", REST, ids=str)
@pytest.mark.parametrize(("skip", "limit"), [(0, None), (0, 5), (7, 20), (0, 0), (240, 100)])
def test_find_sorts_by_the_score(notes: Any, rest: Any, skip: int, limit: int | None) -> None:
    expected = by_score(notes, rest)
    end = None if limit is None else skip + limit
    for sort in ({"score": SCORE}, [("any", SCORE)]):
        found = notes.find(TEA | rest, sort=sort, skip=skip, limit=limit)
        assert ids(found) == expected[skip:end]
    assert notes.find_one(TEA | rest, sort={"s": SCORE}).id == expected[0]


def test_other_fields_go_with_the_score(notes: Any) -> None:
    of, numbers = scores(notes), {each.id: each.body["n"] for each in notes.find()}
    found = ids(notes.find(TEA, sort={"n": -1, "score": SCORE, "$id": 1}, limit=100))
    assert found == sorted(of, key=lambda each: (-numbers[each], -of[each], each))[:100]
    found = ids(notes.find(TEA, sort={"score": SCORE, "$id": 1}))
    assert found == list(of)


def test_a_projection_has_the_score(notes: Any) -> None:
    of = scores(notes)
    for projection in ({"score": SCORE}, {"score": SCORE, "n": 0}, {"n": 1, "score": SCORE}):
        found = notes.find(TEA, projection=projection, limit=10)
        assert {each.id: each.body["score"] for each in found} == {id: of[id] for id in ids(found)}
        assert len(found) == 10
    assert set(notes.find_one(TEA, projection={"score": SCORE}).body) == {
        "title",
        "body",
        "n",
        "score",
    }
    assert set(notes.find_one(TEA, projection={"n": 1, "score": SCORE}).body) == {"n", "score"}
    assert set(notes.find_one(TEA, projection={"n": 0, "score": SCORE}).body) == {
        "title",
        "body",
        "score",
    }
    better = {"better": {"$multiply": [SCORE, 2]}}
    doubled = {each.id: each.body for each in notes.find(TEA, projection=better)}
    single = notes.find(TEA, projection={"score": SCORE})
    assert doubled == {each.id: {"better": 2 * each.body["score"]} for each in single}
    first = notes.find_one(TEA, sort={"s": SCORE}, projection={"title": SCORE})
    assert first.body["title"] == max(of.values())
    assert type(first) is type(notes.find_one(TEA, sort={"s": SCORE})) is type(notes.find_one())


PIPELINES: list[list[Any]] = [
    [{"$sort": {"score": SCORE}}, {"$limit": 20}],
    [{"$sort": {"score": SCORE}}, {"$skip": 3}, {"$limit": 20}],
    [{"$sort": {"score": SCORE}}],
    [{"$addFields": {"s": SCORE}}, {"$sort": {"s": -1}}],
    [{"$addFields": {"s": {"$multiply": [1, SCORE]}}}, {"$sort": {"x": SCORE}}, {"$limit": 20}],
    [{"$unset": "body"}, {"$unwind": "$n"}, {"$sort": {"score": SCORE}}, {"$limit": 20}],
]


@pytest.mark.parametrize("rest", REST, ids=str)
@pytest.mark.parametrize("stages", PIPELINES, ids=str)
def test_a_pipeline_reads_the_score(notes: Any, rest: Any, stages: list[Any]) -> None:
    of, expected = scores(notes, rest), by_score(notes, rest)
    skip = next((each["$skip"] for each in stages if "$skip" in each), 0)
    limit = next((each["$limit"] for each in stages if "$limit" in each), 1000)
    shown = {"$project": {"_id": 0, "id": {"$meta": "id"}, "score": SCORE}}
    found = notes.aggregate([{"$match": TEA | rest}, *stages, shown])
    assert found == [{"id": id, "score": of[id]} for id in expected[skip : skip + limit]]


def test_groups_and_other_collections_go_with_the_score(notes: Any, store: Any) -> None:
    of = scores(notes)
    best = notes.aggregate([{"$match": TEA}, {"$group": {"_id": None, "best": {"$max": SCORE}}}])
    assert best == [{"_id": None, "best": max(of.values())}]
    store["others"].put("1", {"n": 1})
    joined = {
        "$lookup": {
            "from": "others",
            "let": {"s": SCORE},
            "as": "o",
            "pipeline": [{"$project": {"s": "$$s"}}],
        }
    }
    [found] = notes.aggregate([{"$match": TEA}, {"$sort": {"s": SCORE}}, {"$limit": 1}, joined])
    assert found["o"][0]["s"] == max(of.values())


def test_expired_documents_have_no_score(store: Any) -> None:
    notes = store["notes"]
    notes.create_text_index("t")
    notes.put("gone", {"t": "tea"}, ttl=1e-6)
    notes.put("here", {"t": "tea"})
    assert ids(notes.find(TEA, sort={"s": SCORE}, limit=5)) == ["here"]
    assert ids(notes.find(TEA, sort={"s": SCORE})) == ["here"]


def test_a_missing_collection_has_no_documents(store: Any) -> None:
    assert store["none"].find(TEA, sort={"s": SCORE}) == []
    assert store["none"].aggregate([{"$match": TEA}, {"$sort": {"s": SCORE}}]) == []


def test_the_score_needs_a_text(notes: Any, store: Any) -> None:
    needs = r"textScore needs a \$text in the filter, or in the first stage"
    with pytest.raises(InvalidSort, match=needs):
        notes.find({"n": 1}, sort={"score": SCORE})
    with pytest.raises(InvalidProjection, match=needs):
        notes.find({"n": 1}, projection={"score": SCORE})
    with pytest.raises(InvalidProjection, match=needs):
        notes.find({"n": 1}, projection={"score": {"$add": [SCORE, 1]}})
    for stages in (
        [{"$project": {"s": SCORE}}],
        [{"$match": {"n": 1}}, {"$sort": {"s": SCORE}}],
        [
            {"$match": TEA},
            {"$lookup": {"from": "x", "as": "y", "pipeline": [{"$sort": {"s": SCORE}}]}},
        ],
    ):
        with pytest.raises(InvalidPipeline, match=needs):
            notes.aggregate(stages)
    with pytest.raises(InvalidFilter, match=needs):
        notes.find(TEA | {"$expr": {"$gt": [SCORE, 1]}})
    store["bare"].put("1", {})
    for limit in (None, 1):
        with pytest.raises(InvalidFilter, match="create_text_index"):
            store["bare"].find(TEA, sort={"score": SCORE}, limit=limit)
    with pytest.raises(InvalidFilter, match="create_text_index"):
        store["bare"].aggregate([{"$match": TEA}, {"$sort": {"s": SCORE}}])


METHODS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("page", [TEA], {"sort": {"s": SCORE}}),
    ("create_index", [[("s", SCORE)]], {}),
    ("find_one_and_delete", [TEA], {"sort": {"s": SCORE}}),
    ("bulk_write", [[UpdateOne(TEA, {"$set": {"n": 1}}, sort={"s": SCORE})]], {}),
]


@pytest.mark.parametrize(("method", "given", "options"), METHODS, ids=str)
def test_other_methods_refuse_the_score(
    notes: Any, method: str, given: list[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(
        CollectionsStoreError, match="textScore orders find, find_one and aggregate"
    ):
        getattr(notes, method)(*given, **options)


def test_invalid_scores(notes: Any) -> None:
    with pytest.raises(InvalidProjection, match="textScore is for find, find_one and aggregate"):
        notes.page(TEA, projection={"s": SCORE})
    with pytest.raises(InvalidProjection, match="must be 'textScore', got 'id'"):
        notes.find(TEA, projection={"s": {"$meta": "id"}})
    with pytest.raises(InvalidSort, match="sorts twice"):
        notes.find(TEA, sort={"s": SCORE, "t": SCORE})


def test_a_facet_and_a_redact_read_the_score(notes: Any) -> None:
    best = [{"$sort": {"score": SCORE}}, {"$limit": 1}, {"$project": {"score": SCORE}}]
    kept = {"$redact": {"$cond": [{"$gt": [SCORE, 0]}, "$$KEEP", "$$PRUNE"]}}
    [found] = notes.aggregate([{"$match": TEA}, kept, {"$facet": {"best": best}}])
    assert found == {"best": [{"score": max(scores(notes).values())}]}
