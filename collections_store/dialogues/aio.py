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
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ..aio.bridge import compute, counterpart, follow, nothing_written, run_uncancellably
from ..aio.collection import AsyncCollection
from ..aio.store import AsyncStore
from ..operations.operation import Steps
from .cache import StripedLocks
from .dialogues import (
    JOIN_TIMEOUT,
    BaseDialogues,
    BaseDialogueStore,
    Dialogues,
    DialogueStore,
    parts_of,
)
from .manager import Restored
from .model import Dialogue
from .records import FoundDialogue

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

    save: Final = counterpart(DialogueStore[D].save)
    get: Final = counterpart(DialogueStore[D].get)
    remove: Final = counterpart(DialogueStore[D].remove)
    is_known: Final = counterpart(DialogueStore[D].is_known)
    find: Final = counterpart(DialogueStore[D].find, prepares=True)
    get_dialogues_with_counterparty: Final = counterpart(
        DialogueStore[D].get_dialogues_with_counterparty
    )
    messages: Final = counterpart(DialogueStore[D].messages)
    purge: Final = counterpart(DialogueStore[D].purge)
    restore_quarantined: Final = counterpart(DialogueStore[D].restore_quarantined)
    quarantined: Final = counterpart(DialogueStore[D].quarantined)

    @property
    def message_collection(self) -> AsyncCollection[Any]:
        """Async counterpart of `DialogueStore.message_collection`."""
        return self._store.collection(self._repository.names.messages)

    search: Final = counterpart(DialogueStore[D].search)

    async def restore(self, *, terminal: bool = False) -> AsyncIterator[D]:
        """Async counterpart of `DialogueStore.restore`. Iterate with `async for`."""
        after: str | None = ""
        while after is not None:
            steps = self._repository.restore(after, is_terminal=terminal)
            found, after = await self._run(steps)
            for each in found:
                yield each

    async def _run(self, steps: Steps[T], *arguments: Any) -> T:
        return await run_uncancellably(follow(self._store.run, steps, *arguments))

    async def _run_locked(self, steps: Steps[T], *arguments: Any) -> T:
        async with self._lock:
            return await self._run(steps, *arguments)


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

    create: Final = counterpart(Dialogues.create)
    update: Final = counterpart(Dialogues.update)
    reply: Final = counterpart(Dialogues.reply)
    finish: Final = counterpart(Dialogues.finish)
    save: Final = counterpart(Dialogues.save)
    reload: Final = counterpart(Dialogues.reload)
    remove: Final = counterpart(Dialogues.remove)
    get_dialogue: Final = counterpart(Dialogues.get_dialogue)
    get_dialogue_from_label: Final = counterpart(Dialogues.get_dialogue_from_label)
    get_dialogues_with_counterparty: Final = counterpart(Dialogues.get_dialogues_with_counterparty)
    messages: Final = counterpart(Dialogues.messages)
    purge: Final = counterpart(Dialogues.purge)
    restore_quarantined: Final = counterpart(Dialogues.restore_quarantined)
    quarantined: Final = counterpart(Dialogues.quarantined)

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
        await self._flush()
        return await self._run(steps)

    @property
    def message_collection(self) -> AsyncCollection[Any]:
        """Async counterpart of `Dialogues.message_collection`."""
        return self._store.collection(self._manager.repository.names.messages)

    async def search(
        self,
        query: str,
        *,
        terminal: bool | None = None,
        limit: int = 10,
        highlight: bool | tuple[str, str] = False,
        match: Literal["all", "any"] = "all",
    ) -> list[FoundDialogue[Dialogue]]:
        """Async counterpart of `Dialogues.search`."""
        steps = self._manager.search(query, match, limit, highlight, *parts_of(terminal))
        await self._flush()
        return await self._run(steps)

    async def _flush(self) -> None:
        if not self._manager.is_flushed():
            async with self._locks:
                await self._follow(self._manager.flush())

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
        if self._manager.cache.has_excess:
            async with self._locks:
                await self._follow(self._manager.evict())

    async def _set_up(self) -> Restored:
        try:
            return await self._follow(self._manager.setup())
        finally:
            self._start_saving()

    async def _follow(self, steps: Steps[T], *arguments: Any) -> T:
        return await run_uncancellably(follow(self._store.run, steps, *arguments))
