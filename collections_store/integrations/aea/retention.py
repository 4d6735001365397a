"""How long AEA's dialogues are kept that have ended, and how many."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ... import CollectionsStoreError, InvalidOption
from ...dialogues import DialogueStore

LOG: Final = logging.getLogger("collections_store")
PURGE_EVERY: Final = 100
"""Dialogues that end before those are looked for that are too many."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long, in seconds or as a timedelta, and how many dialogues are kept that have ended; None: without end. Raises
    `InvalidOption`.
    """

    ttl: float | timedelta | None = None
    kept: int | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.seconds, int | float) or not self.seconds > 0:
            problem = f"{self.ttl!r} is neither seconds nor a timedelta, and more than none"
            raise InvalidOption("terminal_ttl", problem)
        if self.kept is not None and not (_is_number(self.kept, int) and self.kept >= 0):
            raise InvalidOption("terminal_kept", f"{self.kept!r} is not a whole number from 0 on")

    @property
    def seconds(self) -> float:
        """How long, in seconds."""
        if isinstance(self.ttl, timedelta):
            return self.ttl.total_seconds()
        return math.inf if self.ttl is None else self.ttl

    @property
    def often(self) -> int:
        """How many may end before a purge."""
        return PURGE_EVERY if self.kept is None else min(PURGE_EVERY, 1 + self.kept)


class Purging:
    """Deletes what is kept no longer, now and then. It is done again later: nothing fails because of it."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._ended, self._at = 0, -math.inf

    def one_ended(self, store: DialogueStore[Any]) -> None:
        """Purge if it is time to."""
        self._ended += 1
        is_time = time.monotonic() - self._at > self._retention.seconds
        if is_time or self._ended % self._retention.often == 0:
            self.purge(store)

    def purge(self, store: DialogueStore[Any]) -> None:
        """Delete what is older, or more."""
        self._at, retention = time.monotonic(), self._retention
        if retention.ttl is None and retention.kept is None:
            return
        try:
            store.purge(ttl=retention.ttl, kept=retention.kept)
        except CollectionsStoreError:
            LOG.exception("what has ended cannot be purged now")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
