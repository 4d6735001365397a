"""The codec of AEA's dialogues: labels, messages and attributes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aea.protocols.base import Message
from aea.protocols.dialogue.base import Dialogue, Dialogues
from aea.protocols.dialogue.base import DialogueLabel as AeaLabel

from ...dialogues import DialogueLabel
from .encoding import decoded, encoded

ACTIVE: Final = "active"
ATTRIBUTES: Final = "attributes"
OWN: Final = "json"
SCAN: Final = "_scan_by_collections_store"
_MAX_ATTRIBUTE: Final = 100_000
"""Characters of an attribute: all are written again whenever one has changed."""
_MAX_DEPTH: Final = 20
_MAX_FIELD: Final = 2_000
"""Characters of a message's field that is stored for searches, beside the message's bytes."""
_ENVELOPE: Final = {"dialogue_reference", "message_id", "target", "performative"}
_JSON_KEYS: Final = frozenset(
    {
        "dialogue_label",
        "self_address",
        "role",
        "incoming_messages",
        "outgoing_messages",
        "last_message_id",
        "ordered_message_ids",
    }
)
_AEA_ATTRIBUTES: Final = frozenset(
    {f"_{key}" for key in _JSON_KEYS} | {"_message_class", "_terminal_state_callbacks", SCAN}
)


def label_of(label: AeaLabel) -> DialogueLabel:
    """Return our label for AEA's; raises `InvalidOption` where another agent sent an impossible one."""
    reference = tuple(label.dialogue_reference)
    return DialogueLabel(reference, label.dialogue_opponent_addr, label.dialogue_starter_addr)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of scanning a dialogue's first `count` messages for a terminal performative."""

    count: int = 0
    last: Message | None = None
    terminal: str | None = None

    def is_of(self, dialogue: Dialogue) -> bool:
        """Return whether these are still its first messages: a failed write removes some."""
        ids, count = dialogue._ordered_message_ids, self.count
        if count > len(ids):
            return False
        return not count or dialogue.get_message_by_id(ids[count - 1]) is self.last

    def extended(self, dialogue: Dialogue) -> Scan:
        """Return the scan of all messages."""
        performatives, last, terminal = (
            dialogue.rules.terminal_performatives,
            self.last,
            self.terminal,
        )
        for id in dialogue._ordered_message_ids[self.count :]:
            last = dialogue.get_message_by_id(id)
            if terminal is None and last is not None and last.performative in performatives:
                terminal = str(last.performative)
        return Scan(len(dialogue._ordered_message_ids), last, terminal)


def terminal_performative(dialogue: Dialogue) -> str | None:
    """Return the performative that ended the dialogue; None: it is active. More messages may follow it.

    It scans new messages only: a dialogue may have thousands.
    """
    scan: Scan = vars(dialogue).get(SCAN, Scan())
    scan = (scan if scan.is_of(dialogue) else Scan()).extended(dialogue)
    vars(dialogue)[SCAN] = scan
    return scan.terminal


class AeaCodec:
    """The codec of AEA's dialogues of one class; `restored` is called with each restored dialogue."""

    def __init__(self, dialogues: Dialogues, restored: Callable[[Dialogue], object]) -> None:
        self._dialogues, self._restored = dialogues, restored

    def label(self, dialogue: Dialogue) -> DialogueLabel:
        """Return the label."""
        return label_of(dialogue.dialogue_label)

    def is_terminal(self, dialogue: Dialogue) -> bool:
        """Return whether the dialogue is terminal."""
        return terminal_performative(dialogue) is not None

    def header(self, dialogue: Dialogue) -> Mapping[str, Any]:
        """Return the header."""
        return {
            "self_address": dialogue.self_address,
            "role": dialogue.role.value,
            "state": terminal_performative(dialogue) or ACTIVE,
            "metadata": metadata_of(dialogue),
        }

    def message_count(self, dialogue: Dialogue) -> int:
        """Return the number of messages."""
        return len(dialogue._ordered_message_ids)

    def messages(self, dialogue: Dialogue, after: int) -> Sequence[Any]:
        """Return the messages in their order, except the first `after`."""
        return [_message(dialogue, id) for id in dialogue._ordered_message_ids[after:]]

    def restore(
        self, label: DialogueLabel, header: Mapping[str, Any], messages: Sequence[Any]
    ) -> Dialogue:
        """Return the dialogue that its class creates from JSON. Its addresses are interned: fetchai's AEA compares
        them with `is not`.
        """
        metadata = header.get("metadata", {})
        data = {
            **{key: decoded(value) for key, value in metadata.get(OWN, {}).items()},
            "dialogue_label": {name: sys.intern(value) for name, value in label.json.items()},
            "self_address": sys.intern(header["self_address"]),
            "role": header["role"],
            "incoming_messages": [each for each in messages if each["is_incoming"]],
            "outgoing_messages": [each for each in messages if not each["is_incoming"]],
            "last_message_id": messages[-1]["message_id"],
            "ordered_message_ids": [each["message_id"] for each in messages],
        }
        dialogues = self._dialogues
        dialogue = dialogues.dialogue_class.from_json(dialogues.message_class, data)
        _set_attributes(dialogue, metadata)
        self._restored(dialogue)
        return dialogue


def _message(dialogue: Dialogue, id: int) -> dict[str, Any]:
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
    """Return those fields of a message that are JSON, for searches."""
    fields = {}
    for name, value in message._body.items():
        if name not in _ENVELOPE:
            with suppress(TypeError, ValueError, RecursionError):
                if len(json.dumps(value)) <= _MAX_FIELD:
                    fields[name] = encoded(value)
    return fields


def metadata_of(dialogue: Dialogue) -> dict[str, Any]:
    """Return the keys that the class's own `json` adds, or else the attributes that are JSON."""
    if type(dialogue).json is not Dialogue.json:
        added = dialogue.json().items()
        return {OWN: {key: encoded(value) for key, value in added if key not in _JSON_KEYS}}
    found = {name: encoded(value) for name, value in _attributes(dialogue) if _is_json(value)}
    return {ATTRIBUTES: found} if found else {}


def _set_attributes(dialogue: Dialogue, metadata: Mapping[str, Any]) -> None:
    """Set the stored attributes, except those that the class no longer accepts."""
    for name, value in metadata.get(ATTRIBUTES, {}).items():
        if _is_own(name) and not callable(getattr(type(dialogue), name, None)):
            with suppress(AttributeError, TypeError):
                setattr(dialogue, name, decoded(value))


def _attributes(dialogue: Dialogue) -> Iterator[tuple[str, Any]]:
    slots = {name for each in type(dialogue).__mro__ for name in _slots(each)}
    for name in sorted(slots | vars(dialogue).keys()):
        if _is_own(name) and hasattr(dialogue, name):
            yield name, getattr(dialogue, name)


def _is_own(name: str) -> bool:
    return name not in _AEA_ATTRIBUTES and not name.startswith("__")


def _slots(of: type) -> tuple[str, ...]:
    slots = vars(of).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_json(value: Any) -> bool:
    """Return whether a value is restored from JSON as it is."""
    return _is_plain(value, _MAX_DEPTH) and len(json.dumps(value)) <= _MAX_ATTRIBUTE


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, list | dict) and not depth:
        return False
    if type(value) is list:
        return all(_is_plain(each, depth - 1) for each in value)
    if type(value) is dict:
        return all(type(key) is str and _is_plain(each, depth - 1) for key, each in value.items())
    return value is None or type(value) in {bool, int, float, str}
