"""Programs that the fault tests run in new processes: `python programs.py NAME URL OPTIONS-AS-JSON …`."""

import asyncio
import gc
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count as count_from
from typing import Any

from collections_store import (
    AsyncStore,
    AsyncTransaction,
    CopyProgress,
    DatabaseUnavailable,
    DuplicateKey,
    InsertOne,
    Store,
    StoreClosed,
    Transaction,
    TransactionConflict,
    UpdateOne,
    VersionConflict,
    migrate,
)
from collections_store.engine import notifier
from collections_store.engine.jobs import Flag
from collections_store.operations.by_id import Get, Put
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session


@dataclass(frozen=True)
class Increment(Operation[int]):
    """Read a number and write it back, incremented."""

    collection: str
    id: str
    pause: float = 0.0
    writes = True
    creates_collection = True

    def __call__(self, session: Session) -> int:
        number = int(Get(self.collection, self.id, 0)(session))
        time.sleep(self.pause)
        Put(self.collection, self.id, str(number + 1))(session)
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


def remember(url: str, options: dict[str, Any], times: str) -> None:
    """Increment a value of a memory, add it to a set, and compete to write a key first."""
    with Store(url, **options) as store:
        memory = store.memory("bot").namespace("counts")
        for _ in range(int(times)):
            name = f"{os.getpid()}/{memory.increment('n')}"
            memory.change("names", {name}.union, default=set())
        with suppress(VersionConflict):
            memory.put("first", "won", if_absent=True)
            memory.put(f"won/{os.getpid()}", True)


def transact(url: str, options: dict[str, Any], times: str) -> None:
    """Increment a counter, each time in a transaction."""

    def increment(tx: Transaction) -> None:
        tx["counters"].put("n", tx["counters"].get("n", 0) + 1)

    with Store(url, **options) as store:
        for _ in range(int(times)):
            store.run_transaction(increment, attempts=200)


def transact_async(url: str, options: dict[str, Any], times: str) -> None:
    """Increment a counter from many tasks, each in a transaction."""

    async def increment(tx: AsyncTransaction) -> None:
        await tx["counters"].put("n", await tx["counters"].get("n", 0) + 1)

    async def main() -> None:
        async with AsyncStore(url, **options) as store:
            calls = (store.run_transaction(increment, attempts=200) for _ in range(int(times)))
            await asyncio.gather(*calls)

    asyncio.run(main())


def hold_transaction_open(url: str, options: dict[str, Any]) -> None:
    """Commit one transaction, and wait in the next until killed."""
    with Store(url, **options) as store:
        with store.transaction() as tx:
            tx["things"].put_many({"a": 1, "b": 1})
        with store.transaction() as tx:
            tx["things"].put_many({"a": 2, "b": 2, "c": 2})
            tx["new"].put("x", 1)
            print("within", flush=True)
            time.sleep(1000)


def fork_in_transaction(url: str, options: dict[str, Any]) -> None:
    """Fork within a transaction: an error in the child, nothing in the parent."""
    store = Store(url, **options)
    child = -1
    try:
        with store.transaction() as tx:
            tx["things"].put("a", 1)
            child = os.fork()
            if not child:
                try:
                    tx["things"].get("a")
                except StoreClosed as error:
                    print(type(error).__name__, error, flush=True)
            else:
                os.waitpid(child, 0)
                tx["things"].put("b", 2)
    except StoreClosed:
        assert child == 0
        print("not committed", flush=True)
        del tx
        gc.collect()
        sys.exit(0)
    print(sorted(document.id for document in store["things"].list()), flush=True)
    store.close()


def fork_in_async_transaction(url: str, options: dict[str, Any]) -> None:
    """Fork within an async transaction."""

    async def main() -> None:
        async with AsyncStore(url, **options) as store:
            child = -1
            try:
                async with store.transaction() as tx:
                    await tx["things"].put("a", 1)
                    child = os.fork()
                    if child:
                        os.waitpid(child, 0)  # noqa: ASYNC222 - there are no other tasks
                    await tx["things"].put("b", 2)
            except StoreClosed as error:
                assert child == 0
                print(type(error).__name__, error, flush=True)
                os._exit(0)
            print(await store["things"].count(), flush=True)

    asyncio.run(main())


def open_and_put(url: str, options: dict[str, Any], id: str, at: str) -> None:
    """Open a store at a given time, and put a document."""
    while time.time() < float(at):
        time.sleep(0.0005)
    with Store(url, **options) as store:
        store["things"].put(id, {"by": id})
        store[f"own_{id}"].put("x", 1)


