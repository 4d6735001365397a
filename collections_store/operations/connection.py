"""A database connection as operations see it.

`DriverConnection` talks to the driver, on a connection that the store holds: between an operation
and its statement stands nothing but this. `SharedConnection` talks through SQLAlchemy, on a
connection that is the caller's: its events, its transaction, its errors are the caller's too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, Protocol

import sqlalchemy as sa

from ..dialects import COMMIT, PING, ROLLBACK, Database, Isolation, back_to, release, savepoint
from ..statements import CatalogueStatements, Statements
from .catalogue import Catalogue
from .recording import Pending, record

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

    def each(self, sql: str, parameters: Iterable[Parameters]) -> int:
        """Execute once for each set of parameters, and return how many rows were changed in all."""

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


class Mark:
    """A place in a transaction to which it can be rolled back. What was pending there is pending again
    then, also if it was recorded since: that was undone.
    """

    __slots__ = ("_length", "_pending", "depth")

    def __init__(self, depth: int, pending: list[Pending]) -> None:
        self.depth, self._pending, self._length = depth, pending, len(pending)

    def pending(self) -> list[Pending]:
        """Return the list as it was; it has only grown."""
        del self._pending[self._length :]
        return self._pending


class DriverConnection:
    """A connection of the store's own, in the driver's autocommit mode."""

    __slots__ = ("_depth", "_recorded", "before_commit", "catalogue", "committing", "database", "driver",
                 "grouped", "pending", "store")  # fmt: skip

    def __init__(self, driver: Any, catalogue: Catalogue) -> None:
        self.driver, self.catalogue = driver, catalogue
        self.before_commit: list[Callable[[], None]] = []
        """Called before each COMMIT; one that raises prevents it."""
        self.pending: list[Pending] = []
        """Changes to be recorded when the transaction commits; what is rolled back is not. A list that was
        recorded is left as it is, for a `Mark` may have it.
        """
        self._recorded: set[str] = set()
        """The collections of which some were recorded in this transaction."""
        self.grouped = False
        self.committing = False
        """Was COMMIT said since the last BEGIN?"""
        self._depth = 0
        self.store, self.database = catalogue.statements, catalogue.statements.database

    def collection(self, name: str) -> Statements:
        return self.catalogue.find(self, name)

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        rows: list[Row] = self.driver.execute(sql, parameters).fetchall()
        return rows

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        count: int = self.driver.execute(sql, parameters).rowcount
        return count

    def each(self, sql: str, parameters: Iterable[Parameters]) -> int:
        cursor = self.driver.cursor()
        cursor.executemany(sql, parameters)
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
        self.pending.append(change)

    def record_now(self) -> None:
        changes, self.pending = self.pending, []
        if changes:
            self._recorded |= record(self, changes)

    def begin(self, *, write: bool, snapshot: bool = True) -> None:
        """Begin a transaction."""
        self.committing = False
        database = self.database
        self.say(database.begin(write=write) if snapshot else database.begin_group())

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
        if self._recorded:
            recorded, self._recorded = self._recorded, set()
            self.catalogue.changed(recorded)

    def rollback(self) -> None:
        """Roll back the transaction, unless the database did."""
        self.pending, self._recorded = [], set()
        self.grouped = False
        if self.in_transaction():
            self.say(ROLLBACK)

    def mark(self) -> Mark:
        """Return the place where the transaction is: a savepoint."""
        self._depth += 1
        mark = Mark(self._depth, self.pending)
        self.say(savepoint(mark.depth))
        return mark

    def release(self, mark: Mark) -> None:
        """Keep what was done since `mark`."""
        self._depth = mark.depth - 1
        self.say(release(mark.depth))

    def back_to(self, mark: Mark) -> None:
        """Undo what was done since `mark`; where the database cannot, undo the whole transaction."""
        self.pending = mark.pending()
        self.catalogue.forget_all()
        try:
            self.say(back_to(mark.depth))
            self.release(mark)
        except self.database.errors():
            with suppress(*self.database.errors()):
                self.rollback()

    def savepoint(self) -> AbstractContextManager[None]:
        """Return the context that undoes what was done in it if it fails."""
        return _Savepoint(self)

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
        return not self.in_transaction()

    def transaction(self, *, write: bool, snapshot: bool = True) -> AbstractContextManager[None]:
        if self.in_transaction():  # an operation within another is part of it
            return nullcontext()
        return _Whole(self, write, snapshot)


class SharedConnection:
    """A connection of the caller's, in a transaction of the caller's."""

    __slots__ = ("catalogue", "committing", "database", "recorded", "sa", "store")

    def __init__(self, connection: sa.Connection, catalogue: Catalogue) -> None:
        self.committing = False
        self.recorded: set[str] = set()
        """The collections of which changes were recorded."""
        self.sa, self.catalogue = connection, catalogue
        self.store, self.database = catalogue.statements, catalogue.statements.database

    def collection(self, name: str) -> Statements:
        return self.catalogue.find(self, name)

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        return list(self.sa.exec_driver_sql(sql, dict(parameters) or None))

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        return self.sa.exec_driver_sql(sql, dict(parameters) or None).rowcount

    def each(self, sql: str, parameters: Iterable[Parameters]) -> int:
        return self.sa.exec_driver_sql(sql, [dict(one) for one in parameters]).rowcount

    @property
    def grouped(self) -> bool:
        """Each operation of a caller's is one of its own."""
        return False

    def record(self, change: Pending) -> None:
        self.recorded |= record(self, [change])

    def record_now(self) -> None:
        """Nothing waits."""

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
        """Tell of the changes that were recorded and committed."""
        recorded, self.recorded = self.recorded, set()
        if recorded:
            self.catalogue.changed(recorded)

    def rollback(self) -> None:
        """Roll back the transaction, unless the database did."""
        self.sa.rollback()

    def can_go_on(self) -> bool:
        """Is a transaction open that has not failed?"""
        connection = self.sa
        if connection.closed or connection.invalidated or not connection.in_transaction():
            return False
        return self.database.can_go_on(connection.connection.driver_connection)

    def mark(self) -> sa.NestedTransaction:
        """Return the place where the transaction is: a savepoint."""
        return self.sa.begin_nested()

    def release(self, mark: sa.NestedTransaction) -> None:
        """Keep what was done since `mark`."""
        mark.commit()

    def back_to(self, mark: sa.NestedTransaction) -> None:
        """Undo what was done since `mark`; where the database cannot, it has undone more."""
        self.catalogue.forget_all()
        with suppress(*self.database.errors()):
            while mark.is_active and (inner := self.sa.get_nested_transaction()) is not None:
                inner.rollback()  # first what lies within: it is `mark` itself in the end

    def savepoint(self) -> AbstractContextManager[None]:
        """Return the context that undoes what was done in it if it fails."""
        return _Savepoint(self)

    def transaction(
        self,
        *,
        write: bool,  # noqa: ARG002
        snapshot: bool = True,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        return self.savepoint()


class _Whole:
    """The context of a transaction. Like `_Savepoint` no generator: a signal that raises as such a
    context is entered leaves the generator behind, and that would roll back at any time later.
    """

    __slots__ = ("_connection", "_snapshot", "_write")

    def __init__(self, connection: DriverConnection, write: bool, snapshot: bool) -> None:
        self._connection, self._write, self._snapshot = connection, write, snapshot

    def __enter__(self) -> None:
        try:  # within: a signal may raise once it is done
            self._connection.begin(write=self._write, snapshot=self._snapshot)
        except BaseException:
            self._connection.rollback()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        if kind is not None:
            self._connection.rollback()


class _Savepoint:
    """The context of a part of a transaction."""

    __slots__ = ("_connection", "_mark")

    def __init__(self, connection: Any) -> None:
        self._connection, self._mark = connection, None

    def __enter__(self) -> None:
        self._mark = self._connection.mark()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.release(self._mark)
        except BaseException:
            self._connection.back_to(self._mark)
            raise
        if kind is not None:
            self._connection.back_to(self._mark)


def add_functions(driver: Any, database: Database) -> None:
    """Give a driver's connection our SQL functions."""
    for name, arguments, function in database.FUNCTIONS:
        driver.create_function(name, arguments, function, deterministic=True)
