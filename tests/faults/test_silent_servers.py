"""A server that does not answer: no call, no cancellation and no `close` waits for it for ever."""

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from faults.test_cancellation import Slow
from postgres_cluster import Cluster, Node, Template, cluster, wait_until

from collections_store import (
    AsyncStore,
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidOption,
    Store,
    was_committed,
)
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session


@dataclass(frozen=True)
class SlowChange(Operation[None]):
    """A change of the schema that takes some seconds."""

    collection: str = "things"
    atomic = True

    def __call__(self, session: Session) -> None:
        session.command("CREATE TEMPORARY TABLE slow AS SELECT 1 AS n FROM pg_sleep(3)")


@pytest.fixture(scope="module")
def node(postgres_template: Template) -> Iterator[Node]:
    """A server that the tests freeze."""
    with cluster(postgres_template) as nodes:
        yield nodes.add()


@pytest.fixture
def schema() -> str:
    """The name of a schema of its own."""
    return f"silent_{secrets.token_hex(4)}"


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


async def cancelled(call: Awaitable[Any], seconds: float = 0.3) -> asyncio.CancelledError:
    """Return the error of a call that is cancelled after some time; the call ends soon."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(seconds)
    assert not task.done()
    task.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
    return caught.value


def test_a_limit_of_silence(node: Node, schema: str) -> None:
    with Store(node.url, schema=schema, reply_timeout=2, reconnect_for=0, busy_timeout=5) as store:
        store["things"].put("a", 1)
        with frozen(node):
            with pytest.raises(DatabaseUnavailable, match="has not answered") as caught:
                store["things"].put("a", 2)
            assert caught.value.in_doubt
        assert store["things"].get("a") in {1, 2}
        with frozen(node):
            with pytest.raises(DatabaseUnavailable) as caught:
                store["things"].get("a")
            assert not caught.value.in_doubt
        assert store["things"].put("b", 1) == 1
        with (
            pytest.raises(DatabaseUnavailable, match="has not answered") as caught,
            store.transaction() as tx,
        ):
            tx["things"].put("c", 1)
            node.freeze()
        node.thaw()
        assert caught.value.in_doubt


def test_a_group_of_tasks_is_not_stuck(node: Node, schema: str) -> None:

    async def main() -> None:
        url = f"{node.url}?connect_timeout=2"
        async with AsyncStore(url, schema=schema, reply_timeout=2, reconnect_for=0) as store:
            await store["things"].put("first", 1)
            with frozen(node):
                puts = (store["things"].put(str(n), n) for n in range(16))
                async with asyncio.timeout(60):
                    errors = await asyncio.gather(*puts, return_exceptions=True)
                assert {type(error) for error in errors} <= {DatabaseUnavailable, DatabaseBusy}
            assert await store["things"].put("last", 1) == 1

    asyncio.run(main())


def test_cancelled_calls_end_without_a_limit(node: Node, schema: str) -> None:

    async def main() -> None:
        async with (
            AsyncStore(node.url, schema=schema) as store,
            AsyncStore(node.url, schema=schema) as fresh,
        ):
            for id in ("creates", "first"):
                await store["things"].put(id, 1)
            with frozen(node):
                errors = await asyncio.gather(
                    cancelled(store["things"].put("a", 1)),
                    cancelled(store["things"].get("a")),
                    cancelled(fresh["things"].get("a")),  # it connects
                )
            assert was_committed(errors[0]) is None
            assert await store["things"].put("b", 1) == 1

    asyncio.run(main())


def test_closing_ends_without_a_limit(node: Node, schema: str) -> None:

    async def main() -> None:
        store = AsyncStore(node.url, schema=schema, busy_timeout=3)
        for id in ("creates", "first"):
            await store["things"].put(id, 1)
        with frozen(node):
            put = asyncio.ensure_future(store["things"].put("a", 1))
            get = asyncio.ensure_future(store["things"].get("a"))
            await asyncio.sleep(0.3)
            async with asyncio.timeout(30):
                await store.aclose()
            assert not put.done()
        await asyncio.wait([put, get])

    asyncio.run(main())


def test_a_cancelled_commit_that_waits_for_a_standby_is_in_doubt(postgres_cluster: Cluster) -> None:
    primary = postgres_cluster.add()
    standby = postgres_cluster.add(primary)

    async def main() -> None:
        async with AsyncStore(primary.url) as store:
            await store["things"].put("first", 1)
            primary.synchronise_with(standby)
            await store["things"].put("second", 1)
            standby.shut_down()
            error = await cancelled(store["things"].put("third", 1))
            assert was_committed(error) is None
            async with store.transaction() as tx:
                assert await tx["things"].get("third") == 1  # here, and not on the standby
            waiting = asyncio.ensure_future(store["things"].put("fourth", 1))
            standby.start(primary)
            async with asyncio.timeout(60):
                assert await waiting == 1

    asyncio.run(main())


def test_threads_do_not_wait_for_a_standby_for_ever(postgres_cluster: Cluster) -> None:
    primary = postgres_cluster.add()
    standby = postgres_cluster.add(primary)
    with Store(primary.url, reply_timeout=1) as store:
        store["things"].put("first", 1)
        primary.synchronise_with(standby)
        standby.shut_down()
        with pytest.raises(DatabaseUnavailable) as caught:
            store["things"].put("second", 1)
        assert caught.value.in_doubt
        assert store["things"].get("first") == 1


def test_what_takes_long_on_a_server_that_answers(postgres_backend: Backend) -> None:
    options = {**postgres_backend.options, "reply_timeout": 2, "reconnect_for": 0}
    with Store(postgres_backend.url, busy_timeout=1.5, **options) as store:
        things = store["things"]
        things.put("a", 1)
        with pytest.raises(DatabaseUnavailable, match="has not answered"):
            store.run(Slow("SELECT pg_sleep(60)"))
        begun = time.monotonic()
        store.run(SlowChange())
        assert time.monotonic() > begun + 2
        engine = sa.create_engine(postgres_backend.url.replace(":", "+psycopg:", 1))
        with engine.begin() as connection:
            store.bind(connection)["things"].put("a", 2)
            with pytest.raises(DatabaseBusy):
                things.put("a", 3)
        engine.dispose()
        assert things.put("a", 3) == 3


def test_a_server_that_accepts_connections_and_is_silent(node: Node, schema: str) -> None:
    with Store(node.url, schema=schema, busy_timeout=1) as store, frozen(node):
        begun = time.monotonic()
        with pytest.raises(DatabaseUnavailable):
            store["things"].get("a")
        assert time.monotonic() - begun < 30


def test_the_opening_tries_a_silent_server_once() -> None:
    """Its `connect_timeout` is longer than the second for which the opening tries to reach a server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql://127.0.0.1:{server.getsockname()[1]}/a?connect_timeout=2"
        with Store(url) as store, pytest.raises(DatabaseUnavailable, match="timeout"):
            store["things"].get("a")
        server.setblocking(False)
        server.accept()[0].close()
        with pytest.raises(BlockingIOError):
            server.accept()


