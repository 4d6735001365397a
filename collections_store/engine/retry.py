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
"""

from __future__ import annotations

import random
import time
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
