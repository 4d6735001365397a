"""Fixtures of all tests: a PostgreSQL server, and stores on each backend, sync and async."""

import asyncio
import contextvars
import gc
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
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from zlib import crc32

import psycopg
import pytest
import sqlalchemy as sa
from each_replica import REPLICAS_VARIABLE
from hypothesis import HealthCheck, Phase, core, settings
from postgres_cluster import Cluster, Template, cluster, template
from postgres_server import NoPostgres, postgres_server
from psycopg import sql
from pythons import OTHERS, interpreter_of
from transaction_pooler import POOLER_VARIABLE

import collections_store
from collections_store import (
    AsyncChangeStream,
    AsyncCollection,
    AsyncStore,
    InvalidIndex,
    Store,
    document,
)
from collections_store.dialogues import AsyncDialogues, AsyncDialogueStore, Dialogues, DialogueStore
from collections_store.integrations import kdeps
from collections_store.integrations.soul_machines import AsyncSkillMemory
from collections_store.memory import AsyncMemory
from collections_store.operations import collections as schema_changes
from collections_store.operations import copying
from collections_store.operations.collections import AS_IT_IS, CreateCollection, create
from collections_store.options import CollectionOptions

os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # else some 300 processes would each compile the package


def _import_all(package: ModuleType) -> None:
    """Import the library, before a test replaces the clock that it imports; not what imports other packages."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not re.search(r"\.(integrations|cli|__main__)\b", module.name):
            imported = importlib.import_module(module.name)
            if module.ispkg:
                _import_all(imported)


gc.disable()  # until all tests are collected
_import_all(collections_store)
if "COLLECTIONS_STORE_TEST_JSONB" in os.environ:  # see tests/contract/test_jsonb.py
    CreateCollection.__init__.__defaults__ = (True, AS_IT_IS, True, False, False)
settings.register_profile(
    "tests",
    settings.default,  # that of CI, where there is one
    deadline=None,
    suppress_health_check=list(HealthCheck),  # they fail where the machine is slow
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
settings.load_profile("tests")
_seed = int(os.environ.setdefault("COLLECTIONS_STORE_TEST_SEED", str(random.randrange(2**32))))
"""In the environment, so that all worker processes of xdist have the same seed."""


T = TypeVar("T")
WHOLE = "COLLECTIONS_STORE_TEST_WHOLE"


def sampled(one_in: int) -> int:
    """Return the step through the cases of a test that repeats itself: `one_in` of them; all with `--whole-matrix`."""
    return 1 if WHOLE in os.environ else one_in


def in_turns(databases: list[str], cases: Iterable[T]) -> list[tuple[str, T]]:
    """Return each case with one of two databases, in turns; with both under `--whole-matrix`."""
    step = sampled(2)
    return [(each, case) for n, case in enumerate(cases) for each in databases[n % step :: step]]


HOSTS = os.environ.get("COLLECTIONS_STORE_TEST_HOSTS")
"""Set in the sessions of hosts, where agent frameworks must be installed; "all" runs also the tests that take minutes."""
only_all_of_hosts = pytest.mark.skipif(
    HOSTS != "all", reason="takes minutes, and needs a network: nox -s hosts-…"
)


def missing(module: str) -> str | None:
    """Return why tests of an agent framework are to be skipped, None if it is installed or must be."""
    try:
        found = find_spec(module)  # to import it would take seconds
    except ModuleNotFoundError:  # of the package that it is in
        found = None
    return f"{module} is not installed: nox -s hosts" if found is None and not HOSTS else None


def pytest_configure(config: pytest.Config) -> None:
    """Set one known seed for the property tests, unless the command line has one. Restore the handler of SIGINT, so
    that processes that the tests start do not ignore it: jobs in a shell's background do.
    """
    given = config.getoption("--hypothesis-seed", None)
    if given is None:
        core.global_force_seed = _seed  # type: ignore[assignment]
    if config.getoption("--whole-matrix"):
        os.environ[WHOLE] = "1"  # before the modules of tests are imported
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        _collect_in_turns(config)


def _collect_in_turns(config: pytest.Config) -> None:
    """Let each worker begin with other files: of those that it comes to later, most were compiled by the others."""
    option = config.option
    is_whole = [Path(each).name for each in config.args] == ["tests"]
    if not is_whole or option.ignore or option.ignore_glob or "not bench" not in option.markexpr:
        return
    tests = Path(config.args[0])
    files = sorted(map(str, tests.rglob("test_*.py")))
    files = [each for each in files if "benchmarks" not in Path(each).relative_to(tests).parts]
    worker = config.workerinput  # type: ignore[attr-defined]
    start = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    config.args = files[start:] + files[:start]


NewThreads = Callable[[], list[threading.Thread]]


@pytest.fixture
def new_threads() -> NewThreads:
    """Return the library's threads that were started since the test began: those of other tests may still be ending."""
    before = set(threading.enumerate())

    def started_threads() -> list[threading.Thread]:
        return [
            each
            for each in set(threading.enumerate()) - before
            if each.name.startswith("collections_")
        ]

    return started_threads


