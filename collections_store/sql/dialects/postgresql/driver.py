"""The driver's connection, with limits for waiting for a server.

Rules:

1. A hung server accepts connections and never answers. Neither TCP nor the driver notices: each wait has a limit.
2. A limit ends the connection. The effect of the statement is then unknown.
3. A full pooler makes a transaction wait before the first statement reaches a server. The wait has a limit, and no
   writing statement is sent before the end of the wait: a pooler executes the statements of absent clients too.
4. If the wait for a synchronous standby was cancelled, the commit is in doubt too: the commit is not on the standby,
   though the server reports success.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from random import random
from time import monotonic
from typing import Any, ClassVar, Final, TypeVar

from psycopg import Connection, Cursor, OperationalError, Pipeline
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import Diagnostic, ReadOnlySqlTransaction
from psycopg.waiting import Ready

from ....expressions.budget import check_now

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""Steps of the driver: yields what to wait for, receives what is ready, and returns a result."""

Address = tuple[str, str]
"""Host and port."""
NO_SERVER: Final = "the pooler had no connection of the server free"
CANCEL_TIMEOUT: Final = 5.0
"""Seconds in which a server must end a statement whose caller gave it up."""
_SCHEMA_CHANGES: Final = ("CREATE ", "ALTER ", "DROP ")
_WAITS_FOR_STANDBYS: Final = "SyncRepWaitForLSN"
"""The server's function that waits for synchronous standbys. It reports a cancelled wait as a warning."""


def watched(
    steps: Steps[T], look: Callable[[float], None], replied: Callable[[], None] = lambda: None
) -> Steps[T]:
    """Run steps of the driver. While the server is silent, call `look` with the seconds of silence, ten times a second.
    Call `replied` when the server has sent data.
    """
    silent_since: float | None = None
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if ready:
                silent_since = None
                if ready & Ready.R:
                    replied()
            else:
                now = monotonic()
                silent_since = silent_since or now
                look(now - silent_since)
            wanted = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result


