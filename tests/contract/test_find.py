"""Equality, with the same results on every backend, sync and async.

The cases are those of MongoDB's documentation and of `shared/design/QUERY.md`; the property tests
hold the rest to the reference matcher.
"""

import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from backends import Backend

from collections_store import F, Filter, InvalidFilter, Path
from collections_store.operations import read as reading
from collections_store.operations.find import FindIds
from collections_store.query.matcher import matches

pytestmark = pytest.mark.each_backend

BODIES: dict[str, Any] = {
    "one": {"a": 1},
    "one.0": {"a": 1.0},
    "true": {"a": True},
    "text": {"a": "1"},
    "null": {"a": None},
    "none": {"b": 1},
    "array": {"a": [1, "x", [2], {"b": 3}]},
    "empty": {"a": []},
    "object": {"a": {"b": 3}},
    "objects": {"a": [{"b": 3}, {}]},
    "nested": {"a": [[1]]},
    "scalar body": 1,
    "array body": [1, {"a": 1}],
    "null body": None,
}

CASES: list[tuple[Any, Any, set[str]]] = [
    ("a", 1, {"one", "one.0", "array"}),
    ("a", 1.0, {"one", "one.0", "array"}),
    ("a", True, {"true"}),
    ("a", "1", {"text"}),
    ("a", None, {"null", "none", "scalar body", "array body", "null body"}),
    ("a", [], {"empty"}),
    ("a", [1], {"nested"}),
    ("a", [2], {"array"}),
    ("a", [[1]], {"nested"}),
    ("a", {"b": 3}, {"object", "array", "objects"}),
    ("a", {}, {"objects"}),
    ("a", "x", {"array"}),
    ("a.b", 3, {"object", "array", "objects"}),
    (
        "a.b",
        None,
        {"one", "one.0", "true", "text", "null", "none", "objects"}
        | {"scalar body", "array body", "null body"},
    ),
    ("a.0", 1, {"array"}),
    ("a.0", [1], {"nested"}),
    ("a.3.b", 3, {"array"}),
    ("a.0.b", 3, {"objects"}),
    ("a.00", 1, set()),
    ("a.-1", 1, set()),
    ("a.0.0", 1, {"nested"}),
    ("$body", 1, {"scalar body", "array body"}),
    ("$body", None, {"null body"}),
    ("$body", {"a": 1}, {"one", "one.0", "array body"}),
    ("$body", [1, {"a": 1}], {"array body"}),
    ("$body.a", 1, {"one", "one.0", "array"}),
    ("$id", "one", {"one"}),
    ("$id", 1, set()),
    ("$version", 1, set(BODIES)),
    ("$version", 1.0, set(BODIES)),
    ("$version", "1", set()),
    ("$expires_at", None, set(BODIES)),
    ("$created_at", None, set()),
    ("nothing.at.all", 1, set()),
    ("a", -0.0, set()),
]


@pytest.fixture
def filled(things: Any) -> Any:
    things.put_many(BODIES)
    return things


def test_equality(filled: Any) -> None:
    wrong = {}
    for field, equals, expected in CASES:
        for found in (filled.find(field, equals), filled.find({field: equals})):
            ids = {document.id for document in found}
            if ids != expected:
                wrong[field, repr(equals)] = ids ^ expected
        assert filled.count(field, equals) == len(found)
        assert [d.id for d in filled.stream(field, equals)] == [d.id for d in found]
    assert not wrong


SPELLED: list[Any] = [
    *(1, 30, 30.0, 30.5, 3, 0.3, 0, -0.0, -30, 9999.5, 99_999, 99_999.5, 100_000, 1e5, 12_345_678),
    *(0.00001, 1e-7, 1e16, 10**16, 1e22, 2**53, 2**63 - 1, True, False, None),
    *("", "30", "1", "a", "a b", "a_b.c:d-e", "a*", "[a]", "?", "*", "^", "-", "]", "a/b", "a\\b"),
    *('"', "é", "e", "\t", "%", "a" * 999, "a" * 1_000, "a" * 60_000),
]
"""Values that JSON texts contain as they are, and values that have several texts or other characters."""


