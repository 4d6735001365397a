"""Dialogues for asyncio: `AsyncDialogues`, `AsyncDialogueStore`, and the locks of tasks.

A lock goes straight to who has waited longest. A task waits in its event loop, which is never blocked; a
thread sleeps.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from ..aio.bridge import follow, unwritten, whole
from ..aio.store import AsyncStore
from ..document import read_ttl
from ..engine.workers import Background
from ..errors import StoreClosed
from ..operations.combine import Steps
from ..operations.combine import follow as follow_here
from ..options import check_count, check_flag
from ..query.filter import Filter
from .dialogues import PAGE, PATIENCE, keeper_of, saver, saving
from .locks import Locks
from .manager import (
    Container,
    Restored,
    RoleOf,
    Save,
    check_store,
    options_of,
    read_save,
    starter_or_responder,
)
from .model import ENDED, Dialogue, DialogueLabel, Message, Rules
from .records import DialogueCodec, DialogueNamespace, PlainCodec
from .repository import Quarantined

Wake: TypeAlias = Callable[[], object]


class SharedLock:
    """A lock for threads (`with`) and for tasks (`async with`)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._waiting: deque[Wake] = deque()

    def __enter__(self) -> None:
        woken = threading.Event()
        wake = woken.set
        if self._is_mine(wake):
            return
        try:
            woken.wait()
        except BaseException:
            self._give_up(wake)
            raise

    def __exit__(self, *_: object) -> None:
        self.release()

    async def __aenter__(self) -> None:
        waiter = _Waiter()
        if self._is_mine(waiter):
            return
        try:
            await waiter.woken
        except BaseException:
            self._give_up(waiter)
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Pass it on. Those whose event loop was closed wait no more."""
        while (wake := self._next()) is not None:
            try:
                wake()
            except RuntimeError:
                continue
            return

    def _is_mine(self, wake: Wake) -> bool:
        """Take the lock if it is free; otherwise have it passed on by calling `wake`."""
        with self._guard:
            if self._is_held:
                self._waiting.append(wake)
                return False
            self._is_held = True
            return True

    def _next(self) -> Wake | None:
        """Return who has the lock now; None: nobody."""
        with self._guard:
            if self._waiting:
                return self._waiting.popleft()
            self._is_held = False
            return None

    def _give_up(self, wake: Wake) -> None:
        with self._guard:
            try:
                self._waiting.remove(wake)
            except ValueError:
                pass  # it was passed on already
            else:
                return
        self.release()


class _Waiter:
    """A task that waits; calling this, in any thread, wakes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.woken: asyncio.Future[None] = self._loop.create_future()

    def __call__(self) -> None:
        self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class SharedLocks(Locks[SharedLock]):
    """Such locks for groups of dialogues."""

    def __init__(self) -> None:
        super().__init__(SharedLock)

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as taken:
            for lock in self._locks:
                await taken.enter_async_context(lock)
            taken.pop_all()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


D = TypeVar("D")
T = TypeVar("T")


