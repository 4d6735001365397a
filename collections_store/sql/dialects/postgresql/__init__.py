"""PostgreSQL: JSONB and jsonpath spellings, its settings, its errors.

An equality is one jsonpath predicate, bound as a parameter: `body @? $1` is what a GIN index over
the body serves, at any depth. jsonpath is lax: a filter opens an array once and the comparison
opens it again, so that `$.a ? (@ == 1)` matches [[1]]; every test therefore also asks for the type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as insert
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import NullPool

from .... import errors as ours
from ....options import Durability, Isolation
from ....query.conditions import Condition, Field
from ...elements import (
    AnyOf,
    BodyFromText,
    BodyMatches,
    BodyText,
    HasInteger,
    Increased,
    JsonbFromText,
    JsonbText,
    ListOf,
    SortValue,
    TableSize,
    TextFits,
    ValueText,
)
from ..indexed_form import spell
from ..protocols import Function, TableVanished, UniqueViolated
from . import filters, ordering
from .filters import binder as binder
from .filters import is_served
from .filters import together as together
from .ordering import INDEXES_NAME_SEQ as INDEXES_NAME_SEQ
from .ordering import SORT_PARTS as SORT_PARTS
from .ordering import can_order as can_order
from .ordering import index_parts as index_parts
from .ordering import is_cut as is_cut
from .ordering import is_rough as is_rough
from .ordering import pinned as pinned
from .ordering import plain_values as plain_values
from .ordering import plain_width as plain_width
from .ordering import sort_values as sort_values
from .ordering import sort_varies as sort_varies
from .plans import explain as explain
from .plans import plan as plan

NAME: Final = "postgresql"
DRIVERS: Final = frozenset({"psycopg", "psycopg_async"})
SINGLE_WRITER: Final = False
POISONED_BY_ERRORS: Final = True
ORDERED_KEYS: Final = False
UNITES_IN_ORDER: Final = False
"""It may read both parts at the same time."""
TAKES_LISTS: Final = True
HAS_SCHEMAS: Final = True
HAS_PAGE_CACHE: Final = False
UPGRADES_ITSELF: Final = False
POOL_SIZE: Final = 10
INDEXES_ARRAYS: Final = False
COUNTS_IN_INDEX: Final = False
"""It reads rows for an index over expressions anyway, and takes longer to plan two counts than one."""
"""The index over whole bodies does so already."""
_IDLE: Final = 0
"""PQTRANS_IDLE of libpq's `PQtransactionStatus`."""
_IN_TRANSACTION: Final = 2
"""PQTRANS_INTRANS: in a transaction, and nothing has failed."""
_DRIVERS: Final = frozenset({"postgresql", "postgresql+psycopg"})


# -- URLs, engines, settings -----------------------------------------------------------------


def normal_url(url: sa.URL) -> sa.URL:
    """Choose psycopg 3; raises `InvalidUrl`, or `MissingExtra` where it is not installed."""
    if url.drivername not in _DRIVERS:
        raise ours.InvalidUrl(
            f"{url.drivername!r} is no driver of this library: use postgresql:// (psycopg 3)"
        )
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise ours.MissingExtra("psycopg", "postgresql") from error
    return url.set(drivername="postgresql+psycopg")


def is_private(url: sa.URL) -> bool:  # noqa: ARG001
    """A server serves many connections."""
    return False


def file_of(url: sa.URL) -> str | None:  # noqa: ARG001
    """The server has its files."""
    return None


def is_locked(url: sa.URL) -> bool:  # noqa: ARG001
    """The server locks its files."""
    return False


def is_created(url: sa.URL) -> bool:  # noqa: ARG001
    """A database is created on the server."""
    return False


def connect_url(url: sa.URL) -> sa.URL:
    """Return the URL as it is."""
    return url


def engine_arguments(*, busy_timeout: float) -> dict[str, Any]:  # noqa: ARG001
    """One held connection per slot of the store, in the driver's autocommit mode."""
    connect = {"client_encoding": "utf8"}
    return {"isolation_level": "AUTOCOMMIT", "connect_args": connect, "poolclass": NullPool}


