"""Indexes: created, used, and enforced on both databases."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from conftest import Clock

from collections_store import (
    DuplicateKey,
    F,
    Filter,
    Index,
    IndexExists,
    InvalidFilter,
    InvalidIndex,
    Path,
    Store,
)


def test_create_index_is_idempotent(things: Any) -> None:
    assert things.indexes() == []
    assert things.create_index("a.b") == "a.b_1"
    assert things.create_index("a.b") == "a.b_1"
    assert things.create_index([("a", -1), ("b", 1)], unique=True, name="both") == "both"
    assert [str(index) for index in things.indexes()] == [
        "a.b_1: {'a.b': 1}",
        "both: {'a': -1, 'b': 1}, unique",
    ]
    assert things.drop_index("both") is True
    assert things.drop_index("both") is False
    assert [index.name for index in things.indexes()] == ["a.b_1"]


def test_a_different_index_of_the_same_name_or_fields_is_rejected(things: Any) -> None:
    things.create_index("a", name="one")
    with pytest.raises(IndexExists, match="'one'"):
        things.create_index("b", name="one")
    with pytest.raises(IndexExists, match="'two'"):
        things.create_index("a", name="two")
    assert [index.name for index in things.indexes()] == ["one"]


@pytest.mark.parametrize(
    ("keys", "options", "culprit"),
    [
        ([], {}, "at least one field"),
        ("$id", {}, r"\$id"),
        ("$version", {}, r"\$version.*\$created_at"),
        ("$body", {}, r"\$body"),
        ("a.b.c.d", {"arrays": True}, "at most 3 keys"),
        ("a.0", {"arrays": True}, "no numbers"),
        ([("a", 2)], {}, "'a'"),
        ([("a", 1), ("a", -1)], {}, "'a'"),
        (["a", "b", "c", "d", "e", "f"], {}, "'f'"),
        ("a", {"unique": "yes"}, "unique"),
        ("a", {"where": {"b": {"$ne": 1}}}, "where"),
        ("a", {"where": {"b": {"$gt": [1]}}}, "where"),
        ("a", {"where": {"$or": [{"b": 1}, {"c": 1}]}}, "where"),
        ("a", {"where": {"b": {"$type": "int"}}}, "where"),
        ("a", {"name": ""}, "name"),
        ("a", {"name": "x" * 201}, "name"),
        ("a", {"name": "$body"}, "name"),
        ("a.$**", {"unique": True}, r"'a.\$\*\*': a wildcard index has one field"),
        ("a.$**", {"sparse": True}, "no other options than name"),
        ("a.$**", {"where": {"a": 1}}, "no other options than name"),
        ("a.$**", {"expire_after_seconds": 1}, "no other options than name"),
        ({"$**": -1}, {}, "ascending"),
        (["$**", "b"], {}, "has one field"),
        ("a.0.$**", {}, "no numbers"),
        ("_id.$**", {}, "not begin with _id"),
        ("a..$**", {}, "a part of the path is empty"),
        ("$a.$**", {}, r"begins with \$"),
        ("a.$**.b", {}, r"begins with \$"),
        ("a\0.$**", {}, "NUL"),
        (
            [("b", 1), ("a.$b", -1)],
            {},
            r"'a.\$b': a part of the path begins with \$.*Path\('a', '\$b'\)",
        ),
        ("$body.$b", {}, r"Path\('\$b'\)"),
        (["a..b"], {}, r"a part of the path is empty.*Path\('a', '', 'b'\)"),
        ("", {}, "is empty"),
        ({"a": []}, {}, "'a'"),
        (5, {}, "must be a field, pairs of field and direction"),
    ],
)
def test_invalid_indexes_are_rejected(
    things: Any, keys: Any, options: dict[str, Any], culprit: str
) -> None:
    with pytest.raises(InvalidIndex, match=culprit):
        things.create_index(keys, **options)
    assert things.indexes() == []


def test_unique_distinguishes_types(things: Any) -> None:
    things.create_index("a", unique=True)
    values: list[Any] = [1, True, "1", False, 0, "", [1], "[1]", {"b": 1}, '{"b":1}', "true"]
    for number, value in enumerate(values):
        things.put(str(number), {"a": value})
    for value in (1.0, 1, True, "1", [1], {"b": 1}):
        with pytest.raises(DuplicateKey) as caught:
            things.put("new", {"a": value})
        assert caught.value.index == "a_1"
        assert caught.value.key == {"a": value}
        assert caught.value.id == "new"
    assert things.count() == 11
    things.put("0", {"a": 1, "b": 2})  # an index does not conflict with itself


def test_unique_treats_missing_as_null(things: Any) -> None:
    things.create_index([("a", 1), ("b", 1)], unique=True)
    things.put("1", {"a": 1})
    with pytest.raises(DuplicateKey, match="'b': None"):
        things.put("2", {"a": 1, "b": None})
    things.put("2", {"a": 1, "b": 0})
    things.put("3", {"b": 1})
    with pytest.raises(DuplicateKey):
        things.put("4", {"b": 1, "a": None})


def test_unique_distinguishes_long_strings(things: Any) -> None:
    things.create_index("a", unique=True)
    long = "é" * 5000
    things.put("1", {"a": long})
    things.put("2", {"a": long + "x"})
    with pytest.raises(DuplicateKey):
        things.put("3", {"a": long})


def test_an_atomic_put_many_with_a_duplicate_writes_nothing(things: Any) -> None:
    things.create_index("a", unique=True)
    things.put("there", {"a": 1})
    with pytest.raises(DuplicateKey) as caught:
        things.put_many({"x": {"a": 5}, "y": {"a": 1}}, atomic=True)
    assert (caught.value.id, caught.value.key) == ("y", {"a": 1})
    with pytest.raises(DuplicateKey) as caught:
        things.put_many({"x": {"a": 5}, "y": {"a": 5.0}}, atomic=True)
    assert (caught.value.id, caught.value.key) == ("y", {"a": 5.0})
    assert [thing.id for thing in things.list()] == ["there"]


def test_a_unique_index_over_duplicates_is_rejected(things: Any) -> None:
    things.put_many({"x": {"a": 1}, "y": {"a": 1.0}, "z": {"a": 2}})
    with pytest.raises(DuplicateKey) as caught:
        things.create_index("a", unique=True)
    assert (caught.value.id, caught.value.key) == ("y", {"a": 1.0})
    assert things.indexes() == []
    assert things.create_index("a") == "a_1"


def test_a_partial_unique_index_ignores_other_documents(things: Any) -> None:
    where = {"live": True, "n": {"$gte": 2, "$lt": 9}, "s": {"$in": ["it's", 5, None]}}
    things.create_index("a", unique=True, where=where)
    things.put("1", {"a": 1, "live": True, "n": 2, "s": "it's"})
    changes: list[dict[str, Any]] = [{"live": False}, {"live": 1}, {"n": 1}, {"n": "3"}, {"s": "5"}]
    for number, change in enumerate(changes):
        things.put(f"other{number}", {"a": 1, "live": True, "n": 3, "s": 5, **change})
    for s in ("it's", 5, 5.0, None):
        with pytest.raises(DuplicateKey):
            things.put("2", {"a": 1, "live": True, "n": 3, "s": s})
    with pytest.raises(DuplicateKey):
        things.put("2", {"a": 1, "live": True, "n": 3})
    assert things.count({"a": 1, **where}) == 1
    assert things.count((F("a") == 1) & F("live").exists()) == 6


def test_rename_keeps_the_indexes(store: Any) -> None:
    store["old"].put("x", {"a": {"b": 1}})
    store["old"].create_index("a.b", unique=True)
    store.rename("old", "new")
    new = store["new"]
    assert [index.name for index in new.indexes()] == ["a.b_1"]
    with pytest.raises(DuplicateKey):
        new.put("y", {"a": {"b": 1}})
    new.create_index("a.c")
    assert store["old"].indexes() == []
    store["old"].create_index("a.b", unique=True)
    store["old"].put("x", {"a": {"b": 1}})
    assert new.drop_index("a.b_1")
    new.put("y", {"a": {"b": 1}})
    assert new.drop_index("a.c_1")
    assert new.indexes() == []


def test_results_do_not_depend_on_indexes(things: Any) -> None:
    scalars: list[Any] = [None, 0, 1, 1.5, "", "x", "y" * 300, True, False, [], {}, {"b": 1}]
    bodies: list[Any] = [{"a": value} for value in scalars]
    bodies += [{}, {"a": [1, "x"]}, {"a": [[1]]}, {"a": {"b": [1, 2]}}, {"a": [{"b": 1}]}]
    bodies += [[1], 1, None]
    operands: list[Any] = [None, 0, 1, 1.0, "", "x", "y" * 300, "y" * 200, True, False]
    filters: list[Any] = [
        {field: {operator: value}}
        for field in ("a", "a.b")
        for operator in ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")
        for value in operands
    ]
    filters += [
        {"a": {"$in": [1, "x", None, True]}},
        {"a": {"$in": ["y" * 300, False]}},
        {"a": {"$in": []}},
    ]
    filters += [{"a": {"$gte": 0, "$lt": 2}, "a.b": None}, {"$or": [{"a": 1}, {"a.b": 1}]}]
    for skipped in (0, 7):  # with and without arrays
        things.delete_many({})
        things.put_many((str(n), body) for n, body in enumerate(bodies[: len(bodies) - skipped]))
        before = [[d.id for d in things.find(each)] for each in filters]
        counts = [things.count(each) for each in filters]
        things.create_index("a")
        things.create_index([("a.b", -1), ("a", 1)])
        assert [[d.id for d in things.find(each)] for each in filters] == before
        assert [things.count(each) for each in filters] == counts
        for each, ids in zip(filters, before, strict=True):
            assert {d.id for d in things.find(each, sort=[("a.b", -1), ("a", 1)])} == set(ids)
        assert things.drop_index("a_1")
        assert things.drop_index("a.b_-1_a_1")


def test_an_array_index_contains_the_elements(things: Any) -> None:
    things.put("before", {"a": [{"b": 1}, {"b": [2, "x"]}], "t": ["x", "y"]})
    things.create_index("a.b", arrays=True)
    things.create_index("t", arrays=True)
    things.put("after", {"a": {"b": 2}, "t": "x"})
    things.put("null", {"a": None, "t": [None, [3], True]})
    filters = [{"a.b": 1}, {"a.b": 2}, {"a.b": {"$gte": 2}}, {"a.b": {"$in": ["x", 7]}}, {"t": "x"}]
    filters += [
        {"t": True},
        {"t": [3]},
        {"t": None},
        {"t": {"$all": ["x", "y"]}},
        {"t": {"$ne": "x"}},
    ]
    expected = ["b", "ba", "ba", "b", "ba", "n", "n", "n", "b", "n"]
    assert ["".join(d.id[0] for d in things.find(each)) for each in filters] == expected
    things.put("before", {"a": [{"b": 3}], "t": []})
    things.remove("after")
    assert [things.count(each) for each in filters] == [0, 0, 1, 0, 0, 1, 1, 1, 0, 2]
    things.put_many({"after": {"t": "x"}, "more": {"t": ["x"]}})
    assert things.delete_many({"t": "x"}).deleted_count == 2
    assert things.drop_index("t_arrays") is True
    assert things.count({"t": True}) == 1


def test_an_array_index_follows_its_collection(store: Any) -> None:
    for name in ("one", "two"):
        store["one"].create_index("t", arrays=True)
        store["one"].put("x", {"t": ["y"]})
        store.rename("one", "two")
        assert store["two"].count({"t": "y"}) == 1
        store["two"].put("z", {"t": ["y"]})
        assert store["two"].count({"t": "y"}) == 2
        assert store.drop("two"), name
    assert store["two"].count({"t": "y"}) == 0


def test_an_array_index_covers_all_documents(things: Any) -> None:
    with pytest.raises(InvalidIndex, match="where"):
        things.create_index("a", arrays=True, where={"b": 1})


def test_a_unique_index_is_checked_per_document(things: Any) -> None:
    things.create_index("k", unique=True)
    things.put_many({"x": {"k": 1}, "y": {"k": 2}})
    with pytest.raises(DuplicateKey) as caught:
        things.put_many({"y": {"k": 1}, "x": {"k": 2}}, atomic=True)
    assert (caught.value.id, caught.value.key) == ("y", {"k": 1})
    assert things.get("x") == {"k": 1}
    assert things.put_many({"y": {"k": 3}, "x": {"k": 2}}).replaced_count == 2


def test_a_partial_index_with_an_empty_filter_is_a_full_index(things: Any) -> None:
    things.create_index("a", where={})
    assert str(things.indexes()[0]) == "a_1: {'a': 1}"


def test_deletes_create_no_collection(store: Any) -> None:
    nothing = store["nothing"]
    assert nothing.remove("x") is False
    assert nothing.remove_many(["x"]) == 0
    assert nothing.delete_one({"a": 1}).deleted_count == 0
    assert nothing.delete_many({}).deleted_count == 0
    assert nothing.drop_index("a_1") is False
    assert nothing.put_many({}).written_count == 0
    assert store.collections() == []


def test_delete_without_a_filter_is_rejected(things: Any) -> None:
    things.put("x", 1)
    for method in (things.delete_one, things.delete_many):
        with pytest.raises(InvalidFilter, match="{} matches all documents"):
            method(None)
    assert things.count() == 1


def test_the_array_guard_uses_no_partial_index(things: Any) -> None:
    things.put_many((str(n), {"a": n}) for n in range(300))
    things.create_index("a")
    things.create_index("c", where={"a": {"$gt": 0}}, name="partial")
    assert "partial" not in things.explain(sort="a").indexes


@pytest.mark.parametrize(
    ("filter", "sort"),
    [
        ({}, "$body"),
        ({}, [("$body", -1), ("$id", 1)]),
        ({"a.0.b": 7}, None),
        ({"a.b.c.d": 7}, None),
        ({"a": {"$elemMatch": {"b.c.d": 7}}}, None),
        ({"a.b": 7}, None),
        ({"n": {"$gt": 5}}, [("n", -1)]),
        ({"n": 5}, [("$body", 1), ("t", -1)]),
        ({"$id": "x"}, "t"),
        ({Path("n.m", "k"): 5}, None),
        ({}, [(Path("$n"), -1)]),
        ({}, 'a"b'),
    ],
)
def test_advice_of_explain_can_be_followed(things: Any, filter: Any, sort: Any) -> None:
    deep = [{"b": {"c": [{"d": 7}]}}, {"b": 7}]
    things.put_many((str(n), {"a": deep, "n": n, "t": n}) for n in range(10))
    advice = things.explain(filter, sort=sort).advice
    if advice is not None:
        assert eval(f"things.{advice}", {"things": things, "Path": Path})
        assert things.explain(filter, sort=sort).advice in {None, advice[:-1] + ", arrays=True)"}


@pytest.mark.parametrize("options", [{"where": {"b": 1}}, {"sparse": True}])
def test_advice_beside_an_index_of_some_documents(things: Any, options: Any) -> None:
    """The index has the default name already."""
    things.put_many((str(n), {"n": n}) for n in range(10))
    things.create_index("n", **options)
    advice = things.explain({}, sort="n").advice
    assert advice == "create_index('n', name='n_1_2')"
    assert eval(f"things.{advice}", {"things": things}) == "n_1_2"
    assert things.explain({}, sort="n").advice is None


def test_an_index_serves_both_directions(things: Any) -> None:
    things.put_many((str(n), {"n": n, "m": -n}) for n in range(10))
    things.create_index([("n", 1), ("m", -1)])
    assert things.explain(sort=[("n", -1), ("m", 1)]).advice is None
    assert things.explain(sort=[("n", -1)]).advice is None


def test_a_unique_partial_index_may_exclude_arrays(things: Any) -> None:
    things.create_index("a", unique=True, where={"live": True})
    for number, live in enumerate([[], [], [True], [True], {"x": 1}]):
        things.put(str(number), {"a": 1, "live": live})
    things.put("live", {"a": 1, "live": True})
    with pytest.raises(DuplicateKey):
        things.put("new", {"a": 1, "live": True})
    assert [d.id for d in things.find({"a": 1, "live": True})] == ["2", "3", "live"]
    assert things.count({"a": 1, "live": True}) == 3
    assert things.delete_many({"a": 1, "live": True}).deleted_count == 3


@pytest.mark.parametrize("name", ["same", None])
def test_concurrent_index_creation(shared_backend: Backend, name: str | None) -> None:
    """By four stores: one index, or four different ones."""
    barrier = threading.Barrier(4)
    with ExitStack() as stack:
        stores = [
            stack.enter_context(Store(shared_backend.url, **shared_backend.options))
            for _ in range(4)
        ]
        stores[0]["c"].put_many((str(n), {"a": n}) for n in range(500))

        def make(number: int) -> str:
            barrier.wait()
            return stores[number]["c"].create_index("a" if name else f"b{number}")

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(make, range(4)))
        assert made == (["a_1"] * 4 if name else [f"b{n}_1" for n in range(4)])
        assert sorted(i.name for i in stores[0]["c"].indexes()) == sorted(set(made))


def test_writes_race_with_creating_and_dropping_a_unique_index(shared_backend: Backend) -> None:
    problems: list[Exception] = []
    end = threading.Event()
    with ExitStack() as stack:
        stores = [
            stack.enter_context(Store(shared_backend.url, **shared_backend.options))
            for _ in range(3)
        ]

        def write(number: int) -> None:
            for turn in range(150):
                try:
                    stores[number]["c"].put(f"{number}-{turn}", {"k": 1})
                except DuplicateKey:
                    pass
                except Exception as error:  # noqa: BLE001 - asserted below
                    problems.append(error)
            end.set()

        threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        while not end.is_set():
            stores[0]["c"].delete_many({})
            with suppress(DuplicateKey):
                stores[0]["c"].create_index("k", unique=True)
            stores[0]["c"].drop_index("k_1")
        for thread in threads:
            thread.join()
    assert problems == []


@pytest.mark.skipif("COLLECTIONS_STORE_TEST_JSONB" in os.environ, reason="they had no JSONB")
def test_a_collection_of_an_older_version_can_be_used(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["old"].put_many({"a": {"n": 1}, "b": {"n": 2}})
    forget_options(shared_backend)
    with Store(shared_backend.url, **shared_backend.options) as store:
        old = store["old"]
        assert [info.count for info in store.collections()] == [2]
        page = old.page(sort="n", limit=1)
        assert [d.id for d in old.page(sort="n", after=page.cursor)] == ["b"]
        old.create_index("n", unique=True)
        with pytest.raises(DuplicateKey):
            old.put("c", {"n": 2})
        assert store.drop("old")


def forget_options(backend: Backend) -> None:
    """Rewrite the catalogue row as a version before 0003 wrote it."""
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        table = sa.table(
            "cs_collections", sa.column("options"), schema=backend.options.get("schema")
        )
        connection.execute(sa.update(table).values(options="{}"))
    engine.dispose()


def test_times_can_be_indexed(open_store: Any, clock: Clock) -> None:
    things = open_store()["things"]
    for number in range(300):
        things.put(str(number), {"kind": number % 2}, ttl=None if number % 3 else 1000)
        clock.advance(1)
    things.update_many({"$id": {"$in": ["7", "9"]}}, {"$set": {"new": True}})
    sorts: list[Any] = [
        "$created_at",
        [("$updated_at", -1)],
        "$expires_at",
        [("kind", 1), ("$updated_at", -1)],
    ]
    filters = [{}, {"$created_at": {"$gt": clock.now - 150_000_000}}, {"kind": 1}]

    def answers() -> list[Any]:
        found = [
            [document.id for document in things.find(each, sort=sort, limit=20)]
            for each in filters
            for sort in sorts
        ]
        page = things.page(sort="$updated_at", limit=3)
        after = things.page(sort="$updated_at", limit=3, after=page.cursor)
        return [*found, [document.id for document in after]]

    before = answers()
    made = [things.create_index(sort) for sort in sorts]
    assert made == ["$created_at_1", "$updated_at_-1", "$expires_at_1", "kind_1_$updated_at_-1"]
    assert answers() == before
    for sort, name in zip(sorts[:3], made, strict=False):
        explained = things.explain({}, sort=sort, limit=5)
        assert (explained.order, explained.indexes) == ("index", (name,))
    if not open_store.backend.is_private:
        assert [index.name for index in open_store()["things"].indexes()] == made
    assert things.create_index("$created_at", name="$created_at_1") == "$created_at_1"
    assert all(map(things.drop_index, made))
    assert answers() == before


@pytest.mark.parametrize("options", [{"unique": True}, {"arrays": True}])
def test_times_are_neither_unique_nor_arrays(things: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidIndex, match="times cannot be in a unique or sparse index"):
        things.create_index("$created_at", **options)


def test_a_partial_index_on_a_field_that_is_named_as_the_id(
    things: Any, lasting_backend: Backend
) -> None:
    where = {Path("_id"): {"$gt": 5}}
    things.create_index([(Path("_id"), 1)], where=where, name="one")
    things.put_many({"a": {"_id": 7}, "b": {"_id": 3}})
    [index] = things.indexes()
    assert index.fields == (("_id", 1),)
    assert index.where == Filter.parse(where)
    entry = index.to_json()
    assert entry["where"] == {"$body._id": {"$gt": 5}}
    assert Index.from_json(entry) == index
    assert Index.from_json(entry | {"where": {"_id": {"$gt": 5}}}) == index  # of older versions
    found = things.explain({Path("_id"): 7, "$and": [where]})
    assert [each.id for each in things.find({Path("_id"): 7, "$and": [where]})] == ["a"]
    if not lasting_backend.is_postgresql:  # which may read so small a table as a whole
        assert found.indexes == ("one",)
    with pytest.raises(InvalidIndex, match="'where'"):
        things.create_index("b", where={"_id": "x"})
