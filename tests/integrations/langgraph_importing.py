"""Imports of the files that LangGraph's own SQLite classes write: test_langgraph.py runs this file."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import cli_for
from integrations.langgraph_graphs import config, graph
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore
from langgraph.types import Command, interrupt

from collections_store import DatabaseUnavailable, InvalidOption
from collections_store.integrations.langgraph import (
    LangGraphSaver,
    LangGraphStore,
    import_checkpoints,
    import_items,
)


def ask(_: Any) -> Any:
    return {"done": [interrupt("name?")]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two threads of a graph, one of which was interrupted, and a large value."""
    path = tmp_path / "theirs.sqlite"
    nodes = {"first": lambda _: {"done": ["x" * 20_000]}, "ask": ask, "last": lambda _: None}
    with SqliteSaver.from_conn_string(str(path)) as saver:
        compiled = graph(nodes).compile(checkpointer=saver)
        compiled.invoke({"done": []}, config("1"))
        compiled.invoke({"done": []}, config("a/b"))
        compiled.invoke(Command(resume="Ada"), config("a/b"))
    return path


def theirs(file: Path) -> list[Any]:
    with SqliteSaver.from_conn_string(str(file)) as saver:
        return list(saver.list(None))


def test_checkpoints_are_what_their_saver_reads(backend: Backend, file: Path) -> None:
    expected = theirs(file)
    assert any(each.pending_writes for each in expected)
    with LangGraphSaver(backend.url, **backend.options) as saver:
        for _ in range(2):
            assert import_checkpoints(file, saver) == len(expected)
            assert list(saver.list(None)) == expected
        latest: Any = saver.get_tuple(config("1"))
        assert latest.checkpoint["channel_values"]["done"] == ["x" * 20_000]
        nodes = {"first": lambda _: None, "ask": ask, "last": lambda _: {"done": ["end"]}}
        compiled = graph(nodes).compile(checkpointer=saver)
        result = compiled.invoke(Command(resume="Bob"), config("1"))
        assert result["done"][1:] == ["Bob", "end"]
        import_checkpoints(file, saver)
        assert compiled.get_state(config("1")).values == result


def test_the_command_imports_checkpoints_and_items(shared_backend: Backend, file: Path) -> None:
    cli, count = cli_for(shared_backend), len(theirs(file))
    done = cli("import-langgraph", str(file))
    assert (done.exit_code, done.stderr) == (0, f"imported {count} checkpoints from '{file}'\n")
    with SqliteStore.from_conn_string(str(file)) as store:
        store.setup()
        store.put(("users", "ada"), "drink", {"likes": "tea"})
        store.conn.commit()
    done = cli("import-langgraph", str(file), "--checkpoints", "a", "--items", "b")
    assert done.stderr == f"imported {count} checkpoints and 1 item from '{file}'\n"
    url, options = shared_backend.url, shared_backend.options
    with (
        LangGraphSaver(url, collection="a", **options) as saver,
        LangGraphStore(url, collection="b", **options) as memories,
    ):
        assert list(saver.list(None)) == theirs(file)
        found = memories.get(("users", "ada"), "drink")
        assert found is not None
        assert found.value == {"likes": "tea"}


def test_the_command_refuses_other_files(shared_backend: Backend, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE t (id TEXT)")
    connection.close()
    message = cli_for(shared_backend).fails(2, "import-langgraph", str(tmp_path / "other"))
    assert "no table 'checkpoints'" in message


def test_a_file_of_other_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE checkpoints (id TEXT)")
    connection.close()
    with LangGraphSaver("sqlite://") as saver, LangGraphStore("sqlite://") as store:
        with pytest.raises(InvalidOption, match="other.sqlite.*no table 'checkpoints'"):
            import_checkpoints(path, saver)
        with pytest.raises(InvalidOption, match="no table 'store'"):
            import_items(path, store)
        with pytest.raises(DatabaseUnavailable, match="missing"):
            import_items(tmp_path / "missing", store)
        assert list(saver.list(None)) == []


def test_items_keep_their_times_and_their_order(backend: Backend, tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        for number in range(250):
            store.put(("users", f"ü{number % 3}"), f"{number}", {"n": number})
        store.put(("users", "short"), "lived", {"n": -1}, ttl=60)
        store.put(("users", "short"), "dead", {"n": -2}, ttl=60)
        updated = "UPDATE store SET updated_at = datetime('2024-06-01', key || ' seconds') WHERE key < '999'"
        store.conn.execute(updated)
        store.conn.execute("UPDATE store SET created_at = '2024-05-06 07:08:09' WHERE key = '7'")
        store.conn.execute("UPDATE store SET expires_at = '2024-05-06 07:08:09' WHERE key = 'dead'")
        store.conn.commit()
        expected = store.search(("users",), limit=300, refresh_ttl=False)
    with LangGraphStore(backend.url, **backend.options) as ours:
        for _ in range(2):
            assert import_items(path, ours) == 251
        found = ours.search(("users",), limit=300)
        kept = [each for each in expected if each.key != "dead"]
        same = {(*each.namespace, each.key): each.value for each in kept}
        assert {(*each.namespace, each.key): each.value for each in found} == same
        numbers = [each.value["n"] for each in found if each.key != "lived"]
        assert numbers == list(range(249, -1, -1))
        [seven] = ours.search(("users",), filter={"n": 7})
        assert seven.created_at.isoformat() == "2024-05-06T07:08:09+00:00"
        assert seven.updated_at > seven.created_at
        stored: Any = ours._runner.store["langgraph_items"].find_one("key", "lived")
        assert stored.expires_at is not None
        ours.put(seven.namespace, "7", {"n": 7})
        assert ours.get(seven.namespace, "7").updated_at > seven.updated_at
