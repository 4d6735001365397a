"""LlamaIndex's key-value stores, document stores, chat stores and memories, on our stores.

`test_llama_index.py` runs these tests.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from backends import Backend
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.data_structs.data_structs import IndexDict
from llama_index.core.ingestion import IngestionCache
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.schema import Document, ImageNode, IndexNode, NodeRelationship, TextNode
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.index_store.keyval_index_store import KVIndexStore

from collections_store import (
    AsyncStore,
    InvalidBody,
    InvalidId,
    InvalidOption,
    Store,
    StoreClosed,
)
from collections_store.integrations.llama_index import (
    LlamaIndexChatStore,
    LlamaIndexKVStore,
    LlamaIndexMemoryStore,
)

KEYS = ("", "a", "1:a", "a/b", "ä'\"%_*?$", "$gt", "a" * 900)
BAD_TEXTS = ("a\0b", "\ud800")
PROGRAM = Path(__file__).with_name("llama_index_writers.py")


class Calls:
    """Calls the sync methods of an object, or, in a new event loop each, the async ones."""

    def __init__(self, way: str, object: Any) -> None:
        self._way, self._object = way, object

    def __getattr__(self, name: str) -> Any:
        if self._way == "sync":
            return getattr(self._object, name)
        prefix = "async_" if name == "add_message" else "a"
        method = getattr(self._object, prefix + name)
        return lambda *arguments, **options: asyncio.run(method(*arguments, **options))


@pytest.fixture(params=["sync", "async"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(backend: Backend) -> Iterator[AsyncStore]:
    store = AsyncStore(backend.url, **backend.options)
    yield store
    asyncio.run(store.aclose())


def said(text: str, role: str = "user") -> ChatMessage:
    return ChatMessage(role=role, content=text)


def texts(messages: list[ChatMessage] | None) -> list[str | None]:
    return [message.content for message in messages or []]


# -- values ----------------------------------------------------------------------------------


def test_values_are_separate_by_collection_and_key(store: AsyncStore, way: str) -> None:
    values: Any = Calls(way, LlamaIndexKVStore(store))
    for collection in KEYS:
        for key in KEYS[:-1]:
            values.put(key, {"of": [collection, key]}, collection=collection)
    values.put("a", {"of": "the default"})
    for collection in KEYS:
        found = values.get_all(collection=collection)
        assert list(found.items()) == [(key, {"of": [collection, key]}) for key in KEYS[:-1]]
        assert values.get("a/b", collection=collection) == {"of": [collection, "a/b"]}
    assert values.get_all() == {"a": {"of": "the default"}}
    assert values.get("none") is None
    assert values.get_all(collection="none") == {}
    assert values.delete("a", collection="a") is True
    assert values.delete("a", collection="a") is False
    assert values.get("a", collection="a") is None
    assert values.get("a", collection="1:a") == {"of": ["1:a", "a"]}


def test_put_all_writes_all_or_none(store: AsyncStore, way: str) -> None:
    values: Any = Calls(way, LlamaIndexKVStore(store))
    values.put_all([("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 3})], batch_size=2)
    assert values.get_all() == {"a": {"n": 3}, "b": {"n": 2}}
    values.put_all([], collection="data")
    with pytest.raises(InvalidBody):
        values.put_all([("a", {"n": 4}), ("c", {"n": float("nan")})])
    with pytest.raises(InvalidId):
        values.put_all([("a", {"n": 4}), ("c\0", {"n": 5})])
    assert values.get_all() == {"a": {"n": 3}, "b": {"n": 2}}


def test_values_are_replaced_and_returned_as_copies(store: AsyncStore, way: str) -> None:
    values: Any = Calls(way, LlamaIndexKVStore(store))
    value = {"pair": (1, 2), 1: "one", "deep": {"list": []}}
    values.put("a", value)
    values.get("a")["deep"]["list"].append("more")
    assert values.get("a") == {"pair": [1, 2], "1": "one", "deep": {"list": []}}
    values.put("a", {"new": True})
    assert values.get("a") == {"new": True}


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
NO_JSON = (
    {"a": DEEP},
    {"a": b"x"},
    {"a": {1}},
    {"a": float("inf")},
    {"a": 2**70},
    {"a": "\0"},
    {"a": "\ud800"},
    [1],
    None,
)


def test_a_value_that_is_not_json_is_refused(store: AsyncStore, way: str) -> None:
    values: Any = Calls(way, LlamaIndexKVStore(store))
    values.put("a", {"n": 1})
    for value in NO_JSON:
        with pytest.raises(InvalidBody):
            values.put("a", value)
    assert values.get("a") == {"n": 1}


def test_keys_that_no_id_can_hold_are_refused(store: AsyncStore, way: str) -> None:
    values: Any = Calls(way, LlamaIndexKVStore(store))
    for bad in (*BAD_TEXTS, "a" * 2001):
        for key, collection in ((bad, "data"), ("a", bad)):
            with pytest.raises(InvalidId):
                values.put(key, {}, collection=collection)
            with pytest.raises(InvalidId):
                values.get(key, collection=collection)
    with pytest.raises(InvalidOption, match="option key: must be a string, got int"):
        values.get(5)
    with pytest.raises(InvalidOption, match="option collection: must be a string, got NoneType"):
        values.get_all(None)


def test_the_values_of_a_collection_are_one_range_of_ids(store: AsyncStore) -> None:
    values = LlamaIndexKVStore(store)
    values.put("a", {"n": 1}, collection="docs")
    documents = store.get_sync_collection("llama_index_values")
    assert documents.get("4:docs/a") == {"n": 1}
    plan = documents.explain({"$id": {"$gte": "4:docs/", "$lt": "4:docs0"}})
    assert not plan.scans


def test_document_stores_work_on_it(store: AsyncStore, way: str) -> None:
    documents: Any = KVDocumentStore(LlamaIndexKVStore(store), namespace="books", batch_size=10)
    source = Document(text="Two nodes.", metadata={"pages": (1, 2)}, id_="source")
    nodes = [
        TextNode(text="One.", id_="1", embedding=[0.1, 0.2]),
        ImageNode(image="aGVsbG8=", id_="2"),
        IndexNode(text="Three", index_id="i", id_="3"),
    ]
    for node in nodes:
        node.relationships[NodeRelationship.SOURCE] = source.as_related_node_info()
    if way == "sync":
        documents.add_documents([source, *nodes])
    else:
        asyncio.run(documents.async_add_documents([source, *nodes]))
    documents.delete_document("2")
    again: Any = KVDocumentStore(LlamaIndexKVStore(store), namespace="books")
    assert list(again.docs) == ["source", "1", "3"]
    one = again.get_document("1")
    assert isinstance(one, TextNode)
    assert (one.text, one.embedding, one.hash) == ("One.", [0.1, 0.2], nodes[0].hash)
    assert isinstance(again.get_document("3"), IndexNode)
    assert again.get_ref_doc_info("source").node_ids == ["1", "3"]
    assert again.get_document_hash("1") == nodes[0].hash
    if way == "sync":
        again.delete_ref_doc("source")
    else:
        asyncio.run(again.adelete_ref_doc("source"))
    assert again.docs == {}


def test_index_stores_and_caches_work_on_it(store: AsyncStore, way: str) -> None:
    values = LlamaIndexKVStore(store)
    indexes: Any = KVIndexStore(values)
    struct = IndexDict(index_id="one", nodes_dict={"a": "b"})
    if way == "sync":
        indexes.add_index_struct(struct)
        found = indexes.get_index_struct("one")
    else:
        asyncio.run(indexes.async_add_index_struct(struct))
        found = asyncio.run(indexes.aget_index_struct("one"))
    assert found == struct
    assert [each.index_id for each in indexes.index_structs()] == ["one"]
    cache = IngestionCache(cache=values, collection="parsed")
    cache.put("key", [TextNode(text="One.", id_="1")])
    [node] = cache.get("key") or []
    assert node.node_id == "1"
    assert cache.get("none") is None


# -- chat stores -----------------------------------------------------------------------------


def test_messages_are_appended_replaced_and_deleted(store: AsyncStore, way: str) -> None:
    chats: Any = Calls(way, LlamaIndexChatStore(store))
    assert chats.get_messages("ada") == []
    assert chats.get_keys() == []
    for n in range(5):
        chats.add_message("ada", said(f"m{n}"))
    chats.add_message("bob", said("other"))
    assert texts(chats.get_messages("ada")) == ["m0", "m1", "m2", "m3", "m4"]
    assert chats.get_keys() == ["ada", "bob"]
    assert chats.delete_message("ada", 1).content == "m1"
    assert chats.delete_message("ada", -2).content == "m3"
    assert chats.delete_last_message("ada").content == "m4"
    assert [chats.delete_message("ada", idx) for idx in (2, -3, 10**6)] == [None] * 3
    assert texts(chats.get_messages("ada")) == ["m0", "m2"]
    chats.set_messages("ada", [said("x"), said("y", "assistant")])
    assert texts(chats.get_messages("ada")) == ["x", "y"]
    assert texts(chats.delete_messages("ada")) == ["x", "y"]
    assert chats.delete_messages("ada") is None
    assert chats.delete_last_message("ada") is None
    chats.set_messages("bob", [])
    assert chats.get_messages("bob") == []
    assert chats.get_keys() == []


def test_keys_are_taken_literally(store: AsyncStore, way: str) -> None:
    chats: Any = Calls(way, LlamaIndexChatStore(store))
    keys = [*KEYS, "k" * 3000]
    for key in keys:
        chats.add_message(key, said(key))
    assert [texts(chats.get_messages(key)) for key in keys] == [[key] for key in keys]
    assert chats.get_keys() == sorted(keys)
    for bad_key in (None, 5, {"$gt": ""}):
        with pytest.raises(InvalidOption, match="option key: must be a string"):
            chats.get_messages(bad_key)
        with pytest.raises(InvalidOption, match="option key: must be a string"):
            chats.add_message(bad_key, said("x"))
    for bad in BAD_TEXTS:
        with pytest.raises(InvalidBody, match="at 'key'"):
            chats.add_message(bad, said("x"))


MESSAGES = [
    ChatMessage(
        role="user",
        blocks=[
            TextBlock(text="See."),
            ImageBlock(image=b"\x89PNG\r\n\x1a\n\0", image_mimetype="image/png"),
            ImageBlock(url="https://example.com/a.png"),
            AudioBlock(audio=b"RIFF"),
            DocumentBlock(data=b"%PDF-1", title="page"),
        ],
    ),
    ChatMessage(
        role="assistant",
        blocks=[
            ThinkingBlock(content="hm"),
            ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs={"a": 1}),
            CitationBlock(cited_content=TextBlock(text="q"), source="s", title="t", additional_location_info={}),
        ],
    ),
    ChatMessage(role="tool", content="12", additional_kwargs={"tool_call_id": "1", "usage": {"n": 1}}),
]  # fmt: skip


def test_every_kind_of_block_is_restored(store: AsyncStore, way: str) -> None:
    chats: Any = Calls(way, LlamaIndexChatStore(store))
    chats.set_messages("ada", MESSAGES)
    assert chats.get_messages("ada") == MESSAGES


def test_a_message_that_is_not_json_is_refused(store: AsyncStore, way: str) -> None:
    chats: Any = Calls(way, LlamaIndexChatStore(store))
    chats.add_message("ada", said("kept"))
    strange = ChatMessage(content="x", additional_kwargs={"raw": object()})
    for message in (*map(said, BAD_TEXTS), strange):
        with pytest.raises(InvalidBody, match="at 'message"):
            chats.add_message("ada", message)
        with pytest.raises(InvalidBody, match="at 'message"):
            chats.set_messages("ada", [said("new"), message])
    assert texts(chats.get_messages("ada")) == ["kept"]


def test_no_method_scans_the_messages(store: AsyncStore) -> None:
    LlamaIndexChatStore(store).set_messages("ada", [said(str(n)) for n in range(20)])
    chats = store.get_sync_collection("llama_index_chats")
    plans = [
        chats.explain({"key": "ada"}),
        chats.explain({"key": "ada"}, skip=3, limit=1),
        chats.explain({"key": {"$gt": "a"}}, sort="key", limit=1),
    ]
    assert not any(plan.scans for plan in plans)
    assert chats.count({"key": "ada", "message.role": "user"}) == 20


def test_a_buffer_of_chat_memory_works_on_it(backend: Backend) -> None:
    with LlamaIndexChatStore(backend.url, **backend.options) as chats:
        memory = ChatMemoryBuffer.from_defaults(
            token_limit=10, chat_store=chats, chat_store_key="ada", tokenizer_fn=str.split
        )
        for n in range(8):
            memory.put(said(f"{n} a b c", "assistant" if n % 2 else "user"))
        assert texts(memory.get()) == ["6 a b c", "7 a b c"]
        assert len(memory.get_all()) == 8
        memory.set([said("new")])
        assert texts(memory.get_all()) == ["new"]
        memory.reset()
        assert memory.get_all() == []


# -- Memory ----------------------------------------------------------------------------------


def test_messages_of_a_memory_are_active_or_archived(store: AsyncStore) -> None:
    async def main() -> None:
        messages = LlamaIndexMemoryStore(store)
        await messages.add_messages("ada", [said(f"m{n}") for n in range(6)])
        await messages.add_message("ada", said("old"), status=MessageStatus.ARCHIVED)
        await messages.add_message("bob", said("other"))
        assert texts(await messages.archive_oldest_messages("ada", 2)) == ["m0", "m1"]
        assert texts(await messages.delete_oldest_messages("ada", 1)) == ["m2"]
        assert texts(await messages.get_messages("ada")) == ["m3", "m4", "m5"]
        assert texts(await messages.get_messages("ada", limit=1, offset=1)) == ["m4"]
        assert texts(await messages.get_messages("ada", MessageStatus.ARCHIVED)) == [
            "m0",
            "m1",
            "old",
        ]
        every = await messages.get_messages("ada", status=None)
        assert texts(every) == ["m0", "m1", "m3", "m4", "m5", "old"]
        assert await messages.count_messages("ada") == 3
        assert await messages.count_messages("ada", MessageStatus.ARCHIVED) == 3
        assert await messages.count_messages("ada", None) == 6
        deleted = await messages.delete_message("ada", 1)
        assert deleted is not None
        assert deleted.content == "m4"
        assert await messages.delete_message("ada", 2) is None
        await messages.delete_messages("ada", MessageStatus.ARCHIVED)
        assert texts(await messages.get_messages("ada", None)) == ["m3", "m5"]
        await messages.set_messages("ada", [said("new")])
        assert texts(await messages.get_messages("ada", None)) == ["new"]
        assert texts(await messages.archive_oldest_messages("ada", 9)) == ["new"]
        assert await messages.archive_oldest_messages("ada", 9) == []
        assert await messages.delete_oldest_messages("none", 9) == []
        assert await messages.get_keys() == ["ada", "bob"]
        await messages.delete_messages("ada")
        assert await messages.get_keys() == ["bob"]

    asyncio.run(main())  # fmt: skip


def test_refused_messages_of_a_memory_change_nothing(store: AsyncStore) -> None:
    async def main() -> None:
        messages = LlamaIndexMemoryStore(store)
        await messages.add_message("ada", said("kept"))
        for call in (messages.add_messages, messages.set_messages):
            with pytest.raises(InvalidBody):
                await call("ada", [said("new"), said("a\0b")])
        bads: list[Any] = [None, -1, True, 1.0, "1"]
        for bad in bads:
            for take in (messages.archive_oldest_messages, messages.delete_oldest_messages):
                with pytest.raises(
                    InvalidOption, match=f"n: must be an integer of 0 or more, got {bad!r}"
                ):
                    await take("ada", bad)
        with pytest.raises(ValueError, match="^'lost' is not a valid MessageStatus"):
            await messages.add_message("ada", said("x"), status="lost")  # type: ignore[arg-type]
        assert texts(await messages.get_messages("ada")) == ["kept"]

    asyncio.run(main())


def test_no_method_of_a_memory_scans_the_messages(store: AsyncStore) -> None:
    asyncio.run(LlamaIndexMemoryStore(store).add_messages("ada", [said("x")]))
    messages = store.get_sync_collection("llama_index_memory")
    for filter in ({"key": "ada", "status": "active"}, {"key": "ada"}):
        assert not messages.explain(filter, limit=1).scans


def test_a_memory_archives_what_exceeds_its_limit_and_survives_a_restart(
    shared_backend: Backend,
) -> None:
    def opened() -> LlamaIndexMemoryStore:
        return LlamaIndexMemoryStore(shared_backend.url, **shared_backend.options)

    def memory(messages: LlamaIndexMemoryStore) -> Memory:
        return Memory.from_defaults(
            session_id="ada", token_limit=20, token_flush_size=4, chat_history_token_ratio=0.5,
            chat_store=messages, tokenizer_fn=str.split,
        )  # fmt: skip

    async def talk() -> None:
        async with opened() as messages:
            for n in range(10):
                await memory(messages).aput(said(f"{n} a b", "assistant" if n % 2 else "user"))

    asyncio.run(talk())
    with opened() as messages:
        asyncio.run(_check(memory(messages)))


async def _check(memory: Memory) -> None:
    wanted = [f"{n} a b" for n in range(10)]
    active = texts(await memory.aget())
    archived = texts(await memory.aget_all(MessageStatus.ARCHIVED))
    assert archived + active == wanted
    assert 0 < len(active) < 5
    assert texts(await memory.aget_all()) == wanted
    memory.put(said("sync"))  # in other event loops
    assert texts(memory.get())[-1:] == ["sync"]
    await memory.areset()
    assert memory.get_all() == []


def test_a_chat_engine_remembers_with_it(shared_backend: Backend) -> None:
    async def ask(question: str) -> str:
        url, options = shared_backend.url, shared_backend.options
        async with LlamaIndexMemoryStore(url, **options) as messages:
            memory = Memory.from_defaults("ada", chat_store=messages, tokenizer_fn=str.split)
            engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
            return str(await engine.achat(question))

    assert "What is my name?" in asyncio.run(ask("What is my name?"))
    assert "What is my name?" in asyncio.run(ask("Go on."))  # the mock repeats what it is given


# -- stores ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LlamaIndexKVStore, LlamaIndexChatStore, LlamaIndexMemoryStore])
def test_a_given_store_stays_open(backend: Backend, kind: Any) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            async with kind(store):
                pass
            with kind(store):  # in an event loop, too
                pass
            await store["mine"].put("a", 1)
            with pytest.raises(InvalidOption, match="durability"):
                kind(store, durability="full")

    asyncio.run(main())
    with (
        pytest.raises(InvalidOption, match="must be an AsyncStore or a URL"),
        Store("sqlite://") as store,
    ):
        kind(store)


def test_a_store_of_a_url_is_closed() -> None:
    with LlamaIndexKVStore("sqlite://") as values:
        values.put("a", {})
    with pytest.raises(StoreClosed):
        values.get("a")
    chats = LlamaIndexChatStore("sqlite://")
    asyncio.run(chats.aclose())
    with pytest.raises(StoreClosed):
        chats.add_message("ada", said("x"))


def test_messages_that_threads_take_are_taken_once(shared_backend: Backend) -> None:
    with LlamaIndexChatStore(shared_backend.url, **shared_backend.options) as chats:
        chats.set_messages("ada", [said(str(n)) for n in range(30)])
        with ThreadPoolExecutor(6) as pool:
            taken = list(pool.map(lambda n: chats.delete_message("ada", -(n % 2)), range(30)))
        assert sorted(int(str(each and each.content)) for each in taken) == list(range(30))
        assert chats.get_keys() == []


@pytest.mark.parametrize("kind", [LlamaIndexChatStore, LlamaIndexMemoryStore])
def test_of_lists_that_are_set_at_once_one_stays(postgres_backend: Backend, kind: Any) -> None:
    """The lock lets both calls take their snapshots before either writes."""
    url, options = postgres_backend.url, postgres_backend.options
    with kind(url, **options) as messages, ThreadPoolExecutor(2) as pool:

        def set_messages(key: str, *contents: str) -> None:
            done = messages.set_messages(key, [said(each) for each in contents])
            if done is not None:
                asyncio.run(done)

        set_messages("other", "creates the index")
        with psycopg.connect(url) as connection:
            connection.execute(f"SET search_path = {options['schema']}")
            [(table,)] = connection.execute("SELECT table_name FROM cs_collections").fetchall()
            connection.execute(f"LOCK TABLE {table}")
            calls = [pool.submit(set_messages, "ada", *each) for each in ("ab", "cd")]
            waiting = f"SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted"
            while connection.execute(waiting).fetchall() != [(2,)]:
                assert not any(each.done() for each in calls)
                time.sleep(0.01)
        for each in calls:
            each.result()
        found = messages.get_messages("ada")
        assert texts(found if isinstance(found, list) else asyncio.run(found)) in (
            ["a", "b"],
            ["c", "d"],
        )


def test_processes_lose_nothing_and_a_killed_one_leaves_whole_batches(
    shared_backend: Backend,
) -> None:
    url, options = shared_backend.url, shared_backend.options
    command = [sys.executable, str(PROGRAM), url, json.dumps(options)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    with LlamaIndexMemoryStore(url, **options) as messages:
        found = texts(asyncio.run(messages.get_messages("killed", None)))
    batches = [found[at : at + 10] for at in range(0, len(found), 10)]
    assert len(batches) >= int(done.stdout)
    assert batches == [[f"{n}.{i}" for i in range(10)] for n in range(len(batches))]
    with LlamaIndexKVStore(url, **options) as values:
        assert [len(values.get_all(f"of {task}")) for task in range(16)] == [20] * 16
    with LlamaIndexChatStore(url, **options) as chats:
        assert len(chats.get_keys()) == 16
        for key in chats.get_keys():
            texts_of_processes = [str(text).split() for text in texts(chats.get_messages(key))]
            for process in "0123":
                assert [n for p, n in texts_of_processes if p == process] == list("01234")
