"""AEA's own dialogues, stored as they go on: what replaces their storage, and for how long they are kept."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from aea.protocols.base import Message
from aea.protocols.dialogue.base import (
    BasicDialoguesStorage,
    Dialogue,
    DialogueLabel,
    Dialogues,
    InvalidDialogueMessage,
    PersistDialoguesStorage,
)

from ... import (
    Collection,
    CollectionsStoreError,
    DialoguesNotSaved,
    Document,
    InvalidBody,
    InvalidOption,
    Store,
)
from ...dialogues import DialogueLabel as Label
from ...dialogues import DialogueStore
from .codec import AeaCodec, KeptStats, ended_with, label_of
from .encoding import decoded, is_name, is_plain, name_of

LOG: Final = logging.getLogger("collections_store")
PURGE_EVERY: Final = 100
"""Dialogues that end before those are looked for that are too many."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long, in seconds or as a timedelta, and how many dialogues are kept that have ended; None: without end. Raises
    `InvalidOption`.
    """

    ttl: float | timedelta | None = None
    kept: int | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.seconds, int | float) or not self.seconds > 0:
            problem = f"{self.ttl!r} is neither seconds nor a timedelta, and more than none"
            raise InvalidOption("terminal_ttl", problem)
        if self.kept is not None and not (_is_number(self.kept, int) and self.kept >= 0):
            raise InvalidOption("terminal_kept", f"{self.kept!r} is not a whole number from 0 on")

    @property
    def seconds(self) -> float:
        """How long, in seconds."""
        if isinstance(self.ttl, timedelta):
            return self.ttl.total_seconds()
        return math.inf if self.ttl is None else self.ttl

    @property
    def often(self) -> int:
        """How many may end before a purge."""
        return PURGE_EVERY if self.kept is None else min(PURGE_EVERY, 1 + self.kept)


class Purging:
    """Deletes what is kept no longer, now and then. It is done again later: nothing fails because of it."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._ended, self._at = 0, -math.inf

    def one_ended(self, store: DialogueStore[Any]) -> None:
        """Purge if it is time to."""
        self._ended += 1
        is_time = time.monotonic() - self._at > self._retention.seconds
        if is_time or self._ended % self._retention.often == 0:
            self.purge(store)

    def purge(self, store: DialogueStore[Any]) -> None:
        """Delete what is older, or more."""
        self._at, retention = time.monotonic(), self._retention
        if retention.ttl is None and retention.kept is None:
            return
        try:
            store.purge(ttl=retention.ttl, kept=retention.kept)
        except CollectionsStoreError:
            LOG.exception("what has ended cannot be purged now")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_LABELS: Final = PersistDialoguesStorage.INCOMPLETE_DIALOGUES_OBJECT_NAME
_ENDED: Final = PersistDialoguesStorage.TERMINAL_STATE_DIALOGUES_COLLECTTION_SUFFIX


@dataclass(frozen=True)
class Written:
    """What AEA wrote of some dialogues: those that go on under a name, those that have ended under another."""

    dialogues: Dialogues
    collections: tuple[Collection, ...]

    @classmethod
    def of(cls, dialogues: Dialogues, before: Any, store: Store) -> Written:
        """Return what the storage wrote that is about to be replaced."""
        name = (
            before._get_collection_name() if isinstance(before, PersistDialoguesStorage) else None
        )
        names = [] if name is None else [name, f"{name}{_ENDED}"]
        return cls(dialogues, tuple(store[name_of(each)] for each in names if is_name(each)))

    def move_to(self, kept: DialogueStore[Dialogue]) -> None:
        """Move it, dialogue by dialogue; what cannot be read stays where it is, and so do the labels then."""
        left = [
            (collection, each)
            for collection in self.collections
            for each in collection.list()
            if not self._moves(collection, kept, each)
        ]
        if [each.id for _, each in left] == [_LABELS]:
            ((collection, labels),) = left
            for label in _labels_in(labels.body):
                if label.dialogue_opponent_addr == label.dialogue_starter_addr:
                    _remember(kept, label)
            collection.remove(_LABELS)

    def _moves(
        self, collection: Collection, kept: DialogueStore[Dialogue], found: Document
    ) -> bool:
        moved = found.id != _LABELS and self._is_moved(kept, found.id, found.body)
        if moved:
            collection.remove(found.id)
        return moved

    def _is_moved(self, kept: DialogueStore[Dialogue], id: str, body: Any) -> bool:
        made, message_class = self.dialogues.dialogue_class, self.dialogues.message_class
        try:
            dialogue = made.from_json(message_class, decoded(body))
            if not kept.is_known(label_of(dialogue.dialogue_label)):
                kept.save(dialogue)
        except Exception as error:  # noqa: BLE001 - of AEA's classes, and of a stranger's data
            LOG.warning("AEA's dialogue %r cannot be taken over: %r", id, error)
            return False
        return True


