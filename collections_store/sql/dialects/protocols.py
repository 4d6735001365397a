"""Protocols of a dialect: a database provides one object of each protocol. `indexed_form` has two further protocols.

`Database` is a dialect: traits, and these objects. A protocol's method with a body is the default for a database
server; a dialect overrides the method where the database differs. A dialect builds SQL and decides. A dialect never
sees an engine and never executes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

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
from ...query.explanation import Plan
from ...query.index import Index
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
from .approximate import ApproximateIndexes
from .indexed_form import IndexedForm, Ordering
from .text_search import TextIndexes

COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
PING: Final = "SELECT 1"

Function: TypeAlias = tuple[str, int, Callable[..., Any]]
"""An SQL function: name, number of arguments, Python function."""
Rows = TypeVar("Rows", sa.Select[Any], sa.Delete)
State: TypeAlias = Literal["open", "failed", "none", "lost"]
"""A transaction is open, is open and has failed, or there is none; or the connection is lost."""
Renderer: TypeAlias = Callable[..., str]
"""Renders an element of `sql.elements`: called with it and the SQL of its clauses."""


KEYS_CHECK: Final = "collections_store_keys"
"""The constraint of a table that a body comes with its keys, see `sql.keys`."""


class TableVanished(CollectionsStoreError):
    """A table or an index of the catalogue does not exist: another process dropped, renamed or hid it."""


class UniqueViolated(DatabaseError):
    """The database's unique index `physical` rejects a write."""

    def __init__(self, physical: str) -> None:
        super().__init__(f"the database's unique index {physical} forbids this")
        self.physical = physical


def inner_tests(node: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Condition | Test]]:
    """Yield each test of a condition, outer tests first, with the keys of all paths to the test; and metadata."""
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

    `positions`: the positions of the values in `values_of` the filter. `names`: the names of the parameters. `convert`
    computes the parameters from the values; None: each value is a parameter.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    convert: Callable[[list[Value]], Sequence[Any]] | None

    @classmethod
    def as_they_are(cls, positions: tuple[int, ...]) -> Binding:
        """Return the binding of values as they are. All such bindings of a value share the parameter."""
        return cls(tuple(f"v{position}" for position in positions), positions, None)


class Urls(Protocol):
    """URLs of a database."""

    def normal_url(self, url: sa.URL) -> sa.URL:
        """Return the URL with the one driver this library uses; raises `InvalidUrl`."""

    def connect_url(self, url: sa.URL) -> sa.URL:
        """Return the URL under which a store's own connections open the database."""
        return url

    def is_private(self, url: sa.URL) -> bool:
        """Return whether the database exists in a single connection only."""
        return False

    def file_of(self, url: sa.URL) -> str | None:
        """Return the path of the file named by a URL; None: no file, or a file of the server."""
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
        """Return the URL for opening the same database without creating or changing the file."""
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
        """Return the class of a store's own connections; None: the driver's class. `connect` of the class opens a
        connection with the parameters returned by the class method `arranged`.
        """
        return None

    def problem_probe(self, options: Options) -> str | None:
        """Return the query for a row with the reason why a server does not fit these options; None: every server fits."""
        return None

    def settings(self, options: Options, *, busy_timeout: float) -> Sequence[str]:
        """Return the statements that prepare a new connection."""

    def local_settings(
        self, options: Options, *, busy_timeout: float, is_pooled: bool
    ) -> Sequence[str]:
        """Return the statements that prepare a transaction; empty where `settings` suffices."""
        return ()

    def is_pooled(self, connection: Any, process: object) -> bool:
        """Return whether another process of the server than `process` accepted a driver's connection."""
        return False

    def configure(self, connection: Any, url: sa.URL, *, is_pooled: bool | None) -> None:
        """Set how a driver's connection prepares statements; then the connection is ready. `is_pooled` is None for a
        caller's connection.
        """

    def functions(self) -> Sequence[Function]:
        """Return the SQL functions that a connection needs."""
        return ()

    def has_input(self, connection: Any) -> bool:
        """Return whether the server has sent data to an unused connection: a server does so when the connection ends."""
        return False

    def interrupt(self, connection: Any) -> None:
        """Stop the running statement of a driver's connection; called from another thread."""


