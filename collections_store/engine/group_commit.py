"""The write queue: writes wait for the single writer, and are committed together.

Rules:

1. Only the holder of the writer's permit writes. The holder runs all waiting jobs as one group, and each caller is
   answered after the commit.
2. If a group fails, each job of the group runs again alone: no job suffers from another job. A job refused by its own
   operation fails alone. Only atomic operations share a transaction.
3. The main thread never runs a group. Signals raise in the main thread at any moment, and would meet the work of many
   callers.
4. While a transaction holds the writer lock, and while another operation or process writes, jobs wait up to the
   timeout. The next transaction waits for the jobs already queued.
5. Nothing stays locked when a signal raises: the writer's permit and the holder of the writer lock are known by weak
   references, and a lost permit is issued again. `put` is C code: no signal raises between `finally` and `put`.
6. The main thread waits for the jobs already queued, and then for the permit. Meanwhile a worker or caller thread
   pauses before taking the permit: a thread that writes in a loop would take the permit sooner than the main thread
   wakes.
7. A release wakes one thread, the caller of the oldest job, who runs the next group. The end of a job wakes its
   caller. Each waiting thread also polls: a signal can end the thread that was about to wake another.
8. Where a commit waits for no disk, a thread that writes in a loop continues beside waiting threads for up to `STREAK`
   seconds, and wakes nobody: a switch of threads takes about as long as a write. Then the caller of the oldest job has
   its turn. A thread whose streak ended without a word is not waited for longer than `2 * STREAK`.
9. A lost connection leaves the outcome of a sent COMMIT unknown: no job of the group runs again.
10. Before a write, a process whose turn is over lets other processes write: see `retry.Turns`.
11. Jobs are reported after the permit is released: a hook may write.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import copy
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from ..errors import CollectionsStoreError, DatabaseBusy, DatabaseUnavailable
from ..expressions.budget import checked_by
from ..operations.bulk import PutListed, puts_together
from ..operations.catalogue import CollectionAbsent
from ..operations.operation import Operation
from ..operations.write import NeedsTransaction
from .executor import (
    Abandoned,
    Executor,
    Interruptible,
    execute,
    in_doubt,
    is_lost,
    raise_if_abandoned,
    sent_commit,
)
from .jobs import Flag, Job
from .permits import POLL_INTERVAL, STREAK, Permit, TransactionPermit, this_thread
from .pool import translate
from .retry import Turns

MAX_GROUP: Final = 256
"""More jobs wait for the next commit: no caller waits for too many jobs."""
_PAUSE: Final = 0.001
"""Seconds in which the main thread wakes and takes the permit."""
_NOBODY: Final = (0, 0.0)


class GroupCommit:
    """The write queue of a store."""

    waited: float

    def __init__(
        self,
        run_alone: Callable[[Operation[Any], float], Any],
        run_group: Callable[[list[Job]], None],
        timeout: float = 30.0,
        turns: Turns | None = None,
        *,
        has_streaks: bool = False,
    ) -> None:
        self._run_alone, self._run_group, self._timeout = run_alone, run_group, timeout
        self._has_streaks = has_streaks
        self._turns = turns or Turns()
        self.waiting: deque[Job] = deque()
        """The jobs of the next groups; any thread appends one."""
        self.groups: Counter[int] = Counter()
        """The number of groups by their sizes."""
        self.waited = 0.0
        """Seconds for which writers have waited in all."""
        self._taking = threading.Lock()
        self._writer: SimpleQueue[Permit] = SimpleQueue()
        """Contains the writer's permit while nobody writes. A signal that raises would leave a lock locked."""
        self._released = Flag()
        """Wakes the threads that run groups for callers in event loops."""
        self._issued: weakref.ref[Permit] | None = None
        self._issue_permit()
        self._writing: Operation[Any] | None = None
        self._since = 0.0
        self._streak = _NOBODY
        """The thread that may go on beside waiting threads, and until when."""
        self._group_taken = Flag()
        self._holder: weakref.ref[TransactionPermit] | None = None
        """The transaction that holds the writer lock."""
        self._unlocked = Flag()
        self._main_thread_waits = 0.0
        """Until when at most the main thread waits for the permit; 0: the main thread does not wait."""

    def _issue_permit(self, _: object = None) -> None:
        """Issue the writer's permit; again when a signal made the owner lose the permit."""
        permit = Permit()
        self._issued = weakref.ref(permit, self._issue_permit)
        self._writer.put(permit)
        self._wake_next()

    def add(self, job: Job) -> None:
        """Add the job of a caller in an event loop. The thread that runs groups may wait: another ran its job."""
        self.waiting.append(job)
        self._released.set()

    def run(self, operation: Operation[Any], started: float | None = None) -> Any:
        """Run an operation in this thread, or in another thread's group."""
        if started is None:
            started = time.monotonic()
        if (
            (not self.waiting or self._goes_on(started))
            and self._holder is None
            and self._main_thread_waits < started
        ):
            try:
                permit = self._writer.get_nowait()
            except Empty:
                pass
            else:
                try:
                    if self._holder is None:  # still, now that no transaction can begin
                        if self._turns.until:
                            self._turns.pause()
                        self._writing, self._since = operation, started
                        return self._run_alone(operation, started)
                finally:
                    self._writer.put(permit)
                    if self.waiting:
                        self._pass_on(started)
        if threading.get_ident() == threading.main_thread().ident:
            return self._run_in_main_thread(operation, started)
        return self._run_queued(operation)

    def _run_queued(self, operation: Operation[Any]) -> Any:
        job, running = Job(operation), this_thread.running
        wake: SimpleQueue[None] = SimpleQueue()
        job.wake = wake
        in_loop = job.created < running.next_by
        self.waiting.append(job)
        self._end_streak()
        is_due = self._next_job() is job  # else the caller of an older job has its turn
        while not job.done:
            if not (is_due and self._lead(in_loop=in_loop)):
                try:
                    wake.get(timeout=self._patience())
                except Empty:
                    self.expire()
                is_due = True
        running.next_by = _next_by(job.created + job.waited)
        running.note("wait", job.waited)
        running.note("group", job.group)
        return job.outcome()

    def _goes_on(self, started: float) -> bool:
        """Return whether a write of this thread continues the thread's streak."""
        thread, until = self._streak
        return (
            started < until
            and thread == threading.get_ident()
            and started < this_thread.running.next_by
        )

    def _begin_streak(self) -> None:
        """Let this thread write in a loop while others wait. The next thread wakes, and looks after the streak's end."""
        self._streak = threading.get_ident(), time.monotonic() + STREAK
        self._wake_next()

    def _patience(self) -> float:
        """Return the seconds for which a thread waits before it looks whether a streak ended without a word."""
        return 2 * STREAK if time.monotonic() < self._streak[1] + STREAK else POLL_INTERVAL

    def _end_streak(self) -> None:
        """End the streak of this thread, if any: the thread waits itself."""
        if self._streak[0] == threading.get_ident():
            self._streak = _NOBODY
            self._wake_next()

    def _pass_on(self, started: float) -> None:
        """Wake the next thread after a write begun at `started`, unless the write is part of a streak."""
        thread, until = self._streak
        this_thread.running.next_by = _next_by(started)
        if thread != threading.get_ident() or time.monotonic() > until:
            self._streak = _NOBODY
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake the thread that is to run the next group. If no job is left, a thread that came for one goes back."""
        job = self._next_job()
        if job is not None and job.wake is not None:
            job.wake.put(None)
        else:
            self._released.set()

    def _next_job(self) -> Job | None:
        try:
            return self.waiting[0]
        except IndexError:
            return None

    def _run_in_main_thread(self, operation: Operation[Any], started: float) -> Any:
        self._end_streak()
        if self.waiting:
            self._let_others_go_first()
        while True:
            self._main_thread_waits = deadline = started + self._timeout
            try:
                permit = self._acquire_writer(deadline)
            finally:
                self._main_thread_waits = 0.0
            try:
                holder = self._lock_holder()
                if holder is None:
                    if self._turns.until:
                        self._turns.pause()
                    self._writing, self._since = operation, time.monotonic()
                    self._count_wait(self._since - started)
                    if self._has_streaks and started < this_thread.running.next_by:
                        self._begin_streak()
                    return self._run_alone(operation, started)
            finally:
                self._writer.put(permit)
                self._pass_on(self._since)
            left = started + self._timeout - time.monotonic()
            if left < 0:
                raise _locked(holder)
            self._wait_for_unlock(holder, min(left, POLL_INTERVAL))

    def _count_wait(self, seconds: float) -> None:
        self.waited += seconds
        this_thread.running.note("wait", seconds)

    def _acquire_writer(self, deadline: float) -> Permit:
        try:
            return self._writer.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise self._busy() from None

    def _busy(self) -> DatabaseBusy:
        """Return the error of a caller that waited too long for the writer."""
        holder = self._lock_holder()
        if holder is not None and not self._writer.empty():
            return _locked(holder)
        seconds = time.monotonic() - self._since
        return DatabaseBusy(
            f"{self._writing!r} of this process has been writing for {seconds:.1f} seconds, and one writes at a time"
        )

    def advance(self) -> None:
        """Run a group, or wait a little for the writer or the writer lock. End jobs that waited too long."""
        self._released.clear()
        if not self._lead() and not self._released.wait(self._patience()):
            self.expire()

    def _lead(self, *, in_loop: bool = False) -> bool:
        """Run a group; return False while another caller writes or has the writer lock. `in_loop`: this thread writes in a
        loop.
        """
        if self._main_thread_waits > time.monotonic():
            time.sleep(_PAUSE)
        if self._lock_holder() is not None:
            return False
        try:
            permit = self._writer.get_nowait()
        except Empty:
            return False
        group: list[Job] = []
        try:
            if self._lock_holder() is None:  # still, now that no transaction can begin
                if self._turns.until:
                    self._turns.pause()
                group = self._take_group()
                self._run(group)
        finally:
            self._writer.put(permit)
            if in_loop and self._has_streaks and len(group) < MAX_GROUP:
                self._begin_streak()
            else:
                self._streak = _NOBODY
                self._wake_next()
            for job in group:
                job.report()
        return bool(group)

    def _wait_for_unlock(self, holder: TransactionPermit, timeout: float) -> None:
        self._unlocked.clear()
        if self._lock_holder() is holder:  # still: it may have unlocked before `clear`
            self._unlocked.wait(timeout)

    def expire(self) -> None:
        """End queued jobs with `DatabaseBusy` after too long a wait."""
        with self._taking:
            while self.waiting and time.monotonic() - self.waiting[0].created > self._timeout:
                job = self.waiting.popleft()
                if job.claim():
                    job.finish(error=self._busy())

    def _run(self, group: list[Job]) -> None:
        if not group:
            return
        self._writing, self._since = group[-1].operation, time.monotonic()
        self.groups[len(group)] += 1
        this_thread.running.notes.clear()
        for job in group:
            job.group, job.waited = len(group), self._since - job.created
            self.waited += job.waited
        try:
            self._run_group(group)
        except BaseException as error:
            for job in group:
                if not job.done:
                    job.finish(error=error)
            if not isinstance(error, Exception):
                raise

    def _take_group(self) -> list[Job]:
        group: list[Job] = []
        with self._taking:
            while self.waiting and len(group) < MAX_GROUP:
                job = self.waiting.popleft()
                if job.claim():
                    group.append(job)
        self._group_taken.set()
        return group

    def lock_writer(self, holder: TransactionPermit) -> None:
        """Give the holder the writer lock until `unlock_writer`; waiting jobs go first. No two transactions call this
        at once: a database with a single writer has a single permit.
        """
        if self.waiting:
            self._let_others_go_first()
        try:
            self._holder = weakref.ref(holder)
            try:
                permit = self._writer.get_nowait()
            except Empty:  # wait until the one that writes now has ended
                started = time.monotonic()
                permit = self._acquire_writer(started + self._timeout)
                self.waited += time.monotonic() - started
            self._writer.put(permit)
            if self._turns.until:
                self._turns.pause()
        except BaseException:
            self.unlock_writer(holder)
            raise

    def _let_others_go_first(self) -> None:
        now = time.monotonic()
        while self._oldest() < now and time.monotonic() - now < self._timeout:
            self._group_taken.clear()
            if self._oldest() < now:  # again, since it may have been taken before `clear`
                self._group_taken.wait(POLL_INTERVAL)

    def _oldest(self) -> float:
        """Return the time since which the next job has waited; infinity if no job waits."""
        job = self._next_job()
        return math.inf if job is None else job.created

    def unlock_writer(self, holder: TransactionPermit) -> None:
        """Release the writer lock, if the holder has the lock."""
        known = self._holder
        if known is not None and known() is holder:
            self._holder = None
        self._unlocked.set()
        self._wake_next()

    def _lock_holder(self) -> TransactionPermit | None:
        return None if self._holder is None else self._holder()


def _next_by(started: float) -> float:
    """Return until when a thread begins its next write that writes in a loop, after a write begun at `started`."""
    now = time.monotonic()
    return now + 2 * (now - started)


def _locked(holder: TransactionPermit) -> DatabaseBusy:
    seconds = time.monotonic() - holder.since
    return DatabaseBusy(
        f"a transaction of this process has held the writer for {seconds:.1f} seconds, and one "
        "writes at a time: end transactions sooner"
    )


Outcome: TypeAlias = tuple[Job, Any, CollectionsStoreError | None]


def run_group(
    executor: Executor, hand_over: Callable[[Job], None] | None, group: list[Job]
) -> None:
    """Run claimed jobs in one transaction. Jobs that cannot share a transaction run alone: by `hand_over`, or here."""
    alone: list[Job] = []
    together: list[Job] = []
    for job in group:
        (together if job.operation.atomic else alone).append(job)
    while together:
        try:
            with checked_by(partial(raise_if_abandoned, *together)):
                alone += _try_together(executor, together)
            break
        except DatabaseBusy as error:
            together = _still_waiting(together, error, executor.timeout)
            if together:
                executor.waits_for_writer(error)
    for job in alone:
        if hand_over is None:
            executor.run_job(job)
        else:
            job.unclaim()
            hand_over(job)


def _still_waiting(jobs: list[Job], error: DatabaseBusy, timeout: float) -> list[Job]:
    """Return the jobs whose callers still wait. Finish jobs that were given up or have waited too long."""
    waiting = []
    for job in jobs:
        if job.abandoned:
            job.finish(error=Abandoned("cancelled"))
        elif time.monotonic() - job.created > 0.9 * timeout:
            job.finish(error=copy(error))
        else:
            waiting.append(job)
    return waiting


def _try_together(executor: Executor, jobs: list[Job]) -> list[Job]:
    """Run jobs in one transaction; return the jobs that must run alone. Raise `DatabaseBusy` if the single writer is
    busy: no job could write alone either.
    """
    database = executor.database
    try:
        pooled = executor.pool.acquire()
    except CollectionsStoreError:
        return jobs  # each alone raises what is wrong
    permits, lost, finished = pooled.permits, False, False
    running = this_thread.running
    outer, running.catalogue = running.catalogue, executor.catalogue
    try:
        is_interruptible = not database.single_writer  # SQLite's commit waits for no server
        interruptible = Interruptible(pooled, *jobs) if is_interruptible else nullcontext()
        with interruptible:
            run = _run_only if len(jobs) == 1 else _commit_together
            left = run(pooled.connection, jobs)
        finished = True
        return left
    except database.errors.types() as error:
        found = translate(error, pooled.sa.engine, database)
        lost = isinstance(found, DatabaseUnavailable)
        if isinstance(found, DatabaseBusy) and database.single_writer:
            raise found from error
        if not (is_lost(found, pooled) and (len(jobs) == 1 or sent_commit(pooled))):
            return jobs
        for job in jobs:
            job.finish(error=in_doubt(error, job.operation))
        return []
    except BaseException as error:  # noqa: BLE001 - of one job: each alone raises its own
        if len(jobs) == 1:
            jobs.pop().finish(error=error)
        return jobs
    finally:
        running.catalogue = outer  # first: no signal can come before
        try:
            if finished:
                executor.pool.release(pooled)
            else:
                executor.release(pooled, lost)
        except BaseException:
            executor.release_after_interrupt(pooled, permits)
            raise


def _run_only(connection: Any, jobs: list[Job]) -> list[Job]:
    """Run the only job of a group: an atomic operation needs no transaction."""
    [job] = jobs
    try:
        job.finish(execute(connection, job.operation))
    except CollectionAbsent:
        return jobs
    except CollectionsStoreError as error:
        job.finish(error=error)
    return []


def _commit_together(connection: Any, jobs: list[Job]) -> list[Job]:
    outcomes: list[Outcome] = []
    alone: list[Job] = []
    try:
        connection.begin_group()
        for some in _statements(connection, jobs):
            try:
                if len(some) > 1:
                    outcomes += _put_together(connection, some, alone)
                else:
                    outcomes.append((some[0], execute(connection, some[0].operation), None))
            except (CollectionAbsent, NeedsTransaction):
                alone += some
            except CollectionsStoreError as error:
                if len(some) > 1:
                    raise
                outcomes.append((some[0], None, error))
        raise_if_abandoned(*jobs)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    for job, result, problem in outcomes:
        job.finish(result, problem)
    return alone


def _statements(connection: Any, jobs: list[Job]) -> Iterator[list[Job]]:
    """Yield jobs in order: a single job, or several puts that share a statement."""
    if not connection.database.takes_lists:
        yield from ([job] for job in jobs)
        return
    for positions in puts_together([job.operation for job in jobs]):
        yield [jobs[position] for position in positions]


def _put_together(connection: Any, jobs: list[Job], alone: list[Job]) -> list[Outcome]:
    """Run several puts as one statement; add the puts that need more than a statement to `alone`."""
    puts: Any = tuple(job.operation for job in jobs)
    results = list(zip(jobs, execute(connection, PutListed(puts)), strict=True))
    alone += [job for job, version in results if version is None]
    return [(job, version, None) for job, version in results if version is not None]
