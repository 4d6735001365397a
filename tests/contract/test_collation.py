"""The option `collation` of every method that takes the options of a call."""

from typing import Any

import pytest

from collections_store import (
    DeleteMany,
    DuplicateKey,
    InvalidCursor,
    InvalidFilter,
    InvalidOption,
    InvalidPipeline,
    MemoryLimitExceeded,
    UpdateOne,
)

pytest.importorskip("icu")
DE = {"locale": "de", "strength": 2}
"""German, insensitive to case."""
WORDS = {"1": "Zug", "2": "\u00c4pfel", "3": "apfel", "4": "zug", "5": "Apfel"}


@pytest.fixture
def words(things: Any) -> Any:
    """Documents with a word, an array of words and an object, in the order of `WORDS`."""
    for id, word in WORDS.items():
        things.put(id, {"w": word, "many": [word, "x"], "o": {"w": word}, "n": int(id)})
    return things


def ids(documents: Any) -> list[str]:
    return [each.id for each in documents]


@pytest.mark.each_backend
def test_reads(words: Any) -> None:
    assert ids(words.find({"w": "ZUG"}, collation=DE)) == ["1", "4"]
    assert ids(words.find("w", "ZUG", collation=DE)) == ["1", "4"]
    assert ids(words.find({"many": "ZUG"}, collation=DE)) == ["1", "4"]
    assert ids(words.find({"o": {"w": "ZUG"}, "n": {"$gt": 1}}, collation=DE)) == ["4"]
    assert ids(words.find({"w": {"$lt": "B"}}, collation=DE)) == ["2", "3", "5"]
    assert ids(words.find({"w": {"$in": ["ZUG", "APFEL"]}}, collation=DE)) == ["1", "3", "4", "5"]
    assert ids(words.find({"w": {"$ne": "ZUG"}}, collation=DE)) == ["2", "3", "5"]
    assert ids(words.find({"w": {"$regex": "^ZUG"}}, collation=DE)) == []
    assert words.find({"w": "ZUG"}, collation={"locale": "simple"}) == []
    assert words.find_one({"w": "ZUG"}, collation=DE).id == "1"
    assert words.find_one({"w": "ZUG"}, sort={"n": -1}, collation=DE).id == "4"
    assert words.count({"w": "ZUG"}, collation=DE) == 2
    assert ids(words.stream({"w": "ZUG"}, collation=DE)) == ["1", "4"]
    assert words.distinct("w", collation=DE) == ["apfel", "\u00c4pfel", "Zug"]
    assert words.distinct("many", {"w": "zug"}, collation=DE) == ["x", "Zug"]
    projected = words.find({"many": "ZUG"}, projection={"many.$": 1}, collation=DE)
    assert [each.body for each in projected] == [{"many": ["Zug"]}, {"many": ["zug"]}]


@pytest.mark.each_backend
def test_orders(words: Any) -> None:
    wanted = ["3", "5", "2", "1", "4"]
    assert ids(words.find(sort="w", collation=DE)) == wanted
    assert ids(words.find(sort="w", skip=1, limit=2, collation=DE)) == wanted[1:3]
    assert ids(words.find({"w": {"$gt": "APFEL"}}, sort={"w": -1}, collation=DE)) == ["1", "4", "2"]
    assert ids(words.stream(sort="w", collation=DE)) == wanted
    assert ids(words.find(sort=[("o", -1), ("n", -1)], collation=DE)) == ["4", "1", "2", "5", "3"]
    assert ids(words.find(sort="w")) == ["5", "1", "3", "4", "2"]
    words.put_many({"b": {"w": 1}, "C": {"w": 1}, "A": {"w": 1}})
    assert ids(words.find({"w": 1}, sort="$id", collation=DE)) == ["A", "b", "C"]
    assert ids(words.find({"$id": {"$gte": "a", "$lt": "c"}}, collation=DE)) == ["b", "A"]
    assert ids(words.find({"$id": {"$in": ["a", "B"]}}, collation=DE)) == ["b", "A"]


