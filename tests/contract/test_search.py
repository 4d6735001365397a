"""Searches by words: the text index, results, pages and errors, the same on every database."""

import logging
import operator
import pathlib
from typing import Any

import pytest
from backends import Backend

from collections_store import (
    Document,
    F,
    Filter,
    IndexExists,
    InvalidCursor,
    InvalidFilter,
    InvalidIndex,
    InvalidOption,
    InvalidPipeline,
    InvalidSearch,
    Path,
    Store,
    TextIndex,
)
from collections_store.query.matcher import matches

pytestmark = pytest.mark.each_backend

NOTES = {
    "cup": {"title": "A cup of tea", "body": "Green tea with milk", "year": 2020},
    "cake": {"title": "Cake", "body": ["Tea cake", "and green icing"], "year": 2021},
    "crème": {"title": "Crème brûlée", "body": "no tea here; Chinese tea neither", "year": 2022},
    "inside": {"parts": [{"text": "An old teapot"}, {"text": ["of tea", "leaves"]}]},
    "number": {"title": 5, "body": {"tea": "tea"}},
    "text": "tea",
}


def ids(found: Any) -> list[str]:
    return [each.id for each in found]


@pytest.fixture
def notes(store: Any) -> Any:
    notes = store["notes"]
    notes.put_many(NOTES)
    notes.create_text_index({"title": 3, "body": 1, "parts.text": 1})
    return notes


def test_a_search_finds_documents_by_words(notes: Any) -> None:
    assert sorted(ids(notes.search("tea"))) == ["cake", "crème", "cup", "inside"]
    assert ids(notes.search("tea milk")) == ["cup"]
    assert ids(notes.search('"green tea"')) == ["cup"]
    assert ids(notes.search('"cake and"')) == []
    assert ids(notes.search("TEAPOT -milk")) == ["inside"]
    assert ids(notes.search("creme BRULEE")) == ["crème"]
    assert sorted(ids(notes.search("chin* OR icing"))) == ["cake", "crème"]
    assert ids(notes.search("title:tea")) == ["cup"]
    assert ids(notes.search("parts.text:leaves")) == ["inside"]
    assert ids(notes.search("body:cake")) == ["cake"]
    assert ids(notes.search("nothing")) == []


def test_the_best_come_first_and_ties_by_id(store: Any) -> None:
    notes = store["notes"]
    notes.create_text_index({"title": 3, "body": 1})
    notes.put_many({f"{n}": {"title": "x", "body": "tea and cake"} for n in (3, 1, 2)})
    notes.put("9", {"title": "tea", "body": "and cake"})
    found = list(notes.search("tea"))
    assert ids(found) == ["9", "1", "2", "3"]
    assert found[0].score > found[1].score == found[2].score == found[3].score > 0


def test_a_result_has_the_document_and_snippets(notes: Any) -> None:
    version = notes.put("cup", NOTES["cup"])
    [found] = notes.search("green milk", highlight=True)
    assert (found.id, found.body) == ("cup", NOTES["cup"])
    assert found.document.version == version
    assert found.document.created_at is not None
    assert found.snippets == {"body": "**Green** tea with **milk**"}
    [found] = notes.search('"cup of"', highlight=("<b>", "</b>"))
    assert found.snippets == {"title": "A <b>cup</b> <b>of</b> tea"}
    assert next(iter(notes.search("milk"))).snippets == {}
    for wrong in (1, ("a",), "**", None):
        with pytest.raises(InvalidOption, match="option highlight: must be True, False, or a pair"):
            notes.search("tea", highlight=wrong)


FILTERS: list[tuple[Any, list[str]]] = [
    ({"year": {"$gte": 2021}}, ["cake", "crème"]),
    ({"$id": "cup"}, ["cup"]),
    ({"title": {"$regex": "C.*e$"}}, ["cake", "crème"]),
    ({"$expr": {"$gt": ["$year", 2020]}}, ["cake", "crème"]),
    ({"$jsonSchema": {"required": ["parts"]}}, ["inside"]),
    ({"year": 1999}, []),
]


@pytest.mark.parametrize(("filter", "expected"), FILTERS, ids=str)
def test_a_filter_goes_with_the_words(notes: Any, filter: Any, expected: list[str]) -> None:
    every = ids(notes.search("tea"))
    found = notes.search("tea", filter=filter)
    assert sorted(ids(found)) == expected
    assert ids(found) == [id for id in every if id in expected]


