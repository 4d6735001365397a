"""Connections as operations see them, and the contexts of transactions and savepoints.

`DriverConnection` calls the driver, on a connection that the store owns: nothing stands between an operation and its
statement. `SharedConnection` goes through SQLAlchemy, on a connection that the caller owns, for the caller's events,
transactions and errors apply there.

The contexts are classes, not generators: a signal that raises while a generator's context is entered leaves the
generator behind, which would then roll back at an arbitrary later time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from time import monotonic
from typing import Any, Final

import sqlalchemy as sa

from ..document import now
from ..errors import DatabaseUnavailable
from ..options import Isolation
from ..query.filter import Filter
from ..sql.by_id import FeedStatements, IdStatements
from ..sql.catalogue import CatalogueStatements
from ..sql.dialects.protocols import COMMIT, PING, ROLLBACK, Database
from ..sql.select import Query, Statements
from .catalogue import Catalogue
from .changes import PendingChange, Recorder, Savepoint, prunable, prune

Row = Any
Parameters = Mapping[str, Any]
NONE: Final[Parameters] = {}


class Inexact(Exception):
    """The result of a statement in the indexed form is wrong: an array is where it expects none."""


class Connection:
    """What operations need of a connection: the base class of both kinds."""

    __slots__ = ("catalogue", "committing", "database", "recorder", "store")

    catalogue: Catalogue
    database: Database
    store: CatalogueStatements
    recorder: Recorder
    committing: bool
    grouped: bool = False
    """Whether the transaction is a group of independent statements."""
    sees_one_moment: bool = False
    """Whether all statements of the open transaction are known to see one moment."""
    has_reached_server: bool = True
    """Whether the database may have received what was sent last."""
    is_lost: bool = False
    """Whether the connection broke in maintenance after a commit, whose errors nobody receives."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.store, self.database = catalogue.statements, catalogue.statements.database
        self.recorder = Recorder()
        self.committing = False
        """Whether COMMIT was sent since the last BEGIN, or a statement that is a transaction of its own."""

    def collection(self, name: str) -> Statements:
        """Return the statements of a collection's table; raises `CollectionAbsent`."""
        known = self.catalogue.known.get(name)
        if known is not None and monotonic() <= known[1]:
            return known[0]
        return self.catalogue.look_up(self, name)

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        """Execute a statement, and return its rows."""
        raise NotImplementedError

    def select(self, query: Query, filter: Filter, **window: Any) -> list[Row]:
        """Execute a compiled statement with the values of a filter; return its rows without the array guard. Raise
        `Inexact` if that is set.
        """
        if query.arrays is not None:
            with self.transaction(write=False):
                if not self.sees_one_moment or self.finds(query.arrays, filter):
                    raise Inexact
                return self.rows(query.sql, query.parameters(filter, **window))
        rows = self.rows(query.sql, query.parameters(filter, **window))
        if not query.guard:
            return rows
        if rows[0][0]:
            raise Inexact
        return rows[1:] if query.guard == "row" else [row[1:] for row in rows if row[1] is not None]

    def finds(self, query: Query, filter: Filter) -> bool:
        """Execute a compiled array guard; return whether a document has an array where none is expected."""
        rows = self.rows(query.sql, query.parameters(filter))
        return bool(rows and rows[0][0])

    def lock(
        self, statements: IdStatements, sql: str, ids: Sequence[str], time: int | None = None
    ) -> list[Row]:
        """Execute a statement that selects and locks the rows of `:ids` that have not expired, by now or by a `time`."""
        listed, time = self.database.compiler.list_parameter(ids), time or now()
        groups = [listed]
        if statements.lock_groups is not None:
            # Most often none exists: new documents are written.
            there = [id for (id,) in self.rows(statements.present, {"ids": listed, "now": time})]
            groups = [some for (some,) in self.rows(statements.lock_groups, {"ids": there})]
        return [row for some in groups for row in self.rows(sql, {"ids": some, "now": time})]

    def committed_rows(self, sql: str, parameters: Parameters) -> list[Row]:
        """Execute a statement that ends with a commit unless a transaction is open, and return its rows."""
        return self.rows(sql, parameters)

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        """Execute a statement, and return the number of rows that it changed."""
        raise NotImplementedError

    def command(self, sql: str) -> None:
        """Execute a statement without parameters and rows."""
        raise NotImplementedError

    def changed_many(self, sql: str, rows: Sequence[Parameters], same: Parameters = NONE) -> int:
        """Execute a statement for each row of parameters, with those that are the `same` for all, in one call: as lists
        where the database takes them. Return the number of rows that were changed in all.
        """
        if self.database.takes_lists:
            return self.changed(sql, {**as_lists(rows), **same})
        return self._executed_many(sql, [{**row, **same} for row in rows])

    def _executed_many(self, sql: str, rows: list[dict[str, Any]]) -> int:
        raise NotImplementedError

    def record(self, change: PendingChange) -> None:
        """Record a change with the transaction."""
        self.recorder.add(self, change)

    def record_pending(self) -> None:
        """Record the pending changes now, in this transaction."""
        self.recorder.record(self)

    def transaction(self, *, write: bool, snapshot: bool = True) -> AbstractContextManager[object]:
        """Return the context in which all statements take place as one, or not at all. `snapshot`: all of them see one
        moment; else each sees what was committed before it.
        """
        raise NotImplementedError

    def savepoint(self) -> AbstractContextManager[object]:
        """Return the context, within a transaction, that undoes what was done in it if it fails."""
        return SavepointContext(self)

    def begin_savepoint(self) -> Savepoint:
        """Set a savepoint."""
        raise NotImplementedError

    def release_savepoint(self, savepoint: Savepoint) -> None:
        """Keep what was done since the savepoint."""
        raise NotImplementedError

    def rollback_to(self, savepoint: Savepoint) -> None:
        """Undo what was done since the savepoint; where the database cannot, undo the whole transaction."""
        raise NotImplementedError

    def publish_recorded(self) -> None:
        """Notify those who watch of the changes that were committed, and prune the feeds."""
        recorded, self.recorder.recorded = self.recorder.recorded, {}
        if recorded:
            self.catalogue.changed(recorded)
            for feed in prunable(recorded.values()):
                self._prune(feed)

    def _prune(self, feed: FeedStatements) -> None:
        """Delete surplus changes in a transaction of its own: its failure does not concern what was committed."""
        raise NotImplementedError


