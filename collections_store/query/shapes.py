"""The shape of a filter, which decides the SQL, and its values, which are the parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar, get_args

from .conditions import (
    And,
    Compare,
    Comparison,
    Condition,
    Equals,
    Field,
    Kind,
    Operand,
    Parameter,
    Test,
    Value,
)
from .path import Path

T = TypeVar("T")
_PARAMETERS: Final[dict[Kind, Parameter]] = {kind: Parameter(kind) for kind in get_args(Kind)}
_LEAVES: Final = frozenset({str, bool, Path})


def shape_of(condition: Condition) -> Condition:
    """Return the condition with parameters in place of its values."""
    if type(condition) is And:
        return And(tuple([shape_of(each) for each in condition.conditions]))
    if type(condition) is Field:
        test = condition.test
        if type(test) is Equals:  # most are
            return Field(condition.path, _equals(test.value.kind))
        if type(test) is Compare:
            return Field(condition.path, _compares(test.operator, test.value.kind))
    return _mapped(condition, _parameter)


@cache
def _equals(kind: Kind) -> Equals:
    return Equals(_PARAMETERS[kind])


@cache
def _compares(operator: Comparison, kind: Kind) -> Compare:
    return Compare(operator, _PARAMETERS[kind])


def _parameter(operand: Operand) -> Parameter:
    return _PARAMETERS[operand.kind]


def with_sql(shape: Condition, sql: Callable[[Parameter], tuple[str, ...]]) -> Condition:
    """Return the shape with SQL in its parameters; `sql` is called in the order of `values_of`."""
    return _mapped(shape, lambda operand: Parameter(operand.kind, sql(Parameter(operand.kind))))


def test_with_sql(test: Test, sql: Callable[[Any], tuple[str, ...]]) -> Test:
    """Return the test with parameters that hold the SQL of its values or, in a shape, its parameters."""
    return _mapped(test, lambda operand: Parameter(operand.kind, sql(operand)))


def with_values(shape: Condition, value: Callable[[Parameter], Value]) -> Condition:
    """Return a condition of a shape; `value` is called for its values in the order of `values_of`."""
    return _mapped(shape, lambda operand: value(Parameter(operand.kind)))


def values_of(condition: Condition | Test) -> list[Any]:
    """Return the values of a condition, or the parameters of a shape, always in the same order."""
    if type(condition) is And:
        return [value for each in condition.conditions for value in values_of(each)]
    test = condition.test if type(condition) is Field else condition
    if type(test) is Equals or type(test) is Compare:
        return [test.value]  # most are
    found: list[Operand] = []
    _visit(test, found)
    return found


def _mapped(node: T, change: Callable[[Operand], Operand]) -> T:
    kind: Any = type(node)
    if kind is Value or kind is Parameter:
        return change(node)  # type: ignore[arg-type, return-value]
    if kind is tuple:
        return tuple([_mapped(each, change) for each in node])  # type: ignore[attr-defined, return-value]
    if kind in _LEAVES:
        return node
    result: T = kind(*[_mapped(getattr(node, name), change) for name in _names(kind)])
    return result


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
    """Return the names of the parts of a node's class."""
    return tuple(each.name for each in fields(kind) if each.init)
