"""URLs, connections, transactions and errors of PostgreSQL."""

from __future__ import annotations

import math
import re
import secrets
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from ....errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    InvalidIndex,
    InvalidUrl,
    MissingExtra,
    ReadOnlyDatabase,
    TransactionConflict,
    did_you_mean,
)
from ....options import URL_OPTIONS, Isolation, Options
from ..protocols import (
    KEYS_CHECK,
    Connections,
    Errors,
    Replication,
    State,
    TableVanished,
    Transactions,
    UniqueViolated,
    Urls,
)
from .compiler import table_name

_STATES: Final[dict[int, State]] = {0: "none", 2: "open"}
"""libpq's `PQtransactionStatus`: PQTRANS_IDLE and PQTRANS_INTRANS."""
_CONFLICTS: Final = frozenset({"40001", "40P01", "25P03"})
"""25P03: the server ended a session that was idle in its transaction for too long, and rolled that back."""
_BUSY: Final = frozenset({"55P03", "53300"})
_TOO_MANY: Final = re.compile(
    "too many (clients|connections)|connection slots|no more connections allowed|query_wait_timeout"
    "|no connection of the server free"
)
"""The text of a refused connection, for which the driver has no state, or of PgBouncer, with the state `_PROTOCOL`, or `NO_SERVER`."""
_OUTDATED: Final = {
    "42883": re.compile(r"\$i\d+_strings\("),
    "42703": re.compile(r"\bkeys_[0-9a-f]{16}\b"),
}
"""The function of an index of substrings, and the column of stored keys: a missing one was dropped with the index."""
_PROTOCOL: Final = "08P01"
_ONLY_STANDBYS: Final = re.compile("session is read-only|server is in hot standby mode")
"""The text of libpq, where `target_session_attrs` of the URL asks for a server that can write."""
_RECOVERY: Final = re.compile("during recovery|in a hot standby|recovery is in progress")
_RECOVERY_STATES: Final = frozenset({"0A000", "55000"})
_READ_ONLY: Final = (
    "the server lets this session read only (default_transaction_read_only, or a standby): "
    "connect to one that may write; to read from this one, open the store with read_only=True"
)
_NO_SERIALIZABLE: Final = "cannot use serializable mode in a hot standby"
_REPEATABLE_READ: Final = 'choose isolation="repeatable read", or connect to the primary'
_ENDS_SESSION: Final = frozenset({"FATAL", "PANIC"})
_FOREIGN_STATEMENT: Final = frozenset({"26000", "42P05"})
_POOLED: Final = (
    "a pooler gives each transaction another connection of the server: open the store with "
    "pooler='transaction', or with ?pooler=transaction in its URL, and without prepare_threshold there unless the "
    "pooler translates the names of prepared statements; create an engine of yours with "
    "connect_args={'prepare_threshold': None}"
)
_REFUSED_OPTION: Final = "unsupported startup parameter"
_REFUSED: Final = (
    "the pooler accepts no such option: remove it from the URL, or list it in the pooler's "
    "ignore_startup_parameters"
)
_CONSOLE: Final = "use SHOW HELP"
_NO_DATABASE: Final = (
    "this is the console of PgBouncer: name another database than pgbouncer in the URL"
)
_TOO_WEAK: Final = {"full": "'off'", "replicated": "'off', 'local', 'remote_write'"}
"""The values of `synchronous_commit` that promise less than a durability."""
_NO_STANDBY: Final = (
    "durability='replicated' needs a synchronous standby, and the server has none: set its "
    "synchronous_standby_names, or choose durability='full'"
)
_OUR_INDEX: Final = re.compile(r"[\w$]+\$i[0-9]+(?=(_keys|_[0-9]+)?$)")
"""An index of a table that Citus manages ends in the number of a shard, an index of entries in `_keys`."""
_OUR_REMOTE_INDEX: Final = re.compile(r"[\w$]+\$i[0-9]+(?=_[0-9]+\b)")
"""In a message: Citus passes on nothing else of a worker's error."""
_LOST: Final = ("08", "57P")
IDLE_TIMEOUT: Final = 300
"""Seconds without use after which the server ends a session: other processes need its place. `PING_AFTER` of the pool is
less, so that no statement meets the end.
"""
CONNECT_TIMEOUT: Final = 10.0
"""Seconds in which a server must accept a connection and answer on it, unless the URL has others."""
_REPLICA_TIMEOUT: Final = 2.0
"""Seconds in which a replica must accept a connection: the read that waits for it could run on the primary."""
_PREPARE: Final = "prepare_threshold"
_PREPARE_AFTER: Final = 5
"""psycopg's own default."""
_STORES_ROW: Final = "RelationGetBufferForTuple"
"""The server's function that reports a row too large for its page: an index's, for rows of collections never are."""
_TOO_LONG: Final = "its keys are too long for PostgreSQL before 18: use shorter ones, or fewer"


