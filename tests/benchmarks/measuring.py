"""Measurements: alternating rounds, medians, ratios, and the table of results.

Rounds alternate between the floor and the others, so that whatever else the machine does meets all of them. The
floor is the bare driver doing the same work. Only ratios are worth reading; nothing is asserted. CPU times are those of this
process, user and system: of all its threads. Those of a PostgreSQL server are added where `cpu` is `cpu_of` its connections.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import itertools
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from benchmarks import charts
from dialogues.scripts import DATA

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))
WARM_UP = 2
SIZE = 1024
"""Bytes of JSON that a document has, about."""
REPORT = "BENCH_REPORT"
"""The environment variable that names the folder where the table and its pictures are kept."""


@dataclass(frozen=True)
class Result:
    """A line of the table: the name, the times of the floor and of the library, and the ratio to reach; the ratio of CPU times."""

    group: str
    what: str
    who: str
    floor: float
    took: float
    ratio: float
    reach: str = ""
    unit: str = "µs"
    cpu: float | None = None


def documents(count: int) -> Iterator[dict[str, Any]]:
    """Yield documents of about 1 KB: truncated real dialogues, or generated ones if there are none."""
    bodies = itertools.cycle(cut_dialogues())
    for number, body in zip(range(count), bodies, strict=False):
        yield {"n": number, "bucket": number // 20, **body}


@functools.cache  # reading them while others write would disturb these
def cut_dialogues() -> list[dict[str, Any]]:
    """Return a dialogue truncated to `SIZE`."""
    if not DATA.is_file():
        turns = [
            {"speaker": "USER", "utterance": f"I would like to eat at {n}."} for n in range(16)
        ]
        return [{"dialogue_id": f"made up {n}", "turns": turns} for n in range(50)]
    with gzip.open(DATA) as lines:
        return [_cut(json.loads(line)) for line in lines]


def _cut(dialogue: dict[str, Any]) -> dict[str, Any]:
    header = {name: each for name, each in dialogue.items() if name != "turns"}
    left = SIZE - len(orjson.dumps(header))
    turns = []
    for turn in dialogue["turns"]:
        shortened = {"speaker": turn["speaker"], "utterance": turn["utterance"]}
        left -= len(orjson.dumps(shortened))
        if left < 0:
            break
        turns.append(shortened)
    return {**header, "turns": turns}


class Compared(NamedTuple):
    """The medians of all rounds: the microseconds of the floor and of the other, and the ratios of their times and CPU times."""

    floor: float
    took: float
    ratio: float
    cpu: float


def compare(
    floor: Callable[[], Any],
    others: dict[str, Callable[[], Any]],
    *,
    per: int,
    cpu: Callable[[], float] = time.process_time,
) -> dict[str, Compared]:
    """Return the medians for each of the others. Each function does something `per` times."""
    everyone = {"": floor, **others}
    rounds: list[dict[str, tuple[float, float]]] = []
    for number in range(ROUNDS + WARM_UP):
        order = list(everyone) if number % 2 else list(everyone)[::-1]
        rounds.append({name: _both_times(everyone[name], cpu) for name in order})
    counted = rounds[WARM_UP:]

    def median(of: Callable[[dict[str, tuple[float, float]]], float]) -> float:
        return statistics.median(of(each) for each in counted)

    return {
        name: Compared(
            median(lambda each: each[""][0]) / per * 1e6,
            median(lambda each: each[name][0]) / per * 1e6,  # noqa: B023
            median(lambda each: each[name][0] / each[""][0]),  # noqa: B023
            median(lambda each: each[name][1] / each[""][1]),  # noqa: B023
        )
        for name in others
    }


def timed(function: Callable[[], Any]) -> float:
    """Return how many seconds a call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def _both_times(function: Callable[[], Any], cpu: Callable[[], float]) -> tuple[float, float]:
    """Return how many seconds a call takes, and how many of the CPU."""
    used = cpu()
    took = timed(function)
    return took, cpu() - used


def cpu_of(connection: Any) -> Callable[[], float]:
    """Return a clock of the CPU seconds of this process, and of the open connections to a PostgreSQL server on this Linux. `connection` is
    one of psycopg. Processes that work for these connections in parallel do not count: `without_parallel_workers` first.
    """
    sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    folders = [Path(f"/proc/{pid}") for (pid,) in connection.execute(sql)]
    if not all((each / "comm").read_text().startswith("postgres") for each in folders):
        raise OSError("the server must run on this machine, outside of a container")

    def clock() -> float:
        times = (int((each / "schedstat").read_text().split()[0]) for each in folders)
        return time.process_time() + sum(times) / 1e9

    return clock


def without_parallel_workers(url: str) -> None:
    """Let later connections of this user to a PostgreSQL server work in one process each."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER ROLE CURRENT_USER SET max_parallel_workers_per_gather = 0")


def again(function: Callable[[], Any], times: int) -> Callable[[], None]:
    """Return a function that calls another `times` times."""

    def all_times() -> None:
        for _ in range(times):
            function()

    return all_times


def run_async(
    runner: asyncio.Runner, function: Callable[[], Awaitable[Any]], times: int
) -> Callable[[], None]:
    """Return a coroutine function that awaits another `times` times."""

    async def all_times() -> None:
        for _ in range(times):
            await function()

    return lambda: runner.run(all_times())


class Table:
    """The table of results."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.results: list[Result] = []

    def add(self, *results: Result) -> None:
        """Print and collect lines."""
        for each in results:
            times = (
                f"floor {each.floor:10.1f}   {each.took:10.1f} {each.unit}" if each.floor else ""
            )
            self._tell(f"  {each.group + ', ' + each.what + ': ' + each.who:<58} {times:<36}"
                       f" {each.ratio:8.2f} {each.cpu or 0.0:8.2f}   {each.reach}")  # fmt: skip
            self.results.append(each)

    def compare(
        self,
        group: str,
        what: str,
        floor: Callable[[], Any],
        others: dict[str, Callable[[], Any]],
        *,
        per: int,
        reach: str = "",
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """Measure the floor, the library and perhaps others, each doing something `per` times."""
        for who, each in compare(floor, others, per=per, cpu=cpu).items():
            aim = reach if who == "ours" else ""
            self.add(Result(group, what, who, each.floor, each.took, each.ratio, aim, cpu=each.cpu))

    def keep(self, folder: Path) -> None:
        """Write the charts and the results, with those of earlier runs that were not measured again."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "results.json"
        old = [Result(**each) for each in json.loads(path.read_text())] if path.exists() else []
        new = {(each.group, each.what, each.who): each for each in [*old, *self.results]}
        results = list(new.values())
        path.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")
        charts.write(folder, results)
