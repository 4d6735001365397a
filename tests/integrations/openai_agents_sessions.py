"""Sessions of the OpenAI Agents SDK on our store: its protocol, runs of agents, branches, usage, and what is shared.

`test_openai_agents.py` runs these tests.
"""

import asyncio
import inspect
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    RunContextWrapper,
    Runner,
    SessionSettings,
    SQLiteSession,
    set_tracing_disabled,
)
from agents.extensions.memory import SQLAlchemySession
from agents.memory import Session
from agents.testing import ScriptedModel, assistant_message
from agents.usage import Usage
from backends import Backend

from collections_store import (
    AsyncStore,
    InvalidBody,
    InvalidOption,
    MissingExtra,
    Store,
    StoreClosed,
    VersionConflict,
)
from collections_store.integrations.openai_agents import (
    OpenAIAgentsSession,
    delete_idle_sessions,
    list_sessions,
)

set_tracing_disabled(True)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
ALL_TESTS = bool(os.environ.get("COLLECTIONS_STORE_TEST_HOSTS"))
Use = Callable[[AsyncStore], Awaitable[None]]


def use(backend: Backend, function: Use) -> None:
    """Call a function with a store, on a new event loop."""

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            await function(store)

    asyncio.run(main())


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def answer(content: Any) -> Any:
    return {"role": "assistant", "content": content}


def contents(items: Any) -> list[Any]:
    return [item["content"] for item in items]


# -- the protocol ----------------------------------------------------------------------------


