"""Saving what changed, now and then and before a search."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

from ..background import Background
from ..errors import DialoguesNotSaved
from ..operations import Steps
from .container import Container
from .keeper import LOG

PATIENCE: Final = 30.0
"""Seconds to wait for the end of what a thread saves."""


def saving(container: Container) -> Steps[None]:
    """Save what changed, as far as it can be: the rest stays in memory, and is told to the log."""
    if not container.is_set_up:
        return
    try:
        yield from container.flush()
    except DialoguesNotSaved:
        LOG.exception("%s: some cannot be saved now, and stay in memory", container.keeper.names)


def saver(seconds: float, save: Callable[[], bool]) -> Background:
    """Return a thread that calls a method every so many seconds, whatever that raises, for as long as its
    object lives and it returns True.
    """
    method: weakref.WeakMethod[Any] = weakref.WeakMethod(save)

    def save_again() -> bool:
        found = method()
        if found is None:
            return False
        try:
            return bool(found())
        except Exception:  # noqa: BLE001 - whatever it is, others can perhaps be saved next time
            LOG.exception("%r: cannot save now, and will try again", found.__self__)
            return True

    return Background("dialogues", seconds, save_again)
