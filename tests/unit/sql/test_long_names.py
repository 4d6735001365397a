"""Error messages never contain long keys and values of a user: they may be logged."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from collections_store import CollectionsStoreError, Document, Filter, Path, Projection, Update

LONG = "k" * 5000
BODY = {"a": 1, "list": [1, 2], LONG: "v" * 5000, "o": {LONG: 1}}
MOST = 400

UPDATES: list[Any] = [
    LONG,
    {LONG: 1},
    {f"${LONG}": {}},
    {"$set": LONG},
    {"$set": {LONG: {1}}},
    {"$set": {f"{LONG}.": 1}},
    {"$set": {f"${LONG}": 1}},
    {"$set": {f"$[{LONG}].x": 1}},
    {"$set": {f"a.$[{LONG}]": 1}},
    {"$set": {f"a.$[{LONG}": 1}},
    {"$set": {LONG: 1, f"{LONG}.x": 1}},
    {"$set": {LONG: 1}, "$inc": {f"{LONG}.x": 1}},
    {"$set": {f"a.{LONG}": 1}},
    {"$set": {f"list.{LONG}": 1}},
    {"$set": {f"{LONG}.$": 1}},
    {"$set": {f"{LONG}.$[]": 1}},
    {"$rename": {f"a.{LONG}": "z"}},
    {"$rename": {"z": f"${LONG}"}},
    {"$rename": {LONG: LONG}},
    {"$inc": {LONG: 1}},
    {"$inc": {"a": LONG}},
    {"$push": {LONG: 1}},
    {"$push": {"list": {"$each": [], LONG: 1}}},
    {"$push": {"list": {"$each": [], "$sort": {LONG: 2}}}},
    {"$pull": {"list": {"$and": [{f"${LONG}": 1}]}}},
    {"$bit": {"a": {LONG: 1}}},
    [{f"${LONG}": 1}],
    [{"$set": {"x": {"$add": [f"${LONG}", 1]}}}],
    {"$set": {Path(LONG, "$"): 1, f"{LONG}.0": 1}},
]
ARRAY_FILTERS: list[tuple[str, Any]] = [
    ("list.$[e]", [{"e": 1}, {f"f{LONG}": 1}]),
    ("list.$[e]", [{f"e{LONG}": 1}, {f"e{LONG}": 1}]),
    ("list.$[e]", [{"e": 1, LONG: 1}]),
    ("list.$[e]", [{f"{LONG}_": 1}]),
    ("list.$[e]", [{f"${LONG}": 1}]),
    (f"list.$[{LONG}]", [{"e": 1}]),
    ("o.$[e]", [{"e": 1}]),
]
FILTERS: list[Any] = [
    LONG,
    {f"${LONG}": 1},
    {f"${LONG}.x.y": 1},
    {LONG: {1}},
    {"a": {f"${LONG}": 1}},
    {"a": {"$regex": f"({LONG}"}},
    {"a": {"$regex": f"(?P={LONG})"}},
    {"a": {"$regex": "a", "$options": LONG}},
    {"a": {"$type": LONG}},
    {"a": {"$gt": 1, LONG: 1}},
    {"a": {"$gt": re.compile(LONG)}},
    {"$created_at": LONG},
    {"$jsonSchema": {LONG: 1}},
    {"$expr": {f"${LONG}": 1}},
    {"$expr": {"$add": [1], LONG: 1}},
    {"$expr": f"$${LONG}"},
    {"$expr": {"$regexMatch": {"input": "a", "regex": "a", "options": LONG}}},
    {"$expr": {"$regexMatch": {"input": "a", "regex": f"(?P={LONG})"}}},
    {f"\0{LONG}": 1},
    {".".join(["k" * 50] * 300): 1},
]
PROJECTIONS: list[Any] = [
    LONG,
    {f"${LONG}": 1},
    {f"a.$.{LONG}": 1},
    {LONG: f"$${LONG}"},
    {LONG: {f"${LONG}": 1}},
    {LONG: 1, f"{LONG}.x": 1},
    {LONG: {"$slice": LONG}},
    {f"{LONG}.$": 1},
    {"list.$": 1},
]


def changed(update: Any, filters: Any = None) -> Any:
    return Update.parse(update, array_filters=filters).apply(Document(LONG, BODY), now=0)


def projected(wanted: Any) -> Any:
    filter = Filter.parse({"list": {"$ne": 5}})
    return Projection.parse(wanted).apply(Document(LONG, BODY), filter)


def test_updates() -> None:
    for update in UPDATES:
        assert_short(changed, update)
    for path, filters in ARRAY_FILTERS:
        assert_short(changed, {"$set": {path: 1}}, filters)


def test_filters() -> None:
    for filter in FILTERS:
        assert_short(Filter.parse, filter)


def test_projections() -> None:
    for wanted in PROJECTIONS:
        assert_short(projected, wanted)


def test_huge_slices_are_clamped() -> None:
    sliced = Projection.parse({"list": {"$slice": [-(10**400), 10**400]}})
    assert sliced.apply(Document("1", BODY), Filter()).body["list"] == [1, 2]


def assert_short(work: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(CollectionsStoreError) as caught:
        work(*arguments)
    assert len(str(caught.value)) < MOST, str(caught.value)
