"""Background threads, the gate of a fork, and the sweeper."""

import gc
import os
import threading

import pytest

from collections_store import InvalidOption, Store
from collections_store.engine.workers import Background, Gate

LONG = 60.0


def test_work_is_repeated_until_it_finishes() -> None:
    rounds: list[int] = []

    def work() -> bool:
        rounds.append(1)
        return len(rounds) < 3

    Background("test", 0.001, work).join(LONG)
    assert len(rounds) == 3


def test_stopped_work_does_not_restart() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go_on.wait(LONG)

    thread = Background("test", 0.001, work)
    assert begun.wait(LONG)
    thread.stop()
    begun.clear()
    go_on.set()
    thread.join(LONG)
    assert not begun.is_set()


def test_forks_and_work_exclude_each_other() -> None:
    gate, done = Gate(), threading.Event()
    with gate.working():
        closing = threading.Thread(target=gate.close)
        closing.start()
        assert not done.is_set()
    closing.join(LONG)

    def work() -> None:
        with gate.working():
            done.set()

    working = threading.Thread(target=work)
    working.start()
    assert not done.is_set()
    gate.open()
    assert done.wait(LONG)
    working.join(LONG)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_stops_waiting_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections_store.engine.workers.FORK_TIMEOUT", 0.01)
    gate = Gate()
    with gate.working():
        gate.close()
        gate.open()


def test_an_unreferenced_store_stops_its_sweeper() -> None:
    store = Store("sqlite://", sweep_interval=0.001)
    store["things"].put("a", 1)
    assert store.core._sweeper is not None
    thread = store.core._sweeper.thread._thread
    del store
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


@pytest.mark.parametrize("interval", [0, -1, "1", True, float("nan"), 10**10])
def test_intervals_are_positive_seconds(interval: object) -> None:
    with pytest.raises(InvalidOption, match="sweep_interval"):
        Store("sqlite://", sweep_interval=interval)  # type: ignore[arg-type]


def test_a_gate_can_be_closed_again_after_a_signal() -> None:
    gate = Gate()
    gate.open()  # the state after a `close` that was interrupted before it counted
    gate.close()
    entered = threading.Event()

    def work() -> None:
        with gate.working():
            entered.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert not entered.wait(0.05)
    gate.open()
    assert entered.wait(10)
    thread.join(10)
