"""Execution of operations: connections, retries and errors.

Only `execute` calls operations: alone, in a group, in a transaction or on a replica.

Rules:

1. A driver's error becomes the library's here, once, by `Database.translate`.
2. The first write to a collection creates the collection; until then reads find no documents. A table vanishes when
   another process drops or renames the collection; the collection is then looked up again.
3. After a conflict of two transactions the whole operation runs again; `retry` decides how often, and when.
4. After a lost connection, or on a read-only server, an operation continues on a new connection. A write that may have
   been committed does not continue: the caller gets an error with `in_doubt`.
5. After any exception, a signal's included, the connection returns to the pool.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from ..errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    ReadOnlyDatabase,
    TransactionConflict,
)
from ..expressions.budget import checked_by
from ..expressions.collation import KeysUnavailable
from ..operations.by_id import Purge
from ..operations.catalogue import Catalogue, CollectionAbsent
from ..operations.collections import CreateCollection
from ..operations.indexes import duplicate_of
from ..operations.operation import Operation
from ..operations.session import DriverSession, SharedSession
from ..operations.unwritable import unwritable
from ..options import Isolation
from ..sql.dialects.protocols import Database, TableVanished, UniqueViolated
from .jobs import Job
from .permits import Permit, this_thread
from .pool import Pool, PooledConnection, translate
from .retry import Retries, Turns

T = TypeVar("T")

ATTEMPTS: Final = 50
"""How often others may drop and create a collection, or delete the document that a unique index found, meanwhile."""


class Abandoned(CollectionsStoreError):
    """The caller gave the operation up; the operation was rolled back."""


def execute(connection: DriverSession | SharedSession, operation: Operation[T]) -> T:
    """Execute an operation, once. Elsewhere only composite operations call operations."""
    try:
        return operation(connection)
    except KeysUnavailable as error:
        raise unwritable(connection, operation, error) from None


class Executor:
    """Runs operations on the connections of a pool, and calls `lost` when a connection broke."""

    retried: int
    conflicts: int
    database: Database
    pool: Pool
    catalogue: Catalogue
    timeout: float
    retries: Callable[[float], Retries]

    def __init__(
        self,
        database: Database,
        pool: Pool,
        catalogue: Catalogue,
        *,
        timeout: float,
        retries: Callable[[float], Retries],
        lost: Callable[[], None],
        turns: Turns | None = None,
    ) -> None:
        self.database, self.pool, self.catalogue = database, pool, catalogue
        self.timeout, self.retries, self._lost = timeout, retries, lost
        self._turns = turns
        """The turns of processes at the single writer; None without one."""
        self.retried = self.conflicts = 0
        """The attempts after an error, and the attempts that ended with a conflict of transactions."""

    def run(
        self, operation: Operation[T], started: float | None = None, job: Job | None = None
    ) -> T:
        """Run an operation until success or final failure; the timeout runs from `started`."""
        if started is None:
            started = time.monotonic()
        begun, retries = (
            started,
            None,
        )  # made where there is an error: this is the way of every call
        attempt = vanished = 0
        while True:
            try:
                return self.attempt(operation, job)
            except CollectionAbsent as error:
                if not operation.creates_collection:
                    return operation.absent()
                vanished += 1
                self._wait_for_collection(vanished, error)
                self.run(CreateCollection(error.name), started)
            except TableVanished as error:
                vanished += 1
                self._wait_for_collection(vanished, error)
                for name in operation.collections:
                    self.catalogue.forget(name)
            except (TransactionConflict, DatabaseBusy, DatabaseUnavailable) as error:
                _raise_abandoned(job, error)
                retries = retries or self.retries(started)
                pause = retries.pause(error, time.monotonic() - begun)
                if not self.waits_for_writer(error):
                    time.sleep(pause)
                    self._count_retry(error)
            except UniqueViolated as error:
                _raise_abandoned(job, error)
                self._explain_duplicate(operation, error, attempt)
            except DatabaseError as error:
                _raise_abandoned(job, error)
                raise
            attempt, begun = attempt + 1, time.monotonic()

    def _count_retry(self, error: CollectionsStoreError) -> None:
        self.retried += 1
        self.conflicts += isinstance(error, TransactionConflict)
        this_thread.running.note("retry", 1)

    def waits_for_writer(self, error: CollectionsStoreError) -> bool:
        """Wait until no other process writes if the error tells that one does; return False for another error."""
        if self._turns is None or not isinstance(error, DatabaseBusy):
            return False
        pooled = self.pool.acquire()
        permits = pooled.permits
        try:
            self._turns.wait(pooled.connection.can_write, self.timeout)
        finally:
            try:
                self.release(pooled, lost=False)
            except BaseException:
                self.release_after_interrupt(pooled, permits)
                raise
        return True

    def attempt(self, operation: Operation[T], job: Job | None) -> T:
        """Run an operation once."""
        pooled = self.pool.acquire()
        permits, lost, finished = pooled.permits, False, False
        running = this_thread.running
        outer, running.catalogue = running.catalogue, self.catalogue
        try:
            if job is None and operation.atomic and isinstance(pooled.connection, DriverSession):
                result = execute(pooled.connection, operation)
            else:
                result = _perform(pooled, operation, job)
            finished = True
            return result
        except self.database.errors.types() as error:
            found = translate(error, pooled.sa.engine, self.database)
            lost = isinstance(found, DatabaseUnavailable)
            if (
                operation.writes
                and is_lost(found, pooled)
                and (operation.atomic or sent_commit(pooled))
            ):
                raise in_doubt(error, operation) from error
            raise found from error
        finally:
            running.catalogue = outer  # first: no signal can come before
            try:
                if finished:
                    self.pool.release(pooled)
                else:
                    self.release(pooled, lost)
            except BaseException:
                self.release_after_interrupt(pooled, permits)
                raise

    def run_job(self, job: Job) -> None:
        """Run a claimed job, and report the outcome."""
        try:
            waited = time.monotonic() - job.created
            if waited > self.timeout:
                raise DatabaseBusy(f"waited for {waited:.1f} seconds behind other operations")
            this_thread.running.notes.clear()  # of an operation that nobody watched
            this_thread.running.note("wait", waited)
            with checked_by(partial(raise_if_abandoned, job)):
                result = self.run(job.operation, job.created, job)
        except BaseException as error:  # noqa: BLE001 - it is raised where the job is waited for
            job.finish(error=error)
        else:
            job.finish(result)

    def begin(
        self, isolation: Isolation, started: float, job: Job | None = None, *, write: bool = True
    ) -> PooledConnection:
        """Begin a user's transaction; with `write`, also for writes. The caller has the connection until `release`."""
        retries: Retries | None = None
        while True:
            try:
                pooled = self.pool.acquire()
                permits, lost, begun = pooled.permits, False, False
                try:
                    pooled.connection.begin_transaction(isolation, write=write)
                    begun = True
                    return pooled
                except self.database.errors.types() as error:
                    found = translate(error, pooled.sa.engine, self.database)
                    lost = isinstance(found, DatabaseUnavailable)
                    raise found from error
                finally:
                    if not begun:
                        try:
                            self.release(pooled, lost)
                        except BaseException:
                            self.release_after_interrupt(pooled, permits)
                            raise
            except (TransactionConflict, DatabaseBusy, DatabaseUnavailable) as error:
                _raise_abandoned(job, error)
                retries = retries or self.retries(started)
                pause = retries.pause(error)
                if not self.waits_for_writer(error):
                    time.sleep(pause)

    def release(self, pooled: PooledConnection, lost: bool) -> None:
        """Return a connection to the pool after unfinished work. Close a connection that is lost or tainted, or cannot
        leave the transaction.
        """
        connection = pooled.connection
        if lost or pooled.tainted or connection.is_lost or not connection.reset():
            self.pool.discard(pooled)
        else:
            self.pool.release(pooled)
        if lost:
            self._lost()

    def release_after_interrupt(
        self, pooled: PooledConnection, permits: list[Permit] | None
    ) -> None:
        """Return a connection after a signal interrupted the return. Do nothing unless the connection still has
        `permits`, the caller's: else another caller uses the connection by now. Separate from `release`, since a signal
        can keep `release` from beginning.
        """
        if permits is not None and pooled.permits is permits:
            self.release(pooled, lost=False)

    def _wait_for_collection(self, times: int, error: CollectionsStoreError) -> None:
        """Wait for a collection that processes drop and create; raise `DatabaseError` if the table stays absent."""
        if times >= ATTEMPTS:
            raise DatabaseError(
                f"{error}: the catalogue lists it; was its table dropped or changed by hand?"
            ) from error
        time.sleep(random.uniform(0, 0.0005 * times))

    def _explain_duplicate(
        self, operation: Operation[Any], error: UniqueViolated, attempt: int
    ) -> None:
        """After a unique index refused a document, raise `DuplicateKey` unless another attempt may succeed."""
        if attempt < ATTEMPTS and purged(self.run, operation):
            return  # an expired document was the duplicate
        missed = operation.missed()
        if missed is not None and attempt < ATTEMPTS and self.run(missed):
            return  # another upsert was faster
        found = self.run(duplicate_of(operation, error.physical))
        if found is not None or attempt >= ATTEMPTS:
            raise found or DatabaseError(str(error)) from error