class LocalSettings:
    """Executes the settings of a connection in each transaction: a pooler may give each one another connection of the
    server, and that connection to others afterwards.
    """

    __slots__ = ("_database", "_driver", "_is_pooled", "_settings", "_state")

    def __init__(
        self, driver: Any, database: Database, settings: Sequence[str], *, is_pooled: bool
    ) -> None:
        self._driver, self._database, self._settings = driver, database, settings
        self._state, self._is_pooled = database.transactions.state, is_pooled

    def execute(self, sql: str, parameters: Parameters = NONE) -> Any:
        """Execute a statement, behind the settings if it is a transaction of its own.

        A read goes in one trip with them, which takes three times as long as a statement alone: so connections without a
        pooler keep their settings. A write follows in a second trip, once the pooler has a connection of the server: nobody
        could tell its caller whether the pooler will pass on what was sent before.
        """
        if self._state(self._driver) != "none":
            return self._driver.execute(sql, parameters)
        if not self._driver.only_reads(sql):
            return self._write(sql, parameters)
        self._driver.await_server()
        # the settings end with the transaction, which ends with the pipeline
        with self._driver.pipeline():
            for setting in self._settings:
                self._driver.execute(setting)
            # the reply to these shows that a query takes long, not the wait for a connection of the server
            self._driver.request_replies()
            return self._driver.execute(sql, parameters)

    def _write(self, sql: str, parameters: Parameters) -> Any:
        self.begin(self._database.transactions.begin(write=True, isolation="read committed"))
        try:
            with self._driver.pipeline():
                found = self._driver.execute(sql, parameters)
                self._driver.execute(COMMIT, prepare=False)
        except self._database.errors.types():
            if self._state(self._driver) == "failed":
                self._driver.execute(ROLLBACK)
            raise
        return found

    def begin(self, sql: str) -> None:
        """Begin a transaction, and execute the settings in it."""
        self._driver.await_server()
        self._driver.execute("; ".join((sql, *self._settings)), prepare=False)


