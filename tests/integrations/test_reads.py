"""Reads write nothing: on a read-only file, beside a writer, and as a role that may only select, all public ones return."""

import asyncio
import importlib
import inspect
import os
import pkgutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from psycopg import sql
from selection import missing

from collections_store import (
    AsyncStore,
    CollectionNotFound,
    DatabaseError,
    DialogueNotFound,
    InvalidOption,
    InvalidSearch,
    MissingExtra,
    Store,
    integrations,
)
from collections_store.dialogues import (
    AsyncDialogueStore,
    Dialogue,
    DialogueLabel,
    DialogueStore,
    PlainCodec,
)

Call = Callable[[Any], Any]
HOST = "collections_store.integrations."
LABEL = DialogueLabel(("7f", ""), "bob", "ada")
BUSY = 0.5
"""Seconds after which what waits for a writer fails."""
CHECKPOINT = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


@dataclass(frozen=True)
class Subject:
    """A class, or several with the same methods. `make` returns an object on a store; `reads` are calls of the methods that
    only read, by their names; `others` are the other methods: they write, or execute nothing.
    """

    paths: str
    make: Call
    write: Call | None
    reads: Mapping[str, Call]
    others: str = ""
    is_async: bool | None = None
    """Whether it takes an `AsyncStore`; None: the classes whose names begin with Async do."""
    raises: tuple[type[Exception], ...] = ()
    """What reads raise if there is nothing."""
    is_context: bool = False
    """Whether an object is what `with` returns."""
    needs: str | None = None
    """A module without which a class can be imported, but makes no object."""

    def kinds(self) -> Iterator[tuple[str, bool]]:
        """Yield the classes that can be imported here, each with whether it takes an `AsyncStore`."""
        for path in self.paths.split():
            module, _, name = path.rpartition(".")
            with suppress(MissingExtra):
                if self.needs is not None and missing(self.needs):
                    continue
                importlib.import_module(module)
                yield path, name.startswith("Async") if self.is_async is None else self.is_async

    @asynccontextmanager
    async def made(self, store: Any) -> AsyncIterator[Any]:
        """Return the context of a new object."""
        made = self.make(store)
        if not self.is_context:
            yield made
        elif isinstance(store, AsyncStore):
            async with made as entered:
                yield entered
        else:
            with made as entered:
                yield entered


def calls(**arguments: tuple[Any, ...]) -> dict[str, Call]:
    """Return the calls of methods with arguments."""
    return {name: _call(name, given) for name, given in arguments.items()}


def _call(name: str, given: tuple[Any, ...]) -> Call:
    return lambda target: getattr(target, name)(*given)


def of(name: str, *arguments: Any, **options: Any) -> Call:
    """Return what makes an object of an integration's class on a store."""

    def make(store: Any) -> Any:
        module, _, member = name.rpartition(".")
        return getattr(importlib.import_module(HOST + module), member)(store, *arguments, **options)

    return make


def both(name: str, wrap: Call) -> Call:
    """Return what makes an object of a class of kdeps, or of its async counterpart, on a store."""

    def make(store: Any) -> Any:
        kdeps = importlib.import_module(HOST + "kdeps")
        prefix = "Async" if isinstance(store, AsyncStore) else ""
        return wrap(partial_of(getattr(kdeps, prefix + name), store))

    return make


