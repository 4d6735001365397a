"""AEA's dialogues as `DialogueStore` stores them: labels, messages, attributes and statistics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aea.protocols.base import Message
from aea.protocols.dialogue.base import Dialogue, Dialogues, DialogueStats
from aea.protocols.dialogue.base import DialogueLabel as AeaLabel

from ... import Store
from ...dialogues import DialogueLabel
from .encoding import decoded, encoded

ATTRIBUTES: Final = "attributes"
OWN: Final = "json"
_LONGEST_ATTRIBUTE: Final = 100_000
"""Characters of an attribute that is kept: all are written again whenever one has changed."""
_DEEPEST: Final = 20
_OF_AEA: Final = frozenset(
    {
        "_self_address",
        "_dialogue_label",
        "_role",
        "_outgoing_messages",
        "_incoming_messages",
        "_message_class",
        "_terminal_state_callbacks",
        "_last_message_id",
        "_ordered_message_ids",
    }
)
_OF_JSON: Final = frozenset(
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


def metadata_of(dialogue: Dialogue) -> dict[str, Any]:
    """Return what is kept: the keys that the class's own `json` adds, or else the attributes that JSON can say."""
    if type(dialogue).json is not Dialogue.json:
        added = dialogue.json().items()
        return {OWN: {key: encoded(value) for key, value in added if key not in _OF_JSON}}
    found = {name: encoded(value) for name, value in _attributes(dialogue) if _is_json(value)}
    return {ATTRIBUTES: found} if found else {}


def added_to_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the class's own `from_json` gets beside AEA's keys."""
    return {key: decoded(value) for key, value in metadata.get(OWN, {}).items()}


def set_attributes(dialogue: Dialogue, metadata: Mapping[str, Any]) -> None:
    """Set the attributes again; those that the class does not take by now are left out."""
    for name, value in metadata.get(ATTRIBUTES, {}).items():
        if _is_its_own(name) and not callable(getattr(type(dialogue), name, None)):
            with suppress(AttributeError, TypeError):
                setattr(dialogue, name, decoded(value))


def _attributes(dialogue: Dialogue) -> Iterator[tuple[str, Any]]:
    slots = {name for each in type(dialogue).__mro__ for name in _slots(each)}
    for name in sorted(slots | vars(dialogue).keys()):
        if _is_its_own(name) and hasattr(dialogue, name):
            yield name, getattr(dialogue, name)


def _is_its_own(name: str) -> bool:
    return name not in _OF_AEA and not name.startswith("__")


def _slots(of: type) -> tuple[str, ...]:
    slots = vars(of).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_json(value: Any) -> bool:
    """Does it come back from JSON as what it is?"""
    return _is_plain(value, _DEEPEST) and len(json.dumps(value)) <= _LONGEST_ATTRIBUTE


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, list | dict) and not depth:
        return False
    if type(value) is list:
        return all(_is_plain(each, depth - 1) for each in value)
    if type(value) is dict:
        return all(type(key) is str and _is_plain(each, depth - 1) for key, each in value.items())
    return value is None or type(value) in {bool, int, float, str}


NAME: Final = "dialogues__stats"
"""The collection of all of them; that of dialogues has a longer name."""


class KeptStats:
    """Has each end that a skill counts on the disk before `add_dialogue_endstate` returns."""

    def __init__(self, dialogues: Dialogues, store: Store, agent: str, component: str) -> None:
        self.store, self._stats = store, dialogues.dialogue_stats
        self._id = json.dumps([agent, component])
        changed: Any = self._stats
        changed.add_dialogue_endstate = self._add

    def load(self) -> None:
        """Let the numbers be those on the disk."""
        kept = self.store[NAME].get(self._id)
        for side, numbers in self._sides.items():
            found = kept.get(side) if isinstance(kept, dict) else None
            if isinstance(found, dict):
                numbers.update({each: _count(found, each.name) for each in numbers})

    @property
    def _sides(self) -> dict[str, dict[Dialogue.EndState, int]]:
        stats = self._stats
        return {"self_initiated": stats.self_initiated, "other_initiated": stats.other_initiated}

    def _add(self, end_state: Dialogue.EndState, is_self_initiated: bool) -> None:
        DialogueStats.add_dialogue_endstate(self._stats, end_state, is_self_initiated)
        side = "self_initiated" if is_self_initiated else "other_initiated"
        try:
            one_more = {"$inc": {f"{side}.{end_state.name}": 1}}
            self.store[NAME].update(self._id, one_more, upsert=True)
        except BaseException:
            self._sides[side][end_state] -= 1
            raise


def _count(found: dict[str, Any], name: str) -> int:
    number = found.get(name, 0)
    return number if isinstance(number, int) else 0


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
