"""AEA's storage over a store.

Rules:

1. Nothing is opened before `connect`, `open` or the first call. `connect` may come again, from another event loop.
2. `disconnect` waits for the calls that run in its event loop; then it returns. Later calls raise `StoreClosed`, so no
   caller waits for ever.
3. Signals are handled in the main thread, between any two steps of Python. In a callback of a weak reference, of which
   SQLAlchemy makes many when it compiles a statement or connects, Python prints a KeyboardInterrupt and forgets it: the
   agent would not end. So the operations of skills, which run in the main thread, run in a `Worker`.
4. A `Worker` takes requests and answers by `SimpleQueue`, whose lock is C code: a signal that raises within an executor or
   a future of Python's would leave a lock locked.
"""

from __future__ import annotations

import asyncio
import re
import threading
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import asynccontextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from ... import AsyncStore, Collection, InvalidUrl, MissingExtra, Store, StoreClosed
from ...options import Consistency, option_types
from .formats import decoded, encoded, filter_of, is_name, name_of, text_of

try:
    from aea.helpers.storage import generic_storage
    from aea.helpers.storage.backends.base import AbstractStorageBackend
except ImportError as error:
    raise MissingExtra("open-aea", "aea") from error

SCHEMES: Final = ("collections", "collections+sqlite", "collections+postgresql")
"""The schemes of `storage_uri`: AEA reads them with `urlparse`, which accepts no underscore."""
CONNECT_TIMEOUT: Final = 30.0
"""Seconds that a call waits for AEA's own storage to connect."""
POLL_INTERVAL: Final = 0.25
"""Seconds after which the main thread checks whether its worker has ended."""
_STOPPED: Final = "the storage is not running: it was stopped, or not started"

# -- URIs -----------------------------------------------------------------------------------------

_URI: Final = re.compile(
    r"collections[+:](?!//)(?P<scheme>[a-z]*)(?P<rest>.+)", re.IGNORECASE | re.DOTALL
)
_ATTACH: Final = "attach"
_OPTIONS: Final[Mapping[str, Callable[[str], Any]]] = option_types()
"""The options of a store that a `storage_uri` may have, and their types."""


def is_ours(uri: object) -> bool:
    """Return whether a `storage_uri` is for this package."""
    return isinstance(uri, str) and uri.partition(":")[0].lower() in SCHEMES


class Uri(NamedTuple):
    """The parts of a `storage_uri`: the store's URL and options, and whether to attach to the agent's dialogues."""

    url: str
    attached: bool
    options: dict[str, Any]


def read_uri(uri: str) -> Uri:
    """Return the parts of a `storage_uri`; raises `InvalidUrl`.

    >>> read_uri("collections+sqlite:///agent.db?attach=dialogues&busy_timeout=5")
    Uri(url='sqlite:///agent.db', attached=True, options={'busy_timeout': 5.0})
    """
    found = _URI.fullmatch(uri)
    if found is None or not is_ours(uri):
        raise InvalidUrl(
            "storage_uri: must be collections+sqlite:///file.db or collections+postgresql://…"
        )
    rest, _, query = found["rest"].partition("?")
    url = found["scheme"].lower() + rest
    given = parse_qsl(query, keep_blank_values=True)
    attached = [value for name, value in given if name == _ATTACH]
    if attached not in ([], ["dialogues"]):
        raise InvalidUrl(f"storage_uri: {_ATTACH} must be 'dialogues', once, got {attached}")
    options = {name: _option(name, value) for name, value in given if name in _OPTIONS}
    others = urlencode([each for each in given if each[0] != _ATTACH and each[0] not in _OPTIONS])
    return Uri(url + (f"?{others}" if others else ""), bool(attached), options)


def _option(name: str, value: str) -> Any:
    try:
        return _OPTIONS[name](value)
    except ValueError:
        raise InvalidUrl(f"storage_uri: {name} must be a number, got {value[:80]!r}") from None


