"""Bulk writes: batches of documents, and different writes in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ..errors import CollectionsStoreError, Refusal, TransactionConflict, VersionConflict
from ..expressions.classes import value_class
from ..results import (
    BulkWriteResult,
    DeleteResult,
    PutManyResult,
    UpdateResult,
)
from ..sql.by_id import IdStatements
from ..sql.dialects.protocols import UniqueViolated
from .by_id import AtomicWrite, Insert, Purge, Put, id_taken
from .catalogue import CollectionAbsent
from .connection import Row
from .indexes import duplicate_of
from .operation import Operation, Steps, Written, follow
from .read import BATCH_CHARACTERS
from .session import Session
from .write import MAX_ATTEMPTS, Lifetime, NeedsTransaction, Writer, lifetime, named

Mode: TypeAlias = Literal["replace", "insert", "ignore", "if_version"]
MAX_SINGLE: Final = 3
"""Inserts of a bulk write that take fewer statements alone than together."""
MAX_ROWS: Final = 1000
"""Documents of a batch, at most."""


class Given(NamedTuple):
    """A document to write: the position in the call, and the expected version, None if any version will do.

    `created`: the creation time of the expected document; None if any will do.
    """

    position: int
    id: str
    text: str
    expected: int | None = None
    created: int | None = None

    def expects(self, row: Row | None) -> bool:
        """Return whether the version and the creation time of a row, or None, are as expected."""
        if row is None or self.expected is None:
            return row is None and self.expected is None
        return row[0] == self.expected and self.created in {None, row[2]}


@value_class
class PutBatch(Operation[PutManyResult]):
    """Write documents with different ids, in their order; `strict`: raise the first refusal."""

    collection: str
    given: tuple[Given, ...] = field(repr=False)
    mode: Mode = "replace"
    ttl: int | None = None
    strict: bool = False
    method: str = field(default="put_many", repr=False)
    _written: list[Given] = field(default_factory=list, repr=False)
    writes = True
    begins = True
    creates_collection = True

    def __call__(self, session: Session) -> PutManyResult:
        writer = Writer(session, self.collection)
        result, rest = PutManyResult(), self.given
        if self.mode == "replace" and writer.may_put_lists:
            result, rest = self._put_lists(session, writer)
            if not rest:
                return result
        with session.transaction(write=True):
            return self._put(session, writer, result, rest)

    def _put_lists(
        self, session: Session, writer: Writer
    ) -> tuple[PutManyResult, tuple[Given, ...]]:
        """Write all documents by one statement; return also the unwritten documents: usually none, but all if an
        expired document is in the way.
        """
        self._written[:] = self.given
        life = lifetime(self.ttl, writer.statements.options.ttl)
        sql = writer.statements.by_id.put_whole_lists
        versions = dict(
            session.committed_rows(sql, _lists(writer.statements.by_id, self.given, life))
        )
        new = list(versions.values()).count(1)
        result = PutManyResult(new, len(versions) - new)
        if len(versions) == len(self.given):
            return result, ()
        return result, tuple(each for each in self.given if each.id not in versions)

    def _put(
        self,
        session: Session,
        writer: Writer,
        result: PutManyResult,
        rest: Sequence[Given],
    ) -> PutManyResult:
        for _ in range(MAX_ATTEMPTS):
            step, rest = self._attempt(session, writer, rest)
            result += step
            if not rest:
                return result
        raise TransactionConflict(
            f"others inserted and deleted the documents in each of {MAX_ATTEMPTS} attempts"
        )

    def written(self, _: Session) -> Written:
        return ((each.id, each.text) for each in self._written)

    def one_by_one(self) -> Iterator[PutBatch]:
        """Yield a batch for each of the documents."""
        for each in self.given:
            yield PutBatch(self.collection, (each,), self.mode, self.ttl, method=self.method)

    def _attempt(
        self, session: Session, writer: Writer, given: Sequence[Given]
    ) -> tuple[PutManyResult, Sequence[Given]]:
        """Write documents at the same moment; return also the documents that another writer inserted meanwhile."""
        life = lifetime(self.ttl, writer.statements.options.ttl)
        if self.mode == "replace" and writer.may_overwrite_blindly:
            return self._overwrite(session, writer, given, life), ()
        there = _there(session, writer, [each.id for each in given], life[0])
        accepted, refused = self._accepted(given, there)
        self._written[:] = accepted
        inserted = _write(session, writer, accepted, there, life)
        for each in accepted:
            version, before, _ = there.get(each.id, (0, None, None))
            if version or each.id in inserted:
                kind = "update" if version else "insert"
                writer.record(kind, each.id, version + 1, before, each.text)
        missed = [each for each in accepted if each.id not in there and each.id not in inserted]
        replaced = len(accepted) - len(missed) - len(inserted)
        unchanged = len(given) - len(accepted) - len(refused)
        return PutManyResult(len(inserted), replaced, unchanged, tuple(refused)), missed

    def _overwrite(
        self, session: Session, writer: Writer, given: Sequence[Given], life: Lifetime
    ) -> PutManyResult:
        """Write documents without reading first; new documents get positions after the last old position."""
        self._written[:] = given
        sql = writer.statements.by_id
        if session.rows(sql.has_expired, {"now": life[0]}):
            writer.purge([each.id for each in given], life[0])
        [(last,)] = session.rows(sql.last_position)
        _upsert(session, writer, given, life)
        [(new,)] = session.rows(sql.count_after, {"seq": last})
        return PutManyResult(new, len(given) - new)

    def _accepted(
        self, given: Sequence[Given], there: dict[str, Row]
    ) -> tuple[list[Given], list[Refusal]]:
        """Return the documents to write, and the refusals."""
        accepted: list[Given] = []
        refused: list[Refusal] = []
        for each in given:
            row = there.get(each.id)
            found = None if row is None else row[0]
            error: CollectionsStoreError | None = None
            if self.mode == "insert" and found is not None:
                error = id_taken(self.collection, each.id)
            elif self.mode == "if_version" and not each.expects(row):
                error = VersionConflict(self.collection, each.id, each.expected, found)
            if error is not None and self.strict:
                raise error
            if error is not None:
                refused.append(Refusal(each.position, each.id, error))
            elif self.mode != "ignore" or found is None:
                accepted.append(each)
        return accepted, refused


def _there(session: Session, writer: Writer, ids: Sequence[str], time: int) -> dict[str, Row]:
    """Lock the documents under ids, and delete those that have expired; returns the version, the old body to record, and
    the creation time of the others.
    """
    sql = writer.statements.by_id
    rows = session.lock(sql, sql.bodies if writer.keeps_before else sql.versions, ids, time)
    expired = [id for id, *_, has_expired in rows if has_expired]
    if expired:
        writer.purge(expired, time)
    return {id: its for id, *its, has_expired in rows if not has_expired}


def _write(
    session: Session,
    writer: Writer,
    given: Sequence[Given],
    there: Mapping[str, Any],
    life: Lifetime,
) -> set[str]:
    """Write documents in the database's fastest way; returns the ids of the inserted documents."""
    if session.database.single_writer:  # nobody inserts meanwhile
        _upsert(session, writer, given, life)
        return {each.id for each in given if each.id not in there}
    inserted: set[str] = set()
    sql = writer.statements.by_id
    for is_old, run in _old_and_new(given, there, in_order=writer.statements.can_refuse):
        if is_old:
            _upsert(session, writer, run, life)
        else:
            rows = session.rows(sql.insert_lists, _lists(sql, run, life))
            inserted.update(id for (id,) in rows)
    return inserted


