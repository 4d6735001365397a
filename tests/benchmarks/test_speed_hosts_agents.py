"""Microsoft Agent Framework's histories and checkpoints, and MCP's events, against the frameworks' own. `nox -s bench`.

Neither framework has a store in SQL. The floor is Agent Framework's files, which are not flushed to the disk, and FastMCP's
event store on `KeyValueStore` in the same database.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    FileCheckpointStorage,
    FileHistoryProvider,
    Message,
    WorkflowCheckpoint,
)
from benchmarks.fixtures import Setup, all_results, bed_of, one_core, table
from benchmarks.measuring import Table, run_async
from mcp.server.streamable_http import EventMessage
from mcp.types import JSONRPCNotification

from collections_store.integrations.agent_framework import (
    AgentCheckpointStorage,
    AgentHistoryProvider,
)
from collections_store.integrations.key_value import KeyValueStore
from collections_store.integrations.mcp_events import MCPEventStore

__all__ = ["all_results", "one_core", "table"]
pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
STORED, WORKFLOWS, ROUNDS = 40, 5, 20
"""Messages, checkpoints and events that are stored before; workflows; and calls of a round."""
TEXT = "I would like to eat at a quiet place with a view of the river. " * 10

Calls = dict[str, Callable[[], Awaitable[Any]]]


@pytest.fixture(params=["SQLite, full", "PostgreSQL"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Setup:
    """Each database."""
    return bed_of(request, tmp_path, request.param)


def compare(table: Table, runner: asyncio.Runner, name: str, theirs: Calls, ours: Calls) -> None:
    for what, floor in theirs.items():
        own = {"ours": run_async(runner, ours[what], ROUNDS)}
        base = run_async(runner, floor, ROUNDS)
        table.compare(name, what, base, own, per=ROUNDS, reach="≤ 1.1")


def test_histories_and_checkpoints(setup: Setup, table: Table, tmp_path: Path) -> None:
    options = {**setup.backend.options, **setup.options}
    with asyncio.Runner() as runner:
        histories = (
            FileHistoryProvider(tmp_path / "histories"),
            AgentHistoryProvider(setup.backend.url, **options),
        )
        storages = (
            FileCheckpointStorage(tmp_path / "checkpoints"),
            AgentCheckpointStorage(setup.backend.url, **options),
        )
        numbers = itertools.count()

        def pair() -> list[Message]:
            number = next(numbers)
            return [Message("user", [f"{number} {TEXT}"]), Message("assistant", [TEXT])]

        def checkpoint(number: int) -> WorkflowCheckpoint:
            return WorkflowCheckpoint(f"w{number % WORKFLOWS}", "hash", state={"text": TEXT})

        kept = [checkpoint(number) for number in range(STORED)]

        def calls(history: Any, storage: Any) -> Calls:
            for number in range(STORED // 2):
                runner.run(history.save_messages("read", pair()))
                runner.run(storage.save(kept[2 * number]))
                runner.run(storage.save(kept[2 * number + 1]))
            return {
                f"read {STORED} messages": lambda: history.get_messages("read"),
                "load a checkpoint": lambda: storage.load(kept[7].checkpoint_id),
                "latest checkpoint": lambda: storage.get_latest(workflow_name="w1"),
                "list 8 checkpoints": lambda: storage.list_checkpoints(workflow_name="w1"),
                "save two messages": lambda: history.save_messages(str(next(numbers) % 10), pair()),
                "save a checkpoint": lambda: storage.save(checkpoint(99)),
            }

        theirs, ours = itertools.starmap(calls, zip(histories, storages, strict=True))
        compare(table, runner, f"Agent Framework, {setup.name}", theirs, ours)
        runner.run(histories[1].close())
        runner.run(storages[1].close())


def test_events(setup: Setup, table: Table) -> None:
    fastmcp = pytest.importorskip("fastmcp.server.event_store")
    options = {**setup.backend.options, **setup.options}
    message = JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"x": TEXT})

    async def ignore(_: EventMessage) -> None:
        pass

    with asyncio.Runner() as runner:
        storage = KeyValueStore(setup.backend.url, **options)
        events = MCPEventStore(setup.backend.url, session="bench", **options)
        numbers = itertools.count()

        def calls(store: Any) -> Calls:
            first = runner.run(store.store_event("read", message))
            for _ in range(STORED):
                runner.run(store.store_event("read", message))
            return {
                f"replay {STORED} events": lambda: store.replay_events_after(first, ignore),
                "store an event": lambda: store.store_event(str(next(numbers) // 20), message),
            }

        theirs, ours = calls(fastmcp.EventStore(storage)), calls(events)
        compare(table, runner, f"MCP events, {setup.name}", theirs, ours)
        runner.run(storage.close())
        runner.run(events.close())
