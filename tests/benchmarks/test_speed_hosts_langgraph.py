"""Checkpointers and stores of LangGraph: ours against LangGraph's own, on SQLite files and on PostgreSQL, each durable at each
commit. `nox -s bench -- tests/integrations/test_langgraph.py` runs this file in an environment with LangGraph.
"""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fixtures import Setup, all_results, bed_of, one_core, table
from benchmarks.measuring import Table, again

pytest.importorskip("langgraph.checkpoint.sqlite", reason="see the command above")
from integrations.langgraph_graphs import config, graph
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import GetOp, PutOp
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from collections_store.integrations.langgraph import LangGraphSaver, LangGraphStore

__all__ = ["all_results", "one_core", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
ROUND, LISTED, THREADS, NAMESPACES = 10, 50, 8, 5_000
LOGGED = 150
"""Large checkpoints that fill SQLite's write-ahead log once. A log that still grows takes more CPU to flush, and would
charge it to the checkpointer that writes fewer pages.
"""
VALUES = {"messages": ["hello world"] * 20, "n": 0, "document": "x" * 20_000}
Calls = dict[str, tuple[Callable[[], Any], int]]
"""What is measured: a call, and how often it does it."""


@pytest.fixture(params=["SQLite, full", "PostgreSQL"])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Setup:
    return bed_of(request, tmp_path, request.param)


def compare(table: Table, group: str, theirs: Calls, ours: Calls) -> None:
    for what, (call, per) in theirs.items():
        others = {"ours": ours[what][0]}
        table.compare(group, what, call, others, per=per, reach="≤ 1.1")


def times(call: Callable[[], Any]) -> tuple[Callable[[], None], int]:
    return again(call, ROUND), ROUND


class Thread:
    """A thread of a graph, whose document stays the same."""

    def __init__(self, saver: Any, name: str) -> None:
        self._saver, self.at, self._steps = saver, config(name), itertools.count()

    def put(self, **changed: Any) -> None:
        step = next(self._steps)
        changed = changed or ({"n": step} if step else VALUES)
        new = dict.fromkeys(changed, f"{step:032}.1")
        versions = dict.fromkeys(VALUES, f"{0:032}.1") | new
        checkpoint = empty_checkpoint() | {"channel_values": {**VALUES, **changed}}
        self.at = self._saver.put(
            self.at, {**checkpoint, "channel_versions": versions}, {"step": step}, new
        )

    def put_writes(self) -> None:
        writes = [("messages", ["hi"]), ("branch:to:a", None)]
        self._saver.put_writes(self.at, writes, f"task{next(self._steps)}")


def saver_calls(saver: Any) -> Calls:
    long, other, names = Thread(saver, "long"), Thread(saver, "other"), itertools.count()
    for _ in range(LISTED + 10):
        long.put()
    other.put()
    compiled = graph({f"n{n}": lambda _: {"done": ["n"]} for n in range(20)}).compile(
        checkpointer=saver
    )
    large = itertools.count()

    def document() -> str:
        return f"{next(large):05}" * 4_000

    for _ in range(LOGGED):
        other.put(document=document())

    def one_of_eight(_: int) -> None:
        thread = Thread(saver, f"t{next(names)}")
        for _ in range(ROUND):
            thread.put()

    def by_threads() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(one_of_eight, range(THREADS)))

    by_id, finished = long.at, other.at

    def put_again() -> None:
        saver.put_writes(finished, [("messages", ["hi"]), ("branch:to:a", None)], "task")

    return {
        "put": times(other.put),
        "put of another 20 kB": times(lambda: other.put(document=document())),
        "put of 8 threads": (by_threads, THREADS * ROUND),
        "put_writes": times(other.put_writes),
        "put_writes of the same task again": times(put_again),
        "get_tuple": times(lambda: saver.get_tuple(config("long"))),
        "get_tuple by id": times(lambda: saver.get_tuple(by_id)),
        "list of 50": times(lambda: list(saver.list(config("long"), limit=LISTED))),
        "list with a filter, 1 of 60": times(
            lambda: list(saver.list(config("long"), filter={"step": 30}))
        ),
        "graph of 20 steps": (
            lambda: compiled.invoke({"done": []}, config(f"g{next(names)}")),
            1,
        ),
    }


def item_calls(store: Any) -> Calls:
    value, keys = {"text": "green tea " * 20, "cups": 3}, itertools.count()
    for number in range(1_000):
        store.put(("users", f"u{number % 20}"), f"{number}", {**value, "n": number})
    gets = [GetOp(("users", "u7"), f"{number}") for number in range(7, 207, 20)]

    def puts() -> list[PutOp]:
        return [PutOp(("puts",), f"{next(keys)}", value) for _ in range(10)]

    def by_threads() -> None:
        def put(_: int) -> None:
            for _ in range(ROUND):
                store.put(("threads",), f"{next(keys)}", value)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(put, range(THREADS)))

    return {
        "put": times(lambda: store.put(("new",), f"{next(keys)}", value)),
        "put of 8 threads": (by_threads, THREADS * ROUND),
        "get": times(lambda: store.get(("users", "u7"), "7")),
        "batch of 10 gets": times(lambda: store.batch(gets)),
        "batch of 10 puts": times(lambda: store.batch(puts())),
        "search": times(lambda: store.search(("users", "u7"))),
        "search with a filter": times(lambda: store.search(("users",), filter={"n": 500})),
        "list_namespaces": times(lambda: store.list_namespaces(prefix=("users",))),
    }


def namespace_calls(store: Any) -> Calls:
    for start in range(0, NAMESPACES, 500):
        puts = [PutOp(("users", f"u{start + n}"), "key", {"n": n}) for n in range(500)]
        store.batch(puts)

    def listed(limit: int) -> Callable[[], Any]:
        return lambda: store.list_namespaces(prefix=("users",), limit=limit)

    return {f"list_namespaces, {n} of 5,000": times(listed(n)) for n in (10, 100)}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_checkpointers(bed: Setup, table: Table, opened: ExitStack, tmp_path: Path) -> None:
    their_url = str(tmp_path / "theirs.db")
    if bed.is_postgresql:
        theirs = opened.enter_context(PostgresSaver.from_conn_string(bed.backend.url))
        theirs.setup()
    else:
        theirs = opened.enter_context(SqliteSaver.from_conn_string(their_url))
    ours = LangGraphSaver(bed.backend.url, **bed.backend.options, **bed.options)
    opened.enter_context(ours)
    compare(table, f"LangGraph, {bed.name}", saver_calls(theirs), saver_calls(ours))


def test_stores(bed: Setup, table: Table, opened: ExitStack, tmp_path: Path) -> None:
    if bed.is_postgresql:
        theirs = opened.enter_context(PostgresStore.from_conn_string(bed.backend.url))
    else:
        theirs = opened.enter_context(SqliteStore.from_conn_string(str(tmp_path / "theirs.db")))
    theirs.setup()
    ours = LangGraphStore(bed.backend.url, **bed.backend.options, **bed.options)
    opened.enter_context(ours)
    name = f"LangGraph's store, {bed.name}"
    compare(table, name, item_calls(theirs), item_calls(ours))
    compare(table, name, namespace_calls(theirs), namespace_calls(ours))
