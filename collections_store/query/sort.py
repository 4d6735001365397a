"""Sort orders: MongoDB's, over values of every type.

The rules are the rules of the server's index keys:

1. Types come in the order: empty array, null and missing, numbers, strings (by code point), objects, arrays, booleans
   (false first).
2. An array, also along the path, sorts by its smallest element when ascending, by its largest when descending. A
   number as a key leads into the element at that index.
3. Fields that lead through the same array are taken from the same element.
4. Equal documents remain in natural order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from functools import cmp_to_key, partial
from typing import Any, Final, Literal, TypeAlias

from ..document import TEXT_SCORE, Document, metadatum
from ..errors import InvalidFilter, InvalidSort, shortened
from ..expressions.budget import spend
from ..expressions.collation import Collation, Collator, Ordered, under
from ..expressions.path import FieldLike, Path, field_name, walk
from ..expressions.values import MISSING, RANKS, compare, is_number
from .conditions import Target, read_target

Key: TypeAlias = tuple[int, Any]
"""A rank, and a value that orders within the rank."""

EMPTY: Final = 0
NULL: Final = RANKS[type(None)]
NUMBER: Final = RANKS[int]
STRING: Final = RANKS[str]
OBJECT: Final = RANKS[dict]
ARRAY: Final = RANKS[list]
FALSE: Final = RANKS[bool]
TRUE: Final = FALSE + 1
MAX_FIELDS: Final = 32
"""MongoDB's limit."""


@dataclass(frozen=True, slots=True)
class SortField:
    """A field of the body or of the metadata, and the direction."""

    target: Target | Literal["textScore"]
    descending: bool = False

    @property
    def name(self) -> str:
        """The field in the syntax of a filter."""
        if isinstance(self.target, str):
            return f"${self.target}"
        return "$body" if self.target == Path() else str(self.target)


@dataclass(frozen=True, slots=True)
class Sort:
    """The fields to sort by, the most significant first. Without fields: natural order.

    >>> Sort.parse({"age": -1, "name": 1}) == Sort.parse([("age", -1), "name"])
    True
    >>> print(Sort.parse({"age": -1, "name": 1}))
    {'age': -1, 'name': 1}
    """

    fields: tuple[SortField, ...] = ()
    collation: Collation | None = attribute(default=None, init=False)
    """How strings compare; None: by code point. Keys of strings are then keys of the collation."""

    def __post_init__(self) -> None:
        fields: Any = self.fields
        if type(fields) is not tuple or not all(isinstance(each, SortField) for each in fields):
            raise InvalidSort("", "must be a tuple of SortField: use Sort.parse")

    @classmethod
    def parse(cls, what: Any = None, *, scored: bool = False) -> Sort:
        """Read pymongo's forms: a field (ascending), a list of fields and (field, direction) pairs,
        or a mapping of fields to directions, 1 or -1. Raises `InvalidSort`.

        `scored`: a direction may be `{"$meta": "textScore"}`, which is the score of a `$text`, highest first.
        """
        if what is None:
            return NATURAL
        if isinstance(what, Sort):
            if not scored and what.by_score:
                raise InvalidSort("$meta", _NOT_SCORED)
            return what
        fields = tuple(_field(name, direction, scored) for name, direction in field_pairs(what))
        for number, field in enumerate(fields):
            if any(field.target == other.target for other in fields[:number]):
                raise InvalidSort(field.name, "sorts twice")
        if len(fields) > MAX_FIELDS:
            problem = f"there must be {MAX_FIELDS} fields at most, got {len(fields)}"
            raise InvalidSort(fields[MAX_FIELDS].name, problem)
        return cls(fields)

    def keys(self, document: Document, *, ordered: Ordered = True) -> tuple[Key, ...]:
        """Return the key of each field, whatever its direction."""
        spend()
        if self.collation is not None:
            ordered = under(self.collation, ordered)
        keys = [_plain_key(document, field.target) for field in self.fields]
        if type(ordered) is Collator:
            keys = [key and (key[0], ordered.keyed(key[1])) for key in keys]
        if None in keys:
            fields: Any = enumerate(self.fields)
            routes = [(n, f.target.keys, f.descending) for n, f in fields if keys[n] is None]
            for number, (key, _) in _below(document.body, routes, ordered).items():
                keys[number] = key
        return tuple(keys)  # type: ignore[arg-type] # none is left

    def key(self, document: Document, *, ordered: Ordered = True) -> Any:
        """Return a sort key of documents; `ordered`: whether the order of an object's keys counts."""
        return self.comparable(self.keys(document, ordered=ordered), ordered=ordered)

    def comparable(self, keys: Sequence[Key], *, ordered: Ordered = True) -> tuple[Any, ...]:
        """Return `keys` in a form that compares by the directions of the fields."""
        pairs = zip(keys, self.fields, strict=True)
        return tuple(_directed(key, field.descending, ordered) for key, field in pairs)

    def collated(self, collation: Collation | None) -> Sort:
        """Return the order of the same fields under a collation."""
        if collation is None or not self.fields:
            return self
        sort = Sort(self.fields)
        object.__setattr__(sort, "collation", collation)
        return sort

    def __bool__(self) -> bool:
        return bool(self.fields)

    def __str__(self) -> str:
        return str({field.name: _direction(field) for field in self.fields})

    @property
    def by_score(self) -> bool:
        """Whether a field is the score of a `$text`."""
        return any(field.target == TEXT_SCORE for field in self.fields)


