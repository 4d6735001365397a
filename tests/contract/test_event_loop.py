"""What the calls of an `AsyncStore` do in the thread of the event loop: next to nothing, whatever their arguments.

The measure is the CPU time of the loop's thread. The pauses of the loop are wall time, of all that the machine does. The
bound is a share of the CPU time of the process in the same call, so it holds on any machine; a call that takes too little
of that has no large arguments, and proves nothing.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_api import methods

from collections_store import (
    AsyncChangeDocumentStream,
    AsyncChangeStream,
    AsyncCollection,
    AsyncStore,
    AsyncTransaction,
    InsertOne,
    UpdateOne,
)
from collections_store.dialogues import (
    AsyncDialogues,
    AsyncDialogueStore,
    Dialogue,
    DialogueLabel,
    Message,
    PlainCodec,
)
from collections_store.memory import AsyncMemory
from collections_store.search.words import words_of

SHARE = 0.2
"""The share of the loop's thread in the CPU time of a call, at most. Small calls need more: a switch takes as long."""
ENOUGH = 0.003
"""Seconds of CPU time that a large call takes at least."""
CLASSES = (
    AsyncStore,
    AsyncTransaction,
    AsyncCollection,
    AsyncChangeStream,
    AsyncChangeDocumentStream,
    AsyncMemory,
    AsyncDialogues,
    AsyncDialogueStore,
)
LARGE = {f"field{n}": n for n in range(100_000)}
"""A body of 1.8 MB."""
MANY = [{"n": n, "name": f"number {n}", "tags": ["a", "b"]} for n in range(3000)]
IN = {"n": {"$in": list(range(20_000))}}
"""A filter that takes long to parse."""
IDS = [f"id{n}" for n in range(100_000)]
SET = {"$set": {f"field{n}": -n for n in range(10_000)}}
ADA = DialogueLabel(("1", ""), "bob", "ada")


@dataclass
class Here:
    """What the calls use. `large` has documents of the body `LARGE`, `many` those of `MANY`."""

    store: AsyncStore
    path: Path

    @property
    def large(self) -> AsyncCollection:
        return self.store["large"]

    @property
    def many(self) -> AsyncCollection:
        return self.store["many"]

    @property
    def memory(self) -> AsyncMemory:
        return self.store.memory("bot")


Call = Callable[[Here], Awaitable[Any]]


async def edit(here: Here) -> None:
    async with here.large.edit("edited") as body:
        body["field1"] = "changed"


async def change(here: Here) -> Any:
    return await here.large.change("edited", lambda body: {**body, "field2": "changed"})


async def search(here: Here) -> Any:
    await here.many.create_text_index("name")
    return await here.many.search("number", filter=IN, limit=1000, highlight=True)


async def nearest(here: Here) -> Any:
    return await here.many.nearest([1.0], filter=IN)


async def stream(here: Here) -> list[Any]:
    return [document async for document in here.many.stream(IN, sort="n")]


async def stream_aggregate(here: Here) -> list[Any]:
    return [each async for each in here.many.stream_aggregate([{"$match": IN}])]


async def bulk_write(here: Here) -> Any:
    requests = [
        UpdateOne({"$id": f"{n}"}, {"$set": body}, upsert=True) for n, body in enumerate(MANY)
    ]
    return await here.store["bulk"].bulk_write([*requests, InsertOne(LARGE)])


async def upgrade_documents(here: Here) -> Any:
    await here.store["old"].put_many({str(n): body for n, body in enumerate(MANY)})
    upgrades = {1: lambda body: {**body, "new": True}}
    old = here.store.collection("old", schema_version=2, upgrades=upgrades)
    return await old.upgrade_documents()


async def watch(here: Here) -> Any:
    changing = here.store.collection("changing", changes="both")
    await changing.put("a", LARGE)
    async with changing.watch({"field1": {"$in": IDS}}, after="oldest", timeout=0) as changes:
        return [change async for change in changes]