class StoreConnection(Connection[Any]):
    """A connection of a store's own."""

    cancelled_at: float
    is_replicated: bool

    connect_timeout: ClassVar[float] = math.inf
    """Seconds for each address, unless the URL has others."""
    failed_at: ClassVar[dict[Address, float]] = {}
    """When it was that an address refused a connection or a write, or was silent."""
    busy_timeout: ClassVar[float] = math.inf
    """Seconds for which a pooler may have no connection of the server."""
    is_behind_pooler: ClassVar[bool] = False
    """Whether a connection is known to lead to a pooler."""
    is_read_only: ClassVar[bool] = False
    """Whether an address that refuses a write is as good as any other."""
    is_any_replica: ClassVar[bool] = False
    """Whether the addresses are those of replicas: each store then has another order of them."""
    reply_timeout: ClassVar[float] = math.inf
    """Seconds for which the server may be silent during a statement that changes no schema."""

    def __init__(self, pgconn: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(pgconn, *arguments, **options)
        self.cancelled_at = math.inf
        """When the caller gave the operation up."""
        self.changes_schema = False
        """Whether the statement may take long."""
        self.is_ready = False
        """Whether a first statement was executed: a pooler logs a client in, and then makes it wait for the server."""
        self.awaits_server: bool = False
        """Whether a pooler has not passed on the first statement of a transaction yet, as far as is known."""
        self.first_reply_timeout: float = self.connect_timeout
        """Seconds for the answer to that statement."""
        self.is_replicated = True
        self.server = ""
        """Which replica the connection leads to, once that was asked."""
        self.replied: Callable[[], None] | None = None
        """Called after each statement, before its caller learns the result, and after its failure."""
        if self.reply_timeout != math.inf:
            self.cursor_factory = StoreCursor
        # weak: a connection that an interrupted caller lost must be closed at once, not when cycles are collected
        self.add_notice_handler(partial(_note, weakref.ref(self)))

    @classmethod
    def arranged(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a connection with a timeout; among several addresses, the last failed address comes
        last.
        """
        parameters = {"connect_timeout": math.ceil(cls.connect_timeout), **parameters}
        addresses = _addresses(parameters)
        if cls.is_any_replica:
            parameters = {"target_session_attrs": "standby", **parameters}
        elif len(addresses) > 1 and not cls.is_read_only:
            parameters = {"target_session_attrs": "read-write", **parameters}
        if len(addresses) > 1 and "hostaddr" not in parameters:
            for each in addresses:
                cls.failed_at.setdefault(each, random() if cls.is_any_replica else 0.0)
            addresses.sort(key=lambda each: cls.failed_at[each])
            hosts, ports = zip(*addresses, strict=True)
            parameters |= {"host": ",".join(hosts), "port": ",".join(ports)}
        return parameters

    @classmethod
    def _connect_gen(cls, conninfo: str = "", **options: Any) -> Any:
        try:  # of one address
            steps = super()._connect_gen(conninfo, **options)
            connection = yield from watched(steps, lambda _: check_now())
            limit = float(conninfo_to_dict(conninfo).get("connect_timeout") or 0)
            connection.first_reply_timeout = limit if limit > 0 else math.inf
            return connection
        except BaseException:
            cls.failed_at.update(dict.fromkeys(_addresses(conninfo_to_dict(conninfo)), monotonic()))
            raise

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Run the driver's steps to the end; raise `OperationalError` if the server is silent for too long."""
        try:
            steps = watched(gen, self._look, self._note_reply)
            result = super().wait(steps, *arguments, **options)
        except ReadOnlySqlTransaction:
            if not self.is_read_only:
                self._avoid_address()
            raise
        finally:
            if self.replied is not None:
                self.replied()
        if not self.is_replicated:
            self.is_replicated = True
            raise OperationalError("the wait for a synchronous standby was cancelled")
        return result

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return f"{self.info.host}:{self.info.port}"

    def await_server(self) -> None:
        """Record: a pooler may hold back statements until the first reply."""
        self.awaits_server = self.is_behind_pooler

    @contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        """Return a context whose statements are sent together."""
        outer = self._pipeline
        pipeline = self._pipeline = outer or _Pipeline(self)
        try:
            with pipeline:
                yield pipeline
        finally:
            self._pipeline = outer

    def request_replies(self) -> None:
        """Request the replies to the statements of a pipeline; otherwise the server replies at the end of the pipeline."""
        self.pgconn.send_flush_request()

    @staticmethod
    def only_reads(sql: str) -> bool:
        """Return whether a statement is known to change nothing."""
        return sql.startswith("SELECT")

    def _avoid_address(self) -> None:
        self.failed_at[self.info.host, str(self.info.port)] = monotonic()

    def _note_reply(self) -> None:
        self.awaits_server = False

    def _look(self, silent: float) -> None:
        limit = math.inf if self.changes_schema else self.reply_timeout
        if self.awaits_server or (self.is_behind_pooler and not self.is_ready):
            if silent > self.busy_timeout:
                self.close()
                raise OperationalError(f"{NO_SERVER} for {silent:.1f} seconds")
        elif not self.is_ready:
            limit = min(limit, self.first_reply_timeout)
        if silent > limit or monotonic() > self.cancelled_at + CANCEL_TIMEOUT:
            self._avoid_address()
            self.close()
            raise OperationalError(f"the server has not answered for {silent:.1f} seconds")


class _Pipeline(Pipeline):
    """A pipeline that requests no replies after its end. The server replies at the end anyway, and a pooler that has
    already received the reply takes the request for the first message of the next transaction: it reserves a connection
    of the server.
    """

    def _exit_gen(self) -> Any:
        try:
            yield from self._sync_gen()
        finally:  # of a failed statement: the replies to the statements after it
            yield from self._fetch_gen(flush=False)


class StoreCursor(Cursor[Any]):
    """A cursor that records whether a statement may take long."""

    def _execute_gen(self, query: Any, *arguments: Any, **options: Any) -> Any:
        connection: Any = self.connection
        connection.changes_schema = str(query).lstrip().startswith(_SCHEMA_CHANGES)
        return super()._execute_gen(query, *arguments, **options)


def _addresses(parameters: dict[str, Any]) -> list[Address]:
    """Return the addresses in the parameters; none if libpq refuses the parameters."""
    hosts = str(parameters.get("host") or "").split(",")
    ports = str(parameters.get("port") or "5432").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    return list(zip(hosts, ports, strict=True)) if len(ports) == len(hosts) else []


def _note(known: weakref.ref[StoreConnection], notice: Diagnostic) -> None:
    connection = known()
    if connection is not None and notice.source_function == _WAITS_FOR_STANDBYS:
        connection.is_replicated = False
