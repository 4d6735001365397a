"""The stored form of a dialogue: its collections, its header, and a record for each message.

A header has a format, `record_format`, by default 1. Unknown keys are of a newer version: a read ignores unknown keys, and a
write of the header keeps unknown keys. A change that older versions must not ignore takes a higher format, which older versions refuse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ..codec import Codec, decode
from ..document import Document, spelled
from ..errors import DialogueConflict, InvalidOption, SchemaTooNew, check_format, shortened
from ..expressions.values import equal
from .model import Dialogue, DialogueLabel, Message, Rules, check_string

D = TypeVar("D")


class DialogueCodec(Protocol[D]):
    """Converts dialogues of a class to label, header and messages, and back.

    The *header* is a JSON object with all of a dialogue but label and messages. Keep the header small: each change
    writes the whole header. Messages are JSON, and do not change after they are accepted.
    """

    def label(self, dialogue: D) -> DialogueLabel:
        """Return the label."""

    def is_terminal(self, dialogue: D) -> bool:
        """Return whether the dialogue is terminal."""

    def header(self, dialogue: D) -> Mapping[str, Any]:
        """Return the header; `role`, `state` and `self_address` are its usual names."""

    def message_count(self, dialogue: D) -> int:
        """Return the number of messages."""

    def messages(self, dialogue: D, after: int) -> Sequence[Any]:
        """Return the messages in their order, except the first `after`."""

    def restore(
        self, label: DialogueLabel, header: Mapping[str, Any], messages: Sequence[Any]
    ) -> D:
        """Return the dialogue; any exception moves its record to the quarantine."""


@dataclass(frozen=True)
class PlainCodec(DialogueCodec[Dialogue]):
    """The codec of `Dialogue`. The rules are not stored. Only dialogues of `self_address` are restored; None: of any
    address.
    """

    rules: Rules = field(default_factory=Rules)
    self_address: str | None = None

    def label(self, dialogue: Dialogue) -> DialogueLabel:
        return dialogue.dialogue_label

    def is_terminal(self, dialogue: Dialogue) -> bool:
        return dialogue.is_terminal

    def header(self, dialogue: Dialogue) -> Mapping[str, Any]:
        return dialogue.header()

    def message_count(self, dialogue: Dialogue) -> int:
        return dialogue.message_count

    def messages(self, dialogue: Dialogue, after: int) -> Sequence[Any]:
        return [each.json for each in dialogue.messages_after(after)]

    def restore(
        self, label: DialogueLabel, header: Mapping[str, Any], messages: Sequence[Any]
    ) -> Dialogue:
        address, role, state = (
            check_string(name, header.get(name)) for name in ("self_address", "role", "state")
        )
        metadata = header.get("metadata")
        if not isinstance(metadata, dict):
            raise InvalidOption("metadata", f"must be an object, got {shortened(metadata)}")
        if self.self_address not in {None, address}:
            raise InvalidOption("self_address", f"must be {self.self_address!r}, got {address!r}")
        dialogue = Dialogue(label, address, role, rules=self.rules, metadata=metadata)
        for each in map(Message.from_json, messages):
            dialogue.replay(each)
        dialogue.state, dialogue.is_terminal = state, header["is_terminal"]
        return dialogue


_MAX_PREFIX: Final = 150
"""Characters of a collection's name before the part's; a longer name is replaced by its digest."""
_DIGITS: Final = 10
"""Digits of a message's number in its id: the ids sort as the numbers do."""


DIALOGUES: Final = "dialogues__"
"""The beginning of the names of all collections of dialogues."""
PARTS: Final = ("active", "terminal", "messages", "finished", "quarantine")


@dataclass(frozen=True, slots=True)
class DialogueNamespace:
    """The collections of the dialogues of a component of an agent.

    Different pairs have different collections: `a` and `b_c` are not `a_b` and `c`.

    >>> DialogueNamespace("ada", "my-shop").messages
    'dialogues__ada__my_2dshop__messages'
    """

    agent: str
    component: str
    active: str = field(init=False, repr=False, compare=False)
    """Of the headers of active dialogues."""
    terminal: str = field(init=False, repr=False, compare=False)
    """Of the headers of terminal dialogues."""
    messages: str = field(init=False, repr=False, compare=False)
    """Of the messages of all dialogues."""
    finished: str = field(init=False, repr=False, compare=False)
    """Of the keys of deleted dialogues that must not begin again."""
    quarantine: str = field(init=False, repr=False, compare=False)
    """Of the records that restore no dialogue."""

    def __post_init__(self) -> None:
        for name, value in (("agent", self.agent), ("component", self.component)):
            if not check_string(name, value):
                raise InvalidOption(name, "must not be empty")
        prefix = f"{spelled(self.agent)}__{spelled(self.component)}"
        if len(prefix) > _MAX_PREFIX:  # no escaped string begins with two underscores
            text = json.dumps([self.agent, self.component], ensure_ascii=False)
            prefix = f"__{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
        for part in PARTS:
            object.__setattr__(self, part, f"{DIALOGUES}{prefix}__{part}")

    @property
    def all(self) -> tuple[str, ...]:
        return self.active, self.terminal, self.messages, self.finished, self.quarantine

    def headers(self, is_terminal: bool) -> str:
        """Return the collection of the headers of active or of terminal dialogues."""
        return self.terminal if is_terminal else self.active