@pytest.mark.parametrize("filter", [None, {"n": {"$gte": 0}}, {"$expr": {"$gte": ["$n", 0]}}])
def test_pages_and_offsets_have_every_result_once(store: Any, filter: Any) -> None:
    things = store["things"]
    things.create_text_index("t")
    things.put_many((f"{n:03}", {"t": "tea " * (n % 7 + 1), "n": n - 5}) for n in range(250))
    every = ids(things.search("tea", limit=1000, filter=filter))
    assert len(every) == (250 if filter is None else 245)
    paged, cursor = [], None
    while True:
        page = things.search("tea", limit=40, after=cursor, filter=filter)
        paged += ids(page)
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page) == 40
    assert paged == every
    assert ids(things.search("tea", limit=30, offset=35, filter=filter)) == every[35:65]
    assert things.search("tea", limit=245, filter=filter, offset=5).cursor is None
    cursor = things.search("tea", limit=40, filter=filter).cursor
    for wrong in ("tee", "tea cake"):
        with pytest.raises(InvalidCursor, match="of another collection, filter or order"):
            things.search(wrong, after=cursor, filter=filter)
    with pytest.raises(InvalidCursor):
        things.search("tea", after=cursor, filter={"$id": "1"})
    with pytest.raises(InvalidOption, match="offset: does not go with after"):
        things.search("tea", after=cursor, offset=1)


