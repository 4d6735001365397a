"""Methods that take several operations, each written once for sync and async; write requests as operations.

An iterable may do anything, even use the store that its objects are for. While it is read no lock is
held and no transaction is open; what it gave waits on the disk, if it is much, and can be read again.

A procedure is a generator: it yields operations, takes their results, and returns what the verb
returns. It may also yield a `Pause` or a `CallFunction`, which sync and async each do in their own way.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

from .. import document as requests
from ..codec import Codec, decode
from ..document import (
    BulkWriteResult,
    Document,
    InsertManyResult,
    InsertOne,
    PutManyResult,
    R,
    Refusal,
    ReplaceOne,
    Request,
    UpdateMany,
    UpdateOne,
    UpdateResult,
    check_id,
    in_order,
    new_id,
    read_ttl,
)
from ..errors import (
    BulkWriteError,
    CollectionsStoreError,
    DocumentNotFound,
    DuplicateKey,
    InvalidId,
    InvalidOption,
    Outcome,
    VersionConflict,
    note_outcome,
    shortened,
)
from ..options import (
    check_choice,
    check_flag,
    check_version,
)
from ..query.filter import Filter
from ..query.sort import Sort
from ..query.values import value_class
from ..update import Update, read_replacement
from .bulk import BulkBatch, Given, Mode, PutBatch, batches
from .by_id import (
    GetDocument,
    Insert,
    Purge,
    Rewrite,
)
from .combine import Steps, Together
from .find import DeleteFirst, DeleteMatching, parse_required, read_projection
from .maintenance import HasPrunable, Prune
from .operation import Operation
from .update import Answer, FindAndDelete, Modification, ModifyMany, ModifyOne, Replacement

T = TypeVar("T")
IN_MEMORY: Final = 8 * 2**20
"""Bytes; what is more goes to a temporary file."""


class Spool(Generic[T]):
    """Values that were read, in their order."""

    def __init__(self, values: Iterable[T]) -> None:
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._count = 0
        try:
            for value in values:
                pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
                self._count += 1
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[T]:
        self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)

    def close(self) -> None:
        """Delete them."""
        self._file.close()


class ReturnDocument:
    """Which object `find_one_and_update` and `find_one_and_replace` return.

    >>> ReturnDocument.AFTER
    True
    """

    BEFORE: Final = False
    """As it was found."""
    AFTER: Final = True
    """As it is now."""


def operation_of(collection: str, rules: Codec, request: Request) -> Operation[Any]:
    """Return the operation that a request asks for; raises what is wrong with it."""
    match request:
        case InsertOne(body, id=id, ttl=ttl):
            chosen = new_id() if id is None else check_id(id)
            return Insert(collection, chosen, rules.encode(body), read_ttl(ttl), unique=True)
        case UpdateOne() | UpdateMany() | ReplaceOne():
            return update_of(collection, rules, request)
        case requests.DeleteOne(filter):
            return DeleteFirst(collection, parse_required(filter, ..., rules))
        case requests.DeleteMany(filter):
            return DeleteMatching(collection, parse_required(filter, ..., rules))
    raise InvalidOption("requests", f"{shortened(request)} is no request: InsertOne, UpdateOne, …")


def update_of(
    collection: str, rules: Codec, request: UpdateOne | UpdateMany | ReplaceOne
) -> Operation[UpdateResult]:
    """Return the operation that changes one object, or many."""
    if isinstance(request, UpdateMany):
        asked = parse_required(request.filter, ..., rules)
        return ModifyMany(collection, modification_of(rules, request), asked)
    return _one(collection, rules, request)


def modification_of(rules: Codec, request: UpdateOne | UpdateMany | ReplaceOne) -> Modification:
    """Return what a request wants to become of an object."""
    upsert = check_flag("upsert", request.upsert)
    if isinstance(request, ReplaceOne):
        return Modification(
            Replacement(read_replacement(request.replacement, rules)), rules, upsert
        )
    update = Update.parse(request.update, array_filters=request.array_filters, rules=rules)
    return Modification(update, rules, upsert)


def modify_by_id(
    collection: str, rules: Codec, id: Any, request: UpdateOne, if_version: Any
) -> Operation[UpdateResult]:
    """Return the operation of `update`."""
    modification, expected = modification_of(rules, request), check_version(if_version)
    return ModifyOne(collection, modification, id=check_id(id), expected=expected)


def find_and_modify(
    collection: str,
    rules: Codec,
    request: UpdateOne | ReplaceOne,
    *,
    projection: Any,
    return_document: Any,
    if_version: Any = None,
) -> Operation[Document | None]:
    """Return the operation of `find_one_and_update` or `find_one_and_replace`."""
    after = check_flag("return_document", return_document)
    answer: Answer = "after" if after else "before"
    expected = check_version(if_version)
    if expected is not None and request.upsert:
        raise InvalidOption("if_version", "does not go with upsert: a new document has no version")
    options = {"answer": answer, "projection": projection, "expected": expected}
    return _one(collection, rules, request, **options)


def find_and_delete(
    collection: str, rules: Codec, filter: Any, *, sort: Any, projection: Any
) -> FindAndDelete:
    """Return the operation of `find_one_and_delete`."""
    asked = parse_required(filter, ..., rules)
    parts = read_projection(projection, asked, rules)
    return FindAndDelete(collection, asked, Sort.parse(sort), parts)


def _one(
    collection: str,
    rules: Codec,
    request: UpdateOne | ReplaceOne,
    *,
    answer: Answer = "result",
    projection: Any = None,
    expected: int | None = None,
) -> ModifyOne:
    asked: Filter = parse_required(request.filter, ..., rules)
    parts = read_projection(projection, asked, rules)
    options: dict[str, Any] = {"answer": answer, "projection": parts, "expected": expected}
    modification, sort = modification_of(rules, request), Sort.parse(request.sort)
    return ModifyOne(collection, modification, asked, sort, **options)


Requested: TypeAlias = tuple[int, Any]
"""A position, and the operation there, or why there is none."""
BULK: Final = 500
"""Requests of a batch."""
Batch: TypeAlias = tuple[Given, ...]
ATTEMPTS: Final = 1000
"""How often `change` begins anew, unless told otherwise."""
_STORED: Final = Codec(2**40)
"""For what is stored: its size was another's limit."""
LONGEST_PAUSE: Final = 0.1
"""Seconds."""
EXCLUDED: Final = 3
"""Objects that a unique index forbids in a batch; with more, each is written by itself."""


