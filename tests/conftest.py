"""What every test may ask for: a PostgreSQL, and a store on each backend sync and async."""

import asyncio
import importlib
import inspect
import itertools
import os
import pkgutil
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import sqlalchemy as sa
from hypothesis import core
from postgres_server import NoPostgres, postgres_server

import collections_store
from collections_store import AsyncChangeStream, AsyncStore, Store, document
from collections_store.dialogues import AsyncDialogues, AsyncDialogueStore, Dialogues, DialogueStore
from collections_store.integrations import kdeps
from collections_store.integrations.soul_machines import AsyncSkillMemory
from collections_store.memory import AsyncMemory
from collections_store.operations.catalogue import AS_IT_IS, CreateCollection

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # some 300 processes would compile all of it anew
for _room in pkgutil.walk_packages(collections_store.__path__, "collections_store."):
    if not re.search(r"\.(integrations|cli|__main__)\b", _room.name):
        importlib.import_module(_room.name)  # before a test changes the clock that it would import
if "COLLECTIONS_STORE_TEST_JSONB" in os.environ:  # see tests/contract/test_jsonb.py
    CreateCollection.__init__.__defaults__ = (True, AS_IT_IS, True)
_seed = int(os.environ.setdefault("COLLECTIONS_STORE_TEST_SEED", str(random.randrange(2**32))))
"""In the environment, so that the processes among which xdist shares the tests have the same."""


def pytest_configure(config: pytest.Config) -> None:
    """Give the property tests one seed, unless the command line does, so that it can be told. And have processes that
    the tests start hear SIGINT: a shell's job in the background begets such as ignore it.
    """
    given = config.getoption("--hypothesis-seed", None)
    if given is None:
        core.global_force_seed = _seed  # type: ignore[assignment]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


NewThreads = Callable[[], list[threading.Thread]]


@pytest.fixture
def new_threads() -> NewThreads:
    """Return the library's threads that were started since the test began: threads of other tests may still be ending."""
    before = set(threading.enumerate())

    def started() -> list[threading.Thread]:
        return [
            each
            for each in set(threading.enumerate()) - before
            if each.name.startswith("collections_")
        ]

    return started


BACKENDS = ("sqlite-file", "sqlite-memory", "postgresql")
KINDS = ("sync", "async")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let all combinations be chosen: `nox -s matrix` does."""
    parser.addoption(
        "--whole-matrix",
        action="store_true",
        help="run each test on each backend both sync and async, where a run of everything takes turns",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a run of everything, take turns: each test on each backend runs either sync or async (or with one value of its
    other parameter of two), and one in four in memory. Whatever is chosen by `-k` or by its id runs.
    """
    chosen = config.option.keyword or any("::" in argument for argument in config.args)
    if chosen or config.getoption("--whole-matrix"):
        return
    left = [item for item in items if _has_its_turn(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(left)])
    items[:] = left


