"""AEA's storage: it never keeps a caller waiting for what does not come."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from aea.helpers.storage import generic_storage  # isort: skip - `backend` tells if it is missing
from ... import AsyncStore, Collection, Store, StoreClosed
from .backend import CollectionsBackend
from .encoding import decoded, encoded, filter_of, text_of


class SyncCollection(generic_storage.SyncCollection):
    """A collection for skills. Its calls run in the thread that makes them: no event loop takes part, so none can keep
    them waiting. It outlives a restart of its storage.
    """

    def __init__(self, backend: CollectionsBackend, name: str) -> None:
        self._backend, self._name = backend, name
        self._collection  # noqa: B018 - refuses a bad name, and a storage that does not run

    @property
    def _collection(self) -> Collection:
        return self._backend.sync_collection(self._name)

    def put(self, object_id: str, object_body: Any) -> None:
        """Store an object."""
        self._collection.put(text_of(object_id), encoded(object_body))

    def get(self, object_id: str) -> Any:
        """Return an object, or None."""
        return decoded(self._collection.get(text_of(object_id)))

    def remove(self, object_id: str) -> None:
        """Remove an object, if there is one."""
        self._collection.remove(text_of(object_id))

    def find(self, field: str, equals: Any) -> list[tuple[str, Any]]:
        """Return the objects whose field has the value, with their ids."""
        found = self._collection.find(filter_of(field, equals))
        return [(id, decoded(body)) for id, body in found]

    def list(self) -> list[tuple[str, Any]]:
        """Return all objects with their ids."""
        return [(id, decoded(body)) for id, body in self._collection.list()]


class Storage(generic_storage.Storage):
    """AEA's storage over a store: over one of its own by a URI, `collections+sqlite:///file.db`, or over one that is
    given, which stays open when it stops.

    A collection can be had as soon as `start` has returned. What is called when it has stopped raises `StoreClosed`.
    """

    _backend: CollectionsBackend

    def __init__(
        self,
        storage_uri: str | Store | AsyncStore,
        loop: AbstractEventLoop | None = None,
        threaded: bool = False,
    ) -> None:
        given: Any = storage_uri
        super().__init__(given, loop=loop, threaded=threaded)
        self._opened: Future[None] = Future()
        self._over: Future[None] = Future()
        self._before: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"Storage({self._backend!r}, {'' if self.is_connected else 'not '}connected)"

    @property
    def store(self) -> Store:
        """The store, for synchronous use; raises `StoreClosed`."""
        return self._backend.sync_store()

    def open(self) -> Store:
        """Return the store even if the storage has not been started yet."""
        self._backend.open()
        return self.store

    def before_connected(self, act: Callable[[], object]) -> None:
        """Have something done whenever the storage connects, before anybody is told."""
        self._before.append(act)

    def get_sync_collection(self, collection_name: str) -> SyncCollection:
        """Return a collection for skills; raises `ValueError` if the storage was never started."""
        if not self._loop:
            raise ValueError("Storage not started!")
        return SyncCollection(self._backend, collection_name)

    async def run(self) -> None:
        """Connect, and stay so until it is stopped."""
        opened = self._opened
        try:
            await self._backend.connect()
            for act in self._before:
                act()
        except BaseException as error:
            _fail(opened, error)
            await self._backend.disconnect()
            raise
        self._is_connected = True
        self._connected_state.set(True)
        _succeed(opened)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._disconnect()

    async def wait_connected(self) -> None:
        """Wait for the storage to be connected; raises why it cannot be, or `StoreClosed` if it has stopped."""
        try:
            await asyncio.shield(asyncio.wrap_future(self._opened))
        except Exception:
            self._got_result = True  # told once: the runtime's stop goes on
            raise

    def stop(self, force: bool = False) -> None:
        """Stop; the calls that run come to their end."""
        with suppress(RuntimeError):  # its loop has just ended
            super().stop(force)

    @classmethod
    def _get_backend_instance(cls, uri: Any) -> CollectionsBackend:
        return CollectionsBackend(uri, patience=0)  # `start` opens it: nobody comes too early

    def _set_task(self) -> None:
        self._backend.open()
        if self._opened.done():
            self._opened = Future()
        self._over = Future()
        super()._set_task()

    async def _disconnect(self) -> None:
        self._opened = Future()
        _fail(self._opened, StoreClosed("the storage was stopped"))
        try:
            await self._backend.disconnect()
        finally:
            self._is_connected = False
            self._connected_state.set(False)

    def _thread_target(self) -> None:
        over, task = self._over, self._task
        try:
            super()._thread_target()
        finally:
            failed = task is not None and task.done() and not task.cancelled() and task.exception()
            _fail(over, failed) if failed else _succeed(over)

    def _wait_async(self, timeout: float | None = None) -> Awaitable[Any]:
        """Wait for the end, in any loop: AEA's own asks the task, which is another thread's."""
        return self._wait_over() if self._threaded else super()._wait_async(timeout)

    async def _wait_over(self) -> None:
        over = self._over
        try:
            await asyncio.shield(asyncio.wrap_future(over))
        finally:  # a runtime that is stopped cancels one wait, and then waits again
            self._got_result = over.done()


def _succeed(future: Future[None]) -> None:
    with suppress(InvalidStateError):
        future.set_result(None)


def _fail(future: Future[None], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        error = StoreClosed("the storage was stopped before it was connected")
    with suppress(InvalidStateError):
        future.set_exception(error)
