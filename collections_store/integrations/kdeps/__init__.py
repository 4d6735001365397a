"""What kdeps' workflows remember, as its functions have it: kdeps itself is no Python.

`Items` and `Records` are the functions `memory` and `session` of its versions up to 0.6, `MemoryStorage` and `SessionStorage` those
from 1.9 on. Each stands on a `Memory`, which says where the values are, and for how long; and those whose names begin with `Async`
on an `AsyncMemory`.

>>> with Store("sqlite://") as store:
...     memory = Records(store.memory("agent"))
...     memory.setRecord("name", "Ada"), memory.getRecord("name"), memory.deleteRecord("name")
('Ada', 'Ada', 'Ada')
"""

from .storages import MemoryStorage, SessionStorage
from .storages_async import AsyncMemoryStorage, AsyncSessionStorage
from .texts import Items, Records
from .texts_async import AsyncItems, AsyncRecords

__all__ = [
    "AsyncItems",
    "AsyncMemoryStorage",
    "AsyncRecords",
    "AsyncSessionStorage",
    "Items",
    "MemoryStorage",
    "Records",
    "SessionStorage",
]
