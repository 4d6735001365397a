"""How an operation comes to its result: on which connection, how often, and in whose words it fails.

The rules:

1. A foreign error becomes ours here, once, by `Database.translate`.
2. A collection comes into being when something is first written to it; to a read before that, it is
   empty. A table that vanished (another process dropped or renamed the collection) is looked up
   again.
3. What two transactions did to each other is nobody's fault: a conflict runs the whole operation
   again.
4. A read goes on over a new connection where the old one was lost. A write does not: whether it took
   place is not known, and its caller must hear that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from ..errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    TransactionConflict,
)
from ..operations.bulk import PutListed, puts_together
from ..operations.by_id import Purge
from ..operations.catalogue import Catalogue, CollectionAbsent, CreateCollection
from ..operations.connection import DriverConnection, SharedConnection
from ..operations.indexes import duplicate_of
from ..operations.operation import Operation
from ..operations.write import NeedsTransaction
from ..options import Isolation
from ..query.budget import checked_by
from ..sql.dialects.protocols import Database, TableVanished, UniqueViolated
from .jobs import Job
from .permits import Permit
from .pool import Pool, PooledConnection, translate

T = TypeVar("T")

ATTEMPTS: Final = 50
"""How often a collection may come and go, by the hands of other processes."""
FORGIVEN: Final = 5
"""How often an index, or what it objects to, may be gone when it is looked at."""
RECONNECT_FOR: Final = 1.0
"""Seconds for which an operation looks for a database that went away."""

LONGEST_PAUSE: Final = 4.0
"""Seconds between two attempts of a long operation, at most."""


class Abandoned(CollectionsStoreError):
    """The caller gave the operation up; it was rolled back."""


class Executor:
    """Runs operations on the connections of a pool; `lost` hears of a connection that broke."""

    def __init__(
        self,
        database: Database,
        pool: Pool,
        catalogue: Catalogue,
        *,
        timeout: float,
        lost: Callable[[], None],
    ) -> None:
        self.database, self.pool, self.catalogue = database, pool, catalogue
        self._timeout, self._lost = timeout, lost

    def run(self, operation: Operation[T], begun: float | None = None, job: Job | None = None) -> T:
        """Run an operation until it succeeds or fails for good; its time runs from `begun`."""
        begun = time.monotonic() if begun is None else begun
        vanished = count(1)
        for attempt in count():
            started = time.monotonic()
            try:
                return self._attempt(operation, job)
            except CollectionAbsent as error:
                if not operation.creates_collection:
                    return operation.absent()
                self._give_up_after(next(vanished), error)
                self.run(CreateCollection(error.name), begun)
            except TableVanished as error:
                self._give_up_after(next(vanished), error)
                for name in operation.collections:
                    self.catalogue.forget(name)
            except (TransactionConflict, DatabaseBusy, DatabaseUnavailable) as error:
                self.consider(error, job, begun)
                met = isinstance(error, TransactionConflict)
                time.sleep(pause_after(attempt, time.monotonic() - started if met else 0.0))
            except UniqueViolated as error:
                _abandon_if_asked(job, error)
                if attempt < ATTEMPTS and purged(self.run, operation):
                    continue  # what has expired was in the way
                missed = operation.missed()
                if missed is not None and attempt < ATTEMPTS and self.run(missed):
                    continue  # there was none to change, and somebody else was faster
                found = self.run(duplicate_of(operation, error.physical))
                if found is not None or attempt >= FORGIVEN:
                    raise found or DatabaseError(str(error)) from error
            except DatabaseError as error:
                _abandon_if_asked(job, error)
                raise
        raise AssertionError("unreachable")

    def run_job(self, job: Job) -> None:
        """Run a claimed job, and tell whoever waits."""
        try:
            waited = time.monotonic() - job.made
            if waited > self._timeout:
                raise DatabaseBusy(f"waited for {waited:.1f} seconds behind other operations")
            with checked_by(partial(raise_if_abandoned, job)):
                result = self.run(job.operation, job.made, job)
        except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
            job.finish(error=error)
        else:
            job.finish(result)

    def run_group(self, group: list[Job]) -> list[Job]:
        """Run claimed jobs in one transaction; returns those that must be run alone."""
        alone = [job for job in group if not job.operation.atomic]
        together = [job for job in group if job.operation.atomic]
        while together:
            try:
                return alone + self._run_together(together)
            except DatabaseBusy as error:
                together = self._still_waiting(together, error)
        return alone

    def begin(self, isolation: Isolation, begun: float, job: Job | None = None) -> PooledConnection:
        """Begin a transaction; who calls has its connection until `give_back`."""
        for attempt in count():
            try:
                return self._try_to_begin(isolation)
            except (TransactionConflict, DatabaseBusy, DatabaseUnavailable) as error:
                self.consider(error, job, begun)
                time.sleep(random.uniform(0, 0.001 * 2 ** min(attempt, 6)))
        raise AssertionError("unreachable")

    def _try_to_begin(self, isolation: Isolation) -> PooledConnection:
        pooled = self.pool.acquire()
        permits, lost, begun = pooled.permits, False, False
        try:
            pooled.connection.begin_transaction(isolation)
            begun = True
            return pooled
        except self.database.errors.types() as error:
            translated = translate(error, pooled.sa.engine, self.database)
            lost = isinstance(translated, DatabaseUnavailable)
            raise translated from error
        finally:
            if not begun:
                try:
                    self.release(pooled, lost, at_rest=False)
                except BaseException:
                    self.release_after_interrupt(pooled, permits)
                    raise

    def _still_waiting(self, jobs: list[Job], error: DatabaseBusy) -> list[Job]:
        """Return the jobs whose callers have neither given up nor waited for too long."""
        waiting = []
        for job in jobs:
            if job.abandoned:
                job.finish(error=Abandoned("cancelled"))
            elif time.monotonic() - job.made > 0.9 * self._timeout:
                job.finish(error=copy(error))
            else:
                waiting.append(job)
        return waiting

    def _run_together(self, jobs: list[Job]) -> list[Job]:
        """Run jobs in one transaction; raises `DatabaseBusy` where no other could write either."""
        try:
            pooled = self.pool.acquire()
        except CollectionsStoreError:
            return jobs  # each alone will say what is the matter
        permits, lost, at_rest = pooled.permits, False, False
        try:
            with checked_by(partial(raise_if_abandoned, *jobs)):
                left = _commit_together(pooled.connection, jobs)
            at_rest = True
            return left
        except self.database.errors.types() as error:
            translated = translate(error, pooled.sa.engine, self.database)
            lost = isinstance(translated, DatabaseUnavailable)
            if isinstance(translated, DatabaseBusy) and self.database.single_writer:
                raise translated from error
            if not (lost and (len(jobs) == 1 or _said_commit(pooled))):
                return jobs
            for job in jobs:
                job.finish(error=_in_doubt(error, job.operation))
            return []
        except Exception as error:  # noqa: BLE001 - of one job: each alone will meet its own
            if len(jobs) == 1:
                jobs.pop().finish(error=error)
            return jobs
        finally:
            try:
                self.release(pooled, lost, at_rest)
            except BaseException:
                self.release_after_interrupt(pooled, permits)
                raise

    def _attempt(self, operation: Operation[T], job: Job | None) -> T:
        pooled = self.pool.acquire()
        permits, lost, at_rest = pooled.permits, False, False
        try:
            result = _on(pooled, operation, job)
            at_rest = True
            return result
        except self.database.errors.types() as error:
            translated = translate(error, pooled.sa.engine, self.database)
            lost = isinstance(translated, DatabaseUnavailable)
            if lost and operation.writes and (operation.atomic or _said_commit(pooled)):
                raise _in_doubt(error, operation) from error
            raise translated from error
        finally:
            try:
                self.release(pooled, lost, at_rest)
            except BaseException:
                self.release_after_interrupt(pooled, permits)
                raise

    def release(self, pooled: PooledConnection, lost: bool, at_rest: bool) -> None:
        """Return a connection to its pool, or end it where it cannot be brought to rest."""
        connection = pooled.connection
        of_no_use = lost or pooled.tainted or connection.is_lost
        if of_no_use or not (at_rest or connection.reset()):
            self.pool.discard(pooled)
        else:
            self.pool.release(pooled)
        if lost:
            self._lost()

    def release_after_interrupt(
        self, pooled: PooledConnection, permits: list[Permit] | None
    ) -> None:
        """Return a connection whose return failed: a signal may have raised at any moment of that. Who calls was
        given it with these slots. It is not for `give_back` itself, which a signal can keep from beginning.
        """
        if permits is not None and pooled.permits is permits:
            self.release(pooled, lost=False, at_rest=False)

    def _give_up_after(self, times: int, error: CollectionsStoreError) -> None:
        """A collection that comes and goes is looked up again; one that never comes was dropped by
        hand, or does not come because of us.
        """
        if times >= ATTEMPTS:
            raise DatabaseError(
                f"{error}: the catalogue tells of it; was it dropped by hand?"
            ) from error
        time.sleep(random.uniform(0, 0.0005 * times))

    def consider(self, error: CollectionsStoreError, job: Job | None, begun: float) -> None:
        """Return if another attempt may help, else raise."""
        _abandon_if_asked(job, error)
        waited = time.monotonic() - begun
        away = isinstance(error, DatabaseUnavailable)
        if waited > (RECONNECT_FOR if away else 0.9 * self._timeout):
            raise error
        if getattr(error, "in_doubt", False) or getattr(error, "is_final", False):
            raise error


def pause_after(attempt: int, took: float) -> float:
    """Return how many seconds to wait, so that those who met do not meet again: the longer it `took` them,
    and the more often they met, the further apart they must begin.
    """
    longest = max(0.001 * 2 ** min(attempt, 6), min(LONGEST_PAUSE, took * (1 + attempt)))
    return random.uniform(0, longest)


def run_within(connection: SharedConnection, operation: Operation[T]) -> T:
    """Run an operation within the caller's transaction, which stays usable if it fails."""
    with translated(connection.database):
        connection.prepare(write=operation.writes)
    return run_inside(connection, operation)


