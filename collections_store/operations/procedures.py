"""Methods of several operations, each written once for sync and async.

A procedure is a generator: it yields operations, receives their results, and returns the result of the method. A
procedure may also yield a `Pause` or a `CallFunction`, done differently by sync and async.

An iterable of the caller's may do anything, even use the store. While a `CallFunction` reads a chunk (`Chunks`), no
lock is held and no transaction is open. For a single transaction the whole iterable is read first: many values wait in
a temporary file (`Spool`), to be read again if the transaction is repeated.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain, islice, starmap
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

from ..codec import Codec, decode
from ..document import (
    Document,
    InsertOne,
    check_id,
    new_id,
)
from ..errors import (
    BulkWriteError,
    CollectionsStoreError,
    DocumentNotFound,
    DuplicateKey,
    InvalidBody,
    InvalidId,
    Outcome,
    Refusal,
    VersionConflict,
    note_outcome,
    shortened,
)
from ..expressions.classes import value_class
from ..options import CallContext, Settings, check_choice, check_version
from ..options.calls import PLAIN
from ..query.index import Index
from ..results import (
    BulkWriteResult,
    InsertManyResult,
    Invalid,
    PutManyResult,
    R,
    extended,
    in_order,
)
from .bulk import MAX_ROWS, BulkBatch, Given, Mode, PutBatch, Together, batches
from .by_id import GetDocument, Insert, Purge, Rewrite, written_body
from .called import called
from .changes import HasPrunable, Prune
from .collections import AS_IT_IS, Configure
from .dated import HasDated, PurgeDated
from .indexes import CreateIndex, DeclareVersion, IsDeclared, ListIndexes
from .operation import Operation, Steps
from .size import SMALL, room_left
from .update import current

T = TypeVar("T")
Batch: TypeAlias = tuple[Given, ...]
ReadRequest: TypeAlias = tuple[int, Any]
"""The position of a write request, and its operation or its `Refusal`."""
SPOOL_MEMORY: Final = 8 * 2**20
"""Bytes of a spool in memory; a larger spool is a temporary file."""
CHUNK: Final = 2**21
"""Bytes of the caller's values in a chunk; a single value may be larger."""
_MODES: Final = get_args(Mode)
_GIVEN: Final = 200
"""Bytes of a document to write, beside its id and text."""
BULK_BATCH: Final = 500
"""Write requests of a batch."""
MAX_EXCLUDED: Final = 3
"""Refusals of a unique index in a batch, before each document is written alone."""
ATTEMPTS: Final = 1000
"""Attempts of `change`, by default."""
MAX_PAUSE: Final = 0.1
"""Seconds between two attempts."""


@value_class
class Pause:
    """Wait for some seconds."""

    seconds: float


@value_class
class CallFunction:
    """Call the caller's function; in an event loop call `in_loop` instead, if given, which takes less time."""

    function: Callable[[Any], Any]
    argument: Any
    in_loop: Callable[[Any], Any] | None = None


