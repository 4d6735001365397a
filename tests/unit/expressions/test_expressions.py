"""Results of expressions, operator by operator, as of MongoDB's server on JSON values."""

import tracemalloc
from typing import Any

import pytest

from collections_store import Document, InvalidFilter, InvalidOperand
from collections_store.document import Anonymous
from collections_store.expressions.evaluation import Scope
from collections_store.expressions.nodes import evaluate
from collections_store.expressions.parser import ExpressionParser
from collections_store.expressions.values import MISSING

BODY: dict[str, Any] = {
    "n": 7,
    "m": -7,
    "f": 2.5,
    "s": "Straße",
    "t": True,
    "nul": None,
    "a": [3, 1, 2],
    "e": [],
    "o": {"x": 1, "y": {"z": 2}},
    "os": [{"x": 1}, {"x": [2, 3]}, {}, 5, [{"x": 9}], {"x": None}],
    "mixed": [1, None, "a", True, [1], {"a": 1}, 2.5],
    "big": 2**63 - 1,
    "tags": ["b", "a", "b"],
    "people": [{"n": "b", "age": 2}, {"n": "a", "age": 2}, {"n": "c", "age": 1}, "x"],
}


def give(expression: Any, body: Any = BODY, **options: Any) -> Any:
    parser = ExpressionParser(InvalidFilter)
    parser.check_nesting(expression, "$expr")
    row = options.pop("row", Anonymous(body))
    return evaluate(parser.parse(expression, "$expr"), Scope(row, **options))


