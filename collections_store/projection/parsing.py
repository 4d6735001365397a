"""Projections, read: what MongoDB's server (4.4 and later) accepts, and an error that names the place
for whatever it does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..codec import Codec
from ..errors import InvalidFilter, InvalidProjection, cut, shortened
from ..filter.parsing import Parser
from ..path import Path, in_python
from .rules import ID, Drop, Element, Entry, Keep, Met, Rule, Slice

_MAX_SLICE: Final = 2**31 - 1


def read(what: Any, rules: Codec) -> tuple[Entry, ...]:
    """Read a projection document, or a list of the fields wanted; raises `InvalidProjection`."""
    match what:
        case Mapping():
            entries = tuple(_entries(what, (), "", rules))
        case list() | tuple():
            entries = tuple(_entries(dict.fromkeys(map(_name, what), 1), (), "", rules))
        case _:
            raise InvalidProjection(
                "", f"a projection is a document or a list of fields, not {shortened(what)}"
            )
    _check_together(entries)
    return entries


def _entries(
    document: Mapping[Any, Any], above: tuple[str, ...], place: str, rules: Codec
) -> Iterator[Entry]:
    for key, value in document.items():
        here = f"{place}.{key}" if place else str(key)
        path, positional = _path(key, above, here)
        match value:
            case Mapping() if positional:
                raise InvalidProjection(here, "goes with 1 only")
            case Mapping():
                yield from _document(path, value, here, rules)
            case bool() | int() | float():
                yield path, _wanted(bool(value), positional, here)
            case _:
                raise InvalidProjection(
                    here,
                    f"{shortened(value)} is neither 1 nor 0; computed values are not supported",
                )


def _path(key: Any, above: tuple[str, ...], place: str) -> tuple[Path, bool]:
    """Return the path that a key names, and whether `.$` ends it; a `Path` is taken as it is."""
    if isinstance(key, Path):
        return _joined(above, key.keys, place), False
    keys = _name(key).split(".")
    positional = len(keys) > 1 and keys[-1] == "$"
    if positional:
        keys.pop()
    if any(each.startswith("$") for each in keys):
        raise InvalidProjection(
            place,
            "`$` stands at the end of a path; a key of the body that begins with it: "
            f"{cut(in_python(keys))}",
        )
    return _joined(above, tuple(keys), place), positional


def _joined(above: tuple[str, ...], keys: tuple[str, ...], place: str) -> Path:
    try:
        return Path(*above, *keys)
    except InvalidFilter as error:
        raise InvalidProjection(place, error.problem) from error


def _document(path: Path, value: Mapping[Any, Any], place: str, rules: Codec) -> Iterator[Entry]:
    """Read what stands behind a field: an operator, or the fields within."""
    first = next(iter(value), None)
    if first is None:
        raise InvalidProjection(place, "an empty document asks for nothing")
    if not isinstance(first, str) or not first.startswith("$"):
        yield from _entries(value, path.keys, place, rules)
        return
    here = f"{place}.{first}"
    if len(value) > 1:
        raise InvalidProjection(here, "an operator stands alone")
    match first:
        case "$slice":
            yield path, _slice(value[first], here)
        case "$elemMatch":
            yield path, _element(path, value[first], here, rules)
        case _:
            raise InvalidProjection(here, "no such operator; there are $slice and $elemMatch")


def _wanted(wanted: bool, positional: bool, place: str) -> Rule:
    if not positional:
        return Keep() if wanted else Drop()
    if not wanted:
        raise InvalidProjection(place, "goes with 1 only")
    return Met()


def _slice(operand: Any, place: str) -> Slice:
    pair = operand if isinstance(operand, list | tuple) else [None, operand]
    if len(pair) != 2:
        raise InvalidProjection(place, "needs a number, or two: [skip, limit]")
    skip = None if pair[0] is None and pair is not operand else _number(pair[0], place)
    limit = _number(pair[1], place)
    if skip is not None and limit <= 0:
        raise InvalidProjection(place, f"the limit must be greater than 0, not {limit}")
    return Slice(skip, limit)


def _number(value: Any, place: str) -> int:
    """Return a number cut to 32 bits and toward zero, as MongoDB does."""
    if isinstance(value, bool) or not isinstance(value, int | float) or _is_nan(value):
        raise InvalidProjection(place, f"{shortened(value)} is not a number")
    return int(max(-_MAX_SLICE, min(value, _MAX_SLICE)))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _element(path: Path, operand: Any, place: str, rules: Codec) -> Element:
    if len(path.keys) > 1:
        raise InvalidProjection(place, "works on a field at the top only")
    try:
        return Element(Parser(rules).operators(path, {"$elemMatch": operand}, str(path)))
    except InvalidFilter as error:
        raise InvalidProjection(error.place, error.problem) from error


def _check_together(entries: tuple[Entry, ...]) -> None:
    kinds = [type(rule) for _, rule in entries]
    if kinds.count(Met) > 1:
        raise InvalidProjection("", "the filter meets one element: only one path may end in `.$`")
    if Met in kinds and Element in kinds:
        raise InvalidProjection("", "a path that ends in `.$` and $elemMatch do not go together")
    seen: type | None = None
    for path, rule in entries:
        if path == ID and isinstance(rule, Keep | Drop):
            continue
        kind = {Keep: Keep, Met: Keep, Drop: Drop}.get(type(rule), seen)
        if seen is not None and kind is not seen:
            raise InvalidProjection(
                str(path), "either all fields are asked for or none; _id alone may differ"
            )
        seen = kind


def _name(field: Any) -> Any:
    if isinstance(field, str | Path):
        return field
    raise InvalidProjection(repr(field), f"a field is a string, not {type(field).__name__}")
