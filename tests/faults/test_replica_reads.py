"""Stores that read from replicas: what their reads see, and where they run."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from faults.losing import Proxy
from postgres_cluster import Cluster, Node, cluster, template, wait_until
from selection import WHOLE

from collections_store import AsyncStore, Store, VersionConflict
from collections_store.engine import replicas
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session


class ServingPort(Operation[int]):
    """The port of the server that an operation runs on."""

    collection = "things"

    def __call__(self, session: Session) -> int:
        [(port,)] = session.rows("SELECT inet_server_port()")
        return int(port)


Pair = tuple[Node, Node]


@pytest.fixture
def pair(postgres_cluster: Cluster) -> Pair:
    """A primary and a replica."""
    primary = postgres_cluster.add()
    return primary, postgres_cluster.add(primary)


@contextmanager
def paused(replica: Node) -> Iterator[None]:
    """The context in which a replica replays nothing."""
    replica.query("SELECT pg_wal_replay_pause()")
    state = "SELECT pg_get_wal_replay_pause_state()"
    wait_until(lambda: replica.query(state) == [("paused",)], "the replay is paused")
    yield
    replica.query("SELECT pg_wal_replay_resume()")


def wait_for_reads(store: Store, replica: Node) -> None:
    """Wait until session reads run on a replica."""
    wait_until(
        lambda: store.run(ServingPort(), "session") == replica.port, f"reads go to {replica.name}"
    )


def test_reads_while_the_replay_is_paused(pair: Pair) -> None:
    primary, replica = pair
    with Store(primary.url, replicas=replica.url) as store, Store(primary.url) as other:
        things = store.collection("things", changes=True)
        eventual, strong = (
            things.with_options(consistency=each) for each in ("eventual", "strong")
        )
        things.put("a", {"n": 1})
        assert things.get("a") == strong.get("a") == {"n": 1}
        wait_for_reads(store, replica)
        assert things.get("a") == eventual.get("a") == {"n": 1}
        with paused(replica):
            other["things"].put("b", {"n": 1})
            assert store.run(ServingPort(), "session") == replica.port
            assert things.get("b") is None, "others' writes are not promised"
            assert strong.get("b") == {"n": 1}
            assert things.get("b") == {"n": 1}, "what was read once is seen again"
            things.put("a", {"n": 2})
            assert store.run(ServingPort(), "session") == primary.port
            for read, new, old in reads():
                assert read(things) == read(strong) == new
                assert read(eventual) == old
            with store.transaction() as tx:
                assert tx["things"].with_options(consistency="eventual").get("a") == {"n": 2}
            [change] = things.watch(after="oldest", timeout=0, kinds=["update"])
            assert change.id == "a"
            store["new"].put("a", 1)
            assert store["new"].with_options(consistency="eventual").get("a") == 1
        wait_for_reads(store, replica)
        assert things.get("a") == eventual.get("a") == {"n": 2}


Read = Callable[[Any], Any]


def reads() -> Iterator[tuple[Read, Any, Any]]:
    """Yield reads, with what they return on the primary, and on the replica."""
    new, old = {"n": 2}, {"n": 1}
    yield (lambda it: it.get("a")), new, old
    yield (lambda it: it.document("a").version), 2, 1
    yield (lambda it: it.exists("b")), True, False
    yield (lambda it: it.get_many(["a"])), {"a": new}, {"a": old}
    yield (lambda it: [body for _, body in it.list(limit=1)]), [new], [old]
    yield (lambda it: [body for _, body in it.find({"n": 2})]), [new], []
    yield (lambda it: it.find_one("n", 2) is None), False, True
    yield (lambda it: [body for _, body in it.page(limit=1).documents]), [new], [old]
    yield (lambda it: it.count()), 2, 1
    yield (lambda it: it.distinct("n")), [1, 2], [1]
    yield (lambda it: it.aggregate([{"$count": "n"}])), [{"n": 2}], [{"n": 1}]
    yield (lambda it: next(body for _, body in it.stream())), new, old


def test_methods_that_read_and_write_read_on_the_primary(pair: Pair) -> None:
    primary, replica = pair
    with Store(primary.url, replicas=replica.url) as store, Store(primary.url) as other:
        things = store["things"]
        things.put_many({"a": {"n": 1}, "b": {"n": 1}})
        store.memory("bot").put("name", "Ada")
        for attempt in (
            lambda: things.change("a", lambda body: {"n": body["n"] + 1}),
            lambda: edit(things),
            lambda: things.increment("a", "n"),
            lambda: things.find_one_and_update({"n": 2}, {"$inc": {"n": 1}}),
        ):
            other["things"].put("a", {"n": 1})
            wait_for_reads(store, replica)
            with paused(replica):
                other["things"].put("a", {"n": 2})
                assert things.get("a") == {"n": 1}
                attempt()
                assert things.get("a") == {"n": 3}
        wait_for_reads(store, replica)
        with paused(replica):
            version = other["things"].put("a", {"n": 4})
            with pytest.raises(VersionConflict):
                things.put("a", {}, if_version=version - 1)
            assert things.get("a") == {"n": 4}, "the refused write has seen it"
        wait_for_reads(store, replica)
        with paused(replica):
            other.memory("bot").put("name", "Bob")
            assert store.memory("bot").get("name") == "Bob"
            assert store.collections()[0].name == other.collections()[0].name
            other["things"].create_index("n")
            assert [each.name for each in things.indexes()] == ["n_1"]


def edit(things: Any) -> None:
    with things.edit("a") as body:
        body["n"] += 1


def committed(node: Node) -> int:
    """Return the transactions in the stores' database; asked in another one, which does not count them."""
    other = node.url.rpartition("/")[0] + "/template1"
    with psycopg.connect(other, autocommit=True) as connection:
        sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'"
        row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("consistency", ["session", "eventual"])