def test_a_filter_of_the_matcher_takes_few_statements(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """Each statement ranks all documents with the words again."""
    with Store(shared_backend.url, **shared_backend.options, echo=True) as store:
        things = store["things"]
        things.create_text_index("t")
        things.put_many((f"{n}", {"t": "tea", "n": n}) for n in range(3000))
        caplog.clear()
        with caplog.at_level(logging.INFO, "collections_store.statements"):
            assert ids(things.search("tea", filter={"$expr": {"$eq": ["$n", 5]}})) == ["5"]
    assert sum(record.message.count(" ORDER BY ") for record in caplog.records) == 5


def test_expired_documents_are_not_found(store: Any, notes: Any) -> None:
    notes.put("cup", NOTES["cup"], ttl=0.001)
    notes.put("crème", NOTES["crème"], ttl=3600)
    while notes.exists("cup"):
        pass
    assert sorted(ids(notes.search("tea"))) == ["cake", "crème", "inside"]
    assert notes.purge_expired() == 1
    assert sorted(ids(notes.search("tea"))) == ["cake", "crème", "inside"]


def test_every_write_maintains_the_index(notes: Any) -> None:
    notes.update("cup", {"$set": {"title": "Coffee"}, "$unset": {"body": ""}})
    notes.update_many({"year": 2021}, {"$push": {"body": "and coffee"}})
    notes.bulk_write([])
    notes.change("text", lambda body: {"title": body})
    notes.insert_one({"title": "coffee"}, id="new")
    notes.remove("inside")
    assert sorted(ids(notes.search("coffee"))) == ["cake", "cup", "new"]
    assert sorted(ids(notes.search("tea"))) == ["cake", "crème", "text"]
    notes.delete_many({"title": "coffee"})
    notes.replace_one({"$id": "cake"}, {"title": "Bread"})
    notes.increment("crème", "year")
    notes.touch("crème", ttl=60)
    notes.put_many({"cup": {"body": "tea"}, "text": {"title": "no"}})
    assert sorted(ids(notes.search("coffee"))) == []
    assert sorted(ids(notes.search("tea"))) == ["crème", "cup"]
    assert sorted(ids(notes.search("bread OR no"))) == ["cake", "crème", "text"]


def test_a_transaction_sees_its_own_words_until_it_is_rolled_back(store: Any, notes: Any) -> None:
    with pytest.raises(KeyError, match="stop"), store.transaction() as tx:
        tx["notes"].put("new", {"title": "coffee"})
        tx["notes"].remove("cup")
        assert ids(tx["notes"].search("coffee OR milk")) == ["new"]
        raise KeyError("stop")
    assert ids(notes.search("coffee OR milk")) == ["cup"]


def test_a_text_index_is_created_once(notes: Any) -> None:
    assert notes.create_text_index({"title": 3, "body": 1, "parts.text": 1.0}) == "text"
    [index] = notes.indexes()
    assert isinstance(index, TextIndex)
    assert (index.name, index.fields) == ("text", (("title", 3), ("body", 1), ("parts.text", 1)))
    assert str(index) == "text: {'title': 3, 'body': 1, 'parts.text': 1}"
    with pytest.raises(IndexExists, match="drop that first"):
        notes.create_text_index("title")
    with pytest.raises(IndexExists):
        notes.create_text_index({"title": 3, "body": 1, "parts.text": 1}, name="other")
    with pytest.raises(IndexExists):
        notes.create_index("year", name="text")
    assert notes.create_index("title") == "title_1"
    assert notes.drop_index("text")
    assert not notes.drop_index("text")
    assert [each.name for each in notes.indexes()] == ["title_1"]
    assert notes.create_text_index(["title", "body"], name="words") == "words"
    assert ids(notes.search("milk")) == ["cup"]


@pytest.mark.parametrize(
    ("fields", "options", "problem"),
    [
        ({}, {}, "must have at least one field"),
        (["a", "b", "c", "d", "e"], {}, "at 'e': must have at most 4 fields, got 5"),
        ({"a": 0}, {}, "at 'a': its weight must be a number above 0, up to 1000, got 0"),
        ({"a": "x"}, {}, "at 'a': its weight must be a number above 0"),
        ({"a": float("nan")}, {}, "at 'a': its weight must be a number above 0"),
        (["a", "a"], {}, "at 'a': must appear once"),
        ("a.b.c.d", {}, "must be a field of the body of at most 3 keys, and no numbers"),
        ("a.0", {}, "must be a field of the body of at most 3 keys, and no numbers"),
        ("$created_at", {}, "must be a field of the body"),
        ("a..b", {}, "a part of the path is empty"),
        (5, {}, "must be a string"),
        ([["a"]], {}, "must be a"),
        (["$body", Path()], {}, "at '$body': must appear once"),
        ("a", {"language": "xx yy"}, "at 'language': must be None or a language"),
        ("a", {"language": "klingon"}, "at 'language': "),
        ("a", {"name": ""}, "at 'name': must be a printable string"),
    ],
)
def test_invalid_text_indexes(things: Any, fields: Any, options: Any, problem: str) -> None:
    with pytest.raises(InvalidIndex) as caught:
        things.create_text_index(fields, **options)
    assert problem in str(caught.value)


@pytest.mark.parametrize("query", ["", "-tea", '"', "🥰", None, 5])
def test_invalid_searches(notes: Any, query: Any) -> None:
    with pytest.raises(InvalidSearch):
        notes.search(query)


def test_any_word_of_a_text(notes: Any) -> None:
    question = 'Which "cake" had -milk, OR green: icing*?'
    assert ids(notes.search(question)) == []
    page = notes.search(question, match="any", highlight=("<", ">"))
    assert ids(page)[0] == "cake"
    assert sorted(ids(page)) == ["cake", "cup"]
    assert next(iter(page)).snippets == {"title": "<Cake>", "body": "and <green> <icing>"}
    first = notes.search(question, match="any", limit=1)
    rest = notes.search(question, match="any", after=first.cursor)
    assert ids(first) + ids(rest) == ids(page)
    with pytest.raises(InvalidCursor):
        notes.search("cake", after=first.cursor)
    for words in ("", "!?", None):
        with pytest.raises(InvalidSearch):
            notes.search(words, match="any")
    with pytest.raises(InvalidOption, match="match: must be 'all' or 'any', got 'one'"):
        notes.search("tea", match="one")


def test_a_search_without_an_index_names_create_text_index(things: Any) -> None:
    things.put("1", {"t": "tea"})
    with pytest.raises(
        InvalidSearch, match=r"search 'tea': .*has no text index: .*create_text_index\("
    ):
        things.search("tea")
    for limit in (0, -1, None, "x"):
        with pytest.raises(InvalidFilter, match="limit"):
            things.search("tea", limit=limit)


def test_a_missing_collection_has_no_results(store: Any) -> None:
    assert len(store["missing"].search("tea")) == 0


HOSTILE = [
    "'", '"', "a'b", 'tea" OR "', "tea)", "(tea", "tea AND", "NEAR(tea)", "^tea", "tea:*", "{title}: tea", "title:",
    "tea & cake", "!tea", "tea | ", "tea <-> x", "\\", "a\\'b", "%s %(x)s", ":text", "$1", "tea; DROP TABLE x", "*", "-*",
    "title:title:tea", '"tea*"', "tea^2", "a\tb\nc", "\u2028", "x" * 100, " ".join(["tea"] * 100),
    "tea\0cup", "\ud800tea", "tea\udfff",
]  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE)
def test_hostile_queries_are_no_error_of_the_database(notes: Any, query: str) -> None:
    try:
        found = list(notes.search(query, highlight=True))
    except InvalidSearch:
        return
    assert set(ids(found)) <= set(NOTES)