def upgrade(url: str, options: dict[str, Any], at: str) -> None:
    """Upgrade a database at a given time, and print the old and new revision."""
    while time.time() < float(at):
        time.sleep(0.0005)
    print(*migrate.upgrade(url, **options))


def put_and_print(url: str, options: dict[str, Any]) -> None:
    """Put until killed, and print each acknowledged id."""
    with Store(url, **options) as store:
        for number in range(10**9):
            store["things"].put(str(number), {"n": number})
            os.write(1, f"{number}\n".encode())


def put_and_print_async(url: str, options: dict[str, Any]) -> None:
    """Put from 16 tasks until killed, and print each acknowledged id."""

    async def work(store: AsyncStore, task: int) -> None:
        for number in range(10**9):
            await store["things"].put(f"{task}-{number}", {"n": number})
            os.write(1, f"{task}-{number}\n".encode())

    async def main() -> None:
        async with AsyncStore(url, **options) as store:
            await asyncio.gather(*(work(store, task) for task in range(16)))

    asyncio.run(main())


def hold_lock(url: str, options: dict[str, Any], seconds: str) -> None:
    """Keep a write transaction open."""
    with Store(url, **options) as store:
        store["things"].put("held", 0)
        print("holding", flush=True)
        store.run(Increment("things", "held", pause=float(seconds)))


def exit_without_closing(url: str, options: dict[str, Any]) -> None:
    """Use stores, and exit without closing them."""
    store = Store(url, **options)
    store["things"].put("sync", 1)

    async def main() -> AsyncStore:
        forgotten = AsyncStore(url, **options)
        await asyncio.gather(*(forgotten["things"].put(str(n), n) for n in range(20)))
        return forgotten

    forgotten = asyncio.run(main())
    print(repr(forgotten), flush=True)


def fork_open_store(url: str, options: dict[str, Any]) -> None:
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


def fork_open_async_store(url: str, options: dict[str, Any]) -> None:
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


def put_one_more(store: Store, id: str) -> None:
    """Increment by reading, and writing with `if_version` until it succeeds."""
    while True:
        found = store["counters"].document(id)
        try:
            if found is None:
                store["counters"].put(id, {"n": 1}, if_absent=True)
            else:
                body = {"n": found.body["n"] + 1}
                store["counters"].put(id, body, if_version=found.version)
        except VersionConflict:
            continue
        return


def count_in_a_transaction(store: Store, id: str) -> None:
    """Increment by reading and writing in one transaction."""

    def work(transaction: Any) -> None:
        number = transaction["counters"].get(id, {"n": 0})["n"]
        transaction["counters"].put(id, {"n": number + 1})

    store.run_transaction(work, attempts=1000)


def one_more(body: Any) -> Any:
    return {"n": body["n"] + 1}


METHODS: dict[str, Callable[[Store, str], Any]] = {
    "change": lambda store, own: store["counters"].change(own, one_more, default={"n": 0}),
    "increment": lambda store, own: store["counters"].increment(own, "n"),
    "update": lambda store, own: store["counters"].update(own, {"$inc": {"n": 1}}, upsert=True),
    "update_many": lambda store, own: store["counters"].update_many(
        {"$id": own}, {"$inc": {"n": 1}}, upsert=True
    ),
    "find_one_and_update": lambda store, own: store["counters"].find_one_and_update(
        {"$id": own}, {"$inc": {"n": 1}}, upsert=True
    ),
    "bulk_write": lambda store, own: store["counters"].bulk_write(
        [UpdateOne({"$id": own}, {"$inc": {"n": 1}}, upsert=True)]
    ),
    "put": put_one_more,
    "transaction": count_in_a_transaction,
}
"""Calls that increment the counter with the id `own`, by method."""


def count(url: str, options: dict[str, Any], threads: str, times: str) -> None:
    """Increment counters by every method, from many threads."""
    with Store(url, **options) as store, ThreadPoolExecutor(int(threads)) as pool:
        for method, work in METHODS.items():
            list(
                pool.map(lambda _, method=method, work=work: work(store, method), range(int(times)))
            )


def take_jobs(url: str, options: dict[str, Any], worker: str) -> None:
    """Take jobs until there are none, with several threads, and print their ids."""

    def work(store: Store) -> list[str]:
        taken = []
        update = {"$set": {"state": "taken", "by": worker}}
        while (job := store["jobs"].find_one_and_update({"state": "new"}, update)) is not None:
            taken.append(job.id)
        return taken

    with Store(url, **options) as store, ThreadPoolExecutor(3) as pool:
        print(json.dumps([job for taken in pool.map(work, [store] * 3) for job in taken]))


