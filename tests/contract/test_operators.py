"""MongoDB's operators, with the same results on every backend, sync and async."""

import enum
import operator
import pickle
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from backends import Backend

from collections_store import Document, F, Filter, InvalidFilter, InvalidOperand, Path
from collections_store.query.matcher import matches

pytestmark = pytest.mark.each_backend

BODIES: dict[str, Any] = {
    "1": {"n": 1, "s": "apple", "t": ["a", "b"], "o": {"x": 1}},
    "2": {"n": 2.5, "s": "Banana", "t": ["b"], "o": {"x": None}},
    "3": {"n": -3, "s": "cherry\npie", "t": [], "o": {}},
    "4": {"n": None, "s": "42", "t": [["a"]], "e": [{"k": 1, "v": 5}, {"k": 2, "v": 1}]},
    "5": {"n": True, "t": "a", "e": [{"k": 1, "v": 1}]},
    "6": {"n": [1, 10], "e": [3, 7], "t": ["a", "b", "c"]},
    "7": {"n": 2**40, "e": [[1, 2]]},
    "8": {"n": {"x": 1}, "e": {}},
    "9": None,
}

CASES: list[tuple[dict[str, Any], str]] = [
    ({"n": {"$gt": 1}}, "267"),
    ({"n": {"$gte": 1}}, "1267"),
    ({"n": {"$lt": 1}}, "3"),
    ({"n": {"$lte": 1}}, "136"),
    ({"n": {"$gt": 1, "$lt": 5}}, "26"),
    ({"n": {"$elemMatch": {"$gt": 1, "$lt": 5}}}, ""),
    ({"n": {"$elemMatch": {"$gt": 1, "$lt": 11}}}, "6"),
    ({"n": {"$gte": None}}, "49"),
    ({"n": {"$gt": None}}, ""),
    ({"n": {"$gte": False}}, "5"),
    ({"n": {"$gt": {"x": 0}}}, "8"),
    ({"s": {"$gt": "Z"}}, "13"),
    ({"t": {"$gte": ["a", "b"]}}, "1246"),
    ({"n": {"$ne": 1}}, "23457 89"),
    ({"n": {"$in": [1, None, True]}}, "14569"),
    ({"n": {"$nin": [1, None]}}, "23578"),
    ({"n": {"$in": []}}, ""),
    ({"n": {"$nin": []}}, "123456789"),
    ({"t": {"$in": ["c", ["a"]]}}, "46"),
    ({"s": {"$in": [re.compile("^a"), "42"]}}, "14"),
    ({"e": {"$exists": True}}, "45678"),
    ({"e": {"$exists": 0}}, "1239"),
    ({"o.x": {"$exists": True}}, "12"),
    ({"n": {"$type": "number"}}, "12367"),
    ({"n": {"$type": "int"}}, "136"),
    ({"n": {"$type": ["long", "bool"]}}, "57"),
    ({"n": {"$type": "double"}}, "2"),
    ({"n": {"$type": "array"}}, "6"),
    ({"n": {"$type": 3}}, "8"),
    ({"n": {"$type": "date"}}, ""),
    ({"n": {"$type": "null"}}, "4"),
    ({"s": {"$regex": "^B"}}, "2"),
    ({"s": {"$regex": "^b", "$options": "i"}}, "2"),
    ({"s": re.compile("^b", re.IGNORECASE)}, "2"),
    ({"s": {"$regex": "^pie", "$options": "m"}}, "3"),
    ({"s": {"$regex": "y.p", "$options": "s"}}, "3"),
    ({"s": {"$regex": re.compile("BAN"), "$options": "i"}}, "2"),
    ({"t": {"$regex": "c"}}, "6"),
    ({"s": {"$not": re.compile("an")}}, "13456789"),
    ({"n": {"$mod": [2, 1]}}, "16"),
    ({"n": {"$mod": [2, -1]}}, "3"),
    ({"n": {"$mod": [2, 0]}}, "267"),
    ({"n": {"$mod": [2.9, 0.1]}}, "267"),
    ({"t": {"$size": 2}}, "1"),
    ({"t": {"$size": 0}}, "3"),
    ({"t": {"$all": ["a", "b"]}}, "16"),
    ({"t": {"$all": [["a"]]}}, "4"),
    ({"t": {"$all": []}}, ""),
    ({"e": {"$all": [{"$elemMatch": {"k": 1}}, {"$elemMatch": {"k": 2}}]}}, "4"),
    ({"e": {"$elemMatch": {"k": 1, "v": {"$gt": 3}}}}, "4"),
    ({"e.k": 1, "e.v": 1}, "45"),
    ({"e": {"$elemMatch": {"k": 1, "v": 1}}}, "5"),
    ({"e": {"$elemMatch": {"$gt": 3}}}, "6"),
    ({"e": {"$elemMatch": {"0": 1}}}, "7"),
    ({"t": {"$elemMatch": {"$size": 1, "$eq": ["a"]}}}, "4"),
    ({"e": {"$elemMatch": {"$elemMatch": {"$lt": 2}}}}, "7"),
    ({"e": {"$not": {"$elemMatch": {"k": 1}}}}, "1236789"),
    ({"$and": [{"t": "a"}, {"t": "b"}]}, "16"),
    ({"$or": [{"n": 1}, {"s": "42"}]}, "146"),
    ({"$nor": [{"n": {"$gt": 0}}, {"t": "a"}]}, "3489"),
    ({"$or": [{"$id": "9"}, {"n": 1}]}, "169"),
    ({"$nor": [{"$id": {"$in": ["1", "2", "3"]}}, {"e": {"$exists": True}}]}, "9"),
    ({"n": {"$not": {"$gte": 1}}}, "34589"),
    ({"n": {"$bitsAllSet": 1}}, "136"),
    ({"n": {"$bitsAnySet": [1, 3]}}, "36"),
    ({"n": {"$bitsAllClear": [0]}}, "67"),
    ({"n": {"$bitsAnyClear": [0, 40]}}, "167"),
    ({"$comment": "nothing", "n": 2.5}, "2"),
    ({"$version": {"$gt": 1}}, ""),
    ({"$version": {"$lte": 1}, "n": 1}, "16"),
    ({"$id": {"$gte": "8"}}, "89"),
    ({"$id": {"$regex": "[12]"}}, "12"),
    ({"$body": {"$type": "object"}}, "12345678"),
    ({"$body": {"$type": "null"}}, "9"),
    ({"$body": {"$exists": True}}, "123456789"),
    ({"$body": None}, "9"),
    ({"$expr": {"$gt": ["$n", "$o.x"]}}, "2345678"),
    ({"$expr": {"$eq": [{"$type": "$n"}, "int"]}}, "13"),
    ({"$expr": {"$in": ["c", {"$cond": [{"$isArray": "$t"}, "$t", []]}]}}, "6"),
    ({"$expr": "$n"}, "12356 78"),
    ({"$expr": {"$eq": ["$n", None]}}, "4"),
    ({"$expr": {"$eq": ["$n", "$missing"]}}, "9"),
    ({"$expr": {"$gt": [{"$size": {"$ifNull": ["$e", []]}}, 1]}, "n": {"$gt": 1}}, "6"),
    ({"$or": [{"$expr": {"$eq": ["$n", 1]}}, {"s": "42"}]}, "14"),
    ({"$nor": [{"$expr": {"$eq": ["$n", 1]}}, {"s": "42"}]}, "2356789"),
    ({"$and": [{"$expr": {"$gte": ["$n", 1]}}, {"$expr": {"$lte": ["$n", 2.5]}}]}, "12"),
    ({"$expr": {"$in": [{"$meta": "id"}, ["3", "9"]]}}, "39"),
    ({"$expr": {"$eq": [{"$meta": "version"}, 1]}, "$id": {"$lt": "3"}}, "12"),
    ({"$expr": {"$lt": [{"$meta": "created_at"}, 1]}}, ""),
]


