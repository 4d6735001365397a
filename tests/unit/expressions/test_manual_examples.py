"""Operators on one value each. Most cases are examples of MongoDB 8.2's manual; the others have known results."""

import math
from typing import Any

import pytest

from collections_store import Document, Filter, InvalidOperand, Update
from collections_store.aggregation.pipeline import Pipeline
from collections_store.query.matcher import matches

NONE = "a missing field"
BYE = " \n good  bye \t  "
DEGREES = 53.13010235415598
CASES: list[tuple[Any, Any]] = [
    ({"$allElementsTrue": [[True, 1, "someString"]]}, True),
    ({"$allElementsTrue": [[[False]]]}, True),
    ({"$allElementsTrue": [[]]}, True),
    ({"$allElementsTrue": [[None, False, 0]]}, False),
    ({"$anyElementTrue": [[True, False]]}, True),
    ({"$anyElementTrue": [[[False]]]}, True),
    ({"$anyElementTrue": [[None, False, 0]]}, False),
    ({"$anyElementTrue": [[]]}, False),
    ({"$arrayElemAt": [[1, 2, 3], -2]}, 2),
    ({"$arrayElemAt": [[1, 2, 3], 15]}, NONE),
    ({"$bitAnd": [3, 5]}, 1),
    ({"$bitOr": [3, 5]}, 7),
    ({"$bitXor": [3, 5]}, 6),
    ({"$bitNot": 3}, -4),
    *(({"$ceil": n}, ceil) for n, ceil in ((9.25, 10), (8.73, 9), (4.32, 5), (-5.34, -5))),
    *(({"$floor": n}, floor) for n, floor in ((9.25, 9), (8.73, 8), (4.32, 4), (-5.34, -6))),
    *(({"$round": [n, 1]}, to) for n, to in ((19.25, 19.2), (28.73, 28.7), (-45.39, -45.4))),
    *(({"$round": [n, -1]}, to) for n, to in ((19.25, 20), (28.73, 30), (34.32, 30), (-45.39, -50))),
    *(({"$trunc": [n, 1]}, to) for n, to in ((19.25, 19.2), (28.73, 28.7), (-45.39, -45.3))),
    *(({"$trunc": [n, -1]}, to) for n, to in ((19.25, 10), (28.73, 20), (34.32, 30), (-45.39, -40))),
    ({"$concatArrays": [["hello", " "], [["world"], "again"]]}, ["hello", " ", ["world"], "again"]),
    ({"$exp": 0}, 1),
    ({"$exp": 2}, 7.38905609893065),
    ({"$exp": -2}, 0.1353352832366127),
    ({"$ln": 1}, 0),
    ({"$ln": 10}, 2.302585092994046),
    ({"$log": [100, 10]}, 2),
    ({"$log": [100, math.e]}, 4.605170185988092),
    ({"$log10": 1000}, 3),
    ({"$pow": [5, -2]}, 0.04),
    ({"$sqrt": 30}, 5.477225575051661),
    ({"$degreesToRadians": DEGREES}, 0.9272952180016123),
    ({"$radiansToDegrees": 0.9272952180016123}, DEGREES),
    ({"$sin": {"$degreesToRadians": DEGREES}}, 0.8),
    ({"$cos": {"$degreesToRadians": DEGREES}}, 0.6),
    ({"$tan": {"$degreesToRadians": DEGREES}}, 4 / 3),
    ({"$radiansToDegrees": {"$asin": 0.8}}, DEGREES),
    ({"$radiansToDegrees": {"$acos": 0.6}}, DEGREES),
    ({"$radiansToDegrees": {"$atan": 4 / 3}}, DEGREES),
    ({"$radiansToDegrees": {"$atan2": [4, 3]}}, DEGREES),
    ({"$sinh": 1}, 1.1752011936438014),
    ({"$cosh": 1}, 1.5430806348152437),
    ({"$tanh": 1}, 0.7615941559557649),
    ({"$asinh": 1}, 0.881373587019543),
    ({"$acosh": 3}, 1.762747174039086),
    ({"$atanh": 0.5}, 0.5493061443340548),
    ({"$indexOfArray": [["a", "abc", "de", ["de"]], ["de"]]}, 3),
    ({"$indexOfArray": [[1, 2, 3], [1, 2]]}, -1),
    ({"$indexOfArray": [[10, 9, 9, 8, 9], 9, 3]}, 4),
    ({"$indexOfArray": [["a", "abc", "b"], "b", 0, 1]}, -1),
    ({"$indexOfArray": [["a", "abc", "b"], "b", 1, 0]}, -1),
    ({"$indexOfArray": [["a", "abc", "b"], "b", 20]}, -1),
    ({"$indexOfArray": [[None, None, None], None]}, 0),
    ({"$indexOfBytes": ["cafétéria", "é"]}, 3),
    ({"$indexOfBytes": ["cafétéria", "t"]}, 5),
    ({"$indexOfBytes": ["foo.bar.fi", ".", 5]}, 7),
    ({"$indexOfBytes": ["vanilla", "ll", 0, 2]}, -1),
    ({"$indexOfBytes": ["vanilla", "ll", 12]}, -1),
    ({"$indexOfBytes": ["vanilla", "nilla", 3]}, -1),
    ({"$indexOfCP": ["cafétéria", "t"]}, 4),
    ({"$indexOfCP": ["cafétéria", "e"]}, -1),
    ({"$indexOfCP": ["vanilla", "ll", 5, 2]}, -1),
    ({"$isNumber": 7.0}, True),
    ({"$isNumber": "7"}, False),
    ({"$trim": {"input": BYE}}, "good  bye"),
    ({"$trim": {"input": " ggggoodbyeeeee", "chars": "ge"}}, " ggggoodby"),
    ({"$trim": {"input": "    ggggoodbyeeeee", "chars": " ge"}}, "oodby"),
    ({"$trim": {"input": BYE, "chars": None}}, None),
    ({"$ltrim": {"input": BYE}}, "good  bye \t  "),
    ({"$ltrim": {"input": " ggggoodbyeeeee", "chars": "ge"}}, " ggggoodbyeeeee"),
    ({"$ltrim": {"input": " ggggoodbyeeeee ", "chars": " gd"}}, "oodbyeeeee "),
    ({"$rtrim": {"input": BYE}}, " \n good  bye"),
    ({"$rtrim": {"input": " ggggoodbyeeeee    ", "chars": "e "}}, " ggggoodby"),
    ({"$range": [10, 0, -2]}, [10, 8, 6, 4, 2]),
    ({"$range": [0, 10, -2]}, []),
    ({"$replaceOne": {"input": "a blue, blue pen", "find": "blue", "replacement": "red"}}, "a red, blue pen"),
    ({"$replaceOne": {"input": "abc", "find": None, "replacement": "x"}}, None),
    ({"$replaceAll": {"input": "a blue, blue pen", "find": "blue", "replacement": "red"}}, "a red, red pen"),
    ({"$reverseArray": {"$slice": [["foo", "bar", "baz", "qux"], 1, 2]}}, ["baz", "bar"]),
    ({"$reverseArray": None}, None),
    ({"$reverseArray": {"$literal": [[1, 2, 3], [4, 5, 6]]}}, [[4, 5, 6], [1, 2, 3]]),
    ({"$setDifference": [["a", "b", "a"], ["b", "a"]]}, []),
    ({"$setDifference": [["a", "b"], [["a", "b"]]]}, ["a", "b"]),
    ({"$setEquals": [["a", "b", "a"], ["b", "a"]]}, True),
    ({"$setEquals": [["a", "b"], [["a", "b"]]]}, False),
    ({"$setIntersection": [["a", "b", "a"], ["b", "a"]]}, ["a", "b"]),
    ({"$setIntersection": [["a", "b"], [["a", "b"]]]}, []),
    ({"$setIsSubset": [["a", "b", "a"], ["b", "a"]]}, True),
    ({"$setIsSubset": [["a", "b"], [["a", "b"]]]}, False),
    ({"$setUnion": [["a", "b"], [["a", "b"]]]}, ["a", "b", ["a", "b"]]),
    ({"$slice": [[1, 2, 3], 15, 2]}, []),
    ({"$slice": [[1, 2, 3], -15, 2]}, [1, 2]),
    ({"$split": ["banana split", "a"]}, ["b", "n", "n", " split"]),
    ({"$split": ["astronomical", "astro"]}, ["", "nomical"]),
    ({"$split": ["pea green boat", "owl"]}, ["pea green boat"]),
    *(({"$strLenBytes": {"$literal": text}}, n) for text, n in (("cafétéria", 11), ("$€λG", 7), ("寿司", 6))),
    *(({"$strLenCP": {"$literal": text}}, n) for text, n in (("cafétéria", 9), ("$€λG", 4), ("寿司", 2))),
    ({"$substr": ["13Q1", 2, -1]}, "Q1"),
    ({"$substrBytes": ["cafétéria", 0, 5]}, "café"),
    ({"$substrBytes": ["cafétéria", 5, 4]}, "tér"),
    ({"$substrCP": ["cafétéria", 5, 4]}, "éria"),
    *(({"$toBool": each}, is_true) for each, is_true in ((1.99999, True), (0, False), ("false", True), ("", True))),
    *(({"$toInt": each}, n) for each, n in ((True, 1), (1.99999, 1), ("-2", -2), (None, None))),
    ({"$toDouble": "-2.5"}, -2.5),
    ({"$toLong": "1900"}, 1900),
    ({"$toString": 2.5}, "2.5"),
    ("$$CURRENT.a", 5),
    ({"$let": {"vars": {"CURRENT": {"a": 6}}, "in": "$a"}}, 6),
]  # fmt: skip