def _old_and_new(
    given: Sequence[Given], there: Mapping[str, Any], *, in_order: bool
) -> Iterator[tuple[bool, list[Given]]]:
    """Yield runs of documents that exist, and of new ones; `in_order`: a unique index sees each document in its turn."""
    is_old = lambda each: each.id in there  # noqa: E731
    ordered = given if in_order else sorted(given, key=is_old, reverse=True)
    return ((kind, list(run)) for kind, run in groupby(ordered, is_old))


def _upsert(session: Session, writer: Writer, given: Sequence[Given], life: Lifetime) -> None:
    """Upsert documents in the database's fastest way."""
    sql = writer.statements.by_id
    if session.database.takes_lists:
        count = session.changed(sql.replace_lists, _lists(sql, given, life))
    else:
        count = session.changed_each(sql.put_each, _rows(session, given, life))
    if count != len(given):
        raise TransactionConflict("others changed some of the documents at the same time")


def _rows(session: Session, given: Sequence[Given], life: Lifetime) -> list[Any]:
    row, (time, _, ttl) = session.database.compiler.row, life
    return [row(each.id, each.text, time, ttl) for each in given]


def _lists(sql: IdStatements, given: Sequence[Given | Put], life: Lifetime) -> dict[str, Any]:
    lists = {"id": [each.id for each in given], "body": [sql.text(each.text) for each in given]}
    return {**lists, **named(life)}