CASES: list[tuple[Any, Any]] = [
    # paths
    ("$n", 7),
    ("$o.y.z", 2),
    ("$n.x", MISSING),
    ("$none", MISSING),
    ("$os.x", [1, [2, 3], None]),
    ("$a.0", []),
    ("$$ROOT.n", 7),
    ("$$CURRENT.n", 7),
    ("$$REMOVE", MISSING),
    ("n", "n"),
    (5, 5),
    (None, None),
    ({"$literal": "$n"}, "$n"),
    ({"$literal": {"$add": [1, 2]}}, {"$add": [1, 2]}),
    ({"a": "$n", "b": "$none", "c": {"d": "$nul"}}, {"a": 7, "c": {"d": None}}),
    (["$n", "$none", ["$f"]], [7, None, [2.5]]),
    ({}, {}),
    ({"$let": {"vars": {"x": "$n", "y": 1}, "in": {"$add": ["$$x", "$$y"]}}}, 8),
    ({"$let": {"vars": {"x": 1}, "in": {"$let": {"vars": {"x": 2, "y": "$$x"}, "in": "$$y"}}}}, 1),
    ({"$let": {"vars": {"x": "$os"}, "in": "$$x.x"}}, [1, [2, 3], None]),
    ({"$let": {"vars": {"CURRENT": "$o"}, "in": "$x"}}, 1),
    # comparison: types have an order, missing comes first and is not null
    ({"$eq": ["$n", 7.0]}, True),
    ({"$eq": ["$t", 1]}, False),
    ({"$eq": ["$none", None]}, False),
    ({"$eq": ["$none", "$neither"]}, True),
    ({"$ne": ["$nul", None]}, False),
    ({"$lt": ["$none", None]}, True),
    ({"$lt": [None, 0]}, True),
    ({"$lt": [10**18, "a"]}, True),
    ({"$lt": ["a", {}]}, True),
    ({"$lt": [{"$literal": {}}, []]}, True),
    ({"$lt": [[], False]}, True),
    ({"$gte": ["$n", 7]}, True),
    ({"$lte": ["$n", 6]}, False),
    ({"$gt": [2**53 + 1, 2.0**53]}, True),
    ({"$cmp": [1, 2]}, -1),
    ({"$cmp": ["b", "a"]}, 1),
    ({"$cmp": [1, 1.0]}, 0),
    # boolean
    ({"$and": []}, True),
    ({"$or": []}, False),
    ({"$and": ["$n", "", []]}, True),
    ({"$and": ["$n", "$none"]}, False),
    ({"$or": [0, 0.0, None, False, "$none"]}, False),
    ({"$or": [False, {"$divide": [1, 1]}]}, True),
    ({"$or": [True, {"$divide": [1, 0]}]}, True),
    ({"$not": ["$none"]}, True),
    ({"$not": "x"}, False),
    # arithmetic
    ({"$add": []}, 0),
    ({"$add": ["$n", 1]}, 8),
    ({"$add": ["$n", 1.0]}, 8.0),
    ({"$add": ["$n", None]}, None),
    ({"$add": ["$none", "a"]}, None),
    ({"$add": ["$big", 1]}, 2.0**63),
    ({"$add": [0.1, 0.2, -0.3]}, 0.1 + 0.2 - 0.3),
    ({"$subtract": ["$n", 10]}, -3),
    ({"$subtract": [-(2**63), 1]}, -(2.0**63)),
    ({"$multiply": []}, 1),
    ({"$multiply": ["$n", 2, "$f"]}, 35.0),
    ({"$multiply": [2**62, 2]}, 2.0**63),
    ({"$multiply": ["$n", None]}, None),
    ({"$divide": [6, 3]}, 2.0),
    ({"$divide": ["$none", 3]}, None),
    ({"$mod": [7, 3]}, 1),
    ({"$mod": [-7, 3]}, -1),
    ({"$mod": [7, -3]}, 1),
    ({"$mod": [7.5, 2]}, 1.5),
    ({"$mod": [-7.5, 2]}, -1.5),
    ({"$mod": [10, 3.0]}, 1),
    ({"$mod": [-10, -3.0]}, -1),
    ({"$mod": [9007199254740993, 2.0]}, 1),
    ({"$mod": [10, 2.5]}, 0.0),
    ({"$mod": [10.0, 3]}, 1.0),
    ({"$abs": "$m"}, 7),
    ({"$abs": None}, None),
    ({"$ceil": 2.1}, 3.0),
    ({"$ceil": 2}, 2),
    ({"$floor": -2.1}, -3.0),
    ({"$round": [2.5]}, 2.0),
    ({"$round": [3.5, 0]}, 4.0),
    ({"$round": [19.25, 1]}, 19.2),
    ({"$round": [1250, -2]}, 1200),
    ({"$round": ["$none", 1]}, None),
    ({"$trunc": -2.7}, -2.0),
    ({"$trunc": [19.29, 1]}, 19.2),
    ({"$trunc": [1299, -2]}, 1200),
    ({"$trunc": [-1299, -2]}, -1200),
    ({"$pow": [2, 10]}, 1024),
    ({"$pow": [2, 64]}, 2.0**64),
    ({"$pow": [2, -1]}, 0.5),
    ({"$pow": [-1, -3]}, -1),
    ({"$pow": [2.0, 2]}, 4.0),
    ({"$pow": [1, 10**9]}, 1),
    ({"$sqrt": 9}, 3.0),
    ({"$exp": 0}, 1.0),
    ({"$ln": 1}, 0.0),
    ({"$log": [8, 2]}, 3.0),
    ({"$log10": 100}, 2.0),
    # over operands
    ({"$sum": "$a"}, 6),
    ({"$sum": ["$a"]}, 6),
    ({"$sum": ["$n", "$a", "x", "$none"]}, 7),
    ({"$sum": "$mixed"}, 3.5),
    ({"$sum": "$none"}, 0),
    ({"$sum": [0.1, 0.2, -0.3]}, 2.7755575615628914e-17),
    ({"$avg": "$a"}, 2.0),
    ({"$avg": "$e"}, None),
    ({"$min": "$mixed"}, 1),
    ({"$max": "$mixed"}, True),
    ({"$max": ["$n", "$f"]}, 7),
    ({"$min": "$e"}, None),
    # strings
    ({"$concat": ["$s", "!"]}, "Straße!"),
    ({"$concat": ["$s", "$none"]}, None),
    ({"$concat": []}, ""),
    ({"$toUpper": "$s"}, "STRAßE"),
    ({"$toLower": "ÄB"}, "Äb"),
    ({"$toLower": None}, ""),
    ({"$toLower": 1e6}, "1e+06"),
    ({"$toUpper": 1e6}, "1E+06"),
    ({"$toLower": 1_000_000}, "1000000"),
    ({"$toLower": 123456.789}, "123457"),
    ({"$toLower": 2.5}, "2.5"),
    ({"$toUpper": 1e-7}, "1E-07"),
    ({"$strcasecmp": [1e6, "1E+06"]}, 0),
    ({"$substrCP": [1e6, 0, 2]}, "1e"),
    ({"$substrBytes": [1e6, 2, -1]}, "+06"),
    ({"$toString": 1e6}, "1000000"),
    ({"$indexOfCP": ["abc", "bc", 0, 2]}, 1),
    ({"$indexOfCP": ["abc", "c", 0, 2]}, -1),
    ({"$indexOfCP": ["äbc", "bc", 1, 99]}, 1),
    ({"$indexOfCP": ["abc", "b", 2, 1]}, -1),
    ({"$indexOfCP": ["abc", ""]}, 0),
    ({"$indexOfCP": ["abc", "", 2]}, 2),
    ({"$indexOfCP": ["abc", "", 3]}, -1),
    ({"$indexOfCP": ["abc", "", 1, 1]}, -1),
    ({"$indexOfCP": ["", ""]}, 0),
    ({"$indexOfCP": ["", "", 3, 0]}, 0),
    ({"$indexOfCP": ["", "a"]}, -1),
    ({"$indexOfBytes": ["abc", "bc", 0, 2]}, -1),
    ({"$indexOfBytes": ["abc", "bc", 0, 3]}, 1),
    ({"$indexOfBytes": ["abc", "", 3]}, 3),
    ({"$indexOfBytes": ["abc", "", 4]}, -1),
    ({"$toUpper": 1.5}, "1.5"),
    ({"$strcasecmp": ["ab", "AB"]}, 0),
    ({"$strcasecmp": ["a", "B"]}, -1),
    ({"$substr": ["abc", 1, 1]}, "b"),
    ({"$substrBytes": ["abc", 1, -1]}, "bc"),
    ({"$substrBytes": ["abc", 9, 2]}, ""),
    ({"$substrBytes": [None, 0, 2]}, ""),
    ({"$substrCP": ["$s", 4, 1]}, "ß"),
    ({"$strLenBytes": "$s"}, 7),
    ({"$strLenCP": "$s"}, 6),
    ({"$split": ["a-b--c", "-"]}, ["a", "b", "", "c"]),
    ({"$split": [None, "-"]}, None),
    ({"$trim": {"input": " \n x \0"}}, "x"),
    ({"$trim": {"input": "xxaxx", "chars": "x"}}, "a"),
    ({"$trim": {"input": "xxaxx", "chars": None}}, None),
    ({"$ltrim": {"input": "  a "}}, "a "),
    ({"$rtrim": {"input": "  a "}}, "  a"),
    ({"$indexOfBytes": ["$s", "e"]}, 6),
    ({"$indexOfCP": ["$s", "e"]}, 5),
    ({"$indexOfCP": ["abcabc", "b", 2]}, 4),
    ({"$indexOfCP": ["abcabc", "b", 2, 4]}, -1),
    ({"$indexOfCP": ["abc", "", 4]}, -1),
    ({"$indexOfCP": [None, "b"]}, None),
    ({"$replaceOne": {"input": "aXbX", "find": "X", "replacement": "-"}}, "a-bX"),
    ({"$replaceAll": {"input": "aXbX", "find": "X", "replacement": "-"}}, "a-b-"),
    ({"$replaceAll": {"input": "a", "find": None, "replacement": "-"}}, None),
    ({"$regexMatch": {"input": "$s", "regex": "ß"}}, True),
    ({"$regexMatch": {"input": "$s", "regex": "^s", "options": "i"}}, True),
    ({"$regexMatch": {"input": None, "regex": "x"}}, False),
    (
        {"$regexFind": {"input": "foo bar", "regex": "(o+)( x)?"}},
        {"match": "oo", "idx": 1, "captures": ["oo", None]},
    ),
    ({"$regexFind": {"input": "foo", "regex": "x"}}, None),
    ({"$regexFindAll": {"input": "abab", "regex": "a"}}, [
        {"match": "a", "idx": 0, "captures": []}, {"match": "a", "idx": 2, "captures": []},
    ]),
    ({"$regexFindAll": {"input": "ab", "regex": "x*"}}, [
        {"match": "", "idx": 0, "captures": []}, {"match": "", "idx": 1, "captures": []},
    ]),
    ({"$regexFindAll": {"input": "", "regex": ""}}, [{"match": "", "idx": 0, "captures": []}]),
    # conversions
    ({"$toString": 2.5}, "2.5"),
    ({"$toString": 1.0}, "1"),
    ({"$toString": 1e20}, "1e+20"),
    ({"$toString": 0.1 + 0.2}, "0.30000000000000004"),
    ({"$toString": "$t"}, "true"),
    ({"$toString": 7}, "7"),
    ({"$toString": "$none"}, None),
    ({"$toInt": "42"}, 42),
    ({"$toInt": 2.9}, 2),
    ({"$toInt": -2.9}, -2),
    ({"$toInt": True}, 1),
    ({"$toLong": 2**40}, 2**40),
    ({"$toDouble": "-1.5e2"}, -150.0),
    ({"$toDouble": 1}, 1.0),
    ({"$toBool": "false"}, True),
    ({"$toBool": 0}, False),
    ({"$convert": {"input": "x", "to": "int", "onError": "bad"}}, "bad"),
    ({"$convert": {"input": None, "to": "int", "onNull": 0}}, 0),
    ({"$convert": {"input": "12", "to": 18}}, 12),
    ({"$convert": {"input": "12", "to": {"type": "int"}}}, 12),
    ({"$convert": {"input": "x", "to": {"type": {"$literal": 16}}, "onError": "bad"}}, "bad"),
    ({"$type": "$$NOW.a"}, "missing"),
    ({"$type": "$none"}, "missing"),
    ({"$type": "$big"}, "long"),
    ({"$type": "$n"}, "int"),
    ({"$type": "$f"}, "double"),
    ({"$type": "$os"}, "array"),
    ({"$type": "$nul"}, "null"),
    ({"$isNumber": "$n"}, True),
    ({"$isNumber": "$t"}, False),
    # bits
    ({"$bitAnd": [5, 3, 2**63 - 1]}, 1),
    ({"$bitOr": [5, -8]}, -3),
    ({"$bitXor": ["$n", 2]}, 5),
    ({"$bitNot": "$n"}, -8),
    ({"$bitAnd": []}, -1),
    ({"$bitOr": []}, 0),
    ({"$bitXor": [1, None]}, None),
    ({"$bitNot": "$none"}, None),
    # functions of real numbers
    ({"$sin": 0}, 0.0),
    ({"$cos": [0]}, 1.0),
    ({"$tan": "$none"}, None),
    ({"$acos": 1}, 0.0),
    ({"$asin": 0}, 0.0),
    ({"$atan": 0}, 0.0),
    ({"$atan2": [0, 1]}, 0.0),
    ({"$atan2": [0, None]}, None),
    ({"$sinh": 0}, 0.0),
    ({"$cosh": 0}, 1.0),
    ({"$tanh": 0}, 0.0),
    ({"$asinh": 0}, 0.0),
    ({"$acosh": 1}, 0.0),
    ({"$atanh": 0}, 0.0),
    ({"$degreesToRadians": 180}, 3.141592653589793),
    ({"$radiansToDegrees": {"$acos": -1}}, 180.0),
    ({"$sigmoid": 0}, 0.5),
    ({"$sigmoid": {"input": 20}}, 0.9999999979388463),
    ({"$sigmoid": {"input": -1000}}, 0.0),
    ({"$sigmoid": -20}, 2.0611536181902037e-09),
    ({"$sigmoid": {"input": "$nul", "onNull": 7}}, 7),
    ({"$sigmoid": "$none"}, None),
    # statistics
    ({"$stdDevPop": [1, "x", 3]}, 1.0),
    ({"$stdDevPop": "$a"}, 0.816496580927726),
    ({"$stdDevSamp": "$a"}, 1.0),
    ({"$stdDevSamp": 5}, None),
    ({"$stdDevPop": "$none"}, None),
    ({"$median": {"input": "$a", "method": "approximate"}}, 2.0),
    ({"$median": {"input": ["$n", "$m", "$s"], "method": "approximate"}}, -7.0),
    ({"$percentile": {"input": "$a", "p": [0, 0.9], "method": "approximate"}}, [1.0, 3.0]),
    ({"$percentile": {"input": "$none", "p": [0.5], "method": "approximate"}}, [None]),
    ({"$percentile": {"input": "$n", "p": [0.5], "method": "approximate"}}, [7.0]),
    ({"$lt": [{"$rand": {}}, 1]}, True),
    # arrays
    ({"$arrayElemAt": ["$a", 0]}, 3),
    ({"$arrayElemAt": ["$a", -1]}, 2),
    ({"$arrayElemAt": ["$a", 3]}, MISSING),
    ({"$arrayElemAt": [None, 3]}, None),
    ({"$first": "$a"}, 3),
    ({"$last": "$a"}, 2),
    ({"$first": "$e"}, MISSING),
    ({"$last": None}, None),
    ({"$firstN": {"input": "$a", "n": 2}}, [3, 1]),
    ({"$lastN": {"input": "$a", "n": 2}}, [1, 2]),
    ({"$lastN": {"input": "$a", "n": 5}}, [3, 1, 2]),
    ({"$minN": {"input": "$mixed", "n": 2}}, [1, 2.5]),
    ({"$maxN": {"input": "$mixed", "n": 2}}, [True, [1]]),
    ({"$concatArrays": ["$a", "$e", [0]]}, [3, 1, 2, 0]),
    ({"$concatArrays": ["$a", None]}, None),
    ({"$filter": {"input": "$a", "as": "x", "cond": {"$gt": ["$$x", 1]}}}, [3, 2]),
    ({"$filter": {"input": "$a", "cond": {"$gt": ["$$this", 0]}, "limit": 2}}, [3, 1]),
    ({"$filter": {"input": None, "cond": True}}, None),
    ({"$map": {"input": "$a", "as": "x", "in": {"$multiply": ["$$x", "$n"]}}}, [21, 7, 14]),
    ({"$map": {"input": "$a", "in": "$$this.x"}}, [None, None, None]),
    ({"$map": {"input": "$none", "in": 1}}, None),
    ({"$reduce": {"input": "$a", "initialValue": "", "in": {"$concat": ["$$value", {"$toString": "$$this"}]}}}, "312"),
    ({"$reduce": {"input": None, "initialValue": 1, "in": 2}}, None),
    ({"$in": [1.0, "$a"]}, True),
    ({"$in": ["$none", "$a"]}, False),
    ({"$in": [[1], "$mixed"]}, True),
    ({"$indexOfArray": ["$tags", "b"]}, 0),
    ({"$indexOfArray": ["$tags", "b", 1]}, 2),
    ({"$indexOfArray": ["$tags", "z"]}, -1),
    ({"$isArray": "$a"}, True),
    ({"$isArray": [[1]]}, True),
    ({"$isArray": "$n"}, False),
    ({"$range": [0, 5, 2]}, [0, 2, 4]),
    ({"$range": [3, 0, -1]}, [3, 2, 1]),
    ({"$range": [0, 0]}, []),
    ({"$reverseArray": "$a"}, [2, 1, 3]),
    ({"$size": "$a"}, 3),
    ({"$slice": ["$a", 2]}, [3, 1]),
    ({"$slice": ["$a", -2]}, [1, 2]),
    ({"$slice": ["$a", 1, 1]}, [1]),
    ({"$slice": ["$a", -2, 1]}, [1]),
    ({"$slice": ["$a", -9, 2]}, [3, 1]),
    ({"$slice": ["$a", 0]}, []),
    ({"$zip": {"inputs": ["$a", "$tags"]}}, [[3, "b"], [1, "a"], [2, "b"]]),
    ({"$zip": {"inputs": ["$a", [1]]}}, [[3, 1]]),
    ({"$zip": {"inputs": ["$a", [1]], "useLongestLength": True}}, [[3, 1], [1, None], [2, None]]),
    (
        {"$zip": {"inputs": ["$a", [1]], "useLongestLength": True, "defaults": [0, "x"]}},
        [[3, 1], [1, "x"], [2, "x"]],
    ),
    ({"$sortArray": {"input": "$a", "sortBy": 1}}, [1, 2, 3]),
    ({"$sortArray": {"input": "$mixed", "sortBy": -1}}, [True, [1], {"a": 1}, "a", 2.5, 1, None]),
    (
        {"$map": {"input": {"$sortArray": {"input": "$people", "sortBy": {"age": 1, "n": -1}}}, "in": "$$this.n"}},
        [None, "c", "b", "a"],
    ),
    ({"$allElementsTrue": [[True, 1, "x"]]}, True),
    ({"$allElementsTrue": "$mixed"}, False),
    ({"$anyElementTrue": [[0, None]]}, False),
    # sets
    ({"$setEquals": ["$tags", ["a", "b"]]}, True),
    ({"$setEquals": [[1], [True]]}, False),
    ({"$setIntersection": ["$a", [1.0, 3, 9]]}, [1, 3]),
    ({"$setUnion": ["$tags", ["c", "a"]]}, ["a", "b", "c"]),
    ({"$setUnion": ["$tags", None]}, None),
    ({"$setDifference": ["$tags", ["a"]]}, ["b"]),
    ({"$setIsSubset": [["a"], "$tags"]}, True),
    # objects
    ({"$mergeObjects": ["$o", {"x": 5, "w": 0}, None]}, {"x": 5, "y": {"z": 2}, "w": 0}),
    ({"$mergeObjects": [[{"a": 1}, {"b": 2}]]}, {"a": 1, "b": 2}),
    ({"$objectToArray": "$o"}, [{"k": "x", "v": 1}, {"k": "y", "v": {"z": 2}}]),
    ({"$arrayToObject": {"$objectToArray": "$o"}}, {"x": 1, "y": {"z": 2}}),
    ({"$arrayToObject": [[["a", 1], ["a", 2]]]}, {"a": 2}),
    ({"$getField": "n"}, 7),
    ({"$getField": {"field": {"$literal": "a.b"}, "input": {"$literal": {"a.b": 1}}}}, 1),
    ({"$getField": {"field": "q", "input": "$o"}}, MISSING),
    ({"$setField": {"field": "a.b", "input": {}, "value": 1}}, {"a.b": 1}),
    ({"$setField": {"field": "x", "input": "$o", "value": "$$REMOVE"}}, {"y": {"z": 2}}),
    ({"$unsetField": {"field": "y", "input": "$o"}}, {"x": 1}),
    ({"$unsetField": {"field": "y", "input": None}}, None),
    # choices
    ({"$cond": [{"$gt": ["$n", 5]}, "many", "few"]}, "many"),
    ({"$cond": {"if": False, "then": 1, "else": "$none"}}, MISSING),
    ({"$cond": [True, 1, {"$divide": [1, 0]}]}, 1),
    ({"$ifNull": ["$nul", "$none", 3]}, 3),
    ({"$ifNull": ["$n", {"$divide": [1, 0]}]}, 7),
    ({"$ifNull": ["$nul", "$none"]}, MISSING),
    (
        {"$switch": {"branches": [{"case": False, "then": 1}, {"case": "$n", "then": 2}]}},
        2,
    ),
    ({"$switch": {"branches": [{"case": 0, "then": 1}], "default": "d"}}, "d"),
    ({"$convert": {"input": "$n", "to": None, "onError": 1}}, None),
    ({"$substrBytes": ["abcde", 1.9, 2.9]}, "bc"),
    ({"$substrBytes": ["abcde", -0.5, -1.5]}, "abcde"),
    ({"$substr": ["abcde", 1e18, 1e300]}, ""),
    ({"$abs": 1 - 2**63}, 2**63 - 1),
    ({"$abs": -(2.0**63)}, 2.0**63),
    ({"$getField": {"$toLower": "N"}}, 7),
    ({"$let": {"vars": {"k": "x"}, "in": {"$getField": {"field": "$$k", "input": "$o"}}}}, 1),
    ({"$getField": {"field": {"$concat": ["a", ".b"]}, "input": {"$literal": {"a.b": 3}}}}, 3),
    ({"$convert": {"input": None, "to": None, "onNull": 5}}, 5),
    ({"$convert": {"input": "x", "to": {"$concat": ["in", "t"]}, "onError": 6}}, 6),
]  # fmt: skip


