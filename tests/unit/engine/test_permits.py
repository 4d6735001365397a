"""Whose turn it is to have a transaction open."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from collections_store import DatabaseBusy, StoreClosed
from collections_store.engine.permits import Turn, Turns


def nothing() -> None:
    """Wake nobody."""


def test_who_comes_first_goes_first() -> None:
    turns, woken = Turns(2, 10), []
    asked: list[Turn] = [turns.ask(lambda n=n: woken.append(n)) for n in range(5)]  # type: ignore[misc]
    assert woken == [0, 1]
    assert [turn.granted for turn in asked] == [True, True, False, False, False]
    turns.give_back(asked[3])
    turns.give_back(asked[1])
    turns.give_back(asked[1])
    assert woken == [0, 1, 2]
    turns.give_back(asked[0])
    assert woken == [0, 1, 2, 4]


def test_a_turn_granted_to_one_who_left_is_passed_on() -> None:
    turns = Turns(1, 10)
    first, second, third = (turns.ask(nothing) for _ in range(3))
    turns.give_back(first)
    assert second.granted
    turns.give_back(second)
    assert third.granted


def test_a_turn_that_was_lost_is_granted_again() -> None:
    turns = Turns(1, 10)
    turns.take()  # as an exception between two lines would do
    turn = turns.take()
    assert turns.are_mine()
    turns.give_back(turn)
    assert not turns.are_mine()


def test_waiting_ends() -> None:
    turns = Turns(1, 0.1)
    turn = turns.take()
    with pytest.raises(
        DatabaseBusy, match=r"1 of at most 1 transactions were open for 0\.1 seconds"
    ):
        turns.take()
    turns.give_back(turn)
    turns.give_back(turns.take())


def test_a_thread_is_woken() -> None:
    turns = Turns(1, 10)
    turn = turns.take()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(turns.take)
        while not turns._waiting:
            time.sleep(0.001)
        turns.give_back(turn)
        assert waiting.result(10).granted


def test_closing_waits_for_those_that_were_granted() -> None:
    turns = Turns(1, 10)
    turn = turns.take()
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(turns.take)
        while not turns._waiting:
            time.sleep(0.001)
        closing = threads.submit(turns.close, 10)
        with pytest.raises(StoreClosed):
            waiting.result(10)
        assert not closing.done()
        turns.give_back(turn)
        closing.result(10)
    with pytest.raises(StoreClosed):
        turns.take()


def test_a_transaction_of_a_thread_that_ended_is_nobody_elses() -> None:
    turns = Turns(1, 10)
    kept: list[Turn] = []
    for _ in range(2):  # threads that begin later are given the number of one that ended
        thread = threading.Thread(target=lambda: kept.append(turns.ask(nothing)))
        thread.start()
        thread.join()
    seen: list[bool] = []
    for _ in range(5):
        thread = threading.Thread(target=lambda: seen.append(turns.are_mine()))
        thread.start()
        thread.join()
    assert not any(seen)