def settings(
    *,
    busy_timeout: float,
    durability: Durability,
    page_cache: int | None,  # noqa: ARG001
) -> Sequence[str]:
    """`full` waits for the server's disk at least; `normal` does not."""
    lock = f"SET lock_timeout = {int(busy_timeout * 1000)}"
    if durability == "normal":
        return [f"{lock}; SET synchronous_commit = off"]
    waits = "set_config('synchronous_commit', 'on', false)"
    return [f"{lock}; SELECT {waits} WHERE current_setting('synchronous_commit') = 'off'"]


def flush_log() -> Sequence[str]:
    """The server has its log."""
    return ()


def persistent_settings() -> Sequence[str]:
    """Nothing to prepare in a server."""
    return ()


@cache
def compiler() -> sa.Dialect:
    """Return the dialect of this library's own connections."""
    dialect: sa.Dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]
    return dialect


def begin(*, write: bool, snapshot: bool = True) -> str:
    """All statements of a snapshot see one moment. A writer that meets a change made since then fails with 40001
    and is run again: under READ COMMITTED, two that read and then write would lose one. READ WRITE is never
    said: whether a session may write is for the server to say.
    """
    level = "REPEATABLE READ" if snapshot else "READ COMMITTED"
    return f"BEGIN ISOLATION LEVEL {level}{'' if write else ' READ ONLY'}"


def begin_group() -> str:
    """Each statement stands alone, and sees what was committed before it."""
    return begin(write=True, snapshot=False)


def begin_block(isolation: Isolation) -> str:
    """All statements see one moment; `serializable` also refuses what no order would explain."""
    return f"BEGIN ISOLATION LEVEL {isolation.upper()}"


def options_for_block(isolation: Isolation) -> dict[str, Any]:
    """SQLAlchemy says the level."""
    return {"isolation_level": isolation.upper()}


def has_table() -> sa.TextClause:
    """Return the query for a row if there is a table `:reference`."""
    return sa.text("SELECT 1 WHERE to_regclass(:reference) IS NOT NULL")


def encoding_probe() -> str:
    """Return the query: LATIN1 lacks most characters, and SQL_ASCII gives bytes."""
    return "SELECT current_setting('server_encoding')"


def reference(table: sa.Table) -> str:
    """Return the table's name as `has_table` takes it."""
    return str(compiler().identifier_preparer.format_table(table))


def in_transaction(connection: Any) -> bool:
    """A failed transaction is one until it is rolled back; a lost connection has none."""
    return not connection.closed and connection.info.transaction_status != _IDLE


def is_at_rest(connection: Any) -> bool:
    """Nothing is asked of a server that ended the session."""
    return not connection.closed and not in_transaction(connection)


def can_go_on(connection: Any) -> bool:
    """An error ends all but the ROLLBACK, to a savepoint or of all."""
    return not connection.closed and connection.info.transaction_status == _IN_TRANSACTION


def join(connection: Any, *, write: bool) -> None:
    """The driver begins a transaction with the first statement."""


def options_for_callers() -> dict[str, Any]:
    """An engine in AUTOCOMMIT would tear an operation of several statements apart."""
    return {"isolation_level": "READ COMMITTED"}


def lock_table(table: sa.Table) -> str:
    """Keep other migrations out until this one commits; readers may go on."""
    return f"LOCK TABLE {reference(table)} IN EXCLUSIVE MODE"


def keep_out(table: sa.Table, *, readers: bool) -> str:
    """Take the lock that an index takes to be made, or that all else takes."""
    return f"LOCK TABLE {reference(table)} IN {'ACCESS EXCLUSIVE' if readers else 'SHARE'} MODE"