def test_operators() -> None:
    wrong = {}
    for expression, expected in CASES:
        found = give(expression)
        if found != expected or type(found) is not type(expected):
            wrong[str(expression)] = (found, expected)
    assert not wrong


ERRORS: list[tuple[Any, str]] = [
    ({"$bitAnd": [1, 2.5]}, r"\$bitAnd requires an integer, got 2.5"),
    ({"$bitNot": True}, "requires an integer"),
    ({"$acos": 2}, r"\$acos gives no number that JSON can hold, for 2"),
    ({"$atanh": 1}, r"\$atanh gives no number"),
    ({"$sinh": 1000}, r"\$sinh gives no number"),
    ({"$sin": "x"}, r"\$sin requires a number, got 'x'"),
    ({"$sigmoid": "x"}, r"\$sigmoid requires a number"),
    ({"$add": ["$n", "$s"]}, r"\$add requires a number, got 'Straße'"),
    ({"$add": [1e308, 1e308]}, r"\$add gives inf"),
    ({"$multiply": [1e308, 10]}, r"\$multiply gives inf"),
    ({"$multiply": [True]}, r"\$multiply"),
    ({"$divide": [1, 0]}, r"\$divide cannot divide by 0"),
    ({"$mod": [1, 0.0]}, r"\$mod"),
    ({"$pow": [0, -1]}, r"\$pow"),
    ({"$pow": [-8, 0.5]}, r"\$pow"),
    ({"$pow": [1, "x"]}, r"\$pow"),
    ({"$pow": ["x", 1]}, r"\$pow"),
    ({"$pow": [10, 400]}, r"\$pow"),
    ({"$sqrt": -1}, r"\$sqrt"),
    ({"$ln": 0}, r"\$ln"),
    ({"$log": [1, 1]}, r"\$log"),
    ({"$exp": 1000}, r"\$exp"),
    ({"$round": [2**63 - 1, -1]}, "beyond 64 bit"),
    ({"$round": [1, 101]}, r"\$round .* from -20 to 100"),
    ({"$concat": ["a", 1]}, r"\$concat"),
    ({"$toLower": "$a"}, r"\$toLower"),
    ({"$substrBytes": ["$s", 0, 5]}, r"\$substrBytes"),
    ({"$substrCP": ["a", -1, 1]}, r"\$substrCP"),
    ({"$substrCP": ["a", 0.5, 1]}, r"\$substrCP requires an integer"),
    ({"$substrBytes": ["a", -1, 1]}, r"\$substrBytes requires an integer from 0"),
    ({"$substrBytes": ["a", "0", 1]}, r"\$substrBytes requires a number"),
    ({"$abs": -(2**63)}, r"\$abs gives an integer beyond 64 bit"),
    ({"$strLenCP": "$none"}, r"\$strLenCP requires a string, got a missing value"),
    ({"$split": ["a", ""]}, r"\$split"),
    ({"$regexMatch": {"input": 5, "regex": "x"}}, r"\$regexMatch"),
    (
        {"$regexMatch": {"input": "5", "regex": {"$concat": ["(", "x"]}}},
        r"\$regexMatch has an invalid regul",
    ),
    ({"$toInt": "1.5"}, r"\$toInt"),
    ({"$toInt": 2**31}, r"\$toInt"),
    ({"$toInt": ""}, r"\$toInt"),
    ({"$toInt": " 1"}, r"\$toInt"),
    ({"$toLong": 2.0**63}, r"\$toLong"),
    ({"$toDouble": "inf"}, r"\$toDouble"),
    ({"$toDouble": "1e999"}, r"\$toDouble"),
    ({"$toString": "$a"}, r"\$toString"),
    (
        {"$convert": {"input": 1, "to": "$s", "onError": 1}},
        r"\$convert requires a type of bool, date, double",
    ),
    (
        {"$convert": {"input": None, "to": "$s", "onNull": 1}},
        r"\$convert requires a type of bool, date, double",
    ),
    (
        {"$convert": {"input": 1, "to": "$a", "onError": 1}},
        r"\$convert requires a type of bool, date, double",
    ),
    ({"$arrayElemAt": ["$n", 0]}, r"\$arrayElemAt requires an array, got 7"),
    ({"$arrayElemAt": ["$a", 1.5]}, r"\$arrayElemAt"),
    ({"$size": "$none"}, r"\$size requires an array, got a missing value"),
    ({"$size": None}, r"\$size"),
    ({"$in": [1, "$n"]}, r"\$in "),
    ({"$filter": {"input": 1, "cond": True}}, r"\$filter"),
    ({"$filter": {"input": "$a", "cond": True, "limit": 0}}, r"\$filter"),
    ({"$map": {"input": 1, "in": True}}, r"\$map"),
    ({"$reduce": {"input": 1, "initialValue": 1, "in": 1}}, r"\$reduce"),
    ({"$range": [0, 5, 0]}, r"\$range"),
    ({"$range": [0, 5.5]}, r"\$range"),
    ({"$slice": ["$a", 1, 0]}, r"\$slice"),
    ({"$zip": {"inputs": ["$n"]}}, r"\$zip"),
    ({"$firstN": {"input": "$a", "n": 0}}, r"\$firstN"),
    ({"$arrayToObject": [[["a"]]]}, r"\$arrayToObject"),
    ({"$arrayToObject": [[["a", 1], {"k": "b", "v": 1}]]}, r"\$arrayToObject"),
    ({"$objectToArray": "$a"}, r"\$objectToArray"),
    ({"$mergeObjects": ["$n"]}, r"\$mergeObjects"),
    ({"$setEquals": ["$a", None]}, r"\$setEquals"),
    ({"$setField": {"field": "a", "input": 1, "value": 1}}, r"\$setField"),
    ({"$getField": "$a"}, r"\$getField requires a string, got \[3, 1, 2\]"),
    (
        {"$getField": {"field": "$none", "input": None}},
        r"\$getField requires a string, got a missing v",
    ),
    ({"$switch": {"branches": [{"case": 0, "then": 1}]}}, r"\$switch has no branch"),
    ({"$allElementsTrue": None}, r"\$allElementsTrue"),
]