# -- the worker of the main thread ----------------------------------------------------------------


class Worker:
    """A thread that runs the requests of the main thread, one at a time."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Callable[[Any], Any], Any, SimpleQueue[Any]] | None] = (
            SimpleQueue()
        )
        self._has_ended = False
        threading.Thread(target=self._work, name="collections_store-aea", daemon=True).start()

    def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Return what the function returns; it runs in this thread once the worker has ended."""
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._requests.put((function, argument, answer))
        while True:
            try:
                result, error = answer.get(timeout=POLL_INTERVAL)
            except Empty:
                if self._has_ended and answer.empty():
                    return function(argument)
            else:
                break
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        """Let the thread end after its requests."""
        self._requests.put(None)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            function, argument, answer = request
            try:
                answer.put((function(argument), None))
            except BaseException as error:  # noqa: BLE001 - the requesting thread raises it
                answer.put((None, error))
        self._has_ended = True


class StoreOffMainThread(Store):
    """A store whose operations run in a worker when the main thread calls them."""

    def __init__(self, store: Store | AsyncStore, worker: Worker) -> None:
        self._share(store.core)
        self._owner, self._worker = store, worker
        """The store, which is open for as long as this one exists."""

    @property
    def _runner(self) -> Any:
        return self.run

    def run(self, operation: Any, consistency: Consistency = "strong") -> Any:
        """Return the operation's result."""
        run = partial(self.core.run, consistency=consistency)
        is_main = threading.current_thread() is threading.main_thread()
        if (
            is_main and not self.core.permits.has_own_transaction()
        ):  # transactions belong to threads
            return self._worker.run(run, operation)
        return run(operation)


# -- the backend ----------------------------------------------------------------------------------


