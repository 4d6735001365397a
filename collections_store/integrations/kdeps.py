"""The memory functions of kdeps' workflows, before and from version 1.9 on; sync and async.

`Items` and `Records` are the functions `memory` and `session` up to 0.6; `MemoryStorage` and `SessionStorage` are
the functions from 1.9 on. Each class wraps a `Memory`, which determines where values are stored and when values
expire. The async classes wrap an `AsyncMemory`.

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
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar

from .. import InvalidOption
from ..memory import AsyncMemory, Memory

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

Duration: TypeAlias = float | str | timedelta | None
M = TypeVar("M", Memory, AsyncMemory)

_ABSENT: Final = object()
"""Stands for no value, as opposed to None, which is one."""
_UNITS: Final = {
    **dict.fromkeys(("us", "µs", "μs"), 1e-6),  # two different characters
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


class _Strings:
    """Strings under ids. Leaving a `with` block clears the memory."""

    _NOUN: ClassVar[str] = "record"

    def __init__(self, memory: Memory) -> None:
        self._memory = _checked(Memory, memory)

    def __enter__(self) -> Self:
        self._memory.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._memory.__exit__(*error)

    def clear(self) -> str:
        """Delete all values; return kdeps' message with their number."""
        return f"Cleared {self._memory.clear()} {self._NOUN}s"

    def _get(self, id: str) -> str:
        return _text(self._memory.get(_string("id", id), _ABSENT))

    def _set(self, id: str, value: str) -> str:
        self._memory.put(_string("id", id), _string("value", value))
        return value

    def _delete(self, id: str) -> str:
        return _text(self._memory.delete(_string("id", id), _ABSENT))


class Items(_Strings):
    """The functions of kdeps 0.2 to 0.4: `Items(store.memory("agent"))` is kdeps' memory; `with
    Items(store.memory("agent").request()) as session:` is kdeps' session of a single request, cleared at the end of
    the block. `with` raises `InvalidOption` for a permanent memory.

    Ids and values must be non-empty strings, else a method raises `InvalidOption`. A value that `MemoryStorage`
    wrote into the same memory is returned as JSON, or as its `str` if the value has no JSON.
    """

    _NOUN = "item"

    def getItem(self, id: str) -> str:
        """Return the value under an id; "" if the id has no value."""
        return self._get(id)

    def setItem(self, id: str, value: str) -> str:
        """Write a value under an id; return the value."""
        return self._set(id, value)

    def deleteItem(self, id: str) -> str:
        """Delete the value under an id; return the value, or "" if the id has no value."""
        return self._delete(id)


class Records(_Strings):
    """The functions of kdeps 0.5 and 0.6: the functions of `Items` by new names."""

    def getRecord(self, id: str) -> str:
        """Return the value under an id; "" if the id has no value."""
        return self._get(id)

    def setRecord(self, id: str, value: str) -> str:
        """Write a value under an id; return the value."""
        return self._set(id, value)

    def deleteRecord(self, id: str) -> str:
        """Delete the value under an id; return the value, or "" if the id has no value."""
        return self._delete(id)


class MemoryStorage:
    """The memory of kdeps from 1.9 on: JSON values under keys; null is a value.

    >>> with Store("sqlite://") as store:
    ...     memory = MemoryStorage(store.memory("kdeps"))
    ...     memory.set("visits", None), memory.get("visits", 7), memory.get("name", "nobody")
    (True, None, 'nobody')
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = _checked(Memory, memory)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key; `default` if the key has no value."""
        return self._memory.get(key, default)

    def fetch(self, key: str) -> tuple[Any, bool]:
        """Return the value under a key, and whether the key has a value."""
        return self._memory.fetch(key)[::-1]

    def set(self, key: str, value: Any, *, ttl: Duration = None) -> bool:
        """Write a value under a key and return True; `ttl` as in `SessionStorage`. Raise `InvalidOption` for an
        empty key.
        """
        self._memory.put(_string("key", key), value, ttl=_ttl(ttl))
        return True

    def delete(self, key: str) -> None:
        """Delete the value under a key, if any."""
        self._memory.delete_many([key])


class SessionStorage(MemoryStorage):
    """A session of kdeps from 1.9 on: a value expires `ttl` after the last write or read.

    `ttl` is seconds, a timedelta, or a string as in a workflow, such as "30m", "1h30m" or "7d"; 0 and less: never;
    None: as in the memory. A value with a `ttl` of its own expires at the end of this `ttl` or of the session's,
    whichever is first.

    >>> with Store("sqlite://") as store:
    ...     session = SessionStorage(store.memory("kdeps"), "ada", ttl="7d")
    ...     session.set("cart", ["tea"], ttl="30m"), session.get_all()
    (True, {'cart': ['tea']})
    """

    def __init__(self, memory: Memory, id: str, *, ttl: Duration = "30m") -> None:
        super().__init__(_session(Memory, memory, id, ttl))

    def touch(self, key: str) -> bool:
        """Restart a value's time to live; return False if the key has no value."""
        return self._memory.touch(key)

    def is_expired(self, key: str) -> bool:
        """Return True if the key has no value."""
        return self._memory.ttl(key) is None

    def get_all(self) -> dict[str, Any]:
        """Return all values by their keys."""
        return {entry.key: entry.value for entry in self._memory.find()}

    def clear(self) -> int:
        """Delete all values of this session; return their number."""
        return self._memory.clear()


