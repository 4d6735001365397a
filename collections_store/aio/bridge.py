"""How a task waits for a job that a thread does, and what becomes of it on a cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ..engine.jobs import AwaitedJob, Job
from ..errors import Outcome, note_outcome
from ..operations.combine import Steps
from ..operations.operation import Operation

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class TransactionStep:
    """What is done for a transaction in a thread; its job is what it is called with."""

    name: str
    act: Callable[[Job], Any]
    writes: ClassVar = True

    def __repr__(self) -> str:
        return self.name

    def __call__(self, job: Job) -> Any:
        return self.act(job)


def run_step(job: Job) -> None:
    """Run a claimed job whose operation is a `TransactionStep`, and report to whoever waits."""
    step: Any = job.operation
    try:
        result = step(job)
    except BaseException as error:  # noqa: BLE001 - it is raised where the job is waited for
        job.finish(error=error)
    else:
        job.finish(result)


async def settle(job: AwaitedJob) -> None:
    """Give a job up; return when it does not run, or no longer."""
    if job.claim() or job.done:
        return
    job.settled = asyncio.get_running_loop().create_future()
    threading.Thread(target=job.abandon, daemon=True).start()  # the driver's cancel may block
    while not job.settled.done():
        try:
            await asyncio.shield(job.settled)
        except asyncio.CancelledError:
            continue


async def finished(job: AwaitedJob) -> None:
    """Return when a job is done, even if the task is cancelled meanwhile; that goes on afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not job.future.done():
        try:
            await asyncio.wait([job.future])
        except asyncio.CancelledError as error:
            cancelled = error
    job.future.exception()  # seen
    if cancelled is not None:
        raise cancelled


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work, which goes on to its end even if the task is cancelled meanwhile;
    then that goes on, and `was_committed` tells whether the work succeeded.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    done = not task.cancelled() and task.exception() is None
    cancelled.collections_store_outcome = Outcome(done, whole=True)  # type: ignore[attr-defined]
    raise cancelled


@contextmanager
def unwritten() -> Iterator[None]:
    """Have a cancellation tell the caller that nothing was written, whatever was done here."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        cancelled.collections_store_outcome = Outcome(False, whole=True)  # type: ignore[attr-defined]
        raise


def note(cancelled: asyncio.CancelledError, job: Job) -> None:
    """Tell the caller whether the write took place: see `was_committed`."""
    if getattr(job.error, "in_doubt", False):
        cancelled.__cause__ = job.error
        note_outcome(cancelled, Outcome(None), f"does not know whether it wrote: {job.operation!r}")
    elif job.operation.writes:
        outcome = Outcome(job.committed, job.result if job.committed else None)
        words = "everything" if job.committed else "nothing"
        note_outcome(cancelled, outcome, f"wrote {words}: {job.operation!r}")


def note_rollback(cancelled: asyncio.CancelledError, what: object) -> None:
    """Tell the caller that the transaction of a cancelled operation was rolled back."""
    note_outcome(
        cancelled, Outcome(False, whole=True), f"wrote nothing of the transaction: {what!r}"
    )


def _note_call(cancelled: BaseException, *, wrote: bool) -> None:
    """Tell the caller what a call of several steps wrote, unless its steps or a transaction did."""
    outcome = getattr(cancelled, "collections_store_outcome", None)
    if outcome is not None and (outcome.whole or not wrote):
        return
    if wrote:
        note_outcome(cancelled, Outcome(None, whole=True), "wrote a part: the steps before this")
    else:
        cancelled.collections_store_outcome = Outcome(False, whole=True)  # type: ignore[attr-defined]


async def follow(run: Callable[[Any], Coroutine[Any, Any, Any]], steps: Steps[T]) -> T:
    """Run what steps yield, one after the other; returns what they return."""
    wrote = False
    try:
        step = next(steps)
        while True:
            try:
                result = await run(step)
            except BaseException as error:  # noqa: BLE001 - the steps know what it means
                step = steps.throw(error)
            else:
                wrote = wrote or (isinstance(step, Operation) and step.writes)
                step = steps.send(result)
    except StopIteration as stop:
        found: T = stop.value
        return found
    except asyncio.CancelledError as cancelled:
        _note_call(cancelled, wrote=wrote)
        raise
