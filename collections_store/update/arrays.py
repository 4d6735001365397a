"""What an update does to an array. None of it changes the array it is given."""

from __future__ import annotations

from functools import cmp_to_key, partial
from typing import Any

from ..document import Anonymous
from ..errors import shortened
from ..formula import Unfit, key_of
from ..matcher import holds
from ..path import is_index
from ..values import MISSING, compare
from .actions import AddToSet, Pop, Pull, PullAll, Push, SortElements, fresh


def pushed(action: Push, value: Any, ordered: bool) -> list[Any]:
    """Return the array with more elements, sorted and cut; what is missing is an empty one."""
    array = _array("$push", value)
    where = len(array) if action.position is None else action.position
    if where < 0:
        where = max(len(array) + where, 0)
    array = [*array[:where], *map(fresh, action.values), *array[where:]]
    if action.sort is not None:
        array = _sorted(array, action.sort, ordered)
    match action.slice:
        case None:
            return array
        case int(count) if count >= 0:
            return array[:count]
        case count:
            return array[count:]


def joined(action: AddToSet, value: Any, ordered: bool) -> list[Any]:
    """Return the array with those elements that it had not; what is missing is an empty one."""
    array = _array("$addToSet", value)
    there = {key_of(each, ordered=ordered) for each in array}
    added = []
    for each in map(fresh, action.values):
        key = key_of(each, ordered=ordered)
        if key not in there:
            there.add(key)
            added.append(each)
    return [*array, *added]


def popped(action: Pop, value: Any) -> Any:
    """Return the array without its first or last element."""
    if value is MISSING:
        return value
    array = _array("$pop", value)
    return array[1:] if action.first else array[:-1]


def pulled(action: Pull, value: Any, ordered: bool) -> Any:
    """Return the array without the elements for which the condition holds."""
    if value is MISSING:
        return value
    return [each for each in _array("$pull", value) if not _meets(action, each, ordered)]


def pulled_all(action: PullAll, value: Any, ordered: bool) -> Any:
    """Return the array without the elements that equal one of the action's."""
    if value is MISSING:
        return value
    unwanted = {key_of(each.value, ordered=ordered) for each in action.values}
    array = _array("$pull", value)
    return [each for each in array if key_of(each, ordered=ordered) not in unwanted]


def _array(operator: str, value: Any) -> list[Any]:
    if value is MISSING:
        return []
    if not isinstance(value, list):
        raise Unfit(f"{operator} takes an array, not {shortened(value)}")
    return value


def _meets(action: Pull, element: Any, ordered: bool) -> bool:
    if action.wrapped:
        return holds(action.condition, Anonymous({"": element}), ordered=ordered)
    if not isinstance(element, dict):
        return False
    return holds(action.condition, Anonymous(element), ordered=ordered)


def _sorted(array: list[Any], sort: SortElements, ordered: bool) -> list[Any]:
    """Return the array in another order; what is equal stays as it was.

    Arrays are compared as a whole here, unlike in a sort of documents.
    """
    key = cmp_to_key(partial(compare, ordered=ordered))
    for keys, descending in reversed(sort.fields):
        array = sorted(array, key=lambda each: key(_field(each, keys)), reverse=descending)
    return array


def _field(element: Any, keys: tuple[str, ...]) -> Any:
    """Return what `$push` sorts by; null where there is none. Only objects have fields, but a number
    leads into an array that is in one.
    """
    if keys and not isinstance(element, dict):
        return None
    for key in keys:
        if isinstance(element, list) and is_index(key) and int(key) < len(element):
            element = element[int(key)]
        elif isinstance(element, dict) and key in element:
            element = element[key]
        else:
            return None
    return element
