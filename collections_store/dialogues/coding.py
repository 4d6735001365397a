"""Between dialogues of any class and JSON: what a host's own classes need to be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .dialogue import Dialogue
from .label import DialogueLabel
from .message import Message
from .rules import Rules

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
