"""The nodes of an expression. Each evaluates itself.

Nodes are immutable, comparable and hashable. An operator on the values of its operands is an `OperatorCall`; operators
that choose what to evaluate, or define variables, have nodes of their own. The rules:

1. `$a.b` reads the fields of objects. If `a` is an array, the value is an array of the fields of its objects. A number
   in a path is a key, never an index. A body that is not an object has no fields.
2. A path without a value is `MISSING`, not null: `MISSING` sorts before null, a missing field is left out, a missing
   element becomes null.
3. Most operators return null for null and missing. Evaluation raises `InvalidOperand` for an operand that an operator
   cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal

from .. import codec
from ..codec.times import iso
from ..document import Document, MetadataField, metadatum, moment, now
from ..errors import InvalidOperand
from . import arrays
from .classes import value_class
from .collation import Ordered
from .declared import Operator
from .evaluation import (
    ARRAY,
    NO_VARIABLES,
    NUMBER,
    POINTER,
    OperandError,
    Scope,
    array,
    checked,
    integer,
    is_null,
    key_of,
    order,
    truthy,
)
from .times import ConversionError
from .values import MISSING

IN_PLACE: Final[Mapping[str, Callable[[Scope, Any, list[Any]], Any]]] = {
    "$concatArrays": arrays.extended,
    "$mergeObjects": arrays.updated,
}
"""The operators by which a `$reduce` adds to its result, with functions that change the result in place."""
_COPY: Final = 24
"""Bytes that a character of a constant's JSON takes in memory, at most: `[]` takes 56."""


class Node:
    """Base class of the nodes."""

    __slots__ = ()
    is_checked: ClassVar[bool] = False
    """Whether the size of the value needs no check."""

    def evaluate(self, scope: Scope) -> Any:
        """Return the value, or `MISSING`; raises `InvalidOperand` and `OperandError`."""
        raise NotImplementedError


def evaluate(expression: Node, scope: Scope) -> Any:
    """Return the value of an expression, or `MISSING`; raises `InvalidOperand`."""
    try:
        return expression.evaluate(scope)
    except OperandError as error:  # outside of any operator
        raise InvalidOperand("the expression", error.problem, error.found) from None


@value_class(eq=True)
class Constant(Node):
    """A JSON value; `text` is its JSON, makes it comparable, and distinguishes 1, 1.0 and true."""

    text: str
    value: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any) -> Constant:
        """Take a decoded JSON value."""
        return cls(codec.spell(value), value)

    def evaluate(self, scope: Scope) -> Any:
        if not isinstance(self.value, list | dict):
            return self.value
        scope.hold(_COPY * len(self.text))
        return _copied(self.value)


def _copied(value: Any) -> Any:
    """Copy a constant, so that a caller cannot change the expression through a result."""
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


@value_class(eq=True)
class Reference(Node):
    """The path `keys` in a variable: `$a.b` is in `CURRENT`, `$$each.b` in `each`; `$$REMOVE` has no value."""

    variable: str
    keys: tuple[str, ...] = ()

    def evaluate(self, scope: Scope) -> Any:
        value = scope.variables[self.variable]
        if not self.keys:
            return value
        if value is scope.row.body and not isinstance(value, dict):
            return MISSING
        return _follow(value, self.keys, scope)


def _follow(value: Any, keys: tuple[str, ...], scope: Scope) -> Any:
    for depth, key in enumerate(keys):
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list):
            inner = (_follow(each, keys[depth:], scope) for each in value if isinstance(each, dict))
            found = [each for each in inner if each is not MISSING]
            scope.hold(ARRAY + POINTER * len(found))
            return found
        else:
            return MISSING
    return value


@value_class(eq=True)
class Meta(Node):
    """Metadata of the document (`$meta`)."""

    field: MetadataField | Literal["textScore"]

    def evaluate(self, scope: Scope) -> Any:
        row = scope.row
        return metadatum(row, self.field) if isinstance(row, Document) else MISSING


@value_class(eq=True)
class Now(Node):
    """The time of the call (`$$NOW`); without a call the current time."""

    def evaluate(self, scope: Scope) -> Any:
        return scope.variables.get("NOW") or iso(moment(now()))


def at_time(expression: Node, time: int, variables: Mapping[str, Any] = NO_VARIABLES) -> Node:
    """Return an expression in which `$$NOW` is a time in microseconds, also if it was another time before, and in which
    `variables` have values.
    """
    if isinstance(expression, Let) and expression.variables[0][0] == "NOW":
        expression = expression.inside
    values = ((name, constant_of(value)) for name, value in variables.items())
    return Let((("NOW", Constant.of(iso(moment(time)))), *values), expression)