def test_reads_arrive_at_the_replica(pair: Pair, consistency: Any) -> None:
    primary, replica = pair
    with Store(primary.url) as store:
        store["things"].put("a", 1)
    primary.wait_for(replica)
    before = committed(primary), committed(replica)
    with Store(primary.url, replicas=replica.url, consistency=consistency) as store:
        wait_until(lambda: store.run(ServingPort(), consistency) == replica.port, "it is found")
        assert {store["things"].get("a") for _ in range(500)} == {1}
    # a server counts a session's transactions when that ends, at the latest
    wait_until(lambda: committed(replica) - before[1] >= 500, "the reads are counted")
    assert committed(primary) - before[0] < 250


def test_no_read_is_stale(pair: Pair) -> None:
    """Threads and tasks write and read; the replica is behind all the time, and then it is not."""
    primary, replica = pair
    each = 1250 if WHOLE in os.environ else 100
    with Store(primary.url, replicas=replica.url) as store:
        store["things"].put("a", 0)
        wait_for_reads(store, replica)
        for delay in ("20ms", "0"):
            replica.query(f"ALTER SYSTEM SET recovery_min_apply_delay = '{delay}'")
            replica.query("SELECT pg_reload_conf()")
            is_set = f"SELECT 1 WHERE current_setting('recovery_min_apply_delay') = '{delay}'"
            wait_until(partial(replica.query, is_set), "the delay is set")
            found = [*in_threads(store, each), *asyncio.run(in_tasks(primary, replica, each))]
            assert len(found) == 8 * each
            assert sum(seen != written for written, seen, _ in found) == 0
            if delay != "0":
                assert any(eventual != written for written, _, eventual in found)
        wait_for_reads(store, replica)


Found = list[tuple[int, Any, Any]]
"""What was written, what a session read and an eventual one saw."""


