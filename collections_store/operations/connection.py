"""Connections as operations see them, and the contexts of transactions and savepoints.

They are no generators: a signal that raises as such a context is entered leaves the generator behind,
and that would roll back at any time later.

`DriverConnection` talks to the driver, on a connection that the store holds: between an operation
and its statement stands nothing but this. `SharedConnection` talks through SQLAlchemy, on a
connection that is the caller's: its events, its transaction, its errors are the caller's too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final, Protocol

import sqlalchemy as sa

from ..errors import DatabaseUnavailable
from ..options import Isolation
from ..sql.catalogue import CatalogueStatements
from ..sql.change_records import FeedStatements
from ..sql.dialects.protocols import COMMIT, PING, ROLLBACK, Database, back_to, release, savepoint
from ..sql.select import Statements
from .catalogue import Catalogue
from .write import Mark, Pending, Recorder, prunable, prune


class Whole:
    """The context of a transaction."""

    __slots__ = ("_connection", "_snapshot", "_write")

    def __init__(self, connection: DriverConnection, write: bool, snapshot: bool) -> None:
        self._connection, self._write, self._snapshot = connection, write, snapshot

    def __enter__(self) -> None:
        try:  # within: a signal may raise once it is done
            self._connection.begin(write=self._write, snapshot=self._snapshot)
        except BaseException as error:
            _undo(self._connection.rollback, error)
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None:
                self._connection.commit()
        except BaseException as failure:
            _undo(self._connection.rollback, failure)
            raise
        if error is not None:
            _undo(self._connection.rollback, error)


class Savepoint:
    """The context of a part of a transaction."""

    __slots__ = ("_connection", "_mark")

    def __init__(self, connection: Any) -> None:
        self._connection, self._mark = connection, None

    def __enter__(self) -> None:
        self._mark = self._connection.mark()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None:
                self._connection.release(self._mark)
        except BaseException as failure:
            _undo(self._back, failure)
            raise
        if error is not None:
            _undo(self._back, error)

    def _back(self) -> None:
        self._connection.back_to(self._mark)


def _undo(undo: Callable[[], None], error: BaseException) -> None:
    """Undo what was done before an error. If that fails, too, what a signal raised is not replaced: a lost connection is
    answered by one more attempt, and Ctrl-C would be forgotten.
    """
    try:
        undo()
    except Exception:
        if isinstance(error, Exception):
            raise


Row = Any
Parameters = Mapping[str, Any]
NONE: Final[Parameters] = {}


class Connection(Protocol):
    """What operations need of a connection."""

    @property
    def database(self) -> Database:
        """The database this connects to."""

    @property
    def store(self) -> CatalogueStatements:
        """The statements of the store's own tables."""

    @property
    def catalogue(self) -> Catalogue:
        """What is known of which table is whose."""

    def collection(self, name: str) -> Statements:
        """Return the statements of a collection's table; raises `CollectionAbsent`."""

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        """Execute, and return the rows."""

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        """Execute, and return how many rows it changed."""

    def each(self, sql: str, rows: Sequence[Parameters], same: Parameters = NONE) -> int:
        """Execute for each row of parameters, besides those that are the `same` for all, in one go: as lists
        where the database takes them. Returns how many rows were changed in all.
        """

    @property
    def grouped(self) -> bool:
        """Is this a transaction of statements that do not depend on each other?"""

    def record(self, change: Pending) -> None:
        """Have a change recorded with the transaction."""

    def record_now(self) -> None:
        """Record what waits for that, in this transaction."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Return the context, within a transaction, that undoes what was done in it if it fails."""

    def transaction(self, *, write: bool, snapshot: bool = True) -> Any:
        """Return the context in which all that is executed takes place as one, or not at all.

        `snapshot`: all statements see one moment; else each sees what was committed before it.
        """


