"""Vector indexes: what `nearest` finds after every kind of write, on both databases, sync and async."""

import logging
import math
import random
import struct
import sys
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from backends import Backend
from conftest import Clock
from psycopg import sql

from collections_store import (
    F,
    IndexExists,
    InvalidIndex,
    InvalidOption,
    InvalidSearch,
    MissingExtra,
    SearchResult,
    Store,
    Unindexed,
    UnknownField,
    UpdateOne,
    VectorIndex,
)
from collections_store.operations.vectors import (
    FindVectorIndex,
    ReadWaiting,
    StoreVectors,
    packed,
)
from collections_store.search.claims import Claim

pytestmark = pytest.mark.each_backend


@dataclass
class Point:
    at: list[float]


def found(things: Any, query: Any, k: int = 10, **options: Any) -> list[str]:
    return [each.id for each in things.nearest(query, k, **options)]


def at(*numbers: float) -> dict[str, list[float]]:
    return {"at": list(numbers)}


@pytest.fixture
def points(things: Any) -> Any:
    things.create_vector_index("at", dimensions=2, metric="l2")
    things.put_many({"one": at(1, 0), "two": at(2, 0), "ten": at(10, 0)})
    return things


def test_an_index_is_created_once_listed_and_dropped(things: Any) -> None:
    for _ in range(2):
        assert things.create_vector_index("at", dimensions=2) == "at_vector"
    with pytest.raises(IndexExists, match="'at_vector'"):
        things.create_vector_index("at", dimensions=3)
    with pytest.raises(IndexExists, match="'other'"):
        things.create_vector_index("at", dimensions=2, name="other")
    name = things.create_vector_index(["a.b", "c"], dimensions=3, metric="dot", name="second")
    assert things.create_index("at") == "at_1"
    assert [str(each) for each in things.indexes()] == [
        "at_1: {'at': 1}",
        "at_vector: {'at': 2}, cosine",
        "second: {'a.b': 3, 'c': 3}, dot",
    ]
    assert [things.drop_index(name), things.drop_index(name)] == [True, False]
    assert things.drop_index("at_vector") is True
    with pytest.raises(InvalidSearch, match="create_vector_index"):
        things.nearest([1, 2])


@pytest.mark.parametrize(
    ("fields", "options", "culprit"),
    [
        ([], {}, "1 to 8"),
        (["a", "a"], {}, "different"),
        ("$id", {}, r"'\$id'.*field of the body"),
        ("a", {"dimensions": 0}, "dimensions.*got 0"),
        ("a", {"dimensions": True}, "dimensions.*got True"),
        ("a", {"metric": "euclid"}, "metric.*cosine, l2, dot.*'euclid'"),
        ("a", {"name": ""}, "name"),
        ("a", {"name": "$i"}, "name"),
        ("a", {"embed": 5}, "embed.*got 5"),
        ("a", {"embed": len}, "model"),
        ("a", {"embed": len, "model": "m", "chunks": 0}, "chunks"),
        ("a", {"chunks": 30}, "chunks.*goes with embed= alone"),
    ],
)
def test_invalid_indexes(things: Any, fields: Any, options: Any, culprit: str) -> None:
    with pytest.raises(InvalidIndex, match=culprit):
        things.create_vector_index(fields, **{"dimensions": 2, **options})
    assert things.indexes() == []


def test_the_nearest_come_first_and_equal_ones_by_id(points: Any) -> None:
    points.put_many({"b": at(0, 3), "a": at(3, 0), "c": at(0, -3)})
    assert found(points, [0, 0]) == ["one", "two", "a", "b", "c", "ten"]
    assert found(points, [0, 0], 4) == ["one", "two", "a", "b"]
    [best] = points.nearest([0, 0], 1)
    assert best == SearchResult(points.document("one"), -1.0, {}, "at")


@pytest.mark.parametrize(
    ("metric", "scores"), [("cosine", [1.0, 0.0, -1.0]), ("dot", [2.0, 0.0, -3.0])]
)
def test_scores(things: Any, metric: Any, scores: list[float]) -> None:
    things.create_vector_index("at", dimensions=2, metric=metric)
    things.put_many({"a": at(2, 0), "b": at(0, 5), "c": at(-3, 0)})
    assert [each.score for each in things.nearest([1, 0])] == scores
    assert found(things, [1, 0], min_score=0) == ["a", "b"]