def batches(given: Iterable[Given]) -> Iterator[tuple[Given, ...]]:
    """Yield documents in batches of about `BATCH_CHARACTERS` at most, each with different ids."""
    batch: dict[str, Given] = {}
    characters = 0
    for each in given:
        full = len(batch) == MAX_ROWS or characters > BATCH_CHARACTERS
        if full or each.id in batch:
            yield tuple(batch.values())
            batch, characters = {}, 0
        batch[each.id] = each
        characters += len(each.text)
    if batch:
        yield tuple(batch.values())


def puts_together(operations: Sequence[Any]) -> Iterator[list[int]]:
    """Yield the indices of operations, in their order: each alone, but consecutive `Put`s with the same collection and
    time to live and different ids together.
    """
    some: list[int] = []
    ids: set[str] = set()
    kind: tuple[Any, ...] = ()
    for index, operation in enumerate(operations):
        is_put = type(operation) is Put
        its = (operation.collection, operation.ttl) if is_put else ()
        if some and (not is_put or its != kind or operation.id in ids):
            yield some
            some, ids = [], set()
        some.append(index)
        kind = its
        if is_put:
            ids.add(operation.id)
    if some:
        yield some


@value_class
class PutListed(AtomicWrite[list[int | None]]):
    """Do several puts under different ids of a collection in a single statement, where the database takes lists;
    returns the versions, None where an expired document is in the way.
    """

    puts: tuple[Put, ...] = field(repr=False)
    creates_collection = True

    @property
    def collection(self) -> str:
        """The collection of all puts."""
        return self.puts[0].collection

    def __call__(self, session: Session) -> list[int | None]:
        statements = session.collection(self.collection)
        if statements.feed is not None:
            raise NeedsTransaction(f"collection {self.collection}: each change is recorded")
        life = lifetime(self.puts[0].ttl, statements.options.ttl)
        rows = session.rows(statements.by_id.put_lists, _lists(statements.by_id, self.puts, life))
        versions: dict[str, int] = dict(rows)
        return [versions.get(each.id) for each in self.puts]


Part: TypeAlias = tuple[int, Any]
"""The position of a write request among all, and its operation."""


