"""Procedures on a collection, run on a `Store` or an `AsyncStore`.

A procedure is a generator: each step yields a function of a collection, and receives the function's result or
exception. The return value is the method's result. The same procedure serves a `Collection` and an
`AsyncCollection`, since both have methods of the same names. A transaction is a procedure of its own: the outer
procedure yields an `InTransaction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Final, Self, TypeAlias, TypeVar

from ... import AsyncStore, CollectionExists, Store, VectorIndex
from ..stores import open_store

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
call: Final = methodcaller
"""A step: `call("count", {"country": "de"})` calls this method of the collection."""


@dataclass(frozen=True, slots=True)
class InTransaction:
    """A step that runs a procedure in a transaction, again after a conflict; inside a transaction, the procedure
    joins that transaction. `read_only`: the procedure only reads.
    """

    procedure: Callable[[], Steps[Any]]
    read_only: bool = False


def steps_of(step: Any) -> Steps[Any]:
    """Return the procedure of one step."""
    return (yield step)


class StepRunner:
    """Runs procedures on a collection of a store. Closes the store unless an open store was given."""

    def __init__(
        self,
        store: Any,
        collection: str,
        options: dict[str, Any],
        index: Mapping[str, Any] | None = None,
    ) -> None:
        """`index` has the arguments of a vector index of the collection."""
        self._index = index
        self.store: Store = open_store(Store, store, options)
        self._is_own = self.store is not store
        self._collection: Any = self.store[collection]
        self._exists = False

    def run(self, steps: Steps[T], *, creates: bool = False) -> T:
        """Return the result of the steps. `creates`: the steps may write the first documents."""
        if creates and not self._exists:
            self.setup()
        return _follow(self._collection, steps, self.store)

    def setup(self) -> None:
        """Create the collection and the index, unless they exist."""
        index = None if self._index is None else VectorIndex.parse(**self._index)
        if index is None or index not in self._collection.indexes():
            with suppress(CollectionExists):
                self.store.create_collection(self._collection.name, body_index=False)
            if self._index is not None:
                self._collection.create_vector_index(**self._index)
        self._exists = True

    def close(self) -> None:
        """Close the store, unless an open store was given."""
        if self._is_own:
            self.store.close()


class AsyncStepRunner:
    """Runs procedures on a collection of an `AsyncStore`: see `StepRunner`."""

    def __init__(
        self,
        store: Any,
        collection: str,
        options: dict[str, Any],
        index: Mapping[str, Any] | None = None,
    ) -> None:
        self._index = index
        self.store: AsyncStore = open_store(AsyncStore, store, options)
        self._is_own = self.store is not store
        self._collection: Any = self.store[collection]
        self._exists = False

    async def run(self, steps: Steps[T], *, creates: bool = False) -> T:
        """Return the result of the steps. `creates`: the steps may write the first documents."""
        if creates and not self._exists:
            await self.setup()
        return await _follow_async(self._collection, steps, self.store)

    async def setup(self) -> None:
        """Create the collection and the index, unless they exist."""
        index = None if self._index is None else VectorIndex.parse(**self._index)
        if index is None or index not in await self._collection.indexes():
            with suppress(CollectionExists):
                await self.store.create_collection(self._collection.name, body_index=False)
            if self._index is not None:
                await self._collection.create_vector_index(**self._index)
        self._exists = True

    async def aclose(self) -> None:
        """Close the store, unless an open store was given."""
        if self._is_own:
            await self.store.aclose()


class LoopCaller:
    """Calls coroutine functions in an event loop, from threads outside of the loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self.note()

    def note(self) -> None:
        """Note the running loop."""
        self._loop = asyncio.get_running_loop()

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Return the function's result; raise `asyncio.InvalidStateError` in the thread of the loop."""
        here = None
        with suppress(RuntimeError):
            here = asyncio.get_running_loop()
        if self._loop is None or here is self._loop:
            raise asyncio.InvalidStateError(
                "a sync method would block the event loop: use the async one, its name begins with a"
            )
        job = asyncio.run_coroutine_threadsafe(function(*arguments), self._loop)
        return job.result()


class SyncFront:
    """Base class of the sync checkpointer and the sync store: opening, closing, `with`."""

    _runner: StepRunner

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """Open a URL or an SQLite file, for a `with` statement; `options` as in the class."""
        return cls(conn_string, **options)  # type: ignore[call-arg]

    def setup(self) -> None:
        """Create the collection, unless the collection exists. The first write calls `setup`, too."""
        self._runner.setup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the `Store`, unless an open store was given."""
        self._runner.close()


class AsyncFront:
    """Base class of the async checkpointer and the async store: opening, closing, `async with`."""

    _runner: AsyncStepRunner
    _loop: LoopCaller

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """Open a URL or an SQLite file, for an `async with` statement; `options` as in the class."""
        return cls(conn_string, **options)  # type: ignore[call-arg]

    async def setup(self) -> None:
        """Async counterpart of `setup` of the sync class."""
        await self._runner.setup()

    async def __aenter__(self) -> Self:
        self._loop.note()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the `AsyncStore`, unless an open store was given."""
        await self._runner.aclose()


def _follow(collection: Any, steps: Steps[T], store: Store | None = None) -> T:
    """Return the result of the steps. Without a store, the steps belong to a transaction."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, InTransaction):
                    result = _transact(collection, step, store)
                else:
                    result = step(collection)
            except Exception as error:  # noqa: BLE001 - the steps handle it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        found: T = stop.value
        return found


def _transact(collection: Any, step: InTransaction, store: Store | None) -> Any:
    if store is None:
        return _follow(collection, step.procedure())
    return store.run_transaction(
        lambda tx: _follow(tx[collection.name], step.procedure()), read_only=step.read_only
    )


async def _follow_async(collection: Any, steps: Steps[T], store: AsyncStore | None = None) -> T:
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, InTransaction):
                    result = await _transact_async(collection, step, store)
                else:
                    result = await step(collection)
            except Exception as error:  # noqa: BLE001 - the steps handle it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        found: T = stop.value
        return found


async def _transact_async(collection: Any, step: InTransaction, store: AsyncStore | None) -> Any:
    if store is None:
        return await _follow_async(collection, step.procedure())
    return await store.run_transaction(
        lambda tx: _follow_async(tx[collection.name], step.procedure()), read_only=step.read_only
    )
