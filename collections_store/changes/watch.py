"""Change streams: the steps that sync and async share, and the synchronous stream.

Like a procedure, it yields operations and takes their results; it also yields a `Wait`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from ..engine.jobs import Flag
from ..errors import InvalidOption, shortened
from ..operations.changes import OLDEST, Changes, FindPlace, ReadChanges
from ..operations.combine import Steps, follow
from ..query.change import Change, ChangeFilter, ChangePosition, read_token
from ..query.values import value_class
from .notify import Bell

FIRST_BATCH: Final = 50
MAX_BATCH: Final = 1000
BATCH_CHARACTERS: Final = 2**20
"""What a batch holds of JSON text, about, as long as no single change is larger."""
LONGEST: Final = 10**9
"""Seconds; what lasts longer lasts for ever."""


@value_class(eq=True)
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
        wanted: ChangeFilter,
        *,
        after: str | None,
        timeout: float | None,
        shown: Callable[[Change], Change] | None = None,
    ) -> None:
        self.collection, self._wanted, self._shown = collection, wanted, shown
        self._timeout, self.token = _check_timeout(timeout), _check_after(after)
        """Where to go on: behind what was taken, and what the filter left out since."""
        self.closed = False
        self._place: ChangePosition | None = None
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

    def _here(self) -> ChangePosition:
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
    if after is not None and not (isinstance(after, str) and after == OLDEST):
        read_token(after, "")
    return after  # type: ignore[no-any-return]


def _check_timeout(timeout: Any) -> float | None:
    """Return seconds, or None; raises `InvalidOption`."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidOption("timeout", f"{shortened(timeout)} is no number of seconds from 0 on")
    return None if timeout > LONGEST else float(timeout)


class ChangeStream:
    """The changes of a collection in the order of their commits: what `watch` returns.

    It is an iterator that waits, for one thread at a time, and a context manager that closes it. Between
    changes it holds no connection and no transaction. What a change is, `Change` tells.
    """

    def __init__(self, run: Callable[[Any], Any], bell: Bell, watching: Watching) -> None:
        self._run, self._bell, self._watching = run, bell, watching
        self._woken = Flag()
        follow(self._step, watching.start())

    @property
    def token(self) -> str:
        """Where to go on: `watch(after=token)` gives all that this stream has not given yet. It
        also moves past changes that are not wanted.
        """
        return self._watching.token or ""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        change = self._watching.take()
        if change is None and not self._watching.closed:
            with self._bell.listening(self._watching.collection, self._woken.set):
                change = follow(self._step, self._watching.next())
        if change is None:
            raise StopIteration
        return change

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def try_next(self) -> Change | None:
        """Return the next change if there is one already, else None, without waiting.

        >>> with Store("sqlite://") as store:
        ...     cities = store.get_sync_collection("cities", changes=True)
        ...     stream = cities.watch()
        ...     version = cities.put("berlin", {})
        ...     stream.try_next().id, stream.try_next()
        ('berlin', None)
        """
        return follow(self._step, self._watching.look())

    def close(self) -> None:
        """End the stream, also where somebody waits for it. Closing again does nothing."""
        self._watching.closed = True
        self._woken.set()

    def _step(self, step: Any) -> Any:
        match step:
            case Wait(seconds):
                self._woken.wait(seconds)
                return self._woken.clear()
        return self._run(step)
