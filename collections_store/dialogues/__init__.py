"""Dialogues of agents, persisted message by message, restored after a restart, offloaded when they have ended.

The package knows AEA's terms, and no framework. Each layer uses only the layers below:

3. `dialogues` and `aio` have the public methods, which run the procedures of `manager`. `cache` holds dialogues in memory.
2. `repository` stores, reads, finds and deletes dialogues, within transactions, by `reader`, `quarantine` and `undo`.
1. `model` has labels, messages, rules and dialogues, `records` their stored form, `search` the parts of a filter. Pure.

Begin with `create` in `dialogues`.

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
from .records import DialogueCodec, FoundDialogue, PlainCodec, Quarantined

__all__ = [
    "AsyncDialogueStore",
    "AsyncDialogues",
    "Dialogue",
    "DialogueCodec",
    "DialogueLabel",
    "DialogueOptions",
    "DialogueStore",
    "Dialogues",
    "FoundDialogue",
    "HostDialogues",
    "Message",
    "PlainCodec",
    "Quarantined",
    "Restored",
    "Rules",
]
