"""Projections: which parts of a body to return, parsed into values.

The rules are those of MongoDB's server since 4.4:

1. A projection names either the fields to return (an inclusion) or the fields to leave out (an exclusion). `$slice`
   alone leaves the rest of the body, `$elemMatch` alone is an inclusion.
2. An inclusion returns the body's field `_id`, if present and not excluded.
3. A path goes through arrays, and through arrays in arrays. A number is the key of an object in an array, never an
   index. An inclusion drops elements that are not objects, an exclusion retains them.
4. Fields retain their stored order; the result of `$elemMatch` comes last in an inclusion.
5. A body that is no object has no fields: an inclusion makes it {}, an exclusion leaves it.
6. `field.$` returns the element of the outermost array on a condition's path that met the condition; an index in the
   path is not counted. Of several conditions on the array's path the last counts, in the server's order of evaluation
   (`EVALUATED`), not in the written order. Branches of `$nor` and `$not` have no such element, nor have branches of an
   `$or`, unless all branches are about one path.

Nothing here changes a body; results share unchanged parts with the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, TypeAlias

from ..codec import Codec
from ..document import NO_TEXT, TEXT_SCORE, Document, metadatum, with_other_body
from ..errors import InvalidFilter, InvalidProjection, cut, shortened
from ..expressions.classes import value_class
from ..expressions.path import Path, field_name, is_index, path_repr
from ..expressions.values import is_number
from .conditions import (
    WHOLE_ARRAY_TESTS,
    And,
    Bits,
    Compare,
    Condition,
    Equals,
    Exists,
    Fails,
    Field,
    HasElement,
    HasObject,
    HasSize,
    HasType,
    Matches,
    Metadata,
    Modulo,
    Not,
    OneOf,
    Or,
    Passes,
    Test,
    holds_text,
    scalars_of,
)
from .filter import Filter, paths_in, to_json
from .index import every_conjunct
from .matcher import holds, passes, values_at
from .parser import FilterParser


@value_class(eq=True)
class Include:
    """Return the field."""


@value_class(eq=True)
class Exclude:
    """Leave out the field."""


@value_class(eq=True)
class Positional:
    """Return of the first array on the path only the element that met the filter (`field.$`)."""


@value_class(eq=True)
class Slice:
    """Return some elements of the array (`$slice`): `limit` after `skip`. A negative `skip`, or a negative `limit`
    without `skip`, counts from the end.
    """

    skip: int | None
    limit: int

    def of(self, array: list[object]) -> list[object]:
        if self.skip is None:
            return array[self.limit :] if self.limit < 0 else array[: self.limit]
        start = max(0, len(array) + self.skip) if self.skip < 0 else self.skip
        return array[start : start + self.limit]


@value_class(eq=True)
class Element:
    """Return the first element of the array that passes (`$elemMatch`); `condition` is on the field."""

    condition: Condition


@value_class(eq=True)
class Score:
    """Return the score of the `$text` in the filter (`{"$meta": "textScore"}`)."""


Rule: TypeAlias = Include | Exclude | Positional | Slice | Element | Score
Entry: TypeAlias = tuple[Path, Rule]
Tree: TypeAlias = "dict[str, Tree | Rule]"

ID: Final = Path("_id")
PARSED: Final = 128
"""Lists of fields whose projections are remembered."""


def is_inclusion(entries: tuple[Entry, ...]) -> bool:
    """Return whether a projection names the fields to return; `_id` alone decides last."""
    kinds = {type(rule) for _, rule in entries}
    named = {type(rule) for path, rule in entries if path != ID}
    if Positional in kinds or Include in named:
        return True
    if Exclude in named:
        return False
    return Include in kinds or (Element in kinds and Slice not in kinds)


def tree_of(entries: tuple[Entry, ...]) -> Tree:
    """Return the rules in a tree by the keys of their paths; raises `InvalidProjection` where two paths overlap."""
    tree: Tree = {}
    for path, rule in entries:
        if not path.keys:
            raise InvalidProjection("", "must name a field within the body, got Path()")
        here, (*above, last) = tree, path.keys
        for key in above:
            below = here.setdefault(key, {})
            if not isinstance(below, dict):
                raise InvalidProjection(str(path), "another path names a field around it")
            here = below
        if last in here:
            raise InvalidProjection(str(path), "another path names this field, or one in it")
        here[last] = rule
    return tree


# -- parsing -----------------------------------------------------------------------------------

_MAX_SLICE: Final = 2**31 - 1


def _entries(
    document: Mapping[Any, Any], above: tuple[str, ...], position: str, codec: Codec
) -> Iterator[Entry]:
    for given, value in document.items():
        key = field_name(given)
        here = f"{position}.{key}" if position else str(key)
        path, positional = _path(key, above, here)
        if positional and (isinstance(value, Mapping) or value in (0, False)):
            raise InvalidProjection(here, "goes with 1 only")
        if isinstance(value, Mapping):
            first = next(iter(value), None)
            if first is None:
                raise InvalidProjection(here, "must name a field, got an empty document")
            if isinstance(first, str) and first.startswith("$"):
                yield path, _operator(path, value, here, codec)
            else:
                yield from _entries(value, path.keys, here, codec)
        elif isinstance(value, bool | int | float):
            yield path, Positional() if positional else Include() if value else Exclude()
        else:
            problem = f"must be 1 or 0, got {shortened(value)}; computed values are not supported"
            raise InvalidProjection(here, problem)


def _path(key: Any, above: tuple[str, ...], position: str) -> tuple[Path, bool]:
    """Return the path of a key, and whether `.$` ends the key; a `Path` stays unchanged."""
    keys = key.keys if isinstance(key, Path) else tuple(_name(key).split("."))
    positional = not isinstance(key, Path) and len(keys) > 1 and keys[-1] == "$"
    if positional:
        keys = keys[:-1]
    if not isinstance(key, Path) and any(each.startswith("$") for each in keys):
        problem = "`$` stands at the end of a path; a key of the body that begins with it: "
        raise InvalidProjection(position, problem + cut(path_repr(keys)))
    try:
        return Path(*above, *keys), positional
    except InvalidFilter as error:
        raise InvalidProjection(position, error.problem) from error


def _operator(path: Path, document: Mapping[str, Any], position: str, codec: Codec) -> Rule:
    operator, *others = document
    here, operand = f"{position}.{operator}", document[operator]
    if others:
        raise InvalidProjection(here, "must be the only operator, and without fields")
    if operator == "$slice":
        return _slice(operand, here)
    if operator not in {"$elemMatch", "$meta"}:
        raise InvalidProjection(here, "no such operator; there are $slice, $elemMatch and $meta")
    if len(path.keys) > 1:
        raise InvalidProjection(here, "must be on a field at the top of the body")
    if operator == "$meta":
        if operand != TEXT_SCORE:
            raise InvalidProjection(here, f"must be {TEXT_SCORE!r}, got {shortened(operand)}")
        return Score()
    try:
        return Element(FilterParser(codec).operators(path, {"$elemMatch": operand}, str(path)))
    except InvalidFilter as error:
        raise InvalidProjection(error.place, error.problem) from error


def _slice(operand: Any, position: str) -> Slice:
    pair = operand if isinstance(operand, list | tuple) else [None, operand]
    if len(pair) != 2:
        problem = f"must be a number, or two: [skip, limit], got {shortened(operand)}"
        raise InvalidProjection(position, problem)
    skip = None if pair[0] is None and pair is not operand else _number(pair[0], position)
    limit = _number(pair[1], position)
    if skip is not None and limit <= 0:
        raise InvalidProjection(position, f"the limit must be greater than 0, got {limit}")
    return Slice(skip, limit)


def _number(value: Any, position: str) -> int:
    """Return a number truncated toward zero, and limited to 32 bits, as MongoDB does."""
    if not is_number(value) or value != value:  # noqa: PLR0124 - NaN
        raise InvalidProjection(position, f"must be a number, got {shortened(value)}")
    return int(max(-_MAX_SLICE, min(value, _MAX_SLICE)))


def _check_together(entries: tuple[Entry, ...]) -> None:
    kinds = [type(rule) for _, rule in entries]
    if kinds.count(Positional) > 1:
        raise InvalidProjection("", "only one path may end in `.$`: the filter meets one element")
    if Positional in kinds and Element in kinds:
        raise InvalidProjection("", "a path that ends in `.$` and $elemMatch do not go together")
    seen: type | None = None
    for path, rule in entries:
        if path == ID and isinstance(rule, Include | Exclude):
            continue
        kind = {Include: Include, Positional: Include, Exclude: Exclude}.get(type(rule), seen)
        if seen is not None and kind is not seen:
            problem = "all fields must be 1, or all 0; only _id may differ"
            raise InvalidProjection(str(path), problem)
        seen = kind


def _name(field: Any) -> Any:
    name = field_name(field)
    if isinstance(name, str | Path):
        return name
    raise InvalidProjection(shortened(field), f"a field must be a string, got {shortened(field)}")


# -- applying ----------------------------------------------------------------------------------


def included(value: Any, tree: Tree) -> Any:
    """Return the parts of a value that the tree names. Elements of arrays without fields are dropped."""
    if isinstance(value, list):
        return [included(each, tree) for each in value if isinstance(each, dict | list)]
    result = {}
    for key in [each for each in value if each in tree]:
        rule, inner = tree[key], value[key]
        if type(rule) is Include:
            result[key] = inner
        elif isinstance(rule, dict):
            if isinstance(inner, dict | list):
                result[key] = included(inner, rule)
        elif not isinstance(rule, Exclude | Element):
            result[key] = inner
    return result


def remaining(value: Any, tree: Tree) -> Any:
    """Return a value without the excluded parts."""
    if isinstance(value, list):
        return [remaining(each, tree) for each in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for key, rule in tree.items():
        if key not in value:
            continue
        if isinstance(rule, dict):
            result[key] = remaining(value[key], rule)
        elif isinstance(rule, Exclude):
            del result[key]
    return result


def with_slice(value: Any, keys: tuple[str, ...], slice: Slice) -> Any:
    """Return a value with the arrays at `keys` sliced, arrays along the path one level deep."""
    if not isinstance(value, dict) or keys[0] not in value:
        return value
    key, *others = keys
    inner, below = value[key], tuple(others)
    if isinstance(inner, list):
        inner = [with_slice(each, below, slice) for each in inner] if below else slice.of(inner)
    elif below:
        inner = with_slice(inner, below, slice)
    return {**value, key: inner}


def _narrowed(document: Document, keys: tuple[str, ...], filter: Filter, ordered: bool) -> Any:
    """Return the body with one element left of the first array on a path of objects."""
    value, above = document.body, []
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return document.body
        above.append((value, key))
        value = value[key]
        if isinstance(value, list):
            break
    else:
        return document.body
    index = matched_index(filter.condition, document, keys[: len(above)], ordered=ordered)
    if index is None or index >= len(value):
        problem = f"the filter met no element of it in {shortened(document.id)}"
        raise InvalidProjection(f"{'.'.join(keys)}.$", problem)
    body: Any = [value[index]]
    for outer, key in reversed(above):
        body = {**outer, key: body}
    return body


# -- the element that met the filter -----------------------------------------------------------


def matched_index(
    condition: Condition, document: Document, array: tuple[str, ...], *, ordered: bool
) -> int | None:
    """Return the index of the element of the array at `array` that met the condition."""
    any_index = index = None
    for path, found in _met(condition, document, ordered):
        any_index = found
        if path.keys[: len(array)] == array:
            index = found
    return any_index if index is None else index


EVALUATED: Final = (
    "$and", "$or", HasObject, HasElement, HasSize, Equals, "$lte", "$lt", "$gt", "$gte", Matches, Modulo, Exists,
    OneOf, "$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear", "$not", HasType,
)  # fmt: skip
"""The order in which MongoDB's server evaluates the conditions of a filter (`MatchExpression::sortTree`, 2.6 to 8.2); of one
kind, by their paths.
"""


def _evaluated(node: Condition | Test, path: str = "") -> tuple[int, str, list[Any]]:
    """Return the sort key of a condition among the conditions of a filter: kind, path, and inner conditions."""
    kind: Any = type(node)
    parts: list[Any] = []
    match node:
        case Field(its, test):
            return _evaluated(test, ".".join(its.keys))
        case OneOf((only,)) if len(scalars_of(only)) == 1:
            kind = Equals
        case Or(branches) if node.single or all(map(_is_equality, branches)):
            kind = OneOf
        case And(conditions):
            kind, parts = "$and", sorted(map(_evaluated, conditions))
        case HasObject(condition):
            parts = [_evaluated(condition)]
        case HasElement(tests):
            parts = sorted(map(_evaluated, tests))
        case Compare(operator) | Bits(operator):
            kind = operator
        case Or() | Passes():
            kind = "$or"
        case Not() | Fails():
            kind = "$not"
    return EVALUATED.index(kind) if kind in EVALUATED else len(EVALUATED), path, parts


def _is_equality(condition: Condition) -> bool:
    return isinstance(condition, Field) and isinstance(condition.test, Equals | OneOf | Matches)


def _met(condition: Condition, document: Document, ordered: bool) -> Iterator[tuple[Path, int]]:
    """Yield the paths of the necessary conditions, and the indexes that met them."""
    match condition:
        case Field(path):
            index = _index(condition, document.body, ordered)
            if index is not None:
                yield path, index
        case And():
            for each in sorted(every_conjunct(condition), key=_evaluated):
                yield from _met(each, document, ordered)
        case Or(single=True):
            parts = condition.as_one()
            yield from () if isinstance(parts, Metadata) else _met(parts, document, ordered)
        case Or(branches) if len(set(paths_in(condition))) == 1:
            held = (each for each in branches if holds(each, document, ordered=ordered))
            found = [list(_met(each, document, ordered))[-1:] for each in held]
            yield from sorted(chain(*found), key=lambda pair: pair[1])[:1]


def _index(field: Field, body: Any, ordered: bool) -> int | None:
    keys, test = field.path.keys, field.test
    if keys and not isinstance(body, dict):
        return None
    value = body
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            return _index_in(value, keys[depth:], test, ordered)
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    if isinstance(value, list) and not isinstance(test, WHOLE_ARRAY_TESTS):
        for index, each in enumerate(value):
            if passes(test, each, ordered=ordered):
                return index
    return _index_within(test, value, ordered)


def _index_in(array: list[Any], keys: tuple[str, ...], test: Test, ordered: bool) -> int | None:
    """Return the index of the first element that passes at the rest of a path."""
    leaf = not isinstance(test, WHOLE_ARRAY_TESTS)
    for index, element in enumerate(array):
        found = values_at(element, keys, leaf=leaf) if isinstance(element, dict) else ()
        if any(passes(test, each, ordered=ordered) for each in found):
            return index
    if not is_index(keys[0]) or int(keys[0]) >= len(array):
        return None
    named, rest = array[int(keys[0])], keys[1:]
    if not rest:
        return _index_within(test, named, ordered)
    if isinstance(named, list):
        return _index_in(named, rest, test, ordered)
    return _index(Field(Path(*rest), test), named, ordered)


def _index_within(test: Test, value: Any, ordered: bool) -> int | None:
    """Return the index of the element of a value that passed `$elemMatch`."""
    if not isinstance(test, HasElement | HasObject) or not passes(test, value, ordered=ordered):
        return None
    return next(i for i, each in enumerate(value) if passes(test, [each], ordered=ordered))


# -- projections -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Projection:
    """The parts of a body to return.

    >>> print(Projection.parse(["name", "address.city"]))
    {'name': 1, 'address.city': 1}
    >>> city = Document("berlin", {"name": "Berlin", "rivers": ["Spree", "Havel", "Panke"]})
    >>> Projection.parse({"rivers": {"$slice": -1}}).apply(city, Filter()).body
    {'name': 'Berlin', 'rivers': ['Panke']}
    """

    entries: tuple[Entry, ...]
    _tree: dict[str, Any] = field(init=False, compare=False, repr=False)
    _includes: bool = field(init=False, compare=False, repr=False)
    names_fields_only: bool = field(init=False, compare=False, repr=False)
    """Whether it names fields only, and so depends on nothing but the body."""

    def __post_init__(self) -> None:
        entries: Any = self.entries
        if type(entries) is not tuple or not all(
            type(each) is tuple and len(each) == 2 and isinstance(each[0], Path) for each in entries
        ):
            raise InvalidProjection("", "must be pairs of Path and rule: use Projection.parse")
        includes, tree = is_inclusion(self.entries), tree_of(self.entries)
        if includes:
            tree.setdefault("_id", Include())
        names_fields_only = all(isinstance(rule, Include | Exclude) for _, rule in self.entries)
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "_includes", includes)
        object.__setattr__(self, "names_fields_only", names_fields_only)

    @classmethod
    def parse(cls, what: Any, codec: Codec = Codec()) -> Projection:  # noqa: B008 - it is frozen
        """Read a projection document, a list of fields, or a `Projection`; raises `InvalidProjection`."""
        if isinstance(what, Projection):
            return what
        if isinstance(what, list | tuple):
            if all(type(each) is str for each in what):
                return _of_fields(tuple(what))
            what = dict.fromkeys(map(_name, what), 1)
        if not isinstance(what, Mapping):
            problem = f"must be a document or a list of fields, got {shortened(what)}"
            raise InvalidProjection("", problem)
        entries = tuple(_entries(what, (), "", codec))
        _check_together(entries)
        return cls(entries)

    @property
    def has_score(self) -> bool:
        """Whether a field is the score of a `$text`."""
        return any(isinstance(rule, Score) for _, rule in self.entries)

    def check(self, filter: Filter, *, scored: bool = False) -> None:
        """Raise `InvalidProjection` for a `field.$` without a condition in `filter`, and for a score of documents that
        are not `scored`.
        """
        for path, rule in self.entries:
            if isinstance(rule, Score) and not (scored and holds_text(filter.condition)):
                problem = (
                    NO_TEXT if scored else f"{TEXT_SCORE} is for find, find_one and aggregate only"
                )
                raise InvalidProjection(f"{path}.$meta", problem)
            if isinstance(rule, Positional):
                tops = {each.keys[:1] for each in paths_in(filter.condition)}
                if path.keys[:1] not in tops:
                    raise InvalidProjection(
                        f"{path}.$", "the filter must have a condition on the field"
                    )

    def apply(self, document: Document, filter: Filter, *, ordered: bool = True) -> Document:
        """Return the document with the projected body.

        `field.$` needs the `filter` that found the document, and raises `InvalidProjection` where no element met the
        filter. `ordered`: whether objects with another key order differ.
        """
        return with_other_body(document, self._parts(document, filter, ordered))

    def to_json(self) -> dict[Any, Any]:
        """Return the projection document. Keys are strings; a field whose keys hold a dot or begin with `$` is a
        `Path`.
        """
        return dict(_as_json(path, rule) for path, rule in self.entries)

    def __str__(self) -> str:
        return str(self.to_json())

    def _parts(self, document: Document, filter: Filter, ordered: bool) -> Any:
        body = document.body
        if not isinstance(body, dict):
            return {} if self._includes else body
        others = () if self.names_fields_only else self.entries
        for path, rule in others:
            if isinstance(rule, Positional):
                self.check(filter)
                body = _narrowed(document, path.keys, filter, ordered)
        result = included(body, self._tree) if self._includes else remaining(body, self._tree)
        for path, rule in others:
            key = path.keys[0]
            match rule:
                case Slice():
                    result = with_slice(result, path.keys, rule)
                case Score():
                    result[key] = metadatum(document, TEXT_SCORE)
                case Element(Field(_, test)):
                    array = document.body.get(key)
                    elements = array if isinstance(array, list) else ()
                    found = (each for each in elements if passes(test, [each], ordered=ordered))
                    result[key] = list(islice(found, 1))
                    if not result[key]:
                        del result[key]
        return result


@lru_cache(maxsize=PARSED)
def _of_fields(names: tuple[str, ...]) -> Projection:
    """Return the projection on fields. Calls repeat the same fields, and parsing takes longer than reading a document."""
    return Projection.parse(dict.fromkeys(names, 1))


def _as_json(path: Path, rule: Rule) -> tuple[str | Path, Any]:
    has_dollar = any(key.startswith("$") for key in path.keys)
    name = path if has_dollar or Path.parse(str(path)) != path else str(path)
    match rule:
        case Include():
            return name, 1
        case Exclude():
            return name, 0
        case Positional():
            return f"{name}.$", 1
        case Score():
            return name, {"$meta": TEXT_SCORE}
        case Slice(None, limit):
            return name, {"$slice": limit}
        case Slice(skip, limit):
            return name, {"$slice": [skip, limit]}
        case Element(condition):
            return name, next(iter(to_json(condition).values()))
