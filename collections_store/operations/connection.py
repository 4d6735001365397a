"""Connections, which execute SQL, and the contexts of transactions and savepoints.

`Connection` calls the driver, on a connection that the store owns: nothing stands between an operation and the
statement. `shared.SharedConnection` goes through SQLAlchemy, on a connection that the caller owns, for the caller's
events, transactions and errors apply. Operations receive a `session.Session`, which adds the catalogue and the changes.

The contexts are classes, not generators: a signal that raises while a generator's context is entered leaves the
generator behind, to roll back at an arbitrary later time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from typing import Any, Final, TypeAlias

from ..document import now
from ..errors import DatabaseBusy, DatabaseUnavailable
from ..options import Isolation
from ..query.filter import Filter
from ..sql.by_id import IdStatements
from ..sql.dialects.protocols import COMMIT, PING, ROLLBACK, Database
from ..sql.query import Query
from ..sql.select import Statements
from .local_settings import LocalSettings, RemoteSettings

Row: TypeAlias = Any
Parameters: TypeAlias = Mapping[str, Any] | tuple[Any, ...]
"""By name, or by position for the statements of `StatementCompiler.row`."""
NONE: Final[Mapping[str, Any]] = {}


class Inexact(Exception):
    """The result of a statement in the indexed form is wrong: an array stands where the form expects none."""


class Connection:
    """A connection that the store owns, in the driver's autocommit mode. `settings`: see `LocalSettings`; `is_pooled`: the
    pooler keeps no settings of a session.
    """

    database: Database
    driver: Any
    committing: bool = False
    """Whether COMMIT was sent since the last BEGIN, or a statement that is a transaction by itself."""
    grouped: bool = False
    """Whether the transaction is a group of independent statements."""
    sees_one_moment: bool = False
    """Whether all statements of the open transaction are known to see one moment."""
    is_lost: bool = False
    """Whether the connection broke in maintenance after a commit, whose errors nobody receives."""
    comment: str | None = None
    """The comment of statements: that of the call in execution."""
    _local: LocalSettings | None = None
    _versions: list[int] | None = None
    """The versions that statements report; None: the connection executes no such statement."""

    def __init__(
        self,
        driver: Any,
        database: Database,
        settings: Sequence[str] = (),
        *,
        is_pooled: bool = False,
    ) -> None:
        self.driver, self.database = driver, database
        self._begin_text = lru_cache(database.transactions.begin)
        self._execute = self._begin = driver.execute
        if settings:
            kind = RemoteSettings if database.is_remote else LocalSettings
            self._local = local = kind(driver, database, settings, is_pooled=is_pooled)
            self._execute, self._begin = local.execute, local.begin
        self._versions = database.compiler.reported_versions(driver)
        self.before_commit: list[Callable[[], None]] = []
        """Called before each COMMIT; a function that raises prevents the commit."""
        self._depth = 0

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        """Execute a statement, and return the rows."""
        if self.comment is not None:
            sql = self.database.compiler.commented(sql, self.comment)
        try:
            rows: list[Row] = self._execute(sql, parameters).fetchall()
        except self.database.errors.types() as error:
            raise_own(self.database, self.driver, error)
            raise
        except UnicodeDecodeError as error:
            raise self.database.errors.of_damage(error) from error
        return rows

    def select(self, query: Query, filter: Filter, **window: Any) -> list[Row]:
        """Execute a compiled statement with the values of a filter; return the rows without the array guard. Raise
        `Inexact` if the guard is set.
        """
        if query.arrays is not None:
            with self.transaction(write=False):
                if not self.sees_one_moment or self.finds(query.arrays, filter):
                    raise Inexact
                return self.rows(query.sql, query.parameters(filter, window))
        if query.met_arrays:
            query = query.precise or query
        rows = self.rows(query.sql, query.parameters(filter, window))
        if not query.guard:
            return rows
        if rows[0][0]:
            if (precise := query.after_arrays()) is None:
                raise Inexact
            return self.select(precise, filter, **window)
        return rows[1:] if query.guard == "row" else [row[1:] for row in rows if row[1] is not None]

    def finds(self, query: Query, filter: Filter) -> bool:
        """Execute a compiled array guard; return whether a document has an array where the indexed form expects none."""
        rows = self.rows(query.sql, query.parameters(filter))
        return bool(rows and rows[0][0])

    def lock(
        self, statements: IdStatements, sql: str, ids: Sequence[str], time: int | None = None
    ) -> list[Row]:
        """Execute a statement that selects and locks rows of `:ids` as of `time`, by default now."""
        listed, time = self.database.compiler.list_parameter(ids), time or now()
        groups = [listed]
        if statements.lock_groups is not None:
            # Most often none exists: new documents are written.
            there = [id for (id,) in self.rows(statements.present, {"ids": listed})]
            groups = [some for (some,) in self.rows(statements.lock_groups, {"ids": there})]
        return [row for some in groups for row in self.rows(sql, {"ids": some, "now": time})]

    def committed_rows(self, sql: str, parameters: Parameters) -> list[Row]:
        """Execute a statement, followed by a commit unless a transaction is open, and return the rows."""
        self.committing = not self.in_transaction()
        return self.rows(sql, parameters)

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        """Execute a statement, and return the number of changed rows."""
        if self.comment is not None:
            sql = self.database.compiler.commented(sql, self.comment)
        try:
            count: int = self._execute(sql, parameters).rowcount
        except self.database.errors.types() as error:
            raise_own(self.database, self.driver, error)
            raise
        except UnicodeDecodeError as error:
            raise self.database.errors.of_damage(error) from error
        return count

    def put(self, statements: Statements, id: str, text: str, ttl: int | None) -> int | None:
        """Upsert a document; return the version, None where an expired document is in the way. `ttl` as in `lifetime`."""
        ttl = (statements.options.ttl if ttl is None else ttl) or None
        if statements.by_id.keyed:
            text = statements.by_id.text(text)
        row, reported = self.database.compiler.row(id, text, now(), ttl), self._versions
        if reported is None:
            rows = self.rows(statements.by_id.put, row)
            return int(rows[0][0]) if rows else None
        reported.clear()
        if not self.changed(statements.by_id.put_reporting, row):
            return None
        return reported[0] if reported else 1

    def changed_many(
        self, sql: str, rows: Sequence[Mapping[str, Any]], same: Mapping[str, Any] = NONE
    ) -> int:
        """Execute a statement for each row of parameters, with the parameters that are the `same` for all rows, in a
        single call: as lists where the database takes lists. Return the number of changed rows.
        """
        if self.database.takes_lists:
            return self.changed(sql, {**as_lists(rows), **same})
        return self.changed_each(sql, [{**row, **same} for row in rows])

    def changed_each(self, sql: str, rows: list[Any]) -> int:
        """Execute a statement for each of several parameters, and return the number of changed rows."""
        if self.comment is not None:
            sql = self.database.compiler.commented(sql, self.comment)
        cursor = self.driver.cursor()
        try:
            cursor.executemany(sql, rows)
        except self.database.errors.types() as error:
            raise_own(self.database, self.driver, error)
            raise
        count: int = cursor.rowcount
        return count

    def command(self, sql: str) -> None:
        """Execute a statement without parameters and rows."""
        try:
            self.driver.execute(sql)
        except UnicodeDecodeError as error:
            raise self.database.errors.of_damage(error) from error

    @property
    def has_reached_server(self) -> bool:
        """Whether the database may have received the last statement."""
        return self._local is None or not self.driver.awaits_server

    def is_alive(self) -> bool:
        """Return whether the database answers."""
        try:
            self.command(PING)
        except self.database.errors.types():
            return False
        return True

    def can_write(self) -> bool:
        """Return False while another process has the single writer. No transaction may be open."""
        try:
            self._begin(self.database.transactions.begin(write=True, isolation="read committed"))
        except self.database.errors.types() as error:
            return not isinstance(self.database.errors.translate(error), DatabaseBusy)
        self.command(ROLLBACK)
        return True

    def has_input(self) -> bool:
        """Return whether the database has sent anything since the last statement, as at the end of the session."""
        return self.database.connections.has_input(self.driver)

    def begin(self, *, write: bool, snapshot: bool = True) -> None:
        """Begin the transaction of an operation."""
        self.committing, self.sees_one_moment = False, snapshot
        isolation = "repeatable read" if snapshot else "read committed"
        self._begin(self._begin_text(write=write, isolation=isolation))

    def begin_group(self) -> None:
        """Begin a transaction of independent statements."""
        self.grouped = True
        self.begin(write=True, snapshot=False)

    def begin_transaction(self, isolation: Isolation, *, write: bool = True) -> None:
        """Begin a transaction of the user's."""
        self.committing, self.sees_one_moment, self._depth = False, True, 0
        self._begin(self._begin_text(write=write, isolation=isolation))

    def commit(self) -> None:
        """Commit the transaction, unless a function of `before_commit` raises."""
        for check in self.before_commit:
            check()
        self.committing = True
        self.driver.execute(COMMIT)
        self.grouped = False

    def rollback(self) -> None:
        """Roll back the transaction, unless the database did."""
        self.grouped = False
        if self.in_transaction():
            self.command(ROLLBACK)

    def maintain(self, work: Callable[[], object]) -> None:
        """Call a function in a transaction after a commit; a failure does not concern the committed transaction."""
        try:
            self._begin(self._begin_text(write=True, isolation="read committed"))
            work()
            self.command(COMMIT)
        except self.database.errors.types() as error:
            self.is_lost = isinstance(self.database.errors.translate(error), DatabaseUnavailable)
            with suppress(*self.database.errors.types()):
                self.rollback()

    def savepoint(self) -> AbstractContextManager[object]:
        """Return a context within a transaction; a failure undoes the statements of the context."""
        return SavepointContext(self)

    def begin_savepoint(self) -> Any:
        """Set a savepoint."""
        self._depth += 1
        self.command(self.database.transactions.savepoint(self._depth))
        return self._depth

    def release_savepoint(self, savepoint: Any) -> None:
        """Keep everything that was done since the savepoint."""
        self._depth = savepoint - 1
        self.command(self.database.transactions.release(savepoint))

    def rollback_to(self, savepoint: Any) -> None:
        """Undo everything since the savepoint; if impossible, undo the whole transaction."""
        try:
            self.command(self.database.transactions.rollback_to(savepoint))
            Connection.release_savepoint(self, savepoint)
        except self.database.errors.types():
            with suppress(*self.database.errors.types()):
                self.rollback()

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, failed or not."""
        return self.database.transactions.state(self.driver) in {"open", "failed"}

    def can_go_on(self) -> bool:
        """Return whether a transaction is open and has not failed."""
        return self.database.transactions.state(self.driver) == "open"

    def reset(self) -> bool:
        """Roll back whatever an exception left open. Return False if the connection cannot be used again."""
        try:
            self.rollback()
        except self.database.errors.types():
            return False
        return self.database.transactions.state(self.driver) == "none"

    def transaction(self, *, write: bool, snapshot: bool = True) -> AbstractContextManager[object]:
        """Return the context whose statements take effect together, or not at all. With `snapshot` all statements see
        the same moment, else each statement sees everything committed before.
        """
        if self.in_transaction():  # an operation within another is part of it
            return nullcontext()
        return TransactionContext(self, write, snapshot)


class TransactionContext:
    """The context of an operation's transaction."""

    __slots__ = ("_connection", "_snapshot", "_write")

    def __init__(self, connection: Connection, write: bool, snapshot: bool) -> None:
        self._connection, self._write, self._snapshot = connection, write, snapshot

    def __enter__(self) -> None:
        try:  # a signal may raise after BEGIN, before this returns
            self._connection.begin(write=self._write, snapshot=self._snapshot)
        except BaseException as error:
            _undo(self._connection.rollback, error)
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        _end(self._connection.commit, self._connection.rollback, error)


