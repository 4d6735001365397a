"""Writers of a collection with an index under a collation are killed: the index has exactly the keys of the documents."""

import os
import random
import signal
import sqlite3
import time
from itertools import count as count_from
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes
from selection import sampled

from collections_store import Filter, Sort, Store
from collections_store.expressions.collation import Collation
from collections_store.query.matcher import matches
from collections_store.sql.dialects.sqlite.filters import functions

RULES = {"locale": "simple", "strength": 1}
BY_WORD = Sort.parse("w").collated(Collation.parse(RULES))
WORDS = ["zoo", "Zoo", "\u00c9t\u00e9", "ete", "ETE\u0301", "apfel", "\u00c4PFEL", "x"]


def write(url: str, options: dict[str, Any], seed: str) -> None:
    """Write, change and delete documents until the process is killed; print a line after the first write."""
    chance = random.Random(seed)
    with Store(url, **{**options, "busy_timeout": 60.0}) as store:
        notes = store["notes"]
        for number in count_from(0):
            ids = sorted({str(chance.randrange(200)) for _ in range(5)})
            word = chance.choice(WORDS)
            notes.put_many({id: {"w": word} for id in ids}, atomic=bool(number % 2))
            if number == 0:
                os.write(1, b"written\n")
            change = {"$set": {"w": [word] if number % 9 == 0 else word.swapcase()}}
            notes.update_many({"w": chance.choice(WORDS)}, change, collation=RULES)
            notes.remove(ids[0])


@pytest.mark.parametrize("seed", range(4)[:: sampled(2)])
def test_killed_writers_leave_keys_and_documents_equal(
    shared_backend: Backend, tmp_path: Path, seed: int
) -> None:
    chance, backend = random.Random(seed), shared_backend
    with Store(backend.url, **backend.options) as store:
        notes = store["notes"]
        notes.put_many((str(n), {"w": WORDS[n % len(WORDS)]}) for n in range(200))
        writers = [start(write, backend, 10 * seed + n) for n in range(2)]
        for writer in writers:
            assert writer.stdout.readline()
        notes.create_index("w", collation=RULES)  # while others write
        for writer in writers:
            time.sleep(chance.random() / 2)
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
        documents = notes.list()
        for word in WORDS:
            parsed = Filter.parse({"w": word}).collated(Collation.parse(RULES))
            explained = notes.explain({"w": word}, collation=RULES)
            assert backend.is_postgresql or explained.indexes == ("w_1",)
            found = notes.find({"w": word}, collation=RULES)
            assert found == [each for each in documents if matches(parsed, each)]
        assert [each.id for each in notes.find(sort="w", collation=RULES, limit=500)] == [
            each.id for each in sorted(documents, key=BY_WORD.key)
        ]
    if backend.is_postgresql:
        return
    connection = sqlite3.connect(tmp_path / "store.db")
    for name, arguments, function in functions():
        connection.create_function(name, arguments, function, deterministic=True)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