async def try_next(here: Here) -> Any:
    changing = here.store.collection("changing", changes="both")
    await changing.put("a", LARGE)
    stream = changing.watch({"field1": {"$in": IDS}}, after="oldest", timeout=0)
    return await stream.try_next()


WATCHED = [{"$match": {"fullDocument.field1": {"$in": IDS}}}]


async def watch_documents(here: Here) -> Any:
    changing = here.store.collection("changing", changes="both")
    await changing.put("a", LARGE)
    async with here.store.watch(pipeline=WATCHED, after="oldest", timeout=0) as changes:
        return [change async for change in changes]


async def try_next_document(here: Here) -> Any:
    changing = here.store.collection("changing", changes="both")
    await changing.put("a", LARGE)
    return await changing.watch(pipeline=WATCHED, after="oldest", timeout=0).try_next()


async def within_transaction(here: Here) -> None:
    async with here.store.transaction() as tx:
        await tx["large"].put("b", LARGE)
        await tx["many"].find(IN)
        await tx["large"].get("b")


async def run_transaction(here: Here) -> Any:
    async def write(tx: AsyncTransaction) -> None:
        await tx["large"].put("b", LARGE)
        await tx["large"].get("b")

    return await here.store.run_transaction(write)


async def savepoint(here: Here) -> None:
    async with here.store.transaction() as tx, tx.transaction() as part:
        await part["large"].put("b", LARGE)
        await part["large"].get("b")


async def backup(here: Here) -> None:
    await here.store.backup(here.path / "backup.db")


async def restore(here: Here) -> None:
    await backup(here)
    async with AsyncStore(f"sqlite:///{here.path / 'restored.db'}") as other:
        await other.restore(here.path / "backup.db")


async def copy_to(here: Here) -> None:
    async with AsyncStore(f"sqlite:///{here.path / 'copy.db'}") as other:
        await here.store.copy_to(other)


async def memory_change(here: Here) -> Any:
    await here.memory.put("changed", LARGE)
    return await here.memory.change("changed", lambda value: {**value, "more": 1})


async def memory_transaction(here: Here) -> None:
    async with here.memory.transaction() as memory:
        await memory.put("c", LARGE)


async def memory_search(here: Here) -> Any:
    await here.memory.collection.create_text_index("$body")
    return await here.memory.search("document")


async def memory_watch(here: Here) -> Any:
    memory = here.store.memory("watched")
    await memory.configure(changes="after")
    await memory.put("a", LARGE)
    async with memory.watch(after="oldest", timeout=0) as changes:
        return [change async for change in changes]


async def converse(here: Here) -> None:
    """Create, update, reply, save, reload, find, search and finish with large bodies."""
    ada, bob = AsyncDialogues(here.store, "ada"), AsyncDialogues(here.store, "bob")
    message, _ = await ada.create("bob", "ask", LARGE)
    theirs = await bob.update(message)
    answer = await bob.reply(theirs, "tell", LARGE)
    found = await ada.update(answer)
    await ada.save(found)
    await ada.find(IN)
    await ada.message_collection.create_text_index("$body")
    await ada.search("document")
    await ada.messages(found.dialogue_label)
    reloaded = await ada.reload(found.dialogue_label)
    assert reloaded is not None
    await ada.finish(reloaded)


async def keep_dialogues(here: Here) -> list[Any]:
    """Save, restore, get and find with large bodies."""
    kept = AsyncDialogueStore(here.store, "carl", codec=PlainCodec())
    messages = [Message("ask", LARGE, 1, 0, ("1", ""), "carl", "bob")]
    dialogue = Dialogue(DialogueLabel(("1", ""), "bob", "carl"), "carl", "buyer", messages=messages)
    await kept.save(dialogue)
    await kept.find(IN)
    await kept.message_collection.create_text_index("$body")
    await kept.search("document")
    await kept.messages(dialogue.dialogue_label)
    return [await kept.get(dialogue.dialogue_label), *[each async for each in kept.restore()]]


