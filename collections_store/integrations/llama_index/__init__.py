"""LlamaIndex: a vector store, a key-value store, a chat store, and the messages of LlamaIndex's `Memory`, in
collections of a store.

Each class takes the URL of a store, with the options of `AsyncStore`, or an `AsyncStore`, which stays open.
LlamaIndex's methods come in pairs, sync and async, on the same object and the same store, from any thread and any
event loop. A sync method blocks the event loop of its caller. `vectors` has the vector store, `storage` the others.

Requires LlamaIndex: `pip install 'collections-store[llama-index]'`.
"""

from ... import MissingExtra

try:
    import llama_index.core as _  # noqa: F401
except ImportError as error:
    raise MissingExtra("llama-index-core", "llama-index") from error

from .storage import LlamaIndexChatStore, LlamaIndexKVStore, LlamaIndexMemoryStore
from .vectors import LlamaIndexVectorStore

__all__ = [
    "LlamaIndexChatStore",
    "LlamaIndexKVStore",
    "LlamaIndexMemoryStore",
    "LlamaIndexVectorStore",
]
