"""The open half of a store: its engine, its connections, and who writes on which.

On an SQLite file one connection writes and some read beside it; whoever waits to write joins the
group that commits next. In memory all share one connection. On PostgreSQL every connection writes;
awaited writes of one statement each go through a lane of their own, as groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import sqlalchemy as sa

from .blocks import Blocks
from .dialects import Database
from .errors import DatabaseBusy
from .execution import Executor
from .group_commit import GroupCommit
from .jobs import Job
from .opening import RETRY_PAUSE, make_ready
from .operations import Catalogue, Operation
from .options import Options
from .pool import BorrowingPool, HeldPool, Pool, open_driver_lease, open_shared_lease
from .turns import Turns

T = TypeVar("T")

LANE_PATIENCE: Final = 0.1
"""Seconds the lane waits for a row that some transaction holds, before its jobs go their own ways."""


OWN: Final = "this task or thread has a transaction open itself: within it, use the collections that it gives"


class Backend:
    """Runs operations; made ready when it is made. `turns` are those of its transactions; `hand_over`
    takes what the lane of PostgreSQL could not run with others; None: the lane runs it alone.
    """

    def __init__(
        self,
        where: sa.URL | sa.Engine,
        catalogue: Catalogue,
        options: Options,
        turns: Turns,
        hand_over: Callable[[Job], None] | None = None,
    ) -> None:
        self._catalogue, self._options, self._turns = catalogue, options, turns
        self.database: Database = catalogue.statements.database
        self._own: sa.Engine | None = None
        self.lane: GroupCommit | None = None
        self._hand_over = None if self.database.SINGLE_WRITER else hand_over
        if isinstance(where, sa.Engine):
            self._borrow(where)
        else:
            self._connect(where)
        try:
            self._make_ready()
        except BaseException:
            self._disconnect(options.busy_timeout)
            raise

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in this thread."""
        try:
            return self._run(operation)
        except DatabaseBusy as error:
            self.blame(error)
            raise

    def _run(self, operation: Operation[T]) -> T:
        if self.lane is not None and self._goes_to_the_writer(operation):
            result: T = self.lane.run(operation)
            return result
        return self.executor.run(operation)

    def blame(self, error: DatabaseBusy) -> None:
        """Add to the error that the one who waited in vain has a transaction open, if that is so."""
        if self._turns.are_mine():
            error.args = (f"{error} ({OWN})",)

    def joins_lane(self, operation: Operation[object]) -> bool:
        """Shall an awaited operation go through the lane?"""
        if self.lane is None or not operation.WRITES:
            return False
        return self.database.SINGLE_WRITER or operation.SINGLE

    def run_job(self, job: Job) -> None:
        """Run a claimed job in this thread, and tell whoever waits."""
        if self.lane is not None and self._goes_to_the_writer(job.operation):
            job.unclaim()
            self.lane.append(job)
            while not job.done and self.lane.waits:
                self.lane.advance()
        else:
            self.executor.run_job(job)

    def _goes_to_the_writer(self, operation: Operation[object]) -> bool:
        return operation.WRITES and self.database.SINGLE_WRITER

    def close(self, patience: float | None = None) -> None:
        """Wait for the operations that run, and end the connections.

        One that runs for longer than `patience` seconds (None: the busy timeout) ends its
        connection itself. So does a transaction, when its block ends; it cannot be used any more.
        """
        patience = self._options.busy_timeout if patience is None else patience
        self.close_transactions(patience)
        self._disconnect(patience)

    def _disconnect(self, patience: float) -> None:
        for pool in self._pools:
            pool.close(patience)
        if self._own is not None:
            self._own.dispose()

    def close_transactions(self, patience: float) -> None:
        """Begin no more transactions; wait for those that are open, and then roll them back."""
        self._turns.close(patience)
        self.blocks.close()

    def _connect(self, url: sa.URL) -> None:
        options, database = self._options, self.database
        arguments = database.engine_arguments(busy_timeout=options.busy_timeout)
        self._own = engine = sa.create_engine(url, **arguments)

        def pool(size: int, patience: float) -> HeldPool:
            opener = partial(open_driver_lease, engine, self._catalogue, options, patience)
            return HeldPool(opener, size, options.busy_timeout)

        private = database.is_private(url)
        main = pool(connections(url, options, database), options.busy_timeout)
        patience = options.busy_timeout if database.SINGLE_WRITER else LANE_PATIENCE
        lane = main if private else pool(1, patience)
        self._pools: list[Pool] = [main, lane]
        self.executor, writer = self._executor(main), self._executor(lane)
        self.lane = self._group_commit(writer)
        begins = writer if database.SINGLE_WRITER else self.executor
        self.blocks = Blocks(begins, self.lane, self._turns)

    def _borrow(self, engine: sa.Engine) -> None:
        engine = engine.execution_options(**self.database.options_for_callers())
        opener = partial(open_shared_lease, engine, self._catalogue)
        private = self.database.is_private(engine.url)
        pool = BorrowingPool(opener, self._options.busy_timeout, one_by_one=private)
        self._pools = [pool]
        self.executor = self._executor(pool)
        self.blocks = Blocks(self.executor, None, self._turns)

    def _executor(self, pool: Pool) -> Executor:
        patience = self._options.busy_timeout
        lost = self._discard_idle
        return Executor(self.database, pool, self._catalogue, patience=patience, lost=lost)

    def _discard_idle(self) -> None:
        """End the resting connections: where one broke, the others did too."""
        for pool in self._pools:
            pool.discard_idle()

    def _group_commit(self, executor: Executor) -> GroupCommit:
        def run_group(group: list[Job]) -> None:
            for job in executor.run_group(group):
                if self._hand_over is None:
                    executor.run_job(job)
                else:
                    job.unclaim()
                    self._hand_over(job)

        return GroupCommit(executor.run, run_group, self._options.busy_timeout)

    def _make_ready(self) -> None:
        """Make the database ready, also while other processes do just that."""
        deadline = time.monotonic() + self._options.busy_timeout
        while True:
            try:
                return self._try_to_make_ready()
            except DatabaseBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_PAUSE)

    def _try_to_make_ready(self) -> None:
        pool = self._pools[0]
        lease = pool.acquire()
        try:
            if self._own is not None:
                make_ready(lease, self._options)
            else:
                with lease.sa.begin():
                    make_ready(lease, self._options)
        finally:
            pool.release(lease)


def connections(url: sa.URL, options: Options, database: Database) -> int:
    """Tell how many operations run at a time, the lane aside."""
    return 1 if database.is_private(url) else options.pool_size or database.POOL_SIZE


def transactions(url: sa.URL, options: Options, database: Database) -> int:
    """Tell how many transactions may be open at a time: plain operations shall find a connection."""
    return 1 if database.SINGLE_WRITER else max(1, connections(url, options, database) - 1)
