"""What AEA's `find` takes for a field: a path as SQLite has them."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from ... import Filter, InvalidFilter, Path
from .encoding import encoded

Step: TypeAlias = str | int
"""A key or, if it is a number, a place in an array counted from its end: -1 is the last."""

_STEP: Final = re.compile(r'\.(?:"([^"]*)"|([^.\["][^.\[]*))|\[(\d+)\]|\[#-([1-9]\d*)\]')


def filter_of(field: Any, equals: Any) -> Filter:
    """Return what `find(field, equals)` asks; raises `InvalidFilter`.

    It takes AEA's spellings: `a.b`, `$.a.b`, `"a.b".c` with a key in quotes, `list[0]`, and `list[#-1]`, the last. What it
    finds is what the store finds: 1 is not true, and a list matches by each of its elements, too.

    >>> print(filter_of("$.address.city", "Berlin"))
    {'address.city': 'Berlin'}
    """
    steps, value = read_field(field), encoded(equals)
    if all(isinstance(step, str) for step in steps):
        return Filter.parse({Path(*map(str, steps)): {"$eq": value}})
    found: Any = "$$ROOT"
    for step in steps:
        found = _key(found, step) if isinstance(step, str) else _from_end(found, step)
    return Filter.parse({"$expr": {"$eq": [found, {"$literal": value}]}})


def read_field(field: Any) -> list[Step]:
    """Return the steps of a path; raises `InvalidFilter`.

    >>> read_field('$.offers[0]."a.b"[#-1]')
    ['offers', '0', 'a.b', -1]
    """
    if not isinstance(field, str):
        raise InvalidFilter(repr(field), "a field is a text, such as 'address.city'")
    text = field[1:] if field.startswith("$.") else f".{field}"
    steps: list[Step] = []
    place = 0
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise InvalidFilter(field, f"{text[place:]!r} is no key, no [0] and no [#-1]")
        quoted, key, index, back = found.groups()
        steps.append(-int(back) if back is not None else quoted or key or index or "")
        place = found.end()
    return steps


def _key(found: Any, key: str) -> Any:
    if key.isdecimal():  # a key, or a place in an array
        is_array = {"$isArray": [found]}
        return {"$cond": [is_array, {"$arrayElemAt": [found, int(key)]}, _field(found, key)]}
    return _field(found, key)


def _field(found: Any, key: str) -> Any:
    return {"$getField": {"field": {"$literal": key}, "input": found}}


def _from_end(found: Any, back: int) -> Any:
    return {"$cond": [{"$isArray": [found]}, {"$arrayElemAt": [found, back]}, "$$REMOVE"]}