@pytest.mark.parametrize(("expression", "message"), ERRORS, ids=lambda each: str(each)[:60])
def test_invalid_operands(expression: Any, message: str) -> None:
    with pytest.raises(InvalidOperand, match=message):
        give(expression)


def test_errors_have_the_operator_and_its_operand() -> None:
    with pytest.raises(InvalidOperand) as caught:
        give({"$add": [1, {"$concat": ["a", "$o"]}]})
    assert (caught.value.operator, caught.value.found) == ("$concat", BODY["o"])


REFUSED: list[tuple[Any, str]] = [
    ({"$frobnicate": 1}, r"'\$expr\.\$frobnicate': no such operator"),
    ({"$rand": 1}, r"'\$expr\.\$rand': takes an empty document, got 1"),
    (
        {"$median": {"input": 1, "method": "x"}},
        r"\$median\.method': must be 'approximate', got 'x'",
    ),
    (
        {"$percentile": {"input": 1, "p": [True], "method": "approximate"}},
        r"\$percentile\.p': must be",
    ),
    ({"$sigmoid": {"onNull": 1}}, "requires input"),
    ({"$getField": {"field": "a"}}, r"\$getField': requires input"),
    (
        {"$convert": {"input": 1, "to": "decimal"}},
        "cannot convert to decimal, which JSON lacks: requires",
    ),
    ({"$regexMatch": {"input": "$s", "regex": "x" * 32_765}}, "there are more than 32,764 bytes"),
    ({"$add": [1, {"$bsonSize": [1]}]}, r"\$add\.1\.\$bsonSize': this operator is not supported"),
    ({"$bsonSize": 1}, "not supported"),
    ({"$toDecimal": 1}, "not supported"),
    ({"$toUUID": "$s"}, "not supported"),
    ({"$gt": ["$a"]}, r"'\$expr\.\$gt': takes 2 operands, got 1"),
    ({"$size": [1, 2]}, r"\$size': takes 1 operand, got 2"),
    ({"$round": [1, 2, 3]}, r"\$round': takes 1 to 2 operands, got 3"),
    ({"$ifNull": [1]}, r"at least 2"),
    (
        {"$gt": [{"$add": 1, "$sum": 2}, 1]},
        r"'\$expr\.\$gt\.0': \$add must be the only key, got '\$sum'",
    ),
    ({"a": 1, "$add": 2}, r"\$expr\.\$add"),
    ({"a.b": 1}, r"\$expr\.a\.b"),
    ({"": 1}, "must not be empty, hold a dot"),
    ("$", "must be a path without empty keys"),
    ("$a..b", "must be a path without empty keys"),
    (
        {"$sortArray": {"input": [], "sortBy": {"a.": 1}}},
        r"sortBy\.a\.': must be a path without empty keys",
    ),
    ("$a.", "must be a path without empty keys"),
    ("$a.$b", "must be a path without empty keys"),
    ("$$x", "no variable 'x'"),
    ({"$map": {"input": [], "as": "Up", "in": 1}}, r"\$map\.as"),
    ({"$map": {"input": []}}, r"\$map': requires in"),
    ({"$map": {"input": [], "in": 1, "im": 2}}, r"\$map\.im"),
    ({"$map": []}, r"\$map': must be a document"),
    ({"$let": {"vars": [], "in": 1}}, r"\$let\.vars"),
    ({"$let": {"vars": {"x": 1, "y": "$$x"}, "in": 1}}, r"\$let\.vars\.y"),
    ({"$switch": {"branches": []}}, r"\$switch\.branches"),
    ({"$switch": {"branches": [{"case": 1}]}}, r"\$switch\.branches\.0': requires then"),
    ({"$cond": {"if": 1, "then": 2}}, r"\$cond': requires else"),
    ({"$zip": {"inputs": "$a"}}, r"\$zip\.inputs"),
    ({"$zip": {"inputs": ["$a"], "defaults": [1]}}, r"\$zip\.defaults"),
    (
        {"$zip": {"inputs": ["$a"], "defaults": [1, 2], "useLongestLength": True}},
        r"\$zip\.defaults",
    ),
    ({"$sortArray": {"input": [], "sortBy": 2}}, r"\$sortArray\.sortBy"),
    ({"$sortArray": {"input": [], "sortBy": {}}}, r"\$sortArray\.sortBy"),
    ({"$sortArray": {"input": [], "sortBy": {"$id": 1}}}, r"\$sortArray\.sortBy\.\$id': an elem"),
    (
        {"$sortArray": {"input": [], "sortBy": {"a\0": 1}}},
        r"must be a path without empty keys, NUL",
    ),
    ({"$sortArray": {"input": [], "sortBy": {".".join("a" * 201): 1}}}, "200 keys"),
    (
        {"$sortArray": {"input": [], "sortBy": {f"a{n}": 1 for n in range(33)}}},
        "must be at most 32 fields",
    ),
    ({"$regexMatch": {"input": "", "regex": "("}}, r"\$regexMatch\.regex"),
    ({"$regexMatch": {"input": "", "regex": "a", "options": "g"}}, "must be of i, m, s, x, u, got"),
    (
        {"$convert": {"input": 1, "to": "objectId"}},
        r"\$convert\.to': cannot convert to objectId, which JSON lacks: requires a type of bool, date, double",
    ),
    ({"$convert": {"input": None, "to": "foo", "onError": 1, "onNull": 1}}, r"\$convert\.to"),
    ({"$convert": {"input": 1, "to": True, "onError": 1}}, r"\$convert\.to"),
    ({"$convert": {"input": 1, "to": {"$literal": [1]}, "onError": 1}}, r"\$convert\.to"),
    ({"$meta": "textScore"}, r"\$meta"),
    ({"$getField": 5}, r"\$getField': must be the name of a field"),
    ({"$getField": {"field": None, "input": {}}}, r"\$getField\.field"),
    ({"$setField": {"field": {"$concat": ["a"]}, "input": {}, "value": 1}}, r"\$setField\.field"),
    ({"$setField": {"field": 1, "input": {}, "value": 1}}, r"\$setField\.field"),
    ("$" + ".".join(["a"] * 201), "200 keys"),
]


