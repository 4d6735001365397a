"""What is on the disk of a dialogue: a header, and a record for each message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from ..codec import Codec, decode
from ..document import Document
from ..errors import DialogueConflict
from ..values import equal
from .coding import DialogueCodec
from .label import DialogueLabel

D = TypeVar("D")
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

    def is_of(self, label: DialogueLabel) -> bool:
        """Is it of the dialogue with a label, and not of another one with the same key?"""
        found = None if self.header is None else decode(self.header)
        json = found.get("dialogue_label") if isinstance(found, dict) else None
        return json in (None, label.json, label.get_incomplete_version().json)


NOTHING = Kept()


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
        return Kept(messages, self.header, self.is_terminal, version)


def _sorted(header: str) -> str:
    """Return a header with its keys in one order: PostgreSQL does not keep that which they had."""
    return json.dumps(decode(header), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Record:
    """A header as it is on the disk, and the messages with their places."""

    document: Document
    is_terminal: bool
    messages: tuple[tuple[int, Any], ...] = field(repr=False)


@dataclass(frozen=True)
class Recorder(Generic[D]):
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
        own = {"dialogue_label": label.json, "is_terminal": is_terminal}
        body = {**own, **header, **own}
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
        except _OF_THE_PROCESS:
            raise
        except Exception as error:
            raise BadRecord(f"{type(error).__name__}: {error}") from error
        if again.label != label or again.messages or again.is_terminal != record.is_terminal:
            raise BadRecord("what is made of it is another dialogue")
        return found, replace(again.written, version=record.document.version)


def label_of(record: Record) -> DialogueLabel:
    """Return the label in a record's header; raises `BadRecord`."""
    header = record.document.body
    if not isinstance(header, dict):
        raise BadRecord("it is no header of a dialogue")
    try:
        label = DialogueLabel.from_json(header.get("dialogue_label"))
    except ValueError as error:
        raise BadRecord(str(error)) from error
    if label.key != record.document.id:
        raise BadRecord("its id is not that of its label")
    if header.get("is_terminal") is not record.is_terminal:
        raise BadRecord(
            "it is among the terminal dialogues and not terminal, or the other way round"
        )
    return label