def test_it_is_a_session_of_the_sdk(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("alice", store)
        assert isinstance(session, Session)
        assert session.session_settings == SessionSettings()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.clear_session()
        await session.add_items([])
        assert store.collections is not None
        assert await store.collections() == []

    use(backend, check)


def test_items_come_in_their_order_and_the_last_goes_first(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("alice", store)
        items = [user("a"), answer("b"), {"type": "reasoning", "summary": []}, user(["c"])]
        await session.add_items(items[:3])
        await session.add_items(items[3:])
        for again in (session, OpenAIAgentsSession("alice", store)):
            assert await again.get_items() == items
            assert await again.get_items(2) == items[2:]
            assert await again.get_items(limit=9) == items
            assert await again.get_items(0) == []
            assert await again.get_items(-1) == items
        assert await session.pop_item() == items.pop()
        assert await session.pop_item() == items.pop()
        await session.add_items([user("d")])
        assert await session.get_items() == [*items, user("d")]

    use(backend, check)


def test_the_settings_limit_what_is_read(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        for settings in (SessionSettings(limit=2), {"limit": 2}):
            session = OpenAIAgentsSession("a", store, session_settings=settings)
            await session.clear_session()
            await session.add_items([user(n) for n in range(5)])
            assert contents(await session.get_items()) == [3, 4]
            assert contents(await session.get_items(3)) == [2, 3, 4]
        with pytest.raises(TypeError, match="colour"):
            OpenAIAgentsSession("a", store, session_settings={"colour": 1})

    use(backend, check)


def test_names_are_literal_and_apart(backend: Backend) -> None:
    names = ["alice", "alic", "alice/", "5:alice/", "", "a%b_*?'\"\\", "ä\n", "$id", "x" * 900]

    async def check(store: AsyncStore) -> None:
        for name in names:
            session = OpenAIAgentsSession(name, store)
            await session.add_items([user(name), user("second")])
            for branch in names[:-1]:
                await session.create_branch_from_turn(2, branch)
                await session.add_items([user(branch)])
                await session.switch_to_branch("main")
        for name in names:
            session = OpenAIAgentsSession(name, store)
            assert contents(await session.get_items()) == [name, "second"]
            for branch in names[:-1]:
                assert contents(await session.get_items(branch_id=branch)) == [name, branch]
        await OpenAIAgentsSession("alice", store).clear_session()
        found = [each.body["session"] for each in await list_sessions(store)]
        assert sorted(found) == sorted(names[1:])
        assert len(await OpenAIAgentsSession("alic", store).list_branches()) == len(names)

    use(backend, check)


@pytest.mark.parametrize("bad", ["a\0b", "x" * 901, "\ud800", 5, None])
def test_names_that_cannot_be_stored_are_refused(backend: Backend, bad: Any) -> None:
    async def check(store: AsyncStore) -> None:
        with pytest.raises(InvalidOption, match="option session_id: must be a string of up to 900"):
            OpenAIAgentsSession(bad, store)
        session = OpenAIAgentsSession("a", store)
        await session.add_items([user("a")])
        for call in (session.switch_to_branch, session.delete_branch):
            with pytest.raises(InvalidOption, match="branch_id"):
                await call(bad)
        if bad is not None:
            with pytest.raises(InvalidOption, match="branch_id"):
                await session.create_branch_from_turn(1, bad)
            with pytest.raises(InvalidOption, match="branch_id"):
                await session.get_items(branch_id=bad)
        assert len(await session.list_branches()) == 1

    use(backend, check)


def test_items_that_no_body_can_hold_are_stored_too(backend: Backend) -> None:
    values = ["a\0b", "\ud800", 2**70, math.inf, (1, 2), {1: "one"}, "\u2028\U0001f600"]

    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("a", store)
        for value in values:
            await session.add_items([user(value), answer("ok")])
            assert await session.get_items(2) == json.loads(json.dumps([user(value), answer("ok")]))
        assert len(await session.get_conversation_turns()) == len(values)
        assert await session.create_branch_from_turn(2) == "branch_from_turn_2"
        assert contents(await session.get_items()) == ["a\0b", "ok"]

    use(backend, check)


def test_an_item_that_is_not_json_is_refused(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("a", store)
        await session.add_items([user("a")])
        for bad in (object(), {1, 2}, b"bytes"):
            with pytest.raises(InvalidBody, match="item.content"):
                await session.add_items([user("b"), user(bad)])
        assert await session.get_items() == [user("a")]

    use(backend, check)


def test_runs_of_agents_go_on_where_they_ended(shared_backend: Backend) -> None:
    async def run(store: AsyncStore, said: str, replied: str) -> Any:
        model = ScriptedModel(steps=[[assistant_message(replied)]])
        session = OpenAIAgentsSession("alice", store)
        await Runner.run(Agent(name="a", model=model), said, session=session)
        assert model.last_call is not None
        return model.last_call.input

    async def first(store: AsyncStore) -> None:
        assert contents(await run(store, "I am Ada.", "Hello Ada!")) == ["I am Ada."]

    async def second(store: AsyncStore) -> None:
        seen = await run(store, "Who am I?", "Ada.")
        assert [each["role"] for each in seen] == ["user", "assistant", "user"]
        assert len(await OpenAIAgentsSession("alice", store).get_items()) == 4

    use(shared_backend, first)
    use(shared_backend, second)


@dataclass
class Tenant:
    name: str


class TenantSession(OpenAIAgentsSession):
    """A session for each tenant."""

    def session_of(self, wrapper: RunContextWrapper[Tenant] | None) -> str:
        return f"{wrapper.context.name}/{self.session_id}" if wrapper else self.session_id


def test_a_subclass_chooses_by_the_context_of_the_run(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session = TenantSession("chat", store)
        for tenant in ("a", "b", "a"):
            agent: Agent[Tenant] = Agent(
                name="a", model=ScriptedModel(steps=[[assistant_message("yes")]])
            )
            await Runner.run(agent, f"of {tenant}", session=session, context=Tenant(tenant))
        assert len(await OpenAIAgentsSession("a/chat", store).get_items()) == 4
        assert len(await OpenAIAgentsSession("b/chat", store).get_items()) == 2
        assert await session.get_items() == []
        await session.clear_session(wrapper=RunContextWrapper(Tenant("a")))
        found = [each.body["session"] for each in await list_sessions(store)]
        assert found == ["b/chat"]

    use(backend, check)


# -- several objects, tasks and processes ----------------------------------------------------


def test_objects_that_share_a_session_append_in_order(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        one, two = (OpenAIAgentsSession("a", store) for _ in range(2))
        for n in range(4):
            await one.add_items([user(3 * n)])
            await two.add_items([user(3 * n + 1), user(3 * n + 2)])
        assert contents(await one.get_items()) == list(range(12))
        assert await two.pop_item() == user(11)
        await one.add_items([user("x")])
        assert contents(await two.get_items(2)) == [10, "x"]
        await one.clear_session()
        await two.add_items([user("y")])
        await one.add_items([user("z")])
        await two.add_items([user("!")])
        assert contents(await one.get_items()) == ["y", "z", "!"]

    use(backend, check)


@pytest.mark.each_backend
def test_a_header_is_not_taken_for_a_later_one_of_the_same_version(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        stale, other = (OpenAIAgentsSession("a", store) for _ in range(2))
        for n in range(3):
            await stale.add_items([user(n)])
        before = await store["agent_sessions"].document("1:a/")
        assert before is not None
        await other.clear_session()
        for n in range(3):
            await other.add_items([user(n)])
        after = await store["agent_sessions"].document("1:a/")
        assert after is not None
        assert after.version == before.version
        await stale.add_items([user(3)])
        await other.add_items([user(4)])
        assert contents(await stale.get_items()) == [0, 1, 2, 3, 4]

    use(backend, check)


@pytest.mark.each_backend
def test_the_ordinary_way_of_an_append_stores_the_same(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def conflict(*_: Any) -> None:
        raise VersionConflict("agent_sessions", "1:b/", 1, 2)

    async def check(store: AsyncStore) -> None:
        stored = []
        for name in ("a", "b"):
            session = OpenAIAgentsSession(name, store)
            if name == "b":
                monkeypatch.setattr(session, "_append_to", conflict)
            await talk(session, "x", "y")
            await session.create_branch_from_turn(2, "other")
            await session.add_items([user("z")])
            within = {"$id": {"$gte": f"1:{name}/", "$lt": f"1:{name}0"}}
            found = await store["agent_sessions"].find(within, sort="$id")
            first = found[0].body.pop("last") - 5
            numbers = [each.id.rpartition("/")[::2] for each in found[1:]]
            ids = [(at.replace(name, "", 1), int(number) - first) for at, number in numbers]
            stored.append((ids, [each.body | {"session": ""} for each in found]))
        assert stored[0] == stored[1]

    use(backend, check)


APPENDERS = """
import asyncio, json, os, sys
from collections_store import AsyncStore
from collections_store.integrations.openai_agents import OpenAIAgentsSession
import agents.memory

async def main(number, url, options, tasks, times, report):
    async with AsyncStore(url, **options) as store:
        async def task(task):
            session = OpenAIAgentsSession("shared", store)
            for n in range(times):
                content = [number, task, n]
                await session.add_items([{"role": "user", "content": content}, {"type": "answer", "content": content}])
                with open(report, "a") as file:
                    file.write(json.dumps(content) + "\\n")
        await asyncio.gather(*map(task, range(tasks)))

for line in sys.stdin:
    arguments = json.loads(line)
    if isinstance(arguments, int):
        print(os.waitpid(arguments, 0)[1], flush=True)
    elif (pid := os.fork()):
        print(pid, flush=True)
    else:
        try:
            asyncio.run(main(*arguments))
            os._exit(0)
        finally:
            os._exit(1)
"""
"""Forks processes that append: to import the SDK takes seconds."""


class Appenders:
    """Processes that append to the session "shared"."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", APPENDERS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _call(self, arguments: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(arguments)}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, backend: Backend, number: int, tasks: int, times: int, report: Path) -> int:
        """Start a process, and return its id."""
        return self._call([number, backend.url, backend.options, tasks, times, str(report)])

    def wait(self, process: int) -> int:
        """Return the exit status of a process."""
        return self._call(process)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def appenders() -> Iterator[Appenders]:
    appenders = Appenders()
    yield appenders
    appenders.close()


def check_shared(backend: Backend) -> list[Any]:
    """Check that calls are next to each other, and those of each task in order; return them."""
    with Store(backend.url, **backend.options) as store:
        within = {"$id": {"$gte": "6:shared/4:main/", "$lt": "6:shared/4:main0"}}
        items = [each.body["item"] for each in store["agent_sessions"].find(within, sort="$id")]
    assert contents(items[::2]) == contents(items[1::2])
    calls = contents(items[::2])
    for number, task, _ in calls:
        own = [n for *at, n in calls if at == [number, task]]
        assert own == list(range(len(own)))
    return calls


@needs_fork
def test_processes_that_append_to_one_session_lose_and_reorder_nothing(
    shared_backend: Backend, appenders: Appenders, tmp_path: Path
) -> None:
    count, tasks, times = (8, 16, 10) if ALL_TESTS else (4, 16, 2)
    report = tmp_path / "report"
    processes = [appenders.start(shared_backend, n, tasks, times, report) for n in range(count)]
    assert [appenders.wait(process) for process in processes] == [0] * count
    assert len(check_shared(shared_backend)) == count * tasks * times


@needs_fork
def test_a_process_that_is_killed_leaves_whole_calls(
    shared_backend: Backend, appenders: Appenders, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    report.touch()
    process = appenders.start(shared_backend, 0, 2, 10_000, report)
    for _ in range(6000):
        if len(report.read_text().splitlines()) >= 20:
            break
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    assert appenders.wait(process) == signal.SIGKILL
    calls = check_shared(shared_backend)
    reported = map(json.loads, report.read_text().splitlines())
    assert all(call in calls for call in reported)

    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("shared", store)
        await session.add_items([user("x"), user("x")])
        assert contents(await session.get_items(3)) == [calls[-1], "x", "x"]

    use(shared_backend, check)


def test_a_header_whose_items_were_not_written_is_no_session(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        await OpenAIAgentsSession("b", store).add_items([user("b")])
        await store["agent_sessions"].increment("1:a/", "last", 2, initial=7)  # then it was killed
        assert [each.body["session"] for each in await list_sessions(store)] == ["b"]
        session = OpenAIAgentsSession("a", store)
        assert [each["branch_id"] for each in await session.list_branches()] == ["main"]
        await session.add_items([user("a")])
        assert [each.body["session"] for each in await list_sessions(store)] == ["a", "b"]

    use(backend, check)


# -- branches --------------------------------------------------------------------------------


async def talk(session: OpenAIAgentsSession, *names: str) -> None:
    for name in names:
        await session.add_items([user(name), answer(name.upper())])


def test_a_branch_has_the_items_before_a_turn(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("alice", store)
        await talk(session, "a", "b", "c")
        assert session.current_branch == "main"
        assert await session.create_branch_from_turn(3, "other") == "other"
        assert session.current_branch == "other"
        await talk(session, "d")
        assert contents(await session.get_items()) == ["a", "A", "b", "B", "d", "D"]
        assert contents(await session.get_items(2, "main")) == ["c", "C"]
        assert await session.create_branch_from_turn(1) == "branch_from_turn_1"
        assert await session.get_items() == []
        await session.switch_to_branch("main")
        assert await session.create_branch_from_turn(1) == "branch_from_turn_1_2"
        await session.switch_to_branch("main")
        assert await session.pop_item() == answer("C")
        assert len(await session.get_items(branch_id="other")) == 6
        listed = [tuple(each.values()) for each in await session.list_branches()]
        assert listed == [
            ("main", 5, 3, True),
            ("other", 6, 3, False),
            ("branch_from_turn_1", 0, 0, False),
            ("branch_from_turn_1_2", 0, 0, False),
        ]
        turns = await session.get_conversation_turns("other")
        assert [(each["turn"], each["content"]) for each in turns] == [(1, "a"), (2, "b"), (3, "d")]

    use(backend, check)


def test_a_branch_is_deleted_alone(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session, stale = (OpenAIAgentsSession("alice", store) for _ in range(2))
        await talk(session, "a", "b")
        await session.create_branch_from_turn(2, "other")
        await stale.switch_to_branch("other")
        with pytest.raises(InvalidOption, match="is the current branch.*force=True"):
            await session.delete_branch("other")
        with pytest.raises(InvalidOption, match="must not be 'main'"):
            await session.delete_branch("main", force=True)
        await session.delete_branch("other", force=True)
        assert session.current_branch == "main"
        assert contents(await session.get_items()) == ["a", "A", "b", "B"]
        assert await stale.get_items() == []
        await stale.add_items([user("not lost")])
        assert contents(await session.get_items(branch_id="other")) == ["not lost"]
        await stale.switch_to_branch("main")
        assert len(await stale.get_items()) == 4

    use(backend, check)


def test_what_is_not_there_is_refused(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("alice", store)
        with pytest.raises(InvalidOption, match="must be one of the 0 turns of 'main', got 1"):
            await session.create_branch_from_turn(1)
        await talk(session, "a")
        for turn in (0, 2, -1):
            with pytest.raises(InvalidOption, match=f"1 turns of 'main', got {turn}"):
                await session.create_branch_from_turn(turn)
        with pytest.raises(InvalidOption, match="branch_name: .* has a branch 'main'"):
            await session.create_branch_from_turn(1, "main")
        for call in (session.switch_to_branch, session.delete_branch):
            with pytest.raises(InvalidOption, match="has no branch 'other'"):
                await call("other")
        assert [each["branch_id"] for each in await session.list_branches()] == ["main"]

    use(backend, check)


def test_an_object_whose_session_was_cleared_goes_on_in_its_branch(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session, other = (OpenAIAgentsSession("alice", store) for _ in range(2))
        await talk(session, "a")
        await session.create_branch_from_turn(1, "other")
        await other.clear_session()
        await talk(session, "b")
        assert await other.get_items() == []
        assert contents(await other.get_items(branch_id="other")) == ["b", "B"]
        names = [each["branch_id"] for each in await other.list_branches()]
        assert names == ["main", "other"]
        await talk(other, "c")
        assert contents(await other.get_items()) == ["c", "C"]

    use(backend, check)


def test_branches_created_at_once_have_different_names(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        await talk(OpenAIAgentsSession("alice", store), "a", "b")
        objects = [OpenAIAgentsSession("alice", store) for _ in range(5)]
        names = await asyncio.gather(*(each.create_branch_from_turn(2) for each in objects))
        assert len(set(names)) == 5
        listed = await objects[0].list_branches()
        assert [each["message_count"] for each in listed] == [4, 2, 2, 2, 2, 2]

    use(backend, check)


# -- usage -----------------------------------------------------------------------------------


def test_usage_is_that_of_the_last_turn_of_the_branch(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        session = OpenAIAgentsSession("alice", store)

        async def run(said: str, tokens: int) -> None:
            usage = Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
            model = ScriptedModel(steps=[[assistant_message("yes")]])
            result = await Runner.run(Agent(name="a", model=model), said, session=session)
            result.context_wrapper.usage = usage
            await session.store_run_usage(result)

        assert await session.get_session_usage() is None
        assert await session.get_turn_usage() == []
        for said, tokens in (("a", 10), ("b", 20), ("c", 30)):
            await run(said, tokens)
        assert await session.get_turn_usage(4) == {}
        second = await session.get_turn_usage(2)
        assert isinstance(second, dict)
        assert (second["input_tokens"], second["total_tokens"]) == (20, 21)
        assert second["input_tokens_details"]["cached_tokens"] == 0
        await session.create_branch_from_turn(3, "other")
        assert await session.get_turn_usage() == []
        await run("d", 7)
        turns = await session.get_turn_usage()
        assert isinstance(turns, list)
        [only] = turns
        assert (only["user_turn_number"], only["input_tokens"]) == (3, 7)
        sums = {"requests": 4, "input_tokens": 67, "output_tokens": 4, "total_tokens": 71}
        assert await session.get_session_usage() == {**sums, "total_turns": 4}
        await session.switch_to_branch("main")
        for _ in range(4):
            await session.pop_item()
        assert [each["input_tokens"] for each in await session.get_turn_usage()] == [10]  # type: ignore[index]
        found = await session.get_session_usage("main")
        assert found is not None
        assert found["total_turns"] == 1

    use(backend, check)


def test_usage_without_a_turn_is_not_stored(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        model = ScriptedModel(steps=[[assistant_message("yes")]])
        result = await Runner.run(Agent(name="a", model=model), "hello")
        session = OpenAIAgentsSession("alice", store)
        await session.store_run_usage(result)
        await session.add_items([answer("no turn")])
        await session.store_run_usage(result)
        assert await session.get_session_usage() is None

    use(backend, check)


# -- all sessions ----------------------------------------------------------------------------


def test_sessions_are_listed_and_idle_ones_deleted(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        for name in ("a", "b", "c", "d"):
            await talk(OpenAIAgentsSession(name, store), "x")
        await talk(OpenAIAgentsSession("a", store), "y")
        page = await list_sessions(store, limit=3)
        assert [each.body["session"] for each in page] == ["a", "d", "c"]
        rest = await list_sessions(store, limit=3, after=page.cursor)
        assert [(each.body["session"], each.body["branches"]) for each in rest] == [("b", ["main"])]
        assert await delete_idle_sessions(store, 3600) == 0
        for wrong in (-1, math.nan, "1"):
            with pytest.raises(InvalidOption, match="seconds: must be a number of 0 or more"):
                await delete_idle_sessions(store, wrong)  # type: ignore[arg-type]
        await asyncio.sleep(0.5)
        await talk(OpenAIAgentsSession("c", store), "y")
        assert await delete_idle_sessions(store, 0.4) == 3
        assert [each.body["session"] for each in await list_sessions(store)] == ["c"]
        assert len(await OpenAIAgentsSession("c", store).get_items()) == 4
        assert await OpenAIAgentsSession("a", store).get_items() == []
        assert await store["agent_sessions"].count() == 5

    use(backend, check)


def test_calls_use_indexes(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        for name in range(20):
            await talk(OpenAIAgentsSession(f"{name}", store), "x", "y")
        documents = store["agent_sessions"]
        branch = {"$id": {"$gte": "1:a/4:main/", "$lt": "1:a/4:main0"}}
        for filter in (branch, branch | {"user": True}):
            for direction in (1, -1):
                plan = await documents.explain(filter, sort=[("$id", direction)], limit=1)
                assert not plan.scans, plan
        if backend.name != "postgresql":  # which reads a small table as a whole
            newest = [("$updated_at", -1)]
            listed = await documents.explain({"branches": {"$exists": True}}, sort=newest)
            assert listed.indexes == ("recent_sessions",)

    use(backend, check)


def test_a_given_store_stays_open_and_an_own_one_is_closed(backend: Backend) -> None:
    async def check(store: AsyncStore) -> None:
        async with OpenAIAgentsSession("a", store, collection="chats") as session:
            await talk(session, "x")
        assert await store["chats"].count() == 3
        assert await OpenAIAgentsSession("a", store).get_items() == []
        with pytest.raises(InvalidOption, match="durability"):
            OpenAIAgentsSession("a", store, durability="full")
        async with OpenAIAgentsSession("a", "sqlite://", busy_timeout=1) as own:
            await talk(own, "x")
        with pytest.raises(StoreClosed):
            await own.get_items()

    use(backend, check)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agents.memory.session_settings", None)
    with pytest.raises(MissingExtra, match=r"pip install 'collections-store\[openai-agents\]'"):
        OpenAIAgentsSession("a", "sqlite://")


# -- what users of the SDK's sessions type -------------------------------------------------------------


def test_it_opens_as_the_sdks_sessions_do(tmp_path: Path) -> None:
    theirs = list(inspect.signature(SQLiteSession).parameters.values())
    ours = list(inspect.signature(OpenAIAgentsSession).parameters.values())
    assert [each.name for each in ours[:1]] == [each.name for each in theirs[:1]] == ["session_id"]
    assert theirs[1].default == ours[1].default == ":memory:"
    url = f"sqlite+aiosqlite:///{tmp_path / 'chat.db'}"

    async def main() -> None:
        async with OpenAIAgentsSession("alice") as session:
            await session.add_items([user("Hello")])
            assert await session.get_items() == [user("Hello")]
        async with OpenAIAgentsSession.from_url(
            "alice", url=url, session_settings=SessionSettings(limit=1)
        ) as session:
            await session.add_items([user("Hello"), answer("Hi")])
            assert len(await session.get_items()) == 1
        async with OpenAIAgentsSession("alice", str(tmp_path / "chat.db")) as session:
            assert len(await session.get_items()) == 2

    asyncio.run(main())
    wanted = inspect.signature(SQLAlchemySession.from_url).parameters
    has = inspect.signature(OpenAIAgentsSession.from_url).parameters
    assert [name for name in has if name != "options"] == ["session_id", "url"]
    assert {"session_id", "url"} <= set(wanted)