CALLS: dict[str, Call] = {
    "AsyncCollection.put": lambda here: here.large.put("b", LARGE),
    "AsyncCollection.get": lambda here: here.large.get("a"),
    "AsyncCollection.document": lambda here: here.large.document("a"),
    "AsyncCollection.put_many": lambda here: here.store["new"].put_many(
        {str(n): body for n, body in enumerate(MANY)}
    ),
    "AsyncCollection.insert_one": lambda here: here.large.insert_one(LARGE),
    "AsyncCollection.insert_many": lambda here: here.store["new"].insert_many(MANY, atomic=True),
    "AsyncCollection.bulk_write": bulk_write,
    "AsyncCollection.update": lambda here: here.large.update("b", SET),
    "AsyncCollection.update_one": lambda here: here.large.update_one({"$id": "b"}, SET),
    "AsyncCollection.update_many": lambda here: here.many.update_many(IN, {"$set": {"m": 1}}),
    "AsyncCollection.replace_one": lambda here: here.large.replace_one({"$id": "b"}, LARGE),
    "AsyncCollection.find_one_and_update": lambda here: here.many.find_one_and_update(
        IN, {"$inc": {"m": 1}}
    ),
    "AsyncCollection.find_one_and_replace": lambda here: here.large.find_one_and_replace(
        {"$id": "b"}, LARGE
    ),
    "AsyncCollection.find_one_and_delete": lambda here: here.many.find_one_and_delete(IN),
    "AsyncCollection.change": change,
    "AsyncCollection.edit": edit,
    "AsyncCollection.get_many": lambda here: here.many.get_many(IDS),
    "AsyncCollection.remove_many": lambda here: here.many.remove_many(id for id in IDS),
    "AsyncCollection.list": lambda here: here.many.list(),
    "AsyncCollection.find": lambda here: here.many.find(IN),
    "AsyncCollection.find_one": lambda here: here.many.find_one(IN),
    "AsyncCollection.page": lambda here: here.many.page(IN, limit=1000),
    "AsyncCollection.search": search,
    "AsyncCollection.nearest": nearest,
    "AsyncCollection.count": lambda here: here.many.count(IN),
    "AsyncCollection.id_prefixes": lambda here: here.many.id_prefixes("0"),
    "AsyncCollection.distinct": lambda here: here.many.distinct("name", IN),
    "AsyncCollection.delete_one": lambda here: here.many.delete_one(IN),
    "AsyncCollection.delete_many": lambda here: here.store["none"].delete_many(IN),
    "AsyncCollection.explain": lambda here: here.many.explain(IN),
    "AsyncCollection.aggregate": lambda here: here.many.aggregate([{"$match": IN}]),
    "AsyncCollection.explain_aggregate": lambda here: here.many.explain_aggregate([{"$match": IN}]),
    "AsyncCollection.stream": stream,
    "AsyncCollection.stream_aggregate": stream_aggregate,
    "AsyncCollection.upgrade_documents": upgrade_documents,
    "AsyncCollection.watch": watch,
    "AsyncChangeStream.try_next": try_next,
    "AsyncStore.watch": watch_documents,
    "AsyncChangeDocumentStream.try_next": try_next_document,
    "AsyncTransaction.run": within_transaction,
    "AsyncTransaction.transaction": savepoint,
    "AsyncStore.transaction": within_transaction,
    "AsyncStore.run_transaction": run_transaction,
    "AsyncStore.backup": backup,
    "AsyncStore.restore": restore,
    "AsyncStore.copy_to": copy_to,
    "AsyncMemory.put": lambda here: here.memory.put("b", LARGE),
    "AsyncMemory.get": lambda here: here.memory.get("a"),
    "AsyncMemory.fetch": lambda here: here.memory.fetch("a"),
    "AsyncMemory.change": memory_change,
    "AsyncMemory.transaction": memory_transaction,
    "AsyncMemory.put_many": lambda here: here.memory.put_many(
        {str(n): body for n, body in enumerate(MANY)}
    ),
    "AsyncMemory.get_many": lambda here: here.memory.get_many(IDS),
    "AsyncMemory.delete_many": lambda here: here.memory.delete_many(IDS),
    "AsyncMemory.items": lambda here: here.memory.items(limit=None),
    "AsyncMemory.find": lambda here: here.memory.find(IN),
    "AsyncMemory.search": memory_search,
    "AsyncMemory.delete": lambda here: here.memory.delete("b"),
    "AsyncMemory.pop": lambda here: here.memory.pop("a"),
    "AsyncMemory.watch": memory_watch,
}
for _name in (
    "create",
    "find",
    "finish",
    "messages",
    "reload",
    "reply",
    "save",
    "search",
    "update",
):
    CALLS[f"AsyncDialogues.{_name}"] = converse
