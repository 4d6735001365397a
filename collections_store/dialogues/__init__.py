"""Dialogues that survive: dumped as they go, restored after a restart, offloaded when they have ended.

>>> from collections_store import Store
>>> from collections_store.dialogues import Dialogues
>>> with Store("sqlite://") as store:
...     message, dialogue = Dialogues(store, "ada").create("bob", "greet", {"text": "hello"})
...     restored = Dialogues(store, "ada")
...     restored.setup().active
1
"""

from .coding import DialogueCodec, PlainCodec
from .container import Restored
from .dialogue import Dialogue
from .dialogue_store import DialogueStore
from .dialogue_store_async import AsyncDialogueStore
from .dialogues import Dialogues
from .dialogues_async import AsyncDialogues
from .keeper import Quarantined
from .label import DialogueLabel
from .message import Message
from .rules import Rules

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