@pytest.mark.parametrize(
    "key", ["a'b", 'q"', "a$b", "a$row$; b", "a$keep$", "a$has$", "%s", "é", "a:b", "\\"]
)
def test_fields_with_odd_keys(things: Any, key: str) -> None:
    things.put("1", {key: "tea", "x": "cake"})
    try:
        things.create_text_index({key: 1})
    except InvalidIndex as error:
        assert (key, error.field) == ('q"', 'q"')
        return
    things.put("2", {key: ["tea", "cake"]})
    assert sorted(ids(things.search("tea"))) == ["1", "2"]
    assert ids(things.search("cake")) == ["2"]


def test_bodies_that_are_strings(things: Any) -> None:
    things.create_text_index({"$body": 1, "text": 1})
    things.put_many({"a": "green tea", "b": ["tea", "cake", ["tea"]], "c": {"text": "tea"}, "d": 5})
    things.update_one({"$id": "c"}, {"$set": {"other": 1}})
    assert sorted(ids(things.search("tea"))) == ["a", "b", "c"]
    assert ids(things.search('"tea cake"')) == []
    assert ids(things.search("$body:tea -cake")) == ["a"]
    things.put("a", "coffee")
    assert [(each.id, each.snippets) for each in things.search("coffee", highlight=True)] == [
        ("a", {"$body": "**coffee**"})
    ]
    assert things.indexes()[0].fields == (("$body", 1), ("text", 1))


def test_english_words_match_other_forms(store: Any) -> None:
    notes = store["notes"]
    notes.put("1", {"t": "She was running quickly"})
    notes.create_text_index("t", language="english")
    notes.put("2", {"t": "He runs"})
    assert sorted(ids(notes.search("run"))) == ["1", "2"]
    assert ids(notes.search("quick* -he")) == ["1"]
    assert str(notes.indexes()[0]) == "text: {'t': 1}, language english"


def test_long_texts_are_found_as_a_whole(store: Any) -> None:
    notes = store["notes"]
    notes.create_text_index({"t": 1, "u": 1})
    many = " ".join(f"w{n}" for n in range(40_000))
    notes.put("1", {"t": f"{many} green tea", "u": "the " * 300 + "end of the line"})
    notes.put("2", {"t": "x" * 5000 + " tea"})
    assert ids(notes.search('"w39999 green tea"')) == ["1"]
    assert ids(notes.search('"of the line" w20000')) == ["1"]
    assert ids(notes.search("xxx* tea")) == ["2"]
    assert ids(notes.search("tea -w39998")) == ["2"]
    assert ids(notes.search("u:tea")) == []
    notes.update("1", {"$set": {"t": "short", "u": ""}})
    assert ids(notes.search("green")) == []
    assert ids(notes.search("short")) == ["1"]


def test_a_renamed_collection_keeps_its_index(store: Any, notes: Any) -> None:
    store.rename("notes", "moved")
    moved = store["moved"]
    moved.put("new", {"title": "tea leaves"})
    moved.remove("cup")
    assert sorted(ids(moved.search("tea"))) == ["cake", "crème", "inside", "new"]
    assert store["notes"].put("1", {"title": "tea"}) == 1
    store.drop("moved")
    store["moved"].put("1", {})
    with pytest.raises(InvalidSearch):
        store["moved"].search("tea")


def test_settings_and_a_feed_keep_the_index(store: Any, notes: Any) -> None:
    changing = store.collection("notes", ttl=3600, changes="both")
    changing.put("new", {"title": "tea leaves"})
    changing.delete_many({"year": 2020})
    assert sorted(ids(changing.search("tea"))) == ["cake", "crème", "inside", "new"]


def test_copies_and_backups_have_the_index(shared_backend: Backend, tmp_path: pathlib.Path) -> None:
    copied = Store(f"sqlite:///{tmp_path}/copy.db")
    with Store(shared_backend.url, **shared_backend.options) as store, copied as copy:
        notes = store["notes"]
        notes.put_many(NOTES)
        notes.create_text_index({"title": 3, "body": 1})
        store.copy_to(copy)
        assert sorted(ids(copy["notes"].search("tea"))) == ["cake", "crème", "cup"]
        assert copy["notes"].indexes() == notes.indexes()
        copy["notes"].put("new", {"title": "tea"})
        assert "new" in ids(copy["notes"].search("tea"))
        store.backup(tmp_path / "backup.jsonl")
        notes.put("cup", {"title": "nothing"})
        store.restore(tmp_path / "backup.jsonl", replace=True)
        assert ids(store["notes"].search("milk")) == ["cup"]
        store["notes"].put("later", {"title": "milk"})
        assert sorted(ids(store["notes"].search("milk"))) == ["cup", "later"]


TEA = {"$text": {"$search": "tea"}}


