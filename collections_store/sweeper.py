"""Purging in the background: what has expired, and changes that are kept no longer.

The thread holds its store by a weak reference only, so a store that is forgotten ends it too. An error
ends one sweep, or what is left of it; the next comes after the interval.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from .errors import StoreClosed
from .operations import ListPurgeable, follow
from .procedures import purge

LOG: Final = logging.getLogger("collections_store")
Run = Callable[[Any], Any]


class Sweeper:
    """A thread that sweeps every `interval` seconds until it is stopped. `run` returns what runs an
    operation, or None once the store is no more.
    """

    def __init__(self, run: Callable[[], Run | None], interval: float) -> None:
        self._run, self._interval = run, interval
        self._stop = threading.Event()
        self._told = False
        name = "collections_store-sweeper"
        self._thread = threading.Thread(target=self._keep_sweeping, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have no sweep begin any more."""
        self._stop.set()

    def join(self, patience: float) -> None:
        """Wait for the end of the thread."""
        if self._thread is not threading.current_thread():
            self._thread.join(patience)

    def _keep_sweeping(self) -> None:
        while not self._stop.wait(self._interval):
            run = self._run()
            if run is None:
                return
            self._sweep(run)
            del run

    def _sweep(self, run: Run) -> None:
        try:
            for name in run(ListPurgeable()):
                if self._stop.is_set():
                    return
                follow(run, purge(name))
        except StoreClosed:
            self._stop.set()
        except Exception:
            if not self._told:  # once, until it works again
                LOG.exception(
                    "purging in the background failed; the next try is in %g s", self._interval
                )
            self._told = True
        else:
            self._told = False
