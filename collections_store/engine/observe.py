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
import re
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import current_thread, main_thread
from typing import Any, Final

from ..document import Document
from ..observation import OperationRecord, OperationStats
from ..operations.by_id import BodyWrite, Get
from ..operations.find import Explain
from ..operations.operation import Operation
from ..operations.update import Increment, ModifyOne, Replacement
from ..options import Consistency, Options
from ..query.filter import Filter
from ..results import BulkWriteResult, DeleteResult, Page, PutManyResult, UpdateResult
from .permits import running_here

LOG: Final = logging.getLogger("collections_store")
ADVICE_EVERY: Final = 10.0
"""Seconds between two explanations of slow operations, each of which runs a query of its own."""
_is_enabled: Final = LOG.isEnabledFor
_DEBUG: Final = logging.DEBUG


_NAMES: Final = {
    "ModifyMany": "update_many",
    "FindIdRange": "find",
    "FindByIds": "find",
    "FindPage": "page",
    "FindIds": "ids",
    "FindIdPrefixes": "id_prefixes",
    "ReadBatch": "find",
    "ReadSorted": "find",
    "GetDocument": "document",
    "DocumentExists": "exists",
    "Insert": "insert_one",
    "Replace": "put",
    "Rewrite": "change",
    "Purge": "purge_expired",
    "Prune": "purge_expired",
    "HasPrunable": "purge_expired",
    "PutBatch": "put_many",
    "BulkBatch": "bulk_write",
    "RemoveById": "remove",
    "DeleteFirst": "delete_one",
    "DeleteMatching": "delete_many",
    "FindAndDelete": "find_one_and_delete",
    "FindPosition": "watch",
    "ReadChanges": "watch",
    "DropCollection": "drop",
    "ListCollections": "collections",
    "ListIndexes": "indexes",
    "Work": "transaction",
}
"""The method that a class of operations serves; the name of any other class is that of the kind."""


class Totals:
    """The operations of a class."""

    __slots__ = ("count", "errors", "longest", "name", "seconds")

    def __init__(self, kind: type[Operation[Any]] | str) -> None:
        name = kind if isinstance(kind, str) else kind.__name__.strip("_")
        self.name = _NAMES.get(name) or re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
        self.count = self.errors = 0
        self.seconds = self.longest = 0.0


class Observer:
    """Counts the operations of a store, and reports each to the hook and to the log.

    `run` returns the function that runs the explanation of a slow operation, None once the store is no more.
    """

    def __init__(
        self, options: Options, database: str, run: Callable[[], Callable[..., Any] | None]
    ) -> None:
        self._hook, self._database, self._run = options.on_operation, database, run
        self._slow = math.inf if options.slow_operation is None else options.slow_operation
        self._totals: dict[type[Operation[Any]] | str, Totals] = {}
        self._has_failed = False
        self._advised_at = -math.inf

    def context(self) -> Context | None:
        """Return the context of the caller, for the hook."""
        return None if self._hook is None else copy_context()

    def ended(
        self,
        operation: Operation[Any],
        started: float,
        result: Any = None,
        error: BaseException | None = None,
        consistency: Consistency = "strong",
        *,
        waited: float = 0.0,
        group: int = 1,
        in_transaction: bool = False,
        context: Context | None = None,
    ) -> OperationRecord | None:
        """Count an operation that began at `started`; return a record if the hook or the log needs a record."""
        seconds = time.monotonic() - started
        kind: type[Operation[Any]] | str = type(operation)
        if isinstance(operation, ModifyOne):
            kind = name_of(operation)
        try:
            totals = self._totals[kind]
        except KeyError:
            totals = self._totals.setdefault(kind, Totals(kind))
        totals.count += 1
        totals.seconds += seconds
        if seconds > totals.longest:  # noqa: PLR1730 - max() costs a tenth of the count
            totals.longest = seconds
        if error is not None:
            totals.errors += 1
        if self._hook is None and seconds < self._slow and not _is_enabled(_DEBUG):
            return None
        notes = [note for note in running_here.notes if note[0] >= started]
        running_here.notes.clear()
        by_id = isinstance(operation, ModifyOne) and operation.id is not None
        filter = None if by_id else getattr(operation, "filter", None)
        return OperationRecord(
            name=totals.name,
            collection=None if operation.collections == () else operation.collection,
            database=self._database,
            started=time.time_ns() - round(seconds * 1e9),
            seconds=seconds,
            waited=waited + sum(amount for _, what, amount in notes if what == "wait"),
            writes=operation.writes,
            rows=None if error is not None else rows_of(operation, result),
            retries=sum(what == "retry" for _, what, _ in notes),
            error=error,
            group=max([group, *(int(amount) for _, what, amount in notes if what == "group")]),
            in_transaction=in_transaction,
            consistency=consistency,
            shape=filter.shape_text() if isinstance(filter, Filter) else None,
            context=context or self.context(),
        )

    def report(self, record: OperationRecord, operation: Operation[Any]) -> None:
        """Log a record, and call the hook. The caller holds no lock, permit or connection."""
        if running_here.is_reporting:
            return  # what the hook does, or the explanation
        running_here.is_reporting = True
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
            running_here.is_reporting = False

    def _advice(self, record: OperationRecord, operation: Operation[Any]) -> str:
        """Return the advice of the operation's explanation: every `ADVICE_EVERY` seconds at most, never in a
        transaction.
        """
        now = time.monotonic()
        run, is_due = self._run(), now >= self._advised_at + ADVICE_EVERY
        if record.shape is None or record.in_transaction or run is None or not is_due:
            return ""
        if record.error is not None:
            return ""  # the explanation would wait for the same lock or server
        self._advised_at = now
        one: Any = operation
        window = getattr(one, "skip", 0), getattr(one, "limit", None)
        try:
            found = run(Explain(one.collection, one.filter, getattr(one, "sort", None), *window))
        except Exception as error:  # noqa: BLE001 - the operation itself has ended well
            return f"; not explained: {error}"
        return "" if found.advice is None else f"; advice: {found.advice}"

    def operations(self) -> dict[str, OperationStats]:
        """Return the figures of each kind, by name."""
        found: dict[str, OperationStats] = {}
        for each in self._totals.copy().values():
            one = found.get(each.name, OperationStats())
            longest = max(one.longest, each.longest)
            sums = one.count + each.count, one.errors + each.errors, one.seconds + each.seconds
            found[each.name] = OperationStats(*sums, longest)
        return dict(sorted(found.items()))


def name_of(operation: ModifyOne) -> str:
    """Return the method that an update of one document serves."""
    if operation.id is not None:
        return "update"
    replaces = isinstance(operation.modification.update, Replacement)
    if operation.answer == "result":
        return "replace_one" if replaces else "update_one"
    return "find_one_and_replace" if replaces else "find_one_and_update"


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
