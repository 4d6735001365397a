"""The verbs that take more than one operation, each written once for both colours.

A procedure is a generator: it yields operations, takes their results, and returns what the verb
returns. It may also yield a `Pause` or a `Call`, which each colour does in its own way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final, TypeAlias, TypeVar, get_args

from .codec import Codec, decode
from .document import check_id, new_id
from .errors import (
    BulkWriteError,
    CollectionsStoreError,
    DocumentNotFound,
    DuplicateKey,
    InvalidId,
    InvalidOption,
    VersionConflict,
    shortened,
)
from .frozen import frozen
from .operations import (
    BulkBatch,
    GetDocument,
    Given,
    HasPrunable,
    Insert,
    Mode,
    Prune,
    Purge,
    PutBatch,
    Rewrite,
    Steps,
    Together,
    batches,
    check_version,
)
from .requested import operation_of
from .requests import InsertOne, Request
from .results import BulkWriteResult, InsertManyResult, PutManyResult, Refusal, in_order
from .spool import Spool

T = TypeVar("T")
Requested: TypeAlias = tuple[int, Any]
"""A position, and the operation there, or why there is none."""
BULK: Final = 500
"""Requests of a batch."""
Batch: TypeAlias = tuple[Given, ...]
ATTEMPTS: Final = 1000
"""How often `change` begins anew, unless told otherwise."""
LONGEST_PAUSE: Final = 0.1
"""Seconds."""
EXCLUDED: Final = 3
"""Objects that a unique index forbids in a batch; with more, each is written by itself."""


@frozen
class Pause:
    """Wait for some seconds."""

    seconds: float


@frozen
class Call:
    """Call the caller's function."""

    function: Callable[[Any], Any]
    argument: Any


@frozen
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
        refused: list[Refusal] = []
        reading = batches(self._given(bodies, refused))
        result = yield from self._all(reading) if self.atomic else self._put(reading)
        return in_order(result + PutManyResult(refused=tuple(refused)))

    def _put(self, reading: Iterable[Batch]) -> Steps[PutManyResult]:
        result = PutManyResult()
        try:
            for batch in reading:
                step = yield from self._write(self._batch(batch))
                result += step
        except Exception as error:
            if result.written_count and not self.atomic:
                _note_part(error, self.collection, result)
            raise
        return result

    def _batch(self, given: Batch) -> PutBatch:
        return PutBatch(self.collection, given, self.mode, self.ttl, self.atomic)

    def _all(self, reading: Iterator[Batch]) -> Steps[PutManyResult]:
        """Write all or none: one batch is so by itself, several are so together."""
        first = list(islice(reading, 2))
        if len(first) < 2:
            return (yield from self._put(first))
        spool = Spool(chain(first, reading))
        try:
            result: PutManyResult = yield Together(self.collection, lambda: self._put(spool))
        finally:
            spool.close()
        return result

    def _given(self, bodies: Any, refused: list[Refusal]) -> Iterator[Given]:
        pairs = bodies.items() if isinstance(bodies, Mapping) else bodies
        for position, each in enumerate(pairs):
            try:
                id, body, version = self._parts(each)
                given = Given(position, check_id(id), self.codec.encode(body), version)
            except CollectionsStoreError as error:
                if self.atomic:
                    error.add_note(f"of the object {shortened(_id_of(each))}")
                    raise
                refused.append(Refusal(position, _id_of(each), error))
            else:
                yield given

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

    def _write(self, batch: PutBatch) -> Steps[PutManyResult]:
        """Write a batch but for what a unique index forbids."""
        result = PutManyResult()
        for _ in range(EXCLUDED):
            try:
                written: PutManyResult = yield batch
                return result + written
            except DuplicateKey as error:
                doomed = [each for each in batch.given if each.id == error.id]
                if self.atomic or not doomed:
                    raise
                result += _refusing(doomed[0], error)
                rest = tuple(each for each in batch.given if each is not doomed[0])
                batch = self._batch(rest)
        for one in batch.one_by_one():
            try:
                result += yield one
            except DuplicateKey as error:
                result += _refusing(one.given[0], error)
        return result


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
    result = BulkWriteResult()
    try:
        while not (ordered and result.refused) and (batch := list(islice(reading, BULK))):
            step = yield from _bulk_batch(collection, batch, ordered=ordered, strict=strict)
            result += step
    except Exception as error:
        if not strict and replace(result, refused=()) != BulkWriteResult():
            _note_part(error, collection, result)
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
    """Load a body, have `function` make another of it, and write that unless it was changed meanwhile:
    then begin anew.
    """
    for attempt in range(options["attempts"]):
        found = yield GetDocument(collection, id)
        if found is None and options["default"] is ...:
            raise DocumentNotFound(collection, id)
        begun = deepcopy(options["default"]) if found is None else found.body
        text = codec.encode((yield Call(function, begun)))
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


def check_many(option: str, given: Any) -> Any:
    """Return what can be gone through; raises `InvalidOption`."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return given
    raise InvalidOption(option, f"{shortened(given)} is no mapping and no (synchronous) iterable")


def check_function(function: Any) -> Callable[[Any], Any]:
    """Return what can be called; raises `InvalidOption`."""
    if not callable(function):
        raise InvalidOption("function", f"{shortened(function)} cannot be called")
    checked: Callable[[Any], Any] = function
    return checked


def check_mode(mode: Any) -> Mode:
    """Return a mode of `put_many`; raises `InvalidOption`."""
    if mode in get_args(Mode):
        return mode  # type: ignore[no-any-return]
    known = ", ".join(map(repr, get_args(Mode)))
    raise InvalidOption("mode", f"{mode!r} is none of {known}")


def check_attempts(attempts: Any) -> int:
    """Return a number of attempts; raises `InvalidOption`."""
    if isinstance(attempts, int) and not isinstance(attempts, bool) and attempts > 0:
        return attempts
    raise InvalidOption("attempts", f"{attempts!r} is not a whole number from 1 on")


def _inserted(ids: Sequence[str], refused: tuple[Refusal, ...]) -> BulkWriteResult:
    """Return what became of new objects, some of which were refused."""
    bad = {each.position for each in refused}
    inserted = {place: id for place, id in enumerate(ids) if place not in bad}
    return BulkWriteResult(len(inserted), inserted_ids=inserted, refused=refused)


def _id_of(given: Any) -> str | None:
    """Return the id in what may be no pair."""
    first = given[0] if isinstance(given, tuple | list) and given else None
    return first if isinstance(first, str) else None


def _note_part(error: Exception, collection: str, result: PutManyResult | BulkWriteResult) -> None:
    """Tell the caller that the batches before the error were written."""
    error.add_note(f"collection {collection}: batches before this wrote {result!r}")


def _refusing(given: Given, error: CollectionsStoreError) -> PutManyResult:
    return PutManyResult(refused=(Refusal(given.position, given.id, error),))
