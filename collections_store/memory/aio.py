"""Memory for asyncio: `AsyncMemory` and `AsyncSkillMemory`, on the procedures of `Memory` and `SkillMemory`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Protocol, Self, TypeVar, Unpack

from ..aio.bridge import compute, run_uncancellably
from ..aio.collection import AsyncChangeStream, AsyncCollection, read_here
from ..changes import check_notifier
from ..codec import Codec
from ..engine.notifier import ChangeNotifier
from ..operations.operation import Operation
from ..options import ChangeSettings, Consistency, Ttl, check_function
from .encoding import after_block, value_of
from .memory import Entries, Strings
from .procedures import Namespace, Procedures
from .skills import BaseSkillMemory

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
    """Async counterpart of `Memory`: `AsyncStore(...).memory("bot")`. Only its methods with I/O are coroutines.

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
        self._follow = AsyncCollection(host.run, host._codec, procedures.collection)._follow

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

    async def end(self) -> int:
        """Async counterpart of `Memory.end`."""
        return await self._follow(self._procedures.end())

    async def configure(self, **settings: Unpack[ChangeSettings]) -> None:
        """Async counterpart of `Memory.configure`."""
        await self._follow(self._procedures.configure(settings))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Async counterpart of `Memory.transaction`."""
        async with self._host.transaction() as tx:
            yield type(self)(tx, self._procedures)

    async def get(self, key: str, default: Any = None) -> Any:
        """Async counterpart of `Memory.get`."""
        return await self._follow(self._procedures.get(key, default))

    async def fetch(self, key: str) -> tuple[bool, Any]:
        """Async counterpart of `Memory.fetch`."""
        return await self._follow(self._procedures.fetch(key))

    async def put(
        self,
        key: str,
        value: Any,
        *,
        ttl: Ttl = None,
        if_absent: bool = False,
        if_version: int | None = None,
    ) -> int:
        """Async counterpart of `Memory.put`."""
        options: dict[str, Any] = {"ttl": ttl, "if_absent": if_absent, "if_version": if_version}
        return await self._follow(self._procedures.put(key, value, **options), value)

    async def delete(self, key: str, default: Any = None) -> Any:
        """Async counterpart of `Memory.delete`."""
        return await self._follow(self._procedures.delete(key, default))

    async def pop(self, key: str) -> Any:
        """Async counterpart of `Memory.pop`."""
        return await self._follow(self._procedures.pop(key))

    async def increment(self, key: str, by: float = 1, initial: float = 0) -> Any:
        """Async counterpart of `Memory.increment`."""
        return await self._follow(self._procedures.increment(key, by, initial))

    async def change(self, key: str, function: Callable[[Any], Any], *, default: Any = ...) -> Any:
        """Async counterpart of `Memory.change`. `function` may be asynchronous."""
        changed = self._on_json(key, check_function("function", function))
        return await self._follow(self._procedures.change(key, changed, default), default)

    async def keys(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Strings:
        """Async counterpart of `Memory.keys`."""
        return await self._follow(self._procedures.keys(prefix, after, limit))

    async def items(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Entries:
        """Async counterpart of `Memory.items`."""
        return await self._follow(self._procedures.items(prefix, after, limit))

    async def count(self, prefix: str = "") -> int:
        """Async counterpart of `Memory.count`."""
        return await self._follow(self._procedures.count(prefix))

    async def find(
        self, filter: Any = None, equals: Any = ..., *, limit: int | None = None
    ) -> Entries:
        """Async counterpart of `Memory.find`."""
        return await self._follow(self._procedures.find(filter, equals, limit), filter, equals)

    async def clear(self, prefix: str = "") -> int:
        """Async counterpart of `Memory.clear`."""
        return await self._follow(self._procedures.clear(prefix))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Async counterpart of `Memory.get_many`."""
        read = read_here(keys)
        return await self._follow(self._procedures.get_many(read), read)

    async def put_many(self, values: Mapping[str, Any], *, ttl: Ttl = None) -> int:
        """Async counterpart of `Memory.put_many`."""
        return await self._follow(self._procedures.put_many(values, ttl), values)

    async def delete_many(self, keys: Iterable[str]) -> int:
        """Async counterpart of `Memory.delete_many`."""
        read = read_here(keys)
        return await self._follow(self._procedures.delete_many(read), read)

    async def touch(self, key: str) -> bool:
        """Async counterpart of `Memory.touch`."""
        return await self._follow(self._procedures.touch(key))

    async def expire(self, key: str, ttl: float | timedelta) -> bool:
        """Async counterpart of `Memory.expire`."""
        return await self._follow(self._procedures.expire(key, ttl))

    async def ttl(self, key: str) -> float | None:
        """Async counterpart of `Memory.ttl`."""
        return await self._follow(self._procedures.ttl(key))

    def watch(
        self, prefix: str = "", *, after: str | None = None, timeout: float | None = None
    ) -> AsyncChangeStream:
        """Async counterpart of `Memory.watch`."""
        notifier = check_notifier(self._host._notifier)
        return AsyncChangeStream(
            self._host.run, notifier, self._procedures.watch(prefix, after, timeout)
        )

    def _on_json(self, key: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function of values, which may be asynchronous, as one of JSON."""

        async def changed(json: Any) -> Any:
            value = await compute(value_of, key, json)
            returned = function(value)
            returned = await returned if isawaitable(returned) else returned
            return await compute(self._procedures.result, value, returned)

        return changed


class AsyncSkillMemory(BaseSkillMemory[AsyncMemoryHost]):
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

    async def load(self, session: str, skill: str) -> list[Any]:
        """Async counterpart of `SkillMemory.load`."""
        found = await self._host.run(self._rules.load(session, skill))
        return await compute(self._rules.loaded, found)

    async def save(self, session: str, skill: str, memories: Iterable[Any]) -> int:
        """Async counterpart of `SkillMemory.save`."""
        return await self._host.run(await compute(self._rules.save, session, skill, memories))

    async def end_session(self, session: str) -> int:
        """Async counterpart of `SkillMemory.end_session`."""
        return await self._host.run(self._rules.end(session))
