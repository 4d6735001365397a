"""Filters of dialogues, pure.

To a filter a dialogue is its header with the array `messages`. Stored messages are separate records: a condition that
requires a matching message becomes a query of these records, and Python compares the rest with whole dialogues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import InvalidFilter
from ..expressions.path import Path, is_index
from ..query import conditions
from ..query.conditions import And, Condition, Field, HasObject, Not, Or
from ..query.filter import Filter, conjuncts

MESSAGES: Final = "messages"
_NEEDS_VALUE = (
    conditions.Equals, conditions.OneOf, conditions.Compare, conditions.Matches, conditions.Modulo,
    conditions.HasType, conditions.HasElement, HasObject,
)  # fmt: skip
"""Tests that a missing field cannot pass."""


@dataclass(frozen=True, slots=True)
class Search:
    """The parts of a filter: the conditions on the header, the conditions that a message must meet, and the filter of whole
    dialogues; None: the header decides.
    """

    header: Filter
    messages: tuple[Filter, ...]
    whole: Filter | None

    @classmethod
    def of(cls, filter: Filter) -> Search:
        """Return the parts of a filter."""
        parts = conjuncts(filter.condition)
        header = tuple(each for each in parts if not _reads_messages(each))
        messages = tuple(Filter(each) for each in map(_of_message, parts) if each is not None)
        return cls(Filter(And(header)), messages, filter if len(header) < len(parts) else None)


def _of_message(condition: Condition) -> Condition | None:
    """Return the condition for a message of each matching dialogue; None: a dialogue may match without such a message."""
    if not isinstance(condition, Field) or condition.path.keys[:1] != (MESSAGES,):
        return None
    keys, test = condition.path.keys[1:], condition.test
    if isinstance(test, HasObject) and not _has_only_fields(test.condition):
        return None
    if not keys:
        return test.condition if isinstance(test, HasObject) else None
    tests = test.tests if isinstance(test, conditions.Passes) else (test,)
    needs_value = all(isinstance(each, _NEEDS_VALUE) for each in tests)
    if is_index(keys[0]) or not needs_value or conditions.takes_missing(test):
        return None
    return Field(Path(*keys), test)


def _has_only_fields(condition: Condition) -> bool:
    match condition:
        case And(parts) | Or(parts):
            return all(map(_has_only_fields, parts))
        case Not(part):
            return _has_only_fields(part)
    return isinstance(condition, Field) and condition.path.keys != ()


def _reads_messages(condition: Condition) -> bool:
    match condition:
        case And(parts) | Or(parts):
            return any(map(_reads_messages, parts))
        case Not(part):
            return _reads_messages(part)
        case Field(path):
            return path.keys[:1] in {(), (MESSAGES,)}
        case conditions.Text():
            raise InvalidFilter("$text", "dialogues have no text index")
        case conditions.FitsSchema() | conditions.Expression():
            return True
    assert isinstance(condition, conditions.Metadata)
    return False
