"""The functions of kdeps from version 1.9 on: JSON under keys."""

from __future__ import annotations

from typing import Any

from ...memory import Memory
from .asked import Duration, life_of, memory_of, text_of


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
    as long as the memory says. A value with a `ttl` of its own keeps that when it is read: it lives for as long once more.

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
        """Have a value live from now on for as long as it was given; tells whether it is there."""
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
