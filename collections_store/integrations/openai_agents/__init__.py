"""Sessions of the OpenAI Agents SDK, in a collection of a store.

Knows the SDK's protocol `Session`, and the public API. Must not know SQL or a database. Begin with `records`, the
stored form. `session` is the SDK's interface, `collection` lists and deletes the sessions of a store, and
`importing` reads the SDK's SQLite files. Only `OpenAIAgentsSession` needs the SDK: `pip install
'collections-store[openai-agents]'`.
"""

from .collection import delete_idle_sessions, list_sessions
from .importing import import_openai_agents
from .session import OpenAIAgentsSession

__all__ = [
    "OpenAIAgentsSession",
    "delete_idle_sessions",
    "import_openai_agents",
    "list_sessions",
]
