"""Many different writes in one transaction, each of which takes place or is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ..dialects import UniqueViolated
from ..errors import CollectionsStoreError, TransactionConflict
from ..frozen import frozen
from ..results import BulkWriteResult, DeleteResult, Refusal, UpdateResult
from .attempts import attempt
from .batches import Given, PutBatch
from .catalogue import CollectionAbsent
from .documents import Insert

if TYPE_CHECKING:
    from .connection import Connection

Part: TypeAlias = tuple[int, Any]
"""A request's position among all, and the operation that it is."""


@frozen
class BulkBatch:
    """Do several operations on a collection; `ordered`: the first one that is refused is the last."""

    collection: str
    parts: tuple[Part, ...] = field(repr=False)
    ordered: bool = True
    strict: bool = False
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> BulkWriteResult:
        connection.collection(self.collection)
        result = BulkWriteResult()
        for run in _runs(self.parts):
            step = self._inserted(connection, run) if len(run) > 1 else None
            result += self._one_by_one(connection, run) if step is None else step
            if self.ordered and result.refused:
                break
        return result

    def _inserted(self, connection: Connection, run: list[Part]) -> BulkWriteResult | None:
        """Insert many at once; None: one at a time will tell what is the matter."""
        given = tuple(Given(place, each.id, each.text) for place, each in run)
        batch = PutBatch(self.collection, given, "insert", run[0][1].ttl)
        try:
            with connection.savepoint():
                done = batch(connection)
                if done.refused and (self.ordered or self.strict):
                    raise _Refused
        except _Refused:
            return None
        except connection.database.errors() as error:
            if isinstance(connection.database.translate(error), UniqueViolated):
                return None
            raise
        refused = {each.position for each in done.refused}
        ids = {place: each.id for place, each in run if place not in refused}
        return BulkWriteResult(len(ids), inserted_ids=ids, refused=done.refused)

    def _one_by_one(self, connection: Connection, run: list[Part]) -> BulkWriteResult:
        result = BulkWriteResult()
        for position, operation in run:
            try:
                result += _counted(position, operation, attempt(connection, operation))
            except CollectionsStoreError as error:
                if self.strict or isinstance(error, CollectionAbsent | TransactionConflict):
                    raise
                result += BulkWriteResult(refused=(Refusal(position, _id_of(operation), error),))
                if self.ordered:
                    break
        return result


class _Refused(Exception):
    """Some of the objects cannot be inserted."""


def _runs(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the operations, those insertions together that one statement can do."""
    run: list[Part] = []
    ids: set[str] = set()
    for part in parts:
        operation = part[1]
        is_new = isinstance(operation, Insert) and operation.id not in ids
        if run and not (is_new and ids and operation.ttl == run[0][1].ttl):
            yield run
            run, ids = [], set()
        run.append(part)
        if isinstance(operation, Insert):
            ids.add(operation.id)
    if run:
        yield run


def _counted(position: int, operation: Any, done: Any) -> BulkWriteResult:
    match done:
        case UpdateResult(matched, modified, None):
            return BulkWriteResult(matched_count=matched, modified_count=modified)
        case UpdateResult(_, _, str(id)):
            return BulkWriteResult(upserted_ids={position: id})
        case DeleteResult(deleted):
            return BulkWriteResult(deleted_count=deleted)
    assert isinstance(operation, Insert)  # which gives the version
    return BulkWriteResult(1, inserted_ids={position: operation.id})


def _id_of(operation: Any) -> str | None:
    return operation.id if isinstance(operation, Insert) else None
