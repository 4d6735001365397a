"""Values of documents in the cells of a table, and as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ..document import SCHEMA_VERSION
from .pages import as_json, visible

LONGEST_CELL: Final = 80
"""Characters of a value in a table."""
MOST_COLUMNS: Final = 12
MOST_CHILDREN: Final = 200
"""Fields or elements of a value that a tree shows."""
DEEPEST: Final = 40
"""Levels of a tree."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in a table: the kind, also a class of the style sheet, and the text."""

    kind: str
    text: str


MISSING: Final = Cell("missing", "")


def kind_of(value: Any) -> str:
    """Return the type of a JSON value by MongoDB's names.

    >>> [kind_of(value) for value in (None, True, 1.5, "a", [], {})]
    ['null', 'bool', 'number', 'string', 'array', 'object']
    """
    kinds = {
        type(None): "null",
        bool: "bool",
        int: "number",
        float: "number",
        str: "string",
        list: "array",
    }
    return kinds.get(type(value), "object")


def cell(value: Any) -> Cell:
    """Return the cell of a value: the string itself, or JSON, up to `LONGEST_CELL` characters."""
    kind = kind_of(value)
    if kind in {"array", "string"}:
        value = value[: LONGEST_CELL + 1]
    text = visible(value) if kind == "string" else as_json(value)
    return Cell(kind, text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…")


def columns_of(bodies: Iterable[Any]) -> list[str]:
    """Return the fields of bodies in the order of the first occurrence, the schema version last.

    >>> columns_of([{"a": 1, "b": 2}, 5, {"b": 3, "c": 4}])
    ['a', 'b', 'c']
    """
    found = dict.fromkeys(key for body in bodies if isinstance(body, dict) for key in body)
    names = [name for name in found if name != SCHEMA_VERSION][:MOST_COLUMNS]
    return [*names, SCHEMA_VERSION] if SCHEMA_VERSION in found else names


def row(body: Any, columns: list[str]) -> list[Cell]:
    """Return the cells of a body. A scalar or an array is in the first cell."""
    if not isinstance(body, dict):
        return [cell(body), *[MISSING] * (len(columns) - 1)]
    return [cell(body[name]) if name in body else MISSING for name in columns]


@dataclass(frozen=True, slots=True)
class Branch:
    """A value in a tree, under a key of an object or a position in an array. `more` is the number of omitted children."""

    key: str | int | None
    kind: str
    text: str
    children: list[Branch] = field(default_factory=list)
    more: int = 0


def tree_of(value: Any, key: str | int | None = None, depth: int = 0) -> Branch:
    """Return a value as a tree."""
    kind = kind_of(value)
    if kind not in {"array", "object"}:
        return Branch(key, kind, visible(value) if kind == "string" else as_json(value))
    if depth == DEEPEST:
        return Branch(key, kind, as_json(value))
    children = [tree_of(each, name, depth + 1) for name, each in _first(value)]
    size = len(value)
    noun = {"array": "element", "object": "field"}[kind]
    text = f"{size:,} {noun}{'' if size == 1 else 's'}"
    return Branch(key, kind, text, children, size - len(children))


def _first(value: Any) -> Iterator[tuple[str | int, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for number, each in enumerate(items):
        if number == MOST_CHILDREN:
            return
        yield each
