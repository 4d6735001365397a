"""The element of an array that met a filter: of `field.$` in projections, and of `$` in updates.

The element is of the outermost array on a condition's path; an index in the path is not counted. Of several conditions
on the array's path the last counts, in the server's order of evaluation (`EVALUATED`), not in the written order.
Branches of `$nor` and `$not` have no such element, nor have branches of an `$or`, unless all branches are about one
path.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from ..document import Document
from ..expressions.collation import Ordered, under
from ..expressions.path import Path, is_index
from . import conditions
from .conditions import Condition, Field, Test
from .filter import paths_in
from .matcher import holds, passes, values_at
from .serving import every_conjunct


def matched_index(
    condition: Condition, document: Document, array: tuple[str, ...], *, ordered: Ordered
) -> int | None:
    """Return the index of the element of the array at `array` that met the condition."""
    any_index = index = None
    for path, found in _met(condition, document, ordered):
        any_index = found
        if path.keys[: len(array)] == array:
            index = found
    return any_index if index is None else index


EVALUATED: Final = (
    "$and", "$or", conditions.HasObject, conditions.HasElement, conditions.HasSize, conditions.Equals, "$lte", "$lt",
    "$gt", "$gte", conditions.Matches, conditions.Modulo, conditions.Exists, conditions.OneOf, "$bitsAllSet",
    "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear", "$not", conditions.HasType,
)  # fmt: skip
"""The order in which MongoDB's server evaluates the conditions of a filter (`MatchExpression::sortTree`, 2.6 to 8.2); of one
kind, by their paths.
"""


def _evaluated(node: Condition | Test, path: str = "") -> tuple[int, str, list[Any]]:
    """Return the sort key of a condition among the conditions of a filter: kind, path, and inner conditions."""
    kind: Any = type(node)
    parts: list[Any] = []
    match node:
        case conditions.Collated(inner):
            return _evaluated(inner)
        case Field(its, test):
            return _evaluated(test, ".".join(its.keys))
        case conditions.OneOf((only,)) if len(conditions.scalars_of(only)) == 1:
            kind = conditions.Equals
        case conditions.Or(branches) if node.single or all(map(_is_equality, branches)):
            kind = conditions.OneOf
        case conditions.And():
            kind, parts = "$and", sorted(map(_evaluated, node.conditions))
        case conditions.HasObject(condition):
            parts = [_evaluated(condition)]
        case conditions.HasElement(tests):
            parts = sorted(map(_evaluated, tests))
        case conditions.Compare(operator) | conditions.Bits(operator):
            kind = operator
        case conditions.Or() | conditions.Passes():
            kind = "$or"
        case conditions.Not() | conditions.Fails():
            kind = "$not"
    return EVALUATED.index(kind) if kind in EVALUATED else len(EVALUATED), path, parts


def _is_equality(condition: Condition) -> bool:
    field = conditions.uncollated(condition)
    return isinstance(field, Field) and isinstance(
        field.test, conditions.Equals | conditions.OneOf | conditions.Matches
    )


def _met(condition: Condition, document: Document, ordered: Ordered) -> Iterator[tuple[Path, int]]:
    """Yield the paths of the necessary conditions, and the indexes that met them."""
    match condition:
        case Field(path):
            index = _index(condition, document.body, ordered)
            if index is not None:
                yield path, index
        case conditions.Collated(inner, collation):
            yield from _met(inner, document, under(collation, ordered))
        case conditions.And():
            for each in sorted(every_conjunct(condition), key=_evaluated):
                yield from _met(each, document, ordered)
        case conditions.Or(single=True):
            parts = condition.as_one()
            yield from (
                () if isinstance(parts, conditions.Metadata) else _met(parts, document, ordered)
            )
        case conditions.Or(branches) if len(set(paths_in(condition))) == 1:
            held = (each for each in branches if holds(each, document, ordered=ordered))
            found = [list(_met(each, document, ordered))[-1:] for each in held]
            yield from sorted(chain(*found), key=lambda pair: pair[1])[:1]


def _index(field: Field, body: Any, ordered: Ordered) -> int | None:
    keys, test = field.path.keys, field.test
    if keys and not isinstance(body, dict):
        return None
    value = body
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            return _index_in(value, keys[depth:], test, ordered)
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    if isinstance(value, list) and not isinstance(test, conditions.WHOLE_ARRAY_TESTS):
        for index, each in enumerate(value):
            if passes(test, each, ordered=ordered):
                return index
    return _index_within(test, value, ordered)


def _index_in(array: list[Any], keys: tuple[str, ...], test: Test, ordered: Ordered) -> int | None:
    """Return the index of the first element that passes at the rest of a path."""
    leaf = not isinstance(test, conditions.WHOLE_ARRAY_TESTS)
    for index, element in enumerate(array):
        found = values_at(element, keys, leaf=leaf) if isinstance(element, dict) else ()
        if any(passes(test, each, ordered=ordered) for each in found):
            return index
    if not is_index(keys[0]) or int(keys[0]) >= len(array):
        return None
    named, rest = array[int(keys[0])], keys[1:]
    if not rest:
        return _index_within(test, named, ordered)
    if isinstance(named, list):
        return _index_in(named, rest, test, ordered)
    return _index(Field(Path(*rest), test), named, ordered)


def _index_within(test: Test, value: Any, ordered: Ordered) -> int | None:
    """Return the index of the element of a value that passed `$elemMatch`."""
    if not isinstance(test, conditions.HasElement | conditions.HasObject) or not passes(
        test, value, ordered=ordered
    ):
        return None
    return next(i for i, each in enumerate(value) if passes(test, [each], ordered=ordered))