def constant_of(value: Any) -> Node:
    """Return the expression of a value, or of no value (`MISSING`)."""
    return Reference("REMOVE") if value is MISSING else Constant.of(value)


@value_class(eq=True)
class ArrayOf(Node):
    """An array; a missing element becomes null."""

    elements: tuple[Node, ...]

    def evaluate(self, scope: Scope) -> Any:
        before = scope.held
        values = [each.evaluate(scope) for each in self.elements]
        found = checked([None if each is MISSING else each for each in values])
        scope.held += NUMBER * len(found)
        scope.settle(before, found)
        return found


@value_class(eq=True)
class ObjectOf(Node):
    """An object; a missing field is left out."""

    fields: tuple[tuple[str, Node], ...]

    def evaluate(self, scope: Scope) -> Any:
        before, found = scope.held, {}
        for name, each in self.fields:
            value = each.evaluate(scope)
            if value is not MISSING:
                found[name] = value
        scope.held += NUMBER * len(checked(found))
        scope.settle(before, found)
        return found


@value_class(eq=True)
class OperatorCall(Node):
    """An operator on the values of its operands."""

    operator: str
    operands: tuple[Node, ...]
    declared: Operator = field(compare=False, repr=False)

    @classmethod
    def of(cls, operator: Operator, operands: tuple[Node, ...]) -> OperatorCall:
        return cls(operator.name, operands, operator)

    def evaluate(self, scope: Scope) -> Any:
        before = scope.held
        try:
            values = [each.evaluate(scope) for each in self.operands]
            found = self.declared.call(values, scope)
            scope.settle(before, found)
        except OperandError as error:
            raise InvalidOperand(self.operator, error.problem, error.found) from None
        return found


@value_class(eq=True)
class Recovered(Node):
    """An operator whose result `on_null` replaces for a first operand that is null, and `on_error` for a failed
    conversion (`$convert`, `$dateFromString` …).
    """

    operator: str
    operands: tuple[Node, ...]
    declared: Operator = field(compare=False, repr=False)
    on_null: Node | None = None
    on_error: Node | None = None

    def evaluate(self, scope: Scope) -> Any:
        before = scope.held
        try:
            values = [each.evaluate(scope) for each in self.operands]
            found = self.declared.call(values, scope)
            other = self.on_null if is_null(values[0]) else None
        except OperandError as error:
            if self.on_error is None or not isinstance(error, ConversionError):
                raise InvalidOperand(self.operator, error.problem, error.found) from None
            other = self.on_error
        if other is not None:
            return other.evaluate(scope)
        scope.settle(before, found)
        return found


@value_class(eq=True)
class InConstant(Node):
    """Whether a constant array has a value (`$in`): looked up, not searched."""

    value: Node
    array: Constant

    def evaluate(self, scope: Scope) -> Any:
        key = key_of(self.value.evaluate(scope), ordered=scope.ordered)
        return key in _keys(self.array, scope.ordered)


@lru_cache(maxsize=64)
def _keys(array: Constant, ordered: Ordered) -> frozenset[Hashable]:
    return frozenset(key_of(each, ordered=ordered) for each in array.value)


@value_class(eq=True)
class Logic(Node):
    """`$and` or `$or`: evaluated up to the operand that decides."""

    operator: Literal["$and", "$or"]
    operands: tuple[Node, ...]

    def evaluate(self, scope: Scope) -> Any:
        before = scope.held
        decides = any if self.operator == "$or" else all
        found = decides(truthy(each.evaluate(scope)) for each in self.operands)
        scope.held = before
        return found


@value_class(eq=True)
class Switch(Node):
    """The value of the first branch whose case is true (`$cond`, `$switch`); None: no default."""

    branches: tuple[tuple[Node, Node], ...]
    default: Node | None

    def evaluate(self, scope: Scope) -> Any:
        for case, then in self.branches:
            if truthy(case.evaluate(scope)):
                return then.evaluate(scope)
        if self.default is None:
            raise InvalidOperand("$switch", "has no branch that is true, and no default")
        return self.default.evaluate(scope)


@value_class(eq=True)
class Bucket(Node):
    """The last of the ascending boundaries that is at most a value; the default for a value outside of them (`$bucket`)."""

    value: Node
    boundaries: tuple[Constant, ...]
    default: Node | None

    def evaluate(self, scope: Scope) -> Any:
        before = scope.held
        value = self.value.evaluate(scope)
        scope.held = before
        low, high = 0, len(self.boundaries)
        while low < high:
            middle = (low + high) // 2
            if order(value, self.boundaries[middle].value, ordered=scope.ordered) < 0:
                high = middle
            else:
                low = middle + 1
        if 0 < low < len(self.boundaries):
            return self.boundaries[low - 1].evaluate(scope)
        if self.default is None:
            raise InvalidOperand("$bucket", "has no bucket for a value, and no default")
        return self.default.evaluate(scope)


