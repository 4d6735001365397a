"""Purging in the background: what has expired, and changes that are kept no longer.

The thread holds its store by a weak reference only, so a store that is forgotten ends it too. An error
ends one sweep, or what is left of it; the next comes after the interval.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from .background import Background
from .errors import StoreClosed
from .operations import ListPurgeable, follow
from .procedures import purge

LOG: Final = logging.getLogger("collections_store")
Run = Callable[[Any], Any]


class Sweeper:
    """Sweeps every `interval` seconds until it is stopped. `run` returns what runs an operation, or None
    once the store is no more.
    """

    def __init__(self, run: Callable[[], Run | None], interval: float) -> None:
        self._run, self._interval = run, interval
        self._told = False
        self.thread = Background("sweeper", interval, self._work)

    def _work(self) -> bool:
        run = self._run()
        if run is not None:
            self._sweep(run)
        return run is not None

    def _sweep(self, run: Run) -> None:
        try:
            for name in run(ListPurgeable()):
                follow(run, purge(name))
        except StoreClosed:
            self.thread.stop()
        except Exception:
            if not self._told:  # once, until it works again
                LOG.exception(
                    "purging in the background failed; the next try is in %g s", self._interval
                )
            self._told = True
        else:
            self._told = False