def message_id(key: str, number: int) -> str:
    """Return the id of a message's record, from the dialogue's key and the message's number from 1 on."""
    return f"{key}{number:0{_DIGITS}d}"


def key_of(message_id: str) -> str:
    """Return the key of the dialogue of a message's record."""
    return message_id[:-_DIGITS]


def number_of(message_id: str) -> int:
    """Return the number of a message in its dialogue; 0 for a record of another program."""
    digits = message_id[-_DIGITS:]
    return int(digits) if digits.isdecimal() else 0


def messages_of(key: str, after: int = 0) -> dict[str, Any]:
    """Return the filter of a dialogue's messages past a number."""
    return {"$id": {"$gt": message_id(key, after), "$lt": f"{key}:"}}  # ":" comes after the digits


FORMAT: Final = 1
_FORMAT: Final = "record_format"
_LABEL: Final = "dialogue_label"
UNLIMITED: Final = Codec(2**40)
"""Encodes stored bodies, of any size."""
NEWER: Final = "it is in format {}, and this version knows {}: upgrade the library, and then call restore_quarantined"
_OF_THE_PROCESS: Final = (MemoryError, OSError, ImportError)
"""Errors of the process, which do not prove a record bad."""


class BadRecord(ValueError):
    """A record that restores no dialogue."""


@dataclass(frozen=True, slots=True)
class Persisted:
    """The stored state of a dialogue: the number of messages, the header's JSON and version, and its collection."""

    messages: int = 0
    header: str | None = None
    is_terminal: bool = False
    version: int = 0
    last: str | None = field(default=None, repr=False)
    """The JSON of the last message, until it was compared with the dialogue's."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    """The keys of the header that the codec does not know."""

    def is_of(self, label: DialogueLabel) -> bool:
        """Return whether the state is of the dialogue with a label, and not of another dialogue with the same key."""
        found = None if self.header is None else decode(self.header)
        json = found.get(_LABEL) if isinstance(found, dict) else None
        return json is None or label.is_in(json)

    def matches(self, other: Persisted) -> bool:
        """Return whether two states are equal, as far as the last messages are known."""
        mine = self.messages, self.is_terminal, self.version, self.header is None
        if mine != (other.messages, other.is_terminal, other.version, other.header is None):
            return False
        if self.header is not None and other.header is not None:
            headers = _with_format(self.header), _with_format(other.header)
            if not equal(*headers, ordered=False):
                return False
        return None in (self.last, other.last) or _is_same(self.last, other.last)


NOTHING = Persisted()
Attempt: TypeAlias = tuple[Persisted, Persisted]
"""The stored state before a write, and after it."""


@dataclass(frozen=True)
class Draft:
    """The parts of a write: a header, and the JSON of the new messages."""

    label: DialogueLabel
    header: str = field(repr=False)
    is_terminal: bool
    messages: tuple[str, ...] = field(repr=False)
    before: Persisted = NOTHING

    @cached_property
    def has_new_header(self) -> bool:
        """Whether the header must be written."""
        before = self.before
        if before.header is None or self.is_terminal != before.is_terminal:
            return True
        return self.header != before.header and _sorted(self.header) != _sorted(before.header)

    @property
    def is_written(self) -> bool:
        """Whether all parts are stored already."""
        return not self.messages and not self.has_new_header

    def records(self) -> list[tuple[str, str]]:
        """Return the ids and the texts of the new messages' records."""
        numbered = enumerate(self.messages, self.before.messages + 1)
        return [(message_id(self.label.key, number), text) for number, text in numbered]

    @cached_property
    def after(self) -> Persisted:
        """The stored state after the write."""
        before, moves = self.before, self.is_terminal != self.before.is_terminal
        version = 1 if moves else before.version + self.has_new_header
        count = before.messages + len(self.messages)
        return Persisted(count, self.header, self.is_terminal, version, unknown=before.unknown)

    @property
    def attempt(self) -> Attempt:
        """The stored state before and after the write."""
        last = self.messages[-1] if self.messages else None
        return self.before, replace(self.after, last=last)


def _is_same(text: Any, other: Any) -> bool:
    return equal(decode(text), decode(other), ordered=False)


def _sorted(header: str) -> str:
    """Return a header with sorted keys: PostgreSQL does not keep their order."""
    return json.dumps(_with_format(header), sort_keys=True)


def _with_format(header: str) -> Any:
    found = decode(header)
    return {_FORMAT: 1, **found} if isinstance(found, dict) else found


