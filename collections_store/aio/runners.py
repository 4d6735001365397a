"""Runners of the operations of an `AsyncCollection`. The first write or change stream stores the declarations.

The rules:

1. `AsyncStore.collection` does no I/O. The first write or the first change stream stores the declared options, schema
   version and indexes: changes are recorded only from then on. Reads do not store the declarations.
2. A single caller stores the declarations; callers in all tasks, threads and event loops wait for the first. If the
   first fails, the waiting callers raise the same error: a further attempt would take as long. If the first is
   cancelled, a waiting caller takes over.
3. After a failure or a cancellation nothing of the operation is written, and the next use tries again.
4. The rollback of a savepoint undoes declarations stored within. A collection of a transaction stores its declarations
   again once the innermost savepoint of the first time has ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy as copy_error
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from ..errors import Outcome, note_outcome
from ..models.versioned import VersionedCodec
from ..operations.changes import FindPosition
from ..operations.operation import Operation, Steps
from ..operations.upgrades import versioned_steps
from ..options import Consistency
from .bridge import follow

T = TypeVar("T")


class AsyncRunner(Protocol):
    """A runner of operations: a store, or a transaction."""

    async def __call__(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result."""


class AsyncVersionedRunner:
    """Async counterpart of `VersionedRunner`."""

    def __init__(self, run: AsyncRunner, codec: VersionedCodec) -> None:
        self._inner, self._codec = run, codec

    async def __call__(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        run = partial(self._inner, consistency=consistency)
        return await follow(run, versioned_steps(operation, self._codec))


_Attempt: TypeAlias = "Future[Exception | None]"
"""An attempt to store the declarations. The result is the error, None after success."""


class AsyncDeclaringRunner:
    """Runs the operations of a collection with declarations. `savepoints`: the open savepoints of the transaction."""

    def __init__(
        self, run: AsyncRunner, storing: Callable[[], Steps[None]], savepoints: Sequence[Any]
    ) -> None:
        self._inner, self._storing, self._savepoints = run, storing, savepoints
        self._lock = threading.Lock()
        self._attempt: _Attempt | None = None
        self._was_stored = False
        self._savepoint: Any = None  # the innermost one that was open then

    async def __call__(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        is_first = operation.writes or isinstance(operation, FindPosition)
        if is_first and not self._is_stored():
            try:
                await self.store()
            except asyncio.CancelledError as cancelled:
                outcome = Outcome(False, is_final=True)
                note_outcome(cancelled, outcome, f"wrote nothing: {operation!r}")
                raise
        return await self._inner(operation, consistency)

    async def store(self) -> None:
        """Store the declarations, unless already stored."""
        while True:
            with self._lock:
                if self._is_stored():
                    return None
                other = self._attempt
                if other is None:
                    attempt = self._attempt = Future()
                    attempt.set_running_or_notify_cancel()  # no waiter's cancellation cancels it
            if other is None:
                return await self._try(attempt)
            failure = await asyncio.wrap_future(other)
            if failure is not None:
                raise copy_error(failure)

    async def _try(self, attempt: _Attempt) -> None:
        failure: Exception | None = None
        savepoint = self._savepoints[-1] if self._savepoints else None
        try:
            await follow(self._inner, self._storing())
            self._was_stored, self._savepoint = True, savepoint
        except Exception as error:
            failure = error
            raise
        finally:
            self._attempt = None
            attempt.set_result(failure)

    def _is_stored(self) -> bool:
        savepoint = self._savepoint
        is_kept = savepoint is None or any(each is savepoint for each in self._savepoints)
        return self._was_stored and is_kept
