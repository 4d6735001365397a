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
from .executor import Executor, interruptible, object_if_abandoned, run_inside, translated
from .group_commit import GroupCommit, Hold
from .jobs import Job
from .permits import Turn, Turns
from .pool import Lease

T = TypeVar("T")

OVER: Final = "the transaction is over: it was committed or rolled back when its block ended"
SPOILT: Final = "the transaction was rolled back, nothing of it was written: {}"
FORKED: Final = "the transaction belongs to the process this one was forked from"
CLOSED: Final = "the store was closed while the transaction was open; it was rolled back"


class Held:
    """What an open transaction holds. Only the context of its block keeps it: where a signal ends that
    in the middle, what the user still has of the transaction holds up nobody.
    """

    __slots__ = ("__weakref__", "block", "give_back", "lease")

    def __init__(self, executor: Executor, lease: Lease, give_back: Callable[[], None]) -> None:
        self.lease, self.give_back = lease, give_back
        self.block = Block(executor, self)


class Block:
    """An open transaction."""

    def __init__(self, executor: Executor, held: Held) -> None:
        self._executor, self._held = executor, weakref.ref(held)
        self._guard = threading.Lock()
        self._problem: CollectionsStoreError | None = None
        """What those hear who still use it; None: it is open."""
        self.state = "open"
        self._doomed = False
        self.forked = False
        self.levels: list[Any] = []
        """The savepoints of the blocks that are open within it, the innermost last."""

    @property
    def _lease(self) -> Lease:
        held = self._held()
        if held is None:
            raise TransactionEnded(OVER)
        return held.lease

    def run(self, operation: Operation[T], job: Job | None = None) -> T:
        """Return the operation's result."""
        return self._do(lambda: self._run(operation), job)

    def _run(self, operation: Operation[T]) -> T:
        try:
            return run_inside(self._lease.connection, operation)
        except TableVanished as error:
            raise TransactionConflict(
                f"{error}: another transaction dropped or renamed the collection"
            ) from error

    def mark(self, job: Job | None = None) -> Any:
        """Return the place where it is: a savepoint."""
        return self._do(lambda: self._lease.connection.mark(), job)  # noqa: PLW0108 - it may be over

    def release(self, mark: Any, job: Job | None = None) -> None:
        """Keep what was done since a savepoint."""
        self._do(lambda: self._lease.connection.release(mark), job)

    def back_to(self, mark: Any) -> None:
        """Undo what was done since a savepoint. Nothing is left to do if the transaction has ended."""
        with suppress(CollectionsStoreError):
            self._do(lambda: self._lease.connection.back_to(mark), None)

    def commit(self, job: Job | None = None) -> None:
        """Commit; raises what kept it from being committed."""
        self.refuse_if_forked()
        with self._guard:
            self._check()
            at_rest, error = False, None
            try:
                object_if_abandoned(job)
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
            if error.is_final:
                raise  # nothing was sent
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

    def _do(self, act: Callable[[], T], job: Job | None) -> T:
        """Do something in the transaction, one thread at a time. The lock is held by this frame, not
        by a context's generator, which a signal could leave behind with it.
        """
        self.refuse_if_forked()
        with self._guard:
            self._check()
            try:
                object_if_abandoned(job)
                with (
                    translated(self._executor.database),
                    interruptible(self._lease, job),
                    checked_by(partial(object_if_abandoned, job)),
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
        with suppress(*self._executor.database.errors(), TransactionEnded):
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
        self._problem, held = problem, self._held()
        is_in_doubt = isinstance(error, DatabaseUnavailable) and error.in_doubt
        self.state = "in doubt" if is_in_doubt else "committed" if at_rest else "rolled back"
        if held is None:
            return
        lost, slots = isinstance(error, DatabaseUnavailable), held.lease.slots
        try:
            with suppress(*self._executor.database.errors()):
                self._executor.give_back(held.lease, lost, at_rest)
        except BaseException:
            self._executor.give_back_after_all(held.lease, slots)
            raise
        finally:
            held.give_back()


class Blocks:
    """The transactions of a store that are open, and how one is begun."""

    def __init__(self, executor: Executor, lane: GroupCommit | None, turns: Turns) -> None:
        self._executor, self._turns = executor, turns
        self._lane = lane if executor.database.SINGLE_WRITER else None
        self._guard = threading.Lock()
        self._open: weakref.WeakSet[Block] = weakref.WeakSet()

    def begin(self, turn: Turn, isolation: Isolation, job: Job | None = None) -> Held:
        """Begin a transaction, whose turn it is. That is given back when it ends, or cannot begin."""
        held: Held | None = None
        hold: Hold | None = None
        lease: Lease | None = None
        try:
            if self._lane is not None:
                hold = self._lane.hold()
            lease = self._executor.begin(isolation, turn.asked, job)
            held = Held(self._executor, lease, partial(self._give_back, turn, hold))
            with self._guard:
                self._open.add(held.block)
            object_if_abandoned(job)
            return held
        except BaseException:
            if held is not None:
                held.block.rollback()
                raise
            try:
                if lease is not None:
                    self._executor.give_back(lease, lost=False, at_rest=False)
            finally:
                self._give_back(turn, hold)
            raise

    def _give_back(self, turn: Turn, hold: Hold | None) -> None:
        try:
            if self._lane is not None and hold is not None:
                self._lane.release(hold)
        finally:
            self._turns.give_back(turn)

    def close(self) -> None:
        """End those that are still open."""
        with self._guard:
            left = list(self._open)
        for block in left:
            block.close()

    def fork(self) -> list[Held | None]:
        """Give up what belongs to the parent process; what is returned must not be collected."""
        left = list(self._open)
        for block in left:
            block.forked = True
        return [block._held() for block in left]


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
