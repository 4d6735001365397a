"""The operators on the values of their operands alone.

To add an operator, write a plain function in `numbers`, `strings`, `arrays` or `times`, and a row here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from random import random
from typing import Any, Final

from .. import codec
from . import arrays, numbers, strings, times
from .evaluation import (
    Scope,
    array,
    integer,
    is_null,
    mapping,
    number,
    order,
    sort_key,
    string,
    truthy,
)
from .values import MISSING, is_number

TYPES: Final[dict[str, Callable[[Any], Any] | None]] = {
    "any": None,
    "number": number,
    "integer": integer,
    "int": partial(integer, low=-(2**31), high=2**31 - 1),
    "position": partial(integer, low=0, high=2**31 - 1),
    "count": partial(integer, low=1),
    "digits": partial(integer, low=-20, high=100),
    "string": string,
    "array": array,
    "object": mapping,
    "time": times.instant,
    "unit": times.unit,
    "zone": times.zone,
}
"""The types of operands. Each is checked before the function is called; an integer may be given as 2.0."""
ALL: Final = 100


class Operator:
    """An operator: its function, and the types of its operands, such as `"array, int?"`.

    `?` marks an optional operand, `*` an operand that may be repeated. Operands with names, as in `"input: string,
    chars: string?"`, are written as a document; an optional one may have a default, which is JSON (`"n: count = 1"`).
    The first operand of a `bare` operator may stand alone, without the document. The result is null if any of the first
    `null` operands is null or missing. The first argument of a `scoped` function is the `Scope`, which compares
    (`scope.ordered`) or charges large values (`scope.hold`).

    `recovers`: the operator also takes `onNull`, the result for a first operand of null or missing, and `onError`, the
    result of a failed conversion, or one of both.
    """

    __slots__ = (
        "_checks", "_null", "_scoped", "bare", "defaults", "function", "least", "most", "names",
        "recovers",
    )  # fmt: skip

    function: Callable[..., Any]
    names: tuple[str, ...]
    defaults: dict[str, Any]
    least: int
    most: int | None

    def __init__(
        self,
        function: Callable[..., Any],
        operands: str,
        *,
        null: int = 0,
        scoped: bool = False,
        bare: bool = False,
        recovers: tuple[str, ...] = (),
    ) -> None:
        self.bare, self.recovers, self.defaults = bare, recovers, {}
        each = [operand.partition(" = ")[0].rpartition(": ") for operand in operands.split(", ")]
        types = [kind for *_, kind in each]
        checks = [TYPES[kind.rstrip("?*")] for kind in types]
        repeated = types[-1].endswith("*")
        self.function, self._null, self._scoped = function, null, scoped
        self.names = tuple(name for name, *_ in each if name)
        for operand in operands.split(", "):
            head, _, default = operand.partition(" = ")
            if default:
                self.defaults[head.partition(":")[0]] = codec.decode(default)
        self.least = sum(kind.isalpha() for kind in types) - len(self.defaults)
        self.most = None if repeated else len(types)
        self._checks: Iterable[Any] = ()
        if any(checks):
            self._checks = repeat(checks[-1]) if repeated else checks

    def call(self, values: list[Any], scope: Scope) -> Any:
        """Return the result; raises `OperandError`."""
        if self._null:
            first = values[: self._null]
            if None in first or MISSING in first:
                return None
        if self._checks:
            pairs = zip(self._checks, values, strict=False)
            values = [each if check is None else check(each) for check, each in pairs]
        return self.function(scope, *values) if self._scoped else self.function(*values)


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
OPERATORS: Final = {
    # comparison
    "$cmp": Operator(partial(_compare, operator.sub), "any, any", scoped=True),
    "$eq": Operator(partial(_compare, operator.eq), "any, any", scoped=True),
    "$ne": Operator(partial(_compare, operator.ne), "any, any", scoped=True),
    "$gt": Operator(partial(_compare, operator.gt), "any, any", scoped=True),
    "$gte": Operator(partial(_compare, operator.ge), "any, any", scoped=True),
    "$lt": Operator(partial(_compare, operator.lt), "any, any", scoped=True),
    "$lte": Operator(partial(_compare, operator.le), "any, any", scoped=True),
    "$not": Operator(lambda value: not truthy(value), "any"),
    "$min": Operator(partial(_extreme, min), "any*", scoped=True),
    "$max": Operator(partial(_extreme, max), "any*", scoped=True),
    # numbers
    "$add": Operator(times.plus, "any*"),
    "$multiply": Operator(numbers.multiply, "any*"),
    "$sum": Operator(lambda *values: numbers.total(*values).total(), "any*"),
    "$avg": Operator(lambda *values: numbers.total(*values).average(), "any*"),
    "$subtract": Operator(times.minus, "any, any", null=ALL),
    "$divide": Operator(numbers.divide, "number, number", null=ALL),
    "$mod": Operator(numbers.modulo, "number, number", null=ALL),
    "$pow": Operator(numbers.power, "number, number", null=ALL),
    "$abs": Operator(numbers.absolute, "number", null=ALL),
    "$ceil": Operator(partial(_integral, math.ceil), "number", null=ALL),
    "$floor": Operator(partial(_integral, math.floor), "number", null=ALL),
    "$round": Operator(numbers.rounded, "number, digits?", null=ALL),
    "$trunc": Operator(numbers.truncated, "number, digits?", null=ALL),
    "$sqrt": Operator(numbers.square_root, "number", null=ALL),
    "$exp": Operator(numbers.exponential, "number", null=ALL),
    "$ln": Operator(numbers.logarithm, "number", null=ALL),
    "$log": Operator(numbers.logarithm, "number, number", null=ALL),
    "$log10": Operator(lambda value: math.log10(numbers.positive(value)), "number", null=ALL),
    "$sigmoid": Operator(
        numbers.sigmoid, "input: number", null=ALL, bare=True, recovers=("onNull",)
    ),
    "$stdDevPop": Operator(partial(numbers.deviation_of, 0), "any*"),
    "$stdDevSamp": Operator(partial(numbers.deviation_of, 1), "any*"),
    "$median": Operator(lambda *operands: numbers.percentiles_of(*operands)[0], "any, any"),
    "$percentile": Operator(numbers.percentiles_of, "any, any"),
    "$rand": Operator(random, "any?"),
    "$bitAnd": Operator(partial(numbers.bits, operator.and_, -1), "any*"),
    "$bitOr": Operator(partial(numbers.bits, operator.or_, 0), "any*"),
    "$bitXor": Operator(partial(numbers.bits, operator.xor, 0), "any*"),
    "$bitNot": Operator(numbers.inverted_bits, "any", null=ALL),
    **{
        f"${name}": Operator(
            partial(numbers.analytic, function), ", ".join(["number"] * count), null=ALL
        )
        for name, function, count in _FUNCTIONS
    },
    # strings
    "$concat": Operator(strings.concatenate, "any*", scoped=True),
    "$toLower": Operator(lambda value: strings.in_short(value).translate(strings.LOWER), "any"),
    "$toUpper": Operator(lambda value: strings.in_short(value).translate(strings.UPPER), "any"),
    "$strcasecmp": Operator(strings.compare_case, "any, any"),
    "$substr": Operator(strings.part_of_bytes, "any, number, number"),
    "$substrBytes": Operator(strings.part_of_bytes, "any, number, number"),
    "$substrCP": Operator(
        lambda value, start, count: strings.in_short(value)[start : start + count],
        "any, position, position",
    ),
    "$strLenBytes": Operator(lambda value: len(value.encode()), "string"),
    "$strLenCP": Operator(len, "string"),
    "$split": Operator(strings.split, "string, string", null=ALL, scoped=True),
    "$trim": Operator(partial(_trim, str.strip), _TRIM, null=ALL),
    "$ltrim": Operator(partial(_trim, str.lstrip), _TRIM, null=ALL),
    "$rtrim": Operator(partial(_trim, str.rstrip), _TRIM, null=ALL),
    "$indexOfBytes": Operator(
        lambda value, searched, *window: value.encode().find(searched.encode(), *window),
        "string, string, position?, position?",
        null=1,
    ),
    "$indexOfCP": Operator(
        strings.index_of_characters, "string, string, position?, position?", null=1
    ),
    "$replaceOne": Operator(
        strings.replace_one, "input: string, find: string, replacement: string", null=ALL
    ),
    "$replaceAll": Operator(
        strings.replace_all,
        "input: string, find: string, replacement: string",
        null=ALL,
        scoped=True,
    ),
    "$regexMatch": Operator(strings.is_found, _REGEX),
    "$regexFind": Operator(lambda *values: next(strings.occurrences(*values), None), _REGEX),
    "$regexFindAll": Operator(strings.find_all, _REGEX),
    # arrays
    "$arrayElemAt": Operator(arrays.element_at, "array, int", null=ALL),
    "$first": Operator(lambda values: arrays.element_at(values, 0), "array", null=ALL),
    "$last": Operator(lambda values: arrays.element_at(values, -1), "array", null=ALL),
    "$firstN": Operator(lambda values, n: values[:n], "input: array, n: count"),
    "$lastN": Operator(lambda values, n: values[-n:], "input: array, n: count"),
    "$minN": Operator(arrays.extremes, "input: array, n: count", scoped=True),
    "$maxN": Operator(
        partial(arrays.extremes, largest=True), "input: array, n: count", scoped=True
    ),
    "$concatArrays": Operator(arrays.concatenate, "array*", null=ALL, scoped=True),
    "$in": Operator(
        lambda scope, value, values: arrays.index_of(scope, values, value) >= 0,
        "any, array",
        scoped=True,
    ),
    "$indexOfArray": Operator(
        arrays.index_of, "array, any, position?, position?", null=1, scoped=True
    ),
    "$isArray": Operator(lambda value: isinstance(value, list), "any"),
    "$range": Operator(arrays.integers, "int, int, int?", scoped=True),
    "$reverseArray": Operator(lambda values: values[::-1], "array", null=ALL),
    "$size": Operator(len, "array"),
    "$slice": Operator(arrays.part, "array, int, int?", null=ALL),
    "$allElementsTrue": Operator(lambda values: all(map(truthy, values)), "array"),
    "$anyElementTrue": Operator(lambda values: any(map(truthy, values)), "array"),
    "$sortArray": Operator(arrays.sort_values, "input: array, sortBy: any", null=ALL, scoped=True),
    "$zip": Operator(
        arrays.transposed,
        "inputs: any, useLongestLength: any?, defaults: any?",
        scoped=True,
    ),
    # sets
    "$setEquals": Operator(arrays.equal_sets, "array, array, array*", scoped=True),
    "$setIntersection": Operator(arrays.intersection, "array*", null=ALL, scoped=True),
    "$setUnion": Operator(arrays.union, "array*", null=ALL, scoped=True),
    "$setDifference": Operator(arrays.difference, "array, array", null=ALL, scoped=True),
    "$setIsSubset": Operator(
        lambda scope, left, right: (
            arrays.as_set(scope, left).keys() <= arrays.as_set(scope, right).keys()
        ),
        "array, array",
        scoped=True,
    ),
    # objects
    "$mergeObjects": Operator(arrays.merge, "any*"),
    "$arrayToObject": Operator(arrays.to_object, "array", null=ALL),
    "$objectToArray": Operator(arrays.to_array, "object", null=ALL, scoped=True),
    "$getField": Operator(arrays.get_field, "field: string, input: any?"),
    "$setField": Operator(arrays.set_field, "field: string, input: any, value: any"),
    "$unsetField": Operator(
        lambda name, value: arrays.set_field(name, value, MISSING), "field: string, input: any"
    ),
    # times
    **{
        name: Operator(partial(times.part, name), f"date: time, {_ZONE}", null=ALL, bare=True)
        for name in times.PARTS
    },
    "$dateAdd": Operator(times.add, _MOVE, null=ALL),
    "$dateSubtract": Operator(times.subtract, _MOVE, null=ALL),
    "$dateDiff": Operator(
        times.difference, f"startDate: time, endDate: time, unit: unit, {_WEEK}", null=4
    ),
    "$dateTrunc": Operator(
        times.truncated, f"date: time, unit: unit, binSize: count = 1, {_WEEK}", null=4
    ),
    "$dateToParts": Operator(
        times.to_parts, f"date: time, {_ZONE}, iso8601: any = false", null=ALL
    ),
    "$dateFromParts": Operator(
        times.from_parts, "any, any, any, any, any, any, any, any, zone", null=ALL
    ),
    "$dateToString": Operator(
        times.to_string, f"date: time, {_ZONE}, format: any?", null=2, recovers=("onNull",)
    ),
    "$dateFromString": Operator(
        times.from_string,
        f"dateString: any, {_ZONE}, format: any?",
        null=2,
        recovers=("onNull", "onError"),
    ),
    # types
    "$type": Operator(strings.type_of, "any"),
    "$isNumber": Operator(is_number, "any"),
    "$convert": Operator(strings.convert, "input: any, to: any", recovers=("onNull", "onError")),
    **{
        name: Operator(lambda value, to=to: strings.convert(value, to), "any")
        for name, to in strings.CONVERSIONS.items()
    },
}
