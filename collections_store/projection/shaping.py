"""The parts of a body that a projection asks for. Nothing here changes what it is given; what is
kept whole is shared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..filter import Field
from ..matcher import passes
from .rules import Drop, Element, Slice, Tree

Change: TypeAlias = Callable[[list[Any]], list[Any]]


def kept(value: Any, tree: Tree) -> Any:
    """Return what of a value the tree names. Arrays are walked, those within arrays too; what has
    no fields is left out of them.
    """
    if isinstance(value, list):
        return [kept(each, tree) for each in value if isinstance(each, dict | list)]
    result = {}
    for key, inner in value.items():
        match tree.get(key):
            case None | Drop() | Element():
                pass
            case dict() as below:
                if isinstance(inner, dict | list):
                    result[key] = kept(inner, below)
            case _:
                result[key] = inner
    return result


def rest(value: Any, tree: Tree) -> Any:
    """Return a value without what the tree drops. Arrays are walked, those within arrays too."""
    match value:
        case list():
            return [rest(each, tree) for each in value]
        case dict():
            return {
                key: rest(inner, below) if isinstance(below := tree.get(key), dict) else inner
                for key, inner in value.items()
                if not isinstance(tree.get(key), Drop)
            }
    return value


def with_slice(value: Any, keys: tuple[str, ...], slice: Slice) -> Any:
    """Return a value with the arrays at `keys` cut; arrays on the way are walked one level deep."""
    if not isinstance(value, dict) or keys[0] not in value:
        return value
    key, *others = keys
    inner, below = value[key], tuple(others)
    if isinstance(inner, list):
        inner = [with_slice(each, below, slice) for each in inner] if below else slice.of(inner)
    elif below:
        inner = with_slice(inner, below, slice)
    return {**value, key: inner}


def element(element: Element, body: dict[str, Any], *, ordered: bool) -> list[Any] | None:
    """Return the first element that passes, in a list; None: there is none."""
    assert isinstance(element.condition, Field)
    path, test = element.condition.path, element.condition.test
    array = body.get(path.keys[0])
    if not isinstance(array, list):
        return None
    return next(([each] for each in array if passes(test, [each], ordered=ordered)), None)


def first_array(body: Any, keys: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the keys to the first array on a path; None: there is none."""
    for depth, key in enumerate(keys, start=1):
        if not isinstance(body, dict) or key not in body:
            return None
        body = body[key]
        if isinstance(body, list):
            return keys[:depth]
    return None


def with_change(body: dict[str, Any], keys: tuple[str, ...], change: Change) -> dict[str, Any]:
    """Return an object with the array at `keys` changed; objects lead to it."""
    key, *below = keys
    inner = with_change(body[key], tuple(below), change) if below else change(body[key])
    return {**body, key: inner}
