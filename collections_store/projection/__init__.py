"""Which parts of a body are wanted: MongoDB's projections, parsed into frozen values.

The rules are those of MongoDB's server since 4.4:

1. Either the fields that are wanted are named (an inclusion), or those that are not (an exclusion).
   `$slice` alone leaves the rest of the body, `$elemMatch` alone is an inclusion.
2. `_id` is a field of the body that an inclusion keeps unless it is excluded. A body without one has
   none.
3. A path goes through arrays, and through arrays in arrays. A number is the key of an object there,
   never an index. An inclusion drops elements that are not objects, an exclusion keeps them.
4. Fields keep the order they are stored in; what `$elemMatch` finds comes last in an inclusion.
5. A body that is no object has no fields: an inclusion makes it {}, an exclusion leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..codec import Codec
from ..document import Document
from ..errors import InvalidProjection, shortened
from ..filter import Filter
from ..filter.printing import to_json
from ..path import Path
from . import shaping
from .parsing import read
from .positions import paths, position
from .rules import ID, Drop, Element, Entry, Keep, Met, Rule, Slice, Tree, is_inclusion, tree_of


@dataclass(frozen=True, slots=True)
class Projection:
    """The parts of a body that are wanted.

    >>> print(Projection.parse(["name", "address.city"]))
    {'name': 1, 'address.city': 1}
    >>> city = Document("berlin", {"name": "Berlin", "rivers": ["Spree", "Havel", "Panke"]})
    >>> Projection.parse({"rivers": {"$slice": -1}}).apply(city, Filter()).body
    {'name': 'Berlin', 'rivers': ['Panke']}
    """

    entries: tuple[Entry, ...]
    _tree: Tree = field(init=False, compare=False, repr=False)
    _includes: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        includes = is_inclusion(self.entries)
        tree = tree_of(self.entries)
        if includes:
            tree.setdefault("_id", Keep())
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "_includes", includes)

    @classmethod
    def parse(cls, what: Any, rules: Codec = Codec()) -> Projection:  # noqa: B008 - it is frozen
        """Read a projection document, a list of the fields wanted, or a `Projection`; raises
        `InvalidProjection` naming the place.
        """
        return what if isinstance(what, Projection) else cls(read(what, rules))

    def check(self, filter: Filter) -> None:
        """Raise `InvalidProjection` if `field.$` is asked for and `filter` has nothing on it."""
        for path, rule in self.entries:
            if isinstance(rule, Met):
                tops = {each.keys[:1] for each in paths(filter.condition)}
                if path.keys[:1] not in tops:
                    raise InvalidProjection(f"{path}.$", "the filter asks for nothing of the field")

    def apply(self, document: Document, filter: Filter, *, ordered: bool = True) -> Document:
        """Return a document with the parts of the body that are wanted.

        `filter` is what found the document; `field.$` needs it, and raises `InvalidProjection`
        where it does not tell an element. `ordered`: do objects with other key order differ?
        """
        return replace(document, body=self._shaped(document, filter, ordered))

    def to_json(self) -> dict[Any, Any]:
        """Return the projection document. A key that holds a dot or begins with `$` stands in a `Path`;
        all other fields are text.
        """
        return dict(_spelled(_name(path), rule) for path, rule in self.entries)

    def __str__(self) -> str:
        return str(self.to_json())

    def _shaped(self, document: Document, filter: Filter, ordered: bool) -> Any:
        body = document.body
        if not isinstance(body, dict):
            return {} if self._includes else body
        for path, rule in self.entries:
            if isinstance(rule, Met):
                self.check(filter)
                body = _narrowed(document, path.keys, filter, ordered)
        part = shaping.kept if self._includes else shaping.rest
        return self._changed(part(body, self._tree), document.body, ordered)

    def _changed(self, result: dict[str, Any], body: dict[str, Any], ordered: bool) -> Any:
        for path, rule in self.entries:
            match rule:
                case Slice():
                    result = shaping.with_slice(result, path.keys, rule)
                case Element():
                    found = shaping.element(rule, body, ordered=ordered)
                    if found is None:
                        result.pop(path.keys[0], None)
                    else:
                        result[path.keys[0]] = found
        return result


def _narrowed(
    document: Document, keys: tuple[str, ...], filter: Filter, ordered: bool
) -> dict[str, Any]:
    """Return the body with one element left of the first array on a path."""
    body: dict[str, Any] = document.body
    array = shaping.first_array(body, keys)
    if array is None:
        return body
    index = position(filter.condition, document, array, ordered=ordered)

    def only(elements: list[Any]) -> list[Any]:
        if index is None or index >= len(elements):
            place = f"{'.'.join(keys)}.$"
            raise InvalidProjection(
                place, f"the filter met no element of it in {shortened(document.id)}"
            )
        return [elements[index]]

    return shaping.with_change(body, array, only)


def _name(path: Path) -> str | Path:
    """Return the text that is read as the path, or the path where none is."""
    has_dollar = any(key.startswith("$") for key in path.keys)
    return path if has_dollar or Path.parse(str(path)) != path else str(path)


def _spelled(name: str | Path, rule: Rule) -> tuple[str | Path, Any]:
    match rule:
        case Keep():
            return name, 1
        case Drop():
            return name, 0
        case Met():
            return f"{name}.$", 1
        case Slice(None, limit):
            return name, {"$slice": limit}
        case Slice(skip, limit):
            return name, {"$slice": [skip, limit]}
        case Element(condition):
            return name, next(iter(to_json(condition).values()))


__all__ = ["ID", "Projection"]
