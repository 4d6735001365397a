"""Threads of a store: workers, background threads and the sweeper; and their behaviour at a fork.

Rules:

1. All threads are daemons: an unclosed store never keeps the interpreter alive.
2. While a background thread works, or a store is opened, a fork waits up to `FORK_TIMEOUT` seconds: nobody in the child
   would release the thread's locks, such as a lock of the database's library.
3. Before a fork the connections to SQLite files are closed: the child inherits none, and has locks of its own on the
   files it opens. Nobody opens or uses a connection until the fork is over; then the parent reopens connections as
   needed.
4. A fork waits as long for running operations, but not for a transaction of the forking thread. A file still open after
   the wait stays open, and `database_file` refuses the file in the child.
5. Background threads hold only a weak reference to their store, and end with the store. An error ends a sweep; the next
   sweep comes after the interval.
6. A thread that adds a job or becomes idle checks both queues afterwards: no job waits while a thread is idle.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeAlias

from ..errors import StoreClosed
from ..operations.collections import ListPurgeable
from ..operations.operation import follow
from ..operations.procedures import purge
from .forks import at_fork
from .group_commit import GroupCommit
from .jobs import Flag, Job

LOG: Final = logging.getLogger("collections_store")
FORK_TIMEOUT: Final = 1.0
"""Seconds."""


class Gate:
    """Makes work wait for a fork, and a fork for work."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._changed = Flag()
        self._working = self._forking = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Return the context of work, which begins after a fork in progress."""
        while True:
            self._changed.clear()
            with self._guard:
                if not self._forking:
                    self._working += 1
                    break
            self._changed.wait(FORK_TIMEOUT)
        try:
            yield
        finally:
            with self._guard:
                self._working -= 1
            self._changed.set()

    def close(self) -> None:
        """Let no work begin; wait up to `FORK_TIMEOUT` seconds for running work."""
        with self._guard:
            self._forking += 1
        deadline = time.monotonic() + FORK_TIMEOUT
        while self._working and (left := deadline - time.monotonic()) > 0:
            self._changed.clear()
            if self._working:  # still: it may have ended before `clear`
                self._changed.wait(min(left, FORK_TIMEOUT / 4))

    def open(self) -> None:
        """Let work begin again."""
        with self._guard:
            # a signal may have ended `close` before it counted
            self._forking = max(0, self._forking - 1)
        self._changed.set()


class Pausable(Protocol):
    """A user of files."""

    def pause(self, deadline: float) -> None:
        """Begin nothing more; wait until `deadline` for running work, and close unused files."""

    def resume(self) -> None:
        """Go on."""


_gate = Gate()
_pausable: Final[weakref.WeakSet[Pausable]] = weakref.WeakSet()
_forking = threading.Lock()
_forker: int | None = None
"""The thread that has paused the others."""


def working() -> AbstractContextManager[None]:
    """Return the context of work that no fork may interrupt."""
    return _gate.working()


def pause_at_forks(pausable: Pausable) -> None:
    """Pause `pausable` while this process is forked."""
    _pausable.add(pausable)


def _before_fork() -> None:
    global _forker  # noqa: PLW0603
    _gate.close()
    if not _forking.acquire(timeout=FORK_TIMEOUT):
        return
    _forker = threading.get_ident()
    deadline = time.monotonic() + FORK_TIMEOUT
    for each in list(_pausable):
        each.pause(deadline)


def _after_fork_in_parent() -> None:
    global _forker  # noqa: PLW0603
    if _forker == threading.get_ident():
        for each in list(_pausable):
            each.resume()
        _forker = None
        _forking.release()
    _gate.open()


def _after_fork_in_child() -> None:
    global _gate, _forking, _forker  # the threads are the parent's, and one may hold a lock
    _gate, _forking, _forker = Gate(), threading.Lock(), None
    _pausable.clear()


at_fork(
    "threads",
    before=_before_fork,
    in_parent=_after_fork_in_parent,
    in_child=_after_fork_in_child,
)


class Background:
    """A thread to call `work` every `seconds`, until `work` returns False or the thread is stopped."""

    def __init__(self, name: str, seconds: float, work: Callable[[], bool]) -> None:
        self._seconds, self._work = seconds, work
        self._stopped = Flag()
        name = f"collections_store-{name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            # what a signal raises while Python waits for the start may become a RuntimeError: raise itself
            interrupt = error.__context__
            if interrupt is None or isinstance(interrupt, Exception):
                raise
            raise interrupt from None

    def stop(self) -> None:
        """Let no work begin any more."""
        self._stopped.set()

    def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the end of running work."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            with working():
                if self._stopped.is_set() or not self._work():
                    return


Run: TypeAlias = Callable[[Any], Any]


class Sweeper:
    """Sweeps every `interval` seconds until stopped. `run` returns the function to run operations, None once the
    store no longer exists.
    """

    thread: Background

    def __init__(self, run: Callable[[], Run | None], interval: float) -> None:
        self._run, self._interval = run, interval
        self._is_failing = False
        self.thread = Background("sweeper", interval, self._sweep)

    def _sweep(self) -> bool:
        run = self._run()
        if run is None:
            return False
        try:
            for name in run(ListPurgeable()):
                follow(run, purge(name))
            self._is_failing = False
        except StoreClosed:
            self.thread.stop()
        except Exception:
            if not self._is_failing:  # logged once, until it works again
                message = "purging in the background failed; the next try is in %g s"
                LOG.exception(message, self._interval)
            self._is_failing = True
        return True


Inbox: TypeAlias = "SimpleQueue[Job | None]"


class Workers:
    """Threads to run jobs: up to `size` for any job, and a writer for the group commit.

    Each idle thread waits at an inbox. The last thread to become idle gets the next job: the processor's cache still
    holds the thread's data.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._backlog: deque[Job] = deque()
        self._resting: deque[Inbox] = deque()
        self._inboxes: list[Inbox] = []
        self._wakes: SimpleQueue[GroupCommit | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopped = False

    def submit(self, job: Job) -> None:
        """Run the job in any thread."""
        self.hand_over(job)
        if self._stopped:
            _refuse(job)

    def hand_over(self, job: Job) -> None:
        """Run a job in any thread if the group could not run the job; also while the threads end."""
        self._backlog.append(job)
        if not self._resting and len(self._threads) < self._size:
            self._start_reader()
        self._hand_out()

    def submit_to_group(self, job: Job, groups: GroupCommit) -> None:
        """Run the job with the next group."""
        groups.add(job)
        if self._writer is None:
            self._start_writer()
        self._wakes.put(groups)
        if self._stopped:
            _refuse(job)

    def stop(self, timeout: float, *, is_exit: bool = False) -> None:
        """End the threads once all submitted jobs are done, or after `timeout` seconds: then refuse jobs that no thread
        has begun. At the exit of the interpreter (`is_exit`) these jobs are left.
        """
        deadline = time.monotonic() + timeout
        with self._starting:
            self._stopped = True
        self._wakes.put(None)
        if self._writer is not None:
            _join(self._writer, deadline)  # first: it may hand jobs over to the others
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            _join(thread, deadline)
        if not is_exit:
            is_over = any(thread.is_alive() for thread in self._threads)
            self._end_the_rest(_refuse_claimed if is_over else _run)

    def _end_the_rest(self, end: Callable[[Job], None]) -> None:
        """End the jobs that reached no thread: no thread is left to race with, or all threads are busy."""
        for inbox in self._inboxes:
            with suppress(Empty):
                while True:
                    job = inbox.get_nowait()
                    if job is not None:
                        self._backlog.append(job)
            inbox.put(None)  # one that is busy ends later
        while self._backlog:
            job = self._backlog.popleft()
            if job.claim():
                job.before_finish = None
                end(job)

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
        """Hand jobs to idle threads (rule 6)."""
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
                _run(job)
            else:
                rest()
            del job

    def _write(self) -> None:
        while (groups := self._wakes.get()) is not None:
            while groups.waiting:
                groups.advance()


def _run(job: Job) -> None:
    assert job.run is not None
    job.run(job)
    job.report()


def _refuse(job: Job) -> None:
    if job.claim():
        _refuse_claimed(job)


def _refuse_claimed(job: Job) -> None:
    job.finish(error=StoreClosed("the store is closed"))


def _join(thread: threading.Thread, deadline: float) -> None:
    if thread is not threading.current_thread():
        thread.join(max(0.0, deadline - time.monotonic()))


def _start(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
