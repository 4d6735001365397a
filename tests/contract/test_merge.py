"""`$merge` and `$out` on each database, sync and async: what is written, and that all of it is or nothing."""

import threading
from typing import Any

import pytest
from backends import Backend

from collections_store import (
    DocumentNotFound,
    DuplicateKey,
    InvalidOperand,
    InvalidPipeline,
    ReadOnlyDatabase,
    Store,
)

TOTALS = {"$group": {"_id": "$by", "total": {"$sum": "$n"}}}


@pytest.fixture
def orders(store: Any) -> Any:
    found = store["orders"]
    found.put_many({str(n): {"by": "ab"[n % 2], "n": n} for n in range(6)})
    return found


def bodies(collection: Any) -> dict[str, Any]:
    return {each.id: (each.body, each.version) for each in collection.find()}


def test_out(store: Any, orders: Any) -> None:
    assert orders.aggregate([TOTALS, {"$out": "totals"}]) == []
    assert bodies(store["totals"]) == {"a": ({"total": 6}, 1), "b": ({"total": 9}, 1)}
    orders.aggregate([{"$match": {"by": "a"}}, TOTALS, {"$out": "totals"}])
    assert bodies(store["totals"]) == {"a": ({"total": 6}, 1)}
    orders.aggregate([{"$match": {"n": {"$gt": 3}}}, {"$out": "orders"}])
    assert bodies(orders) == {"4": ({"by": "a", "n": 4}, 1), "5": ({"by": "b", "n": 5}, 1)}
    assert store["nothing"].aggregate([{"$out": "orders"}]) == []
    assert bodies(orders) == {}


def test_out_keeps_indexes(store: Any, orders: Any) -> None:
    store["totals"].create_index("total", unique=True)
    orders.aggregate([TOTALS, {"$out": "totals"}])
    assert [each.name for each in store["totals"].indexes()] == ["total_1"]
    with pytest.raises(DuplicateKey, match="total"):
        orders.aggregate([{"$project": {"total": {"$literal": 1}}}, {"$out": "totals"}])
    assert len(bodies(store["totals"])) == 2


MATCHED: list[tuple[str, Any, dict[str, Any]]] = [
    ("merge", "insert", {"a": ({"total": 6, "note": 1}, 2), "b": ({"total": 9}, 1)}),
    ("replace", "insert", {"a": ({"total": 6}, 2), "b": ({"total": 9}, 1)}),
    ("keepExisting", "insert", {"a": ({"total": 0, "note": 1}, 1), "b": ({"total": 9}, 1)}),
    ("replace", "discard", {"a": ({"total": 6}, 2)}),
]


@pytest.mark.parametrize(("matched", "unmatched", "expected"), MATCHED)
def test_merge(store: Any, orders: Any, matched: str, unmatched: str, expected: Any) -> None:
    store["totals"].put("a", {"total": 0, "note": 1})
    merge = {"into": "totals", "whenMatched": matched, "whenNotMatched": unmatched}
    assert orders.aggregate([TOTALS, {"$merge": merge}]) == []
    assert bodies(store["totals"]) == expected
    orders.aggregate([TOTALS, {"$merge": merge}])  # the same again changes nothing
    assert bodies(store["totals"]) == expected


def test_merge_of_documents_keeps_their_ids_and_bodies_of_any_kind(store: Any) -> None:
    store["things"].put_many({"1": {"a": 1}, "2": [1], "3": None, "4": {"_id": "5", "b": 2}})
    store["things"].aggregate([{"$merge": "copy"}])
    assert {id: body for id, (body, _) in bodies(store["copy"]).items()} == {
        "1": {"a": 1}, "2": [1], "3": None, "5": {"b": 2},
    }  # fmt: skip


def test_merge_with_a_pipeline(store: Any, orders: Any) -> None:
    store["totals"].put("a", {"total": 100})
    stages = [{"$set": {"total": {"$add": ["$total", "$$new.total", "$$more"]}}}]
    merge = {"into": "totals", "let": {"more": "$total"}, "whenMatched": stages}
    orders.aggregate([TOTALS, {"$merge": merge}])
    assert bodies(store["totals"]) == {"a": ({"total": 112}, 2), "b": ({"total": 9}, 1)}