@value_class(eq=True)
class IfNull(Node):
    """The first operand that is neither null nor missing, else the last (`$ifNull`)."""

    operands: tuple[Node, ...]

    def evaluate(self, scope: Scope) -> Any:
        found: Any = None
        for each in self.operands:
            if not is_null(found := each.evaluate(scope)):
                break
        return found


@value_class(eq=True)
class Let(Node):
    """`inside`, with variables (`$let`)."""

    variables: tuple[tuple[str, Node], ...]
    inside: Node

    def evaluate(self, scope: Scope) -> Any:
        before, outer = scope.held, scope.variables
        inner = {name: each.evaluate(scope) for name, each in self.variables}
        scope.variables = {**outer, **inner}
        try:
            found = self.inside.evaluate(scope)
        finally:
            scope.variables = outer
        scope.settle(before, found)
        return found


class _ForEach(Node):
    """Base class of the nodes that evaluate an expression for each element of `input`."""

    __slots__ = ()
    NAME: ClassVar[str]
    input: Node

    def evaluate(self, scope: Scope) -> Any:
        before, outer = scope.held, scope.variables
        try:
            values = self.input.evaluate(scope)
            if is_null(values):
                return None
            scope.variables = dict(outer)
            found = self._run(array(values), scope)
            scope.settle(before, found)
        except OperandError as error:
            raise InvalidOperand(self.NAME, error.problem, error.found) from None
        finally:
            scope.variables = outer
        return found

    def _run(self, values: list[Any], scope: Scope) -> Any:
        raise NotImplementedError


@value_class(eq=True)
class Map(_ForEach):
    """`inside` for each element (`$map`)."""

    NAME: ClassVar[str] = "$map"
    input: Node
    variable: str
    inside: Node

    def _run(self, values: list[Any], scope: Scope) -> Any:
        results: list[Any] = []
        for each in scope.each(values, results):
            scope.variables[self.variable] = each
            found = self.inside.evaluate(scope)
            results.append(None if found is MISSING else found)
            scope.held += POINTER + NUMBER
        return checked(results)


@value_class(eq=True)
class FilterElements(_ForEach):
    """The elements for which a condition is true, up to `limit` (`$filter`)."""

    NAME: ClassVar[str] = "$filter"
    input: Node
    variable: str
    condition: Node
    limit: Node | None

    def _run(self, values: list[Any], scope: Scope) -> Any:
        limit = None if self.limit is None else self.limit.evaluate(scope)
        most = len(values) if is_null(limit) else integer(limit, 1)
        results: list[Any] = []
        for each in scope.each(values, results):
            scope.variables[self.variable] = each
            if truthy(self.condition.evaluate(scope)):
                results.append(each)
                if len(results) == most:
                    break
        return results


@value_class(eq=True)
class Reduce(_ForEach):
    """`inside` for each element, where `$$value` is the result of the previous elements (`$reduce`).

    `in_place`: `inside` is an operator of `IN_PLACE`, and its only use of `$$value` is to add to `$$value`.
    """

    NAME: ClassVar[str] = "$reduce"
    input: Node
    initial: Node
    inside: Node
    in_place: bool

    def _run(self, values: list[Any], scope: Scope) -> Any:
        results = [self.initial.evaluate(scope)]
        if self.in_place and isinstance(self.inside, OperatorCall):
            self._add(self.inside, values, results, scope)
            return results[0]
        for each in scope.each(values, results):
            scope.variables.update(this=each, value=results[0])
            results[0] = self.inside.evaluate(scope)
        return results[0]

    def _add(self, call: OperatorCall, values: list[Any], results: list[Any], scope: Scope) -> None:
        """Add to the result, which is not copied for each element. The first sum is a copy of the initial value."""
        copied = False
        for each in scope.each(values, results):
            scope.variables["this"] = each
            more = [operand.evaluate(scope) for operand in call.operands[1:]]
            try:
                if copied:
                    results[0] = IN_PLACE[call.operator](scope, results[0], more)
                else:
                    results[0] = call.declared.call([results[0], *more], scope)
            except OperandError as error:
                raise InvalidOperand(call.operator, error.problem, error.found) from None
            copied = True


def nodes_of(expression: Any) -> Iterator[Any]:
    """Yield the nodes of an expression, itself first; of a condition, also the conditions."""
    if isinstance(expression, tuple):
        for each in expression:
            yield from nodes_of(each)
    elif is_dataclass(expression):
        yield expression
        for each in fields(expression):
            yield from nodes_of(getattr(expression, each.name))
