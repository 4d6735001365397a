"""The reference: whether a document matches a filter. Pure Python, small and exact.

The SQL must agree with this module (a property test compares them). Conditions that SQL cannot express run here,
behind an SQL pre-filter. The rules are MongoDB's, as 1,050 cases of the server's test suites check them:

1. A path walks objects by key. A missing key, or a scalar before the end, gives MISSING.
2. An array before the end is opened, one level per key: objects go on with the rest of the path, other elements give
   nothing. A number as a key also goes on into the element at that index.
3. An array at the end is seen element by element and as a whole. If reached by index, and by `$exists`, `$size` and
   `$elemMatch`, the array is seen only as a whole.
4. Types never mix: 1 equals 1.0, and neither equals true or "1". null equals null and MISSING. An order exists within
   a type only: numbers by value, strings by code point, false before true, arrays element by element, objects field by
   field (type, key, value).
5. A body that is no object has no fields: every path is MISSING. `$body` (the empty path) reaches the body itself, by
   rule 3.
6. A negation (`$ne`, `$nin`, `$not`, `$nor`) holds exactly where the positive does not.
7. `$expr` holds where the value of the expression counts as true (`truthy`). The expression is evaluated last, if the
   conditions beside `$expr` leave the result open (`conditions.expressions_last`), because it may raise an error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final, TypeAlias

from ..document import Anonymous, Document, metadatum
from ..errors import InvalidFilter
from ..expressions.budget import spend
from ..expressions.collation import Ordered, under
from ..expressions.evaluation import NO_VARIABLES, Scope, key_of, truthy
from ..expressions.nodes import evaluate
from ..expressions.path import is_index, walk
from ..expressions.values import MISSING, RANKS, TYPES, compare, equal, is_number
from .conditions import (
    WHOLE_ARRAY_TESTS,
    And,
    Bits,
    Collated,
    Compare,
    Condition,
    Equals,
    Exists,
    Expression,
    Fails,
    Field,
    FitsSchema,
    HasElement,
    HasObject,
    HasSize,
    HasType,
    Matches,
    Metadata,
    Modulo,
    Not,
    OneOf,
    Operand,
    Or,
    Passes,
    Test,
    Text,
    Value,
)
from .filter import Filter

NOT_HERE: Final = "must be at the top of a filter, or in $and, of a method of a collection with a text index, or of the first $match"
MANY: Final = 8
"""Of so many conditions or tests those for equality are looked up, instead of evaluated one by one."""


def matches(
    filter: Filter,
    document: Document | Anonymous,
    *,
    ordered: Ordered = True,
    variables: Mapping[str, Any] = NO_VARIABLES,
) -> bool:
    """Return whether `document` matches; `ordered`: whether objects with another key order differ.

    `variables` are available to `$expr` besides `$$ROOT` and `$$CURRENT`.
    """
    spend()
    return holds(filter.condition, document, ordered=ordered, variables=variables)


def holds(
    condition: Condition,
    document: Document | Anonymous,
    *,
    ordered: Ordered = True,
    variables: Mapping[str, Any] = NO_VARIABLES,
) -> bool:
    """Return whether a condition holds for a document."""
    match condition:
        case Field(path, test):
            leaf = not isinstance(test, WHOLE_ARRAY_TESTS)
            found = values_at(document.body, path.keys, leaf=leaf)
            return any(passes(test, value, ordered=ordered) for value in found)
        case Metadata(field, test):
            if isinstance(document, Anonymous):
                return passes(test, MISSING)
            return passes(test, metadatum(document, field), ordered=ordered)
        case And() | Or():
            return _hold_together(condition, document, ordered, variables)
        case Not(inner):
            return not holds(inner, document, ordered=ordered, variables=variables)
        case Text():
            raise InvalidFilter("$text", NOT_HERE)
        case FitsSchema(schema):
            return bool(_value(schema).fits(document.body))
        case Collated(inner, collation):
            ordered = under(collation, ordered)
            return holds(inner, document, ordered=ordered, variables=variables)
        case Expression(expression):
            scope = Scope(document, variables, ordered=ordered)
            return truthy(evaluate(_value(expression), scope))


def _hold_together(
    node: And | Or, document: Document | Anonymous, ordered: Ordered, variables: Mapping[str, Any]
) -> bool:
    """Return whether all conditions hold, or any; of `MANY`, equalities are looked up."""

    def inner_holds(inner: Condition) -> bool:
        return holds(inner, document, ordered=ordered, variables=variables)

    def keys_at(path: tuple[str, ...]) -> Iterator[Hashable]:
        return (_key(each, ordered) for each in values_at(document.body, path))

    rest: Sequence[Any] = node.conditions
    if isinstance(node, And):
        if len(rest) >= MANY:
            known, rest = _equalities(node, rest, Equals, ordered)
            if not all(keys.issubset(keys_at(path)) for path, keys in known.items()):
                return False
        return all(map(inner_holds, rest))
    if len(rest) >= MANY:
        known, rest = _equalities(node, rest, (Equals, OneOf), ordered)
        if any(each in keys for path, keys in known.items() for each in keys_at(path)):
            return True
    return any(map(inner_holds, rest))


_KeysByPath: TypeAlias = dict[tuple[str, ...], set[Hashable]]


def _equalities(
    node: And | Or | Passes, parts: Iterable[Any], kinds: Any, ordered: Ordered
) -> tuple[_KeysByPath, list[Any]]:
    """Return the keys of the values that parts of a node equal, by paths, and all remaining parts; computed once.

    `kinds` are the tests to look up.
    """
    if node.lookup is None:
        object.__setattr__(node, "lookup", {})
    if ordered not in node.lookup:
        by_path: _KeysByPath = {}
        rest = []
        for each in parts:
            path, test = (each.path.keys, each.test) if isinstance(each, Field) else ((), each)
            if isinstance(test, kinds):
                is_list = isinstance(test, OneOf)
                keys = test.keys_under(ordered) if is_list else {_key(_value(test.value), ordered)}
                by_path.setdefault(path, set()).update(keys)
            else:
                rest.append(each)
        node.lookup[ordered] = by_path, rest
    lookup: tuple[_KeysByPath, list[Any]] = node.lookup[ordered]
    return lookup


def _key(value: Any, ordered: Ordered) -> Hashable:
    return key_of(None if value is MISSING else value, ordered=ordered)


def values_at(body: Any, keys: tuple[str, ...], *, leaf: bool = True) -> Iterator[Any]:
    """Yield the values at a path in `body`, MISSING included; `leaf`: also the elements of an array at the end."""
    if keys and not isinstance(body, dict):
        yield MISSING
        return
    value, depth, end = body, 0, len(keys)
    while depth < end and isinstance(value, dict):
        value = value.get(keys[depth], MISSING)
        depth += 1
    if depth < end and isinstance(value, list):
        yield from _opened(value, depth, keys, leaf)
        return
    if leaf and depth == end and isinstance(value, list):
        yield from value
    yield value if depth == end else MISSING


def _opened(array: list[Any], start: int, keys: tuple[str, ...], leaf: bool) -> Iterator[Any]:
    """Yield the values at the rest of a path, from the key `start` on, through an array."""
    left: list[tuple[Any, int]] = [(array, start)]
    seen, end = set[tuple[int, int]](), len(keys)
    while left:
        value, depth = left.pop()
        while depth < end and isinstance(value, dict):
            value = value.get(keys[depth], MISSING)
            depth += 1
        if depth == end or not isinstance(value, list):
            if leaf and depth == end and isinstance(value, list):
                yield from value
            yield value if depth == end else MISSING
        elif (id(value), depth) not in seen:  # several indexes may lead to one value
            seen.add((id(value), depth))
            left.extend([(each, depth) for each in reversed(value) if isinstance(each, dict)])
            key = keys[depth]
            if is_index(key) and int(key) < len(value):
                element = value[int(key)]
                if depth + 1 == end:
                    yield element
                elif isinstance(element, dict | list):
                    left.append((element, depth + 1))


def value_at(body: Any, keys: tuple[str, ...]) -> Any:
    """Return the value at a path through objects only, or null."""
    found = found_at(body, keys)
    return None if found is MISSING else found


def found_at(body: Any, keys: tuple[str, ...]) -> Any:
    """Return the value at a path through objects only, or MISSING."""
    value = body
    for key in keys:
        if not isinstance(value, dict):
            return MISSING
        value = value.get(key, MISSING)
    return value


def distinct_values(body: Any, keys: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values of `distinct` at a path: the elements of an array, nothing for a missing field. A number as a
    key leads into the element at that index.
    """
    if keys and not isinstance(body, dict):
        return
    value, rest = walk(body, keys)
    if rest:
        for element in value:
            yield from distinct_values(element, rest)
    elif value is not MISSING:
        yield from value if isinstance(value, list) else (value,)