_BACKEND_FIXTURES = ("backend", "shared_backend", "lasting_backend")
_VARIANT_FIXTURES = ("open_store", "lasting_store")
BACKENDS = ("sqlite-file", "sqlite-memory", "postgresql")
VARIANTS = ("sync", "async")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that selects all combinations, which `nox -s matrix` uses."""
    parser.addoption(
        "--whole-matrix",
        action="store_true",
        help="run each test on each backend, both sync and async, and all cases; else it is one of them in turns",
    )
    parser.addoption(
        "--one-in", type=int, default=1, help="with -m in_memory: run one test in so many"
    )


def pytest_xdist_auto_num_workers() -> int:
    """Start one worker more than there are cores: tests wait for processes, servers and timeouts."""
    return 1 + (os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Keep what was imported and collected, some million objects, out of garbage collections, and collect seldom: as often as
    usual it takes a tenth of the time.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    if "not bench" in session.config.option.markexpr:  # a benchmark measures what a user has
        gc.set_threshold(20_000, 20, 20)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the benchmarks, which import what they compare with, unless they are selected."""
    is_left_out = collection_path.name == "benchmarks" and "not bench" in config.option.markexpr
    return True if is_left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run each test, and each case of a test, on one database, in turns, either sync or async (or with one value of its other
    parameter of two), and one test in eight in memory. `each_backend` marks tests of what the databases answer: these run
    on both. A test of which that leaves nothing, such as one in memory only, runs with all its cases, and so do tests
    that are selected by `-k` or by their ids. The longest test, that of the types, begins first.
    """
    items.sort(key=lambda item: ("test_lint.py" not in item.nodeid, item.path))
    for item in items:
        if _is_in_memory(item):
            item.add_marker("in_memory")
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "lasting_store" in parameters and {"backend", "open_store"} & {*parameters}:
            raise pytest.UsageError(
                f"{item.nodeid}: `things` has its own store: use store['things']"
            )
    is_selection = config.option.keyword or any("::" in argument for argument in config.args)
    if is_selection or config.getoption("--whole-matrix"):
        return
    only_in_memory = config.option.markexpr == "in_memory"
    selected = {item for item in items if _is_selected(item, only_in_memory)}
    represented = {_function(item) for item in selected}
    selected |= {item for item in items if _function(item) not in represented}
    if only_in_memory:
        in_memory = [item for item in items if item in selected and _is_in_memory(item)]
        step = config.getoption("--one-in")
        selected = {*in_memory[_seed % step :: step]}
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = [item for item in items if item in selected]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _is_in_memory(item: pytest.Item) -> bool:
    """Return whether a test needs no database but one in memory, and seconds at most."""
    names = f"{item.name} {getattr(item, 'fixturenames', '')}"  # with those of parameters
    is_elsewhere = "postgres" in names or "sqlite-file" in names
    is_long = item.get_closest_marker("soak") or item.get_closest_marker("bench")
    return not is_elsewhere and not is_long


def _is_selected(item: pytest.Item, only_in_memory: bool) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    backend = next((parameters[name] for name in _BACKEND_FIXTURES if name in parameters), None)
    variant = next((parameters[name] for name in _VARIANT_FIXTURES if name in parameters), None)
    if variant is None and "changes" in parameters:
        variant = VARIANTS[parameters["changes"] is True]
    if backend not in BACKENDS:
        return True
    number = crc32(_function(item).encode())
    if backend != "sqlite-memory" and not item.get_closest_marker("each_backend"):
        case = _case(item, number)
        number += case // 2  # the next two cases are of the other variant
        if (BACKENDS.index(backend) // 2 + case) % 2:
            return False
    if variant not in VARIANTS:
        return True
    if backend == "sqlite-memory" and not only_in_memory and number // 2 % 8:
        return False
    return (BACKENDS.index(backend) + VARIANTS.index(variant) + number) % 2 == 0


def _case(item: pytest.Item, number: int) -> int:
    """Return the number of a test's case; that of the test if it has no parameters but those of the backend."""
    indices: dict[str, int] = getattr(getattr(item, "callspec", None), "indices", {})
    own = {*indices} - {*_BACKEND_FIXTURES, *_VARIANT_FIXTURES, "changes"}
    return sum(indices[name] for name in own) if own else number // 16


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Print the seed, with which `--hypothesis-seed=…` repeats the run, and the Pythons of tests/test_pythons.py."""
    given = config.getoption("--hypothesis-seed", None)
    pythons = [f"{version}: {interpreter_of(version) or 'not found'}" for version in OTHERS]
    return [
        f"hypothesis seed: {_seed if given is None else given}",
        f"other Pythons: {', '.join(pythons)}",
    ]


CITUS_VARIABLE = "COLLECTIONS_STORE_TEST_CITUS_URL"
"""The URL of a coordinator of Citus, on which the tests of PostgreSQL then run: see `nox -s citus`."""
CITUS_WAY = os.environ.get("COLLECTIONS_STORE_TEST_CITUS_WAY", "schema")
"""How they are sharded there: by "schema", with all "collections" on the coordinator, or each of them "distributed"."""
_NO_UNIQUE = "a distributed collection has no unique indexes"
_BY_MATCHER = "the matcher compares whole arrays and objects of a distributed collection"
NOT_DISTRIBUTED = {
    "test_hostile_keys_in_unique_indexes": _NO_UNIQUE,
    "test_hostile_values_in_every_operator_and_index": _NO_UNIQUE,
    'test_postgresql_plans_match_the_table[{"tags": ["t7", "u7"]}]': _BY_MATCHER,
    'test_postgresql_plans_match_the_table[{"place": {"zip": 7}}]': _BY_MATCHER,
    "test_deleted_bodies_are_read_only_if_they_are_recorded": "executes statements that lock rows of several shards",
    "test_a_collection_of_an_older_version_can_be_used": "older versions have no distributed collections",
    "test_times_can_be_indexed": "so few documents in a shard are read without an index",
    "test_postgresql_looks_for_expired_documents_by_an_index": "so few in a shard are read without",
}
"""Tests of what a distributed collection does otherwise, by their names, with the reasons."""
SHARED = Path(__file__).parents[2] / "shared"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server, as a superuser. Skip the test if there is none; in CI that is an error."""
    if CITUS_VARIABLE in os.environ:
        yield os.environ[CITUS_VARIABLE]
        return
    try:
        with postgres_server() as server:
            yield server.url
            if _cleaner.cache_info().currsize:
                _cleaner(server.url).close()
    except NoPostgres as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[Template]:
    """The data of a new PostgreSQL server, of the wheel or the machine."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("a server's processes cannot be listed here")
    try:
        with template() as data:
            yield data
    except NoPostgres as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def postgres_cluster(postgres_template: Template) -> Iterator[Cluster]:
    """A cluster of PostgreSQL servers, without nodes."""
    with cluster(postgres_template) as nodes:
        yield nodes


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


class SyncAdapter:
    """The synchronous interface of an asynchronous object: awaits what its methods return."""

    def __init__(self, target: Any, runner: Any) -> None:
        self._target, self._runner = target, runner

    def __getattr__(self, name: str) -> Any:
        name = {"close": "aclose"}.get(name, name)
        found = getattr(self._target, name)
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
            if isinstance(result, AsyncChangeStream):
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


class Clock:
    """The time that the library reads, in microseconds since 1970: `tick` later each time. A copy is the same clock."""

    def __init__(self) -> None:
        self.now, self.tick = 1_800_000_000_000_000, 0

    def __call__(self) -> int:
        self.now += self.tick
        return self.now

    def __deepcopy__(self, memo: Any) -> "Clock":
        return self

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the library's clock in this process by one that the test sets."""
    clock = Clock()
    original = document.now
    for name, module in list(sys.modules.items()):
        if name.startswith("collections_store.") and getattr(module, "now", None) is original:
            monkeypatch.setattr(module, "now", clock)
    return clock


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty database on each backend."""
    if request.param == "sqlite-memory":
        yield Backend(request.param, "sqlite://")
    elif request.param == "sqlite-file":
        yield Backend(request.param, f"sqlite:///{tmp_path / 'store.db'}")
    else:
        yield from _postgres_backend(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite-file", "postgresql"])
def shared_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty database on each backend that several processes can open."""
    if request.param == "sqlite-file":
        yield Backend(request.param, f"sqlite:///{tmp_path / 'store.db'}")
    else:
        yield from _postgres_backend(request.getfixturevalue("postgres_url"))


