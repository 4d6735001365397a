"""Statements over documents by their ids, the same for every filter.

No statement sees an expired row, but some return which rows have expired. Statements that return a body for an id also
return the expiry time, because a test in SQL is slower; the rest take `:now`. A write that meets an expired row writes
nothing: the row is purged first.

The parameters are `:id` and `:ids`, `:body`, `:now`, `:ttl` and the resulting end `:expires`, `:expected` (a version)
and `:created`. Version and `:created` together identify a document: a later document of the same id is different.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from .. import codec
from ..options import CollectionOptions
from .dialects.protocols import Database
from .elements import (
    AnyOf,
    HasInteger,
    Increased,
    Keys,
    ListOf,
    PositionIn,
    ReportedVersion,
    TextFits,
    ValueText,
)
from .keys import KeyedPath, keyed_paths, with_keys
from .schema import (
    body_from,
    body_text,
    deleted_columns,
    document_columns,
    integer,
    is_expired,
    is_live,
    listed,
    stored_from,
    string,
)
from .statement import ONE, ZERO, Statement, compiled

_TTL: Final = sa.cast(integer("ttl"), sa.BigInteger)
PATHS_CACHED: Final = 256
TABLES_CACHED: Final = 8
_COPIED: Final = ("version", "created_at", "updated_at", "expires_at", "ttl")
"""The columns of a copied row besides id and body."""


class IdStatements:
    """The statements of a collection's table over ids."""

    table: sa.Table
    options: CollectionOptions
    database: Database
    c: sa.sql.base.ReadOnlyColumnCollection[str, sa.Column[Any]]
    body: sa.ColumnElement[str]
    columns: tuple[sa.ColumnElement[Any], ...]
    is_live: sa.ColumnElement[bool]
    is_expired: sa.ColumnElement[bool]

    def __init__(
        self,
        table: sa.Table,
        options: CollectionOptions,
        database: Database,
        template: IdStatements | None = None,
    ) -> None:
        self.table, self.options, self.database, self.c = table, options, database, table.c
        self.template = template
        self.increment: Callable[..., str] = lru_cache(maxsize=PATHS_CACHED)(
            self._compile_increment
        )
        self.insert_if_exists: Callable[..., str] = lru_cache(maxsize=TABLES_CACHED)(
            self._compile_insert_if_exists
        )
        self.body, self.columns = body_text(table), document_columns(table)
        self.is_live, self.is_expired = is_live(table), is_expired(table)
        keys = table.info["keys"]
        self.stored: tuple[str, ...] = ("body", keys) if keys else ("body",)
        """The columns that a written text sets."""
        self.keyed: tuple[KeyedPath, ...] = keyed_paths(options.indexes) if keys else ()
        """The keys that a written text brings, see `with_keys`."""
        self.is_id: sa.ColumnElement[bool] = table.c.id == sa.bindparam("id", type_=sa.Text)
        self.in_ids: AnyOf = AnyOf(table.c.id, sa.bindparam("ids", type_=sa.types.NULLTYPE))
        self.is_version: sa.ColumnElement[bool] = table.c.version == integer("expected")
        created: Any = sa.type_coerce(table.c.created_at, sa.BigInteger)
        self.is_same: sa.ColumnElement[bool] = created == integer("created")
        self.lock_groups: str | None = database.transactions.lock_groups(table)
        """Select lists of `:ids`, each of which one statement can lock; None: one can lock all."""

    def text(self, body: str) -> str:
        """Return the parameter `:body` of the text of a body."""
        return with_keys(body, codec.decode(body), self.keyed) if self.keyed else body

    # -- reading ----------------------------------------------------------------------------------

    get: Statement = Statement(lambda s: s.select(s.body, s.c.expires_at))
    """Select the body of `:id`, and when it expires."""
    document: Statement = Statement(lambda s: s.select(*s.columns))
    """Select the document of `:id`."""
    exists: Statement = Statement(lambda s: s.select(s.c.expires_at))
    """Select when `:id` expires."""
    documents: Statement = Statement(lambda s: s.select_many(s.c.seq, *s.columns).order_by(s.c.seq))
    """Select position and document of `:ids`, in natural order."""
    get_many: Statement = Statement(lambda s: s.select_many(s.c.id, s.body))
    """Select id and body of `:ids`."""
    present: Statement = Statement(lambda s: sa.select(s.c.id).where(s.in_ids))
    """Select those of `:ids` that have a row."""
    ids: Statement = Statement(lambda s: s.locked(s.c.id))
    """Select and lock those of `:ids` that exist, in order."""
    versions: Statement = Statement(lambda s: s.locked_versions(sa.null()))
    """Select and lock id, version, null, creation time of all rows of `:ids`, and whether each has expired, in order."""
    bodies: Statement = Statement(lambda s: s.locked_versions(s.body))
    """Select and lock rows as `versions`, with the body in place of null."""
    share: Statement = Statement(
        lambda s: s.select(ONE).where(s.is_live).with_for_update(read=True, key_share=True)
    )
    """Lock `:id` against deletion; returns a row if it is there."""
    lock: Statement = Statement(lambda s: s.select(*s.columns).where(s.is_live).with_for_update())
    """Select and lock the document of `:id`."""
    lock_many: Statement = Statement(lambda s: s.locked(*s.columns))
    """Select and lock the documents of `:ids`, in order."""
    copies: Statement = Statement(lambda s: s.select_copies())
    """Select position and stored columns of the rows past `:seq` that have not expired at `:now`, `:limit` at most."""
    counts: Statement = Statement(
        lambda s: sa.select(sa.func.count(s.c.seq), sa.func.count(s.c.expires_at))
    )
    """Count the rows, and those that expire some time."""
    last_position: Statement = Statement(
        lambda s: sa.select(sa.func.coalesce(sa.func.max(s.c.seq), ZERO))
    )
    """Select the last position in natural order, 0 if there is none."""
    count_after: Statement = Statement(
        lambda s: sa.select(sa.func.count(s.c.seq)).where(s.c.seq > integer("seq"))
    )
    """Count the rows past the position `:seq`."""

    @Statement
    def has_expired(self) -> Any:
        """Select a row if any row has expired. The order is that of an index: PostgreSQL then chooses the index for any
        `:now`.
        """
        expired = sa.select(ONE).select_from(self.table).where(self.is_expired)
        return expired.order_by(self.c.expires_at).limit(ONE).offset(ZERO)

    @Statement
    def count_expired(self) -> Any:
        """Count the rows that have expired, up to `:limit`."""
        return sa.select(sa.func.count()).select_from(self.some_expired(self.c.seq).subquery())

    @Statement
    def first_ids(self) -> Any:
        """Select the first id of each group of ids from `:first` to before `:end`, in order, `:limit` at most. A group
        has the same beginning up to the first `:delimiter` from the character `:start` on; an id without a delimiter is
        a group. The first string after a group ends with `:following` instead of the delimiter, or after a single id
        with `:least`. The index is searched once for each group.
        """
        within = self.c.id >= string("first"), self.c.id < string("end"), self.is_live
        if not self.database.takes_subqueries:  # which takes no recursion
            least: Any = sa.func.min(self.c.id)
            ends = sa.select(least).where(*within).group_by(_after_group(self.c.id))
            return ends.order_by(least).limit(integer("limit")).offset(ZERO)
        first = sa.select(self.c.id).order_by(self.c.id).limit(ONE).offset(ZERO)
        begin = sa.select(first.where(*within).scalar_subquery().label("id"))
        found: Any = begin.cte("found", recursive=True)
        later = self.c.id >= _after_group(found.c.id), *within[1:]
        following = first.where(*later).correlate(found).scalar_subquery()
        found = found.union_all(sa.select(following).where(found.c.id.is_not(None)))
        chosen = sa.select(found.c.id).where(found.c.id.is_not(None))
        return chosen.limit(integer("limit")).offset(ZERO)

    expired: Statement = Statement(lambda s: s.some_expired(s.c.id))
    """Select the ids of expired rows, `:limit` at most, the first expired first."""

    def select(self, *columns: sa.ColumnElement[Any]) -> Any:
        return sa.select(*columns).where(self.is_id)

    def select_copies(self) -> Any:
        c = self.c
        stored = sa.select(c.seq, c.id, self.body, *(c[name] for name in _COPIED))
        rows = stored.where(c.seq > integer("seq"), self.is_live).order_by(c.seq)
        return rows.limit(integer("limit")).offset(ZERO)

    def select_many(self, *columns: sa.ColumnElement[Any]) -> Any:
        return sa.select(*columns).where(self.in_ids, self.is_live)

    def locked(self, *columns: sa.ColumnElement[Any]) -> Any:
        """Lock in the order of ids, so that two transactions cannot deadlock."""
        return self.select_many(*columns).order_by(self.c.id).with_for_update()

    def locked_versions(self, body: sa.ColumnElement[Any]) -> Any:
        columns = self.c.id, self.c.version, body, self.c.created_at, self.is_expired
        rows = sa.select(*columns).where(self.in_ids)
        return rows.order_by(self.c.id).with_for_update()

    # -- inserting and upserting ------------------------------------------------------------------

    put: Statement = Statement(lambda s: s.or_update(s.row()).returning(s.c.version), is_row=True)
    """Upsert a row; returns the version, or nothing where an expired row is in the way."""
    put_reporting: Statement = Statement(
        lambda s: s.or_update(s.row(), ReportedVersion(s.c.version + ONE)), is_row=True
    )
    """Upsert a row, and report the version of a row that was there; changes nothing where an expired row is in the way."""
    put_each: Statement = Statement(lambda s: s.or_update(s.row()), is_row=True)
    """Upsert a row; returns nothing."""
    replace_lists: Statement = Statement(lambda s: s.or_update(s.lists()))
    """Upsert the lists `:id` and `:body`; returns nothing."""
    put_lists: Statement = Statement(
        lambda s: s.or_update(s.lists()).returning(s.c.id, s.c.version)
    )
    """Upsert the lists `:id` and `:body`; returns id and version of those where no expired row is in the way."""

    @Statement
    def put_whole_lists(self) -> Any:
        """Upsert the lists `:id` and `:body` as `put_lists`, but nothing if any row has expired. Existing rows are
        locked first, in the order of ids: two statements cannot deadlock.
        """
        there = sa.select(self.is_expired.label("expired"))
        there = there.where(AnyOf(self.c.id, ListOf("id", texts=True))).order_by(self.c.id)
        locked = there.with_for_update().cte("locked")
        expired = sa.select(sa.func.count()).select_from(locked).where(locked.c.expired)
        rows, none_expired = listed(id=sa.Text, body=sa.Text), expired.scalar_subquery() == ZERO
        insert = self._from_lists(rows, self._new_values(), none_expired)
        return self.or_update(insert).returning(self.c.id, self.c.version)

    insert: Statement = Statement(lambda s: s.or_nothing(s.row()), is_row=True)
    """Insert a row where its id is absent; returns nothing."""
    insert_lists: Statement = Statement(lambda s: s.or_nothing(s.lists()).returning(s.c.id))
    """Insert the lists `:id` and `:body`; returns the ids of those that were absent."""

    def _compile_insert_if_exists(self, other: sa.Table) -> str:
        """Insert as `insert` does if the table `other` has the row `:other`, and lock the row against deletion."""
        columns = self._new_columns()
        values = sa.select(*(each.label(name) for name, each in columns.items()))
        is_other = other.c.id == sa.bindparam("other", type_=sa.Text)
        exists = values.select_from(other).where(is_other, is_live(other))
        locked = exists.with_for_update(read=True, key_share=True, of=other)
        insert = self.database.compiler.insert(self.table).from_select(list(columns), locked)
        return compiled(self.or_nothing(insert), self.database)

    @Statement
    def insert_copies(self) -> Any:
        """Insert rows unchanged and in order: `:id`, `:body` and the columns of `_COPIED`. Existing ids are skipped."""
        if self.database.takes_lists:
            numbers = dict.fromkeys(_COPIED, sa.BigInteger)
            rows = listed(id=sa.Text, body=sa.Text, **numbers)
            return self.or_nothing(self._from_lists(rows, {name: rows.c[name] for name in _COPIED}))
        columns = {**self._new_columns(), **{name: integer(name) for name in _COPIED}}
        return self.or_nothing(self.database.compiler.insert(self.table).values(**columns))

    def row(self) -> Any:
        return self.database.compiler.insert(self.table).values(**self._new_columns())

    def lists(self) -> Any:
        return self._from_lists(listed(id=sa.Text, body=sa.Text), self._new_values())

    def _from_lists(
        self, rows: Any, values: dict[str, Any], *clauses: sa.ColumnElement[bool]
    ) -> Any:
        """Insert rows in order, with the same `values` for all rows."""
        columns = {"id": rows.c.id, **stored_from(self.table, rows.c.body), **values}
        select = sa.select(*(each.label(name) for name, each in columns.items()))
        insert = self.database.compiler.insert(self.table)
        ordered = select.where(*clauses).order_by(rows.c.position)
        return insert.from_select(list(columns), ordered)

    def slides(self, time: sa.ColumnElement[Any]) -> dict[str, Any]:
        """Return the new end of a document's time to live where the collection is sliding."""
        if not self.options.sliding:
            return {}
        return {"expires_at": sa.func.coalesce(time + self.c.ttl, self.c.expires_at)}

    def _new_columns(self) -> dict[str, sa.ColumnElement[Any]]:
        stored = stored_from(self.table, sa.bindparam("body", type_=sa.Text))
        return {"id": sa.bindparam("id", type_=sa.Text), **stored, **self._new_values()}

    def _new_values(self) -> dict[str, sa.ColumnElement[Any]]:
        times = {"created_at": "now", "updated_at": "now", "expires_at": "expires", "ttl": "ttl"}
        return {"version": ONE, **{column: integer(name) for column, name in times.items()}}

    def or_nothing(self, insert: Any) -> Any:
        return insert.on_conflict_do_nothing(index_elements=[self.c.id])

    def or_update(self, insert: Any, version: Any = None) -> Any:
        """`excluded` has the time, too: Citus takes no parameters where an INSERT with a SELECT has a conflict."""
        updated = (*self.stored, "updated_at", "expires_at", "ttl")
        values = {
            "version": self.c.version + ONE if version is None else version,
            **{each: insert.excluded[each] for each in updated},
        }
        return insert.on_conflict_do_update(
            index_elements=[self.c.id],
            set_=values,
            where=is_live(self.table, _time(insert)),
        )

    # -- updating ---------------------------------------------------------------------------------

    replace: Statement = Statement(
        lambda s: s.rewritten(expires_at=integer("expires"), ttl=integer("ttl")).returning(
            s.c.version
        )
    )
    """Write `:body`, `:expires` and `:ttl` where `:id` has the version `:expected`; returns the version."""
    rewrite: Statement = Statement(
        lambda s: s.rewritten(**s.slides(integer("now"))).where(s.is_same)
    )
    """Write `:body` where `:id` has the version `:expected` and `:created`; the time to live stays, or begins again where
    the collection is sliding.
    """

    def rewritten(self, **life: Any) -> Any:
        stored = stored_from(self.table, sa.bindparam("body", type_=sa.Text))
        version = self.c.version + ONE
        update = self.update(self.is_id, self.is_version)
        return update.values(**stored, version=version, updated_at=integer("now"), **life)

    @Statement
    def rewrite_batch(self) -> Any:
        """Write each `:body` as `rewrite` does, in order; all rows exist and are locked. Lists are written by an INSERT
        with conflicts: an UPDATE with lists has no order, and a unique index checks row by row.
        """
        if not self.database.takes_lists:
            return self.rewritten(**self.slides(integer("now"))).where(self.is_same)
        c, lists = self.c, {"version": "expected", "created_at": "created"}
        rows = listed(id=sa.Text, body=sa.Text, expected=sa.BigInteger, created=sa.BigInteger)
        values = {"expires_at": sa.null(), "ttl": sa.null(), "updated_at": integer("now")}
        values |= {name: rows.c[each] for name, each in lists.items()}
        insert = self._from_lists(rows, values)
        is_same = [c[name] == insert.excluded[name] for name in lists]
        updated = {name: insert.excluded[name] for name in (*self.stored, "updated_at")}
        return insert.on_conflict_do_update(
            index_elements=[c.id],
            set_={"version": c.version + ONE, **updated, **self.slides(_time(insert))},
            where=sa.and_(*is_same, is_live(self.table, _time(insert))),
        )

    def _compile_increment(self, keys: Keys) -> str:
        """Increase the integer at `keys` by `:by` if the body has at most `:size` bytes, or insert `:body` where `:id`
        is absent; returns the integer's text, or nothing where no integer is.
        """
        body: Any = sa.type_coerce(self.c.body, sa.types.NULLTYPE)
        increased: Any = Increased(body, keys, sa.cast(integer("by"), sa.BigInteger))
        text = body
        if self.options.jsonb:  # SQLite's json_set returns text
            increased, text = body_from(self.table, increased), self.body
        values = {"body": increased, "version": self.c.version + ONE, "updated_at": integer("now")}
        fits = TextFits(text, integer("size"))
        written = self.row().on_conflict_do_update(
            index_elements=[self.c.id],
            set_={**values, **self.slides(integer("now"))},
            where=sa.and_(self.is_live, HasInteger(body, keys), fits),
        )
        return compiled(written.returning(ValueText(body, keys)), self.database)

    # -- time to live -----------------------------------------------------------------------------

    touch_many: Statement = Statement(
        lambda s: s.live(s.update(s.in_ids), ttl=_TTL, expires_at=integer("now") + _TTL)
    )
    """Let `:ids` live from `:now` for `:ttl`."""
    persist: Statement = Statement(
        lambda s: s.live(s.update(s.is_id), ttl=sa.null(), expires_at=sa.null())
    )
    """Let `:id` never expire."""

    @Statement
    def touch(self) -> Any:
        """Let `:id` live from `:now` for `:ttl`, or for the row's own `ttl`."""
        ttl = sa.func.coalesce(_TTL, self.c.ttl)
        expires = sa.func.coalesce(integer("now") + ttl, self.c.expires_at)
        return self.live(self.update(self.is_id), ttl=ttl, expires_at=expires)

    @Statement
    def slide(self) -> Any:
        """Let `:id` live from `:now` for `:ttl`, the time to live of the session, but no longer than the document's
        `ttl`.
        """
        c, until = self.c, integer("now") + _TTL
        ends: Any = sa.type_coerce(c.updated_at, sa.BigInteger) + c.ttl
        own: Any = sa.case((c.expires_at > ends, c.expires_at), else_=ends)  # later after a touch
        expires = sa.case((sa.and_(c.ttl > _TTL, own < until), own), else_=until)
        return self.live(self.update(self.is_id).where(c.ttl >= _TTL), expires_at=expires)

    def update(self, *clauses: sa.ColumnElement[bool]) -> sa.Update:
        return sa.update(self.table).where(*clauses, self.is_live)

    def live(self, update: sa.Update, **life: Any) -> sa.Update:
        """Keep `updated_at`: the column's `onupdate` would set a new time."""
        return update.values(**life, updated_at=self.c.updated_at)

    # -- deleting: where changes are recorded, each but `remove_after` returns `deleted_columns` ---------

    remove: Statement = Statement(lambda s: s.deleted(s.is_id, s.is_live))
    """Delete `:id`."""
    remove_version: Statement = Statement(lambda s: s.deleted(s.is_id, s.is_version, s.is_live))
    """Delete `:id` where it has the version `:expected`."""
    remove_document: Statement = Statement(
        lambda s: s.deleted(s.is_id, s.is_version, s.is_same, s.is_live)
    )
    """Delete `:id` where it has the version `:expected` and `:created`."""
    remove_many: Statement = Statement(lambda s: s.deleted(s.in_ids, s.is_live))
    """Delete `:ids`."""
    purge: Statement = Statement(lambda s: s.deleted(s.in_ids, s.is_expired))
    """Delete those of `:ids` that have expired."""
    remove_after: Statement = Statement(
        lambda s: sa.delete(s.table).where(s.c.seq > integer("seq"))
    )
    """Delete the rows past the position `:seq`."""

    @Statement
    def purge_some(self) -> Any:
        """Delete expired rows, `:limit` at most, the first expired first."""
        locked = self.some_expired(self.c.seq).with_for_update(skip_locked=True)
        return self.deleted(self.c.seq.in_(locked.scalar_subquery()), self.is_expired)

    def some_expired(self, *columns: sa.ColumnElement[Any]) -> Any:
        expired = sa.select(*columns).where(self.is_expired)
        ordered = expired.order_by(self.c.expires_at, self.c.seq)
        return ordered.limit(integer("limit")).offset(ZERO)

    def deleted(self, *clauses: sa.ColumnElement[bool]) -> Any:
        deleted = sa.delete(self.table).where(*clauses)
        if self.options.feed is None:
            return deleted
        return deleted.returning(*deleted_columns(self.table, self.options.feed))


def _after_group(id: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the first string after the group of an id: see `first_ids`."""
    start = sa.bindparam("start", type_=sa.Integer)
    position = PositionIn(sa.func.substr(id, start), string("delimiter"))
    before = sa.func.substr(id, ONE, start + position - sa.literal_column("2"))
    return sa.case((position > ZERO, before + string("following")), else_=id + string("least"))


def _time(insert: Any) -> sa.ColumnElement[Any]:
    """Return the time of an insertion, for a row in conflict with an existing row."""
    time: sa.ColumnElement[Any] = sa.type_coerce(insert.excluded.updated_at, sa.BigInteger)
    return time