def test_filters_and_prefixes_of_ids_come_first(points: Any) -> None:
    points.put_many({f"x/{n}": {**at(n, 0), "n": n} for n in range(20)})
    assert found(points, [0, 0], 2, filter={"n": {"$gte": 7}}) == ["x/7", "x/8"]
    assert found(points, [0, 0], 2, filter={"$id": {"$gte": "x/1", "$lt": "x/2"}}) == [
        "x/1",
        "x/10",
    ]
    assert found(points, [0, 0], filter={"n": {"$in": [3, 1]}}) == ["x/1", "x/3"]
    assert found(points, [0, 0], filter={"n": 99}) == []
    hidden = {"$expr": {"$eq": [{"$mod": ["$n", 10]}, 4]}}  # Python decides
    assert found(points, [0, 0], filter=hidden) == ["x/4", "x/14"]


def test_every_write_is_seen(points: Any) -> None:
    assert found(points, [0, 0]) == ["one", "two", "ten"]
    points.put("one", at(20, 0))
    assert found(points, [0, 0]) == ["two", "ten", "one"]
    points.update("ten", {"$set": {"at": [0, 0]}})
    assert found(points, [0, 0]) == ["ten", "two", "one"]
    points.update_many({}, {"$set": {"other": 1}})
    assert found(points, [0, 0]) == ["ten", "two", "one"]
    points.remove("ten")
    assert found(points, [0, 0]) == ["two", "one"]
    points.bulk_write([UpdateOne({"$id": "two"}, {"$unset": {"at": ""}})])
    assert found(points, [0, 0]) == ["one"]
    points.delete_many({})
    assert found(points, [0, 0]) == []
    points.insert_one(at(1, 1), id="new")
    assert found(points, [0, 0]) == ["new"]
    points.change("new", lambda _: at(5, 5))
    assert points.nearest([5, 5])[0].score == 0.0


def test_expired_documents_are_not_found(points: Any, clock: Clock) -> None:
    points.put("soon", at(0, 0), ttl=10)
    assert found(points, [0, 0], 1) == ["soon"]
    clock.advance(10)
    assert found(points, [0, 0], 1) == ["one"]
    points.purge_expired()
    points.put("soon", at(9, 9))
    assert found(points, [0, 0], 1) == ["one"]


def test_a_deleted_document_leaves_no_vector_to_a_new_one(points: Any) -> None:
    """SQLite gives the new document the position of the old one."""
    assert found(points, [10, 0], 1) == ["ten"]
    points.remove("ten")
    points.put("new", {"no": "vector"})
    assert found(points, [10, 0]) == ["two", "one"]


def test_several_vectors_of_a_document_and_the_place_of_the_best(things: Any) -> None:
    things.create_vector_index(["parts.at", "all"], dimensions=2, metric="l2")
    things.put("a", {"parts": [at(1, 1), {"at": None}, at(5, 5)], "all": [[9, 9], [7, 7]]})
    things.put("b", {"parts": [at(6, 6)]})
    best = [(each.id, each.place) for each in things.nearest([6, 6])]
    assert best[0] == ("b", "parts.0.at")
    assert best[1] in {("a", "all.1"), ("a", "parts.2.at")}  # both as far
    best = [(each.id, each.place) for each in things.nearest([5, 5])]
    assert best == [("a", "parts.2.at"), ("b", "parts.0.at")]
    assert things.nearest([9, 9], 1)[0].place == "all.0"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1, 2, 3], "must have 2 numbers, got 3"),
        ("text", "must be an array of 2 numbers, got 'text'"),
        ([1, "2"], "must be an array of 2 numbers"),
        ([1e39, 0], "finite numbers of 32 bits"),
        ([0, 0.0], "must not be zero"),
        ([True, {}], "must be an array of 2 numbers"),
    ],
)
def test_invalid_vectors_are_listed_and_not_found(things: Any, value: Any, problem: str) -> None:
    things.create_vector_index("at", dimensions=2)
    things.put_many({"good": at(1, 1), "bad": {"at": value}, "none": {"at": None}})
    waiting = [Unindexed(id, "at_vector") for id in ("good", "bad", "none")]
    assert things.search_backlog() == waiting
    assert found(things, [1, 0]) == ["good"]
    [listed] = things.search_backlog()
    assert (listed.id, listed.index) == ("bad", "at_vector")
    assert problem in listed.problem
    assert things.store_vectors() == 1
    things.put("bad", at(2, 1))
    assert found(things, [1, 0]) == ["bad", "good"]
    assert things.search_backlog() == []


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ([1], "must have 2 numbers, got 1"),
        ([0, 0], "must not be zero"),
        ([1, math.nan], "finite"),
        ([1, math.inf], "finite"),
        ([1, "x"], "array of 2 numbers"),
        (7, "array of 2 numbers"),
        (np.array(7), "array of 2 numbers"),
        (np.array([1j, 2]), "array of 2 numbers"),
        ("text", "embed="),
    ],
)
def test_invalid_queries(things: Any, query: Any, problem: str) -> None:
    things.create_vector_index("at", dimensions=2)
    with pytest.raises(InvalidSearch, match=problem):
        things.nearest(query)


