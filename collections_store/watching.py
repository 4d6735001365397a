"""What a stream of changes does, written once for both colours.

Like a procedure, it yields operations and takes their results; it also yields a `Wait`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from .bell import Bell
from .change import Change, Place, Wanted, read_token
from .errors import InvalidOption, shortened
from .frozen import frozen
from .operations import OLDEST, Changes, FindPlace, ReadChanges, Steps

FIRST_BATCH: Final = 50
MAX_BATCH: Final = 1000
BATCH_CHARACTERS: Final = 2**20
"""What a batch holds of JSON text, about, as long as no single change is larger."""
LONGEST: Final = 10**9
"""Seconds; what lasts longer lasts for ever."""


@frozen(eq=True)
class Wait:
    """Wait until somebody rings, or for some seconds; None: however long it takes."""

    seconds: float | None


class Watching:
    """A place in the changes of a collection, which moves on; raises `InvalidToken` and `InvalidOption`.
    `shown` makes of a change what its taker sees.
    """

    def __init__(
        self,
        collection: str,
        wanted: Wanted,
        *,
        after: str | None,
        timeout: float | None,
        shown: Callable[[Change], Change] | None = None,
    ) -> None:
        self.collection, self._wanted, self._shown = collection, wanted, shown
        self._timeout, self.token = _check_timeout(timeout), _check_after(after)
        """Where to go on: behind what was taken, and what the filter left out since."""
        self.closed = False
        self._place: Place | None = None
        self._ready: deque[Change] = deque()
        self._limit = FIRST_BATCH

    def start(self) -> Steps[None]:
        """Find the place, unless that was done."""
        if self._place is None:
            self._place = yield FindPlace(self.collection, self.token, self._wanted)
            self.token = self._place.to_token(self.collection)

    def next(self) -> Steps[Change | None]:
        """Take the next change, wait for it if need be; None: it took too long, or the stream is closed."""
        until = math.inf if self._timeout is None else time.monotonic() + self._timeout
        while True:
            change = yield from self.look()
            left = until - time.monotonic()
            if change is not None or self.closed or left <= 0:
                return change
            yield Wait(None if self._timeout is None else left)

    def look(self) -> Steps[Change | None]:
        """Take the next change, if there is one already."""
        yield from self.start()
        while not self._ready and not self.closed:
            changes = yield ReadChanges(self.collection, self._here(), self._limit, self._wanted)
            self._took(changes)
            if not changes.more:
                break
        return self.take()

    def take(self) -> Change | None:
        """Take the next of those that were read."""
        if self.closed or not self._ready:
            return None
        change = self._ready.popleft()
        self.token = change.token if self._ready else self._here().to_token(self.collection)
        return change if self._shown is None else self._shown(change)

    def _took(self, changes: Changes) -> None:
        self._place = changes.place
        self._ready.extend(changes.changes)
        if not self._ready:
            self.token = changes.place.to_token(self.collection)
        wanted = BATCH_CHARACTERS * self._limit // max(1, changes.characters)
        self._limit = max(1, min(wanted, 2 * self._limit, MAX_BATCH))

    def _here(self) -> Place:
        assert self._place is not None
        return self._place


def check_bell(bell: Bell | None) -> Bell:
    """Return the bell of a store; a transaction has none, and raises `InvalidOption`."""
    if bell is None:
        raise InvalidOption(
            "watch", "a transaction sees one moment: watch the collection that the store gives"
        )
    return bell


def _check_after(after: Any) -> str | None:
    """Return a token, "oldest" or None; raises `InvalidToken`."""
    if after is not None and after != OLDEST:
        read_token(after, "")
    return after  # type: ignore[no-any-return]


def _check_timeout(timeout: Any) -> float | None:
    """Return seconds, or None; raises `InvalidOption`."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidOption("timeout", f"{shortened(timeout)} is no number of seconds from 0 on")
    return None if timeout > LONGEST else float(timeout)