class Chunks(Generic[T]):
    """An iterable of the caller's, read and converted in chunks: up to `most` values, and about `CHUNK` bytes of values
    that are not in memory yet; `size` returns the bytes of a converted value.

    An iterable may change yielded values, such as a body that is filled repeatedly. Each value is converted before the
    next is read; a list, a tuple or a dict changes nothing.
    """

    def __init__(
        self, values: Any, most: int, convert: Callable[[int, Any], T], size: Callable[[T], int]
    ) -> None:
        self._in_memory = type(values) in {list, tuple, dict}
        self._values = values.items() if isinstance(values, Mapping) else values
        self._most, self._convert, self._size = most, convert, size
        self._iterator: Iterator[tuple[int, Any]] | None = None
        self._ended = False

    def has_more(self) -> bool:
        """Return whether the end was not reached yet."""
        return not self._ended

    def next(self) -> Steps[list[T]]:
        """Return the next values, converted; none at the end."""
        if self._in_memory:
            found = yield CallFunction(self._next, self._most)
            return list(starmap(self._convert, found))
        chunk: list[T] = []
        room = CHUNK
        while self.has_more() and len(chunk) < self._most and room > 0:
            large, used = yield CallFunction(self._read, chunk, self._read_small)
            chunk.extend(starmap(self._convert, large))
            room = room_left(large, room - used)
        return chunk

    def _read(self, chunk: list[T]) -> tuple[list[tuple[int, Any]], int]:
        """Add values to a chunk until the chunk is full. Return no more values, and the bytes of a full chunk."""
        room, convert, size = CHUNK, self._convert, self._size
        for position, value in islice(self._positions(), self._most - len(chunk)):
            converted = convert(position, value)
            chunk.append(converted)
            room -= size(converted)
            if room <= 0:
                return [], CHUNK
        self._ended = len(chunk) < self._most
        return [], CHUNK

    def _read_small(self, chunk: list[T]) -> tuple[list[tuple[int, Any]], int]:
        """Add values to a chunk as long as their total is small. Return the value that is too large, with its position,
        for conversion outside of this call: async calls run in another thread. Return also the bytes added.
        """
        room = SMALL
        while len(chunk) < self._most and (found := self._next(1)):
            room = room_left(found, room)
            if room < 0:
                return found, SMALL
            chunk.extend(starmap(self._convert, found))
        return [], SMALL

    def _next(self, count: int) -> list[tuple[int, Any]]:
        """Return the next values with their positions."""
        found = list(islice(self._positions(), count))
        self._ended = len(found) < count
        return found

    def _positions(self) -> Iterator[tuple[int, Any]]:
        if self._iterator is None:
            self._iterator = enumerate(self._values)
        return self._iterator


