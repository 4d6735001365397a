"""Which element of an array met the filter (`field.$`).

MongoDB's rule: the index within the outermost array that the path of a condition was led through, an
index that the path names not counted. Of several conditions the last one counts; here, the last of
those on the projected array's path, if there is one. Branches of `$or`, `$nor` and `$not` tell none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ..document import Document
from ..filter import And, Condition, Field, HasElement, HasObject, Not, Or, Test
from ..filter.conditions import WHOLE
from ..matcher import passes
from ..path import Path, is_index
from ..values import MISSING

Found: TypeAlias = Iterator[tuple[Any, int | None]]
Seen: TypeAlias = set[tuple[int, int]]


def paths(condition: Condition) -> Iterator[Path]:
    """Yield the paths that a condition speaks of."""
    match condition:
        case Field(path):
            yield path
        case And(conditions) | Or(conditions):
            for each in conditions:
                yield from paths(each)
        case Not(inner):
            yield from paths(inner)


def position(
    condition: Condition, document: Document, array: tuple[str, ...], *, ordered: bool
) -> int | None:
    """Return the index of the element of the array at `array` that met the condition."""
    any_index = index = None
    for field in _fields(condition):
        found = _index(field, document.body, ordered)
        if found is not None:
            any_index = found
            if field.path.keys[: len(array)] == array:
                index = found
    return any_index if index is None else index


def _fields(condition: Condition) -> Iterator[Field]:
    """Yield what must hold of single paths."""
    match condition:
        case Field():
            yield condition
        case And(conditions):
            for each in conditions:
                yield from _fields(each)
        case Or(single=True):
            yield from _fields(condition.as_one())


def _index(field: Field, body: Any, ordered: bool) -> int | None:
    leaf = not isinstance(field.test, WHOLE)
    for value, index in _reach(body, field.path.keys, leaf):
        if passes(field.test, value, ordered=ordered):
            return _within(field.test, value, ordered) if index is None else index
    return None


def _within(test: Test, value: Any, ordered: bool) -> int | None:
    """Return the index of the element that passed `$elemMatch`."""
    if not isinstance(test, HasElement | HasObject):
        return None
    return next(i for i, each in enumerate(value) if passes(test, [each], ordered=ordered))


def _reach(body: Any, keys: tuple[str, ...], leaf: bool) -> Found:
    if keys and not isinstance(body, dict):
        yield MISSING, None
    else:
        yield from _walk(body, keys, None, leaf, set())


def _walk(value: Any, keys: tuple[str, ...], index: int | None, leaf: bool, seen: Seen) -> Found:
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            yield from _open(value, keys[depth:], index, leaf, seen)
            return
        if not isinstance(value, dict) or key not in value:
            yield MISSING, index
            return
        value = value[key]
    if leaf and isinstance(value, list):
        yield from ((each, n if index is None else index) for n, each in enumerate(value))
    yield value, index


def _open(
    array: list[Any], keys: tuple[str, ...], index: int | None, leaf: bool, seen: Seen
) -> Found:
    if (id(array), len(keys)) in seen:  # numbers lead to one place in many ways
        return
    seen.add((id(array), len(keys)))
    for n, element in enumerate(array):
        if isinstance(element, dict):
            yield from _walk(element, keys, n if index is None else index, leaf, seen)
    if is_index(keys[0]) and int(keys[0]) < len(array):
        element, rest = array[int(keys[0])], keys[1:]
        if not rest:
            yield element, index
        elif isinstance(element, dict | list):
            yield from _walk(element, rest, index, leaf, seen)
