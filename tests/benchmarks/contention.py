"""Writers that write at the same time, in threads or in processes: fixed work for each, one after another in the same run.

Each figure is the median of rounds that alternate between the bare driver and the store. CPU time is of this process, or the
sum over all writing processes; it says more than wall time on a machine that does other work.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from backends import Backend
from benchmarks.floors import floor_of
from benchmarks.measuring import ROUNDS, documents
from forked import Forked

from collections_store import Store

Put: TypeAlias = Callable[[str, Any], Any]
BODIES, IDS = 50, 100


@dataclass(frozen=True)
class Figures:
    """What writers did in a round: microseconds a write of wall time and of CPU time; the latency in milliseconds that 99 of
    100 writes kept; the time of the first writer to end, of the time of the last.
    """

    wall: float
    cpu: float
    p99: float
    fairness: float


@dataclass(frozen=True)
class Writer:
    """What one writer did: seconds, and the latency of each write."""

    seconds: float
    latencies: Sequence[float]


def write(put: Put, name: str, count: int) -> Writer:
    """Write `count` changed documents."""
    bodies, latencies = list(documents(BODIES)), []
    begun = time.perf_counter()
    for number in range(count):
        body = {**bodies[number % BODIES], "changed": begun + number}
        since = time.perf_counter()
        put(f"{name} {number % IDS}", body)
        latencies.append(time.perf_counter() - since)
    return Writer(time.perf_counter() - begun, latencies)


def figures(writers: Sequence[Writer], cpu: float) -> Figures:
    """Return the figures of writers that began at the same time."""
    latencies = sorted(itertools.chain.from_iterable(each.latencies for each in writers))
    seconds, count = [each.seconds for each in writers], len(latencies)
    return Figures(
        wall=max(seconds) / count * 1e6,
        cpu=cpu / count * 1e6,
        p99=latencies[int(count * 0.99)] * 1e3,
        fairness=min(seconds) / max(seconds),
    )


def by_threads(puts: Sequence[Put], count: int) -> Figures:
    """Write `count` documents by each function, each in its thread."""
    barrier, writers = threading.Barrier(len(puts) + 1), list[Writer]()

    def work(put: Put, name: str) -> None:
        barrier.wait()
        writers.append(write(put, name, count))

    threads = [
        threading.Thread(target=work, args=(put, f"thread {number}"))
        for number, put in enumerate(puts)
    ]
    for each in threads:
        each.start()
    cpu = time.process_time()
    barrier.wait()
    for each in threads:
        each.join()
    return figures(writers, time.process_time() - cpu)


def _writing_process(
    connection: Any, url: str, options: dict[str, Any], name: str, *, is_bare: bool
) -> None:
    """Write as many documents as each message says, and send what was done; end with None."""
    if is_bare:
        put: Put = floor_of(Backend("sqlite-file", url), options, "things").put
    else:
        put = Store(url, **options)["things"].put
    put(name, 0)
    connection.send(None)
    while (message := connection.recv()) is not None:
        count, begin = message
        time.sleep(max(0.0, begin - time.monotonic()))
        cpu = time.process_time()
        writer = write(put, name, count)
        connection.send((writer, time.process_time() - cpu))


@contextmanager
def processes(
    url: str, options: dict[str, Any], number: int, *, is_bare: bool
) -> Iterator[Callable[[int], Figures]]:
    """Return a function that writes `count` documents in each of some processes, on an SQLite file."""
    names = [f"process {each}" for each in range(number)]
    some = [Forked(_process_of(is_bare), url, options, name) for name in names]
    for each in some:
        each.connection.recv()

    def by_processes(count: int) -> Figures:
        begin = time.monotonic() + 0.02
        for each in some:
            each.connection.send((count, begin))
        answers = [each.connection.recv() for each in some]
        writers, cpu = zip(*answers, strict=True)
        return figures(writers, sum(cpu))

    try:
        yield by_processes
    finally:
        for each in some:
            each.end()


def _bare_process(connection: Any, url: str, options: dict[str, Any], name: str) -> None:
    _writing_process(connection, url, options, name, is_bare=True)


def _store_process(connection: Any, url: str, options: dict[str, Any], name: str) -> None:
    _writing_process(connection, url, options, name, is_bare=False)


def _process_of(is_bare: bool) -> Callable[..., None]:
    return _bare_process if is_bare else _store_process


def alternating(ways: dict[str, Callable[[], Figures]]) -> dict[str, Figures]:
    """Return the medians of the figures of each way."""
    rounds: dict[str, list[Figures]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name in list(ways) if number % 2 else list(ways)[::-1]:
            found = ways[name]()
            if number:  # the first one warms up
                rounds[name].append(found)
    return {
        name: Figures(*(statistics.median(getattr(each, field.name) for each in some)
                        for field in fields(Figures)))
        for name, some in rounds.items()
    }  # fmt: skip
