"""The group commit: writers that wait join the transaction that is about to commit.

Whoever gets the lock runs all that waits as one group; each caller is answered after the commit. If the group fails, each
job is run again alone, so that nobody suffers from a neighbour. The main thread, where signals raise, never leads. While
a transaction holds the writer, all wait for its end, for as long as their patience is. The next transaction lets those go
first who wait by then.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from .errors import DatabaseBusy
from .jobs import Job
from .operations import Operation

MAX_GROUP: Final = 256
"""More jobs than that wait for the next commit, so that no caller waits for too many others."""
LOOK_EVERY: Final = 0.25
"""Seconds after which whoever waits for the end of a transaction looks at the clock."""


class Hold:
    """The right of a transaction to be the only one that writes."""

    __slots__ = ("__weakref__", "ended", "since")

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.since = time.monotonic()

    def busy(self) -> DatabaseBusy:
        """Return the error of those who waited in vain."""
        seconds = time.monotonic() - self.since
        return DatabaseBusy(
            f"a transaction of this process has held the writer for {seconds:.1f} seconds, and one "
            "writes at a time: end transactions sooner"
        )


class GroupCommit:
    """Writers that wait join the transaction that is about to commit."""

    def __init__(
        self,
        run_alone: Callable[[Operation[Any], float], Any],
        run_group: Callable[[list[Job]], None],
        patience: float = 30.0,
    ) -> None:
        self._run_alone, self._run_group, self._patience = run_alone, run_group, patience
        self._pending: deque[Job] = deque()
        self._lock = threading.Lock()
        self._taken = threading.Event()
        """Set when a group was taken from those who wait."""
        self._holder: weakref.ref[Hold] | None = None
        """Weak: what a signal made somebody lose holds nothing."""

    def append(self, job: Job) -> None:
        """Have the job run with the next group."""
        self._pending.append(job)

    def run(self, operation: Operation[Any]) -> Any:
        """Run in this thread, or have another thread's group take the operation along.

        The main thread runs its own only. Signals raise there, at any moment: in the middle of a
        group they would meet the work of others.
        """
        begun = time.monotonic()
        if _is_main_thread():
            return self._run_in_main_thread(operation, begun)
        if not self._pending and self._holder is None and self._lock.acquire(blocking=False):
            try:
                if self._holder is None:
                    return self._run_alone(operation, begun)
            finally:
                self._lock.release()
        job = Job(operation)
        self.append(job)
        while not job.done:
            self.advance()
        return job.outcome()

    def _run_in_main_thread(self, operation: Operation[Any], begun: float) -> Any:
        while True:
            with self._lock:
                hold = self._held()
                if hold is None:
                    return self._run_alone(operation, begun)
            left = begun + self._patience - time.monotonic()
            if left < 0:
                raise hold.busy()
            hold.ended.wait(min(left, LOOK_EVERY))

    def advance(self) -> None:
        """Run a group; or wait a little for the end of a transaction, and give up for those who
        waited for too long.
        """
        hold = self.flush()
        if hold is None:
            return
        hold.ended.wait(LOOK_EVERY)
        with self._lock:
            while self._pending and time.monotonic() - self._pending[0].made > self._patience:
                job = self._pending.popleft()
                if job.claim():
                    job.finish(error=hold.busy())

    def flush(self) -> Hold | None:
        """Run a group, if any job waits once the lock is free; returns what holds the writer."""
        with self._lock:
            hold = self._held()
            if hold is None:
                group = self._take()
                if group:
                    self._try(group)
            return hold

    def hold(self) -> Hold:
        """Keep all others from writing, until `release`. Those who wait go first. One hold at a time:
        who calls sees to that.
        """
        if self._pending:
            if _is_main_thread():
                self._let_others_go_first()
            else:
                self.flush()
        hold = Hold()
        self._holder = weakref.ref(hold)
        with self._lock:  # whoever writes now comes to an end
            return hold

    def _let_others_go_first(self) -> None:
        """Wait until another thread has taken those who came before."""
        now = time.monotonic()
        while self._oldest() < now and time.monotonic() - now < self._patience:
            self._taken.clear()
            if self._oldest() < now:  # still, for it may have been taken before `clear`
                self._taken.wait(LOOK_EVERY)

    def _oldest(self) -> float:
        """Tell since when the next job has waited."""
        try:
            return self._pending[0].made
        except IndexError:
            return math.inf

    def release(self, hold: Hold) -> None:
        """Let the others write."""
        self._holder = None
        hold.ended.set()

    def _held(self) -> Hold | None:
        return None if self._holder is None else self._holder()

    def _try(self, group: list[Job]) -> None:
        try:
            self._run_group(group)
        except BaseException as error:
            for job in group:
                if not job.done:
                    job.finish(error=error)
            if not isinstance(error, Exception):
                raise

    @property
    def waits(self) -> bool:
        """Does any job wait?"""
        return bool(self._pending)

    def _take(self) -> list[Job]:
        group: list[Job] = []
        while self._pending and len(group) < MAX_GROUP:
            job = self._pending.popleft()
            if job.claim():
                group.append(job)
        self._taken.set()
        return group


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