@pytest.fixture
def filled(things: Any) -> Any:
    things.put_many(BODIES)
    return things


def test_operators(filled: Any) -> None:
    wrong = {}
    for filter, expected in CASES:
        ids = "".join(document.id for document in filled.find(filter))
        if ids != expected.replace(" ", ""):
            wrong[str(filter)] = (ids, expected)
        assert filled.count(filter) == len(ids)
        again = Filter.parse(Filter.parse(filter).to_json())
        assert "".join(document.id for document in filled.stream(again)) == ids, filter
    assert not wrong


PYTHON: list[tuple[Any, dict[str, Any]]] = [
    (F("a") == 1, {"a": 1}),
    (F("a").is_in([1, [2], None]), {"a": {"$in": [None, 1, [2]]}}),
    (~F("a").is_in([1, {"b": 2}]), {"a": {"$nin": [1, {"b": 2}]}}),
    (F("a").is_in([1, [2]]) | (F("b") == 1), {"$or": [{"a": {"$in": [1, [2]]}}, {"b": 1}]}),
    (F("a").any({"$in": [1, [2]]}), {"a": {"$elemMatch": {"$in": [1, [2]]}}}),
    (
        F("a").any({"$nin": [re.compile("x"), 1]}),
        {"a": {"$elemMatch": {"$nin": [1, re.compile("x")]}}},
    ),
    (F("a.b") != None, {"a.b": {"$ne": None}}),  # noqa: E711
    ((F("a") > 1) & (F("a") <= 2), {"a": {"$gt": 1, "$lte": 2}}),
    (F("a").between(1, 2), {"a": {"$gte": 1, "$lte": 2}}),
    (F("a").contains("x"), {"a": "x"}),
    (F("a").contains_all(["x", "y"]), {"$and": [{"a": "x"}, {"a": "y"}]}),
    (F("a").is_in([1, 2]), {"a": {"$in": [1, 2]}}),
    (F("a").not_in([1]), {"a": {"$nin": [1]}}),
    (F("a").exists(), {"a": {"$exists": True}}),
    (F("a").exists(False), {"a": {"$exists": False}}),
    (F("a").matches("^x", "i"), {"a": {"$regex": "^x", "$options": "i"}}),
    (F("a").has("C++ [x]"), {"a": {"$regex": r"C\+\+ \[x\]"}}),
    (F("a").has("C++", ignore_case=True), {"a": {"$regex": r"C\+\+", "$options": "i"}}),
    (F("a").starts_with("^a"), {"a": {"$regex": r"^\^a"}}),
    (F("a").starts_with("a.b", ignore_case=True), {"a": {"$regex": r"^a\.b", "$options": "i"}}),
    (F("a").has_type("string", "null"), {"a": {"$type": ["null", "string"]}}),
    (F("a").has_size(2), {"a": {"$size": 2}}),
    (F("a").modulo(4, 1), {"a": {"$mod": [4, 1]}}),
    (F("a").any(F("b") == 1), {"a": {"$elemMatch": {"b": 1}}}),
    (F("a").any({"$gt": 1, "$lt": 3}), {"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}}),
    ((F("a") == 1) | (F("b") == 2) | (F("c") == 3), {"$or": [{"a": 1}, {"b": 2}, {"c": 3}]}),
    (~(F("a") > 1), {"a": {"$not": {"$gt": 1}}}),
    (~~(F("a") > 1), {"a": {"$gt": 1}}),
    (~((F("a") == 1) | (F("b") == 2)), {"$nor": [{"a": 1}, {"b": 2}]}),
    (F("$id") == "x", {"$id": "x"}),
]


@pytest.mark.parametrize(("python", "json"), PYTHON, ids=lambda each: str(each)[:60])
def test_filters_in_python_print_as_json(python: Filter, json: dict[str, Any]) -> None:
    assert python.to_json() == json
    assert str(python) == str(json)
    assert python == Filter.parse(json)
    assert hash(python) == hash(Filter.parse(json))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: F("a") == 1 and F("b") == 2,
        lambda: F("a") == 1 or F("b") == 2,
        lambda: not F("a") == 1,  # noqa: SIM201
        lambda: 0 < F("n") < 2,
        lambda: F("a") and F("b") == 2,  # type: ignore[redundant-expr, unreachable]
        lambda: not F("a"),
        lambda: any([F("a") == 1, F("b") == 2]),
        lambda: 1 if Filter.parse({"a": 1}) else 2,  # type: ignore[redundant-expr]
        lambda: bool(Filter()),
        lambda: F("a") in ["a", "b"],
    ],
)
def test_a_filter_has_no_truth_value(ask: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="no truth value") as caught:
        ask()
    assert all(word in str(caught.value) for word in ("&", "|", "~", "and, or and not"))