def test_let_sees_the_document(store: Any, orders: Any) -> None:
    store["totals"].put("4", {})
    stages = [{"$set": {"id": "$$id", "n": "$$n", "none": {"$ifNull": ["$$none", 0]}}}]
    let: dict[str, Any] = {"id": {"$meta": "id"}, "n": "$n", "none": "$none"}
    merge: Any = {"into": "totals", "let": let, "whenMatched": stages, "whenNotMatched": "discard"}
    orders.aggregate([{"$merge": merge}])
    assert bodies(store["totals"]) == {"4": ({"id": "4", "n": 4, "none": 0}, 2)}
    orders.aggregate([TOTALS, {"$merge": {**merge, "let": {**let, "id": "$_id"}}}])
    assert bodies(store["totals"]) == {"4": ({"id": "4", "n": 4, "none": 0}, 2)}


def test_a_pipeline_does_not_change_the_id(store: Any, orders: Any) -> None:
    store["totals"].put_many({"a": {"total": 100}, "b": {"_id": "x"}})
    same: list[Any] = [{"$replaceWith": "$$new"}, {"$set": {"total": "$$new.total"}}]
    for stage in same:
        orders.aggregate([TOTALS, {"$merge": {"into": "totals", "whenMatched": [stage]}}])
    assert bodies(store["totals"])["a"] == ({"total": 6}, 2)
    for id in ("b", 1):
        merge: Any = {"into": "totals", "whenMatched": [{"$set": {"_id": {"$literal": id}}}]}
        with pytest.raises(InvalidOperand, match=f"must not change _id from 'a' to {id!r}"):
            orders.aggregate([TOTALS, {"$match": {"_id": "a"}}, {"$merge": merge}])
    store["totals"].put("b", {"_id": "x"})  # a field of the stored body is none of the results
    merge = {"into": "totals", "whenMatched": [{"$set": {"total": 1}}]}
    orders.aggregate([TOTALS, {"$merge": merge}])
    assert bodies(store["totals"])["b"][0] == {"_id": "x", "total": 1}


FAILING: list[tuple[list[Any], type[Exception]]] = [
    ([{"$group": {"_id": "$n"}}, {"$merge": "new"}], InvalidOperand),
    ([{"$group": {"_id": "$n"}}, {"$out": "new"}], InvalidOperand),
    ([{"$merge": {"into": "new", "on": "n"}}], InvalidPipeline),
    ([{"$merge": {"into": "new", "whenNotMatched": "fail"}}], DocumentNotFound),
    ([{"$set": {"_id": "$by"}}, {"$out": "new"}], DuplicateKey),
    ([{"$set": {"_id": "$by"}}, {"$merge": {"into": "new", "whenMatched": "fail"}}], DuplicateKey),
    (
        [
            {"$set": {"_id": "$by"}},
            {"$merge": {"into": "new", "whenMatched": [{"$set": {"n": {"$add": ["$by"]}}}]}},
        ],
        InvalidOperand,
    ),
]