def test_the_least_score_is_a_number(points: Any) -> None:
    with pytest.raises(InvalidOption, match="min_score: must be a finite number, got nan"):
        points.nearest([0, 0], min_score=math.nan)


def test_a_search_names_one_of_several_indexes(points: Any) -> None:
    points.create_vector_index("other", dimensions=1)
    with pytest.raises(InvalidSearch, match="index=.*'at_vector', 'other_vector'"):
        points.nearest([0, 0])
    with pytest.raises(InvalidSearch, match="'third'"):
        points.nearest([0, 0], index="third")
    assert found(points, [0, 0], 1, index="at_vector") == ["one"]


def test_a_missing_collection_has_no_results(store: Any) -> None:
    nowhere = store["nowhere"]
    assert nowhere.nearest([1]) == nowhere.search_backlog() == []
    assert nowhere.store_vectors() == 0
    for options in ({}, {"query": "tea"}, {"diversity": 0.5}):
        assert list(nowhere.search(meaning=[1], **options)) == []


def test_a_search_in_a_transaction_sees_the_transaction_and_stores_nothing(store: Any) -> None:
    points = store["points"]
    points.create_vector_index("at", dimensions=2, metric="l2")
    points.put_many({"one": at(1, 0), "two": at(2, 0)})
    assert found(points, [0, 0]) == ["one", "two"]
    with store.transaction() as transaction:
        inside = transaction["points"]
        inside.put("one", at(3, 0))
        inside.remove("two")
        inside.put("new", at(0, 0))
        inside.put_many({"bad": at(0), "b": {"at": [[0, 9], [0, 0.5]]}})
        assert found(inside, [0, 0]) == ["new", "b", "one"]
        assert inside.nearest([0, 0], filter={"$id": "b"})[0].place == "at.1"
        assert [each.problem for each in inside.search_backlog()] == [None] * 4
        inside.remove_many(["bad", "b"])
    assert found(points, [0, 0]) == ["new", "one"]


def test_a_transaction_stores_no_vectors_that_it_may_roll_back(store: Any) -> None:
    points = store["points"]
    points.create_vector_index("at", dimensions=2, metric="l2")
    points.put("one", at(1, 0))
    assert found(points, [0, 0]) == ["one"]
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        transaction["points"].put("two", at(0, 0))
        with pytest.raises(InvalidSearch, match="a transaction stores no vectors"):
            transaction["points"].store_vectors()
        assert found(transaction["points"], [0, 0]) == ["two", "one"]
        raise ZeroDivisionError
    points.put("two", at(2, 0))
    assert [(each.id, each.score) for each in points.nearest([0, 0])] == [("one", -1), ("two", -2)]


