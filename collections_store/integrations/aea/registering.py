"""AEA gets to know our storage."""

from __future__ import annotations

from typing import Any

from aea.helpers.storage import generic_storage
from aea.runtime import BaseRuntime

from .attaching import take_all
from .backend import SCHEMES, CollectionsBackend, is_ours, read_uri
from .retention import Retention
from .storage import Storage

_theirs = BaseRuntime._get_storage


def register() -> None:
    """Have AEA understand `storage_uri: collections+sqlite:///file.db`, and `collections+postgresql://…`.

    Whoever has an agent's command line (`aea`) needs not call it: installing this package is enough. Others call it
    before they build an agent. Doing so again does nothing.
    """
    backends: Any = generic_storage.BACKENDS
    backends.update(dict.fromkeys(SCHEMES, CollectionsBackend))
    runtime: Any = BaseRuntime
    runtime._get_storage = staticmethod(_storage_of)


def _storage_of(agent: Any) -> generic_storage.Storage | None:
    """Return the storage of an agent that is being built."""
    if not is_ours(agent.storage_uri):
        return _theirs(agent)
    storage = Storage(agent.storage_uri, threaded=True)
    if read_uri(agent.storage_uri)[1]:
        storage.before_connected(lambda: take_all(agent, storage, Retention()))
    return storage
