"""Statements that are the same for every filter: over documents by their ids, and over recorded changes.

None of them sees an expired row. Those that return a body for one id also return when it expires, which is faster than
a test in SQL; the others take `:now`. A write that meets an expired row writes nothing: it is purged first.

The parameters are `:id` and `:ids`, `:body`, `:now`, `:ttl` with its end `:expires`, `:expected` (a version) and
`:created`, which with the version identifies a document: a later one of the same id is another.
"""

from __future__ import annotations

import random
from functools import cached_property, lru_cache
from typing import Any, Final

import sqlalchemy as sa

from ..options import CollectionOptions, Feed, Names
from .dialects.protocols import Database
from .elements import (
    AnyOf,
    BodyFromText,
    BodyText,
    HasInteger,
    Increased,
    Keys,
    TextFits,
    ValueText,
)
from .schema import (
    body_from,
    body_text,
    deleted_columns,
    document_columns,
    feed_table,
    integer,
    is_expired,
    is_live,
    listed,
)

ONE: Final[sa.ColumnElement[Any]] = sa.literal_column("1")
ZERO: Final[sa.ColumnElement[Any]] = sa.literal_column("0")
"""As an offset: SQLAlchemy binds one of its own where SQLite has a limit alone."""
PATHS_CACHED: Final = 256
TABLES_CACHED: Final = 8


def compiled(statement: Any, database: Database) -> str:
    """Return the statement's text, as the database's driver takes it."""
    return str(statement.compile(dialect=database.compiler.dialect))


