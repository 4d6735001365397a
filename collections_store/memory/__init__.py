"""Memories: values under keys, in namespaces, for a while or for ever.

`store.memory("bot")` gives a `Memory`, and that of an `AsyncStore` an `AsyncMemory`. `store.skill_memory()` gives the
memories of a session's skills, by the rules of their platform.

>>> from collections_store import Store
>>> with Store("sqlite://") as store:
...     version = store.memory("bot").put("name", "Ada")
...     store.memory("bot").get("name")
'Ada'
"""

from .aio import AsyncMemory, AsyncSkillMemory
from .entries import Entry
from .importing import import_kdeps, import_opsdroid
from .memory import Memory
from .skills import SkillMemory

__all__ = [
    "AsyncMemory",
    "AsyncSkillMemory",
    "Entry",
    "Memory",
    "SkillMemory",
    "import_kdeps",
    "import_opsdroid",
]
