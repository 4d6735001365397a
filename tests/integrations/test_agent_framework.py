"""Agent Framework's histories, checkpoints and sessions on our store, beside the framework's own, and in its agents and workflows."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Never

import pytest
from backends import Backend
from selection import missing

from collections_store import AsyncStore, InvalidBody, InvalidOption, Store, StoreClosed

if _reason := missing("agent_framework"):
    pytest.skip(_reason, allow_module_level=True)

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Executor,
    FileCheckpointStorage,
    InMemoryHistoryProvider,
    Message,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    handler,
    register_checkpoint_type,
)

from collections_store.integrations.agent_framework import (
    AgentCheckpointStorage,
    AgentHistoryProvider,
    AgentSessionStore,
)

NAMES = ["a", "a/b", "a%2Fb", "a%", "A", "ä!_*?'\"", "a/", "/", "a0", "a" * 900, "line\nbreak"]
"""Names of which each must have what is its own."""
WRITER = """
import asyncio, json, multiprocessing, sys
from agent_framework import AgentSession, Message, WorkflowCheckpoint
from collections_store.integrations.agent_framework import AgentCheckpointStorage, AgentHistoryProvider, AgentSessionStore

async def write(number, url, options):
    async with (
        AgentHistoryProvider(url, **options) as history,
        AgentCheckpointStorage(url, **options) as storage,
        AgentSessionStore(url, **options) as sessions,
    ):
        async def task(task):
            for n in range(2):
                name = f"{number}-{task}-{n}"
                asked = Message("user", [name], message_id=f"{name}?")
                answered = Message("assistant", [name], message_id=name)
                for session in ("shared", f"{number}-{task}"):
                    await history.save_messages(session, [asked, answered])
                    await storage.save(WorkflowCheckpoint(session, "hash", state={"name": name}))
                await sessions.set(f"{number}-{task}", AgentSession(session_id=name))
        await asyncio.gather(*map(task, range(16)))

def run(number):
    asyncio.run(write(number, sys.argv[1], json.loads(sys.argv[2])))

