"""The storage behind an AEA `Dialogues`: each message is persisted before AEA counts the message as accepted.

Rules:

1. AEA accepts a message, and then the message is persisted, or else removed from the dialogue.
2. A message of another agent never stops this agent: where AEA would raise, `update` returns None, with a line in the log.
3. `HostDialogues` holds, restores and purges the dialogues. The tables of AEA's base class stay empty: both versions of a
   label have one key.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from aea.protocols.base import Message
from aea.protocols.dialogue.base import (
    BasicDialoguesStorage,
    Dialogue,
    DialogueLabel,
    Dialogues,
    DialogueStats,
    InvalidDialogueMessage,
)

from ... import DialoguesNotSaved, InvalidBody, InvalidOption, Store
from ...dialogues import DialogueLabel as Label
from ...dialogues import DialogueOptions, HostDialogues
from .formats import decoded, encoded, is_plain

LOG: Final = logging.getLogger("collections_store")
STATS: Final = "dialogues__stats"
"""The collection of all statistics; those of dialogues have longer names."""
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


# -- the codec ------------------------------------------------------------------------------------


def label_of(label: DialogueLabel) -> Label:
    """Return our label for AEA's; raises `InvalidOption` for an impossible label of another agent."""
    reference = tuple(label.dialogue_reference)
    return Label(reference, label.dialogue_opponent_addr, label.dialogue_starter_addr)  # type: ignore[arg-type]


class Scan(NamedTuple):
    """The number of scanned messages, the last scanned message, and the terminal performative."""

    messages: int = 0
    last: Message | None = None
    terminal: str | None = None


def terminal_performative(dialogue: Dialogue) -> str | None:
    """Return the terminal performative of a dialogue; None: the dialogue is active. More messages may follow.

    Only new messages are scanned: a dialogue may have thousands.
    """
    ids, performatives = dialogue._ordered_message_ids, dialogue.rules.terminal_performatives
    scan: Scan = vars(dialogue).get(SCAN, Scan())
    count, last, terminal = scan
    if count and (count > len(ids) or dialogue.get_message_by_id(ids[count - 1]) is not last):
        count, last, terminal = Scan()  # a failed write has removed messages
    for id in ids[count:]:
        last = dialogue.get_message_by_id(id)
        if terminal is None and last is not None and last.performative in performatives:
            terminal = str(last.performative)
    vars(dialogue)[SCAN] = Scan(len(ids), last, terminal)
    return terminal


class AeaCodec:
    """The codec of AEA's dialogues of a class; `restored` is called with each restored dialogue."""

    def __init__(self, dialogues: Dialogues, restored: Callable[[Dialogue], object]) -> None:
        self._dialogues, self._restored = dialogues, restored

    def label(self, dialogue: Dialogue) -> Label:
        return label_of(dialogue.dialogue_label)

    def is_terminal(self, dialogue: Dialogue) -> bool:
        return terminal_performative(dialogue) is not None

    def header(self, dialogue: Dialogue) -> Mapping[str, Any]:
        return {
            "self_address": dialogue.self_address,
            "role": dialogue.role.value,
            "state": terminal_performative(dialogue) or ACTIVE,
            "metadata": metadata_of(dialogue),
        }

    def message_count(self, dialogue: Dialogue) -> int:
        return len(dialogue._ordered_message_ids)

    def messages(self, dialogue: Dialogue, after: int) -> Sequence[Any]:
        return [_message(dialogue, id) for id in dialogue._ordered_message_ids[after:]]

    def restore(self, label: Label, header: Mapping[str, Any], messages: Sequence[Any]) -> Dialogue:
        """Return the dialogue, created by its class from JSON. Addresses are interned: fetchai's AEA compares addresses
        with `is not`.
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
        for name, value in metadata.get(ATTRIBUTES, {}).items():
            if _is_own(name) and not callable(getattr(type(dialogue), name, None)):
                with suppress(AttributeError, TypeError):  # the class no longer accepts it
                    setattr(dialogue, name, decoded(value))
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
    """Return the JSON fields of a message, for searches."""
    fields = {}
    for name, value in message._body.items():
        if name not in _ENVELOPE:
            with suppress(TypeError, ValueError, RecursionError):
                if len(json.dumps(value)) <= _MAX_FIELD:
                    fields[name] = encoded(value)
    return fields


def metadata_of(dialogue: Dialogue) -> dict[str, Any]:
    """Return the additional keys of the class's own `json`, or else the JSON attributes."""
    if type(dialogue).json is not Dialogue.json:
        added = dialogue.json().items()
        return {OWN: {key: encoded(value) for key, value in added if key not in _JSON_KEYS}}
    found = {
        name: encoded(value)
        for name, value in _attributes(dialogue)
        if _is_json(value) and len(json.dumps(value)) <= _MAX_ATTRIBUTE
    }
    return {ATTRIBUTES: found} if found else {}


