"""Statements of the table in which a collection's changes are recorded.

The last pruned row stays, marked: so a token can be checked for changes after it that are gone.
"""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sa

from ..options import Feed, Names
from .by_id import ONE, ZERO, compiled
from .dialects.protocols import Database
from .elements import BodyFromText, BodyText
from .schema import feed_table, integer, listed

PRUNED: Final = "pruned"
COUNT_START: Final = 1000
"""A count begins at random below that, so that many processes that record little prune too."""
COLUMNS: Final[dict[str, Any]] = {
    "kind": sa.Text,
    "id": sa.Text,
    "version": sa.BigInteger,
    "time": sa.BigInteger,
    "before": sa.Text,
    "after": sa.Text,
}


class FeedStatements:
    """The statements of one collection's recorded changes."""

    def __init__(self, feed: Feed, names: Names, database: Database) -> None:
        self.feed, self._names, self._database = feed, names, database
        self._table = feed_table(feed.physical, names, database)
        self.counted = random.randrange(COUNT_START)
        """Changes since the last pruning, about."""

    @property
    def create(self) -> str:
        """Create the table."""
        return self._sql(sa.schema.CreateTable(self._table))

    @property
    def drop(self) -> str:
        """Drop it."""
        return self._sql(sa.schema.DropTable(self._table, if_exists=True))

    @cached_property
    def append(self) -> str:
        """Record each change: `:kind`, `:id`, `:version`, `:time`, `:before` and `:after`."""
        if self._database.takes_lists:
            given = listed(**COLUMNS)
            chosen = sa.select(*_recorded(dict(given.c)).values()).order_by(given.c.position)
            return self._sql(sa.insert(self._table).from_select(list(COLUMNS), chosen))
        given = {name: sa.bindparam(name, type_=kind) for name, kind in COLUMNS.items()}
        return self._sql(sa.insert(self._table).values(**_recorded(given)))

    @cached_property
    def after(self) -> str:
        """Select the changes past the position `:seq`, `:limit` at most, and the pruned row."""
        c = self._table.c
        bodies = [
            BodyText(sa.type_coerce(each, sa.types.NULLTYPE), sa.Text())
            for each in (c.before, c.after)
        ]
        chosen = sa.select(c.seq, c.kind, c.id, c.version, c.time, *bodies)
        limited = chosen.where(c.seq > integer("seq")).order_by(c.seq)
        return self._sql(limited.limit(integer("limit")).offset(ZERO))

    @cached_property
    def last(self) -> str:
        """Select the position of the last change, or null."""
        return self._sql(sa.select(sa.func.max(self._table.c.seq)))

    @cached_property
    def first(self) -> str:
        """Select position and kind of the first row."""
        c = self._table.c
        return self._sql(sa.select(c.seq, c.kind).order_by(c.seq).limit(ONE).offset(ZERO))

    @cached_property
    def lock_first(self) -> str:
        """Lock the first row, unless another has locked or just deleted it."""
        c = self._table.c
        first = sa.select(sa.func.min(c.seq)).scalar_subquery()
        held = sa.select(c.seq).where(c.seq == first)
        return self._sql(held.with_for_update(skip_locked=True))

    @cached_property
    def over_limit(self) -> str:
        """Select the position of the last change past the limit of `:kept`."""
        seq = self._table.c.seq
        chosen = sa.select(seq).order_by(seq.desc()).limit(ONE)
        return self._sql(chosen.offset(integer("kept")))

    @cached_property
    def older_than(self) -> str:
        """Select the position up to which all changes are from before `:since`, or null."""
        c = self._table.c
        young = sa.select(c.seq).where(sa.type_coerce(c.time, sa.BigInteger) >= integer("since"))
        first = young.order_by(c.seq).limit(ONE).offset(ZERO).scalar_subquery()
        return self._sql(
            sa.select(sa.func.max(c.seq)).where(
                c.seq < sa.func.coalesce(first, sa.literal_column(str(2**62)))
            )
        )

    @cached_property
    def delete(self) -> str:
        """Delete the changes before `:seq`."""
        return self._sql(sa.delete(self._table).where(self._table.c.seq < integer("seq")))

    @cached_property
    def mark_pruned(self) -> str:
        """Mark the change at `:seq` as the pruned row."""
        update = sa.update(self._table).where(self._table.c.seq == integer("seq"))
        kind: Any = sa.literal_column(f"'{PRUNED}'")
        return self._sql(update.values(kind=kind, before=sa.null(), after=sa.null()))

    def _sql(self, statement: Any) -> str:
        return compiled(statement, self._database)


def _recorded(given: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a change."""
    bodies = {name: BodyFromText(given[name]) for name in ("before", "after")}
    return {name: bodies.get(name, given[name]) for name in COLUMNS}
