"""Each method reads by the index of a hint, where the planner of SQLite would choose another."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from collections_store import Document, Store

SEEN = {"$set": {"seen": True}}
SUM = {"$group": {"_id": "$b", "n": {"$sum": "$c"}}}
COUNT = {"$group": {"_id": "$a", "n": {"$sum": 1}}}
METHODS: dict[str, Callable[..., Any]] = {
    "find": lambda c, f, **o: c.find(f, **o),
    "page": lambda c, f, **o: list(c.page(f, sort="c", **o)),
    "count": lambda c, f, **o: c.count(f, **o),
    "stream": lambda c, f, **o: list(c.stream(f, **o)),
    "stream sorted": lambda c, f, **o: list(c.stream(f, sort="c", **o)),
    "distinct": lambda c, f, **o: c.distinct("c", f, **o),
    "distinct ids": lambda c, f, **o: c.distinct("$id", f, **o),
    "update_one": lambda c, f, **o: c.update_one(f, SEEN, sort="c", **o),
    "update_many": lambda c, f, **o: c.update_many(f, SEEN, **o),
    "documents": lambda c, f, **o: c.aggregate([{"$match": f}], **o),
    "parts": lambda c, f, **o: c.aggregate([{"$match": f}, {"$project": {"c": 1}}], **o),
    "sum": lambda c, f, **o: c.aggregate([{"$match": f}, SUM], **o),
    "groups": lambda c, _, **o: c.aggregate([COUNT], **o),
    "stream_aggregate": lambda c, f, **o: list(c.stream_aggregate([{"$match": f}], **o)),
    "delete_one": lambda c, f, **o: c.delete_one({**f, "c": 901}, **o),
    "delete_many": lambda c, f, **o: c.delete_many({**f, "c": {"$gt": 900}}, **o),
}
FILTER = {"a": 1, "b": {"$gt": 3}}
HINTS: dict[str, Any] = {"a_1": "a_1", "both": "both", "$id": "_id_", "": {"$natural": 1}}


def session_of(store: Store) -> Any:
    assert store.core.opened is not None
    pool: Any = store.core.opened._pools[0]
    lease = pool.acquire()
    pool.release(lease)
    return lease.connection


def filled(store: Store, name: str, *, changes: bool = False, arrays: bool = False) -> Any:
    things = store.collection(name, changes=changes)
    things.put_many({str(n): {"a": n % 5, "b": n % 7, "c": n} for n in range(1000)})
    if arrays:
        things.put_many({"1000": {"a": [1], "b": [9], "c": [9]}, "1001": {"a": 1, "b": [0, 9]}})
    things.create_index("a")
    things.create_index([("a", 1), ("b", 1)], name="both")
    things.create_index([("a", 1), ("b", 1), ("c", 1)], name="best")
    return things


def indexes_used(store: Store, things: Any, call: Callable[[], Any]) -> set[str]:
    """Return the indexes by which a call finds documents, without those that find arrays."""
    session, executed = session_of(store), list[str]()
    session.driver.set_trace_callback(executed.append)
    call()
    session.driver.set_trace_callback(None)
    statements = session.collection(things.name)
    names = {each.physical: each.name for each in statements.options.indexes} | {"$id": "$id"}
    used, found = set[str](), [each for each in executed if "'$.\"a\"'" in each]
    assert found
    for sql in found:
        rows = session.driver.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
        plan = session.database.compiler.plan(rows, statements.table)
        used |= {names[each] for each in plan.indexes if each in names}
    return used


def in_any_order(found: Any) -> Any:
    if not isinstance(found, list):
        return found
    return sorted(
        json.dumps(e.body if isinstance(e, Document) else e, sort_keys=True) for e in found
    )


@pytest.mark.parametrize("changes", [False, True], ids=["", "with a change feed"])
@pytest.mark.parametrize("index", HINTS)
def test_each_method_reads_by_the_index_of_the_hint(index: str, changes: bool) -> None:
    with Store("sqlite://") as store:
        things, hint = filled(store, "things", changes=changes), HINTS[index]
        used = {
            name: indexes_used(store, things, partial(call, things, FILTER, hint=hint))
            for name, call in METHODS.items()
        }
        assert used == dict.fromkeys(METHODS, {index} - {""})


@pytest.mark.each_backend
@pytest.mark.parametrize("index", HINTS)
def test_with_arrays_the_results_are_the_same(store: Store, index: str) -> None:
    hinted, free = (filled(store, name, arrays=True) for name in ("hinted", "free"))
    for name, call in METHODS.items():
        found = call(hinted, FILTER, hint=HINTS[index])
        assert in_any_order(found) == in_any_order(call(free, FILTER)), name
    assert in_any_order(hinted.find()) == in_any_order(free.find())


@pytest.mark.parametrize("index", HINTS)
def test_an_aggregation_explains_the_plan_of_the_hint(index: str) -> None:
    pipelines: list[Any] = [
        [{"$match": FILTER}],
        [{"$match": FILTER}, {"$project": {"c": 1}}],
        [{"$match": FILTER}, SUM],
        [COUNT],
    ]
    with Store("sqlite://") as store:
        things = filled(store, "things")
        for pipeline in pipelines:
            plan = things.explain_aggregate(pipeline, hint=HINTS[index])
            assert set(plan.indexes) == {index} - {""}
        things.put("array", {"a": [1], "b": 9})
        assert len(things.aggregate(pipelines[0], hint=HINTS[index])) == 86 + 1
        explained = things.explain_aggregate(pipelines[0], hint=HINTS[index])
        assert explained.indexes == things.explain(FILTER, hint=HINTS[index]).indexes


@pytest.mark.parametrize("options", [{}, {"where": {"b": 1}}, {"sparse": True}], ids=str)
def test_a_purge_reads_by_a_hidden_index(options: dict[str, Any]) -> None:
    with Store("sqlite://") as store:
        things = store["things"]
        things.put_many({str(n): {"a": f"{1900 + n}-01-01T00:00:00Z", "b": 1} for n in range(300)})
        things.create_index("a", expire_after_seconds=60, hidden=True, **options)
        assert things.explain({"a": "1950-01-01T00:00:00Z", "b": 1}).scans
        assert indexes_used(store, things, things.purge_expired) == {"a_1"}
        assert min(each.body["a"] for each in things.find()) > "2020"
