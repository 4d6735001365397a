"""Memories: values under keys, in namespaces, for a while or for ever.

`store.memory("bot")` gives a `Memory`, and that of an `AsyncStore` an `AsyncMemory`.

>>> from collections_store import Store
>>> with Store("sqlite://") as store:
...     version = store.memory("bot").put("name", "Ada")
...     store.memory("bot").get("name")
'Ada'
"""

from .entries import Entry
from .importing import import_kdeps, import_opsdroid
from .memory import Memory
from .memory_async import AsyncMemory

__all__ = ["AsyncMemory", "Entry", "Memory", "import_kdeps", "import_opsdroid"]
