"""Processes that write to a collection, or build its indexes, are killed, while another searches by words and by meaning: what is found
is there and has the words, and then every index agrees with the documents.
"""

import math
import random
import signal
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from backends import Backend
from faults.programs import numbers_in
from faults.test_killed_writers import check_file
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes
from selection import sampled

from collections_store import (
    Collection,
    Document,
    F,
    IndexExists,
    InvalidFilter,
    InvalidSearch,
    Store,
    TransactionConflict,
)
from collections_store.operations.diagnosis import Diagnose

WORDS = ("tea", "cake", "milk", "rain", "sun")
VECTORS: Any = {"dimensions": 2, "metric": "l2", "embed": numbers_in, "model": "numbers"}
ROUNDS = 4


def body_of(chance: random.Random) -> dict[str, Any]:
    numbers = f"{chance.randrange(40)} {chance.randrange(40)}"
    return {"words": chance.sample(WORDS, 2), "at": numbers}


def create_indexes(things: Collection) -> None:
    things.create_text_index("words")
    things.create_text_index("words", substring=True)
    things.create_vector_index("at", **VECTORS)


def write(url: str, options: dict[str, Any], seed: str) -> None:
    """Write documents that expire at once, later, or never, until the process is killed; print a line after the first round."""
    chance = random.Random(seed)
    with Store(url, **{**options, "busy_timeout": 60.0}) as store:
        things = store["things"]
        for number in count():
            ids = sorted(str(chance.randrange(80)) for _ in range(4))
            things.put(ids[0], body_of(chance), ttl=chance.choice([None, 0.001, 60]))
            things.put_many({id: body_of(chance) for id in ids}, atomic=bool(number % 2))
            with suppress(InvalidFilter):  # while there is no text index
                things.update_many({"$text": {"$search": "tea -sun"}}, {"$set": body_of(chance)})
            things.update_many(F("words").has("rai"), {"$set": body_of(chance)})
            things.delete_many({"$id": ids[1]})
            with suppress(TransactionConflict), store.transaction() as tx:
                tx["things"].remove(ids[2])
                tx["things"].put(ids[2], body_of(chance))
            if number % 5 == 0:
                things.purge_expired()
            if number == 0:
                print("written", flush=True)


def build(url: str, options: dict[str, Any], seed: str) -> None:
    """Drop, create and rebuild indexes until the process is killed; print a line after the first round."""
    chance = random.Random(seed)
    with Store(url, **{**options, "busy_timeout": 60.0}) as store:
        things = store["things"]
        for number in count():
            things.drop_index(chance.choice(["text", "substring", "at_vector"]))
            create_indexes(things)
            things.reindex("at", **{**VECTORS, "model": chance.choice(["numbers", "others"])})
            things.reindex("at", **VECTORS)
            if number == 0:
                print("built", flush=True)


def check_found(things: Collection, chance: random.Random) -> None:
    """Search by words, by meaning, and by both, and compare each result with its document."""
    word, (x, y) = chance.choice(WORDS), (chance.randrange(40), chance.randrange(40))
    by_words = things.search(word, limit=50, highlight=True)
    assert all(word in each.body["words"] and each.snippets for each in by_words)
    assert all(word in each.body["words"] for each in things.find(F("words").has(word)))
    for each in things.nearest([x, y], 50):
        assert each.score == -math.dist(numbers_in([each.body["at"]])[0], [x, y])
    fused = things.search(word, meaning=[x, y], limit=20)
    scores = [each.score for each in fused]
    assert scores == sorted(scores, reverse=True)


def check_indexes(store: Store, things: Collection) -> None:
    """Compare all that is found with the documents; the doctor reports no problem."""
    with suppress(IndexExists):  # of the other model
        create_indexes(things)
    things.reindex("at", **VECTORS)
    documents: dict[str, Document] = {}
    while documents != (documents := {each.id: each for each in things.stream()}):
        assert things.store_vectors() == 0
        by_words = {word: ids(things.search(word, limit=1000)) for word in WORDS}
        by_parts = {word: ids(things.find(F("words").has(word))) for word in WORDS}
        near = {each.id: each.score for each in things.nearest([0, 0], 1000)}
        fused = ids(things.search("tea", meaning=[0, 0], limit=500))
        # documents may still expire, and a server may commit what a killed writer sent: then again
    bodies = {id: each.body for id, each in documents.items()}
    assert by_words == by_parts
    assert by_words == {
        word: {id for id, body in bodies.items() if word in body["words"]} for word in WORDS
    }
    assert near == {
        id: -math.dist(numbers_in([body["at"]])[0], [0, 0]) for id, body in bodies.items()
    }
    assert fused == {*bodies}
    assert [each for each in store.run(Diagnose()) if each.severity == "error"] == []


def ids(found: Iterable[Any]) -> set[str]:
    return {each.id for each in found}


@pytest.mark.parametrize("seed", range(4)[:: sampled(2)])
@pytest.mark.parametrize("program", [write, build])
def test_killed_processes_leave_every_index_right(
    shared_backend: Backend, program: Any, seed: int
) -> None:
    chance = random.Random(seed)
    failures = [InvalidSearch] if program is build else []  # while there is no index
    with Store(shared_backend.url, **{**shared_backend.options, "busy_timeout": 60.0}) as store:
        things = store["things"]
        things.put_many((str(n), body_of(chance)) for n in range(80))
        create_indexes(things)
        for number in range(ROUNDS):
            processes = [start(write, shared_backend, 10 * seed + number)]
            if program is build:
                processes.append(start(build, shared_backend, 10 * seed + number))
            for each in processes:
                assert each.stdout.readline(), each.communicate()
            for _ in range(chance.randrange(3, 10)):
                with suppress(*failures):
                    check_found(things, chance)
            chance.shuffle(processes)
            for each in processes:
                each.send_signal(signal.SIGKILL)
                assert each.wait() == -signal.SIGKILL, each.communicate()
            check_indexes(store, things)
    check_file(shared_backend)