@pytest.mark.each_backend
def test_numeric_order(things: Any) -> None:
    things.put_many({name: {"v": f"v{name}"} for name in ("10", "9", "100", "1")})
    numeric = {"locale": "en", "numericOrdering": True}
    assert ids(things.find(sort="v", collation=numeric)) == ["1", "9", "10", "100"]
    assert ids(things.find({"v": {"$gt": "v9"}}, collation=numeric)) == ["10", "100"]


@pytest.mark.each_backend
def test_pages(words: Any) -> None:
    found, cursor = [], None
    for _ in range(3):
        page = words.page(sort="w", limit=2, after=cursor, collation=DE)
        cursor = page.cursor
        found += ids(page)
    assert found == ["3", "5", "2", "1", "4"]
    assert cursor is None
    first = words.page(sort="w", limit=2, collation=DE).cursor
    for other in (None, {"locale": "de"}, {"locale": "sv", "strength": 2}):
        with pytest.raises(InvalidCursor, match="another collection, filter or order"):
            words.page(sort="w", limit=2, after=first, collation=other)
    whole = ids(words.page({"w": "ZUG"}, limit=1, collation=DE))
    assert whole == ["1"]


@pytest.mark.each_backend
def test_updates(words: Any) -> None:
    change = {"$set": {"seen": 1}}
    assert words.update_one({"w": "ZUG"}, change, collation=DE).matched_count == 1
    assert words.update_many({"w": "ZUG"}, change, collation=DE).matched_count == 2
    assert ids(words.find("seen", 1)) == ["1", "4"]
    assert words.replace_one({"w": "APFEL"}, {"r": 1}, collation=DE).matched_count == 1
    assert words.get("3") == {"r": 1}
    pull = {"$pull": {"many": "ZUG"}}
    assert words.update_one({"many": "zUG"}, pull, collation=DE).modified_count == 1
    assert words.get("1")["many"] == ["x"]
    filters = {"array_filters": [{"e": "ZUG"}], "collation": DE}
    words.update_many({"$id": "4"}, {"$set": {"many.$[e]": "Bus"}}, **filters)
    assert words.get("4")["many"] == ["Bus", "x"]
    by_position = {"$set": {"many.$": "y"}}
    words.update_one({"many": "BUS"}, by_position, collation=DE)
    assert words.get("4")["many"] == ["y", "x"]
    pipeline = [{"$set": {"is": {"$eq": ["$w", "ZUG"]}}}]
    words.update_many({"$id": {"$in": ["1", "5"]}}, pipeline, collation=DE)
    assert [words.get(id)["is"] for id in "15"] == [True, False]


@pytest.mark.each_backend
def test_an_upsert_inserts_the_value_of_the_filter(words: Any) -> None:
    result = words.update_one({"w": "Rad"}, {"$set": {"n": 6}}, upsert=True, collation=DE)
    assert words.get(result.upserted_id) == {"w": "Rad", "n": 6}
    again = words.update_one({"w": "RAD"}, {"$set": {"n": 7}}, upsert=True, collation=DE)
    assert (again.matched_count, again.upserted_id) == (1, None)


@pytest.mark.each_backend
def test_find_and_change(words: Any) -> None:
    change = {"$set": {"n": 9}}
    found = words.find_one_and_update({"w": "ZUG"}, change, sort={"n": -1}, collation=DE)
    assert found.id == "4"
    found = words.find_one_and_replace({"w": "APFEL"}, {}, sort="w", collation=DE)
    assert found.id == "3"
    projection = {"is": {"$eq": ["$w", "ZUG"]}}
    found = words.find_one_and_delete({"w": "ZUG"}, projection=projection, collation=DE)
    assert (found.id, found.body) == ("1", {"is": True})
    assert words.find_one_and_delete({"w": "Z"}, collation=DE) is None


