"""Vector indexes in steps: storing the vectors of changed documents outside of transactions, and searches. The operations are
in `vectors`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from ..codec import Decode
from ..document import now
from ..errors import DatabaseBusy, DatabaseError, InvalidSearch, ReadOnlyDatabase, cut, shortened
from ..expressions.classes import value_class
from ..query.filter import Filter
from ..query.vector_index import VectorIndex
from ..results import SearchResult
from ..search.chunks import spans
from ..search.claims import EMBEDDING, Claim, QueryClaim
from ..search.embedders import Embed, Embedder
from ..search.vectors import VectorQuery, pack
from .indexes import CreateIndex
from .nearest import Nearest
from .operation import Steps
from .procedures import Pause
from .vectors import (
    Computed,
    FindVectorIndex,
    Key,
    ListUnindexed,
    NoteProblems,
    ReadWaiting,
    Reindex,
    StoreVectors,
    UseEmbedder,
    Waiting,
    WaitingBatch,
    hash_of,
    packed,
)

RETRIED_AFTER: Final = 60
"""Seconds until a document whose vectors could not be computed is tried again."""
DOCUMENTS: Final = 64
"""Documents of a batch, and the most texts of a call of an embedder."""
MAX_PROBLEM: Final = 300
FIRST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 0.05
"""Seconds between two looks at documents that another search embeds."""
FAILURES: Final = 2
"""Failures of an embedder in a row after which a search goes on without the remaining documents."""


@value_class
class CallEmbedder:
    """Call an embedder's function with texts, or a computation, outside of transactions; in an event loop, in a thread."""

    function: Callable[[Any], Any]
    texts: Any


def create_vector_index(
    collection: str, index: VectorIndex, embedder: Embedder | None, *, again: bool = False
) -> Steps[str]:
    """Create a vector index, and use an embedder; `again`: in place of the index of the name."""
    yield Reindex(collection, index) if again else CreateIndex(collection, index)
    if embedder is not None:
        yield UseEmbedder(collection, index.name, embedder)
    return index.name


def store_waiting(
    collection: str, index: VectorIndex, embedder: Embedder | None, since: int
) -> Steps[None]:
    """Store the vectors of the documents in the journal that nobody tried since `since`, and wait for those that another
    search of this process stores.
    """
    if index.model is not None and embedder is None:
        return
    failed, pause, is_within = 0, FIRST_PAUSE, EMBEDDING.get()
    while True:
        claim = Claim()
        try:
            batch: WaitingBatch = yield ReadWaiting(collection, index, since, DOCUMENTS, claim)
            EMBEDDING.set(True)
            done, failed = yield from _store_batch(
                collection, index, embedder, batch.documents, failed
            )
        finally:
            EMBEDDING.set(is_within)
            claim.end()
        if not done or (batch.is_last and not batch.claimed):
            return
        if batch.documents:
            pause = FIRST_PAUSE
        elif is_within:
            return
        else:
            yield Pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _store_batch(
    collection: str,
    index: VectorIndex,
    embedder: Embedder | None,
    waiting: list[Waiting],
    failed: int,
) -> Steps[tuple[bool, int]]:
    """Store the vectors of some documents: of all at once, or of each if that fails. Return False after the second
    failure in a row, and the failures in a row.
    """
    if not waiting:
        return True, 0
    if embedder is None:
        yield from _store_packed(collection, index, waiting)
        return True, 0
    try:
        computed = yield from _computed(index, embedder, waiting)
    except Exception as error:  # noqa: BLE001 - whatever an embedder raises
        if len(waiting) > 1:
            for each in waiting:
                done, failed = yield from _store_batch(collection, index, embedder, [each], failed)
                if not done:
                    return False, failed
            return True, failed
        yield NoteProblems(collection, index, [(waiting[0].numbers, _problem(error))])
        return failed + 1 < FAILURES, failed + 1
    yield StoreVectors(collection, index, computed)
    return True, 0


def _store_packed(collection: str, index: VectorIndex, waiting: list[Waiting]) -> Steps[None]:
    """Store the vectors at the fields of some documents, and note the problems of the others."""
    computed, problems = yield CallEmbedder(partial(_packed, index), waiting)
    if computed:
        yield StoreVectors(collection, index, computed)
    if problems:
        yield NoteProblems(collection, index, problems)


def _packed(
    index: VectorIndex, waiting: list[Waiting]
) -> tuple[list[Computed], list[tuple[list[int], str]]]:
    computed: list[Computed] = []
    problems: list[tuple[list[int], str]] = []
    for each in waiting:
        try:
            computed.append(packed(index, each))
        except ValueError as error:
            problems.append((each.numbers, _problem(error)))
    return computed, problems


def _problem(error: Exception) -> str:
    """Return the text of an error: without characters that a database cannot store."""
    text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return cut(text, MAX_PROBLEM).encode(errors="replace").decode().replace("\0", "?")


def _computed(
    index: VectorIndex, embedder: Embedder, waiting: list[Waiting]
) -> Steps[list[Computed]]:
    """Compute the vectors of documents; raises what the embedder raises, and `ValueError`."""
    texts: dict[bytes, str] = {}
    cut_up = [(each, list(_parts(index, embedder, each))) for each in waiting]
    for each, parts in cut_up:
        stored = {key[3] for key in each.stored}
        texts.update((key[3], text) for key, text in parts if key[3] not in stored)
    vectors = yield from embedded(index, embedder.documents, list(texts.values()))
    made = dict(zip(texts, vectors, strict=True))
    return [
        Computed(each, None)
        if each.stored and [key for key, _ in parts] == each.stored
        else Computed(each, [(key, made.get(key[3])) for key, _ in parts])
        for each, parts in cut_up
    ]


