"""The changes of an update as a tree over their paths, which is how they are applied, in which order,
and how two that speak of one place are found.

What a body becomes when the changes of an update are applied to it.

The rules, MongoDB's:

1. Changes are applied in the order of their paths, so new fields come in that order, behind those
   that are there. What is on the way and missing becomes an object.
2. In an array a number names an element. One beyond the end is added, and null before it. Every other
   key, and every key below a scalar, leads nowhere: an error, but for `$unset`.
3. `$[]` and `$[name]` need an array that is there. Two changes must not meet at one place.

Nothing is changed in place: what stays as it was is shared with the old body.

Updates that are pipelines: stages that compute the new body from the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ..aggregation.expressions.operands import OperandError
from ..aggregation.expressions.scope import MEMORY_LIMIT
from ..aggregation.parser import PipelineParser
from ..aggregation.pipeline import Pipeline
from ..aggregation.rows import Context, Nowhere
from ..aggregation.run import run
from ..codec import Codec
from ..document import Anonymous, Document
from ..errors import (
    InvalidOperand,
    InvalidPipeline,
    InvalidUpdate,
    MemoryLimitExceeded,
    UpdateRefused,
    cut,
    shortened,
)
from ..query.conditions import Condition
from ..query.filter import Filter
from ..query.matcher import holds
from ..query.path import element_index, is_index
from ..query.projection import matched_index, paths_in
from ..query.values import MISSING, equal, identical, value_class
from . import operators as arrays
from . import operators as numbers
from .actions import (
    MATCHED,
    Add,
    AddToSet,
    Arrive,
    Assign,
    AtLeast,
    AtMost,
    Bitwise,
    Elements,
    FieldChange,
    Leave,
    Matched,
    Multiply,
    Piece,
    Pop,
    Pull,
    PullAll,
    Push,
    PutTime,
    Remove,
    Way,
    dotted,
    fresh,
)
from .operators import iso


@dataclass(slots=True)
class Fields:
    """What is to change in the fields of an object, or in the elements of an array by number."""

    children: dict[str | Matched, Node] = field(default_factory=dict)


@dataclass(slots=True)
class Each:
    """What is to change in each element of an array, or in those of a name."""

    children: dict[Elements, Node] = field(default_factory=dict)


Node: TypeAlias = Fields | Each | FieldChange


def tree_of(changes: Iterable[FieldChange]) -> Fields:
    """Return the tree; raises `InvalidUpdate` if two changes speak of one place."""
    root = Fields()
    for change in changes:
        _plant(root, change)
    _sort(root)
    return root


def _plant(root: Fields, change: FieldChange) -> None:
    node: Any = root
    *above, last = change.way
    for depth, piece in enumerate(above, start=1):
        if piece not in node.children:
            within = Each if isinstance(change.way[depth], Elements) else Fields
            node.children[piece] = within()
        node = node.children[piece]
        if isinstance(node, FieldChange) or isinstance(node, Each) is not isinstance(
            change.way[depth], Elements
        ):
            raise _conflict(change, change.way[:depth])
    if last in node.children:
        raise _conflict(change, change.way)
    node.children[last] = change


def _conflict(change: FieldChange, way: Way) -> InvalidUpdate:
    return InvalidUpdate(
        change.place, f"there is another change of {shortened(dotted(way))}, or of what is in it"
    )


def _sort(node: Node) -> None:
    if isinstance(node, Fields | Each):
        node.children = in_order(node.children)
        for child in node.children.values():
            _sort(child)


def in_order(children: dict[Any, Node]) -> dict[Any, Node]:
    """Return children as they are applied."""
    return dict(sorted(children.items(), key=lambda pair: _order(pair[0])))


def _order(piece: Piece) -> tuple[int, int, str]:
    """Return what MongoDB orders fields by: numbers by their value, all else as text."""
    text = str(piece)
    if is_index(text):
        return 1, int(text), ""
    return (0 if text < "0" else 2), 0, text


def leaves(node: Node) -> Iterator[FieldChange | Each]:
    """Yield the changes below a node; an `Each` stands for all below it."""
    if isinstance(node, Fields):
        for child in node.children.values():
            yield from leaves(child)
    else:
        yield node


def merged(one: Node, other: Node, refuse: Callable[[], Exception]) -> Node:
    """Return both nodes as one; raises what `refuse` makes if they change one place."""
    if (
        isinstance(one, FieldChange)
        or isinstance(other, FieldChange)
        or type(one) is not type(other)
    ):
        raise refuse()
    children: dict[Any, Node] = dict(one.children)
    for piece, child in other.children.items():
        both = piece in children
        children[piece] = merged(children[piece], child, refuse) if both else child
    return type(one)(in_order(children))


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


@value_class(eq=True)
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
        on_it = any(each.keys[: len(array)] == array for each in paths_in(self.filter.condition))
        array = array if on_it else ()
        if array not in self._met:
            condition = self.filter.condition
            self._met[array] = matched_index(condition, self.document, array, ordered=self.ordered)
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
        case FieldChange():
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
        index = element_index(key)
        if index is None:
            _check_leads_nowhere(child, array, here, the)
            continue
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


def _acted(change: FieldChange, value: Any, keys: Keys, the: Application) -> Any:
    """Return what the action makes of a value: itself, if that is spelled alike."""
    try:
        found = _result(change, value, keys, the)
    except OperandError as error:
        raise the.refuse(keys, error.problem) from None
    if identical(found, value):
        return value
    the.spend(change.weight, keys)
    return found


def _result(change: FieldChange, value: Any, keys: Keys, the: Application) -> Any:
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


def _of_array(change: FieldChange, value: Any, ordered: bool) -> Any:
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
        elif isinstance(value, list) and (index := element_index(key)) is not None:
            value = value[index] if index < len(value) else MISSING
        else:
            problem = f"{shortened(value)} has no field {shortened(key)}, and there can be none"
            raise the.refuse(action.source[: depth + 1], problem)
        if value is MISSING:
            return value
    if _array_on(action.source, the.document.body):
        raise the.refuse(action.source, "$rename takes nothing out of an array")
    return value


def _array_on(keys: Keys, value: Any) -> bool:
    """Return whether there is an array on the way to a field."""
    for key in keys:
        if isinstance(value, list):
            return True
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return False


STAGES: Final = ("$addFields", "$set", "$project", "$unset", "$replaceRoot", "$replaceWith")
_VARIABLES: Final = frozenset({"NOW"})


def read_stages(stages: list[Any] | tuple[Any, ...], rules: Codec) -> Pipeline:
    """Read a list of stages, of those that an update may have; raises `InvalidUpdate`."""
    for number, stage in enumerate(stages):
        name = next(iter(stage), None) if isinstance(stage, Mapping) else None
        if isinstance(name, str) and name not in STAGES:
            raise InvalidUpdate(
                f"{number}.{name}", f"an update has no stages but {', '.join(STAGES)}"
            )
    try:
        return Pipeline(PipelineParser(rules, _VARIABLES).steps(stages))
    except InvalidPipeline as error:
        raise InvalidUpdate(error.place, error.problem) from error


def transformed(pipeline: Pipeline, document: Document, *, now: int, ordered: bool) -> Any:
    """Return the body that comes out, or the same one if it is spelled alike."""
    context = Context(Nowhere(), MEMORY_LIMIT, ordered, {"NOW": iso(now)})
    try:
        (row,) = run(pipeline.steps, [document], context)
    except InvalidOperand as error:
        problem = f"{error.operator} {error.problem}"
        raise UpdateRefused(document.id, error.place or "", problem) from error
    except MemoryLimitExceeded as error:
        problem = f"{error.stage} takes more than {error.limit:,} bytes of memory"
        raise UpdateRefused(document.id, error.place, problem) from error
    return document.body if identical(row.body, document.body) else row.body
