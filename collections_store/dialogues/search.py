"""Finding dialogues by their headers and their messages.

To a filter a dialogue is its header with the array `messages`. Stored messages are records of their own: each
condition that some message must meet is a query of these, and Python compares the rest with the whole dialogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from ..document import Document
from ..query.conditions import (
    And,
    Compare,
    Condition,
    Equals,
    Expression,
    Field,
    FitsSchema,
    HasElement,
    HasObject,
    HasType,
    Matches,
    Metadata,
    Modulo,
    Not,
    OneOf,
    Or,
    Passes,
    takes_missing,
)
from ..query.filter import Filter, conjuncts
from ..query.matcher import matches
from ..query.path import Path, is_index
from .records import Record, key_of
from .storage import StoredDialogues

MESSAGES: Final = "messages"
_BATCH: Final = 500
_NEEDS_VALUE = (Equals, OneOf, Compare, Matches, Modulo, HasType, HasElement, HasObject)
"""Tests that a missing field cannot pass."""


def find(
    stored: StoredDialogues, filter: Filter, limit: int | None, *, is_terminal: bool, ordered: bool
) -> list[Record]:
    """Return the dialogues that match, in the order in which they began (or ended, if terminal).

    `ordered`: whether the database keeps the order of an object's keys.
    """
    conditions = conjuncts(filter.condition)
    of_header = [each for each in conditions if not _reads_messages(each)]
    headers = _headers(stored, filter, Filter(And(tuple(of_header))), is_terminal, ordered)
    records = (stored.record(each, is_terminal=is_terminal) for each in headers)
    if len(of_header) < len(conditions):
        records = (each for each in records if matches(filter, _dialogue(each), ordered=ordered))
    return list(islice(records, limit))


def _headers(
    stored: StoredDialogues, filter: Filter, of_header: Filter, is_terminal: bool, ordered: bool
) -> Iterator[Document]:
    """Yield the headers that match `of_header`, of dialogues that have messages which may match."""
    of_messages = filters_of_messages(filter)
    if not of_messages:
        yield from stored.stream(stored.names.headers(is_terminal=is_terminal), of_header)
        return
    keys = set.intersection(*(_keys(stored, each) for each in of_messages))
    remaining = iter(sorted(keys))
    found: list[Document] = []
    while batch := list(islice(remaining, _BATCH)):
        headers = stored.by_keys(batch, is_terminal=is_terminal)
        found += [each for each in headers if matches(of_header, each, ordered=ordered)]
    yield from sorted(found, key=lambda each: (each.created_us, each.id))


def _keys(stored: StoredDialogues, filter: Filter) -> set[str]:
    return {key_of(each.id) for each in stored.stream(stored.names.messages, filter)}


def _dialogue(record: Record) -> Document:
    """Return a dialogue as a filter sees it."""
    messages = [json for _, json in record.messages]
    return replace(record.document, body={**record.document.body, MESSAGES: messages})


def filters_of_messages(filter: Filter) -> list[Filter]:
    """Return filters that each must match some message of a dialogue that matches."""
    found = map(_of_message, conjuncts(filter.condition))
    return [Filter(each) for each in found if each is not None]


def _of_message(condition: Condition) -> Condition | None:
    """Return what some message must meet where the condition holds; None: perhaps nothing."""
    if not isinstance(condition, Field) or condition.path.keys[:1] != (MESSAGES,):
        return None
    keys, test = condition.path.keys[1:], condition.test
    if isinstance(test, HasObject) and not _has_only_fields(test.condition):
        return None
    if not keys:
        return test.condition if isinstance(test, HasObject) else None
    tests = test.tests if isinstance(test, Passes) else (test,)
    needs_value = all(isinstance(each, _NEEDS_VALUE) for each in tests)
    if is_index(keys[0]) or not needs_value or takes_missing(test):
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
        case FitsSchema() | Expression():
            return True
    assert isinstance(condition, Metadata)
    return False
