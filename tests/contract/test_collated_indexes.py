"""Indexes under a collation: which queries they serve, what a unique one refuses, and what becomes of them.

The locale "simple" needs no ICU.
"""

import asyncio
import sqlite3
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from hypothesis import given, settings
from hypothesis import strategies as st

from collections_store import (
    AsyncStore,
    BulkWriteError,
    DuplicateKey,
    Filter,
    IndexExists,
    InvalidIndex,
    InvalidOption,
    InvalidPipeline,
    MissingExtra,
    Sort,
    Store,
    UpdateOne,
)
from collections_store.errors import SchemaOutdated
from collections_store.expressions import collation as collations
from collections_store.query.matcher import matches
from collections_store.sql.dialects.sqlite.filters import functions

CASE = {"locale": "simple", "strength": 2}
LETTERS = {"locale": "simple", "strength": 1}
GERMAN = {"locale": "de", "strength": 2}
SCRIPTS = st.text("aAbB\u00e4\u00c4e\u0301\u00c9\u00dfsS\u0439\u0419\u0438\u03c3\u03c2\u03a3\u4e2d\ud55c\u05b0\u0e31 1", max_size=4)  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3) | SCRIPTS  # fmt: skip
WORDS = ["Zoo", "\u00c4pfel", "apfel", "zoo", "APFEL"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "things.db"


def open_again(backend: Backend) -> Store:
    return Store(backend.url, **backend.options)


@pytest.fixture
def by_index(shared_backend: Backend) -> Backend:
    """A database that reads a table as a whole only where nothing else is possible: small tables, too."""
    if not shared_backend.is_postgresql:
        return shared_backend
    url = sa.make_url(shared_backend.url)
    url = url.update_query_dict({"options": "-cenable_seqscan=off"})
    return replace(shared_backend, url=url.render_as_string(hide_password=False))


@pytest.fixture
def store(by_index: Backend) -> Iterator[Store]:
    with open_again(by_index) as store:
        yield store


@pytest.fixture
def in_file(path: Path) -> Iterator[Any]:
    """The words in an SQLite file."""
    with Store(f"sqlite:///{path}") as store:
        yield filled(store)


@pytest.fixture
def words(store: Store) -> Any:
    return filled(store)


def filled(store: Any, name: str = "things") -> Any:
    things = store[name]
    things.put_many({str(n): {"w": word, "n": n % 2} for n, word in enumerate(WORDS)})
    return things


def ids(documents: Any) -> list[str]:
    return [each.id for each in documents]


@pytest.mark.parametrize("collation", [CASE, None])
def test_a_hint_gives_the_order_of_the_index(words: Any, collation: Any) -> None:
    words.create_index([("n", 1), ("w", -1)], name="both", collation=CASE)
    options = {"hint": "both", "collation": collation}
    assert "".join(ids(words.find(**options))) == "02431"
    assert "".join(ids(words.find(limit=4, **options))) == "0243"
    assert "".join(ids(words.find({"n": 1}, **options))) == "31"
    assert words.explain(**options).order == "index"
    words.put("list", {"n": 1, "w": ["apfel", "zoo"]})
    assert ids(words.find({"n": 1}, **options)) == ["3", "list", "1"]


def test_which_queries_an_index_serves(words: Any) -> None:
    assert words.create_index("w", collation=CASE) == "w_1"
    equal, some = {"w": "ZOO"}, {"w": {"$in": ["APFEL", "ZOO"]}}
    for filter, found in ((equal, "03"), (some, "0234"), ({"w": {"$gt": "apfel"}}, "013")):
        plan = words.explain(filter, collation=CASE)
        assert (plan.indexes, plan.scans, plan.in_matcher) == (("w_1",), False, None)
        assert "".join(ids(words.find(filter, collation=CASE))) == found
        assert "".join(ids(words.stream(filter, collation=CASE))) == found
        assert words.count(filter, collation=CASE) == len(found)
    for other in (None, LETTERS, {"locale": "simple"}):
        plan = words.explain(equal, collation=other)
        assert (plan.indexes, plan.scans) == ((), True)
    assert ids(words.find(equal)) == []
    assert ids(words.find({"w": "apfel"}, collation=LETTERS)) == ["1", "2", "4"]


@pytest.mark.parametrize("other", [CASE, LETTERS, None])
def test_an_index_serves_all_but_strings_under_any_collation(
    words: Any, by_index: Backend, other: Any
) -> None:
    words.create_index([("n", 1), ("w", 1)], collation=CASE)
    words.put_many({"5": {"n": None}, "6": {"w": "x"}, "7": {"n": True}, "8": {"n": "1"}})
    for condition, found in (
        (1, "13"), (None, "56"), (True, "7"), ({"$in": [1, None, False]}, "1356"),
        ({"$gt": 0}, "13"), ({"$gte": 0, "$lt": 1}, "024"),
    ):  # fmt: skip
        plan = words.explain({"n": condition}, collation=other)
        used = (plan.indexes, plan.scans) == (("n_1_w_1",), False)
        assert used or (by_index.is_postgresql and isinstance(condition, dict))  # planners differ
        assert plan.in_matcher is None
        assert "".join(ids(words.find({"n": condition}, collation=other))) == found
        assert words.count({"n": condition}, collation=other) == len(found)
    for strings in ({"n": "1"}, {"n": {"$in": [5, "1"]}}, {"n": {"$regex": "^1"}}):
        plan = words.explain(strings, collation=other)
        assert plan.scans is (other != CASE or "$regex" in str(strings))
        assert ids(words.find(strings, collation=other)) == ["8"]
    words.put("9", {"n": [1, "a"]})
    assert ids(words.find({"n": 1}, collation=other)) == ["1", "3", "9"]


def test_an_index_with_the_collation_of_a_sort_serves_its_filter(words: Any) -> None:
    words.create_index([("n", 1), ("w", 1)], collation=CASE)
    words.create_index("n", name="plain")
    for filter, sort, found in (({"n": 0}, "w", "240"), ({"n": {"$gte": 0}}, "n", "02413")):
        plan = words.explain(filter, sort=sort, limit=9, collation=CASE)
        assert (plan.indexes, plan.order) == (("n_1_w_1",), "index")
        assert "".join(ids(words.find(filter, sort=sort, limit=9, collation=CASE))) == found
    assert words.explain({"n": 0}, collation=CASE).indexes == ("plain",)
    assert words.explain({"n": 0}, sort="w", limit=9, collation=LETTERS).order == "python"


def test_an_order_of_an_index(words: Any) -> None:
    words.create_index([("w", -1), ("n", 1)], collation=CASE)
    words.put("5", {"w": 5})
    order = {"w": -1, "n": 1}
    plan = words.explain({}, sort=order, limit=2, collation=CASE)
    assert (plan.indexes, plan.order, plan.scans) == (("w_-1_n_1",), "index", False)
    assert ids(words.find(sort=order, collation=CASE)) == ["0", "3", "1", "2", "4", "5"]
    pages: list[list[str]] = []
    cursor = None
    while True:
        page = words.page(sort=order, limit=2, after=cursor, collation=CASE)
        pages.append(ids(page))
        cursor = page.cursor
        if cursor is None:
            break
    assert pages == [["0", "3"], ["1", "2"], ["4", "5"]]
    assert ids(words.stream(sort=order, collation=CASE)) == ["0", "3", "1", "2", "4", "5"]
    assert words.explain({}, sort=order, collation=LETTERS).order == "python"
    within = words.explain({"w": "ZOO"}, sort={"n": 1}, limit=1, collation=CASE)
    assert (within.indexes, within.order) == (("w_-1_n_1",), "index")
    compound = {"w": "ZOO", "n": 1}
    assert ids(words.find(compound, collation=CASE)) == ["3"]
    assert "value" not in str(words.explain(compound, collation=CASE).in_matcher)
    assert words.explain({}, sort="$id", collation=CASE).order == "python"


def test_arrays_and_objects(words: Any) -> None:
    words.create_index("w", collation=CASE)
    words.put("5", {"w": ["x", "zOO"]})
    words.put("6", {"w": {"a": "b"}})
    plan = words.explain({"w": "ZOO"}, collation=CASE)
    assert (plan.indexes, plan.arrays, str(plan.in_matcher)) == (("w_1",), True, "{'w': 'ZOO'}")
    assert ids(words.find({"w": "ZOO"}, collation=CASE)) == ["0", "3", "5"]
    assert ids(words.find({"w": {"a": "B"}}, collation=CASE)) == ["6"]
    words.put("7", {"w": ["other"]})
    assert words.count({"w": "ZOO"}, collation=CASE) == 3
    counting: Any = [{"$match": {"w": "ZOO"}}, {"$count": "n"}]
    assert words.aggregate(counting, collation=CASE) == [{"n": 3}]
    counted = words.explain_aggregate(counting, collation=CASE)
    assert (counted.in_database, counted.in_python) == ((), ("$match", "$count"))
    words.remove("7")
    assert ids(words.find(sort="w", collation=CASE)) == ["2", "4", "1", "5", "0", "3", "6"]


def test_writes_by_an_index(words: Any) -> None:
    words.create_index("w", collation=CASE)
    result = words.update_many({"w": "ZOO"}, {"$set": {"seen": True}}, collation=CASE)
    assert result.modified_count == 2
    assert words.update_one({"w": "ZOO"}, {"$set": {"w": "Bus"}}, collation=CASE).matched_count
    assert ids(words.find({"w": "BUS"}, collation=CASE)) == ["0"]
    assert words.delete_many({"w": "apFEL"}, collation=CASE).deleted_count == 2
    assert ids(words.find({"w": {"$gte": "a"}}, collation=CASE)) == ["0", "1", "3"]


def test_a_unique_index(words: Any) -> None:
    with pytest.raises(DuplicateKey) as refused:
        words.create_index("w", unique=True, collation=CASE)
    assert refused.value.id in {"3", "4"}
    words.delete_many({"$id": {"$in": ["3", "4"]}})
    words.create_index("w", unique=True, collation=CASE)
    writes: Any = (
        lambda: words.put("9", {"w": "ZOO"}),
        lambda: words.insert_one({"w": "zOO"}, id="9"),
        lambda: words.put_many({"9": {"w": "APFEL"}}, atomic=True),
        lambda: words.update_one({"$id": "0"}, {"$set": {"w": "aPFEL"}}),
    )
    for write in writes:
        with pytest.raises(DuplicateKey) as refused:
            write()
        assert (refused.value.index, refused.value.id) in {("w_1", "9"), ("w_1", "0")}
        assert str(refused.value.key["w"]).casefold() in {"zoo", "apfel"}
    words.put("0", {"w": "ZOO"})
    words.put("5", {"w": {"a": ["B"]}})
    with pytest.raises(DuplicateKey):
        words.put("6", {"w": {"a": ["b"]}})
    words.put("7", {"w": {"A": ["b"]}})
    words.put_many({"8": {"w": [1e16]}, "9": {"w": [10**16]}})  # as an index without a collation
    with pytest.raises(BulkWriteError) as some:
        words.put_many({"10": {"w": "one"}, "11": {"w": "ONE"}, "12": {"w": "two"}})
    [refusal] = some.value.result.refused
    assert (refusal.id, type(refusal.error)) == ("11", DuplicateKey)


def test_a_sparse_unique_index(words: Any) -> None:
    words.delete_many({})
    words.create_index("w", unique=True, sparse=True, collation=CASE)
    words.put_many({"1": {"n": 1}, "2": {"n": 2}, "3": {"w": "a"}})
    with pytest.raises(DuplicateKey):
        words.put("4", {"w": "A"})
    assert words.explain({"w": "A"}, collation=CASE).indexes == ("w_1",)
    assert ids(words.find({"w": "A"}, collation=CASE)) == ["3"]


@pytest.mark.parametrize("where", [{"open": True}, {"open": {"$type": "bool"}, "n": {"$gte": 0}}])
def test_a_partial_index(words: Any, where: Any) -> None:
    words.create_index("w", unique=True, where=where, collation=CASE)
    assert words.indexes()[0].collation.to_json() == CASE
    words.put_many({"5": {"w": "Bus", "open": True, "n": 0}, "6": {"w": "BUS", "n": 0}})
    writes: Any = (
        lambda: words.put("7", {"w": "bUS", "open": True, "n": 1}),
        lambda: words.update_one({"$id": "6"}, {"$set": {"open": True}}),
    )
    for write in writes:
        with pytest.raises(DuplicateKey) as refused:
            write()
        assert refused.value.index == "w_1"
    plan = words.explain({"w": "bus", **where}, collation=CASE)
    assert (plan.indexes, plan.scans, plan.in_matcher) == (("w_1",), False, None)
    assert ids(words.find({"w": "bus", **where}, collation=CASE)) == ["5"]
    for rules in (CASE, LETTERS):
        assert ids(words.find({"w": "bus"}, collation=rules)) == ["5", "6"]
    assert words.explain({"w": "bus"}, collation=CASE).scans
    assert words.explain({"w": "bus", **where}, collation=LETTERS).indexes == ()
    with pytest.raises(InvalidOption, match="partial"):
        words.find({"w": "bus"}, collation=CASE, hint="w_1")


def test_conflicts(words: Any) -> None:
    words.create_index("w", collation=CASE)
    assert words.create_index("w", collation=CASE) == "w_1"
    for other in (None, LETTERS):
        with pytest.raises(IndexExists, match="w_1"):
            words.create_index("w", collation=other)
    assert words.create_index("w", name="plain") == "plain"
    assert words.create_index("w", collation=LETTERS, name="letters") == "letters"
    with pytest.raises(IndexExists):
        words.create_index("w", collation=LETTERS, name="again")
    for options, index in (({}, "plain"), ({"collation": LETTERS}, "letters")):
        assert words.explain({"w": "x"}, **options).indexes == (index,)
    assert [str(each.collation and each.collation.to_json()) for each in words.indexes()] == [
        str(CASE), "None", str(LETTERS),
    ]  # fmt: skip
    assert words.drop_index("w_1")
    assert words.create_index("w", collation=LETTERS, name="letters") == "letters"
    assert words.explain({"w": "x"}, collation=CASE).indexes == ()


@pytest.mark.parametrize(
    "options",
    [
        {"arrays": True},
        {"where": {"n": "1"}},
        {"where": {"n": {"$in": [1, "1"]}}},
        {"where": {"n": 1, "w": {"$gte": "a"}}},
        {"expire_after_seconds": 0},
    ],
)
def test_what_does_not_go_with_a_collation(words: Any, options: Any) -> None:
    with pytest.raises(InvalidIndex, match="collation"):
        words.create_index("w", collation=CASE, **options)


def test_refusals(words: Any) -> None:
    with pytest.raises(InvalidIndex):
        words.create_index("w.$**", collation=CASE)
    with pytest.raises(InvalidIndex, match="must have a field of the body"):
        words.create_index("$created_at", collation=CASE)
    with pytest.raises(InvalidOption):
        words.create_index("w", collation={"locale": "simple", "strength": 3})
    assert words.create_index("w", collation={"locale": "simple"}) == "w_1"
    assert words.indexes()[0].collation is None


def test_a_merge_matches_by_an_index_with_its_collation(store: Store, words: Any) -> None:
    sums = store["sums"]
    sums.create_index("w", unique=True, collation=CASE)
    sums.put("old", {"w": "ZOO", "n": 10})
    for options in ({}, {"collation": LETTERS}):
        with pytest.raises(InvalidPipeline, match="requires .*unique index"):
            words.aggregate([{"$merge": {"into": "sums", "on": "w"}}], **options)
    grouped = {"$group": {"_id": "$w", "w": {"$first": "$w"}, "n": {"$sum": 1}}}
    merge: Any = {"into": "sums", "on": "w", "whenMatched": "merge"}
    steps = [grouped, {"$unset": "_id"}, {"$merge": merge}]
    words.aggregate(steps, collation=CASE)
    found = {(each.body["w"], each.body["n"]) for each in sums.find({})}
    assert found == {("Zoo", 2), ("\u00c4pfel", 1), ("apfel", 2)}
    assert sums.get("old") == {"w": "Zoo", "n": 2}
    merge["whenMatched"] = [{"$set": {"same": {"$eq": ["$w", "ZOO"]}}}]
    words.aggregate(steps, collation=CASE)
    assert sums.get("old") == {"w": "Zoo", "n": 2, "same": True}
    assert sums.count({"same": False}) == 2
    with pytest.raises(InvalidPipeline, match="the ids have none"):
        words.aggregate([{"$merge": "sums"}], collation=CASE)


def test_a_hint(words: Any) -> None:
    words.create_index("w", collation=CASE)
    words.create_index("n")
    for hint in ("w_1", "n_1", {"$natural": 1}):
        assert ids(words.find({"w": "ZOO"}, hint=hint, collation=CASE)) == ["0", "3"]
        assert ids(words.find({"w": "Zoo"}, hint=hint)) == ["0"]
        assert sorted(ids(words.find({"n": 1}, hint=hint, limit=5))) == ["1", "3"]
    assert words.explain({"w": "ZOO"}, hint="w_1", collation=CASE).indexes == ("w_1",)


def test_explain_advises_a_hidden_index_with_the_collation_of_the_query(words: Any) -> None:
    words.create_index([("w", 1), ("n", -1)], name="both", collation=CASE, hidden=True)
    for filter, options in (
        ({"w": "ZOO"}, {}),
        ({"w": "ZOO"}, {"sort": {"n": -1}}),
        ({}, {"sort": "w"}),
    ):
        plan = words.explain(filter, collation=CASE, **options)
        assert plan.advice == "unhide_index('both')"
    assert words.explain({"w": "ZOO"}, collation=LETTERS).advice is None
    assert words.explain({"w": "ZOO"}).advice == "create_index('w')"
    words.create_index("w", name="shown", collation=CASE)
    assert words.explain({"w": {"$ne": "zoo"}}, collation=CASE).advice is None
    words.unhide_index("both")
    assert words.explain({}, sort={"w": 1, "n": -1}, collation=CASE).advice is None


def test_a_hint_of_keys_takes_the_index_with_the_collation_of_the_query(words: Any) -> None:
    every = [("case", CASE), ("letters", LETTERS), ("plain", None)]
    for name, rules in every:
        words.create_index("w", name=name, collation=rules)
    for name, rules in every:
        plan = words.explain({"w": "ZOO"}, hint={"w": 1}, collation=rules)
        assert plan.indexes == (name,)
        hinted = UpdateOne({"w": "ZOO"}, {"$inc": {"n": 2}}, hint={"w": 1}, collation=rules)
        words.bulk_write([hinted])
    assert [each.body["n"] for each in words.find({"w": "zoo"}, collation=CASE)] == [4, 1]
    words.hide_index("letters")
    assert words.explain({"w": "ZOO"}, hint={"w": 1}, collation=LETTERS).scans
    assert ids(words.find({"w": "APFEL"}, hint={"w": 1}, collation=LETTERS)) == ["2", "4", "1"]
    with pytest.raises(InvalidOption, match="letters is hidden"):
        words.find({"w": "ZOO"}, hint="letters", collation=LETTERS)


def test_groups_and_distinct_do_not_read_keys(words: Any) -> None:
    words.create_index("w", collation=CASE)
    counts = words.aggregate([{"$sortByCount": "$w"}])
    assert sorted(each["_id"] for each in counts) == sorted(WORDS)
    assert words.distinct("w") == sorted(WORDS)
    assert words.distinct("w", collation=CASE) == ["apfel", "\u00c4pfel", "Zoo"]


def test_a_transaction(store: Store, by_index: Backend, words: Any) -> None:
    with store.transaction() as tx:
        if by_index.is_postgresql:  # keys are written for the documents that the transaction sees
            with pytest.raises(InvalidIndex, match="outside of the transaction"):
                tx["things"].create_index("w", collation=CASE)
        things = filled(tx, "new")
        things.create_index("w", collation=CASE)
        things.put("9", {"w": "zOo"})
        assert ids(things.find({"w": "ZOO"}, collation=CASE)) == ["0", "3", "9"]
    assert store["new"].explain({"w": "ZOO"}, collation=CASE).indexes == ("w_1",)
    assert words.indexes() == []


def test_an_async_store(shared_backend: Backend) -> None:
    asyncio.run(use_async_store(shared_backend))


async def use_async_store(backend: Backend) -> None:
    async with AsyncStore(backend.url, **backend.options) as store:
        things = store["things"]
        await things.create_index("w", unique=True, collation=CASE)
        await things.put("1", {"w": "Zoo"})
        with pytest.raises(DuplicateKey):
            await things.put("2", {"w": "ZOO"})
        assert [each.id for each in await things.find({"w": "ZOO"}, collation=CASE)] == ["1"]


def test_a_renamed_and_a_copied_collection(store: Store, words: Any, tmp_path: Path) -> None:
    words.create_index("w", unique=False, collation=CASE)
    store.rename("things", "others")
    others = store["others"]
    others.put("9", {"w": "ZoO"})
    with Store(f"sqlite:///{tmp_path / 'copy.db'}") as target:
        store.copy_to(target)
        for each in (others, target["others"]):
            assert each.explain({"w": "ZOO"}, collation=CASE).indexes == ("w_1",)
            assert ids(each.find({"w": "ZOO"}, collation=CASE)) == ["0", "3", "9"]


def test_a_backup(store: Store, words: Any, tmp_path: Path) -> None:
    words.create_index("w", collation=CASE)
    store.backup(tmp_path / "backup.jsonl")
    with Store(f"sqlite:///{tmp_path / 'backup.db'}") as backup:
        backup.restore(tmp_path / "backup.jsonl")
        backup["things"].put("9", {"w": "ZoO"})
        assert backup["things"].explain({"w": "ZOO"}, collation=CASE).indexes == ("w_1",)
        assert ids(backup["things"].find({"w": "ZOO"}, collation=CASE)) == ["0", "3", "9"]


def test_the_file_stays_whole(in_file: Any, path: Path) -> None:
    in_file.create_index("w", collation=CASE)
    in_file.update_many({}, {"$set": {"w": "Neu"}})
    in_file.delete_many({"n": 1})
    with closing(sqlite3.connect(path)) as other:
        for name, arguments, function in functions():
            other.create_function(name, arguments, function, deterministic=True)
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_other_programs_read_and_cannot_write(in_file: Any, path: Path) -> None:
    in_file.create_index("w", collation=CASE)
    table = "cs_1_things"
    with closing(sqlite3.connect(path)) as other:
        [(count,)] = other.execute(f"SELECT count(*) FROM {table} WHERE body LIKE '%oo%'")
        assert count == 2
        with pytest.raises(sqlite3.OperationalError, match="collections_store_key"):
            other.execute(f"UPDATE {table} SET body = '{{}}'")


# -- keys and documents -------------------------------------------------------------------------


def test_strings_longer_than_the_beginning_in_a_column(store: Store) -> None:
    things, long = store["things"], "\u00e4" * 150
    things.create_index("w", collation=CASE)
    bodies = [f"{long}{end}" for end in "bBaAcC"] + ["z", long.upper()]
    things.put_many({str(n): {"w": word} for n, word in enumerate(bodies)})
    in_order = ["7", "2", "3", "0", "1", "4", "5", "6"]
    assert ids(things.find({"w": {"$gte": "\u00c4"}}, sort="w", collation=CASE)) == in_order
    assert ids(things.find({"w": f"{long}B"}, collation=CASE)) == ["0", "1"]
    assert things.count({"w": {"$in": [f"{long}A", "Z"]}}, collation=CASE) == 3
    cursor, paged = None, []
    while True:
        page = things.page(sort={"w": -1}, limit=2, after=cursor, collation=CASE)
        paged += ids(page)
        if (cursor := page.cursor) is None:
            break
    assert paged == ["6", "4", "5", "0", "1", "2", "3", "7"]
    things.drop_index("w_1")
    things.delete_many({"$id": {"$in": ["1", "3", "5"]}})
    things.create_index("w", unique=True, collation=CASE)
    with pytest.raises(DuplicateKey):
        things.put("9", {"w": f"{long.upper()}C"})
    things.put("9", {"w": f"{long}d"})


def test_every_document_gets_keys(store: Store) -> None:
    things = store["things"]
    things.put_many({f"{n:04}": {"w": f"Word {n}"} for n in range(450)})
    things.put("expired", {"w": "x"}, ttl=0.001)
    things.create_index("w", collation=CASE, unique=True)
    assert things.explain({"w": "word 449"}, collation=CASE).indexes == ("w_1",)
    for n in (0, 199, 200, 449):
        assert ids(things.find({"w": f"WORD {n}"}, collation=CASE)) == [f"{n:04}"]
    with pytest.raises(DuplicateKey) as refused:
        things.put("0000", {"w": "wORD 449"})
    assert (refused.value.index, refused.value.id) == ("w_1", "0000")


def test_writes_of_all_kinds(store: Store, words: Any) -> None:
    words.create_index("w", collation=CASE)
    words.create_index("a.b", collation=LETTERS)
    assert words.increment("0", "n", 5) == 5
    assert words.increment("new", "a.b") == 1
    words.update_one({"$id": "up"}, {"$set": {"w": "ZOO"}}, upsert=True)
    words.update_many({"w": "zoo"}, {"$set": {"a": {"b": "\u00c4"}}}, collation=CASE)
    words.update_one({"$id": "1"}, [{"$set": {"a.b": {"$concat": ["a", ""]}}}])
    words.find_one_and_update({"$id": "2"}, {"$set": {"a.b": "A"}})
    with store.transaction() as tx:
        tx["things"].put_many({"t": {"a": {"b": "a\u0301"}, "w": "t"}})
    found = sorted(ids(words.find({"a.b": "a"}, collation=LETTERS)))
    assert found == ["0", "1", "2", "3", "t", "up"]
    assert sorted(ids(words.find({"w": "ZOO"}, collation=CASE))) == ["0", "3", "up"]
    assert words.delete_many({"a.b": "A"}, collation=LETTERS).deleted_count == 6
    assert words.count({"a.b": {"$gte": ""}}, collation=LETTERS) == 0


# -- Python without the tables of the keys -----------------------------------------------------


def deletions(things: Any, backend: Backend) -> tuple[Any, ...]:
    """Return the deletions for which keys are made: by SQLite, which looks for the entries of the index."""
    if backend.is_postgresql:
        return ()
    return lambda: things.delete_many({}), lambda: things.remove("1")


def newer_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unicodedata, "unidata_version", "99.0.0")


