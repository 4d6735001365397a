"""The time of reads from a replica, of writes beside it, and of reads after writes: `python tests/benchmarks/replicas.py`.

Starts a primary and a replica on this machine. The rounds of the calls are in random order; the times are medians of rounds.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from postgres_cluster import Cluster, cluster, template, wait_until

from collections_store import Store
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session

ROUNDS, CALLS = 40, 50


class Port(Operation[int]):
    """The port of the server that an operation runs on."""

    collection = "people"
    atomic = True

    def __call__(self, session: Session) -> int:
        [(port,)] = session.rows("SELECT inet_server_port()")
        return int(port)


def timed(calls: dict[str, Callable[[], object]], ready: Callable[[], object]) -> dict[str, float]:
    """Return the microseconds of each call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in random.sample([*calls], len(calls)):
            call = calls[name]
            ready()
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begun) / CALLS * 1e6)
    return {name: median(each) for name, each in times.items()}


def measure(nodes: Cluster) -> None:
    primary = nodes.add()
    replica = nodes.add(primary)
    with Store(primary.url) as plain, Store(primary.url, replicas=replica.url) as store:
        people, alone = store["people"], plain["people"]
        people.put_many({str(n): {"n": n, "name": "Ada"} for n in range(1000)})
        people.create_index("n")
        strong = people.with_options(consistency="strong")
        eventual = people.with_options(consistency="eventual")

        def put_and(read: Any) -> Callable[[], object]:
            return lambda: (people.put("1", {"n": 1}), read("1"))

        calls = {
            "get, no replicas": lambda: alone.get("7"),
            "get, session": lambda: people.get("7"),
            "get, eventual": lambda: eventual.get("7"),
            "find, no replicas": lambda: alone.find("n", 7),
            "find, session": lambda: people.find("n", 7),
            "put, no replicas": lambda: alone.put("1", {"n": 1}),
            "put": lambda: people.put("1", {"n": 1}),
            "put and get, no replicas": lambda: (alone.put("1", {"n": 1}), alone.get("1")),
            "put and get, strong": put_and(strong.get),
            "put and get, session": put_and(people.get),
            "put and get, eventual": put_and(eventual.get),
        }
        for name, taken in timed(
            calls,
            lambda: wait_until(lambda: store.run(Port(), "session") == replica.port, "caught up"),
        ).items():
            print(f"{name}: {taken:.0f} us")
        after_writes = Counter[bool]()
        for n in range(2000):
            people.put("1", {"n": n})
            after_writes[store.run(Port(), "session") == replica.port] += 1
        print(f"reads right after a write on the replica: {after_writes[True]} of 2000")
        stale = 0
        for n in range(2000):
            people.put("1", {"n": n})
            stale += eventual.get("1") != {"n": n}
        print(f"stale eventual reads right after a write: {stale} of 2000")


if __name__ == "__main__":
    with template() as data, cluster(data) as nodes:
        measure(nodes)
