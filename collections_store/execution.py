"""How an operation comes to its result: on which connection, how often, and in whose words it fails.

The rules:

1. A foreign error becomes ours here, once, by `Database.translate`.
2. A collection comes into being when something is first written to it; to a read before that, it is
   empty. A table that vanished (another process dropped or renamed the collection) is looked up
   again.
3. What two transactions did to each other is nobody's fault: a conflict runs the whole operation
   again.
4. A read goes on over a new connection where the old one was lost. A write does not: whether it took
   place is not known, and its caller must hear that.
"""

from __future__ import annotations

import random
import time
from itertools import count
from typing import Any, Final, TypeVar

from .dialects import Database, TableVanished
from .errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    TransactionConflict,
)
from .operations import (
    Catalogue,
    CollectionAbsent,
    CreateCollection,
    DriverConnection,
    Operation,
    SharedConnection,
    collection_of,
    perform,
)
from .pool import Lease, Pool
from .threads import Job

T = TypeVar("T")

ATTEMPTS: Final = 5
RECONNECT_FOR: Final = 1.0
"""Seconds for which an operation looks for a database that went away."""


class Abandoned(CollectionsStoreError):
    """The caller gave the operation up; it was rolled back."""


class Executor:
    """Runs operations on the connections of a pool."""

    def __init__(
        self, database: Database, pool: Pool, catalogue: Catalogue, *, patience: float
    ) -> None:
        self.database, self.pool, self.catalogue = database, pool, catalogue
        self._patience = patience

    def run(self, operation: Operation[T], job: Job | None = None) -> T:
        """Run an operation until it succeeds or fails for good."""
        begun = time.monotonic()
        for attempt in count():
            try:
                return self._attempt(operation, job)
            except CollectionAbsent:
                if not operation.WRITES:
                    return operation.nothing()  # type: ignore[attr-defined, no-any-return]
                self.run(CreateCollection(str(collection_of(operation))))
            except TableVanished as error:
                self._forget(operation, error, attempt)
            except (TransactionConflict, DatabaseBusy, DatabaseUnavailable) as error:
                self._consider(error, job, begun)
                time.sleep(random.uniform(0, 0.001 * 2 ** min(attempt, 6)))
        raise AssertionError("unreachable")

    def run_job(self, job: Job) -> None:
        """Run a claimed job, and tell whoever waits."""
        try:
            result = self.run(job.operation, job)
        except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
            job.finish(error=error)
        else:
            job.finish(result)

    def run_group(self, group: list[Job]) -> list[Job]:
        """Run claimed jobs in one transaction; returns those that must be run alone."""
        alone = [job for job in group if not job.operation.SINGLE]
        together = [job for job in group if job.operation.SINGLE]
        begun = time.monotonic()
        while together:
            try:
                return alone + self._run_together(together)
            except DatabaseBusy as error:
                together = _still_wanted(together)
                if time.monotonic() - begun > 0.9 * self._patience:
                    _fail(together, error)
                    break
        return alone

    def _run_together(self, jobs: list[Job]) -> list[Job]:
        """Run jobs in one transaction; raises `DatabaseBusy` where no other could write either."""
        try:
            lease = self.pool.acquire()
        except CollectionsStoreError:
            return jobs  # each alone will say what is the matter
        lost = False
        try:
            return _commit_together(lease.connection, jobs)
        except Abandoned:
            return jobs
        except self.database.errors() as error:
            translated = self.database.translate(error)
            lost = isinstance(translated, DatabaseUnavailable)
            if isinstance(translated, DatabaseBusy) and self.database.SINGLE_WRITER:
                raise translated from error
            if not lost:
                return jobs
            for job in jobs:
                job.finish(error=_in_doubt(error, job.operation))
            return []
        finally:
            self._give_back(lease, lost)

    def _attempt(self, operation: Operation[T], job: Job | None) -> T:
        lease = self.pool.acquire()
        lost = False
        try:
            return _on(lease, operation, job, self.database)
        except self.database.errors() as error:
            lost = self._is_lost(error)
            if lost and operation.WRITES:
                raise _in_doubt(error, operation) from error
            raise self.database.translate(error) from error
        finally:
            self._give_back(lease, lost)

    def _is_lost(self, error: BaseException) -> bool:
        if isinstance(error, self.database.errors()):
            return isinstance(self.database.translate(error), DatabaseUnavailable)
        return False

    def _give_back(self, lease: Lease, lost: bool) -> None:
        if lost or lease.tainted:
            self.pool.discard(lease)
        else:
            self.pool.release(lease)
        if lost:
            self.pool.discard_idle()

    def _forget(self, operation: Operation[Any], error: TableVanished, attempt: int) -> None:
        collection = collection_of(operation)
        if collection is None or attempt == ATTEMPTS:
            raise DatabaseError(
                f"{error}: the catalogue tells of it; was it dropped by hand?"
            ) from error
        self.catalogue.forget(collection)

    def _consider(self, error: CollectionsStoreError, job: Job | None, begun: float) -> None:
        """Return if another attempt may help, else raise."""
        if job is not None and job.abandoned:
            raise Abandoned("cancelled") from error
        waited = time.monotonic() - begun
        away = isinstance(error, DatabaseUnavailable)
        if waited > (RECONNECT_FOR if away else 0.9 * self._patience):
            raise error
        if getattr(error, "in_doubt", False):
            raise error


