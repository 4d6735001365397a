"""Filters, updates and documents to statements, compiled once; builds, never executes.

`Statements` holds what is asked of one collection's table. A filter's statement is kept under the
filter's shape, so that filters that differ in values only share one; the cache is bounded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from .dialects import Database
from .expressions import AnyOf, BodyFromText, BodyMatches, BodyText, IsNot, RenameTable, TableSize
from .filter import (
    And,
    Compare,
    Condition,
    Equals,
    Exists,
    Filter,
    Metadata,
    Not,
    OneOf,
    Or,
    Slot,
    conjuncts,
    values_of,
)
from .schema import Names, catalogue_table, documents_table, revision_table

SHAPES_KEPT: Final = 256
MAX_CONDITIONS: Final = 100
"""More conditions run in the matcher: SQLite's expressions end at a depth of 1,000."""
MAX_MIXED: Final = 2
"""Deeper combinations of what is asked of the body and of the metadata run in the matcher."""

Parameters = Mapping[str, Any]


Bind: TypeAlias = Callable[[Condition], Mapping[str, Any]]
"""Makes the parameters of a clause for a condition of the clause's shape."""
Said: TypeAlias = tuple[sa.ColumnElement[bool], Bind]


@dataclass(frozen=True, slots=True)
class Query:
    """A compiled statement over a filter's shape.

    `bind` makes the parameters of a filter's values. What the conditions at the places `residual`
    ask runs in the matcher.
    """

    sql: str
    bind: Bind
    residual: tuple[int, ...]

    def parameters(self, filter: Filter, **others: Any) -> dict[str, Any]:
        """Return the statement's parameters for the values of `filter`."""
        return {**others, **self.bind(filter.condition)}

    def rest(self, filter: Filter) -> Filter:
        """Return the part of `filter` that the matcher must decide."""
        conditions = conjuncts(filter.condition)
        return Filter(And(tuple(conditions[place] for place in self.residual)))


