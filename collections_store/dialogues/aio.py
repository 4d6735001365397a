"""Dialogues for asyncio: `AsyncDialogues`, `AsyncDialogueStore`, and their locks.

Each method runs the same procedure as its sync counterpart, in a worker thread of the store. A cancelled call continues to
its end, and `was_committed` returns whether the call succeeded.

Rules of the locks:

1. A released lock goes directly to the longest waiter, in any thread or event loop.
2. A task waits without blocking its event loop; a thread sleeps.
3. A waiter that is cancelled, or whose event loop is closed, passes the lock on.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from ..aio.bridge import compute, follow, nothing_written, run_uncancellably
from ..aio.store import AsyncStore
from ..operations.operation import Steps
from ..operations.operation import follow as follow_sync
from .cache import StripedLocks
from .dialogues import JOIN_TIMEOUT, PAGE, BaseDialogues, BaseDialogueStore, parts_of
from .manager import Restored
from .model import ENDED, Dialogue, DialogueLabel, Message
from .records import Quarantined

D = TypeVar("D")
T = TypeVar("T")
Wake: TypeAlias = Callable[[], object]


class SharedLock:
    """A lock for threads (`with`) and for tasks (`async with`)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_locked = False
        self._waiting: deque[Wake] = deque()

    def __enter__(self) -> None:
        woken = threading.Event()
        if self._acquire(woken.set):
            return
        try:
            woken.wait()
        except BaseException:
            self._give_up(woken.set)
            raise

    def __exit__(self, *_: object) -> None:
        self.release()

    async def __aenter__(self) -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        if self._acquire(wake):
            return
        try:
            await woken.wait()
        except BaseException:
            self._give_up(wake)
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Pass the lock to the next waiter, or unlock."""
        while True:
            with self._guard:
                if not self._waiting:
                    self._is_locked = False
                    return
                wake = self._waiting.popleft()
            with suppress(RuntimeError):  # its event loop is closed
                wake()
                return

    def _acquire(self, wake: Wake) -> bool:
        """Return whether the lock was free; otherwise `wake` is called when the lock is passed on."""
        with self._guard:
            if self._is_locked:
                self._waiting.append(wake)
                return False
            self._is_locked = True
            return True

    def _give_up(self, wake: Wake) -> None:
        with self._guard:
            if wake in self._waiting:
                self._waiting.remove(wake)
                return
        self.release()  # the lock was passed on already


class SharedLocks(StripedLocks[SharedLock]):
    """`SharedLock`s for groups of dialogues."""

    def __init__(self) -> None:
        super().__init__(SharedLock)

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as taken:
            for lock in self._locks:
                await taken.enter_async_context(lock)
            taken.pop_all()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


class AsyncDialogueStore(BaseDialogueStore[AsyncStore, D]):
    """`DialogueStore` for asyncio.

    >>> from collections_store import AsyncStore
    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         dialogues = AsyncDialogueStore(store, "ada", codec=PlainCodec())
    ...         dialogue = Dialogue(DialogueLabel(("7f", ""), "bob", "ada"), "ada", "buyer")
    ...         await dialogues.save(dialogue)
    ...         return [each.role async for each in dialogues.restore()]
    >>> asyncio.run(main())
    ['buyer']
    """

    _STORE, _LOCK = AsyncStore, SharedLock

    async def save(self, *dialogues: D) -> int:
        """Async counterpart of `DialogueStore.save`."""
        async with self._lock:
            await self._run(self._repository.settle())
            return await self._run(self._repository.save(dialogues), dialogues)

    async def restore(self, *, terminal: bool = False) -> AsyncIterator[D]:
        """Async counterpart of `DialogueStore.restore`. Iterate with `async for`."""
        after: str | None = ""
        while after is not None:
            found, after = await self._run(self._repository.restore(after, is_terminal=terminal))
            for each in found:
                yield each

    async def get(self, label: DialogueLabel) -> D | None:
        """Async counterpart of `DialogueStore.get`."""
        return await self._run(self._lookup.get(label))

    async def remove(self, label: DialogueLabel, *, remember: bool = False) -> bool:
        """Async counterpart of `DialogueStore.remove`."""
        async with self._lock:
            return await self._run(self._repository.remove(label, remember=remember))

    async def is_known(self, label: DialogueLabel) -> bool:
        """Async counterpart of `DialogueStore.is_known`."""
        if not self._repository.is_settled:
            async with self._lock:
                await self._run(self._repository.settle())
        return await self._run(self._repository.is_known(label))

    async def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool = False,
        limit: int | None = None,
    ) -> list[D]:
        """Async counterpart of `DialogueStore.find`."""
        return await self._run(await compute(self._lookup.find, filter, equals, limit, terminal))

    async def get_dialogues_with_counterparty(self, address: str) -> list[D]:
        """Async counterpart of `DialogueStore.get_dialogues_with_counterparty`."""
        return await self._run(self._lookup.with_counterparty(address))

    async def messages(
        self, label: DialogueLabel, *, after: int = 0, limit: int = PAGE
    ) -> list[Any]:
        """Async counterpart of `DialogueStore.messages`."""
        return await self._run(self._repository.messages(label, after, limit))

    async def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Async counterpart of `DialogueStore.purge`."""
        return sum((await self._run(self._lookup.purge(ttl, kept))).values())

    async def restore_quarantined(self) -> list[D]:
        """Async counterpart of `DialogueStore.restore_quarantined`."""
        async with self._lock:
            return await self._run(self._repository.restore_quarantined())

    async def quarantined(self) -> list[Quarantined]:
        """Async counterpart of `DialogueStore.quarantined`."""
        return await self._run(self._repository.quarantined())

    async def _run(self, steps: Steps[T], *arguments: Any) -> T:
        return await run_uncancellably(follow(self._store.run, steps, *arguments))


