"""Memories of agents and bots: values under keys, in namespaces and sessions, permanent or with an expiry.

`store.memory("bot")` returns a `Memory`, an `AsyncStore` an `AsyncMemory`. `procedures` has each method once
for both, `encoding` turns keys and values into documents. `skills` has memories shared by several skills: see
`Store.skill_memory`. The package must not know hosts: adapters of hosts are in `integrations`.

>>> from collections_store import Store
>>> with Store("sqlite://") as store:
...     version = store.memory("bot").put("name", "Ada")
...     store.memory("bot").get("name")
'Ada'
"""

from .aio import AsyncMemory
from .memory import Memory
from .procedures import Entry, FoundEntry

__all__ = ["AsyncMemory", "Entry", "FoundEntry", "Memory"]
