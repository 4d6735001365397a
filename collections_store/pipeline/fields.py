"""Which fields stages speak of, read: paths, and the documents of `$project` and `$addFields`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InvalidFilter, InvalidPipeline, shortened
from ..filter import read_target
from ..formula import Formula, Parser
from ..path import MAX_KEYS, Path
from .stages import AddFields, Entry, Keep, Keys, LeaveOut, Named, Side, Tree

Leaf = bool | Formula
Leaves = list[tuple[Keys, Leaf, str]]


def path(dotted: Any, place: str) -> Keys:
    """Read the dotted name of a field, without `$`."""
    if not isinstance(dotted, str):
        raise InvalidPipeline(place, f"a field is named by a string, not {shortened(dotted)}")
    keys = tuple(dotted.split("."))
    if not all(keys) or any(key.startswith("$") or "\0" in key for key in keys):
        raise InvalidPipeline(place, f"{shortened(dotted)} is no path: a key is empty or has a $")
    if len(keys) > MAX_KEYS:
        raise InvalidPipeline(place, f"a path has at most {MAX_KEYS} keys")
    return keys


def side(dotted: Any, place: str) -> Side:
    """Read a field that `$lookup` compares: a path, or `$id` and the like."""
    if not isinstance(dotted, str) or not dotted.startswith("$"):
        return path(dotted, place)
    try:
        target = read_target(dotted, InvalidPipeline, place)
    except InvalidFilter as error:  # no path
        raise InvalidPipeline(place, error.problem) from None
    return target.keys if isinstance(target, Path) else target


def project(operand: Any, place: str, formulas: Parser) -> Keep | LeaveOut:
    """Read `$project`: either fields that stay and computed ones, or fields that are left out."""
    leaves = list(_leaves(_document(operand, place), (), place, formulas, flags=True))
    others = [each for each in leaves if each[0] != ("_id",)]
    id_leaf = next((leaf for keys, leaf, _ in leaves if keys == ("_id",)), None)
    keeps = others[0][1] is not False if others else id_leaf is not False
    for keys, leaf, where in leaves:
        says_nothing = keys == ("_id",) and (keeps or leaf is True)
        if (leaf is False) is keeps and not says_nothing:
            raise InvalidPipeline(where, "fields that stay and fields that go do not mix")
    tree([(keys, Named(), where) for keys, _, where in leaves])
    if not keeps:
        return LeaveOut(tree([(k, Named(), at) for k, leaf, at in leaves if leaf is False]))
    named = [
        (k, Named() if leaf is True else leaf, at) for k, leaf, at in leaves if leaf is not False
    ]
    if id_leaf is None and not any(keys[0] == "_id" for keys, _, _ in leaves):
        named.insert(0, (("_id",), Named(), place))
    return Keep(tree(named))


def add_fields(operand: Any, place: str, formulas: Parser) -> AddFields:
    """Read `$addFields`: every field is computed."""
    leaves = _leaves(_document(operand, place), (), place, formulas, flags=False)
    return AddFields(tree(list(leaves)))


def unset(operand: Any, place: str) -> LeaveOut:
    """Read `$unset`: a field, or a list of them."""
    every = operand if isinstance(operand, list) else [operand]
    if not every:
        raise InvalidPipeline(place, "needs a field, or a list of them")
    return LeaveOut(tree([(path(each, place), Named(), f"{place}.{each}") for each in every]))


def _document(operand: Any, place: str) -> dict[str, Any]:
    if not isinstance(operand, dict) or not operand:
        raise InvalidPipeline(place, f"needs a document with one field at least, not {operand!r}")
    return operand


def _leaves(
    document: dict[str, Any], above: Keys, place: str, formulas: Parser, *, flags: bool
) -> Iterator[tuple[Keys, Any, str]]:
    """Yield the fields and what is said of each; `flags`: do numbers tell whether they stay?"""
    for key, value in document.items():
        here = f"{place}.{key}"
        keys = (*above, *path(key, here))
        if isinstance(value, dict) and not next(iter(value), "").startswith("$"):
            if not value:
                raise InvalidPipeline(
                    here, "an empty object says nothing of the field: use $literal"
                )
            yield from _leaves(value, keys, here, formulas, flags=flags)
        elif flags and isinstance(value, bool | int | float):
            yield keys, bool(value), here
        else:
            yield keys, formulas.formula(value, here), here


def tree(leaves: list[tuple[Keys, Entry, str]]) -> Tree:
    """Return the leaves as a tree; two that speak of one field are an error."""
    root: dict[str, Any] = {}
    for keys, entry, place in leaves:
        *above, last = keys
        fields = root
        for key in above:
            fields = fields.setdefault(key, {})
            if not isinstance(fields, dict):
                raise InvalidPipeline(place, "this field, or one above it, was named before")
        if last in fields:
            raise InvalidPipeline(place, "this field, or one below it, was named before")
        fields[last] = entry
    return _frozen(root)


def _frozen(fields: dict[str, Any]) -> Tree:
    pairs = ((k, _frozen(v) if isinstance(v, dict) else v) for k, v in fields.items())
    return Tree(tuple(pairs))
