"""The dialogues that AEA itself wrote into the same store, taken over by what keeps them as they go."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from aea.protocols.dialogue.base import Dialogue, Dialogues, PersistDialoguesStorage

from ... import Collection, Store
from ...dialogues import DialogueStore
from .codec import label_of
from .encoding import decoded, name_of

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
        return cls(dialogues, tuple(store[name_of(each)] for each in names if _is_name(each)))

    def move_to(self, kept: DialogueStore[Dialogue]) -> None:
        """Move it, dialogue by dialogue; what cannot be read stays where it is."""
        for collection in self.collections:
            for id, body in collection.list():
                if id == _LABELS or self._is_moved(kept, id, body):
                    collection.remove(id)

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


def _is_name(name: str) -> bool:
    """Could AEA have had a collection of that name?"""
    return name.isascii() and name.replace("_", "a").isalnum()
