"""The new body of a document, by the changes of an update or by a pipeline, and the initial body of an upsert.

The changes are a tree over their paths, for their order and for conflicts. The rules, MongoDB's:

1. Changes are applied in the order of their paths, therefore new fields come in the same order, behind present fields.
   A missing object on the way is created.
2. In an array a number names an element. An element beyond the end is added, with null before. All other keys, and
   keys below a scalar, lead nowhere: an error, but for `$unset`.
3. `$[]` and `$[name]` need a present array. Two changes must not meet at one position.
4. An upsert starts from the values that its filter requires fields to equal: by `$eq`, `$and` of equalities, and
   `$in`, `$all` and `$or` of a single value. Other conditions add nothing. A path is made of objects, also for
   numbers.

Nothing is changed in place: unchanged parts are shared with the old body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ..aggregation.pipeline import Pipeline, run
from ..aggregation.rows import Context, NoCollections
from ..codec.times import iso
from ..document import Anonymous, Document, moment
from ..errors import (
    InvalidOperand,
    InvalidUpdate,
    MemoryLimitExceeded,
    UpdateRefused,
    cut,
    shortened,
)
from ..expressions.collation import Ordered
from ..expressions.evaluation import MEMORY_LIMIT, OperandError
from ..expressions.path import element_index, is_index
from ..expressions.values import MISSING, equal, identical
from ..query.conditions import (
    And,
    Collated,
    Condition,
    Equals,
    Field,
    Metadata,
    OneOf,
    Or,
    Value,
    scalars_of,
)
from ..query.filter import Filter, paths_in
from ..query.matched import matched_index
from ..query.matcher import holds
from .operators import OPERATORS, UpdateContext, added_size, copied
from .parser import MATCHED, Elements, FieldChange, Matched, Piece

Keys = tuple[str, ...]
MAX_PADDING: Final = 1_500_000
"""Nulls that are added before an element beyond an array's end; MongoDB's limit."""


# -- the tree of the changes -------------------------------------------------------------------


@dataclass(slots=True)
class Fields:
    """The changes of the fields of an object, or of the elements of an array by number."""

    children: dict[str | Matched, Node] = field(default_factory=dict)


@dataclass(slots=True)
class Each:
    """The changes of each element of an array, or of the elements of an array filter."""

    children: dict[Elements, Node] = field(default_factory=dict)


Node: TypeAlias = Fields | Each | FieldChange


def tree_of(changes: tuple[FieldChange, ...]) -> Fields:
    """Return the tree; raises `InvalidUpdate` if two changes conflict."""
    root = Fields()
    for change in changes:
        node: Any = root
        path = change.path
        for depth, piece in enumerate(path[:-1], start=1):
            kind = Each if isinstance(path[depth], Elements) else Fields
            node = node.children.setdefault(piece, kind())
            if type(node) is not kind:
                raise _conflict(change, depth)
        if path[-1] in node.children:
            raise _conflict(change, len(path))
        node.children[path[-1]] = change
    if len(changes) > 1:
        _sort(root)
    return root


def _conflict(change: FieldChange, depth: int) -> InvalidUpdate:
    path = shortened(".".join(map(str, change.path[:depth])))
    return InvalidUpdate(change.position, f"there is another change of {path}, or of a field in it")


def _sort(node: Node) -> None:
    if isinstance(node, Fields | Each):
        node.children = _in_order(node.children)
        for child in node.children.values():
            _sort(child)


def _in_order(children: dict[Any, Node]) -> dict[Any, Node]:
    return dict(sorted(children.items(), key=lambda pair: field_order(pair[0])))


def field_order(piece: Piece) -> tuple[int, int, str]:
    """Return MongoDB's order of fields: numbers by their value, all else as strings."""
    text = str(piece)
    if is_index(text):
        return 1, int(text), ""
    return (0 if text < "0" else 2), 0, text


def _leaves(node: Node) -> Iterator[FieldChange | Each]:
    """Yield the changes below a node; an `Each` stands for all changes below."""
    if isinstance(node, Fields):
        for child in node.children.values():
            yield from _leaves(child)
    else:
        yield node


# -- the new body ------------------------------------------------------------------------------


@dataclass(slots=True)
class Application(UpdateContext):
    """The input of changes besides the value to change.

    `left`: the characters of JSON that the update may still add. `$[]` adds a value for each element, so `left` bounds
    the memory.
    """

    document: Document
    filter: Filter
    array_filters: Mapping[str, Condition]
    inserting: bool
    limit: int
    left: int
    _matched: dict[Keys, int | None] = field(default_factory=dict)

    def matched(self, array: Keys) -> int | None:
        """Return the index of the element that matched the filter: by the condition on the array, or else by the last
        condition.
        """
        if self.inserting:
            return None
        condition = self.filter.condition
        on_it = any(each.keys[: len(array)] == array for each in paths_in(condition))
        array = array if on_it else ()
        if array not in self._matched:
            found = matched_index(condition, self.document, array, ordered=self.ordered)
            self._matched[array] = found
        return self._matched[array]

    def spend(self, characters: int, keys: Keys) -> None:
        """Raise `UpdateRefused` if more is added than a body may hold."""
        self.left -= characters
        if self.left < 0:
            raise self.refuse(keys, f"the update adds more than {self.limit:,} bytes")

    def refuse(self, keys: Keys, problem: str) -> UpdateRefused:
        """Return the error of a position in the body."""
        return UpdateRefused(self.document.id, ".".join(keys), problem)