@pytest.mark.parametrize(("expression", "message"), REFUSED, ids=lambda each: str(each)[:60])
def test_invalid_expressions_name_the_path(expression: Any, message: str) -> None:
    with pytest.raises(InvalidFilter, match=message):
        give(expression)


def test_metadata() -> None:
    row = Document("a", 1, version=3, created_us=5, updated_us=6)
    every = {
        each: {"$meta": each}
        for each in ("id", "version", "created_at", "updated_at", "expires_at")
    }
    known = {"id": "a", "version": 3, "created_at": 5, "updated_at": 6, "expires_at": None}
    assert give(every, row=row) == known
    assert give(every) == {}


def test_scalar_bodies_have_no_fields() -> None:
    for body in (1, "a", None, [{"a": 1}]):
        assert give("$a", body) is MISSING
        assert give("$$ROOT", body) == body


def test_key_order_matters_if_the_database_keeps_it() -> None:
    expression = {"$eq": ["$o", {"$literal": {"b": 1, "a": 2}}]}
    body = {"o": {"a": 2, "b": 1}}
    assert give(expression, body) is False
    assert give(expression, body, ordered=False) is True
    sets = {"$setUnion": [["$o"], [{"$literal": {"b": 1, "a": 2}}]]}
    assert len(give(sets, body)) == 2
    assert len(give(sets, body, ordered=False)) == 1


