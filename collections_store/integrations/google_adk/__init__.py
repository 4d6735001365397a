"""Google's Agent Development Kit: services of sessions and of memory, in collections of a store.

Knows ADK's interfaces `BaseSessionService` and `BaseMemoryService`, and the public API. Must not know SQL or a
database. Begin with `paths`, the ids of the documents. `sessions` and `memory` are the services; `refusals` has
their common errors.

Requires ADK: `pip install 'collections-store[google-adk]'`.
"""

from ... import MissingExtra

try:
    import google.adk.sessions  # noqa: F401
except ImportError as error:
    raise MissingExtra("google-adk", "google-adk") from error

from .memory import CollectionsMemoryService
from .sessions import CollectionsSessionService

__all__ = ["CollectionsMemoryService", "CollectionsSessionService"]
