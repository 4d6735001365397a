"""The changes of a collection as they come, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ..changes.notify import Bell
from ..changes.watch import Wait, Watching
from ..query.change import Change
from .bridge import follow


class AsyncChangeStream:
    """The changes of a collection in the order of their commits: what `watch` returns.

    It is an asynchronous iterator, for one task at a time, and an asynchronous context manager that
    closes it. Its place is found when it is first awaited, entered or asked: `stream = await
    cities.watch()` misses nothing from there on. Between changes it holds no connection, no transaction
    and no thread. What a change is, `Change` tells.
    """

    def __init__(
        self, run: Callable[[Any], Coroutine[Any, Any, Any]], bell: Bell, watching: Watching
    ) -> None:
        self._run, self._bell, self._watching = run, bell, watching
        self._woken = asyncio.Event()

    @property
    def token(self) -> str:
        """Where to go on: `watch(after=token)` gives all that this stream has not given yet. It
        also moves past changes that are not wanted. Empty before the place was found.
        """
        return self._watching.token or ""

    def __await__(self) -> Generator[Any, None, Self]:
        return self._started().__await__()

    async def _started(self) -> Self:
        await follow(self._step, self._watching.start())
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        change = self._watching.take()
        if change is None and not self._watching.closed:
            loop = asyncio.get_running_loop()

            def wake() -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(self._woken.set)

            with self._bell.listening(self._watching.collection, wake):
                change = await follow(self._step, self._watching.next())
        if change is None:
            raise StopAsyncIteration
        return change

    async def __aenter__(self) -> Self:
        return await self._started()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def try_next(self) -> Change | None:
        """Return the next change if there is one already, else None, without waiting.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         cities = await store.get_collection("cities", changes=True)
        ...         stream = await cities.watch()
        ...         await cities.put("berlin", {})
        ...         return (await stream.try_next()).id, await stream.try_next()
        >>> asyncio.run(main())
        ('berlin', None)
        """
        return await follow(self._step, self._watching.look())

    async def aclose(self) -> None:
        """End the stream, also where somebody waits for it. Closing again does nothing."""
        self._watching.closed = True
        self._woken.set()

    async def _step(self, step: Any) -> Any:
        match step:
            case Wait(seconds):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), seconds)
                return self._woken.clear()
        return await self._run(step)