class DriverConnection:
    """A connection of the store's own, in the driver's autocommit mode."""

    __slots__ = ("_depth", "before_commit", "catalogue", "committing", "database", "driver",
                 "grouped", "is_lost", "recorder", "store")  # fmt: skip

    def __init__(self, driver: Any, catalogue: Catalogue) -> None:
        self.driver, self.catalogue = driver, catalogue
        self.before_commit: list[Callable[[], None]] = []
        """Called before each COMMIT; one that raises prevents it."""
        self.recorder = Recorder()
        self.grouped = False
        self.is_lost = False
        """Did it turn out to be of no more use, in what nobody waits for?"""
        self.committing = False
        """Was COMMIT said since the last BEGIN?"""
        self._depth = 0
        self.store, self.database = catalogue.statements, catalogue.statements.database

    def collection(self, name: str) -> Statements:
        return self.catalogue.find(self, name)

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        try:
            rows: list[Row] = self.driver.execute(sql, parameters).fetchall()
        except self.database.errors() as error:
            raise_own(self.database, self.driver, error)
            raise
        return rows

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        try:
            count: int = self.driver.execute(sql, parameters).rowcount
        except self.database.errors() as error:
            raise_own(self.database, self.driver, error)
            raise
        return count

    def each(self, sql: str, rows: Sequence[Parameters], same: Parameters = NONE) -> int:
        if self.database.TAKES_LISTS:
            return self.changed(sql, {**as_lists(rows), **same})
        cursor = self.driver.cursor()
        try:
            cursor.executemany(sql, ({**row, **same} for row in rows))
        except self.database.errors() as error:
            raise_own(self.database, self.driver, error)
            raise
        count: int = cursor.rowcount
        return count

    def say(self, words: str) -> None:
        """Execute what has no parameters and gives no rows."""
        self.driver.execute(words)

    def is_alive(self) -> bool:
        """Does the database answer?"""
        try:
            self.say(PING)
        except self.database.errors():
            return False
        return True

    def record(self, change: Pending) -> None:
        self.recorder.add(self, change)

    def record_now(self) -> None:
        self.recorder.record(self)

    def begin(self, *, write: bool, snapshot: bool = True) -> None:
        """Begin a transaction."""
        self.committing = False
        self.say(self.database.begin(write=write, snapshot=snapshot))

    def begin_group(self) -> None:
        """Begin a transaction of statements that do not depend on each other."""
        self.committing, self.grouped = False, True
        self.say(self.database.begin_group())

    def begin_block(self, isolation: Isolation) -> None:
        """Begin a transaction of the user's, with a catalogue of its own."""
        self.committing, self._depth = False, 0
        self.say(self.database.begin_block(isolation))
        self.catalogue = self.catalogue.for_transaction()

    def commit(self) -> None:
        """Commit the transaction, unless one of `before_commit` objects."""
        self.record_now()
        for objects in self.before_commit:
            objects()
        self.committing = True
        self.say(COMMIT)
        self.grouped = False
        recorded = self.recorder.committed()
        if recorded:
            self.catalogue.changed(recorded)
            for feed in prunable(recorded.values()):
                self._prune(feed)

    def _prune(self, feed: FeedStatements) -> None:
        """Delete changes that are too many. What was committed is not concerned if that fails."""
        try:
            self.say(self.database.begin_group())
            prune(self, feed)
            self.say(COMMIT)
        except self.database.errors() as error:
            self.is_lost = isinstance(self.database.translate(error), DatabaseUnavailable)
            with suppress(*self.database.errors()):
                self.rollback()

    def rollback(self) -> None:
        """Roll back the transaction, unless the database did."""
        self.recorder.forget()
        self.grouped = False
        if self.in_transaction():
            self.say(ROLLBACK)

    def mark(self) -> Mark:
        """Return the place where the transaction is: a savepoint."""
        self._depth += 1
        mark = self.recorder.mark(self._depth)
        self.say(savepoint(mark.place))
        return mark

    def release(self, mark: Mark) -> None:
        """Keep what was done since `mark`."""
        self._depth = mark.place - 1
        self.say(release(mark.place))

    def back_to(self, mark: Mark) -> None:
        """Undo what was done since `mark`; where the database cannot, undo the whole transaction."""
        self.recorder.back_to(mark)
        self.catalogue.forget_all()
        try:
            self.say(back_to(mark.place))
            self.release(mark)
        except self.database.errors():
            with suppress(*self.database.errors()):
                self.rollback()

    def savepoint(self) -> AbstractContextManager[None]:
        """Return the context that undoes what was done in it if it fails."""
        return Savepoint(self)

    def in_transaction(self) -> bool:
        """Is a transaction open, be it a failed one?"""
        return self.database.in_transaction(self.driver)

    def can_go_on(self) -> bool:
        """Is a transaction open that has not failed?"""
        return self.database.can_go_on(self.driver)

    def comes_to_rest(self) -> bool:
        """Leave whatever an exception left open; False: the connection is of no more use."""
        self.catalogue = self.catalogue.of_the_store()
        try:
            self.rollback()
        except self.database.errors():
            return False
        return self.database.is_at_rest(self.driver)

    def transaction(self, *, write: bool, snapshot: bool = True) -> AbstractContextManager[None]:
        if self.in_transaction():  # an operation within another is part of it
            return nullcontext()
        return Whole(self, write, snapshot)


