"""Operations on the recorded changes of a collection: reading and pruning. `recorder` has the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Final

from ..aggregation.change_pipeline import ChangePipeline
from ..codec import Codec, decode
from ..document import Document, moment
from ..errors import (
    ChangesLost,
    DatabaseError,
    InvalidBody,
    InvalidOperand,
    InvalidOption,
    InvalidPipeline,
    InvalidToken,
    MemoryLimitExceeded,
    shortened,
)
from ..expressions.classes import value_class
from ..query.change import (
    Change,
    ChangeFilter,
    ChangePosition,
    ChangeResult,
    document_of,
    new_change,
    read_token,
    tokens_of,
)
from ..results import Invalid
from ..sql.feed import PRUNED, FeedStatements
from .connection import Row
from .operation import Operation
from .recorder import last_surplus, prune
from .session import Session

OLDEST: Final = "oldest"
LATER: Final = "it is of a later state of the database: was a backup restored?"


@value_class
class Changes:
    """Changes or the results of a pipeline in their order, and the position of the last change: a `ChangePosition`, of a
    store its token. `more`: the next changes may be ready at once. `characters`: the JSON that was read.
    """

    changes: tuple[Any, ...]
    position: Any
    more: bool = False
    characters: int = 0


@value_class
class FindPosition(Operation[ChangePosition]):
    """Return the position of a token, the position before the "oldest" change, or, for None, the position of the last
    change; check that the feed records the wanted bodies.
    """

    collection: str
    after: str | None
    wanted: ChangeFilter
    method = "watch"

    def __call__(self, session: Session) -> ChangePosition:
        feed = session.collection(self.collection).feed
        if feed is None:
            return self.absent()
        self.wanted.check(feed.feed.bodies)
        if self.after is None:
            return last_of(session, feed)
        oldest = oldest_of(session, feed)
        if self.after == OLDEST:
            return oldest
        position, ours = read_token(self.after, self.collection)
        if position.key != oldest.key and not ours:
            raise InvalidToken("it is of another collection")
        if position.key != oldest.key or position.number < oldest.number:
            raise ChangesLost(self.collection, self.after, oldest.to_token(self.collection))
        if position.number > last_of(session, feed).number:
            raise InvalidToken(LATER)
        return position

    def absent(self) -> ChangePosition:
        raise InvalidOption(
            "changes", f"collection {self.collection} records none: open it with changes=True"
        )


@value_class
class ReadChanges(Operation[Changes]):
    """Read up to `limit` changes after a position, and return the wanted changes, or what a `pipeline` makes of them."""

    collection: str
    position: ChangePosition
    limit: int
    wanted: ChangeFilter
    codec: Codec = field(repr=False)
    pipeline: ChangePipeline | None = field(default=None, repr=False)
    method = "watch"
    atomic = True

    def __call__(self, session: Session) -> Changes:
        feed = session.collection(self.collection).feed
        if feed is None:
            return self.absent()
        if feed.feed.key != self.position.key:
            raise self._lost(oldest_of(session, feed))
        rows = session.rows(feed.after, {"seq": self.position.number, "limit": self.limit})
        if rows and rows[0][1] == PRUNED:
            raise self._lost(self._position(rows[0]))
        return self._read(rows, ordered=session.database.ordered_keys)

    def absent(self) -> Changes:
        raise self._lost(None)

    def _read(self, rows: Sequence[Row], *, ordered: bool) -> Changes:
        """Return the changes before the first change without the bodies that the filter needs. If the very first change
        lacks the bodies, the changes up to the last such change are lost.
        """
        changes = self._readable(rows)
        if self.pipeline is not None:
            documents = [document_of(each, self.collection) for each in changes]
            results, number = results_of(self.pipeline, documents, ordered=ordered)
            return self._changes(rows, number, results)
        undecided = [n for n, each in enumerate(changes) if self.wanted.is_open(each)]
        decided = undecided[0] if undecided else len(changes)
        if rows and not decided:
            raise self._lost(self._position(rows[undecided[-1]]))
        matches = self.wanted.matches
        wanted = [
            each if self.codec.is_plain else self._returned(each, row)
            for each, row in zip(changes[:decided], rows, strict=False)
            if matches(each, ordered=ordered)
        ]
        return self._changes(rows, decided, wanted)

    def _changes(self, rows: Sequence[Row], number: int, wanted: Sequence[object]) -> Changes:
        """Return what is wanted of the first rows."""
        position = self._position(rows[number - 1]) if rows else self.position
        more = len(rows) == self.limit or number < len(rows)
        characters = sum([len(row[5] or "") + len(row[6] or "") for row in rows])
        return Changes(tuple(wanted), position, more, characters)

    def _readable(self, rows: Sequence[Row]) -> list[Change]:
        """Return the changes before the first damaged record; raises `DatabaseError` if the first record is."""
        changes: list[Change] = []
        token_of = tokens_of(self.position.key, self.collection)
        for row in rows:
            try:
                changes.append(change_of(row, self.codec, token_of(row[0])))
            except ValueError as error:
                if changes:
                    break
                raise damaged(self.collection, row, error, token_of(row[0])) from error
        return changes

    def _returned(self, change: Change, row: Row) -> Change:
        """Return a change with the bodies decoded by the codec."""
        body, before = self._body(change.body, row[6]), self._body(change.before, row[5])
        return replace(change, body=body, before=before)

    def _body(self, plain: Any, text: str | None) -> Any:
        """Return a recorded body; `Invalid` for a body that the codec refuses: an error would end the stream."""
        try:
            return None if text is None else self.codec.decode_body(text)
        except InvalidBody as error:
            return Invalid(plain, error.path, error.problem)

    def _position(self, row: Row) -> ChangePosition:
        return ChangePosition(self.position.key, row[0])

    def _lost(self, oldest: ChangePosition | None) -> ChangesLost:
        token = self.position.to_token(self.collection)
        first = None if oldest is None else oldest.to_token(self.collection)
        return ChangesLost(self.collection, token, first)


def change_of(row: Row, codec: Codec, token: str) -> Change:
    """Return a recorded change with plain bodies; raises `ValueError` for a damaged record."""
    _, kind, id, version, time, before, after = row
    body = None if after is None else _current(codec, id, after)
    old = None if before is None else _current(codec, id, before)
    bodies = body, old, after is not None, before is not None
    return new_change(kind, id, version, moment(time), *bodies, token)


def _current(codec: Codec, id: str, text: str) -> Any:
    """Return a recorded body as plain JSON: in the declared schema version, if possible."""
    body = decode(text)
    if codec.is_plain:
        return body
    try:
        return codec.current(Document(id, body))
    except InvalidBody:
        return body


def damaged(collection: str, row: Row, error: ValueError, token: str) -> DatabaseError:
    """Return the error of a record that is not JSON; `token` is the position after the record."""
    return DatabaseError(
        f"collection {collection}: the recorded change of document {shortened(row[2])} is damaged, "
        f"it is not JSON: {error}: read the document, and watch with after={token!r}"
    )


def results_of(
    pipeline: ChangePipeline, documents: Iterable[dict[str, Any]], *, ordered: bool
) -> tuple[list[ChangeResult], int]:
    """Return what a pipeline makes of change documents, and the number of documents before the first that raises an
    error. Raise the error of the very first.
    """
    results: list[ChangeResult] = []
    number = 0
    try:
        for document in documents:
            result = pipeline.result(document, ordered=ordered)
            if result is not None:
                results.append(ChangeResult(document["_id"], result))
            number += 1
    except (DatabaseError, InvalidOperand, InvalidPipeline, MemoryLimitExceeded):
        if not number:
            raise
    return results, number


@value_class
class LastChange(Operation[ChangePosition | None]):
    """Return the position of the last change; None if changes are not recorded."""

    collection: str
    atomic = True

    def __call__(self, session: Session) -> ChangePosition | None:
        feed = session.collection(self.collection).feed
        return None if feed is None else last_of(session, feed)


def last_of(session: Session, feed: FeedStatements) -> ChangePosition:
    """Return the position of the last change."""
    [(last,)] = session.rows(feed.last)
    return ChangePosition(feed.feed.key, last or 0)


def oldest_of(session: Session, feed: FeedStatements) -> ChangePosition:
    """Return the position before all remaining changes."""
    pruned = [seq for seq, kind in session.rows(feed.first) if kind == PRUNED]
    return ChangePosition(feed.feed.key, pruned[0] if pruned else 0)


@value_class
class Prune(Operation[bool]):
    """Delete the recorded changes that are too many or too old; returns whether any were deleted."""

    collection: str
    method = "purge_expired"
    writes = True
    snapshot = False
    empty = bool

    def __call__(self, session: Session) -> bool:
        feed = session.collection(self.collection).feed
        return feed is not None and prune(session, feed)


@value_class
class HasPrunable(Operation[bool]):
    """Return whether recorded changes are to be deleted, without writing."""

    collection: str
    method = "purge_expired"
    empty = bool

    def __call__(self, session: Session) -> bool:
        feed = session.collection(self.collection).feed
        return feed is not None and last_surplus(session, feed) > 0
