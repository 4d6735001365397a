"""SQLAlchemy's statements to text.

The statements of single objects, and of lists of them, by their ids.

What has expired is no row to any of them. Those that give a body for one id give when it expires
instead of asking, which is faster; the others take `:now`. A write that meets an expired row writes
nothing: it is purged first.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Final

import sqlalchemy as sa

from ..options import CollectionOptions
from .dialects.protocols import Database
from .elements import AnyOf, HasInteger, Increased, TextFits, ValueText
from .schema import (
    body_from,
    body_text,
    deleted_columns,
    document_columns,
    is_expired,
    is_live,
    listed,
    number,
)


def compiled(statement: Any, database: Database) -> str:
    """Return the statement's text, as the database's driver takes it."""
    return str(statement.compile(dialect=database.compiler()))


ONE: Final[sa.ColumnElement[Any]] = sa.literal_column("1")
PATHS_KEPT: Final = 256
TABLES_KEPT: Final = 8
ZERO: Final[sa.ColumnElement[Any]] = sa.literal_column("0")
"""SQLAlchemy binds an offset of its own unless SQLite is given one."""


class IdStatements:
    """The statements of one collection's table that name objects by their ids."""

    def __init__(self, table: sa.Table, options: CollectionOptions, database: Database) -> None:
        self._table, self._options, self._database = table, options, database
        self._increment = lru_cache(maxsize=PATHS_KEPT)(
            lambda keys: self._sql(self._incremented(keys))
        )
        self._insert_beside = lru_cache(maxsize=TABLES_KEPT)(
            lambda beside: self._sql(self._inserted_beside(beside))
        )

    @cached_property
    def get(self) -> str:
        """Give the body of `:id`, and when it expires."""
        c = self._table.c
        return self._sql(sa.select(body_text(self._table), c.expires_at).where(self._is_id))

    @cached_property
    def document(self) -> str:
        """Give the row of `:id`."""
        return self._sql(sa.select(*document_columns(self._table)).where(self._is_id))

    @cached_property
    def exists(self) -> str:
        """Tell when `:id` expires, if it is there."""
        return self._sql(sa.select(self._table.c.expires_at).where(self._is_id))

    @cached_property
    def get_many(self) -> str:
        """Give id and body of the list `:ids`."""
        chosen = sa.select(self._table.c.id, body_text(self._table))
        return self._sql(chosen.where(self._in_ids, is_live(self._table)))

    @cached_property
    def versions(self) -> str:
        """Give id, version and null of the list `:ids`, which no other transaction writes until this one
        ends.
        """
        return self._sql(self._known(sa.null()))

    @cached_property
    def bodies(self) -> str:
        """Give id, version and body of the list `:ids`, which no other transaction writes until this
        one ends.
        """
        return self._sql(self._known(body_text(self._table)))

    def _known(self, body: Any) -> sa.Select[Any]:
        c = self._table.c
        chosen: sa.Select[Any] = sa.select(c.id, c.version, body).order_by(c.id)
        return chosen.where(self._in_ids, is_live(self._table)).with_for_update()

    @cached_property
    def put(self) -> str:
        """Write `:body` under `:id` at `:now`, to live for `:ttl` until `:expires`; gives the version,
        or nothing where what is there has expired.
        """
        return self._sql(self._upsert().returning(self._table.c.version))

    @cached_property
    def put_all(self) -> str:
        """Write each `:id` and `:body` like `put`, in their order; gives nothing."""
        return self._sql(self._upsert() if self._one_by_one else self._or_updated(self._listed()))

    @cached_property
    def put_listed(self) -> str:
        """Write the lists `:id` and `:body` like `put`; gives id and version of those where nothing has
        expired.
        """
        c = self._table.c
        return self._sql(self._or_updated(self._listed()).returning(c.id, c.version))

    @cached_property
    def last_place(self) -> str:
        """Give the last place of all, 0 if there is none."""
        return self._sql(sa.select(sa.func.coalesce(sa.func.max(self._table.c.seq), ZERO)))

    @cached_property
    def count_after(self) -> str:
        """Give how many rows come after the place `:seq`."""
        return self._sql(
            sa.select(sa.func.count(self._table.c.seq)).where(self._table.c.seq > number("seq"))
        )

    @cached_property
    def insert(self) -> str:
        """Write like `put` where there is no `:id`; gives the version, or nothing if there was."""
        c = self._table.c
        return self._sql(
            self._fresh().on_conflict_do_nothing(index_elements=[c.id]).returning(c.version)
        )

    def insert_beside(self, beside: sa.Table) -> str:
        """Write like `insert` if the table `beside` has the row `:beside`, which nobody deletes until this
        transaction ends.
        """
        return self._insert_beside(beside)

    def _inserted_beside(self, beside: sa.Table) -> Any:
        columns = self._new()
        chosen = sa.select(*(each.label(name) for name, each in columns.items()))
        is_there = beside.c.id == sa.bindparam("beside", type_=sa.Text)
        there = chosen.select_from(beside).where(is_there, is_live(beside))
        held = there.with_for_update(read=True, key_share=True, of=beside)
        insert = self._database.insert(self._table).from_select(list(columns), held)
        c = self._table.c
        return insert.on_conflict_do_nothing(index_elements=[c.id]).returning(c.version)

    @cached_property
    def insert_silently(self) -> str:
        """Write like `insert`; gives nothing, for many at once."""
        return self._sql(self._fresh().on_conflict_do_nothing(index_elements=[self._table.c.id]))

    @cached_property
    def replace(self) -> str:
        """Write like `put` where `:id` has the version `:expected`; gives the version."""
        life = {"expires_at": number("expires"), "ttl": number("ttl")}
        return self._sql(self._rewritten(life).returning(self._table.c.version))

    @cached_property
    def rewrite(self) -> str:
        """Write another `:body` where `:id` has the version `:expected` and came into being at
        `:created`; it lives on, anew if the collection says so.
        """
        return self._sql(self._rewritten(self._living_on).where(self._is_same))

    @cached_property
    def rewrite_all(self) -> str:
        """Write each `:body` like `rewrite`, in their order; all objects are there, and held."""
        return self.rewrite if self._one_by_one else self._sql(self._rewritten_lists())

    def _rewritten_lists(self) -> Any:
        """An UPDATE has no order, and a unique index looks at each row as it comes. So this inserts what is
        there already.
        """
        c, lists = self._table.c, {"version": "expected", "created_at": "created"}
        given = listed(id=sa.Text, body=sa.Text, expected=sa.BigInteger, created=sa.BigInteger)
        never = {name: sa.null() for name in ("expires_at", "ttl")}
        known = {**never, "updated_at": number("now")}
        known |= {name: given.c[each] for name, each in lists.items()}
        insert = self._from_lists(given, known)
        alike = [c[name] == insert.excluded[name] for name in lists]
        changed = {name: insert.excluded[name] for name in ("body", "updated_at")}
        return insert.on_conflict_do_update(
            index_elements=[c.id],
            set_={"version": c.version + ONE, **changed, **self._living_on},
            where=sa.and_(*alike, is_live(self._table)),
        )

    @cached_property
    def touch(self) -> str:
        """Have `:id` live from `:now` on for `:ttl`, or for as long as it did."""
        c, given = self._table.c, number("ttl")
        ttl = sa.func.coalesce(sa.cast(given, sa.BigInteger), c.ttl)
        until = sa.func.coalesce(number("now") + ttl, c.expires_at)
        update = sa.update(self._table).where(self._is_id, is_live(self._table))
        return self._sql(update.values(ttl=ttl, expires_at=until, updated_at=c.updated_at))

    @cached_property
    def touch_many(self) -> str:
        """Have the rows of the list `:ids` live from `:now` on for `:ttl`."""
        ttl = sa.cast(number("ttl"), sa.BigInteger)
        update = sa.update(self._table).where(self._in_ids, is_live(self._table))
        life = {"ttl": ttl, "expires_at": number("now") + ttl}
        return self._sql(update.values(**life, updated_at=self._table.c.updated_at))

    @cached_property
    def slide(self) -> str:
        """Have `:id` live from `:now` on for `:ttl`, that of its session, but no longer than its own."""
        c, ttl = self._table.c, sa.cast(number("ttl"), sa.BigInteger)
        written, until = sa.type_coerce(c.updated_at, sa.BigInteger), number("now") + ttl
        ends: Any = written + c.ttl
        own: Any = sa.case((c.expires_at > ends, c.expires_at), else_=ends)  # it was touched since
        is_over_before = sa.and_(c.ttl > ttl, own < until)
        update = sa.update(self._table).where(self._is_id, is_live(self._table), c.ttl >= ttl)
        life = {"expires_at": sa.case((is_over_before, own), else_=until)}
        return self._sql(update.values(**life, updated_at=c.updated_at))

    @cached_property
    def keep(self) -> str:
        """Have `:id` live for ever."""
        update = sa.update(self._table).where(self._is_id, is_live(self._table))
        life = {"ttl": sa.null(), "expires_at": sa.null()}
        return self._sql(update.values(**life, updated_at=self._table.c.updated_at))

    @cached_property
    def hold(self) -> str:
        """Give the row of `:id`, which no other transaction writes until this one ends."""
        chosen = sa.select(*document_columns(self._table)).where(self._is_id, is_live(self._table))
        return self._sql(chosen.with_for_update())

    @cached_property
    def hold_many(self) -> str:
        """Give the rows of the list `:ids`, as `hold` does."""
        c = self._table.c
        chosen = sa.select(*document_columns(self._table)).order_by(c.id)
        return self._sql(chosen.where(self._in_ids, is_live(self._table)).with_for_update())

    @cached_property
    def remove(self) -> str:
        """Delete `:id`."""
        return self._sql(self._deleted(self._is_id, is_live(self._table)))

    @cached_property
    def remove_told(self) -> str:
        """Delete `:id`; gives `deleted_columns`."""
        return self._sql(self._told(self._deleted(self._is_id, is_live(self._table))))

    @cached_property
    def remove_version(self) -> str:
        """Delete `:id` where it has the version `:expected`; gives `deleted_columns`."""
        is_version = self._table.c.version == number("expected")
        deleted = self._deleted(self._is_id, is_version, is_live(self._table))
        return self._sql(self._told(deleted))

    @cached_property
    def remove_document(self) -> str:
        """Delete `:id` where it has the version `:expected` and came into being at `:created`; gives
        `deleted_columns`.
        """
        is_version = self._table.c.version == number("expected")
        deleted = self._deleted(self._is_id, is_version, self._is_same, is_live(self._table))
        return self._sql(self._told(deleted))

    @cached_property
    def remove_many(self) -> str:
        """Delete the list `:ids`."""
        return self._sql(self._deleted(self._in_ids, is_live(self._table)))

    @cached_property
    def remove_many_told(self) -> str:
        """Delete the list `:ids`; gives their `deleted_columns`."""
        return self._sql(self._told(self._deleted(self._in_ids, is_live(self._table))))

    @cached_property
    def has_expired(self) -> str:
        """Return whether any has expired."""
        some = sa.select(ONE).select_from(self._table).where(is_expired(self._table))
        return self._sql(sa.select(sa.exists(some)))

    @cached_property
    def purge(self) -> str:
        """Delete those of the list `:ids` that have expired; gives their `deleted_columns`."""
        return self._sql(self._told(self._deleted(self._in_ids, is_expired(self._table))))

    @cached_property
    def purge_some(self) -> str:
        """Delete what has expired, `:limit` rows at most, the first one first; gives their
        `deleted_columns`.
        """
        c = self._table.c
        chosen = sa.select(c.seq).where(is_expired(self._table)).order_by(c.expires_at, c.seq)
        locked = chosen.limit(number("limit")).offset(ZERO).with_for_update(skip_locked=True)
        some = locked.scalar_subquery()
        return self._sql(self._told(self._deleted(c.seq.in_(some), is_expired(self._table))))

    def _deleted(self, *clauses: sa.ColumnElement[bool]) -> sa.Delete:
        return sa.delete(self._table).where(*clauses)

    def _told(self, deleted: sa.Delete) -> Any:
        return deleted.returning(*deleted_columns(self._table, self._options))

    @cached_property
    def insert_all(self) -> str:
        """Write the lists `:id` and `:body` like `insert`; gives the ids of those that were not there."""
        inserted = self._listed().on_conflict_do_nothing(index_elements=[self._table.c.id])
        return self._sql(inserted.returning(self._table.c.id))

    def _listed(self) -> Any:
        return self._from_lists(listed(id=sa.Text, body=sa.Text), self._beginning())

    def _from_lists(self, given: Any, known: dict[str, Any]) -> Any:
        """Insert rows in their order: what is given of each, and what is known of all."""
        columns = {"id": given.c.id, "body": body_from(self._table, given.c.body), **known}
        chosen = sa.select(*(each.label(name) for name, each in columns.items()))
        insert = self._database.insert(self._table)
        return insert.from_select(list(columns), chosen.order_by(given.c.place))

    def increment(self, keys: tuple[str, ...]) -> str:
        """Increase the integer at `keys` by `:by` if the body has no more than `:room` bytes, or write
        `:body` where there is no `:id`; gives the integer's text, or nothing where there is none.
        """
        return self._increment(keys)

    def _incremented(self, keys: tuple[str, ...]) -> Any:
        insert, c = self._fresh(), self._table.c
        body = sa.type_coerce(c.body, sa.types.NULLTYPE)
        increased = Increased(body, keys, sa.cast(number("by"), sa.BigInteger))
        updated = {
            "body": self._kept(increased),
            "version": c.version + ONE,
            "updated_at": number("now"),
        }
        written = insert.on_conflict_do_update(
            index_elements=[c.id],
            set_={**updated, **self._living_on},
            where=sa.and_(
                is_live(self._table),
                HasInteger(body, keys),
                TextFits(self._texted(body), number("room")),
            ),
        )
        return written.returning(ValueText(body, keys))

    def _kept(self, body: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return what SQL makes of a body as the table keeps it: SQLite makes text."""
        return body_from(self._table, body) if self._options.jsonb else body

    def _texted(self, body: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return a body of which the bytes of its text are counted."""
        return body_text(self._table) if self._options.jsonb else body

    @property
    def _one_by_one(self) -> bool:
        """Do statements for many take one row at a time?"""
        return not self._database.TAKES_LISTS

    @property
    def _living_on(self) -> dict[str, Any]:
        """What a change of an object's body does to its life."""
        return {"expires_at": self._anew} if self._options.sliding else {}

    @property
    def _anew(self) -> sa.ColumnElement[int]:
        """When an object expires that lives anew."""
        c = self._table.c
        return sa.func.coalesce(number("now") + c.ttl, c.expires_at)

    def _fresh(self) -> Any:
        return self._database.insert(self._table).values(**self._new())

    def _new(self) -> dict[str, sa.ColumnElement[Any]]:
        """The columns of `:id` and `:body`."""
        return {
            "id": sa.bindparam("id", type_=sa.Text),
            "body": body_from(self._table, sa.bindparam("body", type_=sa.Text)),
            **self._beginning(),
        }

    def _beginning(self) -> dict[str, sa.ColumnElement[Any]]:
        """What is known of a new object."""
        times = {"created_at": "now", "updated_at": "now", "expires_at": "expires", "ttl": "ttl"}
        return {"version": ONE, **{column: number(name) for column, name in times.items()}}

    def _upsert(self) -> Any:
        return self._or_updated(self._fresh())

    def _or_updated(self, insert: Any) -> Any:
        c = self._table.c
        changed = ("body", "updated_at", "expires_at", "ttl")
        return insert.on_conflict_do_update(
            index_elements=[c.id],
            set_={"version": c.version + ONE, **{each: insert.excluded[each] for each in changed}},
            where=is_live(self._table),
        )

    def _rewritten(self, life: dict[str, Any]) -> Any:
        is_version = self._table.c.version == number("expected")
        update = sa.update(self._table).where(self._is_id, is_version, is_live(self._table))
        return update.values(
            body=body_from(self._table, sa.bindparam("body", type_=sa.Text)),
            version=self._table.c.version + ONE,
            updated_at=number("now"),
            **life,
        )

    @property
    def _is_same(self) -> sa.ColumnElement[bool]:
        """It is the object that was read, not a later one of that id."""
        created: Any = sa.type_coerce(self._table.c.created_at, sa.BigInteger)
        same: sa.ColumnElement[bool] = created == number("created")
        return same

    @property
    def _is_id(self) -> sa.ColumnElement[bool]:
        return self._table.c.id == sa.bindparam("id", type_=sa.Text)

    @property
    def _in_ids(self) -> sa.ColumnElement[bool]:
        return AnyOf(self._table.c.id, sa.bindparam("ids", type_=sa.types.NULLTYPE))

    def _sql(self, statement: sa.Executable) -> str:
        return compiled(statement, self._database)