@pytest.fixture
def postgres_backend(postgres_url: str) -> Iterator[Backend]:
    """An empty schema on PostgreSQL."""
    yield from _postgres_backend(postgres_url)


@pytest.fixture
def empty_postgres_url(postgres_backend: Backend) -> str:
    """The URL of an empty PostgreSQL database: its search path is a new schema."""
    schema = postgres_backend.options["schema"]
    engine = sa.create_engine(
        sa.make_url(postgres_backend.url).set(drivername="postgresql+psycopg")
    )
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    engine.dispose()
    url = sa.make_url(postgres_backend.url)
    url = url.update_query_dict({"options": f"-csearch_path={schema}"})
    return url.render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def module_postgres_backend(postgres_url: str) -> Iterator[Backend]:
    """A schema on PostgreSQL that the tests of a module share."""
    yield from _postgres_backend(postgres_url)


@pytest.fixture(params=["sync", "async"])
def open_store(request: pytest.FixtureRequest, backend: Backend) -> Iterator[Opener]:
    """Open stores on each backend, sync and async."""
    opener = Opener(backend, request.param)
    yield opener
    opener.close()


@pytest.fixture
def store(open_store: Opener) -> Any:
    """A store on each backend, sync and async."""
    return open_store()


@pytest.fixture(scope="module", params=BACKENDS)
def lasting_backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Backend:
    """A database of the collection `things`, on each backend, which the tests of a module share."""
    if request.param == "postgresql":
        backend: Backend = request.getfixturevalue("module_postgres_backend")
        return backend
    path = tmp_path_factory.mktemp("lasting") / "store.db"
    url = "sqlite://" if request.param == "sqlite-memory" else f"sqlite:///{path}"
    return Backend(request.param, url)