def passes(test: Test, value: Any, *, ordered: Ordered = True) -> bool:
    """Return whether one value passes a test, an array as a whole."""
    match test:
        case Equals(wanted):
            there = None if value is MISSING else value  # null equals what is missing
            return equal(there, _value(wanted), ordered=ordered)
        case OneOf():
            keys = test.keys if ordered is True else test.keys_under(ordered)
            return not isinstance(value, dict | list) and _key(value, ordered) in keys
        case Compare(operator, wanted):
            return _compares(value, operator, _value(wanted), ordered)
        case HasType(types):
            return value is not MISSING and any(TYPES[name](value) for name in types)
        case Matches(pattern):
            return isinstance(value, str) and bool(_value(pattern).is_found(value))
        case Modulo(divisor, remainder):
            return is_number(value) and _modulo(value, _value(divisor)) == _value(remainder)
        case Bits(operator, mask):
            return _bits(value, operator, _value(mask))
        case Exists():
            return value is not MISSING
        case HasSize(size):
            return isinstance(value, list) and len(value) == _value(size)
        case HasElement(tests):
            return isinstance(value, list) and any(
                all(passes(each, element, ordered=ordered) for each in tests) for element in value
            )
        case HasObject(condition):
            return isinstance(value, list) and any(
                holds(condition, Anonymous(inner), ordered=ordered)
                for inner in map(_as_object, value)
                if inner is not None
            )
        case Fails(tests):
            return not all(passes(each, value, ordered=ordered) for each in tests)
        case Passes(tests) if len(tests) < MANY:
            return any(passes(each, value, ordered=ordered) for each in tests)
        case Passes(tests):
            known, rest = _equalities(test, tests, (Equals, OneOf), ordered)
            if _key(value, ordered) in known.get((), ()):
                return True
            return any(passes(each, value, ordered=ordered) for each in rest)