def test_equality_does_not_depend_on_how_json_spells_a_value(things: Any) -> None:
    for number, value in enumerate(SPELLED):
        things.put(f"value {number:02}", {"a": {"b": value}, "other": "x"})
        things.put(f"array {number:02}", {"a": {"b": ["x", value]}})
        things.put(f"objects {number:02}", {"a": [{"b": 7}, {"b": value}]})
        things.put(f"elsewhere {number:02}", {"a": {"b": "none"}, "c": value})
    documents = things.find()
    for value in SPELLED:
        for filter in ({"a.b": value}, {"a.b": {"$ne": value}}, {"$or": [{"a.b": value}]}):
            parsed = Filter.parse(filter)
            expected = [each.id for each in documents if matches(parsed, each)]
            assert [each.id for each in things.find(filter)] == expected, repr(value)[:40]
    assert all(things.count({"a.b": value}) >= 3 for value in SPELLED)


def test_all_conditions_must_hold(filled: Any) -> None:
    filled.put("both", {"a": 1, "b": 1})
    assert [d.id for d in filled.find({"a": 1, "b": 1})] == ["both"]
    assert [d.id for d in filled.find({"a": 1, "$id": "one"})] == ["one"]
    assert filled.count({}) == filled.count() == len(BODIES) + 1
    assert len(filled.find()) == len(BODIES) + 1


def test_eq_is_equality(filled: Any) -> None:
    filled.put("operator", {"a": {"$eq": 1}})
    assert filled.find({"a": {"$eq": 1}}) == filled.find("a", 1)[:-1] + filled.find({"a": 1})[-1:]
    assert [d.id for d in filled.find({"a": {"$eq": {"$eq": 1}}})] == ["operator"]
    assert [d.id for d in filled.find(F("a") == {"$eq": 1})] == ["operator"]


def test_operators_are_not_values_to_equal(store: Any) -> None:
    """They would be compared as a document, and match nothing."""
    things = store["things"]
    calls = [things.find, things.find_one, things.count, things.delete_many, things.page]
    for call in [*calls, things.explain, store.memory("bot").find]:
        with pytest.raises(InvalidFilter, match=r"find\(\{'n': \{'\$gt': 3\}\}\)"):
            call("n", {"$gt": 3})
    things.put("dollar", {"n": {"$ref": "x"}})
    assert things.count("n", {"$ref": "x"}) == 1


def test_skip_and_limit(filled: Any) -> None:
    ids = [document.id for document in filled.find()]
    assert [d.id for d in filled.find(skip=2, limit=3)] == ids[2:5]
    assert [d.id for d in filled.find({"a.9": {"b": 3}}, limit=3)] == []
    everywhere = [d.id for d in filled.find({"$version": 1}, skip=12)]
    assert everywhere == ids[12:]


def test_residual_conditions_respect_skip_and_limit(things: Any) -> None:
    things.put_many((str(n), {'quo"te': n % 2, "n": n}) for n in range(500))
    assert [d.id for d in things.find({'quo"te': 1}, skip=1, limit=2)] == ["3", "5"]
    assert things.count({'quo"te': 1}) == 250
    assert things.count({'quo"te': 1, "n": 7}) == 1
    assert sum(1 for _ in things.stream({'quo"te': 1})) == 250


def test_metadata_times_are_compared_as_times(things: Any) -> None:
    things.put("a", 1)
    created = things.document("a").created_at
    microseconds = (created - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    for spelling in (created, created.isoformat(), created.astimezone(), microseconds):
        assert things.count({"$created_at": spelling}) == 1, spelling
    assert things.count({"$created_at": created + timedelta(microseconds=1)}) == 0
    assert things.count({"$updated_at": datetime.now(UTC)}) == 0


def test_deep_paths(things: Any) -> None:
    body: Any = "bottom"
    for _ in range(90):
        body = {"k": [body]}
    things.put("a", body)
    things.put("b", {"k": {"k": {"k": {"k": {"k": {"k": {"k": 1}}}}}}})
    assert [d.id for d in things.find(".".join(["k"] * 90), "bottom")] == ["a"]
    assert [d.id for d in things.find(".".join(["k"] * 7), 1)] == ["b"]
    assert [d.id for d in things.find(".".join(["k"] * 8), None)] == ["b"]


def test_key_order_of_objects_matters(lasting_backend: Backend, things: Any) -> None:
    things.put("ab", {"o": {"a": 1, "b": 2}})
    same = [d.id for d in things.find("o", {"a": 1, "b": 2})]
    other = [d.id for d in things.find("o", {"b": 2, "a": 1})]
    assert same == ["ab"]
    assert other == (["ab"] if lasting_backend.is_postgresql else [])


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (({"a": {"$near": 1}},), r"a\.\$near"),
        (({"$where": "1"},), r"\$where"),
        (({"a": {"$eq": 1, "b": 2}},), r"a\.b"),
        (({"a": float("nan")},), "'a'"),
        (({"a": {"b": [1, {2}]}},), r"a\.b\.1"),
        (({"a": 2**63},), "'a'"),
        (({"a\0": 1},), "NUL"),
        (({"\ud800": 1},), "surrogate"),
        (({1: 1},), "string"),
        (("a",), r"find\(field, value\)"),
        ((["a"],), "document or a field"),
        (({"a": 1}, 1), "goes with a field"),
        (({"$nothing": 1},), r"\$version"),
        (({"$id.x": 1},), r"\$id"),
        (({"$created_at": "yesterday"},), "time"),
        (({"$created_at": datetime(2026, 1, 1)},), "time zone"),
        ((".".join(["a"] * 201), 1), "200"),
    ],
    ids=repr,
)
def test_invalid_arguments_are_named(things: Any, arguments: Any, where: str) -> None:
    for method in (things.find, things.count, lambda *given: list(things.stream(*given))):
        with pytest.raises(InvalidFilter, match=where):
            method(*arguments)