def test_chained_comparisons_suggest_between() -> None:
    with pytest.raises(TypeError, match=r"\.between\("):
        0 < F("n") < 2  # noqa: B015


@pytest.mark.parametrize("other", [F("b"), {"b": 2}, None])
def test_filters_combine_with_filters_only(other: Any) -> None:
    for join in (operator.and_, operator.or_):
        with pytest.raises(TypeError, match="join filters, got .*: put each comparison in paren"):
            join(F("a") == 1, other)


@pytest.mark.parametrize(
    ("method", "name"), [("is_in", "in"), ("not_in", "nin"), ("contains_all", "all")]
)
def test_a_string_is_not_a_list_of_values(method: str, name: str) -> None:
    with pytest.raises(
        InvalidFilter, match=rf"at 'a\.\${name}': must be an iterable of values, got 'xyz'"
    ):
        getattr(F("a"), method)("xyz")


@pytest.mark.parametrize(
    "deeper",
    [
        lambda made: (made | (F("x") == 1)) & (F("y") == 2),
        lambda made: ~(made & (F("x") == 1)),
        lambda made: F("a").any(made),
    ],
)
def test_deeply_nested_filters_are_rejected(deeper: Callable[[Filter], Filter]) -> None:
    made = F("a") == 1
    with pytest.raises(InvalidFilter, match="nested more than 100 levels deep"):
        for _ in range(101):
            made = deeper(made)
    assert matches(made, Document("1", {})) in {True, False}


