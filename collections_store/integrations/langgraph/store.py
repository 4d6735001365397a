"""The stores of long-term memory: LangGraph's interface, on the operations of `items`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from os import PathLike
from typing import Any, Final

from langgraph.store.base import BaseStore, PutOp

from ... import AsyncStore, CollectionsStoreError, Store
from .items import EmbeddingIndex, ItemBatch, item_id
from .running import AsyncFront, AsyncStepRunner, LoopCaller, StepRunner, SyncFront, call, steps_of

LOG: Final = logging.getLogger("collections_store")
ITEMS: Final = "langgraph_items"
SWEEP_MINUTES: Final = 5.0


class LangGraphStore(SyncFront, BaseStore):  # type: ignore[misc]
    """A store of LangGraph in a `Store`, or on a URL or the path of an SQLite file with `options` of `Store`.

    `index` is LangGraph's `IndexConfig`: with an index, `search(query=…)` finds the nearest vectors. The index may have
    a `distance_type`: "cosine", "l2" or "inner_product", as `PostgresStore` has; the score of "l2" is the negative
    distance. It takes numpy.
    `ttl` is LangGraph's `TTLConfig`, in minutes. Expired items are invisible at once. A batch is a transaction: the
    reads see the state before the writes, and after an error nothing is written. `collection` has the items; the
    first use creates the collection. The async methods run in threads; `AsyncLangGraphStore` needs no threads.
    After a URL, close the store, or use `with`.

    Raise the errors of `Store`, and `InvalidOption`.

    >>> from collections_store.integrations.langgraph import LangGraphStore
    >>> with LangGraphStore("sqlite://") as memories:
    ...     memories.put(("users", "ada"), "likes", {"drink": "tea"})
    ...     [item.value for item in memories.search(("users",), filter={"drink": "tea"})]
    [{'drink': 'tea'}]
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | str | PathLike[str],
        *,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        collection: str = ITEMS,
        **options: Any,
    ) -> None:
        self._index = EmbeddingIndex.parse(index)
        self.ttl_config = ttl
        definition = None if self._index is None else self._index.definition
        self._runner = StepRunner(store, collection, options, definition)
        self._sweeper: threading.Thread | None = None

    def close(self) -> None:
        """Stop the sweeper. Close the `Store`, unless an open store was given."""
        self.stop_ttl_sweeper()
        super().close()

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Return the results of operations, in order; the result of a write is None."""
        return self._run(ItemBatch(ops, self._index))

    def put_imported(self, items: Sequence[tuple[PutOp, Mapping[str, str]]]) -> None:
        """Put items with given times: `created_at` and `updated_at`, in ISO 8601."""
        times = {item_id(op.namespace, op.key): its for op, its in items}
        self._run(ItemBatch([op for op, _ in items], self._index, times))

    def _run(self, batch: ItemBatch) -> list[Any]:
        vectors, queries = {}, {}
        if self._index is not None:
            embeddings, texts = self._index.embeddings, batch.to_embed()
            if texts:
                vectors = dict(zip(texts, embeddings.embed_documents(texts), strict=True))
            queries = {query: embeddings.embed_query(query) for query in batch.queries}
        return self._runner.run(batch.steps(vectors, queries), creates=batch.creates)

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Async counterpart of `batch`."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete the rows of expired items, already invisible; return their number."""
        found: int = self._runner.run(steps_of(call("purge_expired")))
        return found

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Start a thread that calls `sweep_ttl`, unless the thread runs; return a future that ends with the thread.

        The interval is `sweep_interval_minutes`, or the interval of `ttl`, or 5 minutes.
        """
        if self._sweeper is None:
            self._stop, self._ended = threading.Event(), Future[None]()
            seconds = _interval(self.ttl_config, sweep_interval_minutes)
            arguments = self._stop, seconds, self._ended
            self._sweeper = threading.Thread(target=self._sweep, args=arguments, daemon=True)
            self._sweeper.start()
        return self._ended

    def _sweep(self, stop: threading.Event, seconds: float, ended: Future[None]) -> None:
        while not stop.wait(seconds):
            try:
                self.sweep_ttl()
            except CollectionsStoreError as error:
                LOG.warning("expired items could not be deleted: %s", error)
        ended.set_result(None)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper and wait for the end, up to `timeout` seconds; return whether the sweeper ended."""
        thread = self._sweeper
        if thread is None:
            return True
        self._stop.set()
        thread.join(timeout)
        if not thread.is_alive():
            self._sweeper = None
        return self._sweeper is None


