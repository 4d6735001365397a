"""Changes that a connection records at commits, and discards at rollbacks."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from collections_store import Store
from collections_store.operations import recorder as recording
from collections_store.operations.by_id import Put
from collections_store.operations.collections import Configure
from collections_store.operations.session import DriverSession
from collections_store.options import Settings
from collections_store.sql.dialects.sqlite import filters as sqlite_filters


@pytest.fixture
def connection() -> Iterator[DriverSession]:
    with Store("sqlite://") as store:
        store.create_collection("things", changes=True)
        store["things"].put("a", 1)
        assert store.core.opened is not None
        pool: Any = store.core.opened._pools[0]
        lease = pool.acquire()
        yield lease.connection
        pool.release(lease)


def put(connection: DriverSession, *ids: str) -> None:
    for id in ids:
        Put("things", id, "1")(connection)


def recorded(connection: DriverSession) -> list[str]:
    """Return the ids of the changes that were recorded."""
    feed = connection.collection("things").feed
    assert feed is not None
    return [row[2] for row in connection.rows(feed.after, {"seq": 0, "limit": 100})]


def test_pending_changes_are_recorded_by_the_commit(connection: DriverSession) -> None:
    connection.begin_transaction("repeatable read")
    put(connection, "b")
    with pytest.raises(ZeroDivisionError), connection.savepoint():
        put(connection, "undone")
        with connection.savepoint():
            put(connection, "undone too")
        raise ZeroDivisionError
    with connection.savepoint():
        put(connection, "c")
    assert recorded(connection) == ["a"]
    assert [(each.row or {})["id"] for each in connection.recorder.pending] == ["b", "c"]
    connection.commit()
    assert recorded(connection) == ["a", "b", "c"]
    with connection.transaction(write=True):
        put(connection, "d")
    assert recorded(connection) == ["a", "b", "c", "d"]
    connection.reset()


def test_changes_rolled_back_are_not_recorded(connection: DriverSession) -> None:
    notified: list[list[str]] = []

    def listen(collections: Iterable[str]) -> None:
        notified.append(list(collections))

    connection.catalogue.changed = listen
    with pytest.raises(ZeroDivisionError), connection.transaction(write=True):
        put(connection, "x")
        raise ZeroDivisionError
    connection.begin_transaction("serializable")
    put(connection, "y")
    assert connection.reset()
    connection.begin_group()
    connection.commit()
    assert (recorded(connection), notified) == (["a"], [])
    put(connection, "z")
    assert (recorded(connection), notified) == (["a", "z"], [["things"]])


def test_a_commit_can_be_prevented(connection: DriverSession) -> None:
    def reject() -> None:
        raise ZeroDivisionError

    connection.before_commit.append(reject)
    with pytest.raises(ZeroDivisionError), connection.transaction(write=True):
        pass
    assert not connection.in_transaction()
    connection.before_commit.remove(reject)
    with connection.transaction(write=True):
        pass


def test_a_lost_savepoint_rolls_back_the_transaction(connection: DriverSession) -> None:
    connection.begin_transaction("repeatable read")
    with pytest.raises(ZeroDivisionError), connection.savepoint():
        connection.rollback()  # as a full disk would do
        connection.begin(write=True)
        raise ZeroDivisionError
    assert not connection.can_go_on()
    assert connection.reset()


# -- many changes ----------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the number of changes that are recorded before the commit to three."""
    monkeypatch.setattr(recording, "MAX_PENDING", 3)


@pytest.mark.usefixtures("few")
def test_many_changes_are_recorded_before_the_commit(connection: DriverSession) -> None:
    connection.begin_transaction("repeatable read")
    put(connection, "b", "c")
    assert len(connection.recorder.pending) == 2
    put(connection, "d", "e")
    assert [(each.row or {})["id"] for each in connection.recorder.pending] == ["e"]
    assert recorded(connection) == ["a", "b", "c", "d"]
    connection.commit()
    assert recorded(connection) == ["a", "b", "c", "d", "e"]
    connection.reset()


@pytest.mark.usefixtures("few")
def test_changes_recorded_before_the_commit_are_rolled_back(connection: DriverSession) -> None:
    connection.begin_transaction("repeatable read")
    put(connection, "b", "c")
    with pytest.raises(ZeroDivisionError), connection.savepoint():
        put(connection, "undone 1", "undone 2", "undone 3", "undone 4")
        with connection.savepoint():
            put(connection, "undone 5", "undone 6")
        assert recorded(connection) == ["a", "b", "c", *(f"undone {n}" for n in range(1, 5))]
        raise ZeroDivisionError
    assert recorded(connection) == ["a"]
    put(connection, "d", "e")
    connection.commit()
    assert recorded(connection) == ["a", "b", "c", "d", "e"]
    connection.begin_transaction("repeatable read")
    put(connection, *"fghi")
    connection.reset()
    assert recorded(connection) == ["a", "b", "c", "d", "e"]


def test_large_bodies_are_recorded_before_the_commit(
    connection: DriverSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    Configure("things", Settings(bodies="both"))(connection)
    monkeypatch.setattr(recording, "MAX_CHARACTERS", 10)
    connection.begin_transaction("repeatable read")
    with pytest.raises(ZeroDivisionError), connection.savepoint():
        Put("things", "b", '"12345"')(connection)
        raise ZeroDivisionError
    Put("things", "b", '"12345"')(connection)
    assert len(connection.recorder.pending) == 1
    Put("things", "b", "1")(connection)
    assert connection.recorder.pending == []
    connection.reset()


def test_an_earlier_error_is_not_the_cause_of_a_later_one() -> None:
    callbacks = {name: function for name, _, function in sqlite_filters.functions()}
    found = callbacks["collections_store_found"]
    assert found("no length") is not None  # not convertible by SQLite: the function raised
    assert sqlite_filters.raised_within(sqlite3.OperationalError("interrupted")) is None
    later = sqlite3.OperationalError("user-defined function raised exception")
    assert sqlite_filters.raised_within(later) is None


def versions_of(connection: DriverSession) -> list[int | None]:
    """Return the versions of upserts: new, again, expired, refused by a unique index, and jumped by the user's SQL."""
    statements = connection.collection("others")

    def upsert(id: str, text: str, ttl: int | None = None) -> int | None:
        return connection.put(statements, id, text, ttl)

    found = [upsert("a", '{"n":1}'), upsert("a", '{"n":2}'), upsert("b", '{"n":3}')]
    found += [upsert("c", '{"n":4}', 10**9), upsert("c", '{"n":4}', 1)]
    found += [upsert("c", '{"n":4}'), upsert("a", '{"n":5}')]
    for taken in ("a", "new"):
        with pytest.raises(sqlite3.IntegrityError):
            upsert(taken, '{"n":3}')
    found += [upsert("d", '{"n":6}'), upsert("a", '{"n":7}')]
    connection.command(f"UPDATE {statements.by_id.table.name} SET version = 41 WHERE id = 'a'")
    return [*found, upsert("a", '{"n":8}'), upsert("e", '{"n":9}')]


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_version_that_sqlite_reports_is_the_version_that_it_returns(*, is_reported: bool) -> None:
    with Store("sqlite://") as store:
        store.create_collection("others")
        store["others"].create_index("n", unique=True)
        assert store.core.opened is not None
        pool: Any = store.core.opened._pools[0]
        lease = pool.acquire()
        if not is_reported:
            lease.connection._versions = None
        try:
            assert versions_of(lease.connection) == [1, 2, 1, 1, 2, None, 3, 1, 4, 42, 1]
        finally:
            pool.release(lease)