def _labels_in(body: Any) -> Iterator[Label]:
    """Yield the labels that AEA knew of; what is none is left out."""
    for pair in decoded(body) if isinstance(body, list) else ():
        try:
            label = label_of(DialogueLabel.from_json(pair[0]))
        except Exception:  # noqa: BLE001 - of AEA's classes, and of a stranger's data
            continue
        yield label


def _remember(kept: DialogueStore[Dialogue], label: Label) -> None:
    """Have a dialogue that has ended and is gone stay known: it is not to be replayed."""
    if not kept.is_known(label):
        kept.remove(label, remember=True)


CACHED: Final = 100
"""Dialogues that have ended and stay in memory: the last ones that were asked for."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What messages a dialogue has at a moment."""

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
        """How many messages there are."""
        return self.incoming + self.outgoing

    @property
    def is_over(self) -> bool:
        """Is there a new message since?"""
        now = Snapshot.of(self.dialogue)
        return (now.incoming, now.outgoing) != (self.incoming, self.outgoing)

    def put_back(self) -> None:
        """Take the messages out again that came since."""
        dialogue = self.dialogue
        del dialogue._incoming_messages[self.incoming :]
        del dialogue._outgoing_messages[self.outgoing :]
        del dialogue._ordered_message_ids[self.incoming + self.outgoing :]
        dialogue._last_message_id = self.last


@dataclass(frozen=True, slots=True)
class ComponentPlace:
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
        place: ComponentPlace,
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
        self._begin = dialogues._create_opponent_initiated
        changed: Any = dialogues
        changed._complete_dialogue_reference = self._completing
        changed._create_opponent_initiated = self._beginning

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
        before = Snapshot.of(dialogue)
        try:
            type(dialogue)._update(dialogue, message)
        finally:
            if before.is_over:
                self._keep(dialogue, message, before)

    def _keep(self, dialogue: Dialogue, message: Message, before: Snapshot) -> None:
        try:
            self._save(dialogue)
        except BaseException as error:
            before.put_back()
            self._withdraw(before)
            if dialogue._is_message_by_other(message):
                self._refuse(error)
            if dialogue.is_empty:
                self._forget(dialogue)
            raise

    def _withdraw(self, before: Snapshot) -> None:
        with suppress(InvalidOption):  # what has no label that makes sense was not written
            label = label_of(before.dialogue.dialogue_label)
            self.store._repository.withdraw(label, before.count)

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
        if not all(each and is_plain(each) for each in message.dialogue_reference):
            return
        self._is_completing = True
        try:
            self._complete(message)
        finally:
            self._is_completing = False

    def _beginning(
        self, dialogue_opponent_addr: str, dialogue_reference: tuple[str, str], role: Dialogue.Role
    ) -> Dialogue | None:
        """Have AEA begin the dialogue of a first message. One that comes again begins none, and has `update` return None:
        AEA raises an error there, so that the other side could stop the agent.
        """
        label = DialogueLabel(dialogue_reference, dialogue_opponent_addr, dialogue_opponent_addr)
        if self.is_in_incomplete(label):
            LOG.warning("a message was refused, because it began a dialogue before: %.200s", label)
            return None
        return self._begin(dialogue_opponent_addr, dialogue_reference, role)

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
