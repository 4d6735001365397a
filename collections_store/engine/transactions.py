"""The transactions of a store's own.

The rules:

1. A transaction owns a connection, never a thread: any thread may do what comes next in it, one at
   a time.
2. Where one writes at a time, it holds the writer: all other writes wait for its end.
3. It goes on after a write that failed, for each is in a savepoint where it needs one. What else
   went wrong ends it at once, and rolls it back; nothing is ever executed in it afterwards. So does
   a signal that raises in the middle of something: what was done by then is nobody's guess.
4. However it ends, its connection, the writer and its turn go back.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from ..errors import (
    CollectionsStoreError,
    DatabaseUnavailable,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
)
from ..operations.operation import Operation
from ..options import Isolation
from ..query.budget import checked_by
from ..sql.dialects.protocols import TableVanished
from .executor import Executor, interruptible, raise_if_abandoned, run_inside, translated
from .group_commit import GroupCommit, Hold
from .jobs import Job
from .permits import TransactionPermit, TransactionPermits
from .pool import PooledConnection

T = TypeVar("T")

OVER: Final = "the transaction is over: it was committed or rolled back when its block ended"
SPOILT: Final = "the transaction was rolled back, nothing of it was written: {}"
FORKED: Final = "the transaction belongs to the process this one was forked from"
CLOSED: Final = "the store was closed while the transaction was open; it was rolled back"


class TransactionResources:
    """What an open transaction holds. Only the context of its block keeps it: where a signal ends that
    in the middle, what the user still has of the transaction holds up nobody.
    """

    __slots__ = ("__weakref__", "pooled", "release", "transaction")

    def __init__(
        self, executor: Executor, pooled: PooledConnection, release: Callable[[], None]
    ) -> None:
        self.pooled, self.release = pooled, release
        self.transaction = OpenTransaction(executor, self)


class OpenTransaction:
    """An open transaction."""

    def __init__(self, executor: Executor, resources: TransactionResources) -> None:
        self._executor, self._resources = executor, weakref.ref(resources)
        self._guard = threading.Lock()
        self._problem: CollectionsStoreError | None = None
        """What those hear who still use it; None: it is open."""
        self.state = "open"
        self._doomed = False
        self.forked = False
        self.savepoints: list[Any] = []
        """The savepoints of the blocks that are open within it, the innermost last."""

    @property
    def _pooled(self) -> PooledConnection:
        resources = self._resources()
        if resources is None:
            raise TransactionEnded(OVER)
        return resources.pooled

    def run(self, operation: Operation[T], job: Job | None = None) -> T:
        """Return the operation's result."""
        return self._do(lambda: self._run(operation), job)

    def _run(self, operation: Operation[T]) -> T:
        try:
            return run_inside(self._pooled.connection, operation)
        except TableVanished as error:
            raise TransactionConflict(
                f"{error}: another transaction dropped or renamed the collection"
            ) from error

    def savepoint(self, job: Job | None = None) -> Any:
        """Return the place where it is: a savepoint."""
        return self._do(lambda: self._pooled.connection.begin_savepoint(), job)  # noqa: PLW0108 - it may be over

    def release(self, savepoint: Any, job: Job | None = None) -> None:
        """Keep what was done since a savepoint."""
        self._do(lambda: self._pooled.connection.release_savepoint(savepoint), job)

    def rollback_to(self, savepoint: Any) -> None:
        """Undo what was done since a savepoint. Nothing is left to do if the transaction has ended."""
        with suppress(CollectionsStoreError):
            self._do(lambda: self._pooled.connection.rollback_to(savepoint), None)

    def commit(self, job: Job | None = None) -> None:
        """Commit; raises what kept it from being committed."""
        self.refuse_if_forked()
        with self._guard:
            self._check()
            at_rest, error = False, None
            try:
                raise_if_abandoned(job)
                with interruptible(self._pooled, job):
                    self._commit()
                at_rest = True
            except CollectionsStoreError as raised:
                error = raised
                raise
            finally:
                self._end(TransactionEnded(OVER), error, at_rest=at_rest)

    def _commit(self) -> None:
        connection = self._pooled.connection
        try:
            with translated(connection.database):
                connection.commit()
        except DatabaseUnavailable as error:
            if error.is_final:
                raise  # nothing was sent
            words = f"{error} (whether the transaction was committed is not known)"
            raise DatabaseUnavailable(words, in_doubt=connection.committing) from error.__cause__
        connection.catalogue = connection.catalogue.after_commit()

    def rollback(self, cause: BaseException | None = None) -> None:
        """Roll back, unless it has ended."""
        if self.forked:
            return
        with self._guard:
            if self._problem is None:
                self._end(_spoilt(cause) if cause else TransactionEnded(OVER))

    def refuse_if_forked(self) -> None:
        """Raise `StoreClosed` in a process that does not own the connection."""
        if self.forked:
            raise StoreClosed(FORKED)

    def close(self) -> None:
        """Roll back because the store was closed; an operation that runs just now does so itself."""
        self._doomed = True
        if self._guard.acquire(blocking=False):
            try:
                self._end_if_doomed()
            finally:
                self._guard.release()

    def _do(self, act: Callable[[], T], job: Job | None) -> T:
        """Do something in the transaction, one thread at a time. The lock is held by this frame, not
        by a context's generator, which a signal could leave behind with it.
        """
        self.refuse_if_forked()
        with self._guard:
            self._check()
            try:
                raise_if_abandoned(job)
                with (
                    translated(self._executor.database),
                    interruptible(self._pooled, job),
                    checked_by(partial(raise_if_abandoned, job)),
                ):
                    return act()
            except BaseException as error:
                if not isinstance(error, Exception) or not self._can_go_on():
                    self._end(_spoilt(error), error)
                raise
            finally:
                self._end_if_doomed()

    def _check(self) -> None:
        """Raise what ended it, if it has ended."""
        self._end_if_doomed()
        if self._problem is not None:
            raise _again(self._problem)

    def _can_go_on(self) -> bool:
        with suppress(*self._executor.database.errors.types(), TransactionEnded):
            return self._pooled.connection.can_go_on()
        return False

    def _end_if_doomed(self) -> None:
        if self._doomed and self._problem is None:
            self._end(StoreClosed(CLOSED))

    def _end(
        self,
        problem: CollectionsStoreError,
        error: BaseException | None = None,
        *,
        at_rest: bool = False,
    ) -> None:
        """Give everything back; the connection rolls back unless it is at rest."""
        self._problem, resources = problem, self._resources()
        is_in_doubt = isinstance(error, DatabaseUnavailable) and error.in_doubt
        self.state = "in doubt" if is_in_doubt else "committed" if at_rest else "rolled back"
        if resources is None:
            return
        lost, permits = isinstance(error, DatabaseUnavailable), resources.pooled.permits
        try:
            with suppress(*self._executor.database.errors.types()):
                self._executor.release(resources.pooled, lost, at_rest)
        except BaseException:
            self._executor.release_after_interrupt(resources.pooled, permits)
            raise
        finally:
            resources.release()


