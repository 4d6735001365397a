"""AEA's storage, whose calls end when it stops: no caller waits for ever."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from aea.helpers.storage import generic_storage  # isort: skip - after `backend`, whose error says what to install
from ... import AsyncStore, Collection, Store, StoreClosed
from .backend import CollectionsBackend
from .encoding import decoded, encoded, filter_of, text_of


class SyncCollection(generic_storage.SyncCollection):
    """A collection for skills. Its calls run without an event loop, and survive a restart of the storage."""

    def __init__(self, backend: CollectionsBackend, name: str) -> None:
        self._backend, self._name = backend, name
        self._collection  # noqa: B018 - raises for a bad name, and if the storage does not run

    @property
    def _collection(self) -> Collection:
        return self._backend.sync_collection(self._name)

    def put(self, object_id: str, object_body: Any) -> None:
        """Store a document."""
        self._collection.put(text_of(object_id), encoded(object_body))

    def get(self, object_id: str) -> Any:
        """Return a document's body, or None."""
        return decoded(self._collection.get(text_of(object_id)))

    def remove(self, object_id: str) -> None:
        """Remove a document, if there is one."""
        self._collection.remove(text_of(object_id))

    def find(self, field: str, equals: Any) -> list[tuple[str, Any]]:
        """Return the ids and bodies of the documents whose field has a value."""
        found = self._collection.find(filter_of(field, equals))
        return [(id, decoded(body)) for id, body in found]

    def list(self) -> list[tuple[str, Any]]:
        """Return the ids and bodies of all documents."""
        return [(id, decoded(body)) for id, body in self._collection.list()]


class Storage(generic_storage.Storage):
    """AEA's storage over a store: over one of its own by a URI, `collections+sqlite:///file.db`, or over a given one,
    which stays open when the storage stops.

    Collections can be used as soon as `start` has returned. Calls after the stop raise `StoreClosed`.
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
        """Return the store, also before the storage is started."""
        self._backend.open()
        return self.store

    def before_connected(self, act: Callable[[], object]) -> None:
        """Call a function whenever the storage connects, before it counts as connected."""
        self._before.append(act)

    def get_sync_collection(self, collection_name: str) -> SyncCollection:
        """Return a collection for skills; raises `ValueError` if the storage was never started."""
        if not self._loop:
            raise ValueError("Storage not started!")
        return SyncCollection(self._backend, collection_name)

    async def run(self) -> None:
        """Connect, and stay connected until the storage is stopped."""
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
        """Wait until the storage is connected; raises what `connect` raised, or `StoreClosed` after a stop."""
        try:
            await asyncio.shield(asyncio.wrap_future(self._opened))
        except Exception:
            self._got_result = True  # raised once: the runtime then stops
            raise

    def stop(self, force: bool = False) -> None:
        """Stop, after the calls that run."""
        with suppress(RuntimeError):  # its loop has just ended
            super().stop(force)

    @classmethod
    def _get_backend_instance(cls, uri: Any) -> CollectionsBackend:
        return CollectionsBackend(uri, timeout=0)  # `start` opens it: no call is too early

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
        """Wait for the end, in any loop: AEA's own method awaits a task of another thread."""
        return self._wait_over() if self._threaded else super()._wait_async(timeout)

    async def _wait_over(self) -> None:
        over = self._over
        try:
            await asyncio.shield(asyncio.wrap_future(over))
        finally:  # a stopping runtime cancels one wait, and then waits again
            self._got_result = over.done()


def _succeed(future: Future[None]) -> None:
    with suppress(InvalidStateError):
        future.set_result(None)


def _fail(future: Future[None], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        error = StoreClosed("the storage was stopped before it was connected")
    with suppress(InvalidStateError):
        future.set_exception(error)
