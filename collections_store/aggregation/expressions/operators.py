"""The operators that need no more than the values of their operands, and how many they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...query.values import is_number, value_class
from . import arrays, objects, strings
from . import numbers as arithmetic
from . import strings as patterns
from .operands import is_null, order, sort_key, truthy


@value_class(eq=True)
class Operator:
    """An operator. It takes `least` to `most` operands (None: any number), or, where there are
    `names`, a document of those, the first `least` of which must be there. A function that
    compares wants to know whether the order of keys counts; one that `grows` says what it will hold before
    it makes it; what one that `nests` gives may be nested deeper than its operands.
    """

    function: Callable[..., Any]
    least: int = 1
    most: int | None = 1
    names: tuple[str, ...] = ()
    compares: bool = False
    grows: bool = False
    nests: bool = False


def _compared(decides: Callable[[int], Any]) -> Operator:
    def function(left: Any, right: Any, *, ordered: bool) -> Any:
        return decides(order(left, right, ordered=ordered))

    return Operator(function, 2, 2, compares=True)


def _extreme(values: tuple[Any, ...], ordered: bool, pick: Callable[..., Any]) -> Any:
    there = [each for each in arithmetic.opened(values) if not is_null(each)]
    return pick(there, key=sort_key(ordered), default=None)


def _least(*values: Any, ordered: bool) -> Any:
    return _extreme(values, ordered, min)


def _greatest(*values: Any, ordered: bool) -> Any:
    return _extreme(values, ordered, max)


def _one(function: Callable[..., Any]) -> Operator:
    return Operator(function)


def _two(function: Callable[..., Any]) -> Operator:
    return Operator(function, 2, 2)


def _any(function: Callable[..., Any]) -> Operator:
    return Operator(function, 0, None)


_COMPARISON: Final = {
    "$cmp": _compared(lambda found: found),
    "$eq": _compared(lambda found: found == 0),
    "$ne": _compared(lambda found: found != 0),
    "$gt": _compared(lambda found: found > 0),
    "$gte": _compared(lambda found: found >= 0),
    "$lt": _compared(lambda found: found < 0),
    "$lte": _compared(lambda found: found <= 0),
    "$not": _one(lambda value: not truthy(value)),
    "$min": Operator(_least, 0, None, compares=True),
    "$max": Operator(_greatest, 0, None, compares=True),
}

_ARITHMETIC: Final = {
    "$add": _any(arithmetic.add),
    "$multiply": _any(arithmetic.multiply),
    "$sum": _any(arithmetic.total_of),
    "$avg": _any(arithmetic.average_of),
    "$subtract": _two(arithmetic.subtract),
    "$divide": _two(arithmetic.divide),
    "$mod": _two(arithmetic.modulo),
    "$pow": _two(arithmetic.power),
    "$abs": _one(arithmetic.absolute),
    "$ceil": _one(arithmetic.ceiling),
    "$floor": _one(arithmetic.floor),
    "$round": Operator(arithmetic.rounded, 1, 2),
    "$trunc": Operator(arithmetic.truncated, 1, 2),
    "$sqrt": _one(arithmetic.square_root),
    "$exp": _one(arithmetic.exponential),
    "$ln": _one(arithmetic.logarithm),
    "$log": _two(arithmetic.logarithm),
    "$log10": _one(arithmetic.logarithm_10),
}

_STRINGS: Final = {
    "$concat": Operator(strings.concatenate, 0, None, grows=True),
    "$toLower": _one(strings.lower),
    "$toUpper": _one(strings.upper),
    "$strcasecmp": _two(strings.compare_case),
    "$substr": Operator(strings.part_of_bytes, 3, 3),
    "$substrBytes": Operator(strings.part_of_bytes, 3, 3),
    "$substrCP": Operator(strings.part_of_characters, 3, 3),
    "$strLenBytes": _one(strings.count_bytes),
    "$strLenCP": _one(strings.count_characters),
    "$split": Operator(strings.split, 2, 2, grows=True),
    "$trim": Operator(strings.trim, names=("input", "chars")),
    "$ltrim": Operator(strings.trim_left, names=("input", "chars")),
    "$rtrim": Operator(strings.trim_right, names=("input", "chars")),
    "$indexOfBytes": Operator(strings.index_of_bytes, 2, 4),
    "$indexOfCP": Operator(strings.index_of_characters, 2, 4),
    "$replaceOne": Operator(strings.replace_one, 3, names=("input", "find", "replacement")),
    "$replaceAll": Operator(
        strings.replace_all, 3, names=("input", "find", "replacement"), grows=True
    ),
    "$regexMatch": Operator(patterns.is_found, 2, names=("input", "regex", "options")),
    "$regexFind": Operator(patterns.find, 2, names=("input", "regex", "options")),
    "$regexFindAll": Operator(patterns.find_all, 2, names=("input", "regex", "options")),
}

_ARRAYS: Final = {
    "$arrayElemAt": _two(arrays.element_at),
    "$first": _one(arrays.first),
    "$last": _one(arrays.last),
    "$firstN": Operator(arrays.first_some, 2, names=("input", "n")),
    "$lastN": Operator(arrays.last_some, 2, names=("input", "n")),
    "$minN": Operator(arrays.least_some, 2, names=("input", "n"), compares=True),
    "$maxN": Operator(arrays.greatest_some, 2, names=("input", "n"), compares=True),
    "$concatArrays": Operator(arrays.concatenate, 0, None, grows=True),
    "$in": Operator(arrays.contains, 2, 2, compares=True),
    "$indexOfArray": Operator(arrays.index_of, 2, 4, compares=True),
    "$isArray": _one(arrays.is_array),
    "$range": Operator(arrays.numbers, 2, 3, grows=True),
    "$reverseArray": _one(arrays.reverse),
    "$size": _one(arrays.size),
    "$slice": Operator(arrays.part, 2, 3),
    "$allElementsTrue": _one(arrays.all_true),
    "$anyElementTrue": _one(arrays.any_true),
    "$setEquals": Operator(arrays.equal_sets, 2, None, compares=True, grows=True),
    "$setIntersection": Operator(arrays.intersection, 0, None, compares=True, grows=True),
    "$setUnion": Operator(arrays.union, 0, None, compares=True, grows=True),
    "$setDifference": Operator(arrays.difference, 2, 2, compares=True, grows=True),
    "$setIsSubset": Operator(arrays.is_subset, 2, 2, compares=True, grows=True),
}

_OBJECTS: Final = {
    "$mergeObjects": _any(objects.merge),
    "$arrayToObject": Operator(objects.to_object, nests=True),
    "$objectToArray": Operator(objects.to_array, grows=True, nests=True),
    "$type": _one(objects.type_of),
    "$isNumber": _one(is_number),
}

_READ_APART: Final = {
    "$getField": Operator(objects.get_field, 2, 2),
    "$setField": Operator(objects.set_field, 3, 3, nests=True),
    "$unsetField": Operator(objects.unset_field, 2, 2),
    "$sortArray": Operator(arrays.sort_values, 2, 2, compares=True),
    "$zip": Operator(arrays.transposed, 3, 3, grows=True, nests=True),
}

UNSUPPORTED: Final = frozenset(
    f"${name}"
    for name in [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "binarySize",
        "bitAnd",
        "bitNot",
        "bitOr",
        "bitXor",
        "bsonSize",
        "cos",
        "cosh",
        "dateAdd",
        "dateDiff",
        "dateFromParts",
        "dateFromString",
        "dateSubtract",
        "dateToParts",
        "dateToString",
        "dateTrunc",
        "dayOfMonth",
        "dayOfWeek",
        "dayOfYear",
        "degreesToRadians",
        "function",
        "hour",
        "isoDayOfWeek",
        "isoWeek",
        "isoWeekYear",
        "median",
        "millisecond",
        "minute",
        "month",
        "percentile",
        "radiansToDegrees",
        "rand",
        "sampleRate",
        "second",
        "sin",
        "sinh",
        "stdDevPop",
        "stdDevSamp",
        "tan",
        "tanh",
        "toDate",
        "toDecimal",
        "toHashedIndexKey",
        "toObjectId",
        "toUUID",
        "tsIncrement",
        "tsSecond",
        "week",
        "year",
    ]
)
"""Operators that MongoDB has besides."""
OPERATORS: Final = {**_COMPARISON, **_ARITHMETIC, **_STRINGS, **_ARRAYS, **_OBJECTS}
FUNCTIONS: Final = {**OPERATORS, **_READ_APART}
"""Every operator of a `OperatorCall`: those whose operands the parser reads in a way of their own, too."""