@value_class
class Backups:
    """Backups as database files. The defaults are for a database without such backups."""

    pages: int | None = None
    """How many pages the driver's `backup` copies in a step; None: a backup is no database file."""
    sealing_settings: Sequence[str] = ()
    """The statements that give a file the state of a backup, which the first store that writes to it ends."""
    integrity_probe: str | None = None
    """The query for the damages of a file: the row "ok", or one for each."""


Severity: TypeAlias = Literal["info", "warning", "error"]


class Probe(NamedTuple):
    """A query for problems of a kind. Each row is a problem: a table or "", and values for the texts.

    The parameters are `prefix` and `schema` of the tables and the limits of `operations.diagnosis`. `needs`: the query
    runs if the query `needs` returns a row.
    """

    check: str
    severity: Severity
    sql: str
    problem: str
    advice: str
    needs: str | None = None


class Diagnosis(Protocol):
    """Probes for problems, and measures of indexes."""

    tables: str
    """The query for the tables whose names begin with `prefix`, each with one of its indexes, or null."""
    probes: Sequence[Probe]
    index_sizes: str
    """The query for the indexes of the physical `names`: the name, the bytes, and how often queries used the index since the
    server's statistics were reset, null if the database does not count that.
    """
    index_sizes_need: str
    """The query for a row if `index_sizes` can run."""
    reads_for_index_sizes: bool = False
    """Whether `index_sizes` reads all pages of the indexes."""


@value_class
class Replication:
    """Queries to servers with replicas, and to the replicas. The defaults are for a database without replicas."""

    server: str = ""
    """The query for a server's database system and database, which its replicas share, whether it is a replica, and when it
    was started.
    """
    has_replayed: str = ""
    """The query for whether a server is a replica that has replayed the log of `:timeline` up to `:position`."""

    position: Callable[[Options], str] = lambda _: ""
    """Returns the query for a position in the log and the timeline of the position. All commits of connections with
    these options come before the position.
    """


class Transactions(Protocol):
    """Statements of transactions, and their state on a driver's connection."""

    shared_options: Mapping[str, Any] = MappingProxyType({})
    """The execution options under which a caller's engine has transactions."""

    def begin(self, *, write: bool, isolation: str) -> str:
        """Return the BEGIN of a transaction; under "read committed" the statements do not depend on each other."""

    def savepoint(self, depth: int) -> str:
        """Return the statement for a savepoint; savepoints nest."""
        return f"SAVEPOINT collections_store_{depth:d}"

    def release(self, depth: int) -> str:
        """Return the statement that removes a savepoint and keeps the changes since."""
        return f"RELEASE SAVEPOINT collections_store_{depth:d}"

    def rollback_to(self, depth: int) -> str:
        """Return the statement for undoing the changes since a savepoint."""
        return f"ROLLBACK TO SAVEPOINT collections_store_{depth:d}"

    def isolation_options(self, isolation: Isolation) -> dict[str, Any]:
        """Return the execution options of a transaction of the user's on a caller's engine."""
        return {}

    def join(self, connection: Any) -> str | None:
        """Return the BEGIN for a write on a caller's driver connection; None: the driver begins the transaction."""
        return None

    def state(self, connection: Any) -> State:
        """Return the state of the transaction of a driver's connection."""

    def waits_remotely(self, sql: str) -> bool:
        """Return whether a statement may wait for locks of a server behind the connected server."""
        return False

    def lock_schema(self, table: sa.Table) -> str | None:
        """Return the statement for excluding concurrent migrations; None: BEGIN suffices."""
        return None

    def lock_groups(self, table: sa.Table) -> str | None:
        """Return the query that divides `:ids` into lists: a single statement can lock the rows of a list. None: a
        single statement can lock all rows.
        """
        return None

    def lock_table(self, table: sa.Table, *, readers: bool) -> str | None:
        """Return the statement that excludes writers of a table, and `readers`, until the transaction ends; None:
        BEGIN suffices.
        """
        return None


