"""How a task waits for a job that a thread does, and what becomes of it on a cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from .errors import CollectionsStoreError
from .jobs import AwaitedJob, Job
from .operations import Steps

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """What is done for a transaction in a thread; its job is what it is called with."""

    name: str
    act: Callable[[Job], Any]
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __repr__(self) -> str:
        return self.name

    def __call__(self, job: Job) -> Any:
        return self.act(job)


def run_step(job: Job) -> None:
    """Run a claimed job whose operation is a `Step`, and tell whoever waits."""
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
    cancelled.collections_store_committed = done  # type: ignore[attr-defined]
    raise cancelled


@contextmanager
def unwritten() -> Iterator[None]:
    """Have a cancellation tell the caller that nothing was written, whatever was done here."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        cancelled.collections_store_committed = False  # type: ignore[attr-defined]
        raise


def note(cancelled: asyncio.CancelledError, job: Job) -> None:
    """Tell the caller whether the write took place: see `was_committed`."""
    if getattr(job.error, "in_doubt", False):
        cancelled.__cause__ = job.error
        cancelled.add_note(f"collections_store does not know whether it wrote: {job.operation!r}")
    elif job.operation.WRITES:
        cancelled.collections_store_committed = job.committed  # type: ignore[attr-defined]
        outcome = "everything" if job.committed else "nothing"
        cancelled.add_note(f"collections_store wrote {outcome}: {job.operation!r}")


def note_rollback(cancelled: asyncio.CancelledError, what: object) -> None:
    """Tell the caller that the transaction of a cancelled operation was rolled back."""
    cancelled.collections_store_committed = False  # type: ignore[attr-defined]
    cancelled.add_note(f"collections_store wrote nothing of the transaction: {what!r}")


def _note_part(cancelled: asyncio.CancelledError) -> None:
    """Tell the caller that some of the steps before the cancelled one were written."""
    cancelled.collections_store_committed = None  # type: ignore[attr-defined]
    cancelled.add_note("collections_store wrote what came before: batches of its own")


async def follow(run: Callable[[Any], Coroutine[Any, Any, Any]], steps: Steps[T]) -> T:
    """Run what steps yield, one after the other; returns what they return."""
    wrote = False
    try:
        step = next(steps)
        while True:
            try:
                result = await run(step)
            except CollectionsStoreError as error:
                step = steps.throw(error)
            except asyncio.CancelledError as cancelled:
                if wrote:
                    _note_part(cancelled)
                raise
            else:
                wrote = wrote or bool(getattr(step, "WRITES", False))
                step = steps.send(result)
    except StopIteration as stop:
        found: T = stop.value
        return found