def test_a_filter_finds_words(notes: Any) -> None:
    assert [each.id for each in notes.find(TEA)] == ["cup", "cake", "crème", "inside"]
    assert notes.count(TEA) == 4
    assert notes.count({**TEA, "year": {"$gt": 2020}}) == 2
    assert notes.count({"year": 2020, "$and": [TEA, {"$expr": {"$gt": ["$year", 0]}}]}) == 1
    assert notes.count(F("year").exists() & Filter.parse(TEA)) == 3
    assert notes.count({"$and": [TEA, {"$text": {"$search": "milk OR cake"}}]}) == 2
    assert [each.id for each in notes.find(TEA, sort=[("year", -1)], limit=1)] == ["crème"]
    assert notes.distinct("year", TEA) == [2020, 2021, 2022]
    assert len(notes.page(TEA, limit=3)) == 3
    assert [each.id for each in notes.stream(TEA)] == ["cup", "cake", "crème", "inside"]
    assert notes.explain(TEA).in_matcher is None
    pipeline = [{"$match": TEA}, {"$match": {"year": {"$gt": 0}}}, {"$count": "n"}]
    assert notes.aggregate(pipeline) == [{"n": 3}]
    many = {"$and": [{"$or": [{f"x{n}": None}, {"x": n}]} for n in range(110)]}
    assert notes.count({**many, **TEA}) == 4


def test_writes_find_words(notes: Any) -> None:
    assert notes.update_many(TEA, {"$set": {"n": 1, "more": ["tea", "x"]}}).modified_count == 4
    assert notes.update_one({**TEA, "more": "x"}, {"$set": {"more.$": "y"}}).modified_count == 1
    assert notes.count({"n": 1}) == 4
    assert notes.delete_many({**TEA, "year": {"$gte": 2021}}).deleted_count == 2
    assert notes.delete_one({"$text": {"$search": "milk"}}).deleted_count == 1
    assert notes.find_one_and_delete(TEA).id == "inside"
    assert notes.update_one(TEA, {"$set": {"title": "tea"}}, upsert=True).upserted_id is not None
    assert notes.count(TEA) == 1


def test_deletions_by_words_are_recorded(store: Any) -> None:
    notes = store.collection("recorded", changes="both")
    notes.create_text_index("t")
    notes.put_many({"1": {"t": "tea"}, "2": {"t": "cake"}, "3": {"t": "tea cake"}})
    assert notes.delete_many({"$text": {"$search": "tea"}}).deleted_count == 2
    assert [each.id for each in notes.find()] == ["2"]


def test_an_index_serves_words(things: Any) -> None:
    things.create_text_index("t", name="words")
    things.put_many((f"{n}", {"t": f"w{n} tea"}) for n in range(3000))
    assert "words" in things.explain({"$text": {"$search": "w77"}}).indexes


@pytest.mark.parametrize(
    ("filter", "problem"),
    [
        ({"$or": [TEA, {"a": 1}]}, "at '$or': must be at the top, or in $and"),
        ({"$nor": [{"$and": [TEA, {"a": 1}]}]}, "at '$nor': must be at the top, or in $and"),
        ({"a": {"$elemMatch": {"b": 1, "$text": {"$search": "x"}}}}, "must be at the top, or in"),
        ({"$text": "tea"}, """at '$text': must be {"$search": a string}, got 'tea'"""),
        ({"$text": {"$search": "x", "$caseSensitive": True}}, "at '$text': must be"),
    ],
)
def test_invalid_filters_of_words(notes: Any, filter: Any, problem: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        notes.find(filter)
    assert problem in str(caught.value)


def test_words_need_an_index_and_the_right_place(things: Any) -> None:
    things.put("1", {"t": "tea"})
    calls: list[Any] = [things.find, things.count, things.delete_many, things.explain]
    for call in calls:
        with pytest.raises(InvalidFilter, match=r"at '\$text': .*create_text_index\("):
            call(TEA)
    with pytest.raises(InvalidSearch, match="must have a word"):
        things.find({"$text": {"$search": ""}})
    words = Filter.parse(TEA)
    with pytest.raises(InvalidFilter, match="must be at the top, or in"):
        operator.invert(words)
    with pytest.raises(InvalidFilter, match="must be at the top, or in"):
        words | (F("a") == 1)
    for pipeline in (
        [{"$project": {"t": 1}}, {"$match": TEA}],
        [{"$lookup": {"from": "x", "pipeline": [{"$match": TEA}], "as": "y"}}],
    ):
        with pytest.raises(InvalidPipeline, match="must be in the first stage"):
            things.aggregate(pipeline)
    with pytest.raises(InvalidIndex):
        things.create_index("a", where=TEA)
    with pytest.raises(InvalidFilter, match="must be at the top of a filter"):
        matches(words, Document("1", {}))