def test_many_filters_combine_on_one_level() -> None:
    made = negated = F("a") == 1
    for _ in range(300):
        made, negated = made | (F("a") == 2), ~negated
    assert matches(made, Document("1", {"a": 2}))
    assert negated == (F("a") == 1)


def test_filters_in_python(filled: Any) -> None:
    filter = (F("t").contains("a") & F("n").exists()) | (F("$id") == "9")
    assert [d.id for d in filled.find(filter)] == ["1", "5", "6", "9"]
    assert [d.id for d in filled.find(F(Path("o")) == {"x": 1})] == ["1"]


ELEMENTS: list[Any] = [
    {"$ne": 1, "$nin": [2]},
    {"$ne": 1, "$nin": [2], "$not": {"$gt": 3, "$lt": 5}},
    {"$ne": 1, "$not": {"$regex": "b"}},
    {"$nin": [1, [2]], "$not": {"$in": [3, [4]]}},
    {"$ne": 1, "$not": {"$eq": 2}},
    {"$all": [1, [2]], "$gt": 0},
    {"$all": [{"$elemMatch": {"$gt": 1}}, {"$elemMatch": {"x": 1}}]},
    {"$not": {"$all": [1]}},
    {"$all": [re.compile("x")]},
    {"$eq": 1, "$gte": None},
    {"$regex": "a", "$options": "i", "$not": {"$regex": "b"}},
    {"$regex": "a", "$in": [re.compile("b")]},
    {"$exists": False},
    {"$all": []},
]


