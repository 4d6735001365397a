"""Chats of LlamaIndex, LangChain and the OpenAI Agents SDK against the frameworks' own stores in SQL, sync and async. `nox -s bench`.

Both keep each message in a row and write durably at each commit. The floor is the framework's store.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from benchmarks.fixtures import Setup, all_results, bed_of, one_core, table
from benchmarks.measuring import Table, again, run_async
from langchain_core.messages import AIMessage, HumanMessage
from sqlalchemy.ext.asyncio import create_async_engine

from collections_store import AsyncStore
from collections_store.integrations.langchain import LangChainHistories

__all__ = ["all_results", "one_core", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
STORED, CHATS, ROUNDS = 40, 10, 20
"""Messages of a chat, chats, and calls of a round."""
TASKS = 16
TEXT = "I would like to eat at a quiet place with a view of the river. " * 10
KEY = "chat 3"


@pytest.fixture(params=["SQLite, full", "PostgreSQL"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Setup:
    """Each database; the frameworks' stores have SQLite's default, which is FULL."""
    return bed_of(request, tmp_path, request.param)


def theirs(setup: Setup, driver: str, tmp_path: Path) -> str:
    """Return the URL of a database of the framework's store, with a driver of SQLite."""
    if setup.is_postgresql:
        return setup.backend.url.replace("postgresql://", "postgresql+psycopg://", 1)
    return f"sqlite{driver}:///{tmp_path / 'theirs.db'}"


def keys() -> Iterator[str]:
    return (f"new chat {number % CHATS}" for number in itertools.count())


def gathered(call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a coroutine function that awaits a call in many tasks."""

    async def calls() -> None:
        await asyncio.gather(*(call() for _ in range(TASKS)))

    return calls


def test_messages_of_llama_index(setup: Setup, table: Table, tmp_path: Path) -> None:
    from llama_index.core.base.llms.types import ChatMessage  # which takes seconds
    from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

    from collections_store.integrations.llama_index import LlamaIndexMemoryStore

    message, fresh = ChatMessage(role="user", content=TEXT), keys()
    with asyncio.Runner() as runner:
        sql = SQLAlchemyChatStore("chats", theirs(setup, "+aiosqlite", tmp_path))
        ours = LlamaIndexMemoryStore(setup.backend.url, **setup.backend.options, **setup.options)
        for store in (sql, ours):
            for chat in range(CHATS):
                runner.run(store.add_messages(f"chat {chat}", [message] * STORED))

        def calls(store: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
            return {
                "add a message": lambda: store.add_message(next(fresh), message),
                "add two messages": lambda: store.add_messages(next(fresh), [message] * 2),
                f"add a message in each of {TASKS} tasks": gathered(
                    lambda: store.add_message(next(fresh), message)
                ),
                f"read {STORED} messages": lambda: store.get_messages(KEY),
                "count messages": lambda: store.count_messages(KEY),
                "replace two messages": lambda: store.set_messages("another", [message] * 2),
                "archive a message": lambda: store.archive_oldest_messages(next(fresh), 1),
            }

        own = calls(ours)
        for what, floor in calls(sql).items():
            times = 1 if "tasks" in what else ROUNDS
            table.compare(
                f"LlamaIndex, {setup.name}", what, run_async(runner, floor, times),
                {"ours": run_async(runner, own[what], times)}, per=times, reach="≤ 1.1",
            )  # fmt: skip
        runner.run(ours.aclose())
        assert sql._async_engine is not None
        runner.run(sql._async_engine.dispose())


def test_histories_of_langchain(setup: Setup, table: Table, tmp_path: Path) -> None:
    community = pytest.importorskip("langchain_community.chat_message_histories")
    pair = [HumanMessage(TEXT), AIMessage(TEXT)]
    fresh = keys()
    engine = sa.create_engine(theirs(setup, "", tmp_path))
    options = {**setup.backend.options, **setup.options}
    with LangChainHistories(setup.backend.url, **options) as histories:

        def sql(session: str) -> Any:
            return community.SQLChatMessageHistory(session, connection=engine)

        for history in (sql, histories.history):
            for chat in range(CHATS):
                history(f"chat {chat}").add_messages(pair * (STORED // 2))

        def calls(history: Callable[[str], Any]) -> dict[str, Callable[[], Any]]:
            return {
                "add two messages": lambda: history(next(fresh)).add_messages(pair),
                f"read {STORED} messages": lambda: history(KEY).messages,
            }

        own = calls(histories.history)
        for what, floor in calls(sql).items():
            table.compare(
                f"LangChain, {setup.name}", what, again(floor, ROUNDS),
                {"ours": again(own[what], ROUNDS)}, per=ROUNDS, reach="≤ 1.1",
            )  # fmt: skip
    engine.dispose()


@pytest.mark.parametrize("kind", ["SQLiteSession", "SQLAlchemySession"])
def test_sessions_of_openai_agents(setup: Setup, table: Table, tmp_path: Path, kind: str) -> None:
    from agents import SQLiteSession  # which takes seconds
    from agents.extensions.memory import SQLAlchemySession

    from collections_store.integrations.openai_agents import OpenAIAgentsSession

    if kind == "SQLiteSession" and setup.is_postgresql:
        pytest.skip("SQLiteSession is on SQLite only")
    pair: list[Any] = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}]

    engine = create_async_engine(theirs(setup, "+aiosqlite", tmp_path))

    def opened(name: str) -> Any:
        if kind == "SQLiteSession":
            return SQLiteSession(name, tmp_path / "theirs.db")
        return SQLAlchemySession(name, engine=engine, create_tables=True)

    with asyncio.Runner() as runner:
        options = {**setup.backend.options, **setup.options}
        store = AsyncStore(setup.backend.url, **options)

        def calls(written: Any, read: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
            runner.run(read.add_items(pair * (STORED // 2)))
            return {
                "add two items": lambda: written.add_items(pair),
                f"read {STORED} items": read.get_items,
                f"read the last 10 of {STORED} items": lambda: read.get_items(10),
            }

        own = calls(OpenAIAgentsSession("written", store), OpenAIAgentsSession("read", store))
        sessions = opened("written"), opened("read")
        for what, floor in calls(*sessions).items():
            table.compare(
                f"OpenAI Agents SDK, {kind}, {setup.name}", what, run_async(runner, floor, ROUNDS),
                {"ours": run_async(runner, own[what], ROUNDS)}, per=ROUNDS, reach="≤ 1.1",
            )  # fmt: skip
        runner.run(store.aclose())
        runner.run(engine.dispose())
    if kind == "SQLiteSession":
        for session in sessions:
            session.close()