fork = multiprocessing.get_context("fork")
processes = [fork.Process(target=run, args=(number,)) for number in range(4)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(any(process.exitcode for process in processes))
"""
WORKFLOW = """
import asyncio, json, os, signal, sys
from agent_framework import Executor, WorkflowBuilder, WorkflowContext, handler
from typing import Never
from collections_store.integrations.agent_framework import AgentCheckpointStorage

class Step(Executor):
    @handler
    async def run(self, done: list[str], context: WorkflowContext[list[str], list[str]]) -> None:
        if self.id == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        print(self.id, flush=True)
        done = [*done, self.id]
        await (context.yield_output(done) if self.id == "d" else context.send_message(done))

async def main():
    async with AgentCheckpointStorage(sys.argv[2], **json.loads(sys.argv[3])) as storage:
        a, b, c, d = (Step(id=name) for name in "abcd")
        builder = WorkflowBuilder(start_executor=a, name="steps", checkpoint_storage=storage)
        workflow = builder.add_edge(a, b).add_edge(b, c).add_edge(c, d).build()
        latest = await storage.get_latest(workflow_name="steps")
        if latest is None:
            result = await workflow.run([])
        else:
            result = await workflow.run(checkpoint_id=latest.checkpoint_id)
        print(json.dumps(result.get_outputs()))

asyncio.run(main())
"""


def use(
    kind: Callable[..., Any],
    backend: Backend,
    function: Callable[[Any], Awaitable[Any]],
    **options: Any,
) -> Any:
    """Return the result of a function with a new object on the backend, on a new event loop."""

    async def main() -> Any:
        async with kind(backend.url, **backend.options, **options) as made:
            return await function(made)

    return asyncio.run(main())


def user(text: str, **options: Any) -> Message:
    return Message("user", [text], **options)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def scans(explanation: Any) -> bool:
    return bool(explanation.scans)


# -- histories -------------------------------------------------------------------------------


def test_messages_come_back_whole_and_in_order(backend: Backend) -> None:
    messages = [
        user("Ünïcode \U0001f600", author_name="Ada", additional_properties={"n": 2**53 + 1}),
        Message(
            "assistant",
            [
                {
                    "type": "function_call",
                    "call_id": "1",
                    "name": "f",
                    "arguments": {"b": 1, "a": [0.5]},
                }
            ],
        ),
        Message("tool", [{"type": "function_result", "call_id": "1", "result": "12"}]),
        Message("assistant", ["done"], message_id="m4"),
    ]

    async def save(history: AgentHistoryProvider) -> None:
        await history.save_messages("s", messages[:2], state={})
        await history.save_messages("s", [])
        await history.save_messages("s", messages[2:])

    async def read(history: AgentHistoryProvider) -> list[Message]:
        found: list[Message] = await history.get_messages("s", state={})
        return found

    async def both(history: AgentHistoryProvider) -> list[Message]:
        await save(history)
        return await read(history)

    found = use(AgentHistoryProvider, backend, both)
    assert [each.to_dict() for each in found] == [each.to_dict() for each in messages]


def test_what_repeats_the_end_is_stored_as_the_framework_stores_it(backend: Backend) -> None:
    """The framework's provider holds all messages, ours reads the last ones: both must store the same."""
    chosen = random.Random(7)

    def message() -> Message:
        text = chosen.choice("abc")
        return Message(
            chosen.choice(["user", "assistant"]), [text], message_id=chosen.choice([None, text])
        )

    async def check(history: AgentHistoryProvider) -> None:
        theirs = InMemoryHistoryProvider()
        for session in range(12):
            state: dict[str, Any] = {}
            for _ in range(6):
                stored = await theirs.get_messages(None, state=state)
                repeated = (
                    stored[chosen.randrange(len(stored) + 1) :] if chosen.random() < 0.7 else []
                )
                incoming = [*repeated, *(message() for _ in range(chosen.randrange(3)))]
                await theirs.save_messages(None, incoming, state=state)
                await history.save_messages(str(session), incoming)
                found = await history.get_messages(str(session))
                expected = await theirs.get_messages(None, state=state)
                assert [each.to_dict() for each in found] == [each.to_dict() for each in expected]

    use(AgentHistoryProvider, backend, check)


def test_sessions_and_sources_have_messages_of_their_own(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            sources = [AgentHistoryProvider(store, source_id=name) for name in ("x", "x/a", "y")]
            for source in sources:
                for name in NAMES:
                    await source.save_messages(name, [user(f"{source.source_id} {name}")])
            await sources[0].clear("a")
            for source in sources:
                expected = [name for name in NAMES if (source, name) != (sources[0], "a")]
                assert await source.list_sessions() == sorted(expected)
                for name in expected:
                    assert texts(await source.get_messages(name)) == [f"{source.source_id} {name}"]
            assert await sources[0].get_messages("a") == []
            await sources[0].save_messages("a", [user("again")])
            assert texts(await sources[0].get_messages("a")) == ["again"]

    asyncio.run(main())


@pytest.mark.parametrize("name", [None, "", 5, "a\0b", "\ud800", "a" * 2001], ids=repr)
def test_a_session_id_that_no_session_can_have_is_refused(backend: Backend, name: Any) -> None:
    async def check(history: AgentHistoryProvider) -> None:
        for call in (
            history.get_messages(name),
            history.save_messages(name, [user("x")]),
            history.clear(name),
        ):
            with pytest.raises((InvalidOption), match="session_id|cannot be a document's id"):
                await call
        assert await history.list_sessions() == []

    use(AgentHistoryProvider, backend, check)


def test_a_message_that_is_not_json_stores_none_of_the_others(backend: Backend) -> None:
    async def check(history: AgentHistoryProvider) -> None:
        for value in (float("nan"), 2**70, "\0", "\ud800"):
            bad = user("x", additional_properties={"value": value})
            with pytest.raises(InvalidBody, match="value"):
                await history.save_messages("s", [user("fine"), bad])
        assert await history.get_messages("s") == []

    use(AgentHistoryProvider, backend, check)


def test_messages_that_a_compaction_excluded_can_be_left_out(backend: Backend) -> None:
    async def check(history: AgentHistoryProvider) -> list[str]:
        await history.save_messages(
            "s", [user("old", additional_properties={"_excluded": True}), user("new")]
        )
        return texts(await history.get_messages("s"))

    assert use(AgentHistoryProvider, backend, check) == ["old", "new"]
    assert use(AgentHistoryProvider, backend, check, skip_excluded=True, source_id="other") == [
        "new"
    ]


def test_idle_sessions_are_deleted_as_a_whole(backend: Backend) -> None:
    async def check(history: AgentHistoryProvider) -> None:
        for name in ("a", "b"):
            await history.save_messages(name, [user("1"), user("2")])
        assert await history.delete_idle_sessions(3600) == 0
        await asyncio.sleep(0.2)
        await history.save_messages("b", [user("3")])
        assert await history.delete_idle_sessions(0.1) in {1, 2}  # 2 if the machine was slow
        assert "a" not in await history.list_sessions()
        remaining = await history.list_sessions()
        bads: list[Any] = [-1, float("nan"), float("inf"), "1", None]
        for bad in bads:
            with pytest.raises(InvalidOption, match="seconds: must be a number of 0 or more"):
                await history.delete_idle_sessions(bad)
        assert await history.list_sessions() == remaining

    use(AgentHistoryProvider, backend, check)


class Meanwhile(Message):
    """A message that calls functions when it is compared with those that were read."""

    waiting: ClassVar[list[Callable[[], None]]] = []
    is_written: ClassVar[bool] = False

    def to_dict(self, **options: Any) -> dict[str, Any]:
        Meanwhile.is_written = True
        return super().to_dict(**options) | {"type": "message"}

    def __getattribute__(self, name: str) -> Any:
        if name == "message_id" and Meanwhile.is_written:
            while Meanwhile.waiting:
                Meanwhile.waiting.pop()()
        return super().__getattribute__(name)


def test_a_session_that_is_deleted_during_a_save_has_all_messages_of_the_save(
    shared_backend: Backend,
) -> None:
    """The first two repeat what was stored, and would not be stored again."""

    def delete() -> None:
        with Store(shared_backend.url, **shared_backend.options) as store:
            store["agent_messages"].delete_many({})

    async def check(history: AgentHistoryProvider) -> None:
        turn = [user("1", message_id="1"), user("2", message_id="2")]
        await history.save_messages("a", turn)
        Meanwhile.waiting.append(delete)
        await history.save_messages("a", [*turn, Meanwhile("user", ["3"], message_id="3")])
        assert texts(await history.get_messages("a")) == ["1", "2", "3"]

    use(AgentHistoryProvider, shared_backend, check)


def test_reads_of_a_session_scan_nothing(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            history, storage = AgentHistoryProvider(store), AgentCheckpointStorage(store)
            await history.save_messages("a", [user("x")])
            await storage.save(WorkflowCheckpoint("w", "h"))
            within = {"$id": {"$gte": "collections_store/a/", "$lt": "collections_store/a0"}}
            assert not scans(
                await store["agent_messages"].explain(within, sort=[("$id", -1)], limit=3)
            )
            for order in (1, -1):
                by_time = [("workflow", order), ("at", order)]
                found = await store["agent_checkpoints"].explain(
                    {"workflow": {"$eq": "w"}}, sort=by_time
                )
                assert not scans(found), str(found)
                assert (found.order, found.indexes) == ("index", ("workflow_1_at_1",)), str(found)
                assert (
                    found.sorted_in_python is False if hasattr(found, "sorted_in_python") else True
                )

    asyncio.run(main())


def test_four_processes_of_sixteen_tasks_lose_and_reorder_nothing(shared_backend: Backend) -> None:
    arguments = [shared_backend.url, json.dumps(shared_backend.options)]
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRITER, *arguments], check=True, timeout=120
    )

    async def check(history: AgentHistoryProvider) -> None:
        storage, sessions = (
            AgentCheckpointStorage(history._store),
            AgentSessionStore(history._store),
        )
        shared = texts(await history.get_messages("shared"))
        assert len(shared) == 4 * 16 * 2 * 2
        assert shared[::2] == shared[1::2], "the messages of one call are together"
        saved = [
            each.state["name"] for each in await storage.list_checkpoints(workflow_name="shared")
        ]
        assert sorted(saved) == sorted(shared[::2])
        for number in range(4):
            for task in range(16):
                name = f"{number}-{task}"
                own = [f"{name}-{n}" for n in range(2)]
                assert texts(await history.get_messages(name)) == [own[0], own[0], own[1], own[1]]
                assert [text for text in shared[::2] if text in own] == own
                assert [text for text in saved if text in own] == own
                kept = await storage.list_checkpoints(workflow_name=name)
                assert [each.state["name"] for each in kept] == own
                session = await sessions.get(name)
                assert session is not None
                assert session.session_id == own[1]

    use(AgentHistoryProvider, shared_backend, check)


class Echo(BaseChatClient[Any]):
    """A model that answers with the number of messages that it sees, and the first one."""

    async def _inner_get_response(self, *, messages: Sequence[Message], **_: Any) -> ChatResponse:
        return ChatResponse(
            messages=[Message("assistant", [f"{len(messages)}: {messages[0].text}"])]
        )


def test_an_agent_goes_on_with_a_conversation_after_a_restart(shared_backend: Backend) -> None:
    async def ask(history: AgentHistoryProvider) -> str:
        audit = AgentHistoryProvider(history._store, source_id="audit", load_messages=False)
        agent = Agent(client=Echo(), name="echo", context_providers=[history, audit])
        answer = await agent.run("hello", session=AgentSession(session_id="ada"))
        assert await audit.list_sessions() == ["ada"]
        return answer.text

    assert use(AgentHistoryProvider, shared_backend, ask) == "1: hello"
    assert use(AgentHistoryProvider, shared_backend, ask) == "3: hello"


# -- checkpoints -----------------------------------------------------------------------------


@dataclass
class Order:
    """A type of an application."""

    number: int

    def __deepcopy__(self, memo: Any) -> Never:
        raise TypeError("cannot be copied")


@dataclass
class Unregistered:
    number: int


register_checkpoint_type(Order)


def checkpoint(name: str = "w", **options: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(name, "hash", **options)


def test_a_checkpoint_comes_back_as_from_the_files_of_the_framework(
    backend: Backend, tmp_path: Path
) -> None:
    state = {
        "z": 1, "a": {"nested": [1, 2.5, None, True]}, "order": Order(7), "when": datetime(2026, 11, 22, tzinfo=UTC),
        "set": {1, 2}, "bytes": b"\0\xff", "pair": (1, 2), "large": 2**70, "nul": "a\0b", "surrogate": "\ud800",
        "keys": {1: "one"}, "__pickled__": "a reserved name", "infinite": float("inf"),
    }  # fmt: skip
    saved = checkpoint(
        state=state, previous_checkpoint_id="before", iteration_count=3, metadata={"by": "test"}
    )

    async def check(storage: AgentCheckpointStorage) -> None:
        assert await storage.save(saved) == saved.checkpoint_id
        theirs = FileCheckpointStorage(tmp_path / "theirs")
        await theirs.save(saved)
        found, expected = (
            await storage.load(saved.checkpoint_id),
            await theirs.load(saved.checkpoint_id),
        )
        assert found == expected
        assert found == saved or found.state["keys"] == {"1": "one"}
        assert list(found.state) == list(state), "the order of keys"

    use(AgentCheckpointStorage, backend, check)


def test_checkpoints_that_are_returned_are_copies(backend: Backend) -> None:
    async def check(storage: AgentCheckpointStorage) -> None:
        saved = checkpoint(state={"nested": {"value": ["original"]}})
        id = await storage.save(saved)
        saved.state["nested"]["value"][0] = "changed"
        reads: list[Callable[[], Awaitable[Any]]] = [
            lambda: storage.load(id),
            lambda: storage.get_latest(workflow_name="w"),
            lambda: storage.list_checkpoints(workflow_name="w"),
        ]
        for read in (*reads, *reads):
            got = await read()
            found = got[0] if isinstance(got, list) else got
            assert found.state["nested"]["value"] == ["original"]
            found.state["nested"]["value"][0] = "changed"

    use(AgentCheckpointStorage, backend, check)


def test_the_latest_checkpoint_is_the_one_with_the_latest_time(backend: Backend) -> None:
    first = datetime(2026, 11, 22, 12, tzinfo=UTC)
    times = {
        "b": (first + timedelta(seconds=1)).isoformat(),
        "a": first.isoformat(),
        "d": (first + timedelta(seconds=2)).replace(tzinfo=None).isoformat(),
        "c": "2026-11-22T13:30:01.5+01:30",
        "e": (first + timedelta(seconds=2)).isoformat(),
    }

    async def check(storage: AgentCheckpointStorage) -> None:
        assert await storage.get_latest(workflow_name="w") is None
        for id, time in times.items():
            await storage.save(checkpoint(checkpoint_id=id, timestamp=time))
            await storage.save(checkpoint("other", timestamp="2999-01-01T00:00:00+00:00"))
        assert await storage.list_checkpoint_ids(workflow_name="w") == ["a", "b", "c", "d", "e"]
        listed = await storage.list_checkpoints(workflow_name="w")
        assert [each.checkpoint_id for each in listed] == ["a", "b", "c", "d", "e"]
        latest = await storage.get_latest(workflow_name="w")
        assert latest is not None
        assert latest.checkpoint_id == "e"
        assert latest.timestamp == times["e"]
        with pytest.raises(WorkflowCheckpointException, match="ISO 8601"):
            await storage.save(checkpoint(timestamp="yesterday"))

    use(AgentCheckpointStorage, backend, check)


def test_workflows_have_checkpoints_of_their_own(backend: Backend) -> None:
    async def check(storage: AgentCheckpointStorage) -> None:
        names = [*NAMES, "", "w" * 5000]
        ids = {name: await storage.save(checkpoint(name)) for name in names}
        for name in names:
            assert await storage.list_checkpoint_ids(workflow_name=name) == [ids[name]]
        assert await storage.delete(ids["a"]) is True
        assert await storage.delete(ids["a"]) is False
        assert await storage.get_latest(workflow_name="a") is None
        with pytest.raises(WorkflowCheckpointException, match="No checkpoint"):
            await storage.load(ids["a"])

    use(AgentCheckpointStorage, backend, check)


def test_saving_again_replaces_a_checkpoint(backend: Backend) -> None:
    async def check(storage: AgentCheckpointStorage) -> None:
        for number in (1, 2):
            await storage.save(checkpoint(checkpoint_id="one", state={"n": number}))
        [found] = await storage.list_checkpoints(workflow_name="w")
        assert found.state == {"n": 2}

    use(AgentCheckpointStorage, backend, check)


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "a" * 2001], ids=repr)
def test_ids_and_names_that_cannot_be_stored_raise_the_error_of_the_framework(
    backend: Backend, bad: str
) -> None:
    async def check(storage: AgentCheckpointStorage) -> None:
        with pytest.raises(WorkflowCheckpointException, match="id"):
            await storage.save(checkpoint(checkpoint_id=bad))
        with pytest.raises(WorkflowCheckpointException, match="id"):
            await storage.load(bad)
        if len(bad) < 100:
            with pytest.raises(WorkflowCheckpointException, match="NUL|surrogate"):
                await storage.save(checkpoint(bad))
        assert await storage.list_checkpoint_ids(workflow_name="w") == []

    use(AgentCheckpointStorage, backend, check)