def _attributes(dialogue: Dialogue) -> Iterator[tuple[str, Any]]:
    names = {*vars(dialogue)}
    for each in type(dialogue).__mro__:
        slots = vars(each).get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    for name in sorted(names):
        if _is_own(name) and hasattr(dialogue, name):
            yield name, getattr(dialogue, name)


def _is_own(name: str) -> bool:
    return name not in _AEA_ATTRIBUTES and not name.startswith("__")


def _is_json(value: Any, depth: int = _MAX_DEPTH) -> bool:
    """Return whether a value comes back from JSON unchanged."""
    if isinstance(value, list | dict) and not depth:
        return False
    if type(value) is list:
        return all(_is_json(each, depth - 1) for each in value)
    if type(value) is dict:
        return all(type(key) is str and _is_json(each, depth - 1) for key, each in value.items())
    return value is None or type(value) in {bool, int, float, str}


# -- the storage ----------------------------------------------------------------------------------


def dialogues_storage(dialogues: Dialogues) -> HostDialogues[Dialogue]:
    """Return the storage of an agent's `Dialogues`, for searches and purges; raises `InvalidOption` if they are not
    attached to a store.

    A filter finds dialogues by `role`, `state`, `metadata.attributes` and the fields of `messages`: `performative`,
    `message_id`, `target`, `sender`, `to`, and the JSON fields under `content`.
    """
    storage = getattr(dialogues, "_dialogues_storage", None)
    if isinstance(storage, PersistentDialogues):
        return storage.store
    problem = "must be AEA's Dialogues of an agent, after attach() or the agent's start, got"
    raise InvalidOption("dialogues", f"{problem} {dialogues!r:.200}")