@pytest.mark.each_backend
def test_deletions(words: Any) -> None:
    assert words.delete_one({"w": "ZUG"}, collation=DE).deleted_count == 1
    assert words.delete_many({"w": "ZUG"}, collation=DE).deleted_count == 1
    assert words.delete_many("w", "APFEL", collation=DE).deleted_count == 2
    assert ids(words.find()) == ["2"]


@pytest.mark.each_backend
def test_a_bulk_write(words: Any) -> None:
    requests = [UpdateOne({"w": "ZUG"}, {"$set": {"n": 0}}), DeleteMany({"w": "APFEL"})]
    for atomic in (True, False):
        result = words.bulk_write(requests, atomic=atomic, collation=DE)
        assert result.matched_count == 1
    assert ids(words.find()) == ["1", "2", "4"]


@pytest.mark.each_backend
def test_pipelines(words: Any) -> None:
    def run(*stages: Any) -> Any:
        found = words.aggregate(list(stages), collation=DE)
        assert list(words.stream_aggregate(list(stages), collation=DE)) == found
        return found

    group = {"$group": {"_id": "$w", "n": {"$sum": 1}, "s": {"$sum": "$n"}}}
    zug, apfel = {"_id": "Zug", "n": 2, "s": 5}, {"_id": "apfel", "n": 2, "s": 8}
    umlaut = {"_id": "\u00c4pfel", "n": 1, "s": 2}
    assert run(group) == [zug, umlaut, apfel]
    assert run({"$match": {"w": "ZUG"}}, group) == [zug]
    assert run(group, {"$sort": {"_id": 1}}) == [apfel, umlaut, zug]
    assert run({"$match": {"w": "ZUG"}}, {"$count": "n"}) == [{"n": 2}]
    names = {"$project": {"_id": 0, "w": 1}}
    assert run({"$sort": {"w": -1}}, {"$limit": 3}, names) == [
        {"w": "Zug"}, {"w": "zug"}, {"w": "\u00c4pfel"},
    ]  # fmt: skip
    assert run({"$match": {"w": "Zug"}}, {"$skip": 1}, names) == [{"w": "zug"}]
    assert run({"$match": {"$expr": {"$eq": ["$w", "ZUG"]}}}, {"$count": "n"}) == [{"n": 2}]


@pytest.mark.each_backend
def test_boundaries_of_buckets(words: Any) -> None:
    letters = {"groupBy": "$w", "boundaries": ["a", "B"], "default": "z"}
    for pipeline in ([{"$bucket": letters}], [{"$facet": {"f": [{"$bucket": letters}]}}]):
        [*found] = words.aggregate(pipeline, collation=DE)
        buckets = found[0].get("f", found)
        assert buckets == [{"_id": "a", "count": 3}, {"_id": "z", "count": 2}]
        with pytest.raises(InvalidPipeline, match="must be of the type of the value before"):
            words.aggregate(pipeline)
    chosen = {"$cond": [{"$eq": ["a", "A"]}, "a", "x"]}
    computed = letters | {"boundaries": [chosen, "B"]}
    assert words.aggregate([{"$bucket": computed}], collation=DE)[0] == {"_id": "a", "count": 3}
    wrong = (("boundaries.1", {"boundaries": ["B", "a"]}), ("default", {"default": "A"}))
    for place, changed in wrong:
        with pytest.raises(InvalidPipeline) as error:
            words.aggregate([{"$bucket": letters | changed}], collation=DE)
        assert error.value.place == f"0.$bucket.{place}"