# -- limits of memory and depth -----------------------------------------------------------------------

NOUGHTS = {"$range": [0, 1000]}
GREEDY: list[Any] = [
    {"$split": [{"$literal": "," * 2**21}, ","]},
    {"$range": [0, 2**31 - 1]},
    {"$reduce": {"input": NOUGHTS, "initialValue": "a", "in": {"$concat": ["$$value", "$$value"]}}},
    {"$reduce": {"input": NOUGHTS, "initialValue": [1], "in": {"$concatArrays": ["$$value", "$$value"]}}},
    {"$reduce": {"input": NOUGHTS, "initialValue": 1, "in": ["$$value", "$$value"]}},
    {"$reduce": {"input": NOUGHTS, "initialValue": 1, "in": {"a": "$$value", "b": "$$value"}}},
    {"$reduce": {"input": NOUGHTS, "initialValue": 1, "in": ["$$value"]}},
    {"$reduce": {"input": NOUGHTS, "initialValue": {}, "in": {"$setField": {"field": "a", "input": {}, "value": "$$value"}}}},
    {"$reduce": {"input": NOUGHTS, "initialValue": 1, "in": {"$map": {"input": [1, 2], "in": "$$value"}}}},
    {"$reduce": {"input": NOUGHTS, "initialValue": "aa", "in": {"$replaceAll": {"input": "$$value", "find": "a", "replacement": "$$value"}}}},
    {"$map": {"input": NOUGHTS, "in": {"$range": [0, 100_000]}}},
    {"$setUnion": [{"$reduce": {"input": NOUGHTS, "initialValue": [], "in": {"$concatArrays": ["$$value", [["$$this", {"$range": [0, 9_000]}]]]}}}]},
    {"$zip": {"inputs": [{"$range": [0, 100_000]}] * 50}},
]  # fmt: skip