def delete_jobs(url: str, options: dict[str, Any]) -> None:
    """Take jobs by deleting them, and print their ids."""
    taken = []
    with Store(url, **options) as store:
        while (job := store["jobs"].find_one_and_delete({}, sort=[("n", -1)])) is not None:
            taken.append(job.id)
    print(json.dumps(taken))


def write_overlapping(url: str, options: dict[str, Any], seed: str) -> None:
    """Write the same documents as other processes, in another order; print how many were written."""
    ids = [str(number) for number in range(60)]
    random.Random(seed).shuffle(ids)
    # Each deadlock takes PostgreSQL a second to detect, and more on a loaded machine.
    with Store(url, **{**options, "busy_timeout": 60.0}) as store:
        total = store["things"].put_many((id, {"by": seed}) for id in ids).written_count
        total += store["things"].put_many({id: {} for id in ids}, atomic=True).written_count
        counting = [UpdateOne({"$id": id}, {"$inc": {"n": 1}}, upsert=True) for id in ids]
        done = store["counters"].bulk_write(counting)
    print(total + done.modified_count + done.upserted_count)


def insert_the_same(url: str, options: dict[str, Any]) -> None:
    """Insert the same ids as other processes by each method; print those that this process inserted."""
    ours: dict[str, list[str]] = {"insert_one": [], "put": [], "bulk_write": []}
    with Store(url, **options) as store:
        for number in range(30):
            id = str(number)
            with suppress(DuplicateKey):
                ours["insert_one"].append(store["insert_one"].insert_one({}, id=id).inserted_id)
            with suppress(VersionConflict):
                store["put"].put(id, {}, if_absent=True)
                ours["put"].append(id)
            with suppress(DuplicateKey):
                store["bulk_write"].bulk_write([InsertOne({}, id=id)], atomic=True)
                ours["bulk_write"].append(id)
    print(json.dumps(ours))


def upsert_the_same(url: str, options: dict[str, Any]) -> None:
    """Upsert one document for each value; print how many were inserted."""
    inserted = 0
    with Store(url, **options) as store:
        for number in range(30):
            done = store["unique"].update_one({"k": number}, {"$inc": {"n": 1}}, upsert=True)
            inserted += done.upserted_id is not None
    print(inserted)


def to_list(body: Any) -> Any:
    """Upgrade a document of the test."""
    return {"n": [body["n"]]}


def upgrade_documents(url: str, options: dict[str, Any]) -> None:
    """Upgrade the documents, and print a line after each batch."""
    with Store(url, **options) as store:
        things = store.collection("things", schema_version=2, upgrades={1: to_list})
        things.upgrade_documents(progress=lambda done, _: os.write(1, f"{done}\n".encode()))


def put_batches(url: str, options: dict[str, Any]) -> None:
    """Write 100,000 documents, and print a line before each thousand."""

    def given() -> Any:
        for number in range(100_000):
            if not number % 1000:
                os.write(1, f"{number}\n".encode())
            yield str(number), {"n": number}

    with Store(url, **options) as store:
        store["things"].put_many(given())


def write_words(url: str, options: dict[str, Any], seed: str) -> None:
    """Write, change and delete documents with words, until the process is killed; print a line after the first write."""
    chance = random.Random(seed)
    with Store(url, **{**options, "busy_timeout": 60.0}) as store:
        notes = store["notes"]
        for number in count_from(0):
            ids = [str(chance.randrange(400)) for _ in range(5)]
            word = f"w{chance.randrange(7)}"
            notes.put(ids[0], {"t": f"{word} new", "in": [{"t": word}, {"t": ["x", "é"]}]})
            if number == 0:
                os.write(1, b"written\n")
            notes.put_many(
                {id: {"t": f"many {word}"} for id in sorted(ids)}, atomic=bool(number % 2)
            )
            notes.update_many({"$id": {"$in": ids[:2]}}, {"$set": {"t": f"changed {word}"}})
            notes.remove(ids[3])
            with suppress(KeyError, TransactionConflict), store.transaction() as tx:
                tx["notes"].put(ids[4], {"t": f"{word} old"})
                if number % 3 == 0:
                    raise KeyError


def numbers_in(texts: list[str]) -> list[list[float]]:
    """Embed texts such as "3 4"."""
    return [[float(each) for each in text.split()] for text in texts]


