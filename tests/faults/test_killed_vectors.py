"""Writers of a collection with vector indexes are killed: no match without its document, none by the vector of another
version of the document, and no document without a match.
"""

import math
import random
import signal
from typing import Any

import pytest
from backends import Backend, has_pgvector
from faults.programs import numbers_in
from faults.test_killed_writers import check_file
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes
from selection import sampled

from collections_store import Collection, Store

WRITERS = 2
INDEXES = ("at_vector", "text_vector")


def check(points: Collection, index: str, query: list[float], k: int) -> list[str]:
    """Search, and compare each score with the document that is found."""
    results = points.nearest(query, k, index=index)
    for each in results:
        assert each.score == -math.dist(each.body["at"], query), (index, each)
    scores = [each.score for each in results]
    assert scores == sorted(scores, reverse=True)
    return [each.id for each in results]


@pytest.mark.parametrize("seed", range(4)[:: sampled(2)])
def test_killed_writers_leave_vectors_and_documents_equal(
    shared_backend: Backend, seed: int
) -> None:
    chance = random.Random(seed)
    with Store(shared_backend.url, **{**shared_backend.options, "busy_timeout": 60.0}) as store:
        points = store["points"]
        points.create_vector_index("at", dimensions=2, metric="l2")
        options: Any = {"metric": "l2", "embed": numbers_in, "model": "numbers"}
        points.create_vector_index("text", dimensions=2, **options)
        indexes = [*INDEXES]
        if shared_backend.is_postgresql and has_pgvector(shared_backend.url):
            points.create_vector_index("at", dimensions=2, metric="l2", method="hnsw", name="near")
            indexes.append("near")
        writers = [start("write_vectors", shared_backend, 10 * seed + n) for n in range(WRITERS)]
        for writer in writers:
            assert writer.stdout.readline()
        for _ in range(3):
            for _ in range(chance.randrange(5, 20)):
                query = [float(chance.randrange(50)), float(chance.randrange(50))]
                check(points, chance.choice(indexes), query, chance.randrange(1, 40))
            writer = writers.pop(0)
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL, writer.communicate()
            writers.append(start("write_vectors", shared_backend, chance.randrange(10**6)))
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
        bodies = {each.id: each.body for each in points.stream()}
        for index in indexes:
            expected = sorted(
                bodies, key=lambda name: (math.dist(bodies[name]["at"], [0, 0]), name)
            )
            assert check(points, index, [0, 0], 1000) == expected
        assert points.search_backlog() == []
    check_file(shared_backend)