@pytest.mark.parametrize("window", [{"skip": -1}, {"limit": -1}, {"limit": 1.5}, {"skip": True}])
def test_skip_and_limit_are_integers(things: Any, window: Any) -> None:
    with pytest.raises(InvalidFilter, match=next(iter(window))):
        things.find(**window)
    with pytest.raises(InvalidFilter, match=next(iter(window))):
        things.list(**window)


def test_a_filter_is_a_value(filled: Any) -> None:
    filter = Filter.parse({"a": 1})
    assert filter == Filter.parse("a", 1)
    assert hash(filter) == hash(Filter.parse({"a": 1}))
    assert filter != Filter.parse({"a": True})
    assert str(Filter.parse({"a.b": [1, None], "$id": "x"})) == "{'a.b': [1, None], '$id': 'x'}"
    assert str(Filter.parse("a", {"$x": 1})) == "{'a': {'$eq': {'$x': 1}}}"
    assert filled.find(filter) == filled.find("a", 1)
    assert filled.find(Path("a"), 1) == filled.find("a", 1)


@pytest.mark.parametrize(
    "filter",
    [
        {},
        {"$id": {"$gte": "b", "$lt": "d"}},
        {"n": {"$gt": 1}},
        {"name": {"$regex": "^(x|y)+$"}},
        {"$jsonSchema": {"required": ["n"], "properties": {"n": {"multipleOf": 2}}}},
        {"n": "nobody"},
    ],
)
def test_ids_are_found_in_their_order(store: Any, filter: Any) -> None:
    """In SQL and in the matcher."""
    filter = Filter.parse(filter)
    assert store.run(FindIds("things", filter)) == []
    store["things"].put("old", {"n": 2, "name": "xyx"}, ttl=0.000_001)
    for number, id in enumerate(["e", "b", "\U0001f600", "\uffff", "d", "a", "c", "B"]):
        store["things"].put(id, {"n": number, "name": "xy" * (number % 3)})
    expected = sorted(each.id for each in store["things"].find(filter))
    assert store.run(FindIds("things", filter)) == expected
    for limit in (1, 2, 3, 100):
        assert store.run(FindIds("things", filter, limit)) == expected[:limit]


