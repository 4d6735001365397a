"""Memory for asyncio: `AsyncMemory` and `AsyncSkillMemory`, on the procedures of `Memory` and `SkillMemory`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import isawaitable
from typing import Any, Final, Literal, Protocol, Self, TypeVar

from ..aio.bridge import compute, counterpart, run_uncancellably
from ..aio.collection import AsyncChangeStream, AsyncCollection, read_here
from ..changes import check_notifier
from ..codec import Codec
from ..engine.notifier import ChangeNotifier
from ..operations.operation import Operation
from ..options import Consistency, check_function
from .encoding import after_block, value_of
from .memory import Memory
from .procedures import Namespace, Procedures
from .skills import BaseSkillMemory, SkillMemory

T = TypeVar("T")


class AsyncMemoryHost(Protocol):
    """An asynchronous store or transaction."""

    _codec: Codec
    _notifier: ChangeNotifier | None

    async def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return the context of a transaction, or of a savepoint."""


class AsyncMemory(Namespace):
    """Async counterpart of `Memory`: `AsyncStore(...).memory("bot")`. Only methods with I/O are coroutines.

    >>> from datetime import date
    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         room = store.memory("bot").namespace("room", "42")
    ...         version = await room.put("topic", {"name": "tea", "since": date(2026, 11, 21)})
    ...         return (await room.get("topic"))["since"].year, await room.get("nothing", "of the kind")
    >>> asyncio.run(main())
    (2026, 'of the kind')
    """

    def __init__(self, host: AsyncMemoryHost, procedures: Procedures) -> None:
        super().__init__(host, procedures)
        parts = host._codec, procedures.collection, host._notifier
        self._collection: AsyncCollection[Any] = AsyncCollection(host.run, *parts)
        self._follow = self._collection._follow

    @property
    def collection(self) -> AsyncCollection[Any]:
        """Async counterpart of `Memory.collection`."""
        return self._collection

    get: Final = counterpart(Memory.get)
    fetch: Final = counterpart(Memory.fetch)
    put: Final = counterpart(Memory.put)
    delete: Final = counterpart(Memory.delete)
    pop: Final = counterpart(Memory.pop)
    increment: Final = counterpart(Memory.increment)
    keys: Final = counterpart(Memory.keys)
    items: Final = counterpart(Memory.items)
    count: Final = counterpart(Memory.count)
    find: Final = counterpart(Memory.find)
    search: Final = counterpart(Memory.search)
    clear: Final = counterpart(Memory.clear)
    put_many: Final = counterpart(Memory.put_many)
    touch: Final = counterpart(Memory.touch)
    expire: Final = counterpart(Memory.expire)
    ttl: Final = counterpart(Memory.ttl)
    end: Final = counterpart(Memory.end)
    configure: Final = counterpart(Memory.configure)

    async def __aenter__(self) -> Self:
        self._procedures.check_ends()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        try:
            with after_block(error):
                await run_uncancellably(self.end())
        except asyncio.CancelledError:
            if not isinstance(error, asyncio.CancelledError):
                raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Async counterpart of `Memory.transaction`."""
        async with self._host.transaction() as tx:
            yield type(self)(tx, self._procedures)

    async def change(self, key: str, function: Callable[[Any], Any], *, default: Any = ...) -> Any:
        """Async counterpart of `Memory.change`. `function` may be asynchronous."""
        changed = self._on_json(key, check_function("function", function))
        return await self._follow(self._procedures.change(key, changed, default), default)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Async counterpart of `Memory.get_many`."""
        read = read_here(keys)
        return await self._follow(self._procedures.get_many(read), read)

    async def delete_many(self, keys: Iterable[str]) -> int:
        """Async counterpart of `Memory.delete_many`."""
        read = read_here(keys)
        return await self._follow(self._procedures.delete_many(read), read)

    def watch(
        self, prefix: str = "", *, after: str | None = None, timeout: float | None = None
    ) -> AsyncChangeStream:
        """Async counterpart of `Memory.watch`."""
        notifier = check_notifier(self._host._notifier)
        return AsyncChangeStream(
            self._host.run, notifier, self._procedures.watch(prefix, after, timeout)
        )

    def _on_json(self, key: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function of JSON for a function of values, which may be asynchronous."""

        async def changed(json: Any) -> Any:
            value = await compute(value_of, key, json)
            returned = function(value)
            returned = await returned if isawaitable(returned) else returned
            return await compute(self._procedures.result, value, returned)

        return changed


class AsyncSkillMemory(BaseSkillMemory):
    """Async counterpart of `SkillMemory`: `AsyncStore(...).skill_memory()`.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         skills = store.skill_memory()
    ...         name = {"name": "name", "value": "Ada", "scope": "PUBLIC"}
    ...         count = await skills.save("session 1", "greeter", [name, {"name": "greeted", "value": True}])
    ...         return [each["value"] for each in await skills.load("session 1", "weather")]
    >>> asyncio.run(main())
    ['Ada']
    """

    _host: AsyncMemoryHost

    async def load(self, session: str, skill: str) -> list[Any]:
        """Async counterpart of `SkillMemory.load`."""
        found = await self._host.run(self._loading(session, skill))
        return await compute(self._loaded, found)

    async def search(
        self,
        session: str,
        skill: str,
        query: str,
        *,
        limit: int = 10,
        match: Literal["all", "any"] = "all",
    ) -> list[Any]:
        """Async counterpart of `SkillMemory.search`."""
        found = await self._host.run(self._searching(session, skill, query, limit, match))
        return await compute(self._loaded, (each.document for each in found))

    save: Final = counterpart(SkillMemory.save, prepares=True)
    end_session: Final = counterpart(SkillMemory.end_session)
