"""Connections of the caller's: an SQLAlchemy engine's, or the connection of the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import sqlalchemy as sa

from ..options import Isolation
from ..sql.dialects.protocols import Database
from .connection import NONE, Connection, Parameters, Row, add_functions, raise_own


class SharedConnection(Connection):
    """A connection that the caller owns, in a transaction of the caller's, whose end the store does not see."""

    def __init__(self, connection: sa.Connection, database: Database) -> None:
        self.sa: sa.Connection = connection
        self.database = database

    def rows(self, sql: str, parameters: Parameters = NONE) -> list[Row]:
        if self.comment is not None:
            sql = self.database.compiler.commented(sql, self.comment)
        try:
            found: Any = self.sa.exec_driver_sql(sql, parameters or None)
            rows: list[Row] = found.fetchall()
        except Exception as error:
            self._raise_own(error)
            raise
        return rows

    def changed(self, sql: str, parameters: Parameters = NONE) -> int:
        if self.comment is not None:
            sql = self.database.compiler.commented(sql, self.comment)
        try:
            return self.sa.exec_driver_sql(sql, parameters or None).rowcount
        except Exception as error:
            self._raise_own(error)
            raise

    def changed_each(self, sql: str, rows: list[Any]) -> int:
        if not rows:  # SQLAlchemy would execute the statement once, without parameters
            return 0
        if self.comment is not None:
            sql = self.database.compiler.commented(sql, self.comment)
        try:
            return self.sa.exec_driver_sql(sql, rows).rowcount
        except Exception as error:
            self._raise_own(error)
            raise

    def _raise_own(self, error: Exception) -> None:
        """Raise the error of one of our SQL functions, or the driver's error for a damaged database."""
        if isinstance(error, self.database.errors.types()):
            if not self.sa.closed and not self.sa.invalidated:
                raise_own(self.database, self.sa.connection.dbapi_connection, error)
        elif isinstance(error, UnicodeDecodeError):
            raise self.database.errors.of_damage(error) from error

    def command(self, sql: str) -> None:
        self.sa.exec_driver_sql(sql)

    def prepare(self, *, write: bool) -> None:
        """Register our SQL functions with the driver's connection, and join or begin a transaction."""
        pooled = self.sa.connection
        if "collections_store" not in pooled.info:
            add_functions(pooled.dbapi_connection, self.database)
            url = self.sa.engine.url
            self.database.connections.configure(pooled.driver_connection, url, is_pooled=None)
            pooled.info["collections_store"] = True
        if write:
            sql = self.database.transactions.join(pooled.driver_connection)
            if sql is not None:
                self.command(sql)

    @property
    def driver(self) -> Any:
        return self.sa.connection.driver_connection

    def take_snapshot(self, isolation: Isolation = "repeatable read") -> None:
        """Let all statements of the next transaction see the same moment, under "serializable" if the caller's engine is;
        the engine restores the isolation.
        """
        level = self.sa.engine.get_execution_options().get("isolation_level")
        if (level or self.sa.default_isolation_level) == "SERIALIZABLE":
            isolation = "serializable"
        options = self.database.transactions.isolation_options(isolation)
        if options:
            self.sa.execution_options(**options)

    def begin_transaction(self, isolation: Isolation, *, write: bool = True) -> None:
        self.take_snapshot(isolation)
        self.sa.begin()
        self.prepare(write=write)

    def commit(self) -> None:
        self.committing = True
        self.sa.commit()

    def maintain(self, work: Callable[[], object]) -> None:
        self.sa.execution_options(**self.database.transactions.shared_options)
        with suppress(*self.database.errors.types()), self.sa.begin():
            self.prepare(write=True)
            work()

    def committed_rows(self, sql: str, parameters: Parameters) -> list[Row]:
        return self.rows(sql, parameters)

    def rollback(self) -> None:
        self.sa.rollback()

    def reset(self) -> bool:
        return True

    def can_go_on(self) -> bool:
        return is_in_transaction(self.sa, self.database, usable=True)

    def begin_savepoint(self) -> Any:
        return self.sa.begin_nested()

    def release_savepoint(self, savepoint: Any) -> None:
        savepoint.commit()

    def rollback_to(self, savepoint: Any) -> None:
        with suppress(*self.database.errors.types()):
            while savepoint.is_active and (inner := self.sa.get_nested_transaction()) is not None:
                inner.rollback()  # first those within it, in the end itself

    def transaction(self, **_: bool) -> AbstractContextManager[object]:
        return self.savepoint()


def is_in_transaction(
    connection: sa.Connection, database: Database, *, usable: bool = False
) -> bool:
    """Return whether a caller's connection is in a transaction of the driver's; `usable`: and has not failed."""
    if connection.closed or connection.invalidated or not connection.in_transaction():
        return False
    state = database.transactions.state(connection.connection.driver_connection)
    return state == "open" or (state == "failed" and not usable)
