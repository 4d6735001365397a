"""What a body becomes when the changes of an update are applied to it.

The rules, MongoDB's:

1. Changes are applied in the order of their paths, so new fields come in that order, behind those
   that are there. What is on the way and missing becomes an object.
2. In an array a number names an element. One beyond the end is added, and null before it. Every other
   key, and every key below a scalar, leads nowhere: an error, but for `$unset`.
3. `$[]` and `$[name]` need an array that is there. Two changes must not meet at one place.

Nothing is changed in place: what stays as it was is shared with the old body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..document import Anonymous, Document
from ..errors import UpdateRefused, cut, shortened
from ..filter import Condition, Filter
from ..formula import Unfit
from ..frozen import frozen
from ..matcher import holds
from ..path import is_index
from ..projection.positions import paths, position
from ..values import MISSING, equal, identical
from . import arrays, numbers
from .actions import (
    MATCHED,
    Add,
    AddToSet,
    Arrive,
    Assign,
    AtLeast,
    AtMost,
    Bitwise,
    Change,
    Elements,
    Leave,
    Multiply,
    Pop,
    Pull,
    PullAll,
    Push,
    PutTime,
    Remove,
    fresh,
)
from .tree import Each, Fields, Node, in_order, leaves, merged

Keys = tuple[str, ...]
MAX_PADDING: Final = 1_500_000
"""Nulls that are added before an element beyond an array's end; MongoDB's limit."""


@dataclass(slots=True)
class Budget:
    """How many characters of JSON an update may still add, so that none eats the memory: `$[]` puts a
    value as often as there are elements.
    """

    limit: int
    left: int

    @classmethod
    def of(cls, limit: int) -> Budget:
        """Return a whole one."""
        return cls(limit, limit)


@frozen(eq=True)
class Application:
    """What changes need to know besides the place they change."""

    document: Document
    filter: Filter
    array_filters: Mapping[str, Condition]
    now: int
    inserting: bool
    ordered: bool
    budget: Budget
    _met: dict[Keys, int | None] = field(default_factory=dict)

    def met(self, array: Keys) -> int | None:
        """Return the index of the element that met the filter, as the condition on that array tells, or
        as the last one does if there is none on it.
        """
        if self.inserting:
            return None
        on_it = any(each.keys[: len(array)] == array for each in paths(self.filter.condition))
        array = array if on_it else ()
        if array not in self._met:
            condition = self.filter.condition
            self._met[array] = position(condition, self.document, array, ordered=self.ordered)
        return self._met[array]

    def spend(self, characters: int, keys: Keys) -> None:
        """Raise `UpdateRefused` if more is added than a body may hold."""
        self.budget.left -= characters
        if self.budget.left < 0:
            raise self.refuse(keys, f"the update adds more than {self.budget.limit:,} bytes")

    def refuse(self, keys: Keys, problem: str) -> UpdateRefused:
        """Return the error of a place in the body."""
        return UpdateRefused(self.document.id, ".".join(keys), problem)


def changed(node: Node, value: Any, keys: Keys, the: Application) -> Any:
    """Return what a value at `keys` becomes; `MISSING`, before or after, is nothing."""
    match node:
        case Change():
            return _acted(node, value, keys, the) if node.is_for(the.inserting) else value
        case Each():
            return _in_elements(node, value, keys, the)
    children = _children(node, keys, the)
    if value is MISSING:
        made = _in_object(children, {}, keys, the)
        return made or MISSING
    if isinstance(value, dict):
        return _in_object(children, value, keys, the)
    if isinstance(value, list):
        return _in_array(children, value, keys, the)
    for key, child in children.items():
        _check_leads_nowhere(child, value, (*keys, key), the)
    return value


def _in_object(children: dict[str, Node], body: Any, keys: Keys, the: Application) -> Any:
    result = body
    for key, child in children.items():
        old = body.get(key, MISSING)
        new = changed(child, old, (*keys, key), the)
        if new is old:
            continue
        if result is body:
            result = dict(body)
        if new is MISSING:
            del result[key]
        else:
            result[key] = new
    return result


def _in_array(children: dict[str, Node], array: list[Any], keys: Keys, the: Application) -> Any:
    result = array
    for key, child in children.items():
        here = (*keys, key)
        if not is_index(key):
            _check_leads_nowhere(child, array, here, the)
            continue
        index = int(key)
        old = result[index] if index < len(result) else MISSING
        new = changed(child, old, here, the)
        if new is MISSING and old is not MISSING:
            new = None  # what is taken away leaves null, and changes nothing where that was
        if new is not old:
            result = list(array) if result is array else result
            _put(result, index, new, here, the)
    return result


def _put(array: list[Any], index: int, value: Any, keys: Keys, the: Application) -> None:
    """Change an element."""
    missing = index - len(array)
    if missing > MAX_PADDING:
        raise the.refuse(keys, f"an array is filled up with {MAX_PADDING:,} nulls at most")
    if missing >= 0:
        the.spend(missing * len("null,"), keys)
        array.extend([None] * (missing + 1))
    array[index] = value


def _children(node: Fields, keys: Keys, the: Application) -> dict[str, Node]:
    """Return the children by key, with the element that met the filter in the place of `$`."""
    children: dict[Any, Node] = node.children
    if MATCHED not in children:
        return children
    met = the.met(keys)
    if met is None:
        raise the.refuse((*keys, "$"), "the filter met no element of an array")
    others, key = {k: v for k, v in children.items() if k != MATCHED}, str(met)
    child = children[MATCHED]
    if key in others:
        child = merged(others[key], child, lambda: _meet((*keys, key), the))
    return in_order({**others, key: child})


def _in_elements(node: Each, value: Any, keys: Keys, the: Application) -> Any:
    if not isinstance(value, list):
        found = "nothing" if value is MISSING else shortened(value)
        names = cut(", ".join(map(str, node.children)))
        raise the.refuse(keys, f"{names} needs an array that is there, and there is {found}")
    result = value
    for index, old in enumerate(value):
        here = (*keys, str(index))
        child = _child_for(node, old, here, the)
        new = old if child is None else changed(child, old, here, the)
        if new is not old:
            result = list(value) if result is value else result
            result[index] = None if new is MISSING else new
    return result


def _child_for(node: Each, element: Any, keys: Keys, the: Application) -> Node | None:
    """Return what is to change in an element."""
    found: Node | None = None
    for piece, child in node.children.items():
        if _lets_through(piece, element, the):
            found = child if found is None else merged(found, child, lambda: _meet(keys, the))
    return found


def _lets_through(piece: Elements, element: Any, the: Application) -> bool:
    if not piece.name:
        return True
    condition = the.array_filters[piece.name]
    return holds(condition, Anonymous({piece.name: element}), ordered=the.ordered)


def _meet(keys: Keys, the: Application) -> UpdateRefused:
    return the.refuse(keys, "two changes meet there, or one is within the other")


def _check_leads_nowhere(node: Node, value: Any, keys: Keys, the: Application) -> None:
    """Raise `UpdateRefused` unless nothing is to be done at a place that cannot be there."""
    for leaf in leaves(node):
        if isinstance(leaf, Each):
            raise the.refuse(keys, f"there is {shortened(value)}, which has no arrays in it")
        if not leaf.is_for(the.inserting) or isinstance(leaf.action, Remove):
            continue
        if isinstance(leaf.action, Arrive) and _arriving(leaf.action, the) is MISSING:
            continue
        problem = f"{shortened(value)} has no field {shortened(keys[-1])}, and there can be none"
        if isinstance(value, list):
            problem += ": its elements are reached by a number, `$`, `$[]` or `$[name]`"
        raise the.refuse(keys, problem)


def _acted(change: Change, value: Any, keys: Keys, the: Application) -> Any:
    """Return what the action makes of a value: itself, if that is spelled alike."""
    try:
        found = _result(change, value, keys, the)
    except Unfit as error:
        raise the.refuse(keys, error.problem) from None
    if identical(found, value):
        return value
    the.spend(change.weight, keys)
    return found


def _result(change: Change, value: Any, keys: Keys, the: Application) -> Any:
    match change.action:
        case Assign(wanted):
            return fresh(wanted)
        case Remove():
            return MISSING
        case Add(number):
            return numbers.added(value, number.value)
        case Multiply(number):
            return numbers.multiplied(value, number.value)
        case AtMost() | AtLeast() as action:
            return numbers.bounded(action, value, the.ordered)
        case Bitwise() as action:
            return numbers.combined(action, value)
        case PutTime() as action:
            return numbers.written(action, the.now)
        case Arrive() as action:
            return _renamed(action, value, keys, the)
        case Leave():
            return MISSING
    return _of_array(change, value, the.ordered)


def _of_array(change: Change, value: Any, ordered: bool) -> Any:
    match change.action:
        case Push() as action:
            return arrays.pushed(action, value, ordered)
        case AddToSet() as action:
            return arrays.joined(action, value, ordered)
        case Pop() as action:
            return arrays.popped(action, value)
        case Pull() as action:
            return arrays.pulled(action, value, ordered)
        case PullAll() as action:
            return arrays.pulled_all(action, value, ordered)
    raise AssertionError(change)


def _renamed(action: Arrive, value: Any, keys: Keys, the: Application) -> Any:
    found = _arriving(action, the)
    if found is MISSING:
        return value
    if _array_on(keys, the.document.body):
        raise the.refuse(keys, "$rename leads into no array")
    return value if value is not MISSING and equal(found, value) else found


def _arriving(action: Arrive, the: Application) -> Any:
    """Return what is at the source of a `$rename`, or `MISSING`."""
    value = the.document.body
    for depth, key in enumerate(action.source):
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and is_index(key):
            value = value[int(key)] if int(key) < len(value) else MISSING
        else:
            problem = f"{shortened(value)} has no field {shortened(key)}, and there can be none"
            raise the.refuse(action.source[: depth + 1], problem)
        if value is MISSING:
            return value
    if _array_on(action.source, the.document.body):
        raise the.refuse(action.source, "$rename takes nothing out of an array")
    return value


def _array_on(keys: Keys, value: Any) -> bool:
    """Tell whether there is an array on the way to a field."""
    for key in keys:
        if isinstance(value, list):
            return True
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return False