def write_vectors(url: str, options: dict[str, Any], seed: str) -> None:
    """Write, change, delete and search documents with vectors, until the process is killed; print a line after the first
    round.
    """
    chance = random.Random(seed)

    def body() -> dict[str, Any]:
        x, y = chance.randrange(50), chance.randrange(50)
        return {"at": [x, y], "text": f"{x} {y}"}

    with Store(url, **{**options, "busy_timeout": 60.0}) as store:
        points = store["points"]
        of_text: Any = {"dimensions": 2, "metric": "l2", "embed": numbers_in, "model": "numbers"}
        points.create_vector_index("text", **of_text)
        for number in count_from(0):
            ids = [str(chance.randrange(60)) for _ in range(4)]
            points.put(ids[0], body())
            points.put_many({id: body() for id in sorted(ids)}, atomic=bool(number % 2))
            points.update(ids[1], {"$set": body()})
            points.remove(ids[2])
            with suppress(KeyError, TransactionConflict), store.transaction() as tx:
                tx["points"].remove(ids[3])
                tx["points"].put(ids[3], body())
                if number % 3 == 0:
                    raise KeyError
            for index in points.indexes():
                points.nearest([0, 0], 5, index=index.name)
            if number == 0:
                os.write(1, b"written\n")


def bulk_atomically(url: str, options: dict[str, Any]) -> None:
    """Execute 100,000 requests atomically, and print a line before each 500."""

    def given() -> Any:
        for number in range(100_000):
            if not number % 500:
                os.write(1, f"{number}\n".encode())
            yield InsertOne({"n": number})

    with Store(url, **options) as store:
        store["things"].bulk_write(given(), atomic=True)


def put_atomically(url: str, options: dict[str, Any]) -> None:
    """Write 100,000 documents atomically, and print a line before each thousand."""

    def given() -> Any:
        for number in range(100_000):
            if not number % 1000:
                os.write(1, f"{number}\n".encode())
            yield str(number), {"n": number}

    with Store(url, **options) as store:
        store["things"].put_many(given(), atomic=True)


def update_repeatedly(url: str, options: dict[str, Any]) -> None:
    """Increment every document repeatedly, and print a line before each time."""
    with Store(url, **options) as store:
        while True:
            os.write(1, b"again\n")
            store["things"].update_many({}, {"$inc": {"n": 1}})


def write_recorded(url: str, options: dict[str, Any], name: str, times: str) -> None:
    """Write one collection from three threads, by several methods, some of which conflict."""

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


def watch_and_print(url: str, options: dict[str, Any], last: str) -> None:
    """Print each change until the document `last` is put."""
    with Store(url, **options) as store, store["things"].watch(after="oldest") as stream:
        for change in stream:
            print(change.kind, change.id, change.version, change.token, flush=True)
            if change.id == last:
                return


def put_recorded(url: str, options: dict[str, Any]) -> None:
    """Put recorded documents until killed, and print each acknowledged number."""
    with Store(url, **options) as store:
        for number in range(10**9):
            store["things"].put_many({f"{number}-{n}": n for n in range(3)})
            store["things"].put("counter", number)
            os.write(1, f"{number}\n".encode())


def exit_with_sweeper(url: str, options: dict[str, Any]) -> None:
    """Use a store with a sweeper and a waiting stream, fork, and exit without closing anything."""
    notifier.POLL_INTERVAL = 3600.0  # type: ignore[misc]  # what waits shall sleep when the process is forked
    asleep = threading.Event()

    class Alarm(Flag):
        def wait(self, timeout: float | None = None) -> bool:
            asleep.set()
            return super().wait(timeout)

    store = Store(url, sweep_interval=0.01, **options)
    things = store.get_sync_collection("things", changes=True)
    stream, waited_for = things.watch(), things.watch()
    waited_for._woken = Alarm()
    threading.Thread(target=lambda: list(waited_for), daemon=True).start()
    asleep.wait()
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


def copy_until(url: str, options: dict[str, Any], other: str, last: str) -> None:
    """Copy a store to another one, and print when `last` documents are written; then wait to be killed."""

    def report(progress: CopyProgress) -> None:
        if progress.done >= int(last):
            print(progress.done, flush=True)
            time.sleep(1000)

    with (
        Store(url, **options) as store,
        Store(*json.loads(other)[:1], **json.loads(other)[1]) as to,
    ):
        store.copy_to(to, progress=report)


def back_up_until(url: str, options: dict[str, Any], path: str, last: str) -> None:
    """Back up a store, and print when `last` documents or pages are written; then wait to be killed."""

    def report(progress: CopyProgress) -> None:
        if progress.done >= int(last):
            print(progress.done, flush=True)
            time.sleep(1000)

    with Store(url, **options) as store:
        store.backup(path, progress=report)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]), *sys.argv[4:])
