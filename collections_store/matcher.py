"""The reference: does this object match this filter? Pure Python, small and exact.

The SQL must agree with this room (a property test holds it to that), and what SQL cannot say runs
here behind an SQL pre-filter. The rules are MongoDB's server's, as 1,050 cases of its family's test
suites check them:

1. A path walks objects by key. A missing key, or a scalar before the end, gives MISSING.
2. An array before the end is opened, one level per key: its objects go on with the rest of the
   path, other elements give nothing. A key that is a number also goes on into that one element.
3. An array at the end is seen element by element and as a whole; one reached by its index only as
   a whole.
4. Types never mix: 1 equals 1.0, and neither equals true or "1". null equals null and MISSING.
5. A body that is no object has no fields: every path is MISSING. `$body` (the empty path) reaches
   the body itself, by rule 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .document import Document, microseconds
from .filter import Condition, Filter, Metadata, Value
from .path import is_index

MISSING: Final = object()


def matches(filter: Filter, document: Document, *, ordered: bool = True) -> bool:
    """Tell whether `document` is asked for; `ordered`: do objects with other key order differ?"""
    return all(_holds(condition, document, ordered) for condition in filter.conditions)


def reach(body: Any, keys: tuple[str, ...]) -> Iterator[Any]:
    """Yield what the path reaches in `body`, MISSING included."""
    if keys and not isinstance(body, dict):
        yield MISSING
    else:
        yield from _walk(body, keys)


def equal(left: Any, right: Any, *, ordered: bool = True) -> bool:
    """Tell whether two JSON values are the same, types kept apart."""
    match left, right:
        case (bool(), _) | (_, bool()):
            return left is right
        case dict(), dict():
            if len(left) != len(right) or (ordered and list(left) != list(right)):
                return False
            return all(k in right and equal(v, right[k], ordered=ordered) for k, v in left.items())
        case list(), list():
            pairs = zip(left, right, strict=False)
            return len(left) == len(right) and all(equal(a, b, ordered=ordered) for a, b in pairs)
    return bool(left == right)


def _walk(value: Any, keys: tuple[str, ...]) -> Iterator[Any]:
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            yield from _open(value, keys[depth:])
            return
        if not isinstance(value, dict) or key not in value:
            yield MISSING
            return
        value = value[key]
    if isinstance(value, list):
        yield from value
    yield value


def _open(array: list[Any], keys: tuple[str, ...]) -> Iterator[Any]:
    for element in array:
        if isinstance(element, dict):
            yield from _walk(element, keys)
    if is_index(keys[0]) and int(keys[0]) < len(array):
        element, rest = array[int(keys[0])], keys[1:]
        if not rest:
            yield element
        elif isinstance(element, dict | list):
            yield from _walk(element, rest)


def _holds(condition: Condition, document: Document, ordered: bool) -> bool:
    assert isinstance(condition.value, Value)
    asked = condition.value.value
    if isinstance(condition, Metadata):
        return equal(_metadata(condition, document), asked)
    found = reach(document.body, condition.path.keys)
    if asked is None:
        return any(value is None or value is MISSING for value in found)
    return any(equal(value, asked, ordered=ordered) for value in found)


def _metadata(condition: Metadata, document: Document) -> Any:
    value = getattr(document, condition.field)
    return value if condition.field in {"id", "version"} or value is None else microseconds(value)
