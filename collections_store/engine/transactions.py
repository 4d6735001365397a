"""The open transactions of a store.

Rules:

1. A transaction owns a connection, never a thread: any thread may take the next step, one thread at a time.
2. Where the database has a single writer, a writing transaction holds the writer lock: all writes outside the
   transaction wait for the end.
3. A transaction goes on after a failed write: each write is in a savepoint where needed. If the connection cannot go on
   after a failure, the transaction is rolled back at once, and executes nothing afterwards. A signal that raises in a
   step has the same effect: the progress of the step is unknown.
4. At any end the connection, the writer lock and the permit are released. Only the transaction context keeps these
   resources: when a signal ends the context, the user's references to the transaction block nobody.
5. Lock order: permit, writer lock, connection. The order of release is the opposite.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Final, TypeVar

from ..errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
)
from ..expressions.budget import checked_by
from ..options import Isolation
from ..sql.dialects.protocols import TableVanished
from .executor import Executor, Interruptible, raise_if_abandoned, run_inside
from .group_commit import GroupCommit
from .jobs import Job
from .observe import Observer
from .permits import (
    NESTED,
    Permit,
    TransactionPermit,
    TransactionPermits,
    this_thread,
)
from .pool import PooledConnection, translate

T = TypeVar("T")

OVER: Final = TransactionEnded(
    "the transaction is over: it was committed or rolled back when its block ended"
)
ROLLED_BACK: Final = "the transaction was rolled back, nothing of it was written: {}"
FORKED: Final = "the transaction belongs to the process this one was forked from"
READ_ONLY: Final = "collection {}: the transaction was begun with read_only=True and writes nothing: begin one without"
CLOSED: Final = "the store was closed while the transaction was open; it was rolled back"


class TransactionResources:
    """The resources of an open transaction: connection, permit and, on a database with one writer, the writer lock."""

    __slots__ = ("__weakref__", "permits", "pooled", "release", "transaction")

    permits: list[Permit] | None
    pooled: PooledConnection
    release: Callable[[], None]
    transaction: OpenTransaction

    def __init__(
        self, manager: TransactionManager, pooled: PooledConnection, permit: TransactionPermit
    ) -> None:
        self.pooled, self.permits = pooled, pooled.permits
        self.release = partial(manager.release, permit)
        """Releases the writer lock and the permit. A second call does nothing."""
        self.transaction = OpenTransaction(manager, self)

    def __del__(self) -> None:
        transaction = getattr(self, "transaction", None)  # a signal may have ended `__init__`
        if transaction is not None and not transaction.returned:
            transaction.roll_back_orphan(self)


class OpenTransaction:
    """An open transaction."""

    observer: Observer
    state: str
    returned: bool

    def __init__(self, manager: TransactionManager, resources: TransactionResources) -> None:
        self.observer, self._executor = manager.observer, manager.executor
        self._resources, self._writes = weakref.ref(resources), manager.writes
        self._guard = threading.Lock()
        self._thread = 0
        """The thread that runs an operation; 0: no thread does."""
        self._problem: CollectionsStoreError | None = None
        """The error that further steps raise; None while the transaction is open."""
        self.state = "open"
        self._closing = self.returned = False
        self.forked = False
        self.savepoints: list[Any] = []
        """The savepoints of the open contexts within the transaction, the innermost last."""

    def step(
        self,
        operation: Any,
        job: Job | None = None,
        act: Callable[[PooledConnection, Any], Any] = run_inside,
    ) -> Any:
        """Return the result of `act` on the connection and the operation; one thread at a time.

        This frame holds the lock: a signal could leave the generator of a context behind, and the lock locked.
        """
        if self.forked:
            raise StoreClosed(FORKED)
        if not self._writes and operation is not None and operation.writes:
            raise DatabaseError(READ_ONLY.format(operation.collection))
        thread = get_ident()
        if self._thread == thread:
            raise DatabaseBusy(NESTED, is_final=True)
        with self._guard:
            if self._closing:
                self._end_if_closing()
            resources = self._resources()
            if self._problem is not None or resources is None:
                raise self._ended()
            pooled = resources.pooled
            try:
                self._thread = thread
                if job is None:
                    return act(pooled, operation)
                raise_if_abandoned(job)
                this_thread.running.catalogue = self._executor.catalogue  # a worker has no permit
                with Interruptible(pooled, job), checked_by(partial(raise_if_abandoned, job)):
                    return act(pooled, operation)
            except self._executor.database.errors.types() as error:
                found = translate(error, pooled.sa.engine, self._executor.database)
                self._end_unless_usable(pooled, found)
                raise found from error
            except TableVanished as error:
                self._end_unless_usable(pooled, error)
                raise TransactionConflict(
                    f"{error}: another transaction dropped or renamed the collection, or changed its indexes"
                ) from error
            except BaseException as error:
                self._end_unless_usable(pooled, error)
                raise
            finally:
                self._thread = 0  # first: no signal can come before
                if job is not None:
                    this_thread.running.catalogue = None
                if self._closing:
                    self._end_if_closing()

    def savepoint(self, job: Job | None = None) -> Any:
        return self.step(None, job, lambda pooled, _: pooled.connection.begin_savepoint())

    def release(self, savepoint: Any, job: Job | None = None) -> None:
        self.step(None, job, lambda pooled, _: pooled.connection.release_savepoint(savepoint))

    def rollback_to(self, savepoint: Any) -> None:
        """Undo the changes since a savepoint; do nothing if the transaction has ended."""
        with suppress(CollectionsStoreError):
            self.step(None, None, lambda pooled, _: pooled.connection.rollback_to(savepoint))

    def commit(self, job: Job | None = None) -> None:
        """Commit; raise the error that prevented the commit."""
        if self.forked:
            raise StoreClosed(FORKED)
        with self._guard:
            if self._closing:
                self._end_if_closing()
            resources = self._resources()
            if self._problem is not None or resources is None:
                raise self._ended()
            pooled, committed, problem = resources.pooled, False, None
            connection = pooled.connection
            try:
                if job is None:
                    connection.commit()
                else:
                    raise_if_abandoned(job)
                    with Interruptible(pooled, job):
                        connection.commit()
                connection.catalogue = connection.catalogue.after_commit()
                committed = True
            except self._executor.database.errors.types() as error:
                problem = translate(error, pooled.sa.engine, self._executor.database)
                if isinstance(problem, DatabaseUnavailable):
                    words = f"{problem} (whether the transaction was committed is not known)"
                    problem = type(problem)(words, in_doubt=connection.committing)
                raise problem from error
            except CollectionsStoreError as error:
                problem = error
                raise
            finally:
                self._end(OVER, problem, committed=committed)

    def rollback(self, cause: BaseException | None = None) -> None:
        """Roll back, unless the transaction has ended."""
        if self.forked:
            return
        with self._guard:
            if self._problem is None or not self.returned:
                self._end(_rolled_back(cause) if cause else OVER)

    def roll_back_orphan(self, resources: TransactionResources) -> None:
        """Roll back because a signal ended the context of the transaction before the context could.

        The thread that drops the last reference calls this, whatever locks the thread holds. The rollback therefore
        waits for nothing, and leaves the permit and the writer lock alone: both are known by weak references.
        """
        if not self.returned and not self.forked and self._guard.acquire(blocking=False):
            try:
                self._end(OVER, orphan=resources)
            finally:
                self._guard.release()

    def refuse_if_forked(self) -> None:
        """Raise `StoreClosed` in a process that does not own the connection."""
        if self.forked:
            raise StoreClosed(FORKED)

    def close(self) -> None:
        """Roll back because the store was closed: now, or at the end of a running operation."""
        self._closing = True
        if self._guard.acquire(blocking=False):
            try:
                self._end_if_closing()
            finally:
                self._guard.release()

    def _ended(self) -> CollectionsStoreError:
        """Return a copy of the error that ended the transaction: an error raised twice would show both tracebacks."""
        problem = self._problem or OVER
        again = type(problem)(*problem.args)
        again.__cause__ = problem.__cause__
        return again

    def _end_unless_usable(self, pooled: PooledConnection, error: BaseException) -> None:
        usable = False
        if isinstance(error, Exception):
            with suppress(*self._executor.database.errors.types()):
                usable = pooled.connection.can_go_on()
        if not usable:
            self._end(_rolled_back(error), error)

    def _end_if_closing(self) -> None:
        if self._closing and self._problem is None:
            self._end(StoreClosed(CLOSED))

    def _end(
        self,
        problem: CollectionsStoreError,
        error: BaseException | None = None,
        *,
        committed: bool = False,
        orphan: TransactionResources | None = None,
    ) -> None:
        """Release all resources; unless the transaction was committed, the connection rolls back.

        If a signal interrupts this, the transaction context or `roll_back_orphan` calls this again.
        """
        self._problem, resources = self._problem or problem, orphan or self._resources()
        lost = isinstance(error, DatabaseUnavailable)
        is_in_doubt = isinstance(error, DatabaseUnavailable) and error.in_doubt
        self.state = "in doubt" if is_in_doubt else "committed" if committed else "rolled back"
        if resources is None:
            return
        pooled, permits, executor = resources.pooled, resources.permits, self._executor
        try:
            if not self.returned:
                # the pool of the caller's engine does not see that a connection comes twice
                self.returned = permits is None
                try:
                    if (
                        pooled.permits is permits
                    ):  # else a call before this was interrupted after that
                        if committed:
                            executor.pool.release(pooled)
                        else:
                            executor.release(pooled, lost)
                except executor.database.errors.types():
                    pass
                except BaseException:
                    executor.release_after_interrupt(pooled, permits)
                    raise
                self.returned = True
        finally:
            if orphan is None:
                resources.release()


class TransactionManager:
    """Begins the transactions of a store, and knows the open transactions."""

    writes: bool
    observer: Observer
    executor: Executor

    def __init__(
        self,
        executor: Executor,
        write_queue: GroupCommit | None,
        permits: TransactionPermits,
        prepare: Callable[..., bool],
        observer: Observer,
        *,
        writes: bool = True,
    ) -> None:
        self.executor, self._permits, self.writes = executor, permits, writes
        self.observer, self._prepare, self._is_prepared = observer, prepare, False
        self._write_queue = write_queue if executor.database.single_writer else None
        self._guard = threading.Lock()
        self._open: weakref.WeakSet[OpenTransaction] = weakref.WeakSet()

    def begin(
        self, permit: TransactionPermit, isolation: Isolation, job: Job | None = None
    ) -> TransactionResources:
        """Begin a transaction with a permit. The permit is released when the transaction ends or cannot begin."""
        resources: TransactionResources | None = None
        pooled: PooledConnection | None = None
        try:
            if this_thread.running.catalogue is self.executor.catalogue:
                raise DatabaseBusy(NESTED, is_final=True)
            if not self._is_prepared:
                self._prepare(write=self.writes)
                self._is_prepared = True
            if self._write_queue is not None:
                self._write_queue.lock_writer(permit)
            pooled = self.executor.begin(isolation, permit.requested_at, job, write=self.writes)
            resources = TransactionResources(self, pooled, permit)
            with self._guard:
                self._open.add(resources.transaction)
            if job is not None:
                raise_if_abandoned(job)
            return resources
        except BaseException:
            if resources is not None:
                resources.transaction.rollback()
                raise
            try:
                if pooled is not None:
                    self.executor.release(pooled, lost=False)
            finally:
                self.release(permit)
            raise

    def release(self, permit: TransactionPermit) -> None:
        """Release the permit, and the writer lock if the permit's transaction holds the lock."""
        try:
            if self._write_queue is not None:
                self._write_queue.unlock_writer(permit)
        finally:
            self._permits.release(permit)

    def close(self) -> None:
        with self._guard:
            left = list(self._open)
        for transaction in left:
            transaction.close()

    def fork(self) -> list[TransactionResources | None]:
        """Give up the parent process's transactions; return the resources, for the caller to keep for ever."""
        left = list(self._open)
        for transaction in left:
            transaction.forked = True
        return [transaction._resources() for transaction in left]


def _rolled_back(cause: BaseException) -> TransactionEnded:
    ended = TransactionEnded(ROLLED_BACK.format(str(cause) or type(cause).__name__))
    ended.__cause__ = cause
    return ended
