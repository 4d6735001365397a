"""Dialogues of agents, persisted message by message, restored after a restart, offloaded when they have ended.

The package knows AEA's terms, and no framework. Begin with `dialogues`: its methods run procedures of `messaging` and
`manager`, which work on `repository`, and that on `storage`. `model` has labels, messages, rules and dialogues.

>>> from collections_store import Store
>>> from collections_store.dialogues import Dialogues
>>> with Store("sqlite://") as store:
...     message, dialogue = Dialogues(store, "ada").create("bob", "greet", {"text": "hello"})
...     restored = Dialogues(store, "ada")
...     restored.setup().active
1
"""

from .aio import AsyncDialogues, AsyncDialogueStore
from .dialogues import Dialogues, DialogueStore, HostDialogues
from .manager import DialogueOptions, Restored
from .model import Dialogue, DialogueLabel, Message, Rules
from .records import DialogueCodec, PlainCodec, Quarantined

__all__ = [
    "AsyncDialogueStore",
    "AsyncDialogues",
    "Dialogue",
    "DialogueCodec",
    "DialogueLabel",
    "DialogueOptions",
    "DialogueStore",
    "Dialogues",
    "HostDialogues",
    "Message",
    "PlainCodec",
    "Quarantined",
    "Restored",
    "Rules",
]