def _perform(pooled: PooledConnection, operation: Operation[T], job: Job | None) -> T:
    connection = pooled.connection
    if isinstance(connection, SharedSession):
        if operation.atomic and not operation.writes:  # nothing to commit
            connection.prepare(write=False)
            return execute(connection, operation)
        if operation.snapshot and not operation.writes:
            connection.take_snapshot()
        with pooled.sa.begin():
            connection.prepare(write=operation.writes)
            result = call(connection, operation)
            connection.record_pending()
        connection.publish_recorded()
        return result
    if job is None:
        return call(connection, operation)

    raise_if_abandoned(job)
    check = partial(raise_if_abandoned, job)
    connection.before_commit.append(check)
    try:
        with Interruptible(pooled, job):
            return call(connection, operation)
    finally:
        connection.before_commit.remove(check)


def call(connection: DriverSession | SharedSession, operation: Operation[T]) -> T:
    """Call an operation, in a transaction unless the operation is atomic or begins a transaction."""
    if operation.atomic or operation.begins:
        return execute(connection, operation)
    with connection.transaction(write=operation.writes, snapshot=operation.snapshot):
        return execute(connection, operation)


def run_within(pooled: PooledConnection, operation: Operation[T]) -> T:
    """Run an operation within the caller's transaction. The transaction stays usable after a failure."""
    connection: Any = pooled.connection
    with translated(connection.database, pooled.sa.engine):
        connection.prepare(write=operation.writes)
    return run_inside(pooled, operation)


