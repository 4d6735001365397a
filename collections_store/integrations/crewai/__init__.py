"""CrewAI: the states of flows, and the storage of memories, in collections of a store.

Knows CrewAI's interfaces `FlowPersistence` and `StorageBackend`, and the public API. Must not know SQL or a database.
Begin with `flows`; `memory` is independent of it.

Requires CrewAI: `pip install 'collections-store[crewai]'`.
"""

from ... import MissingExtra

try:
    import crewai.memory.types  # noqa: F401
except ImportError as error:
    raise MissingExtra("crewai", "crewai") from error

from .flows import CollectionsFlowPersistence
from .memory import CollectionsMemoryStorage

__all__ = ["CollectionsFlowPersistence", "CollectionsMemoryStorage"]
