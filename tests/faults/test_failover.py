"""Failovers of PostgreSQL: nothing acknowledged is lost, nothing is written twice, and no thread or task is stuck."""

from typing import Any

import pytest
import sqlalchemy as sa
from faults.failover import FAULTS, fail_over, with_document
from faults.losing import Proxy
from postgres_cluster import Cluster

from collections_store import ReadOnlyDatabase, Store, Transaction

CASES: Any = {
    "kill": {},
    "shut_down": {"by_proxy": True},
    "demote": {"by_proxy": True},
    "freeze": {"reply_timeout": 1},
    "lose_standby": {"reply_timeout": 1},
}
"""Options of the load, by faults."""


@pytest.mark.parametrize(
    "fault", [each for each in CASES if each != "shut_down"]
)  # `demote` begins with that
def test_a_fault_under_load(postgres_cluster: Cluster, fault: str) -> None:
    fail_over(postgres_cluster, FAULTS[fault], threads=3, tasks=6, pause=0.02, **CASES[fault])


@pytest.mark.soak
@pytest.mark.parametrize("by_proxy", [False, True], ids=["hosts", "proxy"])
@pytest.mark.parametrize("fault", CASES)
def test_a_fault_under_heavy_load(postgres_cluster: Cluster, fault: str, by_proxy: bool) -> None:
    options = CASES[fault] | {"by_proxy": by_proxy}
    load, seconds = fail_over(postgres_cluster, FAULTS[fault], threads=20, tasks=64, **options)
    in_doubt = sum(notes.in_doubt for notes in load.notes.values())
    print(f"{fault}: {load.acknowledged} acknowledged, {in_doubt} in doubt, {seconds:.2f} s")
    noticed = options.get("reply_timeout", 0)  # a server that hangs is noticed by its silence
    assert seconds < 2 + noticed


def test_a_standby_only_reads(postgres_cluster: Cluster) -> None:
    _, standby = with_document(postgres_cluster)

    def write(tx: Transaction) -> Any:
        return tx["things"].put("a", 2)

    with Store(standby.url, reconnect_for=0.5) as store:
        assert store["things"].get("a") == 1
        for attempt in (
            lambda: store["things"].put("a", 2),
            lambda: store["things"].update_many({}, {"$set": {"n": 1}}),
            lambda: store["new"].put("a", 2),
            lambda: store.run_transaction(write),
            lambda: store.run_transaction(write, isolation="serializable"),
        ):
            with pytest.raises(ReadOnlyDatabase) as caught:
                attempt()
            assert not caught.value.in_doubt
        standby.promote()
        assert store["things"].put("a", 2) == 2
        assert store.run_transaction(write) == 3
    with (
        Store(f"{standby.url}?target_session_attrs=standby", reconnect_for=0.5) as store,
        pytest.raises(ConnectionError),
    ):
        store["things"].get("a")


def test_the_primary_is_found_among_several_hosts(postgres_cluster: Cluster) -> None:
    """The first host of the URL is a standby that is behind."""
    primary = postgres_cluster.add()
    standby = postgres_cluster.add(primary)
    postgres_cluster.nodes.reverse()
    with Store(postgres_cluster.url, pool_size=3) as store:
        assert store["things"].put("a", 1) == 1
    primary.wait_for(standby)
    standby.query("SELECT pg_wal_replay_pause()")
    with Store(postgres_cluster.url, pool_size=3) as store:
        assert store["things"].put("a", 2) == 2
    with Store(postgres_cluster.url, pool_size=3) as store:
        assert store["things"].get("a") == 2
    with Store(postgres_cluster.url, read_only=True) as store:
        assert store["things"].get("a") == 1  # on the standby
    with Store(f"{postgres_cluster.url}&target_session_attrs=any", pool_size=3) as store:
        assert store["things"].get("a") == 1  # on the standby
        assert store["things"].put("a", 3) == 3
        assert store.run_transaction(lambda tx: tx["things"].put("a", 4)) == 4
    primary.kill()
    with (
        Store(postgres_cluster.url, reconnect_for=0.5) as store,
        pytest.raises(ReadOnlyDatabase, match="open the store with read_only=True"),
    ):
        store["things"].get("a")


def test_an_engine_of_the_caller_leaves_a_standby(postgres_cluster: Cluster) -> None:
    primary, standby = with_document(postgres_cluster)
    proxy = Proxy(standby.url)
    engine = sa.create_engine(proxy.url.replace("postgresql:", "postgresql+psycopg:"), pool_size=2)
    with Store(engine=engine) as store:
        with store.transaction() as tx:  # two connections
            assert tx["things"].get("a") == store["things"].get("a") == 1
        proxy.lead_to(primary.url)
        assert store["things"].put("a", 2) == 2
        assert store.run_transaction(lambda tx: tx["things"].put("a", 3)) == 3
    engine.dispose()
    proxy.close()