class Statements:
    """The statements of one collection's table."""

    def __init__(self, table: sa.Table, database: Database) -> None:
        self.table, self.database = table, database
        self.select = lru_cache(maxsize=SHAPES_KEPT)(self._select)
        self.count = lru_cache(maxsize=SHAPES_KEPT)(self._count)

    @cached_property
    def get(self) -> str:
        """Give the body of `:id`."""
        return self._sql(sa.select(self._body).where(self._is_id))

    @cached_property
    def document(self) -> str:
        """Give the row of `:id`."""
        return self._sql(sa.select(*self._columns).where(self._is_id))

    @cached_property
    def exists(self) -> str:
        """Give a row if there is `:id`."""
        return self._sql(sa.select(sa.literal_column("1")).where(self._is_id))

    @cached_property
    def put(self) -> str:
        """Write `:body` under `:id` at `:now`; gives the version."""
        return self._sql(self._upsert().returning(self.table.c.version))

    @cached_property
    def put_silently(self) -> str:
        """Write like `put`; gives nothing, for many at once."""
        return self._sql(self._upsert())

    @cached_property
    def remove(self) -> str:
        """Delete `:id`."""
        return self._sql(sa.delete(self.table).where(self._is_id))

    @cached_property
    def get_many(self) -> str:
        """Give id and body of the list `:ids`."""
        return self._sql(sa.select(self.table.c.id, self._body).where(self._in_ids))

    @cached_property
    def remove_many(self) -> str:
        """Delete the list `:ids`."""
        return self._sql(sa.delete(self.table).where(self._in_ids))

    @cached_property
    def statistics(self) -> str:
        """Give the number of objects and the bytes on the disk."""
        count = sa.select(sa.func.count()).select_from(self.table).scalar_subquery()
        return self._sql(sa.select(count, TableSize(self.table)))

    def _select(self, shape: Condition) -> Query:
        """Give rows in natural order: of those past the place `:after`, after `:skip`, `:limit`."""
        where, bind, residual = self._where(shape)
        statement = (
            sa.select(self.table.c.seq, *self._columns)
            .where(*where, self.table.c.seq > sa.bindparam("after", type_=sa.BigInteger))
            .order_by(self.table.c.seq)
            .limit(sa.bindparam("limit", type_=sa.BigInteger))
            .offset(sa.bindparam("skip", type_=sa.BigInteger))
        )
        return Query(self._sql(statement), bind, residual)

    def _count(self, shape: Condition) -> Query:
        """Give the number of rows."""
        where, bind, residual = self._where(shape)
        statement = sa.select(sa.func.count()).select_from(self.table).where(*where)
        return Query(self._sql(statement), bind, residual)

    def _where(
        self, shape: Condition
    ) -> tuple[list[sa.ColumnElement[bool]], Bind, tuple[int, ...]]:
        """Return what SQL says of a shape, its parameters, and the places of what it does not."""
        clauses, binds, residual = [], [], []
        for place, condition in enumerate(conjuncts(shape)):
            few = place < MAX_CONDITIONS
            said = self._say(condition, f"p{place}", MAX_MIXED) if few else None
            if said is None:
                residual.append(place)
            else:
                clauses.append(said[0])
                binds.append((place, said[1]))

        def bind(condition: Condition) -> dict[str, Any]:
            every = conjuncts(condition)
            return {k: v for place, bound in binds for k, v in bound(every[place]).items()}

        return clauses, bind, tuple(residual)

    def _say(self, condition: Condition, name: str, depth: int) -> Said | None:
        """Return the clause of a shape, and what makes its parameters; None: SQL has no words."""
        if isinstance(condition, Metadata):
            return self._metadata(condition, name)
        if self.database.can_say(condition):
            names = [f"{name}_{n}" for n in range(self.database.count_parameters(condition))]
            parameters = [sa.bindparam(each, type_=sa.types.NULLTYPE) for each in names]
            clause = BodyMatches(self.table.c.body, condition, parameters)
            make = self.database.parameters
            return clause, lambda actual: dict(zip(names, make(actual), strict=True))
        match condition:
            case And(conditions) | Or(conditions) if depth and 0 < len(conditions) < MAX_CONDITIONS:
                return self._join(condition, conditions, name, depth - 1)
            case Not(inner) if depth:
                said = self._say(inner, name, depth - 1)
                return None if said is None else (IsNot(said[0]), _within_not(said[1]))
        return None

    def _join(
        self, condition: And | Or, inner: tuple[Condition, ...], name: str, depth: int
    ) -> Said | None:
        said = [self._say(each, f"{name}_{place}", depth) for place, each in enumerate(inner)]
        clauses = [each[0] for each in said if each is not None]
        if len(clauses) < len(said):
            return None
        binds = [each[1] for each in said if each is not None]
        joined = sa.and_(*clauses) if isinstance(condition, And) else sa.or_(*clauses)
        return joined, _within_each(binds)

    def _metadata(self, condition: Metadata, name: str) -> Said | None:
        """Spell a test of a column, which is of one type."""
        wanted = "string" if condition.field == "id" else "number"
        # a number is bound as it is: a cast to the column's type would round it
        type = sa.Text() if wanted == "string" else sa.types.NULLTYPE
        column: sa.ColumnElement[Any] = sa.type_coerce(self.table.c[condition.field], type)
        match condition.test:
            case Exists():
                return sa.true(), lambda _: {}
            case Equals(Slot(kind="null")):
                return column.is_(None), lambda _: {}
            case Equals(Slot(kind=kind)) | Compare(_, Slot(kind=kind)) if kind != wanted:
                return sa.false(), lambda _: {}
            case OneOf((Slot(kind="strings"),)) if wanted == "string":
                listed = sa.bindparam(name, type_=sa.types.NULLTYPE)
                return AnyOf(column, listed), self._listed(name)
            case Equals():
                return column == sa.bindparam(name, type_=type), _one_value(name)
            case Compare(operator):
                return _COMPARED[operator](column, sa.bindparam(name, type_=type)), _one_value(name)
        return None

    def _listed(self, name: str) -> Bind:
        make = self.database.list_parameter
        return lambda condition: {name: make(values_of(condition)[0].value)}

    def _upsert(self) -> Any:
        fresh = sa.bindparam("body", type_=sa.Text)
        time = sa.bindparam("now", type_=sa.BigInteger)
        insert = self.database.insert(self.table).values(
            id=sa.bindparam("id", type_=sa.Text),
            body=BodyFromText(fresh),
            version=sa.literal_column("1"),
            created_at=time,
            updated_at=time,
        )
        return insert.on_conflict_do_update(
            index_elements=[self.table.c.id],
            set_={
                "body": insert.excluded.body,
                "version": self.table.c.version + sa.literal_column("1"),
                "updated_at": insert.excluded.updated_at,
                "expires_at": insert.excluded.expires_at,
            },
        )

    @property
    def _body(self) -> sa.ColumnElement[str]:
        return BodyText(sa.type_coerce(self.table.c.body, sa.types.NULLTYPE), sa.Text())

    @property
    def _columns(self) -> tuple[sa.ColumnElement[Any], ...]:
        c = self.table.c
        return (c.id, self._body, c.version, c.created_at, c.updated_at, c.expires_at)

    @property
    def _is_id(self) -> sa.ColumnElement[bool]:
        return self.table.c.id == sa.bindparam("id", type_=sa.Text)

    @property
    def _in_ids(self) -> sa.ColumnElement[bool]:
        return AnyOf(self.table.c.id, sa.bindparam("ids", type_=sa.types.NULLTYPE))

    def _sql(self, statement: sa.Executable) -> str:
        return compiled(statement, self.database)


