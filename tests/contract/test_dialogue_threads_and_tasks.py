"""Dialogues and attached components with threads, event loops, and the closing of a store."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from backends import Backend, Opener
from conftest import NewThreads
from contract.test_dialogues import ADA, RULES, begun, ended, on_disk

from collections_store import (
    AsyncStore,
    DialogueNotFound,
    DialoguesNotSaved,
    InvalidOption,
    Store,
    StoreClosed,
)
from collections_store.dialogues import (
    AsyncDialogues,
    AsyncDialogueStore,
    Dialogue,
    DialogueLabel,
    Dialogues,
    DialogueStore,
    Message,
    PlainCodec,
)
from collections_store.dialogues.aio import SharedLock
from collections_store.operations.operation import follow

HOUR = 3600.0


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """Call functions concurrently; return the exception of each, or None."""
    begin, outcomes = threading.Barrier(len(functions)), [None] * len(functions)

    def call(number: int) -> None:
        begin.wait()
        try:
            functions[number]()
        except Exception as error:  # noqa: BLE001 - the test checks it
            outcomes[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=call, args=(n,)) for n in range(len(functions))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads)
    return outcomes


def count_on(backend: Backend, part: str) -> int:
    with Store(backend.url, **backend.options) as store:
        return store[getattr(ADA, part)].count()


# -- event loops -----------------------------------------------------------------------------------


def test_messages_of_a_closed_loop_are_saved_by_a_teardown_in_another(
    shared_backend: Backend,
) -> None:
    for save in (HOUR, "teardown"):
        store = AsyncStore(shared_backend.url, **shared_backend.options)
        ada = AsyncDialogues(store, "ada", save=save)
        before = count_on(shared_backend, "active")
        asyncio.run(ada.create("bob", "ask"))
        asyncio.run(ada.create("bob", "ask"))
        asyncio.run(store.aclose())
        assert count_on(shared_backend, "active") == before + 2


def test_a_store_is_closed_from_another_loop_while_the_first_one_runs(
    shared_backend: Backend,
) -> None:
    store = AsyncStore(shared_backend.url, **shared_backend.options)
    ada = AsyncDialogues(store, "ada", save=HOUR)
    with running_loop() as loop:
        asyncio.run_coroutine_threadsafe(ada.create("bob", "ask"), loop).result(60)
        assert in_threads([lambda: asyncio.run(store.aclose())]) == [None]
    assert count_on(shared_backend, "active") == 1


def test_delayed_saving_outlives_the_loop_in_which_it_began(shared_backend: Backend) -> None:
    store = AsyncStore(shared_backend.url, **shared_backend.options)
    opener = Opener(shared_backend, "sync")
    ada = AsyncDialogues(store, "ada", save=0.05)
    asyncio.run(ada.setup())
    asyncio.run(ada.create("bob", "ask"))  # after the loop was closed
    opener.wait_for(lambda: count_on(shared_backend, "active") == 1)
    asyncio.run(ada.create("eve", "ask"))
    opener.wait_for(lambda: count_on(shared_backend, "active") == 2)
    asyncio.run(store.aclose())


def test_tasks_of_several_loops_write_to_the_same_dialogue(shared_backend: Backend) -> None:
    store = AsyncStore(shared_backend.url, **shared_backend.options)
    for save in ("message", 0.001):
        ada = AsyncDialogues(store, "ada", component=f"c {save}", save=save)
        _, dialogue = asyncio.run(ada.create("bob", "ask"))

        async def say(ada: Any = ada, dialogue: Any = dialogue) -> None:
            await asyncio.gather(*(ada.reply(dialogue, "x", n) for n in range(20)))
            await ada.find("messages.body", 3)

        assert in_threads([lambda say=say: asyncio.run(say())] * 3) == [None] * 3  # type: ignore[misc]
        assert [each.message_id for each in dialogue.messages] == list(range(1, 62))
        asyncio.run(ada.teardown())
        again = AsyncDialogues(store, "ada", component=f"c {save}")
        [found] = asyncio.run(again.find())
        assert found.messages == dialogue.messages
    asyncio.run(store.aclose())


def test_a_lock_is_granted_to_threads_and_tasks_in_order() -> None:
    async def main() -> list[str]:
        lock, order = SharedLock(), list[str]()

        async def task(name: str) -> None:
            async with lock:
                order.append(name)

        def thread() -> None:
            with lock:
                order.append("thread")

        async with lock:
            first = asyncio.create_task(task("first"))
            await asyncio.sleep(0)
            sleeper = threading.Thread(target=thread)
            sleeper.start()
            while len(lock._waiting) < 2:  # noqa: ASYNC110 - waits for a thread
                await asyncio.sleep(0.001)
            last = asyncio.create_task(task("last"))
            await asyncio.sleep(0)
        await asyncio.gather(first, last)
        sleeper.join()
        return order

    assert asyncio.run(main()) == ["first", "thread", "last"]


def test_a_cancelled_waiter_releases_the_lock() -> None:
    async def main() -> None:
        lock = SharedLock()

        async def task() -> None:
            async with lock:
                pass

        async with lock:
            waiting, other = asyncio.create_task(task()), asyncio.create_task(task())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        await other
        async with lock:
            passed_on = asyncio.create_task(task())
            await asyncio.sleep(0)
        passed_on.cancel()  # it was granted the lock, and is not notified yet
        await asyncio.wait([passed_on])
        async with lock:
            pass

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_task_whose_loop_was_closed_does_not_get_the_lock() -> None:
    lock = SharedLock()
    loop = asyncio.new_event_loop()
    lock.__enter__()
    waiting = loop.create_task(lock.__aenter__())
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    lock.release()
    with lock:
        pass


# -- teardown --------------------------------------------------------------------------------------


def test_background_saving_continues_after_a_failed_teardown(
    open_store: Opener, store: Any
) -> None:
    ada = open_store.dialogues(store, save=0.05)
    bad = begun(ada)
    bad.metadata["x"] = object()
    with pytest.raises(DialoguesNotSaved):
        ada.teardown()
    bad.metadata.clear()
    begun(ada, "eve")
    open_store.wait_for(lambda: len(on_disk(store, "active")) == 2)


def test_the_saving_thread_stops_when_the_store_is_closed(
    open_store: Opener, new_threads: NewThreads
) -> None:
    store = open_store()
    ada = open_store.dialogues(store, save=0.01)
    begun(ada).metadata["x"] = object()
    with pytest.raises(DialoguesNotSaved):
        store.close()
    open_store.wait_for(lambda: not [e for e in new_threads() if e.name.endswith("-dialogues")])


def test_no_message_is_accepted_after_a_teardown_that_failed_to_save(open_store: Opener) -> None:
    store = open_store()
    ada = open_store.dialogues(store, save="teardown")
    begun(ada).metadata["x"] = object()
    with pytest.raises(DialoguesNotSaved):
        store.close()
    with pytest.raises(StoreClosed):
        ada.create("eve", "ask")


def test_concurrent_teardowns(open_store: Opener, store: Any) -> None:
    for number in range(5):
        ada = open_store.dialogues(store, save=HOUR, component=f"c{number}")
        begun(ada)
        assert open_store.call_concurrently([(ada, "teardown")] * 8) == [None] * 8
        assert open_store.dialogues(store, component=f"c{number}").setup().active == 1


def test_a_method_that_waits_for_a_teardown_is_rejected(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        ada = Dialogues(store, "ada", save="teardown")
        outcomes: list[Any] = []

        def method() -> None:
            with pytest.raises(StoreClosed):
                ada.create("bob", "ask")
            outcomes.append("refused")

        thread = threading.Thread(target=method)
        with ada._locks:
            thread.start()
            thread.join(0.1)  # it reaches the wait
            follow(store.run, ada._manager.setup())
            follow(store.run, ada._manager.teardown())
        thread.join(60)
        assert outcomes == ["refused"]


# -- components of a store -------------------------------------------------------------------------


class Component:
    def __init__(self, teardown: Callable[[], Any] = lambda: None) -> None:
        self.teardown = teardown

    def setup(self) -> None:
        pass


def test_other_components_are_torn_down_after_an_interrupt(shared_backend: Backend) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def broken() -> None:
        raise ValueError("broken")

    store = Store(shared_backend.url, **shared_backend.options)
    Dialogues(store, "ada", save="teardown").create("bob", "ask")
    store.attach(Component(interrupted))
    store.attach(Component(broken))
    with pytest.raises(KeyboardInterrupt) as caught:
        store.close()
    assert "broken" in caught.value.__notes__[0]
    assert count_on(shared_backend, "active") == 1


def test_other_components_are_torn_down_after_a_cancellation(shared_backend: Backend) -> None:
    class Cancelled:
        async def setup(self) -> None: ...

        async def teardown(self) -> None:
            raise asyncio.CancelledError

    async def main() -> None:
        store = AsyncStore(shared_backend.url, **shared_backend.options)
        await AsyncDialogues(store, "ada", save="teardown").create("bob", "ask")
        store.attach(Cancelled())
        with pytest.raises(asyncio.CancelledError):
            await store.aclose()

    asyncio.run(main())
    assert count_on(shared_backend, "active") == 1


def test_components_attached_during_a_close_are_torn_down(open_store: Opener) -> None:
    store, seen = open_store(), list[str]()

    def teardown() -> None:
        seen.append("first")
        open_store.attach(store, Component(lambda: seen.append("second")))

    open_store.attach(store, Component(teardown))
    store.close()
    assert seen == ["first", "second"]


def test_nothing_is_attached_to_a_store_that_is_closed(open_store: Opener) -> None:
    for used in (False, True):
        store = open_store()
        if used:
            store["a"].put("1", 1)
        store.close()
        with pytest.raises(StoreClosed):
            open_store.attach(store, Component())
        with pytest.raises(StoreClosed):
            open_store.dialogues(store)


def test_objects_without_setup_and_teardown_cannot_be_attached(store: Any) -> None:
    for bad in (object(), None, Component, "text"):
        with pytest.raises(InvalidOption, match=r"option component: .*setup\(\) and teardown\(\)"):
            store.attach(bad)


def test_asynchronous_components_cannot_be_attached_to_a_synchronous_store() -> None:
    class Asynchronous:
        async def setup(self) -> None: ...

        async def teardown(self) -> None: ...

    with (
        Store("sqlite://") as store,
        pytest.raises(InvalidOption, match="attach it to an AsyncStore"),
    ):
        store.attach(Asynchronous())


def test_dialogues_reject_a_store_of_the_wrong_kind() -> None:
    codec = PlainCodec()
    makers: list[tuple[Any, str, list[Any]]] = [
        (Dialogues, "Store", [AsyncStore("sqlite://"), None, "sqlite://"]),
        (AsyncDialogues, "AsyncStore", [Store("sqlite://"), None]),
        (lambda s, a: DialogueStore(s, a, codec=codec), "Store", [AsyncStore("sqlite://"), None]),
        (lambda s, a: AsyncDialogueStore(s, a, codec=codec), "AsyncStore", [Store("sqlite://")]),
    ]
    for make, wanted, stores in makers:
        for each in stores:
            with pytest.raises(InvalidOption, match=f"option store: must be {wanted}, got"):
                make(each, "ada")


# -- concurrency -----------------------------------------------------------------------------------


def test_a_search_does_not_fail_because_of_another_dialogue(
    open_store: Opener, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ada = open_store.dialogues(store)
    bad, good = begun(ada), begun(ada, "eve")
    bad.metadata["x"] = object()
    good.metadata["a"] = 1
    assert ada.find("metadata.a", 1) == [good]
    assert bad.dialogue_label.key in caplog.text or "not saved" in caplog.text
    bad.metadata.clear()


def test_a_dialogue_purged_during_a_save_and_a_search_stays_deleted(
    open_store: Opener, store: Any
) -> None:
    ada = open_store.dialogues(store, rules=RULES)
    purging = SimpleNamespace(purge=partial(getattr(ada, "_target", ada).purge, kept=0))
    for number in range(10):
        dialogue = ended(ada, f"b{number}")
        dialogue.metadata["n"] = number
        label = dialogue.dialogue_label
        searches = [(ada, "find", "messages.performative", "ask")] * 4
        calls = [*searches, (ada, "save", dialogue), (purging, "purge"), *searches]
        for each in open_store.call_concurrently(calls):
            assert not isinstance(each, Exception) or isinstance(each, DialogueNotFound), each
        del dialogue, calls, each
        assert ada.get_dialogue_from_label(label) is None
        assert not on_disk(store, "terminal")


@pytest.mark.parametrize("variant", ["sync", "async"])
def test_a_dialogue_removed_during_a_save_leaves_no_message(variant: str, tmp_path: Path) -> None:
    opener = Opener(Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}"), variant)
    store = opener()
    for number in range(20):
        kept = opener.dialogue_store(store, codec=PlainCodec())
        label = DialogueLabel((f"{number}", ""), "bob", "ada")
        performatives = [
            Message("ask", 1, n, n - 1, (f"{number}", ""), "ada", "bob") for n in (1, 2)
        ]
        kept.save(Dialogue(label, "ada", "buyer", messages=performatives[:1]))
        longer = Dialogue(label, "ada", "buyer", messages=performatives)
        opener.call_concurrently([(kept, "save", longer), (kept, "remove", label)])
        assert len(on_disk(store, "messages")) in {0, 2 * len(on_disk(store, "active"))}
        kept.remove(label)
    opener.close()
