"""The records of dialogues, within a transaction: read, found, written, deleted, quarantined.

To a filter a dialogue is its header with the array `messages`. Stored messages are records of their own: each
condition that some message must meet is a query of these, and Python compares the rest with the whole dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias

from ..codec import Codec, decode
from ..document import Document, new_id
from ..errors import DialogueConflict, DuplicateKey, InvalidBody, VersionConflict
from ..expressions.path import Path, is_index
from ..operations import by_id
from ..operations.bulk import Given, PutBatch, batches
from ..operations.find import Count, Find
from ..operations.read import NaturalBatches
from ..operations.update import DeleteMatching
from ..query import conditions
from ..query.conditions import And, Condition, Field, HasObject, Not, Or
from ..query.filter import Filter, conjuncts
from ..query.matcher import matches
from ..query.sort import Sort
from .model import DialogueLabel
from .records import (
    NOTHING,
    Attempt,
    BadRecord,
    DialogueNamespace,
    Draft,
    Persisted,
    Quarantined,
    Record,
    key_of,
    message_id,
    messages_of,
    number_of,
)

Run: TypeAlias = Callable[[Any], Any]
"""Runs operations within a transaction."""
PURGE_BATCH: Final = 100
"""Dialogues that are purged in one transaction."""
_BY_ID: Final = Sort.parse("$id")
_LAST: Final = Sort.parse({"$id": -1})
_UNLIMITED: Final = Codec()
MESSAGES: Final = "messages"
_BATCH: Final = 500
_NEEDS_VALUE = (
    conditions.Equals, conditions.OneOf, conditions.Compare, conditions.Matches, conditions.Modulo,
    conditions.HasType, conditions.HasElement, HasObject,
)  # fmt: skip
"""Tests that a missing field cannot pass."""


def insert_message(names: DialogueNamespace, draft: Draft) -> by_id.Insert:
    """Return the single statement that writes a draft of one message: it inserts only beside the header."""
    key, number = draft.label.key, draft.before.messages + 1
    beside = names.headers(is_terminal=draft.is_terminal), key
    return by_id.Insert(names.messages, message_id(key, number), draft.messages[0], beside=beside)


def conflict(drafts: Sequence[Draft], error: VersionConflict | DuplicateKey) -> DialogueConflict:
    """Return the error that names the dialogue which somebody else wrote to."""
    met = (each.label for each in drafts if str(error.id).startswith(each.label.key))
    return DialogueConflict(next(met, drafts[0].label))


@dataclass(frozen=True, slots=True)
class StoredDialogues:
    """The records of a namespace, within a transaction."""

    run: Run
    names: DialogueNamespace
    json: Codec

    # -- reading ----------------------------------------------------------------------------------

    def load(self, keys: Iterable[str]) -> Record | None:
        """Return the first dialogue that has one of the keys."""
        for key in keys:
            for is_terminal in (False, True):
                document = self._header(key, is_terminal=is_terminal)
                if document is not None:
                    return self.record(document, is_terminal=is_terminal)
        return None

    def page(self, after: str, limit: int, *, is_terminal: bool) -> list[Record]:
        """Return dialogues in the order of their keys, past a key."""
        past = Filter.parse({"$id": {"$gt": after}})
        found = self.run(Find(self._headers(is_terminal), past, _BY_ID, limit=limit))
        return [self.record(each, is_terminal=is_terminal) for each in found]

    def record(self, header: Document, *, is_terminal: bool) -> Record:
        """Return a header with its messages."""
        found = self.run(Find(self.names.messages, Filter.parse(messages_of(header.id)), _BY_ID))
        own = [each for each in found if key_of(each.id) == header.id]  # others may write there too
        return Record(header, is_terminal, tuple((number_of(each.id), each.body) for each in own))

    def messages(self, label: DialogueLabel, after: int, limit: int) -> list[Any]:
        """Return some messages of a dialogue past a number."""
        if not self.is_of(label):
            return []
        past = Filter.parse(messages_of(label.key, after))
        return [
            each.body for each in self.run(Find(self.names.messages, past, _BY_ID, limit=limit))
        ]

    def is_known(self, label: DialogueLabel) -> bool:
        """Return whether there is a dialogue with a label, or one was deleted that must not begin again."""
        collections = self.names.finished, self.names.terminal, self.names.active
        return any(
            self.run(by_id.DocumentExists(each, label.key)) for each in collections
        ) and self.is_of(label)

    def is_of(self, label: DialogueLabel) -> bool:
        """Return whether a label is of the dialogue with its key: a complete one may hold another reference."""
        if not label.is_complete:
            return True
        header = self._header(label.key) or self._header(label.key, is_terminal=True)
        if header is None or not isinstance(header.body, dict):
            return header is None
        return label.is_in(header.body.get("dialogue_label"))

    def _by_keys(self, keys: Iterable[str], *, is_terminal: bool) -> list[Document]:
        wanted = Filter.parse({"$id": {"$in": list(keys)}})
        found: list[Document] = self.run(Find(self._headers(is_terminal), wanted))
        return found

    def persisted(self, keys: Iterable[str]) -> dict[str, Persisted]:
        """Return what is stored of the dialogues with some keys."""
        found: dict[str, Persisted] = {}
        for is_terminal in (False, True):
            for each in self._by_keys(keys, is_terminal=is_terminal):
                last, header = self._last(each.id), self.json.encode(each.body)
                count = number_of(last.id) if last else 0
                text = self.json.encode(last.body) if last and count else None
                found[each.id] = Persisted(count, header, is_terminal, each.version, text)
        return found

    def _stream(self, collection: str, filter: Filter) -> Iterator[Document]:
        stream = NaturalBatches(collection, filter)
        while (batch := stream.next()) is not None:
            yield from stream.advance(self.run(batch))

    def find(
        self, filter: Filter, limit: int | None, *, is_terminal: bool, ordered: bool
    ) -> list[Record]:
        """Return the dialogues that match, in the order in which they began (or ended, if terminal).

        `ordered`: whether the database keeps the order of an object's keys.
        """
        parts = conjuncts(filter.condition)
        of_header = [each for each in parts if not _reads_messages(each)]
        of_messages = [Filter(each) for each in map(_of_message, parts) if each is not None]
        header_filter = Filter(And(tuple(of_header)))
        if of_messages:
            keys = set.intersection(*map(self._keys_of_messages, of_messages))
            headers = iter(self._headers_of(sorted(keys), header_filter, is_terminal, ordered))
        else:
            headers = self._stream(self._headers(is_terminal), header_filter)
        found = (self.record(each, is_terminal=is_terminal) for each in headers)
        if len(of_header) < len(parts):
            found = (each for each in found if matches(filter, each.dialogue, ordered=ordered))
        return list(islice(found, limit))

    def _keys_of_messages(self, filter: Filter) -> set[str]:
        return {key_of(each.id) for each in self._stream(self.names.messages, filter)}

    def _headers_of(
        self, keys: Sequence[str], filter: Filter, is_terminal: bool, ordered: bool
    ) -> list[Document]:
        """Return the headers with some keys that match, in the order of `find`."""
        found: list[Document] = []
        for first in range(0, len(keys), _BATCH):
            headers = self._by_keys(keys[first : first + _BATCH], is_terminal=is_terminal)
            found += [each for each in headers if matches(filter, each, ordered=ordered)]
        return sorted(found, key=lambda each: (each.created_us, each.id))

    def _headers(self, is_terminal: bool) -> str:
        return self.names.headers(is_terminal=is_terminal)

    def _header(self, key: str, *, is_terminal: bool = False) -> Document | None:
        found: Document | None = self.run(by_id.GetDocument(self._headers(is_terminal), key))
        return found

    def _last(self, key: str) -> Document | None:
        own = Filter.parse(messages_of(key))
        return next(iter(self.run(Find(self.names.messages, own, _LAST, limit=1))), None)

    def _count(self, key: str) -> int:
        last = self._last(key)
        return number_of(last.id) if last else 0

    # -- writing ----------------------------------------------------------------------------------

    def write(self, drafts: Sequence[Draft]) -> None:
        """Write drafts; raises `DialogueConflict` where something else is stored than they were made for.

        A header that does not change is locked, so that nobody deletes it meanwhile. Each statement must see
        what was committed before it.
        """
        new: list[Draft] = []
        same: list[Draft] = []
        for draft in drafts:
            (new if draft.has_new_header else same).append(draft)
        for is_terminal in (False, True):
            some = [each for each in same if each.is_terminal is is_terminal]
            keys = tuple(each.label.key for each in some)
            there = self.run(by_id.LockMany(self._headers(is_terminal), keys)) if keys else ()
            for each in some:
                if each.label.key not in there:
                    raise DialogueConflict(each.label)
        for draft in new:
            self._write_header(draft)
        messages = (
            Given(number, message_id(draft.label.key, number), text)
            for draft in drafts
            for number, text in enumerate(draft.messages, draft.before.messages + 1)
        )
        for batch in batches(messages):
            try:
                self.run(PutBatch(self.names.messages, batch, "insert", strict=True))
            except DuplicateKey as error:
                raise conflict(drafts, error) from error

    def _write_header(self, draft: Draft) -> None:
        key, before = draft.label.key, draft.before
        old, new = self._headers(before.is_terminal), self._headers(draft.is_terminal)
        try:
            if before.header is None:
                self.run(by_id.Insert(new, key, draft.header))
            elif old == new:
                self.run(by_id.Replace(new, key, draft.header, before.version))
            else:
                self.run(by_id.RemoveById(old, key, before.version))
                if self._count(key) > before.messages:
                    raise DialogueConflict(draft.label)
                self.run(by_id.Insert(new, key, draft.header))
        except VersionConflict as error:
            raise DialogueConflict(draft.label) from error

    def undo(self, key: str, attempts: Sequence[Attempt]) -> Persisted:
        """Undo the unacknowledged write of a dialogue that took place; returns what is stored then. What another
        process wrote stays, and conflicts with the next write.
        """
        first, _ = attempts[0]
        found = self._persisted_like(key, first)
        for before, after in attempts:
            if found.matches(after) and not found.matches(before):
                self._undo(key, before, after)
                return self._persisted_like(key, first)
        return found if found.messages == first.messages else first

    def _persisted_like(self, key: str, before: Persisted) -> Persisted:
        found = self.persisted([key]).get(key, NOTHING)
        return replace(found, unknown=before.unknown)

    def _undo(self, key: str, before: Persisted, after: Persisted) -> None:
        old, new = self._headers(before.is_terminal), self._headers(after.is_terminal)
        for number in range(before.messages + 1, after.messages + 1):
            self.run(by_id.RemoveById(self.names.messages, message_id(key, number)))
        if after.header is None:
            self.run(by_id.RemoveById(self.names.finished, key))
        elif old == new and before.header is not None:
            if after.version != before.version:
                self.run(by_id.Replace(new, key, before.header, after.version))
        else:
            self.run(by_id.RemoveById(new, key, after.version))
            if before.header is not None:
                self.run(by_id.Insert(old, key, before.header))

    # -- deleting ---------------------------------------------------------------------------------

    def erase(self, label: DialogueLabel, *, remember: bool, expected: int | None = None) -> bool:
        """Delete a dialogue; `remember` its key, so that it cannot begin again. Returns whether there was one.
        Raises `DialogueConflict` if it has more messages than `expected`.
        """
        return self.is_of(label) and self._erase(label, remember=remember, expected=expected)

    def _erase(self, label: DialogueLabel, *, remember: bool, expected: int | None = None) -> bool:
        key, names = label.key, self.names
        found = [self.run(by_id.RemoveById(each, key)) for each in (names.active, names.terminal)]
        # without the header nobody can add a message
        if expected is not None and self._count(key) > expected:
            raise DialogueConflict(label)
        self.run(DeleteMatching(names.messages, Filter.parse(messages_of(key))))
        if remember:
            self.run(by_id.Put(names.finished, key, "null"))
        return any(found)

    def purge(self, before: int | None, kept: int | None) -> dict[str, bool]:
        """Delete a batch of terminal dialogues that ended before a time, in microseconds since 1970, or are more
        than `kept`, the oldest first; returns their keys, each with whether this transaction deleted it.
        """
        terminal = self.names.terminal
        oldest: list[Document] = self.run(Find(terminal, Filter(), limit=PURGE_BATCH))
        # counted afterwards: what others purge in between is among the oldest, and no longer counts
        excess = 0 if kept is None else max(0, self.run(Count(terminal, Filter())) - kept)
        expired = [
            each
            for number, each in enumerate(oldest)
            if number < excess or (before is not None and each.created_us < before)
        ]
        return {each.id: self._purge(each) for each in expired}

    def _purge(self, header: Document) -> bool:
        try:
            label = Record(header, is_terminal=True, messages=()).label
        except BadRecord:
            found: bool = self.run(by_id.RemoveById(self.names.terminal, header.id))
            for number, _ in self.record(header, is_terminal=True).messages:
                self.run(by_id.RemoveById(self.names.messages, message_id(header.id, number)))
            return found
        return self._erase(label, remember=label.is_by_counterparty)

    # -- quarantine -------------------------------------------------------------------------------

    def move_to_quarantine(self, record: Record, reason: str) -> None:
        """Move a record that cannot be read, with its messages. Raises `VersionConflict` if it is not stored as
        it was read: another process moved it, for example.
        """
        header, is_terminal = record.document, record.is_terminal
        self._move(self._headers(is_terminal), header, header.version, reason)
        for number, json in self.record(header, is_terminal=is_terminal).messages:
            message = Document(message_id(header.id, number), json)
            self._move(self.names.messages, message, None, reason)

    def _move(self, collection: str, found: Document, version: int | None, reason: str) -> None:
        parts = {"collection": collection, "id": found.id, "reason": reason}
        try:
            text = self.json.encode({**parts, "body": found.body})
        except InvalidBody:  # one level deeper than a body may be
            text = self.json.encode({**parts, "text": _UNLIMITED.encode(found.body)})
        self.run(by_id.RemoveById(collection, found.id, version))
        self.run(by_id.Put(self.names.quarantine, new_id(), text))

    def restore(self, key: str, group: Sequence[tuple[Document, Quarantined]]) -> Record | None:
        """Move a dialogue's records back from the quarantine; None, and nothing is moved, if the dialogue has begun
        again or ended or was deleted since. Raises `VersionConflict` if another record has an id, or somebody
        else moved them.
        """
        names = self.names
        known = names.active, names.terminal, names.finished
        is_headless = all(record.collection == names.messages for _, record in group)
        if is_headless or any(self.run(by_id.DocumentExists(each, key)) for each in known):
            return None
        for document, record in group:
            self.run(by_id.RemoveById(names.quarantine, document.id, document.version))
            self.run(by_id.Insert(record.collection, record.id, _UNLIMITED.encode(record.body)))
        return self.load([key])


def read_quarantined(names: DialogueNamespace, found: Document) -> Quarantined | None:
    """Return the record that `move_to_quarantine` moved; None: something else wrote the document."""
    match found.body:
        case {"collection": str(collection), "id": str(id), "reason": str(reason), **rest}:
            if collection in (names.active, names.terminal, names.messages):
                with suppress(ValueError, TypeError, KeyError):
                    body = rest["body"] if "body" in rest else decode(found.body["text"])
                    return Quarantined(collection, id, reason, body)
    return None


# -- filters of messages ----------------------------------------------------------------------------


def _of_message(condition: Condition) -> Condition | None:
    """Return what some message must meet where the condition holds; None: perhaps nothing."""
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
        case conditions.FitsSchema() | conditions.Expression():
            return True
    assert isinstance(condition, conditions.Metadata)
    return False
