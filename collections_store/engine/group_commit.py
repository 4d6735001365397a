"""The group commit: writers that wait join the transaction that is about to commit.

Whoever gets the lock runs all that waits as one group; each caller is answered after the commit. If the group fails, each
job is run again alone, so that nobody suffers from a neighbour. The main thread, where signals raise, never leads. While
a transaction holds the writer, all wait for its end, for as long as their patience is; so they do while another operation
writes. The next transaction lets those go first who wait by then.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..errors import DatabaseBusy
from ..operations.operation import Operation
from .jobs import Flag, Job
from .permits import Permit

MAX_GROUP: Final = 256
"""More jobs than that wait for the next commit, so that no caller waits for too many others."""
POLL_INTERVAL: Final = 0.25
"""Seconds after which whoever waits for the end of a transaction looks at the clock."""


class Hold:
    """The right of a transaction to be the only one that writes."""

    __slots__ = ("__weakref__", "ended", "since")

    def __init__(self) -> None:
        self.ended = Flag()
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
        timeout: float = 30.0,
    ) -> None:
        self._run_alone, self._run_group, self._timeout = run_alone, run_group, timeout
        self._pending: deque[Job] = deque()
        self._taking = threading.Lock()
        self._free: SimpleQueue[Permit] = SimpleQueue()
        """Holds the right to write while nobody writes. No lock: one that a signal raises out of is not left taken."""
        self._lost: weakref.ref[Permit] | None = None
        self._put_right()
        self._writing: Operation[Any] | None = None
        self._since = 0.0
        self._taken = Flag()
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
        if not self._pending and self._holder is None:
            with suppress(Empty):
                permit = self._free.get_nowait()
                try:
                    if self._holder is None:
                        self._writing, self._since = operation, begun
                        return self._run_alone(operation, begun)
                finally:
                    self._free.put(permit)
        job = Job(operation)
        self.append(job)
        while not job.done:
            self.advance()
        return job.outcome()

    def _put_right(self, _: object = None) -> None:
        """Make the right to write; again where a signal made somebody lose it."""
        permit = Permit()
        self._lost = weakref.ref(permit, self._put_right)
        self._free.put(permit)

    def _run_in_main_thread(self, operation: Operation[Any], begun: float) -> Any:
        while True:
            permit = self._wait_for_right(begun + self._timeout)
            try:
                hold = self._resources()
                if hold is None:
                    self._writing, self._since = operation, time.monotonic()
                    return self._run_alone(operation, begun)
            finally:
                self._free.put(permit)
            left = begun + self._timeout - time.monotonic()
            if left < 0:
                raise hold.busy()
            hold.ended.wait(min(left, POLL_INTERVAL))

    def _wait_for_right(self, until: float) -> Permit:
        try:
            return self._free.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            raise self._busy() from None

    def _busy(self) -> DatabaseBusy:
        """Return the error of those who waited in vain for the end of what writes."""
        hold = self._resources()
        if hold is not None and not self._free.empty():
            return hold.busy()
        seconds = time.monotonic() - self._since
        return DatabaseBusy(
            f"{self._writing!r} of this process has been writing for {seconds:.1f} seconds, and one writes at a time"
        )

    def advance(self) -> None:
        """Run a group; or wait a little for the end of a transaction, or of what writes. Gives up for those who
        waited for too long.
        """
        try:
            hold = self.flush(POLL_INTERVAL)
        except Empty:
            self.expire()
            return
        if hold is not None:
            hold.ended.wait(POLL_INTERVAL)
            self.expire()

    def expire(self) -> None:
        """Give up for those who have waited for too long, and are not yet taken."""
        with self._taking:
            while self._pending and time.monotonic() - self._pending[0].made > self._timeout:
                job = self._pending.popleft()
                if job.claim():
                    job.finish(error=self._busy())

    def flush(self, timeout: float = POLL_INTERVAL) -> Hold | None:
        """Run a group, if any job waits once nobody writes; returns what holds the writer. Raises `Empty` after
        some seconds.
        """
        permit = self._free.get(timeout=timeout)
        try:
            hold = self._resources()
            if hold is None:
                group = self._take()
                if group:
                    self._writing, self._since = group[-1].operation, time.monotonic()
                    self._try(group)
            return hold
        finally:
            self._free.put(permit)

    def hold(self) -> Hold:
        """Keep all others from writing, until `release`. Those who wait go first. One hold at a time:
        who calls sees to that.
        """
        if self._pending:
            if _is_main_thread():
                self._let_others_go_first()
            else:
                with suppress(Empty):
                    self.flush(self._timeout)
        hold = Hold()
        try:
            self._holder = weakref.ref(hold)
            permit = self._wait_for_right(
                time.monotonic() + self._timeout
            )  # until who writes now has ended
            self._free.put(permit)
            return hold
        except BaseException:
            self.release(hold)
            raise

    def _let_others_go_first(self) -> None:
        """Wait until another thread has taken those who came before."""
        now = time.monotonic()
        while self._oldest() < now and time.monotonic() - now < self._timeout:
            self._taken.clear()
            if self._oldest() < now:  # still, for it may have been taken before `clear`
                self._taken.wait(POLL_INTERVAL)

    def _oldest(self) -> float:
        """Tell since when the next job has waited."""
        try:
            return self._pending[0].made
        except IndexError:
            return math.inf

    def release(self, hold: Hold) -> None:
        """Let the others write."""
        if self._resources() is hold:
            self._holder = None
        hold.ended.set()

    def _resources(self) -> Hold | None:
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
        with self._taking:
            while self._pending and len(group) < MAX_GROUP:
                job = self._pending.popleft()
                if job.claim():
                    group.append(job)
        self._taken.set()
        return group


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
