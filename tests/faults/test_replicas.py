"""Stores that only read, on a standby; and writes that wait for one."""

import threading
from typing import Any

import pytest
from conftest import NewThreads
from faults.failover import with_document
from postgres_cluster import Cluster, wait_until

from collections_store import (
    DatabaseUnavailable,
    InvalidOption,
    ReadOnlyDatabase,
    Store,
    Transaction,
)
from collections_store.dialogues import Dialogues
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session


class Setting(Operation[str]):
    """The value of a setting in an operation's transaction."""

    collection = "things"

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, session: Session) -> str:
        [(value,)] = session.rows("SELECT current_setting(%(name)s)", {"name": self.name})
        return str(value)


def test_a_store_that_reads_on_a_standby(
    postgres_cluster: Cluster, new_threads: NewThreads
) -> None:
    primary = postgres_cluster.add()
    standby = postgres_cluster.add(primary)
    with Store(standby.url, read_only=True) as early:
        assert early["things"].get("a") is None
        with pytest.raises(ReadOnlyDatabase):
            early["things"].put("a", 1)
        with Store(primary.url) as store:
            things = store.collection("things", ttl=3600, changes=True)
            things.put_many({str(n): {"n": n} for n in range(10)})
            things.create_index("n")
            dialogue = Dialogues(store, "ada").create("bob", "ask")[1]
        primary.wait_for(standby)
        assert early["things"].get("1") == {"n": 1}
    options: Any = {"read_only": True, "sweep_interval": 0.01, "reconnect_for": 60}
    with Store(standby.url, **options) as store:
        assert store.run(Setting("transaction_read_only")) == "on"
        for things in (
            store["things"],
            store.collection("things"),
            store.collection("things", ttl=3600),
        ):
            assert things.count() == 10
        assert [each.id for each in things.find({"n": {"$gte": 8}}, sort="n")] == ["8", "9"]
        with store.transaction() as tx:
            assert tx["things"].find_one({"n": 3}) is not None
        assert store.run_transaction(lambda tx: tx["things"].count()) == 10
        dialogues = Dialogues(store, "ada")
        assert [each.dialogue_label for each in dialogues.find()] == [dialogue.dialogue_label]
        assert not [each for each in new_threads() if "sweeper" in each.name]

        def write(tx: Transaction) -> Any:
            return tx["things"].put("1", {})

        for attempt in (
            lambda: store["things"].put("1", {}),
            lambda: store["new"].put("1", {}),
            lambda: store.collection("things", ttl=1),
            lambda: store["things"].create_index("m"),
            lambda: store.drop("things"),
            lambda: store.run_transaction(write),
        ):
            with pytest.raises(ReadOnlyDatabase):
                attempt()


def test_a_session_that_a_standby_ends_in_conflict_with_recovery(postgres_cluster: Cluster) -> None:
    primary = postgres_cluster.add()
    standby = postgres_cluster.add(primary)
    standby.query("ALTER SYSTEM SET max_standby_streaming_delay = '50ms'")
    standby.query("SELECT pg_reload_conf()")
    counts = []
    with Store(primary.url) as store, Store(standby.url, read_only=True) as reading:
        store["things"].put_many({str(n): {"n": n} for n in range(1000)})
        primary.wait_for(standby)

        def count(tx: Transaction) -> int:
            counts.append(tx["things"].count())
            if len(counts) == 1:
                store["things"].delete_many({})
                primary.query("VACUUM cs_1_things")
                idle = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
                wait_until(lambda: not standby.query(idle), "the standby ends the session")
            return tx["things"].count()

        assert reading.run_transaction(count) == 0
        assert counts == [1000, 0]
        assert reading["things"].count() == 0


def test_a_store_that_reads_on_a_primary(postgres_url: str) -> None:
    with Store(postgres_url, schema="replicas_reads") as store:
        store["things"].put("a", 1)
        for pooler in (None, "transaction"):
            options: Any = {"schema": "replicas_reads", "read_only": True, "pooler": pooler}
            with Store(postgres_url, **options) as reading:
                assert reading["things"].get("a") == 1
                with pytest.raises(ReadOnlyDatabase):
                    reading["things"].put("a", 2)
                with pytest.raises(ReadOnlyDatabase), reading.transaction() as tx:
                    tx["things"].put("a", 2)
                assert reading["things"].get("a") == 1
        store.drop("things")


def test_a_standby_has_no_serializable_transactions(postgres_cluster: Cluster) -> None:
    _, standby = with_document(postgres_cluster)
    with Store(standby.url, read_only=True) as store:
        with (
            pytest.raises(ReadOnlyDatabase, match='choose isolation="repeatable read"'),
            store.transaction(isolation="serializable") as tx,
        ):
            tx["things"].get("a")
        with store.transaction() as tx:
            assert tx["things"].get("a") == 1


def test_a_refused_write_changes_no_order_of_hosts(postgres_cluster: Cluster) -> None:
    primary, standby = with_document(postgres_cluster)
    where = f"host={standby.address}&host={primary.address}"
    url = primary.url.replace(primary.address, "") + f"?{where}"
    with Store(url, read_only=True) as store:
        for _ in range(2):  # the second time on a new connection
            assert store.run(Setting("primary_conninfo")) != ""
            with pytest.raises(ReadOnlyDatabase):
                store["things"].put("a", 2)


@pytest.mark.parametrize(("option", "value"), [("read_only", True), ("durability", "replicated")])
def test_options_of_servers(option: Any, value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"option {option}: .*sqlite"):
        Store("sqlite://", **{option: value})
    with pytest.raises(InvalidOption, match="option read_only: must be True or False"):
        Store("postgresql://localhost/a", read_only="yes")  # type: ignore[arg-type]


def test_replicated_writes(postgres_cluster: Cluster) -> None:
    primary = postgres_cluster.add()
    with Store(primary.url) as store:
        store["things"].put("a", 1)
    with Store(primary.url, durability="replicated") as store:
        with pytest.raises(DatabaseUnavailable, match="needs a synchronous standby") as caught:
            store["things"].put("a", 2)
        assert not caught.value.in_doubt
        standby = postgres_cluster.add(primary)
        primary.synchronise_with(standby)
        assert store["things"].put("a", 2) == 2
        assert store.run(Setting("synchronous_commit")) == "on"
    weak = f"{primary.url}?options=-csynchronous_commit%3Dlocal"
    with Store(weak, durability="replicated") as store, Store(weak) as local:
        assert store.run(Setting("synchronous_commit")) == "on"
        assert local.run(Setting("synchronous_commit")) == "local"
    stronger = f"{primary.url}?options=-csynchronous_commit%3Dremote_apply"
    with Store(stronger, durability="replicated") as store:
        assert store.run(Setting("synchronous_commit")) == "remote_apply"
        standby.shut_down()
        written = threading.Thread(target=lambda: store["things"].put("b", 1))
        written.start()
        written.join(1)
        assert written.is_alive()  # no acknowledgement without a standby
        standby.start(primary)
        written.join(60)
        assert not written.is_alive()
