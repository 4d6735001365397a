"""`health`: what a probe learns of a store's database, whatever state that is in."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from postgres_cluster import Cluster, wait_until

from collections_store import InvalidOption, Store, StoreClosed, migrate
from collections_store.sql.schema import REVISION

pytestmark = pytest.mark.each_backend


@contextmanager
def connected(backend: Backend) -> Iterator[sa.Connection]:
    """Connect to the tables without the library."""
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            if backend.is_postgresql:
                connection.exec_driver_sql(f"SET search_path TO {backend.options['schema']}")
            yield connection
    finally:
        engine.dispose()


def set_revision(backend: Backend, revision: str) -> None:
    with connected(backend) as connection:
        connection.exec_driver_sql(f"UPDATE cs_revision SET version_num = '{revision}'")


def file_of(backend: Backend) -> Path:
    return Path(backend.url.removeprefix("sqlite:///"))


def test_a_new_store_is_healthy_and_stays_empty(open_store: Any, backend: Backend) -> None:
    found = open_store().health()
    assert (found.is_healthy, found.error) == (True, None)
    assert (found.schema, found.is_current, found.is_read_only) == (None, False, False)
    assert (found.uses_replica is None) == ("replicas" not in backend.options)
    assert found.latency >= 0
    if not backend.is_private:
        assert migrate.current(backend.url, schema=backend.options.get("schema")) is None
    if not backend.is_postgresql:
        assert not file_of(backend).exists()


def test_a_store_in_use_is_healthy_beside_its_writer(open_store: Any, backend: Backend) -> None:
    store = open_store(busy_timeout=30)
    store["things"].put("a", 1)
    with store.transaction() as tx:  # in memory it has the only connection
        tx["things"].put("a", 2)
        found = store.health()
        assert (found.is_healthy, found.schema, found.is_current) == (True, REVISION, True)
    assert store["things"].get("a") == 2


def test_a_schema_that_cannot_be_used_is_not_touched(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put("a", 1)
        for revision, problem in (("9999", "does not know"), ("0004", "db upgrade")):
            set_revision(shared_backend, revision)
            found = store.health()
            assert (found.is_healthy, found.schema, found.is_current) == (True, revision, False)
            with Store(shared_backend.url, upgrade="manual", **shared_backend.options) as other:
                found = other.health()
            assert (found.is_healthy, found.schema, found.is_current) == (False, revision, False)
            assert problem in str(found.error)
        with Store(shared_backend.url, upgrade="auto", **shared_backend.options) as other:
            assert other.health().is_healthy  # the first use upgrades it
            assert other.health().schema == "0004"


def test_incomplete_tables_are_an_error(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put("a", 1)
        with connected(shared_backend) as connection:
            connection.exec_driver_sql("DROP TABLE cs_collections")
        found = store.health()
    assert not found.is_healthy
    assert "cs_collections is missing" in str(found.error)


def test_a_closed_store_has_no_health(store: Any) -> None:
    with pytest.raises(InvalidOption, match="option timeout: must be from"):
        store.health(timeout=0)
    store.close()
    with pytest.raises(StoreClosed):
        store.health()


def test_a_callers_engine(shared_backend: Backend) -> None:
    url = shared_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url)
    with Store(engine=engine, **shared_backend.options) as store:
        assert store.health().schema is None
        store["things"].put("a", 1)
        assert store.health().is_current
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite:////missing/folder/a.db", "postgresql://u@127.0.0.1:1/x"])
def test_a_database_that_cannot_be_reached(url: str) -> None:
    with Store(url) as store:
        found = store.health()
    assert (found.is_healthy, found.schema, found.is_current) == (False, None, False)
    assert found.error


class TestFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        with Store(f"sqlite:///{tmp_path / 'a.db'}") as store:
            store["things"].put("a", 1)
        return tmp_path / "a.db"

    def test_one_that_is_no_database(self, tmp_path: Path) -> None:
        (tmp_path / "text.db").write_text("no database " * 100)
        with Store(f"sqlite:///{tmp_path / 'text.db'}") as store:
            assert "not a database" in str(store.health().error)

    def test_one_that_may_only_be_read(self, file: Path) -> None:
        for options in ("?mode=ro", "?immutable=1"):
            with Store(f"sqlite:///{file}{options}") as store:
                found = store.health()
                assert (found.is_healthy, found.is_read_only) == (True, True)

    def test_a_closed_one_gets_no_file_beside_it(self, file: Path) -> None:
        with Store(f"sqlite:///{file}") as store:
            assert store.health().is_healthy
        assert [each.name for each in file.parent.iterdir()] == ["a.db"]

    def test_one_that_was_replaced(self, file: Path) -> None:
        with Store(f"sqlite:///{file}") as store:
            store["things"].get("a")
            file.replace(file.with_name("moved.db"))
            assert "replaced, moved or deleted" in str(store.health().error)
            assert not file.exists()

    def test_one_that_another_process_locks(self, file: Path) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("PRAGMA journal_mode = DELETE")
            other.execute("BEGIN EXCLUSIVE")
            with Store(f"sqlite:///{file}") as store:
                found = store.health(timeout=0.01)
                assert (found.is_healthy, "locked" in str(found.error)) == (False, True)
                other.execute("ROLLBACK")
                assert store.health().is_healthy

    def test_its_log_is_left_as_it_is(self, file: Path) -> None:
        """A store's last connection would copy the log of a crashed process into the file."""
        with closing(sqlite3.connect(file)) as other, Store(f"sqlite:///{file}") as store:
            other.execute("PRAGMA wal_autocheckpoint = 0")
            store["things"].put("a", "x" * 10_000)
            crashed = file.with_name("crashed.db")
            for end in ("", "-wal"):
                Path(f"{crashed}{end}").write_bytes(Path(f"{file}{end}").read_bytes())
        before = [Path(f"{crashed}{end}").read_bytes() for end in ("", "-wal")]
        with Store(f"sqlite:///{crashed}") as store:
            assert store.health().is_current
        assert [Path(f"{crashed}{end}").read_bytes() for end in ("", "-wal")] == before