@pytest.fixture(scope="module", params=VARIANTS)
def lasting_store(request: pytest.FixtureRequest, lasting_backend: Backend) -> Iterator[Any]:
    """The store of the collection `things`, sync and async."""
    opener = Opener(lasting_backend, request.param)
    yield opener()
    opener.close()


@pytest.fixture
def emptied_store(lasting_store: Any) -> Any:
    """The store of the collection `things`, without collections, for a module whose tests need no other database."""
    for each in lasting_store.collections():
        lasting_store.drop(each.name)
    return lasting_store


@pytest.fixture
def things(lasting_store: Any) -> Iterator[Any]:
    """An empty collection without indexes on each backend, sync and async. The tests of a module share its store, which
    has compiled their statements: that takes longer than to execute them. A test that needs a store uses `store`.
    """
    things = lasting_store["things"]
    yield things
    for index in things.indexes():
        things.drop_index(index.name)
    things.purge_expired()
    things.delete_many({})


def _postgres_backend(url: str) -> Iterator[Backend]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    options = {"schema": name}
    if CITUS_VARIABLE in os.environ:
        options["sharding"] = "schema" if CITUS_WAY == "schema" else "collections"
    if REPLICAS_VARIABLE in os.environ:
        options["replicas"] = os.environ[REPLICAS_VARIABLE]
    yield Backend("postgresql", os.environ.get(POOLER_VARIABLE, url), options)
    _drop_schema(url, name)


if CITUS_WAY == "distributed":

    def _create(connection: Any, name: str, options: CollectionOptions, created: int) -> bool:
        """Create a collection, distributed where that is possible, whoever creates it."""
        is_possible = connection.database.distributed is not None
        options = replace(options, distributed=options.distributed or is_possible)
        return create(connection, name, options, created)

    for module in (schema_changes, copying):
        vars(module)["create"] = _create

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
        """Skip what a distributed collection does not have: unique indexes, and the tests of `NOT_DISTRIBUTED`."""
        for name in (item.name, item.name.partition("[")[0]):
            if name in NOT_DISTRIBUTED:
                pytest.skip(NOT_DISTRIBUTED[name])
        try:
            return (yield)
        except InvalidIndex as error:
            if "in a distributed collection" in str(error):
                pytest.skip(_NO_UNIQUE)
            raise


def _drop_schema(url: str, name: str) -> None:
    """Drop a schema on a connection that all tests of the process share: to open one takes longer."""
    statement = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
    try:
        _cleaner(url).execute(statement)
    except psycopg.OperationalError:  # a test ended it
        _cleaner.cache_clear()
        _cleaner(url).execute(statement)


@cache
def _cleaner(url: str) -> psycopg.Connection[Any]:
    options = "-c client_min_messages=error"  # no list of what CASCADE drops
    if CITUS_VARIABLE in os.environ:  # nor locks of the tables of other tests
        options += " -c citus.enable_local_reference_table_foreign_keys=off"
    return psycopg.connect(url, autocommit=True, options=options)