def partial_of(kind: Any, store: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: kind(store.memory("kdeps"), *arguments, **options)


def dialogues(kind: str) -> Call:
    """Return what makes an object of a class of dialogues, or of its async counterpart, on a store."""

    def make(store: Any) -> Any:
        module = importlib.import_module("collections_store.dialogues")
        prefix = "Async" if isinstance(store, AsyncStore) and kind != "HostDialogues" else ""
        options = {} if kind == "Dialogues" else {"codec": PlainCodec()}
        return getattr(module, prefix + kind)(store, "ada", **options)

    return make


def write_dialogue(store: Any) -> Any:
    kind: Any = AsyncDialogueStore if isinstance(store, AsyncStore) else DialogueStore
    return kind(store, "ada", codec=PlainCodec()).save(Dialogue(LABEL, "ada", "buyer"))


async def copy(store: Any) -> None:
    """Copy a store to a new one in memory."""
    async with AsyncExitStack() as stack:
        if isinstance(store, AsyncStore):
            await store.copy_to(await stack.enter_async_context(AsyncStore("sqlite://")))
        else:
            store.copy_to(stack.enter_context(Store("sqlite://")))


def in_transaction(store: Any) -> Any:
    return store.run_transaction(read_of, read_only=True)


def read_of(transaction: Any) -> Any:
    return transaction["recorded"].get("a")


def back_up(store: Any) -> Any:
    return store.backup(Path(os.environ["COLLECTIONS_STORE_TEST_BACKUP"]))


def openai_agents() -> ModuleType:
    return importlib.import_module(f"{HOST}openai_agents")


def opsdroid(store: Any) -> Any:
    """Return a database of opsdroid, which opens a store of its own."""
    module, core = importlib.import_module(f"{HOST}opsdroid"), store.core
    schema = {"schema": core.options.schema} if core.options.schema else {}
    url = core.url.render_as_string(hide_password=False)
    return module.DatabaseCollectionsStore({"url": url, "busy_timeout": BUSY, **schema})


async def connected(database: Any, method: str, *arguments: Any) -> None:
    try:
        await database.connect()
        await getattr(database, method)(*arguments)
    finally:
        await database.disconnect()


async def _in_savepoint(transaction: Any) -> None:
    if type(transaction).__name__.startswith("Async"):
        async with transaction.transaction() as inner:
            await inner["things"].get("a")
    else:
        with transaction.transaction() as inner:
            inner["things"].get("a")


def several(store: Any) -> list[Any]:
    """Return a batch of a LangGraph store that only reads."""
    from langgraph.store.base import GetOp, SearchOp

    return [GetOp(("a",), "x"), SearchOp(("a",)), GetOp(("a",), "y")]


async def write_session(session: Any) -> None:
    await session.create_session(app_name="a", user_id="u", session_id="s", state={"user:x": 1})


async def write_messages(history: Any) -> None:
    from agent_framework import Message

    await history.save_messages("s", [Message(role="user", contents=["Hello"])])


async def write_checkpoint(storage: Any) -> None:
    from agent_framework import WorkflowCheckpoint

    await storage.save(WorkflowCheckpoint("w", "hash", checkpoint_id="c"))


async def write_agent_session(sessions: Any) -> None:
    from agent_framework import AgentSession

    await sessions.set("s", AgentSession(session_id="s"))


async def load_checkpoint(storage: Any) -> Any:
    from agent_framework import WorkflowCheckpointException

    try:
        return await storage.load("c")
    except WorkflowCheckpointException as error:
        assert "No checkpoint found" in str(error)


async def write_mcp(events: Any) -> None:
    await events.store_event("stream", None)


async def nothing(event: Any) -> None:
    del event


async def write_openai(session: Any) -> None:
    await session.add_items([{"role": "user", "content": "Hello"}])


def chat_message() -> Any:
    from llama_index.core.llms import ChatMessage

    return ChatMessage(role="user", content="Hello")


def checkpoint() -> Any:
    from langgraph.checkpoint.base import empty_checkpoint

    return empty_checkpoint()


def put_checkpoint(saver: Any) -> Any:
    arguments: Any = (CHECKPOINT, checkpoint(), {}, {})
    return (
        saver.aput(*arguments)
        if type(saver).__name__.startswith("Async")
        else saver.put(*arguments)
    )


def write_searched(things: Any) -> None:
    """Leave vectors that no search has stored yet."""
    things.create_text_index("text")
    things.create_vector_index("v", dimensions=2)
    things.put("a", {"n": 1, "text": "green tea", "v": [0.5, 0.5]})


_COLLECTION = "bulk_write change create_index create_text_index create_vector_index delete_many delete_one drop_index edit find_one_and_delete find_one_and_replace find_one_and_update hide_index increment insert_many insert_one purge_expired put put_many reindex remove remove_many replace_one store_vectors touch unhide_index update update_many update_one upgrade_documents with_options"
_MEMORY = "change clear collection configure delete delete_many end expire increment namespace pop put put_many request search session touch transaction"
_DIALOGUES = "message_collection purge remove restore_quarantined save search"
_WRITES_OF_SAVERS = "put aput put_writes aput_writes delete_thread adelete_thread delete_for_runs adelete_for_runs copy_thread acopy_thread prune aprune delete_idle_threads adelete_idle_threads get_next_version run_imported close aclose setup from_conn_string"
_LABEL = calls(
    get_dialogues_with_counterparty=("bob",),
    messages=(LABEL,),
    quarantined=(),
    find=("role", "buyer"),
)
_STORES = {
    "health": lambda store: store.health(),
    "stats": lambda store: store.stats(),
    "collections": lambda store: store.collections(),
    "backup": back_up,
    "copy_to": copy,
    "run_transaction": in_transaction,
}

SUBJECTS = [
    Subject(
        "collections_store.Store collections_store.AsyncStore",
        lambda store: store,
        lambda store: store["recorded"].put("a", 1),
        _STORES,
        "aclose attach bind close collection create_collection drop get_collection get_sync_collection memory model rename restore run skill_memory transaction watch",
    ),
    Subject(
        "collections_store.Transaction collections_store.AsyncTransaction",
        lambda store: store.transaction(read_only=True),
        None,
        {
            "collections": lambda transaction: transaction.collections(),
            "run": lambda transaction: transaction["things"].get("a"),
            "memory": lambda transaction: transaction.memory("bot").items(),
            "transaction": _in_savepoint,
        },
        "collection create_collection drop get_collection get_sync_collection rename skill_memory",
        is_context=True,
    ),
    Subject(
        "collections_store.Collection collections_store.AsyncCollection",
        lambda store: store["things"],
        write_searched,
        calls(
            aggregate=([{"$group": {"_id": "$n"}}],),
            stream_aggregate=([{"$project": {"n": 1}}],),
            count=("n", 1),
            distinct=("n",),
            document=("a",),
            exists=("a",),
            explain=("n", 1),
            explain_aggregate=([{"$group": {"_id": "$n"}}],),
            find=("n", 1),
            find_one=("n", 1),
            get=("a",),
            get_many=(["a"],),
            id_prefixes=("/",),
            indexes=(),
            list=(),
            nearest=([1.0, 0.0],),
            page=("n", 1),
            search=("tea",),
            search_backlog=(),
            stream=(),
        ),
        f"{_COLLECTION} watch",
        raises=(CollectionNotFound, InvalidSearch),  # explain and searches, which have no index
    ),
    Subject(
        "collections_store.ChangeStream collections_store.AsyncChangeStream",
        lambda store: store["recorded"].watch(after="oldest", timeout=0),
        None,
        {"try_next": lambda stream: stream.try_next()},
        "aclose close token",
        raises=(InvalidOption, DatabaseError, CollectionNotFound),
    ),
    Subject(
        "collections_store.ChangeDocumentStream collections_store.AsyncChangeDocumentStream",
        lambda store: store.watch(after="oldest", timeout=0),
        None,
        {"try_next": lambda stream: stream.try_next()},
        "aclose close token",
    ),
    Subject(
        "collections_store.memory.Memory collections_store.memory.AsyncMemory",
        lambda store: store.memory("bot"),
        lambda memory: memory.put("a", 1),
        calls(
            count=(),
            fetch=("a",),
            find=("$body", 1),
            get=("a",),
            get_many=(["a"],),
            items=(),
            keys=(),
            ttl=("a",),
        ),
        f"{_MEMORY} watch",
    ),
    Subject(
        "collections_store.dialogues.DialogueStore collections_store.dialogues.AsyncDialogueStore",
        dialogues("DialogueStore"),
        lambda dialogues: write_dialogue(dialogues._store),
        {**_LABEL, **calls(get=(LABEL,), is_known=(LABEL,), restore=())},
        _DIALOGUES,
    ),
    Subject(
        "collections_store.dialogues.Dialogues collections_store.dialogues.AsyncDialogues",
        dialogues("Dialogues"),
        None,
        {
            **_LABEL,
            **calls(setup=(), get_dialogue_from_label=(LABEL,), reload=(LABEL,), teardown=()),
        },
        f"{_DIALOGUES} create dialogues_in_active_state finish get_dialogue reply self_address update",
        raises=(DialogueNotFound,),
    ),
    Subject(
        "collections_store.dialogues.HostDialogues",
        dialogues("HostDialogues"),
        None,
        {
            **_LABEL,
            **calls(
                get=(LABEL,),
                is_known=(LABEL,),
                restore=(),
                setup=(),
                in_memory=(LABEL,),
                teardown=(),
            ),
            "active": lambda dialogues: dialogues.active,
            "terminal": lambda dialogues: dialogues.terminal,
        },
        f"{_DIALOGUES} accepted add forget move_to",
    ),
    Subject(
        f"{HOST}soul_machines.SkillMemory {HOST}soul_machines.AsyncSkillMemory",
        lambda store: store.skill_memory(),
        lambda skills: skills.save("s", "weather", [{"name": "a", "value": 1}]),
        calls(load=("s", "weather")),
        "end_session save",
    ),
    Subject(
        f"{HOST}kdeps.Items {HOST}kdeps.AsyncItems",
        both("Items", lambda new: new()),
        lambda items: items.setItem("a", "1"),
        calls(getItem=("a",)),
        "clear deleteItem setItem",
    ),
    Subject(
        f"{HOST}kdeps.Records {HOST}kdeps.AsyncRecords",
        both("Records", lambda new: new()),
        lambda items: items.setRecord("a", "1"),
        calls(getRecord=("a",)),
        "clear deleteRecord setRecord",
    ),
    Subject(
        f"{HOST}kdeps.MemoryStorage {HOST}kdeps.AsyncMemoryStorage",
        both("MemoryStorage", lambda new: new()),
        lambda memory: memory.set("a", 1),
        calls(get=("a",), fetch=("a",)),
        "delete set",
    ),
    Subject(
        f"{HOST}kdeps.SessionStorage {HOST}kdeps.AsyncSessionStorage",
        both("SessionStorage", lambda new: new("ada")),
        lambda memory: memory.set("a", 1),
        calls(get=("b",), fetch=("b",), get_all=(), is_expired=("a",)),
        "clear delete set touch",
    ),
    Subject(
        f"{HOST}opsdroid.DatabaseCollectionsStore",
        opsdroid,
        lambda database: connected(database, "put", "a", 1),
        {name: lambda database: connected(database, "get", "a") for name in ("connect", "get")},
        "delete disconnect memory memory_in memory_in_room put",
        is_async=True,
    ),
    Subject(
        f"{HOST}aea.CollectionsBackend",
        of("aea.CollectionsBackend"),
        lambda backend: backend.put("things", "a", {"n": 1}),
        calls(
            connect=(),
            find=("things", "n", 1),
            get=("things", "a"),
            list=("things",),
            ensure_collection=("things",),
        ),
        "disconnect is_over open put remove sync_collection sync_store",
        is_async=True,
    ),
    Subject(
        f"{HOST}key_value.KeyValueStore",
        of("key_value.KeyValueStore"),
        lambda values: values.put("a", {"n": 1}),
        calls(
            collections=(), get=("a",), get_many=(["a"],), keys=(), ttl=("a",), ttl_many=(["a"],)
        ),
        "close cull delete delete_many destroy destroy_collection put put_many",
        is_async=True,
    ),
    Subject(
        f"{HOST}langchain.LangChainHistories",
        of("langchain.LangChainHistories"),
        lambda histories: histories.history("ada").add_user_message("Hello"),
        calls(sessions=(), asessions=()),
        "aclose close history",
        is_async=True,
    ),
    Subject(
        f"{HOST}langchain.LangChainHistory",
        lambda store: of("langchain.LangChainHistories")(store).history("ada"),
        lambda history: history.add_user_message("Hello"),
        {"messages": lambda history: history.messages, **calls(aget_messages=())},
        "aadd_messages aclear add_messages clear",
        is_async=True,
    ),
    Subject(
        f"{HOST}llama_index.LlamaIndexKVStore",
        of("llama_index.LlamaIndexKVStore"),
        lambda values: values.aput("a", {"n": 1}),
        calls(get=("a",), aget=("a",), get_all=(), aget_all=()),
        "aclose close adelete aput aput_all delete put put_all",
        is_async=True,
    ),
    Subject(
        f"{HOST}llama_index.LlamaIndexChatStore",
        of("llama_index.LlamaIndexChatStore"),
        lambda chats: chats.async_add_message("ada", chat_message()),
        calls(get_keys=(), aget_keys=(), get_messages=("ada",), aget_messages=("ada",)),
        "aclose add_message adelete_last_message adelete_message adelete_messages aset_messages async_add_message class_name close delete_last_message delete_message delete_messages model_post_init set_messages",
        is_async=True,
    ),
    Subject(
        f"{HOST}llama_index.LlamaIndexMemoryStore",
        of("llama_index.LlamaIndexMemoryStore"),
        lambda messages: messages.add_message("ada", chat_message()),
        calls(count_messages=("ada",), get_keys=(), get_messages=("ada",)),
        "aclose add_message add_messages archive_oldest_messages class_name close delete_message delete_messages delete_oldest_messages model_post_init set_messages",
        is_async=True,
    ),
    Subject(
        f"{HOST}agent_framework.AgentHistoryProvider",
        of("agent_framework.AgentHistoryProvider"),
        write_messages,
        calls(get_messages=("s",), list_sessions=()),
        "clear close delete_idle_sessions save_messages",
        is_async=True,
    ),
    Subject(
        f"{HOST}agent_framework.AgentCheckpointStorage",
        of("agent_framework.AgentCheckpointStorage"),
        write_checkpoint,
        {
            "load": load_checkpoint,
            "get_latest": lambda storage: storage.get_latest(workflow_name="w"),
            "list_checkpoint_ids": lambda storage: storage.list_checkpoint_ids(workflow_name="w"),
            "list_checkpoints": lambda storage: storage.list_checkpoints(workflow_name="w"),
        },
        "close delete save",
        is_async=True,
    ),
    Subject(
        f"{HOST}agent_framework.AgentSessionStore",
        of("agent_framework.AgentSessionStore"),
        write_agent_session,
        calls(get=("s",)),
        "close delete set",
        is_async=True,
    ),
    Subject(
        f"{HOST}google_adk.CollectionsSessionService",
        of(
            "google_adk.CollectionsSessionService",
            versions={"schema_version": 2, "upgrades": {1: dict}},
        ),
        write_session,
        {
            "get_session": lambda service: service.get_session(
                app_name="a", user_id="u", session_id="s"
            ),
            "get_user_state": lambda service: service.get_user_state(app_name="a", user_id="u"),
            "list_sessions": lambda service: service.list_sessions(app_name="a"),
        },
        "append_event close create_session delete_idle_sessions delete_session",
        is_async=True,
    ),
    Subject(
        f"{HOST}google_adk.CollectionsMemoryService",
        of("google_adk.CollectionsMemoryService"),
        lambda memory: memory.add_memory(app_name="a", user_id="u", memories=[]),
        {
            "search_memory": lambda memory: memory.search_memory(
                app_name="a", user_id="u", query="rome"
            )
        },
        "add_events_to_memory add_memory add_session_to_memory close delete_memory",
        is_async=True,
    ),
    Subject(
        f"{HOST}mcp_events.MCPEventStore",
        of("mcp_events.MCPEventStore", session="s"),
        write_mcp,
        {
            "sessions": lambda events: events.sessions(),
            "replay_events_after": lambda events: events.replay_events_after(
                "stream/0000000000", nothing
            ),
        },
        "close delete_session resumable store_event",
        is_async=True,
    ),
    Subject(
        f"{HOST}openai_agents.OpenAIAgentsSession",
        lambda store: openai_agents().OpenAIAgentsSession("alice", store),
        write_openai,
        {
            **calls(
                get_conversation_turns=(),
                get_items=(),
                get_session_usage=(),
                get_turn_usage=(),
                list_branches=(),
            ),
            "list_sessions": lambda session: openai_agents().list_sessions(session._store),
        },
        "add_items clear_session close create_branch_from_turn current_branch delete_branch from_url pop_item session_of store_run_usage switch_to_branch",
        is_async=True,
        needs="agents",
    ),
    Subject(
        f"{HOST}langgraph.LangGraphStore",
        of("langgraph.LangGraphStore"),
        lambda memories: memories.put(("a",), "x", {"n": 1}),
        {
            "batch": lambda memories: memories.batch(several(memories)),
            "abatch": lambda memories: memories.abatch(several(memories)),
            "get": lambda memories: memories.get(("a",), "x"),
            "search": lambda memories: memories.search(("a",), filter={"n": 1}),
            "list_namespaces": lambda memories: memories.list_namespaces(),
        },
        "close from_conn_string put_imported setup start_ttl_sweeper stop_ttl_sweeper sweep_ttl",
    ),
    Subject(
        f"{HOST}langgraph.AsyncLangGraphStore",
        of("langgraph.AsyncLangGraphStore"),
        lambda memories: memories.aput(("a",), "x", {"n": 1}),
        {
            "abatch": lambda memories: memories.abatch(several(memories)),
            "aget": lambda memories: memories.aget(("a",), "x"),
        },
        "aclose batch from_conn_string setup start_ttl_sweeper stop_ttl_sweeper sweep_ttl",
    ),
    Subject(
        f"{HOST}langgraph.LangGraphSaver",
        of("langgraph.LangGraphSaver"),
        put_checkpoint,
        {
            "get_tuple": lambda saver: saver.get_tuple(CHECKPOINT),
            "list": lambda saver: saver.list(None),
            "aget_tuple": lambda saver: saver.aget_tuple(CHECKPOINT),
            "alist": lambda saver: saver.alist(CHECKPOINT),
            "get_delta_channel_history": lambda saver: saver.get_delta_channel_history(
                config=CHECKPOINT, channels=["x"]
            ),
            "aget_delta_channel_history": lambda saver: saver.aget_delta_channel_history(
                config=CHECKPOINT, channels=["x"]
            ),
        },
        _WRITES_OF_SAVERS,
    ),
    Subject(
        f"{HOST}langgraph.AsyncLangGraphSaver",
        of("langgraph.AsyncLangGraphSaver"),
        put_checkpoint,
        {
            "aget_tuple": lambda saver: saver.aget_tuple(CHECKPOINT),
            "alist": lambda saver: saver.alist(CHECKPOINT),
            "aget_delta_channel_history": lambda saver: saver.aget_delta_channel_history(
                config=CHECKPOINT, channels=["x"]
            ),
        },
        f"{_WRITES_OF_SAVERS} get_tuple list get_delta_channel_history",
    ),
]

NOT_STORED = {
    "BulkWriteResult", "Document", "Filter", "Index", "Page", "Path", "Projection", "PutManyResult", "SearchPage", "SearchResult", "Sort", "TextIndex", "VectorIndex", "Update", "UpgradeSample",
    "Dialogue", "DialogueCodec", "DialogueLabel", "Message", "PlainCodec", "Rules", "Storage", "SyncCollection",
    "Response", "SkillRules", "ExternalFile", "PairedCollection", "PairedOwner", "StoreOwner", "VectorCollection",
    "CollectionsDocumentStore", "CollectionsEmbeddingRetriever", "CollectionsKeywordRetriever", "CollectionsVectorStore", "LangChainVectorStore", "LlamaIndexVectorStore",
}  # fmt: skip
"""Public classes whose methods execute nothing, are those of another class in this list, or read other files. The stores of
vectors create their indexes with the first search: their own tests read a file that is only read.
"""


def public_classes() -> Iterator[tuple[str, type]]:
    """Yield the public classes that have methods, by their full names; those of what is not installed are left out."""
    hosts = [f"{HOST}{each.name}" for each in pkgutil.iter_modules(integrations.__path__)]
    for path in (
        "collections_store",
        "collections_store.memory",
        "collections_store.dialogues",
        *hosts,
    ):
        try:
            module = importlib.import_module(path)
        except MissingExtra:
            continue
        for name in getattr(module, "__all__", vars(module)):
            kind = getattr(module, name)
            is_ours = inspect.isclass(kind) and kind.__module__.startswith(path)
            if not is_ours or name.startswith("_") or is_typeddict(kind):
                continue
            if not issubclass(kind, Exception) and public_methods(kind):
                yield f"{path}.{name}", kind


def public_methods(kind: type) -> set[str]:
    """Return the names of a class's own public methods and properties."""
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("collections_store")
        for name, member in vars(base).items()
        if not name.startswith("_")
        and (callable(member) or isinstance(member, property | classmethod))
    }


