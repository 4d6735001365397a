"""AEA's own dialogues, kept as they go: what takes the place of their storage."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from aea.protocols.base import Message
from aea.protocols.dialogue.base import (
    BasicDialoguesStorage,
    Dialogue,
    DialogueLabel,
    Dialogues,
    InvalidDialogueMessage,
)

from ... import DialoguesNotSaved, InvalidBody, InvalidOption, Store
from ...dialogues import DialogueStore
from .adopting import Written
from .codec import AeaCodec, ended_with, label_of
from .encoding import is_plain
from .retention import Purging, Retention
from .stats import KeptStats

LOG: Final = logging.getLogger("collections_store")
CACHED: Final = 100
"""Dialogues that have ended and stay in memory: the last ones that were asked for."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What messages a dialogue has at a moment."""

    dialogue: Dialogue
    incoming: int
    outgoing: int
    last: int | None

    @classmethod
    def of(cls, dialogue: Dialogue) -> Moment:
        """Return the present one."""
        incoming, outgoing = dialogue._incoming_messages, dialogue._outgoing_messages
        return cls(dialogue, len(incoming), len(outgoing), dialogue._last_message_id)

    @property
    def is_over(self) -> bool:
        """Is there a new message since?"""
        now = Moment.of(self.dialogue)
        return (now.incoming, now.outgoing) != (self.incoming, self.outgoing)

    def put_back(self) -> None:
        """Take the messages out again that came since."""
        dialogue = self.dialogue
        del dialogue._incoming_messages[self.incoming :]
        del dialogue._outgoing_messages[self.outgoing :]
        del dialogue._ordered_message_ids[self.incoming + self.outgoing :]
        dialogue._last_message_id = self.last


@dataclass(frozen=True, slots=True)
class Place:
    """Where dialogues are kept: those of a component of an agent."""

    store: Store
    agent: str
    component: str

    def dialogues(self, dialogues: Dialogues) -> DialogueStore[Dialogue]:
        """Return what keeps them."""
        codec = AeaCodec(dialogues)
        return DialogueStore(self.store, self.agent, self.component, codec=codec)


