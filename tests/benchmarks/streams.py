"""The memory of a streaming call, in a process of its own: `python tests/benchmarks/streams.py CALL COUNT SETTINGS` prints a line of JSON.

`SETTINGS` is JSON: the `url` and the `options` of a store, and a `folder` for files. `prepare` fills the store. Before the
measurement the call runs on `WARM` documents. The peaks are those of the whole process and of Python's own memory: the
process holds the pages of SQLite and the buffers of drivers, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.floors import numbered
from benchmarks.measuring import documents

from collections_store import AsyncStore, InsertOne, Store
from collections_store.cli.app import program
from collections_store.dialogues import (
    Dialogue,
    DialogueLabel,
    Dialogues,
    DialogueStore,
    Message,
    PlainCodec,
)
from collections_store.results import UpgradeResult

WARM = 500
"""More than the first batches of a stream, which are small."""
VERSIONS = 3
"""Each measurement upgrades all documents by one version."""
TURNS = 20
"""The messages of a dialogue; dialogues that are saved at once."""
Call = Callable[[int, int], object]
"""A call on `count` documents, with the number of the attempt."""


def prepare(store: Store, folder: Path, count: int) -> None:
    """Create the collections that the calls read."""
    for name in (f"of_{count}", f"old_{count}"):
        store.create_collection(name, body_index=False)
        store[name].create_index("n")
    for things in (store.collection(f"of_{count}", changes="after"), store[f"old_{count}"]):
        things.put_many(numbered(documents(count)))
    store.backup(folder / f"{count}.jsonl", [f"old_{count}"])
    kept = DialogueStore(store, f"of {count}", codec=PlainCodec())
    for number in range(0, count // TURNS, TURNS):
        kept.save(*(talk(n) for n in range(number, min(number + TURNS, count // TURNS))))
    kept.save(talk(-1, count, is_terminal=False))
    entries = numbered(documents(count))
    while some := dict(islice(entries, TURNS)):
        store.memory(f"of {count}").put_many(some)


def talk(number: int, turns: int = TURNS, *, is_terminal: bool = True) -> Dialogue:
    """Return a dialogue of messages of 1 KB."""
    label = DialogueLabel((f"{number:032}", "other"), "bob", "ada")
    parties = label.dialogue_reference, "ada", "bob"
    bodies = enumerate(documents(turns), 1)
    said = [Message("say", body, turn, turn - 1, *parties) for turn, body in bodies]
    return Dialogue(label, "ada", "starter", messages=said, is_terminal=is_terminal)


def drain(found: Iterable[object]) -> None:
    for _ in found:
        pass


def read_calls(store: Store) -> dict[str, Call]:
    def of(count: int) -> Any:
        return store.collection(f"of_{count}")

    stages = [{"$match": {"n": {"$gte": 0}}}, {"$set": {"more": 1}}]
    return {
        "stream": lambda count, _: drain(of(count).stream()),
        "stream in the order of an index": lambda count, _: drain(of(count).stream(sort="n")),
        "stream in another order": lambda count, _: drain(of(count).stream(sort="dialogue_id")),
        "stream_aggregate": lambda count, _: drain(of(count).stream_aggregate(stages)),
        "watch": lambda count, _: drain(of(count).watch(after="oldest", timeout=0)),
    }


def write_calls(store: Store) -> dict[str, Call]:
    def new(count: int, attempt: int) -> Any:
        return store[f"new_{os.getpid()}_{count}_{attempt}"]

    def inserts(count: int) -> Iterable[InsertOne]:
        return (InsertOne(body, id=id) for id, body in numbered(documents(count)))

    def upgrade(count: int, attempt: int) -> UpgradeResult:
        later = {version: partial(marked, version) for version in range(1, VERSIONS + 1)}
        upgrades = {version: later[version] for version in range(1, attempt + 2)}
        old = store.collection(f"old_{count}", schema_version=attempt + 2, upgrades=upgrades)
        return old.upgrade_documents()

    return {
        "put_many": lambda *of: new(*of).put_many(numbered(documents(of[0]))),
        "put_many, atomic": lambda *of: new(*of).put_many(numbered(documents(of[0])), atomic=True),
        "insert_many": lambda *of: new(*of).insert_many(documents(of[0])),
        "bulk_write": lambda *of: new(*of).bulk_write(inserts(of[0])),
        "bulk_write, atomic": lambda *of: new(*of).bulk_write(inserts(of[0]), atomic=True),
        "upgrade_documents": upgrade,
    }


def marked(version: int, body: Any) -> Any:
    return {**body, "marked": version}


def file_calls(store: Store, folder: Path, line: list[str]) -> dict[str, Call]:
    def run(*arguments: str) -> None:
        try:
            program.main([*line, *arguments])
        except SystemExit as end:
            if end.code:
                raise  # else a failed command would seem to take little memory

    def copy(count: int, attempt: int) -> None:
        with Store(
            f"sqlite:///{folder}/copy {os.getpid()} {count} {attempt}.db", page_cache=2**20
        ) as other:
            store.copy_to(other, [f"old_{count}"])

    def restore(count: int, attempt: int) -> None:
        with Store(
            f"sqlite:///{folder}/back {os.getpid()} {count} {attempt}.db", page_cache=2**20
        ) as other:
            other.restore(folder / f"{count}.jsonl")

    def import_(count: int, attempt: int) -> None:
        run("export", f"old_{count}", f"{folder}/{count} in.jsonl")
        run(
            "import",
            f"{folder}/{count} in.jsonl",
            "--collection",
            f"in_{os.getpid()}_{count}_{attempt}",
        )

    return {
        "copy_to": copy,
        "backup": lambda count, _: store.backup(folder / "new.jsonl", [f"old_{count}"]),
        "restore": restore,
        "export": lambda count, _: run("export", f"old_{count}", f"{folder}/{count} out.jsonl"),
        "export and import": import_,
    }


def dialogue_calls(store: Store) -> dict[str, Call]:
    def of(count: int) -> DialogueStore[Dialogue]:
        return DialogueStore(store, f"of {count}", codec=PlainCodec())

    def restore(count: int, _: int) -> None:
        assert sum(1 for _ in of(count).restore(terminal=True)) == count // TURNS

    def pages(count: int, _: int) -> None:
        label, after = talk(-1, 0).dialogue_label, 0
        while found := of(count).messages(label, after=after):
            after += len(found)
        assert after == count

    def offload(count: int, attempt: int) -> None:
        mine = Dialogues(store, f"new {os.getpid()} {count} {attempt}", cached=1)
        for number in range(count // TURNS):
            _, dialogue = mine.create(f"bob {number}", "say", 1)
            mine.finish(dialogue)
        assert mine.purge(kept=0) == count // TURNS

    return {
        "dialogues: restore": restore,
        "dialogues: pages of messages": pages,
        "dialogues: offload, purge": offload,
    }


def memory_calls(store: Store) -> dict[str, Call]:
    def pages(count: int, _: int) -> None:
        memory, after, read = store.memory(f"of {count}"), None, 0
        while found := memory.items(after=after):
            after, read = found[-1].key, read + len(found)
        assert read == count

    def skills(count: int, attempt: int) -> None:
        shared = store.skill_memory()
        for number in range(count // TURNS):
            session = f"{os.getpid()} {count} {attempt} {number}"
            shared.save(session, "skill", [{"name": str(n), "value": n} for n in range(TURNS)])
            assert len(shared.load(session, "skill")) == TURNS

    return {"memory: pages of items": pages, "skill memory: save, load": skills}


def async_calls(opened: Callable[[], AsyncStore]) -> dict[str, Call]:
    async def drained(found: AsyncIterator[object]) -> None:
        async for _ in found:
            pass

    def run(call: Callable[[AsyncStore, int, int], Awaitable[object]]) -> Call:
        async def main(count: int, attempt: int) -> None:
            async with opened() as store:
                await call(store, count, attempt)

        return lambda *of: asyncio.run(main(*of))

    return {
        "stream, async": run(lambda store, n, _: drained(store[f"of_{n}"].stream())),
        "stream_aggregate, async": run(
            lambda store, n, _: drained(store[f"of_{n}"].stream_aggregate([{"$set": {"more": 1}}]))
        ),
        "watch, async": run(
            lambda store, n, _: drained(store[f"of_{n}"].watch(after="oldest", timeout=0))
        ),
        "put_many, async": run(
            lambda store, n, attempt: store[f"new_{os.getpid()}_{n}_{attempt}"].put_many(
                numbered(documents(n))
            )
        ),
    }


def calls_of(store: Store, settings: dict[str, Any]) -> dict[str, Call]:
    """Return all calls, by name."""
    url, options = settings["url"], settings["options"]
    shown = {name: options[name] for name in ("schema",) if name in options}
    line = [f"--url={url}", *(f"--{name}={value}" for name, value in shown.items())]
    return {
        **read_calls(store),
        **write_calls(store),
        **file_calls(store, Path(settings["folder"]), line),
        **dialogue_calls(store),
        **memory_calls(store),
        **async_calls(lambda: AsyncStore(url, **options)),
    }


def measure(call: Call, count: int) -> dict[str, float]:
    """Return the MB by which the peaks grow."""
    call(WARM, 0)
    before = highest()
    call(count, 0)
    grown = highest() - before
    tracemalloc.start()
    call(count, 1)
    return {"process": grown, "python": tracemalloc.get_traced_memory()[1] / 2**20}


def highest() -> float:
    """Return the most MB that this process has had so far, on Linux. `ru_maxrss` counts the parent's before `exec`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = (each for each in lines if each.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**10


def main(name: str, count: str, given: str) -> None:
    settings = json.loads(given)
    with Store(settings["url"], **settings["options"]) as store:
        print(json.dumps(measure(calls_of(store, settings)[name], int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])
