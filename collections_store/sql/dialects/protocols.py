"""What differs between the databases, and nothing else: one module each.

A module here satisfies `Database`. It spells our SQL elements, names the settings of a connection
and the words that begin and end a transaction, and turns the driver's errors into ours. It builds
and decides; it never sees an engine and never executes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import sqlalchemy as sa

from ...errors import CollectionsStoreError, DatabaseError
from ...options import Durability, Isolation
from ...query.conditions import Condition, Kind, Test, Value
from ...query.explain import Plan
from ...query.sort import Key

COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
PING: Final = "SELECT 1"

Function: TypeAlias = tuple[str, int, Callable[..., Any]]


class TableVanished(CollectionsStoreError):
    """A table the catalogue told of is gone: another process dropped or renamed its collection."""


class UniqueViolated(DatabaseError):
    """The unique index `physical` of the database forbids a write."""

    def __init__(self, physical: str) -> None:
        super().__init__(f"the database's unique index {physical} forbids this")
        self.physical = physical


class Database(Protocol):
    """One database, as the rooms above see it."""

    @property
    def NAME(self) -> str:
        """SQLAlchemy's name of the dialect."""

    @property
    def DRIVERS(self) -> frozenset[str]:
        """SQLAlchemy's names of the drivers a caller's engine or connection may have."""

    @property
    def SINGLE_WRITER(self) -> bool:
        """Does one transaction at a time write?"""

    @property
    def POISONED_BY_ERRORS(self) -> bool:
        """Does a statement that fails end the transaction around it?"""

    @property
    def COUNTS_IN_INDEX(self) -> bool:
        """Is counting the entries of an index, those of expired objects too, faster than its rows?"""

    @property
    def UNITES_IN_ORDER(self) -> bool:
        """Does UNION ALL give the rows of the one part first, and then those of the other in their order?"""

    @property
    def ORDERED_KEYS(self) -> bool:
        """Does a stored object keep the order of its keys?"""

    @property
    def TAKES_LISTS(self) -> bool:
        """Does a statement take lists of rows, faster than one row at a time?"""

    @property
    def HAS_SCHEMAS(self) -> bool:
        """Can tables be put in a schema?"""

    @property
    def UPGRADES_ITSELF(self) -> bool:
        """Is an older database upgraded when it is opened, unless told otherwise?"""

    @property
    def POOL_SIZE(self) -> int:
        """How many connections a store opens at most, unless told otherwise."""

    def functions(self) -> Sequence[Function]:
        """Return the SQL functions a connection must be given: name, number of arguments, function."""

    def raised_within(self, error: Exception) -> BaseException | None:
        """Return what such a function raised, where that is why a statement failed in this thread."""

    def engine_arguments(self, *, busy_timeout: float) -> dict[str, Any]:
        """Return what `create_engine` needs for a store's own connections."""

    def normal_url(self, url: sa.URL) -> sa.URL:
        """Return the URL with the one driver this library uses; raises `InvalidUrl`."""

    def is_private(self, url: sa.URL) -> bool:
        """Does the database live in its one connection only?"""

    def file_of(self, url: sa.URL) -> str | None:
        """Return the path of the file that a URL names; None: there is none, or a server has it."""

    def is_locked(self, url: sa.URL) -> bool:
        """Are locks on the file taken while it is open?"""

    def is_created(self, url: sa.URL) -> bool:
        """Is the file created where there is none?"""

    def connect_url(self, url: sa.URL) -> sa.URL:
        """Return the URL under which a store's own connections open the database."""

    @property
    def HAS_PAGE_CACHE(self) -> bool:
        """Does a connection keep pages of the database?"""

    def settings(
        self, *, busy_timeout: float, durability: Durability, page_cache: int | None
    ) -> Sequence[str]:
        """Return the statements that prepare a new connection."""

    def persistent_settings(self) -> Sequence[str]:
        """Return the statements that prepare a database file, once, on its first use."""

    def flush_log(self) -> Sequence[str]:
        """Return the statements that empty the log beside a file into the file."""

    def compiler(self) -> sa.Dialect:
        """Return the dialect our statements are compiled with on our own connections."""

    def begin(self, *, write: bool, snapshot: bool = True) -> str:
        """Return the words that begin a transaction; of a `snapshot` all statements see one moment."""

    def begin_group(self) -> str:
        """Return the words that begin a transaction of statements that do not depend on each other."""

    def begin_block(self, isolation: Isolation) -> str:
        """Return the words that begin a transaction of the user's."""

    def options_for_block(self, isolation: Isolation) -> dict[str, Any]:
        """Return the execution options of such a transaction on a caller's engine."""

    def has_table(self) -> sa.TextClause:
        """Return the query for a row if there is a table `:reference`."""

    def encoding_probe(self) -> str | None:
        """Return the query for a database's encoding; None: any text fits into each."""

    def reference(self, table: sa.Table) -> str:
        """Return the table's name as `has_table` takes it."""

    def in_transaction(self, connection: Any) -> bool:
        """Is a driver's connection in a transaction, be it a failed one?"""

    def is_at_rest(self, connection: Any) -> bool:
        """Return whether a driver's connection is open, and in no transaction."""

    def can_go_on(self, connection: Any) -> bool:
        """Is a driver's connection in a transaction that has not failed?"""

    def join(self, connection: Any, *, write: bool) -> str | None:
        """Return what a caller's driver connection must hear to be in a transaction that may write;
        None: it will be in one.
        """

    def options_for_callers(self) -> dict[str, Any]:
        """Return the execution options under which a caller's engine has transactions."""

    def lock_table(self, table: sa.Table) -> str | None:
        """Return the statement that keeps other migrations out; None: `begin` did."""

    def keep_out(self, table: sa.Table, *, readers: bool) -> str | None:
        """Return the statement that keeps other transactions from writing to a table, and `readers` from
        reading it, until this one ends; None: `begin` did.
        """

    def document_columns(self) -> tuple[sa.Column[int], sa.Column[str]]:
        """Return the columns `seq`, the natural order, and `id`."""

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT that knows ON CONFLICT."""

    def can_say(self, condition: Condition) -> bool:
        """Can `BodyMatches` say exactly what a shape means? Else it runs in the matcher."""

    def together(self, conditions: Sequence[Condition]) -> Sequence[Sequence[int]]:
        """Tell which conditions of an object, by their places, are best said as one `BodyMatches`."""

    def count_parameters(self, condition: Condition) -> int:
        """Return how many parameters `BodyMatches` takes for a shape."""

    def binder(self, shape: Condition) -> Callable[[Condition], Sequence[Any]]:
        """Return what makes these parameters of a condition of that shape."""

    @property
    def SORT_PARTS(self) -> Sequence[str]:
        """The columns by which a field of the body is ordered, each a `SortPart`; they order all
        values that are not `is_rough` as MongoDB does, as long as no array is on the way.
        """

    def can_order(self, keys: tuple[str, ...]) -> bool:
        """Can a `SortPart` speak of these keys?"""

    @property
    def INDEXES_NAME_SEQ(self) -> bool:
        """Must an index name the column of the natural order to have it?"""

    def index_parts(self, *, unique: bool) -> Sequence[str]:
        """Return the columns that a field has in an index, each a `SortPart`."""

    def plain_width(self, kind: Kind) -> int:
        """Return how many parameters a value of that kind takes in a `PlainTest`."""

    def pinned(self, test: Test) -> Sequence[str]:
        """Return the `SORT_PARTS` in which all values are alike that pass a `PlainTest`."""

    def plain_values(self, value: Value) -> Sequence[Any]:
        """Return these parameters."""

    def body_type(self) -> sa.types.TypeEngine[Any]:
        """Return the type of the column of bodies."""

    def jsonb_probe(self) -> str | None:
        """Return the query for the version of a database that may have no JSONB; None: all have it."""

    def jsonb_problem(self, version: str) -> str | None:
        """Say that this version has no JSONB; None: it has."""

    def create_body_index(self, table: sa.Table, physical: str) -> Sequence[str]:
        """Return the statements that make an index over whole bodies, if there is such a thing."""

    @property
    def INDEXES_ARRAYS(self) -> bool:
        """Does an index of arrays serve an `ArrayTest`?"""

    def create_array_index(
        self, table: sa.Table, keys: tuple[str, ...], physical: str
    ) -> Sequence[str]:
        """Return the statements that make an index of the values in arrays."""

    def drop_array_index(self, table: sa.Table, physical: str) -> Sequence[str]:
        """Return the statements that drop it."""

    def sort_values(self, key: Key) -> Sequence[Any]:
        """Return a key as its `SORT_PARTS`."""

    def sort_varies(self, key: Key) -> Sequence[bool]:
        """Tell which `SORT_PARTS` differ among keys that are equal to `key` in the parts before."""

    def is_rough(self, key: Key) -> bool:
        """Do the `SORT_PARTS` say nothing of the order of such keys among each other?"""

    def is_cut(self, key: Key) -> bool:
        """Do the `SORT_PARTS` know only how the key begins, so that another may have the same?"""

    def explain(self, sql: str) -> str:
        """Return the statement that gives the plan of a statement."""

    def plan(self, rows: Sequence[Any], table: sa.Table) -> Plan:
        """Return what its rows say of a collection's table."""

    def list_parameter(self, texts: Sequence[str]) -> Any:
        """Return the parameter of `AnyOf`."""

    def errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that the driver and SQLAlchemy raise."""

    def translate(self, error: Exception) -> CollectionsStoreError:
        """Return the driver's error in our words."""

    def interrupt(self, connection: Any) -> None:
        """Stop the statement that a driver's connection runs; called from another thread."""


def savepoint(depth: int) -> str:
    """Return the words that mark a place in a transaction; places lie within each other."""
    return f"SAVEPOINT collections_store_{depth:d}"


def release(depth: int) -> str:
    """Return the words that forget a place, and keep what was done since."""
    return f"RELEASE SAVEPOINT collections_store_{depth:d}"


def back_to(depth: int) -> str:
    """Return the words that undo what was done since a place."""
    return f"ROLLBACK TO SAVEPOINT collections_store_{depth:d}"
