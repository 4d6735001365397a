"""A plugin of pytest for the OpenAI Agents SDK's own tests, of its sdist: puts our session in the place of its own.

`test_openai_agents.py` runs them with it, on the database of `OPENAI_AGENTS_URL`, or on SQLite. Deselected are tests that look into the
SDK's own classes, their tables and their connections.
"""

import inspect
import os
import re
import uuid
from typing import Any

import agents
import pytest
from agents.extensions.memory import async_sqlite_session, sqlalchemy_session

from collections_store import AsyncStore
from collections_store.integrations.openai_agents import OpenAIAgentsSession

INTERNAL = re.compile(
    r"session\w*\._|Session\._|_await_mutation|sqlite3|corrupt|engine_property|init_lock|test_initialization|\btext\(|monkeypatch|is closed"
)
"""What only tests of the SDK's own classes mention."""
POSTGRES = os.environ.get("OPENAI_AGENTS_URL")
_places: dict[Any, tuple[AsyncStore, str]] = {}
_postgres = AsyncStore(POSTGRES) if POSTGRES else None


def place_of(name: Any) -> tuple[AsyncStore, str]:
    """Return the store and the collection for a file or an engine; each database in memory is one of its own."""
    is_memory = ":memory:" in str(name)
    key = object() if is_memory else name
    if key not in _places:
        url = "sqlite://" if is_memory else f"sqlite:///{name}"
        _places[key] = _postgres or AsyncStore(url), f"sessions_{uuid.uuid4().hex}"
    return _places[key]


class OurSession(OpenAIAgentsSession):
    """Takes the place of SQLiteSession and AsyncSQLiteSession."""

    def __init__(
        self, session_id: str, db_path: Any = ":memory:", *, session_settings: Any = None
    ) -> None:
        store, collection = place_of(db_path)
        super().__init__(
            session_id, store, collection=collection, session_settings=session_settings
        )

    def close(self) -> Any:  # may be called with and without await
        return _Nothing()


class _Nothing:
    """Of a store that stays open: what `close` and `engine` return."""

    def __await__(self) -> Any:
        return iter(())

    def dispose(self) -> Any:
        return self


class OurSQLAlchemySession(OpenAIAgentsSession):
    """Takes the place of SQLAlchemySession."""

    def __init__(
        self,
        session_id: str,
        *,
        engine: Any,
        session_settings: Any = None,
        create_tables: bool = False,
    ) -> None:
        store, collection = place_of(engine)
        super().__init__(
            session_id, store, collection=collection, session_settings=session_settings
        )

    engine = _Nothing()

    @classmethod
    def from_url(cls, session_id: str, *, url: str, **options: Any) -> Any:
        options.pop("engine_kwargs", None)
        return cls(session_id, engine=url.partition("///")[2] or ":memory:", **options)


agents.SQLiteSession = OurSession  # type: ignore[misc, assignment]
async_sqlite_session.AsyncSQLiteSession = OurSession  # type: ignore[misc, assignment]
sqlalchemy_session.SQLAlchemySession = OurSQLAlchemySession  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if not INTERNAL.search(source_of(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(ours)])
    items[:] = ours


def source_of(item: pytest.Item) -> str:
    return inspect.getsource(item.function)  # type: ignore[attr-defined]
