"""Projections: which parts of a body to return, parsed into values.

The rules are those of MongoDB's server since 4.4:

1. A projection names either the fields to return (an inclusion) or the fields to leave out (an exclusion). `$slice`
   alone leaves the rest of the body, `$elemMatch` alone is an inclusion.
2. An inclusion returns the body's field `_id`, if present and not excluded.
3. A path goes through arrays, and through arrays in arrays. A number is the key of an object in an array, never an
   index. An inclusion drops elements that are not objects, an exclusion retains them.
4. Fields retain their stored order; the result of `$elemMatch` counts as a computed field.
5. A body that is no object has no fields: an inclusion makes it {}, an exclusion leaves it.
6. `field.$` returns the element of an array that met the filter (`matched`).
7. A computed field is an expression over the stored body, as in `$project`, and makes the projection an inclusion.
   ComputedField fields come last, in the order of the projection.

Nothing here changes a body; results share unchanged parts with the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias

from ..codec import Codec, decode
from ..document import NO_TEXT, TEXT_SCORE, Document, now, with_other_body
from ..errors import (
    InvalidBody,
    InvalidFilter,
    InvalidOperand,
    InvalidProjection,
    cut,
    shortened,
)
from ..expressions.classes import value_class
from ..expressions.collation import Collation, Ordered, under
from ..expressions.evaluation import NO_VARIABLES, Scope
from ..expressions.fields import NAMED, Tree, added, computed, excluded, included, tree_of
from ..expressions.nodes import Meta, Node, at_time, nodes_of
from ..expressions.parser import ExpressionParser
from ..expressions.path import Path, field_name, path_repr
from ..expressions.values import MISSING, is_number
from .conditions import Field, holds_text
from .filter import Filter, paths_in, to_json
from .matched import matched_index
from .matcher import passes
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
class Element(Node):
    """Return the first element of the array that passes (`$elemMatch`); `condition` is on the field."""

    condition: Field
    is_checked: ClassVar[bool] = True

    def evaluate(self, scope: Scope) -> Any:
        body, test = scope.row.body, self.condition.test
        array = body.get(self.condition.path.keys[0]) if isinstance(body, dict) else None
        for each in array if isinstance(array, list) else ():
            if passes(test, [each], ordered=scope.ordered):
                return [each]
        return MISSING


@value_class(eq=True)
class ComputedField(Node):
    """Return the value of an expression; `text` is its JSON, `place` its field in the projection."""

    text: str
    place: str = field(compare=False)
    expression: Node = field(compare=False, repr=False)
    is_checked: ClassVar[bool] = True

    def evaluate(self, scope: Scope) -> Any:
        try:
            return computed(self.expression, scope)
        except InvalidOperand as error:
            raise InvalidOperand(
                error.operator, error.problem, error.found, self.place, "projection"
            ) from None


Rule: TypeAlias = Include | Exclude | Positional | Slice | Element | Meta | ComputedField
Part: TypeAlias = tuple[Path, Rule]

ID: Final = Path("_id")
PARSED: Final = 128
"""Lists of fields whose projections are remembered."""


def is_inclusion(entries: tuple[Part, ...]) -> bool:
    """Return whether a projection names the fields to return; `_id` alone decides last."""
    kinds = {type(rule) for _, rule in entries}
    named = {type(rule) for path, rule in entries if path != ID}
    if {Positional, ComputedField} & kinds or Include in named:
        return True
    if Exclude in named:
        return False
    return Include in kinds or (Element in kinds and Slice not in kinds)


_INCLUDED: Final = (Include, Positional, Slice, Node)
_EXCLUDED: Final = (Exclude,)


def _tree(entries: tuple[Part, ...], kinds: tuple[type, ...]) -> Tree:
    """Return the fields whose rules are of some kinds: `Node`s compute themselves."""
    leaves = (
        (
            path.keys,
            (rule if isinstance(rule, Node) else NAMED) if isinstance(rule, kinds) else None,
            path,
        )
        for path, rule in entries
    )
    return tree_of(leaves, InvalidProjection)


# -- parsing -----------------------------------------------------------------------------------

_MAX_SLICE: Final = 2**31 - 1


def _entries(
    document: Mapping[Any, Any],
    above: tuple[str, ...],
    position: str,
    codec: Codec,
    variables: frozenset[str],
) -> Iterator[Part]:
    for given, value in document.items():
        key = field_name(given)
        here = f"{position}.{key}" if position else str(key)
        path, positional = _path(key, above, here)
        is_flag = isinstance(value, bool | int | float)
        if positional and not (is_flag and value):
            raise InvalidProjection(here, "goes with 1 only")
        if is_flag:
            yield path, Positional() if positional else Include() if value else Exclude()
        elif isinstance(value, Mapping):
            first = next(iter(value), None)
            if first is None:
                raise InvalidProjection(here, "must name a field, got an empty document")
            if isinstance(first, str) and first.startswith("$"):
                yield path, _operator(path, value, here, codec, variables)
            else:
                yield from _entries(value, path.keys, here, codec, variables)
        else:
            yield path, _computed(value, here, codec, variables)


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


def _operator(
    path: Path,
    document: Mapping[str, Any],
    position: str,
    codec: Codec,
    variables: frozenset[str],
) -> Rule:
    operator, *others = document
    here, operand = f"{position}.{operator}", document[operator]
    if others:
        raise InvalidProjection(here, "must be the only operator, and without fields")
    if operator == "$slice" and not _is_expression(operand):
        return _slice(operand, here)
    if operator not in {"$elemMatch", "$meta"}:
        return _computed(document, position, codec, variables)
    if len(path.keys) > 1:
        raise InvalidProjection(here, "must be on a field at the top of the body")
    if operator == "$meta":
        if operand != TEXT_SCORE:
            raise InvalidProjection(here, f"must be {TEXT_SCORE!r}, got {shortened(operand)}")
        return Meta(TEXT_SCORE)
    try:
        found: Any = FilterParser(codec).operators(path, {"$elemMatch": operand}, str(path))
        return Element(found)
    except InvalidFilter as error:
        raise InvalidProjection(error.place, error.problem) from error


def _computed(
    expression: Any, position: str, codec: Codec, variables: frozenset[str]
) -> ComputedField:
    try:
        text = codec.encode(expression)
    except InvalidBody as error:
        where = f"{position}.{error.path}" if error.path else position
        raise InvalidProjection(where, error.problem) from error
    parser, plain = ExpressionParser(InvalidProjection, variables), decode(text)
    parser.scores = []
    parser.check_nesting(plain, position)
    return ComputedField(text, position, parser.parse(plain, position))


def _is_expression(operand: Any) -> bool:
    """Return whether the operand of `$slice` is that of the expression, which has an array and one or two numbers."""
    return (
        isinstance(operand, list | tuple)
        and bool(operand)
        and isinstance(operand[0], str | list | Mapping)
    )


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


_KINDS: Final[dict[type, type]] = {
    Include: Include, Positional: Include, ComputedField: Include, Exclude: Exclude,
}  # fmt: skip


def _check_together(entries: tuple[Part, ...]) -> None:
    kinds = [type(rule) for _, rule in entries]
    if kinds.count(Positional) > 1:
        raise InvalidProjection("", "only one path may end in `.$`: the filter meets one element")
    if Positional in kinds and Element in kinds:
        raise InvalidProjection("", "a path that ends in `.$` and $elemMatch do not go together")
    seen: type | None = None
    for path, rule in entries:
        if path == ID and isinstance(rule, Include | Exclude):
            continue
        kind = _KINDS.get(type(rule), seen)
        if seen is not None and kind is not seen:
            problem = "all fields must be 1 or computed, or all 0; only _id may differ"
            raise InvalidProjection(str(path), problem)
        seen = kind


def _name(field: Any) -> Any:
    name = field_name(field)
    if isinstance(name, str | Path):
        return name
    raise InvalidProjection(shortened(field), f"a field must be a string, got {shortened(field)}")


# -- applying ----------------------------------------------------------------------------------


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


def _narrowed(document: Document, keys: tuple[str, ...], filter: Filter, ordered: Ordered) -> Any:
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

    entries: tuple[Part, ...]
    collation: Collation | None = field(default=None, init=False)
    """How `$elemMatch` and expressions compare strings; None: by code point."""
    _named: Tree = field(init=False, compare=False, repr=False)
    _added: Tree | None = field(init=False, compare=False, repr=False)
    """What an exclusion adds; None: an inclusion."""
    names_fields_only: bool = field(init=False, compare=False, repr=False)
    """Whether it names fields only, and so depends on nothing but the body."""

    def __post_init__(self) -> None:
        entries: Any = self.entries
        if type(entries) is not tuple or not all(
            type(each) is tuple and len(each) == 2 and isinstance(each[0], Path) for each in entries
        ):
            raise InvalidProjection("", "must be pairs of Path and rule: use Projection.parse")
        if not all(path.keys for path, _ in self.entries):
            raise InvalidProjection("", "must name a field within the body, got Path()")
        if is_inclusion(entries):
            has_id = "_id" in [path.keys[0] for path, _ in entries]
            chosen = entries if has_id else ((ID, Include()), *entries)
            named, added = _tree(chosen, _INCLUDED), None
        else:
            named, added = _tree(entries, _EXCLUDED), _tree(entries, (Node,))
        names_fields_only = all(isinstance(rule, Include | Exclude) for _, rule in self.entries)
        object.__setattr__(self, "_named", named)
        object.__setattr__(self, "_added", added)
        object.__setattr__(self, "names_fields_only", names_fields_only)

    @classmethod
    def parse(
        cls,
        what: Any,
        codec: Codec = Codec(),  # noqa: B008 - it is frozen
        variables: frozenset[str] = frozenset(),
    ) -> Projection:
        """Read a projection document, a list of fields, or a `Projection`; raises `InvalidProjection`.

        `variables` are those of `let`, whose values `at` adds.
        """
        if isinstance(what, Projection):
            return what
        if isinstance(what, list | tuple):
            if all(type(each) is str for each in what):
                return _of_fields(tuple(what))
            what = dict.fromkeys(map(_name, what), 1)
        if not isinstance(what, Mapping):
            problem = f"must be a document or a list of fields, got {shortened(what)}"
            raise InvalidProjection("", problem)
        entries = tuple(_entries(what, (), "", codec, variables))
        _check_together(entries)
        return cls(entries)

    @property
    def has_score(self) -> bool:
        """Whether a field is the score of a `$text`."""
        return any(_has_score(rule) for _, rule in self.entries)

    def at(
        self, time: int | None = None, variables: Mapping[str, Any] = NO_VARIABLES
    ) -> Projection:
        """Return the projection with `$$NOW` as of a time in microseconds, by default the current time, and with the
        values of `variables`.
        """
        found = [rule for _, rule in self.entries if isinstance(rule, ComputedField)]
        if not any(('"$$' if variables else '"$$NOW"') in rule.text for rule in found):
            return self
        moment = now() if time is None else time
        bound = [(path, _at_time(rule, moment, variables)) for path, rule in self.entries]
        return Projection(tuple(bound))

    def collated(self, collation: Collation | None) -> Projection:
        """Return the projection under a collation."""
        if collation is None:
            return self
        projection = Projection(self.entries)
        object.__setattr__(projection, "collation", collation)
        return projection

    def check(self, filter: Filter, *, scored: bool = False) -> None:
        """Raise `InvalidProjection` for a `field.$` without a condition in `filter`, and for a score of documents that
        are not `scored`.
        """
        for path, rule in self.entries:
            if _has_score(rule) and not (scored and holds_text(filter.condition)):
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

    def apply(self, document: Document, filter: Filter, *, ordered: Ordered = True) -> Document:
        """Return the document with the projected body.

        `field.$` needs the `filter` that found the document, and raises `InvalidProjection` where no element met the
        filter. `ordered`: whether objects with another key order differ.
        """
        ordered = under(self.collation, ordered)
        return with_other_body(document, self._parts(document, filter, ordered))

    def to_json(self) -> dict[Any, Any]:
        """Return the projection document. Keys are strings; a field whose keys hold a dot or begin with `$` is a
        `Path`.
        """
        return dict(_as_json(path, rule) for path, rule in self.entries)

    def __str__(self) -> str:
        return str(self.to_json())

    def _parts(self, document: Document, filter: Filter, ordered: Ordered) -> Any:
        body = document.body
        if not isinstance(body, dict):
            if self._added is not None:
                return body
            body = {}
        if not self.names_fields_only:
            return self._computed(body, document, filter, ordered)
        return (
            included(self._named, body, None)
            if self._added is None
            else excluded(self._named, body)
        )

    def _computed(self, body: Any, document: Document, filter: Filter, ordered: Ordered) -> Any:
        """Return the parts of the document's body, an object, if a rule is more than the name of a field."""
        for path, rule in self.entries:
            if isinstance(rule, Positional) and body:
                self.check(filter, scored=True)
                body = _narrowed(document, path.keys, filter, ordered)
        scope = Scope(document, ordered=ordered)
        if self._added is None:
            result = included(self._named, body, scope)
        else:
            result = added(self._added, excluded(self._named, body), scope)
        for path, rule in self.entries:
            if isinstance(rule, Slice):
                result = with_slice(result, path.keys, rule)
        return result


def _has_score(rule: Rule) -> bool:
    """Return whether a rule reads the score of a `$text`."""
    if isinstance(rule, ComputedField):
        return Meta(TEXT_SCORE) in nodes_of(rule.expression)
    return isinstance(rule, Meta)


def _at_time(rule: Rule, time: int, variables: Mapping[str, Any]) -> Rule:
    if not isinstance(rule, ComputedField):
        return rule
    return ComputedField(rule.text, rule.place, at_time(rule.expression, time, variables))


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
        case Meta():
            return name, {"$meta": TEXT_SCORE}
        case Slice(None, limit):
            return name, {"$slice": limit}
        case Slice(skip, limit):
            return name, {"$slice": [skip, limit]}
        case ComputedField(text):
            return name, decode(text)
        case Element(condition):
            return name, next(iter(to_json(condition).values()))