class PostgresUrls(Urls):
    """URLs of a server; psycopg 3 is the driver."""

    def normal_url(self, url: sa.URL) -> sa.URL:
        """Raise `MissingExtra` where psycopg is not installed."""
        if url.drivername not in {"postgresql", "postgresql+psycopg"}:
            usable = url.set(drivername="postgresql").render_as_string()
            problem = f"{url.drivername!r} is no driver of this library, which uses psycopg 3"
            raise InvalidUrl(f"{problem}: use {usable}")
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise MissingExtra("psycopg", "postgresql") from error
        _check_options(url)
        return url.set(drivername="postgresql+psycopg")

    def connect_url(self, url: sa.URL) -> sa.URL:
        """Return the URL without options of the store."""
        return url.difference_update_query(URL_OPTIONS)


def _check_options(url: sa.URL) -> None:
    """Raise `InvalidUrl` for options unknown to libpq, and for invalid values."""
    import psycopg

    known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()}
    for option in url.query:
        if option not in {*known, _PREPARE, *URL_OPTIONS}:
            hint = did_you_mean(option, known) or "."
            raise InvalidUrl(
                f"a PostgreSQL URL has no option {option!r}{hint} It takes those of libpq, {', '.join(URL_OPTIONS)} "
                f"and {_PREPARE}; others, such as busy_timeout, are arguments of the store"
            )
    _prepare_threshold(url)


def _prepare_threshold(url: sa.URL) -> int | None:
    """Return the number of executions before psycopg prepares a statement; None: psycopg never does."""
    value = url.query.get(_PREPARE)
    if value == "none":
        return None
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        return int(value)
    if value is None:
        return _PREPARE_AFTER
    raise InvalidUrl(f"{_PREPARE} must be a number from 0 on, or none, got {value!r}")


class PostgresConnections(Connections):
    """Settings of a session."""

    probe = (
        "SELECT current_setting('server_encoding'), "
        "(SELECT extversion FROM pg_extension WHERE extname = 'citus')"
    )
    """LATIN1 lacks most characters, and SQL_ASCII returns bytes."""

    def problem_probe(self, options: Options) -> str | None:
        """Return the probe for `replicated`. A promoted primary may have no standby yet."""
        if options.durability != "replicated" or options.read_only:
            return None
        return f"SELECT $${_NO_STANDBY}$$ WHERE current_setting('synchronous_standby_names') = ''"

    read_only_probe = (
        "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean"
    )
    process_probe = "SELECT pg_backend_pid()"

    def engine_arguments(self, url: sa.URL, *, busy_timeout: float) -> dict[str, Any]:
        """Return the driver's autocommit mode, and no pool: the store pools connections. Nothing is prepared before
        `configure`.
        """
        connect = {"client_encoding": "utf8", _PREPARE: None}
        return {"isolation_level": "AUTOCOMMIT", "connect_args": connect, "poolclass": NullPool}

    def connection_class(self, options: Options) -> Any:
        from .driver import StoreConnection

        is_any_replica = options.read_only and options.replicas is not None
        limits: dict[str, Any] = {
            "connect_timeout": min(
                options.busy_timeout, _REPLICA_TIMEOUT if is_any_replica else CONNECT_TIMEOUT
            ),
            "busy_timeout": options.busy_timeout,
            "failed_at": {},
            "is_behind_pooler": options.pooler == "transaction",
            "is_read_only": options.read_only,
            "is_any_replica": is_any_replica,
            "reply_timeout": options.reply_timeout or math.inf,
        }
        return type(StoreConnection.__name__, (StoreConnection,), limits)

    def settings(self, options: Options, *, busy_timeout: float) -> Sequence[str]:
        return [_settings(options, busy_timeout, local=False)]

    def local_settings(
        self, options: Options, *, busy_timeout: float, is_pooled: bool
    ) -> Sequence[str]:
        return [_settings(options, busy_timeout, local=True)] if is_pooled else []

    def is_pooled(self, connection: Any, process: object) -> bool:
        """Compare the processes: a pooler reports a different process at login."""
        return bool(connection.info.backend_pid != process)

    def configure(self, connection: Any, url: sa.URL, *, is_pooled: bool | None) -> None:
        """Prepare nothing behind a pooler, unless the URL requests prepared statements. Elsewhere the names of prepared
        statements are unique to this connection. Behind an unnoticed pooler, clients would share psycopg's names
        (`_pg3_0`), and a query would return the rows of another client's query.
        """
        connection.is_ready = True
        connection._prepared._prepared_idx = secrets.randbits(62)
        if is_pooled:
            type(connection).is_behind_pooler = True
        if is_pooled is False or (is_pooled and _PREPARE in url.query):
            connection.prepare_threshold = _prepare_threshold(url)

    def has_input(self, connection: Any) -> bool:
        """Return whether data or the end of the connection can be read. The call takes 2 µs."""
        if connection.closed:
            return True
        if not hasattr(select, "poll"):  # on Windows, where `select` takes sockets of any number
            return bool(select.select([connection.pgconn.socket], [], [], 0)[0])
        ready = select.poll()
        ready.register(connection.pgconn.socket, select.POLLIN)
        return bool(ready.poll(0))

    def interrupt(self, connection: Any) -> None:
        """Request cancellation by the server; if the server does not cancel, `StoreConnection` ends the connection."""
        import psycopg

        connection.cancelled_at = time.monotonic()
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=5.0)