def test_reply_timeout_is_an_option_of_servers() -> None:
    with pytest.raises(InvalidOption, match="option reply_timeout: sqlite is no server"):
        Store("sqlite://", reply_timeout=1)
    for wrong in (0, -1, "1", True):
        with pytest.raises(InvalidOption, match="option reply_timeout: must be from"):
            Store("postgresql://localhost/a", reply_timeout=wrong)  # type: ignore[arg-type]


def test_lost_connections_leave_no_session(node: Node, schema: str) -> None:
    with Store(node.url, schema=schema, reply_timeout=2) as store:
        store["things"].put("a", 1)
        with frozen(node), pytest.raises(DatabaseUnavailable):
            store["things"].put("a", 2)
    with psycopg.connect(node.url) as connection:
        sessions = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        wait_until(lambda: not connection.execute(sessions).fetchall(), "all sessions end")


def test_callers_that_wait_for_the_opening_share_its_failure(node: Node, schema: str) -> None:
    with Store(f"{node.url}?connect_timeout=2", schema=schema) as store, frozen(node):

        def get(_: int) -> type[Exception] | None:
            try:
                store["things"].get("a")
            except DatabaseUnavailable as error:
                return type(error)
            return None

        with ThreadPoolExecutor(20) as threads:
            begun = time.monotonic()
            assert set(threads.map(get, range(20))) == {DatabaseUnavailable}
        assert time.monotonic() - begun < 20  # one after the other would take 40
    with Store(node.url, schema=schema) as store:
        assert store["things"].get("a") is None