class AsyncDialogues(BaseDialogues[AsyncStore]):
    """`Dialogues` for asyncio: the same options, any number of tasks and event loops. With `save=seconds` a thread
    saves, because a task would end with its event loop.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         ada, bob = AsyncDialogues(store, "ada"), AsyncDialogues(store, "bob")
    ...         question, dialogue = await ada.create("bob", "ask", {"text": "What time is it?"})
    ...         answer = await bob.reply(await bob.update(question), "tell", {"text": "Four."})
    ...         return [each.body["text"] for each in (await ada.update(answer)).messages]
    >>> asyncio.run(main())
    ['What time is it?', 'Four.']
    """

    _STORE, _LOCKS = AsyncStore, SharedLocks

    async def setup(self) -> Restored:
        """Async counterpart of `Dialogues.setup`."""
        async with self._locks:
            return await self._set_up()

    async def teardown(self) -> None:
        """Async counterpart of `Dialogues.teardown`."""
        async with self._locks:
            await self._follow(self._manager.teardown())
            saver, self._saver = self._saver, None
        if saver is not None:
            saver.stop()
            await asyncio.to_thread(saver.join, JOIN_TIMEOUT)

    async def create(
        self, counterparty: str, performative: str, body: Any = None
    ) -> tuple[Message, Dialogue]:
        """Async counterpart of `Dialogues.create`."""
        label = self._manager.new_label(counterparty)
        return await self._run(self._manager.create(label, performative, body), label, body)

    async def update(self, message: Message) -> Dialogue:
        """Async counterpart of `Dialogues.update`."""
        return await self._run(self._manager.update(message), message, message)

    async def reply(
        self, dialogue: Dialogue, performative: str, body: Any = None, *, target: int | None = None
    ) -> Message:
        """Async counterpart of `Dialogues.reply`."""
        steps = self._manager.reply(dialogue, performative, body, target)
        return await self._run(steps, dialogue, body)

    async def finish(self, dialogue: Dialogue, state: str = ENDED) -> None:
        """Async counterpart of `Dialogues.finish`."""
        await self._run(self._manager.finish(dialogue, state), dialogue)

    async def save(self, dialogue: Dialogue) -> None:
        """Async counterpart of `Dialogues.save`."""
        await self._run(self._manager.save(dialogue), dialogue, dialogue)

    async def reload(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Async counterpart of `Dialogues.reload`."""
        return await self._run(self._manager.reload(dialogue_label), dialogue_label)

    async def remove(self, dialogue_label: DialogueLabel) -> bool:
        """Async counterpart of `Dialogues.remove`."""
        return await self._run_within(self._locks, self._manager.remove(dialogue_label))

    async def get_dialogue(self, message: Message) -> Dialogue | None:
        """Async counterpart of `Dialogues.get_dialogue`."""
        return await self._run(self._manager.get_dialogue(message), message)

    async def get_dialogue_from_label(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Async counterpart of `Dialogues.get_dialogue_from_label`."""
        return await self._run(self._manager.get(dialogue_label), dialogue_label)

    async def get_dialogues_with_counterparty(self, counterparty: str) -> list[Dialogue]:
        """Async counterpart of `Dialogues.get_dialogues_with_counterparty`."""
        return await self._run(self._manager.with_counterparty(counterparty))

    async def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool | None = None,
        limit: int | None = None,
    ) -> list[Dialogue]:
        """Async counterpart of `Dialogues.find`."""
        steps = await compute(self._manager.find, filter, equals, limit, *parts_of(terminal))
        if not self._manager.is_flushed():
            async with self._locks:
                await self._follow(self._manager.flush())
        return await self._run(steps)

    async def messages(
        self, dialogue_label: DialogueLabel, *, after: int = 0, limit: int = PAGE
    ) -> list[Message]:
        """Async counterpart of `Dialogues.messages`."""
        return await self._run(self._manager.messages(dialogue_label, after, limit))

    async def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Async counterpart of `Dialogues.purge`."""
        purged = await self._run_within(self._locks, self._manager.purge(ttl, kept))
        return sum(purged.values())

    async def restore_quarantined(self) -> list[Dialogue]:
        """Async counterpart of `Dialogues.restore_quarantined`."""
        return await self._run_within(self._locks, self._manager.restore_quarantined())

    async def quarantined(self) -> list[Quarantined]:
        """Async counterpart of `Dialogues.quarantined`."""
        return await self._run(self._manager.repository.quarantined())

    async def _run(self, steps: Steps[T], subject: Any = None, *arguments: Any) -> T:
        return await self._run_within(self._lock_of(subject), steps, *arguments)

    async def _run_within(
        self, lock: SharedLock | SharedLocks, steps: Steps[T], *arguments: Any
    ) -> T:
        while True:
            with nothing_written():
                await self._prepare()
                await lock.__aenter__()
            try:
                if self._manager.is_set_up:  # another task may have torn it down
                    return await self._follow(steps, *arguments)
            finally:
                await lock.__aexit__()

    async def _prepare(self) -> None:
        self._manager.check_open(self._store.core.closed)
        if not self._manager.is_set_up:
            async with self._locks:
                self._manager.check_open(None)  # another task may have torn it down
                await self._set_up()
        if self._manager.cache.excess():
            async with self._locks:
                await self._follow(self._manager.evict())

    async def _set_up(self) -> Restored:
        try:
            return await self._follow(self._manager.setup())
        finally:
            self._start_saving()

    async def _follow(self, steps: Steps[T], *arguments: Any) -> T:
        return await run_uncancellably(follow(self._store.run, steps, *arguments))

    def _save_in_background(self) -> bool:
        store = self._store
        if store.core.closed is None and not self._manager.is_flushed():
            with self._locks:
                follow_sync(store.core.run, self._manager.flush())
        return store.core.closed is None
