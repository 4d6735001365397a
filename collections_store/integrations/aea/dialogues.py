"""The storage behind an AEA `Dialogues`: each message is persisted before it counts as accepted.

Rules:

1. AEA accepts a message, and then it is persisted. If that fails, the message is taken out of the dialogue again.
2. A message of another agent never stops this one: where AEA would raise, `update` returns None, with a line in the log.
3. `HostDialogues` holds, restores and purges the dialogues. The tables of AEA's base class stay empty: both versions of a
   label have one key.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

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
from .codec import AeaCodec, label_of, terminal_performative
from .encoding import is_plain

LOG: Final = logging.getLogger("collections_store")
STATS: Final = "dialogues__stats"
"""The collection of all statistics; those of dialogues have longer names."""


class PersistentStats:
    """Persists each end state before `add_dialogue_endstate` returns."""

    def __init__(self, dialogues: Dialogues, store: Store, agent: str, component: str) -> None:
        self.store, self._stats = store, dialogues.dialogue_stats
        self._id = json.dumps([agent, component])
        patched: Any = self._stats
        patched.add_dialogue_endstate = self._add

    def load(self) -> None:
        """Set the numbers to the stored ones."""
        stored = self.store[STATS].get(self._id)
        for side, numbers in self._sides.items():
            found = stored.get(side) if isinstance(stored, dict) else None
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
            increment = {"$inc": {f"{side}.{end_state.name}": 1}}
            self.store[STATS].update(self._id, increment, upsert=True)
        except BaseException:
            self._sides[side][end_state] -= 1
            raise


def _count(found: dict[str, Any], name: str) -> int:
    number = found.get(name, 0)
    return number if isinstance(number, int) else 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The messages of a dialogue at a moment."""

    dialogue: Dialogue
    incoming: int
    outgoing: int
    last: int | None

    @classmethod
    def of(cls, dialogue: Dialogue) -> Snapshot:
        """Return the present one."""
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
        """Save what changed without a message: attributes, and labels completed by a message that was refused."""
        self.store.teardown()

    def cleanup(self) -> None:
        """Delete all dialogues. Those that other agents began stay known, and cannot begin again."""
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
        """Return whether the other agent began the dialogue, which is in memory, with that reference: AEA always asks
        for both labels.
        """
        opponent = label.dialogue_opponent_addr
        starter = self._dialogues.self_address if label.is_by_counterparty else opponent
        return self.store.in_memory(Label(label.dialogue_reference, opponent, starter)) is not None

    def get_dialogues_with_counterparty(self, counterparty: str) -> list[Dialogue]:
        """Return the dialogues with an address: the active ones, then the terminal ones."""
        return self.store.get_dialogues_with_counterparty(counterparty)

    def is_in_incomplete(self, dialogue_label: DialogueLabel) -> bool:
        """Return whether there is, or was, such a dialogue: then its first message was delivered again."""
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
        """Return whether a label is that of an active dialogue."""
        found = self._active(dialogue_label)
        return found is not None and found.dialogue_label == dialogue_label

    def get_latest_label(self, dialogue_label: DialogueLabel) -> DialogueLabel:
        """Return the complete label of an active dialogue, if it has one."""
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
        """The terminal dialogues, all of them."""
        return self.store.terminal

    def dialogue_terminal_state_callback(self, dialogue: Dialogue) -> None:
        """Do nothing: saving a dialogue finds out whether it is terminal."""

    def _add_terminal_state_dialogue(self, dialogue: Dialogue) -> None:
        self._intercept(self.store.add(dialogue))
        self.store.save(dialogue)

    # -- messages ---------------------------------------------------------------------------------

    def _intercept(self, dialogue: Dialogue) -> None:
        patched: Any = dialogue
        patched._update = partial(self._update, dialogue)

    def _update(self, dialogue: Dialogue, message: Message) -> None:
        """Let AEA accept a message, and persist it."""
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
            if dialogue._is_message_by_other(message):
                _refuse(error)
            if dialogue.is_empty:
                self._forget(dialogue)
            raise

    def _complete_label(self, message: Message) -> None:
        """Let AEA complete a label, unless it cannot be stored. AEA removes the dialogue and adds it again: that must not
        delete it.
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
        """Let AEA begin the dialogue of a first message. One that is delivered again begins none: AEA would raise."""
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
    """Return our label for AEA's; None for one that no dialogue can have, which another agent may send."""
    try:
        return label_of(dialogue_label)
    except InvalidOption:
        return None


def _refuse(error: BaseException) -> None:
    """Raise what lets `Dialogues.update` return None if another agent's message cannot be stored."""
    causes = error.errors.values() if isinstance(error, DialoguesNotSaved) else [error]
    if all(isinstance(each, InvalidBody | InvalidOption) for each in causes):
        LOG.warning("a message was refused because it cannot be stored: %s", error)
        raise InvalidDialogueMessage(str(error)) from error