@value_class
class Pause:
    """Wait for some seconds."""

    seconds: float


@value_class
class CallFunction:
    """Call the caller's function."""

    function: Callable[[Any], Any]
    argument: Any


@dataclass(slots=True)
class Read:
    """What was found in what a caller gave: what was refused, and whether all of it was read."""

    refused: list[Refusal] = field(default_factory=list)
    ended: bool = False


@value_class
class Writing:
    """How many objects are written: of which collection, by which rules."""

    collection: str
    codec: Codec
    mode: Mode = "replace"
    ttl: int | None = None
    atomic: bool = False

    def put(self, bodies: Any) -> Steps[PutManyResult]:
        """Write bodies from any iterable, in batches or all at once."""
        result = yield from self._written(bodies)
        if result.refused:
            raise BulkWriteError(self.collection, result)
        return result

    def insert(self, bodies: Any) -> Steps[InsertManyResult]:
        """Write new bodies; returns their ids."""
        ids: list[str] = []
        result = yield from self._written(_named(bodies, ids))
        if result.refused:
            raise BulkWriteError(self.collection, _inserted(ids, result.refused))
        return InsertManyResult(tuple(ids))

    def _written(self, bodies: Any) -> Steps[PutManyResult]:
        read = Read()
        reading = batches(self._given(bodies, read))
        result = yield from self._all(reading) if self.atomic else self._put(reading, read)
        return in_order(result + PutManyResult(refused=tuple(read.refused)))

    def _put(self, reading: Iterable[Batch], read: Read) -> Steps[PutManyResult]:
        parts: list[PutManyResult] = []
        try:
            for batch in reading:
                yield from self._write(self._batch(batch), parts)
        except BaseException as error:
            if not self.atomic:
                _note_part(error, self.collection, _total(parts), whole=read.ended)
            raise
        return _total(parts)

    def _batch(self, given: Batch) -> PutBatch:
        return PutBatch(self.collection, given, self.mode, self.ttl, self.atomic)

    def _all(self, reading: Iterator[Batch]) -> Steps[PutManyResult]:
        """Write all or none: one batch is so by itself, several are so together."""
        first = list(islice(reading, 2))
        if len(first) < 2:
            return (yield from self._put(first, Read()))
        spool = Spool(chain(first, reading))
        try:
            result: PutManyResult = yield Together(
                self.collection, lambda: self._put(spool, Read())
            )
        finally:
            spool.close()
        return result

    def _given(self, bodies: Any, read: Read) -> Iterator[Given]:
        pairs = bodies.items() if isinstance(bodies, Mapping) else bodies
        for position, each in enumerate(pairs):
            try:
                id, body, version = self._parts(each)
                given = Given(position, check_id(id), self.codec.encode(body), version)
            except CollectionsStoreError as error:
                if self.atomic:
                    error.add_note(f"of the object {shortened(_id_of(each))}")
                    raise
                read.refused.append(Refusal(position, _id_of(each), error))
            else:
                yield given
        read.ended = True

    def _parts(self, given: Any) -> tuple[Any, Any, int | None]:
        """Return id, body and version; raises `InvalidId`, and `InvalidOption` of a version."""
        parts = tuple(given) if isinstance(given, tuple | list) else ()
        if self.mode == "if_version" and len(parts) == 3:
            return parts[0], parts[1], check_version(parts[2])
        if self.mode != "if_version" and len(parts) == 2:
            return *parts, None
        more = "triples of an id, a body and a version (None: no object)"
        wanted = more if self.mode == "if_version" else "pairs of an id and a body"
        raise InvalidId(given, f"give {wanted}")

    def _write(self, batch: PutBatch, parts: list[PutManyResult]) -> Steps[None]:
        """Write a batch but for what a unique index forbids, and note each part that is done."""
        for _ in range(EXCLUDED):
            try:
                parts.append((yield batch))
                return
            except DuplicateKey as error:
                doomed = [each for each in batch.given if each.id == error.id]
                if self.atomic or not doomed:
                    raise
                parts.append(_refusing(doomed[0], error))
                rest = tuple(each for each in batch.given if each is not doomed[0])
                batch = self._batch(rest)
        for one in batch.one_by_one():
            try:
                parts.append((yield one))
            except DuplicateKey as error:
                parts.append(_refusing(one.given[0], error))