@pytest.mark.parametrize("expression", GREEDY, ids=lambda each: str(each)[:100])
def test_values_have_a_size_limit(expression: Any) -> None:
    message = r"more than (16,777,216 characters|4,194,304 bytes)|nested deeper than 200 levels"
    with pytest.raises(InvalidOperand, match=message):
        give(expression, memory_limit=4 * 2**20)


ROOM = 2**18
LONG = {"$range": [0, 3_000]}
WIDE = {
    "$reduce": {
        "input": {"$range": [0, 15]},
        "initialValue": "ab",
        "in": {"$concat": ["$$value", "$$value"]},
    }
}
HELD: list[Any] = [
    {"$size": {"$concatArrays": [LONG] * 50}},
    {"$size": [[LONG] * 50]},
    {"$size": [[[LONG, LONG]] * 50]},
    {"a": [{"b": LONG, "c": LONG}] * 50},
    {"$size": {"$zip": {"inputs": [LONG] * 50}}},
    {"$size": {"$map": {"input": {"$range": [0, 50]}, "in": LONG}}},
    {"$size": {"$reduce": {"input": {"$range": [0, 50]}, "initialValue": [], "in": {"$concatArrays": ["$$value", [LONG]]}}}},
    {"$size": {"$reduce": {"input": {"$range": [0, 50]}, "initialValue": [], "in": {"$concatArrays": [[LONG], "$$value"]}}}},
    {"$let": {"vars": {f"v{n}": LONG for n in range(50)}, "in": 1}},
    {"$strLenCP": {"$concat": [WIDE] * 50}},
    {"$strLenCP": {"$replaceAll": {"input": WIDE, "find": "a", "replacement": "x" * 50}}},
    {"$size": {"$split": [WIDE, "a"]}},
    {"$size": {"$setUnion": [LONG] * 50}},
    {"$setEquals": [LONG] * 50},
    {"$size": {"$setUnion": [{"$map": {"input": LONG, "in": [["$$this"]]}}, LONG]}},
    {"$size": {"$objectToArray": {"$arrayToObject": [{"$map": {"input": LONG, "in": [{"$toString": "$$this"}, []]}}]}}},
    {"$mergeObjects": [{str(n): LONG} for n in range(50)]},
    {"$size": {"$map": {"input": {"$range": [0, 1000]}, "in": {"$literal": [[[[[[]]]]]]}}}},
    {"$cmp": [[LONG] * 50, 1]},
    {"$sum": [LONG] * 50},
    {"$cond": [{"$and": [{"$eq": [LONG, LONG]}, {"$eq": [[LONG] * 50, 1]}]}, 1, 2]},
    {"$size": {"$sortArray": {"input": {"$concatArrays": [LONG] * 50}, "sortBy": 1}}},
    {"$size": {"$filter": {"input": LONG, "cond": {"$isArray": [[LONG] * 50]}}}},
]  # fmt: skip