@pytest.mark.parametrize("filter", ELEMENTS, ids=str)
def test_conditions_of_elem_match_are_printed_completely(filter: Any) -> None:
    parsed = Filter.parse({"a": {"$elemMatch": filter}})
    again = Filter.parse(parsed.to_json())
    values = [0, 1, 2, 3, 4, [1], [2], [1, [2]], "a", "x", "ab", None, [{"x": 1}, 2], {"x": 1}]
    for value in values:
        document = Document("1", {"a": [value]})
        assert matches(again, document) is matches(parsed, document), value


def test_printed_contradictions_of_elem_match_match_nothing() -> None:
    for never in ({"$in": [1], "$exists": False}, {"$gt": None, "$in": [1]}, {"$in": [], "$gt": 1}):
        again = Filter.parse(Filter.parse({"a": {"$elemMatch": never}}).to_json())
        assert not matches(again, Document("1", {"a": [1]}))


PATHS: list[Any] = [
    {Path("a.b"): 1},
    {Path("a.b", "c"): {"$gt": 1}, "a.b": 1},
    {Path("$id"): 1, "$id": "1"},
    {"a": {"$elemMatch": {Path("$x"): 1}}},
    {"a": {"$elemMatch": {Path("x.y"): {"$in": [1, [2]]}, "x.y": 1}}},
    {"$or": [{Path("a.b"): 1}, {Path("$and"): 2}]},
    {Path("a.b"): {"$not": {"$gt": 1}}},
    {Path("a.b"): {"$ne": 1}},
    {"$nor": [{Path("a.b"): 1}, {"a.b": 1}]},
    {Path("$a.b"): {"$in": [None, 1]}, "": 2, "a..b": 3},
    {"a.$b": 1, "$body": {"x": 1}},
]


@pytest.mark.parametrize("filter", PATHS, ids=str)
def test_keys_with_dots_are_printed_as_paths(filter: Any) -> None:
    parsed = Filter.parse(filter)
    assert parsed.to_json() == filter
    assert str(parsed) == str(filter)
    assert Filter.parse(parsed.to_json()) == parsed
    assert Filter.parse(eval(str(parsed))) == parsed
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_paths_without_dots_in_keys_are_printed_as_strings() -> None:
    assert Filter.parse({Path("a", "b"): 1}).to_json() == {"a.b": 1}
    assert str(Filter.parse(Path("a.b"), 1)) == "{Path('a.b'): 1}"
    assert repr(F(Path("a.b"))) == "F(Path('a.b'))"
    with pytest.raises(InvalidFilter, match="an element of an array has no"):
        Filter.parse({"a": {"$elemMatch": {Path(): 1}}})


def test_paths_are_keys_of_filters(things: Any) -> None:
    things.put("dotted", {"a.b": 1, "$x": [{"$y": 2}]})
    things.put("nested", {"a": {"b": 1}})
    assert [d.id for d in things.find({Path("a.b"): 1})] == ["dotted"]
    assert [d.id for d in things.find({Path("a", "b"): 1})] == ["nested"]
    assert [d.id for d in things.find({Path("$x"): {"$elemMatch": {Path("$y"): 2}}})] == ["dotted"]
    update = {"$pull": {Path("$x"): {Path("$y"): 2}}}
    assert things.update_one({Path("a.b"): 1}, update).modified_count == 1
    assert things.get("dotted") == {"a.b": 1, "$x": []}


def test_times_are_ordered(filled: Any) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    assert filled.count({"$created_at": {"$lt": soon}}) == 9
    assert filled.count({"$created_at": {"$lt": soon.isoformat()}}) == 9
    assert filled.count(F("$updated_at") > soon) == 0
    assert filled.count({"$created_at": {"$in": [soon, None]}}) == 0


