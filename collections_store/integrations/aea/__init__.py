"""AEA's storage and dialogues, kept in a store: those of `open-aea`, and of fetchai's `aea`.

Only `import_aea` does without either of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .importing import import_aea

if TYPE_CHECKING:
    from .attaching import attach as attach
    from .attaching import register as register
    from .backend import CollectionsBackend as CollectionsBackend
    from .storage import Storage as Storage
    from .storage import SyncCollection as SyncCollection


__all__ = [
    "CollectionsBackend",
    "Storage",
    "SyncCollection",
    "attach",
    "import_aea",
    "register",
]
_ROOMS: Final = {
    "CollectionsBackend": "backend",
    "Storage": "storage",
    "SyncCollection": "storage",
    "attach": "attaching",
    "register": "attaching",
}


def __getattr__(name: str) -> Any:
    """Import AEA when it is needed; raises `MissingExtra`."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(".backend", __name__)  # which tells what to install
    return getattr(import_module(f".{_ROOMS[name]}", __name__), name)
