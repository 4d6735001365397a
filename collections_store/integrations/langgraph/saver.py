"""The checkpointers: LangGraph's interface, each method a line on a procedure of `checkpoints`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Self, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from ... import AsyncStore, Store
from .checkpoints import BATCH, Caches, Checkpoints, Config, Listing
from .running import AsyncStepRunner, InTransaction, LoopCaller, StepRunner, Steps, steps_of

T = TypeVar("T")
COLLECTION = "langgraph_checkpoints"


class Saver(BaseCheckpointSaver):  # type: ignore[misc]
    """What both checkpointers have; a subclass runs procedures."""

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
        """Write a checkpoint and the new values of its channels, at once; return the config that leads to it."""
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
        """Write the pending writes of a task, at once. Those that the task wrote before stay, except of LangGraph's own
        channels, such as its interrupts.
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
        """Return a checkpoint, by default the latest of the thread, with its pending writes; None if there is none.

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
        """Yield the checkpoints of a thread (None: of all), the newest first.

        `filter` are keys and values of the metadata, which must be equal; arrays and objects are compared as a whole.
        `before` is a config: only checkpoints before its checkpoint. They are read in batches.
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
        """Delete the checkpoints whose metadata has one of the `run_id`, with their writes, in one transaction, and then the
        values that no other checkpoint has. It reads all checkpoints. The runs must have ended.
        """
        self._run(self._checkpoints.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async counterpart of `delete_for_runs`."""
        await self._arun(self._checkpoints.delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy everything of a thread to another, in one transaction. What the other has under other ids stays."""
        threads = str(source_thread_id), str(target_thread_id)
        self._run(self._checkpoints.copy_thread(*threads), creates=True)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async counterpart of `copy_thread`."""
        threads = str(source_thread_id), str(target_thread_id)
        await self._arun(self._checkpoints.copy_thread(*threads), creates=True)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints of threads, those of a thread in one transaction, and then the values that no other has.

        `strategy`: "keep_latest" keeps the latest checkpoint of each namespace, and the ancestors that LangGraph needs to
        restore its delta channels; "delete" keeps nothing.
        """
        self._run(self._checkpoints.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async counterpart of `prune`."""
        await self._arun(self._checkpoints.prune(thread_ids, strategy))

    def delete_idle_threads(self, seconds: float) -> int:
        """Delete the threads that got no checkpoint in the last `seconds`, each as a whole; return their number. It reads all
        checkpoints.
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
        """Return a version after `current`. Its random end distinguishes the branches of a thread."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{random.random():016}"


class LangGraphSaver(Saver):
    """A checkpointer of LangGraph on a `Store`, or on the URL of one or the path of an SQLite file, with `options` of `Store`.

    `collection` has the checkpoints; it is created on first use. `serde` is the serializer, by default LangGraph's. Threads
    share a checkpointer. The async methods run in threads; `AsyncLangGraphSaver` needs none. Close it, or use `with`, if it
    was given a URL.

    Raise what `Store` raises.

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

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """Return a checkpointer on a URL or an SQLite file, to be used in a `with` statement; `options` are those of the class."""
        return cls(conn_string, **options)

    def setup(self) -> None:
        """Create the collection, unless it exists. The first write does so, too."""
        self._runner.setup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, if the checkpointer was given a URL."""
        self._runner.close()

    def run_imported(self, steps: Callable[[Checkpoints], Steps[None]]) -> None:
        """Run a procedure of an import in one transaction."""
        self._run(steps_of(InTransaction(lambda: steps(self._checkpoints))), creates=True)

    def _run(self, steps: Steps[T], *, creates: bool = False) -> T:
        return self._runner.run(steps, creates=creates)

    async def _arun(self, steps: Steps[T], *, creates: bool = False) -> T:
        return await asyncio.to_thread(self._runner.run, steps, creates=creates)


class AsyncLangGraphSaver(Saver):
    """A checkpointer of LangGraph on an `AsyncStore`, or on the URL of one or a path: async counterpart of `LangGraphSaver`.

    Its sync methods work in other threads than the event loop's; there they raise `asyncio.InvalidStateError`. Close it, or
    use `async with`, if it was given a URL.

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

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """Return a checkpointer on a URL or an SQLite file, to be used in an `async with` statement; `options` are those of the class."""
        return cls(conn_string, **options)

    async def setup(self) -> None:
        """Async counterpart of `LangGraphSaver.setup`."""
        await self._runner.setup()

    async def __aenter__(self) -> Self:
        self._loop.note()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store, if the checkpointer was given a URL."""
        await self._runner.aclose()

    def _run(self, steps: Steps[T], *, creates: bool = False) -> T:
        found: T = self._loop.call(partial(self._runner.run, creates=creates), steps)
        return found

    async def _arun(self, steps: Steps[T], *, creates: bool = False) -> T:
        self._loop.note()
        return await self._runner.run(steps, creates=creates)