def changed(node: Node, value: Any, keys: Keys, the: Application) -> Any:
    """Return the new value at `keys`; `MISSING`, before or after, is no value."""
    if isinstance(node, FieldChange):
        return _applied(node, value, keys, the)
    if isinstance(node, Each):
        return _in_elements(node, value, keys, the)
    children: Any = node.children
    if MATCHED in children:
        children = _with_index(children, keys, the)
    if isinstance(value, dict):
        return _in_object(children, value, keys, the)
    if value is MISSING:
        return _in_object(children, {}, keys, the) or MISSING
    if isinstance(value, list):
        return _in_array(children, value, keys, the)
    for key, child in children.items():
        _check_leads_nowhere(child, value, (*keys, key), the)
    return value


def _in_object(children: dict[str, Node], body: Any, keys: Keys, the: Application) -> Any:
    result = body
    for key, child in children.items():
        old = body.get(key, MISSING)
        apply: Any = _applied if type(child) is FieldChange else changed  # the usual, sooner
        new = apply(child, old, (*keys, key), the)
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
        index = element_index(key)
        if index is None:
            _check_leads_nowhere(child, array, here, the)
            continue
        missing = index - len(result)
        old = result[index] if missing < 0 else MISSING
        new = changed(child, old, here, the)
        if new is MISSING and old is not MISSING:
            new = None  # a removed element leaves null
        if new is old:
            continue
        result = list(array) if result is array else result
        if missing > MAX_PADDING:
            raise the.refuse(here, f"an array is filled up with {MAX_PADDING:,} nulls at most")
        if missing >= 0:
            the.spend(missing * len("null,"), here)
            result.extend([None] * (missing + 1))
        result[index] = new
    return result


def _in_elements(node: Each, value: Any, keys: Keys, the: Application) -> Any:
    if not isinstance(value, list):
        found = "nothing" if value is MISSING else shortened(value)
        names = cut(", ".join(map(str, node.children)))
        raise the.refuse(keys, f"{names} requires an array, got {found}")
    result = value
    for index, old in enumerate(value):
        here = (*keys, str(index))
        child: Node | None = None
        for piece, each in node.children.items():
            if not piece.name or holds(
                the.array_filters[piece.name], Anonymous({piece.name: old}), ordered=the.ordered
            ):
                child = each if child is None else _merged(child, each, here, the)
        new = old if child is None else changed(child, old, here, the)
        if new is not old:
            result = list(value) if result is value else result
            result[index] = None if new is MISSING else new
    return result


def _with_index(children: dict[Any, Node], keys: Keys, the: Application) -> dict[str, Node]:
    """Return the children by key, with the index of the matched element in place of `$`."""
    index = the.matched(keys)
    if index is None:
        raise the.refuse((*keys, "$"), "the filter matched no element of an array")
    others, key = {k: v for k, v in children.items() if k != MATCHED}, str(index)
    child = children[MATCHED]
    if key in others:
        child = _merged(others[key], child, (*keys, key), the)
    return _in_order({**others, key: child})


def _merged(one: Node, other: Node, keys: Keys, the: Application) -> Node:
    """Return the changes of an element as a single node; raise `UpdateRefused` for conflicting changes."""
    if isinstance(one, FieldChange) or isinstance(other, FieldChange) or type(one) is not type(other):  # fmt: skip
        raise the.refuse(keys, "two changes meet there, or one is within the other")
    children: dict[Any, Node] = dict(one.children)
    for piece, child in other.children.items():
        both = piece in children
        children[piece] = _merged(children[piece], child, keys, the) if both else child
    return type(one)(_in_order(children))


def _check_leads_nowhere(node: Node, value: Any, keys: Keys, the: Application) -> None:
    """Raise `UpdateRefused` unless no change is due at an impossible position."""
    for leaf in _leaves(node):
        if isinstance(leaf, Each):
            raise the.refuse(keys, f"{shortened(value)} has no arrays in it")
        if leaf.operator == "$unset" or (leaf.operator == "$setOnInsert" and not the.inserting):
            continue
        if leaf.operator == "$rename" and leaf.operand and _source(leaf.operand, the) is MISSING:
            continue
        problem = f"{shortened(value)} has no field {shortened(keys[-1])}, and there can be none"
        if isinstance(value, list):
            problem += ": its elements are reached by a number, `$`, `$[]` or `$[name]`"
        raise the.refuse(keys, problem)


