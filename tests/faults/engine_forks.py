"""Forks with a store on the caller's engine: `python engine_forks.py FOLDER STEP`. In each case a process writes to an SQLite
file, forks a child that ends, and writes on; prints how many writes were lost.
"""

import asyncio
import multiprocessing
import os
import select
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from faults.forks import judge

from collections_store import AsyncStore, AsyncTransaction, Store, Transaction

POOLS = (sa.QueuePool, sa.StaticPool, sa.NullPool, sa.pool.SingletonThreadPool)
JOURNALS = ("wal", "delete")
KINDS = ("sync", "async", "bound")
MOMENTS = ("between operations", "in a transaction")
ENDS = ("sys.exit", "end of the program", "os._exit", "multiprocessing")
ORDERS = ("child first", "parent first")


class Case:
    """A process and its child."""

    def __init__(self, path: Path, end: str, order: str) -> None:
        self.path, self.how, self.order = path, end, order
        self.notes = os.open(path.with_suffix(".notes"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.heard, self.told = os.pipe()
        self.is_child = False

    def fork(self) -> bool:
        """Return whether this is the child, which is to end."""
        if self.how == "multiprocessing":
            process = multiprocessing.get_context("fork").Process(target=self.wait_for_parent)
            process.start()
            child = process.pid
        else:
            child = os.fork()
            if not child:
                self.is_child = True
                self.wait_for_parent()
                return True
        if self.order == "child first":
            os.close(self.told)
            os.waitpid(child or 0, 0)
        return False

    def wait_for_parent(self) -> None:
        os.close(self.told)
        os.read(self.heard, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a transaction raises at its end
        if self.how == "sys.exit":
            sys.exit()
        if self.how == "os._exit":
            os._exit(0)

    def note(self, numbers: range) -> None:
        os.write(self.notes, "".join(f"{number}\n" for number in numbers).encode())

    def play(self, engine: sa.Engine, kind: str, moment: str) -> None:
        """Write two documents, fork, and write 30."""
        sync_store, async_store = Store(engine=engine), AsyncStore(engine=engine)

        def write(numbers: range) -> None:
            if kind == "async":
                asyncio.run(put_all(async_store, numbers))
            else:
                put(sync_store, numbers)
            self.note(numbers)

        write(range(2))
        if moment == "in a transaction":
            if kind == "async":
                asyncio.run(self.fork_in_task(async_store))
            elif kind == "bound":
                with engine.begin() as connection:
                    self.fork_in(Store(f"sqlite:///{self.path}").bind(connection))
            else:
                with sync_store.transaction() as tx:
                    self.fork_in(tx)
            if not self.is_child:
                self.note(range(2, 32))
        elif not self.fork():
            if self.order == "parent first":
                engine.dispose()  # the next connection has a log of its own
            write(range(2, 32))

    def fork_in(self, tx: Transaction) -> None:
        put(tx, range(2, 17))
        if not self.fork():
            put(tx, range(17, 32))

    async def fork_in_task(self, store: AsyncStore) -> None:
        async with store.transaction() as tx:
            await put_all(tx, range(2, 17))
            if not self.fork():
                await put_all(tx, range(17, 32))


def put(store: Store | Transaction, numbers: range) -> None:
    for number in numbers:
        store["things"].put(str(number), "x" * 9000)


async def put_all(store: AsyncStore | AsyncTransaction, numbers: range) -> None:
    for number in numbers:
        await store["things"].put(str(number), "x" * 9000)


def is_possible(case: tuple[Any, ...]) -> bool:
    """A child that leaves the parent's event loop spoils that: both have one epoll."""
    _, _, kind, moment, end, _ = case
    return (kind, moment) != ("async", "in a transaction") or end in {"os._exit", "multiprocessing"}


def connected(path: Path, pool: type[sa.Pool], journal: str) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=pool)

    def set_up(connection: Any, _: Any) -> None:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute(
            "PRAGMA cache_size=2"
        )  # pages of a transaction reach the file before its end

    sa.event.listen(engine, "connect", set_up)
    return engine


def main(folder: str, step: str) -> None:
    """Play the cases, each in a process of its own."""
    cases = list(filter(is_possible, product(POOLS, JOURNALS, KINDS, MOMENTS, ENDS, ORDERS)))
    cases = cases[:: int(step)]
    acknowledged = lost = failed = 0
    for number, (pool, journal, kind, moment, end, order) in enumerate(cases):
        path = Path(folder, f"{number}.db")
        everybody, held = os.pipe()
        process = os.fork()
        if not process:
            case = Case(path, end, order)
            case.play(connected(path, pool, journal), kind, moment)
            if case.is_child:
                return
            os._exit(0)  # as if killed: the log stays
        os.close(held)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        is_over = select.select([everybody], [], [], 60)[0]
        os.close(everybody)
        noted, missing, integrity = judge(path)
        acknowledged, lost = acknowledged + noted, lost + missing
        if code or not is_over or missing or noted < 32 or integrity != "ok":
            failed += 1
            plan = pool.__name__, journal, kind, moment, end, order
            print(plan, f"code {code}: {missing} of {noted} lost:", integrity, file=sys.stderr)
    print(f"acknowledged {acknowledged}, lost {lost}, failed {failed}")


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    main(*sys.argv[1:])