class RemoteSettings(LocalSettings):
    """Executes settings for a server behind the connected one, which passes on those of a transaction alone, each as a
    statement of its own.
    """

    __slots__ = ()

    def execute(self, sql: str, parameters: Parameters = NONE) -> Any:
        """Execute a statement, within a transaction if it may wait there; a write takes 2.3 times as long so (measured)."""
        waits = self._is_pooled or self._database.transactions.waits_remotely(sql)
        if not waits or self._state(self._driver) != "none":
            return self._driver.execute(sql, parameters)
        if self._is_pooled:
            return self._write(sql, parameters)
        begin = self._database.transactions.begin(write=True, isolation="read committed")
        try:
            with self._driver.pipeline():
                self._begin(begin)
                found = self._driver.execute(sql, parameters)
                self._driver.execute(COMMIT, prepare=False)
        except self._database.errors.types():
            if self._state(self._driver) == "failed":
                self._driver.execute(ROLLBACK)
            raise
        return found

    def begin(self, sql: str) -> None:
        self._driver.await_server()
        with self._driver.pipeline():
            self._begin(sql)

    def _begin(self, sql: str) -> None:
        for statement in (
            sql,
            *self._settings,
        ):  # after an error, what would be prepared is skipped
            self._driver.execute(statement, prepare=False)