class CatalogueStatements:
    """The statements of a store's own tables."""

    def __init__(self, names: Names, database: Database) -> None:
        self.names, self.database = names, database
        self.catalogue, self.revisions = catalogue_table(names), revision_table(names)

    @cached_property
    def has_table(self) -> str:
        """Give a row if there is a table `:reference`."""
        return self._sql(self.database.has_table())

    @cached_property
    def revision(self) -> str:
        """Give the schema's revision."""
        return self._sql(sa.select(self.revisions.c.version_num))

    @cached_property
    def stamp(self) -> str:
        """Record the revision `:revision`."""
        revision = sa.bindparam("revision", type_=sa.Text)
        return self._sql(sa.insert(self.revisions).values(version_num=revision))

    def create_all(self) -> Sequence[str]:
        """Create the store's own tables."""
        tables = (self.catalogue, self.revisions)
        creating: list[Any] = [sa.schema.CreateTable(table) for table in tables]
        if self.names.schema:
            creating.insert(0, sa.schema.CreateSchema(self.names.schema, if_not_exists=True))
        return [self._sql(statement) for statement in creating]

    @cached_property
    def resolve(self) -> str:
        """Give the table of the collection `:name`."""
        c = self.catalogue.c
        return self._sql(sa.select(c.table_name).where(c.name == _bound("name")))

    @cached_property
    def listing(self) -> str:
        """Give name, table and time of every collection, by name."""
        c = self.catalogue.c
        return self._sql(sa.select(c.name, c.table_name, c.created_at).order_by(c.name))

    @cached_property
    def enter(self) -> str:
        """Enter the collection `:name`; gives its number, or nothing if it was there."""
        c = self.catalogue.c
        insert = self.database.insert(self.catalogue).values(
            name=_bound("name"), table_name=sa.literal_column("''"), created_at=_bound("now")
        )
        return self._sql(insert.on_conflict_do_nothing(index_elements=[c.name]).returning(c.number))

    @cached_property
    def enter_copy(self) -> str:
        """Enter `:name` with what is known of `:old`; gives the new number, or nothing if there is
        no `:old`, or `:name` was there.
        """
        c = self.catalogue.c
        columns = [c.table_name, c.created_at, c.options]
        source = sa.select(sa.cast(_bound("name"), sa.Text), *columns).where(
            c.name == _bound("old")
        )
        insert = self.database.insert(self.catalogue).from_select(
            ["name", *(k.name for k in columns)], source
        )
        entered = insert.on_conflict_do_nothing(index_elements=[c.name])
        return self._sql(entered.returning(c.number, c.table_name))

    @cached_property
    def assign(self) -> str:
        """Give the collection `:number` its table."""
        c = self.catalogue.c
        update = sa.update(self.catalogue).where(c.number == _bound("number"))
        return self._sql(update.values(table_name=_bound("table")))

    @cached_property
    def forget(self) -> str:
        """Delete the entry of `:name`; gives its table."""
        c = self.catalogue.c
        delete = sa.delete(self.catalogue).where(c.name == _bound("name"))
        return self._sql(delete.returning(c.table_name))

    def create_table(self, table: str) -> str:
        """Create a collection's table."""
        return self._sql(sa.schema.CreateTable(documents_table(table, self.names, self.database)))

    def drop_table(self, table: str) -> str:
        """Drop a collection's table, unless someone did so by hand."""
        dropped = documents_table(table, self.names, self.database)
        return self._sql(sa.schema.DropTable(dropped, if_exists=True))

    def rename_table(self, old: str, new: str) -> str:
        """Give a collection's table another name."""
        table = documents_table(old, self.names, self.database)
        return self._sql(RenameTable(table, new))

    def documents(self, table: str) -> Statements:
        """Return the statements of a collection's table."""
        return Statements(documents_table(table, self.names, self.database), self.database)

    def _sql(self, statement: Any) -> str:
        return compiled(statement, self.database)


def compiled(statement: Any, database: Database) -> str:
    """Return the statement's text, as the database's driver takes it."""
    return str(statement.compile(dialect=database.compiler()))


_COMPARED: Final[Mapping[str, Callable[[Any, Any], sa.ColumnElement[bool]]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _one_value(name: str) -> Bind:
    return lambda condition: {name: values_of(condition)[0].value}


def _within_not(bind: Bind) -> Bind:
    def within(condition: Condition) -> Mapping[str, Any]:
        assert isinstance(condition, Not)
        return bind(condition.condition)

    return within


def _within_each(binds: Sequence[Bind]) -> Bind:
    def within(condition: Condition) -> Mapping[str, Any]:
        assert isinstance(condition, And | Or)
        pairs = zip(binds, condition.conditions, strict=True)
        return {k: v for bind, inner in pairs for k, v in bind(inner).items()}

    return within


def _bound(name: str) -> sa.BindParameter[Any]:
    types = {"now": sa.BigInteger, "number": sa.BigInteger}
    return sa.bindparam(name, type_=types.get(name, sa.Text))
