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

from collections.abc import Mapping
from typing import Any, Final

from ..document import Anonymous, Document
from ..errors import InvalidOperand
from ..frozen import frozen
from ..values import MISSING
from .nodes import (
    Absent,
    ArrayOf,
    Call,
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
    Reference,
    Select,
)
from .objects import convert, type_named
from .operands import ABSENT, Unfit, array, is_null, truthy, whole
from .operators import FUNCTIONS
from .weights import MAX_WEIGHT, checked, too_large, weight_of

_ATTRIBUTES: Final = {
    "id": "id",
    "version": "version",
    "created_at": "created_us",
    "updated_at": "updated_us",
    "expires_at": "expires_us",
}
NO_VARIABLES: Final[Mapping[str, Any]] = {}


@frozen(eq=True)
class Scope:
    """What a formula can see; `ordered`: does the order of an object's keys count?"""

    row: Document | Anonymous
    variables: Mapping[str, Any]
    ordered: bool = True

    @classmethod
    def of(
        cls,
        row: Document | Anonymous,
        variables: Mapping[str, Any] = NO_VARIABLES,
        *,
        ordered: bool = True,
    ) -> Scope:
        """Return what there is to see at an object."""
        return cls(row, {"ROOT": row.body, "CURRENT": row.body, **variables}, ordered)

    def having(self, **variables: Any) -> Scope:
        """Return the scope with more variables."""
        return Scope(self.row, {**self.variables, **variables}, self.ordered)


def evaluate(formula: Formula, scope: Scope) -> Any:
    """Return what a formula gives, `MISSING` included; raises `InvalidOperand`."""
    match formula:
        case Constant():
            return _copied(formula.value)
        case Reference():
            return _refer(formula, scope)
        case Call(operator, operands):
            return _call(operator, [evaluate(each, scope) for each in operands], scope)
        case ArrayOf(elements):
            found = [evaluate(each, scope) for each in elements]
            return _guarded("an array", [None if each is MISSING else each for each in found])
        case ObjectOf(fields):
            pairs = ((name, evaluate(each, scope)) for name, each in fields)
            return _guarded("an object", {k: v for k, v in pairs if v is not MISSING})
        case Absent(given):
            return MISSING if given else ABSENT
    return _decide(formula, scope)


def _copied(value: Any) -> Any:
    """Return a constant so that who changes what comes out does not change the formula."""
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def _decide(formula: Any, scope: Scope) -> Any:
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
        case Let(variables, inside):
            values = {name: evaluate(each, scope) for name, each in variables}
            return evaluate(inside, scope.having(**values))
        case Meta(field):
            known = isinstance(scope.row, Document)
            return getattr(scope.row, _ATTRIBUTES[field]) if known else MISSING
        case Convert():
            return _convert(formula, scope)
    return _each(formula, scope)


def _each(formula: Any, scope: Scope) -> Any:
    """Evaluate what goes through an array."""
    name = {Map: "$map", Select: "$filter", Fold: "$reduce"}[type(formula)]
    try:
        values = evaluate(formula.input, scope)
        if is_null(values):
            return None
        match formula:
            case Map():
                return _mapped(formula, array(values), scope)
            case Select():
                return _selected(formula, array(values), scope)
        return _folded(formula, array(values), scope)
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


def _refer(reference: Reference, scope: Scope) -> Any:
    value = scope.variables[reference.variable]
    if reference.keys and value is scope.row.body and not isinstance(value, dict):
        return MISSING
    return follow(value, reference.keys)


def _call(name: str, operands: list[Any], scope: Scope) -> Any:
    operator = FUNCTIONS[name]
    try:
        if operator.compares:
            return operator.function(*operands, ordered=scope.ordered)
        result = operator.function(*operands)
        return checked(result) if operator.grows else result
    except Unfit as error:
        raise InvalidOperand(name, error.problem, error.found) from None


def _guarded(what: str, value: Any) -> Any:
    try:
        return checked(value)
    except Unfit as error:
        raise InvalidOperand(what, error.problem) from None


def _choose(choice: Choice, scope: Scope) -> Any:
    for case, then in choice.branches:
        if truthy(evaluate(case, scope)):
            return evaluate(then, scope)
    if choice.otherwise is None:
        raise InvalidOperand("$switch", "has no branch that is true, and no default")
    return evaluate(choice.otherwise, scope)


def _mapped(formula: Map, values: list[Any], scope: Scope) -> list[Any]:
    results, weight = [], 0
    for each in values:
        found = evaluate(formula.inside, scope.having(**{formula.variable: each}))
        results.append(None if found is MISSING else found)
        weight += weight_of(found)
        if weight > MAX_WEIGHT:
            raise too_large()
    return checked(results)  # type: ignore[no-any-return]


def _selected(formula: Select, values: list[Any], scope: Scope) -> list[Any]:
    limit = evaluate(formula.limit, scope)
    most = len(values) if limit is ABSENT or is_null(limit) else whole(limit, 1)
    results: list[Any] = []
    for each in values:
        if len(results) == most:
            break
        if truthy(evaluate(formula.condition, scope.having(**{formula.variable: each}))):
            results.append(each)
    return results


def _folded(formula: Fold, values: list[Any], scope: Scope) -> Any:
    value = evaluate(formula.initial, scope)
    for each in values:
        value = evaluate(formula.inside, scope.having(value=value, this=each))
    return value


def _convert(formula: Convert, scope: Scope) -> Any:
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


def _type_of(formula: Convert, scope: Scope) -> str | None:
    """Return what is converted to, or None; what is no type is an error, `onError` or not."""
    wanted = evaluate(formula.to, scope)
    try:
        return None if is_null(wanted) else type_named(wanted)
    except Unfit as error:
        raise InvalidOperand(formula.operator, error.problem, error.found) from None
