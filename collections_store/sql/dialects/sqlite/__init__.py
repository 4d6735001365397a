"""Bodies that SQLite keeps as JSONB, from the version on that knows it.

SQLite: JSON1 spellings, its pragmas, its errors.

A path is an SQL literal, or no index could serve it. Statements are compiled with the paramstyle
`named`: with `qmark` SQLAlchemy searches the finished SQL for `%(name)s`, and a hostile key could
hold just that.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert as insert
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import NullPool

from .... import codec
from .... import errors as ours
from ....options import Durability, Isolation
from ....query.conditions import Condition
from ...elements import (
    AnyOf,
    ArrayTest,
    BodyFromText,
    BodyMatches,
    BodyText,
    HasInteger,
    Increased,
    JsonbFromText,
    JsonbText,
    SortValue,
    TableSize,
    TextFits,
    ValueText,
)
from ..indexed_form import spell
from ..protocols import TableVanished, UniqueViolated
from . import arrays, ordering
from .filters import binder as binder
from .filters import can_say as can_say
from .filters import count_parameters as count_parameters
from .filters import path_literal, spelled
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
from .sql_functions import functions as functions
from .sql_functions import raised_within as raised_within

JSONB_SINCE: Final = (3, 45)


@compiles(JsonbText, "sqlite")
def _jsonb_text(element: JsonbText, compiler: Any, **kw: Any) -> str:
    return f"json({compiler.process(element.clauses, **kw)})"


@compiles(JsonbFromText, "sqlite")
def _jsonb_from_text(element: JsonbFromText, compiler: Any, **kw: Any) -> str:
    return f"jsonb({compiler.process(element.clauses, **kw)})"


def jsonb_probe() -> str | None:
    """Ask the library that is in use, which may be the caller's."""
    return "SELECT sqlite_version()"


def jsonb_problem(version: str) -> str | None:
    """Came that version before JSONB did?"""
    if tuple(map(int, version.split("."))) >= JSONB_SINCE:
        return None
    return f"SQLite {version} has no JSONB: it takes 3.45 or newer"


NAME: Final = "sqlite"
DRIVERS: Final = frozenset({"pysqlite", "aiosqlite"})
SINGLE_WRITER: Final = True
POISONED_BY_ERRORS: Final = False
ORDERED_KEYS: Final = True
UNITES_IN_ORDER: Final = True
TAKES_LISTS: Final = False
COUNTS_IN_INDEX: Final = True
HAS_SCHEMAS: Final = False
HAS_PAGE_CACHE: Final = True
PAGE_CACHE: Final = 16 * 2**20
"""Bytes, unless told otherwise: with SQLite's own 2 MB a `get` of some hundred, again and again, of a million takes
twice as long (measured)."""
MOST_KIBIBYTES: Final = 2**31 - 1
"""Of a larger number SQLite would make 0, and keep next to nothing."""
UPGRADES_ITSELF: Final = True
POOL_SIZE: Final = 4
INDEXES_ARRAYS: Final = True
_NINES: Final = 10**18 - 1
BUSY_SLICE: Final = 0.25
"""Seconds after which a wait for a lock comes back to see whether its caller still waits."""


# -- URLs, engines, settings -----------------------------------------------------------------

_TRUE: Final = ("1", "true", "yes", "on")
_SWITCH: Final = (*_TRUE, "0", "false", "no", "off")
_URL_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "cache": ("shared", "private"),
    "immutable": _SWITCH,
    "mode": ("ro", "rw", "rwc", "memory"),
    "nolock": _SWITCH,
    "psow": _SWITCH,
    "uri": _SWITCH,
    "vfs": (),
}
"""SQLite's options, each with its values, and SQLAlchemy's `uri`."""