NATURAL: Final = Sort()
BY_SCORE: Final = {"$meta": TEXT_SCORE}
_NOT_SCORED: Final = f"{TEXT_SCORE} orders find, find_one and aggregate only"
SortLike: TypeAlias = Sort | Mapping[Any, Any] | Sequence[Any] | FieldLike
"""What `Sort.parse` reads; a string is a sequence."""

_COMPOSITE: Final = {each: cmp_to_key(partial(compare, ordered=each)) for each in (True, False)}


def _against(left: Any, right: Any) -> int:
    return int(left < right) - int(left > right)


_REVERSED: Final = cmp_to_key(_against)

_Route: TypeAlias = tuple[int, tuple[str, ...], bool]
"""The number of a field, the keys that remain of its path, and whether it is descending."""
_Found: TypeAlias = dict[int, tuple[Key, bool]]


def key_of(value: Any, ordered: Ordered = True) -> Key:
    """Return the key of a value, an array as a whole."""
    if value is None or value is MISSING:
        return NULL, 0
    if isinstance(value, bool):
        return (TRUE if value else FALSE), 0
    if ordered is not True and type(ordered) is Collator:
        value = ordered.keyed(value)
    return RANKS[type(value)], value


def _plain_key(document: Document, target: Path | str) -> Key | None:
    """Return the key of a field; None: an element of an array counts."""
    if isinstance(target, str):
        return key_of(metadatum(document, target))
    value = document.body
    if target.keys and type(value) is not dict:
        return NULL, 0
    for key in target.keys:
        if type(value) is not dict:
            return None if isinstance(value, list) else (NULL, 0)
        value = value.get(key)
    return None if isinstance(value, list) else key_of(value)


def _below(value: Any, routes: list[_Route], ordered: Ordered) -> _Found:
    """Return the keys at the end of the routes from `value`; routes through one array take the same element."""
    found: _Found = {}
    arrays: dict[int, tuple[list[Any], list[_Route]]] = {}
    for number, keys, descending in routes:
        reached, rest = walk(value, keys)
        if isinstance(reached, list):
            arrays.setdefault(id(reached), (reached, []))[1].append((number, rest, descending))
        else:
            found[number] = key_of(MISSING if rest else reached, ordered), descending
    for array, through in arrays.values():
        found.update(_first(array, through, ordered))
    return found


def _first(array: list[Any], routes: list[_Route], ordered: Ordered) -> _Found:
    """Return the keys of the first element, by the directions of the routes."""
    if not array:
        return {n: ((NULL if rest else EMPTY, 0), down) for n, rest, down in routes}
    every = (_from_element(element, routes, ordered) for element in array)
    return min(every, key=lambda found: _comparable(found, ordered))


def _from_element(element: Any, routes: list[_Route], ordered: Ordered) -> _Found:
    found: _Found = {n: (key_of(element, ordered), down) for n, rest, down in routes if not rest}
    on = [route for route in routes if route[1]]
    if isinstance(element, dict):
        found.update(_below(element, on, ordered))
    else:
        found.update({n: (key_of(MISSING), down) for n, _, down in on})
    return found


def _comparable(found: _Found, ordered: Ordered) -> list[Any]:
    return [_directed(*found[number], ordered) for number in sorted(found)]


def _directed(key: Key, descending: bool, ordered: Ordered) -> Any:
    if key[0] in {OBJECT, ARRAY}:
        key = key[0], _COMPOSITE[bool(ordered)](key[1])
    return _REVERSED(key) if descending else key


def field_pairs(what: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the fields and directions of a caller's sort; raise `InvalidSort`."""
    if isinstance(what, FieldLike):
        yield what, 1
    elif isinstance(what, Mapping):
        yield from what.items()
    elif isinstance(what, list | tuple):
        for each in what:
            if isinstance(each, FieldLike):
                yield each, 1
            elif isinstance(each, list | tuple) and len(each) == 2:
                yield each[0], each[1]
            else:
                problem = "must be a field, or a pair of field and direction, got "
                raise InvalidSort("", problem + shortened(each))
    else:
        problem = "must be a field, pairs of field and direction, or a mapping, got "
        raise InvalidSort("", problem + shortened(what))


def _direction(field: SortField) -> Any:
    return BY_SCORE if field.target == TEXT_SCORE else -1 if field.descending else 1


def _is_score(direction: Any) -> bool:
    """Return whether a direction is `BY_SCORE`. A value of a caller may not compare."""
    if not isinstance(direction, Mapping) or [*direction] != ["$meta"]:
        return False
    given = direction["$meta"]
    return isinstance(given, str) and given == TEXT_SCORE


def _field(name: Any, direction: Any, scored: bool) -> SortField:
    name = field_name(name)
    if not isinstance(name, str | Path):
        raise InvalidSort(shortened(name), f"a field must be a string, got {shortened(name)}")
    if _is_score(direction):
        if not scored:
            raise InvalidSort(str(name), _NOT_SCORED)
        return SortField(TEXT_SCORE, True)
    if not is_number(direction) or direction not in {1, -1}:
        raise InvalidSort(str(name), f"the direction must be 1 or -1, got {shortened(direction)}")
    try:
        return SortField(read_target(name, InvalidSort), direction < 0)
    except InvalidFilter as error:  # of a path
        raise InvalidSort(str(name), error.problem) from None
