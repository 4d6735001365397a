"""Protocols of a dialect: what each database provides, one object of each protocol. `indexed_form` has two of them.

`Database` is a dialect: its traits, and these objects. A method of a protocol that has a body is the default, which
fits a database server; a dialect overrides what differs. A dialect builds SQL and decides; it never sees an engine and
never executes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from ...errors import CollectionsStoreError, DatabaseError
from ...expressions.classes import value_class
from ...options import Isolation, Options
from ...query.conditions import (
    And,
    Condition,
    Fails,
    Field,
    HasElement,
    HasObject,
    Not,
    Or,
    Passes,
    Test,
    Value,
)
from ...query.index import Plan
from ..elements import (
    ArrayAt,
    IndexedTest,
    IsNot,
    Keys,
    PartialTest,
    SortPart,
    SortValue,
    TypeAt,
)
from .indexed_form import IndexedForm, Ordering

COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
PING: Final = "SELECT 1"

Function: TypeAlias = tuple[str, int, Callable[..., Any]]
"""An SQL function: name, number of arguments, Python function."""
State: TypeAlias = Literal["open", "failed", "none", "lost"]
"""A transaction is open, is open and has failed, or there is none; or the connection is lost."""
Renderer: TypeAlias = Callable[..., str]
"""Renders an element of `sql.elements`: called with it and the SQL of its clauses."""


class TableVanished(CollectionsStoreError):
    """A table of the catalogue does not exist: another process dropped or renamed its collection."""


class UniqueViolated(DatabaseError):
    """The unique index `physical` of the database rejects a write."""

    def __init__(self, physical: str) -> None:
        super().__init__(f"the database's unique index {physical} forbids this")
        self.physical = physical


def inner_tests(node: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Condition | Test]]:
    """Yield each test of a condition, those that contain it first, behind the keys of all paths to it; and metadata."""
    inner: tuple[Any, ...] = ()
    match node:
        case Field(path, test):
            keys, inner = (*keys, *path.keys), (test,)
        case And(inner) | Or(inner):
            pass
        case Not(condition):
            inner = (condition,)
        case HasObject(condition):
            yield keys, node
            inner = (condition,)
        case HasElement(inner) | Fails(inner) | Passes(inner):
            yield keys, node
        case _:
            yield keys, node
    for each in inner:
        yield from inner_tests(each, keys)


class Binding(NamedTuple):
    """Parameters of a statement, computed from values of the filter.

    `positions` are those of the values in `values_of` the filter, `names` those of the parameters, and `convert`
    computes the parameters from the values; None: each value is the parameter.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    convert: Callable[[list[Value]], Sequence[Any]] | None


class Urls(Protocol):
    """URLs of a database."""

    def normal_url(self, url: sa.URL) -> sa.URL:
        """Return the URL with the one driver this library uses; raises `InvalidUrl`."""

    def connect_url(self, url: sa.URL) -> sa.URL:
        """Return the URL under which a store's own connections open the database."""
        return url

    def is_private(self, url: sa.URL) -> bool:
        """Return whether the database exists in its one connection only."""
        return False

    def file_of(self, url: sa.URL) -> str | None:
        """Return the path of the file that a URL names; None: no file, or the server's."""
        return None

    def is_locked(self, url: sa.URL) -> bool:
        """Return whether an open file is locked."""
        return False

    def is_created(self, url: sa.URL) -> bool:
        """Return whether opening creates a missing file."""
        return False

    def is_read_only(self, url: sa.URL) -> bool:
        """Return whether this process cannot write to the file of a URL."""
        return False

    def reading_url(self, url: sa.URL) -> sa.URL:
        """Return the URL that opens the same database, and neither creates nor changes its file."""
        return url