class CollectionsBackend(AbstractStorageBackend):
    """A backend of AEA's storage, over a store of its own, or over a given one.

    Nothing is opened before `connect`, `open`, or the first call. After `disconnect`, a call waits `timeout` seconds for
    the next `connect`, and then raises `StoreClosed`; at once if it comes from the event loop that is ending. Any number
    of threads and event loops may use it.
    """

    def __init__(self, uri: str | Store | AsyncStore, *, timeout: float = CONNECT_TIMEOUT) -> None:
        super().__init__(uri if isinstance(uri, str) else "collections:")
        self._given = None if isinstance(uri, str) else uri
        self._url, _, self._options = read_uri(uri) if isinstance(uri, str) else Uri("", False, {})
        self._store = self._given
        self._lock = threading.RLock()
        self._ended: Any = None
        self._timeout = timeout
        self._worker: Worker | None = None
        self._calls: Counter[asyncio.AbstractEventLoop] = Counter()
        if self._given is None:
            try:
                Store(self._url, **self._options).close()  # opens nothing, and validates the URL
            except InvalidUrl as error:
                known = ", ".join(sorted((_ATTACH, *_OPTIONS)))
                raise InvalidUrl(f"storage_uri: {error}; it also takes {known}") from error

    def __repr__(self) -> str:
        return repr(self._store if self._store is not None else Store(self._url, **self._options))

    def open(self) -> Store | AsyncStore:
        """Return the store, ready for use."""
        with self._lock:
            if self._store is None:
                self._store = self._given or AsyncStore(self._url, **self._options)
            return self._store

    async def connect(self) -> None:
        """Open the database; raises what the store does."""
        store = self.open()
        try:
            if isinstance(store, AsyncStore):
                await store["aea"].exists("")
            else:
                await asyncio.to_thread(store["aea"].exists, "")
        except BaseException:
            await self.disconnect()
            raise
        self._ended = None

    async def disconnect(self) -> None:
        """Wait for the calls that run, and close a store of its own. A second call does nothing."""
        with self._lock:
            store, self._store = self._store, None
            worker, self._worker = self._worker, None
            self._ended = asyncio.get_running_loop()
        if worker is not None:
            worker.stop()
        if isinstance(store, AsyncStore) and store is not self._given:
            await store.aclose()
        rounds, loop = 0, asyncio.get_running_loop()
        while rounds < 5 or loop in self._calls:  # calls about to begin are refused meanwhile
            await asyncio.sleep(0 if rounds < 100 else 0.001)
            rounds += 1

    async def ensure_collection(self, collection_name: str) -> None:
        """Raise `ValueError` for a name that no collection can have; the first document creates a collection."""
        self._check_collection_name(collection_name)
        async with self._collection(collection_name):
            pass

    async def put(self, collection_name: str, object_id: str, object_body: Any) -> None:
        """Store a document."""
        id, body = text_of(object_id), encoded(object_body)
        async with self._collection(collection_name) as collection:
            await collection.put(id, body)

    async def get(self, collection_name: str, object_id: str) -> Any:
        """Return a document's body, or None."""
        id = text_of(object_id)
        async with self._collection(collection_name) as collection:
            return decoded(await collection.get(id))

    async def remove(self, collection_name: str, object_id: str) -> None:
        """Remove a document, if there is one."""
        id = text_of(object_id)
        async with self._collection(collection_name) as collection:
            await collection.remove(id)

    async def find(self, collection_name: str, field: str, equals: Any) -> list[tuple[str, Any]]:
        """Return the ids and bodies of the documents whose field has a value."""
        filter = filter_of(field, equals)
        async with self._collection(collection_name) as collection:
            return [(id, decoded(body)) for id, body in await collection.find(filter)]

    async def list(self, collection_name: str) -> list[tuple[str, Any]]:
        """Return the ids and bodies of all documents."""
        async with self._collection(collection_name) as collection:
            return [(id, decoded(body)) for id, body in await collection.list()]

    def sync_store(self) -> Store:
        """Return the store for skills, which needs no event loop; raises `StoreClosed`."""
        with self._lock:
            if self._store is None:
                raise StoreClosed(_STOPPED)
            if self._worker is None:
                self._worker = Worker()
            return StoreOffMainThread(self._store, self._worker)

    def is_over(self, store: Store) -> bool:
        """Return whether `store` is the backend's, which this opens."""
        return self.open().core is store.core

    def sync_collection(self, name: str) -> Collection:
        """Return a collection that needs no event loop; raises `StoreClosed`."""
        self._check_collection_name(name)
        return self.sync_store().collection(name_of(name))

    def _check_collection_name(self, collection_name: str) -> None:
        if not is_name(collection_name):
            raise ValueError(
                f"Invalid collection name: {collection_name}, should contain only alpha-numeric "
                "characters and _"
            )

    @asynccontextmanager
    async def _collection(self, name: str) -> AsyncIterator[Any]:
        self._check_collection_name(name)
        store, loop = await self._running_store(), asyncio.get_running_loop()
        collection = store[name_of(name)]
        self._calls[loop] += 1
        try:
            yield collection if isinstance(store, AsyncStore) else _ThreadCollection(collection)
        finally:
            self._calls[loop] -= 1
            if not self._calls[loop]:
                del self._calls[loop]

    async def _running_store(self) -> Store | AsyncStore:
        """Return the store: opened before the first start, waited for after a stop."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout
        while True:
            with self._lock:
                store = self.open() if self._ended is None else self._store
            if store is not None:
                return store
            if self._ended is loop or loop.time() >= until:
                raise StoreClosed(_STOPPED)
            await asyncio.sleep(0.01)


class _ThreadCollection:
    """A sync collection whose methods are awaited, each in a thread."""

    def __init__(self, collection: Any) -> None:
        self._collection = collection

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(asyncio.to_thread, getattr(self._collection, method))


# -- the storage ----------------------------------------------------------------------------------


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
            self._opened = Future()
            _fail(self._opened, StoreClosed("the storage was stopped"))
            try:
                await self._backend.disconnect()
            finally:
                self._is_connected = False
                self._connected_state.set(False)

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