for _name in ("find", "get", "messages", "restore", "save", "search"):
    CALLS[f"AsyncDialogueStore.{_name}"] = keep_dialogues

SMALL = {
    "AsyncStore": "aclose attach bind collection collections create_collection drop get_collection health "
    "get_sync_collection memory model rename run skill_memory stats",
    "AsyncTransaction": "collection collections create_collection drop get_collection memory rename skill_memory",
    "AsyncCollection": "create_index create_text_index create_vector_index drop_index exists hide_index increment indexes "
    "purge_expired reindex remove search_backlog store_vectors touch unhide_index with_options",
    "AsyncChangeStream": "aclose",
    "AsyncChangeDocumentStream": "aclose",
    "AsyncMemory": "clear configure count end expire increment keys namespace request session touch ttl",
    "AsyncDialogues": "get_dialogue get_dialogue_from_label get_dialogues_with_counterparty purge quarantined "
    "remove restore_quarantined setup teardown",
    "AsyncDialogueStore": "get_dialogues_with_counterparty is_known purge quarantined remove restore_quarantined",
}
"""Methods that take names, ids, numbers and options, or read what another method of `CALLS` reads by the same way."""

CASES = {call: name for name, call in CALLS.items()}
"""Each call once."""


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def here(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    path = tmp_path_factory.mktemp("loop")
    here = Here(AsyncStore(f"sqlite:///{path / 'store.db'}"), path)

    async def prepare() -> None:
        await here.large.put_many((id, LARGE) for id in ("a", "b", "edited"))
        await here.many.put_many((str(n), body) for n, body in enumerate(MANY))
        await here.memory.put_many({"a": LARGE, "b": LARGE})
        await here.many.create_vector_index("at", dimensions=1)
        await here.many.nearest([1.0])  # imports numpy, once for the process

    runner.run(prepare())
    words_of("warm")  # makes a table, once for the process
    yield here
    runner.run(here.store.aclose())


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Let no thread collect the garbage of the others."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_each_public_method_has_a_case() -> None:
    small = {f"{kind}.{name}" for kind, names in SMALL.items() for name in names.split()}
    public = {f"{kind.__name__}.{name}" for kind in CLASSES for name in methods(kind)}
    assert not small & CALLS.keys()
    assert small | CALLS.keys() == public


@pytest.mark.parametrize("call", CASES, ids=CASES.values())
def test_the_loop_computes_next_to_nothing(call: Call, here: Here, runner: asyncio.Runner) -> None:
    async def measured() -> tuple[float, float]:
        process, loop = time.process_time(), time.thread_time()
        result = await call(here)
        spent = time.thread_time() - loop, time.process_time() - process
        del result
        return spent

    with without_garbage_collection():
        in_loop, in_all = runner.run(measured())
    assert in_all > ENOUGH
    assert in_loop < SHARE * in_all
