"""Which conditions an index serves, and in which order it yields the documents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import dropwhile
from typing import Final

from ..expressions.collation import Collation
from ..expressions.path import MAX_KEYS, Path, is_index
from .conditions import (
    TIMES,
    And,
    Collated,
    Compare,
    Condition,
    Equals,
    Exists,
    Field,
    HasElement,
    HasObject,
    Matches,
    Metadata,
    OneOf,
    Or,
    Target,
    takes_missing,
    uncollated,
)
from .shapes import values_of
from .sort import Sort, SortField

SCALARS: Final = frozenset({"null", "boolean", "number", "string"})
BY_ID: Final = Sort((SortField("id"),))
"""The order of the index of the ids."""
MAX_OPENED: Final = 3
"""Keys of an index of arrays; the statement that maintains it doubles with each."""
_OF_STRINGS: Final = frozenset({"string", "strings", "prefix regex"})


def implies(condition: Condition, limit: Field) -> bool:
    """Return whether all documents that match a condition match a condition of a partial index."""
    if condition == limit:
        return True
    match uncollated(condition), limit:
        case Field(path, test), Field(limited, Exists()):
            return path == limited and not takes_missing(test)
    return False


def every_conjunct(condition: Condition) -> Iterator[Condition]:
    """Yield the parts of a conjunction, also of nested conjunctions."""
    if isinstance(condition, And):
        for each in condition.conditions:
            yield from every_conjunct(each)
    else:
        yield condition


def is_indexable(
    condition: Condition,
    indexed: Collection[tuple[str, ...]],
    collated: Collection[tuple[str, ...]] = (),
    keyed: Collection[tuple[str, ...]] = (),
) -> bool:
    """Return whether a condition is about scalars in `indexed` fields, in fields of an index with the collation of the
    filter, `collated`, or about no strings in fields of an index with any collation, `keyed`.
    """
    match condition:
        case Collated(Field() as field):
            return is_indexable(field, collated)
        case Field(path) if path.keys not in indexed and path.keys in keyed:
            strings = any(each.kind in _OF_STRINGS for each in values_of(condition))
            return not strings and is_indexable(condition, keyed)
        case Field(path, Equals(value) | Compare(_, value)):
            return path.keys in indexed and value.kind in SCALARS
        case Field(path, OneOf(lists)):
            return path.keys in indexed and bool(lists)
        case Field(path, Matches(pattern)):
            return path.keys in indexed and pattern.kind == "prefix regex"
        case And(conditions) | Or(conditions):
            each_is = (is_indexable(each, indexed, collated, keyed) for each in conditions)
            return bool(conditions) and all(each_is)
    return False


def is_in_arrays(field: Field, indexed: Collection[tuple[str, ...]]) -> bool:
    """Return whether a condition is about scalars in an index of arrays; null is not in the index."""
    match field.test:
        case Equals(value) | Compare(_, value):
            return field.path.keys in indexed and value.kind in SCALARS - {"null"}
        case OneOf(lists):
            some = bool(lists) and all(each.kind != "null" for each in lists)
            return field.path.keys in indexed and some
        case Matches(pattern):
            return field.path.keys in indexed and pattern.kind == "prefix regex"
    return False


def can_open(keys: tuple[str, ...]) -> bool:
    """Return whether an index of arrays can go over a field."""
    return len(keys) <= MAX_OPENED and not any(map(is_index, keys))


def implied_by(condition: Condition) -> Iterator[Field]:
    """Yield the conditions on values in arrays that an `$elemMatch` implies."""
    match condition:
        case Field(path, HasElement(tests)):
            yield from (Field(path, test) for test in tests)
        case Field(path, HasObject(inner)):
            for each in every_conjunct(inner):
                if isinstance(each, Field) and len(path.keys) + len(each.path.keys) <= MAX_KEYS:
                    yield Field(Path(*path.keys, *each.path.keys), each.test)


def plan_order(condition: Condition, orders: Iterable[Sort]) -> Sort | None:
    """Return the order of the matching documents in the index that the condition narrows most, by the `orders` of
    indexes, or in the index of the ids. None: no index yields an order, or the order is natural, because all fields are
    equal to values.
    """
    equal, bounded = set(equal_targets(condition)), set(_bounded_targets(condition))
    best, order = (0, False), None
    for fields in (*(order.fields for order in orders), BY_ID.fields):
        free = free_fields(fields, equal)
        found = len(fields) - len(free), bool(free) and free[0].target in bounded
        if found > best:
            best, order = found, Sort(free) if free else None
    return order


def free_fields(fields: tuple[SortField, ...], equal: Collection[Target]) -> tuple[SortField, ...]:
    """Return the fields that still order the entries of an index when the `equal` fields have a value."""
    return tuple(dropwhile(lambda each: each.target in equal, fields))


def equal_targets(condition: Condition, collation: Collation | None = None) -> Iterator[Target]:
    """Yield the fields that must equal a value in an index with a collation."""
    for each in every_conjunct(condition):
        field = each
        if isinstance(each, Collated) and each.collation == collation:
            field = each.condition
        match field:
            case Field(path, Equals()) if is_indexable(field, {path.keys}):
                yield path


def bounds_only(condition: Condition, target: object) -> bool:
    """Return whether each part of a conjunction bounds the same field of an index."""
    return all(list(_bounded_targets(each)) == [target] for each in every_conjunct(condition))


def _bounded_targets(condition: Condition) -> Iterator[Target]:
    for each in every_conjunct(condition):
        match each:
            case Field(path, Compare() | Matches()) if is_indexable(each, {path.keys}):
                yield path
            case Metadata(name, Compare()) if name == "id" or name in TIMES:
                yield name
