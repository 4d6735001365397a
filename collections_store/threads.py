"""Where operations run when the caller's thread is not the place.

The threads of `Workers` belong to a store and end with it. They are daemons: a forgotten store never keeps the
interpreter alive.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

from .errors import StoreClosed
from .group_commit import GroupCommit
from .jobs import Job

Inbox: TypeAlias = "SimpleQueue[Job | None]"


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


def _start(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