class Spool(Generic[T]):
    """Values in the order of reading. The first value, usually the only value, stays in memory as is."""

    def __init__(self) -> None:
        self._first: list[T] = []
        self._file: Any = None
        self._count = 0

    def append(self, value: T) -> None:
        self._count += 1
        if self._count == 1:
            self._first.append(value)
            return
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_MEMORY)  # noqa: SIM115
        pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        yield from self._first
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self._count - 1):
                yield pickle.load(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class RequestSpool:
    """Chunks of write requests in the order of reading. Inserts are in a `Spool`; other operations, which hold values of
    the caller's, stay in memory.
    """

    def __init__(self) -> None:
        self._inserts: Spool[list[ReadRequest | None]] = Spool()
        self._others: list[list[ReadRequest]] = []

    def append(self, chunk: list[ReadRequest]) -> None:
        self._inserts.append([each if type(each[1]) is Insert else None for each in chunk])
        self._others.append([each for each in chunk if type(each[1]) is not Insert])

    def __iter__(self) -> Iterator[list[ReadRequest]]:
        for chunk, others in zip(self._inserts, self._others, strict=True):
            rest = iter(others)
            yield [next(rest) if each is None else each for each in chunk]

    def close(self) -> None:
        self._inserts.close()


@value_class
class Writing:
    """How many documents are written by `put_many` and `insert_many`."""

    collection: str
    codec: Codec
    mode: Mode = "replace"
    ttl: int | None = None
    atomic: bool = False
    method: str = "put_many"

    def put(self, bodies: Any) -> Steps[PutManyResult]:
        """Write bodies from any iterable, in batches or all at once."""
        result = yield from self._written(bodies, None)
        if result.refused:
            raise BulkWriteError(self.collection, result)
        return result

    def insert(self, bodies: Any) -> Steps[InsertManyResult]:
        """Insert bodies; returns their ids."""
        ids: list[str] = []
        result = yield from self._written(bodies, ids)
        if result.refused:
            refused = {each.position for each in result.refused}
            inserted = {n: id for n, id in enumerate(ids) if n not in refused}
            done = BulkWriteResult(len(inserted), inserted_ids=inserted, refused=result.refused)
            raise BulkWriteError(self.collection, done)
        return InsertManyResult(tuple(ids))

    def _written(self, bodies: Any, ids: list[str] | None) -> Steps[PutManyResult]:
        """Write bodies; append the ids of inserted bodies to `ids`."""
        refused: list[Refusal] = []
        has_ids = ids is None or isinstance(bodies, Mapping)
        given = partial(self._given, refused, ids, has_ids)
        chunks = Chunks(bodies, MAX_ROWS, given, _size_of_given)
        if self.atomic:
            return (yield from self._write_atomically(chunks))
        return (yield from self._write_chunks(chunks, refused))

    def _write_chunks(
        self, chunks: Chunks[Given | None], refused: list[Refusal]
    ) -> Steps[PutManyResult]:
        parts: list[PutManyResult] = []
        is_last = False
        try:
            while chunks.has_more():
                some = list(batches(filter(None, (yield from chunks.next()))))
                for number, batch in enumerate(some, 1):
                    is_last = number == len(some) and not chunks.has_more()
                    yield from self._write_batch(self._operation(batch), parts)
        except BaseException as error:
            _note_part(error, self.collection, _total(parts), ended=is_last)
            raise
        return in_order(_total(parts) + PutManyResult(refused=tuple(refused)))

    def _write_atomically(self, chunks: Chunks[Given | None]) -> Steps[PutManyResult]:
        """Write all or none: a single batch is atomic by itself."""
        spool: Spool[Batch] = Spool()
        with closing(spool):
            while chunks.has_more():
                for batch in batches(filter(None, (yield from chunks.next()))):
                    spool.append(batch)
            if len(spool) < 2:
                return (yield from self._write_batches(spool))
            steps = Together(self.collection, lambda: self._write_batches(spool), self.method)
            result: PutManyResult = yield steps
            return result

    def _write_batches(self, read: Iterable[Batch]) -> Steps[PutManyResult]:
        parts: list[PutManyResult] = []
        for batch in read:
            yield from self._write_batch(self._operation(batch), parts)
        return in_order(_total(parts))

    def _write_batch(self, batch: PutBatch, parts: list[PutManyResult]) -> Steps[None]:
        """Write a batch without the documents that an index refuses; append each partial result."""
        for _ in range(MAX_EXCLUDED):
            try:
                parts.append((yield batch))
                return
            except (DuplicateKey, InvalidBody) as error:
                refused = [each for each in batch.given if each.id == error.id]
                if self.atomic or not refused:
                    raise
                parts.append(_refusal(refused[0], error))
                batch = self._operation(tuple(e for e in batch.given if e is not refused[0]))
        for one in batch.one_by_one():
            try:
                parts.append((yield one))
            except (DuplicateKey, InvalidBody) as error:
                parts.append(_refusal(one.given[0], error))

    def _operation(self, batch: Batch) -> PutBatch:
        return PutBatch(self.collection, batch, self.mode, self.ttl, self.atomic, self.method)

    def _given(
        self,
        refused: list[Refusal],
        ids: list[str] | None,
        has_ids: bool,
        position: int,
        value: Any,
    ) -> Given | None:
        """Return a document, with a new id unless the caller `has_ids`; refuse an invalid document, or raise."""
        if not has_ids:
            value = new_id(), value
        if ids is not None:
            ids.append(value[0])
        try:
            if type(value) is tuple and len(value) == 2 and self.mode != "if_version":
                id, body, expected = *value, None  # the usual, sooner
            else:
                id, body, expected = self._parts(value)
            text = self.codec.encode_body(body) if has_ids else encoded(self.codec, body)
            if isinstance(expected, Document):
                return Given(position, check_id(id), text, expected.version, expected.created_us)
            return Given(position, check_id(id), text, expected)
        except CollectionsStoreError as error:
            first = value[0] if isinstance(value, tuple | list) and value else None
            id = first if isinstance(first, str) else None
            if self.atomic:
                error.add_note(f"of the document {shortened(id)}")
                raise
            refused.append(Refusal(position, id, error))
            return None

    def _parts(self, given: Any) -> tuple[Any, Any, int | Document | None]:
        """Return id, body and expectation; raises `InvalidId`, and `InvalidOption` of a version."""
        parts = given if isinstance(given, (tuple, list)) else ()
        if self.mode != "if_version":
            if len(parts) == 2:
                return parts[0], parts[1], None
        elif len(parts) == 3:
            id, body, expected = parts
            is_read = isinstance(expected, Document) and expected.id == id
            return id, body, expected if is_read else check_version(expected)
        triples = "triples of an id, a body and a version or a Document (None: no document)"
        wanted = triples if self.mode == "if_version" else "pairs of an id and a body"
        raise InvalidId(given, f"give {wanted}")


def _size_of_given(given: Given | None) -> int:
    return _GIVEN if given is None else _GIVEN + len(given.id) + len(given.text)


def _size_of(value: Any) -> int:
    return CHUNK - room_left((value,), CHUNK)


def encoded(codec: Codec, body: Any) -> str:
    """Return the text of a body without an id; raise `InvalidBody`, also for a field `_id` that stands for the id."""
    text = codec.encode_body(body)
    if '"_id"' in text:
        plain = decode(text)
        if isinstance(plain, dict) and "_id" in plain:
            problem = f"the id is a string beside the body, got {shortened(plain['_id'])} in it"
            call = "insert_one(body, id=…) or insert_many({id: body, …})"
            raise InvalidBody("_id", f"{problem}: write {call}")
    return text


def bulk_write(
    collection: str,
    parse: Callable[[Any], Operation[Any]],
    requests: Iterable[Any],
    call: CallContext,
    *,
    ordered: bool,
    atomic: bool,
) -> Steps[BulkWriteResult]:
    """Execute write requests in batches, or all at once; `parse` returns the operation of a request."""

    def parsed(position: int, request: Any) -> ReadRequest:
        try:
            return position, parse(request)
        except CollectionsStoreError as error:
            id = request.id if isinstance(request, InsertOne) else None
            return position, Refusal(position, id, error)

    chunks = Chunks(requests, BULK_BATCH, parsed, _size_of)
    if atomic:
        with closing(RequestSpool()) as read:  # all, before anything is locked
            while chunks.has_more():
                read.append((yield from chunks.next()))
            steps = partial(_bulk_write, collection, read, ordered=ordered)
            result: BulkWriteResult = yield called(Together(collection, steps, "bulk_write"), call)
    else:
        result = yield from _bulk_chunks(collection, chunks, call, ordered=ordered)
    if result.refused:
        raise BulkWriteError(collection, in_order(result))
    return result


def _bulk_write(
    collection: str, read: Iterable[Sequence[ReadRequest]], *, ordered: bool
) -> Steps[BulkWriteResult]:
    """Execute batches in one transaction: the first refusal is raised."""
    result = BulkWriteResult()
    for batch in read:
        done = yield from _bulk_batch(collection, batch, PLAIN, ordered=ordered, strict=True)
        result = extended(result, done)
    return result


def _bulk_chunks(
    collection: str, chunks: Chunks[ReadRequest], call: CallContext, *, ordered: bool
) -> Steps[BulkWriteResult]:
    """Execute each chunk as a batch."""
    result = BulkWriteResult()
    try:
        while chunks.has_more() and not (ordered and result.refused):
            batch = yield from chunks.next()
            done = yield from _bulk_batch(collection, batch, call, ordered=ordered, strict=False)
            result = extended(result, done)
    except BaseException as error:
        _note_part(error, collection, result, ended=not chunks.has_more())
        raise
    return result


def _bulk_batch(
    collection: str, batch: Sequence[ReadRequest], call: CallContext, *, ordered: bool, strict: bool
) -> Steps[BulkWriteResult]:
    good = [part for part in batch if not isinstance(part[1], Refusal)]
    bad = [each for _, each in batch if isinstance(each, Refusal)]
    if bad and strict:
        raise bad[0].error
    if bad and ordered:
        bad = bad[:1]
        good = [part for part in good if part[0] < bad[0].position]
    result = BulkWriteResult()
    if good:
        result = yield called(BulkBatch(collection, tuple(good), ordered, strict), call)
    if not (ordered and result.refused):
        result += BulkWriteResult(refused=tuple(bad))
    return result


def change(
    collection: str,
    codec: Codec,
    id: str,
    function: Callable[[Any], Any],
    options: Mapping[str, Any],
) -> Steps[Any]:
    """Read a body, let `function` return a new body or change the body in place, and write the result; begin again if
    the document was changed at the same time.
    """
    for attempt in range(options["attempts"]):
        found = yield GetDocument(collection, id)
        if found is None and options["default"] is ...:
            raise DocumentNotFound(collection, id)
        if found is None:
            body = deepcopy(options["default"])
        else:  # a copy: the body that was read is recorded as the one before
            body = changeable(collection, codec, found)
        returned = yield CallFunction(function, body)
        text = codec.encode_body(body if returned is None else returned)
        try:
            if found is None:
                yield Insert(collection, id, text, options["ttl"])
            else:
                yield Rewrite(collection, found, text)
        except VersionConflict as error:
            conflict = error
            yield pause_before(attempt)
        else:
            return codec.decode_body(text)
    raise conflict


def changeable(collection: str, codec: Codec, document: Document) -> Any:
    """Return the body of a stored document for a caller to change: a copy. Raise `InvalidBody` for a body that cannot
    be upgraded or does not fit the model, whatever the option `invalid`.
    """
    stored = current(codec, collection, document).body
    body = written_body(collection, document.id, stored, codec.decode_body)
    if isinstance(body, Invalid):
        raise InvalidBody(body.path, body.problem, collection, document.id)
    return body


def pause_before(attempt: int) -> Pause:
    """Return the pause after a conflict in an attempt, numbered from 0."""
    return Pause(random.uniform(0, min(MAX_PAUSE, 0.001 * 2 ** min(attempt, 7))))


def purge(collection: str) -> Steps[int]:
    """Delete expired documents, also by a time in a field, a batch at a time, and surplus changes; returns how many
    documents.
    """
    total = 0
    while (purged := (yield Purge(collection))) > 0:
        total += purged
    if (yield HasDated(collection)):
        while (purged := (yield PurgeDated(collection))) > 0:
            total += purged
    if (yield HasPrunable(collection)):
        yield Prune(collection)
    return total


def declare(
    collection: str, settings: Settings, version: int | None, indexes: Sequence[Index]
) -> Steps[None]:
    """Store the given options of a collection, and create the missing indexes."""
    if (yield IsDeclared(collection, settings, version, (*indexes,))):
        return  # without waiting for a writer
    if settings != AS_IT_IS:
        yield Configure(collection, settings)
    if version is not None:
        yield DeclareVersion(collection, version)
    existing: list[Index] = (yield ListIndexes(collection)) if indexes else []
    for each in indexes:
        if each not in existing:
            yield CreateIndex(collection, each)


def check_mode(mode: Any) -> Mode:
    """Return a mode of `put_many`; raises `InvalidOption`."""
    checked: Mode = check_choice("mode", mode, _MODES)
    return checked


def _note_part(error: BaseException, collection: str, result: R, *, ended: bool) -> None:
    """Add the result of the earlier batches to an error; `ended`: no batch follows."""
    outcome = getattr(error, "collections_store_outcome", None)
    if outcome is not None:
        if outcome.is_final:
            return
        is_ours = isinstance(outcome.result, type(result))
        result += outcome.result if is_ours else type(result)()
    if isinstance(result, PutManyResult):
        wrote = result.written_count > 0
    else:
        wrote = replace(result, matched_count=0, refused=()) != BulkWriteResult()
    if wrote:
        done = ended and outcome is not None and outcome.committed
        part = "everything" if done else "a part, in batches"
        text = f"wrote {part}: collection {collection}: {result!r}"
        note_outcome(error, Outcome(True if done else None, result, is_final=True), text)
    elif outcome is not None:
        outcome.committed, outcome.is_final = outcome.committed and ended, True


def _total(parts: Sequence[PutManyResult]) -> PutManyResult:
    """Return the sum, in one pass over the refusals."""
    if len(parts) == 1:  # as most often
        return parts[0]
    inserted = sum(each.inserted_count for each in parts)
    replaced = sum(each.replaced_count for each in parts)
    unchanged = sum(each.unchanged_count for each in parts)
    refused = tuple(chain.from_iterable(each.refused for each in parts))
    return PutManyResult(inserted, replaced, unchanged, refused)


def _refusal(given: Given, error: CollectionsStoreError) -> PutManyResult:
    return PutManyResult(refused=(Refusal(given.position, given.id, error),))
