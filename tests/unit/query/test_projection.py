"""Projections by MongoDB's rules since 4.4: the cases of its documentation, and properties."""

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store import (
    Document,
    Filter,
    InvalidOperand,
    InvalidProjection,
    Path,
    Projection,
)
from collections_store.aggregation.pipeline import Pipeline


def projected(what: Any, body: Any, filter: Any = None, *, ordered: bool = True) -> Any:
    before = copy.deepcopy(body)
    document = Document("x", body, 3, 4, 5, 6)
    found = Projection.parse(what).apply(document, Filter.parse(filter), ordered=ordered)
    assert body == before
    assert (found.id, found.version, found.created_us) == ("x", 3, 4)
    assert (found.updated_us, found.expires_us) == (5, 6)
    return found.body


ITEM = {
    "_id": 1,
    "item": "journal",
    "status": "A",
    "size": {"h": 14, "w": 21, "uom": "cm"},
    "instock": [{"warehouse": "A", "qty": 5}, {"warehouse": "C", "qty": 15}],
}
NESTED = {"a": [{"b": [{"c": [0, 1]}, {"5": 8}, "hello", {"x": 1}, 8]}, {"b": [{"c": {"1": 8}}]}]}

CASES: list[tuple[Any, Any, Any]] = [
    # MongoDB's documentation: fields to return from a query
    ({"item": 1, "status": 1}, ITEM, {"_id": 1, "item": "journal", "status": "A"}),
    ({"item": 1, "status": 1, "_id": 0}, ITEM, {"item": "journal", "status": "A"}),
    (["item", "status"], ITEM, {"_id": 1, "item": "journal", "status": "A"}),
    (
        {"status": 0, "instock": 0},
        ITEM,
        {"_id": 1, "item": "journal", "size": {"h": 14, "w": 21, "uom": "cm"}},
    ),
    ({"size.uom": 1}, ITEM, {"_id": 1, "size": {"uom": "cm"}}),
    ({"size": {"uom": 1}}, ITEM, {"_id": 1, "size": {"uom": "cm"}}),
    ({"size": {"uom": 1, "h": True}, "_id": False}, ITEM, {"size": {"h": 14, "uom": "cm"}}),
    ({"instock.qty": 1, "_id": 0}, ITEM, {"instock": [{"qty": 5}, {"qty": 15}]}),
    (
        {"instock": {"$slice": -1}, "item": 1, "_id": 0},
        ITEM,
        {"item": "journal", "instock": [{"warehouse": "C", "qty": 15}]},
    ),
    # _id
    ({"_id": 1}, ITEM, {"_id": 1}),
    ({"_id": 0}, {"_id": 1, "a": 2}, {"a": 2}),
    ({"_id": 1, "a": 0}, {"_id": 1, "a": 2, "b": 3}, {"_id": 1, "b": 3}),
    ({"a": 1}, {"a": 2}, {"a": 2}),
    ({"_id.x": 1}, {"_id": {"x": 1, "y": 2}, "a": 3}, {"_id": {"x": 1}}),
    ({"_id": {"x": 0}}, {"_id": {"x": 1, "y": 2}, "a": 3}, {"_id": {"y": 2}, "a": 3}),
    ({}, ITEM, ITEM),
    ([], ITEM, ITEM),
    # numbers, booleans, order
    ({"b": 2.5, "a": -1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}),
    ({"b": 0.0}, {"a": 1, "b": 2}, {"a": 1}),
    # arrays within the path
    ({"a.b": 1}, {"a": [1, {"b": 2, "c": 3}, [{"b": 4, "c": 5}, 6], {}]}, {"a": [{"b": 2}, [{"b": 4}], {}]}),
    ({"a.b": 0}, {"a": [1, {"b": 2, "c": 3}, [{"b": 4}, 6], {}]}, {"a": [1, {"c": 3}, [{}, 6], {}]}),
    ({"a.b": 1}, {"a": 5, "c": 1}, {}),
    ({"a.b": 0}, {"a": 5, "c": 1}, {"a": 5, "c": 1}),
    ({"a.b": 1}, {"a": {"c": 1}}, {"a": {}}),
    ({"a.0": 1}, {"a": [1, {"0": 2}]}, {"a": [{"0": 2}]}),
    ({"a.0": 0}, {"a": [1, {"0": 2}]}, {"a": [1, {}]}),
    ({"a.b.5": 1}, NESTED, {"a": [{"b": [{}, {"5": 8}, {}]}, {"b": [{}]}]}),
    ({"a.b.c.1": 1}, NESTED, {"a": [{"b": [{"c": []}, {}, {}]}, {"b": [{"c": {"1": 8}}]}]}),
    ({"a.b.1": 1}, {"a": {"b": [[1], 1]}}, {"a": {"b": [[]]}}),
    # keys that paths cannot contain
    ({Path("a.b"): 1}, {"a.b": 1, "a": {"b": 2}}, {"a.b": 1}),
    ([Path("$x", "$")], {"$x": {"$": 1, "b": 2}}, {"$x": {"$": 1}}),
    ({"a": {Path("b.c"): 0}}, {"a": {"b.c": 1, "d": 2}}, {"a": {"d": 2}}),
    ({"a": {"b.c": 1, "d": 1}}, {"a": {"b": {"c": 1, "x": 1}, "d": 2}}, {"a": {"b": {"c": 1}, "d": 2}}),
    ({"a": {"b": 1}, "a.c": 1}, {"a": {"b": 1, "c": 2, "d": 3}}, {"a": {"b": 1, "c": 2}}),
    ({"": 1}, {"": 1, "a": 2}, {"": 1}),
    # $slice
    ({"a": {"$slice": 2}}, {"a": [1, 2, 3], "b": 1}, {"a": [1, 2], "b": 1}),
    ({"a": {"$slice": 0}}, {"a": [1, 2, 3]}, {"a": []}),
    ({"a": {"$slice": 2.9}}, {"a": [1, 2, 3]}, {"a": [1, 2]}),
    ({"a": {"$slice": float("inf")}}, {"a": [1, 2, 3]}, {"a": [1, 2, 3]}),
    ({"a": {"$slice": -9}}, {"a": [1, 2, 3]}, {"a": [1, 2, 3]}),
    ({"a": {"$slice": [1, 1]}}, {"a": [1, 2, 3]}, {"a": [2]}),
    ({"a": {"$slice": [-2, 1]}}, {"a": [1, 2, 3]}, {"a": [2]}),
    ({"a": {"$slice": [-9, 2]}}, {"a": [1, 2, 3]}, {"a": [1, 2]}),
    ({"a": {"$slice": [9, 2]}}, {"a": [1, 2, 3]}, {"a": []}),
    ({"a": {"$slice": 1}}, {"a": "text"}, {"a": "text"}),
    ({"a.b": {"$slice": -1}}, {"a": [{"b": [1, 2], "c": 1}, 5], "d": 1}, {"a": [{"b": [2], "c": 1}, 5], "d": 1}),
    ({"a.b": {"$slice": 1}}, {"a": [[{"b": [1, 2]}]]}, {"a": [[{"b": [1, 2]}]]}),
    ({"a": {"$slice": 1}, "b": 1}, {"a": [1, 2], "b": 1, "c": 1}, {"a": [1], "b": 1}),
    ({"a": {"$slice": 1}, "b": 0}, {"a": [1, 2], "b": 1, "c": 1}, {"a": [1], "c": 1}),
    ({"a": {"$slice": 1}, "_id": 1}, {"_id": 0, "a": [1, 2], "b": 1}, {"_id": 0, "a": [1]}),
    ({"a": {"$slice": 1}, "_id": 0}, {"_id": 0, "a": [1, 2], "b": 1}, {"a": [1], "b": 1}),
    # $elemMatch
    ({"a": {"$elemMatch": {"b": 3}}}, {"_id": 0, "a": [{"b": 1}, {"b": 3}], "c": 1}, {"_id": 0, "a": [{"b": 3}]}),
    ({"a": {"$elemMatch": {"$gt": 1}}}, {"a": [1, 2, 3]}, {"a": [2]}),
    ({"a": {"$elemMatch": {"b": 9}}}, {"a": [{"b": 1}], "c": 1}, {}),
    ({"a": {"$elemMatch": {"b": 9}}}, {"a": {"b": 9}}, {}),
    ({"a": {"$elemMatch": {"b": 3}}, "_id": 0}, {"_id": 0, "a": [{"b": 3}], "c": 1}, {"a": [{"b": 3}]}),
    ({"a": {"$elemMatch": {"b": 3}}, "c": 0}, {"a": [{"b": 3}, 1], "c": 1, "d": 1}, {"a": [{"b": 3}], "d": 1}),
    ({"a": {"$elemMatch": {"b": 4}}, "c": 0}, {"a": [{"b": 3}, 1], "c": 1, "d": 1}, {"d": 1}),
    # bodies that are not objects
    ({"a": 1}, [{"a": 1}], {}),
    ({"a": 0}, [{"a": 1}], [{"a": 1}]),
    ({"a": {"$elemMatch": {"b": 1}}}, 5, {}),
    ({"a": {"$slice": 1}}, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("what", "body", "expected"), CASES, ids=str)
def test_projections(what: Any, body: Any, expected: Any) -> None:
    assert projected(what, body) == expected


def test_fields_keep_their_order() -> None:
    body = {"c": 1, "a": [{"b": 1, "x": 2}], "_id": 0, "d": 1}
    assert list(projected({"d": 1, "a": 1, "c": 1}, body)) == ["c", "a", "_id", "d"]
    assert list(projected({"d": 0}, body)) == ["c", "a", "_id"]
    wanted = {"a": {"$elemMatch": {"b": 1}}, "d": 1, "c": 1}
    assert list(projected(wanted, body)) == ["c", "_id", "d", "a"]
    without = {"a": {"$elemMatch": {"b": 1}}, "d": 0}
    assert list(projected(without, body)) == ["c", "a", "_id"]


LINES = {
    "_id": 1,
    "item": "nut",
    "price": 2,
    "lines": [{"n": 1, "x": 0}, {"n": 2}, 5],
    "size": {"h": 3},
}
COMPUTED: list[tuple[Any, Any]] = [
    ({"total": {"$multiply": ["$price", 3]}}, {"_id": 1, "total": 6}),
    ({"item": 1, "total": {"$add": ["$price", 1]}, "_id": 0}, {"item": "nut", "total": 3}),
    ({"_id": 0, "high": "$size.h"}, {"high": 3}),
    ({"_id": "$item"}, {"_id": "nut"}),
    ({"_id": {"$literal": 5}, "item": 1}, {"_id": 5, "item": "nut"}),
    ({"_id": 0, "item": {"$toUpper": "$item"}}, {"item": "NUT"}),
    ({"_id": 0, "a": "text", "b": None, "c": ["$price", "$none", 1]}, {"a": "text", "b": None, "c": [2, None, 1]}),
    ({"_id": 0, "one": {"$literal": 1}, "dollar": {"$literal": "$item"}}, {"one": 1, "dollar": "$item"}),
    ({"_id": 0, "none": "$none", "gone": "$$REMOVE"}, {}),
    ({"_id": 0, "new": {"name": "$item", "deep": {"h": "$size.h"}}}, {"new": {"name": "nut", "deep": {"h": 3}}}),
    ({"_id": 0, "size": {"h": 1, "twice": {"$multiply": ["$size.h", 2]}}}, {"size": {"h": 3, "twice": 6}}),
    ({"_id": 0, "size.h": "$price"}, {"size": {"h": 2}}),
    ({"_id": 0, "item.x": "$price"}, {"item": {"x": 2}}),
    ({"_id": 0, "lines.p": "$price"}, {"lines": [{"p": 2}, {"p": 2}, {"p": 2}]}),
    ({"_id": 0, "lines": {"n": 1, "p": "$price"}}, {"lines": [{"n": 1, "p": 2}, {"n": 2, "p": 2}, {"p": 2}]}),
    ({"_id": 0, "last": {"$slice": ["$lines.n", -1]}}, {"last": [2]}),
    ({"_id": 0, "lines": {"$slice": -1}, "p": "$price"}, {"lines": [5], "p": 2}),
    ({"_id": 0, "lines": {"$slice": 1}, "n": {"$size": "$lines"}}, {"lines": [{"n": 1, "x": 0}], "n": 3}),
    ({"_id": 0, "lines": {"$elemMatch": {"n": 2}}, "n": {"$size": "$lines"}}, {"lines": [{"n": 2}], "n": 3}),
    ({"_id": 0, "v": {"$add": [{"$meta": "version"}, 1]}}, {"v": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "expected"), COMPUTED, ids=str)
def test_computed_fields(what: Any, expected: Any) -> None:
    assert projected(what, LINES) == expected


def test_computed_fields_come_last_in_the_order_of_the_projection() -> None:
    wanted = {"x": "$price", "lines": {"$elemMatch": {"n": 2}}, "a": "$item", "size": 1, "item": 1}
    assert list(projected(wanted, LINES)) == ["_id", "item", "size", "x", "lines", "a"]


def test_computed_fields_see_the_whole_body() -> None:
    wanted = {"_id": 0, "lines.$": 1, "n": {"$size": "$lines"}}
    assert projected(wanted, LINES, {"lines.n": 2}) == {"lines": [{"n": 2}], "n": 3}


@pytest.mark.parametrize("body", [5, None, [{"a": 1}]])
def test_computed_fields_of_a_body_that_is_no_object(body: Any) -> None:
    assert projected({"a": {"$ifNull": ["$a", "none"]}, "b": 1}, body) == {"a": "none"}
    assert projected({"all": "$$ROOT"}, body) == {"all": body}


def test_an_operand_error_names_the_field_of_the_projection() -> None:
    with pytest.raises(InvalidOperand) as raised:
        projected({"a": {"b": {"$add": ["$item", 1]}}}, LINES)
    assert str(raised.value) == "projection, at 'a.b': $add requires a number, got 'nut'"
    assert raised.value.place == "a.b"


def test_now_is_one_instant() -> None:
    wanted = Projection.parse({"at": "$$NOW"})
    assert wanted.at(0).apply(Document("x", {}), Filter()).body == {
        "at": "1970-01-01T00:00:00.000000Z"
    }
    assert (
        wanted.at(0)
        .at(1_000_000)
        .apply(Document("x", {}), Filter())
        .body["at"]
        .startswith("1970-01-01T00:00:01")
    )
    assert wanted.at(0) == wanted
    without = Projection.parse({"a": "$b"})
    assert without.at() is without


OF_FIND_ALONE = '{"$slice": -', '{"$slice": 1', '{"$elemMatch"'


@pytest.mark.parametrize(
    "what",
    [what for what, _ in COMPUTED if not any(each in json.dumps(what) for each in OF_FIND_ALONE)],
    ids=str,
)
def test_computed_fields_are_those_of_project(what: dict[str, Any]) -> None:
    [expected] = Pipeline.parse([{"$project": what}]).run([Document("x", LINES, 3)])
    assert projected(what, LINES) == expected


MET: list[tuple[Any, str, Any, Any]] = [
    ({"grades": {"$gte": 85}, "semester": 1}, "grades.$", {"semester": 1, "grades": [70, 87, 90]}, {"grades": [87]}),
    ({"a": {"$elemMatch": {"b": {"$gt": 1}, "c": 0}}}, "a.$", {"a": [{"b": 2}, {"b": 2, "c": 0}]}, {"a": [{"b": 2, "c": 0}]}),
    ({"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}}, "a.$", {"a": [5, 2]}, {"a": [2]}),
    ({"a.b": {"$gt": 2}}, "a.$", {"_id": 0, "a": [{"b": 1}, {"b": 3}]}, {"_id": 0, "a": [{"b": 3}]}),
    ({"a.b": {"$gt": 2}}, "a.b.$", {"a": [{"b": 1}, {"b": 3, "c": 1}]}, {"a": [{"b": 3}]}),
    ({"a.b": 2}, "a.b.$", {"a": {"b": [1, 2, 3], "c": 1}}, {"a": {"b": [2]}}),
    ({"a.b": 2}, "a.c.$", {"a": {"b": [1, 2, 3], "c": [4, 5, 6]}}, {"a": {"c": [5]}}),
    ({"a.b": 3}, "a.b.$", {"a": [{"b": [1, 2]}, {"b": [3, 4]}]}, {"a": [{"b": [3, 4]}]}),
    ({"a.0.b": 3}, "a.$", {"a": [{"b": [2, 3]}, {"b": [4, 5]}]}, {"a": [{"b": [4, 5]}]}),
    ({"a.b.2": 4}, "a.b.$", {"a": [{"b": [0, 1, 2]}, {"b": [3, 2, 4]}]}, {"a": [{"b": [3, 2, 4]}]}),
    ({"a": {"$gt": ["a", "b"]}}, "a.$", {"a": [["a", "b"], ["d", "e"]]}, {"a": [["d", "e"]]}),
    ({"a": {"$in": [2, {"x": 1}]}}, "a.$", {"a": [1, {"x": 1}]}, {"a": [{"x": 1}]}),
    ({"a": {"$in": [re.compile("^x"), "y"]}}, "a.$", {"a": ["z", "y", "x"]}, {"a": ["y"]}),
    ({"a": {"$in": ["x", [2], 3]}}, "a.$", {"a": [[1], 3, [2], "x"]}, {"a": [3]}),
    ({"a.b": {"$in": [re.compile("^x"), 1]}}, "a.b.$", {"a": [{"b": 2}, {"b": 1}, {"b": "x"}]}, {"a": [{"b": 1}]}),
    ({"a": {"$all": [1, 2]}}, "a.$", {"a": [1, 2]}, {"a": [2]}),
    ({"a": 5, "b": 1}, "a.$", {"a": [4, 5], "b": [1, 2]}, {"a": [5]}),
    ({"b": 1, "a": 5}, "a.$", {"a": [4, 5], "b": [1, 2]}, {"a": [5]}),
    ({"a": {"$gt": 80, "$lt": 90}}, "a.$", {"a": [70, 85, 95]}, {"a": [85]}),
    ({"a": {"$lt": 90, "$gt": 80}}, "a.$", {"a": [70, 85, 95]}, {"a": [85]}),
    ({"a": {"$gt": 1, "$in": [1, 5]}}, "a.$", {"a": [1, 2, 5]}, {"a": [1]}),
    ({"a": {"$in": [1], "$gt": 1}}, "a.$", {"a": [1, 2, 5]}, {"a": [2]}),
    ({"a": {"$type": "string", "$gt": 1}}, "a.$", {"a": [1, 2, "x"]}, {"a": ["x"]}),
    ({"a.n": {"$gt": 1}, "a": {"$elemMatch": {"m": 1}}}, "a.$", {"a": [{"m": 1}, {"n": 2}]}, {"a": [{"n": 2}]}),
    ({"a.x": 1, "a.b": 1}, "a.$", {"a": [{"b": 1}, {"x": 1}]}, {"a": [{"x": 1}]}),
    ({"a": {"$gt": 3}, "$or": [{"a": 1}, {"a": 2}]}, "a.$", {"a": [4, 2, 1]}, {"a": [2]}),
    ({"a": {"$gt": 3}, "$or": [{"a": {"$lt": 2}}, {"a": 2}]}, "a.$", {"a": [4, 2, 1]}, {"a": [4]}),
    ({"a": {"$all": [{"$elemMatch": {"y": 1}}, {"$elemMatch": {"x": 1}}]}}, "a.$", {"a": [{"x": 1}, {"y": 1}]}, {"a": [{"y": 1}]}),
    ({"a": 3}, "a.$", {"a": 3}, {"a": 3}),
    ({"a.b": 1}, "a.b.$", {"a": [5, {"b": 1}]}, {"a": [{"b": 1}]}),
    ({"a.b.c": 2}, "a.b.$", {"a": {"b": {"c": [1, 2]}}}, {"a": {"b": {"c": [1, 2]}}}),
]  # fmt: skip


@pytest.mark.parametrize(("filter", "path", "body", "expected"), MET, ids=str)
def test_the_matched_element(filter: Any, path: str, body: Any, expected: Any) -> None:
    assert projected({path: 1}, body, filter) == expected


def test_key_order_matters_if_the_database_keeps_it() -> None:
    body = {"a": [{"x": 1, "y": 2}, {"y": 2, "x": 1}]}
    filter = {"a": {"y": 2, "x": 1}}
    assert projected({"a.$": 1}, body, filter) == {"a": [body["a"][1]]}
    assert projected({"a.$": 1}, body, filter, ordered=False) == {"a": [body["a"][0]]}


@pytest.mark.parametrize(
    ("filter", "path", "body"),
    [
        ({"b": 1}, "a.$", {"a": [1], "b": 1}),
        (None, "a.$", {"a": [1]}),
        ({"a.1": 1}, "a.$", {"a": [0, 1]}),
        ({"a": [0, 1]}, "a.$", {"a": [0, 1]}),
        ({"a.b": 2}, "a.c.$", {"a": {"b": [1, 2], "c": [4]}}),
        ({"$or": [{"a": 1}, {"b": 2}]}, "a.$", {"a": [1], "b": 2}),
        ({"$nor": [{"a": 3}, {"a": 4}]}, "a.$", {"a": [1, 2]}),
        ({"a": {"$nin": [2, [3]]}}, "a.$", {"a": [1]}),
        ({"a": {"$ne": 2}}, "a.$", {"a": [1]}),
    ],
    ids=str,
)
def test_an_unknown_matched_element_is_an_error(filter: Any, path: str, body: Any) -> None:
    with pytest.raises(InvalidProjection, match=r"at 'a(\.c)?\.\$'"):
        projected({path: 1}, body, filter)


@pytest.mark.parametrize(
    "branches",
    [
        [{"a": 5}, {"a": 2}],
        [{"a": 3}, {"a": 2}],
        [{"a": 4}, {"a": {"$in": [2, [3]]}}],
        [{"a": {"$lt": 9, "$gt": 1}}, {"a": 7}],
        [{"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}}, {"a": {"$elemMatch": {"$gt": 5}}}],
    ],
    ids=str,
)
def test_branches_of_or_on_one_field_select_the_element(branches: Any) -> None:
    filter = {"b": 1, "$or": branches}
    assert projected({"a.$": 1}, {"a": [1, 2, 3], "b": [0, 0, 1]}, filter) == {"a": [2]}


def test_the_filter_is_checked_before_the_query() -> None:
    wanted = Projection.parse({"a.b.$": 1})
    wanted.check(Filter.parse({"$nor": [{"a.x": 1}]}))
    with pytest.raises(InvalidProjection, match=r"a\.b\.\$"):
        wanted.check(Filter.parse({"b": 1, "$id": "x"}))
    Projection.parse({"a": 1}).check(Filter())


@pytest.mark.parametrize(
    ("what", "where"),
    [
        ("a", "a document or a list"),
        (5, "a document or a list"),
        ([1], "'1': a field must be a string"),
        ({1: 1}, "'1': a field must be a string"),
        ({"a": 1, "b": 0}, "'b': all fields must be"),
        ({"a": 0, "b": {"c": 1}}, r"'b\.c': all fields must be"),
        ({"a": 0, "b": {"$slice": 1}, "c": 1}, "'c': all fields must be"),
        ({"a": 0, "b.$": 1}, "'b': all fields must be"),
        ({"a": 1, "_id.x": 0}, r"'_id\.x': all fields must be"),
        ({"a": 1, "a.b": 1}, r"'a\.b': another path"),
        ({"a.b": 1, "a": 1}, "'a': another path"),
        ({"a": {"b": 1}, "a.b": 1}, r"'a\.b': another path"),
        ({"a.b.c": 1, "a": {"b": {"$slice": 1}}}, r"'a\.b': another path"),
        ({"a": "$b", "c": 0}, "'c': all fields must be 1 or computed, or all 0"),
        ({"c": 0, "a": "text"}, "'a': all fields must be"),
        ({"c": 0, "_id": "$a"}, "'_id': all fields must be"),
        ({"a": "$b", "a.b": 1}, r"'a\.b': another path"),
        ({"a": {"b": "$b", "c": {}}}, r"'a\.c': must name a field"),
        ({"a": "$$no"}, "'a': there is no variable 'no'"),
        ({"a": ["$$no"]}, r"'a\.0': there is no variable"),
        ({"a": {"b": {"$add": ["$$no"]}}}, r"'a\.b\.\$add\.0': there is no variable"),
        ({"a": {"$map": {"input": "$a"}}}, r"'a\.\$map': requires in"),
        ({"a": {"$literal": {1}}}, r"'a\.\$literal'"),
        ({"a.$": "$b"}, r"'a\.\$': goes with 1"),
        ({"a": {}}, "'a': must name a field, got an empty document"),
        ({"a": {"b": {}}}, r"'a\.b': must name a field, got an empty document"),
        ({"a": {"$ad": [1, 2]}}, r"'a\.\$ad': no such operator"),
        ({"a": {"$meta": "id"}}, r"a\.\$meta': must be 'textScore', got 'id'"),
        ({"a.b": {"$meta": "textScore"}}, r"a\.b\.\$meta': must be on a field at the top"),
        ({"a": {"b": 1, "$slice": 1}}, r"a\.\$slice"),
        ({"a": {"$slice": 1, "b": 1}}, r"a\.\$slice': must be the only operator"),
        ({"a": {"$slice": "1"}}, r"a\.\$slice"),
        ({"a": {"$slice": True}}, r"a\.\$slice"),
        ({"a": {"$slice": None}}, r"a\.\$slice"),
        ({"a": {"$slice": float("nan")}}, r"a\.\$slice"),
        ({"a": {"$slice": [1]}}, r"a\.\$slice"),
        ({"a": {"$slice": [None, 1]}}, r"a\.\$slice"),
        ({"a": {"$slice": [1, 0]}}, r"a\.\$slice': the limit"),
        ({"a": {"$slice": [1, -1]}}, r"a\.\$slice': the limit"),
        ({"a": {"$elemMatch": 1}}, r"a\.\$elemMatch"),
        ({"a": {"$elemMatch": {"b": {"$gtt": 1}}}}, r"a\.\$elemMatch\.b\.\$gtt"),
        ({"a.b": {"$elemMatch": {"c": 1}}}, "must be on a field at the top"),
        ({"a": {"b": {"$elemMatch": {"c": 1}}}}, "must be on a field at the top"),
        ({"a": {"$elemMatch": {"b": 1}, "$slice": 1}}, "must be the only operator"),
        ({"a": {"$elemMatch": {"b": 1}}, "c.$": 1}, "do not go together"),
        ({"a.$": 1, "b.$": 1}, "only one path"),
        ({"a.$": 0}, r"'a\.\$': goes with 1"),
        ({"a.$": {"$slice": 1}}, r"'a\.\$': goes with 1"),
        ({"a.$.b": 1}, r"'a\.\$\.b': `\$` stands"),
        ({"a.$.$": 1}, r"'a\.\$\.\$'"),
        ({"$": 1}, r"Path\('\$'\)"),
        ({"$id": 1}, r"Path\('\$id'\)"),
        ({"a.$x": 1}, r"Path\('a', '\$x'\)"),
        ({"a\0": 1}, "NUL"),
        ({".".join("a" * 201): 1}, "200"),
        ({"a": {Path(*"b" * 200): 1}}, "200"),
        ({Path(): 1}, "must name a field within the body"),
        ({"a": 1, Path(): {"$slice": 1}}, "must name a field within the body"),
    ],
    ids=repr,
)  # fmt: skip
def test_invalid_projections_name_the_path(what: Any, where: str) -> None:
    with pytest.raises(InvalidProjection, match=where):
        Projection.parse(what)


PRINTED: list[Any] = [
    {"a": 1, "b.c": 1, "_id": 0},
    {"a": 0, "_id": 1},
    {"a": {"$slice": -2}, "b": {"$slice": [1, 2]}},
    {"a.$": 1},
    {"a": {"$elemMatch": {"b": 1, "c": {"$gt": 2}}}},
    {"a": {"$elemMatch": {"$gt": 2}}},
    {Path("a.b"): 1, Path("$b"): {"$elemMatch": {Path("$x"): 1}}, "c": 1},
    {Path("$a"): 0, "a.b": {"$slice": 1}},
    {"a": "$b", "b": {"$add": ["$b", 1]}, "c.d": ["$b", 1], "e": None, "f": {"$literal": 1}},
    {"a": {"$slice": ["$a", 1]}, "b": {"$slice": 1}, "now": "$$NOW"},
    {},
]


@pytest.mark.parametrize("what", PRINTED, ids=str)
def test_a_projection_is_a_value_that_prints(what: Any) -> None:
    wanted = Projection.parse(what)
    assert wanted.to_json() == what
    assert str(wanted) == str(what)
    again = Projection.parse(wanted.to_json())
    assert again == wanted
    assert hash(again) == hash(wanted)
    assert again != Projection.parse({"other": 1})
    assert Projection.parse(wanted) is wanted


# -- properties --------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c", "0", "_id"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(".".join)


def free(paths: list[str]) -> list[str]:
    """Return the paths without those that collide with an earlier one."""
    chosen: list[str] = []
    for path in paths:
        if not any(
            f"{path}.".startswith(f"{c}.") or f"{c}.".startswith(f"{path}.") for c in chosen
        ):
            chosen.append(path)
    return chosen


PATH_LISTS = st.lists(PATHS, min_size=1, max_size=3).map(free)


@given(body=VALUES, paths=PATH_LISTS)
def test_applying_an_inclusion_twice_changes_nothing(body: Any, paths: list[str]) -> None:
    once = projected(paths, body)
    assert projected(paths, once) == once


@given(body=OBJECTS, key=KEYS)
def test_an_inclusion_and_an_exclusion_partition_a_body(body: dict[str, Any], key: str) -> None:
    wanted = {key: 1} if key == "_id" else {key: 1, "_id": 0}
    included, excluded = projected(wanted, body), projected({key: 0}, body)
    assert {**included, **excluded} == body
    assert not included.keys() & excluded.keys()
    assert list(excluded) == [each for each in body if each != key]


@given(body=VALUES, paths=PATH_LISTS)
def test_excluded_fields_are_absent(body: Any, paths: list[str]) -> None:
    result = projected(dict.fromkeys(paths, 0), body)
    if isinstance(result, dict):
        assert not any(leads(result, path.split(".")) for path in paths)


def leads(value: Any, keys: list[str]) -> bool:
    if not keys:
        return True
    if isinstance(value, list):
        return any(leads(each, keys) for each in value if isinstance(each, dict | list))
    return isinstance(value, dict) and keys[0] in value and leads(value[keys[0]], keys[1:])


@given(body=VALUES, path=PATHS, skip=st.integers(-4, 4), limit=st.integers(1, 4))
def test_a_slice_never_adds(body: Any, path: str, skip: int, limit: int) -> None:
    result = projected({path: {"$slice": [skip, limit]}}, body)
    assert len(repr(result)) <= len(repr(body))
    assert projected({path: {"$slice": [0, 4]}}, body) == body
