"""Queries on 500 real dialogues, on 2,000 with `--whole-matrix`: SQLite, PostgreSQL and plain loops over the lists agree.

A dialogue is {"dialogue_id", "services": [text], "turns": [{"speaker", "utterance", "frames": [{"service",
"actions": [{"act", "slot", "values"}], "slots": [{"slot", "start"}], "state": {"active_intent", "slot_values": {slot:
[text]}}, "service_call": {"method", "parameters": {…}}, "service_results": [{…}]}]}]}; `state` is
what USER turns have, `service_call` and `service_results` some SYSTEM turns.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest
from conftest import SHARED
from selection import in_turns, sampled

from collections_store import Filter, Projection, Store

FILE = SHARED / "data" / "sgd_dialogues.jsonl.gz"

pytestmark = [
    pytest.mark.skipif(not FILE.is_file(), reason="../shared/data is not there: no dialogues"),
    pytest.mark.timeout(300),
]

Dialogue = dict[str, Any]


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, 1, None, 2 * sampled(4))]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def talks(request: pytest.FixtureRequest, dialogues: list[Dialogue]) -> Iterator[Any]:
    """A collection of all dialogues on each backend."""
    url, options = "sqlite://", {}
    if request.param == "postgresql":
        backend = request.getfixturevalue("module_postgres_backend")
        url, options = backend.url, backend.options
    with Store(url, durability="normal", **options) as store:
        store["talks"].put_many((each["dialogue_id"], each) for each in dialogues)
        yield store["talks"]


# -- plain loops -------------------------------------------------------------------------------


def frames(dialogue: Dialogue) -> Iterator[dict[str, Any]]:
    for turn in dialogue["turns"]:
        yield from turn["frames"]


def actions(dialogue: Dialogue) -> Iterator[dict[str, Any]]:
    for frame in frames(dialogue):
        yield from frame["actions"]


def results(dialogue: Dialogue) -> Iterator[dict[str, Any]]:
    for frame in frames(dialogue):
        yield from frame.get("service_results", [])


def slots(dialogue: Dialogue) -> Iterator[dict[str, Any]]:
    for frame in frames(dialogue):
        yield from frame["slots"]


def values(dialogue: Dialogue, slot: str) -> list[list[str]]:
    states = [frame["state"]["slot_values"] for frame in frames(dialogue) if "state" in frame]
    return [state[slot] for state in states if slot in state]


def acts(dialogue: Dialogue) -> set[str]:
    return {action["act"] for action in actions(dialogue)}


def parameters(dialogue: Dialogue) -> list[dict[str, Any]]:
    return [f["service_call"]["parameters"] for f in frames(dialogue) if "service_call" in f]


def confirms_a_class(dialogue: Dialogue) -> bool:
    for turn in dialogue["turns"]:
        if turn["speaker"] == "SYSTEM":
            for frame in turn["frames"]:
                for action in frame["actions"]:
                    if action["act"] == "CONFIRM" and action["slot"] == "seating_class":
                        return True
    return False


def asks_late_for_a_city(dialogue: Dialogue) -> bool:
    for turn in dialogue["turns"]:
        for frame in turn["frames"]:
            for slot in frame["slots"]:
                if slot["slot"] == "city" and 60 <= slot["start"] < 70:
                    return True
    return False


def fourth_turn_names_a_slot(dialogue: Dialogue) -> bool:
    turns = dialogue["turns"]
    return len(turns) > 3 and len(turns[3]["frames"][0]["slots"]) > 0


def first_intent_is_to_find(dialogue: Dialogue) -> bool:
    intent = dialogue["turns"][0]["frames"][0]["state"]["active_intent"]
    return intent in {"FindEvents", "FindBus"}


def passengers_in_a_class(dialogue: Dialogue) -> bool:
    return any("passengers" in each and "seating_class" in each for each in parameters(dialogue))


# -- queries ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    name: str
    filter: dict[str, Any]
    matches: Callable[[Dialogue], bool]


QUERIES = [
    Query("an element", {"services": "Restaurants_1"}, lambda d: "Restaurants_1" in d["services"]),
    Query("numbers and a pattern", {"services.0": {"$regex": "^Flights"}}, lambda d: d["services"][0].startswith("Flights")),
    Query("$size", {"turns": {"$size": 12}}, lambda d: len(d["turns"]) == 12),
    Query(
        "through three arrays",
        {"turns.frames.service_results.price_range": "inexpensive"},
        lambda d: any(each.get("price_range") == "inexpensive" for each in results(d)),
    ),
    Query(
        "$elemMatch in $elemMatch",
        {
            "turns": {
                "$elemMatch": {
                    "speaker": "SYSTEM",
                    "frames.actions": {"$elemMatch": {"act": "CONFIRM", "slot": "seating_class"}},
                }
            }
        },
        confirms_a_class,
    ),
    Query(
        "a pattern within one turn",
        {"turns": {"$elemMatch": {"speaker": "USER", "utterance": {"$regex": r"\bcheap(er)?\b", "$options": "i"}}}},
        lambda d: any(
            t["speaker"] == "USER" and re.search(r"\bcheap(er)?\b", t["utterance"], re.IGNORECASE)
            for t in d["turns"]
        ),
    ),
    Query(
        "a range within one element",
        {"turns.frames.slots": {"$elemMatch": {"slot": "city", "start": {"$gte": 60, "$lt": 70}}}},
        asks_late_for_a_city,
    ),
    Query(
        "a range over elements",
        {"turns.frames.slots.start": {"$gt": 150}},
        lambda d: any(slot["start"] > 150 for slot in slots(d)),
    ),
    Query(
        "$nin",
        {"services": {"$nin": ["Events_2", "Flights_1"]}},
        lambda d: not {"Events_2", "Flights_1"} & set(d["services"]),
    ),
    Query("$ne", {"turns.frames.actions.act": {"$ne": "OFFER"}}, lambda d: "OFFER" not in acts(d)),
    Query(
        "$all",
        {"turns.frames.actions.act": {"$all": ["NEGATE", "REQUEST_ALTS", "NOTIFY_FAILURE"]}},
        lambda d: acts(d) >= {"NEGATE", "REQUEST_ALTS", "NOTIFY_FAILURE"},
    ),
    Query(
        "$exists",
        {"turns.frames.state.slot_values.party_size": {"$exists": True}},
        lambda d: values(d, "party_size") != [],
    ),
    Query(
        "not there",
        {"turns.frames.state.slot_values.city": {"$exists": False}},
        lambda d: values(d, "city") == [],
    ),
    Query(
        "$type at numbers",
        {"turns.3.frames.0.slots.0.start": {"$type": "int"}},
        fourth_turn_names_a_slot,
    ),
    Query(
        "the first turn",
        {"turns.0.frames.0.state.active_intent": {"$in": ["FindEvents", "FindBus"]}},
        first_intent_is_to_find,
    ),
    Query(
        "one of many things",
        {
            "$or": [
                {"services": "Banks_1"},
                {"turns": {"$size": 4}},
                {"turns.frames.service_call.parameters.city": "San Jose"},
                {"$id": {"$in": ["1_00000", "9_00000", "nobody"]}},
            ]
        },
        lambda d: (
            "Banks_1" in d["services"]
            or len(d["turns"]) == 4
            or any(each.get("city") == "San Jose" for each in parameters(d))
            or d["dialogue_id"] in {"1_00000", "9_00000"}
        ),
    ),
    Query(
        "none of them",
        {"$nor": [{"turns.frames.actions.act": "OFFER_INTENT"}, {"turns.frames.service_results": {"$size": 10}}]},
        lambda d: (
            "OFFER_INTENT" not in acts(d)
            and not any(len(f.get("service_results", [])) == 10 for f in frames(d))
        ),
    ),
    Query(
        "patterns and values",
        {"turns.utterance": {"$in": [re.compile("^Nope"), "Goodbye."]}},
        lambda d: any(t["utterance"].startswith("Nope") or t["utterance"] == "Goodbye." for t in d["turns"]),
    ),
    Query(
        "$elemMatch of texts",
        {"turns.frames.state.slot_values.cuisine": {"$elemMatch": {"$gte": "M", "$lt": "T"}}},
        lambda d: any("M" <= each < "T" for texts in values(d, "cuisine") for each in texts),
    ),
    Query(
        "a range of ids and a remainder",
        {"dialogue_id": {"$gte": "1_00100", "$lt": "3"}, "turns.frames.slots.start": {"$mod": [31, 30]}},
        lambda d: "1_00100" <= d["dialogue_id"] < "3" and any(s["start"] % 31 == 30 for s in slots(d)),
    ),
    Query(
        "two fields of one object",
        {
            "turns": {
                "$elemMatch": {
                    "frames.service_call.parameters.passengers": {"$exists": True},
                    "frames.service_call.parameters.seating_class": {"$exists": True},
                }
            },
        },
        passengers_in_a_class,
    ),
    Query(
        "a schema",
        {"$jsonSchema": {"properties": {"turns": {"minItems": 20}}}},
        lambda d: len(d["turns"]) >= 20,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("talks", "query"),
    in_turns(["sqlite", "postgresql"], QUERIES),
    indirect=["talks"],
    ids=lambda each: getattr(each, "name", each),
)
def test_queries(query: Query, talks: Any, dialogues: list[Dialogue]) -> None:
    expected = [each["dialogue_id"] for each in dialogues if query.matches(each)]
    assert 0 < len(expected) < len(dialogues), "a query must match some dialogues, and not all"
    assert [document.id for document in talks.find(query.filter)] == expected
    assert talks.count(query.filter) == len(expected)


# -- projections -------------------------------------------------------------------------------


def last_turns(dialogue: Dialogue) -> Dialogue:
    return {"services": dialogue["services"], "turns": dialogue["turns"][-2:]}


def first_offer(dialogue: Dialogue) -> Dialogue:
    for turn in dialogue["turns"]:
        for frame in turn["frames"]:
            if any(action["act"] == "OFFER" for action in frame["actions"]):
                return {"turns": [turn]}
    return {}


def without_frames(dialogue: Dialogue) -> Dialogue:
    turns = [{key: turn[key] for key in ("speaker", "utterance")} for turn in dialogue["turns"]]
    return {
        "dialogue_id": dialogue["dialogue_id"],
        "services": dialogue["services"],
        "turns": turns,
    }


def what_was_called(dialogue: Dialogue) -> Dialogue:
    found = []
    for turn in dialogue["turns"]:
        calls: list[Dialogue] = []
        for frame in turn["frames"]:
            call = frame.get("service_call")
            calls.append({"service_call": {"method": call["method"]}} if call else {})
        found.append({"frames": calls})
    return {"turns": found}


RESTAURANTS = {"services": "Restaurants_1"}


@dataclass(frozen=True)
class Part:
    name: str
    projection: dict[str, Any]
    filter: dict[str, Any]
    answer: Callable[[Dialogue], Dialogue]


OFFERS = {"turns.frames.actions.act": "OFFER", **RESTAURANTS}
PARTS = [
    Part("fields", {"turns.frames.service_call.method": 1}, RESTAURANTS, what_was_called),
    Part("exclusion", {"turns.frames": 0}, RESTAURANTS, without_frames),
    Part("$slice", {"turns": {"$slice": -2}, "services": 1}, RESTAURANTS, last_turns),
    Part(
        "$elemMatch",
        {"turns": {"$elemMatch": {"frames.actions.act": "OFFER"}}},
        RESTAURANTS,
        first_offer,
    ),
    Part("field.$", {"turns.$": 1}, OFFERS, first_offer),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_projections(part: Part, talks: Any, dialogues: list[Dialogue]) -> None:
    filter, projection = Filter.parse(part.filter), Projection.parse(part.projection)
    projection.check(filter)
    by_id = {each["dialogue_id"]: each for each in dialogues}
    found = talks.find(filter)
    assert 0 < len(found) < len(dialogues)
    bodies = [projection.apply(document, filter).body for document in found]
    assert bodies == [part.answer(by_id[document.id]) for document in found]
    assert any(body != {} for body in bodies)


# -- projections, sorts, pages, groups ------------------------------------------------------------------------

LONG = {"turns": {"$size": 24}}


def sorted_ids(dialogues: list[Dialogue]) -> list[str]:
    """The ids of the long dialogues: by service, then by descending id."""
    found = [each for each in dialogues if len(each["turns"]) == 24]
    found.sort(key=lambda each: str(each["dialogue_id"]), reverse=True)
    found.sort(key=lambda each: str(each["services"][0]))
    return [each["dialogue_id"] for each in found]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_find_with_a_projection(part: Part, talks: Any, dialogues: list[Dialogue]) -> None:
    by_id = {each["dialogue_id"]: each for each in dialogues}
    found = talks.find(part.filter, projection=part.projection)
    assert 0 < len(found) < len(dialogues)
    assert all(document.body == part.answer(by_id[document.id]) for document in found)


def test_find_sorts(talks: Any, dialogues: list[Dialogue]) -> None:
    expected = sorted_ids(dialogues)
    order = [("services", 1), ("dialogue_id", -1)]
    assert [each.id for each in talks.find(LONG, sort=order)] == expected
    window = talks.find(LONG, sort=order, skip=30, limit=20)
    assert [each.id for each in window] == expected[30:50]
    assert talks.find_one(LONG, sort=order).id == expected[0]
    longest = talks.find(sort=[("turns.31.utterance", -1), ("dialogue_id", 1)], limit=1)
    last = max(each["turns"][31]["utterance"] for each in dialogues if len(each["turns"]) > 31)
    assert longest[0].body["turns"][31]["utterance"] == last


@pytest.mark.parametrize("limit", [1000, 50, 29])
def test_pages(limit: int, talks: Any, dialogues: list[Dialogue]) -> None:
    expected = sorted_ids(dialogues)
    order = [("services", 1), ("dialogue_id", -1)]
    found: list[str] = []
    cursor = None
    while True:
        page = talks.page(LONG, sort=order, limit=limit, after=cursor)
        found.extend(each.id for each in page.documents)
        cursor = page.cursor
        if cursor is None or not page.documents:
            break
        assert len(page.documents) <= limit
    assert found == expected


def test_distinct(talks: Any, dialogues: list[Dialogue]) -> None:
    services = {service for each in dialogues for service in each["services"]}
    assert sorted(talks.distinct("services")) == sorted(services)
    methods = {
        frame["service_call"]["method"]
        for each in dialogues
        if each["services"] == ["Restaurants_1"]
        for frame in frames(each)
        if "service_call" in frame
    }
    found = talks.distinct("turns.frames.service_call.method", RESTAURANTS)
    assert sorted(found) == sorted(methods)
    assert 1 < len(methods) < 28
    filter = {"services": "Restaurants_1", "turns": {"$size": 10}}
    sizes = {
        size
        for each in dialogues
        if each["services"] == ["Restaurants_1"] and len(each["turns"]) == 10
        for sizes in values(each, "party_size")
        for size in sizes
    }
    found = talks.distinct("turns.frames.state.slot_values.party_size", filter)
    assert sorted(found) == sorted(sizes)


def test_groups(talks: Any, dialogues: list[Dialogue]) -> None:
    pipeline = [
        {"$match": {"turns.frames.actions.act": "NOTIFY_FAILURE"}},
        {"$unwind": "$services"},
        {"$group": {"_id": "$services", "talks": {"$sum": 1}}},
        {"$sort": {"talks": -1, "_id": 1}},
        {"$limit": 5},
    ]
    failed = Counter(each["services"][0] for each in dialogues if "NOTIFY_FAILURE" in acts(each))
    expected = sorted(failed.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
    assert [(each["_id"], each["talks"]) for each in talks.aggregate(pipeline)] == expected
    assert len(failed) > 5