class TransactionManager:
    """The transactions of a store that are open, and how one is begun."""

    def __init__(
        self, executor: Executor, write_queue: GroupCommit | None, permits: TransactionPermits
    ) -> None:
        self._executor, self._permits = executor, permits
        self._write_queue = write_queue if executor.database.single_writer else None
        self._guard = threading.Lock()
        self._open: weakref.WeakSet[OpenTransaction] = weakref.WeakSet()

    def begin(
        self, permit: TransactionPermit, isolation: Isolation, job: Job | None = None
    ) -> TransactionResources:
        """Begin a transaction, whose turn it is. That is given back when it ends, or cannot begin."""
        resources: TransactionResources | None = None
        hold: Hold | None = None
        pooled: PooledConnection | None = None
        try:
            if self._write_queue is not None:
                hold = self._write_queue.hold()
            pooled = self._executor.begin(isolation, permit.requested_at, job)
            resources = TransactionResources(
                self._executor, pooled, partial(self._give_back, permit, hold)
            )
            with self._guard:
                self._open.add(resources.transaction)
            raise_if_abandoned(job)
            return resources
        except BaseException:
            if resources is not None:
                resources.transaction.rollback()
                raise
            try:
                if pooled is not None:
                    self._executor.release(pooled, lost=False, at_rest=False)
            finally:
                self._give_back(permit, hold)
            raise

    def _give_back(self, permit: TransactionPermit, hold: Hold | None) -> None:
        try:
            if self._write_queue is not None and hold is not None:
                self._write_queue.release(hold)
        finally:
            self._permits.release(permit)

    def close(self) -> None:
        """End those that are still open."""
        with self._guard:
            left = list(self._open)
        for transaction in left:
            transaction.close()

    def fork(self) -> list[TransactionResources | None]:
        """Give up what belongs to the parent process; what is returned must not be collected."""
        left = list(self._open)
        for transaction in left:
            transaction.forked = True
        return [transaction._resources() for transaction in left]


def _spoilt(cause: BaseException) -> TransactionEnded:
    words = str(cause) or type(cause).__name__
    spoilt = TransactionEnded(SPOILT.format(words))
    spoilt.__cause__ = cause
    return spoilt


def _again(problem: CollectionsStoreError) -> CollectionsStoreError:
    """Return the error anew: one that is raised twice would show both ways it came."""
    again = type(problem)(*problem.args)
    again.__cause__ = problem.__cause__
    return again
