"""`$project`, `$addFields` and `$unset`: which fields stay, and which are computed.

All go into arrays, and do to each element what they would do to an object in the array's place.
"""

from __future__ import annotations

from typing import Any

from ..query.values import MISSING
from .expressions.scope import Scope
from .rows import computed
from .stages import Named, Tree


def kept(tree: Tree, value: Any, scope: Scope) -> Any:
    """Return a value with the named fields and the computed ones; `MISSING`: it has none of them."""
    if isinstance(value, list):
        found = [kept(tree, each, scope) for each in value]
        return [each for each in found if each is not MISSING]
    if not isinstance(value, dict):
        if not computes(tree):
            return MISSING
        value = {}
    result = _named(tree, value, scope)
    for key, entry in tree.entries:
        if isinstance(entry, Tree):
            if key not in result and computes(entry):
                result[key] = kept(entry, {}, scope)
        elif not isinstance(entry, Named) and (found := computed(entry, scope)) is not MISSING:
            result[key] = found
    return result


def _named(tree: Tree, value: dict[str, Any], scope: Scope) -> dict[str, Any]:
    entries, result = dict(tree.entries), {}
    for key, each in value.items():
        match entries.get(key):
            case Named():
                result[key] = each
            case Tree() as below if isinstance(each, dict | list):
                found = kept(below, each, scope)
                if found is not MISSING:
                    result[key] = found
    return result


def left(tree: Tree, value: Any) -> Any:
    """Return a value without the named fields."""
    if isinstance(value, list):
        return [left(tree, each) for each in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for key, entry in tree.entries:
        if key in result:
            if isinstance(entry, Tree):
                result[key] = left(entry, result[key])
            else:
                del result[key]
    return result


def with_fields(tree: Tree, value: Any, scope: Scope) -> Any:
    """Return a value with the computed fields; one that is missing takes away what was there."""
    if isinstance(value, list):
        return [with_fields(tree, each, scope) for each in value]
    result = dict(value) if isinstance(value, dict) else {}
    for key, entry in tree.entries:
        if isinstance(entry, Tree):
            result[key] = with_fields(entry, result.get(key), scope)
        elif not isinstance(entry, Named):
            found = computed(entry, scope)
            if found is MISSING:
                result.pop(key, None)
            else:
                result[key] = found
    return result


def computes(tree: Tree) -> bool:
    """Return whether some field of the tree is computed."""
    entries = (entry for _, entry in tree.entries)
    return any(computes(e) if isinstance(e, Tree) else not isinstance(e, Named) for e in entries)