class KeptDialogues(BasicDialoguesStorage):
    """The storage of an AEA `Dialogues` that has each message on the disk before the verb returns which accepts it.

    Those that go on are in memory, and restored by `setup`. Those that have ended are on the disk, found by either
    label, and a few of them in memory. `teardown` has next to nothing to do.
    """

    def __init__(
        self,
        dialogues: Dialogues,
        place: Place,
        written: Written | None,
        retention: Retention,
    ) -> None:
        super().__init__(dialogues)
        self._place, self.store = place, place.dialogues(dialogues)
        self.stats = KeptStats(dialogues, place.store, place.agent, place.component)
        self._written, self._purging = written, Purging(retention)
        self._ended: OrderedDict[str, Dialogue] = OrderedDict()
        self._is_completing = False
        self._complete = dialogues._complete_dialogue_reference
        changed: Any = dialogues
        changed._complete_dialogue_reference = self._completing

    def move_to(self, store: Store) -> None:
        """Go on in a store: the storage was started again."""
        self._place = replace(self._place, store=store)
        self.store, self.stats.store = self._place.dialogues(self._dialogues), store

    # -- what `Dialogues` calls -------------------------------------------------------------

    def setup(self) -> None:
        """Restore the dialogues that go on; what cannot be read is put aside, see `store.quarantined`.

        What AEA itself wrote of them into the same store is taken over first.
        """
        if self._written is not None:
            self._written.move_to(self.store)
            self._written = None
        self._purging.purge(self.store)
        self.stats.load()
        here = {label_of(each.dialogue_label).key for each in self.dialogues_in_active_state}
        for dialogue in self.store.restore():
            if label_of(dialogue.dialogue_label).key not in here:
                self.add(dialogue)

    def teardown(self) -> None:
        """Save what is not on the disk: attributes that were set since the last message, and labels that the other side
        completed with a message that was refused.
        """
        self.store.save(*(each for each in self.dialogues_in_active_state if not each.is_empty))

    def cleanup(self) -> None:
        """Delete all of the dialogues, from memory and disk. Those that others began stay known, and cannot be
        replayed.
        """
        labels = [each.dialogue_label for each in self.store.restore()]
        for label in labels:
            self._erase(label)
        self.store.purge(kept=0)
        self._forget(*self.dialogues_in_active_state)
        self._ended.clear()

    def add(self, dialogue: Dialogue) -> None:
        """Hold a dialogue, and have it keep its messages from now on."""
        self._listen(dialogue)
        label = dialogue.dialogue_label
        self._dialogues_by_dialogue_label[label] = dialogue
        self._dialogue_by_address[label.dialogue_opponent_addr].append(dialogue)
        if label.dialogue_responder_reference:  # fetchai's takes what is noted for complete
            self.set_incomplete_dialogue(label.get_incomplete_version(), label)

    def remove(self, dialogue_label: DialogueLabel) -> None:
        """Let go of a dialogue, and delete it from the disk, whether it has ended or not."""
        found = self._find(dialogue_label)
        if found is not None:
            self._forget(found)
        if self._is_completing or (found is not None and found.is_empty):
            return
        self._ended.pop(label_of(dialogue_label).key, None)
        self._erase(dialogue_label)

    def get(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Return the dialogue with a label: of those that go on, or of those that have ended."""
        found = self._dialogues_by_dialogue_label.get(dialogue_label)
        if found is not None or self._is_another(dialogue_label):
            return found
        try:
            label = label_of(dialogue_label)
        except InvalidOption:  # what the other side sent is no label
            return None
        kept = self._ended.get(label.key)
        if kept is None:
            kept = self.store.get(label)
            if kept is None or ended_with(kept) is None:
                return None
            self._hold_ended(kept)
        return kept if label.names(label_of(kept.dialogue_label)) else None

    def get_dialogues_with_counterparty(self, counterparty: str) -> list[Dialogue]:
        """Return the dialogues with an address: those that go on, then those that have ended."""
        active = list(self._dialogue_by_address.get(counterparty, ()))
        asked = {"dialogue_label.dialogue_opponent_addr": counterparty}
        return active + self._as_here(self.store.find(asked, terminal=True))

    def is_in_incomplete(self, dialogue_label: DialogueLabel) -> bool:
        """Is there, or was there, such a dialogue? Then its first message came again."""
        if super().is_in_incomplete(dialogue_label):
            return True
        try:
            return by_opponent(dialogue_label) and self.store.is_known(label_of(dialogue_label))
        except InvalidOption:
            return False

    @property
    def dialogues_in_active_state(self) -> list[Dialogue]:
        """The dialogues that go on."""
        return list(self._dialogues_by_dialogue_label.values())

    @property
    def dialogues_in_terminal_state(self) -> list[Dialogue]:
        """The dialogues that have ended, all of them."""
        return self._as_here(self.store.restore(terminal=True))

    def dialogue_terminal_state_callback(self, dialogue: Dialogue) -> None:
        """Do nothing: what ends a dialogue is seen when it is saved."""

    def _add_terminal_state_dialogue(self, dialogue: Dialogue) -> None:
        self._hold_ended(dialogue)
        self.store.save(dialogue)

    # -- messages ---------------------------------------------------------------------------

    def _listen(self, dialogue: Dialogue) -> None:
        changed: Any = dialogue
        changed._update = partial(self._update, dialogue)

    def _update(self, dialogue: Dialogue, message: Message) -> None:
        """Have AEA accept a message, and then have it on the disk; else it was not accepted."""
        before = Moment.of(dialogue)
        try:
            type(dialogue)._update(dialogue, message)
        finally:
            if before.is_over:
                self._keep(dialogue, message, before)

    def _keep(self, dialogue: Dialogue, message: Message, before: Moment) -> None:
        try:
            self._save(dialogue)
        except BaseException as error:
            before.put_back()
            if dialogue._is_message_by_other(message):
                self._refuse(error)
            if dialogue.is_empty:
                self._forget(dialogue)
            raise

    def _save(self, dialogue: Dialogue) -> None:
        ended, label = ended_with(dialogue) is not None, dialogue.dialogue_label
        if ended and not self.is_terminal_dialogues_kept:
            self._erase(label)
        else:
            self.store.save(dialogue)
        if ended:
            self._forget(dialogue)
            self._retire(dialogue)

    def _retire(self, dialogue: Dialogue) -> None:
        if self.is_terminal_dialogues_kept:
            self._hold_ended(dialogue)
            self._purging.one_ended(self.store)

    def _refuse(self, error: BaseException) -> None:
        """Raise what has `Dialogues.update` return None, and let go of a dialogue that it would begin: another's
        message does not stop an agent.
        """
        causes = error.errors.values() if isinstance(error, DialoguesNotSaved) else [error]
        if all(isinstance(each, InvalidBody | InvalidOption) for each in causes):
            LOG.warning("a message was refused, because it cannot be kept: %s", error)
            raise InvalidDialogueMessage(str(error)) from error

    def _completing(self, message: Message) -> None:
        """Have AEA complete a label: it removes the dialogue and adds it again, which is no reason to delete it. One that
        cannot be kept it shall not get.
        """
        if not all(map(is_plain, message.dialogue_reference)):
            return
        self._is_completing = True
        try:
            self._complete(message)
        finally:
            self._is_completing = False

    # -- memory -----------------------------------------------------------------------------

    def _find(self, label: DialogueLabel) -> Dialogue | None:
        by_label = self._dialogues_by_dialogue_label
        latest = self.get_latest_label(label.get_incomplete_version())
        return by_label.get(label) or by_label.get(latest)

    def _forget(self, *dialogues: Dialogue) -> None:
        for dialogue in dialogues:
            label = dialogue.dialogue_label
            for each in (label, label.get_incomplete_version()):
                self._dialogues_by_dialogue_label.pop(each, None)
                self._incomplete_to_complete_dialogue_labels.pop(each, None)
            others = self._dialogue_by_address[label.dialogue_opponent_addr]
            others[:] = [each for each in others if each is not dialogue]
            if not others:
                del self._dialogue_by_address[label.dialogue_opponent_addr]

    def _hold_ended(self, dialogue: Dialogue) -> None:
        self._listen(dialogue)
        self._ended[label_of(dialogue.dialogue_label).key] = dialogue
        if len(self._ended) > CACHED:
            self._ended.popitem(last=False)

    def _as_here(self, dialogues: Iterable[Dialogue]) -> list[Dialogue]:
        """Return dialogues that have ended; of those in memory the objects there."""
        found = []
        for dialogue in dialogues:
            here = self._ended.get(label_of(dialogue.dialogue_label).key)
            self._listen(dialogue)
            found.append(dialogue if here is None else here)
        return found

    def _is_another(self, label: DialogueLabel) -> bool:
        """Did the other of the two begin a dialogue that goes on, with that reference? AEA always asks for both."""
        own, opponent = self._dialogues.self_address, label.dialogue_opponent_addr
        starter = own if label.dialogue_starter_addr == opponent else opponent
        return self._dialogues_by_dialogue_label.get(_begun_by(label, starter)) is not None

    def _erase(self, label: DialogueLabel) -> None:
        self.store.remove(label_of(label), remember=by_opponent(label))


def by_opponent(label: DialogueLabel) -> bool:
    """Did the other side begin? Then its first message may come again."""
    return label.dialogue_opponent_addr == label.dialogue_starter_addr


def _begun_by(label: DialogueLabel, starter: str) -> DialogueLabel:
    return DialogueLabel(label.dialogue_reference, label.dialogue_opponent_addr, starter)