class IdStatements:
    """The statements of one collection's table over ids."""

    def __init__(self, table: sa.Table, options: CollectionOptions, database: Database) -> None:
        self._table, self._options, self._database = table, options, database
        self.increment = lru_cache(maxsize=PATHS_CACHED)(self._compile_increment)
        self.insert_if_exists = lru_cache(maxsize=TABLES_CACHED)(self._compile_insert_if_exists)
        self._is_live = is_live(table)
        self._is_id = table.c.id == sa.bindparam("id", type_=sa.Text)
        self._in_ids = AnyOf(table.c.id, sa.bindparam("ids", type_=sa.types.NULLTYPE))
        self._is_version = table.c.version == integer("expected")
        created: Any = sa.type_coerce(table.c.created_at, sa.BigInteger)
        self._is_same: sa.ColumnElement[bool] = created == integer("created")
        self._slides = {}
        if options.sliding:
            expires = sa.func.coalesce(integer("now") + table.c.ttl, table.c.expires_at)
            self._slides = {"expires_at": expires}

    # -- reading ----------------------------------------------------------------------------------

    @cached_property
    def get(self) -> str:
        """Select the body of `:id`, and when it expires."""
        return self._sql(self._select(body_text(self._table), self._table.c.expires_at))

    @cached_property
    def document(self) -> str:
        """Select the document of `:id`."""
        return self._sql(self._select(*document_columns(self._table)))

    @cached_property
    def exists(self) -> str:
        """Select when `:id` expires."""
        return self._sql(self._select(self._table.c.expires_at))

    @cached_property
    def get_many(self) -> str:
        """Select id and body of `:ids`."""
        return self._sql(self._select_many(self._table.c.id, body_text(self._table)))

    @cached_property
    def versions(self) -> str:
        """Select and lock id, version and null of `:ids`, in order."""
        c = self._table.c
        return self._sql(self._locked(c.id, c.version, sa.null()))

    @cached_property
    def bodies(self) -> str:
        """Select and lock id, version and body of `:ids`, in order."""
        c = self._table.c
        return self._sql(self._locked(c.id, c.version, body_text(self._table)))

    @cached_property
    def lock(self) -> str:
        """Select and lock the document of `:id`."""
        row = self._select(*document_columns(self._table)).where(self._is_live)
        return self._sql(row.with_for_update())

    @cached_property
    def lock_many(self) -> str:
        """Select and lock the documents of `:ids`, in order."""
        return self._sql(self._locked(*document_columns(self._table)))

    @cached_property
    def last_position(self) -> str:
        """Select the last position in natural order, 0 if there is none."""
        return self._sql(sa.select(sa.func.coalesce(sa.func.max(self._table.c.seq), ZERO)))

    @cached_property
    def count_after(self) -> str:
        """Count the rows past the position `:seq`."""
        seq = self._table.c.seq
        return self._sql(sa.select(sa.func.count(seq)).where(seq > integer("seq")))

    @cached_property
    def has_expired(self) -> str:
        """Select whether any row has expired."""
        some = sa.select(ONE).select_from(self._table).where(is_expired(self._table))
        return self._sql(sa.select(sa.exists(some)))

    def _select(self, *columns: sa.ColumnElement[Any]) -> Any:
        return sa.select(*columns).where(self._is_id)

    def _select_many(self, *columns: sa.ColumnElement[Any]) -> Any:
        return sa.select(*columns).where(self._in_ids, self._is_live)

    def _locked(self, *columns: sa.ColumnElement[Any]) -> Any:
        """Lock in the order of ids, so that two transactions cannot deadlock."""
        return self._select_many(*columns).order_by(self._table.c.id).with_for_update()

    # -- inserting and upserting ------------------------------------------------------------------

    @cached_property
    def put(self) -> str:
        """Upsert `:id`; returns the version, or nothing where an expired row is in the way."""
        return self._sql(self._or_update(self._row()).returning(self._table.c.version))

    @cached_property
    def put_batch(self) -> str:
        """Upsert each `:id` and `:body`, in their order; returns nothing."""
        return self._sql(self._or_update(self._lists() if self._takes_lists else self._row()))

    @cached_property
    def put_lists(self) -> str:
        """Upsert the lists `:id` and `:body`; returns id and version of those where no expired row is in the way."""
        c = self._table.c
        return self._sql(self._or_update(self._lists()).returning(c.id, c.version))

    @cached_property
    def insert(self) -> str:
        """Insert `:id` where it is absent; returns the version, or nothing."""
        return self._sql(self._or_nothing(self._row()).returning(self._table.c.version))

    @cached_property
    def insert_batch(self) -> str:
        """Insert each `:id` and `:body` where it is absent; returns nothing."""
        return self._sql(self._or_nothing(self._row()))

    @cached_property
    def insert_lists(self) -> str:
        """Insert the lists `:id` and `:body`; returns the ids of those that were absent."""
        return self._sql(self._or_nothing(self._lists()).returning(self._table.c.id))

    def _compile_insert_if_exists(self, other: sa.Table) -> str:
        """Insert as `insert` does if the table `other` has the row `:other`, which is locked against deletion."""
        columns = self._new_columns()
        values = sa.select(*(each.label(name) for name, each in columns.items()))
        is_other = other.c.id == sa.bindparam("other", type_=sa.Text)
        exists = values.select_from(other).where(is_other, is_live(other))
        locked = exists.with_for_update(read=True, key_share=True, of=other)
        insert = self._database.compiler.insert(self._table).from_select(list(columns), locked)
        return self._sql(self._or_nothing(insert).returning(self._table.c.version))

    def _row(self) -> Any:
        return self._database.compiler.insert(self._table).values(**self._new_columns())

    def _lists(self) -> Any:
        return self._from_lists(listed(id=sa.Text, body=sa.Text), self._new_values())

    def _from_lists(self, rows: Any, values: dict[str, Any]) -> Any:
        """Insert rows in their order, with values that are the same for all."""
        columns = {"id": rows.c.id, "body": body_from(self._table, rows.c.body), **values}
        select = sa.select(*(each.label(name) for name, each in columns.items()))
        insert = self._database.compiler.insert(self._table)
        return insert.from_select(list(columns), select.order_by(rows.c.position))

    def _new_columns(self) -> dict[str, sa.ColumnElement[Any]]:
        body = body_from(self._table, sa.bindparam("body", type_=sa.Text))
        return {"id": sa.bindparam("id", type_=sa.Text), "body": body, **self._new_values()}

    def _new_values(self) -> dict[str, sa.ColumnElement[Any]]:
        times = {"created_at": "now", "updated_at": "now", "expires_at": "expires", "ttl": "ttl"}
        return {"version": ONE, **{column: integer(name) for column, name in times.items()}}

    def _or_nothing(self, insert: Any) -> Any:
        return insert.on_conflict_do_nothing(index_elements=[self._table.c.id])

    def _or_update(self, insert: Any) -> Any:
        c = self._table.c
        updated = ("body", "updated_at", "expires_at", "ttl")
        values = {"version": c.version + ONE, **{each: insert.excluded[each] for each in updated}}
        return insert.on_conflict_do_update(index_elements=[c.id], set_=values, where=self._is_live)

    @property
    def _takes_lists(self) -> bool:
        return self._database.takes_lists

    # -- updating ---------------------------------------------------------------------------------

    @cached_property
    def replace(self) -> str:
        """Write `:body`, `:expires` and `:ttl` where `:id` has the version `:expected`; returns the version."""
        life = {"expires_at": integer("expires"), "ttl": integer("ttl")}
        return self._sql(self._rewritten(life).returning(self._table.c.version))

    @cached_property
    def rewrite(self) -> str:
        """Write `:body` where `:id` has the version `:expected` and `:created`; the time to live stays, or begins again
        where the collection is sliding.
        """
        return self._sql(self._rewritten(self._slides).where(self._is_same))

    @cached_property
    def rewrite_batch(self) -> str:
        """Write each `:body` as `rewrite` does, in their order; all rows exist and are locked."""
        return self._sql(self._rewritten_lists()) if self._takes_lists else self.rewrite

    def _rewritten(self, life: dict[str, Any]) -> Any:
        update = self._update(self._is_id, self._is_version)
        body = body_from(self._table, sa.bindparam("body", type_=sa.Text))
        version = self._table.c.version + ONE
        return update.values(body=body, version=version, updated_at=integer("now"), **life)

    def _rewritten_lists(self) -> Any:
        """An UPDATE has no order, and a unique index checks each row as it comes: this inserts what exists already."""
        c, lists = self._table.c, {"version": "expected", "created_at": "created"}
        rows = listed(id=sa.Text, body=sa.Text, expected=sa.BigInteger, created=sa.BigInteger)
        values = {"expires_at": sa.null(), "ttl": sa.null(), "updated_at": integer("now")}
        values |= {name: rows.c[each] for name, each in lists.items()}
        insert = self._from_lists(rows, values)
        is_same = [c[name] == insert.excluded[name] for name in lists]
        updated = {name: insert.excluded[name] for name in ("body", "updated_at")}
        return insert.on_conflict_do_update(
            index_elements=[c.id],
            set_={"version": c.version + ONE, **updated, **self._slides},
            where=sa.and_(*is_same, self._is_live),
        )

    def _compile_increment(self, keys: Keys) -> str:
        """Increase the integer at `keys` by `:by` if the body has at most `:size` bytes, or insert `:body` where `:id`
        is absent; returns the integer's text, or nothing where no integer is.
        """
        insert, c = self._row(), self._table.c
        body: Any = sa.type_coerce(c.body, sa.types.NULLTYPE)
        increased: Any = Increased(body, keys, sa.cast(integer("by"), sa.BigInteger))
        text = body
        if self._options.jsonb:  # SQLite's json_set returns text
            increased, text = body_from(self._table, increased), body_text(self._table)
        values = {"body": increased, "version": c.version + ONE, "updated_at": integer("now")}
        fits = TextFits(text, integer("size"))
        written = insert.on_conflict_do_update(
            index_elements=[c.id],
            set_={**values, **self._slides},
            where=sa.and_(self._is_live, HasInteger(body, keys), fits),
        )
        return self._sql(written.returning(ValueText(body, keys)))

    # -- time to live -----------------------------------------------------------------------------

    @cached_property
    def touch(self) -> str:
        """Let `:id` live from `:now` for `:ttl`, or for its own."""
        c = self._table.c
        ttl = sa.func.coalesce(sa.cast(integer("ttl"), sa.BigInteger), c.ttl)
        expires = sa.func.coalesce(integer("now") + ttl, c.expires_at)
        return self._live(self._update(self._is_id), ttl=ttl, expires_at=expires)

    @cached_property
    def touch_many(self) -> str:
        """Let `:ids` live from `:now` for `:ttl`."""
        ttl = sa.cast(integer("ttl"), sa.BigInteger)
        return self._live(self._update(self._in_ids), ttl=ttl, expires_at=integer("now") + ttl)

    @cached_property
    def slide(self) -> str:
        """Let `:id` live from `:now` for `:ttl`, which is that of its session, but no longer than its own."""
        c, ttl = self._table.c, sa.cast(integer("ttl"), sa.BigInteger)
        written, until = sa.type_coerce(c.updated_at, sa.BigInteger), integer("now") + ttl
        ends: Any = written + c.ttl
        own: Any = sa.case((c.expires_at > ends, c.expires_at), else_=ends)  # touched since
        ends_before = sa.and_(c.ttl > ttl, own < until)
        expires = sa.case((ends_before, own), else_=until)
        return self._live(self._update(self._is_id).where(c.ttl >= ttl), expires_at=expires)

    @cached_property
    def persist(self) -> str:
        """Let `:id` never expire."""
        return self._live(self._update(self._is_id), ttl=sa.null(), expires_at=sa.null())

    def _update(self, *clauses: sa.ColumnElement[bool]) -> sa.Update:
        return sa.update(self._table).where(*clauses, self._is_live)

    def _live(self, update: sa.Update, **life: Any) -> str:
        """Keep `updated_at`, which the column's `onupdate` would set."""
        return self._sql(update.values(**life, updated_at=self._table.c.updated_at))

    # -- deleting ---------------------------------------------------------------------------------

    @cached_property
    def remove(self) -> str:
        """Delete `:id`."""
        return self._sql(self._deleted(self._is_id, self._is_live))

    @cached_property
    def remove_returning(self) -> str:
        """Delete `:id`; returns `deleted_columns`."""
        return self._sql(self._returning(self._is_id, self._is_live))

    @cached_property
    def remove_version(self) -> str:
        """Delete `:id` where it has the version `:expected`; returns `deleted_columns`."""
        return self._sql(self._returning(self._is_id, self._is_version, self._is_live))

    @cached_property
    def remove_document(self) -> str:
        """Delete `:id` where it has the version `:expected` and `:created`; returns `deleted_columns`."""
        same = (self._is_version, self._is_same)
        return self._sql(self._returning(self._is_id, *same, self._is_live))

    @cached_property
    def remove_many(self) -> str:
        """Delete `:ids`."""
        return self._sql(self._deleted(self._in_ids, self._is_live))

    @cached_property
    def remove_many_returning(self) -> str:
        """Delete `:ids`; returns `deleted_columns`."""
        return self._sql(self._returning(self._in_ids, self._is_live))

    @cached_property
    def purge(self) -> str:
        """Delete those of `:ids` that have expired; returns `deleted_columns`."""
        return self._sql(self._returning(self._in_ids, is_expired(self._table)))

    @cached_property
    def purge_some(self) -> str:
        """Delete expired rows, `:limit` at most, the first expired first; returns `deleted_columns`."""
        c = self._table.c
        expired = sa.select(c.seq).where(is_expired(self._table)).order_by(c.expires_at, c.seq)
        locked = expired.limit(integer("limit")).offset(ZERO).with_for_update(skip_locked=True)
        in_locked = c.seq.in_(locked.scalar_subquery())
        return self._sql(self._returning(in_locked, is_expired(self._table)))

    def _deleted(self, *clauses: sa.ColumnElement[bool]) -> sa.Delete:
        return sa.delete(self._table).where(*clauses)

    def _returning(self, *clauses: sa.ColumnElement[bool]) -> Any:
        return self._deleted(*clauses).returning(*deleted_columns(self._table, self._options))

    def _sql(self, statement: sa.Executable) -> str:
        return compiled(statement, self._database)


PRUNED: Final = "pruned"
"""The kind of the last row that was pruned: it stays, so that a token can be checked for changes after it that are gone."""
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
