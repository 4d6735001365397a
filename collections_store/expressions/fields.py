"""Fields of an object, named or computed: of `$project`, `$addFields` and `$unset`, and of the projections of `find`.

A path goes through arrays, and through arrays in arrays. Nothing here changes a value; results share unchanged parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any, Final, TypeAlias

from ..errors import InvalidOperand
from .classes import value_class
from .evaluation import OperandError, Scope, checked
from .nodes import Node, evaluate
from .operand_parser import ErrorMaker
from .values import MISSING

Keys: TypeAlias = tuple[str, ...]


@value_class(eq=True)
class Named:
    """The field itself: included or excluded."""


@value_class(eq=True)
class Tree:
    """The fields of an object, named or computed."""

    entries: tuple[tuple[str, Entry], ...]
    named: dict[str, Any] = field(init=False, compare=False, repr=False)
    """The entries by key."""
    added: tuple[tuple[str, Node | Tree], ...] = field(init=False, compare=False, repr=False)
    """The computed fields, and the fields that have computed fields in them."""

    def __post_init__(self) -> None:
        added = [
            (key, each)
            for key, each in self.entries
            if each is not NAMED and (not isinstance(each, Tree) or each.added)
        ]
        object.__setattr__(self, "named", dict(self.entries))
        object.__setattr__(self, "added", tuple(added))


Entry: TypeAlias = Tree | Named | Node
NAMED: Final = Named()
_PARTS: Final = (dict, list)


def tree_of(leaves: Iterable[tuple[Keys, Entry | None, object]], error: ErrorMaker) -> Tree:
    """Return the leaves, paths with entries and places, as a tree; a field without an entry is left out. Raise the error
    of two paths of which one contains the other.
    """
    root: dict[str, Any] = {}
    for keys, entry, place in leaves:
        *above, last = keys
        fields = root
        for key in above:
            fields = fields.setdefault(key, {})
            if not isinstance(fields, dict):
                raise error(str(place), "another path names this field, or one above it")
        if last in fields:
            raise error(str(place), "another path names this field, or one below it")
        fields[last] = entry
    return _as_tree(root)


def _as_tree(fields: dict[str, Any]) -> Tree:
    return Tree(tuple([
        (key, _as_tree(each) if isinstance(each, dict) else each)
        for key, each in fields.items()
        if each is not None
    ]))  # fmt: skip


def included(tree: Tree, value: Any, scope: Scope | None) -> Any:
    """Return a value with the named and the computed fields; an array with those of each element, without elements
    that have none. Only computed fields need the scope.
    """
    if isinstance(value, list):
        keeps_all = bool(tree.added)
        return [
            included(tree, each, scope) for each in value if keeps_all or isinstance(each, _PARTS)
        ]
    if not isinstance(value, dict):
        value = {}
    named = tree.named
    result: dict[str, Any] = {}
    for key in [each for each in value if each in named]:  # named fields keep their order
        below, inner = named[key], value[key]
        if below is NAMED:
            result[key] = inner
        elif isinstance(below, Tree) and isinstance(inner, _PARTS):
            result[key] = included(below, inner, scope)
    for key, entry in tree.added:
        if isinstance(entry, Tree):
            if key not in result:
                result[key] = included(entry, {}, scope)
        elif (new := computed(entry, scope)) is not MISSING:
            result[key] = new
    return result


def excluded(tree: Tree, value: Any) -> Any:
    """Return a value without the named fields. Arrays: for each element."""
    if isinstance(value, list):
        return [excluded(tree, each) for each in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for key, entry in tree.entries:
        if key in result:
            if isinstance(entry, Tree):
                result[key] = excluded(entry, result[key])
            else:
                del result[key]
    return result


def added(tree: Tree, value: Any, scope: Scope) -> Any:
    """Return a value with the computed fields; a missing result removes the field. Arrays: for each element."""
    if isinstance(value, list):
        return [added(tree, each, scope) for each in value]
    result = dict(value) if isinstance(value, dict) else {}
    for key, entry in tree.added:
        if isinstance(entry, Tree):
            result[key] = added(entry, result.get(key), scope)
            continue
        found = computed(entry, scope)
        if found is MISSING:
            result.pop(key, None)
        else:
            result[key] = found
    return result


def computed(expression: Node, scope: Any) -> Any:
    """Return the value of an expression; raise `InvalidOperand` for a value that is too large."""
    value = evaluate(expression, scope)
    if expression.is_checked or not isinstance(value, list | dict):
        return value
    try:
        return checked(value)
    except OperandError as error:
        operator = str(getattr(expression, "operator", "a field"))
        raise InvalidOperand(operator, error.problem) from None
