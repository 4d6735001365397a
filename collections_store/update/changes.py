"""The values that an update consists of: paths, and what changes there."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeAlias

from .. import codec
from ..errors import InvalidFilter, InvalidUpdate, cut, shortened
from ..query.conditions import METADATA, Condition, Value
from ..query.path import MAX_CACHED, Path, path_repr
from ..query.values import value_class

NAME: Final = re.compile(r"[a-z][A-Za-z0-9]*", re.ASCII)
"""The name of an array filter."""
_ELEMENTS: Final = re.compile(r"\$\[(.*)\]", re.DOTALL)


@value_class(eq=True)
class Matched:
    """`$`: the element that matched the filter."""

    def __str__(self) -> str:
        return "$"


@value_class(eq=True)
class Elements:
    """`$[name]`: the elements that match the array filter of that name; `$[]`: all."""

    name: str = ""

    def __str__(self) -> str:
        return f"$[{self.name}]"


Piece: TypeAlias = str | Matched | Elements
UpdatePath: TypeAlias = tuple[Piece, ...]
"""The pieces from the top of a body down to a field or an element."""
MATCHED: Final = Matched()


@value_class(eq=True)
class ArrayFilter:
    """The elements that `$[name]` stands for; the condition has the element as its field `name`."""

    name: str
    condition: Condition


@value_class(eq=True)
class FieldChange:
    """An operator, the path where it is applied, and its parsed operand."""

    operator: str
    path: UpdatePath
    operand: Any

    @property
    def place(self) -> str:
        """The operator and the path, as errors name them."""
        return f"{self.operator}.{dotted(self.path)}"


def dotted(path: UpdatePath) -> str:
    """Return a path as it is written."""
    return ".".join(map(str, path))


def copied(value: Value) -> Any:
    """Return the JSON value, so that whoever changes it does not change the update."""
    return codec.decode(value.text) if value.kind in {"array", "object"} else value.value


def parse_path(path: Any, operator: str) -> UpdatePath:
    """Parse a dotted path, or take the keys of a `Path` as they are; raises `InvalidUpdate`."""
    if isinstance(path, Path):
        if not path.keys:
            problem = "must be a path to a field; use replace_one to replace the body"
            raise InvalidUpdate(operator, problem)
        return path.keys
    if not isinstance(path, str):
        raise InvalidUpdate(operator, f"a path must be a string or a Path, got {shortened(path)}")
    try:
        return _parsed(path)
    except InvalidFilter as error:
        raise InvalidUpdate(f"{operator}.{path}", error.problem) from None


def parse_keys(path: Any, operator: str, place: str) -> tuple[str, ...]:
    """Parse a path to a single field."""
    return plain_keys(parse_path(path, operator), place)


def plain_keys(path: UpdatePath, place: str) -> tuple[str, ...]:
    """Return the keys of a path to a single field."""
    if any(isinstance(piece, Matched | Elements) for piece in path):
        raise InvalidUpdate(place, "$rename does not take `$`, `$[]` and `$[name]`")
    return tuple(map(str, path))


def written_path(path: str | Path) -> str | Path:
    """Return the string that is parsed to the same path, or the `Path` if there is none."""
    try:
        same = isinstance(path, str) or _parsed(str(path)) == path.keys
    except InvalidFilter:
        return path
    return str(path) if same else path


@lru_cache(maxsize=MAX_CACHED)
def _parsed(path: str) -> UpdatePath:
    keys = Path.parse(path).keys
    if not all(keys):
        problem = "a part of the path is empty; the empty key is reached by a Path: Path('a', '')"
        raise InvalidFilter("", problem)
    pieces = tuple(map(_piece, keys))
    _check_first(pieces[0], path)
    if pieces.count(MATCHED) > 1:
        raise InvalidFilter("", "`$` may stand in a path once")
    return pieces


def _piece(key: str) -> Piece:
    if key == "$":
        return MATCHED
    if not key.startswith("$["):
        return key
    found = _ELEMENTS.fullmatch(key)
    if found is None or (found[1] and not NAME.fullmatch(found[1])):
        problem = f"must be `$[]` or `$[name]` with a name such as elem1, got {shortened(key)}"
        raise InvalidFilter("", problem)
    return Elements(found[1])


def _check_first(first: Piece, path: str) -> None:
    if isinstance(first, Matched | Elements):
        raise InvalidFilter("", f"{cut(str(first))} must follow the path of an array")
    if not first.startswith("$"):
        return
    if first[1:] in METADATA:
        problem = f"{first} is metadata: an update changes the body only"
    elif first == "$body":
        problem = "name the field alone; replace_one replaces the body"
    else:
        problem = "a field at the top must not begin with $"
    raise InvalidFilter("", f"{problem}. A key of the body: {cut(path_repr(path.split('.')))}")
