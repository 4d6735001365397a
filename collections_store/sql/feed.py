"""Statements over the recorded changes of a collection: the change feed."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from ..options import Feed, Names
from .dialects.protocols import Database
from .elements import AnyInteger, BodyFromText, BodyText
from .schema import feed_table, integer, listed
from .statement import ONE, TEMPLATE, ZERO, Statement

PRUNED: Final = "pruned"
"""The kind of the last row that was pruned: it stays, so that a token can be checked for deleted changes after it."""
COUNT_START: Final = 1000
"""A count begins at random below that, so that many processes that record little prune too."""
_CHANGE: Final[dict[str, type[sa.types.TypeEngine[Any]]]] = {
    "kind": sa.Text,
    "id": sa.Text,
    "version": sa.BigInteger,
    "time": sa.BigInteger,
    "before": sa.Text,
    "after": sa.Text,
}


class FeedStatements:
    """The statements of a collection's recorded changes. Without a `template`, the table has its columns."""

    feed: Feed
    table: sa.Table
    database: Database
    template: FeedStatements | None

    def __init__(
        self,
        feed: Feed,
        table: sa.Table,
        database: Database,
        template: FeedStatements | None = None,
    ) -> None:
        self.feed, self.table, self.database, self.template = feed, table, database, template
        self.c: sa.sql.base.ReadOnlyColumnCollection[str, sa.Column[Any]] = self.table.c
        self.counted: int = random.randrange(COUNT_START)
        """Changes since the last pruning, about."""

    create: Statement = Statement(lambda s: sa.schema.CreateTable(s.table))
    """Create the table."""
    drop: Statement = Statement(lambda s: sa.schema.DropTable(s.table, if_exists=True))
    """Drop it."""
    last: Statement = Statement(lambda s: sa.select(sa.func.max(s.c.seq)))
    """Select the position of the last change, or null."""
    first: Statement = Statement(
        lambda s: sa.select(s.c.seq, s.c.kind).order_by(s.c.seq).limit(ONE).offset(ZERO)
    )
    """Select position and kind of the first row."""
    over_limit: Statement = Statement(
        lambda s: sa.select(s.c.seq).order_by(s.c.seq.desc()).limit(ONE).offset(integer("kept"))
    )
    """Select the position of the last change past the limit of `:kept`."""
    delete: Statement = Statement(lambda s: sa.delete(s.table).where(s.c.seq < integer("seq")))
    """Delete the changes before `:seq`."""

    @Statement
    def append(self) -> Any:
        """Record each change: `:kind`, `:id`, `:version`, `:time`, `:before` and `:after`."""
        if self.database.takes_lists:
            given = listed(**_CHANGE)
            chosen = sa.select(*_recorded(given.c).values()).order_by(given.c.position)
            return sa.insert(self.table).from_select(list(_CHANGE), chosen)
        parameters = {name: sa.bindparam(name, type_=kind) for name, kind in _CHANGE.items()}
        return sa.insert(self.table).values(**_recorded(parameters))

    @Statement
    def after(self) -> Any:
        """Select the changes past the position `:seq`, `:limit` at most, and the pruned row."""
        return self._after(self._bodies())

    @Statement
    def heads(self) -> Any:
        """Select the same rows as `after`, with whether there are bodies in place of the bodies."""
        return self._after([each.is_not(None) for each in (self.c.before, self.c.after)])

    @Statement
    def chosen(self) -> Any:
        """Select the changes at `:positions`, as `after` does."""
        positions = sa.bindparam("positions", type_=sa.types.NULLTYPE)
        return self._rows(self._bodies()).where(AnyInteger(self.c.seq, positions))

    def _bodies(self) -> list[Any]:
        bodies = self.c.before, self.c.after
        untyped = [sa.type_coerce(each, sa.types.NULLTYPE) for each in bodies]
        return [BodyText(each, sa.Text()) for each in untyped]

    def _rows(self, bodies: list[Any]) -> Any:
        c = self.c
        return sa.select(c.seq, c.kind, c.id, c.version, c.time, *bodies).order_by(c.seq)

    def _after(self, bodies: list[Any]) -> Any:
        later = self._rows(bodies).where(self.c.seq > integer("seq"))
        return later.limit(integer("limit")).offset(ZERO)

    @Statement
    def lock_first(self) -> Any:
        """Lock the first row, unless a concurrent transaction has locked or just deleted the row."""
        first = sa.select(sa.func.min(self.c.seq)).scalar_subquery()
        return sa.select(self.c.seq).where(self.c.seq == first).with_for_update(skip_locked=True)

    @Statement
    def older_than(self) -> Any:
        """Select the position up to which all changes are from before `:since`, or null."""
        seq, time = self.c.seq, sa.type_coerce(self.c.time, sa.BigInteger)
        young = sa.select(seq).where(time >= integer("since")).order_by(seq)
        first = young.limit(ONE).offset(ZERO).scalar_subquery()
        end = sa.func.coalesce(first, sa.literal_column(str(2**62)))
        return sa.select(sa.func.max(seq)).where(seq < end)

    @Statement
    def mark_pruned(self) -> Any:
        """Mark the change at `:seq` as the pruned row."""
        update = sa.update(self.table).where(self.c.seq == integer("seq"))
        kind: Any = sa.literal_column(f"'{PRUNED}'")
        return update.values(kind=kind, before=sa.null(), after=sa.null())


@cache
def feed_template(database: Database) -> FeedStatements:
    """Return the statements over the table of templates."""
    return FeedStatements(Feed(), feed_table(TEMPLATE, Names(), database), database)


def _recorded(given: Any) -> dict[str, Any]:
    """Return the columns of a change."""
    bodies = {name: BodyFromText(given[name]) for name in ("before", "after")}
    return {name: bodies.get(name, given[name]) for name in _CHANGE}