def bulk_write(
    collection: str, codec: Codec, requests: Iterable[Any], *, ordered: bool, atomic: bool
) -> Steps[BulkWriteResult]:
    """Do requests in batches, or all at once."""
    reading = _parts(collection, codec, requests)
    if atomic:
        read = list(reading)  # before anything is locked: reading may do anything
        result: BulkWriteResult = yield Together(
            collection, lambda: _bulk(collection, iter(read), ordered=ordered, strict=True)
        )
    else:
        result = yield from _bulk(collection, reading, ordered=ordered, strict=False)
    if result.refused:
        raise BulkWriteError(collection, in_order(result))
    return result


def _bulk(
    collection: str, reading: Iterator[Requested], *, ordered: bool, strict: bool
) -> Steps[BulkWriteResult]:
    result, batch = BulkWriteResult(), list[Requested]()
    try:
        while not (ordered and result.refused) and (batch := list(islice(reading, BULK))):
            step = yield from _bulk_batch(collection, batch, ordered=ordered, strict=strict)
            result += step
    except BaseException as error:
        if not strict:
            _note_part(error, collection, result, whole=len(batch) < BULK)
        raise
    return result


def _bulk_batch(
    collection: str, batch: Sequence[Requested], *, ordered: bool, strict: bool
) -> Steps[BulkWriteResult]:
    good = [(place, each) for place, each in batch if not isinstance(each, Refusal)]
    bad = [each for _, each in batch if isinstance(each, Refusal)]
    for first in bad[:1]:
        if strict:
            raise first.error
        if ordered:
            good = [part for part in good if part[0] < first.position]
    result = BulkWriteResult()
    if good:
        result = yield BulkBatch(collection, tuple(good), ordered, strict)
    if not (ordered and result.refused):
        result += BulkWriteResult(refused=tuple(bad[: 1 if ordered else None]))
    return result


def _parts(collection: str, codec: Codec, requests: Iterable[Any]) -> Iterator[Requested]:
    """Yield the operations that are asked for, by their positions; or why there is none."""
    for position, request in enumerate(requests):
        try:
            yield position, operation_of(collection, codec, _checked(request))
        except CollectionsStoreError as error:
            id = request.id if isinstance(request, InsertOne) else None
            yield position, Refusal(position, id, error)


