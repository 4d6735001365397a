"""How a group of jobs runs: in one transaction, and those that cannot share it alone.

Rules:

1. Only atomic operations share a transaction. Each caller is answered after the commit.
2. A job that its own operation refuses fails by itself. An error of the database fails the transaction, and each job
   runs again alone.
3. Where the one writer is busy, no job could write alone either: the group waits until the timeout of each job.
4. A lost connection leaves the outcome of a sent COMMIT unknown: no job of that group runs again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import copy
from functools import partial
from typing import Any, TypeAlias

from ..errors import CollectionsStoreError, DatabaseBusy, DatabaseUnavailable
from ..operations.bulk import PutListed, puts_together
from ..operations.catalogue import CollectionAbsent
from ..operations.write import NeedsTransaction
from ..query.budget import checked_by
from .executor import Abandoned, Executor, in_doubt, raise_if_abandoned, sent_commit
from .jobs import Job
from .pool import translate

Outcome: TypeAlias = tuple[Job, Any, CollectionsStoreError | None]


def run_group(executor: Executor, group: list[Job]) -> list[Job]:
    """Run claimed jobs in one transaction; return those that must run alone."""
    alone = [job for job in group if not job.operation.atomic]
    together = [job for job in group if job.operation.atomic]
    while together:
        try:
            return alone + _try_group(executor, together)
        except DatabaseBusy as error:
            together = _still_waiting(together, error, executor.timeout)
    return alone


def _still_waiting(jobs: list[Job], error: DatabaseBusy, timeout: float) -> list[Job]:
    """Return the jobs whose callers have neither given up nor waited too long."""
    waiting = []
    for job in jobs:
        if job.abandoned:
            job.finish(error=Abandoned("cancelled"))
        elif time.monotonic() - job.created > 0.9 * timeout:
            job.finish(error=copy(error))
        else:
            waiting.append(job)
    return waiting


def _try_group(executor: Executor, jobs: list[Job]) -> list[Job]:
    """Run jobs in one transaction; raise `DatabaseBusy` where none of them could write alone either."""
    database = executor.database
    try:
        pooled = executor.pool.acquire()
    except CollectionsStoreError:
        return jobs  # each alone raises what is wrong
    permits, lost, finished = pooled.permits, False, False
    try:
        with checked_by(partial(raise_if_abandoned, *jobs)):
            left = _commit_together(pooled.connection, jobs)
        finished = True
        return left
    except database.errors.types() as error:
        found = translate(error, pooled.sa.engine, database)
        lost = isinstance(found, DatabaseUnavailable)
        if isinstance(found, DatabaseBusy) and database.single_writer:
            raise found from error
        if not (lost and (len(jobs) == 1 or sent_commit(pooled))):
            return jobs
        for job in jobs:
            job.finish(error=in_doubt(error, job.operation))
        return []
    except Exception as error:  # noqa: BLE001 - of one job: each alone raises its own
        if len(jobs) == 1:
            jobs.pop().finish(error=error)
        return jobs
    finally:
        try:
            executor.release(pooled, lost, finished)
        except BaseException:
            executor.release_after_interrupt(pooled, permits)
            raise


def _commit_together(connection: Any, jobs: list[Job]) -> list[Job]:
    if len(jobs) == 1:
        return _run_only(connection, jobs[0])
    outcomes: list[Outcome] = []
    alone: list[Job] = []
    try:
        connection.begin_group()
        for some in _statements(connection, jobs):
            outcomes += (
                _put_together(connection, some, alone)
                if len(some) > 1
                else _run_one(connection, some[0], alone)
            )
        raise_if_abandoned(*jobs)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    for job, result, problem in outcomes:
        job.finish(result, problem)
    return alone


def _statements(connection: Any, jobs: list[Job]) -> Iterator[list[Job]]:
    """Yield jobs in their order: one at a time, or several puts that share a statement."""
    if not connection.database.takes_lists:
        yield from ([job] for job in jobs)
        return
    for positions in puts_together([job.operation for job in jobs]):
        yield [jobs[position] for position in positions]


def _run_one(connection: Any, job: Job, alone: list[Job]) -> list[Outcome]:
    try:
        return [(job, job.operation(connection), None)]
    except (CollectionAbsent, NeedsTransaction):
        alone.append(job)
        return []
    except CollectionsStoreError as error:
        return [(job, None, error)]


def _put_together(connection: Any, jobs: list[Job], alone: list[Job]) -> list[Outcome]:
    """Run several puts as one statement; those that it cannot serve are left to run `alone`."""
    puts: Any = tuple(job.operation for job in jobs)
    try:
        versions = PutListed(puts)(connection)
    except (CollectionAbsent, NeedsTransaction):
        alone += jobs
        return []
    results = list(zip(jobs, versions, strict=True))
    alone += [job for job, version in results if version is None]
    return [(job, version, None) for job, version in results if version is not None]


def _run_only(connection: Any, job: Job) -> list[Job]:
    """Run a job that no other joined: an atomic operation needs no transaction."""
    try:
        job.finish(job.operation(connection))
    except CollectionAbsent:
        return [job]
    except CollectionsStoreError as error:
        job.finish(error=error)
    return []
