"""LangChain's message histories on our stores, also within `RunnableWithMessageHistory`."""

import asyncio
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from selection import missing

from collections_store import (
    AsyncStore,
    InvalidBody,
    InvalidFilter,
    InvalidOption,
    Store,
    StoreClosed,
)

if _reason := missing("langchain_core"):
    pytest.skip(_reason, allow_module_level=True)

from langchain_core._api import LangChainDeprecationWarning
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableFieldSpec, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from collections_store.integrations.langchain import LangChainHistories, LangChainHistory

PROGRAM = Path(__file__).with_name("langchain_writers.py")
SESSIONS = ("", "a", "a/b", "ä'\"%_*?$", "$gt", "s" * 3000)
MESSAGES = [
    SystemMessage("Be short."),
    HumanMessage("Hello.", id="1", name="ada"),
    HumanMessage([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]),
    AIMessage(
        "",
        tool_calls=[{"name": "f", "args": {"a": 1}, "id": "1"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m"},
        additional_kwargs={"k": None},
    ),
    ToolMessage("12", tool_call_id="1", status="error", artifact={"rows": [1]}),
    ChatMessage(content="x", role="critic"),
    FunctionMessage(content="x", name="f"),
    AIMessageChunk(content="x"),
    RemoveMessage(id="1"),
]


class Calls:
    """Calls the sync methods of a history, or, in a new event loop each, the async ones."""

    def __init__(self, way: str, history: LangChainHistory) -> None:
        self._way, self._history = way, history

    @property
    def messages(self) -> list[BaseMessage]:
        if self._way == "sync":
            return self._history.messages
        return asyncio.run(self._history.aget_messages())

    def add(self, *messages: BaseMessage) -> None:
        if self._way == "sync":
            self._history.add_messages(messages)
        else:
            asyncio.run(self._history.aadd_messages(messages))

    def clear(self) -> None:
        if self._way == "sync":
            self._history.clear()
        else:
            asyncio.run(self._history.aclear())


@pytest.fixture(params=["sync", "async"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def histories(backend: Backend) -> Iterator[LangChainHistories]:
    with LangChainHistories(backend.url, **backend.options) as histories:
        yield histories


def texts(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]


def test_every_kind_of_message_is_restored(histories: LangChainHistories, way: str) -> None:
    history = Calls(way, histories.history("ada"))
    assert history.messages == []
    history.add(*MESSAGES[:2])
    history.add()
    history.add(*MESSAGES[2:])
    found = history.messages
    assert found == MESSAGES
    assert list(map(type, found)) == list(map(type, MESSAGES))


def test_sessions_are_separate(histories: LangChainHistories, way: str) -> None:
    for session in SESSIONS:
        Calls(way, histories.history(session)).add(HumanMessage(session), AIMessage("yes"))
    found = [Calls(way, histories.history(session)).messages for session in SESSIONS]
    assert list(map(texts, found)) == [[session, "yes"] for session in SESSIONS]
    assert histories.sessions() == asyncio.run(histories.asessions()) == sorted(SESSIONS)
    Calls(way, histories.history("a")).clear()
    Calls(way, histories.history("none")).clear()
    assert histories.sessions() == sorted(set(SESSIONS) - {"a"})
    assert Calls(way, histories.history("a")).messages == []


def test_the_methods_that_langchain_provides(histories: LangChainHistories) -> None:
    history = histories.history("ada")
    assert isinstance(history, BaseChatMessageHistory)
    history.add_user_message("Hello.")
    history.add_ai_message(AIMessage("Hello Ada!"))
    history.add_message(SystemMessage("Be short."))
    assert str(history) == "Human: Hello.\nAI: Hello Ada!\nSystem: Be short."


class Strange(BaseMessage):
    type: str = "strange"


class Incomplete(BaseMessage):
    type: str = "tool"


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


def test_what_cannot_be_stored_is_refused(histories: LangChainHistories, way: str) -> None:
    history = Calls(way, histories.history("ada"))
    history.add(ToolMessage("kept", tool_call_id="1", artifact=(1, 2)))
    for bad, problem in (
        (HumanMessage("a\0b"), "at 'message.data.content': holds a NUL character"),
        (HumanMessage("\ud800"), "at 'message.data.content': a lone surrogate"),
        (ToolMessage("x", tool_call_id="1", artifact={1}), "the ToolMessage is not JSON: Object of type set"),
        (ToolMessage("x", tool_call_id="1", artifact=DEEP), "the ToolMessage is not JSON: maximum recursion"),
        (Incomplete(content="x"), "LangChain cannot read the Incomplete back"),
        (Strange(content="x"), "LangChain cannot read the Strange back"),
    ):  # fmt: skip
        with pytest.raises(InvalidBody, match=problem):
            history.add(HumanMessage("new"), bad)
    [kept] = history.messages
    assert isinstance(kept, ToolMessage)
    assert (kept.content, kept.artifact) == ("kept", [1, 2])


def test_a_session_is_a_string(histories: LangChainHistories, way: str) -> None:
    for session in (None, 5, {"$gt": ""}):
        with pytest.raises(InvalidOption, match="option session_id: must be a string, got "):
            histories.history(session)  # type: ignore[arg-type]
    for bad in ("a\0b", "\ud800"):
        with pytest.raises(InvalidBody, match="at 'session'"):
            Calls(way, histories.history(bad)).add(HumanMessage("x"))
        with pytest.raises(InvalidFilter, match="at 'session'"):
            _ = Calls(way, histories.history(bad)).messages


def test_no_method_scans_the_messages(backend: Backend) -> None:
    store = AsyncStore(backend.url, **backend.options)
    LangChainHistories(store).history("ada").add_messages(MESSAGES)
    messages = store.get_sync_collection("langchain_messages")
    assert not messages.explain("session", "ada").scans
    assert not messages.explain({"session": {"$gt": "a"}}, sort="session", limit=1).scans
    assert messages.count({"session": "ada", "message.type": "human"}) == 2
    asyncio.run(store.aclose())


def test_a_given_store_stays_open(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            async with LangChainHistories(store) as histories:
                await histories.history("ada").aadd_messages(MESSAGES)
            with LangChainHistories(store, collection="others") as others:  # in an event loop, too
                assert others.sessions() == []
            assert len(await histories.history("ada").aget_messages()) == len(MESSAGES)
            with pytest.raises(InvalidOption, match="durability"):
                LangChainHistories(store, durability="full")

    asyncio.run(main())
    with (
        pytest.raises(InvalidOption, match="must be an AsyncStore or a URL"),
        Store("sqlite://") as store,
    ):
        LangChainHistories(store)  # type: ignore[arg-type]
    with LangChainHistories("sqlite://") as histories:
        history = histories.history("ada")
    with pytest.raises(StoreClosed):
        history.add_user_message("x")


# -- RunnableWithMessageHistory --------------------------------------------------------------


def answered(messages: Any) -> AIMessage:
    """Return the answer of a model that repeats the questions."""
    questions = [message.content for message in messages.to_messages() if message.type == "human"]
    return AIMessage(" ".join(map(str, questions)))


def chain(histories: LangChainHistories, **options: Any) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Repeat."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    wanted = {"input_messages_key": "question", "history_messages_key": "history", **options}
    factory = wanted.pop("factory", histories.history)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangChainDeprecationWarning)
        return RunnableWithMessageHistory(prompt | RunnableLambda(answered), factory, **wanted)


def test_a_chain_remembers_over_a_restart(shared_backend: Backend, way: str) -> None:
    def ask(question: str, session: str) -> Any:
        config = {"configurable": {"session_id": session}}
        with LangChainHistories(shared_backend.url, **shared_backend.options) as histories:
            asked = {"question": question}
            if way == "sync":
                return chain(histories).invoke(asked, config).content
            return asyncio.run(chain(histories).ainvoke(asked, config)).content

    assert [ask("one", "ada"), ask("other", "bob")] == ["one", "other"]
    assert [ask("two", "ada"), ask("three", "ada")] == ["one two", "one two three"]
    assert ask("more", "bob") == "other more"
    with LangChainHistories(shared_backend.url, **shared_backend.options) as histories:
        found = texts(histories.history("ada").messages)
    assert found == ["one", "one", "two", "one two", "three", "one two three"]


def test_a_history_of_two_keys(histories: LangChainHistories) -> None:
    fields = [
        ConfigurableFieldSpec(id="user", annotation=str),
        ConfigurableFieldSpec(id="chat", annotation=str),
    ]

    def of(user: str, chat: str) -> LangChainHistory:
        return histories.history(json.dumps([user, chat]))

    talk = chain(histories, factory=of, history_factory_config=fields)
    for user, chat in (("a", "b/c"), ("a/b", "c")):
        config = {"configurable": {"user": user, "chat": chat}}
        assert talk.invoke({"question": user}, config).content == user


# -- processes -------------------------------------------------------------------------------


def test_processes_lose_nothing_and_a_killed_one_leaves_whole_calls(
    shared_backend: Backend,
) -> None:
    url, options = shared_backend.url, shared_backend.options
    command = [sys.executable, str(PROGRAM), url, json.dumps(options)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    with LangChainHistories(url, **options) as histories:
        found = texts(histories.history("killed").messages)
        calls = [found[at : at + 2] for at in range(0, len(found), 2)]
        assert len(calls) >= int(done.stdout)
        assert calls == [[f"question {n}", f"answer {n}"] for n in range(len(calls))]
        assert histories.sessions() == ["killed", *sorted(f"session {n}" for n in range(16))]
        for task in range(16):
            every = [text.split() for text in texts(histories.history(f"session {task}").messages)]
            for process in "0123":
                mine = [n for p, n in every if p == process]
                assert mine == list("0123456789")
