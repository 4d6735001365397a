"""What one side of dialogues knows of labels and messages by its own address."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidDialogueMessage, InvalidOption, shortened
from .dialogue import Dialogue
from .label import UNASSIGNED, DialogueLabel
from .message import Message


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that talk."""

    self_address: str

    def new_label(self, counterparty: str) -> DialogueLabel:
        """Return the label of a dialogue that this side is about to begin."""
        given: Any = counterparty
        if not isinstance(given, str) or given in {"", self.self_address} or "\0" in given:
            raise InvalidOption("counterparty", f"{shortened(given)} is no address of another")
        return DialogueLabel((secrets.token_hex(16), UNASSIGNED), counterparty, self.self_address)

    def family_of(self, thing: Any) -> tuple[Any, ...]:
        """Return what all messages and labels of a dialogue have in common; it may be anything."""
        label = thing.dialogue_label if isinstance(thing, Dialogue) else thing
        if isinstance(label, DialogueLabel):
            return label.dialogue_starter_reference, label.dialogue_opponent_addr
        if isinstance(thing, Message):
            own = thing.sender == self.self_address
            return thing.dialogue_reference[0], thing.to if own else thing.sender
        return ()

    def labels_of(self, message: Message) -> list[DialogueLabel]:
        """Return the labels, incomplete, that the dialogue of a message may have."""
        reference = (message.dialogue_reference[0], UNASSIGNED)
        other = message.to if message.sender == self.self_address else message.sender
        if not reference[0] or not other:
            return []
        return [DialogueLabel(reference, other, starter) for starter in (other, self.self_address)]

    def check_incoming(self, message: Message) -> Message:
        given: Any = message
        if not isinstance(given, Message):
            raise InvalidDialogueMessage(given, "it is no Message")
        if message.to != self.self_address or message.sender in {"", self.self_address}:
            raise InvalidDialogueMessage(
                message, f"it is not from another to {self.self_address!r}"
            )
        if not message.dialogue_reference[0]:
            raise InvalidDialogueMessage(message, "its dialogue_reference has no starter's part")
        if "\0" in "".join((message.sender, *message.dialogue_reference)):
            raise InvalidDialogueMessage(message, "its sender or dialogue_reference holds NUL")
        return message