class Connections(Protocol):
    """Settings of connections."""

    persistent_settings: Sequence[str] = ()
    """The statements that prepare a database file, once, on its first use."""
    flush_log: Sequence[str] = ()
    """The statements that move the log beside a file into the file."""
    probe: str | None = None
    """The query for the database's encoding, and the version of what distributes schemas, null if nothing does; None: there
    is but one encoding, and no schemas.
    """

    read_only_probe: str | None = None
    """The query for whether the server lets this session only read; None: `Urls.is_read_only` decides."""
    process_probe: str | None = None
    """The query for the server's process that executes a statement; None: a connection is no server's."""

    def engine_arguments(self, url: sa.URL, *, busy_timeout: float) -> dict[str, Any]:
        """Return the arguments of `create_engine` for a store's own connections."""

    def connection_class(self, options: Options) -> Any:
        """Return the class of a store's own connections, whose `connect` opens one with the parameters that its method
        `arranged` returns; None: the driver's.
        """
        return None

    def problem_probe(self, options: Options) -> str | None:
        """Return the query for a row with the reason why a server cannot be used with these options; None: it can."""
        return None

    def settings(self, options: Options, *, busy_timeout: float) -> Sequence[str]:
        """Return the statements that prepare a new connection."""

    def local_settings(
        self, options: Options, *, busy_timeout: float, is_pooled: bool
    ) -> Sequence[str]:
        """Return the statements that prepare a transaction; none where those of `settings` do."""
        return ()

    def is_pooled(self, connection: Any, process: object) -> bool:
        """Return whether another process of the server than `process` accepted a driver's connection."""
        return False

    def configure(self, connection: Any, url: sa.URL, *, is_pooled: bool | None) -> None:
        """Set how a driver's connection prepares statements; it is ready then. `is_pooled` is None for a caller's."""

    def functions(self) -> Sequence[Function]:
        """Return the SQL functions that a connection needs."""
        return ()

    def has_input(self, connection: Any) -> bool:
        """Return whether the server has sent something to a connection that is not in use: it does when it ends."""
        return False

    def interrupt(self, connection: Any) -> None:
        """Stop the statement that a driver's connection runs; called from another thread."""


class Backups(Protocol):
    """Backups that are database files. The defaults are those of a database that has none."""

    pages: int | None = None
    """How many pages the driver's `backup` copies in a step; None: a backup is no database file."""
    sealing_settings: Sequence[str] = ()
    """The statements that give a file the state of a backup, which the first store that writes to it ends."""
    integrity_probe: str | None = None
    """The query for the damages of a file: the row "ok", or one for each."""


Severity: TypeAlias = Literal["info", "warning", "error"]


class Probe(NamedTuple):
    """A query for problems of a kind. Each row is a problem: a table or "", and values for the texts.

    The parameters are `prefix` and `schema` of the tables and the limits of `operations.diagnosis`. `needs`: the query runs if
    this one returns a row.
    """

    check: str
    severity: Severity
    sql: str
    problem: str
    advice: str
    needs: str | None = None


class Diagnosis(Protocol):
    """Probes for problems."""

    tables: str
    """The query for the tables whose names begin with `prefix`, each with one of its indexes, or null."""
    probes: Sequence[Probe]


class Replication(Protocol):
    """Queries to servers that have replicas, and to these. The defaults are those of a database that cannot have any."""

    server: str = ""
    """The query for a server's database system and database, which its replicas share, whether it is a replica, and when it
    was started.
    """
    has_replayed: str = ""
    """The query for whether a server is a replica that has replayed the log of `:timeline` up to `:position`."""

    def position(self, options: Options) -> str:
        """Return the query for the position in the log behind all that connections with these options have committed, and its
        timeline.
        """
        return ""


class Transactions(Protocol):
    """Statements of transactions, and their state on a driver's connection."""

    shared_options: Mapping[str, Any] = MappingProxyType({})
    """The execution options under which a caller's engine has transactions."""

    def begin(self, *, write: bool, isolation: str) -> str:
        """Return the BEGIN of a transaction; with "read committed" its statements do not depend on each other."""

    def savepoint(self, depth: int) -> str:
        """Return the statement that sets a savepoint; savepoints nest."""
        return f"SAVEPOINT collections_store_{depth:d}"

    def release(self, depth: int) -> str:
        """Return the statement that removes a savepoint and keeps its changes."""
        return f"RELEASE SAVEPOINT collections_store_{depth:d}"

    def rollback_to(self, depth: int) -> str:
        """Return the statement that undoes the changes since a savepoint."""
        return f"ROLLBACK TO SAVEPOINT collections_store_{depth:d}"

    def isolation_options(self, isolation: Isolation) -> dict[str, Any]:
        """Return the execution options of a transaction of the user's on a caller's engine."""
        return {}

    def join(self, connection: Any, *, write: bool) -> str | None:
        """Return the statement that begins a transaction on a caller's driver connection; None: the driver does."""
        return None

    def state(self, connection: Any) -> State:
        """Return the state of the transaction of a driver's connection."""

    def waits_remotely(self, sql: str) -> bool:
        """Return whether a statement may wait for locks of a server behind the one that a sharded store is connected to."""
        return False

    def lock_schema(self, table: sa.Table) -> str | None:
        """Return the statement that excludes other migrations; None: BEGIN does."""
        return None

    def lock_groups(self, table: sa.Table) -> str | None:
        """Return the query for lists of ids whose rows one statement can lock, all of `:ids` together; None: one can lock
        them all.
        """
        return None

    def lock_table(self, table: sa.Table, *, readers: bool) -> str | None:
        """Return the statement that excludes writers of a table, and `readers`, until the transaction ends; None:
        BEGIN does.
        """
        return None