def test_a_server_that_lets_a_session_only_read(postgres_backend: Backend) -> None:
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        store["things"].put("a", 1)
        assert not store.health().is_read_only
    url = sa.make_url(postgres_backend.url)
    url = url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    with Store(url, **postgres_backend.options) as store:
        assert (store.health().is_healthy, store.health().is_read_only) == (True, True)
    with Store(postgres_backend.url, read_only=True, **postgres_backend.options) as store:
        assert store.health().is_read_only


def test_servers_that_hang_end_and_return(postgres_cluster: Cluster) -> None:
    primary = postgres_cluster.add()
    standby = postgres_cluster.add(primary)
    with Store(primary.url, replicas=standby.url, consistency="eventual") as store:
        things = store["things"]
        things.put("a", 1)
        assert store.health().uses_replica is False
        primary.wait_for(standby)
        wait_until(lambda: things.get("a") == 1 and store.health().uses_replica, "a replica")
        standby.kill()
        wait_until(lambda: things.get("a") == 1 and not store.health().uses_replica, "the primary")
        assert store.health().is_healthy
        primary.freeze()
        found = store.health(timeout=0.2)
        assert not found.is_healthy
        primary.thaw()
        assert store.health().is_healthy
        primary.kill()
        found = store.health()
        assert (found.is_healthy, found.schema) == (False, None)
        primary.start()
        assert store.health().is_current


def test_standbys_are_healthy_and_read_only(postgres_cluster: Cluster) -> None:
    primary = postgres_cluster.add()
    standby = postgres_cluster.add(primary)
    with Store(primary.url) as store:
        store["things"].put("a", 1)
    primary.wait_for(standby)
    with Store(standby.url, read_only=True) as store:
        found = store.health()
    assert (found.is_healthy, found.is_read_only, found.is_current) == (True, True, True)
    with psycopg.connect(standby.url) as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