class SavepointContext:
    """The context of a savepoint."""

    __slots__ = ("_connection", "_savepoint")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._savepoint = self._connection.begin_savepoint()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        connection, point = self._connection, self._savepoint
        _end(
            lambda: connection.release_savepoint(point),
            lambda: connection.rollback_to(point),
            error,
        )


def _end(finish: Callable[[], None], undo: Callable[[], None], error: BaseException | None) -> None:
    """Finish a context, or undo the context after an error."""
    try:
        if error is None:
            finish()
    except BaseException as failure:
        _undo(undo, failure)
        raise
    if error is not None:
        _undo(undo, error)


def _undo(undo: Callable[[], None], error: BaseException) -> None:
    """Undo the work before an error. A failure to undo does not replace the exception of a signal: the executor repeats
    after a lost connection, and would lose Ctrl-C.
    """
    try:
        undo()
    except Exception:
        if isinstance(error, Exception):
            raise


def as_lists(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of rows, which have the same names, as lists."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def add_functions(driver: Any, database: Database) -> None:
    """Give a driver's connection our SQL functions."""
    for name, arguments, function in database.connections.functions():
        driver.create_function(name, arguments, function, deterministic=True)


def raise_own(database: Database, driver: Any, error: Exception) -> None:
    """Raise the error of one of our SQL functions that made a statement fail."""
    own = database.errors.raised_within(error)
    if own is not None:
        add_functions(driver, database)  # a second signal may have ended one
        raise own from None
