"""The transactions of a store's own.

The rules:

1. A transaction owns a connection, never a thread: any thread may do what comes next in it, one at
   a time.
2. Where one writes at a time, it holds the writer: all other writes wait for its end.
3. It goes on after a write that failed, for each is in a savepoint where it needs one. What else
   went wrong ends it at once, and rolls it back; nothing is ever executed in it afterwards.
4. However it ends, its connection, the writer and its turn go back.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, TypeVar

from .dialects import Isolation, TableVanished
from .errors import (
    CollectionsStoreError,
    DatabaseUnavailable,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
)
from .execution import Abandoned, Executor, interruptible, run_inside, translated
from .operations import Operation
from .pool import Lease
from .threads import GroupCommit, Job
from .turns import Turn, Turns

T = TypeVar("T")

OVER: Final = "the transaction is over: it was committed or rolled back when its block ended"
SPOILT: Final = "the transaction was rolled back, nothing of it was written: {}"
FORKED: Final = "the transaction belongs to the process this one was forked from"
CLOSED: Final = "the store was closed while the transaction was open; it was rolled back"


class Block:
    """An open transaction."""

    def __init__(self, executor: Executor, lease: Lease, give_back: Callable[[], None]) -> None:
        self._executor, self._lease, self._give_back = executor, lease, give_back
        self._guard = threading.Lock()
        self._problem: CollectionsStoreError | None = None
        """What those hear who still use it; None: it is open."""
        self._doomed = False
        self.forked = False
        self.levels: list[Any] = []
        """The savepoints of the blocks that are open within it, the innermost last."""

    def run(self, operation: Operation[T], job: Job | None = None) -> T:
        """Return the operation's result."""
        with self._use(job):
            try:
                return run_inside(self._lease.connection, operation)
            except TableVanished as error:
                raise TransactionConflict(
                    f"{error}: another transaction dropped or renamed the collection"
                ) from error

    def mark(self, job: Job | None = None) -> Any:
        """Return the place where it is: a savepoint."""
        with self._use(job):
            return self._lease.connection.mark()

    def release(self, mark: Any, job: Job | None = None) -> None:
        """Keep what was done since a savepoint."""
        with self._use(job):
            self._lease.connection.release(mark)

    def back_to(self, mark: Any) -> None:
        """Undo what was done since a savepoint. Nothing is left to do if the transaction has ended."""
        with suppress(CollectionsStoreError), self._use(None):
            self._lease.connection.back_to(mark)

    def commit(self, job: Job | None = None) -> None:
        """Commit; raises what kept it from being committed."""
        with self._guarded():
            at_rest, error = False, None
            try:
                _object_if_abandoned(job)
                with interruptible(self._lease, job):
                    self._commit()
                at_rest = True
            except CollectionsStoreError as raised:
                error = raised
                raise
            finally:
                self._end(TransactionEnded(OVER), error, at_rest=at_rest)

    def _commit(self) -> None:
        connection = self._lease.connection
        try:
            with translated(connection.database):
                connection.commit()
        except DatabaseUnavailable as error:
            words = f"{error} (whether the transaction was committed is not known)"
            raise DatabaseUnavailable(words, in_doubt=connection.committing) from error.__cause__
        connection.catalogue.tell()
        connection.catalogue = connection.catalogue.of_the_store()

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

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Return the context of one thread at a time, in which the transaction is open."""
        self.refuse_if_forked()
        with self._guard:
            self._end_if_doomed()
            if self._problem is not None:
                raise _again(self._problem)
            try:
                yield
            finally:
                self._end_if_doomed()

    @contextmanager
    def _use(self, job: Job | None) -> Iterator[None]:
        """Return the context of something that is executed in the transaction."""
        with self._guarded():
            try:
                _object_if_abandoned(job)
                with translated(self._executor.database), interruptible(self._lease, job):
                    yield
            except BaseException as error:
                if not self._can_go_on():
                    self._end(_spoilt(error), error)
                raise

    def _can_go_on(self) -> bool:
        with suppress(*self._executor.database.errors()):
            return self._lease.connection.can_go_on()
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
        self._problem = problem
        lost = isinstance(error, DatabaseUnavailable)
        try:
            with suppress(*self._executor.database.errors()):
                self._executor.give_back(self._lease, lost, at_rest)
        finally:
            self._give_back()


class Blocks:
    """The transactions of a store that are open, and how one is begun."""

    def __init__(self, executor: Executor, lane: GroupCommit | None, turns: Turns) -> None:
        self._executor, self._turns = executor, turns
        self._lane = lane if executor.database.SINGLE_WRITER else None
        self._guard = threading.Lock()
        self._open: weakref.WeakSet[Block] = weakref.WeakSet()

    def begin(self, turn: Turn, isolation: Isolation, job: Job | None = None) -> Block:
        """Begin a transaction, whose turn it is. That is given back when it ends, or cannot begin."""
        with ExitStack() as undo:
            undo.callback(self._turns.give_back, turn)
            if self._lane is not None:
                undo.callback(self._lane.release, self._lane.hold())
            lease = self._executor.begin(isolation, turn.asked, job)
            block = Block(self._executor, lease, undo.pop_all().close)
        with self._guard:
            self._open.add(block)
        if job is not None and job.abandoned:
            block.rollback()
            _object_if_abandoned(job)
        return block

    def close(self) -> None:
        """End those that are still open."""
        with self._guard:
            left = list(self._open)
        for block in left:
            block.close()

    def fork(self) -> list[Block]:
        """Give up what belongs to the parent process; what is returned must not be collected."""
        left = list(self._open)
        for block in left:
            block.forked = True
        return left


def _object_if_abandoned(job: Job | None) -> None:
    if job is not None and job.abandoned:
        raise Abandoned("cancelled")


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
