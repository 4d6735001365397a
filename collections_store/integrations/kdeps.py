"""What kdeps' workflows remember, as its functions have it: kdeps itself is no Python.

`Items` and `Records` are the functions `memory` and `session` of its versions up to 0.6, `MemoryStorage` and `SessionStorage` those
from 1.9 on. Each stands on a `Memory`, which says where the values are, and for how long.

>>> with Store("sqlite://") as store:
...     memory = Records(store.memory("agent"))
...     memory.setRecord("name", "Ada"), memory.getRecord("name"), memory.deleteRecord("name")
('Ada', 'Ada', 'Ada')
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

from .. import InvalidOption
from ..memory import Memory

Mode: TypeAlias = Literal["documentation", "source"]
Duration: TypeAlias = float | str | timedelta | None

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_DURATION: Final = re.compile(rf"-?(?:{_PART.pattern})+")


class _Texts:
    """Texts under ids, as kdeps keeps them up to version 0.6. `with` one clears it at the end."""

    _NOUN: ClassVar[str] = "record"

    def __init__(self, memory: Memory, *, mode: Mode = "documentation") -> None:
        if mode not in get_args(Mode):
            raise InvalidOption("mode", f"{mode!r} is none of {', '.join(get_args(Mode))}")
        self._memory, self._mode = memory, mode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._memory.end()

    def clear(self) -> str:
        """Delete all values; returns how many, in kdeps' words."""
        return f"Cleared {self._memory.clear()} {self._NOUN}s"

    def _get(self, id: str) -> str:
        found: str = self._memory.get(_checked("id", id), "")
        return found

    def _set(self, id: str, value: str) -> str:
        self._memory.put(_checked("id", id), _checked("value", value))
        return value

    def _delete(self, id: str) -> str:
        found: str | None = self._memory.delete(_checked("id", id))
        if self._mode == "source":
            return f"Deleted {int(found is not None)} {self._NOUN}(s)"
        return found or ""


class Items(_Texts):
    """The functions of kdeps 0.2 to 0.4: `Items(store.memory("agent"))` for its memory, and
    `with Items(store.memory("agent").request()) as session:` for a session, which is one request long: the end of the block
    clears what it stands on.

    Ids and values are texts, and not empty: else `InvalidOption` is raised. With `mode="source"`, `deleteItem` returns
    what the program returns, and not what its documentation says.
    """

    _NOUN = "item"

    def getItem(self, id: str) -> str:
        """Return the value under an id; "" where there is none."""
        return self._get(id)

    def setItem(self, id: str, value: str) -> str:
        """Write a value under an id; returns the value."""
        return self._set(id, value)

    def deleteItem(self, id: str) -> str:
        """Delete the value under an id; returns it, "" where there is none. With `mode="source"`: "Deleted 1 item(s)"."""
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
        """Delete the value under an id; returns it, "" where there is none. With `mode="source"`: "Deleted 1 record(s)"."""
        return self._delete(id)


class MemoryStorage:
    """The memory of kdeps from 1.9 on: JSON under keys, of which null is a value too.

    >>> with Store("sqlite://") as store:
    ...     memory = MemoryStorage(store.memory("kdeps"))
    ...     memory.set("visits", None), memory.get("visits", 7), memory.get("name", "nobody")
    (True, None, 'nobody')
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

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
        self._memory.put(_checked("key", key), value, ttl=_life(ttl))
        return True

    def delete(self, key: str) -> None:
        """Delete the value under a key, if there is one."""
        self._memory.delete(key)


class SessionStorage(MemoryStorage):
    """A session of kdeps' from 1.9 on: a memory by its id, in which values live for `ttl` after they were written or
    read last.

    `ttl` is seconds, a timedelta, or text as in a workflow, such as "30m", "1h30m" or "7d"; 0 and less is for ever. A value
    with a `ttl` of its own keeps that when it is read: it lives for as long once more.

    >>> with Store("sqlite://") as store:
    ...     session = SessionStorage(store.memory("kdeps"), "ada", ttl="7d")
    ...     session.set("cart", ["tea"], ttl="30m"), session.get_all()
    (True, {'cart': ['tea']})
    """

    def __init__(self, memory: Memory, id: str, *, ttl: Duration = "30m") -> None:
        name = _checked("session", id)
        super().__init__(memory.session(name, ttl=_life(ttl), sliding=True))

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


def _checked(name: str, text: Any) -> str:
    """Return a text that is not empty, as kdeps wants it; raises `InvalidOption`."""
    if not isinstance(text, str):
        raise InvalidOption(name, f"{text!r} is no text")
    if not text:
        raise InvalidOption(name, "it is empty, and kdeps takes no empty one")
    return text


def _life(ttl: Duration) -> float | timedelta | None:
    """Return how long a value lives, as a `Memory` has it; raises `InvalidOption`."""
    if isinstance(ttl, str):
        ttl = _seconds(ttl)
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds <= 0:
        return math.inf
    return seconds  # what is no number either, the memory refuses


def _seconds(text: str) -> float:
    if text != "0" and not _DURATION.fullmatch(text):
        units = ", ".join(_UNITS)
        raise InvalidOption("ttl", f"{text!r} is no duration: write 90s, 1h30m or 7d, of {units}")
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -total if text.startswith("-") else total
