"""The bridge: how a task waits for a thread, and the outcome of a cancellation.

The rules:

1. A cancelled task does not return before its job has ended: nothing is written later.
2. A cancellation is never lost: it is raised once the wait is over.
3. A cancellation carries the outcome of the call, for `was_committed` and `partial_result`.
4. Long computations run in a thread: functions with large arguments, and each part of a procedure after a large value
   was read. Functions and iterables of the caller stay in the event loop: they may belong to the loop's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial, wraps
from inspect import isawaitable
from types import MethodType
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from ..engine.jobs import Job
from ..errors import Outcome, note_outcome
from ..operations.operation import Operation, Steps
from ..operations.procedures import CallFunction
from ..operations.size import SMALL, room_left

P = ParamSpec("P")
T = TypeVar("T")


def counterpart(
    method: Callable[Concatenate[Any, P], T], *, prepares: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[object, None, T]]:
    """Return the async counterpart of a method. The method returns the result of a private method, which is a coroutine in
    the async class. `prepares`: the method computes an operation from its arguments (rule 4).
    """
    # `Any` in the type of a coroutine would make mypy's result of `asyncio.gather` an `Any`; without `Final`, the
    # attributes would have no certain type in an installed package

    @wraps(method)
    async def awaited(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: Any = (
            await compute(MethodType(method, self), *arguments, **options)
            if prepares
            else method(self, *arguments, **options)
        )
        return await result  # type: ignore[no-any-return]

    awaited.__doc__ = f"Async counterpart of `{method.__qualname__}`."
    return awaited


@dataclass(slots=True, repr=False)
class TransactionStep:
    """A step of a transaction, in place of the operation of a job."""

    what: object
    act: Callable[[Job], Any]
    writes: ClassVar[bool] = True

    def __repr__(self) -> str:
        return str(self.what)


def run_step(job: Job) -> None:
    """Run and finish a claimed job whose operation is a `TransactionStep`."""
    step: Any = job.operation
    try:
        result = step.act(job)
    except BaseException as error:  # noqa: BLE001 - it is raised where the job is waited for
        job.finish(error=error)
    else:
        job.finish(result)


async def _wait(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for a future, also while the task is cancelled; return the task's last cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _in_thread(function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Call a function in a thread, in the context of this task. The store's own threads are unsuitable: all may wait
    for a transaction that needs the result.
    """
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(None, copy_context().run, function, *arguments)


def _cancel_next_step(cancelled: asyncio.CancelledError) -> None:
    """Cancel this task again at the next await: a cancelled operation reports the outcome of the write, and rolls the
    transaction back.
    """
    task = asyncio.current_task()
    assert task is not None
    task.cancel(*cancelled.args[:1])
    task.uncancel()  # it is the same cancellation: `asyncio.timeout` counts them


def is_cancelled() -> bool:
    """Return whether this task is to be cancelled at the next await. If so, a caller about to begin work first awaits
    `asyncio.sleep(0)`.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def compute(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Return the result of a function that prepares an operation or reads (rule 4)."""
    if room_left((*arguments, *options.values()), SMALL) >= 0:
        return function(*arguments, **options)
    future = _in_thread(partial(function, *arguments, **options))
    cancelled = await _wait(future)
    if cancelled is not None:
        if future.exception() is not None:
            with nothing_written():
                raise cancelled
        _cancel_next_step(cancelled)
    return future.result()


async def abandon(job: Job) -> None:
    """Stop a job, and wait uncancellably until the job has ended or cannot begin."""
    if job.claim() or job.done:
        return
    job.settled = asyncio.get_running_loop().create_future()
    threading.Thread(target=job.abandon, daemon=True).start()  # the driver's cancel may block
    await _wait(job.settled)


async def wait_uncancellably(job: Job) -> None:
    """Wait until a job is done; then raise a cancellation of the task."""
    cancelled = await _wait(job.future)
    job.future.exception()  # marks it as retrieved
    if cancelled is not None:
        raise cancelled


