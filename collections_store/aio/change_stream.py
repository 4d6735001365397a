"""`AsyncChangeStream`: the changes of a collection as they are committed, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ..changes import ChangeNotifier, ChangeReader, Wait
from ..query.change import Change
from .bridge import follow


class AsyncChangeStream:
    """The changes of a collection in the order of their commits. Async counterpart of `ChangeStream`.

    It is an async iterator, for one task at a time, and an async context manager that closes it. It starts
    when it is first awaited, entered or iterated over: `stream = await cities.watch()` misses nothing from
    there on. Between changes it holds no connection, no transaction and no thread.
    """

    def __init__(
        self,
        run: Callable[[Any], Coroutine[Any, Any, Any]],
        notifier: ChangeNotifier,
        reader: ChangeReader,
    ) -> None:
        self._run, self._notifier, self._reader = run, notifier, reader
        self._woken = asyncio.Event()

    @property
    def token(self) -> str:
        """Async counterpart of `ChangeStream.token`. It is empty until the stream is first awaited,
        entered or iterated over.
        """
        return self._reader.token or ""

    def __await__(self) -> Generator[Any, None, Self]:
        return self._started().__await__()

    async def _started(self) -> Self:
        await follow(self._step, self._reader.start())
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        reader = self._reader
        change = reader.take()
        if change is None and not reader.closed:
            loop = asyncio.get_running_loop()

            def wake() -> None:
                with suppress(RuntimeError):  # the loop is closed: no task waits any more
                    loop.call_soon_threadsafe(self._woken.set)

            try:
                self._notifier.add(reader.collection, wake)
                change = await follow(self._step, reader.next())
            finally:
                self._notifier.remove(reader.collection, wake)
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
        """Async counterpart of `ChangeStream.try_next`."""
        return await follow(self._step, self._reader.poll())

    async def aclose(self) -> None:
        """Async counterpart of `ChangeStream.close`."""
        self._reader.closed = True
        self._woken.set()

    async def _step(self, step: Any) -> Any:
        match step:
            case Wait(seconds):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), seconds)
                return self._woken.clear()
        return await self._run(step)
