"""The number of frames and files of the package in a warm call: `python tests/benchmarks/frames.py`.

A frame is a call of a Python function of the package, in any thread. Each call is made twice before it is counted, and
then five times, of which the fewest are printed: a call that comes a while after another also looks at the file.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import collections_store
from collections_store import AsyncStore, Store

PACKAGE = str(Path(collections_store.__file__).parent)
REPEATS = 5


class Counter:
    """Counts the frames of the package, and their files, while it is `current`."""

    def __init__(self) -> None:
        self.frames, self.files = 0, set[str]()

    def __str__(self) -> str:
        return f"{self.frames} frames in {len(self.files)} files"

    def count(self, frame: FrameType) -> None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            self.frames += 1
            self.files.add(name)


current: list[Counter] = []


def profile(frame: FrameType, event: str, argument: Any) -> None:
    if current and event == "call":
        current[-1].count(frame)


@contextmanager
def counting() -> Iterator[Counter]:
    counter = Counter()
    current.append(counter)
    try:
        yield counter
    finally:
        current.clear()


def fewest(counters: list[Counter]) -> Counter:
    return min(counters, key=lambda counter: counter.frames)


def warm(call: Callable[[], object]) -> Counter:
    call()
    call()
    counters = []
    for _ in range(REPEATS):
        with counting() as counter:
            call()
        counters.append(counter)
    return fewest(counters)


async def warm_async(call: Callable[[], Awaitable[object]]) -> Counter:
    await call()
    await call()
    counters = []
    for _ in range(REPEATS):
        with counting() as counter:
            await call()
        counters.append(counter)
    return fewest(counters)


def transaction(store: Store) -> None:
    with store.transaction() as tx:
        tx["people"].put("tx", {"n": 1})


def measure(url: str) -> dict[str, Counter]:
    with Store(url) as store:
        people = store["people"]
        people.put("ada", {"name": "Ada", "n": 1})
        return {
            "get": warm(lambda: people.get("ada")),
            "put": warm(lambda: people.put("ada", {"name": "Ada", "n": 1})),
            "find": warm(lambda: people.find("name", "Ada")),
            "transaction of one put": warm(lambda: transaction(store)),
        }


async def measure_async(url: str) -> Counter:
    async with AsyncStore(url) as store:
        people = store.get_collection("people")
        update: dict[str, Any] = {"$inc": {"n": 1}}
        return await warm_async(lambda: people.update_one({"name": "Ada"}, update))


if __name__ == "__main__":
    threading.setprofile(profile)  # for worker threads of stores that are opened later
    sys.setprofile(profile)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/frames.db"
        for name, counter in measure(url).items():
            print(f"{name}: {counter}")
        print(f"async update_one: {asyncio.run(measure_async(url))}")