def value_of(expression: Any) -> Any:
    pipeline = Pipeline.parse([{"$project": {"_id": 0, "x": expression}}])
    [found] = pipeline.run([Document("1", {"a": 5})])
    return found.get("x", NONE)


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=lambda each: str(each)[:70])
def test_expressions(expression: Any, expected: Any) -> None:
    found = value_of(expression)
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)
    assert isinstance(found, bool) is isinstance(expected, bool)


@pytest.mark.parametrize("position", [(7, 3), (3, 1)])
def test_a_part_of_bytes_does_not_cut_a_character(position: tuple[int, int]) -> None:
    with pytest.raises(InvalidOperand):
        value_of({"$substrBytes": ["cafétéria", *position]})


BITS: list[tuple[str, Any, list[float]]] = [
    ("$bitsAllClear", [1, 5], [20, 20.0]),
    ("$bitsAllClear", 35, [20, 20.0]),
    ("$bitsAllSet", [1, 5], [54]),
    ("$bitsAllSet", 50, [54]),
    ("$bitsAnyClear", [1, 5], [20, 20.0]),
    ("$bitsAnyClear", 35, [54, 20, 20.0]),
    ("$bitsAnySet", [1, 5], [54]),
    ("$bitsAnySet", 35, [54]),
]


@pytest.mark.parametrize(("operator", "bits", "expected"), BITS)
def test_bits(operator: str, bits: Any, expected: list[float]) -> None:
    wanted = Filter.parse({"a": {operator: bits}, "$comment": "of the manual"})
    values = [54, 20, 20.0]
    assert [each for each in values if matches(wanted, Document("1", {"a": each}))] == expected


def test_all_elements_and_filtered_elements() -> None:
    every = Update.parse({"$inc": {"grades.$[]": 10}})
    document = Document("1", {"grades": [85, 82, 80]})
    assert every.apply(document, now=0) == {"grades": [95, 92, 90]}
    filters = [{"element": {"$gte": 82}}]
    some = Update.parse({"$set": {"grades.$[element]": 100}}, array_filters=filters)
    assert some.apply(document, now=0) == {"grades": [100, 100, 80]}