def _as_object(element: Any) -> dict[str, Any] | None:
    """Return an element as `$elemMatch` treats the element: an inner array is an object of its positions."""
    if isinstance(element, list):
        return {str(position): each for position, each in enumerate(element)}
    return element if isinstance(element, dict) else None


def _value(operand: Operand) -> Any:
    assert isinstance(operand, Value)
    return operand.value


_COMPARISONS: Final = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def _compares(value: Any, operator: str, wanted: Any, ordered: Ordered) -> bool:
    if value is MISSING or value is None or RANKS[type(value)] != RANKS[type(wanted)]:
        return False
    return bool(_COMPARISONS[operator](compare(value, wanted, ordered=ordered), 0))


def _modulo(value: float, divisor: int) -> int | None:
    """Return the remainder with the sign of the dividend, both truncated; None beyond 64 bit."""
    if not -(2**63) <= value < 2**63:
        return None
    remainder = abs(int(value)) % abs(divisor)
    return -remainder if value < 0 else remainder


def _bits(value: Any, operator: str, mask: int) -> bool:
    if not is_number(value) or value != value // 1 or not -(2**63) <= value < 2**63:
        return False
    common = int(value) & mask
    match operator:
        case "$bitsAllSet":
            return common == mask
        case "$bitsAllClear":
            return common == 0
        case "$bitsAnySet":
            return common != 0
    return common != mask