class _AsyncStrings:
    _NOUN: ClassVar[str] = "record"

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = _checked(AsyncMemory, memory)

    async def __aenter__(self) -> Self:
        await self._memory.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._memory.__aexit__(*error)

    async def clear(self) -> str:
        """Async counterpart of `Items.clear`."""
        return f"Cleared {await self._memory.clear()} {self._NOUN}s"

    async def _get(self, id: str) -> str:
        return _text(await self._memory.get(_string("id", id), _ABSENT))

    async def _set(self, id: str, value: str) -> str:
        await self._memory.put(_string("id", id), _string("value", value))
        return value

    async def _delete(self, id: str) -> str:
        return _text(await self._memory.delete(_string("id", id), _ABSENT))


class AsyncItems(_AsyncStrings):
    """Async counterpart of `Items`: `AsyncItems(store.memory("agent"))`, and
    `async with AsyncItems(store.memory("agent").request()) as session:`.
    """

    _NOUN = "item"

    async def getItem(self, id: str) -> str:
        """Async counterpart of `Items.getItem`."""
        return await self._get(id)

    async def setItem(self, id: str, value: str) -> str:
        """Async counterpart of `Items.setItem`."""
        return await self._set(id, value)

    async def deleteItem(self, id: str) -> str:
        """Async counterpart of `Items.deleteItem`."""
        return await self._delete(id)


class AsyncRecords(_AsyncStrings):
    """Async counterpart of `Records`."""

    async def getRecord(self, id: str) -> str:
        """Async counterpart of `Records.getRecord`."""
        return await self._get(id)

    async def setRecord(self, id: str, value: str) -> str:
        """Async counterpart of `Records.setRecord`."""
        return await self._set(id, value)

    async def deleteRecord(self, id: str) -> str:
        """Async counterpart of `Records.deleteRecord`."""
        return await self._delete(id)


class AsyncMemoryStorage:
    """Async counterpart of `MemoryStorage`."""

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = _checked(AsyncMemory, memory)

    async def get(self, key: str, default: Any = None) -> Any:
        """Async counterpart of `MemoryStorage.get`."""
        return await self._memory.get(key, default)

    async def fetch(self, key: str) -> tuple[Any, bool]:
        """Async counterpart of `MemoryStorage.fetch`."""
        return (await self._memory.fetch(key))[::-1]

    async def set(self, key: str, value: Any, *, ttl: Duration = None) -> bool:
        """Async counterpart of `MemoryStorage.set`."""
        await self._memory.put(_string("key", key), value, ttl=_ttl(ttl))
        return True

    async def delete(self, key: str) -> None:
        """Async counterpart of `MemoryStorage.delete`."""
        await self._memory.delete_many([key])


class AsyncSessionStorage(AsyncMemoryStorage):
    """Async counterpart of `SessionStorage`.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         session = AsyncSessionStorage(store.memory("kdeps"), "ada", ttl="7d")
    ...         return await session.set("cart", ["tea"], ttl="30m"), await session.get_all()
    >>> asyncio.run(main())
    (True, {'cart': ['tea']})
    """

    def __init__(self, memory: AsyncMemory, id: str, *, ttl: Duration = "30m") -> None:
        super().__init__(_session(AsyncMemory, memory, id, ttl))

    async def touch(self, key: str) -> bool:
        """Async counterpart of `SessionStorage.touch`."""
        return await self._memory.touch(key)

    async def is_expired(self, key: str) -> bool:
        """Async counterpart of `SessionStorage.is_expired`."""
        return await self._memory.ttl(key) is None

    async def get_all(self) -> dict[str, Any]:
        """Async counterpart of `SessionStorage.get_all`."""
        return {entry.key: entry.value for entry in await self._memory.find()}

    async def clear(self) -> int:
        """Async counterpart of `SessionStorage.clear`."""
        return await self._memory.clear()


def _checked(kind: type[M], memory: object) -> M:
    if isinstance(memory, kind):
        return memory
    wanted = "must be an AsyncMemory for Async classes, a Memory for others"
    raise InvalidOption("memory", f"{wanted}, got {type(memory).__name__}")


def _session(kind: type[M], memory: object, id: str, ttl: Duration) -> M:
    name = _string("session", id)
    return _checked(kind, memory).session(name, ttl=_ttl(ttl), sliding=True)


def _text(value: Any) -> str:
    """Return a value as a string: JSON, or `str` of a value without JSON."""
    if value is _ABSENT:
        return ""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except TypeError:
        return str(value)


def _string(name: str, text: Any) -> str:
    """Return a non-empty string; raise `InvalidOption`."""
    if isinstance(text, str) and text:
        return text
    raise InvalidOption(name, f"must be a non-empty string, got {text!r}")


def _ttl(ttl: Any) -> Any:
    """Return a time to live for `Memory`; raise `InvalidOption`."""
    seconds: Any = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, str):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(seconds))
        if not _DURATION.fullmatch(ttl) or not math.isfinite(seconds):
            problem = f"must be a duration such as 90s, 1h30m or 7d, of {', '.join(_UNITS)}"
            raise InvalidOption("ttl", f"{problem}, got {ttl!r}")
        seconds = -seconds if ttl.startswith("-") else seconds
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return math.inf if is_number and seconds <= 0 else seconds  # the memory rejects others