@pytest.mark.parametrize("field", ["tags", "deep.tags", "one", "$version"])
def test_distinct_holds_only_distinct_values(
    things: Any, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setattr(reading, "BATCH_CHARACTERS", 2**16)
    tags = [f"{n:0500}" for n in range(20)]
    body = {"tags": tags, "one": tags[0], "deep": [{"tags": tags[:9]}, {"tags": tags[9:]}]}
    things.put_many((str(n), body) for n in range(150))
    tracemalloc.start()
    try:
        found = things.distinct(field)
        assert tracemalloc.get_traced_memory()[1] < 150 * 20_000 / 2
    finally:
        tracemalloc.stop()
    assert found == {"one": tags[:1], "$version": [1]}.get(field, tags)


@pytest.mark.parametrize("sort", [None, "$id", [("$id", -1)], {"$id": -1}])
def test_a_range_of_ids_is_found_as_by_other_conditions(store: Any, sort: Any) -> None:
    things, order = store["things"], {} if sort is None else {"sort": sort}
    within = {"$gte": "b", "$lt": "d"}
    assert things.find({"$id": within}, **order) == []
    things.put("bb", {"old": True}, ttl=0.000_001)
    for number, id in enumerate(["d", "cz", "b", "a", "ä", "c\U0001f600", "bä", "b" * 500, "B"]):
        things.put(id, number)
    for first, end in (("b", "d"), ("b", "b"), ("", "\x7f"), ("bä", "c"), ("d", "b")):
        within = {"$gte": first, "$lt": end}
        other = {"$and": [{"$id": within}, {"$version": {"$gt": 0}}]}
        assert things.find({"$id": within}, **order) == things.find(other, **order)
        expected = things.find(other, limit=99, **order)
        assert things.find({"$id": within}, skip=1, limit=2, **order) == expected[1:3]
        assert things.find_one({"$id": within}, **order) == next(iter(expected), None)
        assert things.find({"$id": within}, sort=[], limit=99) == things.find({"$id": within})
        if sort is not None:
            pages = things.page({"$id": within}, limit=2, **order)
            rest = things.page({"$id": within}, limit=9, after=pages.cursor, **order)
            assert [*pages, *rest][: len(expected)] == expected
    assert [each.id for each in things.find({"$id": {"$gte": "a", "$lt": "bb"}}, sort="$id")] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize("wrong", ["a\0", "\ud800", 1, None])
def test_a_bound_of_ids_that_is_no_id_is_refused_or_matches_nothing(
    things: Any, wrong: Any
) -> None:
    things.put("a", 1)
    others = {"$version": {"$gt": 0}}

    def found(filter: Any) -> Any:
        try:
            return things.find(filter)
        except InvalidFilter as error:
            return str(error)

    for within in ({"$gte": "a", "$lt": wrong}, {"$gte": wrong, "$lt": "b"}):
        assert found({"$id": within}) == found({"$id": within, **others})


def ids(documents: list[Any]) -> list[str]:
    return [each.id for each in documents]


def test_ids_by_their_name_in_mongodb(things: Any) -> None:
    things.put_many({"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 1, "_id": "a", "in": [{"_id": 5}]}})
    assert things.find_one({"_id": "a"}) == things.document("a")
    assert ids(things.find("_id", "b")) == ids(things.find(F("_id") == "b")) == ["b"]
    assert ids(things.find({"$or": [{"_id": {"$in": ["b"]}}, {"n": 3}]})) == ["b"]
    assert ids(things.find({"_id": {"$ne": "a"}, "n": 1}, sort=[("_id", -1)])) == ["c"]
    assert ids(things.find(sort={"_id": -1})) == ["c", "b", "a"]
    assert things.distinct("_id") == ["a", "b", "c"]
    assert things.update_one({"_id": "a"}, {"$inc": {"n": 5}}).modified_count == 1
    assert things.update_one({"_id": "d"}, {"$set": {"n": 4}}, upsert=True).upserted_id == "d"
    assert things.get("d") == {"n": 4}
    assert things.delete_one({"_id": "d"}).deleted_count == 1
    assert things.find({"_id": "a"}, projection={"_id": 0, "n": 1})[0].body == {"n": 6}
    assert things.aggregate([{"$match": {"_id": "b"}}]) == [{"n": 2}]
    # a field of that name
    for field in (Path("_id"), "$body._id"):
        assert ids(things.find({field: "a"})) == ids(things.find(sort=[(field, -1)])[:1]) == ["c"]
        assert things.distinct(field) == ["a"]
    assert ids(things.find({"in._id": 5})) == ["c"]
    assert ids(things.find({"in": {"$elemMatch": {"_id": 5}}})) == ["c"]


@pytest.mark.parametrize(
    ("filter", "problem"),
    [
        ({"_id": 7}, r"'_id': must be a string, as ids are, got 7: .* write \$body\._id$"),
        ({"_id": {"$in": ["a", 7]}}, r"'_id.\$in.1': must be a string, as ids are"),
        ({"_id": {"$gt": [1]}}, "must be a string, as ids are"),
        ({"_id": {"$not": {"$eq": 1}}}, "must be a string, as ids are"),
        ({"_id.n": 7}, r"'_id.n': _id is the document's id, .* write \$body\._id\.n$"),
    ],
)
def test_values_that_no_id_has(things: Any, filter: Any, problem: str) -> None:
    with pytest.raises(InvalidFilter, match=problem):
        things.find(filter)