def test_each_public_method_is_a_read_or_another() -> None:
    known = {path: each for each in SUBJECTS for path in each.paths.split()}
    for path, kind in public_classes():
        if path.rpartition(".")[2] not in NOT_STORED:
            assert path in known, f"{path}: SUBJECTS or NOT_STORED of this module must have it"
            subject = known[path]
            unknown = public_methods(kind) - {*subject.reads, *subject.others.split()}
            assert not unknown, f"{path}: a subject of this module must list {unknown}"


async def finished(result: Any) -> Any:
    """Return what a call returns in the end."""
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, AsyncIterator):
        return [each async for each in result]
    return list(result) if isinstance(result, Iterator) else result


async def write_all(url: str, options: dict[str, Any]) -> None:
    """Let each adapter write something."""
    async with AsyncStore(url, **options) as store:
        with Store(url, **options) as sync:
            sync.collection("recorded", changes=True)
            for subject in SUBJECTS:
                for _, is_async in list(subject.kinds())[:1]:
                    async with subject.made(store if is_async else sync) as made:
                        await finished(subject.write and subject.write(made))


async def read_all(url: str, options: dict[str, Any]) -> dict[str, str]:
    """Call each read of a new object; return the errors."""
    failed: dict[str, str] = {}
    async with AsyncStore(url, busy_timeout=BUSY, **options) as store:
        with Store(url, busy_timeout=BUSY, **options) as sync:
            for subject in SUBJECTS:
                for (path, is_async), (name, read) in product(
                    subject.kinds(), subject.reads.items()
                ):
                    try:
                        async with subject.made(store if is_async else sync) as made:
                            await finished(read(made))
                    except subject.raises:
                        pass
                    except Exception as error:  # noqa: BLE001 - all are reported
                        failed[f"{path}.{name}"] = f"{type(error).__name__}: {error}"
    return failed


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("is_locked", [True, False])
def test_reads_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_written: bool, is_locked: bool
) -> None:
    """Another connection holds the write lock, or the file is read-only."""
    monkeypatch.setenv("COLLECTIONS_STORE_TEST_BACKUP", str(tmp_path / "backup.jsonl"))
    file = tmp_path / "store.db"
    file.touch()
    if is_written:
        asyncio.run(write_all(f"sqlite:///{file}", {}))
    before = file.read_bytes()
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        if is_locked:
            writer.execute("BEGIN IMMEDIATE")
        url = f"sqlite:///{file}" if is_locked else f"sqlite:///{file}?mode=ro"
        assert asyncio.run(read_all(url, {})) == {}
    assert file.read_bytes() == before


@pytest.mark.parametrize("is_written", [True, False])
def test_reads_of_a_role_that_may_only_select(
    postgres_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    monkeypatch.setenv("COLLECTIONS_STORE_TEST_BACKUP", str(tmp_path / "backup.jsonl"))
    options, url = postgres_backend.options, sa.make_url(postgres_backend.url)
    role = sql.Identifier(f"reader_{options['schema']}")
    if is_written:
        asyncio.run(write_all(postgres_backend.url, options))
    with psycopg.connect(postgres_backend.url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'reader'").format(role))
        if is_written:
            schema = sql.Identifier(options["schema"])
            owner.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role))
            grant = "GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}"
            owner.execute(sql.SQL(grant).format(schema, role))
        try:
            reader = url.set(username=f"reader_{options['schema']}", password="reader")
            shown = reader.render_as_string(hide_password=False)
            assert asyncio.run(read_all(shown, options)) == {}
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
            owner.execute(sql.SQL("DROP ROLE {}").format(role))