@pytest.mark.each_backend
def test_stages_that_a_database_may_do(words: Any) -> None:
    """Without the collation, the database compares the extremes and counts the groups of each `$facet`."""
    extremes = {"$group": {"_id": None, "least": {"$min": "$w"}, "most": {"$max": "$w"}}}
    facets = {
        "counted": [{"$match": {"$expr": {"$eq": ["$w", "$$word"]}}}, {"$count": "n"}],
        "extremes": [extremes],
        "unwound": [{"$unwind": "$many"}, {"$sortByCount": "$many"}],
    }
    [found] = words.aggregate([{"$facet": facets}], collation=DE, let={"word": "ZUG"})
    assert found == {
        "counted": [{"n": 2}],
        "extremes": [{"_id": None, "least": "apfel", "most": "Zug"}],
        "unwound": [
            {"_id": "x", "count": 5},
            {"_id": "Zug", "count": 2},
            {"_id": "apfel", "count": 2},
            {"_id": "\u00c4pfel", "count": 1},
        ],
    }
    assert words.aggregate([extremes], collation=DE) == found["extremes"]
    words.create_index("w")
    facets["matched"] = [{"$match": {"w": "ZUG"}}, {"$count": "n"}]
    plan = words.explain_aggregate([{"$facet": facets}], collation=DE, let={"word": "ZUG"})
    assert plan.in_database == ("$facet.extremes", "$facet.unwound")
    assert plan.in_python == ("$facet.counted", "$facet.matched")


@pytest.mark.each_backend
def test_other_collections_of_a_pipeline(store: Any) -> None:
    cities, people = store["cities"], store["people"]
    cities.put_many({"b": {"name": "Berlin"}, "u": {"name": "Ulm"}})
    people.put_many({"1": {"city": "BERLIN", "knows": "ulm"}, "2": {"city": "berlin"}})
    equal = {"from": "people", "localField": "name", "foreignField": "city", "as": "p"}
    by_let = {
        "from": "people", "let": {"n": "$name"}, "as": "p",
        "pipeline": [{"$match": {"$expr": {"$eq": ["$city", "$$n"]}}}],
    }  # fmt: skip
    for lookup in (equal, by_let):
        stages = [{"$lookup": lookup}, {"$project": {"n": {"$size": "$p"}}}]
        found = cities.aggregate(stages, collation=DE)
        assert [each["n"] for each in found] == [2, 0]
        assert [each["n"] for each in cities.aggregate(stages)] == [0, 0]
    union = {"$unionWith": {"coll": "people", "pipeline": [{"$match": {"city": "Berlin"}}]}}
    assert cities.aggregate([union, {"$count": "n"}], collation=DE) == [{"n": 4}]
    graph = {
        "from": "people", "startWith": "$name", "connectFromField": "knows",
        "connectToField": "city", "as": "p",
    }  # fmt: skip
    found = cities.aggregate([{"$graphLookup": graph}], collation=DE)
    assert [len(each["p"]) for each in found] == [2, 0]


@pytest.mark.each_backend
def test_transactions(store: Any) -> None:
    store["things"].put("1", {"w": "Zug"})
    with store.transaction() as tx:
        assert tx["things"].update_many({"w": "ZUG"}, {"$set": {"n": 1}}, collation=DE)
        assert ids(tx["things"].find({"w": "ZUG", "n": 1}, collation=DE)) == ["1"]
        assert tx["things"].delete_many({"w": "zUG"}, collation=DE).deleted_count == 1


@pytest.mark.each_backend
def test_an_index_without_the_collation_does_not_serve(words: Any) -> None:
    words.create_index("w")
    assert ids(words.find({"w": "ZUG"}, collation=DE)) == ["1", "4"]
    assert ids(words.find({"w": "ZUG"}, limit=1, collation=DE)) == ["1"]
    assert ids(words.find(sort="w", limit=2, collation=DE)) == ["3", "5"]
    plan = words.explain({"w": "ZUG", "n": 1}, sort="w", collation=DE)
    assert plan.indexes == ()
    assert plan.in_matcher.to_json() == {"w": "ZUG"}
    assert plan.in_sql.to_json() == {"n": 1}
    assert plan.order == "python"
    assert "n" in plan.advice
    assert "w" not in plan.advice
    assert words.explain({"w": "ZUG"}, sort="o", collation=DE).advice is None
    assert words.explain({"n": 1}, collation=DE).in_matcher is None


