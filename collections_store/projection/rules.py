"""What a projection is made of: paths, and what becomes of the field at each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from ..errors import InvalidProjection
from ..filter import Condition
from ..frozen import frozen
from ..path import Path


@frozen(eq=True)
class Keep:
    """The field is asked for."""


@frozen(eq=True)
class Drop:
    """The field is not wanted."""


@frozen(eq=True)
class Met:
    """Of the first array on the path only the element that met the filter (`field.$`)."""


@frozen(eq=True)
class Slice:
    """Some elements of the array (`$slice`): `limit` after `skip`, which counts from the end if it
    is negative. Without `skip` a negative `limit` counts from the end.
    """

    skip: int | None
    limit: int

    def of(self, array: list[object]) -> list[object]:
        """Return the elements."""
        if self.skip is None:
            return array[self.limit :] if self.limit < 0 else array[: self.limit]
        start = max(0, len(array) + self.skip) if self.skip < 0 else self.skip
        return array[start : start + self.limit]


@frozen(eq=True)
class Element:
    """The first element of the array that passes (`$elemMatch`); `condition` is on the field."""

    condition: Condition


Rule: TypeAlias = Keep | Drop | Met | Slice | Element
Entry: TypeAlias = tuple[Path, Rule]
Tree: TypeAlias = "dict[str, Tree | Rule]"

ID: Final = Path("_id")


def is_inclusion(entries: Iterable[Entry]) -> bool:
    """Tell whether a projection says what is wanted, or what is not; `_id` alone decides last."""
    rules = [(type(rule), path == ID) for path, rule in entries]
    if (Keep, False) in rules or (Met, False) in rules or (Met, True) in rules:
        return True
    if (Drop, False) in rules:
        return False
    kinds = {kind for kind, _ in rules}
    return Keep in kinds if Slice in kinds or Element not in kinds else True


def tree_of(entries: Iterable[Entry]) -> Tree:
    """Return the rules by the keys that lead to them; raises `InvalidProjection` where two paths
    speak of one field.
    """
    tree: Tree = {}
    for path, rule in entries:
        here, (*above, last) = tree, path.keys
        for key in above:
            below = here.setdefault(key, {})
            if not isinstance(below, dict):
                raise InvalidProjection(str(path), "another path speaks of a field around it")
            here = below
        if last in here:
            raise InvalidProjection(str(path), "another path speaks of this field, or of one in it")
        here[last] = rule
    return tree
