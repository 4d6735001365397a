"""Jobs: operations with a waiting caller, and the flag by which callers wait.

Rules:

1. Exactly one side claims a job: the thread about to run the job, or the caller who gives up before.
2. A job given up while running is interrupted: the job's flag is checked before COMMIT, and the database interrupts the
   statement. The caller learns whether the job was committed.
3. A `Flag` has no lock. The lock of `threading.Event` is Python code: a signal raised while the lock is taken leaves
   the lock locked, and the thread that sets the event waits for ever. A signal raised within a wait becomes a
   RuntimeError.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ..operations.operation import Operation
from ..options import Consistency
from ..results import OperationRecord

T = TypeVar("T")


def snapshot(shared: Iterable[T]) -> tuple[T, ...]:
    """Return the items of a dictionary or a queue that other threads change without a lock.

    `tuple` allocates, which can collect garbage: the finalizers let other threads run, and then their changes make it raise
    `RuntimeError`.
    """
    while True:
        try:
            return tuple(shared)
        except RuntimeError as error:
            if "during iteration" not in str(error):  # raised by the handler of a signal
                raise


class Flag:
    """An event without a lock: any thread or signal handler sets the flag, and threads wait for the flag."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: deque[SimpleQueue[None]] = deque()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set the flag, and wake all waiting threads."""
        self._is_set = True
        for queue in snapshot(self._waiting):
            queue.put(None)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, or for `timeout` seconds; return whether the flag is set."""
        if self._is_set:
            return True
        queue: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(queue)
        try:
            if not self._is_set:  # still: it may have been set before this waited
                with suppress(Empty):
                    queue.get(timeout=timeout)
        finally:
            with suppress(ValueError):
                self._waiting.remove(queue)
        return self._is_set


class Job:
    """An operation with a waiting caller.

    `run` runs a claimed job in a worker thread. With a `mailbox` the caller is a task of an event loop, and awaits
    `future`.
    """

    __slots__ = (
        "_claim",
        "_guard",
        "_interrupt",
        "abandoned",
        "before_finish",
        "committed",
        "consistency",
        "context",
        "created",
        "done",
        "error",
        "future",
        "group",
        "mailbox",
        "observer",
        "operation",
        "record",
        "result",
        "run",
        "settled",
        "waited",
        "wake",
    )  # fmt: skip

    group: int
    waited: float
    mailbox: Mailbox | None
    operation: Operation[Any]
    run: Callable[[Job], None] | None
    created: float
    abandoned: bool
    committed: bool
    done: bool

    def __init__(
        self,
        operation: Operation[Any],
        run: Callable[[Job], None] | None = None,
        mailbox: Mailbox | None = None,
    ) -> None:
        self.operation, self.run, self.mailbox = operation, run, mailbox
        self.created = time.monotonic()
        self.consistency: Consistency = "strong"
        """Where a read runs."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = self.committed = self.abandoned = False
        self.group, self.waited = 1, 0.0
        """The number of jobs in the group, and the seconds before the group began."""
        self.before_finish: Callable[[], None] | None = None
        self.wake: SimpleQueue[None] | None = None
        """Wakes the thread that waits for the job, to run a group or to return; None: no thread waits for this job."""
        self.future: Any = None if mailbox is None else mailbox.loop.create_future()
        self.settled: asyncio.Future[None] | None = None
        """Set by a task that gave up, and waits for the end of the job."""
        self.observer: Any = None
        """The `Observer` that counts the operation when it ends; None: the caller that waits for the job does."""
        self.context: Context | None = None
        self.record: OperationRecord | None = None
        self._claim = [None]
        self._guard = threading.Lock()
        self._interrupt: Callable[[], None] | None = None

    def claim(self) -> bool:
        """Claim the job, to run or to give up; return True to the first caller only."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    def unclaim(self) -> None:
        """Undo a claim: the job was not run."""
        self._claim.append(None)

    def abandon(self) -> None:
        self.abandoned = True
        with self._guard:
            if self._interrupt is not None:
                self._interrupt()

    def running(self, interrupt: Callable[[], None] | None) -> None:
        """Note how to interrupt the running statement; None: no statement runs."""
        with self._guard:
            self._interrupt = interrupt

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Set the outcome, and wake the waiting task."""
        if self.before_finish is not None:
            self.before_finish()
        self.result, self.error = result, error
        self.committed = error is None
        if self.observer is not None:
            ended = self.operation, self.created, result, error, self.consistency
            self.record = self.observer.ended(*ended, False, self)
        self.done = True
        if self.mailbox is not None:
            self.mailbox.post(self)
        elif self.wake is not None:
            self.wake.put(None)

    def report(self) -> None:
        """Report the operation, once, after its locks are released."""
        record, self.record = self.record, None
        if record is not None and self.observer is not None:
            self.observer.report(record, self.operation)

    def outcome(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # the frame that raises must not keep itself alive
        return self.result

    def deliver(self) -> None:
        """Set the future's result; called on the future's event loop."""
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
    """The finished jobs of an event loop; a wake-up delivers many jobs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: deque[Job] = deque()
        self._called = False

    def post(self, job: Job) -> None:
        """Deliver the job on the loop; called by any thread."""
        self._jobs.append(job)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._called = False  # first: a job posted from here on may be missed below
        while self._jobs:
            self._jobs.popleft().deliver()