def _checked(request: Any) -> Request:
    if isinstance(request, Request):
        return request
    raise InvalidOption("requests", f"{shortened(request)} is none: InsertOne, UpdateOne, …")


def change(
    collection: str,
    codec: Codec,
    id: str,
    function: Callable[[Any], Any],
    options: Mapping[str, Any],
) -> Steps[Any]:
    """Load a body, have `function` make another of it or change it in place, and write that unless it was
    changed meanwhile: then begin anew.
    """
    for attempt in range(options["attempts"]):
        found = yield GetDocument(collection, id)
        if found is None and options["default"] is ...:
            raise DocumentNotFound(collection, id)
        begun = deepcopy(options["default"]) if found is None else _copied(found.body)
        made = yield CallFunction(function, begun)
        text = codec.encode(begun if made is None else made)
        try:
            if found is None:
                yield Insert(collection, id, text, options["ttl"])
            else:
                yield Rewrite(collection, found, text)
        except VersionConflict as error:
            conflict = error
            longest = min(LONGEST_PAUSE, 0.001 * 2 ** min(attempt, 7))
            yield Pause(random.uniform(0, longest))
        else:
            return decode(text)
    raise conflict


def _copied(body: Any) -> Any:
    """Return a body that may be changed: what was read goes into the record of changes as it was."""
    return decode(_STORED.encode(body))


def purge(collection: str) -> Steps[int]:
    """Delete what has expired, some at a time, and changes that are kept no longer; returns how many
    objects.
    """
    total = 0
    while (gone := (yield Purge(collection))) > 0:
        total += gone
    if (yield HasPrunable(collection)):
        yield Prune(collection)
    return total


def _named(bodies: Any, ids: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield bodies with the ids that they are inserted under, which are noted."""
    pairs = bodies.items() if isinstance(bodies, Mapping) else ((new_id(), b) for b in bodies)
    for id, body in pairs:
        ids.append(id)
        yield id, body


def check_mode(mode: Any) -> Mode:
    """Return a mode of `put_many`; raises `InvalidOption`."""
    checked: Mode = check_choice("mode", mode, get_args(Mode))
    return checked


def _inserted(ids: Sequence[str], refused: tuple[Refusal, ...]) -> BulkWriteResult:
    """Return what became of new objects, some of which were refused."""
    bad = {each.position for each in refused}
    inserted = {place: id for place, id in enumerate(ids) if place not in bad}
    return BulkWriteResult(len(inserted), inserted_ids=inserted, refused=refused)


def _id_of(given: Any) -> str | None:
    """Return the id in what may be no pair."""
    first = given[0] if isinstance(given, tuple | list) and given else None
    return first if isinstance(first, str) else None


def _note_part(error: BaseException, collection: str, result: R, *, whole: bool) -> None:
    """Tell the caller what the batches wrote before the error; `whole`: nothing comes after the batch that it met."""
    met = getattr(error, "collections_store_outcome", None)
    if met is not None:
        if met.whole:
            return
        result += met.result if isinstance(met.result, type(result)) else type(result)()
    if _wrote(result):
        done = whole and met is not None and met.committed
        words = "everything" if done else "a part, in batches"
        text = f"wrote {words}: collection {collection}: {result!r}"
        note_outcome(error, Outcome(True if done else None, result, whole=True), text)
    elif met is not None:
        met.committed, met.whole = met.committed and whole, True


def _wrote(result: PutManyResult | BulkWriteResult) -> bool:
    if isinstance(result, PutManyResult):
        return result.written_count > 0
    return replace(result, matched_count=0, refused=()) != BulkWriteResult()


def _total(parts: Sequence[PutManyResult]) -> PutManyResult:
    """Return the sum; with one pass over what was refused."""
    inserted = sum(each.inserted_count for each in parts)
    replaced = sum(each.replaced_count for each in parts)
    unchanged = sum(each.unchanged_count for each in parts)
    refused = tuple(chain.from_iterable(each.refused for each in parts))
    return PutManyResult(inserted, replaced, unchanged, refused)


def _refusing(given: Given, error: CollectionsStoreError) -> PutManyResult:
    return PutManyResult(refused=(Refusal(given.position, given.id, error),))
