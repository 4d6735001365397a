"""What is stored of a dialogue: its collections, its header, and a record for each message.

A header has a format, `record_format`; one without is of format 1. Keys that this version does not know are of a
newer one: they are passed over when a dialogue is read, and kept when its header is written again. A change that
older versions must not pass over takes a higher format, which they refuse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ..codec import Codec, decode
from ..document import Document, spelled
from ..errors import DialogueConflict, InvalidOption, SchemaTooNew, check_format, shortened
from ..query.values import equal
from .model import Dialogue, DialogueLabel, Message, Rules

D = TypeVar("D")


class DialogueCodec(Protocol[D]):
    """Takes dialogues of a class apart, and puts them together again.

    A *header* is a JSON object of all that a dialogue is beside label and messages: it is small, for it is
    written whenever it changes. Messages are JSON, and do not change once they are said.
    """

    def label(self, dialogue: D) -> DialogueLabel:
        """Return the label."""

    def is_terminal(self, dialogue: D) -> bool:
        """Has the dialogue ended?"""

    def header(self, dialogue: D) -> Mapping[str, Any]:
        """Return the header; `role`, `state` and `self_address` are its usual names."""

    def message_count(self, dialogue: D) -> int:
        """Return how many messages there are."""

    def messages(self, dialogue: D, after: int) -> Sequence[Any]:
        """Return the messages in their order, but for the first `after`."""

    def restore(
        self, label: DialogueLabel, header: Mapping[str, Any], messages: Sequence[Any]
    ) -> D:
        """Return the dialogue; any exception has its record put aside."""


@dataclass(frozen=True)
class PlainCodec:
    """The codec of `Dialogue`; the rules are not kept, but given again. `self_address`: whose dialogues they
    are, and only they; None: anybody's.
    """

    rules: Rules = field(default_factory=Rules)
    self_address: str | None = None

    def label(self, dialogue: Dialogue) -> DialogueLabel:
        """Return the label."""
        return dialogue.dialogue_label

    def is_terminal(self, dialogue: Dialogue) -> bool:
        """Has the dialogue ended?"""
        return dialogue.is_terminal

    def header(self, dialogue: Dialogue) -> Mapping[str, Any]:
        """Return what is kept beside the messages."""
        return dialogue.header()

    def message_count(self, dialogue: Dialogue) -> int:
        """Return how many messages there are."""
        return dialogue.message_count

    def messages(self, dialogue: Dialogue, after: int) -> Sequence[Any]:
        """Return the messages in their order, but for the first `after`."""
        return [each.json for each in dialogue.messages_after(after)]

    def restore(
        self, label: DialogueLabel, header: Mapping[str, Any], messages: Sequence[Any]
    ) -> Dialogue:
        """Return the dialogue."""
        address = _text(header, "self_address")
        if self.self_address not in {None, address}:
            raise ValueError(f"it is of {address!r}")
        dialogue = Dialogue(
            label,
            address,
            _text(header, "role"),
            rules=self.rules,
            metadata=_metadata(header),
        )
        for each in map(Message.from_json, messages):
            dialogue.take_back(each)
        dialogue.state = _text(header, "state")
        dialogue.is_terminal = header["is_terminal"]
        return dialogue


def _text(header: Mapping[str, Any], name: str) -> str:
    if isinstance(header.get(name), str):
        return str(header[name])
    raise ValueError(f"its header has no {name}")


def _metadata(header: Mapping[str, Any]) -> dict[str, Any]:
    metadata = header.get("metadata")
    if not isinstance(metadata, dict):
        raise ValueError("the metadata in its header is no object")
    return metadata


_LONGEST: Final = 150
_WIDTH: Final = 10
"""Digits of a place: a dialogue has fewer messages than that allows."""


@dataclass(frozen=True, slots=True)
class DialogueNamespace:
    """The dialogues of one component of one agent, in collections of their own.

    The names are told apart whatever they hold: `a` and `b_c` are not `a_b` and `c`.

    >>> DialogueNamespace("ada", "my-shop").messages
    'dialogues__ada__my_2dshop__messages'
    """

    agent: str
    component: str

    def __post_init__(self) -> None:
        for name, given in (("agent", self.agent), ("component", self.component)):
            value: Any = given
            if not isinstance(value, str) or not value:
                raise InvalidOption(name, f"{shortened(value)} is no text, or an empty one")

    @property
    def active(self) -> str:
        """The collection of the dialogues that go on."""
        return self._named("active")

    @property
    def terminal(self) -> str:
        """The collection of those that have ended."""
        return self._named("terminal")

    def place(self, *, is_terminal: bool) -> str:
        """One of these two."""
        return self.terminal if is_terminal else self.active

    @property
    def messages(self) -> str:
        """The collection of the messages of both."""
        return self._named("messages")

    @property
    def finished(self) -> str:
        """The collection that tells of dialogues which have ended and are gone."""
        return self._named("finished")

    @property
    def quarantine(self) -> str:
        """The collection of the records that cannot be restored."""
        return self._named("quarantine")

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return self.active, self.terminal, self.messages, self.finished, self.quarantine

    def _named(self, part: str) -> str:
        return f"dialogues__{_begin(self.agent, self.component)}__{part}"


@lru_cache(maxsize=256)
def _begin(agent: str, component: str) -> str:
    """Return what the names have in common; every message asks for some of them."""
    begin = f"{spelled(agent)}__{spelled(component)}"
    if len(begin) > _LONGEST:  # two underscores at its beginning: no escaped text has that
        text = json.dumps([agent, component], ensure_ascii=False)
        begin = f"__{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return begin


def message_id(key: str, place: int) -> str:
    """Return the id of the message at a place, from 1 on, of the dialogue with a key."""
    return f"{key}{place:0{_WIDTH}d}"


def key_of(message: str) -> str:
    """Return the key of the dialogue that a message, by its id, is of."""
    return message[:-_WIDTH]


def messages_of(key: str, after: int = 0) -> dict[str, Any]:
    """Return the filter of a dialogue's messages past a place."""
    return {"$id": {"$gt": message_id(key, after), "$lt": f"{key}:"}}  # ":" comes after the digits


