"""Reading the recorded changes of a collection.

Whoever records holds the collection's entry in the catalogue until its commit is done (see
`write`), so places come in the order of commits, and one look sees all changes before the last one it
sees. What was pruned has left a row that stands for all of it: a look that meets that row has lost some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .. import codec
from ..document import moment
from ..errors import ChangesLost, InvalidOption, InvalidToken
from ..query.change import Change, ChangeFilter, ChangePosition, read_token
from ..query.values import value_class
from ..sql.change_records import PRUNED, FeedStatements
from .operation import Operation

if TYPE_CHECKING:
    from .connection import Connection, Row


OLDEST: Final = "oldest"


@value_class
class Changes:
    """Some changes in their order, and the place behind them. `more`: there may be others at once.
    `characters` of JSON were read for them.
    """

    changes: tuple[Change, ...]
    place: ChangePosition
    more: bool = False
    characters: int = 0


@value_class
class FindPlace(Operation[ChangePosition]):
    """Find the place after a token, before the "oldest" change, or, for None, after the last one; check
    that what is recorded can tell what is wanted.
    """

    collection: str
    after: str | None
    wanted: ChangeFilter

    def __call__(self, connection: Connection) -> ChangePosition:
        feed = connection.collection(self.collection).feed
        if feed is None:
            return self.absent()
        self.wanted.check(feed.feed.bodies)
        if self.after is None:
            return _last(connection, feed)
        oldest = _oldest(connection, feed)
        if self.after == OLDEST:
            return oldest
        place, ours = read_token(self.after, self.collection)
        if place.key != oldest.key and not ours:
            raise InvalidToken("it is of another collection")
        if place.key != oldest.key or place.number < oldest.number:
            raise ChangesLost(self.collection, self.after, oldest.to_token(self.collection))
        if place.number > _last(connection, feed).number:
            raise InvalidToken("it is of a later state of the database: was a backup restored?")
        return place

    def absent(self) -> ChangePosition:
        raise InvalidOption(
            "changes", f"collection {self.collection} records none: open it with changes=True"
        )


@value_class
class ReadChanges(Operation[Changes]):
    """Read up to `limit` changes after a place, and keep those that are wanted."""

    collection: str
    place: ChangePosition
    limit: int
    wanted: ChangeFilter
    atomic = True

    def __call__(self, connection: Connection) -> Changes:
        feed = connection.collection(self.collection).feed
        if feed is None:
            return self.absent()
        if feed.feed.key != self.place.key:
            raise self._lost(_oldest(connection, feed))
        rows = connection.rows(feed.after, {"seq": self.place.number, "limit": self.limit})
        if rows and rows[0][1] == PRUNED:
            raise self._lost(ChangePosition(self.place.key, rows[0][0]))
        return self._read(rows, ordered=connection.database.ordered_keys)

    def absent(self) -> Changes:
        raise self._lost(None)

    def _read(self, rows: Sequence[Row], *, ordered: bool) -> Changes:
        """Read up to what was recorded without the bodies that the filter needs."""
        every = [self._change(row) for row in rows]
        told = next((n for n, each in enumerate(every) if self.wanted.is_open(each)), len(rows))
        if rows and not told:
            last = max(n for n, each in enumerate(every) if self.wanted.is_open(each))
            raise self._lost(self._place(rows[last]))
        wanted = [each for each in every[:told] if self.wanted.matches(each, ordered=ordered)]
        place = self._place(rows[told - 1]) if rows else self.place
        more = len(rows) == self.limit or told < len(rows)
        return Changes(tuple(wanted), place, more, _characters(rows))

    def _change(self, row: Row) -> Change:
        _, kind, id, version, time, before, after = row
        return Change(
            kind,
            id,
            version,
            moment(time),
            body=None if after is None else codec.decode(after),
            before=None if before is None else codec.decode(before),
            has_body=after is not None,
            has_before=before is not None,
            token=self._place(row).to_token(self.collection),
        )

    def _place(self, row: Row) -> ChangePosition:
        return ChangePosition(self.place.key, row[0])

    def _lost(self, oldest: ChangePosition | None) -> ChangesLost:
        token = self.place.to_token(self.collection)
        return ChangesLost(
            self.collection, token, None if oldest is None else oldest.to_token(self.collection)
        )


@value_class
class LastChange(Operation[ChangePosition | None]):
    """Tell the place of the last change; None: none are recorded."""

    collection: str
    atomic = True

    def __call__(self, connection: Connection) -> ChangePosition | None:
        feed = connection.collection(self.collection).feed
        return None if feed is None else _last(connection, feed)


def _last(connection: Connection, feed: FeedStatements) -> ChangePosition:
    [(last,)] = connection.rows(feed.last)
    return ChangePosition(feed.feed.key, last or 0)


def _oldest(connection: Connection, feed: FeedStatements) -> ChangePosition:
    """Return the place before all changes that are kept."""
    pruned = [seq for seq, kind in connection.rows(feed.first) if kind == PRUNED]
    return ChangePosition(feed.feed.key, pruned[0] if pruned else 0)


def _characters(rows: Iterable[Row]) -> int:
    return sum(map(len, _texts(rows)))


def _texts(rows: Iterable[Any]) -> Iterator[str]:
    for row in rows:
        yield from (text for text in row[5:] if text is not None)
