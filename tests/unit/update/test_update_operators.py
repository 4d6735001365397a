"""Results of update operators, one by one, as of MongoDB's server on JSON values."""

import copy
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from collections_store import Document, Filter, Path, Update, UpdateRefused
from collections_store.query.matcher import matches

NOW = 1795201445123456  # 2026-11-20 19:04:05.123456 UTC


def give(
    update: Any, body: Any, *, found_by: Any = None, filters: Any = None, **options: Any
) -> Any:
    """Return the new body; check that the old one is unchanged."""
    before = copy.deepcopy(body)
    parsed = Update.parse(update, array_filters=filters)
    try:
        document = Document("id", body)
        return parsed.apply(document, filter=Filter.parse(found_by), now=NOW, **options)
    finally:
        assert json.dumps(body) == json.dumps(before)


def same(found: Any, expected: Any) -> bool:
    """Compare as JSON text: 1 is not 1.0, and the order of fields matters."""
    return json.dumps(found) == json.dumps(expected)


FIELDS: list[tuple[Any, Any, Any]] = [
    # $set
    ({"$set": {"a.01": 7}}, {"a": [1, 2]}, {"a": [1, 7]}),
    ({"$set": {"a.00": 7, "a.1": 8}}, {"a": [1, 2]}, {"a": [7, 8]}),
    ({"$set": {"a.0000000000002": 7}}, {"a": [1]}, {"a": [1, None, 7]}),
    ({"$set": {"a.01.x": 7}}, {"a": [1, {}]}, {"a": [1, {"x": 7}]}),
    ({"$set": {"a.01": 7}}, {"a": {}}, {"a": {"01": 7}}),
    ({"$unset": {"a.01": 1}}, {"a": [1, 2]}, {"a": [1, None]}),
    ({"$set": {"a": 2}}, {"a": 1}, {"a": 2}),
    ({"$set": {"a": 1.0}}, {"a": 1}, {"a": 1.0}),
    ({"$set": {"a": {"y": 1, "x": 2}}}, {"a": {"x": 2, "y": 1}}, {"a": {"y": 1, "x": 2}}),
    ({"$set": {"a": None}}, {}, {"a": None}),
    ({"$set": {"a.b.c": 1}}, {}, {"a": {"b": {"c": 1}}}),
    ({"$set": {"a.0.b": 1}}, {}, {"a": {"0": {"b": 1}}}),
    ({"$set": {"a.0.b": 1}}, {"a": [{"c": 2}]}, {"a": [{"c": 2, "b": 1}]}),
    ({"$set": {"a.2": "x"}}, {"a": []}, {"a": [None, None, "x"]}),
    ({"$set": {"a.1.b.0": "x"}}, {"a": [1]}, {"a": [1, {"b": {"0": "x"}}]}),
    ({"$set": {"a.0.1": "x"}}, {"a": [[1]]}, {"a": [[1, "x"]]}),
    ({"$set": {"a.b": [1]}}, {"a": {"b": [2]}}, {"a": {"b": [1]}}),
    ({"$set": {"a.$b": {"$inc": 1}}}, {"a": {}}, {"a": {"$b": {"$inc": 1}}}),
    ({"$set": {Path("_id"): 2}}, {"_id": 1}, {"_id": 2}),
    ({"$set": {}}, {"a": 1}, {"a": 1}),
    ({"$setOnInsert": {"a": 1}}, {}, {}),
    # the order of new fields
    (
        {"$set": {"b": 1, "10": 1, "B": 1, "9": 1}, "$inc": {"aa": 1}, "$push": {"a": 1}},
        {"z": 0},
        {"z": 0, "9": 1, "10": 1, "B": 1, "a": [1], "aa": 1, "b": 1},
    ),
    ({"$set": {"a.y": 1, "a.x": 1, "b": 2}}, {"b": 1}, {"b": 2, "a": {"x": 1, "y": 1}}),
    ({"$set": {"a.10": 1, "a.9": 2}}, {"a": [0] * 9}, {"a": [0] * 9 + [2, 1]}),
    ({"$set": {"01": 1, "1": 1, "00": 1}}, {}, {"1": 1, "00": 1, "01": 1}),
    # $unset
    ({"$unset": {"a": ""}}, {"a": 1, "b": 2}, {"b": 2}),
    ({"$unset": {"a": 1, "c.d": 0}}, {"b": 2}, {"b": 2}),
    ({"$unset": {"a.b": ""}}, {"a": {"b": 1}}, {"a": {}}),
    ({"$unset": {"a.0": "", "a.2": "", "a.5": ""}}, {"a": [1, 2, 3]}, {"a": [None, 2, None]}),
    ({"$unset": {"a.0.b": ""}}, {"a": [{"b": 1}]}, {"a": [{}]}),
    ({"$unset": {"a.b": "", "c.d.e": ""}}, {"a": [{"b": 1}], "c": 5}, {"a": [{"b": 1}], "c": 5}),
    # $inc
    ({"$inc": {"a": 2}}, {"a": 1}, {"a": 3}),
    ({"$inc": {"a": -2}}, {}, {"a": -2}),
    ({"$inc": {"a": 1.5}}, {"a": 1}, {"a": 2.5}),
    ({"$inc": {"a": 1}}, {"a": 1.5}, {"a": 2.5}),
    ({"$inc": {"a": 0.0}}, {"a": 1}, {"a": 1.0}),
    ({"$inc": {"a.1": 1, "a.3": 5}}, {"a": [1, 2]}, {"a": [1, 3, None, 5]}),
    ({"$inc": {"a": 1}}, {"a": 2**63 - 2}, {"a": 2**63 - 1}),
    # $mul
    ({"$mul": {"a": 3}}, {"a": 2}, {"a": 6}),
    ({"$mul": {"a": 1.5}}, {"a": 2}, {"a": 3.0}),
    ({"$mul": {"a": 7, "b": 7.5}}, {}, {"a": 0, "b": 0.0}),
    # $min, $max: MongoDB's order of types
    ({"$min": {"a": 1}}, {"a": 2}, {"a": 1}),
    ({"$min": {"a": 2}}, {"a": 1}, {"a": 1}),
    ({"$max": {"a": 2}}, {"a": 1}, {"a": 2}),
    ({"$max": {"a": 1}}, {"a": 2}, {"a": 2}),
    ({"$max": {"a": 1.0}}, {"a": 1}, {"a": 1}),
    ({"$min": {"a": 3}, "$max": {"b": None}}, {}, {"a": 3, "b": None}),
    ({"$max": {"a": "x"}}, {"a": 99}, {"a": "x"}),
    ({"$max": {"a": True}}, {"a": 99}, {"a": True}),
    ({"$min": {"a": None}}, {"a": 0}, {"a": None}),
    ({"$max": {"a": [1]}}, {"a": {"b": 1}}, {"a": [1]}),
    # $rename
    ({"$rename": {"a": "b"}}, {"a": 1, "c": 2}, {"c": 2, "b": 1}),
    ({"$rename": {"a": "b"}}, {"b": 2, "a": 1}, {"b": 1}),
    ({"$rename": {"a": "b"}}, {"b": 2}, {"b": 2}),
    ({"$rename": {"a": "c.b"}}, {"c": 5}, {"c": 5}),
    ({"$rename": {"a.b": "c.d"}}, {"a": {"b": [1]}}, {"a": {}, "c": {"d": [1]}}),
    ({"$rename": {"a": "x"}, "$set": {"w": 1, "y": 1}}, {"a": None}, {"w": 1, "x": None, "y": 1}),
    ({"$rename": {"a.5": "x"}}, {"a": [1]}, {"a": [1]}),
    ({"$rename": {"a": "b"}}, {"a": 1.0, "b": 1}, {"b": 1}),
    # $currentDate
    ({"$currentDate": {"a": True}}, {}, {"a": "2026-11-20T19:04:05.123456Z"}),
    ({"$currentDate": {"a": False}}, {"a": 1}, {"a": "2026-11-20T19:04:05.123456Z"}),
    ({"$currentDate": {"a": {"$type": "date"}}}, {}, {"a": "2026-11-20T19:04:05.123456Z"}),
    ({"$currentDate": {"a": {"$type": "timestamp"}}}, {}, {"a": NOW}),
    # $bit
    ({"$bit": {"a": {"and": 10}}}, {"a": 12}, {"a": 8}),
    ({"$bit": {"a": {"or": 3, "xor": 1}}}, {"a": 4}, {"a": 6}),
    ({"$bit": {"a": {"or": 3}}}, {}, {"a": 3}),
    ({"$bit": {"a": {"and": -1}}}, {"a": -5}, {"a": -5}),
]

