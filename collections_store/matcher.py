"""The reference: does this object match this filter? Pure Python, small and exact.

The SQL must agree with this room (a property test holds it to that), and what SQL cannot say runs
here behind an SQL pre-filter. The rules are MongoDB's server's, as 1,050 cases of its family's test
suites check them:

1. A path walks objects by key. A missing key, or a scalar before the end, gives MISSING.
2. An array before the end is opened, one level per key: its objects go on with the rest of the
   path, other elements give nothing. A key that is a number also goes on into that one element.
3. An array at the end is seen element by element and as a whole; one reached by its index, and by
   `$exists`, `$size` and `$elemMatch`, only as a whole.
4. Types never mix: 1 equals 1.0, and neither equals true or "1". null equals null and MISSING. An
   order exists within a type only: numbers by value, strings by code point, false before true,
   arrays element by element, objects field by field (type, key, value).
5. A body that is no object has no fields: every path is MISSING. `$body` (the empty path) reaches
   the body itself, by rule 3.
6. What is negated (`$ne`, `$nin`, `$not`, `$nor`) holds exactly where the rest does not.
7. `$expr` holds where its formula gives what counts as true (see `formula.evaluation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from .document import Anonymous, Document, metadatum
from .filter import (
    And,
    Bits,
    Compare,
    Condition,
    Equals,
    Exists,
    Expression,
    Fails,
    Field,
    Filter,
    FitsSchema,
    Given,
    HasElement,
    HasObject,
    HasSize,
    HasType,
    Matches,
    Metadata,
    Modulo,
    Not,
    OneOf,
    Or,
    Passes,
    Test,
    Value,
)
from .filter.conditions import WHOLE
from .formula import NO_VARIABLES, Scope, evaluate, key_of, truthy
from .path import is_index
from .values import MISSING, RANKS, TYPES, compare, equal, is_number

Seen: TypeAlias = set[tuple[int, int]]


def matches(
    filter: Filter,
    document: Document | Anonymous,
    *,
    ordered: bool = True,
    variables: Mapping[str, Any] = NO_VARIABLES,
) -> bool:
    """Tell whether `document` is asked for; `ordered`: do objects with other key order differ?

    `variables` are those that `$expr` may use besides `$$ROOT` and `$$CURRENT`.
    """
    return holds(filter.condition, document, ordered=ordered, variables=variables)


def holds(
    condition: Condition,
    document: Document | Anonymous,
    *,
    ordered: bool = True,
    variables: Mapping[str, Any] = NO_VARIABLES,
) -> bool:
    """Tell whether a condition holds for an object."""

    def inner_holds(inner: Condition) -> bool:
        return holds(inner, document, ordered=ordered, variables=variables)

    match condition:
        case Field(path, test):
            found = reach(document.body, path.keys, leaf=not isinstance(test, WHOLE))
            return any(passes(test, value, ordered=ordered) for value in found)
        case Metadata(field, test):
            if isinstance(document, Anonymous):
                return passes(test, MISSING)
            return passes(test, metadatum(document, field))
        case And(conditions):
            return all(map(inner_holds, conditions))
        case Or(conditions):
            return any(map(inner_holds, conditions))
        case Not(inner):
            return not inner_holds(inner)
        case FitsSchema(schema):
            return bool(_asked(schema).fits(document.body))
        case Expression(formula):
            scope = Scope.of(document, variables, ordered=ordered)
            return truthy(evaluate(_asked(formula), scope))


def reach(body: Any, keys: tuple[str, ...], *, leaf: bool = True) -> Iterator[Any]:
    """Yield what the path reaches in `body`, MISSING included; `leaf`: open an array at its end?"""
    if keys and not isinstance(body, dict):
        yield MISSING
    else:
        yield from _walk(body, keys, leaf, set())


def plain(body: Any, keys: tuple[str, ...]) -> Any:
    """Return the value at the end of the path that opens no array; null where there is none."""
    value = body
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


def unwound(body: Any, keys: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values that `distinct` sees at the path: of an array its elements, of a missing
    field nothing. A key that is a number leads into an array's one element.
    """
    value = body if isinstance(body, dict) or not keys else None
    for depth, key in enumerate(keys):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and is_index(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            if isinstance(value, list) and not is_index(key):
                for element in value:
                    yield from unwound(element, keys[depth:])
            return
    yield from value if isinstance(value, list) else (value,)


def passes(test: Test, value: Any, *, ordered: bool = True) -> bool:
    """Tell whether one value passes a test; an array is not opened."""
    match test:
        case Equals(wanted):
            return _equals(value, _asked(wanted), ordered)
        case OneOf():
            return _is_one_of(value, test)
        case Compare(operator, wanted):
            return _compares(value, operator, _asked(wanted), ordered)
        case HasType(types):
            return value is not MISSING and any(TYPES[name](value) for name in types)
        case Matches(pattern):
            return isinstance(value, str) and _asked(pattern).search(value) is not None
        case Modulo(divisor, remainder):
            return is_number(value) and _modulo(value, _asked(divisor)) == _asked(remainder)
        case Bits(operator, mask):
            return _bits(value, operator, _asked(mask))
        case Exists():
            return value is not MISSING
        case HasSize(size):
            return isinstance(value, list) and len(value) == _asked(size)
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
        case Passes(tests):
            return any(passes(each, value, ordered=ordered) for each in tests)


def _walk(value: Any, keys: tuple[str, ...], leaf: bool, seen: Seen) -> Iterator[Any]:
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            yield from _open(value, keys[depth:], leaf, seen)
            return
        if not isinstance(value, dict) or key not in value:
            yield MISSING
            return
        value = value[key]
    if leaf and isinstance(value, list):
        yield from value
    yield value


def _open(array: list[Any], keys: tuple[str, ...], leaf: bool, seen: Seen) -> Iterator[Any]:
    if (id(array), len(keys)) in seen:  # numbers lead to one place in many ways
        return
    seen.add((id(array), len(keys)))
    for element in array:
        if isinstance(element, dict):
            yield from _walk(element, keys, leaf, seen)
    if is_index(keys[0]) and int(keys[0]) < len(array):
        element, rest = array[int(keys[0])], keys[1:]
        if not rest:
            yield element
        elif isinstance(element, dict | list):
            yield from _walk(element, rest, leaf, seen)


def _as_object(element: Any) -> dict[str, Any] | None:
    """See an element as `$elemMatch` does: an inner array is an object of its positions."""
    if isinstance(element, list):
        return {str(position): each for position, each in enumerate(element)}
    return element if isinstance(element, dict) else None


def _asked(given: Given) -> Any:
    assert isinstance(given, Value)
    return given.value


def _equals(value: Any, wanted: Any, ordered: bool) -> bool:
    if wanted is None:
        return value is None or value is MISSING
    return value is not MISSING and equal(value, wanted, ordered=ordered)


def _is_one_of(value: Any, test: OneOf) -> bool:
    if isinstance(value, dict | list):
        return False
    return key_of(None if value is MISSING else value) in test.keys


def _compares(value: Any, operator: str, wanted: Any, ordered: bool) -> bool:
    if value is MISSING or value is None or RANKS[type(value)] != RANKS[type(wanted)]:
        return False
    found = compare(value, wanted, ordered=ordered)
    match operator:
        case "$gt":
            return found > 0
        case "$gte":
            return found >= 0
        case "$lt":
            return found < 0
    return found <= 0


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
