"""What an upsert starts from: the values that its filter asks fields to equal.

The rules, MongoDB's: what must hold counts, which is `$eq`, `$and` of such, and `$in`, `$all` and `$or` of
one; all other conditions say nothing. A path is made of objects, numbers in it included. Two
conditions that speak of one place, or of a place within the other's, leave open what to insert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InvalidUpdate, shortened
from ..query.conditions import (
    And,
    Condition,
    Equals,
    Field,
    Metadata,
    OneOf,
    Or,
    Test,
    Value,
    scalars_of,
)
from ..query.filter import Filter
from .changes import copied


def seed(filter: Filter) -> Any:
    """Return the body that the filter's equalities make; {} where it has none.

    Raises `InvalidUpdate` where they contradict each other, or leave open what to insert.
    """
    body: Any = {}
    seen: set[tuple[str, ...]] = set()
    for keys, value in _equalities(filter.condition):
        _check(keys, seen)
        seen.add(keys)
        body = _with(body, keys, value)
    return body


def seed_id(filter: Filter) -> str | None:
    """Return the id that the filter asks for, if it asks for one."""
    found: list[Any] = list(_ids(filter.condition))
    if any(each != found[0] for each in found):
        raise InvalidUpdate("$id", "the filter asks for two ids at once")
    if found and not isinstance(found[0], str):
        raise InvalidUpdate("$id", f"an id is a string, not {shortened(found[0])}")
    return found[0] if found else None


def _necessary(condition: Condition) -> Iterator[Condition]:
    match condition:
        case And(conditions):
            for each in conditions:
                yield from _necessary(each)
        case Or((only,)):
            yield from _necessary(only)
        case _:
            yield condition


def _equalities(condition: Condition) -> Iterator[tuple[tuple[str, ...], Any]]:
    for each in _necessary(condition):
        if isinstance(each, Field):
            for value in _asked(each.test):
                yield each.path.keys, value


def _ids(condition: Condition) -> Iterator[Any]:
    for each in _necessary(condition):
        if isinstance(each, Metadata) and each.field == "id":
            yield from _asked(each.test)


def _asked(test: Test) -> Iterator[Any]:
    """Yield the value that a test asks for, if it is one."""
    match test:
        case Equals(Value() as value):
            yield copied(value)
        case OneOf((only,)):
            if len(values := scalars_of(only)) == 1:
                yield values[0]


def _check(keys: tuple[str, ...], seen: set[tuple[str, ...]]) -> None:
    for other in seen:
        length = min(len(keys), len(other))
        if keys[:length] == other[:length]:
            one, two = (shortened(".".join(each) or "$body") for each in (other, keys))
            raise InvalidUpdate(
                "", f"the filter asks for {one} and {two}, which leaves open what to insert"
            )


def _with(body: Any, keys: tuple[str, ...], value: Any) -> Any:
    if not keys:
        return value
    fields = body
    for key in keys[:-1]:
        fields = fields.setdefault(key, {})
    fields[keys[-1]] = value
    return body
