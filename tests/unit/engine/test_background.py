"""Threads that do something now and then, the bell, and the sweeper: on their own."""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from collections_store import InvalidOption, Store, StoreClosed
from collections_store.changes import notify as bell
from collections_store.changes.notify import Bell, ring
from collections_store.engine.workers import Background, Gate

LONG = 60.0


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as undo:
        yield undo


def test_work_is_done_until_it_says_that_it_is_over() -> None:
    rounds: list[int] = []

    def work() -> bool:
        rounds.append(1)
        return len(rounds) < 3

    Background("test", 0.001, work).join(LONG)
    assert len(rounds) == 3


def test_work_that_is_stopped_does_not_begin_again() -> None:
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


def test_a_fork_waits_for_work_and_work_for_a_fork() -> None:
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
def test_a_fork_is_not_kept_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections_store.engine.workers.FORK_PATIENCE", 0.01)
    gate = Gate()
    with gate.working():
        gate.close()
        gate.open()


def test_the_bell_wakes_those_who_listen(undo: ExitStack) -> None:
    woken: list[str] = []
    one, other = Bell(None), Bell(None)
    undo.enter_context(one.listening("a", lambda: woken.append("one a")))
    undo.enter_context(one.listening("b", lambda: woken.append("one b")))
    with other.listening("a", lambda: woken.append("other a")):
        ring(["a", "nobody"])
        assert sorted(woken) == ["one a", "other a"]
    ring(["a", "b"])
    assert sorted(woken) == ["one a", "one a", "one b", "other a"]
    undo.close()
    ring(["a", "b"])
    assert len(woken) == 4
    assert not bell._heard & {one, other}


def test_a_bell_that_is_closed_wakes_all_and_has_no_more_listeners() -> None:
    woken = threading.Event()
    closed = Bell(None)
    with closed.listening("a", woken.set):
        closed.close()
        assert woken.is_set()
    with pytest.raises(StoreClosed), closed.listening("a", woken.set):
        pass


@pytest.mark.parametrize("answers", [[1, 1, 2], [None, ValueError(), None]])
def test_a_look_that_differs_or_fails_wakes(
    monkeypatch: pytest.MonkeyPatch, answers: list[object]
) -> None:
    monkeypatch.setattr(bell, "POLL_EVERY", 0.001)
    left, woken, looks = list(answers), threading.Semaphore(0), threading.Semaphore(0)

    def look(collection: str) -> object:
        assert collection == "a"
        looks.release()
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    one = Bell(lambda: look)
    with one.listening("a", woken.release):
        for _ in range(2):
            assert woken.acquire(timeout=LONG)
        for _ in range(10):
            assert looks.acquire(timeout=LONG)
        assert not woken.acquire(blocking=False)
    one.close()
    one.join(LONG)


def test_a_store_that_is_forgotten_ends_its_sweeper() -> None:
    store = Store("sqlite://", sweep_interval=0.001)
    store["things"].put("a", 1)
    assert store._sweeper is not None
    thread = store._sweeper.thread._thread
    del store
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


@pytest.mark.parametrize("interval", [0, -1, "1", True, float("nan"), 10**10])
def test_an_interval_is_some_seconds(interval: object) -> None:
    with pytest.raises(InvalidOption, match="sweep_interval"):
        Store("sqlite://", sweep_interval=interval)  # type: ignore[arg-type]


def test_a_gate_that_a_signal_kept_from_closing_can_be_closed_again() -> None:
    gate = Gate()
    gate.open()  # what follows a `close` that was interrupted before it counted
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