def run_inside(connection: SharedConnection | DriverConnection, operation: Operation[T]) -> T:
    """Run an operation within a transaction, which stays usable if it is a write that fails."""
    database = connection.database
    try:
        for _ in range(ATTEMPTS):
            try:
                return _step(connection, operation)
            except CollectionAbsent as error:
                if not operation.creates_collection:
                    return operation.absent()
                _step(connection, CreateCollection(error.name))
        raise TransactionConflict(f"{operation!r}: its collection comes and goes")
    except database.errors.types() as error:
        translated = database.errors.translate(error)
        if isinstance(translated, UniqueViolated):
            if purged(partial(_step, connection), operation):
                return run_inside(connection, operation)  # what has expired was in the way
            found = _step(connection, duplicate_of(operation, translated.physical))
            raise found or TransactionConflict(str(translated)) from error
        raise translated from error


def purged(run: Callable[[Operation[int]], int], operation: Any) -> bool:
    """Delete all that has expired of an operation's collection; returns whether there was any."""
    some = False
    while run(Purge(operation.collection)):
        some = True
    return some


def _step(connection: SharedConnection | DriverConnection, operation: Operation[T]) -> T:
    if not _needs_savepoint(connection, operation):
        return operation(connection)
    with connection.savepoint():
        result = operation(connection)
        if isinstance(connection, SharedConnection):
            connection.record_pending()  # nobody here sees the end of the transaction
        return result


