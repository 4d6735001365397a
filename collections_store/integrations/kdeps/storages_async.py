"""The functions of kdeps from version 1.9 on: JSON under keys; for asyncio."""

from __future__ import annotations

from typing import Any

from ...memory import AsyncMemory
from .asked import Duration, life_of, memory_of, text_of


class AsyncMemoryStorage:
    """The memory of kdeps from 1.9 on: JSON under keys, of which null is a value too.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         memory = AsyncMemoryStorage(store.memory("kdeps"))
    ...         written = await memory.set("visits", None)
    ...         return written, await memory.get("visits", 7), await memory.get("name", "nobody")
    >>> asyncio.run(main())
    (True, None, 'nobody')
    """

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory_of(AsyncMemory, memory)

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key, or `default` where there is none."""
        return await self._memory.get(key, default)

    async def fetch(self, key: str) -> tuple[Any, bool]:
        """Return the value under a key, and whether there is one."""
        found, value = await self._memory.fetch(key)
        return value, found

    async def set(self, key: str, value: Any, *, ttl: Duration = None) -> bool:
        """Write a value under a key; returns True. It lives for `ttl`: see `AsyncSessionStorage`. Raises `InvalidOption`
        where the key is empty.
        """
        await self._memory.put(text_of("key", key), value, ttl=life_of(ttl))
        return True

    async def delete(self, key: str) -> None:
        """Delete the value under a key, if there is one."""
        await self._memory.delete(key)


class AsyncSessionStorage(AsyncMemoryStorage):
    """A session of kdeps' from 1.9 on: a memory by its id, in which values live for `ttl` after they were written or
    read last.

    `ttl` is seconds, a timedelta, or text as in a workflow, such as "30m", "1h30m" or "7d"; 0 and less is for ever, None
    as long as the memory says. A value with a `ttl` of its own keeps that when it is read: it lives for as long once more.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         session = AsyncSessionStorage(store.memory("kdeps"), "ada", ttl="7d")
    ...         return await session.set("cart", ["tea"], ttl="30m"), await session.get_all()
    >>> asyncio.run(main())
    (True, {'cart': ['tea']})
    """

    def __init__(self, memory: AsyncMemory, id: str, *, ttl: Duration = "30m") -> None:
        name = text_of("session", id)
        session = memory_of(AsyncMemory, memory).session(name, ttl=life_of(ttl), sliding=True)
        super().__init__(session)

    async def touch(self, key: str) -> bool:
        """Have a value live from now on for as long as it was given; tells whether it is there."""
        return await self._memory.touch(key)

    async def is_expired(self, key: str) -> bool:
        """Is there no value under a key, or no longer?"""
        return await self._memory.ttl(key) is None

    async def get_all(self) -> dict[str, Any]:
        """Return all values by their keys."""
        return {entry.key: entry.value for entry in await self._memory.find()}

    async def clear(self) -> int:
        """Delete all values of this session; returns how many."""
        return await self._memory.clear()