def in_threads(store: Store, times: int) -> Found:
    found: Found = []

    def write_and_read(id: str) -> None:
        things = store["things"]
        eventual = things.with_options(consistency="eventual")
        for n in range(times):
            things.put(id, n)
            found.append((n, things.get(id), eventual.get(id)))

    threads = [threading.Thread(target=write_and_read, args=(f"{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


async def in_tasks(primary: Node, replica: Node, times: int) -> Found:
    found: Found = []
    async with AsyncStore(primary.url, replicas=replica.url) as store:

        async def write_and_read(id: str) -> None:
            things = store["things"]
            eventual = things.with_options(consistency="eventual")
            for n in range(times):
                await things.put(id, n)
                [document] = await things.find({"$id": id})
                found.append((n, document.body, await eventual.get(id)))

        await asyncio.gather(*(write_and_read(f"task {n}") for n in range(4)))
    return found


def test_a_replica_that_goes_away_and_comes_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replicas, "TRIED_AFTER", 0.2)
    caplog.set_level(logging.INFO, "collections_store")
    primary, replica = pair
    stop, problems = threading.Event(), list[Any]()
    with Store(primary.url, replicas=replica.url) as store:
        store["things"].put("a", 1)
        wait_for_reads(store, replica)

        def write_and_read(id: str) -> None:
            things, n = store["things"], 0
            eventual = things.with_options(consistency="eventual")
            while not stop.wait(0.005):
                n += 1
                try:
                    things.put(id, n)
                    if things.get(id) != n or eventual.get(id) not in {None, *range(n + 1)}:
                        problems.append(n)
                except Exception as error:  # noqa: BLE001 - the test checks it
                    problems.append(error)

        async def write_and_read_in_a_task(id: str) -> None:
            async with AsyncStore(primary.url, replicas=replica.url) as other:
                n = 0
                while not stop.is_set():
                    n += 1
                    await other["things"].put(id, n)
                    if await other["things"].get(id) != n:
                        problems.append(n)
                    await asyncio.sleep(0.005)

        threads = [threading.Thread(target=write_and_read, args=(f"{n}",)) for n in range(3)]
        loop = threading.Thread(target=lambda: asyncio.run(write_and_read_in_a_task("task")))
        for thread in (*threads, loop):
            thread.start()
        try:
            for _ in range(2):
                replica.kill()
                wait_until(lambda: store.run(ServingPort(), "session") == primary.port, "it left")
                replica.start(primary)
                wait_until(
                    lambda: store.run(ServingPort(), "eventual") == replica.port, "it is back"
                )
        finally:
            stop.set()
            for thread in (*threads, loop):
                thread.join()
        assert problems == []
        wait_for_reads(store, replica)
    lines = [each.getMessage() for each in caplog.records if each.name == "collections_store"]
    assert any("no replica can be used" in line for line in lines)
    assert any("reads go to a replica again" in line for line in lines)
    password = primary.url.partition("@")[0].rpartition(":")[2]
    assert not [line for line in lines if password in line]


def test_a_replica_that_is_promoted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "TRIED_AFTER", 0.2)
    primary, replica = pair
    url = primary.url.replace(primary.address, f"{primary.address},{replica.address}")
    with Store(url, replicas=replica.url) as store:
        store["things"].put("a", 1)
        wait_for_reads(store, replica)
        primary.wait_for(replica)
        primary.kill()
        assert store["things"].get("a") == 1, "without the primary"
        replica.promote()
        assert store["things"].put("a", 2) == 2
        assert store["things"].get("a") == 2
        assert store["things"].with_options(consistency="eventual").get("a") == 2


def test_a_replica_that_is_promoted_beside_the_primary_is_left(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "TRIED_AFTER", 0.2)
    primary, replica = pair
    with Store(primary.url, replicas=replica.url) as store:
        store["things"].put("a", 1)
        wait_for_reads(store, replica)
        replica.promote()
        with Store(replica.url) as fork:
            fork["things"].put("a", 2)
        wait_until(
            lambda: store.run(ServingPort(), "eventual") == primary.port, "it is not used any more"
        )
        assert store["things"].get("a") == 1


def test_a_replica_that_recovers_from_a_crash_has_replayed_less(pair: Pair) -> None:
    """Its server process lives on, so that it was not started again."""
    primary, replica = pair
    with Store(primary.url, replicas=replica.url) as store:
        store["things"].put("a", 1)
        wait_for_reads(store, replica)
        replica.query("CHECKPOINT")
        store["things"].put("a", 2)
        wait_for_reads(store, replica)
        replica.query("ALTER SYSTEM SET recovery_min_apply_delay = '1h'")
        replica.query("SELECT pg_reload_conf()")
        kill_a_session(replica)
        assert {store["things"].get("a") for _ in range(100)} == {2}


def kill_a_session(node: Node) -> None:
    """Kill a process of a server as the kernel does where memory is short: the server restarts all others."""
    sessions = "FROM pg_stat_activity WHERE backend_type = 'client backend'"
    [(pid,)] = node.query(f"SELECT pid {sessions} AND pid <> pg_backend_pid() LIMIT 1")
    os.kill(pid, signal.SIGKILL)

    def is_over() -> bool:
        with suppress(psycopg.OperationalError):
            return node.query(f"SELECT pid {sessions} AND pid = {pid}") == []
        return False

    wait_until(is_over, "the server has restarted its processes")


def test_a_replica_that_has_replayed_what_was_lost_in_a_failover(
    pair: Pair, postgres_cluster: Cluster
) -> None:
    """The new primary's log is shorter than that of a replica, which cannot follow it."""
    primary, replica = pair
    next_primary = postgres_cluster.add(primary)
    url = primary.url.replace(primary.address, f"{primary.address},{next_primary.address}")
    with Store(url, replicas=replica.url) as store:
        store["things"].put("a", 0)
        primary.wait_for(next_primary)
        next_primary.shut_down()
        store["things"].put_many({f"lost {n}": "x" * 500 for n in range(1000)})
        wait_for_reads(store, replica)
        primary.kill()
        next_primary.start(primary)
        next_primary.promote()
        for n in range(1, 51):
            store["things"].put("a", n)
            assert store["things"].get("a") == n


def test_a_replica_that_follows_the_new_primary(pair: Pair, postgres_cluster: Cluster) -> None:
    primary, replica = pair
    next_primary = postgres_cluster.add(primary)
    url = primary.url.replace(primary.address, f"{primary.address},{next_primary.address}")
    with Store(url, replicas=replica.url) as store:
        store["things"].put("a", 1)
        primary.wait_for(replica)
        primary.wait_for(next_primary)
        primary.kill()
        next_primary.promote()
        replica.shut_down()
        replica.start(next_primary)
        store["things"].put("a", 2)
        wait_for_reads(store, replica)
        assert store["things"].get("a") == 2


def test_another_database_of_the_replica_is_not_read(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "collections_store")
    primary, replica = pair
    primary.query("CREATE DATABASE another")
    url = f"{replica.url.removesuffix('postgres')}another"
    with Store(f"{primary.url.removesuffix('postgres')}another") as another:
        another["things"].put("a", "of another")
    primary.wait_for(replica)
    with Store(primary.url, replicas=url, consistency="eventual") as store:
        store["things"].put("a", 1)
        assert store["things"].get("a") == 1
    [line] = [each.getMessage() for each in caplog.records]
    assert "is no replica of the store's database" in line


def test_a_user_who_must_not_read_on_the_replica_is_reported_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "collections_store")
    primary, replica = pair
    primary.query("CREATE ROLE stranger LOGIN PASSWORD 'stranger'")
    primary.wait_for(replica)
    url = f"postgresql://stranger:stranger@{replica.address}/postgres"
    with Store(primary.url, replicas=url, consistency="eventual") as store:
        store["things"].put("a", 1)
        assert [store["things"].get("a") for _ in range(3)] == [1, 1, 1]
    [line] = [each.getMessage() for each in caplog.records]
    assert line.startswith("a replica cannot answer a read, the primary does: permission denied")