class DriverConnection(Connection):
    """A connection that the store owns, in the driver's autocommit mode. `settings`: see `LocalSettings`; `is_pooled`: a
    session has none.
    """

    __slots__ = (
        "_begin", "_depth", "_execute", "_local", "before_commit", "driver", "grouped", "is_lost", "sees_one_moment",
    )  # fmt: skip

    driver: Any
    catalogue: Catalogue
    committing: bool
    grouped: bool
    is_lost: bool
    sees_one_moment: bool

    def __init__(
        self,
        driver: Any,
        catalogue: Catalogue,
        settings: Sequence[str] = (),
        *,
        is_pooled: bool = False,
    ) -> None:
        super().__init__(catalogue)
        self.driver = driver
        self._execute = self._begin = driver.execute
        self._local: LocalSettings | None = None
        if settings:
            kind = RemoteSettings if self.database.is_sharded else LocalSettings
            self._local = local = kind(driver, self.database, settings, is_pooled=is_pooled)
            self._execute, self._begin = local.execute, local.begin
        self.before_commit: list[Callable[[], None]] = []
        """Called before each COMMIT; one that raises prevents it."""
        self.grouped = self.is_lost = self.sees_one_moment = False
        self._depth = 0

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        try:
            rows: list[Row] = self._execute(sql, parameters).fetchall()
        except self.database.errors.types() as error:
            raise_own(self.database, self.driver, error)
            raise
        except UnicodeDecodeError as error:
            raise self.database.errors.of_damage(error) from error
        return rows

    def committed_rows(self, sql: str, parameters: Parameters) -> list[Row]:
        self.committing = not self.in_transaction()
        return self.rows(sql, parameters)

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        try:
            count: int = self._execute(sql, parameters).rowcount
        except self.database.errors.types() as error:
            raise_own(self.database, self.driver, error)
            raise
        except UnicodeDecodeError as error:
            raise self.database.errors.of_damage(error) from error
        return count

    def _executed_many(self, sql: str, rows: list[dict[str, Any]]) -> int:
        cursor = self.driver.cursor()
        try:
            cursor.executemany(sql, rows)
        except self.database.errors.types() as error:
            raise_own(self.database, self.driver, error)
            raise
        count: int = cursor.rowcount
        return count

    def command(self, sql: str) -> None:
        try:
            self.driver.execute(sql)
        except UnicodeDecodeError as error:
            raise self.database.errors.of_damage(error) from error

    @property
    def has_reached_server(self) -> bool:  # type: ignore[override]
        """Whether the database may have received what was sent last."""
        return self._local is None or not self.driver.awaits_server

    def is_alive(self) -> bool:
        """Return whether the database answers."""
        try:
            self.command(PING)
        except self.database.errors.types():
            return False
        return True

    def has_input(self) -> bool:
        """Return whether the database has sent something since the last statement: it does when it ends the session."""
        return self.database.connections.has_input(self.driver)

    def begin(self, *, write: bool, snapshot: bool = True) -> None:
        """Begin the transaction of an operation."""
        self.committing, self.sees_one_moment = False, snapshot
        isolation = "repeatable read" if snapshot else "read committed"
        self._begin(self.database.transactions.begin(write=write, isolation=isolation))

    def begin_group(self) -> None:
        """Begin a transaction of statements that do not depend on each other."""
        self.grouped = True
        self.begin(write=True, snapshot=False)

    def begin_transaction(self, isolation: Isolation, *, write: bool = True) -> None:
        """Begin a transaction of the user's, with a catalogue of its own."""
        self.committing, self.sees_one_moment, self._depth = False, True, 0
        self._begin(self.database.transactions.begin(write=write, isolation=isolation))
        self.catalogue = Catalogue(self.store, self.catalogue)

    def commit(self) -> None:
        """Commit the transaction, unless one of `before_commit` raises."""
        if self.recorder.pending:
            self.record_pending()
        for check in self.before_commit:
            check()
        self.committing = True
        self.driver.execute(COMMIT)
        self.grouped = False
        if self.recorder.recorded:
            self.publish_recorded()

    def _prune(self, feed: FeedStatements) -> None:
        try:
            self._begin(self.database.transactions.begin(write=True, isolation="read committed"))
            prune(self, feed)
            self.command(COMMIT)
        except self.database.errors.types() as error:
            self.is_lost = isinstance(self.database.errors.translate(error), DatabaseUnavailable)
            with suppress(*self.database.errors.types()):
                self.rollback()

    def rollback(self) -> None:
        """Roll back the transaction, unless the database did."""
        self.recorder.clear()
        self.grouped = False
        if self.in_transaction():
            self.command(ROLLBACK)

    def begin_savepoint(self) -> Savepoint:
        self._depth += 1
        point = Savepoint(self._depth, self.recorder.pending)
        self.command(self.database.transactions.savepoint(point.handle))
        return point

    def release_savepoint(self, savepoint: Savepoint) -> None:
        self._depth = savepoint.handle - 1
        self.command(self.database.transactions.release(savepoint.handle))

    def rollback_to(self, savepoint: Savepoint) -> None:
        self.recorder.rollback_to(savepoint)
        self.catalogue.forget_all()
        try:
            self.command(self.database.transactions.rollback_to(savepoint.handle))
            self.release_savepoint(savepoint)
        except self.database.errors.types():
            with suppress(*self.database.errors.types()):
                self.rollback()

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, be it a failed one."""
        return self.database.transactions.state(self.driver) in {"open", "failed"}

    def can_go_on(self) -> bool:
        """Return whether a transaction is open that has not failed."""
        return self.database.transactions.state(self.driver) == "open"

    def reset(self) -> bool:
        """Roll back whatever an exception left open. Return False if the connection cannot be used again."""
        self.catalogue = self.catalogue.of_store()
        try:
            self.rollback()
        except self.database.errors.types():
            return False
        return self.database.transactions.state(self.driver) == "none"

    def transaction(self, *, write: bool, snapshot: bool = True) -> AbstractContextManager[object]:
        if self.in_transaction():  # an operation within another is part of it
            return nullcontext()
        return TransactionContext(self, write, snapshot)


class SharedConnection(Connection):
    """A connection that the caller owns, in a transaction of the caller's, whose end is not seen here."""

    __slots__ = ("sa",)

    catalogue: Catalogue

    def __init__(self, connection: sa.Connection, catalogue: Catalogue) -> None:
        super().__init__(catalogue)
        self.sa: sa.Connection = connection

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        with self._own_errors():
            return list(self.sa.exec_driver_sql(sql, dict(parameters) or None))

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        with self._own_errors():
            return self.sa.exec_driver_sql(sql, dict(parameters) or None).rowcount

    def _executed_many(self, sql: str, rows: list[dict[str, Any]]) -> int:
        with self._own_errors():
            return self.sa.exec_driver_sql(sql, rows).rowcount

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except self.database.errors.types() as error:
            if not self.sa.closed and not self.sa.invalidated:
                raise_own(self.database, self.sa.connection.dbapi_connection, error)
            raise
        except UnicodeDecodeError as error:
            raise self.database.errors.of_damage(error) from error

    def command(self, sql: str) -> None:
        self.sa.exec_driver_sql(sql)

    def is_alive(self) -> bool:
        """Return True: the caller's pool looks after that."""
        return True

    def reset(self) -> bool:
        """Return True: the caller's transaction ended when its context did."""
        return True

    def prepare(self, *, write: bool) -> None:
        """Give the driver's connection our SQL functions, and make it join or begin a transaction."""
        pooled = self.sa.connection
        if "collections_store" not in pooled.info:
            add_functions(pooled.dbapi_connection, self.database)
            url = self.sa.engine.url
            self.database.connections.configure(pooled.driver_connection, url, is_pooled=None)
            pooled.info["collections_store"] = True
        sql = self.database.transactions.join(pooled.driver_connection, write=write)
        if sql:
            self.command(sql)

    @property
    def driver(self) -> Any:
        """The driver's connection."""
        return self.sa.connection.driver_connection

    def begin_transaction(self, isolation: Isolation, *, write: bool = True) -> None:
        """Begin a transaction of the user's, with a catalogue of its own."""
        self.sa.execution_options(**self.database.transactions.isolation_options(isolation))
        self.sa.begin()
        self.prepare(write=write)
        self.catalogue = Catalogue(self.store, self.catalogue)

    def commit(self) -> None:
        """Commit the transaction."""
        self.committing = True
        self.sa.commit()
        self.publish_recorded()

    def _prune(self, feed: FeedStatements) -> None:
        self.sa.execution_options(**self.database.transactions.shared_options)
        with suppress(*self.database.errors.types()), self.sa.begin():
            self.prepare(write=True)
            prune(self, feed)

    def rollback(self) -> None:
        """Roll back the transaction, unless the database did."""
        self.recorder.clear()
        self.sa.rollback()

    def can_go_on(self) -> bool:
        """Return whether a transaction is open that has not failed."""
        return is_in_transaction(self.sa, self.database, usable=True)

    def begin_savepoint(self) -> Savepoint:
        return Savepoint(self.sa.begin_nested(), self.recorder.pending)

    def release_savepoint(self, savepoint: Savepoint) -> None:
        savepoint.handle.commit()

    def rollback_to(self, savepoint: Savepoint) -> None:
        self.recorder.rollback_to(savepoint)
        self.catalogue.forget_all()
        ours = savepoint.handle
        with suppress(*self.database.errors.types()):
            while ours.is_active and (inner := self.sa.get_nested_transaction()) is not None:
                inner.rollback()  # first those within it, in the end itself

    def transaction(self, **_: bool) -> AbstractContextManager[object]:
        return self.savepoint()


