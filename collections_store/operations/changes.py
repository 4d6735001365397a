"""Reading the recorded changes of a collection.

Whoever records locks the collection's entry in the catalogue until the commit is done (see `write`), so positions come in the
order of commits, and one read sees all changes before the last one it sees. A row stands for what was pruned: a read
that meets it has lost changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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
    """Some changes in their order, and the position of the last one. `more`: there may be others at once. `characters` of
    JSON were read for them.
    """

    changes: tuple[Change, ...]
    position: ChangePosition
    more: bool = False
    characters: int = 0


@value_class
class FindPosition(Operation[ChangePosition]):
    """Return the position of a token, that before the "oldest" change, or, for None, that of the last one; check that the
    feed records what is wanted.
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
        position, ours = read_token(self.after, self.collection)
        if position.key != oldest.key and not ours:
            raise InvalidToken("it is of another collection")
        if position.key != oldest.key or position.number < oldest.number:
            raise ChangesLost(self.collection, self.after, oldest.to_token(self.collection))
        if position.number > _last(connection, feed).number:
            raise InvalidToken("it is of a later state of the database: was a backup restored?")
        return position

    def absent(self) -> ChangePosition:
        raise InvalidOption(
            "changes", f"collection {self.collection} records none: open it with changes=True"
        )


@value_class
class ReadChanges(Operation[Changes]):
    """Read up to `limit` changes after a position, and return those that are wanted."""

    collection: str
    position: ChangePosition
    limit: int
    wanted: ChangeFilter
    atomic = True

    def __call__(self, connection: Connection) -> Changes:
        feed = connection.collection(self.collection).feed
        if feed is None:
            return self.absent()
        if feed.feed.key != self.position.key:
            raise self._lost(_oldest(connection, feed))
        rows = connection.rows(feed.after, {"seq": self.position.number, "limit": self.limit})
        if rows and rows[0][1] == PRUNED:
            raise self._lost(self._position(rows[0]))
        return self._read(rows, ordered=connection.database.ordered_keys)

    def absent(self) -> Changes:
        raise self._lost(None)

    def _read(self, rows: Sequence[Row], *, ordered: bool) -> Changes:
        """Return the changes before the first one that lacks the bodies which the filter needs. If that is the first of all,
        the changes up to the last such one are lost.
        """
        changes = [self._change(row) for row in rows]
        undecided = [n for n, each in enumerate(changes) if self.wanted.is_open(each)]
        decided = undecided[0] if undecided else len(rows)
        if rows and not decided:
            raise self._lost(self._position(rows[undecided[-1]]))
        wanted = [e for e in changes[:decided] if self.wanted.matches(e, ordered=ordered)]
        position = self._position(rows[decided - 1]) if rows else self.position
        more = len(rows) == self.limit or decided < len(rows)
        characters = sum(len(text or "") for row in rows for text in row[5:])
        return Changes(tuple(wanted), position, more, characters)

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
            token=self._position(row).to_token(self.collection),
        )

    def _position(self, row: Row) -> ChangePosition:
        return ChangePosition(self.position.key, row[0])

    def _lost(self, oldest: ChangePosition | None) -> ChangesLost:
        token = self.position.to_token(self.collection)
        first = None if oldest is None else oldest.to_token(self.collection)
        return ChangesLost(self.collection, token, first)


@value_class
class LastChange(Operation[ChangePosition | None]):
    """Return the position of the last change; None: none are recorded."""

    collection: str
    atomic = True

    def __call__(self, connection: Connection) -> ChangePosition | None:
        feed = connection.collection(self.collection).feed
        return None if feed is None else _last(connection, feed)


def _last(connection: Connection, feed: FeedStatements) -> ChangePosition:
    [(last,)] = connection.rows(feed.last)
    return ChangePosition(feed.feed.key, last or 0)


def _oldest(connection: Connection, feed: FeedStatements) -> ChangePosition:
    """Return the position before all changes that are left."""
    pruned = [seq for seq, kind in connection.rows(feed.first) if kind == PRUNED]
    return ChangePosition(feed.feed.key, pruned[0] if pruned else 0)
