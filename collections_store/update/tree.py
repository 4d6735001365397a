"""The changes of an update as a tree over their paths, which is how they are applied, in which order,
and how two that speak of one place are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import InvalidUpdate, shortened
from ..path import is_index
from .actions import Change, Elements, Matched, Piece, Way, dotted


@dataclass(slots=True)
class Fields:
    """What is to change in the fields of an object, or in the elements of an array by number."""

    children: dict[str | Matched, Node] = field(default_factory=dict)


@dataclass(slots=True)
class Each:
    """What is to change in each element of an array, or in those of a name."""

    children: dict[Elements, Node] = field(default_factory=dict)


Node: TypeAlias = Fields | Each | Change


def tree_of(changes: Iterable[Change]) -> Fields:
    """Return the tree; raises `InvalidUpdate` if two changes speak of one place."""
    root = Fields()
    for change in changes:
        _plant(root, change)
    _sort(root)
    return root


def _plant(root: Fields, change: Change) -> None:
    node: Any = root
    *above, last = change.way
    for depth, piece in enumerate(above, start=1):
        if piece not in node.children:
            within = Each if isinstance(change.way[depth], Elements) else Fields
            node.children[piece] = within()
        node = node.children[piece]
        if isinstance(node, Change) or isinstance(node, Each) is not isinstance(
            change.way[depth], Elements
        ):
            raise _conflict(change, change.way[:depth])
    if last in node.children:
        raise _conflict(change, change.way)
    node.children[last] = change


def _conflict(change: Change, way: Way) -> InvalidUpdate:
    return InvalidUpdate(
        change.place, f"there is another change of {shortened(dotted(way))}, or of what is in it"
    )


def _sort(node: Node) -> None:
    if isinstance(node, Fields | Each):
        node.children = in_order(node.children)
        for child in node.children.values():
            _sort(child)


def in_order(children: dict[Any, Node]) -> dict[Any, Node]:
    """Return children as they are applied."""
    return dict(sorted(children.items(), key=lambda pair: _order(pair[0])))


def _order(piece: Piece) -> tuple[int, int, str]:
    """Return what MongoDB orders fields by: numbers by their value, all else as text."""
    text = str(piece)
    if is_index(text):
        return 1, int(text), ""
    return (0 if text < "0" else 2), 0, text


def leaves(node: Node) -> Iterator[Change | Each]:
    """Yield the changes below a node; an `Each` stands for all below it."""
    if isinstance(node, Fields):
        for child in node.children.values():
            yield from leaves(child)
    else:
        yield node


def merged(one: Node, other: Node, refuse: Callable[[], Exception]) -> Node:
    """Return both nodes as one; raises what `refuse` makes if they change one place."""
    if isinstance(one, Change) or isinstance(other, Change) or type(one) is not type(other):
        raise refuse()
    children: dict[Any, Node] = dict(one.children)
    for piece, child in other.children.items():
        both = piece in children
        children[piece] = merged(children[piece], child, refuse) if both else child
    return type(one)(in_order(children))
