"""A plugin of pytest for CrewAI's own tests, of its sdist: puts our classes in the place of its SQLite and LanceDB ones.

`test_crewai.py` runs them with it. Deselected are tests of what only CrewAI's classes have.
"""

import os
from hashlib import sha256
from typing import Any

import pytest
from crewai.flow.persistence import sqlite
from crewai.memory.storage import lancedb_storage

from collections_store.integrations.crewai import (
    CollectionsFlowPersistence,
    CollectionsMemoryStorage,
)

INTERNAL = {
    "test_close_drains_and_shuts_down": "`close` closes a store that was opened from a URL",
    "test_percent_underscore_and_backslash_in_scope_names_match_literally": "half a name is no scope",
    "test_update_serialization_failure_preserves_existing_record": "the error is InvalidBody",
}
"""Tests of what only CrewAI's classes have, and why ours differ."""


def database(path: Any) -> tuple[str, dict[str, Any]]:
    """Return the URL and the options of a database that stands for a file: the file, or a collection of PostgreSQL."""
    name = f"of_{sha256(str(path).encode()).hexdigest()}"
    return os.environ.get("CREWAI_TESTS_URL", f"sqlite:///{path}.store"), {"collection": name}


class OurFlows(CollectionsFlowPersistence):
    def __init__(self, db_path: Any = "flows") -> None:
        url, options = database(db_path)
        super().__init__(url, **options)


class OurMemories(CollectionsMemoryStorage):
    def __init__(self, path: Any = "memories", **options: Any) -> None:
        url, options = database(path)
        super().__init__(url, **options)


sqlite.SQLiteFlowPersistence = OurFlows
lancedb_storage.LanceDBStorage = OurMemories


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    internal = [
        item for item in items if item.nodeid.rpartition("::")[2].partition("[")[0] in INTERNAL
    ]
    config.hook.pytest_deselected(items=internal)
    items[:] = [item for item in items if item not in internal]