@pytest.mark.parametrize(
    ("filter", "where"),
    [
        ({"a": {"$gtt": 1}}, r"'a\.\$gtt': no such operator: did you mean '\$gt'"),
        ({"$xor": []}, r"\$xor"),
        ({"$xor": {"$all": []}}, r"'\$xor': no such operator"),
        ({"a": 1, "$xor": {"$gt": None}}, r"'\$xor': no such operator"),
        ({"$and": []}, r"\$and"),
        ({"$or": {"a": 1}}, r"\$or"),
        ({"$or": [{"a": 1}, 5]}, r"\$or\.1"),
        ({"$or": [{"a": {"$size": -1}}]}, r"\$or\.0\.a\.\$size"),
        ({"a": {"$size": 1.5}}, r"a\.\$size"),
        ({"a": {"$in": 1}}, r"a\.\$in"),
        ({"a": {"$in": [{"$gt": 1}]}}, r"a\.\$in\.0"),
        ({"a": {"$all": [{"$elemMatch": {}}, 1]}}, r"a\.\$all\.1"),
        ({"a": {"$elemMatch": 1}}, r"a\.\$elemMatch"),
        ({"a": {"$not": {}}}, r"a\.\$not"),
        ({"a": {"$not": 1}}, r"a\.\$not"),
        ({"a": {"$mod": [1]}}, r"a\.\$mod"),
        ({"a": {"$mod": [0, 1]}}, "divisor"),
        ({"a": {"$mod": ["x", 1]}}, r"a\.\$mod"),
        ({"a": {"$type": "text"}}, r"a\.\$type"),
        ({"a": {"$type": []}}, r"a\.\$type"),
        ({"a": {"$type": True}}, r"a\.\$type"),
        ({"a": {"$regex": "("}}, r"a\.\$regex"),
        ({"a": {"$regex": 1}}, r"a\.\$regex"),
        ({"a": {"$regex": "x", "$options": "g"}}, r"\$options"),
        ({"a": {"$options": "i"}}, r"a\.\$options"),
        (
            {"a": {"$regex": re.compile("A", re.IGNORECASE), "$options": "m"}},
            r"a\.\$regex.*'i' of the pattern and \$options 'm'",
        ),
        ({"a": {"$not": {"$options": "", "$regex": re.compile("A", re.IGNORECASE)}}}, r"\$options"),
        ({"a": {"$bitsAllSet": -1}}, r"a\.\$bitsAllSet"),
        ({"a": {"$bitsAllSet": [64]}}, r"a\.\$bitsAllSet"),
        ({"a": {"$ne": re.compile("x")}}, r"a\.\$ne"),
        ({"a": {"$eq": re.compile("x")}}, r"a\.\$eq"),
        ({"a": {"$elemMatch": {"$eq": re.compile("x")}}}, r"\$elemMatch\.\$eq"),
        ({"a": {"$regex": "\ud800"}}, "lone surrogate"),
        ({"a": re.compile("\ud800")}, "lone surrogate"),
        ({"a": re.compile(b"x")}, "'a'"),
        ({"a": {"$regex": re.compile(b"x")}}, r"a\.\$regex"),
        ({"a": {"$elemMatch": {"b": 1, "$id": "x"}}}, r"a\.\$elemMatch\.\$id"),
        ({"a": {"$elemMatch": {"$or": [{"$body": 1}]}}}, r"\$or\.0\.\$body"),
        ({"a": {"$gt": re.compile("x")}}, r"a\.\$gt"),
        ({"a": {"$gt": 1, "b": 2}}, r"a\.b"),
        ({"a": {"$gt": {1}}}, r"a\.\$gt"),
        ({"$text": "x"}, r"\$text"),
        ({"$where": "this.a > 1"}, r"\$where': this operator is not supported"),
        ({"a": {"$near": [1, 2]}}, r"a\.\$near': this operator is not supported"),
        ({"$geoIntersects": {}}, "this operator is not supported"),
        ({"a": {"$size": 2**31}}, r"\$size': must be an integer from 0 to 2147483647"),
        ({"a": {"$regex": "x", "$options": None}}, r"\$options': must be a string, got None"),
        ({"$expr": {"$gt": ["$a"]}}, r"'\$expr\.\$gt'"),
        ({"$or": [{"$expr": {"$gt": [{"$foo": 1}, 1]}}]}, r"\$or\.0\.\$expr\.\$gt\.0\.\$foo"),
        ({"$expr": {"$gt": ["$a", datetime(2026, 1, 1)]}}, r"\$expr\.\$gt\.1"),
        ({"$expr": {"a": float("nan")}}, r"\$expr\.a"),
        ({"a": {"$elemMatch": {"b": 1, "$expr": True}}}, r"a\.\$elemMatch\.\$expr"),
        ({"$created_at": {"$gt": "soon"}}, "time"),
        ({"$created_at": {"$gt": datetime(2026, 1, 1)}}, "time zone"),
    ],
    ids=str,
)
def test_invalid_filters_name_the_path(filter: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidFilter, match=where):
        Filter.parse(filter)


