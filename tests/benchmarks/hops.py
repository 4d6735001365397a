"""The minimum cost of an awaited call to a thread, and bare threads that do the same work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Hops:
    """Threads of a queue, each with something of its own (a bare connection, say)."""

    def __init__(self, make: Callable[[], Any], count: int = 1) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, args=(make,)) for _ in range(count)]
        for each in self._threads:
            each.start()

    async def __call__(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with the thread's resource, and wait for it."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._queue.put((function, loop, future))
        return await future

    def _work(self, make: Callable[[], Any]) -> None:
        own = make()
        while (job := self._queue.get()) is not None:
            function, loop, future = job
            loop.call_soon_threadsafe(future.set_result, function(own))
        if hasattr(own, "close"):
            own.close()

    def stop(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for each in self._threads:
            each.join()
