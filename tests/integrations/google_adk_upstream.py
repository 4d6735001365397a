"""A plugin of pytest for ADK's own tests, of its repository: puts our service in the place of its SQLite one.

`test_google_adk.py` runs them with it. Those run that ADK runs for each of its services: they take the fixture
`session_service`.
"""

import google.adk.sessions.sqlite_session_service as services
import pytest

from collections_store.integrations.google_adk import CollectionsSessionService


class OurService(CollectionsSessionService):
    def __init__(self, path: str) -> None:
        super().__init__(f"sqlite:///{path}")


services.SqliteSessionService = OurService  # type: ignore[assignment, misc]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if _is_wanted(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _is_wanted(item: pytest.Item) -> bool:
    return "session_service" in getattr(item, "fixturenames", ()) and "sqlite" in item.name.lower()
