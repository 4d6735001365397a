"""A process that is killed during batch writes: batches are complete, and other processes continue."""

import signal
import sqlite3

import pytest
from backends import Backend
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes

from collections_store import Store


def kill_in_the_middle(backend: Backend, program: str, lines: int) -> None:
    """Kill a program after it has printed that many lines."""
    process = start(program, backend)
    assert all(process.stdout.readline() for _ in range(lines))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def check_file(backend: Backend) -> None:
    """Check the integrity of an SQLite file."""
    if backend.is_postgresql:
        return
    connection = sqlite3.connect(backend.url.removeprefix("sqlite:///"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.parametrize("lines", [2, 9])
def test_killed_batches_are_complete_or_absent(shared_backend: Backend, lines: int) -> None:
    kill_in_the_middle(shared_backend, "put_batches", lines)
    with Store(shared_backend.url, **shared_backend.options) as store:
        count = store["things"].count()
        assert not count % 1000
        assert 1000 * (lines - 2) <= count < 100_000
        assert [each.id for each in store["things"].stream()] == list(map(str, range(count)))
        assert store["things"].put_many({"0": 0, "new": 1}).written_count == 2
    check_file(shared_backend)


@pytest.mark.parametrize("program", ["put_atomically", "bulk_atomically"])
@pytest.mark.parametrize("lines", [1, 6])
def test_killed_atomic_writes_leave_nothing(
    shared_backend: Backend, program: str, lines: int
) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put("there", 1)
        kill_in_the_middle(shared_backend, program, lines)
        assert store["things"].put("after", 1) == 1
        assert [each.id for each in store["things"].list()] == ["there", "after"]
    check_file(shared_backend)


@pytest.mark.parametrize("lines", [1, 4])
def test_a_killed_update_many_is_atomic(shared_backend: Backend, lines: int) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put_many((str(number), {"n": 0}) for number in range(5000))
        kill_in_the_middle(shared_backend, "update_repeatedly", lines)
        [value] = store["things"].distinct("n")
        assert value >= lines - 1
        assert {each.version for each in store["things"].stream()} == {value + 1}
        assert store["things"].update_many({}, {"$inc": {"n": 1}}).modified_count == 5000
        assert store["things"].distinct("n") == [value + 1]
    check_file(shared_backend)
