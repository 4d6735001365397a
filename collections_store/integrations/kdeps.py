"""kdeps' memory: the functions of its workflows, before and from version 1.9 on; sync and async.

`Items` and `Records` are the functions `memory` and `session` of its versions up to 0.6, `MemoryStorage` and `SessionStorage` those
from 1.9 on. Each stands on a `Memory`, which says where the values are, and for how long; and those whose names begin with `Async`
on an `AsyncMemory`.

>>> with Store("sqlite://") as store:
...     memory = Records(store.memory("agent"))
...     memory.setRecord("name", "Ada"), memory.getRecord("name"), memory.deleteRecord("name")
('Ada', 'Ada', 'Ada')
"""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar

from .. import InvalidOption
from ..memory import AsyncMemory, Memory

Duration: TypeAlias = float | str | timedelta | None
M = TypeVar("M")

NOTHING: Final = object()
"""Where there is no value, as opposed to None, which is one."""
_UNITS: Final = {
    **dict.fromkeys(("us", "µs", "μs"), 1e-6),  # two different signs
    "ns": 1e-9,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([nuµμm]s|[smhdw])")
_DURATION: Final = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)")


def shown(value: Any) -> str:
    """Return a value as text: that of `MemoryStorage` may be no text, and is its JSON then, if it has one."""
    if value is NOTHING:
        return ""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except TypeError:
        return str(value)


def memory_of(kind: type[M], memory: Any) -> M:
    """Return a memory if it is of this colour; raises `InvalidOption`."""
    if isinstance(memory, kind):
        return memory
    problem = f"must be an AsyncMemory for Async classes, a Memory for others, got {type(memory).__name__}"
    raise InvalidOption("memory", problem)


def text_of(name: str, text: Any) -> str:
    """Return a text that is not empty, as kdeps wants it; raises `InvalidOption`."""
    if not isinstance(text, str):
        raise InvalidOption(name, f"{text!r} is no text")
    if not text:
        raise InvalidOption(name, "it is empty, and kdeps takes no empty one")
    return text


def life_of(ttl: Duration) -> float | timedelta | None:
    """Return how long a value lives, as a `Memory` has it; raises `InvalidOption`."""
    if isinstance(ttl, str):
        ttl = _seconds(ttl)
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds <= 0:
        return math.inf
    return seconds  # what is no number either, the memory refuses


def _seconds(text: str) -> float:
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if not _DURATION.fullmatch(text) or not math.isfinite(total):
        raise InvalidOption(
            "ttl", f"{text!r} is no duration: write 90s, 1h30m or 7d, of {', '.join(_UNITS)}"
        )
    return -total if text.startswith("-") else total


class _Texts:
    """Texts under ids. `with` one clears it at the end."""

    _NOUN: ClassVar[str] = "record"

    def __init__(self, memory: Memory) -> None:
        self._memory = memory_of(Memory, memory)

    def __enter__(self) -> Self:
        self._memory.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._memory.__exit__(kind, error, traceback)

    def clear(self) -> str:
        """Delete all values; returns how many, in kdeps' words."""
        return f"Cleared {self._memory.clear()} {self._NOUN}s"

    def _get(self, id: str) -> str:
        return shown(self._memory.get(text_of("id", id), NOTHING))

    def _set(self, id: str, value: str) -> str:
        self._memory.put(text_of("id", id), text_of("value", value))
        return value

    def _delete(self, id: str) -> str:
        return shown(self._memory.delete(text_of("id", id), NOTHING))


class Items(_Texts):
    """The functions of kdeps 0.2 to 0.4: `Items(store.memory("agent"))` for its memory, and
    `with Items(store.memory("agent").request()) as session:` for a session, which is one request long: the end of the block
    clears what it stands on. A memory that is there to stay is refused by `with`.

    Ids and values are texts, and not empty: else `InvalidOption` is raised. A value that is no text, which `MemoryStorage` wrote into the
    same memory, is read as its JSON, or as Python writes it.
    """

    _NOUN = "item"

    def getItem(self, id: str) -> str:
        """Return the value under an id; "" where there is none."""
        return self._get(id)

    def setItem(self, id: str, value: str) -> str:
        """Write a value under an id; returns the value."""
        return self._set(id, value)

    def deleteItem(self, id: str) -> str:
        """Delete the value under an id; returns it, "" where there is none."""
        return self._delete(id)


class Records(_Texts):
    """The functions of kdeps 0.5 and 0.6: as `Items`, by other names."""

    def getRecord(self, id: str) -> str:
        """Return the value under an id; "" where there is none."""
        return self._get(id)

    def setRecord(self, id: str, value: str) -> str:
        """Write a value under an id; returns the value."""
        return self._set(id, value)

    def deleteRecord(self, id: str) -> str:
        """Delete the value under an id; returns it, "" where there is none."""
        return self._delete(id)


