"""Values of time: their one form in bodies, and datetimes in filters, updates and pipelines."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from collections_store import (
    DeleteMany,
    F,
    Filter,
    InvalidBody,
    InvalidFilter,
    InvalidPipeline,
    InvalidUpdate,
    Update,
    UpdateMany,
)

pytestmark = pytest.mark.each_backend

EAST = datetime(2026, 11, 22, 12, 0, 0, 500, tzinfo=timezone(timedelta(hours=2)))
FORM = "2026-11-22T10:00:00.000500Z"
NAIVE = datetime(2026, 11, 22)


def test_a_datetime_has_the_form_of_stored_times(things: Any) -> None:
    things.put("a", {"n": 1})
    things.update_one({"n": 1}, {"$set": {"at": EAST}, "$push": {"all": {"$each": [EAST]}}})
    assert things.get("a") == {"n": 1, "at": FORM, "all": [FORM]}
    for filter in (
        {"at": EAST},
        {"at": {"$gte": EAST, "$lt": EAST + timedelta(microseconds=1)}},
        {"at": {"$in": [EAST]}},
        {"all": {"$elemMatch": {"$eq": EAST}}},
        {"$expr": {"$eq": ["$at", EAST]}},
        {"$or": [{"at": EAST}, {"n": 2}]},
    ):
        assert things.count(filter) == 1
    assert things.count("at", EAST) == 1
    assert things.count((F("at") >= EAST) & F("all").contains(EAST)) == 1
    stages: list[Any] = [
        {"$match": {"at": EAST}},
        {"$project": {"_id": 0, "is": {"$eq": ["$at", EAST]}}},
    ]
    assert things.aggregate(stages) == [{"is": True}]
    things.update_one({}, [{"$set": {"at": EAST + timedelta(seconds=1)}}])
    assert things.get("a")["at"] == "2026-11-22T10:00:01.000500Z"


def test_what_writes_a_time_writes_one_form(things: Any) -> None:
    things.put("a", {"given": EAST.isoformat()})
    things.update_one({}, {"$currentDate": {"a": True}})
    things.update_one({}, [{"$set": {"b": "$$NOW"}}])
    body = things.get("a")
    for name in ("a", "b"):
        assert datetime.fromisoformat(body[name]).tzinfo is UTC
        assert len(body[name]) == len(FORM)
    assert body["a"] <= body["b"]


def test_a_time_without_a_zone_is_refused(things: Any) -> None:
    advice = "a time requires a time zone, as datetime.now"
    calls: list[tuple[type[Exception], Callable[[], object]]] = [
        (InvalidFilter, lambda: things.count({"at": NAIVE})),
        (InvalidFilter, lambda: things.count({"$expr": {"$eq": ["$at", NAIVE]}})),
        (InvalidUpdate, lambda: things.update_one({}, {"$set": {"at": NAIVE}})),
        (InvalidUpdate, lambda: Update.parse([{"$set": {"at": NAIVE}}])),
        (InvalidPipeline, lambda: things.aggregate([{"$set": {"at": NAIVE}}])),
    ]
    for error, call in calls:
        with pytest.raises(error, match=advice):
            call()


def test_a_plain_body_holds_no_datetime(things: Any) -> None:
    advice = "at 'at': datetime is not JSON: .*`default` function.*, or declare a model"
    things.put("a", {})
    with pytest.raises(InvalidBody, match=advice):
        things.put("b", {"at": EAST})
    with pytest.raises(InvalidBody, match=advice):
        things.replace_one({}, {"at": EAST})
    with pytest.raises(InvalidBody, match=advice):
        things.change("a", lambda body: {**body, "at": EAST})


def test_the_default_of_a_store_decides_first(open_store: Any) -> None:
    def default(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.year
        raise TypeError("no idea")

    things = open_store(default=default)["things"]
    things.put("a", {"at": EAST})
    assert things.count("at", EAST) == 1
    assert things.get("a") == {"at": 2026}


def test_a_default_that_takes_no_datetime_leaves_it_to_the_store(open_store: Any) -> None:
    def default(value: Any) -> Any:
        if isinstance(value, set):
            return sorted(value)
        raise TypeError("no idea")

    things = open_store(default=default)["things"]
    things.put("a", {"at": FORM, "set": {2, 1}})
    assert things.count({"at": EAST, "set": {1, 2}}) == 1
    with pytest.raises(InvalidBody, match="datetime is not JSON: no idea"):
        things.put("b", {"at": EAST})


def test_a_call_has_one_now(things: Any) -> None:
    things.insert_many([{"n": n} for n in range(2000)])
    after = {"$expr": {"$lt": ["2000", "$$NOW"]}}
    things.update_many(after, [{"$set": {"at": "$$NOW"}}, {"$set": {"again": "$$NOW"}}])
    [instant] = things.distinct("at")
    assert things.distinct("again") == [instant]
    stages = [{"$set": {"bulk": "$$NOW"}}]
    some = [UpdateMany({"n": n}, stages) for n in (1, 1000)]
    things.bulk_write([*some, DeleteMany({"$expr": {"$gt": ["2000", "$$NOW"]}})])
    assert len(things.distinct("bulk")) == 1
    assert things.count() == 2000


def test_a_filter_and_its_update_have_one_now(things: Any) -> None:
    things.put("a", {})
    things.update_one({}, [{"$set": {"at": "$$NOW"}}])
    assert things.count({"$expr": {"$lt": ["$at", "$$NOW"]}}) == 1
    assert things.find_one({"$nor": [{"$expr": {"$lt": ["$at", "$$NOW"]}}]}) is None
    assert things.delete_many({"$expr": {"$gt": ["$at", "$$NOW"]}}).deleted_count == 0


def test_now_in_pipelines(things: Any) -> None:
    things.insert_many([{"n": n} for n in range(300)])
    now = {"$project": {"_id": 0, "now": "$$NOW"}}
    rows = things.aggregate(
        [
            {"$match": {"$expr": {"$lt": ["2000", "$$NOW"]}}},
            {"$set": {"now": "$$NOW"}},
            {"$match": {"$expr": {"$eq": ["$now", "$$NOW"]}}},
            {"$lookup": {"from": things.name, "as": "others", "pipeline": [{"$limit": 1}, now]}},
            {"$project": {"_id": 0, "now": 1, "other": {"$first": "$others.now"}, "is": "$$NOW"}},
            {"$group": {"_id": ["$now", "$other", "$is"]}},
        ]
    )
    [row] = rows
    assert len(set(row["_id"])) == 1


def test_a_kept_filter_has_the_time_of_each_call(things: Any) -> None:
    kept = Filter.parse({"$expr": {"$lt": ["$at", "$$NOW"]}})
    things.put("a", {"at": "2000"})
    assert things.count(kept) == 1
    things.update_one({}, [{"$set": {"at": "$$NOW"}}])
    assert things.count(kept) == 1
    once = kept.at(0)
    assert once == kept
    assert once.at(0) == once
    assert things.count(once) == 1


def test_nested_pipelines_have_the_instant_of_the_call(store: Any) -> None:
    store["things"].put_many((str(n), {"n": n % 3}) for n in range(300))
    store["others"].put_many((str(n), {"n": n}) for n in range(3))
    stamp: Any = {"$set": {"at": "$$NOW"}}
    same: Any = {"$match": {"$expr": {"$eq": ["$$NOW", "$$outer"]}}}
    joined = {"from": "others", "let": {"outer": "$at"}, "pipeline": [same, stamp], "as": "found"}
    union = {"coll": "others", "pipeline": [stamp]}
    stages = [stamp, {"$lookup": joined}, {"$facet": {"a": [stamp], "b": [{"$unionWith": union}]}}]
    [found] = store["things"].aggregate(stages)
    assert [len(each["found"]) for each in found["a"]] == [3] * 300
    rows = [row for each in (*found["a"], *found["b"]) for row in (each, *each.get("found", []))]
    assert len({row["at"] for row in rows}) == 1
    output = {"into": "copies", "whenMatched": [{"$set": {"at": "$$NOW", "given": "$$new.at"}}]}
    for _ in range(2):
        store["things"].aggregate([stamp, {"$merge": output}])
    bodies = [each.body for each in store["copies"].find()]
    assert len({time for body in bodies for time in (body["at"], body["given"])}) == 1