def test_reads_do_not_wait_for_a_connection_that_others_use(pair: Pair) -> None:
    primary, replica = pair
    with Store(primary.url, replicas=replica.url, pool_size=1, busy_timeout=300) as store:
        store["things"].put("a", 1)
        wait_for_reads(store, replica)
        found = list[Any]()
        slow = threading.Thread(target=store.run, args=(Slow(), "eventual"))
        slow.start()
        wait_until(lambda: replica.query(SLEEPING), "the read runs on the replica")
        store["things"].put("a", 2)
        reader = threading.Thread(target=lambda: found.append(store["things"].get("a")))
        reader.start()
        reader.join(30)
        assert found == [2]
        assert slow.is_alive()
        end = SLEEPING.replace("SELECT 1", "SELECT pg_terminate_backend(pid)")
        replica.query(end)
        slow.join()
        reader.join()


def test_what_a_read_of_a_replica_reports(pair: Pair) -> None:
    primary, replica = pair
    records: list[Any] = []
    with Store(primary.url, replicas=replica.url, on_operation=records.append) as store:
        store["things"].put("a", 1)
        assert store["things"].get("a") == 1
        wait_until(lambda: has_read(store) and store.stats().replica_lag == 0.0, "it has replayed")
        store["things"].put("a", 2)
        lag = store.stats().replica_lag
        assert lag is not None
        assert lag >= 0
    assert {(each.name, each.consistency) for each in records} >= {("get", "session")}


