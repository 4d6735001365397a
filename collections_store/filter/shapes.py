"""A filter's shape and its values, apart: the one decides the SQL, the others are parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from ..path import Path
from .conditions import Condition, Given, Slot, Test, Value

T = TypeVar("T")


def shape_of(condition: Condition) -> Condition:
    """Return the condition with slots in the place of its values."""
    return _mapped(condition, lambda given: Slot(given.kind))


def in_words(shape: Condition, words: Callable[[Slot], tuple[str, ...]]) -> Condition:
    """Return the shape with SQL in its slots; `words` is asked in the order of `values_of`."""
    return _mapped(shape, lambda given: Slot(given.kind, words(Slot(given.kind))))


def spelled_out(test: Test, words: Callable[[Any], tuple[str, ...]]) -> Test:
    """Return the test with slots that hold the words for its values or, in a shape, its slots."""
    return _mapped(test, lambda given: Slot(given.kind, words(given)))


def values_of(condition: Condition | Test) -> list[Any]:
    """Return the values of a condition, or the slots of a shape, always in the same order."""
    return list(_visit(condition))


def _mapped(node: T, change: Callable[[Given], Slot]) -> T:
    if isinstance(node, Value | Slot):
        return change(node)  # type: ignore[return-value]
    if isinstance(node, tuple):
        return tuple([_mapped(each, change) for each in node])  # type: ignore[return-value]
    if isinstance(node, str | bool | Path):
        return node
    changed = {f.name: _mapped(getattr(node, f.name), change) for f in fields(node)}  # type: ignore[arg-type]
    return replace(node, **changed)  # type: ignore[type-var]


def _visit(node: Any) -> Iterator[Given]:
    if isinstance(node, Value | Slot):
        yield node
    elif isinstance(node, tuple):
        for each in node:
            yield from _visit(each)
    elif not isinstance(node, str | bool | Path):
        for f in fields(node):
            yield from _visit(getattr(node, f.name))