def document_columns() -> tuple[sa.Column[int], sa.Column[str]]:
    """Ids compare by code point, as on SQLite."""
    return (
        sa.Column("seq", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
        sa.Column("id", sa.Text(collation="C"), primary_key=True),
    )


# -- spellings -------------------------------------------------------------------------------

spell(NAME, ordering)


@compiles(BodyText, NAME)
@compiles(JsonbText, NAME)
def _body_text(element: BodyText, compiler: Any, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS TEXT)"


@compiles(BodyFromText, NAME)
@compiles(JsonbFromText, NAME)
def _body_from_text(element: BodyFromText, compiler: Any, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS JSONB)"


@compiles(AnyOf, NAME)
def _any_of(element: AnyOf, compiler: Any, **kw: Any) -> str:
    column, texts = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = ANY (CAST({texts} AS TEXT[]))"


@compiles(ListOf, NAME)
def _list_of(element: ListOf, compiler: Any, **kw: Any) -> str:  # noqa: ARG001
    """Spell a list in the driver's binary format: in text, psycopg escapes each quotation mark in Python."""
    return f"CAST(%({element.parameter})b AS {'TEXT' if element.texts else 'BIGINT'}[])"


@compiles(TableSize, NAME)
def _table_size(element: TableSize, compiler: Any, **kw: Any) -> str:  # noqa: ARG001
    name = compiler.preparer.format_table(element.table).replace("'", "''")
    return f"pg_total_relation_size('{name}')"


@compiles(BodyMatches, NAME)
def _body_matches(element: BodyMatches, compiler: Any, **kw: Any) -> str:
    body, parameter = (compiler.process(clause, **kw) for clause in element.clauses)
    condition = element.condition
    if filters.is_long(condition) and isinstance(condition, Field):
        return _among(body, condition, parameter)
    if filters.is_composite(condition) and isinstance(condition, Field):
        return _equals_whole(body, condition, parameter)
    said = f"{body} @? CAST({parameter} AS jsonpath)"
    if not is_served(condition):
        # the planner would count what this lets through for what an index over bodies finds
        said = f"jsonb_path_exists({body}, CAST({parameter} AS jsonpath), '{{}}', true)"
    if isinstance(condition, Field) and not condition.path.keys:
        return said
    if filters.on_no_object(condition):
        return f"(jsonb_typeof({body}) <> 'object' OR {said})"
    return f"({said} AND jsonb_typeof({body}) = 'object')"


def _among(body: str, condition: Field, parameter: str) -> str:
    """Look each value of a document up by its hash: a jsonpath would try all that are asked for."""
    path = f"{filters.path_literal(condition.path.keys)}[*]"
    given = f"SELECT * FROM jsonb_array_elements(CAST({parameter} AS JSONB))"
    return (
        f"(EXISTS (SELECT 1 FROM jsonb_path_query({body}, '{path}') AS found(value) "
        f"WHERE (found.value IN ({given})) IS TRUE) AND jsonb_typeof({body}) = 'object')"
    )


def _equals_whole(body: str, condition: Field, parameter: str) -> str:
    path = filters.path_literal(condition.path.keys)
    tests = (
        f"EXISTS (SELECT 1 FROM jsonb_path_query({body}, {found}) AS found(value) "
        f"WHERE found.value = CAST({parameter} AS JSONB))"
        for found in (f"'{path}'", f"'{path}[*]'")
    )
    said = f"({' OR '.join(tests)})"
    return f"({said} AND jsonb_typeof({body}) = 'object')" if condition.path.keys else said


@compiles(SortValue, NAME)
def _sort_value(element: SortValue, compiler: Any, **kw: Any) -> str:
    return ordering.place(compiler.process(element.clauses, **kw), element.part)


@compiles(ValueText, NAME)
def _value_text(element: ValueText, compiler: Any, **kw: Any) -> str:
    return (
        f"CAST({ordering.value_at(compiler.process(element.clauses, **kw), element.keys)} AS TEXT)"
    )


@compiles(HasInteger, NAME)
def _has_integer(element: HasInteger, compiler: Any, **kw: Any) -> str:
    value = ordering.value_at(compiler.process(element.clauses, **kw), element.keys)
    digits = f"CAST({value} AS TEXT) ~ '^-?[0-9]{{1,18}}$'"
    return f"(jsonb_typeof({value}) = 'number' AND {digits})"


@compiles(TextFits, NAME)
def _text_fits(element: TextFits, compiler: Any, **kw: Any) -> str:
    body, room = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"octet_length(CAST({body} AS TEXT)) <= {room}"


@compiles(Increased, NAME)
def _increased(element: Increased, compiler: Any, **kw: Any) -> str:
    body, by = (compiler.process(clause, **kw) for clause in element.clauses)
    path = f"ARRAY[{', '.join(map(ordering.literal, element.keys))}]"
    number = f"CAST(CAST({ordering.value_at(body, element.keys)} AS TEXT) AS BIGINT)"
    return f"jsonb_set({body}, {path}, to_jsonb({number} + {by}))"


def body_type() -> sa.types.TypeEngine[Any]:
    """What GIN serves."""
    return JSONB()


def jsonb_probe() -> str | None:
    """All bodies are JSONB."""
    return None


def jsonb_problem(version: str) -> str | None:  # noqa: ARG001
    """There is none."""
    return None


def create_body_index(table: sa.Table, physical: str) -> Sequence[str]:
    """One index serves equality at any depth."""
    index = sa.Index(
        physical,
        table.c.body,
        postgresql_using="gin",
        postgresql_ops={"body": "jsonb_path_ops"},
    )
    return [str(sa.schema.CreateIndex(index).compile(dialect=compiler()))]


def create_array_index(table: sa.Table, keys: tuple[str, ...], physical: str) -> Sequence[str]:  # noqa: ARG001
    """The index over the whole body serves elements of arrays."""
    return ()


def drop_array_index(table: sa.Table, physical: str) -> Sequence[str]:  # noqa: ARG001
    """There is none."""
    return ()


def can_say(condition: Condition) -> bool:
    """Return whether `BodyMatches` has words for a shape."""
    return filters.can_say(condition)


def count_parameters(condition: Condition) -> int:  # noqa: ARG001
    """A jsonpath holds all values."""
    return 1


def list_parameter(texts: Sequence[str]) -> list[str]:
    """The driver knows lists."""
    return list(texts)


# -- errors ----------------------------------------------------------------------------------

_CONFLICTS: Final = frozenset({"40001", "40P01", "25P03"})
"""25P03: the server ended a session that did nothing in its transaction for too long, and rolled that back."""
_BUSY: Final = frozenset({"55P03", "53300", "57P03"})
_NOT_YET: Final = re.compile(
    "is starting up|is shutting down|not yet accepting|too many (clients|connections)|connection slots"
)
"""What a server says that refuses a connection for now; the driver knows no state of that."""
_READ_ONLY: Final = (
    "the server lets this session read only (default_transaction_read_only, or a standby): "
    "connect to one that may write"
)
_OURS: Final = re.compile(r"\$i[0-9]+$")
_LOST: Final = ("08", "57P")
_KEEPS_ROW: Final = "RelationGetBufferForTuple"
"""What in the server says that a row is too big, which rows of collections never are."""
_TOO_LONG: Final = "its keys are too long for PostgreSQL before 18: use shorter ones, or fewer"


@cache
def functions() -> Sequence[Function]:
    """None: nothing of Python's runs within the server."""
    return ()


def raised_within(error: Exception) -> BaseException | None:  # noqa: ARG001
    """Nothing: there are no functions."""
    return None


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that the driver and SQLAlchemy raise."""
    import psycopg

    return (psycopg.Error, sa.exc.DBAPIError, sa.exc.ResourceClosedError)


def translate(error: Exception) -> ours.CollectionsStoreError:
    """Return the driver's error in our words."""
    import psycopg

    cause: Any = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or ""
    diagnosis = getattr(cause, "diag", None)
    # the rest of its text holds SQL and values
    message = getattr(diagnosis, "message_primary", None) or str(cause).strip()
    if state == "42P01":
        return TableVanished(message)
    if state == "23505" and _OURS.search(cause.diag.constraint_name or ""):
        return UniqueViolated(cause.diag.constraint_name)
    if state == "23505" and (cause.diag.table_name or "").startswith("pg_"):
        return ours.TransactionConflict(message)  # two made a thing of the same name
    if state == "54000" and getattr(diagnosis, "source_function", "") == _KEEPS_ROW:
        return ours.InvalidIndex("", _TOO_LONG)
    if state in _CONFLICTS:
        return ours.TransactionConflict(message)
    if state in _BUSY or (not state and _NOT_YET.search(message)):
        return ours.DatabaseBusy(message)
    if state == "25006":
        return ours.DatabaseError(f"{message}: {_READ_ONLY}")
    lost = state.startswith(_LOST) or (not state and isinstance(cause, psycopg.OperationalError))
    kind = ours.DatabaseUnavailable if lost else ours.DatabaseError
    return kind(message)


def interrupt(connection: Any) -> None:
    """Ask the server to cancel the statement that runs."""
    connection.cancel_safe(timeout=5.0)
