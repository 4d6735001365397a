"""Processes that start fast: they are forked from a process that has imported the library."""

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from typing import Any

from collections_store import cli

_FAST = "forkserver" in multiprocessing.get_all_start_methods()
_context: Any = multiprocessing.get_context("forkserver" if _FAST else "spawn")
if _FAST:
    _library = ("cli.app", "dialogues", "migrate", "sql.dialects.sqlite", "sql.dialects.postgresql")
    _context.set_forkserver_preload(
        ["pytest", "psycopg", *(f"collections_store.{module}" for module in _library)]
    )


class Forked:
    """A process that calls `function(connection, *arguments)`; `self.connection` is the other end."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self.connection, child_end = _context.Pipe()
        self._process = _context.Process(target=_call, args=(function, child_end, *arguments))
        self._process.start()
        child_end.close()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, and wait for the exit."""
        if how == signal.SIGKILL:
            self._process.kill()
        else:
            self._process.terminate()
        self.join()

    def end(self) -> None:
        """Send None, wait for the exit, and kill the process if it does not exit."""
        with suppress(OSError):
            self.connection.send(None)
        self._process.join(10)
        self.kill()
        self.connection.close()

    def join(self) -> int:
        """Wait for the exit; return the exit code, or minus the signal."""
        self._process.join(60)
        code = self._process.exitcode
        assert code is not None, "the process does not exit"
        return int(code)

    def rest(self) -> list[Any]:
        """Return the messages that are still unread, and close the connection."""
        found = []
        with suppress(EOFError, OSError):
            while True:
                found.append(self.connection.recv())
        self.connection.close()
        return found


class Program:
    """A process that calls `function(*arguments)`, with the interface of `subprocess.Popen`: its standard output is a
    pipe of text. It has no input. Its interpreter exits without finalization: what tests that needs a new interpreter.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        read_end, write_end = _context.Pipe(duplex=False)
        self.stdout = os.fdopen(os.dup(read_end.fileno()), encoding="utf-8")
        self._errors = TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - `communicate` closes it
        ends = write_end, Connection(os.dup(self._errors.fileno()), readable=False)
        self._process = _context.Process(target=_run, args=(*ends, function, *arguments))
        self._process.start()
        for each in (read_end, *ends):
            each.close()

    @property
    def returncode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 60) -> int:
        self._process.join(timeout)
        assert self.returncode is not None, "the process does not exit"
        return self.returncode

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """Wait for the exit; return the rest of the output, and the errors."""
        with self.stdout, self._errors:
            output = self.stdout.read()
            self.wait(timeout)
            self._errors.seek(0)
            return output, self._errors.read()


def _run(
    output: Connection, errors: Connection, function: Callable[..., None], *arguments: Any
) -> None:
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    for each in (output, errors):
        each.close()
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)
    warnings.simplefilter("error")
    function(*arguments)


def run_command(arguments: list[str], environment: dict[str, str]) -> None:
    """Run `collections-store` in such a process. Its output and its errors are one."""
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(1, 2)
    sys.argv[1:] = arguments
    cli.main()


def _call(function: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    warnings.simplefilter("error")
    function(connection, *arguments)
