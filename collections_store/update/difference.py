"""What differs between two versions of a body, as an update."""

from __future__ import annotations

from typing import Any

from ..codec import spell


def difference(before: Any, after: Any) -> dict[str, Any] | None:
    """Return the update that makes `after` of `before` by the fewest fields; {} if they are equal, None if no update
    names the fields.

    Objects are compared key by key, arrays of the same length element by element. A value whose keys changed their
    order, or whose keys a path cannot name, is set entirely.

    >>> difference({"name": "ada", "tags": ["a", "b"], "old": 1}, {"name": "ada", "tags": ["a", "c"], "new": 2})
    {'$set': {'tags.1': 'c', 'new': 2}, '$unset': {'old': ''}}
    """
    if type(before) is not dict or type(after) is not dict:
        return {} if spell(before) == spell(after) else None
    changes: dict[str, dict[str, Any]] = {"$set": {}, "$unset": {}}
    if not _compare(before, after, "", changes):
        return None
    return {operator: fields for operator, fields in changes.items() if fields}


def _compare(before: Any, after: Any, path: str, changes: dict[str, dict[str, Any]]) -> bool:
    """Add the changes within an object or an array; return False, and add nothing, if only the whole can be set."""
    if type(before) is list:
        pairs = {str(index): pair for index, pair in enumerate(zip(before, after, strict=True))}
        removed: list[str] = []
    else:
        pairs = {key: (before.get(key, ...), value) for key, value in after.items()}
        removed = [key for key in before if key not in after]
        if [key for key in before if key in after] != list(after)[: len(before) - len(removed)]:
            return False
    pairs = {
        key: pair
        for key, pair in pairs.items()
        if pair[0] is ... or spell(pair[0]) != spell(pair[1])
    }
    if not all(map(_is_name, [*pairs, *removed])):
        return False
    for key, (old, new) in pairs.items():
        below = f"{path}.{key}" if path else key
        alike = type(old) is type(new) and type(new) in {dict, list} and new and old
        fits = alike and (type(new) is dict or len(old) == len(new))
        if not (fits and _compare(old, new, below, changes)):
            changes["$set"][below] = new
    changes["$unset"] |= {f"{path}.{key}" if path else key: "" for key in removed}
    return True


def _is_name(key: str) -> bool:
    """Return whether a part of an update's path can be this key."""
    return key != "" and "." not in key and not key.startswith("$")