def normal_url(url: sa.URL) -> sa.URL:
    """Accept SQLAlchemy's URLs and AEA's `sqlite://./file.db`; raises `InvalidUrl`."""
    if url.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise ours.InvalidUrl(f"{url.drivername!r} is no driver of this library: use sqlite:///…")
    if url.host == "." and url.database:
        url = sa.URL.create("sqlite", database=url.database, query=url.query)
    if url.host:
        raise ours.InvalidUrl(
            f"{url.render_as_string()!r}: an SQLite file has no host: write "
            f"sqlite:///{url.host}{'/' + url.database if url.database else ''} (relative) or "
            "sqlite:////folder/file.db (absolute)"
        )
    if "\0" in (url.database or ""):
        raise ours.InvalidUrl("the path of an SQLite file must not contain NUL characters")
    for option, value in url.query.items():
        _check_option(option, value)
    return url.set(drivername="sqlite+pysqlite")


def _check_option(option: str, value: object) -> None:
    if option not in _URL_OPTIONS:
        known = ", ".join(sorted(_URL_OPTIONS))
        raise ours.InvalidUrl(
            f"an SQLite URL takes the options {known}, got {option!r}; others, such as busy_timeout, are arguments "
            "of the store"
        )
    values = _URL_OPTIONS[option]
    if not isinstance(value, str) or (values and value.lower() not in values):
        must = f"one of {', '.join(values)}" if values else "given once"
        raise ours.InvalidUrl(
            f"the option {option!r} of an SQLite URL must be {must}, got {value!r}"
        )


def is_private(url: sa.URL) -> bool:
    """In memory: the database ends with its connection."""
    named = url.database or ":memory:"
    return ":memory:" in named or named == "file:" or url.query.get("mode") == "memory"


def file_of(url: sa.URL) -> str | None:
    """Return the absolute path."""
    if is_private(url):
        return None
    name = str(url.database)
    if _is_uri(url) and name.startswith("file:"):
        name = unquote(urlsplit(name).path)
    return os.path.abspath(name)  # noqa: PTH100 - SQLite resolves links itself


def is_locked(url: sa.URL) -> bool:
    """SQLite locks none that it is told to read as it is."""
    return not (_is_on(url, "immutable") or _is_on(url, "nolock"))


def is_created(url: sa.URL) -> bool:
    """SQLite says so by `mode`, and a VFS has files of its own."""
    mode = url.query.get("mode", "rwc")
    return mode == "rwc" and is_locked(url) and "vfs" not in url.query


def connect_url(url: sa.URL) -> sa.URL:
    """Return an SQLite URI, whose options are heard. The file is there by then: SQLite creates none."""
    path = file_of(url)
    options = {**url.query, "uri": "true"}
    if path is None:
        if "mode" in url.query and not _is_uri(url):
            name = quote(str(url.database).removeprefix("file:"))
            return url.set(database=f"file:{name}", query=options)
        return url
    if is_created(url):
        options["mode"] = "rw"
    elif _is_on(url, "immutable"):
        options["mode"] = "ro"
    return url.set(database=Path(path).as_uri(), query=options)


def _is_uri(url: sa.URL) -> bool:
    return _is_on(url, "uri")


def _is_on(url: sa.URL, option: str) -> bool:
    return str(url.query.get(option, "")).lower() in _TRUE


def engine_arguments(*, busy_timeout: float) -> dict[str, Any]:
    """One held connection per slot of the store, in the driver's autocommit mode."""
    timeout = min(busy_timeout, BUSY_SLICE)
    connect = {"check_same_thread": False, "isolation_level": None, "timeout": timeout}
    return {"connect_args": connect, "poolclass": NullPool}


def settings(
    *, busy_timeout: float, durability: Durability, page_cache: int | None
) -> Sequence[str]:
    """FULL: what was acknowledged survives a power cut. NORMAL: it may lose the last moments."""
    kibibytes = -(-(PAGE_CACHE if page_cache is None else page_cache) // 1024)
    return (
        f"PRAGMA cache_size = -{min(kibibytes, MOST_KIBIBYTES)}",
        f"PRAGMA busy_timeout = {int(min(busy_timeout, BUSY_SLICE) * 1000)}",
        f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}",
    )