def _still_wanted(jobs: list[Job]) -> list[Job]:
    _fail([job for job in jobs if job.abandoned], Abandoned("cancelled"))
    return [job for job in jobs if not job.abandoned]


def _fail(jobs: list[Job], error: CollectionsStoreError) -> None:
    for job in jobs:
        job.finish(error=error)


def run_within(connection: SharedConnection, operation: Operation[T]) -> T:
    """Run an operation within the caller's transaction, which stays usable if it fails."""
    database = connection.database
    try:
        connection.prepare(write=operation.WRITES)
        for _ in range(ATTEMPTS):
            try:
                return _step(connection, operation)
            except CollectionAbsent:
                if not operation.WRITES:
                    return operation.nothing()  # type: ignore[attr-defined, no-any-return]
                _step(connection, CreateCollection(str(collection_of(operation))))
        raise TransactionConflict(f"{operation!r}: its collection comes and goes")
    except database.errors() as error:
        raise database.translate(error) from error


def _step(connection: SharedConnection, operation: Operation[T]) -> T:
    if not operation.WRITES:
        return operation(connection)
    with connection.transaction(write=True):
        return operation(connection)


def _in_doubt(error: Exception, operation: Operation[Any]) -> DatabaseUnavailable:
    message = f"{str(error).strip()} (whether {operation!r} took place is not known)"
    return DatabaseUnavailable(message, in_doubt=True)


def _on(lease: Lease, operation: Operation[T], job: Job | None, database: Database) -> T:
    connection = lease.connection
    if not isinstance(connection, DriverConnection):
        with lease.sa.begin():
            connection.prepare(write=operation.WRITES)
            return perform(operation, connection)
    if job is None:
        return perform(operation, connection)
    if job.abandoned:
        raise Abandoned("cancelled")

    def stop() -> None:
        lease.tainted = not database.SINGLE_WRITER
        database.interrupt(connection.driver)

    def object_if_abandoned() -> None:
        if job.abandoned:
            raise Abandoned("cancelled")

    connection.before_commit = object_if_abandoned
    job.running(stop)
    try:
        return perform(operation, connection)
    finally:
        job.running(None)
        connection.before_commit = None


def _commit_together(connection: Any, jobs: list[Job]) -> list[Job]:
    """Run jobs in one transaction and answer them; returns those left for a run of their own."""
    outcomes: list[tuple[Job, Any, CollectionsStoreError | None]] = []
    alone: list[Job] = []
    several = len(jobs) > 1
    if several:
        connection.begin_group()
    try:
        for job in jobs:
            try:
                outcomes.append((job, job.operation(connection), None))
            except CollectionAbsent:
                alone.append(job)
            except CollectionsStoreError as error:
                outcomes.append((job, None, error))
        if several and any(job.abandoned for job in jobs):
            raise Abandoned("cancelled")
        if several:
            connection.commit()
    except BaseException:
        connection.rollback()
        raise
    for job, result, problem in outcomes:
        job.finish(result, problem)
    return alone
