"""Retries: whether an operation or a transaction runs again after an error, and when. Only this module decides.

Rules:

1. An operation that may be committed (`in_doubt`) or cannot succeed (`is_final`) never runs again.
2. While a lock or a connection is not free, and after a conflict, an operation runs again for most of the busy timeout;
   a user's transaction up to a number of times.
3. While no server can be reached, or only a server that cannot write, operations and transactions run again for
   `reconnect_for` seconds from the first such error on. Earlier seconds of successful work do not count. In a read-only
   store, the error of a read-only server is final.
4. Pauses are random: after equal pauses, attempts in conflict would meet again. The longer an attempt took, and the
   more attempts failed, the longer the pauses may be.
5. Processes take turns at the single writer of an SQLite file: see `Turns`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, Self

from ..errors import (
    CollectionsStoreError,
    DatabaseUnavailable,
    ReadOnlyDatabase,
    TransactionConflict,
)
from ..options import Options
from ..sql.dialects.protocols import Database
from ..sql.dialects.support import reconnects_for

LONGEST_PAUSE: Final = 4.0
"""Seconds between two attempts of a long operation, at most."""


LOOK_EVERY: Final = 0.0004
"""Seconds between two looks while another process writes, on average, at least."""
TURN: Final = 0.0005
"""Seconds for which a process that had to wait writes, before the process lets others write."""
LONGEST_WAIT: Final = 0.25
"""Seconds of looks, after which the caller's timeout is checked."""


class Turns:
    """The turns of a process at the single writer of an SQLite file, beside other processes.

    SQLite has no queue of writers. Its own steps between two attempts grow to 0.1 s, and the process that wrote last
    tries again sooner: a few processes write, and others starve. Here a waiting process looks often, at random times. A
    process that had to wait writes for `TURN` seconds, and then pauses for longer than the others between two looks.
    Nothing is stored: a killed process holds nobody up, and programs without turns may write, too.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until: float = 0.0
        """The end of this process's turn; 0 while no other process writes."""

    def wait(self, can_write: Callable[[], bool], timeout: float = LONGEST_WAIT) -> None:
        """Wait until `can_write` returns True, for up to `timeout` seconds and `LONGEST_WAIT`; then the turn begins."""
        begun = now = time.monotonic()
        while now < begun + min(timeout, LONGEST_WAIT):
            time.sleep(max(LOOK_EVERY, (now - begun) / 50) * random.uniform(0.5, 1.5))
            if can_write():
                break
            now = time.monotonic()
        self.until = time.monotonic() + TURN

    def pause(self) -> None:
        """Let other processes write if the turn has ended. Call this before a write if `until` is not 0."""
        if time.monotonic() >= self.until:
            self.until = 0.0
            time.sleep(1.5 * LOOK_EVERY)


class Retries:
    """The attempts of an operation, or of a user's transaction: only a transaction has a number of `attempts`."""

    __slots__ = (
        "_attempts",
        "_failed",
        "_is_read_only",
        "_reconnect_for",
        "_reconnect_until",
        "_until",
    )

    def __init__(
        self,
        busy_timeout: float,
        reconnect_for: float,
        *,
        started: float | None = None,
        attempts: int | None = None,
        is_read_only: bool = False,
    ) -> None:
        started = time.monotonic() if started is None else started
        self._until, self._attempts = started + 0.9 * busy_timeout, attempts
        self._reconnect_for, self._is_read_only = reconnect_for, is_read_only
        self._reconnect_until: float | None = None
        self._failed = 0

    @classmethod
    def of(
        cls,
        options: Options,
        database: Database,
        started: float | None = None,
        attempts: int | None = None,
    ) -> Self:
        """Return the attempts of an operation that began at `started`, in a store with these options."""
        reconnect_for, is_read_only = reconnects_for(options, database), options.read_only
        return cls(
            options.busy_timeout,
            reconnect_for,
            started=started,
            attempts=attempts,
            is_read_only=is_read_only,
        )

    def pause(self, error: CollectionsStoreError, took: float = 0.0) -> float:
        """Return the seconds to wait before the next attempt; raise the error if no attempt is left. `took`: the
        seconds of the failed attempt.
        """
        self._failed += 1
        if getattr(error, "in_doubt", False) or getattr(error, "is_final", False):
            raise error
        if self._is_read_only and isinstance(error, ReadOnlyDatabase):
            raise error
        if isinstance(error, DatabaseUnavailable):
            return self._pause_reconnecting(error)
        if self._attempts is None:
            if time.monotonic() > self._until:
                raise error
        elif self._failed >= self._attempts:
            raise error
        longest = 0.0005 * 2 ** min(self._failed, 7 if self._attempts is None else 9)
        if isinstance(error, TransactionConflict):
            longest = max(longest, min(LONGEST_PAUSE, took * self._failed))
        return random.uniform(0, longest)

    def _pause_reconnecting(self, error: DatabaseUnavailable) -> float:
        now = time.monotonic()
        if self._reconnect_until is None:
            self._reconnect_until = now + self._reconnect_for
        left = self._reconnect_until - now
        if left <= 0:
            raise error
        return min(left, random.uniform(0, 0.0005 * 2 ** min(self._failed, 9)))