def _applied(change: FieldChange, value: Any, keys: Keys, the: Application) -> Any:
    """Return the new value; the old value, if both have the same JSON."""
    operator, operand = change.operator, change.operand
    if operator == "$setOnInsert" and not the.inserting:
        return value
    if operator == "$rename" and operand is not None:
        found = _source(operand, the)
        if found is MISSING:
            return value
        if _goes_through_array(keys, the.document.body):
            raise the.refuse(keys, "$rename must not lead into an array")
        return value if value is not MISSING and equal(found, value) else found
    try:
        found = OPERATORS[operator].apply(operand, value, the)
    except OperandError as error:
        raise the.refuse(keys, f"{operator} {error.problem}") from None
    if identical(found, value):
        return value
    if OPERATORS[operator].adds:
        the.spend(added_size(operand), keys)
    return found


def _source(source: Keys, the: Application) -> Any:
    """Return the value that a `$rename` moves, or `MISSING`."""
    value = the.document.body
    for depth, key in enumerate(source):
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and (index := element_index(key)) is not None:
            value = value[index] if index < len(value) else MISSING
        else:
            problem = f"{shortened(value)} has no field {shortened(key)}, and there can be none"
            raise the.refuse(source[: depth + 1], problem)
        if value is MISSING:
            return value
    if _goes_through_array(source, the.document.body):
        raise the.refuse(source, "$rename must not take a value out of an array")
    return value


def _goes_through_array(keys: Keys, value: Any) -> bool:
    for key in keys:
        if isinstance(value, list):
            return True
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return False


def transformed(
    pipeline: Pipeline,
    document: Document,
    *,
    now: int,
    ordered: Ordered,
    variables: Mapping[str, Any],
) -> Any:
    """Return the new body by a pipeline, or the old body if both have the same JSON."""
    values = {"NOW": iso(moment(now)), **variables}
    context = Context(NoCollections(), MEMORY_LIMIT, ordered, values)
    try:
        (row,) = run(pipeline.steps, [document], context)
    except InvalidOperand as error:
        problem = f"{error.operator} {error.problem}"
        raise UpdateRefused(document.id, error.place or "", problem) from error
    except MemoryLimitExceeded as error:
        problem = f"{error.stage} takes more than {error.limit:,} bytes of memory"
        raise UpdateRefused(document.id, error.place, problem) from error
    if _id_in(row.body) is not MISSING and not identical(_id_in(row.body), _id_in(document.body)):
        problem = "a pipeline does not change the id, and puts no field _id into a body"
        raise UpdateRefused(document.id, "_id", problem)
    return document.body if identical(row.body, document.body) else row.body


def _id_in(body: Any) -> Any:
    return body.get("_id", MISSING) if isinstance(body, dict) else MISSING


# -- upserts -----------------------------------------------------------------------------------


def seed(filter: Filter) -> Any:
    """Return the body that the filter's equalities make, {} without equalities.

    Raise `InvalidUpdate` if two equalities are about the same field, or about a field and a field within.
    """
    body: Any = {}
    seen: set[Keys] = set()
    for target, value in _equalities(filter.condition):
        if not isinstance(target, Field):
            continue
        keys = target.path.keys
        for other in seen:
            length = min(len(keys), len(other))
            if keys[:length] == other[:length]:
                one, two = (shortened(".".join(each) or "$body") for each in (other, keys))
                problem = f"the filter requires {one} and {two}, which leaves open what to insert"
                raise InvalidUpdate("", problem)
        seen.add(keys)
        if not keys:
            body = value
            continue
        fields = body
        for key in keys[:-1]:
            fields = fields.setdefault(key, {})
        fields[keys[-1]] = value
    return body


def seed_id(filter: Filter) -> str | None:
    """Return the id that the filter requires, or None."""
    equalities = _equalities(filter.condition)
    found = [v for each, v in equalities if isinstance(each, Metadata) and each.field == "id"]
    if any(each != found[0] for each in found):
        raise InvalidUpdate("$id", "the filter requires two ids")
    if found and not isinstance(found[0], str):
        raise InvalidUpdate("$id", f"an id must be a string, got {shortened(found[0])}")
    return found[0] if found else None


def _equalities(condition: Condition) -> Iterator[tuple[Field | Metadata, Any]]:
    """Yield the conditions that require a field to equal a single value, and the value."""
    match condition:
        case And(conditions) | Or((_,) as conditions):
            for each in conditions:
                yield from _equalities(each)
        case Collated(inner):
            yield from _equalities(inner)
        case Field(test=Equals(Value() as value)) | Metadata(test=Equals(Value() as value)):
            yield condition, copied(value)
        case Field(test=OneOf((only,))) | Metadata(test=OneOf((only,))):
            if len(values := scalars_of(only)) == 1:
                yield condition, values[0]
