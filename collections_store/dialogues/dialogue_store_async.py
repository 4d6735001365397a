"""Dialogues of any class in collections, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ..crossing_async import follow, whole
from ..expiry import read_ttl
from ..filter import Filter
from ..operations import Steps
from ..options import check_count
from ..store_async import AsyncStore
from .coding import DialogueCodec
from .dialogue_store import PAGE, keeper_of
from .keeper import Quarantined
from .label import DialogueLabel
from .locks_async import SharedLock
from .names import Namespace
from .settings import check_store

D = TypeVar("D")
T = TypeVar("T")


class AsyncDialogueStore(Generic[D]):
    """Keeps dialogues of any class in collections of a store; `codec` takes them apart.

    `agent` and `component` say whose they are: others have collections of their own. Dialogues that have
    ended are kept apart from those that go on. It holds no dialogue in memory; `Dialogues` does.

    >>> from collections_store import AsyncStore
    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         kept = AsyncDialogueStore(store, "ada", codec=PlainCodec())
    ...         dialogue = Dialogue(DialogueLabel(("7f", ""), "bob", "ada"), "ada", "buyer")
    ...         await kept.save(dialogue)
    ...         return [each.role async for each in kept.restore()]
    >>> asyncio.run(main())
    ['buyer']
    """

    def __init__(
        self,
        store: AsyncStore,
        agent: str,
        component: str = "dialogues",
        *,
        codec: DialogueCodec[D],
    ) -> None:
        self._store = check_store(store, AsyncStore)
        self._keeper = keeper_of(store._store, Namespace(agent, component), codec)
        self._lock = SharedLock()

    async def save(self, *dialogues: D) -> int:
        """Write what is new of dialogues, in one transaction; returns of how many there was anything.

        Of a dialogue that was saved before these are the messages since, and the header if it has changed.
        One that has ended moves to the terminal ones. What cannot be taken apart or stored, and what
        somebody else wrote to (`DialogueConflict`), keeps none of the others from being saved:
        `DialoguesNotSaved` is raised in the end, and tells which and why.
        """
        async with self._lock:
            return await self._do(self._keeper.save(dialogues))

    async def restore(self, *, terminal: bool = False) -> AsyncIterator[D]:
        """Yield the dialogues that go on, or those that have ended, some at a time.

        A record of which none can be made is put aside, with a line in the log of `collections_store`;
        see `quarantined`.
        """
        after, more = "", True
        while more:
            found, after = await self._do(self._keeper.restore(after, is_terminal=terminal))
            for each in found:
                yield each
            more = after != ""

    async def get(self, label: DialogueLabel) -> D | None:
        """Return the dialogue with a label, complete or not; None: there is none."""
        return await self._do(self._keeper.get([label], note=True))

    async def remove(self, label: DialogueLabel, *, remember: bool = False) -> bool:
        """Delete a dialogue; tells whether it was there. `remember` it: then `is_known` is true for
        ever.
        """
        async with self._lock:
            return await self._do(self._keeper.remove(label, remember=remember))

    async def is_known(self, label: DialogueLabel) -> bool:
        """Is there a dialogue with that label, complete or not, or was there one that is remembered?"""
        return await self._do(self._keeper.is_known(label))

    async def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool = False,
        limit: int | None = None,
    ) -> list[D]:
        """Return the dialogues that match, of those that go on or of those that have ended, in the order
        in which they did.

        To the filter a dialogue is its header (`dialogue_label`, `role`, `state`, `metadata` …) with
        `messages`, an array. Raises `InvalidFilter`.
        """
        asked = Filter.parse(filter, equals, self._keeper.recorder.rules)
        some = None if limit is None else check_count("limit", limit)
        return await self._do(self._keeper.find(asked, some, is_terminal=terminal))

    async def get_dialogues_with_counterparty(self, address: str) -> list[D]:
        """Return the dialogues with an address: those that go on, then those that have ended."""
        steps = (self._keeper.with_counterparty(address, is_terminal=e) for e in (False, True))
        return [each for some in steps for each in await self._do(some)]

    async def messages(
        self, label: DialogueLabel, *, after: int = 0, limit: int = PAGE
    ) -> list[Any]:
        """Return messages of a dialogue as JSON: up to `limit` past the first `after`."""
        window = check_count("after", after), check_count("limit", limit)
        return await self._do(self._keeper.messages(label, *window))

    async def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Delete dialogues that ended more than `ttl` ago (seconds, or a timedelta), and the oldest that
        are more than `kept`; returns how many.
        """
        many = None if kept is None else check_count("kept", kept)
        gone = await self._do(self._keeper.purge(read_ttl(ttl) or None, many))
        return sum(gone.values())

    async def restore_quarantined(self) -> list[D]:
        """Put the records that were put aside back where they were, and return the dialogues of those that can be
        read by now: after an update, say. The others are put aside again, and one whose dialogue has begun
        anew stays aside.
        """
        async with self._lock:
            return await self._do(self._keeper.restore_quarantined())

    async def quarantined(self) -> list[Quarantined]:
        """Return the records that were put aside, in that order."""
        return await self._do(self._keeper.quarantined())

    async def _do(self, steps: Steps[T]) -> T:
        return await whole(follow(self._store.run, steps))
