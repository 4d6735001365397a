"""Tables and statements of vector indexes.

A vector index has two tables. The vectors: a row for each vector of a document, in the order of their numbers. The
journal: a row for each change of a document whose vectors are not stored yet. Triggers of the documents' table write the
journal in the transaction of the change, and erase the vectors of deleted documents.

1. A document in the journal has no stored match: its vectors are of another version.
2. A store that stores the vectors of a document deletes the rows of the journal that stood there when the document was read.
   Later changes have rows of their own, which stay. A store that cannot delete all of these rows deletes and stores nothing:
   another has stored the vectors of this or of a later version.
3. Every change of the vectors that a reader must know inserts a row with a greater number than all others. A document
   without vectors has a row without a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from ..query.vector_index import VectorIndex
from .dialects.approximate import ApproximateIndexes
from .dialects.protocols import Database
from .elements import AnyInteger, AnyOf
from .schema import body_text, document_columns, integer, is_expired, is_live, string
from .statement import ONE, ZERO, Statement, compiled

MAX_DEAD: Final = 10_000
"""Rows without a vector that stay."""


def journal_of(physical: str) -> str:
    """Return the table of the journal of the vector index `physical`."""
    return f"{physical}$j"


def _binary(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=sa.LargeBinary)


class VectorStatements:
    """The statements of a vector index of a collection's table."""

    database: Database
    documents: sa.Table
    index: VectorIndex
    v: sa.sql.base.ReadOnlyColumnCollection[str, sa.Column[Any]]
    j: sa.sql.base.ReadOnlyColumnCollection[str, sa.Column[Any]]
    d: sa.sql.base.ReadOnlyColumnCollection[str, sa.Column[Any]]

    def __init__(
        self, documents: sa.Table, database: Database, physical: str, index: VectorIndex
    ) -> None:
        self.database, self.documents, self.index = database, documents, index
        metadata, ddl = sa.MetaData(schema=documents.schema), database.ddl
        self.vectors: sa.Table = sa.Table(
            physical,
            metadata,
            sa.Column("number", ddl.serial_type, sa.Identity(), primary_key=True),
            sa.Column("seq", sa.BigInteger, nullable=False),
            sa.Column("place", sa.Text),
            sa.Column("start", sa.Integer),
            sa.Column("stop", sa.Integer),
            sa.Column("hash", sa.LargeBinary),
            sa.Column("vector", sa.LargeBinary),
            **ddl.serial_options,
        )
        self.journal: sa.Table = sa.Table(
            journal_of(physical),
            metadata,
            sa.Column("number", ddl.serial_type, sa.Identity(), primary_key=True),
            sa.Column("seq", sa.BigInteger, nullable=False),
            sa.Column("tried_at", sa.BigInteger),
            sa.Column("problem", sa.Text),
            **ddl.serial_options,
        )
        if index.method != "exact":
            kind = self.approximate.column_type(index)
            self.vectors.append_column(sa.Column("near", kind))
        self.v, self.j, self.d = self.vectors.c, self.journal.c, documents.c

    @property
    def approximate(self) -> ApproximateIndexes:
        """The approximate indexes of the database."""
        assert self.database.approximate is not None
        return self.database.approximate

    def create(self) -> Sequence[str]:
        """Create the tables and the triggers, and enter all documents into the journal."""
        by_document = sa.Index(f"{self.vectors.name}$s", self.v.seq)
        where: dict[str, Any] = {f"{self.database.name}_where": self.v.vector.is_(None)}
        dead = sa.Index(f"{self.vectors.name}$d", self.v.number, **where)
        where = {f"{self.database.name}_where": self.j.tried_at.is_not(None)}
        failed = sa.Index(f"{self.journal.name}$f", self.j.seq, **where)
        every = sa.select(self.d.seq).order_by(self.d.seq)
        statements: list[Any] = [
            *map(sa.schema.CreateTable, (self.vectors, self.journal)),
            *map(sa.schema.CreateIndex, (by_document, dead, failed, *self._near())),
            sa.insert(self.journal).from_select(["seq"], every),
        ]
        journal = str(self.journal.name), str(self.vectors.name)
        triggers = self.database.ddl.create_journal(self.documents, *journal)
        return [*(compiled(each, self.database) for each in statements), *triggers]

    def _near(self) -> Iterator[sa.Index]:
        """Yield the approximate index. Triggers erase `vector` alone."""
        if self.index.method != "exact":
            name, is_there = f"{self.vectors.name}$n", self.v.vector.is_not(None)
            yield self.approximate.index_of(name, self.v.near, is_there, self.index)

    def drop(self) -> Sequence[str]:
        """Drop the triggers and the tables."""
        triggers = self.database.ddl.drop_journal(self.documents, str(self.journal.name))
        tables = (
            sa.schema.DropTable(each, if_exists=True) for each in (self.journal, self.vectors)
        )
        return [*triggers, *(compiled(each, self.database) for each in tables)]

    # -- the journal -------------------------------------------------------------------------

    @Statement
    def waiting(self) -> Any:
        """Select rows of the journal that nobody tried since `:since`, `:limit` at most, in order: number, position, and
        id and body of the document, null where the document does not exist.
        """
        some = sa.select(self.j.number, self.j.seq).where(self._is_open()).order_by(self.j.number)
        first = some.limit(integer("limit")).offset(ZERO).subquery("first")
        is_same = sa.and_(self.d.seq == first.c.seq, is_live(self.documents))
        joined = first.outerjoin(self.documents, is_same)
        columns = first.c.number, first.c.seq, self.d.id, body_text(self.documents)
        return sa.select(*columns).select_from(joined).order_by(first.c.number)

    @Statement
    def has_waiting(self) -> Any:
        """Select 1 if the journal has a row that nobody tried since `:since`."""
        return (
            sa.select(ONE).select_from(self.journal).where(self._is_open()).limit(ONE).offset(ZERO)
        )

    def _is_open(self) -> sa.ColumnElement[bool]:
        return sa.or_(self.j.tried_at.is_(None), self.j.tried_at < integer("since"))

    @Statement
    def failed(self) -> Any:
        """Select number and position of the failed rows of the journal of the documents `:positions`."""
        found = sa.select(self.j.number, self.j.seq)
        return found.where(self.j.tried_at.is_not(None), self._is_one(self.j.seq))

    @Statement
    def stored(self) -> Any:
        """Select position, place and hash of the vectors of the documents at the positions `:positions`."""
        v = self.v
        found = sa.select(v.seq, v.place, v.start, v.stop, v.hash)
        return found.where(v.vector.is_not(None), self._is_one(v.seq)).order_by(v.number)

    @Statement
    def backlog(self) -> Any:
        """Select id and problem of the first `:limit` rows of the journal whose documents exist."""
        joined = self.journal.join(self.documents, self.d.seq == self.j.seq)
        found = (
            sa.select(self.d.id, self.j.problem).select_from(joined).where(is_live(self.documents))
        )
        return found.order_by(self.j.number).limit(integer("limit")).offset(ZERO)

    @Statement
    def lock(self) -> Any:
        """Select and lock those of the rows `:positions` of the journal that are there; returns their numbers."""
        found = sa.select(self.j.number).where(self._is_one(self.j.number))
        return found.order_by(self.j.number).with_for_update()

    @Statement
    def settle(self) -> Any:
        """Delete the rows `:positions` of the journal."""
        return sa.delete(self.journal).where(self._is_one(self.j.number))

    @Statement
    def note_problem(self) -> Any:
        """Note the `:problem` of the rows `:positions` of the journal."""
        noted = sa.update(self.journal).where(self._is_one(self.j.number))
        return noted.values(tried_at=integer("now"), problem=string("problem"))

    @Statement
    def noted(self) -> Any:
        """Select number and position of the rows of the journal of the documents `:ids`, with id, version, and time of the
        last update.
        """
        d = self.d
        joined = self.journal.join(self.documents, d.seq == self.j.seq)
        columns = self.j.number, d.seq, d.id, d.version, d.updated_at
        return sa.select(*columns).select_from(joined).where(self._has_id())

    # -- vectors -----------------------------------------------------------------------------

    @Statement
    def kept(self) -> Any:
        """Select hash and vector of the vectors of the document `:seq`."""
        found = sa.select(self.v.hash, self.v.vector)
        return found.where(self.v.seq == integer("seq"), self.v.vector.is_not(None))

    @Statement
    def remove(self) -> Any:
        """Delete the rows of the documents `:positions`."""
        return sa.delete(self.vectors).where(self._is_one(self.v.seq))

    @Statement
    def add(self) -> Any:
        """Insert a vector of the document `:seq`; `:near` for an approximate index."""
        is_near = self.index.method != "exact"
        near = {"near": self.approximate.value(self.index, "near")} if is_near else {}
        return sa.insert(self.vectors).values(
            **near,
            seq=integer("seq"),
            place=string("place"),
            start=sa.bindparam("start", type_=sa.Integer),
            stop=sa.bindparam("stop", type_=sa.Integer),
            hash=_binary("hash"),
            vector=_binary("vector"),
        )

    @Statement
    def add_dead(self) -> Any:
        """Insert a row without a vector for `:seq`."""
        return sa.insert(self.vectors).values(seq=integer("seq"))

    @Statement
    def count_dead(self) -> Any:
        """Count the rows without a vector, up to `MAX_DEAD` + 1."""
        most: Any = sa.literal_column(str(MAX_DEAD + 1))
        some = sa.select(self.v.number).where(self.v.vector.is_(None)).limit(most).offset(ZERO)
        return sa.select(sa.func.count()).select_from(some.subquery())

    @Statement
    def remove_dead(self) -> Any:
        """Delete the rows without a vector."""
        return sa.delete(self.vectors).where(self.v.vector.is_(None))

    # -- reads -------------------------------------------------------------------------------

    @Statement
    def state(self) -> Any:
        """Select 0 and the last number, or 0; 1 and a position in the journal; 2 and the position of an expired document."""
        kinds: list[sa.ColumnElement[Any]] = [sa.literal_column(each) for each in "012"]
        last = sa.select(kinds[0], sa.func.coalesce(sa.func.max(self.v.number), ZERO))
        noted = sa.select(kinds[1], self.j.seq).distinct()
        expired = sa.select(kinds[2], self.d.seq).where(is_expired(self.documents))
        return last.union_all(noted, expired)

    @Statement
    def after(self) -> Any:
        """Select number, position and vector of the rows after `:number`, `:limit` at most, in order."""
        v = self.v
        found = sa.select(v.number, v.seq, v.vector).where(v.number > integer("number"))
        return found.order_by(v.number).limit(integer("limit")).offset(ZERO)

    @property
    def prepare(self) -> str:
        """Let `candidates` consider `:candidates` vectors before the index looks for more."""
        return self.approximate.prepare

    @Statement
    def candidates(self) -> Any:
        """Select number, position and vector of about the `:limit` vectors that are the nearest to `:near`, not of the
        documents `:never`.
        """
        return self._candidates()

    @Statement
    def candidates_of(self) -> Any:
        """Select the same of the documents `:positions`."""
        return self._candidates().where(self._is_one(self.v.seq))

    def _candidates(self) -> Any:
        v, near = self.v, self.approximate.value(self.index, "near")
        never = AnyInteger(v.seq, sa.bindparam("never", type_=sa.types.NULLTYPE))
        found = sa.select(v.number, v.seq, v.vector).where(v.vector.is_not(None), sa.not_(never))
        distance = self.approximate.distance(v.near, near, self.index)
        return found.order_by(distance).limit(integer("limit"))

    @Statement
    def of_documents(self) -> Any:
        """Select number, position and vector of the vectors of the documents `:positions`."""
        v = self.v
        found = sa.select(v.number, v.seq, v.vector)
        return found.where(v.vector.is_not(None), self._is_one(v.seq))

    @Statement
    def count(self) -> Any:
        """Count the rows."""
        return sa.select(sa.func.count(self.v.seq))

    @Statement
    def bodies(self) -> Any:
        """Select position, id and body of the documents `:positions`."""
        found = sa.select(self.d.seq, self.d.id, body_text(self.documents))
        return found.where(self._is_one(self.d.seq), is_live(self.documents))

    @Statement
    def ids(self) -> Any:
        """Select position and id of the documents `:positions`."""
        return sa.select(self.d.seq, self.d.id).where(self._is_one(self.d.seq))

    @Statement
    def found(self) -> Any:
        """Select position and document of the documents `:positions`."""
        rows = sa.select(self.d.seq, *document_columns(self.documents))
        return rows.where(self._is_one(self.d.seq))

    @Statement
    def of_ids(self) -> Any:
        """Select id and vector of the stored vectors of the documents `:ids`, the first of each document first."""
        joined = self.documents.join(self.vectors, self.v.seq == self.d.seq)
        found = sa.select(self.d.id, self.v.vector).select_from(joined)
        return found.where(self._has_id(), self.v.vector.is_not(None)).order_by(self.v.number)

    @Statement
    def copies(self) -> Any:
        """Select the vectors of the first `:limit` documents past the position `:seq` that are not in the journal, in order:
        position, id, version, time of the last update, and place, hash and vector, null for a document without vectors.
        """
        d, v = self.d, self.v
        noted = sa.select(self.j.seq)
        some = sa.select(d.seq, d.id, d.version, d.updated_at)
        some = some.where(d.seq > integer("seq"), d.seq.not_in(noted))
        first = some.order_by(d.seq).limit(integer("limit")).offset(ZERO).subquery("first")
        is_same = sa.and_(v.seq == first.c.seq, v.vector.is_not(None))
        joined = first.outerjoin(self.vectors, is_same)
        found = sa.select(*first.c, v.place, v.start, v.stop, v.hash, v.vector)
        return found.select_from(joined).order_by(first.c.seq, v.number)

    @Statement
    def places(self) -> Any:
        """Select number and place of the vectors `:positions`."""
        v = self.v
        return sa.select(v.number, v.place, v.start, v.stop).where(self._is_one(v.number))

    def _has_id(self) -> sa.ColumnElement[bool]:
        return AnyOf(self.d.id, sa.bindparam("ids", type_=sa.types.NULLTYPE))

    def _is_one(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        return AnyInteger(column, sa.bindparam("positions", type_=sa.types.NULLTYPE))
