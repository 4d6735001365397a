"""The programs that the fault tests run as processes of their own: `python programs.py NAME URL
OPTIONS-AS-JSON …`."""

import asyncio
import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from collections_store import AsyncStore, DatabaseUnavailable, Store, StoreClosed, migrate
from collections_store.operations import Connection, Get, Put


@dataclass(frozen=True)
class Increment:
    """Read a number and write it back, one more."""

    collection: str
    id: str
    pause: float = 0.0
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> int:
        number = int(Get(self.collection, self.id, 0)(connection))
        time.sleep(self.pause)
        Put(self.collection, self.id, str(number + 1))(connection)
        return number + 1


def increment(url: str, options: dict[str, Any], times: str) -> None:
    """Increment a counter."""
    with Store(url, **options) as store:
        for _ in range(int(times)):
            store.run(Increment("counters", "n"))


def increment_async(url: str, options: dict[str, Any], times: str) -> None:
    """Increment a counter from many tasks."""

    async def main() -> None:
        async with AsyncStore(url, **options) as store:
            await asyncio.gather(
                *(store.run(Increment("counters", "n")) for _ in range(int(times)))
            )

    asyncio.run(main())


def open_and_put(url: str, options: dict[str, Any], id: str, at: str) -> None:
    """Open a store at a given moment, and put something."""
    while time.time() < float(at):
        time.sleep(0.0005)
    with Store(url, **options) as store:
        store["things"].put(id, {"by": id})
        store[f"own_{id}"].put("x", 1)


def upgrade(url: str, options: dict[str, Any], at: str) -> None:
    """Upgrade a database at a given moment, and print what it was and is at."""
    while time.time() < float(at):
        time.sleep(0.0005)
    print(*migrate.upgrade(url, **options))


def put_and_tell(url: str, options: dict[str, Any]) -> None:
    """Put for ever, and print each id once it is acknowledged."""
    with Store(url, **options) as store:
        for number in range(10**9):
            store["things"].put(str(number), {"n": number})
            os.write(1, f"{number}\n".encode())


def put_and_tell_async(url: str, options: dict[str, Any]) -> None:
    """Put for ever from 16 tasks, and print each id once it is acknowledged."""

    async def work(store: AsyncStore, task: int) -> None:
        for number in range(10**9):
            await store["things"].put(f"{task}-{number}", {"n": number})
            os.write(1, f"{task}-{number}\n".encode())

    async def main() -> None:
        async with AsyncStore(url, **options) as store:
            await asyncio.gather(*(work(store, task) for task in range(16)))

    asyncio.run(main())


def hold_the_lock(url: str, options: dict[str, Any], seconds: str) -> None:
    """Keep a write transaction open."""
    with Store(url, **options) as store:
        store["things"].put("held", 0)
        print("holding", flush=True)
        store.run(Increment("things", "held", pause=float(seconds)))


def forget_it(url: str, options: dict[str, Any]) -> None:
    """Use stores, and end without closing them."""
    store = Store(url, **options)
    store["things"].put("sync", 1)

    async def main() -> AsyncStore:
        forgotten = AsyncStore(url, **options)
        await asyncio.gather(*(forgotten["things"].put(str(n), n) for n in range(20)))
        return forgotten

    forgotten = asyncio.run(main())
    print(repr(forgotten), flush=True)


def fork_it(url: str, options: dict[str, Any]) -> None:
    """Fork with an open store: an error in the child, nothing in the parent."""
    store = Store(url, **options)
    store["things"].put("a", 1)
    child = os.fork()
    if not child:
        try:
            store["things"].get("a")
        except StoreClosed as error:
            print(type(error).__name__, error, flush=True)
        with Store(url, **options) as own:
            own["things"].put("child", own["things"].get("a"))
        store.close()
        sys.exit(0)
    os.waitpid(child, 0)
    store["things"].put("b", 2)
    print(sorted(document.id for document in store["things"].list()), flush=True)
    store.close()


def fork_async(url: str, options: dict[str, Any]) -> None:
    """Fork with an open asynchronous store."""

    async def use(store: AsyncStore, id: str) -> None:
        await asyncio.gather(*(store["things"].put(f"{id} {n}", n) for n in range(5)))

    store = AsyncStore(url, **options)
    asyncio.run(use(store, "before"))
    child = os.fork()
    if not child:
        try:
            asyncio.run(use(store, "child"))
        except StoreClosed as error:
            print(type(error).__name__, error, flush=True)
        sys.exit(0)
    os.waitpid(child, 0)
    asyncio.run(use(store, "after"))
    print(store.get_sync_collection("things").count(), flush=True)
    asyncio.run(store.aclose())


def fork_after_a_failure(url: str, options: dict[str, Any], folder: str) -> None:
    """Fork with an asynchronous store whose first use failed: it may be used on both sides."""

    async def use(store: AsyncStore, id: str) -> int:
        return await asyncio.wait_for(store["things"].put(id, 1), 20)

    store = AsyncStore(url, **options)
    with suppress(DatabaseUnavailable):
        asyncio.run(use(store, "too early"))
    os.mkdir(folder)  # noqa: PTH102
    child = os.fork()
    if not child:
        print(asyncio.run(use(store, "child")), flush=True)
        asyncio.run(store.aclose())
        os._exit(0)
    os.waitpid(child, 0)
    print(asyncio.run(use(store, "parent")), flush=True)
    print(store.get_sync_collection("things").count(), flush=True)
    asyncio.run(store.aclose())


def write_recorded(url: str, options: dict[str, Any], name: str, times: str) -> None:
    """Write one collection from three threads, in all kinds of ways, some of which conflict."""

    def work(store: Store, thread: int) -> None:
        things = store["things"]
        for number in range(int(times)):
            things.change("shared", lambda count: count + 1, default=0)
            things.put(f"{name}-{thread}", number)
            things.put_many({f"{name}-{thread}-{n}": number for n in range(2)})
            with store.transaction() as tx:
                tx["things"].put(f"{name}-{thread}-t", number)
                tx["things"].remove(f"{name}-{thread}-t")

    with Store(url, **options) as store:
        threads = [threading.Thread(target=work, args=(store, thread)) for thread in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


def watch_and_tell(url: str, options: dict[str, Any], last: str) -> None:
    """Print each change until the object `last` is put."""
    with Store(url, **options) as store, store["things"].watch(after="oldest") as stream:
        for change in stream:
            print(change.kind, change.id, change.version, change.token, flush=True)
            if change.id == last:
                return


def put_recorded(url: str, options: dict[str, Any]) -> None:
    """Put what is recorded, for ever, and print each id once it is acknowledged."""
    with Store(url, **options) as store:
        for number in range(10**9):
            store["things"].put_many({f"{number}-{n}": n for n in range(3)})
            store["things"].put("counter", number)
            os.write(1, f"{number}\n".encode())


def forget_a_sweeper(url: str, options: dict[str, Any]) -> None:
    """Use a store that sweeps and a stream that waits, fork, and end without closing anything."""
    store = Store(url, sweep_interval=0.01, **options)
    things = store.get_sync_collection("things", changes=True)
    stream, waited_for = things.watch(), things.watch()
    threading.Thread(target=lambda: list(waited_for), daemon=True).start()
    child = os.fork()
    if not child:
        try:
            stream.try_next()
        except StoreClosed:
            with Store(url, **options) as own, own["things"].watch() as fresh:
                own["things"].put("child", 1)
                print(threading.active_count(), next(fresh).id, flush=True)
        sys.exit(0)
    os.waitpid(child, 0)
    print("parent", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]), *sys.argv[4:])