class TransactionContext:
    """The context of an operation's transaction."""

    __slots__ = ("_connection", "_snapshot", "_write")

    def __init__(self, connection: DriverConnection, write: bool, snapshot: bool) -> None:
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
    """End a context: finish it, or undo it after an error."""
    try:
        if error is None:
            finish()
    except BaseException as failure:
        _undo(undo, failure)
        raise
    if error is not None:
        _undo(undo, error)


def _undo(undo: Callable[[], None], error: BaseException) -> None:
    """Undo what was done before an error. A failure to do so does not replace what a signal raised: the executor
    answers a lost connection with another attempt, and would lose Ctrl-C.
    """
    try:
        undo()
    except Exception:
        if isinstance(error, Exception):
            raise


def is_in_transaction(
    connection: sa.Connection, database: Database, *, usable: bool = False
) -> bool:
    """Return whether a caller's connection is in a transaction of the driver's, be it a failed one unless `usable`."""
    if connection.closed or connection.invalidated or not connection.in_transaction():
        return False
    state = database.transactions.state(connection.connection.driver_connection)
    return state == "open" or (state == "failed" and not usable)


def as_lists(rows: Sequence[Parameters]) -> dict[str, list[Any]]:
    """Return the values of rows, which have the same names, as lists."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def add_functions(driver: Any, database: Database) -> None:
    """Give a driver's connection our SQL functions."""
    for name, arguments, function in database.connections.functions():
        driver.create_function(name, arguments, function, deterministic=True)


def raise_own(database: Database, driver: Any, error: Exception) -> None:
    """Raise what one of our SQL functions raised, if that is why a statement failed."""
    own = database.errors.raised_within(error)
    if own is not None:
        add_functions(driver, database)  # a second signal may have ended one
        raise own from None