def _needs_savepoint(
    connection: SharedConnection | DriverConnection, operation: Operation[Any]
) -> bool:
    """Would the transaction be spoilt, or half of the operation be left, if it fails? A transaction
    of ours may end with a read that fails; the caller's own must not. What is written there is more than a
    statement, for it may be recorded at once.
    """
    poisoned = connection.database.errors_abort
    shared = isinstance(connection, SharedConnection)
    if not operation.writes:
        return poisoned and shared
    return poisoned or shared or not operation.atomic


@contextmanager
def translated(database: Database) -> Iterator[None]:
    """Return the context in which the driver's errors are in our words."""
    try:
        yield
    except database.errors.types() as error:
        raise database.errors.translate(error) from error


@contextmanager
def interruptible(pooled: PooledConnection, job: Job | None) -> Iterator[None]:
    """Return the context in which whoever gives a job up stops the statement that runs."""
    connection = pooled.connection
    if job is None or not isinstance(connection, DriverConnection):
        yield
        return
    database, driver = connection.database, connection.driver

    def stop() -> None:
        pooled.tainted = not database.single_writer
        database.connections.interrupt(driver)

    job.running(stop)
    try:
        yield
    finally:
        job.running(None)


def _in_doubt(error: Exception, operation: Operation[Any]) -> DatabaseUnavailable:
    message = f"{str(error).strip()} (whether {operation!r} took place is not known)"
    return DatabaseUnavailable(message, in_doubt=True)


