"""Counts, log and reports of a store's operations. `Observer.ended` is the only source.

Rules:

1. Each operation of a caller ends once: alone, in a group, in a transaction, or on a replica. Operations added by the
   store, such as the creation of a collection before a write, are part of the caller's.
2. Counters have no lock: each update is one step, since CPython switches threads at the beginning of a function and at
   a jump backwards only. An interpreter without the GIL may lose a count.
3. An error of the hook reaches no caller. The first is logged.
4. No log line has a body, or a value of a filter.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import current_thread, main_thread
from typing import Any, Final, TypeVar

from ..document import Document
from ..operations.by_id import BodyWrite, Get
from ..operations.called import plain_operation
from ..operations.explain import Explain
from ..operations.operation import Operation
from ..operations.update import Increment
from ..options import Consistency, Options
from ..query.filter import Filter
from ..results import (
    BulkWriteResult,
    DeleteResult,
    OperationRecord,
    OperationStats,
    Page,
    PutManyResult,
    UpdateResult,
)
from .jobs import Job
from .permits import this_thread

T = TypeVar("T")

LOG: Final = logging.getLogger("collections_store")
ADVICE_EVERY: Final = 10.0
"""Seconds between two explanations of slow operations, each of which runs a query of its own."""
_is_enabled: Final = LOG.isEnabledFor
_DEBUG: Final = logging.DEBUG


class Totals:
    """The figures of a kind of operation."""

    __slots__ = ("count", "errors", "longest", "seconds")

    count: int
    errors: int
    seconds: float
    longest: float

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = self.longest = 0.0


class Observer:
    """Counts the operations of a store, and reports each to the hook and to the log.

    `explain` returns the function that explains a slow operation, None once the store is no more.
    """

    def __init__(
        self, options: Options, database: str, explain: Callable[[], Callable[..., Any] | None]
    ) -> None:
        self._hook, self._database, self._explain = options.on_operation, database, explain
        self._slow = math.inf if options.slow_operation is None else options.slow_operation
        self._reported_from = self._slow if self._hook is None else 0.0
        """The seconds from which an operation has a record."""
        self._kinds: dict[str, Totals] = {}
        """By `Operation.method`."""
        self._has_failed = False
        self._advised_at = -math.inf

    def context(self) -> Context | None:
        """Return the context of the caller, for the hook."""
        return None if self._hook is None else copy_context()

    def ended(  # noqa: PLR0917 - keywords take a third longer
        self,
        operation: Operation[Any],
        started: float,
        result: Any = None,
        error: BaseException | None = None,
        consistency: Consistency = "strong",
        in_transaction: bool = False,
        job: Job | None = None,
    ) -> OperationRecord | None:
        """Count an operation that began at `started`; return a record if the hook or the log needs a record."""
        seconds = time.monotonic() - started
        try:
            totals = self._kinds[operation.method]
        except KeyError:
            totals = self._kinds.setdefault(operation.method, Totals())
        totals.count += 1
        totals.seconds += seconds
        if seconds > totals.longest:  # noqa: PLR1730 - max() costs a tenth of the count
            totals.longest = seconds
        if error is not None:
            totals.errors += 1
        if seconds < self._reported_from and not _is_enabled(_DEBUG):
            return None
        retries, waited, group = this_thread.running.taken(started)
        context = None
        if job is not None:
            waited, group, context = waited + job.waited, max(group, job.group), job.context
        return OperationRecord(
            name=operation.method,
            collection=None if operation.collections == () else operation.collection,
            database=self._database,
            started=time.time_ns() - round(seconds * 1e9),
            seconds=seconds,
            waited=waited,
            writes=operation.writes,
            rows=None if error is not None else rows_of(operation, result),
            retries=retries,
            error=error,
            group=group,
            in_transaction=in_transaction,
            consistency=consistency,
            shape=shape_of(operation),
            comment=operation.comment,
            context=context or self.context(),
        )

    def failed(
        self,
        operation: Operation[Any],
        started: float,
        error: BaseException,
        consistency: Consistency,
    ) -> None:
        """Count and report an operation that ended with an error."""
        record = self.ended(operation, started, None, error, consistency)
        if record is not None:
            self.report(record, operation)

    def in_transaction(
        self, act: Callable[..., T], operation: Operation[T], job: Job | None = None
    ) -> T:
        """Return the result of `act(operation, job)` in a transaction; count and report the operation."""
        started = time.monotonic() if job is None else job.created
        result: Any = None
        error: BaseException | None = None
        try:
            result = act(operation, job)
        except BaseException as raised:
            error = raised
            raise
        finally:
            record = self.ended(operation, started, result, error, "strong", True, job)
            if record is not None:
                self.report(record, operation)
            error = None  # the frame would keep its own traceback
        return result  # type: ignore[no-any-return]

    def report(self, record: OperationRecord, operation: Operation[Any]) -> None:
        """Log a record, and call the hook. The caller holds no lock, permit or connection."""
        running = this_thread.running
        if running.is_reporting:
            return  # what the hook does
        running.is_reporting = True
        try:
            LOG.debug("%s", record)
            if record.seconds >= self._slow:
                LOG.warning("slow operation: %s%s", record, self._advice(record, operation))
            if self._hook is not None:
                self._hook(record)
        except BaseException as error:
            # a signal handler raises in the main thread; elsewhere the error would end a thread of the store
            if not isinstance(error, Exception) and current_thread() is main_thread():
                raise
            if not self._has_failed:
                last: BaseException = error
                while last.__context__ is not None and last.__context__ is not record.error:
                    last = last.__context__
                last.__context__ = None  # its text may have values
                LOG.exception("on_operation failed; further errors of it are not logged")
            self._has_failed = True
        finally:
            running.is_reporting = False

    def _advice(self, record: OperationRecord, operation: Operation[Any]) -> str:
        """Return the advice of the operation's explanation: every `ADVICE_EVERY` seconds at most, never in a
        transaction.
        """
        now = time.monotonic()
        explain, is_due = self._explain(), now >= self._advised_at + ADVICE_EVERY
        if record.shape is None or record.in_transaction or explain is None or not is_due:
            return ""
        if record.error is not None:
            return ""  # the explanation would wait for the same lock or server
        self._advised_at = now
        one: Any = plain_operation(operation)
        window = getattr(one, "skip", 0), getattr(one, "limit", None)
        try:
            found = explain(
                Explain(one.collection, one.filter, getattr(one, "sort", None), *window)
            )
        except Exception as error:  # noqa: BLE001 - the operation itself has ended well
            return f"; not explained: {error}"
        return "" if found.advice is None else f"; advice: {found.advice}"

    def operations(self) -> dict[str, OperationStats]:
        """Return the figures of each kind, by name."""
        return {
            name: OperationStats(each.count, each.errors, each.seconds, each.longest)
            for name, each in sorted(self._kinds.copy().items())
        }


def shape_of(operation: Operation[Any]) -> str | None:
    """Return the shape of an operation's filter; None without a filter, and for an update by id."""
    plain = plain_operation(operation)
    filter = None if operation.method == "update" else getattr(plain, "filter", None)
    return filter.shape_text() if isinstance(filter, Filter) else None


def rows_of(operation: Operation[Any], result: Any) -> int | None:
    """Return how many results were returned or documents written; None if unknown."""
    match operation, result:
        case (BodyWrite() | Increment(), _) | (_, Document()):
            return 1
        case (Get(), _):
            return int(result is not operation.default)
        case (_, bool()):
            return int(result)
        case (_, int()):
            return result if operation.writes else None
        case (_, Page()):
            return len(result.documents)
        case (_, PutManyResult()):
            return result.written_count
        case (_, UpdateResult()):
            return result.modified_count + (result.upserted_id is not None)
        case (_, DeleteResult()):
            return result.deleted_count
        case (_, BulkWriteResult()):
            written = result.inserted_count + result.modified_count + result.deleted_count
            return written + len(result.upserted_ids)
        case (_, list() | tuple() | dict() | set()):
            return len(result)
        case (_, None):
            return 0
    return None
