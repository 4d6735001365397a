"""What a formula gives for an object.

The rules, MongoDB's:

1. `$a.b` walks objects by key. An array on the way gives the array of what its objects give; in an
   aggregation a number in a path is a key, never an index. A body that is no object has no fields.
2. What leads nowhere is missing, which is not null: it comes before null in the order of types, a
   field that is missing is left out, an element that is missing becomes null.
3. Most operators give null for null and missing. What they cannot take at all is an
   `InvalidOperand`, once a formula meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from sys import getsizeof
from typing import Any, Final

from ...document import Anonymous, Document
from ...errors import InvalidOperand
from ...query.budget import spend
from ...query.values import MISSING, value_class
from .arrays import extended
from .nodes import (
    Absent,
    ArrayOf,
    Choice,
    Constant,
    Convert,
    FirstThere,
    Fold,
    Formula,
    Let,
    Logic,
    Map,
    Meta,
    ObjectOf,
    OperatorCall,
    Reference,
    Select,
    nodes_of,
)
from .objects import convert, merged_into, type_named
from .operands import (
    ABSENT,
    MAX_WEIGHT,
    MEMORY_LIMIT,
    NUMBER,
    POINTER,
    Unfit,
    Workspace,
    array,
    checked,
    is_null,
    key_of,
    too_large,
    truthy,
    weight_of,
    whole,
)
from .operators import FUNCTIONS, Operator

_ATTRIBUTES: Final = {
    "id": "id",
    "version": "version",
    "created_at": "created_us",
    "updated_at": "updated_us",
    "expires_at": "expires_us",
}
EVERY: Final = 32
"""Elements that are counted at once: to count each takes 7 % of an evaluation (measured)."""
NO_VARIABLES: Final[Mapping[str, Any]] = {}
_SPELLED: Final = 24
"""What a character of a constant's JSON takes in memory, at most: `[]` takes 56 bytes."""


@value_class(eq=True)
class Variables:
    """What a formula can see; `ordered`: does the order of an object's keys count? `space` counts what
    formulas hold meanwhile.
    """

    row: Document | Anonymous
    variables: Mapping[str, Any]
    ordered: bool
    space: Workspace

    @classmethod
    def of(
        cls,
        row: Document | Anonymous,
        variables: Mapping[str, Any] = NO_VARIABLES,
        *,
        ordered: bool = True,
        memory_limit: int = MEMORY_LIMIT,
    ) -> Variables:
        """Return what there is to see at an object."""
        space = Workspace(row.body, memory_limit)
        return cls(row, {"ROOT": row.body, "CURRENT": row.body, **variables}, ordered, space)

    def having(self, **variables: Any) -> Variables:
        """Return the scope with more variables."""
        return Variables(self.row, {**self.variables, **variables}, self.ordered, self.space)


def evaluate(formula: Formula, scope: Variables) -> Any:
    """Return what a formula gives, `MISSING` included; raises `InvalidOperand`."""
    match formula:
        case Constant():
            return _constant(formula, scope)
        case Reference():
            return _refer(formula, scope)
        case OperatorCall(operator, operands):
            return _call(operator, operands, scope)
        case ArrayOf(elements):
            return _array(elements, scope)
        case ObjectOf(fields):
            return _object(fields, scope)
        case Absent(given):
            return MISSING if given else ABSENT
    return _decide(formula, scope)


def _values(formulas: Iterable[Formula], scope: Variables) -> list[Any]:
    """Return what formulas give; all of it is there until `_left`."""
    values: list[Any] = []
    scope.space.live.append(values)
    for each in formulas:
        values.append(evaluate(each, scope))  # noqa: PERF401 - `live` shows them one by one
    return values


def _left(space: Workspace, held: int, depth: int, result: Any) -> Any:
    """Return a result when all else that was made for it can go: what it does not hold itself."""
    if isinstance(result, list | dict):
        space.made(result)
    else:
        space.held = held + (getsizeof(result) if isinstance(result, str) else 0)
    del space.live[depth:]
    return result


def _constant(formula: Constant, scope: Variables) -> Any:
    if isinstance(formula.value, list | dict):
        _hold(_SPELLED * len(formula.text), "a constant", scope)
    return _copied(formula.value)


def _hold(size: int, what: str, scope: Variables) -> None:
    try:
        scope.space.hold(size)
    except Unfit as error:
        raise InvalidOperand(what, error.problem) from None