def test_keys_of_another_version(
    words: Any, by_index: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    words.create_index("w", collation=CASE)
    newer_unicode(monkeypatch)
    with open_again(by_index) as newer:
        things = newer["things"]
        plan = things.explain({"w": "ZOO"}, collation=CASE)
        assert (plan.indexes, plan.scans) == ((), True)
        assert ids(things.find({"w": "ZOO"}, sort="w", collation=CASE)) == ["0", "3"]
        for write in (
            lambda: things.put("9", {"w": "x"}),
            lambda: things.put_many({"9": {"w": "x"}}),
            lambda: things.insert_one({"w": "x"}),
            lambda: things.update_many({}, {"$set": {"w": "x"}}),
            *deletions(things, by_index),
        ):
            with pytest.raises(SchemaOutdated, match="index 'w_1' of 'things' has keys of unicode"):
                write()
        with newer.transaction() as tx:
            with pytest.raises(SchemaOutdated, match="until the index is dropped"):
                tx["things"].put("9", {"w": "x"})
            tx["others"].put("1", {})
        assert newer["others"].count() == 1
        things.put("9", {"n": "no string"})
        assert things.drop_index("w_1")
        things.create_index("w", collation=CASE)
        assert things.explain({"w": "ZOO"}, collation=CASE).indexes == ("w_1",)
        things.put("9", {"w": "zOO"})
        assert ids(things.find({"w": "ZOO"}, collation=CASE)) == ["0", "3", "9"]


def test_without_icu(words: Any, by_index: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("icu")
    words.create_index("w", collation=GERMAN)
    assert words.explain({"w": "ZOO"}, collation=GERMAN).indexes == ("w_1",)
    monkeypatch.setitem(sys.modules, "icu", None)
    collations._key_function.cache_clear()
    with open_again(by_index) as without:
        things = without["things"]
        assert str(things.indexes()[0]) == f"w_1: {{'w': 1}}, collation {GERMAN}"
        assert ids(things.find({"w": "zoo"})) == ["3"]
        assert ids(things.find({"w": "ZOO"}, collation=CASE)) == ["0", "3"]
        for write in (
            lambda: things.put("9", {"w": "x"}),
            lambda: things.put_many({"9": {"w": "x"}}),
            *deletions(things, by_index),
        ):
            with pytest.raises(MissingExtra, match=r"collation\]'; the index 'w_1' of 'things'"):
                write()
        assert things.drop_index("w_1")
        things.put("9", {"w": "x"})


def test_options_with_the_values_of_the_locale(words: Any) -> None:
    pytest.importorskip("icu")
    spelled, short = {**GERMAN, "caseLevel": False, "alternate": "non-ignorable"}, GERMAN
    words.create_index("w", collation=spelled)
    assert words.create_index("w", collation=short) == "w_1"
    assert words.indexes()[0].collation.to_json() == short
    for rules in (spelled, short):
        assert words.explain({"w": "ZOO"}, collation=rules).indexes == ("w_1",)
    page = words.page(sort="w", limit=2, collation=spelled)
    assert ids(words.page(sort="w", limit=2, after=page.cursor, collation=short)) == ["1", "0"]


def test_an_index_and_a_cursor_of_a_version_that_stored_all_options(
    by_index: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("icu")
    spelled = {"locale": "de", "strength": 3}
    monkeypatch.setattr(collations, "_without_defaults", lambda _, options: options)
    with open_again(by_index) as old:
        old["things"].put_many({str(n): {"w": word} for n, word in enumerate(WORDS)})
        old["things"].create_index("w", unique=True, collation=spelled)
        index: Any = old["things"].indexes()[0]
        assert "tertiary" in index.key_name
        cursor = old["things"].page(sort="w", limit=2, collation=spelled).cursor
    monkeypatch.undo()
    with open_again(by_index) as new:
        things = new["things"]
        assert things.create_index("w", unique=True, collation={"locale": "de"}) == "w_1"
        for rules in (spelled, {"locale": "de"}):
            assert things.explain({"w": "Zoo"}, collation=rules).indexes == ("w_1",)
            assert things.explain({}, sort="w", limit=2, collation=rules).order == "index"
            assert ids(things.find({"w": {"$gte": "zoo"}}, sort="w", collation=rules)) == ["3", "0"]
        assert ids(things.page(sort="w", limit=2, after=cursor, collation=spelled)) == ["1", "3"]
        with pytest.raises(DuplicateKey):
            things.put("9", {"w": "Zoo"})


def test_a_restore_makes_the_keys_again(
    store: Store, words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words.create_index("w", collation=CASE)
    store.backup(tmp_path / "backup.jsonl.gz")
    newer_unicode(monkeypatch)
    with Store(f"sqlite:///{tmp_path / 'restored.db'}") as restored:
        restored.restore(tmp_path / "backup.jsonl.gz")
        assert restored["things"].explain({"w": "ZOO"}, collation=CASE).indexes == ("w_1",)
        restored["things"].put("9", {"w": "zOO"})
        assert ids(restored["things"].find({"w": "ZOO"}, collation=CASE)) == ["0", "3", "9"]


@pytest.mark.parametrize("strength", [1, 2])
@given(
    st.lists(TEXTS, max_size=8),
    st.lists(TEXTS, min_size=1, max_size=4),
)
@settings(max_examples=40)
def test_an_index_finds_what_the_matcher_finds(
    strength: int, words: list[str], wanted: list[str]
) -> None:
    rules = {"locale": "simple", "strength": strength}
    collation = collations.Collation.parse(rules)
    with Store("sqlite://") as store:
        things = store["things"]
        things.put_many((str(n), {"w": word}) for n, word in enumerate(words))
        things.create_index("w", collation=rules)
        every = things.list()
        for filter in ({"w": {"$in": wanted}}, {"w": wanted[0]}, {"w": {"$lte": wanted[0]}}):
            parsed = Filter.parse(filter).collated(collation)
            assert things.explain(filter, collation=rules).indexes == ("w_1",)
            found = things.find(filter, collation=rules)
            assert found == [each for each in every if matches(parsed, each)]
            order = Sort.parse("w").collated(collation)
            in_order = sorted(found, key=order.key)
            assert things.find(filter, sort="w", collation=rules) == in_order


MIXED = st.sampled_from(["a", "A", "a", "A", "\u00e4", "b", 1, 2, True, None, ["A", 1], {"a": "A"}])


@given(
    st.lists(st.fixed_dictionaries({"n": MIXED, "w": MIXED}), min_size=3, max_size=6),
    st.sampled_from([CASE, LETTERS, None]),
    st.fixed_dictionaries({"n": st.sampled_from(["A", 1, None, {"$gte": "A"}, {"$lte": 1}])}),
)
@settings(max_examples=100)
def test_an_index_finds_what_the_matcher_finds_under_any_collation(
    bodies: list[Any], rules: Any, filter: Any
) -> None:
    collation = collations.Collation.parse(rules)
    parsed = Filter.parse(filter).collated(collation)
    with Store("sqlite://") as store:
        things = store["things"]
        things.put_many((str(n), body) for n, body in enumerate(bodies))
        things.create_index(["n", "w"], collation=CASE)
        matched = [each for each in things.list() if matches(parsed, each)]
        assert things.find(filter, collation=rules) == matched
        for fields in (["w"], ["n", "w"]):
            order = Sort.parse(fields).collated(collation)
            found = things.find(filter, sort=fields, collation=rules)
            assert found == sorted(matched, key=order.key)


@pytest.mark.each_backend
def test_explain_advises_no_index_of_numbers_beside_a_collated_one(things: Any) -> None:
    numbers = {"n": {"$gt": 5}}
    things.create_index("n", collation=CASE)
    things.put_many((str(n), {"n": n, "q": -n}) for n in range(10))
    for sort, collation in ((None, None), ("q", CASE)):
        assert things.explain(numbers, sort=sort, collation=collation).advice is None
    assert things.explain({"n": "a"}).advice == "create_index('n', name='n_1_2')"
    things.hide_index("n_1")
    assert things.explain(numbers).advice == "unhide_index('n_1')"


@pytest.mark.each_backend
def test_an_index_beside_one_with_keys_of_another_version(
    words: Any, by_index: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    words.create_index("w", collation=CASE)
    newer_unicode(monkeypatch)
    with open_again(by_index) as newer:
        things = newer["things"]
        if by_index.is_postgresql:  # the keys of all indexes are in one column
            refused = "index 'w_1' of 'things' .* until the index is dropped and created again"
            with pytest.raises(SchemaOutdated, match=refused):
                things.create_index("v", collation=CASE)
            assert things.drop_index("w_1")
        assert things.create_index("v", collation=CASE) == "v_1"
        assert things.explain({"v": "ZOO"}, collation=CASE).indexes == ("v_1",)