def persistent_settings() -> Sequence[str]:
    """Readers beside the writer."""
    return ("PRAGMA journal_mode = WAL",)


def flush_log() -> Sequence[str]:
    """Return the checkpoint that leaves nothing in the log; it cannot be within a transaction."""
    return ("ROLLBACK", "PRAGMA wal_checkpoint(TRUNCATE)")


@cache
def compiler() -> sa.Dialect:
    """Return the dialect of this library's own connections."""
    dialect = SQLiteDialect_pysqlite(paramstyle="named")
    dialect.supports_native_boolean = True  # else it writes `(…) = 1`, which no index serves
    return dialect


def begin(*, write: bool, snapshot: bool = True) -> str:  # noqa: ARG001
    """IMMEDIATE: two deferred transactions that read and then write lose one of them."""
    return "BEGIN IMMEDIATE" if write else "BEGIN"


def begin_group() -> str:
    """One writes at a time."""
    return "BEGIN IMMEDIATE"


def begin_block(isolation: Isolation) -> str:  # noqa: ARG001
    """Who writes is alone, and who reads sees one moment: this is serializable whatever is asked."""
    return "BEGIN IMMEDIATE"


def options_for_block(isolation: Isolation) -> dict[str, Any]:  # noqa: ARG001
    """`join` begins the transaction."""
    return {}


def has_table() -> sa.TextClause:
    """Return the query for a row if there is a table `:reference`."""
    return sa.text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :reference")


def encoding_probe() -> None:
    """Return nothing: all of SQLite's encodings are of Unicode."""


def reference(table: sa.Table) -> str:
    """Return the table's name as `has_table` takes it."""
    return str(table.name)


def in_transaction(connection: Any) -> bool:
    """An error can end a transaction here: a full disk, an interrupt."""
    return bool(connection.in_transaction)


def is_at_rest(connection: Any) -> bool:
    """A connection does not end by itself."""
    return not in_transaction(connection)


def can_go_on(connection: Any) -> bool:
    """A transaction that failed is rolled back at once."""
    return in_transaction(connection)


def join(connection: Any, *, write: bool) -> str | None:
    """The driver begins a transaction no sooner than at an INSERT; a savepoint needs it before."""
    return None if connection.in_transaction or not write else "BEGIN IMMEDIATE"


def options_for_callers() -> dict[str, Any]:
    """`join` begins the transaction, whatever the driver's mode."""
    return {}


def keep_out(table: sa.Table, *, readers: bool) -> None:
    """BEGIN IMMEDIATE keeps out who writes; who reads sees what was before."""


def lock_table(table: sa.Table) -> None:
    """BEGIN IMMEDIATE keeps others out already."""


def document_columns() -> tuple[sa.Column[int], sa.Column[str]]:
    """The rowid is the natural order."""
    return (
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
    )


# -- spellings -------------------------------------------------------------------------------

spell(NAME, ordering)


@compiles(BodyText, NAME)
def _body_text(element: BodyText, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(element.clauses, **kw))


@compiles(BodyFromText, NAME)
def _body_from_text(element: BodyFromText, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(element.clauses, **kw))


@compiles(AnyOf, NAME)
def _any_of(element: AnyOf, compiler: Any, **kw: Any) -> str:
    column, texts = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({texts}))"


@compiles(TableSize, NAME)
def _table_size(element: TableSize, compiler: Any, **kw: Any) -> str:
    table = compiler.process(element.table, asfrom=True, **kw)
    return f"(SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM {table})"


@compiles(BodyMatches, NAME)
def _body_matches(element: BodyMatches, compiler: Any, **kw: Any) -> str:
    body, *parameters = (compiler.process(clause, **kw) for clause in element.clauses)
    return spelled(body, element.condition, iter(parameters))


@compiles(SortValue, NAME)
def _sort_value(element: SortValue, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(element.clauses, **kw))


