"""Permits of transactions."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from collections_store import DatabaseBusy, StoreClosed
from collections_store.engine.permits import TransactionPermit, TransactionPermits


def nothing() -> None:
    """A callback without effect."""


def test_permits_are_granted_in_order() -> None:
    permits, woken = TransactionPermits(2, 10), []
    requested: list[TransactionPermit] = [
        permits.request(lambda n=n: woken.append(n))  # type: ignore[misc]
        for n in range(5)
    ]
    assert woken == [0, 1]
    assert [permit.granted for permit in requested] == [True, True, False, False, False]
    permits.release(requested[3])
    permits.release(requested[1])
    permits.release(requested[1])
    assert woken == [0, 1, 2]
    permits.release(requested[0])
    assert woken == [0, 1, 2, 4]


def test_a_permit_granted_to_a_cancelled_waiter_is_passed_on() -> None:
    permits = TransactionPermits(1, 10)
    first, second, third = (permits.request(nothing) for _ in range(3))
    permits.release(first)
    assert second.granted
    permits.release(second)
    assert third.granted


def test_a_lost_permit_is_granted_again() -> None:
    permits = TransactionPermits(1, 10)
    permits.acquire()  # as after an exception between two lines
    permit = permits.acquire()
    assert permits.has_own_transaction()
    permits.release(permit)
    assert not permits.has_own_transaction()


def test_waiting_times_out() -> None:
    permits = TransactionPermits(1, 0.1)
    permit = permits.acquire()
    with pytest.raises(
        DatabaseBusy, match=r"1 of at most 1 transactions were open for 0\.1 seconds"
    ):
        permits.acquire()
    permits.release(permit)
    permits.release(permits.acquire())


def test_a_waiting_thread_is_woken() -> None:
    permits = TransactionPermits(1, 10)
    permit = permits.acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(permits.acquire)
        while not permits._waiting:
            time.sleep(0.001)
        permits.release(permit)
        assert waiting.result(10).granted


def test_closing_waits_for_granted_permits() -> None:
    permits = TransactionPermits(1, 10)
    permit = permits.acquire()
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(permits.acquire)
        while not permits._waiting:
            time.sleep(0.001)
        closing = threads.submit(permits.close, 10)
        with pytest.raises(StoreClosed):
            waiting.result(10)
        assert not closing.done()
        permits.release(permit)
        closing.result(10)
    with pytest.raises(StoreClosed):
        permits.acquire()


def test_a_transaction_of_a_finished_thread_has_no_other_owner() -> None:
    permits = TransactionPermits(1, 10)
    permits_of_thread: list[TransactionPermit] = []
    for _ in range(2):  # later threads may get the identifier of a finished one
        thread = threading.Thread(target=lambda: permits_of_thread.append(permits.request(nothing)))
        thread.start()
        thread.join()
    seen: list[bool] = []
    for _ in range(5):
        thread = threading.Thread(target=lambda: seen.append(permits.has_own_transaction()))
        thread.start()
        thread.join()
    assert not any(seen)
