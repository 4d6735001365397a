"""Imports of files that the sessions of the OpenAI Agents SDK wrote. `test_openai_agents.py` runs these tests."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, SQLAlchemySession
from agents.usage import Usage
from backends import Backend

from collections_store import (
    AsyncStore,
    CollectionsStoreError,
    DatabaseUnavailable,
    InvalidBody,
    InvalidOption,
    Store,
)
from collections_store.integrations.openai_agents import OpenAIAgentsSession, import_openai_agents


def said(*contents: str) -> list[Any]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]


def run_of(tokens: int) -> Any:
    """Return what `store_run_usage` takes from the result of a run."""
    usage = Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))


async def write_sqlite(file: Path) -> None:
    for name in ("alice", "bob/1"):
        session = SQLiteSession(name, file)
        await session.add_items(said("a", "A", "b\0", f"of {name}"))
        session.close()


async def write_sqlalchemy(file: Path) -> None:
    for name in ("alice", "bob/1"):
        session = SQLAlchemySession.from_url(
            name, url=f"sqlite+aiosqlite:///{file}", create_tables=True
        )
        await session.add_items(said("a", "A", "b\0", f"of {name}"))
        await session.engine.dispose()


async def write_advanced(file: Path) -> None:
    session = AdvancedSQLiteSession(session_id="alice", db_path=file, create_tables=True)
    await session.add_items(said("a", "A"))
    await session.store_run_usage(run_of(10))
    await session.add_items(said("b", "B"))
    await session.store_run_usage(run_of(20))
    await session.create_branch_from_turn(2, "other")
    await session.add_items(said("c", "C"))
    await session.store_run_usage(run_of(30))
    await session.switch_to_branch("main")
    await session.add_items(said("d", "D"))
    session.close()


def check(backend: Backend, function: Callable[[AsyncStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            await function(store)

    asyncio.run(main())


@pytest.mark.parametrize("write", [write_sqlite, write_sqlalchemy])
def test_sessions_are_imported_and_go_on(
    shared_backend: Backend, tmp_path: Path, write: Any
) -> None:
    backend = shared_backend
    file = tmp_path / "old.db"
    asyncio.run(write(file))
    before = file.read_bytes()
    with Store(backend.url, **backend.options) as store:
        assert import_openai_agents(store, file) == 8
        with pytest.raises(
            InvalidOption, match="session 'alice' is in collection 'agent_sessions'"
        ):
            import_openai_agents(store, file)
        assert import_openai_agents(store, file, collection="others") == 8
        errors: list[CollectionsStoreError] = []
        assert import_openai_agents(store, file, on_error=errors.append) == 0
        assert [type(error) for error in errors] == [InvalidOption] * 2
    assert file.read_bytes() == before

    async def found(store: AsyncStore) -> None:
        for name in ("alice", "bob/1"):
            session = OpenAIAgentsSession(name, store)
            assert await session.get_items() == said("a", "A", "b\0", f"of {name}")
            await session.add_items(said("c"))
            assert await session.pop_item() == said("c")[0]
            assert len(await session.get_conversation_turns()) == 2

    check(backend, found)


def test_branches_and_usage_are_imported(shared_backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    asyncio.run(write_advanced(file))
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert import_openai_agents(store, file) == 10

    async def found(store: AsyncStore) -> None:
        theirs = AdvancedSQLiteSession(session_id="alice", db_path=file, create_tables=True)
        ours = OpenAIAgentsSession("alice", store)
        for branch in ("main", "other"):
            items = await theirs.get_items(branch_id=branch)
            assert await ours.get_items(branch_id=branch) == items
            usage = await theirs.get_turn_usage(branch_id=branch)
            assert await ours.get_turn_usage(branch_id=branch) == usage
            turns = await theirs.get_conversation_turns(branch)
            listed = await ours.get_conversation_turns(branch)
            assert [each["content"] for each in listed] == [each["content"] for each in turns]
        assert await ours.get_session_usage() == await theirs.get_session_usage()
        theirs.close()
        await ours.switch_to_branch("other")
        await ours.add_items(said("e"))
        assert [each["content"] for each in await ours.get_items(3)] == ["c", "C", "e"]  # type: ignore[typeddict-item]

    check(shared_backend, found)


def test_bad_rows_are_refused_or_reported(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    asyncio.run(write_sqlite(file))
    connection = sqlite3.connect(file)
    words = "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)"
    connection.executemany(words, [("alice", "{no json"), ("a\0b", json.dumps(said("x")[0]))])
    connection.commit()
    connection.close()
    with Store("sqlite://") as store:
        with pytest.raises(InvalidBody, match=r"agent_messages\.9.*must hold JSON"):
            import_openai_agents(store, file)
        assert store.collections() == []
        errors: list[CollectionsStoreError] = []
        assert import_openai_agents(store, file, on_error=errors.append) == 8
        assert [type(error) for error in errors] == [InvalidBody, InvalidOption]


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with Store("sqlite://") as store:
        with pytest.raises(DatabaseUnavailable, match="there is no SQLite file"):
            import_openai_agents(store, file)
        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE things (id INTEGER)")
        connection.close()
        with pytest.raises(InvalidOption, match=r"no table 'agent_messages' \(.*are: 'things'"):
            import_openai_agents(store, file)
        with pytest.raises(InvalidOption, match="no table 'others'"):
            import_openai_agents(store, file, messages_table="others")
        assert store.collections() == []