def run_inside(pooled: PooledConnection, operation: Operation[T]) -> T:
    """Run an operation within a transaction. The transaction stays usable after a failed write."""
    connection, database = pooled.connection, pooled.connection.database
    try:
        for _ in range(ATTEMPTS):
            try:
                if (
                    operation.atomic
                    and not database.errors_abort
                    and isinstance(connection, DriverSession)
                ):
                    return execute(connection, operation)  # the usual one, sooner
                return _with_savepoint(connection, operation)
            except CollectionAbsent as error:
                if not operation.creates_collection:
                    return operation.absent()
                _with_savepoint(connection, CreateCollection(error.name))
        raise TransactionConflict(f"{operation!r}: its collection comes and goes")
    except database.errors.types() as error:
        found = translate(error, pooled.sa.engine, database)
        if isinstance(found, UniqueViolated):
            if purged(partial(_with_savepoint, connection), operation):
                return run_inside(pooled, operation)  # an expired document was the duplicate
            duplicate = _with_savepoint(connection, duplicate_of(operation, found.physical))
            raise duplicate or TransactionConflict(str(found)) from error
        raise found from error


def purged(run: Callable[[Operation[int]], int], operation: Operation[Any]) -> bool:
    """Delete the expired documents of an operation's collection; return whether any was deleted."""
    some = False
    while run(Purge(operation.collection)):
        some = True
    return some


