"""Generated ids."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from collections_store import document
from collections_store.document import new_id


def test_generated_ids_have_the_order_of_their_creation() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert {len(id) for id in ids} == {32}


def test_they_have_it_also_when_the_clock_stands_still_or_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = new_id()
    for second in (0, 0, -3600):
        stopped = time.time_ns() + second * 1_000_000_000
        monkeypatch.setattr("collections_store.document.time.time_ns", lambda now=stopped: now)
        ids = [first, *(new_id() for _ in range(1_000))]
        assert ids == sorted(set(ids))
        first = ids[-1]


def test_threads_make_different_ids_in_their_own_order() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [new_id() for _ in range(2_000)], range(8)))
    assert all(each == sorted(each) for each in made)
    assert len({id for each in made for id in each}) == 16_000


def test_ids_of_older_versions_come_first() -> None:
    older = f"{time.time_ns() // 1_000_000 - 1:012x}{'f' * 20}"  # 48 bits of milliseconds
    assert older < new_id()


FORKING = """
import os, signal, threading
from collections_store import document

threading.Thread(target=document._ids_lock.acquire).start()
child = os.fork()
if child == 0:
    signal.alarm(20)
os._exit(len(document.new_id()) if child == 0 else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_a_thread_makes_an_id_does_not_stop_the_child() -> None:
    assert subprocess.run([sys.executable, "-c", FORKING], check=False, timeout=30).returncode == 32


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
def test_a_signal_handler_may_make_an_id_while_another_is_made() -> None:
    made: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: made.append(new_id()))
    try:
        with document._ids_lock:
            signal.raise_signal(signal.SIGUSR1)
            assert made
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert made[0] < new_id()
