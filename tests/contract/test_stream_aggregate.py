"""`stream_aggregate`: the results of `aggregate`, one at a time."""

import asyncio
import tracemalloc
from typing import Any

import pytest

from collections_store import (
    AsyncStore,
    CollectionsStoreError,
    DocumentsOutdated,
    InvalidOperand,
    InvalidPipeline,
    MemoryLimitExceeded,
    Store,
)

pytestmark = pytest.mark.each_backend

COUNT = 400
"""Documents of several batches."""


@pytest.fixture
def filled(things: Any) -> Any:
    things.put_many(
        {f"{n:04}": {"n": n, "of": n % 7, "tags": [n, -n], "name": f"x{n}"} for n in range(COUNT)}
    )
    return things


PIPELINES: list[Any] = [
    [],
    [{"$match": {"of": 3}}],
    [{"$match": {"$expr": {"$gt": ["$n", {"$multiply": ["$of", 40]}]}}}],
    [{"$match": {"n": {"$gte": 10}}}, {"$project": {"_id": 0, "twice": {"$multiply": ["$n", 2]}}}],
    [{"$addFields": {"key": {"$meta": "id"}}}, {"$unset": "tags"}, {"$match": {"of": 2}}],
    [{"$unwind": "$tags"}, {"$match": {"tags": {"$lt": 0}}}],
    [{"$replaceRoot": {"newRoot": {"only": "$n"}}}],
    [{"$redact": {"$cond": [{"$eq": ["$of", 1]}, "$$PRUNE", "$$KEEP"]}}],
    [{"$skip": 130}],
    [{"$limit": 130}],
    [{"$limit": 1}],
    [{"$skip": 60}, {"$match": {"of": 3}}, {"$skip": 5}, {"$limit": 20}],
    [{"$unwind": "$tags"}, {"$skip": 301}, {"$limit": 333}, {"$match": {"of": 3}}, {"$skip": 2}],
    [{"$limit": 300}, {"$unwind": "$tags"}, {"$limit": 450}, {"$skip": 10}],
    [{"$skip": COUNT + 5}],
    [{"$match": {"n": {"$lt": 200}}}, {"$lookup": {
        "from": "$self", "localField": "of", "foreignField": "n", "as": "same"}}],
    # stages that hold rows
    [{"$group": {"_id": "$of", "sum": {"$sum": "$n"}}}],
    [{"$project": {"n": 1}}, {"$sort": {"n": -1}}, {"$limit": 3}],
    [{"$count": "all"}],
    [{"$facet": {"first": [{"$limit": 1}], "all": [{"$count": "n"}]}}],
]  # fmt: skip


def named(pipeline: Any, name: str) -> Any:
    """Return the pipeline with the name of its own collection."""
    return [
        {key: {**each, "from": name} if key == "$lookup" else each for key, each in stage.items()}
        for stage in pipeline
    ]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=str)
def test_the_results_are_those_of_aggregate(filled: Any, pipeline: Any) -> None:
    given = named(pipeline, filled.name)
    assert list(filled.stream_aggregate(given)) == filled.aggregate(given)


def test_a_missing_collection_has_no_results(store: Any) -> None:
    missing = store["things"]
    missing.put("a", {})
    store.drop("things")
    assert list(missing.stream_aggregate([{"$project": {"a": 1}}])) == []


def test_the_collection_can_be_written_between_results(filled: Any) -> None:
    seen = []
    for each in filled.stream_aggregate([{"$project": {"n": 1}}]):
        filled.update(f"{each['n']:04}", {"$set": {"seen": True}})
        seen.append(each["n"])
    assert seen == list(range(COUNT))
    assert filled.count({"seen": True}) == COUNT


def test_in_a_transaction_its_own_writes_are_seen(store: Any) -> None:
    store["things"].put_many({str(n): {"n": n} for n in range(120)})
    with store.transaction() as transaction:
        things = transaction["things"]
        things.delete_many({"n": {"$lt": 100}})
        found = list(things.stream_aggregate([{"$project": {"n": 1}}, {"$skip": 1}]))
    assert [each["n"] for each in found] == list(range(101, 120))


def test_now_is_one_instant(filled: Any) -> None:
    found = list(filled.stream_aggregate([{"$project": {"_id": 0, "at": "$$NOW"}}]))
    assert len(found) == COUNT
    assert len({each["at"] for each in found}) == 1


ERRORS: list[tuple[Any, dict[str, Any], type[CollectionsStoreError], str]] = [
    ([{"$nosuch": 1}], {}, InvalidPipeline, r"0\.\$nosuch"),
    ([{"$match": {}}, {"$out": "other"}], {}, InvalidPipeline, r"1\.\$out': writes"),
    ([{"$merge": "other"}], {}, InvalidPipeline, r"0\.\$merge': writes"),
    ([], {"memory_limit": 0}, InvalidPipeline, "memory_limit"),
    ([], {"memory_limit": 100}, MemoryLimitExceeded, "the result holds"),
    ([{"$sort": {"n": 1}}], {"memory_limit": 100}, MemoryLimitExceeded, r"0\.\$sort"),
    ([{"$skip": 1}, {"$set": {"a": {"$add": ["$name", 1]}}}], {}, InvalidOperand, r"1\.\$set': \$add"),
    ([{"$match": {"$expr": {"$add": ["$name", 1]}}}], {}, InvalidOperand, r"0\.\$match': \$add"),
]  # fmt: skip


@pytest.mark.parametrize(("pipeline", "options", "kind", "message"), ERRORS, ids=str)
def test_errors(filled: Any, pipeline: Any, options: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        list(filled.stream_aggregate(pipeline, **options))


def test_documents_of_another_schema_version_are_an_error(store: Store) -> None:
    store["people"].put("ada", {"name": "Ada"})
    upgrades = {1: lambda body: {"first": body["name"]}}
    people = store.collection("people", schema_version=2, upgrades=upgrades)
    with pytest.raises(DocumentsOutdated):
        list(people.stream_aggregate([{"$project": {"first": 1}}]))
    people.upgrade_documents()
    assert list(people.stream_aggregate([{"$project": {"first": 1, "_id": 0}}])) == [
        {"first": "Ada"}
    ]


def test_memory_stays_constant(filled: Any) -> None:
    filled.put_many({f"{n:04}": {"n": n, "text": "x" * 20_000} for n in range(1000)})
    tracemalloc.start()
    try:
        for _ in filled.stream_aggregate([{"$addFields": {"more": 1}}]):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000  # all documents: 20 MB, as JSON and as objects 40


def test_a_cancelled_stream_leaves_the_store_usable() -> None:
    async def main() -> int:
        async with AsyncStore("sqlite://") as store:
            things = store["things"]
            await things.put_many({str(n): {"n": n} for n in range(COUNT)})

            async def read() -> None:
                while True:
                    async for _ in things.stream_aggregate([{"$project": {"n": 1}}]):
                        await asyncio.sleep(0)

            task = asyncio.create_task(read())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return len([each async for each in things.stream_aggregate([])])

    assert asyncio.run(main()) == COUNT