def test_types_must_be_allowed_before_they_are_saved_and_read(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{Unregistered.__module__}:{Unregistered.__qualname__}"
    saved = checkpoint(state={"value": Unregistered(1)})

    async def refuse(storage: AgentCheckpointStorage) -> None:
        for value in (Unregistered(1), lambda: None):
            with pytest.raises(WorkflowCheckpointException):
                await storage.save(checkpoint(state={"value": value}))
        assert await storage.list_checkpoint_ids(workflow_name="w") == []

    async def save(storage: AgentCheckpointStorage) -> None:
        await storage.save(saved)
        assert (await storage.load(saved.checkpoint_id)).state == saved.state
        if backend.name != "sqlite-memory":
            strict = AgentCheckpointStorage(storage._store)
            for read in (strict.load(saved.checkpoint_id), strict.get_latest(workflow_name="w")):
                with pytest.raises(
                    WorkflowCheckpointException, match=f"{saved.checkpoint_id}.*{name}"
                ):
                    await read
            assert await strict.list_checkpoints(workflow_name="w") == []
            assert saved.checkpoint_id in caplog.text

    use(AgentCheckpointStorage, backend, refuse)
    use(AgentCheckpointStorage, backend, save, allowed_checkpoint_types=[name])


def test_a_string_is_no_list_of_types() -> None:
    with pytest.raises(
        InvalidOption, match='allowed_checkpoint_types: must be a list.*"module:Type"'
    ):
        AgentCheckpointStorage("sqlite://", allowed_checkpoint_types="app:Order")


def test_checkpoints_and_sessions_expire(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            storage = AgentCheckpointStorage(store, ttl=0.05)
            sessions = AgentSessionStore(store, ttl=timedelta(milliseconds=50))
            await storage.save(checkpoint())
            await sessions.set("s", AgentSession())
            await asyncio.sleep(0.1)
            assert await storage.list_checkpoint_ids(workflow_name="w") == []
            assert await sessions.get("s") is None

    asyncio.run(main())


def test_a_killed_workflow_resumes_from_its_last_checkpoint(shared_backend: Backend) -> None:
    arguments = [shared_backend.url, json.dumps(shared_backend.options)]
    runs = [
        subprocess.run(
            [sys.executable, "-c", WORKFLOW, at, *arguments],
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=100,
        )
        for at in ("c", "none")
    ]
    codes = [done.returncode for done in runs]
    assert codes == [-signal.SIGKILL, 0], [done.stderr for done in runs]
    printed = [done.stdout.split() for done in runs]
    assert printed[0] == ["a", "b"]
    assert printed[1][:2] == ["c", "d"]
    assert json.loads(" ".join(printed[1][2:])) == [["a", "b", "c", "d"]]


def test_a_workflow_waits_over_a_restart_for_an_answer(shared_backend: Backend) -> None:
    from agent_framework import response_handler

    class Ask(Executor):
        @handler
        async def ask(self, question: str, context: WorkflowContext[Never, str]) -> None:
            await context.request_info(question, str)

        @response_handler
        async def answer(
            self, question: str, reply: str, context: WorkflowContext[Never, str]
        ) -> None:
            await context.yield_output(f"{question} {reply}")

    def workflow(storage: AgentCheckpointStorage) -> Any:
        return WorkflowBuilder(
            start_executor=Ask(id="ask"), name="ask", checkpoint_storage=storage
        ).build()

    async def begin(storage: AgentCheckpointStorage) -> str:
        [event] = (await workflow(storage).run("really?")).get_request_info_events()
        id: str = event.request_id
        return id

    request = use(AgentCheckpointStorage, shared_backend, begin)

    async def finish(storage: AgentCheckpointStorage) -> Any:
        latest = await storage.get_latest(workflow_name="ask")
        assert latest is not None
        resumed = workflow(storage)
        result = await resumed.run(responses={request: "yes"}, checkpoint_id=latest.checkpoint_id)
        return result.get_outputs()

    assert use(AgentCheckpointStorage, shared_backend, finish) == ["really? yes"]


# -- sessions --------------------------------------------------------------------------------


def test_sessions_come_back_with_their_state(shared_backend: Backend) -> None:
    async def save(sessions: AgentSessionStore) -> None:
        for name in NAMES:
            session = AgentSession(session_id=name, service_session_id="service")
            session.state.update(name=name, messages=[user("hello")])
            await sessions.set(name, session)

    async def read(sessions: AgentSessionStore) -> None:
        for name in NAMES:
            found, again = await sessions.get(name), await sessions.get(name)
            assert found is not None
            assert found is not again
            assert (found.session_id, found.service_session_id) == (name, "service")
            assert found.state["name"] == name
            assert [each.to_dict() for each in found.state["messages"]] == [user("hello").to_dict()]
        await sessions.delete("a")
        await sessions.delete("a")
        assert await sessions.get("a") is None
        invalid: list[Any] = ["", 5]
        for bad in invalid:
            for call in (
                sessions.get(bad),
                sessions.delete(bad),
                sessions.set(bad, AgentSession()),
            ):
                with pytest.raises(ValueError, match="non-empty string"):
                    await call
        bad_session = AgentSession()
        bad_session.state["n"] = float("nan")
        with pytest.raises(InvalidBody, match="nan"):
            await sessions.set("a", bad_session)
        assert await sessions.get("a") is None

    use(AgentSessionStore, shared_backend, save)
    use(AgentSessionStore, shared_backend, read)


def test_a_given_store_stays_open(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            for kind in (AgentHistoryProvider, AgentCheckpointStorage, AgentSessionStore):
                async with kind(store, collection="mine"):
                    pass
                with pytest.raises(InvalidOption, match="durability"):
                    kind(store, durability="full")
            assert await store.collections() == []
        own = AgentSessionStore("sqlite://")
        await own.close()
        with pytest.raises(StoreClosed):
            await own.get("a")

    asyncio.run(main())
