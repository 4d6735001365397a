"""Rounds of forks with an open store: `python forks.py FOLDER ROUNDS SEED`. Each round is a family of processes that
write to one SQLite file and note each acknowledged write; prints what was lost, and what SQLite says of the file.
"""

import asyncio
import multiprocessing
import os
import random
import select
import sqlite3
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count, product
from pathlib import Path

from collections_store import AsyncStore, Store
from collections_store.engine import workers as background

fork = multiprocessing.get_context("fork")
HOW = ("os.fork", "multiprocessing", "pool", "daemon")
PARENTS = ("sync", "threads", "async")
CHILDREN = ("sync", "async")
ORDERS = ("parent first", "child first", "child exits", "parent exits")


class Round:
    """One round: a parent process and its children."""

    def __init__(self, path: Path, child: str, order: str) -> None:
        self.url, self.child, self.order = f"sqlite:///{path}", child, order
        self.notes = os.open(path.with_suffix(".notes"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.opened, self.left = fork.Event(), fork.Event()

    def put(self, store: Store, id: str) -> None:
        store["things"].put(id, {"by": id})
        os.write(self.notes, f"{id}\n".encode())

    async def put_async(self, store: AsyncStore, id: str) -> None:
        await store["things"].put(id, {"by": id})
        os.write(self.notes, f"{id}\n".encode())

    def play_child(self, name: str = "child") -> None:
        """Write, wait until the parent has closed its store if it closes first, and write again."""
        if self.child == "async":
            asyncio.run(self.play_child_async(name))
            return
        store = Store(self.url)
        for number in range(5):
            self.put(store, f"{name} {number}")
        self.opened.set()
        if self.order in {"parent first", "parent exits"}:
            assert self.left.wait(60)
        for number in range(5, 15):
            self.put(store, f"{name} {number}")
        if self.order != "child exits":
            store.close()

    async def play_child_async(self, name: str) -> None:
        store = AsyncStore(self.url)
        await asyncio.gather(*(self.put_async(store, f"{name} {n}") for n in range(5)))
        self.opened.set()
        if self.order in {"parent first", "parent exits"}:
            assert await asyncio.to_thread(self.left.wait, 60)
        await asyncio.gather(*(self.put_async(store, f"{name} {n}") for n in range(5, 15)))
        if self.order != "child exits":
            await store.aclose()

    def play_sync(self, begin: Callable[[], Callable[[], None]], threads: int) -> None:
        store, stop = Store(self.url), threading.Event()
        self.put(store, "first")

        def write(thread: int) -> None:
            for number in count():
                if stop.is_set():
                    return
                self.put(store, f"thread {thread} {number}")

        writers = [threading.Thread(target=write, args=(thread,)) for thread in range(threads)]
        for each in writers:
            each.start()
        join = begin()
        for number in range(5):
            self.put(store, f"parent {number}")
        if self.order in {"child first", "child exits"}:
            join()
        else:
            assert self.opened.wait(60)
        self.put(store, "parent last")
        stop.set()
        for each in writers:
            each.join()
        if self.order != "parent exits":
            store.close()
        self.left.set()
        if self.order == "parent first":
            join()
        if self.order == "parent exits":
            os._exit(0)

    async def play_async(self, begin: Callable[[], Callable[[], None]]) -> None:
        store, stop = AsyncStore(self.url), False
        await self.put_async(store, "first")

        async def write(task: int) -> None:
            for number in count():
                if stop:
                    return
                await self.put_async(store, f"task {task} {number}")

        writers = [asyncio.create_task(write(task)) for task in range(3)]
        await asyncio.sleep(0.005)
        join = begin()
        if self.order in {"child first", "child exits"}:
            await asyncio.to_thread(join)
        else:
            assert await asyncio.to_thread(self.opened.wait, 60)
        stop = True
        await asyncio.gather(*writers)
        await self.put_async(store, "parent last")
        if self.order != "parent exits":
            await store.aclose()
        self.left.set()
        if self.order == "parent first":
            await asyncio.to_thread(join)
        if self.order == "parent exits":
            os._exit(0)

    def begin(self, how: str) -> Callable[[], None]:
        """Start a child; return a function that waits for its exit."""
        if how == "pool":
            pool = ProcessPoolExecutor(2, mp_context=fork, initializer=_take, initargs=(self,))
            jobs = [pool.submit(_play, name) for name in ("a", "b")]

            def join() -> None:
                for job in jobs:
                    job.result(60)
                pool.shutdown()

            return join
        if how == "multiprocessing":
            process = fork.Process(target=self.play_child)
            process.start()

            def wait() -> None:
                process.join(60)
                _fine(process.exitcode)

            return wait
        child = os.fork()
        if not child:
            _end(self.play_child, twice=how == "daemon")
        return lambda: _fine(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


_round: list[Round] = []


def _take(each: Round) -> None:
    _round.append(each)


def _play(name: str) -> None:
    _round[-1].play_child(name)


def _fine(code: int | None) -> None:
    assert code == 0, code


def _end(play: Callable[[], None], *, twice: bool = False) -> None:
    try:
        if twice:
            os.setsid()
            child = os.fork()
            if child:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        play()
    except BaseException:  # noqa: BLE001 - this process must end here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def play(path: Path, how: str, parent: str, child: str, order: str) -> None:
    """Play one round in this process."""
    each = Round(path, child, order)
    begin = partial(each.begin, how)
    if parent == "async":
        asyncio.run(each.play_async(begin))
    else:
        each.play_sync(begin, 2 if parent == "threads" else 0)


def judge(path: Path) -> tuple[int, int, str]:
    """Return the numbers of acknowledged and of lost writes, and the result of SQLite's integrity check."""
    with closing(sqlite3.connect(path)) as connection:
        [table] = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'cs_1%'"
        ).fetchone()
        stored = {id for (id,) in connection.execute(f"SELECT id FROM {table}")}
        [integrity] = connection.execute("PRAGMA integrity_check").fetchone()
    noted = set(path.with_suffix(".notes").read_text().splitlines())
    return len(noted), len(noted - stored), integrity


def main(folder: str, rounds: str, seed: str) -> None:
    """Play rounds of all kinds, in processes of their own."""
    plans = list(product(HOW, PARENTS, CHILDREN, ORDERS))
    plans = [plan for plan in plans if (plan[0], plan[-1]) != ("pool", "parent exits")]
    random.Random(int(seed)).shuffle(plans)
    acknowledged = lost = failed = 0
    for number in range(int(rounds)):
        plan = plans[number % len(plans)]
        path = Path(folder, f"{number}.db")
        everybody, held = os.pipe()
        family = fork.Process(target=play, args=(path, *plan))
        family.start()
        os.close(held)
        family.join(60)
        if family.exitcode != 0 or not select.select([everybody], [], [], 60)[0]:
            failed += 1
            print(plan, "ended with", family.exitcode, file=sys.stderr)
            family.kill()
        os.close(everybody)
        noted, missing, integrity = judge(path)
        acknowledged, lost = acknowledged + noted, lost + missing
        if missing or integrity != "ok":
            print(plan, f"{missing} of {noted} lost:", integrity, file=sys.stderr)
    print(f"acknowledged {acknowledged > 0}, lost {lost}, failed {failed}")


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    background.FORK_TIMEOUT = 30.0  # type: ignore[misc]
    main(*sys.argv[1:])