class Errors(Protocol):
    """Errors of the driver."""

    def types(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that the driver and SQLAlchemy raise."""

    def translate(self, error: Exception) -> CollectionsStoreError:
        """Return the driver's error as one of this library."""

    def of_damage(self, error: UnicodeDecodeError) -> Exception:
        """Return the driver's error for a damaged database: `error` was raised because its message is not UTF-8."""
        return error

    def errno(self, error: BaseException | None) -> int | None:
        """Return the system's error for a driver's error of writing a file; None for others."""
        return None

    def is_read_only(self, error: Exception) -> bool:
        """Return whether a driver's error reports that the file of the database cannot be written."""
        return False

    def raised_within(self, error: Exception) -> BaseException | None:
        """Return what an SQL function raised, where that failed a statement of this thread."""
        return None


class StatementCompiler(Protocol):
    """Compilation of SQLAlchemy's statements, and their plans."""

    dialect: sa.Dialect
    """SQLAlchemy's, for statements on the store's own connections."""
    elements: Mapping[type[Any], Renderer]
    """Renders each class of `sql.elements` that `Database.register` does not render."""
    explain: str
    """The beginning of a statement that explains the statement after it."""

    def rename_table(self, table: sa.Table, new: str) -> str:
        """Return the statement that renames a table."""
        preparer = self.dialect.identifier_preparer
        return f"ALTER TABLE {preparer.format_table(table)} RENAME TO {preparer.quote(new)}"

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT with ON CONFLICT."""

    def list_parameter(self, texts: Sequence[str]) -> Any:
        """Return the parameter of `AnyOf`."""

    def plan(self, rows: Sequence[Any], table: sa.Table) -> Plan:
        """Read the rows of such a statement on a collection's table."""


class DDL(Protocol):
    """Tables and indexes."""

    name_type: sa.types.TypeEngine[str] = sa.Text()
    """The type of names, which compare by code point."""
    serial_type: sa.types.TypeEngine[int] = sa.BigInteger()
    """The type of a key that the database numbers."""
    serial_options: Mapping[str, Any] = MappingProxyType({})
    """Options of a table whose numbers are never used again."""
    body_type: sa.types.TypeEngine[Any]
    """The type of the column of bodies."""
    has_table: sa.TextClause
    """The query for a row if there is a table `:reference`."""
    jsonb_probe: str | None = None
    """The query for the version of a database that may lack JSONB; None: none lacks it."""

    sharding_probe: str = ""
    """The query for the `sharding` of the tables in `:schema`, null is the default one, and whether there is the table
    `:catalogue`; no row: there is no such schema.
    """

    def reference(self, table: sa.Table) -> str:
        """Return the table's name as `has_table` takes it."""

    def document_columns(self) -> tuple[sa.Column[int], sa.Column[str]]:
        """Return the columns `seq`, the natural order, and `id`."""

    def jsonb_problem(self, version: str) -> str | None:
        """Return why this version has no JSONB; None: it has."""
        return None

    def distributes(self, version: str | None) -> bool:
        """Return whether what has this version, `Connections.probe` returns it, distributes schemas."""
        return False

    def sharding_problem(
        self, schema: str | None, version: str | None, found: tuple[str | None, bool] | None
    ) -> str | None:
        """Return why a store cannot use a schema, of which `sharding_probe` found this row; None: it can."""
        return None

    def place(self, table: sa.Table) -> Sequence[str]:
        """Return the statements that give a new table its servers."""
        return ()

    def create_schema(self, name: str) -> Sequence[str]:
        """Return the statements that create a schema, unless it exists."""
        return ()

    def create_body_index(self, table: sa.Table, physical: str) -> Sequence[str]:
        """Return the statements that create an index over whole bodies, if the database has one."""
        return ()

    def create_array_index(self, table: sa.Table, keys: Keys, physical: str) -> Sequence[str]:
        """Return the statements that create an index of the values in arrays, if `indexes_arrays`."""
        return ()

    def drop_array_index(self, physical: str) -> Sequence[str]:
        """Return the statements that drop it."""
        return ()


class Filters(Protocol):
    """The exact form of conditions on a body: right for every document."""

    def can_render(self, condition: Condition) -> bool:
        """Return whether SQL expresses a shape exactly. Where it does not, the matcher decides."""

    def simplified(self, condition: Condition) -> Condition:
        """Return the shape that is rendered in place of another one of the same meaning and values."""
        return condition

    def groups(self, conditions: Sequence[Condition]) -> Sequence[Sequence[int]]:
        """Return the positions of conditions that are faster as one `BodyMatches` each group."""
        return ()

    def binding(self, shape: Condition, name: str, positions: tuple[int, ...]) -> Binding:
        """Return the parameters of `BodyMatches` for a shape; their names begin with `name`."""


@value_class
class Database:
    """A dialect: the traits of a database, and an object of each protocol."""

    name: str
    """SQLAlchemy's name of the dialect."""
    drivers: frozenset[str]
    """SQLAlchemy's names of the drivers that a caller's engine or connection may have."""
    pool_size: int
    """Connections that a store opens by default."""
    urls: Urls
    connections: Connections
    backups: Backups
    replication: Replication
    diagnosis: Diagnosis
    transactions: Transactions
    errors: Errors
    compiler: StatementCompiler
    ddl: DDL
    filters: Filters
    ordering: Ordering
    indexed_form: IndexedForm[Any]

    reconnect_for: float = 30.0
    """Seconds for which an operation tries to reach a database that went away, by default. A failover takes up to 20."""
    single_writer: bool = False
    """One transaction at a time writes."""
    errors_abort: bool = True
    """A statement that fails aborts its transaction."""
    ordered_keys: bool = False
    """A stored object keeps the order of its keys."""
    takes_lists: bool = True
    """One statement with lists of rows (`unnest … WITH ORDINALITY`) is faster than one row at a time."""
    options: frozenset[str] = frozenset()
    """The options of a store that other databases do not support."""
    upgrades_on_open: bool = False
    """Opening an older database upgrades it by default."""
    indexes_arrays: bool = False
    """An index of arrays serves an `ArrayTest`."""
    index_ends_in_seq: bool = False
    """A row of an index ends in the natural order without naming it."""
    counts_in_index: bool = False
    """Counting the entries of indexes, those of expired documents too, is faster than reading the rows."""
    is_sharded: bool = False
    """Tables are on other servers than the one that a store is connected to, and may be on several."""
    is_distributed: bool = False
    """The rows of a collection are on several servers, each of which has a snapshot of its own within a transaction. A
    statement over several of them locks no rows it selects, and has no subquery over other rows.
    """
    distributed: Database | None = None
    """The dialect of distributed collections; None: there are none."""
    orders_union_all: bool = False
    """UNION ALL returns the rows of its first part, then those of its second part in their order."""

    def register(self) -> None:
        """Register with SQLAlchemy how the elements are rendered, those of orders and of the indexed form included."""
        ordering, form = self.ordering, self.indexed_form
        shared: dict[type[Any], Renderer] = {
            SortPart: lambda sort, body: ordering.part(body, sort.keys, sort.part),
            SortValue: lambda sort, value: ordering.parameter(value, sort.part),
            TypeAt: lambda at, body: form.type_at(body, at.keys),
            ArrayAt: lambda at, body: form.array_at(body, at.keys, null_safe=at.null_safe),
            IndexedTest: lambda indexed, body, *parameters: form.test(
                body, indexed.field.path.keys, indexed.test(parameters, form.widths)
            ),
            PartialTest: lambda limit, body: form.partial_test(
                body, limit.field.path.keys, limit.field.test
            ),
            IsNot: lambda _, condition: f"(({condition}) IS NOT TRUE)",
        }
        for kind, render in {**shared, **self.compiler.elements}.items():
            compiles(kind, self.name)(partial(_rendered, render))


def _rendered(render: Renderer, element: Any, compiler: Any, **kw: Any) -> str:
    return render(element, *(compiler.process(clause, **kw) for clause in element.clauses))