class SharedConnection:
    """A connection of the caller's, in a transaction of the caller's."""

    __slots__ = ("catalogue", "committing", "database", "recorder", "sa", "store")
    grouped = False
    """Each operation of a caller's is one of its own."""
    is_lost = False
    """The caller's pool looks after that."""

    def __init__(self, connection: sa.Connection, catalogue: Catalogue) -> None:
        self.committing = False
        self.recorder = Recorder()
        self.sa, self.catalogue = connection, catalogue
        self.store, self.database = catalogue.statements, catalogue.statements.database

    def collection(self, name: str) -> Statements:
        return self.catalogue.find(self, name)

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        with self._own_errors():
            return list(self.sa.exec_driver_sql(sql, dict(parameters) or None))

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        with self._own_errors():
            return self.sa.exec_driver_sql(sql, dict(parameters) or None).rowcount

    def each(self, sql: str, rows: Sequence[Parameters], same: Parameters = NONE) -> int:
        if self.database.TAKES_LISTS:
            return self.changed(sql, {**as_lists(rows), **same})
        with self._own_errors():
            return self.sa.exec_driver_sql(sql, [{**row, **same} for row in rows]).rowcount

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except self.database.errors() as error:
            if not self.sa.closed and not self.sa.invalidated:
                raise_own(self.database, self.sa.connection.dbapi_connection, error)
            raise

    def record(self, change: Pending) -> None:
        self.recorder.add(self, change)

    def record_now(self) -> None:
        self.recorder.record(self)

    def say(self, words: str) -> None:
        """Execute what has no parameters and gives no rows."""
        self.sa.exec_driver_sql(words)

    def is_alive(self) -> bool:
        """The caller's pool looks after that."""
        return True

    def comes_to_rest(self) -> bool:
        """The caller's transaction ended when its block did."""
        return True

    def prepare(self, *, write: bool) -> None:
        """Give the driver's connection our SQL functions, and have it be in a transaction."""
        pooled = self.sa.connection
        if "collections_store" not in pooled.info:
            add_functions(pooled.dbapi_connection, self.database)
            pooled.info["collections_store"] = True
        words = self.database.join(pooled.driver_connection, write=write)
        if words:
            self.say(words)

    def begin_block(self, isolation: Isolation) -> None:
        """Begin a transaction of the user's, with a catalogue of its own."""
        self.sa.execution_options(**self.database.options_for_block(isolation))
        self.sa.begin()
        self.prepare(write=True)
        self.catalogue = self.catalogue.for_transaction()

    def commit(self) -> None:
        """Commit the transaction."""
        self.committing = True
        self.sa.commit()
        self.tell()

    def tell(self) -> None:
        """Tell of the changes that were recorded and committed, in a transaction of the store's own."""
        recorded = self.recorder.committed()
        if recorded:
            self.catalogue.changed(recorded)
            for feed in prunable(recorded.values()):
                self._prune(feed)

    def _prune(self, feed: FeedStatements) -> None:
        """Delete changes that are too many. What was committed is not concerned if that fails."""
        self.sa.execution_options(**self.database.options_for_callers())
        with suppress(*self.database.errors()), self.sa.begin():
            self.prepare(write=True)
            prune(self, feed)

    def rollback(self) -> None:
        """Roll back the transaction, unless the database did."""
        self.recorder.forget()
        self.sa.rollback()

    def can_go_on(self) -> bool:
        """Is a transaction open that has not failed?"""
        connection = self.sa
        if connection.closed or connection.invalidated or not connection.in_transaction():
            return False
        return self.database.can_go_on(connection.connection.driver_connection)

    def mark(self) -> Mark:
        """Return the place where the transaction is: a savepoint."""
        return self.recorder.mark(self.sa.begin_nested())

    def release(self, mark: Mark) -> None:
        """Keep what was done since `mark`."""
        mark.place.commit()

    def back_to(self, mark: Mark) -> None:
        """Undo what was done since `mark`; where the database cannot, it has undone more."""
        self.recorder.back_to(mark)
        self.catalogue.forget_all()
        with suppress(*self.database.errors()):
            while mark.place.is_active and (inner := self.sa.get_nested_transaction()) is not None:
                inner.rollback()  # first what lies within: it is `mark` itself in the end

    def savepoint(self) -> AbstractContextManager[None]:
        """Return the context that undoes what was done in it if it fails."""
        return Savepoint(self)

    def transaction(
        self,
        *,
        write: bool,  # noqa: ARG002
        snapshot: bool = True,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        return self.savepoint()


def is_in_transaction(connection: sa.Connection, database: Database) -> bool:
    """Return whether a caller's connection is in a transaction of the driver's, be it a failed one."""
    if connection.closed or connection.invalidated or not connection.in_transaction():
        return False
    return database.in_transaction(connection.connection.driver_connection)


def as_lists(rows: Sequence[Parameters]) -> dict[str, list[Any]]:
    """Return the values of rows, which have the same names, as lists."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def add_functions(driver: Any, database: Database) -> None:
    """Give a driver's connection our SQL functions."""
    for name, arguments, function in database.functions():
        driver.create_function(name, arguments, function, deterministic=True)


def raise_own(database: Database, driver: Any, error: Exception) -> None:
    """Raise what one of our SQL functions raised, if that is why a statement failed."""
    own = database.raised_within(error)
    if own is not None:
        add_functions(driver, database)  # a second signal may have ended one
        raise own from None
