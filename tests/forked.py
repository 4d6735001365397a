"""Processes that start fast: they are forked from a process that has imported the library."""

import multiprocessing
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

_FAST = "forkserver" in multiprocessing.get_all_start_methods()
_context: Any = multiprocessing.get_context("forkserver" if _FAST else "spawn")
if _FAST:
    _library = ("dialogues", "migrate", "sql.dialects.sqlite", "sql.dialects.postgresql")
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


def _call(function: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    warnings.simplefilter("error")
    function(connection, *arguments)
