"""Searches by words and by meaning against other libraries, of 100,000 documents with texts and vectors of 384 numbers: chromadb, lancedb
and litesearch; and LangGraph's stores of vectors, of fewer items. `nox -s bench-search` runs this file in an environment with these.

The floor is this library. `SEARCHED=20000` in the environment is quicker.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from benchmarks.fixtures import all_results, bed_of, one_core, table
from benchmarks.measuring import Table, again, cpu_of, without_parallel_workers
from benchmarks.test_speed_search import notes, vocabulary

__all__ = ["all_results", "one_core", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]
COUNT, ITEMS = int(os.environ.get("SEARCHED", "100000")), int(os.environ.get("ITEMS", "10000"))
DIMENSIONS, K, BATCH = 384, 10, 1000
os.environ["LITESEARCH_USEARCH"] = "0"  # else it downloads an extension of SQLite
Peer = tuple[Callable[[str], Any], Callable[[Any], Any], Callable[[str, str, Any], Any]]
"""Functions that search by a word, search by a vector, and put a document."""


def vectors_of(number: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=(number, DIMENSIONS)).astype(np.float32)


def batches(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(rows, BATCH)):
        yield some


def chroma(folder: Path, rows: Iterator[tuple[str, str, Any]]) -> Peer:
    chromadb = pytest.importorskip("chromadb")
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(folder / "chroma"), settings=settings)
    things = client.create_collection("things", embedding_function=None)
    names = "ids", "documents", "embeddings"
    for some in batches(rows):
        things.add(**dict(zip(names, map(list, zip(*some, strict=True)), strict=True)))
    return (
        lambda word: things.get(where_document={"$contains": word}, limit=K),
        lambda vector: things.query(query_embeddings=[vector], n_results=K),
        lambda *row: things.upsert(**dict(zip(names, ([each] for each in row), strict=True))),
    )


def lance(folder: Path, rows: Iterator[tuple[str, str, Any]]) -> Peer:
    lancedb = pytest.importorskip("lancedb")
    names = "id", "text", "vector"
    found = [dict(zip(names, row, strict=True)) for row in rows]
    things = lancedb.connect(str(folder / "lance")).create_table("things", found)
    things.create_index("text", config=lancedb.index.FTS())
    return (
        lambda word: things.search(word, query_type="fts").limit(K).to_list(),
        lambda vector: things.search(vector).limit(K).to_list(),
        lambda *row: (
            things.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute([dict(zip(names, row, strict=True))])
        ),
    )


def lite(folder: Path, rows: Iterator[tuple[str, str, Any]]) -> Peer:
    litesearch = pytest.importorskip("litesearch")
    things = litesearch.database(str(folder / "lite.db")).get_store()
    columns = ["content", "metadata"]

    def row_of(id: str, text: str, vector: Any) -> dict[str, Any]:
        return {"id": int(id), "content": text, "metadata": id, "embedding": vector.tobytes()}

    litesearch.upsert_all(things, (row_of(*row) for row in rows), "id")
    return (
        lambda word: things.fts_search(word, columns, limit=K),
        lambda vector: things.vec_search(vector.tobytes(), columns, dtype=np.float32, limit=K),
        lambda *row: litesearch.upsert_all(things, [row_of(*row)], "id"),
    )


PEERS = {"chromadb": chroma, "lancedb": lance, "litesearch": lite}


@pytest.mark.parametrize("name", PEERS)
def test_peers(name: str, request: pytest.FixtureRequest, table: Table, tmp_path: Path) -> None:
    words = vocabulary()
    texts = [f"{each['title']} {each['body']}" for each in notes(COUNT, words)]
    vectors = vectors_of(COUNT)
    rows = zip(map(str, range(COUNT)), texts, vectors, strict=False)
    setup = bed_of(request, tmp_path, "SQLite, normal")
    search, nearest, put = PEERS[name](tmp_path, rows)
    with setup.store() as store:
        things = store["things"]
        things.create_text_index("text")
        things.create_vector_index("at", dimensions=DIMENSIONS, metric="l2")
        things.put_many(
            (str(n), {"text": text, "at": vectors[n].tolist()}) for n, text in enumerate(texts)
        )
        things.store_vectors()
        query = vectors_of(1, 2)[0]
        assert len(things.search(words[300])) == K
        group = f"search of {COUNT:,}, SQLite, normal"
        rounds: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
            "words, the best 10": (
                again(lambda: things.search(words[300]), 5),
                again(lambda: search(words[300]), 5),
                5,
            ),
            "nearest 10": (
                again(lambda: things.nearest(query, K), 3),
                again(lambda: nearest(query), 3),
                3,
            ),
            "put": (
                again(lambda: things.put("1", {"text": texts[random.randrange(COUNT)], "at": vectors[0].tolist()}), 5),
                again(lambda: put("1", texts[random.randrange(COUNT)], vectors[0]), 5),
                5,
            ),
        }  # fmt: skip
        for what, (ours, theirs, per) in rounds.items():
            table.compare(group, what, ours, {name: theirs}, per=per)


@pytest.mark.parametrize("database", ["SQLite, full", "PostgreSQL"])
def test_langgraph(
    database: str, request: pytest.FixtureRequest, table: Table, tmp_path: Path
) -> None:
    base = pytest.importorskip("langgraph.store.base")
    sqlite, postgres = (
        pytest.importorskip(f"langgraph.store.{each}") for each in ("sqlite", "postgres")
    )
    from collections_store.integrations.langgraph import LangGraphStore

    setup = bed_of(request, tmp_path, database)
    vectors = vectors_of(ITEMS)

    def embed(texts: list[str]) -> list[list[float]]:
        """Return the vectors of numbers; LangGraph's store on SQLite passes the JSON around a number."""
        return [vectors[int("".join(filter(str.isdigit, text)))].tolist() for text in texts]

    index: Any = {"dims": DIMENSIONS, "embed": embed, "fields": ["text"]}
    with ExitStack() as stack:
        if setup.is_postgresql:
            without_parallel_workers(setup.backend.url)
            theirs = stack.enter_context(
                postgres.PostgresStore.from_conn_string(setup.backend.url, index=index)
            )
        else:
            if not hasattr(sqlite3.Connection, "enable_load_extension"):
                pytest.skip("the sqlite3 of this Python loads no extension, which sqlite-vec is")
            path = str(tmp_path / "theirs.db")
            theirs = stack.enter_context(sqlite.SqliteStore.from_conn_string(path, index=index))
        theirs.setup()
        ours = LangGraphStore(
            setup.backend.url, index=index, **setup.backend.options, **setup.options
        )
        stack.enter_context(ours)
        for store in (ours, theirs):
            for some in batches(iter(range(ITEMS))):
                store.batch(
                    [base.PutOp(("items", str(n % 10)), str(n), {"text": str(n)}) for n in some]
                )
        cpu = time.process_time
        if setup.is_postgresql:
            ours.search(("items",), query="7", limit=K)
            cpu = cpu_of(stack.enter_context(psycopg.connect(setup.backend.url)))
        found = [[each.key for each in store.search(("items",), query="7", limit=K)] for store in (ours, theirs)]  # fmt: skip
        assert [keys[0] for keys in found] == ["7", "7"]
        names = count(ITEMS)
        group = f"LangGraph's store of {ITEMS:,} with vectors, {database}"
        calls: dict[str, Callable[[Any], Any]] = {
            "search, the nearest 10": lambda store: store.search(("items",), query="7", limit=K),
            "search of a namespace of 10 %": lambda store: store.search(
                ("items", "7"), query="7", limit=K
            ),
            "put": lambda store: store.put(
                ("items", "new"), f"{next(names)}", {"text": str(next(names) % ITEMS)}
            ),
        }
        for what, call in calls.items():
            theirs_call, ours_call = (again(partial(call, each), 5) for each in (theirs, ours))
            table.compare(
                group, what, theirs_call, {"ours": ours_call}, per=5, reach="≤ 1", cpu=cpu
            )
