"""What a connection tells at its commits, and what it takes back."""

from collections.abc import Iterator
from typing import Any

import pytest

from collections_store import Store
from collections_store.operations import DriverConnection


@pytest.fixture
def connection() -> Iterator[DriverConnection]:
    with Store("sqlite://") as store:
        store["things"].put("a", 1)
        assert store._backend is not None
        pool: Any = store._backend._pools[0]
        lease = pool.acquire()
        yield lease.connection
        pool.release(lease)


def test_what_is_pending_is_told_after_the_commit(connection: DriverConnection) -> None:
    told: list[Any] = []
    connection.after_commit = told.append
    connection.begin_block("repeatable read")
    connection.pending.append(1)
    with pytest.raises(ZeroDivisionError), connection.savepoint():
        connection.pending.append("undone")
        with connection.savepoint():
            connection.pending.append("undone too")
        raise ZeroDivisionError
    with connection.savepoint():
        connection.pending.append(2)
    assert told == []
    connection.commit()
    assert told == [[1, 2]]
    with connection.transaction(write=True):
        connection.pending.append(3)
    assert told == [[1, 2], [3]]
    connection.comes_to_rest()


def test_what_is_rolled_back_is_not_told(connection: DriverConnection) -> None:
    told: list[Any] = []
    connection.after_commit = told.append
    with pytest.raises(ZeroDivisionError), connection.transaction(write=True):
        connection.pending.append(1)
        raise ZeroDivisionError
    connection.begin_block("serializable")
    connection.pending.append(2)
    assert connection.comes_to_rest()
    connection.begin_group()
    connection.commit()
    assert told == []


def test_a_commit_can_be_prevented(connection: DriverConnection) -> None:
    def objects() -> None:
        raise ZeroDivisionError

    connection.before_commit.append(objects)
    with pytest.raises(ZeroDivisionError), connection.transaction(write=True):
        pass
    assert not connection.in_transaction()
    connection.before_commit.remove(objects)
    with connection.transaction(write=True):
        pass


def test_a_place_that_is_gone_undoes_the_transaction(connection: DriverConnection) -> None:
    connection.begin_block("repeatable read")
    with pytest.raises(ZeroDivisionError), connection.savepoint():
        connection.rollback()  # as a full disk would do
        connection.begin(write=True)
        raise ZeroDivisionError
    assert not connection.can_go_on()
    assert connection.comes_to_rest()
