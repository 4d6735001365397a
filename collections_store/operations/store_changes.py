"""Operations on the recorded changes of all collections of a store. A position is a token of `query.change`.

Each read merges the feeds by the times of their changes, in one snapshot. A feed is in the order of commits, and no time
in it is later than the commit. So if a write begins after the commit of a write to another collection, and the clocks of
both writers agree, the changes are in that order: everything before the earlier change in its feed has an earlier time,
and a snapshot with the later change has the earlier one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeAlias

from ..aggregation.change_pipeline import ChangePipeline
from ..codec import Codec
from ..errors import ChangesLost, InvalidToken
from ..expressions.classes import value_class
from ..query.change import FeedPositions, StoreTokens, document_of, read_store_token
from ..sql.catalogue import CatalogueStatements
from ..sql.feed import PRUNED, FeedStatements
from .catalogue import read_options
from .changes import (
    LATER,
    OLDEST,
    Changes,
    change_of,
    damaged,
    last_of,
    oldest_of,
    results_of,
)
from .collections import STAGED
from .connection import Row
from .operation import Operation
from .read import BATCH_CHARACTERS
from .schema import read_identity
from .session import Session

FEEDS_CACHED: Final = 4096
FOREIGN: Final = "it is of another database, which has a history of its own"
FASTER: Final = 4
"""Batches are small at first, and grow so."""
FIRST_BODIES: Final = 10
"""The bodies of the first batch of a feed."""
Feeds: TypeAlias = dict[str, tuple[str, FeedStatements]]
"""For the key of each feed the collection's name, and the statements, in the order of the names."""


@value_class
class FindStorePosition(Operation[str]):
    """Return a token, or the token of the position before the "oldest" changes, or, for None, after the last changes;
    check that no changes after it were deleted.
    """

    after: str | None
    method = "watch"
    collections = ()

    def __call__(self, session: Session) -> str:
        (feeds, _), ours = _feeds(session), read_identity(session)
        if self.after is None or self.after == OLDEST:
            find = last_of if self.after is None else oldest_of
            found = {key: (name, find(session, feed).number) for key, (name, feed) in feeds.items()}
            return StoreTokens(ours, found).token()
        identity, positions = read_store_token(self.after)
        if identity not in {"", ours}:
            raise InvalidToken(FOREIGN)
        for key, (_, number) in positions.items():
            if key not in feeds:
                continue
            name, feed = feeds[key]
            if number < oldest_of(session, feed).number:
                raise _lost(session, self.after, key, name, feed)
            if number > last_of(session, feed).number:
                raise InvalidToken(LATER)
        return StoreTokens(ours, positions).token()


@value_class
class LastStoreChanges(Operation[Any]):
    """Return a value that changes with every recorded change, and where a feed begins, ends or is renamed."""

    method = "watch"
    collections = ()
    snapshot = False

    def __call__(self, session: Session) -> Any:
        feeds, _ = _feeds(session)
        return [(name, last_of(session, feed)) for name, feed in feeds.values()]


@value_class
class ReadStoreChanges(Operation[Changes]):
    """Read up to `limit` changes after a position, and return what a pipeline makes of their documents."""

    position: str
    limit: int
    pipeline: ChangePipeline = field(repr=False)
    codec: Codec = field(repr=False)
    method = "watch"
    collections = ()

    def __call__(self, session: Session) -> Changes:
        merged = _MergedFeeds(session, self.position, self.limit, self.codec, self.pipeline)
        ordered = session.database.ordered_keys
        results, number = results_of(self.pipeline, merged, ordered=ordered)
        more = merged.end is None or number < len(merged.tokens)
        position = merged.tokens[number - 1] if number else merged.end or self.position
        return Changes(tuple(results), position, more, merged.characters)