@value_class
class BulkBatch(Operation[BulkWriteResult]):
    """Do several operations on a collection. `ordered`: stop at the first refusal; `strict`: raise the refusal, and the
    transaction is rolled back. A strict batch needs savepoints only for unique indexes, to find the duplicate of a
    refused document.
    """

    collection: str
    parts: tuple[Part, ...] = field(repr=False)
    ordered: bool = True
    strict: bool = False
    method = "bulk_write"
    writes = True
    creates_collection = True

    def __call__(self, session: Session) -> BulkWriteResult:
        statements = session.collection(self.collection)
        result = BulkWriteResult()
        if self.strict and not statements.can_refuse:
            few, do = MAX_SINGLE, unguarded
        else:
            few, do = 1, attempt
        for run in _runs(self.parts):
            step = self._inserted(session, run) if len(run) > few else None
            result += self._one_by_one(session, run, do) if step is None else step
            if self.ordered and result.refused:
                break
        return result

    def _inserted(self, session: Session, run: list[Part]) -> BulkWriteResult | None:
        """Insert many documents at once; return None on a refusal, for the caller to insert each document alone."""
        given = tuple(Given(position, each.id, each.text) for position, each in run)
        batch = PutBatch(self.collection, given, "insert", run[0][1].ttl)
        try:
            with session.savepoint():
                done = batch(session)
                if done.refused and (self.ordered or self.strict):
                    raise _Refused
        except _Refused:
            return None
        except session.database.errors.types() as error:
            if isinstance(session.database.errors.translate(error), UniqueViolated):
                return None
            raise
        refused = {each.position for each in done.refused}
        ids = {position: each.id for position, each in run if position not in refused}
        return BulkWriteResult(len(ids), inserted_ids=ids, refused=done.refused)

    def _one_by_one(
        self, session: Session, run: list[Part], do: Callable[[Session, Any], Any]
    ) -> BulkWriteResult:
        result = BulkWriteResult()
        for position, operation in run:
            try:
                result += _counted(position, operation, do(session, operation))
            except CollectionsStoreError as error:
                if self.strict or isinstance(error, CollectionAbsent | TransactionConflict):
                    raise
                id = operation.id if isinstance(operation, Insert) else None
                result += BulkWriteResult(refused=(Refusal(position, id, error),))
                if self.ordered:
                    break
        return result


class _Refused(Exception):
    """A document of the batch cannot be inserted."""


def _runs(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the operations; inserts that a single statement can do come together."""
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


def _counted(position: int, operation: Any, result: Any) -> BulkWriteResult:
    match result:
        case UpdateResult(matched, modified, None):
            return BulkWriteResult(matched_count=matched, modified_count=modified)
        case UpdateResult(_, _, str(id)):
            return BulkWriteResult(upserted_ids={position: id})
        case DeleteResult(deleted):
            return BulkWriteResult(deleted_count=deleted)
    assert isinstance(operation, Insert)  # which returns the version
    return BulkWriteResult(1, inserted_ids={position: operation.id})


@value_class
class Together(Operation[Any]):
    """Run steps in one transaction. Each attempt calls `begin` for the steps; `prepare` replaces operations."""

    collection: str
    begin: Callable[[], Steps[Any]] = field(repr=False)
    method: str = field(repr=False)
    prepare: Callable[[Any], Any] = field(default=lambda operation: operation, repr=False)
    writes = True
    creates_collection = True

    def __call__(self, session: Session) -> Any:
        session.collection(self.collection)  # before anything is read that cannot be read again

        def run(step: Any) -> Any:
            operation = self.prepare(step)
            is_attempted = isinstance(operation, BulkBatch)  # each of its operations is
            return operation(session) if is_attempted else attempt(session, operation)

        return follow(run, self.begin())


def unguarded(session: Session, operation: Any) -> Any:
    """Run an operation of a transaction on a collection without unique indexes; a failure ends the transaction."""
    try:
        return operation(session)
    except session.database.errors.types() as error:
        if isinstance(session.database.errors.translate(error), UniqueViolated):
            session.catalogue.forget(operation.collection)  # another process created an index
            raise TransactionConflict(f"{operation.collection}: it has another index") from error
        raise


def attempt(session: Session, operation: Any) -> Any:
    """Run an operation of a transaction; a failure undoes only this operation."""
    while True:
        try:
            with session.savepoint():
                return operation(session)
        except session.database.errors.types() as error:
            violated = session.database.errors.translate(error)
            if not isinstance(violated, UniqueViolated):
                raise
            if Purge(operation.collection)(session):
                continue  # an expired document was in the way
            duplicate = duplicate_of(operation, violated.physical)(session)
            raise duplicate or TransactionConflict(str(violated)) from error