FORMAT: Final = 1
_FORMAT: Final = "record_format"
_LABEL: Final = "dialogue_label"
_TOLERANT: Final = Codec(2**40)
"""For what is stored already."""
_OF_THE_PROCESS: Final = (MemoryError, OSError, ImportError)
"""What a process lacks says nothing of the record that it reads."""


class BadRecord(ValueError):
    """No dialogue can be made of a record."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is on the disk already: how many messages, the header's JSON and version, and among which
    dialogues.
    """

    messages: int = 0
    header: str | None = None
    is_terminal: bool = False
    version: int = 0
    last: str | None = field(default=None, repr=False)
    """The JSON of the last message, if it is not known yet whether the dialogue has it too."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    """What is in the header that the codec does not know."""

    def is_of(self, label: DialogueLabel) -> bool:
        """Is it of the dialogue with a label, and not of another one with the same key?"""
        found = None if self.header is None else decode(self.header)
        json = found.get(_LABEL) if isinstance(found, dict) else None
        return json is None or label.is_in(json)

    def matches(self, other: Kept) -> bool:
        """Return whether both are the same, as far as their last messages are known."""
        mine = self.messages, self.is_terminal, self.version, self.header is None
        if mine != (other.messages, other.is_terminal, other.version, other.header is None):
            return False
        if self.header is not None and other.header is not None:
            mine, others = _versioned(self.header), _versioned(other.header)
            if not equal(mine, others, ordered=False):
                return False
        return _same(self.last, other.last)


NOTHING = Kept()
Attempt: TypeAlias = tuple[Kept, Kept]
"""What was on the disk before a write, and what it was to be afterwards."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What shall be on the disk: a header, and the texts of the messages that are new."""

    label: DialogueLabel
    header: str = field(repr=False)
    is_terminal: bool
    messages: tuple[str, ...] = field(repr=False)
    kept: Kept = NOTHING

    @property
    def has_new_header(self) -> bool:
        """Must the header be written?"""
        kept = self.kept
        if kept.header is None or self.is_terminal != kept.is_terminal:
            return True
        return self.header != kept.header and _sorted(self.header) != _sorted(kept.header)

    @property
    def is_written(self) -> bool:
        """Is all of it on the disk?"""
        return not self.messages and not self.has_new_header

    @property
    def written(self) -> Kept:
        """What is on the disk afterwards."""
        moves = self.is_terminal != self.kept.is_terminal
        version = 1 if moves else self.kept.version + self.has_new_header
        messages = self.kept.messages + len(self.messages)
        return Kept(messages, self.header, self.is_terminal, version, unknown=self.kept.unknown)

    @property
    def attempt(self) -> Attempt:
        """What is on the disk before and afterwards."""
        last = self.messages[-1] if self.messages else None
        return self.kept, replace(self.written, last=last)


def _same(text: str | None, other: str | None) -> bool:
    if text is None or other is None:
        return True
    return equal(decode(text), decode(other), ordered=False)


def _sorted(header: str) -> str:
    """Return a header with its keys in one order: PostgreSQL does not keep that which they had."""
    return json.dumps(_versioned(header), sort_keys=True)


