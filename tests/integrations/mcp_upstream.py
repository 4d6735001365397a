"""A plugin of pytest for the MCP SDK's own tests, of its sdist: puts our event store in the place of the one that they define.

`test_mcp_events.py` runs them with it. Deselected are tests without an event store, and one that reads the list of theirs.
"""

import asyncio
import inspect
import uuid
from typing import Any

import pytest

from collections_store import AsyncStore
from collections_store.integrations.mcp_events import MCPEventStore

FIXTURES = {"event_app", "event_store"}
STORE = AsyncStore("sqlite://")


class OurEventStore(MCPEventStore):
    def __init__(self) -> None:
        super().__init__(STORE, session=uuid.uuid4().hex)


def pytest_unconfigure() -> None:
    asyncio.run(STORE.aclose())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if _is_wanted(item)]
    for item in kept:
        _module(item).SimpleEventStore = OurEventStore
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _is_wanted(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    source = inspect.getsource(item.function)
    uses = FIXTURES & set(item.fixturenames) or "SimpleEventStore(" in source
    return bool(uses) and "event_store._events" not in source


def _module(item: pytest.Item) -> Any:
    assert isinstance(item, pytest.Function)
    return item.module