@pytest.mark.each_backend
def test_partial_indexes_do_not_serve(words: Any) -> None:
    words.create_index("n", where={"w": "Zug"})
    assert ids(words.find({"w": "Zug", "n": {"$gt": 0}}, collation=DE)) == ["1", "4"]
    words.create_index("w", unique=True)
    with pytest.raises(DuplicateKey):
        words.update_many({"w": "ZUG"}, {"$set": {"w": "zug"}}, collation=DE)


def test_refusals(things: Any) -> None:
    things.put("1", {})
    with pytest.raises(InvalidOption, match=r"collation\.locale"):
        things.find({}, collation={"locale": "nowhere"})
    with pytest.raises(InvalidOption, match=r"collation\.strength: must be 1 or 2"):
        things.count(collation={"locale": "en", "strength": 9})
    for merge in ("things", {"into": "things", "on": "w"}, {"into": "others", "on": "w"}):
        with pytest.raises(InvalidPipeline, match="requires fields with a unique index under"):
            things.aggregate([{"$merge": merge}], collation=DE)
    with pytest.raises(InvalidFilter, match="does not go with a collation"):
        things.find({"$text": {"$search": "x"}}, collation=DE)
    assert things.aggregate([{"$out": "others"}], collation=DE) == []


@pytest.mark.each_backend
def test_a_merge_by_ids_creates_a_collection(store: Any) -> None:
    words = store["words"]
    words.put_many({"A": {"n": 1}, "a": {"n": 2}, "b": {"n": 3}})
    assert words.aggregate([{"$sort": {"n": 1}}, {"$merge": "others"}], collation=DE) == []
    found = {each.id: each.body for each in store["others"].list()}
    assert found == {"A": {"n": 1}, "a": {"n": 2}, "b": {"n": 3}}
    with pytest.raises(InvalidPipeline, match="the ids have none"):
        words.aggregate([{"$merge": "others"}], collation=DE)


@pytest.mark.each_backend
def test_other_options_of_the_call(words: Any) -> None:
    words.create_index("n")
    words.create_index("w")
    both = {"collation": DE, "comment": "why"}
    assert ids(words.find({"w": "ZUG"}, hint="n_1", **both)) == ["1", "4"]
    assert ids(words.find({"w": "ZUG", "n": {"$gt": 1}}, hint="n_1", **both)) == ["4"]
    assert ids(words.find({"w": "ZUG"}, hint="w_1", sort="w", **both)) == ["1", "4"]
    equal = {"$expr": {"$eq": ["$w", "$$wanted"]}}
    let = {"wanted": "ZUG", "same": {"$eq": ["$$wanted", "zug"]}}
    assert ids(words.find(equal, let=let, **both)) == ["1", "4"]
    same = {"$expr": {"$and": ["$$same", {"$eq": ["$w", "$$wanted"]}]}}
    assert words.count(same, let=let, **both) == 2
    stages = [{"$match": same}, {"$set": {"is": {"$eq": ["$w", "$$wanted"]}}}]
    assert [each["is"] for each in words.aggregate(stages, let=let, **both)] == [True, True]
    update = [{"$set": {"is": {"$eq": ["$w", "$$wanted"]}}}]
    assert words.update_many({"w": "apfel"}, update, let={"wanted": "APFEL"}, **both)
    assert ids(words.find("is", True)) == ["3", "5"]


@pytest.mark.each_backend
def test_a_temporary_file(things: Any) -> None:
    words = ["Zug", "apfel", "zug", "Apfel", "\u00c4pfel"] * 40
    things.put_many((str(n), {"w": word, "t": "x" * 50}) for n, word in enumerate(words))
    stages: Any = [{"$sort": {"w": 1}}, {"$project": {"w": 1, "_id": 0}}]
    with pytest.raises(MemoryLimitExceeded):
        things.aggregate(stages, collation=DE, memory_limit=80_000)
    limits = {"memory_limit": 80_000, "allow_disk_use": True}
    found = things.aggregate(stages, collation=DE, **limits)
    assert found == things.aggregate(stages, collation=DE)
    assert [each["w"] for each in found[:3]] == ["apfel", "Apfel", "apfel"]
