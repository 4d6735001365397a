"""Several processes on one database: nothing is lost, and no process gets "database is locked"."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from faults import programs
from forked import Program

from collections_store import DatabaseBusy, Store

Process = Program | subprocess.Popen[str]
_running: list[Process] = []


@pytest.fixture(autouse=True)
def stop_processes() -> Iterator[None]:
    yield
    while _running:
        process = _running.pop()
        process.kill()
        if process.stdout is not None and not process.stdout.closed:
            process.communicate()


def start(
    program: str | Callable[..., None], backend: Backend, *arguments: Any, **options: Any
) -> Program:
    """Start a program, by its name in `programs` or as a function, in a process that has imported the library."""
    given = backend.url, {**backend.options, **options}, *map(str, arguments)
    function = getattr(programs, program) if isinstance(program, str) else program
    process = Program(function, *given)
    _running.append(process)
    return process


def start_interpreter(program: str, backend: Backend, *arguments: Any) -> subprocess.Popen[str]:
    """Start a program in a new interpreter, which is finalized at its exit."""
    command = [sys.executable, "-W", "error", programs.__file__, program, backend.url]
    command += [json.dumps(backend.options), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _running.append(process)
    return process


def finish(*processes: Process) -> list[str]:
    """Wait for processes that must succeed without errors; return their output."""
    outputs = [process.communicate(timeout=100) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert (process.returncode, errors) == (0, ""), errors
    return [output for output, _ in outputs]


@pytest.mark.parametrize("variant", ["increment", "increment_async"])
def test_read_modify_writes_of_two_processes_lose_nothing(
    shared_backend: Backend, variant: str
) -> None:
    finish(*(start(variant, shared_backend, 150) for _ in range(2)))
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert store["counters"].get("n") == 300


def test_read_modify_writes_of_threads_lose_nothing(shared_backend: Backend) -> None:
    finish(start("increment", shared_backend, 50), start("increment_async", shared_backend, 100))
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert store["counters"].get("n") == 150


def test_processes_that_open_an_empty_database_at_once(shared_backend: Backend) -> None:
    at = time.time() + 0.5
    finish(*(start("open_and_put", shared_backend, id, at) for id in "abcdef"))
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert sorted(d.id for d in store["things"].list()) == list("abcdef")
        assert len(store.collections()) == 7


@pytest.mark.parametrize("variant", ["put_and_print", "put_and_print_async"])
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_acknowledged_writes_survive_sigkill(
    shared_backend: Backend, variant: str, durability: str
) -> None:
    process = start(variant, shared_backend, durability=durability)
    head = [process.stdout.readline() for _ in range(40)]
    process.send_signal(signal.SIGKILL)
    acknowledged = {*head, *process.stdout.readlines()}
    process.wait()
    with Store(shared_backend.url, **shared_backend.options) as store:
        stored = {document.id for document in store["things"].stream()}
        assert {line.strip() for line in acknowledged if line.endswith("\n")} <= stored
        store["things"].put("after", 1)


def test_processes_that_write_all_the_time_take_turns_and_a_killed_one_holds_nobody_up(
    shared_backend: Backend,
) -> None:
    processes = [start("put_and_print", shared_backend) for _ in range(4)]
    while processes:
        for process in processes:
            assert all(process.stdout.readline() for _ in range(100))
        processes.pop().send_signal(signal.SIGKILL)


def test_a_lock_that_is_held_too_long_is_an_error(shared_backend: Backend) -> None:
    process = start("hold_lock", shared_backend, 3)
    process.stdout.readline()
    with Store(shared_backend.url, busy_timeout=0.3, **shared_backend.options) as store:
        time.sleep(0.5)
        if not shared_backend.is_postgresql:
            with pytest.raises(DatabaseBusy, match="busy_timeout"):
                store["things"].put("a", 1)
        assert store["things"].get("held") == 0
        finish(process)
        store["things"].put("a", 1)
        assert store["things"].get("held") == 1


def test_a_store_that_is_not_closed_does_not_block_the_exit(shared_backend: Backend) -> None:
    [output] = finish(start_interpreter("exit_without_closing", shared_backend))
    assert "AsyncStore" in output
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert store["things"].count() == 21


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_of_an_async_store_is_an_error(shared_backend: Backend) -> None:
    [output] = finish(start_interpreter("fork_open_async_store", shared_backend))
    assert "StoreClosed the store belongs to the process this one was forked from" in output
    assert output.endswith("10\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_of_an_async_store_whose_first_use_failed(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    backend = Backend("sqlite-file", f"sqlite:///{folder / 'store.db'}")
    [output] = finish(start_interpreter("fork_after_a_failure", backend, folder))
    assert output == "1\n1\n2\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_of_a_store_is_an_error(shared_backend: Backend) -> None:
    [output] = finish(start_interpreter("fork_open_store", shared_backend))
    assert "StoreClosed the store belongs to the process this one was forked from" in output
    assert "['a', 'b', 'child']" in output