def _copied(value: Any) -> Any:
    """Return a constant so that who changes what comes out does not change the formula."""
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def _array(elements: tuple[Formula, ...], scope: Variables) -> Any:
    space = scope.space
    held, depth = space.held, len(space.live)
    found = [None if each is MISSING else each for each in _values(elements, scope)]
    try:
        return _left(space, held, depth, checked(found))
    except Unfit as error:
        raise InvalidOperand("an array", error.problem) from None


def _object(fields: tuple[tuple[str, Formula], ...], scope: Variables) -> Any:
    space = scope.space
    held, depth = space.held, len(space.live)
    values = _values((each for _, each in fields), scope)
    pairs = zip((name for name, _ in fields), values, strict=True)
    found = {name: each for name, each in pairs if each is not MISSING}
    try:
        return _left(space, held, depth, checked(found))
    except Unfit as error:
        raise InvalidOperand("an object", error.problem) from None


def _decide(formula: Any, scope: Variables) -> Any:
    """Evaluate what decides which of its parts are evaluated, and with which variables."""
    match formula:
        case Logic("$and", operands):
            return all(truthy(evaluate(each, scope)) for each in operands)
        case Logic(_, operands):
            return any(truthy(evaluate(each, scope)) for each in operands)
        case Choice():
            return _choose(formula, scope)
        case FirstThere((*operands, last)):
            found = (evaluate(each, scope) for each in operands)
            there = next((each for each in found if not is_null(each)), MISSING)
            return evaluate(last, scope) if there is MISSING else there
        case Let():
            return _having(formula, scope)
        case Meta(field):
            known = isinstance(scope.row, Document)
            return getattr(scope.row, _ATTRIBUTES[field]) if known else MISSING
        case Convert():
            return _convert(formula, scope)
    return _each(formula, scope)


def _having(formula: Let, scope: Variables) -> Any:
    depth = len(scope.space.live)
    values = _values((each for _, each in formula.variables), scope)
    names = (name for name, _ in formula.variables)
    found = evaluate(formula.inside, scope.having(**dict(zip(names, values, strict=True))))
    del scope.space.live[depth:]
    return found


def _each(formula: Any, scope: Variables) -> Any:
    """Evaluate what goes through an array."""
    space = scope.space
    held, depth = space.held, len(space.live)
    name, function = _THROUGH_ARRAYS[type(formula)]
    (values,) = _values([formula.input], scope)
    try:
        found = None if is_null(values) else function(formula, array(values), scope)
        return _left(space, held, depth, found)
    except Unfit as error:
        raise InvalidOperand(name, error.problem, error.found) from None


def follow(value: Any, keys: tuple[str, ...]) -> Any:
    """Return what a path leads to, by rule 1."""
    for depth, key in enumerate(keys):
        if isinstance(value, list):
            objects = (each for each in value if isinstance(each, dict))
            found = (follow(each, keys[depth:]) for each in objects)
            return [each for each in found if each is not MISSING]
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


def _refer(reference: Reference, scope: Variables) -> Any:
    value = scope.variables[reference.variable]
    if reference.keys and value is scope.row.body and not isinstance(value, dict):
        return MISSING
    found = follow(value, reference.keys)
    if isinstance(found, list) and reference.keys:
        _hold(getsizeof(found), "a path", scope)  # an array of the fields of objects is a new one
    return found


def _call(name: str, operands: tuple[Formula, ...], scope: Variables) -> Any:
    operator, space = FUNCTIONS[name], scope.space
    held, depth = space.held, len(space.live)
    if name == "$in" and isinstance(operands[1], Constant) and isinstance(operands[1].value, list):
        key = key_of(evaluate(operands[0], scope), ordered=scope.ordered)
        return key in _members(operands[1], scope.ordered)
    values = _values(operands, scope)
    try:
        if operator.compares or operator.grows:
            result = operator.function(*values, **_options(operator, scope))
        else:
            result = operator.function(*values)
        return _left(space, held, depth, checked(result) if operator.nests else result)
    except Unfit as error:
        raise InvalidOperand(name, error.problem, error.found) from None


def _options(operator: Operator, scope: Variables) -> dict[str, Any]:
    options: dict[str, Any] = {"ordered": scope.ordered} if operator.compares else {}
    if operator.grows:
        options["hold"] = scope.space.hold
    return options