class AsyncLangGraphStore(AsyncFront, BaseStore):  # type: ignore[misc]
    """A store of LangGraph in an `AsyncStore`, or on a URL or a path: async counterpart of `LangGraphStore`.

    The sync methods work in threads outside of the event loop; in the loop's thread they raise
    `asyncio.InvalidStateError`. After a URL, close the store, or use `async with`.

    >>> from collections_store.integrations.langgraph import AsyncLangGraphStore
    >>> async def main():
    ...     async with AsyncLangGraphStore("sqlite://") as memories:
    ...         await memories.aput(("users", "ada"), "likes", {"drink": "tea"})
    ...         print((await memories.aget(("users", "ada"), "likes")).value)
    >>> asyncio.run(main())
    {'drink': 'tea'}
    """

    supports_ttl = True

    def __init__(
        self,
        store: AsyncStore | str | PathLike[str],
        *,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        collection: str = ITEMS,
        **options: Any,
    ) -> None:
        self._index = EmbeddingIndex.parse(index)
        self.ttl_config = ttl
        definition = None if self._index is None else self._index.definition
        self._runner = AsyncStepRunner(store, collection, options, definition)
        self._loop = LoopCaller()
        self._sweeper: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        """Stop the sweeper. Close the `AsyncStore`, unless an open store was given."""
        await self.stop_ttl_sweeper()
        await super().aclose()

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Sync counterpart of `abatch`, for other threads."""
        found: list[Any] = self._loop.call(self.abatch, list(ops))
        return found

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Async counterpart of `LangGraphStore.batch`."""
        self._loop.note()
        batch = ItemBatch(ops, self._index)
        vectors, queries = {}, {}
        if self._index is not None:
            embeddings, texts = self._index.embeddings, batch.to_embed()
            if texts:
                vectors = dict(zip(texts, await embeddings.aembed_documents(texts), strict=True))
            queries = {query: await embeddings.aembed_query(query) for query in batch.queries}
        return await self._runner.run(batch.steps(vectors, queries), creates=batch.creates)

    async def sweep_ttl(self) -> int:
        """Async counterpart of `LangGraphStore.sweep_ttl`."""
        found: int = await self._runner.run(steps_of(call("purge_expired")))
        return found

    async def start_ttl_sweeper(
        self, sweep_interval_minutes: float | None = None
    ) -> asyncio.Task[None]:
        """Async counterpart of `LangGraphStore.start_ttl_sweeper`: starts and returns a task."""
        if self._sweeper is None or self._sweeper.done():
            seconds = _interval(self.ttl_config, sweep_interval_minutes)
            self._sweeper = asyncio.create_task(self._sweep(seconds))
        return self._sweeper

    async def _sweep(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.sweep_ttl()
            except CollectionsStoreError as error:
                LOG.warning("expired items could not be deleted: %s", error)

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Async counterpart of `LangGraphStore.stop_ttl_sweeper`."""
        if self._sweeper is None:
            return True
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([self._sweeper], timeout=timeout)
        return self._sweeper.done()


def _interval(ttl: Mapping[str, Any] | None, minutes: float | None) -> float:
    given = minutes if minutes is not None else (ttl or {}).get("sweep_interval_minutes")
    return float(SWEEP_MINUTES if given is None else given) * 60
