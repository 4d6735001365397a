"""Writers of a collection with a text index are killed: no match without its document, no document without its words."""

import random
import signal
import time

import pytest
from backends import Backend
from faults.test_killed_writers import check_file
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes
from selection import sampled

from collections_store import Store
from collections_store.operations.diagnosis import Diagnose
from collections_store.query.text_index import TextIndex
from collections_store.search.matching import is_found

FIELDS = {"t": 2, "in.t": 1}
WRITERS = 2


@pytest.mark.parametrize("seed", range(6)[:: sampled(3)])
def test_killed_writers_leave_words_and_documents_equal(shared_backend: Backend, seed: int) -> None:
    chance, index = random.Random(seed), TextIndex.parse(FIELDS)
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = store["notes"]
        notes.put_many((str(n), {"t": f"w{n % 7} old"}) for n in range(300))
        if seed % 2:
            notes.create_text_index(FIELDS)
        writers = [start("write_words", shared_backend, 10 * seed + n) for n in range(WRITERS)]
        for writer in writers:
            assert writer.stdout.readline()
        notes.create_text_index(FIELDS)  # while others write
        for _ in range(2):
            time.sleep(chance.random() / 2)
            writer = writers.pop(0)
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
            writers.append(start("write_words", shared_backend, seed + 100))
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
        with store.transaction() as tx:  # a server may still commit what a killed writer sent
            bodies = {each.id: each.body for each in tx["notes"].find()}
            for query in [*(f"w{n}" for n in range(7)), "old", '"w1 new"', "new -w2", "in.t:w3"]:
                words = index.parsed(query)
                expected = {id for id, body in bodies.items() if is_found(words, index.texts(body))}
                found = tx["notes"].search(query, limit=10**6)
                assert {each.id for each in found} == expected, query
        assert [each for each in store.run(Diagnose()) if each.check == "words"] == []
    check_file(shared_backend)
