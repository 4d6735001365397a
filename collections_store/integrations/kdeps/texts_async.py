"""The functions of kdeps up to version 0.6: texts under ids; for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Self

from ...memory import AsyncMemory
from .asked import NOTHING, Answers, Mode, memory_of, text_of


class _AsyncTexts:
    """Texts under ids. `async with` one clears it at the end."""

    _NOUN: ClassVar[str] = "record"

    def __init__(self, memory: AsyncMemory, *, mode: Mode = "documentation") -> None:
        self._memory, self._answers = memory_of(AsyncMemory, memory), Answers(self._NOUN, mode)

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
        return self._answers.cleared(await self._memory.clear())

    async def _get(self, id: str) -> str:
        return self._answers.found(await self._memory.get(text_of("id", id), NOTHING))

    async def _set(self, id: str, value: str) -> str:
        await self._memory.put(text_of("id", id), text_of("value", value))
        return value

    async def _delete(self, id: str) -> str:
        return self._answers.deleted(await self._memory.delete(text_of("id", id), NOTHING))


class AsyncItems(_AsyncTexts):
    """The functions of kdeps 0.2 to 0.4: `AsyncItems(store.memory("agent"))` for its memory, and
    `async with AsyncItems(store.memory("agent").request()) as session:` for a session, which is one request long: the end of
    the block clears what it stands on. A memory that is there to stay is refused by `async with`.

    Ids and values are texts, and not empty: else `InvalidOption` is raised. With `mode="source"`, `deleteItem` returns
    what the program returns, and not what its documentation says. A value that is no text, which `AsyncMemoryStorage` wrote into the
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
        """Delete the value under an id; returns it, "" where there is none. With `mode="source"`: "Deleted 1 item(s)"."""
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
        """Delete the value under an id; returns it, "" where there is none. With `mode="source"`: "Deleted 1 record(s)"."""
        return await self._delete(id)
