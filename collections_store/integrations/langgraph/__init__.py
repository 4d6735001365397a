"""LangGraph: checkpointers of graphs, and stores of long-term memory, in collections of a store.

Knows LangGraph's interfaces `BaseCheckpointSaver` and `BaseStore`, and the public API. Must not know SQL, nor a
database. Begin with `checkpoints` and its stored form, `records`; `items` are the operations of a
store. `saver` and `store` are LangGraph's interfaces on them, and `running` is what sync and async differ in. `importing` reads the files of
LangGraph's own.

LangGraph is needed: `pip install 'collections-store[langgraph]'`.
"""

from ... import MissingExtra

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    raise MissingExtra("langgraph", "langgraph") from error

from .importing import import_checkpoints, import_items
from .saver import AsyncLangGraphSaver, LangGraphSaver
from .store import AsyncLangGraphStore, LangGraphStore

__all__ = [
    "AsyncLangGraphSaver",
    "AsyncLangGraphStore",
    "LangGraphSaver",
    "LangGraphStore",
    "import_checkpoints",
    "import_items",
]
