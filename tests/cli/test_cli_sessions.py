"""Sessions of the OpenAI Agents SDK, and threads of LangGraph, from the command line."""

import json
import sqlite3
from importlib.util import find_spec
from pathlib import Path

import pytest
from backends import Backend
from cli.cli_process import cli_for

from collections_store import Store


def sessions_file(folder: Path, *texts: str) -> str:
    """Write a file with the table that the SDK's SQLiteSession creates."""
    file = sqlite3.connect(folder / "old.db")
    with file:
        file.execute(
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
            "message_data TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
        )
        words = "INSERT INTO agent_messages (session_id, message_data) VALUES ('alice', ?)"
        file.executemany(words, [(text,) for text in texts])
    file.close()
    return str(folder / "old.db")


def test_sessions_are_imported_once(shared_backend: Backend, tmp_path: Path) -> None:
    items = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    cli, file = cli_for(shared_backend), sessions_file(tmp_path, *map(json.dumps, items))
    done = cli("import-openai-agents", file)
    assert (done.exit_code, done.stderr) == (0, f"imported 2 items from '{file}' into agent_sessions\n")  # fmt: skip
    with Store(shared_backend.url, **shared_backend.options) as store:
        found = store["agent_sessions"].find({"item": {"$exists": True}}, sort="$id")
        assert [each.body["item"] for each in found] == items
    message = cli.fails(2, "import-openai-agents", file)
    assert "session 'alice' is in collection 'agent_sessions'" in message
    done = cli("import-openai-agents", file, "--skip-errors")
    assert done.stderr.endswith(f"imported 0 items from '{file}' into agent_sessions, skipped 1\n")
    done = cli("import-openai-agents", file, "--collection", "others")
    assert done.exit_code == 0


def test_a_row_without_json_is_named(shared_backend: Backend, tmp_path: Path) -> None:
    cli, file = cli_for(shared_backend), sessions_file(tmp_path, "{}", "no json")
    assert "agent_messages.2" in cli.fails(3, "import-openai-agents", file)
    assert "no table 'others'" in cli.fails(2, "import-openai-agents", file, "--table", "others")
    done = cli("import-openai-agents", file, "--skip-errors")
    assert done.stderr.endswith("into agent_sessions, skipped 1\n")


@pytest.mark.skipif(find_spec("langgraph") is not None, reason="LangGraph is installed")
def test_an_import_from_langgraph_names_what_it_needs(
    shared_backend: Backend, tmp_path: Path
) -> None:
    message = cli_for(shared_backend).fails(7, "import-langgraph", sessions_file(tmp_path))
    assert "pip install 'collections-store[langgraph]'" in message