def test_a_store_that_only_reads_sees_every_document(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Store(url) as store:
        store["points"].create_vector_index("at", dimensions=2, metric="l2")
        store["points"].put("one", at(1, 0))
        store["points"].store_vectors()
        store["points"].put_many({"one": at(3, 0), "two": at(2, 0)})
    with Store(f"{url}?mode=ro") as store:
        assert found(store["points"], [0, 0]) == ["two", "one"]
        assert len(store["points"].search_backlog()) == 2


def test_a_search_does_not_fail_while_another_writes(shared_backend: Backend) -> None:
    options = {**shared_backend.options, "busy_timeout": 0.2}
    with (
        Store(shared_backend.url, **options) as store,
        Store(shared_backend.url, **options) as other,
    ):
        points = store["points"]
        points.create_vector_index("at", dimensions=2, metric="l2")
        points.put("one", at(1, 0))
        assert found(points, [0, 0]) == ["one"]
        points.put_many({"one": at(3, 0), "two": at(2, 0)})
        with other.transaction() as transaction:
            transaction["points"].create_index("name")
            assert found(points, [0, 0]) == ["two", "one"]
            assert len(points.search_backlog()) == 2
        assert points.store_vectors() == 0


def test_vectors_may_be_32_bit_floats_in_base64(things: Any) -> None:
    things.create_vector_index("at", dimensions=2, metric="l2")
    one, two = (b64encode(struct.pack("<2f", n, 0)).decode() for n in (1, 2))
    things.put_many({"one": {"at": one}, "both": {"at": [two, one]}, "bad": {"at": one[:4]}})
    places = [(each.id, each.score, each.place) for each in things.nearest([2, 0])]
    assert places == [("both", 0.0, "at.0"), ("one", -1.0, "at")]
    assert [each.id for each in things.search_backlog()] == ["bad"]


def test_a_rolled_back_write_changes_nothing(store: Any) -> None:
    points = store["points"]
    points.create_vector_index("at", dimensions=2, metric="l2")
    points.put("one", at(1, 0))
    assert found(points, [0, 0]) == ["one"]
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        transaction["points"].remove("one")
        raise ZeroDivisionError
    assert points.search_backlog() == []
    assert points.nearest([0, 0])[0].score == -1.0


def test_collections_are_renamed_configured_dropped_and_created_again(store: Any) -> None:
    store["a"].create_vector_index("at", dimensions=2, metric="l2")
    store["a"].put_many({"one": at(1, 0), "two": at(2, 0)})
    assert found(store["a"], [0, 0]) == ["one", "two"]
    store.rename("a", "b")
    store.collection("b", changes=True).put("two", at(0, 0))
    assert found(store["b"], [0, 0]) == ["two", "one"]
    assert store.drop("b") is True
    store["b"].create_vector_index("at", dimensions=2, metric="l2")
    store["b"].put("one", at(1, 0))
    assert found(store["b"], [0, 0]) == ["one"]


def test_sql_with_another_search_path_is_noted(empty_postgres_url: str) -> None:
    with Store(empty_postgres_url) as store:
        points = store["points"]
        points.create_vector_index("at", dimensions=2, metric="l2")
        points.create_text_index("text")
        points.put("one", at(1, 0))
        assert found(points, [0, 0]) == ["one"]
        with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
            [schema] = raw.execute("SELECT current_schema()").fetchone() or [None]
            raw.execute("SET search_path = public")
            table = sql.Identifier(str(schema), "cs_1_points")
            body = '{"at": [2, 0], "text": "Crème"}'
            raw.execute(sql.SQL("UPDATE {} SET body = {}").format(table, body))
        assert [each.score for each in points.nearest([0, 0])] == [-2.0]
        assert [each.id for each in points.search("creme")] == ["one"]


def test_documents_without_usable_vectors_take_few_transactions(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(shared_backend.url, **shared_backend.options, echo=True) as store:
        points = store["points"]
        points.create_vector_index("at", dimensions=2)
        points.put_many((f"{n}", {"at": [0, 0] if n % 2 else f"{n}"}) for n in range(40))
        points.put("one", at(1, 0))
        caplog.clear()
        with caplog.at_level(logging.INFO, "collections_store.statements"):
            assert found(points, [1, 0]) == ["one"]
        assert sum("COMMIT" in record.message for record in caplog.records) < 10
        problems = {each.id: each.problem for each in points.search_backlog()}
        assert len(problems) == 40
        assert problems["2"] == "at must be an array of 2 numbers, got '2'"


def test_a_second_store_sees_what_the_first_stored(shared_backend: Backend) -> None:
    with (
        Store(shared_backend.url, **shared_backend.options) as one,
        Store(shared_backend.url, **shared_backend.options) as other,
    ):
        points = one["points"]
        points.create_vector_index("at", dimensions=2, metric="l2")
        generator = random.Random(5)
        bodies = {str(n): [generator.random(), generator.random()] for n in range(50)}
        points.put_many((id, {"at": each}) for id, each in bodies.items())
        for round in range(20):
            id = str(generator.randrange(60))
            bodies[id] = [generator.random(), generator.random()]
            (one, other)[round % 2]["points"].put(id, {"at": bodies[id]})
            for store in (one, other):
                query = [generator.random(), generator.random()]
                expected = sorted(bodies, key=lambda name: math.dist(bodies[name], query))
                assert found(store["points"], query, 5) == expected[:5]


def test_a_deletion_is_not_lost_between_two_that_store_vectors(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        points = store["points"]
        points.create_vector_index("at", dimensions=2, metric="l2")
        points.put("one", at(1, 0))
        index = store.run(FindVectorIndex("points"))[0]
        read = ReadWaiting("points", index, 0, 10, Claim())
        waiting = [store.run(read).documents]
        points.remove("one")
        waiting.append(store.run(read).documents)
        for documents in waiting:
            computed = [packed(index, each) for each in documents]
            store.run(StoreVectors("points", index, computed))
        assert found(points, [0, 0]) == []


def test_many_deleted_documents_leave_no_rows_behind(
    points: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collections_store.operations.vectors.MAX_DEAD", 3)
    monkeypatch.setattr("collections_store.sql.vectors.MAX_DEAD", 3)
    for n in range(12):
        points.put(f"{n}", at(0, 0))
        assert found(points, [0, 0], 1) == [f"{n}"]
        points.remove(f"{n}")
        assert found(points, [0, 0], 1) == ["one"]


def test_vectors_larger_than_the_memory_are_read_for_each_search(
    points: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = {id: found(points, [0, 0], k) for id, k in (("all", 9), ("first", 1))}
    monkeypatch.setattr("collections_store.operations.nearest.READ_AT_ONCE", 2)
    monkeypatch.setattr("collections_store.search.vectors.Resident.limit", 4, raising=False)
    points.reindex("at", dimensions=2, metric="l2")
    for _ in range(2):
        assert found(points, [0, 0], 9) == inside["all"]
        assert found(points, [0, 0], 1) == inside["first"]


def test_without_numpy_the_error_names_the_extra(
    points: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match=r"numpy .* 'collections-store\[vector\]'"):
        points.nearest([0, 0])
    points.put("more", at(1, 1))


def test_reindex_takes_other_dimensions(points: Any) -> None:
    assert found(points, [0, 0], 1) == ["one"]
    with pytest.raises(InvalidSearch, match="'other_vector'"):
        points.reindex("other", dimensions=2)
    assert points.reindex("at", dimensions=3, metric="l2") == "at_vector"
    points.put("three", at(0, 0, 0))
    assert found(points, [0, 0, 0]) == ["three"]
    assert [each.id for each in points.search_backlog()] == ["one", "two", "ten"]


def test_a_vector_index_is_a_value(points: Any) -> None:
    [index] = points.indexes()
    assert index == VectorIndex.parse("at", dimensions=2, metric="l2")
    assert VectorIndex.from_json(index.to_json()) == index


def test_a_model_knows_the_fields_and_the_bodies(store: Any) -> None:
    things = store.collection("points", model=Point)
    with pytest.raises(UnknownField, match="index.*'there'"):
        things.create_vector_index("there", dimensions=2)
    things.create_vector_index(F(Point).at, dimensions=2)
    things.put("a", Point([1.0, 0.0]))
    assert [each.body for each in things.nearest([1, 0])] == [Point([1.0, 0.0])]
    with pytest.raises(UnknownField, match="filter.*'there'"):
        things.nearest([1, 0], filter={"there": 1})


def test_a_dropped_index_takes_no_memory(shared_backend: Backend) -> None:
    """Also where another store drops or replaces the index."""
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        Store(shared_backend.url, **shared_backend.options) as other,
    ):
        points, resident = store["points"], store.core.catalogue.resident

        def search() -> None:
            for collection in (points, store["places"]):
                collection.create_vector_index("at", dimensions=2, metric="l2")
                collection.put_many({"one": at(1, 0), "two": at(2, 0)})
                assert found(collection, [0, 0]) == ["one", "two"]
            assert resident.size == 2 * 2 * 2 * 4

        search()
        points.drop_index("at_vector")
        assert resident.size == 16
        search()
        store.drop("points")
        assert resident.size == 16
        search()
        store.rename("points", "others")
        assert resident.size == 16
        search()
        other["points"].reindex("at", dimensions=2, metric="dot")
        assert len(found(points, [0, 0])) == 2
        assert resident.size == 32
        other["points"].drop_index("at_vector")
        with pytest.raises(InvalidSearch):
            points.nearest([0, 0])
        assert resident.size == 16