ARRAYS: list[tuple[Any, Any, Any]] = [
    # $push
    ({"$push": {"a": 1}}, {}, {"a": [1]}),
    ({"$push": {"a": [1]}}, {"a": [0]}, {"a": [0, [1]]}),
    ({"$push": {"a": {}}}, {"a": []}, {"a": [{}]}),
    ({"$push": {"a": {"b": {"$each": 1}}}}, {"a": []}, {"a": [{"b": {"$each": 1}}]}),
    ({"$push": {"a": {"$each": []}}}, {}, {"a": []}),
    ({"$push": {"a": {"$each": [1, 2]}}}, {"a": [0]}, {"a": [0, 1, 2]}),
    ({"$push": {"a": {"$each": [8, 9], "$position": 1}}}, {"a": [1, 2]}, {"a": [1, 8, 9, 2]}),
    ({"$push": {"a": {"$each": [9], "$position": 7.0}}}, {"a": [1, 2]}, {"a": [1, 2, 9]}),
    ({"$push": {"a": {"$each": [9], "$position": -1}}}, {"a": [1, 2]}, {"a": [1, 9, 2]}),
    ({"$push": {"a": {"$each": [9], "$position": -7}}}, {"a": [1, 2]}, {"a": [9, 1, 2]}),
    ({"$push": {"a": {"$each": [3], "$slice": 2}}}, {"a": [1, 2]}, {"a": [1, 2]}),
    ({"$push": {"a": {"$each": [3], "$slice": -2}}}, {"a": [1, 2]}, {"a": [2, 3]}),
    ({"$push": {"a": {"$each": [3], "$slice": -9}}}, {"a": [1, 2]}, {"a": [1, 2, 3]}),
    ({"$push": {"a": {"$each": [3], "$slice": 0}}}, {"a": [1, 2]}, {"a": []}),
    ({"$push": {"a": {"$slice": -2, "$each": [0], "$sort": -1}}}, {"a": [1, 2]}, {"a": [1, 0]}),
    (
        {"$push": {"a": {"$each": [], "$sort": 1}}},
        {"a": [True, [], "b", None, {}, 2, "a", 1.5, [1], False]},
        {"a": [None, 1.5, 2, "a", "b", {}, [], [1], False, True]},
    ),
    (
        {"$push": {"a": {"$each": [], "$sort": {"x": -1, "y.z": 1}}}},
        {"a": [{"x": 1}, 7, {"x": 2, "y": {"z": 2}}, {"x": 2, "y": {"z": 1}}, [{"x": 9}]]},
        {"a": [{"x": 2, "y": {"z": 1}}, {"x": 2, "y": {"z": 2}}, {"x": 1}, 7, [{"x": 9}]]},
    ),
    # arrays are compared completely, and an index selects an element
    (
        {"$push": {"a": {"$each": [], "$sort": {"x": 1}}}},
        {"a": [{"x": [2, 1]}, {"x": [1, 9]}]},
        {"a": [{"x": [1, 9]}, {"x": [2, 1]}]},
    ),
    (
        {"$push": {"a": {"$each": [], "$sort": {"x.1": 1}}}},
        {"a": [{"x": [1, 9]}, {"x": [2, 1]}]},
        {"a": [{"x": [2, 1]}, {"x": [1, 9]}]},
    ),
    # $addToSet
    ({"$addToSet": {"a": 1}}, {}, {"a": [1]}),
    ({"$addToSet": {"a": 1.0}}, {"a": [1]}, {"a": [1]}),
    ({"$addToSet": {"a": True}}, {"a": [1]}, {"a": [1, True]}),
    ({"$addToSet": {"a": {"$each": [3, 2, 3, "3"]}}}, {"a": [2, 2]}, {"a": [2, 2, 3, "3"]}),
    ({"$addToSet": {"a": {"$each": [1, 1]}}}, {}, {"a": [1]}),
    ({"$addToSet": {"a": {"$each": []}}}, {}, {"a": []}),
    ({"$addToSet": {"a": {"x": 1, "$each": [1]}}}, {}, {"a": [{"x": 1, "$each": [1]}]}),
    ({"$addToSet": {"a": {"x": 1, "y": 2}}}, {"a": [{"y": 2, "x": 1}]}, {"a": [{"y": 2, "x": 1}, {"x": 1, "y": 2}]}),
    # $pop
    ({"$pop": {"a": 1}}, {"a": [1, 2, 3]}, {"a": [1, 2]}),
    ({"$pop": {"a": -1.0}}, {"a": [1, 2, 3]}, {"a": [2, 3]}),
    ({"$pop": {"a": 1, "b.c": 1, "d.7": 1}}, {"a": [], "b": {}, "d": []}, {"a": [], "b": {}, "d": []}),
    # $pull: a value, operators, a filter of objects
    ({"$pull": {"a": 1}}, {"a": [1, 1.0, 2, True, [1], {"x": 1}]}, {"a": [2, True, [1], {"x": 1}]}),
    ({"$pull": {"a": None}}, {"a": [None, 1, {}]}, {"a": [1, {}]}),
    ({"$pull": {"a": [1, 2]}}, {"a": [[1, 2], [2, 1], 1]}, {"a": [[2, 1], 1]}),
    ({"$pull": {"a": {"$gte": 2, "$lt": 4}}}, {"a": [1, 2, 3, 4, "3"]}, {"a": [1, 4, "3"]}),
    ({"$pull": {"a": {"$in": ["x", None]}}}, {"a": ["x", "y", None]}, {"a": ["y"]}),
    ({"$pull": {"a": {"$eq": {"x": 1}}}}, {"a": [{"x": 1}, {"x": 1, "y": 2}]}, {"a": [{"x": 1, "y": 2}]}),
    ({"$pull": {"a": {"x": 1}}}, {"a": [{"x": 1}, {"x": 1, "y": 2}, {"x": 2}, 1]}, {"a": [{"x": 2}, 1]}),
    ({"$pull": {"a": {"x.y": {"$gt": 1}}}}, {"a": [{"x": {"y": 2}}, {"x": [{"y": 1}]}]}, {"a": [{"x": [{"y": 1}]}]}),
    ({"$pull": {"a": {"$or": [{"x": 1}, {"y": 1}]}}}, {"a": [{"x": 1}, {"y": 1}, {}, 1]}, {"a": [{}, 1]}),
    ({"$pull": {"a": {}}}, {"a": [{}, {"x": 1}, 1, []]}, {"a": [1, []]}),
    ({"$pull": {"a": {"$elemMatch": {"x": 1}}}}, {"a": [{"x": 1}, [{"x": 1}]]}, {"a": [{"x": 1}]}),
    ({"$pull": {"a": 1, "b": {"$gt": 1}, "c.d": 1}}, {"c": {}}, {"c": {}}),
    # $pullAll
    ({"$pullAll": {"a": [1, {"x": 1}]}}, {"a": [1, 2, {"x": 1}, {"x": 1, "y": 1}]}, {"a": [2, {"x": 1, "y": 1}]}),
    ({"$pullAll": {"a": []}}, {"a": [1]}, {"a": [1]}),
    ({"$pullAll": {"a": [1]}}, {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("update", "body", "expected"), FIELDS + ARRAYS, ids=repr)
def test_operators(update: Any, body: Any, expected: Any) -> None:
    found = give(update, body)
    assert same(found, expected), found
    assert (found is body) is same(body, expected)


def test_pull_with_a_regular_expression() -> None:
    import re

    body = {"a": ["ab", "b", 1, {"a": "a"}]}
    assert give({"$pull": {"a": re.compile("^a")}}, body) == {"a": ["b", 1, {"a": "a"}]}
    assert give({"$pull": {"a": {"a": re.compile("a")}}}, body) == {"a": ["ab", "b", 1]}
    assert give({"$pull": {"a": {"$regex": "B", "$options": "i"}}}, body) == {"a": [1, {"a": "a"}]}


REFUSED: list[tuple[Any, Any, str, str]] = [
    ({"$set": {"a.b": 1}}, {"a": 5}, "a.b", "5 has no field 'b'"),
    ({"$set": {"a.b.c": 1}}, {"a": None}, "a.b", "None has no field 'b'"),
    ({"$set": {"a.b": 1}}, {"a": [{}]}, "a.b", "its elements are reached by a number"),
    ({"$set": {"a.-1": 1}}, {"a": [1]}, "a.-1", "reached by a number"),
    ({"$set": {"a.-0": 1}}, {"a": [1]}, "a.-0", "reached by a number"),
    ({"$set": {"a.0x": 1}}, {"a": [1]}, "a.0x", "reached by a number"),
    ({"$set": {"a.1000000000": 1}}, {"a": [1]}, "a.1000000000", "reached by a number"),
    ({"$set": {"a.0.b": 1}}, {"a": ["x"]}, "a.0.b", "'x' has no field"),
    ({"$set": {"a.1500002": 1}}, {"a": [1]}, "a.1500002", "filled up with 1,500,000 nulls at most"),
    ({"$inc": {"a": 1}}, {"a": "x"}, "a", "$inc requires a number, got 'x'"),
    ({"$inc": {"a": 1}}, {"a": True}, "a", "$inc requires a number, got True"),
    ({"$inc": {"a": 1}}, {"a": None}, "a", "$inc requires a number, got None"),
    ({"$inc": {"a": 1}}, {"a": 2**63 - 1}, "a", "beyond 64 bit"),
    ({"$inc": {"a": -1}}, {"a": -(2**63)}, "a", "beyond 64 bit"),
    ({"$inc": {"a": 1e308}}, {"a": 1.7e308}, "a", "inf, which is not JSON"),
    ({"$mul": {"a": 2}}, {"a": [1]}, "a", "$mul requires a number"),
    ({"$mul": {"a": 2}}, {"a": 2**62}, "a", "beyond 64 bit"),
    ({"$bit": {"a": {"or": 1}}}, {"a": 1.0}, "a", "$bit requires an integer, got 1.0"),
    ({"$bit": {"a": {"or": 1}}}, {"a": True}, "a", "got True"),
    ({"$push": {"a": 1}}, {"a": None}, "a", "$push requires an array, got None"),
    ({"$push": {"a.b": 1}}, {"a": {"b": {}}}, "a.b", "requires an array"),
    ({"$addToSet": {"a": 1}}, {"a": "x"}, "a", "$addToSet requires an array"),
    ({"$pop": {"a": 1}}, {"a": 1}, "a", "$pop requires an array"),
    ({"$pop": {"a.b": 1}}, {"a": 1}, "a.b", "1 has no field"),
    ({"$pop": {"a.b": 1}}, {"a": []}, "a.b", "reached by a number"),
    ({"$pull": {"a": 1}}, {"a": {}}, "a", "requires an array"),
    ({"$pull": {"a": {"$gt": 1}}}, {"a": 2}, "a", "requires an array"),
    ({"$pullAll": {"a": [1]}}, {"a": 1}, "a", "requires an array"),
    ({"$pull": {"a.b": 1}}, {"a": 1}, "a.b", "1 has no field"),
    ({"$rename": {"a.b": "c"}}, {"a": 5}, "a.b", "5 has no field"),
    ({"$rename": {"a.b": "c"}}, {"a": []}, "a.b", "[] has no field"),
    ({"$rename": {"a.0": "c"}}, {"a": [1]}, "a.0", "must not take a value out of an array"),
    ({"$rename": {"a": "c.0"}}, {"a": 1, "c": []}, "c.0", "must not lead into an array"),
    ({"$rename": {"a": "c.0.b"}}, {"a": 1, "c": [{}]}, "c.0.b", "must not lead into an array"),
    ({"$rename": {"a": "c.b"}}, {"a": 1, "c": 5}, "c.b", "5 has no field"),
]  # fmt: skip


@pytest.mark.parametrize(("update", "body", "place", "problem"), REFUSED, ids=repr)
def test_invalid_changes(update: Any, body: Any, place: str, problem: str) -> None:
    with pytest.raises(UpdateRefused) as caught:
        give(update, body)
    assert (caught.value.id, caught.value.place) == ("id", place)
    assert problem in caught.value.problem
    assert "'id'" in str(caught.value)


def test_all_or_nothing() -> None:
    body = {"a": 1, "b": "x"}
    with pytest.raises(UpdateRefused, match="'b'"):
        give({"$inc": {"a": 1, "b": 1}}, body)
    assert body == {"a": 1, "b": "x"}


@pytest.mark.parametrize("body", [None, 1, "x", [{"a": 1}], True])
@pytest.mark.parametrize("update", [{"$set": {"a": 1}}, {"$set": {}}, [{"$set": {"a": 1}}], []])
def test_only_object_bodies_are_updated(update: Any, body: Any) -> None:
    with pytest.raises(UpdateRefused, match="only objects have fields") as caught:
        give(update, body)
    assert caught.value.place == ""


def test_set_on_insert_applies_to_inserts_only() -> None:
    update = {"$setOnInsert": {"a": 1, "b.c": 2}, "$set": {"d": 3}}
    assert give(update, {"a": 0}) == {"a": 0, "d": 3}
    assert give(update, {}, inserting=True) == {"a": 1, "b": {"c": 2}, "d": 3}
    assert give({"$setOnInsert": {"a.b": 1}}, {"a": 5}) == {"a": 5}
    with pytest.raises(UpdateRefused):
        give({"$setOnInsert": {"a.b": 1}}, {"a": 5}, inserting=True)


def test_key_order_matters_if_the_database_keeps_it() -> None:
    body = {"a": [{"x": 1, "y": 2}]}
    other = {"y": 2, "x": 1}
    assert give({"$addToSet": {"a": other}}, body, ordered=True)["a"] == [body["a"][0], other]
    assert give({"$addToSet": {"a": other}}, body, ordered=False) is body
    assert give({"$pullAll": {"a": [other]}}, body, ordered=True) is body
    assert give({"$pullAll": {"a": [other]}}, body, ordered=False) == {"a": []}
    assert give({"$pull": {"a": {"$eq": other}}}, body, ordered=False) == {"a": []}
    least = {"a": {"y": 0, "x": 9}}
    assert give({"$min": {"a": {"x": 1, "y": 2}}}, least, ordered=True) == {"a": {"x": 1, "y": 2}}
    assert give({"$max": {"a": {"x": 1, "y": 2}}}, least, ordered=False) is least


def test_unchanged_values_are_shared() -> None:
    body = {"a": {"b": [1]}, "c": {"d": 1}}
    found = give({"$set": {"c.d": 2}}, body)
    assert found["a"] is body["a"]


def test_changing_the_result_keeps_the_update() -> None:
    value = {"x": [1]}
    updates: list[Any] = [
        {"$set": {"a": value}},
        {"$setOnInsert": {"a": value}},
        {"$min": {"a": value}},
        {"$push": {"a": value}},
        {"$push": {"a": {"$each": [value]}}},
        {"$addToSet": {"a": {"$each": [value]}}},
        [{"$set": {"a": {"$literal": value}}}],
    ]
    for update in updates:
        parsed = Update.parse(update)
        before = str(parsed)
        first = parsed.apply(Document("1", {}), now=0, inserting=True)
        made = first["a"][0] if isinstance(first["a"], list) else first["a"]
        made["x"].append(2)
        second = parsed.apply(Document("1", {}), now=0, inserting=True)
        assert second["a"] in ({"x": [1]}, [{"x": [1]}])
        assert (value, str(parsed)) == ({"x": [1]}, before)
        parsed.to_json()[0 if isinstance(update, list) else next(iter(update))].clear()
        assert str(parsed) == before


def test_updates_respect_the_memory_limit() -> None:
    from collections_store.codec import Codec

    rules = Codec(max_bytes=10_000)
    body: dict[str, Any] = {"a": [[] for _ in range(100)]}
    for update in (
        {"$set": {"a.$[]": {"text": "x" * 1000}}},
        {"$push": {"a.$[]": "x" * 1000}},
        {"$set": {"a.$[].1000": 1}},
    ):
        with pytest.raises(UpdateRefused, match="adds more than 10,000 bytes"):
            Update.parse(update, codec=rules).apply(Document("1", body), now=0)
    small = Update.parse({"$set": {"a.$[]": "x" * 90}}, codec=rules)
    assert len(small.apply(Document("1", body), now=0)["a"]) == 100


# -- long lists ------------------------------------------------------------------------------


def calls_of(work: Callable[[], Any]) -> int:
    """Return the number of calls of Python functions."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_lists_are_searched_in_linear_time() -> None:
    def pull(length: int, condition: Callable[[list[Any]], Any]) -> int:
        values = [f"v{n}" if n % 2 else n for n in range(length)]
        update = Update.parse({"$pull": {"a": condition(values)}})
        document = Document("id", {"a": [*values, "stays"]})
        return calls_of(lambda: update.apply(document, now=NOW))

    for condition in (
        lambda values: {"$in": values},
        lambda values: {"$not": {"$nin": values}},
        lambda values: {"$in": [*values, [1]]},
    ):
        assert pull(400, condition) < 5 * pull(100, condition)


IN: list[Any] = [1, 2.5, 2**53 + 1, "1", "", True, None]
AMONG: list[tuple[Any, bool]] = [
    (1, True),
    (1.0, True),
    (True, True),
    (False, False),
    (0, False),
    (2.5, True),
    (2**53 + 1, True),
    (2.0**53, False),
    ("1", True),
    ("", True),
    ("2", False),
    (None, True),
    ([2, 1.0], True),
    ([2, [1]], False),
    ([], False),
    ({"a": 1}, False),
]


@pytest.mark.parametrize(("value", "is_in"), AMONG, ids=repr)
@pytest.mark.parametrize("others", [[], [[0, 0], re.compile("^x"), {"b": 1}]], ids=["", "others"])
def test_membership_in_lists(value: Any, is_in: bool, others: list[Any]) -> None:
    operand, document = {"$in": [*IN, *others]}, Document("id", {"a": value})
    assert give({"$pull": {"a": operand}}, {"a": [value]}) == {"a": [] if is_in else [value]}
    assert matches(Filter.parse({"a": operand}), document) is is_in
    assert matches(Filter.parse({"a": {"$nin": [*IN, *others]}}), document) is not is_in


def test_types_are_distinguished_in_lists() -> None:
    def is_in(value: Any, values: list[Any]) -> bool:
        return matches(Filter.parse({"a": {"$in": values}}), Document("id", {"a": value}))

    assert not is_in(True, [1, "true"])
    assert not is_in(1, [True, "1", None])
    assert not is_in(0, [False, None])
    assert is_in(-0.0, [0])
    assert matches(Filter.parse({"a": {"$in": [1, None]}}), Document("id", {}))
    assert not matches(Filter.parse({"a": {"$in": [1, False]}}), Document("id", {}))
