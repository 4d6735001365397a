"""Reads from streaming replicas: the choice of a connection, and the queries before a read.

Rules:

1. A read that a replica cannot run goes to the primary: the collection is not replayed yet, the read conflicts with the
   replay, the connection is lost. A write always runs on the primary.
2. A "session" read sees everything the store has written and read before. Each reply of the primary moves the session:
   the caller may have written or seen something. The next read asks the primary for the position in the log, and the
   replica whether this position is replayed. If so, reads ask nothing until the session moves again.
3. The session moves before a caller gets the reply: no later read returns older data.
4. All connections lead to the same replica: a read must not be behind the previous read. A connection to another
   replica, as a load balancer may return, is closed. After `TRIES` such connections in a row the store changes to the
   last replica. Each new connection moves the session: after a crash, which ends all connections, a replica may have
   replayed less than before.
5. While a read waits for the replica, further reads wait too. A read on the primary would move the session: under
   constant writes by other clients the replica would never catch up. Nobody holds a lock meanwhile: two concurrent
   reads may both ask.
6. Unreachable servers, and servers that are no replicas of the primary, are left alone for `TRIED_AFTER` seconds.
7. A position belongs to a timeline; each promotion of a server begins a timeline. A replica may have replayed more of
   the old timeline than the new primary had: such a replica has not replayed the new timeline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from ..errors import DatabaseError, DatabaseUnavailable
from ..operations.catalogue import Catalogue, CollectionAbsent
from ..operations.operation import Operation
from ..operations.servers import HasReplayed, IdentifyServer, LogPosition, ReadPosition
from ..options import Consistency, Options
from ..sql.dialects.protocols import TableVanished
from ..sql.dialects.support import replica_url
from .executor import Executor, execute, raise_if_abandoned, translated
from .jobs import Job
from .pool import ConnectionPool, Pool, PooledConnection, open_driver_connection, open_engine

T = TypeVar("T")

LOG: Final = logging.getLogger("collections_store")
TRIED_AFTER: Final = 5.0
"""Seconds after which replicas that could not be used are tried again, and the one in use is asked whether it still is
one.
"""
TRIES: Final = 10
"""Connections to other replicas, one after the other, before the store changes to the last of these."""
WAIT: Final = 0.02
"""Seconds for which reads wait until a replica has replayed what the store has seen."""
ANSWER: Final = 1.0
"""Seconds for which they wait for the position of the primary, and for a connection that others use."""
POLL: Final = 0.0005
"""Seconds."""
PAUSE: Final = 0.01
"""Seconds between two questions whether the replica has replayed all; doubled while it has not, up to `LONGEST_PAUSE`.
"""
LONGEST_PAUSE: Final = 1.0


class ReadSession:
    """The writes and reads of a store: each reply of the primary changes the number `mark`."""

    mark: int

    def __init__(self) -> None:
        self._marks = count(1)
        self.mark = 0
        self.replayed = -1
        """The mark up to which the replica has replayed all."""
        self.replayed_at: float | None = None
        """When that was seen last."""

    def move(self) -> None:
        """Note a possible write or read."""
        self.mark = next(self._marks)  # no sum: another thread could undo that

    def follow(self, open: Callable[[], PooledConnection]) -> PooledConnection:
        """Open a connection to the primary whose replies move the session."""
        pooled = open()
        _driver(pooled).replied = self.move
        return pooled


def _driver(pooled: PooledConnection) -> Any:
    return pooled.connection.driver


class ReplicaPool(ConnectionPool):
    """Connections to a replica. `read_system` returns the `Server.system` of the primary."""

    def __init__(
        self,
        connect: Callable[[], PooledConnection],
        size: int,
        timeout: float,
        session: ReadSession,
        read_system: Callable[[], str],
    ) -> None:
        super().__init__(self._open_one, size, timeout)
        self._connect, self._session = connect, session
        self._read_system, self._system = read_system, ""
        self._server = ""
        """When the replica was started: no two were at the same microsecond."""
        self._checked_until = self._away_until = 0.0
        self._is_away = False

    def acquire(self) -> PooledConnection:
        """Return a connection for the caller alone; raises `DatabaseUnavailable`, `DatabaseBusy` and `StoreClosed`."""
        while True:
            now = time.monotonic()
            if now < self._away_until:
                raise DatabaseUnavailable("no replica can be used")
            if self._is_away:
                self._away_until = now + TRIED_AFTER  # one caller tries
            pooled = super().acquire()
            try:
                if now > self._checked_until:
                    self._identify(pooled)
                if self.leads_to_current(pooled):
                    if self._is_away:
                        self._is_away, self._away_until = False, 0.0
                        LOG.info("reads go to a replica again")
                    return pooled
            except DatabaseError:
                self.discard_idle()
            self.discard(pooled)

    @property
    def is_in_use(self) -> bool:
        """Whether connections to a replica exist."""
        return bool(self._server) and not self._is_away

    def leads_to_current(self, pooled: PooledConnection) -> bool:
        """Return whether a connection leads to the replica in use now."""
        return bool(_driver(pooled).server == self._server)

    def _open_one(self) -> PooledConnection:
        try:
            return self._connect_to_one()
        except DatabaseError as error:
            if not self._is_away:
                LOG.warning("no replica can be used, reads go to the primary: %s", error)
            self._is_away, self._away_until = True, time.monotonic() + TRIED_AFTER
            raise

    def _connect_to_one(self) -> PooledConnection:
        """Open a connection to the replica in use, or after `TRIES` attempts to another replica."""
        for left in reversed(range(TRIES)):
            pooled = self._connect()
            try:
                server = self._identify(pooled)
            except BaseException:
                pooled.close(is_broken=True)
                raise
            if server != self._server and (not self._server or not left):
                self._server = server
                self.discard_idle()
            if server == self._server:
                self._session.move()
                return pooled
            pooled.close()
        raise AssertionError("unreachable")

    def _identify(self, pooled: PooledConnection) -> str:
        """Return the server of a connection; raise `DatabaseUnavailable` if the server is no replica of the primary."""
        driver = _driver(pooled)
        with translated(pooled.connection.database):
            found = execute(pooled.connection, IdentifyServer())
        if not found.is_replica:
            raise DatabaseUnavailable(f"the server at {driver.address} is no replica")
        if found.system != self._system:
            self._system = self._read_system()  # pg_upgrade gives a primary another one
        if found.system != self._system:
            raise DatabaseUnavailable(
                f"the server at {driver.address} is no replica of the store's database"
            )
        driver.server = found.started
        self._checked_until = time.monotonic() + TRIED_AFTER
        return found.started


class CurrentPool(Pool):
    """The connections to the replica while the replica is up to date for a session."""

    def __init__(self, replica: ReplicaPool, session: ReadSession) -> None:
        super().__init__(replica.acquire, 0.0)
        self._replica, self._session = replica, session

    def acquire(self) -> PooledConnection:
        """Return a connection for the caller alone; raises `DatabaseUnavailable`, `DatabaseBusy` and `StoreClosed`."""
        pooled = self._open()
        is_current = self._session.replayed == self._session.mark
        if is_current and self._replica.leads_to_current(pooled):  # still: that was of this replica
            return pooled
        self.release(pooled)
        raise DatabaseUnavailable("the replica is behind")

    def release(self, pooled: PooledConnection) -> None:
        self._replica.release(pooled)

    def discard(self, pooled: PooledConnection) -> None:
        self._replica.discard(pooled)


class ReplicaReader(Executor):
    """Runs reads on the replica, however far behind, and on the primary if the replica cannot run a read."""

    def __init__(
        self, pool: Pool, primary: Executor, catalogue: Catalogue, lost: Callable[[], None]
    ) -> None:
        super().__init__(
            primary.database,
            pool,
            catalogue,
            timeout=primary.timeout,
            retries=primary.retries,
            lost=lost,
        )
        self._primary = primary
        self._has_reported = False

    def run(
        self, operation: Operation[T], started: float | None = None, job: Job | None = None
    ) -> T:
        """Run an operation until it succeeds or fails for good; its timeout runs from `started`."""
        if not operation.writes:
            try:
                if self._is_current(job):
                    return self.attempt(operation, job)
            except TableVanished:
                for name in operation.collections:
                    self.catalogue.forget(name)
            except (CollectionAbsent, DatabaseError) as error:
                if job is not None:
                    raise_if_abandoned(job)
                self._report(error)
        return self._primary.run(operation, started, job)

    def _report(self, error: Exception) -> None:
        """Log the first lasting error, such as a missing privilege: each read meets such an error again."""
        if type(error) is DatabaseError and not self._has_reported:
            self._has_reported = True
            LOG.warning("a replica cannot answer a read, the primary does: %s", error)

    def _is_current(self, job: Job | None) -> bool:  # noqa: ARG002
        """Return whether the replica has replayed enough."""
        return True


class SessionReader(ReplicaReader):
    """Runs reads on the replica while the replica has replayed everything the store has written and read."""

    def __init__(
        self,
        session: ReadSession,
        eventual: ReplicaReader,
        position: Callable[[Job | None], LogPosition],
        *parts: Any,
    ) -> None:
        super().__init__(*parts)
        self._session, self._eventual, self._position = session, eventual, position
        self._asking_until = self._ask_after = 0.0
        self._pause = PAUSE

    def _is_current(self, job: Job | None) -> bool:
        session = self._session
        if session.replayed == session.mark:
            return True
        while (now := time.monotonic()) < self._asking_until:
            time.sleep(POLL)
        if now < self._ask_after:
            return session.replayed == session.mark
        return self._ask(job)

    def _ask(self, job: Job | None) -> bool:
        """Return whether the replica has replayed the log up to the present position of the primary."""
        session = self._session
        self._asking_until = time.monotonic() + ANSWER
        pause = min(2 * self._pause, LONGEST_PAUSE)
        try:
            mark = session.mark
            position = self._position(job)
            self._asking_until = until = time.monotonic() + WAIT
            while not self._eventual.attempt(HasReplayed(position), job):
                if session.mark != mark:
                    pause = PAUSE
                    return False
                if time.monotonic() > until:
                    return False
                time.sleep(POLL)
            session.replayed, session.replayed_at, pause = mark, time.monotonic(), PAUSE
            return True
        finally:
            self._pause = pause
            self._ask_after, self._asking_until = time.monotonic() + pause, 0.0


class Replicas:
    """The replicas of a store. `primary` runs the store's operations; replies to `asking` do not move the session."""

    def __init__(
        self, options: Options, size: int, session: ReadSession, primary: Executor, asking: Executor
    ) -> None:
        self._session = session
        database, timeout = primary.database, options.busy_timeout
        url = replica_url(options, database)
        assert url is not None
        own = options.of_replicas(url)
        self._engine = open_engine(url, database, own)
        catalogue = Catalogue(primary.catalogue.statements)
        primary.catalogue.of_replicas = catalogue
        connect = partial(open_driver_connection, self._engine, None, catalogue, own, timeout)

        def read_system() -> str:
            return asking.attempt(IdentifyServer(), None).system

        def position(job: Job | None) -> LogPosition:
            return asking.attempt(ReadPosition(options), job)

        self._pool = ReplicaPool(connect, size, min(timeout, ANSWER), session, read_system)
        parts = primary, catalogue, self._pool.discard_idle
        eventual = ReplicaReader(self._pool, *parts)
        current = CurrentPool(self._pool, session)
        self.readers: Mapping[Consistency, Executor] = {
            "eventual": eventual,
            "session": SessionReader(session, eventual, position, current, *parts),
        }
        """What runs the reads of each consistency but "strong"."""

    def lag(self) -> float | None:
        """Return the seconds since a replica last had everything the store has written and read; None if never."""
        session = self._session
        if session.replayed == session.mark:
            return 0.0
        return None if session.replayed_at is None else time.monotonic() - session.replayed_at

    @property
    def is_in_use(self) -> bool:
        """Whether reads run on a replica at present."""
        return self._pool.is_in_use

    def close(self, timeout: float) -> None:
        """Close all connections; wait up to `timeout` seconds for connections in use."""
        self._pool.close(timeout)
        self._engine.dispose()
