"""The checkpointers: LangGraph's interface; each method runs a procedure of `checkpoints`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from ... import AsyncStore, Store
from .caches import Caches
from .checkpoints import Checkpoints, Config
from .listing import BATCH, Listing
from .running import (
    AsyncFront,
    AsyncStepRunner,
    InTransaction,
    LoopCaller,
    StepRunner,
    Steps,
    SyncFront,
    steps_of,
)

T = TypeVar("T")
COLLECTION = "langgraph_checkpoints"


class Saver(BaseCheckpointSaver):  # type: ignore[misc]
    """Base class of both checkpointers; a subclass runs procedures."""

    def __init__(self, serde: Any) -> None:
        super().__init__(serde=serde)
        self._caches = Caches.empty()

    def _run(self, steps: Steps[T], *, creates: bool = False) -> T:
        raise NotImplementedError

    async def _arun(self, steps: Steps[T], *, creates: bool = False) -> T:
        raise NotImplementedError

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.serde, self._caches)

    def put(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]
    ) -> Config:
        """Write a checkpoint and the new values of its channels, in a transaction; return the config of the
        checkpoint.
        """
        return self._run(
            self._checkpoints.put(config, checkpoint, metadata, new_versions), creates=True
        )

    async def aput(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]
    ) -> Config:
        """Async counterpart of `put`."""
        return await self._arun(
            self._checkpoints.put(config, checkpoint, metadata, new_versions), creates=True
        )

    def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write the pending writes of a task, in a transaction. Writes already stored by the task stay, except on
        LangGraph's own channels, such as interrupts.
        """
        self._run(self._checkpoints.put_writes(config, writes, task_id, task_path), creates=True)

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async counterpart of `put_writes`."""
        await self._arun(
            self._checkpoints.put_writes(config, writes, task_id, task_path), creates=True
        )

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        """Return a checkpoint, by default the latest of the thread, with its pending writes, or None.

        Raise `LookupError` if the value of a channel was deleted, as by `delete_for_runs` during a run.
        """
        return self._run(self._checkpoints.get_tuple(config))

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        """Async counterpart of `get_tuple`."""
        return await self._arun(self._checkpoints.get_tuple(config))

    def list(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread (None: of all threads), newest first.

        `filter` has keys and values of the metadata, compared for equality; arrays and objects are compared as a
        whole. `before` is a config: list only checkpoints before the config's checkpoint. Checkpoints are read in
        batches.
        """
        listing, cursor = Listing.parse(config, filter, before), None
        while limit is None or limit > 0:
            size = BATCH if limit is None else min(limit, BATCH)
            found, cursor = self._run(self._checkpoints.list_batch(listing, cursor, size))
            yield from found[:limit]
            if cursor is None:
                return
            limit = None if limit is None else limit - len(found)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async counterpart of `list`."""
        listing, cursor = Listing.parse(config, filter, before), None
        while limit is None or limit > 0:
            size = BATCH if limit is None else min(limit, BATCH)
            found, cursor = await self._arun(self._checkpoints.list_batch(listing, cursor, size))
            for each in found[:limit]:
                yield each
            if cursor is None:
                return
            limit = None if limit is None else limit - len(found)

    def delete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        self._run(self._checkpoints.delete_thread(str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async counterpart of `delete_thread`."""
        await self._arun(self._checkpoints.delete_thread(str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata has a `run_id` of `run_ids`, with their writes, in a transaction;
        then delete the values without another checkpoint. The method reads all checkpoints. The runs must have
        ended.
        """
        self._run(self._checkpoints.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async counterpart of `delete_for_runs`."""
        await self._arun(self._checkpoints.delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all documents of a thread to a target thread, in a transaction. Documents of the target with other
        ids stay.
        """
        threads = str(source_thread_id), str(target_thread_id)
        self._run(self._checkpoints.copy_thread(*threads), creates=True)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async counterpart of `copy_thread`."""
        threads = str(source_thread_id), str(target_thread_id)
        await self._arun(self._checkpoints.copy_thread(*threads), creates=True)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints of threads, in a transaction for each thread; then delete the values without a
        checkpoint.

        `strategy`: "keep_latest" keeps the latest checkpoint of each namespace, and the ancestors that LangGraph
        needs to restore delta channels; "delete" keeps nothing.
        """
        self._run(self._checkpoints.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async counterpart of `prune`."""
        await self._arun(self._checkpoints.prune(thread_ids, strategy))

    def delete_idle_threads(self, seconds: float) -> int:
        """Delete all documents of the threads without a new checkpoint in the last `seconds`; return the number of
        threads. The method reads all checkpoints.
        """
        return self._run(self._checkpoints.delete_idle(seconds))

    async def adelete_idle_threads(self, seconds: float) -> int:
        """Async counterpart of `delete_idle_threads`."""
        return await self._arun(self._checkpoints.delete_idle(seconds))

    def get_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return for each channel the writes of the checkpoint's ancestors, oldest first, back to the nearest one with a
        value of the channel, and that value as `seed`.
        """
        return self._run(self._checkpoints.history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Async counterpart of `get_delta_channel_history`."""
        return await self._arun(self._checkpoints.history(config, channels))

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:  # noqa: ARG002
        """Return a version after `current`. A random end distinguishes the branches of a thread."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{random.random():016}"


class LangGraphSaver(SyncFront, Saver):
    """A checkpointer of LangGraph in a store: a `Store`, or a URL or the path of an SQLite file with `options` of
    `Store`.

    `collection` has the checkpoints; the first use creates the collection. `serde` is the serializer, by default
    LangGraph's. Threads can share a checkpointer. The async methods run in threads; `AsyncLangGraphSaver` needs no
    threads. After a URL, close the checkpointer, or use `with`.

    Raise the errors of `Store`.

    >>> from collections_store.integrations.langgraph import LangGraphSaver
    >>> with LangGraphSaver("sqlite://") as saver:
    ...     print(saver.get_tuple({"configurable": {"thread_id": "1"}}))
    None
    """

    def __init__(
        self,
        store: Store | str | PathLike[str],
        *,
        collection: str = COLLECTION,
        serde: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(serde)
        self._runner = StepRunner(store, collection, options)

    def run_imported(self, steps: Callable[[Checkpoints], Steps[None]]) -> None:
        """Run a procedure of an import in one transaction."""
        self._run(steps_of(InTransaction(lambda: steps(self._checkpoints))), creates=True)

    def _run(self, steps: Steps[T], *, creates: bool = False) -> T:
        return self._runner.run(steps, creates=creates)

    async def _arun(self, steps: Steps[T], *, creates: bool = False) -> T:
        return await asyncio.to_thread(self._runner.run, steps, creates=creates)


class AsyncLangGraphSaver(AsyncFront, Saver):
    """A checkpointer of LangGraph in an `AsyncStore`, or on a URL or a path: async counterpart of `LangGraphSaver`.

    The sync methods work in threads outside of the event loop; in the loop's thread they raise
    `asyncio.InvalidStateError`. After a URL, close the checkpointer, or use `async with`.

    >>> from collections_store.integrations.langgraph import AsyncLangGraphSaver
    >>> async def main():
    ...     async with AsyncLangGraphSaver("sqlite://") as saver:
    ...         print(await saver.aget_tuple({"configurable": {"thread_id": "1"}}))
    >>> asyncio.run(main())
    None
    """

    def __init__(
        self,
        store: AsyncStore | str | PathLike[str],
        *,
        collection: str = COLLECTION,
        serde: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(serde)
        self._runner = AsyncStepRunner(store, collection, options)
        self._loop = LoopCaller()

    def _run(self, steps: Steps[T], *, creates: bool = False) -> T:
        found: T = self._loop.call(partial(self._runner.run, creates=creates), steps)
        return found

    async def _arun(self, steps: Steps[T], *, creates: bool = False) -> T:
        self._loop.note()
        return await self._runner.run(steps, creates=creates)