@dataclass(frozen=True, slots=True)
class FoundDialogue(Generic[D]):
    """A dialogue that a search found, by its best message; better dialogues have a higher score.

    `message` is a `Message`, or of a `DialogueStore` the message's JSON. `snippets` has the passage of each field of the
    message with words of the query, if `highlight` was given.
    """

    dialogue: D
    message: Any
    score: float
    snippets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored header, and the messages with their numbers."""

    document: Document
    is_terminal: bool
    messages: tuple[tuple[int, Any], ...] = field(repr=False)

    @property
    def dialogue(self) -> Document:
        """The dialogue of a filter: the header with `messages`; a header that is no object is alone."""
        header = self.document.body
        if not isinstance(header, dict):
            return self.document
        messages = [json for _, json in self.messages]
        return replace(self.document, body={**header, "messages": messages})

    @property
    def label(self) -> DialogueLabel:
        """The label in the header; raises `BadRecord`, and `SchemaTooNew` for a newer format."""
        header, id = self.document.body, self.document.id
        if not isinstance(header, dict):
            raise BadRecord("it is not the header of a dialogue")
        check_format(f"the dialogue {shortened(id)}", header.get(_FORMAT, 1), FORMAT)
        try:
            label = DialogueLabel.from_json(header.get(_LABEL))
        except ValueError as error:
            raise BadRecord(str(error)) from error
        if label.key != id:
            raise BadRecord("its id is not that of its label")
        if header.get("is_terminal") is not self.is_terminal:
            raise BadRecord("its is_terminal contradicts its collection")
        return label


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record that restores no dialogue: its collection and id, the reason, and its body."""

    collection: str
    id: str
    reason: str
    body: Any


@dataclass(frozen=True)
class RecordCodec(Generic[D]):
    """Converts dialogues to drafts, and records to dialogues."""

    dialogues: DialogueCodec[D]
    json: Codec

    def draft(self, dialogue: D, before: Persisted) -> Draft:
        """Return the draft of a dialogue's changes; raises the errors of the codec, `InvalidBody`, and `DialogueConflict`
        if other messages are stored than the dialogue has.
        """
        codec = self.dialogues
        label = codec.label(dialogue)
        if codec.message_count(dialogue) < before.messages or not before.is_of(label):
            raise DialogueConflict(label)
        if before.last is not None:
            own = self.json.encode(codec.messages(dialogue, before.messages - 1)[0])
            if not _is_same(own, before.last):
                raise DialogueConflict(label)
        new = codec.messages(dialogue, before.messages)
        header, is_terminal = codec.header(dialogue), bool(codec.is_terminal(dialogue))
        return self.compose(label, header, new, before, is_terminal=is_terminal)

    def compose(
        self,
        label: DialogueLabel,
        header: Mapping[str, Any] | None,
        new: Sequence[Any],
        before: Persisted,
        *,
        is_terminal: bool,
    ) -> Draft:
        """Return a draft of its parts; `header` None keeps the stored header. Raises `InvalidBody`."""
        messages = tuple(map(self.json.encode, new))
        if header is None and before.header is not None:
            return Draft(label, before.header, before.is_terminal, messages, before)
        unknown = before.unknown
        json = {**label.json, **unknown.get(_LABEL, {})}
        own = {_LABEL: json, "is_terminal": is_terminal, _FORMAT: FORMAT}
        body = self.json.encode({**own, **(header or {}), **unknown, **own})
        return Draft(label, body, is_terminal, messages, before)

    def read(self, record: Record) -> tuple[D, Persisted]:
        """Return the dialogue of a record, and its stored state; raises `BadRecord`, also for a newer format."""
        try:
            return self._read(record)
        except SchemaTooNew as error:
            raise BadRecord(NEWER.format(error.found, error.expected)) from error

    def _read(self, record: Record) -> tuple[D, Persisted]:
        header, label, count = record.document.body, record.label, len(record.messages)
        if [number for number, _ in record.messages] != list(range(1, count + 1)):
            raise BadRecord("some of its messages are missing")
        copy = deepcopy((header, [each for _, each in record.messages]))
        try:  # of a copy: the quarantine takes the record unchanged
            dialogue = self.dialogues.restore(label, *copy)
            draft = self.draft(dialogue, Persisted(count, None, record.is_terminal))
        except (*_OF_THE_PROCESS, SchemaTooNew):
            raise
        except Exception as error:
            raise BadRecord(f"{type(error).__name__}: {error}") from error
        if draft.label != label or draft.messages or draft.is_terminal != record.is_terminal:
            raise BadRecord("the restored dialogue is another one")
        known = decode(draft.header)
        unknown = {key: value for key, value in header.items() if key not in known}
        of_label = {key: each for key, each in header[_LABEL].items() if key not in known[_LABEL]}
        unknown |= {_LABEL: of_label} if of_label else {}
        if unknown:
            header = {**known, **unknown, _LABEL: header[_LABEL]}
            draft = replace(draft, header=UNLIMITED.encode(header))
        return dialogue, replace(draft.after, version=record.document.version, unknown=unknown)