class AsyncDialogueStore(Generic[D]):
    """Keeps dialogues of any class in collections of a store; `codec` takes them apart.

    `agent` and `component` say whose they are: others have collections of their own. Dialogues that have
    ended are kept apart from those that go on. It holds no dialogue in memory; `Dialogues` does.

    >>> from collections_store import AsyncStore
    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         kept = AsyncDialogueStore(store, "ada", codec=PlainCodec())
    ...         dialogue = Dialogue(DialogueLabel(("7f", ""), "bob", "ada"), "ada", "buyer")
    ...         await kept.save(dialogue)
    ...         return [each.role async for each in kept.restore()]
    >>> asyncio.run(main())
    ['buyer']
    """

    def __init__(
        self,
        store: AsyncStore,
        agent: str,
        component: str = "dialogues",
        *,
        codec: DialogueCodec[D],
    ) -> None:
        self._store = check_store(store, AsyncStore)
        self._keeper = keeper_of(store._store, DialogueNamespace(agent, component), codec)
        self._lock = SharedLock()

    async def save(self, *dialogues: D) -> int:
        """Write what is new of dialogues, in one transaction; returns of how many there was anything.

        Of a dialogue that was saved before these are the messages since, and the header if it has changed.
        One that has ended moves to the terminal ones. What cannot be taken apart or stored, and what
        somebody else wrote to (`DialogueConflict`), keeps none of the others from being saved:
        `DialoguesNotSaved` is raised in the end, and tells which and why.
        """
        async with self._lock:
            await self._do(self._keeper.settle())
            return await self._do(self._keeper.save(dialogues))

    async def restore(self, *, terminal: bool = False) -> AsyncIterator[D]:
        """Yield the dialogues that go on, or those that have ended, some at a time.

        A record of which none can be made is put aside, with a line in the log of `collections_store`;
        see `quarantined`.
        """
        after, more = "", True
        while more:
            found, after = await self._do(
                self._keeper.restore(after, is_terminal=check_flag("terminal", terminal))
            )
            for each in found:
                yield each
            more = after != ""

    async def get(self, label: DialogueLabel) -> D | None:
        """Return the dialogue with a label, complete or not; None: there is none."""
        return await self._do(self._keeper.get([label], note=True))

    async def remove(self, label: DialogueLabel, *, remember: bool = False) -> bool:
        """Delete a dialogue; returns whether it was there. `remember` it: then `is_known` is true for
        ever.
        """
        async with self._lock:
            return await self._do(self._keeper.remove(label, remember=remember))

    async def is_known(self, label: DialogueLabel) -> bool:
        """Is there a dialogue with that label, complete or not, or was there one that is remembered?"""
        if not self._keeper.is_settled:
            async with self._lock:
                await self._do(self._keeper.settle())
        return await self._do(self._keeper.is_known(label))

    async def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool = False,
        limit: int | None = None,
    ) -> list[D]:
        """Return the dialogues that match, of those that go on or of those that have ended, in the order
        in which they did.

        To the filter a dialogue is its header (`dialogue_label`, `role`, `state`, `metadata` …) with
        `messages`, an array. Raises `InvalidFilter`.
        """
        asked = Filter.parse(filter, equals, self._keeper.recorder.rules)
        some = None if limit is None else check_count("limit", limit)
        return await self._do(
            self._keeper.find(asked, some, is_terminal=check_flag("terminal", terminal))
        )

    async def get_dialogues_with_counterparty(self, address: str) -> list[D]:
        """Return the dialogues with an address: those that go on, then those that have ended."""
        steps = (self._keeper.with_counterparty(address, is_terminal=e) for e in (False, True))
        return [each for some in steps for each in await self._do(some)]

    async def messages(
        self, label: DialogueLabel, *, after: int = 0, limit: int = PAGE
    ) -> list[Any]:
        """Return messages of a dialogue as JSON: up to `limit` past the first `after`."""
        window = check_count("after", after), check_count("limit", limit)
        return await self._do(self._keeper.messages(label, *window))

    async def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Delete dialogues that ended more than `ttl` ago (seconds, or a timedelta), and the oldest that
        are more than `kept`; returns how many.
        """
        many = None if kept is None else check_count("kept", kept)
        gone = await self._do(self._keeper.purge(read_ttl(ttl) or None, many))
        return sum(gone.values())

    async def restore_quarantined(self) -> list[D]:
        """Put the records that were put aside back where they were, and return the dialogues of those that can be
        read by now: after an update, say. The others are put aside again, and one whose dialogue has begun
        anew stays aside.
        """
        async with self._lock:
            return await self._do(self._keeper.restore_quarantined())

    async def quarantined(self) -> list[Quarantined]:
        """Return the records that were put aside, in that order."""
        return await self._do(self._keeper.quarantined())

    async def _do(self, steps: Steps[T]) -> T:
        return await whole(follow(self._store.run, steps))


class AsyncDialogues:
    """The dialogues of a component of an agent: those that go on are in memory, and all are on the disk.

    A message is on the disk before the verb that accepts it returns, and restored by the next process that
    makes `Dialogues` with the same `self_address` and `component`. Others have collections of their own.
    They are set up by their first use, or when the store is entered, and torn down when it is closed.

    Options:

    * `rules`: what may be said, and what ends a dialogue; anything may, unless they are given.
    * `role_from_first_message`: called with the first message and `self_address`, returns the role of
      this side; "starter" or "responder". It calls no verb of these dialogues.
    * `keep_terminal_state_dialogues`: True keeps those that have ended; False deletes them from memory and
      disk, and remembers only that they were.
    * `offload`: True takes those that have ended out of memory, but for the `cached` ones that were last
      used; False keeps, and restores, all of them in memory.
    * `save`: "message": as above; a number of seconds, or a timedelta: within that time, by a thread;
      "teardown": not before that. What ends a dialogue is saved at once in any case.
    * `terminal_ttl`, `terminal_kept`: how long, in seconds or as a timedelta, and how many of those that
      have ended are kept; None: without end. Older ones are deleted in setup and now and then.

    It is used by any number of tasks and event loops. Raises `InvalidOption`; each verb raises what the store does.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         ada, bob = AsyncDialogues(store, "ada"), AsyncDialogues(store, "bob")
    ...         question, dialogue = await ada.create("bob", "ask", {"text": "What time is it?"})
    ...         answer = await bob.reply(await bob.update(question), "tell", {"text": "Four."})
    ...         return [each.body["text"] for each in (await ada.update(answer)).messages]
    >>> asyncio.run(main())
    ['What time is it?', 'Four.']
    """

    def __init__(
        self,
        store: AsyncStore,
        self_address: str,
        *,
        component: str = "dialogues",
        rules: Rules = Rules(),  # noqa: B008 - it is frozen
        role_from_first_message: RoleOf = starter_or_responder,
        keep_terminal_state_dialogues: bool = True,
        offload: bool = True,
        cached: int = 100,
        save: Save = "message",
        terminal_ttl: float | timedelta | None = None,
        terminal_kept: int | None = None,
    ) -> None:
        self._store = check_store(store, AsyncStore)
        self._interval = read_save(save)
        options = options_of(
            keep_terminal_state_dialogues=keep_terminal_state_dialogues,
            offload=offload,
            cached=cached,
            saves_at_once=save == "message",
            terminal_ttl=terminal_ttl,
            terminal_kept=terminal_kept,
            rules=rules,
            role_from_first_message=role_from_first_message,
        )
        keeper = keeper_of(
            store._store,
            DialogueNamespace(self_address, component),
            PlainCodec(rules, self_address),
        )
        self._container = Container(keeper, self_address, options)
        self._locks = SharedLocks()
        self._saver: Background | None = None
        store.attach(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._container.keeper.names})"

    @property
    def self_address(self) -> str:
        """The address of this side."""
        return self._container.self_address

    @property
    def dialogues_in_active_state(self) -> tuple[Dialogue, ...]:
        """Those that go on, as far as they were restored or began here; no I/O."""
        return self._container.memory.active

    async def setup(self) -> Restored:
        """Restore the dialogues that go on; tells how many, and what could not be read: such records are put
        aside (see `quarantined`), and the rest is restored. Any other verb does so too, once.
        """
        async with self._locks:
            return await self._set_up()

    async def teardown(self) -> None:
        """Save what has changed, and only that, in one transaction; then forget all. The store calls it
        when it is closed.

        Raises `DialoguesNotSaved` if some could not be saved: the others were, and all stay in memory.
        """
        async with self._locks:
            if self._container.is_set_up:
                await self._follow(self._container.teardown())
            saver, self._saver = self._saver, None
        if saver is not None:
            saver.stop()
            await asyncio.to_thread(saver.join, PATIENCE)

    async def create(
        self, counterparty: str, performative: str, body: Any = None
    ) -> tuple[Message, Dialogue]:
        """Begin a dialogue; returns the message to be sent, and the dialogue.

        Raises `InvalidDialogueMessage`, `InvalidOption` and `InvalidBody`; then there is no dialogue.
        """
        label = self._container.side.new_label(counterparty)
        return await self._do(self._container.create(label, performative, body), label)

    async def update(self, message: Message) -> Dialogue:
        """Take a message that the other side sent; returns its dialogue, which may be new.

        Raises `RepeatedMessage` if it was taken before, `InvalidDialogueMessage` if it is not the next one
        of its dialogue, `DialogueNotFound` if it belongs to none; then nothing is changed.
        """
        return await self._do(self._container.update(message), message)

    async def reply(
        self, dialogue: Dialogue, performative: str, body: Any = None, *, target: int | None = None
    ) -> Message:
        """Say something in a dialogue; returns the message to be sent. It answers the last message, or the
        one with the id `target`. Raises as `create` does.
        """
        return await self._do(self._container.reply(dialogue, performative, body, target), dialogue)

    async def finish(self, dialogue: Dialogue, state: str = ENDED) -> None:
        """End a dialogue without a message, in a state: because of a timeout, say."""
        await self._do(self._container.finish(dialogue, state), dialogue)

    async def save(self, dialogue: Dialogue) -> None:
        """Have what changed of a dialogue on the disk: its metadata, or, with another `save`, its messages.

        Raises `DialoguesNotSaved`; then it stays as it is in memory.
        """
        await self._do(self._container.save(dialogue), dialogue)

    async def reload(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Forget what is in memory of a dialogue, unsaved changes too, and return it as it is on the disk; None:
        it is not there. This is the way out after `DialogueConflict`. Older objects of the dialogue are of no more use.

        After an error that leaves in doubt whether a message was written it is not needed: the next verb that
        writes to the dialogue reads it again, and undoes what was written and not acknowledged.
        """
        return await self._do(self._container.reload(dialogue_label), dialogue_label)

    async def remove(self, dialogue_label: DialogueLabel) -> bool:
        """Delete a dialogue from memory and disk; returns whether it was there."""
        return await self._do_within(self._locks, self._container.remove(dialogue_label))

    async def get_dialogue(self, message: Message) -> Dialogue | None:
        """Return the dialogue that a message belongs to, if there is one."""
        return await self._do(self._container.get_dialogue(message), message)

    async def get_dialogue_from_label(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Return the dialogue with a label, complete or not, be it active or terminal."""
        return await self._do(
            self._container.get_dialogue_from_label(dialogue_label), dialogue_label
        )

    async def get_dialogues_with_counterparty(self, counterparty: str) -> list[Dialogue]:
        """Return the dialogues with an address: those that go on, then those that have ended."""
        return await self._do(self._container.get_dialogues_with_counterparty(counterparty))

    async def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool | None = None,
        limit: int | None = None,
    ) -> list[Dialogue]:
        """Return the dialogues that match: those that go on in the order in which they began, then those
        that have ended in the order in which they did; `terminal` asks for one of these only.

        To the filter a dialogue is an object with `dialogue_label`, `self_address`, `role`, `state`,
        `is_terminal`, `metadata` and `messages`, an array. Raises `InvalidFilter`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         dialogues = AsyncDialogues(store, "ada")
        ...         message, dialogue = await dialogues.create("bob", "ask", {"intent": "time"})
        ...         return [d.role for d in await dialogues.find({"messages.body.intent": "time"})]
        >>> asyncio.run(main())
        ['starter']
        """
        asked = Filter.parse(filter, equals, self._container.keeper.recorder.rules)
        some = None if limit is None else check_count("limit", limit)
        if terminal is not None:
            check_flag("terminal", terminal)
        await self._flush()
        return await self._do(self._container.find(asked, terminal, some))

    async def messages(
        self, dialogue_label: DialogueLabel, *, after: int = 0, limit: int = PAGE
    ) -> list[Message]:
        """Return messages of a dialogue: up to `limit` past the first `after`."""
        window = check_count("after", after), check_count("limit", limit)
        return await self._do(self._container.messages(dialogue_label, *window))

    async def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Delete dialogues that ended more than `ttl` ago (seconds, or a timedelta), and the oldest of
        them that are more than `kept`; returns how many.
        """
        many = None if kept is None else check_count("kept", kept)
        steps = self._container.purge(read_ttl(ttl) or None, many)
        return await self._do_within(self._locks, steps)

    async def restore_quarantined(self) -> list[Dialogue]:
        """Put the records that were put aside back where they were, and return the dialogues of those that can be
        read by now: after an update, say. The others are put aside again, and one whose dialogue has begun
        anew stays aside.
        """
        return await self._do_within(self._locks, self._container.restore_quarantined())

    async def quarantined(self) -> list[Quarantined]:
        """Return the records that could not be read and were put aside."""
        return await self._do(self._container.keeper.quarantined())

    async def _do(self, steps: Steps[T], about: Any = None) -> T:
        """Follow steps; those about a message, a label or a dialogue while nobody else writes to that."""
        if about is None:
            return await self._do_within(self._locks.of_search(), steps)
        return await self._do_within(self._locks.of(self._container.side.family_of(about)), steps)

    async def _do_within(self, lock: SharedLock | SharedLocks, steps: Steps[T]) -> T:
        while True:
            await self._prepare()
            with unwritten():
                await lock.__aenter__()
            try:
                if self._container.is_set_up:  # it may have been torn down meanwhile
                    return await self._follow(steps)
            finally:
                await lock.__aexit__()

    async def _prepare(self) -> None:
        self._container.check()
        if (
            self._store._store._closed is not None
        ):  # and not all could be saved: nothing more shall be lost
            raise StoreClosed(self._store._store._closed)
        with unwritten():
            if not self._container.is_set_up:
                async with self._locks:
                    self._container.check()  # it may have been torn down meanwhile
                    await self._set_up()
            if self._container.memory.crowd():
                async with self._locks:
                    await self._follow(self._container.make_room())

    async def _set_up(self) -> Restored:
        try:
            return await self._follow(self._container.setup())
        finally:
            if self._container.is_set_up:
                self._begin_saving()

    async def _follow(self, steps: Steps[T]) -> T:
        return await whole(follow(self._store.run, steps))

    async def _flush(self) -> None:
        if self._container.memory.changed():
            async with self._locks:
                await self._follow(saving(self._container))

    def _begin_saving(self) -> None:
        """Have a thread save: a task would end with its event loop."""
        if self._interval is not None and self._saver is None:
            self._saver = saver(self._interval, self._save_again)

    def _save_again(self) -> bool:
        """Save, in a thread; there is no more to be done when the store is closed."""
        store = self._store._store
        if store._closed is None and self._container.memory.changed():
            with self._locks:
                follow_here(self._store._run_here, saving(self._container))
        return store._closed is None
