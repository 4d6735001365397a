"""Fixtures of all tests: a PostgreSQL server, and stores on each backend, sync and async."""

import gc
import importlib
import itertools
import os
import pkgutil
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from types import ModuleType
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import BACKENDS, VARIANTS, Backend, Opener
from each_replica import REPLICAS_VARIABLE
from hypothesis import HealthCheck, Phase, settings
from postgres_cluster import Cluster, Template, cluster, template
from postgres_server import NoPostgres, postgres_server
from psycopg import sql
from transaction_pooler import POOLER_VARIABLE

import collections_store
from collections_store import (
    InvalidIndex,
    document,
)
from collections_store.operations import collections as schema_changes
from collections_store.operations import copying
from collections_store.operations.collections import AS_IT_IS, CreateCollection, create
from collections_store.options import CollectionOptions

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # its pipelines report their runs
os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # else some 300 processes would each compile the package

_OF_FRAMEWORKS = str(Path(gettempdir(), "collections-store-tests"))
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_STORAGE_DIR": _OF_FRAMEWORKS,
    "CREWAI_TRACING_ENABLED": "false",
    "MEM0_DIR": _OF_FRAMEWORKS,
    "MEM0_TELEMETRY": "false",
}


def _import_all(package: ModuleType) -> None:
    """Import the library, before a test replaces the clock that it imports; not what imports other packages."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not re.search(r"\.(integrations|cli|studio|__main__)\b", module.name):
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
pytest_plugins = ["selection"]


def pytest_configure() -> None:
    """Restore the handler of SIGINT, so that processes that the tests start do not ignore it: jobs in a shell's background
    do.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


NewThreads = Callable[[], list[threading.Thread]]


@pytest.fixture(params=range(20))
def part(request: pytest.FixtureRequest) -> int:
    """A part of a long property test: Hypothesis keeps all examples of a test in memory, 2 GB of 20,000."""
    number: int = request.param
    return number


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
        is_possible = connection.database.placement.distributed is not None
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