def _settings(options: Options, busy_timeout: float, *, local: bool) -> str:
    """Return the statement for the settings of a session or of a transaction. From version 14 on, the server ends an
    idle session; a limit configured on the server is kept.
    """
    timeout = lock_timeout(options, busy_timeout)
    settings = [f"set_config('lock_timeout', '{timeout}', {local})", _commit(options, local)]
    if not local:
        ends = f"set_config('idle_session_timeout', '{IDLE_TIMEOUT}s', false)"
        settings += [f"CASE current_setting('idle_session_timeout', true) WHEN '0' THEN {ends} END"]
    return f"SELECT {', '.join(settings)}"


def _commit(options: Options, local: bool) -> str:
    """Return the setting for the waits of a commit: `replicated` for the disks of standbys, `full` at least for the
    disk of the server, `normal` for no disk.
    """
    if options.read_only:
        name = "transaction_read_only" if local else "default_transaction_read_only"
        return f"set_config('{name}', 'on', {local})"
    if options.durability == "normal":
        return f"set_config('synchronous_commit', 'off', {local})"
    waits = f"set_config('synchronous_commit', 'on', {local})"
    too_weak = _TOO_WEAK[options.durability]
    return f"CASE WHEN current_setting('synchronous_commit') IN ({too_weak}) THEN {waits} END"


def lock_timeout(options: Options, busy_timeout: float) -> int:
    """Return the milliseconds to wait for a lock. The wait must end before the limit of silence ends the connection;
    the operation then runs again.
    """
    return max(1, int(min(busy_timeout, (options.reply_timeout or math.inf) / 2) * 1000))


def _log_position(options: Options) -> str:
    """Return the query for the flushed position: a commit returns after the flush, and flushed changes are sent to
    replicas at once. With durability "normal" a commit has only been inserted.
    """
    place = "insert" if options.durability == "normal" else "flush"
    return f"SELECT lsn::text, ('x' || left(pg_walfile_name(lsn), 8))::bit(32)::int FROM pg_current_wal_{place}_lsn() AS lsn"


REPLICATION: Final = Replication(
    server="SELECT system_identifier || '/' || current_database(), pg_is_in_recovery(), "
    "extract(epoch FROM pg_postmaster_start_time())::text FROM pg_control_system()",
    # users without the rights of pg_read_all_stats see no `received_tli`; the others are older, by minutes
    has_replayed="SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= %(position)s::pg_lsn AND %(timeline)s <= coalesce("
    "(SELECT received_tli FROM pg_stat_wal_receiver), (SELECT greatest(timeline_id, min_recovery_end_timeline) "
    "FROM pg_control_checkpoint(), pg_control_recovery()))",
    position=_log_position,
)


