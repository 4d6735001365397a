"""Which errors are followed by another attempt, and for how long."""

import time

import pytest

from collections_store import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    ReadOnlyDatabase,
    TransactionConflict,
)
from collections_store.engine.retry import Retries, Turns

LONG_AGO = time.monotonic() - 1000


@pytest.mark.parametrize(
    "error",
    [
        DatabaseUnavailable("lost", in_doubt=True),
        DatabaseUnavailable("replaced", is_final=True),
    ],
)
def test_what_cannot_or_must_not_run_again(error: DatabaseError) -> None:
    with pytest.raises(DatabaseUnavailable) as caught:
        Retries(30, 30).pause(error)
    assert caught.value is error


@pytest.mark.parametrize("kind", [DatabaseBusy, TransactionConflict])
def test_a_conflict_is_retried_for_the_busy_timeout(kind: type[DatabaseError]) -> None:
    assert Retries(30, 0).pause(kind("once")) < 1
    with pytest.raises(kind):
        Retries(30, 30, started=LONG_AGO).pause(kind("too late"))


@pytest.mark.parametrize("kind", [DatabaseUnavailable, ReadOnlyDatabase])
def test_a_lost_server_is_waited_for_from_its_loss_on(kind: type[DatabaseError]) -> None:
    retries = Retries(30, 0.2, started=LONG_AGO)
    assert 0 <= retries.pause(kind("lost")) <= 0.2
    time.sleep(0.2)
    with pytest.raises(kind):
        retries.pause(kind("still lost"))
    with pytest.raises(kind):
        Retries(30, 0).pause(kind("not at all"))


def test_attempts_are_those_after_conflicts() -> None:
    retries = Retries(30, 30, attempts=3)
    for _ in range(2):
        retries.pause(TransactionConflict("again"))
    with pytest.raises(TransactionConflict):
        retries.pause(TransactionConflict("for the last time"))
    assert retries.pause(DatabaseUnavailable("lost")) < 1


def test_long_attempts_are_followed_by_long_pauses() -> None:
    pauses = [Retries(30, 30).pause(TransactionConflict("met"), took=3.0) for _ in range(50)]
    assert 0.1 < max(pauses) <= 4.0
    assert max(Retries(30, 30).pause(DatabaseBusy("locked"), took=3.0) for _ in range(50)) < 0.1


def test_a_process_looks_until_no_other_writes_and_then_has_a_turn() -> None:
    turns, looks = Turns(), iter([False, False, True])
    assert not turns.until
    turns.wait(lambda: next(looks))
    assert list(looks) == []
    assert turns.until


def test_a_wait_for_the_writer_ends_with_the_timeout() -> None:
    looks = iter([False] * 1000)
    Turns().wait(lambda: next(looks), 0.01)
    assert not next(looks)
    Turns().wait(lambda: pytest.fail("no time is left"), 0.0)


def test_a_turn_ends_and_the_next_write_waits_for_nobody() -> None:
    turns = Turns()
    turns.wait(lambda: True)
    while turns.until:
        turns.pause()
