"""Failovers under load: threads and tasks write while a primary ends and its standby takes over."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from faults.losing import Proxy
from postgres_cluster import Cluster, Node, wait_until

from collections_store import AsyncStore, DatabaseUnavailable, Store


def with_document(cluster: Cluster) -> tuple[Node, Node]:
    """Add a primary that has one document, and a standby that has replayed it."""
    primary = cluster.add()
    with Store(primary.url) as store:
        store["things"].put("a", 1)
    standby = cluster.add(primary)
    primary.wait_for(standby)
    return primary, standby


@dataclass
class Notes:
    """What a writer was told: ids that were put, increments that took place, and what may have taken place."""

    put: list[str] = field(default_factory=list)
    increments: int = 0
    in_doubt: int = 0
    last: float = 0.0
    """The time of the last acknowledgement."""
    errors: Counter[str] = field(default_factory=Counter)

    def fail(self, error: Exception) -> None:
        self.in_doubt += bool(getattr(error, "in_doubt", False))
        self.errors[f"{type(error).__name__}: {error}"] += not getattr(error, "in_doubt", False)


class Load:
    """Threads that write through a `Store`, and tasks that write through an `AsyncStore`, until `stop`, with a pause of so
    many seconds between two writes of each.
    """

    def __init__(self, url: str, threads: int, tasks: int, pause: float, **options: Any) -> None:
        self.url, self.pause, self.options = url, pause, options
        self.notes = {f"thread{n}": Notes() for n in range(threads)}
        self.notes |= {f"task{n}": Notes() for n in range(tasks)}
        self._stopped = threading.Event()
        with Store(url) as store:
            for name in self.notes:
                store["counters"].put(name, {"n": 0})
            store["things"].put("first", {})
        self._threads = [
            threading.Thread(target=self._write_in_threads, args=(threads,), daemon=True),
            threading.Thread(target=lambda: asyncio.run(self._write_in_tasks(tasks)), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _write_in_threads(self, size: int) -> None:
        with Store(self.url, **self.options) as store:
            names = [f"thread{n}" for n in range(size)]
            writers = [threading.Thread(target=self._write, args=(store, name)) for name in names]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()

    def _write(self, store: Store, name: str) -> None:
        notes, number = self.notes[name], 0
        while not self._stopped.is_set():
            number += 1
            try:
                store["things"].put(f"{name}-{number}", {"n": number})
                notes.put.append(f"{name}-{number}")
                store["counters"].increment(name, "n")
                notes.increments += 1
                notes.last = time.monotonic()
                time.sleep(self.pause)
            except DatabaseUnavailable as error:
                notes.fail(error)

    async def _write_in_tasks(self, size: int) -> None:
        async with AsyncStore(self.url, **self.options) as store:
            await asyncio.gather(*(self._awrite(store, f"task{n}") for n in range(size)))

    async def _awrite(self, store: AsyncStore, name: str) -> None:
        notes, number = self.notes[name], 0
        while not self._stopped.is_set():
            number += 1
            try:
                await store["things"].put(f"{name}-{number}", {"n": number})
                notes.put.append(f"{name}-{number}")
                await store["counters"].increment(name, "n")
                notes.increments += 1
                notes.last = time.monotonic()
                await asyncio.sleep(self.pause)
            except DatabaseUnavailable as error:
                notes.fail(error)

    def all_wrote_since(self, moment: float) -> bool:
        """Return whether each writer has an acknowledgement since a moment."""
        return all(notes.last > moment for notes in self.notes.values())

    def wait_for_all(self, moment: float) -> float:
        """Wait until each writer has an acknowledgement since a moment; return the seconds that took."""
        wait_until(lambda: self.all_wrote_since(moment), "all threads and tasks write")
        return max(notes.last for notes in self.notes.values()) - moment

    def stop(self) -> None:
        """End the threads and tasks, and close the stores."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "a thread or task is stuck"

    def check(self, url: str) -> None:
        """Check that nothing acknowledged is lost, and that nothing was written twice."""
        with Store(url) as store:
            stored = {document.id for document in store["things"].find()}
            for name, notes in self.notes.items():
                assert not {*notes.put} - stored, f"{name}: lost"
                counted = store["counters"].get(name)["n"]
                assert notes.increments <= counted <= notes.increments + notes.in_doubt, name
                assert not +notes.errors, notes.errors

    @property
    def acknowledged(self) -> int:
        return sum(len(notes.put) + notes.increments for notes in self.notes.values())


@dataclass
class Pair:
    """A primary and its synchronous standby, under load. `proxy`: where the load has one address, which leads to a node."""

    primary: Node
    standby: Node
    load: Load
    proxy: Proxy | None = None

    def lead_to(self, node: Node) -> None:
        """Lead the one address to a node, as a proxy or DNS does."""
        if self.proxy is not None:
            self.proxy.lead_to(node.url)


Fault = Callable[[Pair], Node]
"""Lets a node fail; returns the node that can write afterwards."""


def kill(pair: Pair) -> Node:
    """A power cut."""
    pair.primary.kill()
    return promoted(pair)


def shut_down(pair: Pair) -> Node:
    """The primary is stopped, as for an upgrade."""
    pair.primary.shut_down()
    return promoted(pair)


def freeze(pair: Pair) -> Node:
    """The primary hangs: it accepts connections, and is silent."""
    pair.primary.freeze()
    return promoted(pair)


def demote(pair: Pair) -> Node:
    """The primary comes back at its own address, as a standby; a proxy still leads there for a while."""
    pair.primary.shut_down()
    pair.standby.promote()
    pair.primary.start(pair.standby)
    wait_until(
        lambda: (
            pair.primary.query(
                "SELECT count(*) > 1 FROM pg_stat_activity WHERE usename = 'postgres'"
            )
            == [(True,)]
            if pair.proxy is not None
            else True
        ),
        "the load reaches the standby",
    )
    pair.lead_to(pair.standby)
    return pair.standby


def lose_standby(pair: Pair) -> Node:
    """The standby is away: nothing is acknowledged until it is back."""
    pair.standby.shut_down()
    wait_until(
        lambda: all(notes.in_doubt for notes in pair.load.notes.values()), "all writes are in doubt"
    )
    pair.standby.start(pair.primary)
    return pair.primary


def promoted(pair: Pair) -> Node:
    pair.standby.promote()
    pair.lead_to(pair.standby)
    return pair.standby


FAULTS: dict[str, Fault] = {
    each.__name__: each for each in (kill, shut_down, freeze, demote, lose_standby)
}


def fail_over(
    cluster: Cluster,
    fault: Fault,
    threads: int,
    tasks: int,
    *,
    pause: float = 0.0,
    by_proxy: bool = False,
    **options: Any,
) -> tuple[Load, float]:
    """Let a node fail under load; return the load, and the seconds from when a node can write until all wrote again."""
    primary = cluster.add()
    standby = cluster.add(primary)
    primary.synchronise_with(standby)
    proxy = Proxy(primary.url) if by_proxy else None
    url = cluster.url if proxy is None else f"{proxy.url}?"
    load = Load(f"{url}&connect_timeout=2", threads, tasks, pause, **options)
    try:
        load.wait_for_all(time.monotonic())
        writable = fault(Pair(primary, standby, load, proxy))
        seconds = load.wait_for_all(time.monotonic())
    finally:
        load.stop()
        if proxy is not None:
            proxy.close()
    load.check(writable.url)
    return load, seconds
