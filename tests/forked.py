"""Processes that begin fast: they are forked from one that has imported the library already."""

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
        ["pytest", "psycopg", *(f"collections_store.{room}" for room in _library)]
    )


class Forked:
    """A process that calls `function(connection, *arguments)`, and this side of the connection."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self.connection, theirs = _context.Pipe()
        self._process = _context.Process(target=_call, args=(function, theirs, *arguments))
        self._process.start()
        theirs.close()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, and wait for the end."""
        if how == signal.SIGKILL:
            self._process.kill()
        else:
            self._process.terminate()
        self.join()

    def end(self) -> None:
        """Tell it to end by None, wait for that, and kill it if it does not."""
        with suppress(OSError):
            self.connection.send(None)
        self._process.join(10)
        self.kill()
        self.connection.close()

    def join(self) -> int:
        """Wait for the end; returns the exit code, or minus the signal that ended it."""
        self._process.join(60)
        code = self._process.exitcode
        assert code is not None, "it does not end"
        return int(code)

    def rest(self) -> list[Any]:
        """Return what it still had sent when it ended; closes the connection."""
        found = []
        with suppress(EOFError, OSError):
            while True:
                found.append(self.connection.recv())
        self.connection.close()
        return found


def _call(function: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    warnings.simplefilter("error")
    function(connection, *arguments)