@lru_cache(maxsize=64)
def _members(array: Constant, ordered: bool) -> frozenset[Hashable]:
    return frozenset(key_of(each, ordered=ordered) for each in array.value)


def _choose(choice: Choice, scope: Variables) -> Any:
    for case, then in choice.branches:
        if truthy(evaluate(case, scope)):
            return evaluate(then, scope)
    if choice.otherwise is None:
        raise InvalidOperand("$switch", "has no branch that is true, and no default")
    return evaluate(choice.otherwise, scope)


def _mapped(formula: Map, values: list[Any], scope: Variables) -> list[Any]:
    results, weight = list[Any](), 0
    scope.space.live.append(results)
    for number, each in enumerate(values):
        if not number % EVERY:
            spend(EVERY)
        found = evaluate(formula.inside, scope.having(**{formula.variable: each}))
        results.append(None if found is MISSING else found)
        scope.space.hold(POINTER + NUMBER)
        weight += weight_of(found)
        if weight > MAX_WEIGHT:
            raise too_large()
    return checked(results)  # type: ignore[no-any-return]


def _selected(formula: Select, values: list[Any], scope: Variables) -> list[Any]:
    limit = evaluate(formula.limit, scope)
    most = len(values) if limit is ABSENT or is_null(limit) else whole(limit, 1)
    results: list[Any] = []
    for number, each in enumerate(values):
        if len(results) == most:
            break
        if not number % EVERY:
            spend(EVERY)
        if truthy(evaluate(formula.condition, scope.having(**{formula.variable: each}))):
            results.append(each)
    return results


def _folded(formula: Fold, values: list[Any], scope: Variables) -> Any:
    held, so_far = scope.space.held, _values([formula.initial], scope)
    if _only_adds(formula.inside):
        _add(formula.inside, so_far, values, scope)
        return so_far[0]
    for number, each in enumerate(values):
        if not number % EVERY:
            spend(EVERY)
        so_far[0] = found = evaluate(formula.inside, scope.having(value=so_far[0], this=each))
        if not isinstance(found, list | dict):
            scope.space.held = held + getsizeof(found)
    return so_far[0]


_ADDERS: Final[dict[str, Callable[..., Any]]] = {
    "$concatArrays": extended,
    "$mergeObjects": merged_into,
}
_THROUGH_ARRAYS: Final[dict[Any, tuple[str, Callable[..., Any]]]] = {
    Map: ("$map", _mapped),
    Select: ("$filter", _selected),
    Fold: ("$reduce", _folded),
}


@lru_cache(maxsize=256)
def _only_adds(formula: Formula) -> bool:
    """Return whether a `$reduce` adds to `$$value` and needs it for nothing else: then it is not copied for
    each element.
    """
    if not isinstance(formula, OperatorCall) or formula.operator not in _ADDERS:
        return False
    first, *others = formula.operands or (None,)
    used = (
        isinstance(each, Reference) and each.variable == "value" for each in nodes_of((*others,))
    )
    return first == Reference("value") and len(others) > 0 and not any(used)


def _add(formula: Any, so_far: list[Any], values: list[Any], scope: Variables) -> None:
    """Add to what a `$reduce` has so far."""
    space, add = scope.space, _ADDERS[formula.operator]
    for number, each in enumerate(values):
        depth = len(space.live)
        more = _values(formula.operands[1:], scope.having(this=each))
        try:
            so_far[0] = add(so_far[0], more, fresh=number == 0, hold=space.hold)
        except Unfit as error:
            raise InvalidOperand(formula.operator, error.problem, error.found) from None
        del space.live[depth:]


def _convert(formula: Convert, scope: Variables) -> Any:
    value, name = evaluate(formula.input, scope), _type_of(formula, scope)
    if is_null(value):
        return None if formula.on_null is None else evaluate(formula.on_null, scope)
    if name is None:
        return None
    try:
        return convert(value, name)
    except Unfit as error:
        if formula.on_error is not None:
            return evaluate(formula.on_error, scope)
        raise InvalidOperand(formula.operator, error.problem, error.found) from None


def _type_of(formula: Convert, scope: Variables) -> str | None:
    """Return what is converted to, or None; what is no type is an error, `onError` or not."""
    wanted = evaluate(formula.to, scope)
    try:
        return None if is_null(wanted) else type_named(wanted)
    except Unfit as error:
        raise InvalidOperand(formula.operator, error.problem, error.found) from None