class Errors(Protocol):
    """Errors of the driver."""

    def types(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the driver and of SQLAlchemy."""

    def translate(self, error: Exception) -> CollectionsStoreError:
        """Return the error of this library for a driver's error."""

    def of_damage(self, error: UnicodeDecodeError) -> Exception:
        """Return the driver's error for a damaged database; `error`: the driver's message is not UTF-8."""
        return error

    def errno(self, error: BaseException | None) -> int | None:
        """Return the system's error number for a driver's error of writing a file; None for any other error."""
        return None

    def is_read_only(self, error: Exception) -> bool:
        """Return whether a driver's error reports a read-only database file."""
        return False

    def raised_within(self, error: Exception) -> BaseException | None:
        """Return the exception of an SQL function, if the exception failed a statement of this thread."""
        return None


class StatementCompiler(Protocol):
    """Compilation and plans of SQLAlchemy's statements."""

    dialect: sa.Dialect
    """SQLAlchemy's, for statements on the store's own connections."""
    row_dialect: sa.Dialect
    """SQLAlchemy's, for statements with the parameters of `row`."""
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

    def list_parameter(self, texts: Sequence[str] | Sequence[int]) -> Any:
        """Return the parameter of `AnyOf` or `AnyInteger`."""

    def row(self, id: str, body: str, now: int, ttl: int | None) -> Any:
        """Return the parameters of a statement that inserts a row of documents, which expires after `ttl` microseconds;
        None: never.
        """

    def reported_versions(self, connection: Any) -> list[int] | None:
        """Return the list to which `ReportedVersion` appends on a driver's connection; None: `RETURNING` serves."""
        return None

    def elements_of(self, array: sa.ColumnElement[Any]) -> tuple[sa.FromClause, Any, Any]:
        """Return a table with a row for each element of an array of JSON, the element, and its number from 0 or 1 on."""

    def commented(self, sql: str, comment: str) -> str:
        """Return a statement with a comment after its first word, by which drivers know a query."""
        verb, _, rest = sql.partition(" ")
        text = comment.replace("*/", "* /").replace("/*", "/ *")
        return f"{verb} /* {text} */ {rest}"

    def read_by(self, rows: Rows, table: sa.FromClause, index: str | None) -> Rows:
        """Return the statement that reads a table by an index, "$id" for that of the ids, or by none (None), if the
        database takes hints.
        """
        return rows

    def plan(self, rows: Sequence[Any], table: sa.Table) -> Plan:
        """Read the rows of an `explain` statement on a collection's table."""


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
    misses_rows: sa.TextClause | None = None
    """The query for a row if the transaction may not see rows that others committed to a table `:reference` before the
    table was locked; None: a transaction that writes sees all rows.
    """
    jsonb_probe: str | None = None
    """The query for the version of a database that may lack JSONB; None: none lacks it."""

    def reference(self, table: sa.Table) -> str:
        """Return the table's name as the parameter of `has_table`."""

    def document_columns(self) -> tuple[sa.Column[int], sa.Column[str]]:
        """Return the columns `seq`, the natural order, and `id`."""

    def jsonb_problem(self, version: str) -> str | None:
        """Return why this version has no JSONB; None: the version has JSONB."""
        return None

    def create_schema(self, name: str) -> Sequence[str]:
        """Return the statements that create a schema unless the schema exists."""
        return ()

    def create_body_index(self, table: sa.Table, physical: str) -> Sequence[str]:
        """Return the statements that create an index over whole bodies, if the database supports such an index."""
        return ()

    def set_keys(
        self, table: sa.Table, old: str, new: str, entries: Sequence[str]
    ) -> Sequence[str]:
        """Return the statements that change the column of stored keys from `old` to `new`, empty for none: a row must have
        all `entries`, and those of its body.
        """
        return ()

    def create_array_index(self, table: sa.Table, index: Index) -> Sequence[str]:
        """Return the statements that create an index through arrays: if it `has_entries`, the table of the entries (see
        `sql.entries`), with triggers; if not, an index of the values in arrays, if `indexes_arrays`.
        """

    def drop_array_index(self, table: sa.Table, index: Index) -> Sequence[str]:
        """Return the statements that drop an index of `create_array_index`."""

    def create_journal(self, table: sa.Table, journal: str, vectors: str) -> Sequence[str]:
        """Return the statements that create triggers: each change of a row of `table` inserts the row's `seq` into
        `journal`, and a deletion erases the row's vectors.
        """

    def drop_journal(self, table: sa.Table, journal: str) -> Sequence[str]:
        """Return the statements that drop the triggers of `create_journal`."""


class Placement(Protocol):
    """The servers of the tables in a cluster. The defaults are for a database on a single server."""

    probe: str = ""
    """The query for the `sharding` of the tables in `:schema`, null for one server, and whether the table `:catalogue`
    exists; no row: the schema does not exist.
    """
    schema_settings: Sequence[str] = ()
    """The statements that prepare the creation of a schema."""
    distributed: Database | None = None
    """The dialect of distributed collections; None: the database has none."""

    def distributes(self, version: str | None) -> bool:
        """Return whether an extension of this version (from `Connections.probe`) distributes schemas."""
        return False

    def problem(
        self, schema: str | None, version: str | None, found: tuple[str | None, bool] | None
    ) -> str | None:
        """Return why a store cannot use a schema; None: a store can. `found` is the row of `probe`."""
        return None

    def place(self, table: sa.Table) -> Sequence[str]:
        """Return the statements that assign servers to a new table."""
        return ()

    reads_for_size: bool = False
    """Whether `size` reads all bodies."""

    def size(self, table: sa.Table) -> str:
        """Return the expression for the bytes of a table and its indexes on disk."""

    def estimate(self, table: sa.Table) -> str:
        """Return the expression for about how many rows a table has, without reading the rows; null if unknown."""
        return "NULL"


class Filters(Protocol):
    """The exact form of conditions on a body: right for every document."""

    def can_render(self, condition: Condition) -> bool:
        """Return whether SQL expresses a shape exactly; otherwise the matcher decides."""

    def simplified(self, condition: Condition) -> Condition:
        """Return the shape to render in place of `condition`, with the same meaning and values."""
        return condition

    def groups(self, conditions: Sequence[Condition]) -> Sequence[Sequence[int]]:
        """Return groups of positions: the conditions of a group are faster as a single `BodyMatches`."""
        return ()

    def binding(self, shape: Condition, name: str, positions: tuple[int, ...]) -> Binding:
        """Return the parameters of `BodyMatches` for a shape; each name begins with `name`."""


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
    diagnosis: Diagnosis
    transactions: Transactions
    errors: Errors
    compiler: StatementCompiler
    ddl: DDL
    placement: Placement
    filters: Filters
    ordering: Ordering
    indexed_form: IndexedForm[Any]
    text: TextIndexes
    approximate: ApproximateIndexes | None = None
    """None: vector indexes are exact."""
    backups: Backups = Backups()
    replication: Replication = Replication()

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
    indexes_text: bool = True
    """Collections can have a text index."""
    indexes_arrays: bool = False
    """An index of arrays serves an `ArrayTest`."""
    stores_keys: bool = False
    """The keys of indexes under a collation are stored beside the body, see `sql.keys`; otherwise SQL makes them."""
    index_ends_in_seq: bool = False
    """A row of an index ends in the natural order without naming it."""
    counts_in_index: bool = False
    """Counting the entries of indexes, those of expired documents too, is faster than reading the rows."""
    is_remote: bool = False
    """Statements run on other servers than the connected one, and on several of them."""
    takes_subqueries: bool = True
    """A statement may have subqueries over other rows, and lock the rows that it selects. False where the rows of a table are
    on several servers, each of which has its own snapshot within a transaction.
    """
    orders_union_all: bool = False
    """UNION ALL returns the rows of its first part, then those of its second part in their order."""

    def register(self) -> None:
        """Register the renderers of all elements with SQLAlchemy, including orders and the indexed form."""
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
