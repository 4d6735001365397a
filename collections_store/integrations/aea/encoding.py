"""AEA's fields and bodies in ours: paths as SQLite writes them, and values that JSON cannot hold.

AEA writes whatever `json.dumps` does: whole numbers of any size (amounts in wei are beyond 64 bit), NaN, texts with a
NUL. Each of these lies in an object with one key, `__aea__`, and its kind; an object that has that key lies in one, too.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ... import Filter, InvalidFilter, InvalidId, Path

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


MARK: Final = "__aea__"
_LONGEST: Final = 200
"""Characters of a collection's name."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_]+", re.ASCII)
_SMALLEST, _GREATEST = -(2**63), 2**63 - 1


def encoded(value: Any) -> Any:
    """Return a body for what AEA is given; raises what `json.dumps` raises: `TypeError`, `ValueError`.

    >>> encoded({"wei": 10**19, 1: (True, "a")})
    {'wei': {'__aea__': ['int', '10000000000000000000']}, '1': [True, 'a']}
    """
    return _encoded(json.loads(json.dumps(value)))


def decoded(body: Any) -> Any:
    """Return what AEA was given. Equal texts are one object: fetchai's `is_self_initiated` compares addresses
    with `is not`.

    >>> decoded(encoded({"wei": 10**19, "rate": float("inf")}))
    {'wei': 10000000000000000000, 'rate': inf}
    """
    if isinstance(body, str):
        return sys.intern(body)
    if isinstance(body, list):
        return [decoded(each) for each in body]
    if not isinstance(body, dict):
        return body
    if body.keys() == {MARK}:
        with suppress(ValueError, TypeError):  # somebody else wrote it
            return _marked(*body[MARK])
    return {sys.intern(key): decoded(value) for key, value in body.items()}


def is_name(name: str) -> bool:
    """May AEA have a collection of that name?"""
    return _NAME.fullmatch(name) is not None


def name_of(name: str) -> str:
    """Return the name of the collection in the store: AEA's may be longer than ours."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:130]}_{hashlib.sha256(name.encode()).hexdigest()}"


def text_of(id: Any) -> str:
    """Return an id as AEA's own backend keeps it; raises `InvalidId`.

    >>> text_of(1), text_of(True), text_of("1")
    ('1', '1', '1')
    """
    if isinstance(id, str):
        return id
    if isinstance(id, int | float):
        return str(int(id) if isinstance(id, bool) else id)
    raise InvalidId(id, f"it is {type(id).__name__}, not a string")


def _encoded(value: Any) -> Any:
    match value:
        case bool() | None:
            return value
        case str():
            return value if is_plain(value) else {MARK: ["text", json.dumps(value)]}
        case int():
            return value if _SMALLEST <= value <= _GREATEST else {MARK: ["int", str(value)]}
        case float():
            return value if math.isfinite(value) else {MARK: ["float", repr(value)]}
        case list():
            return [_encoded(each) for each in value]
    if MARK in value or not all(map(is_plain, value)):
        pairs = [[_encoded(key), _encoded(each)] for key, each in value.items()]
        return {MARK: ["object", pairs]}
    return {key: _encoded(each) for key, each in value.items()}


def _marked(kind: str, what: Any) -> Any:
    match kind:
        case "int":
            return int(what)
        case "float":
            return float(what)
        case "text":
            return json.loads(what)
        case "object":
            return {decoded(key): decoded(value) for key, value in what}
    raise ValueError(kind)


def is_plain(text: str) -> bool:
    """May a body hold the text?"""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