def _versioned(header: str) -> Any:
    """Return a header with its format."""
    found = decode(header)
    return {_FORMAT: 1, **found} if isinstance(found, dict) else found


@dataclass(frozen=True, slots=True)
class Record:
    """A header as it is on the disk, and the messages with their places."""

    document: Document
    is_terminal: bool
    messages: tuple[tuple[int, Any], ...] = field(repr=False)


@dataclass(frozen=True)
class DialogueRecorder(Generic[D]):
    """Makes records of dialogues, and dialogues of records."""

    codec: DialogueCodec[D]
    rules: Codec

    def draft(self, dialogue: D, kept: Kept) -> Draft:
        """Return what shall be on the disk of a dialogue; raises what its codec raises, `InvalidBody`,
        and `DialogueConflict` if there are other messages than it has.
        """
        label = self.codec.label(dialogue)
        if self.codec.message_count(dialogue) < kept.messages or not kept.is_of(label):
            raise DialogueConflict(label)
        if kept.last is not None and not self._is_last(dialogue, kept.messages, kept.last):
            raise DialogueConflict(label)
        new = self.codec.messages(dialogue, kept.messages)
        header, terminal = self.codec.header(dialogue), bool(self.codec.is_terminal(dialogue))
        return self.drawn(label, header, new, kept, is_terminal=terminal)

    def _is_last(self, dialogue: D, count: int, last: str) -> bool:
        """Is the last of the first `count` messages the one that is on the disk?"""
        own = decode(self.rules.encode(self.codec.messages(dialogue, count - 1)[0]))
        return equal(own, decode(last), ordered=False)

    def drawn(
        self,
        label: DialogueLabel,
        header: Mapping[str, Any],
        new: Any,
        kept: Kept,
        *,
        is_terminal: bool,
    ) -> Draft:
        """Return what shall be on the disk, of its parts; raises `InvalidBody`."""
        unknown = kept.unknown
        json = {**label.json, **unknown.get(_LABEL, {})}
        own = {_LABEL: json, "is_terminal": is_terminal, _FORMAT: FORMAT}
        body = {**own, **header, **unknown, **own}
        texts = tuple(map(self.rules.encode, new))
        return Draft(label, self.rules.encode(body), is_terminal, texts, kept)

    def drawn_on(self, label: DialogueLabel, new: Any, kept: Kept) -> Draft:
        """Return what shall be on the disk where the header stays as it is; raises `InvalidBody`."""
        assert kept.header is not None
        return Draft(label, kept.header, kept.is_terminal, tuple(map(self.rules.encode, new)), kept)

    def read(self, record: Record) -> tuple[D, Kept]:
        """Return the dialogue of a record, and what is on the disk of it; raises `BadRecord`."""
        header = record.document.body
        label = label_of(record)
        if [place for place, _ in record.messages] != list(range(1, len(record.messages) + 1)):
            raise BadRecord("some of its messages are missing")
        count = len(record.messages)
        given = deepcopy((header, [each for _, each in record.messages]))
        try:  # a copy: what is put aside is as it was
            found = self.codec.restore(label, *given)
            again = self.draft(found, Kept(count, None, record.is_terminal))
        except (*_OF_THE_PROCESS, SchemaTooNew):
            raise
        except Exception as error:
            raise BadRecord(f"{type(error).__name__}: {error}") from error
        if again.label != label or again.messages or again.is_terminal != record.is_terminal:
            raise BadRecord("what is made of it is another dialogue")
        unknown = _unknown(header, decode(again.header))
        if unknown:
            text = _TOLERANT.encode({**decode(again.header), **unknown, _LABEL: header[_LABEL]})
            again = replace(again, header=text)
        return found, replace(again.written, version=record.document.version, unknown=unknown)


def _unknown(header: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return what a header holds that is not known, of its label too."""
    unknown = {key: value for key, value in header.items() if key not in known}
    of_label = {key: each for key, each in header[_LABEL].items() if key not in known[_LABEL]}
    return {**unknown, _LABEL: of_label} if of_label else unknown


def label_of(record: Record) -> DialogueLabel:
    """Return the label in a record's header; raises `BadRecord`."""
    header = record.document.body
    if not isinstance(header, dict):
        raise BadRecord("it is no header of a dialogue")
    check_format(f"the dialogue {shortened(record.document.id)}", header.get(_FORMAT, 1), FORMAT)
    try:
        label = DialogueLabel.from_json(header.get(_LABEL))
    except ValueError as error:
        raise BadRecord(str(error)) from error
    if label.key != record.document.id:
        raise BadRecord("its id is not that of its label")
    if header.get("is_terminal") is not record.is_terminal:
        raise BadRecord(
            "it is among the terminal dialogues and not terminal, or the other way round"
        )
    return label