class PostgresTransactions(Transactions):
    """REPEATABLE READ for read-modify-writes.

    A writer that meets a change made since the writer's snapshot fails with 40001 and runs again: under READ COMMITTED,
    two read-modify-writes would lose an update. READ WRITE is never set: the server decides whether a session may
    write.
    """

    shared_options = MappingProxyType({"isolation_level": "READ COMMITTED"})
    """An engine in AUTOCOMMIT would split an operation of several statements."""

    def begin(self, *, write: bool, isolation: str) -> str:
        return f"BEGIN ISOLATION LEVEL {isolation.upper()}{'' if write else ' READ ONLY'}"

    def isolation_options(self, isolation: Isolation) -> dict[str, Any]:
        return {"isolation_level": isolation.upper()}

    def state(self, connection: Any) -> State:
        """After an error only a ROLLBACK is possible, to a savepoint or of the transaction."""
        if connection.closed:
            return "lost"
        return _STATES.get(connection.info.transaction_status, "failed")

    def lock_schema(self, table: sa.Table) -> str:
        """Readers continue."""
        return f"LOCK TABLE {table_name(table)} IN EXCLUSIVE MODE"

    def lock_table(self, table: sa.Table, *, readers: bool) -> str:
        """SHARE is the lock of CREATE INDEX."""
        return (
            f"LOCK TABLE {table_name(table)} IN {'ACCESS EXCLUSIVE' if readers else 'SHARE'} MODE"
        )


class PostgresErrors(Errors):
    """SQLSTATE codes."""

    def types(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.Error, sa.exc.DBAPIError, sa.exc.ResourceClosedError)

    def translate(self, error: Exception) -> CollectionsStoreError:
        import psycopg

        cause: Any = getattr(error, "orig", None) or error
        state = getattr(cause, "sqlstate", None) or ""
        diagnosis = getattr(cause, "diag", None)
        # the rest of its text holds SQL and values
        message = getattr(diagnosis, "message_primary", None) or str(cause).strip()
        if _is_outdated(state, message, getattr(diagnosis, "constraint_name", None)):
            return TableVanished(message)
        if state == "23505" and (index := _index_of(cause.diag.constraint_name, message)):
            return UniqueViolated(index)
        if state == "23502" and (found := _OUR_INDEX.search(cause.diag.table_name or "")):
            return UniqueViolated(found[0])  # no rank: two arrays side by side
        if state == "23505" and (cause.diag.table_name or "").startswith("pg_"):
            return TransactionConflict(message)  # two created something of the same name
        if state == "54000" and getattr(diagnosis, "source_function", "") == _STORES_ROW:
            return InvalidIndex("", _TOO_LONG)
        if state in _CONFLICTS:
            return TransactionConflict(message)
        if state in _BUSY or (state in {"", _PROTOCOL} and _TOO_MANY.search(message)):
            return DatabaseBusy(message)
        if state in _FOREIGN_STATEMENT:
            return DatabaseError(f"{message}: {_POOLED}")
        if _REFUSED_OPTION in message:
            return DatabaseError(f"{message}: {_REFUSED}")
        if _CONSOLE in message:
            return DatabaseError(_NO_DATABASE)
        if _is_read_only(state, message):
            advice = _REPEATABLE_READ if message == _NO_SERIALIZABLE else _READ_ONLY
            return ReadOnlyDatabase(f"{message}: {advice}")
        lost = (
            state.startswith(_LOST)
            or getattr(diagnosis, "severity_nonlocalized", None) in _ENDS_SESSION
            or (not state and isinstance(cause, psycopg.OperationalError))
        )
        kind = DatabaseUnavailable if lost else DatabaseError
        return kind(message)


def _is_outdated(state: str, message: str, constraint: str | None) -> bool:
    """Return whether a statement is of a table that another process dropped, renamed, or gave other keys."""
    if state == "23514":
        return constraint == KEYS_CHECK
    return state == "42P01" or (state in _OUTDATED and _OUTDATED[state].search(message) is not None)


def _index_of(constraint: str | None, message: str) -> str | None:
    """Return the violated unique index of this library; None for any other index."""
    found = (
        _OUR_REMOTE_INDEX.search(message) if constraint is None else _OUR_INDEX.search(constraint)
    )
    return found[0] if found else None


def _is_read_only(state: str, message: str) -> bool:
    """Return whether a read-only server refused a statement, or libpq refused a read-only server."""
    if not state:
        return _ONLY_STANDBYS.search(message) is not None
    is_recovering = state in _RECOVERY_STATES and _RECOVERY.search(message) is not None
    return state == "25006" or is_recovering
