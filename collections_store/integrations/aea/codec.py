"""AEA's dialogues as the store of dialogues keeps them, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aea.protocols.base import Message
from aea.protocols.dialogue.base import Dialogue, Dialogues
from aea.protocols.dialogue.base import DialogueLabel as AeaLabel

from ...dialogues import DialogueLabel
from .attributes import added_to_json, metadata_of, set_attributes
from .encoding import encoded

ACTIVE: Final = "active"
_ENVELOPE: Final = {"dialogue_reference", "message_id", "target", "performative"}
_LONGEST: Final = 2_000
"""Characters of a field of a message that is kept for finding it, besides the message as it was said."""


def label_of(label: AeaLabel) -> DialogueLabel:
    """Return our label for AEA's; raises `InvalidOption` where the other side sent none that makes sense."""
    reference = tuple(label.dialogue_reference)
    return DialogueLabel(reference, label.dialogue_opponent_addr, label.dialogue_starter_addr)  # type: ignore[arg-type]


def ended_with(dialogue: Dialogue) -> str | None:
    """Return the performative that ended the dialogue; None: it goes on. A message may still come after that.

    It looks at the messages that are new since it was last asked: a dialogue may have thousands.
    """
    seen: Seen = vars(dialogue).get(SEEN, NOTHING_SEEN)
    seen = (seen if seen.is_of(dialogue) else NOTHING_SEEN).and_new(dialogue)
    vars(dialogue)[SEEN] = seen
    return seen.ended


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a dialogue was looked at: so many messages, the last of them, and what has ended it."""

    count: int = 0
    last: Message | None = None
    ended: str | None = None

    def is_of(self, dialogue: Dialogue) -> bool:
        """Are these its first messages? Some may have been taken back."""
        ids, count = dialogue._ordered_message_ids, self.count
        if count > len(ids):
            return False
        return not count or dialogue.get_message_by_id(ids[count - 1]) is self.last

    def and_new(self, dialogue: Dialogue) -> Seen:
        """Return it with the messages since."""
        terminal, last, ended = dialogue.rules.terminal_performatives, self.last, self.ended
        for id in dialogue._ordered_message_ids[self.count :]:
            last = dialogue.get_message_by_id(id)
            if ended is None and last is not None and last.performative in terminal:
                ended = str(last.performative)
        return Seen(len(dialogue._ordered_message_ids), last, ended)


SEEN: Final = "_seen_by_collections_store"
NOTHING_SEEN: Final = Seen()


class AeaCodec:
    """The codec of AEA's dialogues of one class."""

    def __init__(self, dialogues: Dialogues) -> None:
        self._dialogues = dialogues

    def label(self, dialogue: Dialogue) -> DialogueLabel:
        """Return the label."""
        return label_of(dialogue.dialogue_label)

    def is_terminal(self, dialogue: Dialogue) -> bool:
        """Has the dialogue ended?"""
        return ended_with(dialogue) is not None

    def header(self, dialogue: Dialogue) -> Mapping[str, Any]:
        """Return what is kept beside the messages."""
        return {
            "self_address": dialogue.self_address,
            "role": dialogue.role.value,
            "state": ended_with(dialogue) or ACTIVE,
            "metadata": metadata_of(dialogue),
        }

    def message_count(self, dialogue: Dialogue) -> int:
        """Return how many messages there are."""
        return len(dialogue._ordered_message_ids)

    def messages(self, dialogue: Dialogue, after: int) -> Sequence[Any]:
        """Return the messages in their order, but for the first `after`."""
        new = dialogue._ordered_message_ids[after:]
        return [_json(dialogue, id) for id in new]

    def restore(
        self, label: DialogueLabel, header: Mapping[str, Any], messages: Sequence[Any]
    ) -> Dialogue:
        """Return the dialogue as its class makes it of JSON. Its addresses are interned: fetchai's AEA compares them
        with `is not`.
        """
        metadata = header.get("metadata", {})
        told = {
            "dialogue_label": {name: sys.intern(value) for name, value in label.json.items()},
            "self_address": sys.intern(header["self_address"]),
            "role": header["role"],
            "incoming_messages": [each for each in messages if each["is_incoming"]],
            "outgoing_messages": [each for each in messages if not each["is_incoming"]],
            "last_message_id": messages[-1]["message_id"],
            "ordered_message_ids": [each["message_id"] for each in messages],
        }
        made, message_class = self._dialogues.dialogue_class, self._dialogues.message_class
        dialogue = made.from_json(message_class, {**added_to_json(metadata), **told})
        set_attributes(dialogue, metadata)
        return dialogue


def _json(dialogue: Dialogue, id: int) -> dict[str, Any]:
    message = dialogue.get_message_by_id(id)
    assert message is not None
    return {
        **message.json(),  # to, sender, and the bytes that AEA sends
        "is_incoming": (id > 0) != dialogue.is_self_initiated,
        "message_id": message.message_id,
        "target": message.target,
        "performative": str(message.performative),
        "content": _content(message),
    }


def _content(message: Message) -> dict[str, Any]:
    """Return those fields of a message which JSON can say: they are there to be found."""
    fields = {}
    for name, value in message._body.items():
        if name not in _ENVELOPE:
            with suppress(TypeError, ValueError, RecursionError):
                if len(json.dumps(value)) <= _LONGEST:
                    fields[name] = encoded(value)
    return fields