class PersistentStats:
    """Persists each end state before `add_dialogue_endstate` returns."""

    def __init__(self, dialogues: Dialogues, store: Store, agent: str, component: str) -> None:
        self.store, self._stats = store, dialogues.dialogue_stats
        self._id = json.dumps([agent, component])
        patched: Any = self._stats
        patched.add_dialogue_endstate = self._add

    def load(self) -> None:
        """Set the numbers to the stored numbers."""
        stored = self.store[STATS].get(self._id)
        for side, numbers in self._sides.items():
            found = stored.get(side) if isinstance(stored, dict) else None
            if isinstance(found, dict):
                for each in numbers:
                    number = found.get(each.name)
                    numbers[each] = number if isinstance(number, int) else 0

    @property
    def _sides(self) -> dict[str, dict[Dialogue.EndState, int]]:
        stats = self._stats
        return {"self_initiated": stats.self_initiated, "other_initiated": stats.other_initiated}

    def _add(self, end_state: Dialogue.EndState, is_self_initiated: bool) -> None:
        DialogueStats.add_dialogue_endstate(self._stats, end_state, is_self_initiated)
        side = "self_initiated" if is_self_initiated else "other_initiated"
        try:
            increment = {"$inc": {f"{side}.{end_state.name}": 1}}
            self.store[STATS].update(self._id, increment, upsert=True)
        except BaseException:
            self._sides[side][end_state] -= 1
            raise


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The messages of a dialogue at a moment."""

    dialogue: Dialogue
    incoming: int
    outgoing: int
    last: int | None

    @classmethod
    def of(cls, dialogue: Dialogue) -> Snapshot:
        """Return the present messages."""
        incoming, outgoing = dialogue._incoming_messages, dialogue._outgoing_messages
        return cls(dialogue, len(incoming), len(outgoing), dialogue._last_message_id)

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.incoming + self.outgoing

    def restore(self) -> None:
        """Remove the messages added since."""
        dialogue = self.dialogue
        del dialogue._incoming_messages[self.incoming :]
        del dialogue._outgoing_messages[self.outgoing :]
        del dialogue._ordered_message_ids[self.count :]
        dialogue._last_message_id = self.last


class PersistentDialogues(BasicDialoguesStorage):
    """The storage of an AEA `Dialogues`. `store` is the `HostDialogues` of its dialogues."""

    def __init__(
        self,
        dialogues: Dialogues,
        store: Store,
        agent: str,
        component: str,
        options: DialogueOptions,
    ) -> None:
        super().__init__(dialogues)
        codec = AeaCodec(dialogues, self._intercept)
        self.store: HostDialogues[Dialogue] = HostDialogues(
            store, agent, component, codec=codec, options=options
        )
        self.stats = PersistentStats(dialogues, store, agent, component)
        self.before_setup: Callable[[], object] | None = None
        self._is_completing = False
        self._complete = dialogues._complete_dialogue_reference
        self._create = dialogues._create_opponent_initiated
        patched: Any = dialogues
        patched._complete_dialogue_reference = self._complete_label
        patched._create_opponent_initiated = self._begin

    def move_to(self, store: Store) -> None:
        """Continue in another store: AEA's storage was started again."""
        self.store.move_to(store)
        self.stats.store = store

    # -- what `Dialogues` calls -------------------------------------------------------------------

    def setup(self) -> None:
        """Restore the active dialogues; bad records move to the quarantine, see `store.quarantined`."""
        if self.before_setup is not None:
            self.before_setup()
            self.before_setup = None
        self.stats.load()
        self.store.setup()

    def teardown(self) -> None:
        """Save changes without a message: attributes, and labels completed by a refused message."""
        self.store.teardown()

    def cleanup(self) -> None:
        """Delete all dialogues. Dialogues begun by other agents stay known, and cannot begin again."""
        for dialogue in [*self.store.restore()]:
            self._erase(label_of(dialogue.dialogue_label))
        self.store.purge(kept=0)
        for dialogue in self.store.active:
            self._forget(dialogue)

    def add(self, dialogue: Dialogue) -> None:
        """Add a dialogue, and persist its messages from now on."""
        self._intercept(dialogue)
        with suppress(InvalidOption):  # an invalid label is reported when the message is saved
            self.store.add(dialogue)

    def remove(self, dialogue_label: DialogueLabel) -> None:
        """Delete a dialogue, active or terminal."""
        label = _valid(dialogue_label)
        if label is None:
            return
        found = self.store.in_memory(label)
        if self._is_completing or (found is not None and found.is_empty):
            self.store.forget(label)
        else:
            self._erase(label)

    def get(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Return the dialogue with a label, active or terminal."""
        label = _valid(dialogue_label)
        if label is None:
            return None
        found = self.store.in_memory(label)
        return self.store.get(label) if found is None and not self._is_others(label) else found

    def _is_others(self, label: Label) -> bool:
        """Return whether the dialogue in memory with the reference was begun by the other agent: AEA always asks for both
        labels.
        """
        opponent = label.dialogue_opponent_addr
        starter = self._dialogues.self_address if label.is_by_counterparty else opponent
        return self.store.in_memory(Label(label.dialogue_reference, opponent, starter)) is not None

    def get_dialogues_with_counterparty(self, counterparty: str) -> list[Dialogue]:
        """Return the dialogues with an address: active dialogues, then terminal ones."""
        return self.store.get_dialogues_with_counterparty(counterparty)

    def is_in_incomplete(self, dialogue_label: DialogueLabel) -> bool:
        """Return whether the dialogue exists or existed, so its first message was delivered again."""
        label = _valid(dialogue_label)
        if label is None:
            return False
        found = self.store.in_memory(label)
        if found is not None:  # fetchai's AEA completes a label only if this is False
            return found.dialogue_label.dialogue_responder_reference != ""
        return label.is_by_counterparty and self.store.is_known(label)

    def set_incomplete_dialogue(
        self,
        incomplete_dialogue_label: DialogueLabel,
        complete_dialogue_label: DialogueLabel,
    ) -> None:
        """Do nothing: both labels have one key."""

    def is_dialogue_present(self, dialogue_label: DialogueLabel) -> bool:
        """Return whether a label is of an active dialogue."""
        found = self._active(dialogue_label)
        return found is not None and found.dialogue_label == dialogue_label

    def get_latest_label(self, dialogue_label: DialogueLabel) -> DialogueLabel:
        """Return the complete label of an active dialogue, or else the given label."""
        found = self._active(dialogue_label)
        return dialogue_label if found is None else found.dialogue_label

    def _active(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        label = _valid(dialogue_label)
        found = None if label is None else self.store.in_memory(label)
        return found if found is not None and terminal_performative(found) is None else None

    @property
    def dialogues_in_active_state(self) -> list[Dialogue]:
        """The active dialogues."""
        return self.store.active

    @property
    def dialogues_in_terminal_state(self) -> list[Dialogue]:
        """All terminal dialogues."""
        return self.store.terminal

    def dialogue_terminal_state_callback(self, dialogue: Dialogue) -> None:
        """Do nothing: each save finds out whether the dialogue is terminal."""

    def _add_terminal_state_dialogue(self, dialogue: Dialogue) -> None:
        self._intercept(self.store.add(dialogue))
        self.store.save(dialogue)

    # -- messages ---------------------------------------------------------------------------------

    def _intercept(self, dialogue: Dialogue) -> None:
        patched: Any = dialogue
        patched._update = partial(self._update, dialogue)

    def _update(self, dialogue: Dialogue, message: Message) -> None:
        """Let AEA accept a message, and persist the message."""
        before = Snapshot.of(dialogue)
        try:
            type(dialogue)._update(dialogue, message)
        finally:
            if Snapshot.of(dialogue).count != before.count:
                self._persist(dialogue, message, before)

    def _persist(self, dialogue: Dialogue, message: Message, before: Snapshot) -> None:
        try:
            self.store.accepted(dialogue, before.count)
        except BaseException as error:
            before.restore()
            causes = error.errors.values() if isinstance(error, DialoguesNotSaved) else [error]
            is_bad = all(isinstance(each, InvalidBody | InvalidOption) for each in causes)
            if is_bad and dialogue._is_message_by_other(message):  # `update` returns None then
                LOG.warning("a message was refused because it cannot be stored: %s", error)
                raise InvalidDialogueMessage(str(error)) from error
            if dialogue.is_empty:
                self._forget(dialogue)
            raise

    def _complete_label(self, message: Message) -> None:
        """Let AEA complete a label, unless the label cannot be stored. AEA removes and adds the dialogue: the dialogue must
        stay stored.
        """
        if all(each and is_plain(each) for each in message.dialogue_reference):
            self._is_completing = True
            try:
                self._complete(message)
            finally:
                self._is_completing = False

    def _begin(
        self, dialogue_opponent_addr: str, dialogue_reference: tuple[str, str], role: Dialogue.Role
    ) -> Dialogue | None:
        """Let AEA begin the dialogue of a first message; not of a message delivered again, for which AEA would raise."""
        label = DialogueLabel(dialogue_reference, dialogue_opponent_addr, dialogue_opponent_addr)
        if self.is_in_incomplete(label):
            LOG.warning("a first message was refused: its dialogue %.200s began before", label)
            return None
        return self._create(dialogue_opponent_addr, dialogue_reference, role)

    def _forget(self, dialogue: Dialogue) -> None:
        label = _valid(dialogue.dialogue_label)
        if label is not None:
            self.store.forget(label)

    def _erase(self, label: Label) -> None:
        self.store.remove(label, remember=label.is_by_counterparty)


def _valid(dialogue_label: DialogueLabel) -> Label | None:
    """Return our label for AEA's; None for an impossible label, which another agent may send."""
    try:
        return label_of(dialogue_label)
    except InvalidOption:
        return None