@pytest.mark.parametrize(("pipeline", "error"), FAILING)
def test_a_failed_pipeline_creates_no_collection(
    store: Any, orders: Any, pipeline: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        orders.aggregate(pipeline)
    assert [each.name for each in store.collections()] == ["orders"]


def test_rows_of_one_id_in_a_new_collection(store: Any, orders: Any) -> None:
    by = {"$set": {"_id": "$by"}}
    add = [{"$set": {"n": {"$add": ["$n", "$$new.n"]}}}]
    orders.aggregate([by, {"$merge": {"into": "new", "whenMatched": add}}])
    assert bodies(store["new"]) == {"a": ({"by": "a", "n": 6}, 3), "b": ({"by": "b", "n": 9}, 3)}


def test_merge_on_fields(store: Any, orders: Any) -> None:
    totals = store["totals"]
    totals.put("x", {"by": "a", "at": 1})
    renamed = {"$project": {"_id": 0, "by": "$_id", "total": 1}}
    on_by = {"$merge": {"into": "totals", "on": "by"}}
    with pytest.raises(InvalidPipeline, match="'2.\\$merge.on': requires a unique index"):
        orders.aggregate([TOTALS, renamed, on_by])
    for options in ({"sparse": True}, {"where": {"at": 1}}):
        name = totals.create_index("by", unique=True, **options)
        with pytest.raises(InvalidPipeline, match="is neither sparse nor partial"):
            orders.aggregate([TOTALS, renamed, on_by])
        totals.drop_index(name)
    totals.create_index("by", unique=True, hidden=True)
    orders.aggregate([TOTALS, renamed, on_by])
    found = bodies(totals)
    assert found.pop("x") == ({"by": "a", "at": 1, "total": 6}, 2)
    assert [body for body, _ in found.values()] == [{"by": "b", "total": 9}]
    with pytest.raises(InvalidOperand, match="requires a value at by"):
        orders.aggregate([{"$project": {"n": 1}}, on_by])


@pytest.mark.parametrize("matched", ["merge", "replace", "keepExisting", "fail", "pipeline"])
def test_merge_on_fields_does_not_change_the_id(store: Any, orders: Any, matched: str) -> None:
    totals = store["totals"]
    totals.put("x", {"by": "a", "at": 1})
    totals.create_index("by", unique=True)
    how = [{"$set": {"at": 2}}] if matched == "pipeline" else matched
    output = {"$merge": {"into": "totals", "on": "by", "whenMatched": how}}
    named = {"$set": {"_id": "other", "by": "a"}}
    if matched in {"merge", "replace"}:
        with pytest.raises(InvalidOperand, match="must not change _id from 'x' to 'other': unset"):
            orders.aggregate([named, {"$limit": 1}, output])
    elif matched == "fail":
        with pytest.raises(DuplicateKey):
            orders.aggregate([named, {"$limit": 1}, output])
    else:
        orders.aggregate([named, {"$limit": 1}, output])
    at = 2 if matched == "pipeline" else 1
    assert {id: body for id, (body, _) in bodies(totals).items()} == {"x": {"by": "a", "at": at}}
    named["$set"]["_id"] = "x"
    output["$merge"]["whenMatched"] = "merge"
    orders.aggregate([named, {"$limit": 1}, output])
    assert totals.get("x")["by"] == "a"


@pytest.mark.each_backend
def test_a_refused_match_names_the_index(store: Any, orders: Any) -> None:
    """The index of the ids comes first, as in an insertion."""
    totals = store["totals"]
    totals.create_index([("by.name", 1), ("n", 1)], unique=True, name="who")
    totals.put("x", {"by": {"name": "a"}, "n": 1, "more": 2})
    row = {"$set": {"by": {"name": "a"}, "n": 1}}
    merge = {"$merge": {"into": "totals", "on": ["n", "by.name"], "whenMatched": "fail"}}
    for id, index, key in (
        ("new", "who", {"by.name": "a", "n": 1}),
        ("x", "$id", {"$id": "x"}),
    ):
        with pytest.raises(DuplicateKey) as refused:
            orders.aggregate([{"$limit": 1}, row, {"$set": {"_id": id}}, merge])
        assert (refused.value.index, refused.value.key, refused.value.id) == (index, key, id)
    assert bodies(totals) == {"x": ({"by": {"name": "a"}, "n": 1, "more": 2}, 1)}


def test_all_or_nothing(store: Any, orders: Any) -> None:
    store["totals"].put("b", {"total": 0})
    fails: list[tuple[Any, type[Exception], str]] = [
        ({"whenMatched": "fail"}, DuplicateKey, "collection totals: 'b'"),
        ({"whenNotMatched": "fail"}, DocumentNotFound, "collection totals: there is no document"),
    ]
    for options, error, message in fails:
        with pytest.raises(error, match=message):
            orders.aggregate(
                [TOTALS, {"$sort": {"_id": 1}}, {"$merge": {"into": "totals", **options}}]
            )
        assert bodies(store["totals"]) == {"b": ({"total": 0}, 1)}
    with pytest.raises(
        InvalidOperand, match="at '1.\\$out': \\$out requires a string as _id, got 0"
    ):
        orders.aggregate([{"$group": {"_id": "$n"}}, {"$out": "totals"}])
    with pytest.raises(InvalidOperand, match="requires a string as _id, got None"):
        orders.aggregate([{"$group": {"_id": None}}, {"$merge": "totals"}])
    store["totals"].create_index("total", unique=True)
    same = {"$set": {"total": {"$literal": 0}}}
    with pytest.raises(DuplicateKey, match="'total_1' forbids|total"):
        orders.aggregate([TOTALS, same, {"$merge": "totals"}])
    assert bodies(store["totals"]) == {"b": ({"total": 0}, 1)}


def test_changes_are_recorded(store: Any, orders: Any) -> None:
    totals = store.create_collection("totals", changes=True)
    totals.put("a", {"total": 0})
    orders.aggregate([TOTALS, {"$merge": "totals"}])
    orders.aggregate([{"$match": {"by": "b"}}, TOTALS, {"$out": "totals"}])
    with totals.watch(after="oldest", timeout=0) as stream:
        seen = [(each.kind, each.id) for each in stream]
    merged, replaced = seen[1:3], seen[3:]
    assert seen[0] == ("insert", "a")
    assert sorted(merged) == [("insert", "b"), ("update", "a")]
    assert sorted(replaced) == [("insert", "b"), ("remove", "a"), ("remove", "b")]


def test_within_a_transaction(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["orders"].put_many({"1": {"by": "a", "n": 1}})
        with pytest.raises(RuntimeError), store.transaction() as mine:
            mine["orders"].aggregate([TOTALS, {"$out": "totals"}])
            assert mine["totals"].count() == 1
            raise RuntimeError
        assert store["totals"].count() == 0


def test_read_only_stores_write_nothing(postgres_backend: Backend) -> None:
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        store["orders"].put("1", {"by": "a", "n": 1})
    with Store(postgres_backend.url, **postgres_backend.options, read_only=True) as store:
        with pytest.raises(ReadOnlyDatabase):
            store["orders"].aggregate([TOTALS, {"$out": "totals"}])
        assert store["orders"].aggregate([TOTALS]) == [{"_id": "a", "total": 1}]


def test_merges_of_several_threads_lose_nothing(shared_backend: Backend) -> None:
    add = [{"$set": {"total": {"$add": ["$total", "$$new.total"]}}}]
    one = [{"$limit": 1}, {"$project": {"total": {"$literal": 1}}}]
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["source"].put("sum", {})
        store["sums"].put("sum", {"total": 0})

        def work() -> None:
            for _ in range(10):
                store["source"].aggregate([*one, {"$merge": {"into": "sums", "whenMatched": add}}])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert store["sums"].get("sum") == {"total": 40}


REFUSED: list[tuple[Any, str]] = [
    ([{"$out": "x"}, {"$limit": 1}], "'0.\\$out': must be the last stage"),
    ([{"$facet": {"a": [{"$out": "x"}]}}], "must be the last stage of the whole"),
    ([{"$unionWith": {"coll": "a", "pipeline": [{"$merge": "x"}]}}], "must be the last stage"),
    ([{"$out": {"db": "a", "coll": "b"}}], "'0.\\$out'"),
    ([{"$merge": {}}], "requires into"),
    ([{"$merge": {"into": "x", "whenMatched": "x"}}], "whenMatched': must be one of"),
    ([{"$merge": {"into": "x", "on": ["a", "a"]}}], "on': must name each field once"),
    ([{"$merge": {"into": "x", "whenNotMatched": []}}], "whenNotMatched': must be one of"),
    ([{"$merge": {"into": "x", "whenMatched": []}}], "must have a stage"),
    ([{"$merge": {"into": "x", "whenMatched": [{"$limit": 1}]}}], "must be \\$set"),
    ([{"$merge": {"into": "x", "let": {"a": 1}}}], "'0.\\$merge.let': requires a pipeline"),
    (
        [{"$merge": {"into": "x", "let": {"CURRENT": 1}, "whenMatched": [{"$unset": "x"}]}}],
        "'0.\\$merge.let.CURRENT': must not be redefined",
    ),
    (
        [{"$merge": {"into": "x", "let": 1, "whenMatched": [{"$unset": "x"}]}}],
        "must be a document of variables",
    ),
    (
        [{"$merge": {"into": "x", "let": {"A": 1}, "whenMatched": [{"$unset": "x"}]}}],
        "'0.\\$merge.let.A': a variable",
    ),
]


@pytest.mark.parametrize(("pipeline", "problem"), REFUSED)
def test_invalid_stages(pipeline: Any, problem: str) -> None:
    with Store("sqlite://") as store, pytest.raises(InvalidPipeline, match=problem):
        store["orders"].aggregate(pipeline)