def has_read(store: Store) -> bool:
    return bool(store["things"].get("a"))


def test_reads_do_not_wait_for_others_that_ask_for_the_position(pair: Pair) -> None:
    primary, replica = pair
    with Store(primary.url, replicas=replica.url, busy_timeout=300) as store:
        store["things"].put("a", 1)
        backend: Any = store.core.opened
        asking = backend._pools[-1]
        pooled = asking.acquire()
        found = list[Any]()
        reader = threading.Thread(target=lambda: found.append(store["things"].get("a")))
        reader.start()
        reader.join(30)
        asking.release(pooled)
        assert found == [1]
        reader.join()


def test_servers_that_are_no_replicas_of_the_primary(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "collections_store")
    primary, replica = pair
    with template() as data, cluster(data) as others:
        foreign_primary = others.add()
        foreign = others.add(foreign_primary)
        with Store(foreign_primary.url) as store:
            store["things"].put("a", 2)
        foreign_primary.wait_for(foreign)
        for url, problem in (
            (foreign.url, "is no replica of the store's database"),
            (primary.url, "server is not in hot standby mode"),
            (f"{primary.url}?target_session_attrs=any", "is no replica"),
            (replica.url.replace("postgres:", "nobody:"), "password authentication failed"),
        ):
            caplog.clear()
            with Store(primary.url, replicas=url) as store:
                store["things"].put("a", 1)
                assert store["things"].get("a") == 1
                assert store["things"].with_options(consistency="eventual").get("a") == 1
            lines = [each.getMessage() for each in caplog.records]
            assert len(lines) == 1, "the problem is logged once"
            assert problem in lines[0]


