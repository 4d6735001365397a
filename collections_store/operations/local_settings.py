"""Settings of a connection, executed in each transaction.

A pooler may give each transaction another connection of the server, and the connection to other clients afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from ..sql.dialects.protocols import COMMIT, ROLLBACK, Database

Parameters: TypeAlias = Mapping[str, Any]
NONE: Final[Parameters] = {}


class LocalSettings:
    """Executes the settings of a connection in each transaction."""

    __slots__ = ("_database", "_driver", "_is_pooled", "_settings", "_state")

    def __init__(
        self, driver: Any, database: Database, settings: Sequence[str], *, is_pooled: bool
    ) -> None:
        self._driver, self._database, self._settings = driver, database, settings
        self._state, self._is_pooled = database.transactions.state, is_pooled

    def execute(self, sql: str, parameters: Parameters = NONE) -> Any:
        """Execute a statement, behind the settings if the statement is a transaction of its own.

        A read and the settings are a single trip, three times as long as a statement alone: connections without a
        pooler keep their settings. A write follows in a second trip, once the pooler has a connection of the server:
        nobody could tell the caller whether the pooler will pass on an earlier write.
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
        return self._committed(sql, parameters)

    def _committed(self, sql: str, parameters: Parameters, *before: str) -> Any:
        """Execute statements and COMMIT in a single trip; return the cursor of the last statement."""
        try:
            with self._driver.pipeline():
                for statement in before:  # prepared ones would be skipped after an error
                    self._driver.execute(statement, prepare=False)
                found = self._driver.execute(sql, parameters)
                self._driver.execute(COMMIT, prepare=False)
        except self._database.errors.types():
            if self._state(self._driver) == "failed":
                self._driver.execute(ROLLBACK)
            raise
        return found

    def begin(self, sql: str) -> None:
        """Begin a transaction, and execute the settings."""
        self._driver.await_server()
        self._driver.execute("; ".join((sql, *self._settings)), prepare=False)


class RemoteSettings(LocalSettings):
    """Executes settings for a remote server: the connected server passes on the settings of a transaction only, each
    as a statement.
    """

    __slots__ = ()

    def execute(self, sql: str, parameters: Parameters = NONE) -> Any:
        """Execute a statement, within a transaction if the statement may wait on the remote server: a write then takes
        2.3 times as long (measured).
        """
        waits = self._is_pooled or self._database.transactions.waits_remotely(sql)
        if not waits or self._state(self._driver) != "none":
            return self._driver.execute(sql, parameters)
        if self._is_pooled:
            return self._write(sql, parameters)
        begin = self._database.transactions.begin(write=True, isolation="read committed")
        return self._committed(sql, parameters, begin, *self._settings)

    def begin(self, sql: str) -> None:
        self._driver.await_server()
        with self._driver.pipeline():
            for statement in (sql, *self._settings):
                self._driver.execute(statement, prepare=False)
