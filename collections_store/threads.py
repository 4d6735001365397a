"""Where operations run when the caller's thread is not the place: the group commit, the workers.

The rules:

1. A `Job` is an operation that somebody waits for. Exactly one side claims it: the thread that is
   about to run it, or the caller who gives it up before that (`Job.claim`).
2. Writers that wait join the transaction that is about to commit (`GroupCommit`): whoever gets the
   lock runs all that waits as one group, each caller is answered after the commit. If the group
   fails, each job is run again alone, so that nobody suffers from a neighbour. The main thread,
   where signals raise, never leads. While a transaction holds the writer, all wait for its end, for
   as long as their patience is. The next transaction lets those go first who wait by then.
3. A job that is given up while it runs is told to stop: its flag is looked at before COMMIT, and
   the database is asked to interrupt the statement. Its caller learns which of the two it was.
4. The threads of `Workers` belong to a store and end with it. They are daemons: a forgotten store
   never keeps the interpreter alive.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from .errors import DatabaseBusy, StoreClosed
from .operations import Operation

Inbox: TypeAlias = "SimpleQueue[Job | None]"
MAX_GROUP: Final = 256
"""More jobs than that wait for the next commit, so that no caller waits for too many others."""
LOOK_EVERY: Final = 0.25
"""Seconds after which whoever waits for the end of a transaction looks at the clock."""


class Job:
    """An operation that somebody waits for."""

    __slots__ = ("_claim", "_guard", "_interrupt", "abandoned", "before_finish", "committed", "done", "error",
                 "made", "operation", "result")  # fmt: skip

    def __init__(self, operation: Operation[Any]) -> None:
        self.operation = operation
        self.made = time.monotonic()
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.committed = False
        self.abandoned = False
        self.before_finish: Callable[[], None] | None = None
        self._claim = [None]
        self._guard = threading.Lock()
        self._interrupt: Callable[[], None] | None = None

    def claim(self) -> bool:
        """Take the job, to run it or to give it up; True for the first one only."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    def unclaim(self) -> None:
        """Put the job back: it was taken, and not run."""
        self._claim.append(None)

    def abandon(self) -> None:
        """Tell the running job to stop."""
        self.abandoned = True
        with self._guard:
            if self._interrupt is not None:
                self._interrupt()

    def running(self, interrupt: Callable[[], None] | None) -> None:
        """Note how the statement that runs now is stopped; None: none runs."""
        with self._guard:
            self._interrupt = interrupt

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Note the outcome. Subclasses tell whoever waits."""
        if self.before_finish is not None:
            self.before_finish()
        self.result, self.error = result, error
        self.committed = error is None
        self.done = True

    def outcome(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # the frame that raises must not keep itself alive
        return self.result


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


class AwaitedJob(Job):
    """A job that a task of an event loop waits for."""

    __slots__ = ("future", "mailbox", "settled")

    def __init__(self, operation: Operation[Any], mailbox: Mailbox) -> None:
        super().__init__(operation)
        self.mailbox = mailbox
        self.future: asyncio.Future[Any] = mailbox.loop.create_future()
        self.settled: asyncio.Future[None] | None = None

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        super().finish(result, error)
        self.mailbox.post(self)

    def deliver(self) -> None:
        """Tell the task; called on its event loop."""
        if self.settled is not None:
            if not self.settled.done():
                self.settled.set_result(None)
        elif not self.future.done():
            if self.error is None:
                self.future.set_result(self.result)
            else:
                self.future.set_exception(self.error)
                self.error = None


class Mailbox:
    """The finished jobs of one event loop; many are delivered at one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: deque[AwaitedJob] = deque()
        self._called = False

    def post(self, job: AwaitedJob) -> None:
        """Have the job delivered on the loop; called by any thread."""
        self._jobs.append(job)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._called = False  # first: a job posted from here on may be missed below
        while self._jobs:
            self._jobs.popleft().deliver()


class Workers:
    """Threads that run jobs: up to `size` for any job, and one for the group commit.

    A thread that has nothing to do waits at an inbox of its own. The one that came to rest last gets
    the next job: what it needs is still in the processor's cache.
    """

    def __init__(self, run: Callable[[Job], None], size: int) -> None:
        self._run, self._size = run, size
        self._backlog: deque[Job] = deque()
        self._resting: deque[Inbox] = deque()
        self._inboxes: list[Inbox] = []
        self._wakes: SimpleQueue[GroupCommit | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopped = False

    def submit(self, job: Job) -> None:
        """Have any thread run the job."""
        self.hand_over(job)
        self._refuse_if_stopped(job)

    def hand_over(self, job: Job) -> None:
        """Have any thread run a job that the group could not; also while the threads end."""
        self._backlog.append(job)
        if not self._resting and len(self._threads) < self._size:
            self._start_reader()
        self._hand_out()

    def submit_to_group(self, job: Job, groups: GroupCommit) -> None:
        """Have the job run with the next group."""
        groups.append(job)
        if self._writer is None:
            self._start_writer()
        self._wakes.put(groups)
        self._refuse_if_stopped(job)

    def stop(self, patience: float | None = None) -> None:
        """End the threads, once all that was submitted is done, or `patience` seconds are over."""
        with self._starting:
            self._stopped = True
        self._wakes.put(None)
        if self._writer is not None and self._writer is not threading.current_thread():
            self._writer.join(patience)  # first: it may hand jobs over to the others
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(patience)
        if patience is None:
            self._finish_the_rest()

    def _finish_the_rest(self) -> None:
        """Run what reached no thread before it ended; there is none left to race with."""
        for inbox in self._inboxes:
            with suppress(Empty):
                while True:
                    job = inbox.get_nowait()
                    if job is not None:
                        self._backlog.append(job)
        while self._backlog:
            job = self._backlog.popleft()
            if job.claim():
                job.before_finish = None
                self._run(job)

    def _refuse_if_stopped(self, job: Job) -> None:
        if self._stopped and job.claim():
            job.finish(error=StoreClosed("the store is closed"))

    def _start_reader(self) -> None:
        with self._starting:
            if len(self._threads) < self._size and not self._stopped:
                inbox: Inbox = SimpleQueue()
                self._inboxes.append(inbox)
                name = f"collections_store-{len(self._threads)}"
                self._threads.append(_start(lambda: self._read(inbox), name))

    def _start_writer(self) -> None:
        with self._starting:
            if self._writer is None and not self._stopped:
                self._writer = _start(self._write, "collections_store-writer")

    def _hand_out(self) -> None:
        """Bring jobs and threads together. Whoever adds to either side looks at both afterwards, so
        that none of them is left waiting for the other.
        """
        while self._backlog and self._resting:
            try:
                inbox = self._resting.pop()
            except IndexError:
                return
            try:
                inbox.put(self._backlog.popleft())
            except IndexError:
                self._resting.append(inbox)

    def _read(self, inbox: Inbox) -> None:
        def rest() -> None:
            self._resting.append(inbox)
            self._hand_out()

        rest()
        while (job := inbox.get()) is not None:
            if job.claim():
                job.before_finish = rest  # not after: the next job may be here by then
                self._run(job)
            else:
                rest()
            del job

    def _write(self) -> None:
        while (groups := self._wakes.get()) is not None:
            while groups.waits:
                groups.advance()


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _start(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
