"""Entries of a page: filters, sort orders, fields, bodies; and the wrong part of an entry."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from ..codec import decode
from ..errors import InvalidFilter, InvalidProjection, InvalidSort
from ..expressions.path import Path
from ..query.filter import Filter
from ..query.projection import Projection
from ..query.sort import Sort

_JSON: Final = ("[", "{")


class BadEntry(Exception):
    """An entry is wrong from the character `start` to before `end`. `entry` is the name of the field in the form."""

    def __init__(self, entry: str, text: str, problem: str, start: int = 0, end: int = 0) -> None:
        super().__init__(problem)
        self.entry, self.problem = entry, problem
        self.before, self.wrong, self.after = text[:start], text[start:end], text[end:]


def read_json(entry: str, text: str) -> Any:
    """Return the value of a JSON text; raise `BadEntry`.

    >>> read_json("body", '{"a": 1}')
    {'a': 1}
    """
    try:
        return decode(text)
    except ValueError as error:
        position = min(getattr(error, "pos", 0), max(0, len(text) - 1))
        problem = f"must be JSON: {getattr(error, 'msg', error)}"
        raise BadEntry(entry, text, problem, position, position + 1) from error


def read_filter(text: str) -> dict[str, Any]:
    """Return the filter of a text, {} for none; raise `BadEntry`.

    >>> read_filter('{"age": {"$gt": 30}}')
    {'age': {'$gt': 30}}
    """
    if not text.strip():
        return {}
    filter = read_json("filter", text)
    if not isinstance(filter, dict):
        raise BadEntry(
            "filter", text, 'must be a JSON object, such as {"age": {"$gt": 30}}', 0, len(text)
        )
    try:
        Filter.parse(filter)
    except InvalidFilter as error:
        raise BadEntry("filter", text, error.problem, *locate(text, error.place)) from error
    return filter


def read_sort(text: str) -> list[tuple[str | Path, int]]:
    """Return the fields of a sort order with 1, or -1 for a field after `-`. In JSON, `[[["a.b"], -1]]`, a field may have any
    keys. Raise `BadEntry`.

    >>> read_sort("country, -people")
    [('country', 1), ('people', -1)]
    """
    try:
        pairs = [*_pairs(text)]
        Sort.parse(pairs)
    except InvalidSort as error:
        raise BadEntry("sort", text, error.problem, *locate(text, error.field)) from error
    return pairs


def _pairs(text: str) -> Iterable[tuple[str | Path, int]]:
    if not text.strip().startswith(_JSON):
        for name in filter(None, map(str.strip, text.split(","))):
            yield (name[1:], -1) if name.startswith("-") else (name, 1)
        return
    given = read_json("sort", text)
    for field, direction in given.items() if isinstance(given, dict) else map(_pair, given):
        is_path = isinstance(field, list) and field and all(isinstance(key, str) for key in field)
        yield Path(*field) if is_path else field, direction


def _pair(given: Any) -> Any:
    return given if isinstance(given, list) and len(given) == 2 else (given, 1)


def sort_entry(keys: Iterable[str], direction: int) -> str:
    """Return the entry that sorts by a field of the body.

    >>> sort_entry(["people"], -1), sort_entry(["a.b"], 1)
    ('-people', '[[["a.b"], 1]]')
    """
    [*path] = keys
    text = ".".join(path)
    is_plain = len(path) == 1 and text.isidentifier()
    if is_plain:
        return text if direction == 1 else f"-{text}"
    return json.dumps([[path, direction]], ensure_ascii=False)


def read_fields(text: str) -> Any:
    """Return the projection of a text: names with commas between, or JSON; None for none. Raise `BadEntry`.

    >>> read_fields("name, address.city")
    ['name', 'address.city']
    """
    if not text.strip():
        return None
    is_json = text.strip().startswith(_JSON)
    given = (
        read_json("fields", text) if is_json else [*filter(None, map(str.strip, text.split(",")))]
    )
    try:
        Projection.parse(given)
    except InvalidProjection as error:
        raise BadEntry("fields", text, error.problem, *locate(text, error.place)) from error
    return given


def read_meaning(text: str) -> str | list[float]:
    """Return the text whose meaning to search for, or the vector of a JSON list; raise `BadEntry`."""
    return read_json("meaning", text) if text.startswith("[") else text


def locate(text: str, place: str) -> tuple[int, int]:
    """Return the start and the end of the key that a place of an error leads to; the whole text if the key is not found.

    >>> text = '{"a": 1, "b": {"$gtt": 2}}'
    >>> start, end = locate(text, "b.$gtt")
    >>> text[start:end]
    '"$gtt"'
    """
    start = end = 0
    parts = place.split(".")
    while parts:
        for length in range(len(parts), 0, -1):  # a key may contain dots
            key = ".".join(parts[:length])
            spelled = (json.dumps(key, ensure_ascii=False), json.dumps(key), key)
            found = [(at, len(each)) for each in spelled if (at := text.find(each, end)) >= 0]
            if key and found and not key.isdigit():
                start, size = found[0]
                end, parts = start + size, parts[length:]
                break
        else:
            parts = parts[1:]
    return (start, end) if end else (0, len(text))


def read_number(text: str) -> int | None:
    """Return the number of a text of up to 18 digits; None for another text.

    >>> read_number("12"), read_number("-1")
    (12, None)
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= 18
    return int(text) if is_number else None