def _said_commit(pooled: PooledConnection) -> bool:
    return isinstance(pooled.connection, SharedConnection) or pooled.connection.committing


def _abandon_if_asked(job: Job | None, error: CollectionsStoreError) -> None:
    if job is not None and job.abandoned and not getattr(error, "in_doubt", False):
        raise Abandoned("cancelled") from error


def raise_if_abandoned(*jobs: Job | None) -> None:
    """Raise `Abandoned` if somebody gave up one of some jobs."""
    if any(job is not None and job.abandoned for job in jobs):
        raise Abandoned("cancelled")


def perform(connection: SharedConnection | DriverConnection, operation: Operation[T]) -> T:
    """Call an operation, in a transaction unless it is atomic by itself."""
    if operation.atomic:
        return operation(connection)
    with connection.transaction(write=operation.writes, snapshot=operation.snapshot):
        return operation(connection)


def _on(pooled: PooledConnection, operation: Operation[T], job: Job | None) -> T:
    connection = pooled.connection
    if not isinstance(connection, DriverConnection):
        with pooled.sa.begin():
            connection.prepare(write=operation.writes)
            result = perform(connection, operation)
            connection.record_pending()
        connection.after_commit()
        return result
    if job is None:
        return perform(connection, operation)

    objects = partial(raise_if_abandoned, job)
    objects()
    connection.before_commit.append(objects)
    try:
        with interruptible(pooled, job):
            return perform(connection, operation)
    finally:
        connection.before_commit.remove(objects)


def _commit_together(connection: Any, jobs: list[Job]) -> list[Job]:
    """Run jobs in one transaction and answer them; returns those left for a run of their own."""
    if len(jobs) == 1:
        return _run_only(connection, jobs[0])
    outcomes: list[tuple[Job, Any, CollectionsStoreError | None]] = []
    alone: list[Job] = []
    try:
        connection.begin_group()
        for some in _steps(connection, jobs):
            if len(some) > 1:
                outcomes += _put_together(connection, some, alone)
                continue
            [job] = some
            try:
                outcomes.append((job, job.operation(connection), None))
            except (CollectionAbsent, NeedsTransaction):
                alone.append(job)
            except CollectionsStoreError as error:
                outcomes.append((job, None, error))
        raise_if_abandoned(*jobs)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    for job, result, problem in outcomes:
        job.finish(result, problem)
    return alone


def _steps(connection: Any, jobs: list[Job]) -> Iterator[list[Job]]:
    """Yield jobs in their order: one at a time, or several that one statement does."""
    if not connection.database.takes_lists:
        yield from ([job] for job in jobs)
        return
    for places in puts_together([job.operation for job in jobs]):
        yield [jobs[place] for place in places]


def _put_together(
    connection: Any, jobs: list[Job], alone: list[Job]
) -> list[tuple[Job, Any, CollectionsStoreError | None]]:
    """Put what several jobs put by one statement; those that it cannot serve are left to be run `alone`."""
    puts: Any = tuple(job.operation for job in jobs)
    try:
        versions = PutListed(puts)(connection)
    except (CollectionAbsent, NeedsTransaction):
        alone += jobs
        return []
    alone += [job for job, version in zip(jobs, versions, strict=True) if version is None]
    told = zip(jobs, versions, strict=True)
    return [(job, version, None) for job, version in told if version is not None]


def _run_only(connection: Any, job: Job) -> list[Job]:
    """Run a job that nobody joined: a single statement needs no transaction of its own."""
    try:
        job.finish(job.operation(connection))
    except CollectionAbsent:
        return [job]
    except CollectionsStoreError as error:
        job.finish(error=error)
    return []
