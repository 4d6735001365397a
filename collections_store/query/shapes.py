"""A filter's shape and its values, apart: the one decides the SQL, the others are parameters."""

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
_SLOTS: Final[dict[Kind, Parameter]] = {kind: Parameter(kind) for kind in get_args(Kind)}
_LEAVES: Final = frozenset({str, bool, Path})


def shape_of(condition: Condition) -> Condition:
    """Return the condition with slots in the place of its values."""
    kind = type(condition)
    if kind is And:
        return And(tuple([shape_of(each) for each in condition.conditions]))  # type: ignore[union-attr]
    if kind is Field:
        asked: Any = condition
        test = asked.test
        if type(test) is Equals:  # most are
            return Field(asked.path, _equals(test.value.kind))
        if type(test) is Compare:
            return Field(asked.path, _compares(test.operator, test.value.kind))
    return _mapped(condition, _slot)


@cache
def _equals(kind: Kind) -> Equals:
    return Equals(_SLOTS[kind])


@cache
def _compares(operator: Comparison, kind: Kind) -> Compare:
    return Compare(operator, _SLOTS[kind])


def _slot(given: Operand) -> Parameter:
    return _SLOTS[given.kind]


def with_sql(shape: Condition, words: Callable[[Parameter], tuple[str, ...]]) -> Condition:
    """Return the shape with SQL in its slots; `words` is asked in the order of `values_of`."""
    return _mapped(shape, lambda given: Parameter(given.kind, words(Parameter(given.kind))))


def test_with_sql(test: Test, words: Callable[[Any], tuple[str, ...]]) -> Test:
    """Return the test with slots that hold the words for its values or, in a shape, its slots."""
    return _mapped(test, lambda given: Parameter(given.kind, words(given)))


def with_values(shape: Condition, value: Callable[[Parameter], Value]) -> Condition:
    """Return a condition of a shape; `value` is asked for its values in the order of `values_of`."""
    return _mapped(shape, lambda given: value(Parameter(given.kind)))


def values_of(condition: Condition | Test) -> list[Any]:
    """Return the values of a condition, or the slots of a shape, always in the same order."""
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
    made: T = kind(*[_mapped(getattr(node, name), change) for name in _names(kind)])
    return made


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
    """Return the names of what the nodes of a class are made of; there are a dozen classes."""
    return tuple(each.name for each in fields(kind) if each.init)
