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
from ..query.conditions import And, Condition, Field, HasObject, holds_text, leaves
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
        parts = conjuncts(filter.condition)
        header = tuple(each for each in parts if not _reads_messages(each))
        messages = tuple(Filter(each) for each in map(_of_message, parts) if each is not None)
        return cls(Filter(And(header)), messages, filter if len(header) < len(parts) else None)


def _of_message(condition: Condition) -> Condition | None:
    """Return the condition for a message of each matching dialogue; None: a dialogue may match without such a message."""
    if not isinstance(condition, Field) or condition.path.keys[:1] != (MESSAGES,):
        return None
    keys, test = condition.path.keys[1:], condition.test
    if isinstance(test, HasObject) and not _has_named_fields(test.condition):
        return None
    if not keys:
        return test.condition if isinstance(test, HasObject) else None
    tests = test.tests if isinstance(test, conditions.Passes) else (test,)
    needs_value = all(isinstance(each, _NEEDS_VALUE) for each in tests)
    if is_index(keys[0]) or not needs_value or conditions.takes_missing(test):
        return None
    return Field(Path(*keys), test)


def _has_named_fields(condition: Condition) -> bool:
    """Return whether all conditions are on fields, none on a position of a message that is an array."""
    return all(
        isinstance(each, Field) and each.path.keys and not is_index(each.path.keys[0])
        for each in leaves(condition)
    )


def _reads_messages(condition: Condition) -> bool:
    if holds_text(condition):
        raise InvalidFilter("$text", "dialogues are found by words with search, not with find")
    return any(
        each.path.keys[:1] in {(), (MESSAGES,)}
        if isinstance(each, Field)
        else not isinstance(each, conditions.Metadata)
        for each in leaves(condition)
    )