def test_an_expression_that_fails_is_an_error(filled: Any) -> None:
    for find in (filled.find, filled.count, lambda parsed: list(filled.stream(parsed))):
        with pytest.raises(InvalidOperand, match=r"\$add requires a number, got 'apple'"):
            find({"$expr": {"$gt": [{"$add": ["$s", 1]}, 1]}})
    assert filled.count({"n": 1}) == 2


def test_expressions_compare_objects_as_stored(lasting_backend: Backend, things: Any) -> None:
    things.put("a", {"o": {"a": 1, "b": 2}})
    filter = {"$expr": {"$eq": ["$o", {"b": 2, "a": 1}]}}
    assert things.count(filter) == int(lasting_backend.is_postgresql)


def test_character_classes_are_ascii_and_case_folding_is_unicode(things: Any) -> None:
    """As in MongoDB, also for a compiled pattern: only its text and the flags i, m, s and x apply."""
    things.put("a", {"s": "É"})
    for wanted in (
        r"\w",
        r"\d",
        r"\s",
        "[[:alpha:]]",
        re.compile(r"\w"),
        re.compile(r"\w", re.ASCII),
    ):
        assert things.count({"s": {"$regex": wanted}}) == 0
    for wanted in (r"\W", "[[:^alpha:]]", r"\p{L}", r"\x{c9}", re.compile("é", re.IGNORECASE)):
        assert things.count({"s": {"$regex": wanted}}) == 1
    assert things.count({"s": {"$regex": "é", "$options": "iu"}}) == 1


def test_a_long_list(things: Any) -> None:
    things.put_many((str(n), {"n": n}) for n in range(2000))
    wanted = list(range(0, 4000, 2))
    assert things.count({"n": {"$in": wanted}}) == 1000
    assert things.count({"$id": {"$in": [str(n) for n in wanted]}}) == 1000


@pytest.mark.parametrize("length", range(1, 12))
def test_paths_of_any_length(things: Any, length: int) -> None:
    body: Any = 1
    for _ in range(length):
        body = {"k": [body]}
    things.put("deep", body)
    path = ".".join(["k"] * length)
    assert things.count(path, 1) == 1
    assert things.count({path: {"$gte": 1}, "other": None, "$id": "deep"}) == 1
    assert things.count({path: None}) == 0
    zeros = ".".join(["0"] * length)
    assert things.count({zeros: 1}) == 0
    assert things.count({"k": {"$elemMatch": {path: 1}}}) == 0


def test_huge_array_indexes_match_nothing(things: Any) -> None:
    things.put("a", {"a": ["x", "y"], "b": [["x"]]})
    for index in (2**32, 2**32 + 1, 2**64, int("9" * 100)):
        assert things.count(f"a.{index}", "x") == 0
        assert things.count(f"b.{index}", ["x"]) == 0
    assert things.count("a." + "1" * 5000, "x") == 0


