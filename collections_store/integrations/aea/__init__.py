"""AEA's storage and dialogues in a store, for `open-aea` and fetchai's `aea`.

The package knows AEA and the public API. Begin with `attaching`, which registers `storage` with AEA, and puts `dialogues`
behind an agent's `Dialogues`. `formats` converts bodies and fields. Only `import_aea` works without AEA.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .formats import import_aea

if TYPE_CHECKING:
    from .attaching import attach as attach
    from .attaching import register as register
    from .dialogues import dialogues_storage as dialogues_storage
    from .storage import CollectionsBackend as CollectionsBackend
    from .storage import Storage as Storage
    from .storage import SyncCollection as SyncCollection

_MODULES: Final = {
    "CollectionsBackend": "storage",
    "Storage": "storage",
    "SyncCollection": "storage",
    "attach": "attaching",
    "dialogues_storage": "dialogues",
    "register": "attaching",
}
__all__ = [
    "CollectionsBackend",
    "Storage",
    "SyncCollection",
    "attach",
    "dialogues_storage",
    "import_aea",
    "register",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is used first; raises `MissingExtra`."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(".storage", __name__)  # whose error says what to install
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