def test_servers_of_an_upgraded_database(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """pg_upgrade makes another database system, and the replicas of that are new, too."""
    monkeypatch.setattr(replicas, "TRIED_AFTER", 0.2)
    proxies = [Proxy(node.url) for node in pair]
    with template() as data, cluster(data) as upgraded:
        primary = upgraded.add()
        replica = upgraded.add(primary)
        with Store(primary.url) as store:
            store["things"].put("a", 2)
        password = pair[0].url.partition("@")[0].rpartition(":")[2]
        primary.query(f"ALTER ROLE postgres PASSWORD '{password}'")
        with Store(proxies[0].url, replicas=proxies[1].url) as store:
            store["things"].put("a", 1)
            wait_for_reads(store, pair[1])
            for proxy, old, new in zip(proxies, pair, (primary, replica), strict=True):
                proxy.lead_to(new.url)
                old.kill()
            wait_for_reads(store, replica)
            assert store["things"].get("a") == 2
    for proxy in proxies:
        proxy.close()


def test_a_replica_is_found_among_all_servers(pair: Pair) -> None:
    primary, replica = pair
    url = primary.url.replace(primary.address, f"{primary.address},{replica.address}")
    with Store(url, replicas=url, consistency="eventual") as store:
        store["things"].put("a", 1)
        assert store.run(ServingPort(), "eventual") == replica.port
        assert store.run(ServingPort(), "strong") == primary.port


def test_reads_do_not_go_back_when_the_store_changes_to_another_replica(
    pair: Pair, postgres_cluster: Cluster
) -> None:
    primary, replica = pair
    behind = postgres_cluster.add(primary)
    proxy = Proxy(replica.url)
    with (
        Store(primary.url, replicas=proxy.url) as store,
        Store(primary.url) as other,
        paused(behind),
    ):
        store["things"].put("a", 1)
        wait_for_reads(store, replica)
        other["things"].put("a", 2)
        wait_until(lambda: store["things"].get("a") == 2, "it is replicated")
        assert store.run(ServingPort(), "session") == replica.port
        proxy.lead_to(behind.url)
        replica.kill()
        assert {store["things"].get("a") for _ in range(100)} == {2}
        assert store.run(ServingPort(), "eventual") == behind.port
        assert {store["things"].get("a") for _ in range(100)} == {2}
    proxy.close()


def test_connections_of_a_load_balancer_lead_to_one_replica(
    pair: Pair, postgres_cluster: Cluster
) -> None:
    primary, replica = pair
    second = postgres_cluster.add(primary)
    balancer = Proxy(replica.url)
    balancer.lead_to(second.url, replica.url)
    found, barrier = list[int](), threading.Barrier(6)
    with Store(primary.url, replicas=balancer.url, consistency="eventual") as store:
        store["things"].put("a", 1)
        primary.wait_for(replica)
        primary.wait_for(second)

        def read() -> None:
            barrier.wait()
            found.extend(store.run(ServingPort(), "eventual") for _ in range(50))

        readers = [threading.Thread(target=read) for _ in range(6)]
        for thread in readers:
            thread.start()
        for thread in readers:
            thread.join()
    balancer.close()
    assert len(found) == 300
    assert set(found) <= {replica.port, second.port}
    changes = sum(before != after for before, after in pairwise(found))
    assert changes < 30, "each connection may lead to another one than the last"


def test_a_read_that_the_replica_ends_runs_on_the_primary(pair: Pair) -> None:
    primary, replica = pair
    replica.query("ALTER SYSTEM SET max_standby_streaming_delay = '50ms'")
    replica.query("SELECT pg_reload_conf()")
    with Store(primary.url, replicas=replica.url) as store:
        things = store["things"]
        things.put_many({str(n): {"n": n} for n in range(1000)})
        for end in ("pg_cancel_backend", "pg_terminate_backend"):
            wait_for_reads(store, replica)
            assert ports_of_a_read_that_ends(store, replica, end) == [primary.port]
        wait_for_reads(store, replica)
        reader = threading.Thread(target=store.run, args=(Slow(), "session"))
        reader.start()
        wait_until(lambda: replica.query(SLEEPERS.format("pid")), "the read runs on the replica")
        things.delete_many({})
        primary.query("VACUUM cs_1_things")
        reader.join(60)
        assert not reader.is_alive(), "the replay ended it"


SLEEPERS = (
    "SELECT {} FROM pg_stat_activity WHERE query LIKE '%pg_sleep(%' AND pid <> pg_backend_pid()"
)


def ports_of_a_read_that_ends(store: Store, replica: Node, end: str) -> list[int]:
    ports = list[int]()
    reader = threading.Thread(target=lambda: ports.append(store.run(Slow(), "session")))
    reader.start()
    ended = SLEEPERS.format(f"{end}(pid)")
    wait_until(lambda: replica.query(ended), "the read runs on the replica")
    reader.join()
    return ports


def test_a_replica_that_hangs(pair: Pair) -> None:
    primary, replica = pair
    with Store(primary.url, replicas=replica.url, reply_timeout=1) as store:
        store["things"].put("a", 1)
        wait_for_reads(store, replica)
        replica.freeze()
        try:
            for consistency in ("session", "eventual"):
                things = store["things"].with_options(consistency=consistency)
                assert things.get("a") == 1
                assert store.run(ServingPort(), consistency) == primary.port
        finally:
            replica.thaw()


def test_a_cancelled_read_ends_on_the_replica(pair: Pair) -> None:
    primary, replica = pair

    async def read() -> None:
        async with AsyncStore(primary.url, replicas=replica.url) as store:
            await store["things"].put("a", 1)
            reading = asyncio.create_task(store.run(Slow(), "eventual"))
            await asyncio.to_thread(wait_until, lambda: replica.query(SLEEPING), "it runs")
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(reading, 30)
            assert not replica.query(SLEEPING)
            assert await store["things"].get("a") == 1

    asyncio.run(read())


SLEEPING = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(%' AND state = 'active' AND pid <> pg_backend_pid()"


class Slow(ServingPort):
    """As its base; takes a while on a replica."""

    def __call__(self, session: Session) -> int:
        session.rows("SELECT CASE WHEN pg_is_in_recovery() THEN pg_sleep(60) END")
        return super().__call__(session)
