"""The functions of kdeps up to version 0.6: texts under ids."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Self

from ...memory import Memory
from .asked import NOTHING, Answers, Mode, memory_of, text_of


class _Texts:
    """Texts under ids. `with` one clears it at the end."""

    _NOUN: ClassVar[str] = "record"

    def __init__(self, memory: Memory, *, mode: Mode = "documentation") -> None:
        self._memory, self._answers = memory_of(Memory, memory), Answers(self._NOUN, mode)

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
        return self._answers.cleared(self._memory.clear())

    def _get(self, id: str) -> str:
        return self._answers.found(self._memory.get(text_of("id", id), NOTHING))

    def _set(self, id: str, value: str) -> str:
        self._memory.put(text_of("id", id), text_of("value", value))
        return value

    def _delete(self, id: str) -> str:
        return self._answers.deleted(self._memory.delete(text_of("id", id), NOTHING))


class Items(_Texts):
    """The functions of kdeps 0.2 to 0.4: `Items(store.memory("agent"))` for its memory, and
    `with Items(store.memory("agent").request()) as session:` for a session, which is one request long: the end of the block
    clears what it stands on. A memory that is there to stay is refused by `with`.

    Ids and values are texts, and not empty: else `InvalidOption` is raised. With `mode="source"`, `deleteItem` returns
    what the program returns, and not what its documentation says. A value that is no text, which `MemoryStorage` wrote into the
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