@pytest.mark.parametrize("expression", HELD, ids=lambda each: str(each)[:80])
def test_expressions_respect_the_memory_limit(expression: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidOperand, match="takes more than 262,144 bytes of memory"):
            give(expression, memory_limit=ROOM)
        assert tracemalloc.get_traced_memory()[1] < 3 * ROOM
    finally:
        tracemalloc.stop()


RELEASED: list[tuple[Any, Any]] = [
    ({"$sum": {"$map": {"input": {"$range": [0, 100]}, "in": {"$size": LONG}}}}, 300_000),
    ({"$reduce": {"input": {"$range": [0, 100]}, "initialValue": 0, "in": {"$add": ["$$value", {"$size": LONG}]}}}, 300_000),
    ({"$size": {"$reduce": {"input": {"$range": [0, 100]}, "initialValue": [], "in": {"$setUnion": ["$$value", {"$range": [0, 500]}]}}}}, 500),
    ({"$size": {"$reduce": {"input": {"$range": [0, 100]}, "initialValue": [], "in": {"$slice": [{"$concatArrays": [LONG, "$$value"]}, 9]}}}}, 9),
    ({"$strLenCP": {"$reduce": {"input": {"$range": [0, 3000]}, "initialValue": "", "in": {"$concat": ["$$value", "x"]}}}}, 3000),
    ({"$size": {"$map": {"input": {"$range": [0, 500]}, "in": "$a"}}}, 500),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), RELEASED, ids=lambda each: str(each)[:80])
def test_released_values_do_not_count(expression: Any, expected: Any) -> None:
    assert give(expression, memory_limit=ROOM) == expected


def test_a_large_document_leaves_memory_for_expressions() -> None:
    body = {"a": [[n, n, n, n] for n in range(5_000)]}
    assert give({"$size": {"$concatArrays": ["$a", LONG]}}, body, memory_limit=ROOM) == 8_000


def nested(levels: int) -> Any:
    expression: Any = True
    for _ in range(levels // 2):
        expression = {"$and": [expression]}
    return expression


def test_nesting_is_limited() -> None:
    assert give(nested(100)) is True
    with pytest.raises(InvalidFilter, match="nested deeper than 100 levels"):
        give(nested(102))


def test_expressions_are_values() -> None:
    def parsed(expression: Any) -> Any:
        return ExpressionParser(InvalidFilter).parse(expression, "")

    one = {"$map": {"input": "$a", "in": {"$add": ["$$this", 1]}}}
    assert parsed(one) == parsed(one)
    assert hash(parsed(one)) == hash(parsed(one))
    assert len({parsed(1), parsed(1.0), parsed(True), parsed("1"), parsed({"$literal": "1"})}) == 4
