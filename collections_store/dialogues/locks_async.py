"""Locks that threads and the tasks of any number of event loops share: an `asyncio.Lock` serves one loop only.

A lock goes straight to who has waited longest. A task waits in its event loop, which is never blocked; a
thread sleeps.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

from .locks import Locks

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