def _has_its_turn(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    backend = parameters.get("place") or parameters.get("shared_place")
    kind = parameters.get("open_store", KINDS[parameters.get("changes") is True])
    if (
        backend not in BACKENDS
        or kind not in KINDS
        or not {"open_store", "changes"} & {*parameters}
    ):
        return True
    turn = crc32(item.nodeid.partition("[")[0].encode())
    if backend == "sqlite-memory" and turn // 2 % 4:
        return False
    return (BACKENDS.index(backend) + KINDS.index(kind) + turn) % 2 == 0


def pytest_report_header(config: pytest.Config) -> str:
    """Tell it: `--hypothesis-seed=…` draws the same again."""
    given = config.getoption("--hypothesis-seed", None)
    return f"hypothesis seed: {_seed if given is None else given}"


SHARED = Path(__file__).parents[2] / "shared"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL with superuser rights; in CI there always is one."""
    try:
        with postgres_server() as server:
            yield server.url
    except NoPostgres as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@dataclass
class Place:
    """Where a test's stores keep their tables: stores on one place see the same objects."""

    name: str
    url: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        return self.name == "sqlite-memory"

    @property
    def is_postgresql(self) -> bool:
        return self.name == "postgresql"


class Awaited:
    """An asynchronous object, seen as its synchronous twin: what is awaitable is awaited."""

    def __init__(self, twin: Any, runner: Any) -> None:
        self._twin, self._runner = twin, runner

    def __getattr__(self, name: str) -> Any:
        name = {"close": "aclose"}.get(name, name)
        found = getattr(self._twin, name)
        return self._wrapped(found) if callable(found) else found

    def __getitem__(self, name: str) -> Any:
        return Awaited(self._twin[name], self._runner)

    def __repr__(self) -> str:
        return repr(self._twin).replace("Async", "")

    def __enter__(self) -> "Awaited":
        self._runner.run(self._twin.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._runner.run(self._twin.__aexit__(*error))

    def run_transaction(self, function: Callable[[Any], Any], **options: Any) -> Any:
        """Call a synchronous function, in a thread, with a transaction that looks synchronous."""

        async def awaited(transaction: Any) -> Any:
            bridge = Bridge(asyncio.get_running_loop())
            return await asyncio.to_thread(function, Awaited(transaction, bridge))

        return self._runner.run(self._twin.run_transaction(awaited, **options))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            if inspect.isasyncgen(result):
                return self._each(result)
            if isinstance(result, AsyncChangeStream):
                return AwaitedStream(result, self._runner).started()
            if isinstance(result, AsyncMemory | AsyncSkillMemory):
                return Awaited(result, self._runner)
            if hasattr(result, "__aenter__"):
                return AwaitedContext(result, self._runner)
            return self._runner.run(result) if inspect.iscoroutine(result) else result

        return call

    def _each(self, generator: Any) -> Iterator[Any]:
        async def step() -> Any:
            return await anext(generator, self)

        while (item := self._runner.run(step())) is not self:
            yield item


class AwaitedStream(Awaited):
    """An asynchronous stream of changes, seen as a synchronous one, which begins when it is made."""

    def started(self) -> "AwaitedStream":
        async def start() -> None:
            await self._twin

        self._runner.run(start())
        return self

    def __iter__(self) -> "AwaitedStream":
        return self

    def __next__(self) -> Any:
        async def step() -> Any:
            return await anext(self._twin, self)

        found = self._runner.run(step())
        if found is self:
            raise StopIteration
        return found


class AwaitedContext:
    """An asynchronous context, seen as a synchronous one."""

    def __init__(self, context: Any, runner: Any) -> None:
        self._context, self._runner = context, runner

    def __enter__(self) -> Awaited:
        async def enter() -> Any:
            return await self._context.__aenter__()

        return Awaited(self._runner.run(enter()), self._runner)

    def __exit__(self, *error: Any) -> bool:
        async def leave() -> bool:
            return bool(await self._context.__aexit__(*error))

        left: bool = self._runner.run(leave())
        return left


class Bridge:
    """Runs coroutines on an event loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


class Opener:
    """Opens stores of one variant on one place, and closes them after the test."""

    def __init__(self, place: Place, variant: str) -> None:
        self.place, self.variant = place, variant
        self._runner = asyncio.Runner()
        self._stores: list[Any] = []

    def __call__(self, **options: Any) -> Any:
        options = {**self.place.options, **options}
        store: Any
        if self.variant == "sync":
            store = Store(self.place.url, **options)
        else:
            store = Awaited(AsyncStore(self.place.url, **options), self._runner)
        self._stores.append(store)
        return store

    def dialogues(self, store: Any, self_address: str = "ada", **options: Any) -> Any:
        """Return the dialogues of an agent in a store of this variant."""
        return self._on(store, Dialogues, AsyncDialogues, self_address, **options)

    def dialogue_store(self, store: Any, agent: str = "ada", *component: str, codec: Any) -> Any:
        """Return a store of dialogues in a store of this variant."""
        return self._on(store, DialogueStore, AsyncDialogueStore, agent, *component, codec=codec)

    def kdeps(self, name: str, memory: Any, *arguments: Any, **options: Any) -> Any:
        """Return one of kdeps' classes on a memory of this variant."""
        sync, twin = getattr(kdeps, name), getattr(kdeps, f"Async{name}")
        return self._on(memory, sync, twin, *arguments, **options)

    def attached(self, store: Any, component: Any) -> None:
        """Attach a component whose `setup` and `teardown` are plain functions."""
        store.attach(component if self.variant == "sync" else _Awaitable(component))

    def _on(self, store: Any, sync: Any, twin: Any, *arguments: Any, **options: Any) -> Any:
        if self.variant == "sync":
            return sync(store, *arguments, **options)
        return Awaited(twin(store._twin, *arguments, **options), self._runner)

    def together(self, calls: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Make calls, (object, verb, arguments …) each, at once: in a thread, or a task, for each. Returns
        what each returned, or the exception that it raised.
        """
        made = [(getattr(getattr(on, "_twin", on), verb), args) for on, verb, *args in calls]
        if self.variant == "async":
            return self._runner.run(_gathered(made))
        begin = threading.Barrier(len(made))
        with ThreadPoolExecutor(len(made)) as pool:
            return list(pool.map(lambda call: _outcome(begin, *call), made))

    def wait_for(self, what: Callable[[], Any]) -> Any:
        """Return the first true result of a function that is called again and again."""
        for _ in range(1000):
            if found := what():
                return found
            if self.variant == "sync":
                time.sleep(0.01)
            else:
                self._runner.run(asyncio.sleep(0.01))
        raise AssertionError("it never came to be")

    def close_stores(self) -> None:
        while self._stores:
            self._stores.pop().close()

    def close(self) -> None:
        self.close_stores()
        self._runner.close()


class _Awaitable:
    """A component, awaited."""

    def __init__(self, component: Any) -> None:
        self._component = component

    async def setup(self) -> Any:
        return self._component.setup()

    async def teardown(self) -> Any:
        return self._component.teardown()


async def _gathered(calls: list[tuple[Any, Any]]) -> list[Any]:
    return await asyncio.gather(*(verb(*args) for verb, args in calls), return_exceptions=True)


def _outcome(begin: threading.Barrier, verb: Any, arguments: Any) -> Any:
    begin.wait()
    try:
        return verb(*arguments)
    except Exception as error:  # noqa: BLE001 - it is what the test looks at
        return error


class Clock:
    """The time that the library sees, in microseconds since 1970; a copy is the same clock."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def __deepcopy__(self, memo: Any) -> "Clock":
        return self

    def forward(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have the library ask a clock of the test's own, in this process."""
    clock = Clock()
    original = document.now
    for name, module in list(sys.modules.items()):
        if name.startswith("collections_store.") and getattr(module, "now", None) is original:
            monkeypatch.setattr(module, "now", clock)
    return clock


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A fresh place on each backend."""
    if request.param == "sqlite-memory":
        yield Place(request.param, "sqlite://")
    elif request.param == "sqlite-file":
        yield Place(request.param, f"sqlite:///{tmp_path / 'store.db'}")
    else:
        yield from _schema(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite-file", "postgresql"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A fresh place that several stores and processes can open."""
    if request.param == "sqlite-file":
        yield Place(request.param, f"sqlite:///{tmp_path / 'store.db'}")
    else:
        yield from _schema(request.getfixturevalue("postgres_url"))


@pytest.fixture
def postgres_place(postgres_url: str) -> Iterator[Place]:
    """A fresh place on PostgreSQL."""
    yield from _schema(postgres_url)


@pytest.fixture(scope="module")
def lasting_postgres_place(postgres_url: str) -> Iterator[Place]:
    """A place on PostgreSQL that the tests of a module share."""
    yield from _schema(postgres_url)


@pytest.fixture(params=["sync", "async"])
def open_store(request: pytest.FixtureRequest, place: Place) -> Iterator[Opener]:
    """Open stores on each backend, sync and async."""
    opener = Opener(place, request.param)
    yield opener
    opener.close()


@pytest.fixture
def store(open_store: Opener) -> Any:
    """A store on each backend, sync and async."""
    return open_store()


@pytest.fixture
def things(store: Any) -> Any:
    """An empty collection on each backend, sync and async."""
    return store["things"]


def _schema(url: str) -> Iterator[Place]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield Place("postgresql", url, {"schema": name})
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.schema.DropSchema(name, cascade=True, if_exists=True))
    engine.dispose()
