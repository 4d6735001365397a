"""Jobs: operations that somebody waits for, and the flag that signals them.

`threading.Event` has a lock whose code is Python: a handler that raises as that is taken leaves it locked, and whoever
sets the event then waits for ever; one that raises within a wait comes out as RuntimeError. Here is none.

A `Job` is an operation that somebody waits for. Exactly one side claims it: the thread that is about to run it, or the
caller who gives it up before that (`Job.claim`). One that is given up while it runs is told to stop: its flag is looked
at before COMMIT, and the database is asked to interrupt the statement. Its caller learns which of the two it was.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from ..operations.operation import Operation


class Flag:
    """What is set by any thread, or by a signal's handler, and waited for by others."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: deque[SimpleQueue[None]] = deque()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all who wait."""
        self._is_set = True
        for queue in tuple(self._waiting):
            queue.put(None)

    def clear(self) -> None:
        """Unset it."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for some seconds; returns whether it is."""
        if self._is_set:
            return True
        queue: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(queue)
        try:
            if not self._is_set:  # still, for it may have been set before somebody waited
                with suppress(Empty):
                    queue.get(timeout=timeout)
        finally:
            with suppress(ValueError):
                self._waiting.remove(queue)
        return self._is_set


def started(thread: threading.Thread) -> threading.Thread:
    """Start a thread. What a signal raises while Python waits for its beginning may come out as RuntimeError."""
    try:
        thread.start()
    except RuntimeError as error:
        interrupt = error.__context__
        if interrupt is None or isinstance(interrupt, Exception):
            raise
        raise interrupt from None
    return thread


class Job:
    """An operation that somebody waits for."""

    __slots__ = (
        "_claim",
        "_guard",
        "_interrupt",
        "abandoned",
        "before_finish",
        "committed",
        "created",
        "done",
        "error",
        "operation",
        "result",
    )  # fmt: skip

    def __init__(self, operation: Operation[Any]) -> None:
        self.operation = operation
        self.created = time.monotonic()
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
