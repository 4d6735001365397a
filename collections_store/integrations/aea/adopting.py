"""The dialogues that AEA itself wrote into the same store, taken over by what keeps them as they go."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from aea.protocols.dialogue.base import (
    Dialogue,
    DialogueLabel,
    Dialogues,
    PersistDialoguesStorage,
)

from ... import Collection, Document, Store
from ...dialogues import DialogueLabel as Label
from ...dialogues import DialogueStore
from .codec import label_of
from .encoding import decoded, is_name, name_of

LOG: Final = logging.getLogger("collections_store")
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
