"""Memories of agents and bots: values under keys, in namespaces and sessions, permanent or with an expiry.

`store.memory("bot")` returns a `Memory`, that of an `AsyncStore` an `AsyncMemory`. `procedures` has each method once
for both, `encoding` turns keys and values into documents. Must not know hosts: these are in `integrations`.

>>> from collections_store import Store
>>> with Store("sqlite://") as store:
...     version = store.memory("bot").put("name", "Ada")
...     store.memory("bot").get("name")
'Ada'
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

from .aio import AsyncMemory
from .memory import Memory
from .procedures import Entry

if TYPE_CHECKING:
    from ..integrations.soul_machines import AsyncSkillMemory as AsyncSkillMemory
    from ..integrations.soul_machines import SkillMemory as SkillMemory
    from ..integrations.sqlite_files import import_kdeps as import_kdeps
    from ..integrations.sqlite_files import import_opsdroid as import_opsdroid

__all__ = ["AsyncMemory", "Entry", "Memory"]

_MOVED = {
    "AsyncSkillMemory": "soul_machines",
    "SkillMemory": "soul_machines",
    "import_kdeps": "sqlite_files",
    "import_opsdroid": "sqlite_files",
}
"""Names of hosts, and their modules in `collections_store.integrations`."""

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        if name not in _MOVED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = f"collections_store.integrations.{_MOVED[name]}"
        warnings.warn(f"import {name} from {module}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), name)