class MemoryStorage:
    """The memory of kdeps from 1.9 on: JSON under keys, of which null is a value too.

    >>> with Store("sqlite://") as store:
    ...     memory = MemoryStorage(store.memory("kdeps"))
    ...     memory.set("visits", None), memory.get("visits", 7), memory.get("name", "nobody")
    (True, None, 'nobody')
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory_of(Memory, memory)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key, or `default` where there is none."""
        return self._memory.get(key, default)

    def fetch(self, key: str) -> tuple[Any, bool]:
        """Return the value under a key, and whether there is one."""
        found, value = self._memory.fetch(key)
        return value, found

    def set(self, key: str, value: Any, *, ttl: Duration = None) -> bool:
        """Write a value under a key; returns True. It lives for `ttl`: see `SessionStorage`. Raises `InvalidOption`
        where the key is empty.
        """
        self._memory.put(text_of("key", key), value, ttl=life_of(ttl))
        return True

    def delete(self, key: str) -> None:
        """Delete the value under a key, if there is one."""
        self._memory.delete(key)


class SessionStorage(MemoryStorage):
    """A session of kdeps' from 1.9 on: a memory by its id, in which values live for `ttl` after they were written or
    read last.

    `ttl` is seconds, a timedelta, or text as in a workflow, such as "30m", "1h30m" or "7d"; 0 and less is for ever, None
    as long as the memory says. A value with a `ttl` of its own ends when that is over, and with its session if that ends before.

    >>> with Store("sqlite://") as store:
    ...     session = SessionStorage(store.memory("kdeps"), "ada", ttl="7d")
    ...     session.set("cart", ["tea"], ttl="30m"), session.get_all()
    (True, {'cart': ['tea']})
    """

    def __init__(self, memory: Memory, id: str, *, ttl: Duration = "30m") -> None:
        name = text_of("session", id)
        session = memory_of(Memory, memory).session(name, ttl=life_of(ttl), sliding=True)
        super().__init__(session)

    def touch(self, key: str) -> bool:
        """Have a value live from now on for as long as it was given; returns whether it is there."""
        return self._memory.touch(key)

    def is_expired(self, key: str) -> bool:
        """Is there no value under a key, or no longer?"""
        return self._memory.ttl(key) is None

    def get_all(self) -> dict[str, Any]:
        """Return all values by their keys."""
        return {entry.key: entry.value for entry in self._memory.find()}

    def clear(self) -> int:
        """Delete all values of this session; returns how many."""
        return self._memory.clear()


class _AsyncTexts:
    """Texts under ids. `async with` one clears it at the end."""

    _NOUN: ClassVar[str] = "record"

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory_of(AsyncMemory, memory)

    async def __aenter__(self) -> Self:
        await self._memory.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._memory.__aexit__(kind, error, traceback)

    async def clear(self) -> str:
        """Delete all values; returns how many, in kdeps' words."""
        return f"Cleared {await self._memory.clear()} {self._NOUN}s"

    async def _get(self, id: str) -> str:
        return shown(await self._memory.get(text_of("id", id), NOTHING))

    async def _set(self, id: str, value: str) -> str:
        await self._memory.put(text_of("id", id), text_of("value", value))
        return value

    async def _delete(self, id: str) -> str:
        return shown(await self._memory.delete(text_of("id", id), NOTHING))


class AsyncItems(_AsyncTexts):
    """The functions of kdeps 0.2 to 0.4: `AsyncItems(store.memory("agent"))` for its memory, and
    `async with AsyncItems(store.memory("agent").request()) as session:` for a session, which is one request long: the end of
    the block clears what it stands on. A memory that is there to stay is refused by `async with`.

    Ids and values are texts, and not empty: else `InvalidOption` is raised. A value that is no text, which `AsyncMemoryStorage` wrote into the
    same memory, is read as its JSON, or as Python writes it.
    """

    _NOUN = "item"

    async def getItem(self, id: str) -> str:
        """Return the value under an id; "" where there is none."""
        return await self._get(id)

    async def setItem(self, id: str, value: str) -> str:
        """Write a value under an id; returns the value."""
        return await self._set(id, value)

    async def deleteItem(self, id: str) -> str:
        """Delete the value under an id; returns it, "" where there is none."""
        return await self._delete(id)


class AsyncRecords(_AsyncTexts):
    """The functions of kdeps 0.5 and 0.6: as `AsyncItems`, by other names."""

    async def getRecord(self, id: str) -> str:
        """Return the value under an id; "" where there is none."""
        return await self._get(id)

    async def setRecord(self, id: str, value: str) -> str:
        """Write a value under an id; returns the value."""
        return await self._set(id, value)

    async def deleteRecord(self, id: str) -> str:
        """Delete the value under an id; returns it, "" where there is none."""
        return await self._delete(id)


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
    as long as the memory says. A value with a `ttl` of its own ends when that is over, and with its session if that ends before.

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
        """Have a value live from now on for as long as it was given; returns whether it is there."""
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


__all__ = [
    "AsyncItems",
    "AsyncMemoryStorage",
    "AsyncRecords",
    "AsyncSessionStorage",
    "Items",
    "MemoryStorage",
    "Records",
    "SessionStorage",
]