@compiles(ValueText, NAME)
def _value_text(element: ValueText, compiler: Any, **kw: Any) -> str:
    return f"({compiler.process(element.clauses, **kw)} -> {path_literal(element.keys)})"


@compiles(HasInteger, NAME)
def _has_integer(element: HasInteger, compiler: Any, **kw: Any) -> str:
    body, path = compiler.process(element.clauses, **kw), path_literal(element.keys)
    between = f"json_extract({body}, {path}) BETWEEN -{_NINES} AND {_NINES}"
    return f"(json_type({body}, {path}) = 'integer' AND {between})"


@compiles(TextFits, NAME)
def _text_fits(element: TextFits, compiler: Any, **kw: Any) -> str:
    body, room = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"length(CAST({body} AS BLOB)) <= {room}"


@compiles(Increased, NAME)
def _increased(element: Increased, compiler: Any, **kw: Any) -> str:
    body, by = (compiler.process(clause, **kw) for clause in element.clauses)
    path = path_literal(element.keys)
    return f"json_set({body}, {path}, json_extract({body}, {path}) + {by})"


@compiles(ArrayTest, NAME)
def _array_test(element: ArrayTest, compiler: Any, **kw: Any) -> str:
    seq, *parameters = (compiler.process(clause, **kw) for clause in element.clauses)
    said = ordering.test_of("rank", "value", element.in_words(parameters, ordering.plain_width))
    return f"{seq} IN (SELECT seq FROM {element.physical} WHERE {said})"


def together(conditions: Sequence[Condition]) -> Sequence[Sequence[int]]:  # noqa: ARG001
    """None: each ends where it fails."""
    return ()


def body_type() -> sa.types.TypeEngine[Any]:
    """Text; a BLOB of JSONB goes into it as well, and stays one."""
    return sa.Text()


def create_body_index(table: sa.Table, physical: str) -> Sequence[str]:  # noqa: ARG001
    """There is no index that sees all of a body."""
    return ()


def create_array_index(table: sa.Table, keys: tuple[str, ...], physical: str) -> Sequence[str]:
    """Keep a table of the values beside the collection's."""
    return arrays.create(reference(table), physical, keys)


def drop_array_index(table: sa.Table, physical: str) -> Sequence[str]:  # noqa: ARG001
    """Drop it, and what keeps it."""
    return arrays.drop(physical)


def list_parameter(texts: Sequence[str]) -> str:
    """Return the list as JSON."""
    return codec.Codec(max_bytes=2**40).encode(list(texts))


# -- errors ----------------------------------------------------------------------------------

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNAVAILABLE: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB})
_ADVICE: Final = {
    sqlite3.SQLITE_CANTOPEN: "is it a file, does the folder exist, and may this process write there?",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
}


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that the driver and SQLAlchemy raise."""
    return (sqlite3.Error, sa.exc.DBAPIError, sa.exc.ResourceClosedError)


def translate(error: Exception) -> ours.CollectionsStoreError:
    """Return the driver's error in our words."""
    cause = getattr(error, "orig", None) or error
    extended = getattr(cause, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_ERROR and "no such table" in str(cause):
        return TableVanished(str(cause))
    if extended == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
        return UniqueViolated(str(cause).rpartition("index ")[2].strip("'"))
    if code in _BUSY:
        return ours.DatabaseBusy(
            f"{cause}: another process kept the SQLite file locked for longer than busy_timeout"
        )
    if code == sqlite3.SQLITE_INTERRUPT:
        return ours.TransactionConflict("interrupted")
    advice = _ADVICE.get(extended) or _ADVICE.get(code)
    message = f"{cause}: {advice}" if advice else str(cause)
    kind = ours.DatabaseUnavailable if code in _UNAVAILABLE else ours.DatabaseError
    return kind(message)


def interrupt(connection: Any) -> None:
    """Stop the statement that runs; harmless if none does."""
    connection.interrupt()
