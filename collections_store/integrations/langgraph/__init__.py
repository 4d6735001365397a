"""LangGraph: checkpointers of graphs, and stores of long-term memory, in collections of a store.

Knows LangGraph's interfaces `BaseCheckpointSaver` and `BaseStore`, and the public API. Must not know SQL or a
database. Begin with `checkpoints`, which writes, and the stored form, `records`;
`reading`, `listing` and `deleting` have the other procedures of a checkpointer. `items` has the operations of a store. `saver`
and `store` implement LangGraph's interfaces, `running` has the difference between sync and async, and `importing`
reads the files of LangGraph's own checkpointers and stores.

Requires LangGraph: `pip install 'collections-store[langgraph]'`.
"""

from ... import MissingExtra

try:
    import langgraph.checkpoint.base  # noqa: F401
    import pybase64  # noqa: F401
except ImportError as error:
    raise MissingExtra(error.name or "langgraph", "langgraph") from error

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
