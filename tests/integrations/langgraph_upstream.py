"""A plugin of pytest for LangGraph's own tests, of its sdists: puts our classes in the place of its SQLite ones.

`test_langgraph.py` runs them with it. Of the engine's tests those run that use a checkpointer of SQLite. Deselected are tests of
what only LangGraph's classes have.
"""

import os
from typing import Any

import pytest
from langgraph.checkpoint import sqlite as checkpoints
from langgraph.checkpoint.sqlite import aio as async_checkpoints
from langgraph.store import memory as memories
from langgraph.store import sqlite as stores
from langgraph.store.sqlite import aio as async_stores

from collections_store.integrations.langgraph import (
    AsyncLangGraphSaver,
    AsyncLangGraphStore,
    LangGraphSaver,
    LangGraphStore,
)

INTERNAL = {
    "test_nonnull_migrations": "SqliteStore.MIGRATIONS",
    "test_escape_glob_literal": "a function",
    "test_namespace_match_pattern": "a function",
    "test_list_namespaces_prefix_uses_indexable_condition": "its SQL",
    "test_vector_store_initialization": "its tables",
}
"""Tests of LangGraph's own functions and SQL."""


def config(index: Any) -> Any:
    """Return the documented configuration of an index; SqliteStore has `text_fields` for `fields`."""
    return index and {**index, "fields": index.get("text_fields") or index.get("fields")}


def refreshed(ttl: Any) -> Any:
    """Return a configuration with SqliteStore's default: the documented one is to refresh on read."""
    return {"refresh_on_read": False, **(ttl or {})}


class OurStore(LangGraphStore):
    def __init__(self, store: Any, *, index: Any = None, ttl: Any = None) -> None:
        super().__init__(store, index=config(index), ttl=refreshed(ttl))


class OurAsyncStore(AsyncLangGraphStore):
    def __init__(self, store: Any, *, index: Any = None, ttl: Any = None) -> None:
        super().__init__(store, index=config(index), ttl=refreshed(ttl))


class OurMemoryStore(LangGraphStore):
    def __init__(self, *, index: Any = None) -> None:
        super().__init__(":memory:", index=index)


memories.InMemoryStore = OurMemoryStore
checkpoints.SqliteSaver = LangGraphSaver
async_checkpoints.AsyncSqliteSaver = AsyncLangGraphSaver
stores.SqliteStore = OurStore
stores.AsyncSqliteStore = async_stores.AsyncSqliteStore = OurAsyncStore


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if _is_wanted(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _is_wanted(item: pytest.Item) -> bool:
    if os.environ.get("LANGGRAPH_TESTS") == "store":
        return item.name.partition("[")[0] not in INTERNAL
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    used = [parameters.get(f"{kind}_checkpointer", "") for kind in ("sync", "async")]
    return any(str(name).startswith("sqlite") for name in used)