def _with_savepoint(connection: SharedSession | DriverSession, operation: Operation[T]) -> T:
    """Call an operation, in a savepoint if a failure would spoil the transaction or leave half of the operation.

    A failed read may end a transaction of the store's own, but never the caller's. In the caller's transaction a write
    is more than one statement: changes are recorded at once, since the store does not see the end of the transaction.
    """
    poisoned = connection.database.errors_abort
    shared = isinstance(connection, SharedSession)
    if operation.writes:
        is_needed = poisoned or shared or not operation.atomic
    else:
        is_needed = poisoned and shared
    if not is_needed:
        return execute(connection, operation)
    with connection.savepoint():
        result = execute(connection, operation)
        if shared:
            connection.record_pending()
        return result


@contextmanager
def translated(database: Database, engine: sa.Engine | None = None) -> Iterator[None]:
    """Translate a driver's errors within the context. An error about the file of `engine` names the file."""
    try:
        yield
    except database.errors.types() as error:
        raise translate(error, engine, database) from error


class Interruptible:
    """The context in which the statement of jobs is interrupted when all callers have given up."""

    __slots__ = ("_jobs", "_pooled")

    def __init__(self, pooled: PooledConnection, *jobs: Job) -> None:
        self._pooled, self._jobs = pooled, jobs

    def __enter__(self) -> None:
        if isinstance(self._pooled.connection, DriverSession):
            for job in self._jobs:
                job.running(self._interrupt)
            if self._are_abandoned():  # before `running`
                self.__exit__()
                raise Abandoned("cancelled")

    def __exit__(self, *_: object) -> None:
        for job in self._jobs:
            job.running(None)

    def _are_abandoned(self) -> bool:
        for job in self._jobs:  # noqa: SIM110 - a generator takes longer
            if not job.abandoned:
                return False
        return True

    def _interrupt(self) -> None:
        if not self._are_abandoned():
            return
        connection: Any = self._pooled.connection
        # a server may receive the cancel request late, and end the next statement instead
        self._pooled.tainted = not connection.database.single_writer
        connection.database.connections.interrupt(connection.driver)


def is_lost(found: CollectionsStoreError, pooled: PooledConnection) -> bool:
    """Return whether the outcome on the connection is unknown after an error. The outcome is known if a read-only
    server refused the statement, or if no statement reached a server.
    """
    is_unknown = isinstance(found, DatabaseUnavailable) and not isinstance(found, ReadOnlyDatabase)
    return is_unknown and pooled.connection.has_reached_server


def in_doubt(error: Exception, operation: Operation[Any]) -> DatabaseUnavailable:
    """Return the error of a write whose outcome is unknown."""
    message = f"{str(error).strip()} (whether {operation!r} took place is not known)"
    return DatabaseUnavailable(message, in_doubt=True)


def sent_commit(pooled: PooledConnection) -> bool:
    """Return whether COMMIT may have been sent."""
    return isinstance(pooled.connection, SharedSession) or pooled.connection.committing


def _raise_abandoned(job: Job | None, error: CollectionsStoreError) -> None:
    if job is not None and job.abandoned and not getattr(error, "in_doubt", False):
        raise Abandoned("cancelled") from error


def raise_if_abandoned(*jobs: Job) -> None:
    """Raise `Abandoned` if the caller of any of the jobs gave up."""
    for job in jobs:
        if job.abandoned:
            raise Abandoned("cancelled")
