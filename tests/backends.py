"""The databases of tests, and stores on them: a synchronous interface of asynchronous objects lets one test use both forms."""

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg

from collections_store import (
    AsyncChangeDocumentStream,
    AsyncChangeStream,
    AsyncCollection,
    AsyncStore,
    Store,
)
from collections_store.dialogues import AsyncDialogues, AsyncDialogueStore, Dialogues, DialogueStore
from collections_store.integrations import kdeps
from collections_store.integrations.soul_machines import AsyncSkillMemory
from collections_store.memory import AsyncMemory

T = TypeVar("T")
BACKENDS = ("sqlite-file", "sqlite-memory", "postgresql")
VARIANTS = ("sync", "async")


@dataclass
class Backend:
    """A database for a test: stores on one backend share their documents."""

    name: str
    url: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        return self.name == "sqlite-memory"

    @property
    def is_postgresql(self) -> bool:
        return self.name == "postgresql"


def has_pgvector(url: str) -> bool:
    """Return whether a server has pgvector 0.8 or newer."""
    with psycopg.connect(url) as connection:
        query = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
        found = connection.execute(query).fetchone()
    return found is not None and [*map(int, found[0].split("."))] >= [0, 8]


class SyncAdapter:
    """The synchronous interface of an asynchronous object: awaits what its methods return."""

    def __init__(self, target: Any, runner: Any) -> None:
        self._target, self._runner = target, runner

    def __getattr__(self, name: str) -> Any:
        name = {"close": "aclose"}.get(name, name)
        found = getattr(self._target, name)
        if isinstance(found, AsyncCollection):
            return SyncAdapter(found, self._runner)
        return self._wrap(found) if callable(found) else found

    def __getitem__(self, name: str) -> Any:
        return SyncAdapter(self._target[name], self._runner)

    def __repr__(self) -> str:
        return repr(self._target).replace("Async", "")

    def __enter__(self) -> "SyncAdapter":
        self._runner.run(self._target.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._runner.run(self._target.__aexit__(*error))

    def run_transaction(self, function: Callable[[Any], Any], **options: Any) -> Any:
        """Call a synchronous function in a thread, with the transaction's synchronous interface."""

        async def call(transaction: Any) -> Any:
            bridge = Bridge(asyncio.get_running_loop())
            return await asyncio.to_thread(function, SyncAdapter(transaction, bridge))

        return self._runner.run(self._target.run_transaction(call, **options))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            if inspect.isasyncgen(result):
                return self._iterate(result)
            if isinstance(result, AsyncChangeStream | AsyncChangeDocumentStream):
                return SyncStreamAdapter(result, self._runner).start()
            if isinstance(result, AsyncMemory | AsyncSkillMemory):
                return SyncAdapter(result, self._runner)
            if hasattr(result, "__aenter__"):
                return SyncContextAdapter(result, self._runner)
            if inspect.iscoroutine(result):
                result = self._runner.run(result)
            if isinstance(result, AsyncCollection):
                self._runner.run(result._declared())  # at once, as a sync collection
                return SyncAdapter(result, self._runner)
            return result

        return call

    def _iterate(self, generator: Any) -> Iterator[Any]:
        async def step() -> Any:
            return await anext(generator, self)

        while (item := self._runner.run(step())) is not self:
            yield item


class SyncStreamAdapter(SyncAdapter):
    """The synchronous interface of an asynchronous change stream. The stream starts when it is created."""

    def start(self) -> "SyncStreamAdapter":
        async def start() -> None:
            await self._target

        self._runner.run(start())
        return self

    def __iter__(self) -> "SyncStreamAdapter":
        return self

    def __next__(self) -> Any:
        async def step() -> Any:
            return await anext(self._target, self)

        found = self._runner.run(step())
        if found is self:
            raise StopIteration
        return found


class SyncContextAdapter:
    """The synchronous interface of an asynchronous context manager."""

    def __init__(self, context: Any, runner: Any) -> None:
        self._context, self._runner = context, runner

    def __enter__(self) -> Any:
        async def enter() -> Any:
            return await self._context.__aenter__()

        entered = self._runner.run(enter())
        is_ours = type(entered).__module__.startswith("collections_store.")
        return SyncAdapter(entered, self._runner) if is_ours else entered

    def __exit__(self, *error: Any) -> bool:
        async def leave() -> bool:
            return bool(await self._context.__aexit__(*error))

        suppressed: bool = self._runner.run(leave())
        return suppressed


class Bridge:
    """Runs coroutines on an event loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


class LoopRunner:
    """Runs coroutines on an event loop, all in one context, as `asyncio.Runner` does; but without its handler of Ctrl-C,
    which takes four times as long as a short coroutine.
    """

    def __init__(self) -> None:
        self._runner, self._context = asyncio.Runner(), contextvars.copy_context()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop = self._runner.get_loop()
        return loop.run_until_complete(loop.create_task(coroutine, context=self._context))

    def close(self) -> None:
        self._runner.close()


class Opener:
    """Opens stores of one variant, sync or async, on one backend, and closes them after the test."""

    def __init__(self, backend: Backend, variant: str) -> None:
        self.backend, self.variant = backend, variant
        self._runner = LoopRunner()
        self._stores: list[Any] = []

    def __call__(self, **options: Any) -> Any:
        options = {**self.backend.options, **options}
        store: Any
        if self.variant == "sync":
            store = Store(self.backend.url, **options)
        else:
            store = SyncAdapter(AsyncStore(self.backend.url, **options), self._runner)
        self._stores.append(store)
        return store

    def dialogues(self, store: Any, self_address: str = "ada", **options: Any) -> Any:
        """Return the dialogues of an agent, of this variant."""
        return self._create(store, Dialogues, AsyncDialogues, self_address, **options)

    def dialogue_store(self, store: Any, agent: str = "ada", *component: str, codec: Any) -> Any:
        """Return a dialogue store of this variant."""
        return self._create(
            store, DialogueStore, AsyncDialogueStore, agent, *component, codec=codec
        )

    def kdeps(self, name: str, memory: Any, *arguments: Any, **options: Any) -> Any:
        """Return an object of one of kdeps' classes, of this variant."""
        sync_class, async_class = getattr(kdeps, name), getattr(kdeps, f"Async{name}")
        return self._create(memory, sync_class, async_class, *arguments, **options)

    def attach(self, store: Any, component: Any) -> None:
        """Attach a component whose `setup` and `teardown` are synchronous."""
        store.attach(component if self.variant == "sync" else _AsyncComponent(component))

    def _create(
        self, store: Any, sync_class: Any, async_class: Any, *arguments: Any, **options: Any
    ) -> Any:
        if self.variant == "sync":
            return sync_class(store, *arguments, **options)
        return SyncAdapter(async_class(store._target, *arguments, **options), self._runner)

    def call_concurrently(self, calls: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Make calls, each (object, name of a method, arguments …), at the same time, each in its own thread or task.
        Return for each its result or the exception that it raised.
        """
        bound = [(getattr(unwrap(on), method), args) for on, method, *args in calls]
        if self.variant == "async":
            return self._runner.run(_gather(bound))
        barrier = threading.Barrier(len(bound))
        with ThreadPoolExecutor(len(bound)) as pool:
            return list(pool.map(lambda call: _outcome(barrier, *call), bound))

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Call a function repeatedly until its result is true; return the result."""
        for _ in range(1000):
            if found := condition():
                return found
            if self.variant == "sync":
                time.sleep(0.01)
            else:
                self._runner.run(asyncio.sleep(0.01))
        raise AssertionError("the condition did not become true within 10 seconds")

    def close_stores(self) -> None:
        while self._stores:
            self._stores.pop().close()

    def close(self) -> None:
        self.close_stores()
        self._runner.close()


class _AsyncComponent:
    """An asynchronous component that calls a synchronous one."""

    def __init__(self, component: Any) -> None:
        self._component = component

    async def setup(self) -> Any:
        return self._component.setup()

    async def teardown(self) -> Any:
        return self._component.teardown()


def unwrap(adapter: Any) -> Any:
    """Return the asynchronous object behind a synchronous interface, or the argument itself."""
    return getattr(adapter, "_target", adapter)


async def _gather(calls: list[tuple[Any, Any]]) -> list[Any]:
    return await asyncio.gather(*(method(*args) for method, args in calls), return_exceptions=True)


def _outcome(barrier: threading.Barrier, method: Any, arguments: Any) -> Any:
    barrier.wait()
    try:
        return method(*arguments)
    except Exception as error:  # noqa: BLE001 - the test checks it
        return error