def _parts(index: VectorIndex, embedder: Embedder, document: Waiting) -> Iterator[tuple[Key, str]]:
    """Yield the keys and the texts of the chunks of a document; raises `ValueError`."""
    for place, text in index.texts(document.body) if document.id is not None else ():
        for start, stop in spans(embedder.cut, text):
            part = text[start:stop]
            yield (place, start, stop, hash_of(part.encode())), part


def embedded(index: VectorIndex, function: Embed, texts: list[str]) -> Steps[list[bytes]]:
    """Return the packed vectors that an embedder makes of texts; raises `ValueError` for unusable vectors."""
    found: list[bytes] = []
    for first in range(0, len(texts), DOCUMENTS):
        some = texts[first : first + DOCUMENTS]
        for vector in _returned((yield CallEmbedder(function, some)), len(some)):
            try:
                found.append(pack(vector, index.dimensions, index.metric))
            except ValueError as error:
                raise ValueError(f"a vector that embed returns {error}") from None
    return found


def _returned(vectors: Any, count: int) -> list[Any]:
    """Return the vectors that an embedder returned; raises `ValueError` for another number of vectors."""
    found = list(vectors) if isinstance(vectors, Iterable) else None
    if found is None or len(found) != count:
        got = shortened(vectors) if found is None else len(found)
        raise ValueError(f"embed must return {count} vector{'s' * (count > 1)}, got {got}")
    return found


def find_nearest(  # noqa: PLR0917 - as the method has them
    collection: str,
    query: Any,
    name: str | None,
    k: int,
    filter: Filter,
    min_score: float | None,
    decode: Decode,
    *,
    store: bool,
) -> Steps[list[SearchResult[Any]]]:
    """Find the nearest documents; first `store` the vectors of changed documents."""
    since = now() - RETRIED_AFTER * 1_000_000
    opened = yield FindVectorIndex(collection, name, since)
    if opened is None:
        return []
    index, embedder, has_waiting = opened
    if isinstance(query, str):
        query = yield from _query(index, embedder, query)
    parse = partial(VectorQuery.parse, dimensions=index.dimensions, metric=index.metric)
    yield CallEmbedder(parse, query)  # raises before anything is stored
    if store and has_waiting:
        try:
            yield from store_waiting(collection, index, embedder, since)
        except DatabaseError as error:
            # a database that can only be read, or that another writes for long: a search needs no lock. An SQLite file
            # raises the base class, and a damaged one fails again below
            if type(error) not in {DatabaseError, DatabaseBusy, ReadOnlyDatabase}:
                raise
    found: list[SearchResult[Any]] = yield Nearest(
        collection, index.name, query, k, filter, min_score, decode
    )
    return found


def _query(index: VectorIndex, embedder: Embedder | None, text: str) -> Steps[Any]:
    if embedder is None:
        made = (
            "has vectors of its fields" if index.model is None else f"has the model {index.model!r}"
        )
        problem = f"the index {index.name!r} {made}, and this store no function: search for a vector, or call create_vector_index with embed="
        raise InvalidSearch(text, problem)
    if EMBEDDING.get():
        return (yield from _embedded_query(embedder, text))
    claim, pause = embedder.queried.setdefault(text, QueryClaim()), FIRST_PAUSE
    while claim.is_awaited:
        if claim.take():
            return (yield from _claimed_query(embedder, text, claim))
        yield Pause(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    if claim.vector is not None:
        return claim.vector
    return (yield from _embedded_query(embedder, text))


def _claimed_query(embedder: Embedder, text: str, claim: QueryClaim) -> Steps[Any]:
    """Embed a query for all searches that wait for the claim."""
    EMBEDDING.set(True)
    try:
        claim.vector = yield from _embedded_query(embedder, text)
    except Exception:
        claim.has_failed = True
        raise
    finally:
        EMBEDDING.set(False)
        if embedder.queried.get(text) is claim:
            del embedder.queried[text]
        claim.release()
    return claim.vector


def _embedded_query(embedder: Embedder, text: str) -> Steps[Any]:
    found = yield CallEmbedder(embedder.queries, [text])
    try:
        return _returned(found, 1)[0]
    except ValueError as error:
        raise InvalidSearch(text, str(error)) from None


def store_backlog(collection: str, name: str | None, *, store: bool) -> Steps[int]:
    """Store the vectors of all documents in the journal; returns how many documents remain. Not `store`: a transaction,
    which may not, for the matrix in memory would have vectors that are rolled back.
    """
    if not store:
        problem = "a transaction stores no vectors: call store_vectors of the collection that the store gives"
        raise InvalidSearch("", problem)
    opened = yield FindVectorIndex(collection, name)
    if opened is None:
        return 0
    index, embedder, _ = opened
    if index.model is not None and embedder is None:
        problem = f"the index {index.name!r} has the model {index.model!r}, and this store no function: call create_vector_index with embed="
        raise InvalidSearch("", problem)
    yield from store_waiting(collection, index, embedder, now())
    left = yield ListUnindexed(collection, sys.maxsize)
    return sum(each.index == index.name for each in left)
