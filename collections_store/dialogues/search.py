"""Finding dialogues by what is in their headers and their messages.

To a filter a dialogue is its header with the array `messages`. On the disk messages are objects of their own: each
condition that some message must meet is asked of these, and what is left is looked at whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from ..document import Document
from ..operations.read import Reading
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
from .records import DialogueNamespace, Record, key_of
from .storage import Run, by_ids, record_of

MESSAGES: Final = "messages"
_AT_ONCE: Final = 500
_SOME = (Equals, OneOf, Compare, Matches, Modulo, HasType, HasElement, HasObject)
"""Tests that only a value passes which is there."""


def find(
    run: Run,
    names: DialogueNamespace,
    filter: Filter,
    limit: int | None,
    *,
    is_terminal: bool,
    ordered: bool,
) -> list[Record]:
    """Return the dialogues that match, in the order in which they began (or ended, if terminal).

    `ordered`: does the database keep the order of an object's keys?
    """
    place = names.place(is_terminal=is_terminal)
    asked = [each for each in conjuncts(filter.condition) if not _looks_inside(each)]
    of_headers = Filter(And(tuple(asked)))
    headers = _headers(run, names, place, filter, of_headers, ordered=ordered)
    records = (record_of(run, names, each, is_terminal=is_terminal) for each in headers)
    if len(asked) < len(conjuncts(filter.condition)):
        records = (each for each in records if matches(filter, _whole(each), ordered=ordered))
    return list(islice(records, limit))


def _headers(
    run: Run, names: DialogueNamespace, place: str, filter: Filter, asked: Filter, *, ordered: bool
) -> Iterator[Document]:
    """Yield the headers that match as far as headers tell, of dialogues that have such messages."""
    of_messages = filter_of_messages(filter)
    if not of_messages:
        yield from _stream(run, place, asked)
        return
    keys = set.intersection(*(_keys(run, names, each) for each in of_messages))
    ids = iter(sorted(keys))
    found: list[Document] = []
    while some := list(islice(ids, _AT_ONCE)):
        there = by_ids(run, place, some)
        found += [each for each in there if matches(asked, each, ordered=ordered)]
    yield from sorted(found, key=lambda each: (each.created_us, each.id))


def _keys(run: Run, names: DialogueNamespace, filter: Filter) -> set[str]:
    return {key_of(each.id) for each in _stream(run, names.messages, filter)}


def _stream(run: Run, place: str, filter: Filter) -> Iterator[Document]:
    reading = Reading(place, filter)
    while (batch := reading.next()) is not None:
        yield from reading.took(run(batch))


def _whole(record: Record) -> Document:
    """Return a dialogue as a filter sees it."""
    messages = [json for _, json in record.messages]
    return replace(record.document, body={**record.document.body, MESSAGES: messages})


def filter_of_messages(filter: Filter) -> list[Filter]:
    """Return what must be true of some message each, for a dialogue to match."""
    found = map(_of_message, conjuncts(filter.condition))
    return [Filter(each) for each in found if each is not None]


def _of_message(condition: Condition) -> Condition | None:
    """Return what some message must meet so that the condition can hold; None: it may hold anyhow."""
    if not isinstance(condition, Field) or condition.path.keys[:1] != (MESSAGES,):
        return None
    keys, test = condition.path.keys[1:], condition.test
    if isinstance(test, HasObject) and not _is_plain(test.condition):
        return None
    if not keys:
        return test.condition if isinstance(test, HasObject) else None
    some = test.tests if isinstance(test, Passes) else (test,)
    if is_index(keys[0]) or not all(isinstance(e, _SOME) for e in some) or takes_missing(test):
        return None
    return Field(Path(*keys), test)


def _is_plain(condition: Condition) -> bool:
    """Does it speak of fields only?"""
    match condition:
        case And(parts) | Or(parts):
            return all(map(_is_plain, parts))
        case Not(part):
            return _is_plain(part)
    return isinstance(condition, Field) and condition.path.keys != ()


def _looks_inside(condition: Condition) -> bool:
    """Does it speak of messages?"""
    match condition:
        case And(parts) | Or(parts):
            return any(map(_looks_inside, parts))
        case Not(part):
            return _looks_inside(part)
        case Field(path):
            return path.keys[:1] in {(), (MESSAGES,)}
        case FitsSchema() | Expression():
            return True
    assert isinstance(condition, Metadata)
    return False