class _MergedFeeds:
    """The change documents after a position: first collections that were dropped or renamed, then changes.

    The feeds are merged without bodies, of which each feed would hold one. The bodies of merged changes are read when
    the changes are yielded, until they have about `BATCH_CHARACTERS`.
    """

    def __init__(
        self,
        session: Session,
        position: str,
        limit: int,
        codec: Codec,
        pipeline: ChangePipeline,
    ) -> None:
        self._session, self._position, self._limit, self._codec = session, position, limit, codec
        self._pipeline = pipeline
        identity, positions = read_store_token(position)
        self._identity, self._known = identity or read_identity(session), dict(positions)
        self._feeds, self._names = _feeds(session)
        self.tokens: list[str] = []
        """The token after each document."""
        self.end: str | None = None
        """The token after the last change, once all are read."""
        self.characters = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield up to `limit` documents."""
        for document in islice(self._documents(), self._limit):
            self.tokens.append(document["_id"])
            yield document

    def _documents(self) -> Iterator[dict[str, Any]]:
        yield from self._dropped()
        yield from self._renamed()
        start = {key: (name, self._number(key)) for key, (name, _) in self._feeds.items()}
        tokens = StoreTokens(self._identity, start)
        merged = heapq.merge(*map(self._heads, self._feeds), key=itemgetter(0))
        chosen = [(key, head) for _, key, head in islice(merged, self._limit)]
        heads: dict[str, list[Row]] = {}
        for key, head in chosen:
            heads.setdefault(key, []).append(head)
        rows = {key: self._rows(key, heads[key]) for key in heads}
        for key, head in chosen:
            if self.characters >= BATCH_CHARACTERS:
                return
            row = next(rows[key])
            name, token = self._feeds[key][0], tokens.after(key, head[0])
            self.characters += len(row[5] or "") + len(row[6] or "") + len(token)
            try:
                change = change_of(row, self._codec, token)
            except ValueError as error:
                raise damaged(name, row, error, token) from error
            yield document_of(change, name)
        self.end = tokens.token()

    def _dropped(self) -> Iterator[dict[str, Any]]:
        """Yield the collections that are gone. Raise `ChangesLost` for a collection that may have documents without
        recorded changes: of the same name, and with another feed or none.
        """
        keys = {name: key for key, (name, _) in self._feeds.items()}
        before = dict(self._known)
        for key, (name, _) in sorted(before.items(), key=itemgetter(1)):
            if key in self._feeds:
                continue
            del self._known[key]
            if name in self._names and keys.get(name) not in self._known:
                others = {each: before[each] for each in before if each != key}
                oldest = StoreTokens(self._identity, others).token()
                raise ChangesLost(name, self._position, oldest)
            yield self._event("drop", name)

    def _renamed(self) -> Iterator[dict[str, Any]]:
        """Yield the collections with a new name, each after the collection that had this name."""
        moved = {k: name for k, (name, _) in self._known.items() if self._feeds[k][0] != name}
        while moved:
            free = [key for key in moved if self._feeds[key][0] not in moved.values()]
            key = free[0] if free else next(iter(moved))  # two exchanged their names
            old, new = moved.pop(key), self._feeds[key][0]
            self._known[key] = new, self._known[key][1]
            yield self._event("rename", old) | {"to": {"coll": new}}

    def _event(self, kind: str, name: str) -> dict[str, Any]:
        token = StoreTokens(self._identity, self._known).token()
        return {"_id": token, "operationType": kind, "ns": {"coll": name}}

    def _number(self, key: str) -> int:
        """Return the position in a feed; a feed that the token does not have began later."""
        return self._known[key][1] if key in self._known else 0

    def _heads(self, key: str) -> Iterator[tuple[int, str, Row]]:
        """Yield the rows of a feed without bodies, each after the latest time so far; row by row at first, since another feed
        may have all earlier changes.
        """
        name, feed = self._feeds[key]
        number, size, latest = self._number(key), 1, 0
        while heads := self._session.rows(feed.heads, {"seq": number, "limit": size}):
            if heads[0][1] == PRUNED:
                raise _lost(self._session, self._position, key, name, feed)
            for head in heads:
                latest = max(latest, head[4])
                yield latest, key, head
            if len(heads) < size:
                return
            number, size = heads[-1][0], min(FASTER * size, self._limit)

    def _rows(self, key: str, heads: Sequence[Row]) -> Iterator[Row]:
        """Yield the first rows of a feed, without the bodies of the changes that the pipeline leaves out."""
        wanted = [
            head[0] for head in heads if (head[5] or head[6]) and not self._is_left_out(key, head)
        ]
        bodies, chosen = self._bodies(key, wanted), frozenset(wanted)
        for head in heads:
            yield next(bodies) if head[0] in chosen else (*head[:5], None, None)

    def _is_left_out(self, key: str, head: Row) -> bool:
        if not self._pipeline.reads_heads:
            return False
        change = change_of((*head[:5], None, None), self._codec, "")
        ordered = self._session.database.ordered_keys
        return self._pipeline.leaves_out(document_of(change, self._feeds[key][0]), ordered=ordered)

    def _bodies(self, key: str, positions: list[int]) -> Iterator[Row]:
        """Yield the rows at the positions."""
        _, feed = self._feeds[key]
        size = FIRST_BODIES
        while positions:
            some, positions = positions[:size], positions[size:]
            listed = self._session.database.compiler.list_parameter(some)
            yield from self._session.rows(feed.chosen, {"positions": listed})
            size *= FASTER


def _lost(session: Session, token: str, key: str, name: str, feed: FeedStatements) -> ChangesLost:
    """Return the error of deleted changes of a collection; its `oldest` skips these alone."""
    oldest = oldest_of(session, feed).number
    identity, known = read_store_token(token)
    before = known[key][0] if key in known else name  # a rename is not lost
    positions: FeedPositions = {**known, key: (before, oldest)}
    return ChangesLost(name, token, StoreTokens(identity, positions).token())


def _feeds(session: Session) -> tuple[Feeds, set[str]]:
    """Return the feeds of all collections that record changes, and the names of all collections."""
    feeds: Feeds = {}
    names = set[str]()
    for name, _, _, text in session.entries(session.store.listing):
        if name.endswith(STAGED):
            continue
        names.add(name)
        feed = _feed(name, text, session.store)
        if feed is not None:
            feeds[feed.feed.key] = name, feed
    return feeds, names


@lru_cache(FEEDS_CACHED)
def _feed(name: str, text: str, store: CatalogueStatements) -> FeedStatements | None:
    """Return the statements of a collection's feed, by the options in the catalogue's entry."""
    feed = read_options(name, text).feed
    return None if feed is None else store.feed(feed)
