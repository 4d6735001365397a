"""Shapes of filters: conditions with parameters in place of their values, and filters so simple that strings hold the shape.

`with_operands` and `values_of` visit the operands of a condition, always in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar, get_args

from ..codec import MAX_INTEGER, MIN_INTEGER, Codec
from ..expressions.collation import Collation
from ..expressions.path import Path, parsed
from .conditions import (
    KINDS,
    PLAIN_LENGTH,
    And,
    Collated,
    Compare,
    Comparison,
    Condition,
    Equals,
    Field,
    Kind,
    Metadata,
    Not,
    OneOf,
    Operand,
    Or,
    Parameter,
    Test,
    Value,
    is_plain_string,
)

# -- plain documents ---------------------------------------------------------------------------

SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_NOT_PLAIN: Final = {"", "$", "_"}
"""How keys begin that may name something else than a field."""
_ID: Final = "$id"
_PLAIN_BYTES: Final = PLAIN_LENGTH + 100
"""The JSON of a string of `PLAIN_LENGTH` characters, or of a number, is shorter."""
_COMPARISONS: Final[Mapping[str, Comparison]] = {name: name for name in get_args(Comparison)}


PlainShape: TypeAlias = tuple[str, ...]
"""The shape of a plain filter, in strings, which hash in a tenth of the time of conditions: for each test the name of the
field, a comparison unless it is `$eq`, and the kind of the value.
"""


def read_plain(document: dict[Any, Any], codec: Codec) -> tuple[PlainShape, list[Any]] | None:
    """Return the shape and the values of a document of fields and `$id`, each with a short scalar, or comparisons with
    some; None for any other document, which `FilterParser.document` reads. `plain_condition` of both has the parser's
    result. Raises `InvalidFilter` for an invalid path.
    """
    shape: list[str] = []
    values: list[Any] = []
    if codec.max_bytes < _PLAIN_BYTES:
        return None
    for name, wanted in document.items():
        if type(name) is not str or (name[:1] in _NOT_PLAIN and name != _ID):
            return None
        if name != _ID:
            parsed(name)
        if type(wanted) is not dict:
            kind = _plain_kind(wanted)
            if kind is None:
                return None
            shape += name, kind
            values.append(wanted)
            continue
        for operator, operand in wanted.items():
            kind = _plain_kind(operand)
            if operator not in _COMPARISONS or kind is None or operand is None:
                return None
            shape += name, _COMPARISONS[operator], kind  # a `str`, also of an enum
            values.append(operand)
        if not wanted:
            return None
    return tuple(shape), values


def _plain_kind(value: Any) -> Kind | None:
    """Return the kind of a short scalar; None for any other value."""
    kind = type(value)
    if kind is int:
        is_plain = MIN_INTEGER <= value <= MAX_INTEGER
    elif kind is str:
        is_plain = is_plain_string(value) is not None
    else:
        is_plain = math.isfinite(value) if kind is float else kind in SCALARS
    return KINDS[kind] if is_plain else None


def plain_condition(shape: PlainShape, values: Iterable[Any]) -> Condition:
    """Return the condition of a plain filter."""
    each = iter(values)
    return _conditions(shape, lambda _: Value.of(next(each)))


def _conditions(shape: PlainShape, operand: Callable[[Any], Operand]) -> Condition:
    words, tests = iter(shape), []
    for name in words:
        word: Any = next(words)
        if word in _COMPARISONS:
            test: Test = Compare(word, operand(next(words)))
        else:
            test = Equals(operand(word))
        tests.append((name, Metadata("id", test) if name == _ID else Field(parsed(name), test)))
    fields = groupby(tests, itemgetter(0))
    return _all([_all([condition for _, condition in its]) for _, its in fields])


def _all(conditions: list[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


# -- shapes ------------------------------------------------------------------------------------

T = TypeVar("T")
_PARAMETERS: Final[dict[Kind, Parameter]] = {kind: Parameter(kind) for kind in get_args(Kind)}
_EQUALS: Final = {kind: Equals(parameter) for kind, parameter in _PARAMETERS.items()}
_COMPARES: Final = {
    (operator, kind): Compare(operator, parameter)
    for operator in get_args(Comparison)
    for kind, parameter in _PARAMETERS.items()
}
_LEAVES: Final = frozenset({str, bool, Path, Collation})


def shape_of(condition: Condition) -> Condition:
    """Return the condition with parameters in place of its values."""
    if type(condition) is And:
        return And(tuple([shape_of(each) for each in condition.conditions]))
    if type(condition) is Field or type(condition) is Metadata:
        target: Any = condition.path if isinstance(condition, Field) else condition.field
        test = condition.test
        if type(test) is Equals:  # most are
            return type(condition)(target, _EQUALS[test.value.kind])
        if type(test) is Compare:
            return type(condition)(target, _COMPARES[test.operator, test.value.kind])
    return with_operands(condition, lambda operand: _PARAMETERS[operand.kind])


def condition_of(shape: Condition | PlainShape) -> Condition:
    """Return the condition of a shape, which has parameters."""
    if not isinstance(shape, tuple):
        return shape
    return _conditions(shape, _PARAMETERS.__getitem__)


def with_sql(node: T, sql: Callable[[Any], tuple[str, ...]]) -> T:
    """Return a condition or a test with the SQL of its operands in parameters. `sql` is called in the order of
    `values_of`.
    """
    return with_operands(node, lambda operand: Parameter(operand.kind, sql(operand)))


def values_of(condition: Condition | Test) -> list[Any]:
    """Return the values of a condition, or the parameters of a shape, always in the same order."""
    if type(condition) is And:
        return [value for each in condition.conditions for value in values_of(each)]
    test = condition.test if type(condition) is Field or type(condition) is Metadata else condition
    if type(test) is Equals or type(test) is Compare:
        return [test.value]  # most are
    found: list[Operand] = []
    _visit(test, found)
    return found


def with_operands(node: T, change: Callable[[Any], Operand]) -> T:
    """Return a condition or a test with other operands; `change` is called in the order of `values_of`."""
    kind: Any = type(node)
    if kind is Value or kind is Parameter:
        return change(node)  # type: ignore[return-value]
    if kind is tuple:
        return tuple([with_operands(each, change) for each in node])  # type: ignore[attr-defined, return-value]
    if kind in _LEAVES:
        return node
    return kind(*[with_operands(getattr(node, name), change) for name in _names(kind)])  # type: ignore[no-any-return]


def _visit(node: Any, found: list[Operand]) -> None:
    kind: Any = type(node)
    if kind is Value or kind is Parameter:
        found.append(node)
    elif kind is tuple:
        for each in node:
            _visit(each, found)
    elif kind not in _LEAVES:
        for name in _names(kind):
            _visit(getattr(node, name), found)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.init)


# -- conditions that never hold ----------------------------------------------------------------


def simplified(condition: Condition) -> Condition:
    """Return a condition without the parts of disjunctions that never hold: an index can then serve the rest. Without
    such parts the condition is the same object.
    """
    match condition:
        case Field(test=test) | Metadata(test=test):
            return Or(()) if isinstance(test, OneOf) and not test.lists else condition
        case And(inner):
            parts = tuple(map(simplified, inner))
            return condition if parts == inner else And(parts)
        case Or(inner, single=False):
            parts = tuple(each for each in map(simplified, inner) if not is_never(each))
            if len(parts) == 1:
                return parts[0]
            return condition if parts == inner else Or(parts)
        case Not(inner):
            part = simplified(inner)
            if part == And(()):
                return Or(())
            return condition if part is inner else Not(part)
    return condition


def is_never(condition: Condition) -> bool:
    """Return whether a simplified condition never holds."""
    match condition:
        case Or(()):
            return True
        case And(inner):
            return any(map(is_never, inner))
    return False


# -- collations ---------------------------------------------------------------------------------


def collated(condition: Condition, collation: Collation) -> Condition:
    """Return a condition with each part that compares strings under a collation."""
    match condition:
        case And(inner):
            return And(tuple(collated(each, collation) for each in inner))
        case Or(inner, single=False):
            return Or(tuple(collated(each, collation) for each in inner))
        case Not(inner):
            return Not(collated(inner, collation))
        case Collated():
            return condition
    compares = any(map(_has_string, values_of(condition)))
    return Collated(condition, collation) if compares else condition


def _has_string(operand: Value) -> bool:
    """Return whether an operand may be compared with strings: a string, a value that holds strings, or an expression."""
    if operand.kind in {"array", "object"}:
        return holds_string(operand.value)
    return operand.kind in {"string", "strings", "expression"}


def holds_string(value: Any) -> bool:
    """Return whether a JSON value is a string or holds a string, besides the names of fields."""
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, str) or (isinstance(value, list) and any(map(holds_string, value)))
