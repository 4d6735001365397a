"""Bulk writes: batches of documents, and different writes in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ..document import BulkWriteResult, DeleteResult, PutManyResult, Refusal, UpdateResult
from ..errors import CollectionsStoreError, TransactionConflict, VersionConflict
from ..query.values import value_class
from ..sql.dialects.protocols import UniqueViolated
from .by_id import Insert, Put, id_taken
from .catalogue import CollectionAbsent
from .combine import attempt
from .connection import as_lists
from .operation import Operation, Written
from .read import BATCH_CHARACTERS
from .write import MAX_ATTEMPTS, NeedsTransaction, Writer, lifetime

if TYPE_CHECKING:
    from .connection import Connection, Row


Mode: TypeAlias = Literal["replace", "insert", "ignore", "if_version"]
MAX_ROWS: Final = 1000
"""Objects of a batch, at most."""


class Given(NamedTuple):
    """An object to write: its place among all that are given, and the version that is expected to be
    there; None: none is.
    """

    position: int
    id: str
    text: str
    expected: int | None = None


@value_class
class PutBatch(Operation[PutManyResult]):
    """Write objects with different ids, in their order; `strict` raises what is refused."""

    collection: str
    given: tuple[Given, ...] = field(repr=False)
    mode: Mode = "replace"
    ttl: int | None = None
    strict: bool = False
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    writes = True
    creates_collection = True

    def __call__(self, connection: Connection) -> PutManyResult:
        writer = Writer(connection, self.collection)
        result = PutManyResult()
        rest: Sequence[Given] = self.given
        for _ in range(MAX_ATTEMPTS):
            step, rest = self._attempt(connection, writer, rest)
            result += step
            if not rest:
                return result
        raise TransactionConflict("the objects come and go by the hands of others")

    def _attempt(
        self, connection: Connection, writer: Writer, given: Sequence[Given]
    ) -> tuple[PutManyResult, Sequence[Given]]:
        """Write objects, all by one moment; gives also those that others put meanwhile."""
        ids, life = [each.id for each in given], lifetime(self.ttl, writer.statements.options.ttl)
        [(some,)] = connection.rows(writer.statements.by_id.has_expired, {"now": life["now"]})
        if some:
            writer.purge(ids, life["now"])
        if self.mode == "replace" and writer.may_overwrite_blindly:
            return self._written_over(connection, writer, given, life), ()
        there = self._there(connection, ids, writer, life["now"])
        wanted, refused, unchanged = self._chosen(given, there)
        self._written.clear()
        self._written.update((each.id, each.text) for each in wanted)
        old = [each for each in wanted if each.id in there]
        new = [each for each in wanted if each.id not in there]
        _replace(connection, writer, old, life)
        inserted = _insert(connection, writer, new, life)
        for each in wanted:
            version, before = there.get(each.id, (0, None))
            if version or each.id in inserted:
                kind = "update" if version else "insert"
                writer.record(kind, each.id, version + 1, before, each.text)
        result = PutManyResult(len(inserted), len(old), unchanged, tuple(refused))
        return result, [each for each in new if each.id not in inserted]

    def _written_over(
        self, connection: Connection, writer: Writer, given: Sequence[Given], life: dict[str, Any]
    ) -> PutManyResult:
        """Write objects over whatever is there: new ones are those whose places come after all others."""
        self._written.clear()
        self._written.update((each.id, each.text) for each in given)
        sql = writer.statements.by_id
        [(last,)] = connection.rows(sql.last_position)
        if connection.changed_many(sql.put_batch, _rows(given), life) != len(given):
            raise TransactionConflict("others write in this transaction too")
        [(new,)] = connection.rows(sql.count_after, {"seq": last})
        return PutManyResult(new, len(given) - new)

    def written(self, _: Connection) -> Written:
        return self._written.items()

    def one_by_one(self) -> Iterator[PutBatch]:
        """Yield a batch for each of the objects."""
        for each in self.given:
            yield PutBatch(self.collection, (each,), self.mode, self.ttl)

    def _there(
        self, connection: Connection, ids: list[str], writer: Writer, time: int
    ) -> dict[str, Row]:
        """Return version and, if it is asked for, the text of what is there."""
        listed = {"ids": connection.database.compiler.list_parameter(ids), "now": time}
        sql = writer.statements.by_id
        rows = connection.rows(sql.bodies if writer.keeps_before else sql.versions, listed)
        return {row[0]: row[1:] for row in rows}

    def _chosen(
        self, given: Sequence[Given], there: dict[str, Row]
    ) -> tuple[list[Given], list[Refusal], int]:
        """Return what shall be written, what is refused, and how many are left as they are."""
        wanted: list[Given] = []
        refused: list[Refusal] = []
        for each in given:
            error = self._problem(each, there[each.id][0] if each.id in there else None)
            if error is not None and self.strict:
                raise error
            if error is not None:
                refused.append(Refusal(each.position, each.id, error))
            elif self.mode != "ignore" or each.id not in there:
                wanted.append(each)
        return wanted, refused, len(given) - len(wanted) - len(refused)

    def _problem(self, given: Given, found: int | None) -> CollectionsStoreError | None:
        if self.mode == "insert" and found is not None:
            return id_taken(self.collection, given.id)
        if self.mode == "if_version" and found != given.expected:
            return VersionConflict(self.collection, given.id, given.expected, found)
        return None


def _replace(
    connection: Connection, writer: Writer, given: list[Given], life: dict[str, Any]
) -> None:
    """Write in the places of objects that nobody else changes."""
    sql = writer.statements.by_id
    if given and connection.changed_many(sql.put_batch, _rows(given), life) != len(given):
        raise TransactionConflict("some of the objects are gone")


def _insert(
    connection: Connection, writer: Writer, given: list[Given], life: dict[str, Any]
) -> set[str]:
    """Write new objects in the database's fastest way; gives the ids of those that others did not put
    meanwhile.
    """
    sql = writer.statements.by_id
    if not given:
        return set()
    if connection.database.takes_lists:
        return {
            id for (id,) in connection.rows(sql.insert_lists, {**as_lists(_rows(given)), **life})
        }
    if connection.changed_many(sql.insert_batch, _rows(given), life) != len(given):
        raise TransactionConflict("others write in this transaction too")
    return {each.id for each in given}


def _rows(given: Iterable[Given]) -> list[dict[str, Any]]:
    return [{"id": each.id, "body": each.text} for each in given]


def batches(given: Iterable[Given]) -> Iterator[tuple[Given, ...]]:
    """Yield objects in batches of about `BATCH_CHARACTERS` at most; an id comes once in each."""
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
    """Yield the places of operations, in their order: each by itself, or several that put under different ids of
    a collection, one after the other.
    """
    some: list[int] = []
    ids: set[str] = set()
    kind: tuple[Any, ...] = ()
    for place, operation in enumerate(operations):
        is_put = type(operation) is Put
        its = (operation.collection, operation.ttl) if is_put else ()
        if some and (its != kind or not its or operation.id in ids):
            yield some
            some, ids = [], set()
        some.append(place)
        kind = its
        if is_put:
            ids.add(operation.id)
    if some:
        yield some


@value_class
class PutListed(Operation[list[int | None]]):
    """Do what several puts under different ids of a collection do, in one statement, where the database takes lists;
    gives the versions, or None where what has expired is in the way.
    """

    puts: tuple[Put, ...] = field(repr=False)
    writes = True
    atomic = True

    @property
    def collection(self) -> str:
        """The collection of all."""
        return self.puts[0].collection

    creates_collection = True

    def __call__(self, connection: Connection) -> list[int | None]:
        writer = Writer(connection, self.collection)
        if writer.statements.feed is not None:
            raise NeedsTransaction(f"collection {self.collection}: each change is recorded")
        ids, texts = [each.id for each in self.puts], [each.text for each in self.puts]
        lists = {
            "id": ids,
            "body": texts,
            **lifetime(self.puts[0].ttl, writer.statements.options.ttl),
        }
        versions: dict[str, int] = dict(connection.rows(writer.statements.by_id.put_lists, lists))
        return [versions.get(id) for id in ids]


Part: TypeAlias = tuple[int, Any]
"""A request's position among all, and the operation that it is."""


@value_class
class BulkBatch(Operation[BulkWriteResult]):
    """Do several operations on a collection; `ordered`: the first one that is refused is the last."""

    collection: str
    parts: tuple[Part, ...] = field(repr=False)
    ordered: bool = True
    strict: bool = False
    writes = True
    creates_collection = True

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
        except connection.database.errors.types() as error:
            if isinstance(connection.database.errors.translate(error), UniqueViolated):
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