def test_nested_arrays_are_traversed_by_index_only(things: Any) -> None:
    things.put("a", {"a": [[[{"b": 1}]]]})
    things.put("b", {"a": [[{"b": 1}]]})
    things.put("c", {"a": [[[{}]]]})
    assert [d.id for d in things.find("a.0.b", 1)] == ["b"]
    assert [d.id for d in things.find("a.0.0.b", 1)] == ["a", "b"]
    assert [d.id for d in things.find("a.0.b", None)] == []
    assert [d.id for d in things.find("a.0.0.b", None)] == ["b", "c"]


def test_metadata_are_integers(things: Any) -> None:
    things.put("a", 1)
    assert things.count({"$version": 0.6}) == 0
    assert things.count({"$version": 1e300}) == 0
    assert things.count({"$version": {"$lt": 1e300}}) == 1
    assert things.count({"$version": {"$gt": 0.6}}) == 1
    assert things.count({"$version": 1.0}) == 1


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (F("$id") == "a", "$id"),
        ((F("b") == 1) & ~(F("$version") > 1), "$version"),
        ((F("b") == 1) | (F("$body") == 1), "$body"),
        (Filter.parse({"$expr": {"$eq": ["$b", 1]}}), "$expr"),
    ],
    ids=str,
)
def test_elements_have_no_metadata(what: Filter, name: str) -> None:
    with pytest.raises(InvalidFilter, match=re.escape(name)) as written:
        F("a").any(what)
    with pytest.raises(InvalidFilter) as read:
        Filter.parse({"a": {"$elemMatch": {"$and": [what.to_json()]}}})
    assert written.value.problem == read.value.problem
    assert written.value.place == f"a.$elemMatch.{name}"


def test_metadata_and_fields_in_any() -> None:
    for name in ("$id", "$version", "$body", "$body.a"):
        filter = Filter.parse({name: {"$elemMatch": {"b": 1}}})
        assert F(name).any(F("b") == 1) == filter
    assert F("a").any(F(Path("$id")) == 1) != F("a").any(F("id") == 1)
    with pytest.raises(InvalidFilter, match="no such operator or metadata"):
        F("$ids").any(F("b") == 1)


@pytest.mark.parametrize("value", [[], {}, [1], {"a": 1}])
def test_values_of_another_type_are_never_compared(things: Any, value: Any) -> None:
    bodies = [{"tags": [each]} for each in (False, 1, "x", None, [], {}, [1], {"a": 1})]
    things.put_many((str(n), each) for n, each in enumerate(bodies))
    for second in ("$gt", "$gte", "$lte", "$ne"):
        filter = {"tags": {"$elemMatch": {"$eq": value, second: value}}}
        expected = [each for each in bodies if matches(Filter.parse(filter), Document("", each))]
        assert [each.body for each in things.find(filter)] == expected
    found = things.find({"tags": {"$elemMatch": {"$regex": "^x(?=)", "$gte": "x"}}})
    assert [each.body for each in found] == [{"tags": ["x"]}]


class Operator(enum.StrEnum):
    GT = "$gt"
    LTE = "$lte"
    ALL_SET = "$bitsAllSet"


def test_operators_may_be_string_enums(store: Any) -> None:
    things = store["things"]
    things.put("a", {"n": 5, "l": [5]})
    for filter in (
        {"n": {Operator.GT: 1}},
        {"n": {"$gt": 1}},
        {"l": {"$elemMatch": {Operator.GT: 1, Operator.LTE: 5}}},
        {"n": {"$not": {Operator.GT: 5}}},
        {"n": {Operator.ALL_SET: 5}},
        {"n": {"$in": [5, 6], Operator.LTE: 5}},
        {"n": {"$lte": 5, "$bitsAllSet": 5}},
    ):
        assert [each.id for each in things.find(filter)] == ["a"], filter


def test_the_length_of_patterns_is_limited(things: Any) -> None:
    things.put("a", {"s": "x" * 32_764})
    assert things.count({"s": {"$regex": "x" * 32_764}}) == 1
    for pattern in ("x" * 32_765, "é" * 16_383):
        with pytest.raises(InvalidFilter, match="there are more than 32,764 bytes"):
            things.count({"s": {"$regex": pattern}})
