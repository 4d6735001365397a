"""Stages that sort in a temporary file give what they give in memory, and hold little memory."""

import os
import pickle
import random
import tempfile
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from collections_store.aggregation import spill
from collections_store.aggregation.pipeline import Pipeline, run
from collections_store.aggregation.rows import Context, NoCollections
from collections_store.aggregation.spill import ExternalSort, IdList
from collections_store.document import Anonymous, Document, Scored
from collections_store.errors import MemoryLimitExceeded

COUNT = 100_000
MANY = 2**40


def rows(count: int) -> Iterator[Document]:
    """Yield rows in no order; few memory holds them."""
    numbers = random.Random(7)
    for n in range(count):
        yield Document(str(n), {"n": numbers.randrange(count), "g": n % 7919, "text": "x" * 40})


STAGES: list[Any] = [
    {"$sort": {"n": 1}},
    {"$sort": {"g": -1, "n": 1}},
    {"$sort": {"text": 1}},
    {"$group": {"_id": "$g", "sum": {"$sum": "$n"}, "all": {"$push": "$n"}}},
    {"$group": {"_id": {"g": "$g"}, "first": {"$first": "$n"}, "last": {"$last": "$n"}}},
    {"$sortByCount": "$g"},
    {"$bucket": {"groupBy": "$n", "boundaries": [*range(0, COUNT + 1, 50)]}},
    {
        "$setWindowFields": {
            "partitionBy": "$g",
            "sortBy": {"n": 1},
            "output": {"sum": {"$sum": "$n", "window": {"documents": ["unbounded", "current"]}}},
        }
    },
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: str(stage)[:40])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_the_answers_are_equal(stage: Any, count: int) -> None:
    pipeline = Pipeline.parse([stage])
    places = frozenset(each.place for each in pipeline.steps)
    for limit in (20_000, MANY):
        spilled = Context(NoCollections(), limit, spilled=places)
        found = run(pipeline.steps, rows(count), spilled)
        expected = run(pipeline.steps, rows(count), Context(NoCollections(), MANY))
        assert [each.body for each in found] == [each.body for each in expected]


def digest(found: Iterator[Any]) -> int:
    """Return a checksum of bodies and their order, which takes no memory."""
    total = 0
    for row in found:
        total = zlib.crc32(repr(row.body).encode(), total)
    return total


def test_many_rows_are_in_order() -> None:
    pipeline = Pipeline.parse([{"$sort": {"n": 1}}])
    spilled = Context(NoCollections(), 2_000_000, spilled=frozenset({"0.$sort"}))
    found = digest(run(pipeline.steps, rows(COUNT), spilled))
    assert found == digest(run(pipeline.steps, rows(COUNT), Context(NoCollections(), MANY)))


@pytest.mark.parametrize("stage", [STAGES[0], STAGES[3]], ids=lambda stage: str(stage)[:40])
def test_memory_is_bounded(stage: Any) -> None:
    pipeline, limit, count = Pipeline.parse([stage]), 300_000, 8_000
    places = frozenset(each.place for each in pipeline.steps)
    with pytest.raises(MemoryLimitExceeded, match="larger memory_limit or allow_disk_use=True"):
        list(run(pipeline.steps, rows(count), Context(NoCollections(), limit)))
    spilled = Context(NoCollections(), limit, spilled=places)
    tracemalloc.start()
    try:
        digest(run(pipeline.steps, rows(count), spilled))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * limit  # a third of what it is without files, and other threads allocate too


def test_equal_keys_stay_in_order_through_all_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "RUNS", 3)
    items = ExternalSort[tuple[int, int]](lambda item: item[0], 100)
    for n in range(1000):
        items.add((n % 3, n), 10)
    assert len(items._levels) > 3
    expected = sorted(((n % 3, n) for n in range(1000)), key=lambda item: item[0])
    assert list(items.in_order()) == expected


def test_rows_of_each_kind_can_be_written() -> None:
    for row in (Anonymous({"a": [1, None]}), Document("1", {"a": 1}, 3), Scored("1", 5, score=2.5)):
        again = pickle.loads(pickle.dumps(row))
        assert (type(again), again) == (type(row), row)


@pytest.mark.parametrize("end", ["all", "some", "never", "error"])
def test_the_file_is_closed_in_all_ways_out(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    made, real = list[Any](), tempfile.TemporaryFile

    def temporary() -> Any:
        made.append(real())
        return made[-1]

    def key(item: int) -> int:
        if end == "error" and item == 999:
            raise KeyboardInterrupt
        return -item

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    items = ExternalSort[int](key, 1000)
    for n in range(1000):
        items.add(n, 10)
    if end == "all":
        assert list(items.in_order()) == list(range(999, -1, -1))
    elif end == "some":
        found: Any = items.in_order()
        assert next(found) == 999
        found.close()
    elif end == "error":
        with pytest.raises(KeyboardInterrupt):
            list(items.in_order())
    else:
        del items
    [file] = made
    assert file.closed


def test_a_full_disk_is_an_error_of_the_folder() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    pipeline = Pipeline.parse([{"$sort": {"n": 1}}])
    spilled = Context(NoCollections(), 20_000, spilled=frozenset({"0.$sort"}))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            list(run(pipeline.steps, rows(3000), spilled))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.filename == tempfile.gettempdir()


@pytest.mark.parametrize("has_pread", [True, False])
@pytest.mark.parametrize("limit", [0, 5_000, MANY])
def test_a_list_of_ids_is_read_from_any_position(
    limit: int, has_pread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pread:  # as on Windows
        monkeypatch.delattr(os, "pread")
    ids = [*map(str, range(20_000)), "ä" * 1000, *("x" * 2000 for _ in range(100)), " "]
    listed = IdList(ids, limit)
    assert (listed._file is None) == (limit == MANY)
    found, start = list[str](), 0
    while len(found) < len(ids):
        some, start = listed.read(start, 777)
        assert some
        assert some == ids[len(found) : len(found) + 777]
        found += some
        assert listed.read(0, 2)[0] == ids[:2]
    assert listed.read(start, 1) == ([], start)
    assert IdList([], limit).read(0, 1) == ([], 0)
