"""The operators: `OPERATORS` declares each once.

To add an operator, write a plain function in `numbers`, `strings`, `arrays` or `times`, and a row here. A syntax of its
own is a function in `syntax`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from random import random
from typing import Any, Final

from . import arrays, numbers, strings, syntax, times
from .declared import ALL, Operator
from .evaluation import Scope, is_null, order, sort_key, truthy
from .values import MISSING, is_number


def _compare(holds: Callable[[int, int], bool], scope: Scope, left: Any, right: Any) -> bool:
    return holds(order(left, right, ordered=scope.ordered), 0)


def _extreme(pick: Callable[..., Any], scope: Scope, *values: Any) -> Any:
    some = [each for each in numbers.operands_or_elements(values) if not is_null(each)]
    return pick(some, key=sort_key(scope.ordered), default=None)


def _integral(function: Callable[[float], int], value: Any) -> Any:
    return value if isinstance(value, int) else float(function(value))


def _trim(strip: Callable[[str, str], str], value: str, characters: str = strings.SPACE) -> str:
    return strip(value, characters)


_FUNCTIONS: Final[list[tuple[str, Callable[..., float], int]]] = [
    *((name, getattr(math, name), 1) for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    )),
    ("atan2", math.atan2, 2),
    ("degreesToRadians", math.radians, 1),
    ("radiansToDegrees", math.degrees, 1),
]  # fmt: skip
"""Functions of real numbers: their names, and how many numbers each takes."""
_ZONE: Final = 'timezone: zone = "UTC"'
_WEEK: Final = f'{_ZONE}, startOfWeek: any = "sunday"'
_MOVE: Final = f"startDate: time, unit: unit, amount: integer, {_ZONE}"
_TRIM: Final = "input: string, chars: string?"
_REGEX: Final = "input: any, regex: any, options: any?"
_DECLARED: Final = (
    # comparison
    Operator("$cmp", partial(_compare, operator.sub), "any, any", scoped=True),
    Operator("$eq", partial(_compare, operator.eq), "any, any", scoped=True),
    Operator("$ne", partial(_compare, operator.ne), "any, any", scoped=True),
    Operator("$gt", partial(_compare, operator.gt), "any, any", scoped=True),
    Operator("$gte", partial(_compare, operator.ge), "any, any", scoped=True),
    Operator("$lt", partial(_compare, operator.lt), "any, any", scoped=True),
    Operator("$lte", partial(_compare, operator.le), "any, any", scoped=True),
    Operator("$not", lambda value: not truthy(value), "any"),
    Operator("$min", partial(_extreme, min), "any*", scoped=True),
    Operator("$max", partial(_extreme, max), "any*", scoped=True),
    # numbers
    Operator("$add", times.plus, "any*"),
    Operator("$multiply", numbers.multiply, "any*"),
    Operator("$sum", lambda *values: numbers.total(*values).total(), "any*"),
    Operator("$avg", lambda *values: numbers.total(*values).average(), "any*"),
    Operator("$subtract", times.minus, "any, any", null=ALL),
    Operator("$divide", numbers.divide, "number, number", null=ALL),
    Operator("$mod", numbers.modulo, "number, number", null=ALL),
    Operator("$pow", numbers.power, "number, number", null=ALL),
    Operator("$abs", numbers.absolute, "number", null=ALL),
    Operator("$ceil", partial(_integral, math.ceil), "number", null=ALL),
    Operator("$floor", partial(_integral, math.floor), "number", null=ALL),
    Operator("$round", numbers.rounded, "number, digits?", null=ALL),
    Operator("$trunc", numbers.truncated, "number, digits?", null=ALL),
    Operator("$sqrt", numbers.square_root, "number", null=ALL),
    Operator("$exp", numbers.exponential, "number", null=ALL),
    Operator("$ln", numbers.logarithm, "number", null=ALL),
    Operator("$log", numbers.logarithm, "number, number", null=ALL),
    Operator("$log10", lambda value: math.log10(numbers.positive(value)), "number", null=ALL),
    Operator(
        "$sigmoid", numbers.sigmoid, "input: number", null=ALL, bare=True, recovers=("onNull",)
    ),
    Operator("$stdDevPop", partial(numbers.deviation_of, 0), "any*"),
    Operator("$stdDevSamp", partial(numbers.deviation_of, 1), "any*"),
    Operator(
        "$median",
        lambda *operands: numbers.percentiles_of(*operands)[0],
        "any, any",
        syntax=syntax.percentile,
    ),
    Operator("$percentile", numbers.percentiles_of, "any, any", syntax=syntax.percentile),
    Operator("$rand", random, "any?", syntax=syntax.rand),
    Operator("$bitAnd", partial(numbers.bits, operator.and_, -1), "any*"),
    Operator("$bitOr", partial(numbers.bits, operator.or_, 0), "any*"),
    Operator("$bitXor", partial(numbers.bits, operator.xor, 0), "any*"),
    Operator("$bitNot", numbers.inverted_bits, "any", null=ALL),
    *(
        Operator(
            f"${name}", partial(numbers.analytic, function), ", ".join(["number"] * count), null=ALL
        )
        for name, function, count in _FUNCTIONS
    ),
    # strings
    Operator("$concat", strings.concatenate, "any*", scoped=True),
    Operator("$toLower", lambda value: strings.in_short(value).translate(strings.LOWER), "any"),
    Operator("$toUpper", lambda value: strings.in_short(value).translate(strings.UPPER), "any"),
    Operator("$strcasecmp", strings.compare_case, "any, any"),
    Operator("$substr", strings.part_of_bytes, "any, number, number"),
    Operator("$substrBytes", strings.part_of_bytes, "any, number, number"),
    Operator(
        "$substrCP",
        lambda value, start, count: strings.in_short(value)[start : start + count],
        "any, position, position",
    ),
    Operator("$strLenBytes", lambda value: len(value.encode()), "string"),
    Operator("$strLenCP", len, "string"),
    Operator("$split", strings.split, "string, string", null=ALL, scoped=True),
    Operator("$trim", partial(_trim, str.strip), _TRIM, null=ALL),
    Operator("$ltrim", partial(_trim, str.lstrip), _TRIM, null=ALL),
    Operator("$rtrim", partial(_trim, str.rstrip), _TRIM, null=ALL),
    Operator(
        "$indexOfBytes",
        lambda value, searched, *window: value.encode().find(searched.encode(), *window),
        "string, string, position?, position?",
        null=1,
    ),
    Operator(
        "$indexOfCP", strings.index_of_characters, "string, string, position?, position?", null=1
    ),
    Operator(
        "$replaceOne",
        strings.replace_one,
        "input: string, find: string, replacement: string",
        null=ALL,
    ),
    Operator(
        "$replaceAll",
        strings.replace_all,
        "input: string, find: string, replacement: string",
        null=ALL,
        scoped=True,
    ),
    Operator("$regexMatch", strings.is_found, _REGEX),
    Operator("$regexFind", lambda *values: next(strings.occurrences(*values), None), _REGEX),
    Operator("$regexFindAll", strings.find_all, _REGEX),
    # arrays
    Operator("$arrayElemAt", arrays.element_at, "array, int", null=ALL),
    Operator("$first", lambda values: arrays.element_at(values, 0), "array", null=ALL),
    Operator("$last", lambda values: arrays.element_at(values, -1), "array", null=ALL),
    Operator("$firstN", lambda values, n: values[:n], "input: array, n: count"),
    Operator("$lastN", lambda values, n: values[-n:], "input: array, n: count"),
    Operator("$minN", arrays.extremes, "input: array, n: count", scoped=True),
    Operator(
        "$maxN", partial(arrays.extremes, largest=True), "input: array, n: count", scoped=True
    ),
    Operator("$concatArrays", arrays.concatenate, "array*", null=ALL, scoped=True),
    Operator(
        "$in",
        lambda scope, value, values: arrays.index_of(scope, values, value) >= 0,
        "any, array",
        scoped=True,
        syntax=syntax.member,
    ),
    Operator(
        "$indexOfArray", arrays.index_of, "array, any, position?, position?", null=1, scoped=True
    ),
    Operator("$isArray", lambda value: isinstance(value, list), "any"),
    Operator("$range", arrays.integers, "int, int, int?", scoped=True),
    Operator("$reverseArray", lambda values: values[::-1], "array", null=ALL),
    Operator("$size", len, "array"),
    Operator("$slice", arrays.part, "array, int, int?", null=ALL),
    Operator("$allElementsTrue", lambda values: all(map(truthy, values)), "array"),
    Operator("$anyElementTrue", lambda values: any(map(truthy, values)), "array"),
    Operator(
        "$sortArray",
        arrays.sort_values,
        "input: array, sortBy: any",
        null=ALL,
        scoped=True,
        syntax=syntax.sort_array,
    ),
    Operator(
        "$zip",
        arrays.transposed,
        "inputs: any, useLongestLength: any?, defaults: any?",
        scoped=True,
        syntax=syntax.zipped,
    ),
    # sets
    Operator("$setEquals", arrays.equal_sets, "array, array, array*", scoped=True),
    Operator("$setIntersection", arrays.intersection, "array*", null=ALL, scoped=True),
    Operator("$setUnion", arrays.union, "array*", null=ALL, scoped=True),
    Operator("$setDifference", arrays.difference, "array, array", null=ALL, scoped=True),
    Operator(
        "$setIsSubset",
        lambda scope, left, right: (
            arrays.as_set(scope, left).keys() <= arrays.as_set(scope, right).keys()
        ),
        "array, array",
        scoped=True,
    ),
    # objects
    Operator("$mergeObjects", arrays.merge, "any*"),
    Operator("$arrayToObject", arrays.to_object, "array", null=ALL),
    Operator("$objectToArray", arrays.to_array, "object", null=ALL, scoped=True),
    Operator("$getField", arrays.get_field, "field: string, input: any?", syntax=syntax.get_field),
    Operator(
        "$setField",
        arrays.set_field,
        "field: string, input: any, value: any",
        syntax=syntax.set_field,
    ),
    Operator(
        "$unsetField",
        lambda name, value: arrays.set_field(name, value, MISSING),
        "field: string, input: any",
        syntax=syntax.set_field,
    ),
    # times
    *(
        Operator(name, partial(times.part, name), f"date: time, {_ZONE}", null=ALL, bare=True)
        for name in times.PARTS
    ),
    Operator("$dateAdd", times.add, _MOVE, null=ALL),
    Operator("$dateSubtract", times.subtract, _MOVE, null=ALL),
    Operator(
        "$dateDiff",
        times.difference,
        f"startDate: time, endDate: time, unit: unit, {_WEEK}",
        null=4,
    ),
    Operator(
        "$dateTrunc",
        times.truncated,
        f"date: time, unit: unit, binSize: count = 1, {_WEEK}",
        null=4,
    ),
    Operator(
        "$dateToParts", times.to_parts, f"date: time, {_ZONE}, iso8601: any = false", null=ALL
    ),
    Operator(
        "$dateFromParts",
        times.from_parts,
        "any, any, any, any, any, any, any, any, zone",
        null=ALL,
        syntax=syntax.date_from_parts,
    ),
    Operator(
        "$dateToString",
        times.to_string,
        'date: any, timezone: any = "UTC", format: any?',
        recovers=("onNull",),
    ),
    Operator(
        "$dateFromString",
        times.from_string,
        'dateString: any, timezone: any = "UTC", format: any?',
        recovers=("onNull", "onError"),
    ),
    # types
    Operator("$type", strings.type_of, "any"),
    Operator("$isNumber", is_number, "any"),
    Operator(
        "$convert",
        strings.convert,
        "input: any, to: any",
        recovers=("onNull", "onError"),
        syntax=syntax.convert,
    ),
    *(
        Operator(name, lambda value, to=to: strings.convert(value, to), "any")
        for name, to in strings.CONVERSIONS.items()
    ),
    # operators with nodes of their own
    Operator("$literal", syntax=syntax.literal),
    Operator("$meta", syntax=syntax.meta),
    Operator("$and", syntax=syntax.logic),
    Operator("$or", syntax=syntax.logic),
    Operator("$ifNull", syntax=syntax.if_null),
    Operator("$cond", syntax=syntax.cond),
    Operator("$switch", syntax=syntax.switch),
    Operator("$let", syntax=syntax.let),
    Operator("$map", syntax=syntax.map_elements),
    Operator("$filter", syntax=syntax.filter_elements),
    Operator("$reduce", syntax=syntax.reduce),
)
OPERATORS: Final = {each.name: each for each in _DECLARED}
