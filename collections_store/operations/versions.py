"""Documents of other schema versions: checking, reading, and writing the upgraded documents.

An operation by filter compares fields of the declared version. The operation and the check for documents of another
version run in one transaction, and see the same snapshot. The index of `DeclareVersion` serves the check.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any

from ..document import Document, now
from ..errors import (
    CollectionsStoreError,
    DocumentsOutdated,
    DocumentTooNew,
    TransactionConflict,
)
from ..expressions.classes import value_class
from ..query.conditions import Metadata
from ..query.filter import Filter
from ..query.serving import every_conjunct
from ..sql.dialects.protocols import UniqueViolated
from .aggregate import Aggregate
from .aggregate_stream import AggregateBatch
from .bulk import BulkBatch, Together, attempt
from .by_id import Insert, Rewrite, as_document
from .called import Called, plain_operation
from .catalogue import CollectionAbsent
from .connection import Row
from .find import Count, Distinct, Find, FindPage, ReadSorted
from .merge import Merge
from .operation import Operation, Wrapper
from .read import Batch, ReadBatch
from .session import Session
from .update import DeleteFirst, DeleteMatching, FindAndDelete, ModifyMany, ModifyOne
from .write import Writer


@value_class
class OfVersion(Wrapper):
    """Do an operation if all documents have a schema version; else raise `DocumentsOutdated` or `DocumentTooNew`."""

    operation: Operation[Any]
    version: int

    def __call__(self, session: Session) -> Any:
        with suppress(CollectionAbsent):  # the operation may read other collections
            check_versions(session, self.collection, self.version)
        return self.operation(session)


def for_version(operation: Any, version: int) -> Operation[Any]:
    """Return the operation for a collection whose documents may have different schema versions."""
    match operation:
        case Called(operation=inner, call=call):
            return Called(for_version(inner, version), call)
        case Together():
            return replace(operation, prepare=partial(for_version, version=version))
        case Merge(source=source):
            return replace(operation, source=for_version(source, version))
        case BulkBatch(parts=parts) if any(_compares(each) for _, each in parts):
            return OfVersion(operation, version)
    return OfVersion(operation, version) if _compares(operation) else operation


def _compares(operation: Any) -> bool:
    """Return whether the result of an operation depends on fields of the stored bodies."""
    operation = plain_operation(operation)
    match operation:
        case Distinct() | Aggregate() | AggregateBatch():
            return True
        case Find(sort=sort, projection=parts) | FindPage(sort=sort, projection=parts):
            return bool(sort) or parts is not None or _has_fields(operation.filter)
        case ReadBatch(projection=parts) if parts is not None:
            return True
        case ModifyOne(id=str()):
            return False
        case ModifyOne(sort=sort) | FindAndDelete(sort=sort) if sort:
            return True
        case ReadSorted():
            return True
        case (
            ReadBatch() | Count() | ModifyOne() | ModifyMany() | FindAndDelete() | DeleteFirst()
            | DeleteMatching()
        ):  # fmt: skip
            return _has_fields(operation.filter)
    return False


def _has_fields(filter: Filter) -> bool:
    """Return whether a filter tests more than metadata."""
    return not all(isinstance(each, Metadata) for each in every_conjunct(filter.condition))


def check_versions(session: Session, collection: str, version: int) -> None:
    """Raise `DocumentsOutdated` or `DocumentTooNew` if a document has another schema version."""
    sql = session.collection(collection).versions(version).any
    for id, text in session.rows(sql, {"now": now()}):
        found = int(text) if text is not None and text.isdecimal() else 1
        if found > version:
            raise DocumentTooNew(found, version, collection, id)
        raise DocumentsOutdated(collection, found, version)


@value_class
class CheckVersions(Operation[None]):
    """Raise `DocumentsOutdated` or `DocumentTooNew` if a document has another schema version."""

    collection: str
    version: int
    atomic = True

    def __call__(self, session: Session) -> None:
        check_versions(session, self.collection, self.version)


@value_class
class CountOutdated(Operation[int]):
    """Count the documents of other schema versions."""

    collection: str
    version: int
    atomic = True
    empty = int

    def __call__(self, session: Session) -> int:
        sql = session.collection(self.collection).versions(self.version).count
        return int(session.rows(sql, {"now": now()})[0][0])


@value_class
class ReadOutdated(Operation[Batch]):
    """Read up to `limit` documents of different schema versions past the position `after`, without upgrades."""

    collection: str
    version: int
    after: int
    limit: int
    atomic = True
    empty = partial(Batch, (), (), None)

    def __call__(self, session: Session) -> Batch:
        sql = session.collection(self.collection).versions(self.version).some
        window = {"seq": self.after, "limit": self.limit, "now": now()}
        rows = session.rows(sql, window)
        after = rows[-1][0] if len(rows) == self.limit else None
        documents = [as_document(row[1:], self.collection) for row in rows]
        return Batch(documents, (), after, sum(len(row[2]) for row in rows))


Upgraded = tuple[Document, str]
"""A document in the version read, and the text of the new body."""
Refused = tuple[str, CollectionsStoreError]
"""The id of an unwritten document, and the error."""


@value_class
class WriteUpgraded(Operation[list[Refused]]):
    """Write upgraded documents, each only in the state that was read; return the unwritten documents."""

    collection: str
    upgraded: tuple[Upgraded, ...] = field(repr=False)
    writes = True
    empty = list

    def __call__(self, session: Session) -> list[Refused]:
        try:
            with session.savepoint():
                if self._all_unchanged(session):
                    Writer(session, self.collection).rewrite_batch(self.upgraded)
                    return []
        except TransactionConflict:
            pass  # one was changed meanwhile
        except session.database.errors.types() as error:
            if not isinstance(session.database.errors.translate(error), UniqueViolated):
                raise
        return list(self._one_by_one(session))

    def _all_unchanged(self, session: Session) -> bool:
        """Lock the documents, and return whether all are unchanged since the read."""
        ids = [each.id for each, _ in self.upgraded]
        statements = session.collection(self.collection).by_id
        rows: list[Row] = session.lock(statements, statements.lock_many, ids)
        found = {(row[0], row[2], row[3]) for row in rows}
        return found >= {(each.id, each.version, each.created_us) for each, _ in self.upgraded}

    def _one_by_one(self, session: Session) -> Iterable[Refused]:
        for document, text in self.upgraded:
            try:
                attempt(session, Rewrite(self.collection, document, text))
            except CollectionsStoreError as error:
                if isinstance(error, TransactionConflict):
                    raise
                yield document.id, error


@value_class
class Quarantine(Operation[bool]):
    """Move a document to another collection, under the same id; returns False if the document was changed since the
    read. Raises `DuplicateKey` if the target has a document of this id.
    """

    collection: str
    target: str
    document: Document
    text: str = field(repr=False)
    writes = True
    creates_collection = True

    @property
    def collections(self) -> tuple[str, ...]:
        return self.collection, self.target

    def __call__(self, session: Session) -> bool:
        expires = self.document.expires_us
        ttl = None if expires is None else max(1, expires - now())
        session.collection(self.target)  # it is created before anything is removed
        if not Writer(session, self.collection).remove_document(self.document):
            return False
        Insert(self.target, self.document.id, self.text, ttl, unique=True)(session)
        return True
