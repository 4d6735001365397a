"""The paths of an update, read: fields, indexes of arrays, `$`, `$[]` and `$[name]`."""

from __future__ import annotations

import re
from typing import Any, Final

from ..errors import InvalidFilter, InvalidUpdate, cut, shortened
from ..filter.conditions import METADATA
from ..path import Path, in_python
from .actions import MATCHED, Elements, Matched, Piece, Way

NAME: Final = re.compile(r"[a-z][A-Za-z0-9]*", re.ASCII)
"""What an array filter can be called."""
_ELEMENTS: Final = re.compile(r"\$\[(.*)\]", re.DOTALL)


def read_way(path: Any, operator: str) -> Way:
    """Read a dotted path, or take a `Path`, whose keys are what they are; raises `InvalidUpdate`."""
    if isinstance(path, Path):
        if not path.keys:
            raise InvalidUpdate(
                operator, "a path to a field, not to the body: replace_one does that"
            )
        return path.keys
    place = f"{operator}.{path}"
    if not isinstance(path, str):
        raise InvalidUpdate(operator, f"a field is a string, not {shortened(path)}")
    way = tuple(_piece(key, place) for key in _keys(path, place))
    _check_top(way[0], path, place)
    if way.count(MATCHED) > 1:
        raise InvalidUpdate(place, "`$` may stand in a path once")
    return way


def as_written(path: str | Path, way: Way) -> str | Path:
    """Return the text that is read as the way of a path, or the path where none is."""
    if isinstance(path, str):
        return path
    try:
        found = read_way(str(path), "")
    except InvalidUpdate:
        return path
    return str(path) if found == way else path


def plain_keys(way: Way, place: str) -> tuple[str, ...]:
    """Return the keys of a path that names no elements; raises `InvalidUpdate` for others."""
    if any(isinstance(piece, Matched | Elements) for piece in way):
        raise InvalidUpdate(place, "$rename does not take `$`, `$[]` and `$[name]`")
    return tuple(map(str, way))


def _keys(path: str, place: str) -> tuple[str, ...]:
    try:
        keys = Path.parse(path).keys
    except InvalidFilter as error:
        raise InvalidUpdate(place, error.problem) from None
    if not all(keys):
        raise InvalidUpdate(
            place, "a part of the path is empty; the empty key is reached by a Path: Path('a', '')"
        )
    return keys


def _piece(key: str, place: str) -> Piece:
    if key == "$":
        return MATCHED
    if not key.startswith("$["):
        return key
    found = _ELEMENTS.fullmatch(key)
    if found is None or (found[1] and not NAME.fullmatch(found[1])):
        raise InvalidUpdate(
            place, f"{shortened(key)} is neither `$[]` nor `$[name]` with a name such as elem1"
        )
    return Elements(found[1])


def _check_top(first: Piece, path: str, place: str) -> None:
    if isinstance(first, Matched | Elements):
        raise InvalidUpdate(place, f"{cut(str(first))} follows the path of an array")
    if not first.startswith("$"):
        return
    name = first[1:]
    if name in METADATA:
        problem = f"{first} is what the store knows of the object: an update changes the body only"
    elif name == "body":
        problem = "name the field alone; replace_one gives another body as a whole"
    else:
        problem = "a field at the top does not begin with $"
    key_of_body = cut(in_python(path.split(".")))
    raise InvalidUpdate(place, f"{problem}. A key of the body: {key_of_body}")