async def run_uncancellably(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine. If the task is cancelled, the coroutine still runs to the end; then raise the
    cancellation, for which `was_committed` returns whether the coroutine succeeded.
    """
    task = asyncio.ensure_future(work)
    cancelled = await _wait(task)
    if cancelled is None:
        return task.result()
    done = not task.cancelled() and task.exception() is None
    cancelled.collections_store_outcome = Outcome(done, is_final=True)  # type: ignore[attr-defined]
    raise cancelled


async def run_in_batches(
    work: Callable[[Callable[[Any], object]], T], report: Callable[[Any], object]
) -> T:
    """Return the result of `work` in a thread. `work` gets a function to call after each batch; this function calls
    `report` in the event loop. A cancellation, or an exception from `report`, ends the work after a batch.
    """
    loop, cancelled = asyncio.get_running_loop(), list[asyncio.CancelledError]()

    async def pass_on(value: Any) -> object:
        return report(value)

    def after_batch(value: Any) -> object:
        if cancelled:
            raise cancelled[-1]
        return asyncio.run_coroutine_threadsafe(pass_on(value), loop).result()

    future = asyncio.ensure_future(asyncio.to_thread(work, after_batch))
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled.append(error)
    if cancelled:
        done = not future.cancelled() and future.exception() is None
        outcome = Outcome(True if done else None, is_final=True)
        cancelled[-1].collections_store_outcome = outcome  # type: ignore[attr-defined]
        raise cancelled[-1]
    return future.result()


@contextmanager
def nothing_written() -> Iterator[None]:
    """Give a cancellation in this context the outcome "nothing was written"."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        cancelled.collections_store_outcome = Outcome(False, is_final=True)  # type: ignore[attr-defined]
        raise


def note_job(cancelled: asyncio.CancelledError, job: Job) -> None:
    """Attach to a cancellation whether the job wrote."""
    if getattr(job.error, "in_doubt", False):
        cancelled.__cause__ = job.error
        note_outcome(cancelled, Outcome(None), f"does not know whether it wrote: {job.operation!r}")
    elif job.operation.writes:
        outcome = Outcome(job.committed, job.result if job.committed else None)
        written = "everything" if job.committed else "nothing"
        note_outcome(cancelled, outcome, f"wrote {written}: {job.operation!r}")


def _note_call(cancelled: BaseException, *, wrote: bool) -> None:
    """Attach the outcome of a call of several steps to a cancellation, unless a step or a transaction has attached a
    final outcome.
    """
    outcome = getattr(cancelled, "collections_store_outcome", None)
    if outcome is not None and (outcome.is_final or not wrote):
        return
    if wrote:
        note_outcome(cancelled, Outcome(None, is_final=True), "wrote a part: the steps before this")
    else:
        cancelled.collections_store_outcome = Outcome(False, is_final=True)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class _Returned:
    """The result of a procedure, in place of the next step."""

    value: Any


def _advance(act: Callable[[Any], Any], value: Any) -> Any:
    """Return the next step, or the procedure's result as `_Returned`."""
    try:
        return act(value)
    except StopIteration as stop:
        return _Returned(stop.value)


async def _advance_in_thread(act: Callable[[Any], Any], value: Any, *, wrote: bool) -> Any:
    """Run `_advance` in a thread. If the procedure ends meanwhile, a cancellation has the procedure's outcome;
    otherwise the next step is cancelled.
    """
    future = _in_thread(_advance, act, value)
    cancelled = await _wait(future)
    if cancelled is None:
        return future.result()
    error = future.exception()
    if error is None and not isinstance(future.result(), _Returned):
        _cancel_next_step(cancelled)
        return future.result()
    if hasattr(error, "collections_store_outcome"):
        cancelled.collections_store_outcome = error.collections_store_outcome  # type: ignore[attr-defined, union-attr]
    elif wrote and error is None:
        outcome = Outcome(True, future.result().value, is_final=True)
        note_outcome(cancelled, outcome, "wrote everything")
    elif wrote:
        part = Outcome(None, getattr(error, "result", None), is_final=True)
        note_outcome(cancelled, part, f"wrote a part: {error}")
    raise cancelled


async def follow(
    run: Callable[[Any], Coroutine[Any, Any, Any]], steps: Steps[T], *arguments: Any
) -> T:
    """Run the operations that a procedure yields; return the result. `arguments`: of the procedure (rule 4)."""
    wrote, in_thread = False, room_left(arguments, SMALL) < 0
    act: Callable[[Any], Any] = steps.send
    value: Any = None
    try:
        while True:
            if in_thread:
                step = await _advance_in_thread(act, value, wrote=wrote)
            else:
                step = _advance(act, value)
            if isinstance(step, _Returned):
                return step.value  # type: ignore[no-any-return]
            try:
                value = await run(step)
            except BaseException as error:  # noqa: BLE001 - the steps know what it means
                act, value = steps.throw, error
            else:
                wrote = wrote or (isinstance(step, Operation) and step.writes)
                act = steps.send
                changed = step.argument if isinstance(step, CallFunction) else None
                in_thread = in_thread or room_left((value, changed), SMALL) < 0
    except asyncio.CancelledError as cancelled:
        _note_call(cancelled, wrote=wrote)
        raise


def wait_for(result: Any) -> Any:
    """Return the result of an awaitable of a sync caller, in an event loop of its own; and anything else as it is."""

    async def waited() -> Any:
        return await result

    if not isawaitable(result):
        return result
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(waited())
    with ThreadPoolExecutor(1) as thread:  # as in a notebook: this thread's loop runs
        return thread.submit(copy_context().run, asyncio.run, waited()).result()
