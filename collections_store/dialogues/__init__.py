"""Dialogues that survive: dumped as they go, restored after a restart, offloaded when they have ended.

>>> from collections_store import Store
>>> from collections_store.dialogues import Dialogues
>>> with Store("sqlite://") as store:
...     message, dialogue = Dialogues(store, "ada").create("bob", "greet", {"text": "hello"})
...     restored = Dialogues(store, "ada")
...     restored.setup().active
1
"""

from .aio import AsyncDialogues, AsyncDialogueStore
from .dialogues import Dialogues, DialogueStore
from .manager import Restored
from .model import Dialogue, DialogueLabel, Message, Rules
from .records import DialogueCodec, PlainCodec
from .repository import Quarantined

__all__ = [
    "AsyncDialogueStore",
    "AsyncDialogues",
    "Dialogue",
    "DialogueCodec",
    "DialogueLabel",
    "DialogueStore",
    "Dialogues",
    "Message",
    "PlainCodec",
    "Quarantined",
    "Restored",
    "Rules",
]
