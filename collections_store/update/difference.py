"""The difference between two versions of a body, as an update."""

from __future__ import annotations

from typing import Any

from ..codec import spell
from .apply import field_order


def difference(before: Any, after: Any, stored: Any = ...) -> dict[str, Any] | None:
    """Return the update that makes `after` of `before` by the fewest fields; {} if both are equal, None if no update
    names the fields.

    Objects are compared key by key, arrays of the same length element by element. A value is set entirely if its keys
    changed their order, if a path cannot name its keys, or if an update would add its new keys in another order. The
    update is for `stored`, another spelling of `before`: a value is also set entirely if `stored` has no object in its
    place, or an array with other elements.

    >>> difference({"name": "ada", "tags": ["a", "b"], "old": 1}, {"name": "ada", "tags": ["a", "c"], "new": 2})
    {'$set': {'tags.1': 'c', 'new': 2}, '$unset': {'old': ''}}
    >>> difference({"tags": ["a", "b"]}, {"tags": ["a", "c"]}, stored={"tags": ["b", "a"]})
    {'$set': {'tags': ['a', 'c']}}
    """
    if type(before) is not dict or type(after) is not dict:
        return {} if spell(before) == spell(after) else None
    stored = before if stored is ... else stored
    changes: dict[str, dict[str, Any]] = {"$set": {}, "$unset": {}}
    if type(stored) is not dict or not _compare(before, after, stored, "", changes):
        return {} if spell(before) == spell(after) else None
    return {operator: fields for operator, fields in changes.items() if fields}


def _compare(
    before: Any, after: Any, stored: Any, path: str, changes: dict[str, dict[str, Any]]
) -> bool:
    """Add the changes within an object or an array; return False, and add nothing, if only the whole can be set."""
    if type(before) is list:
        pairs = {str(index): pair for index, pair in enumerate(zip(before, after, strict=True))}
        there = {str(index): each for index, each in enumerate(stored)}
        removed: list[str] = []
    else:
        pairs = {key: (before.get(key, ...), value) for key, value in after.items()}
        there = stored
        removed = [key for key in before if key not in after]
        added = [key for key in after if key not in before]
        if [key for key in before if key in after] + added != list(after):
            return False
        if path and added != sorted(added, key=field_order):
            return False
    pairs = {
        key: pair
        for key, pair in pairs.items()
        if pair[0] is ... or spell(pair[0]) != spell(pair[1])
    }
    if not all(map(_is_name, [*pairs, *removed])) or (not path and "_id" in [*pairs, *removed]):
        return False
    for key, (old, new) in pairs.items():
        below, base = f"{path}.{key}" if path else key, there.get(key)
        alike = type(old) is type(new) is type(base) and type(new) in {dict, list} and new and old
        fits = alike and (type(new) is dict or (len(old) == len(new) and _is_part(old, base)))
        if not (fits and _compare(old, new, base, below, changes)):
            changes["$set"][below] = new
    changes["$unset"] |= {f"{path}.{key}" if path else key: "" for key in removed}
    return True


def _is_part(value: Any, stored: Any) -> bool:
    """Return whether a stored value has the elements of an array at the same places, with the same fields."""
    if type(value) is list and type(stored) is list:
        return len(value) == len(stored) and all(map(_is_part, value, stored))
    if type(value) is dict and type(stored) is dict:
        return all(_is_part(each, stored[key]) for key, each in value.items() if key in stored)
    return spell(value) == spell(stored)


def _is_name(key: str) -> bool:
    return key != "" and "." not in key and not key.startswith("$")
