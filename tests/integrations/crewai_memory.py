"""Memories of CrewAI in our stores: test_crewai.py runs this file in an environment that has CrewAI."""

import asyncio
import doctest
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from backends import Backend
from crewai import Memory
from crewai.llms.base_llm import BaseLLM
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError, StorageBackend
from crewai.memory.types import MemoryRecord

from collections_store import InvalidBody, InvalidSearch, Store
from collections_store.integrations.crewai import CollectionsMemoryStorage, flows, memory

SUBJECTS = (("tea", "coffee", "drink"), ("umbrella", "wet"), ("station", "ticket"))
DAY = datetime(2026, 11, 24, 10)


class Silent(BaseLLM):
    def call(self, messages: Any, *arguments: Any, **options: Any) -> str:
        return ""


def embed(texts: list[str]) -> list[list[float]]:
    """Return how often each text names each subject."""
    return [[0.01 + sum(map(text.lower().count, each)) for each in SUBJECTS] for text in texts]


def record(id: str, *embedding: float, scope: str = "/", **fields: Any) -> MemoryRecord:
    fields = {"content": id, "created_at": DAY, "last_accessed": DAY, **fields}
    return MemoryRecord(id=id, scope=scope, embedding=list(embedding) or None, **fields)


def names(found: Any) -> list[str]:
    return [each[0].id if isinstance(each, tuple) else each.id for each in found]


@pytest.fixture
def storage(backend: Backend) -> Iterator[CollectionsMemoryStorage]:
    with CollectionsMemoryStorage(backend.url, **backend.options) as storage:
        yield storage


def test_a_memory_remembers_recalls_and_forgets(storage: CollectionsMemoryStorage) -> None:
    assert isinstance(storage, StorageBackend)
    memory = Memory(storage=storage, llm=Silent(model="none"), embedder=embed)
    options: dict[str, Any] = {"categories": ["taste"], "importance": 0.5}
    tea = memory.remember("I take my tea with milk.", scope="/ada", **options)
    memory.remember("An umbrella is in my bag.", scope="/ada/bag", **options)
    memory.remember("Coffee, black.", scope="/bob", **options)
    recalled = memory.recall("Something to drink?", scope="/ada", depth="shallow", limit=1)
    assert [each.record.content for each in recalled] == ["I take my tea with milk."]
    stored = storage.get_record(tea.id)
    assert stored is not None
    assert stored.last_accessed > tea.last_accessed
    memory.update(tea.id, content="The station is closed.")
    recalled = memory.recall("A ticket?", depth="shallow", limit=1)
    assert [each.record.content for each in recalled] == ["The station is closed."]
    assert memory.info("/ada").record_count == 2
    assert memory.forget(scope="/ada") == 2
    assert memory.list_scopes() == ["/bob"]
    memory.reset()
    assert memory.list_records() == []


def test_records_are_restored_and_replaced(storage: CollectionsMemoryStorage) -> None:
    full = record(
        "1", 0.5, 2.0, scope="/a", categories=["x"], metadata={"a.b": {"$n": [1, None]}}, source="me",
        private=True, importance=1.0, created_at=DAY.replace(tzinfo=UTC), last_accessed=DAY,
    )  # fmt: skip
    storage.save([])
    storage.save([full, record("2")])
    assert storage.get_record("1") == full
    assert storage.get_record("2") == record("2")
    assert storage.get_record("3") is None
    changed = record("1", 1.0, 1.0, content="changed")
    storage.update(changed)
    storage.update(record("3", 1.0, 0.0))
    assert storage.get_record("1") == changed
    assert storage.count() == 2
    storage.save([full])
    assert storage.get_record("1") == full


@pytest.fixture
def filled(storage: CollectionsMemoryStorage) -> CollectionsMemoryStorage:
    storage.save([
        record("root", 1, 0, categories=["x"], created_at=DAY - timedelta(microseconds=1)),
        record("a", 1, 1, scope="/team/a", categories=["x", "y"], metadata={"n": 1}),
        record("b", 0, 1, scope="/team/b", metadata={"n": "1", "a.b": 2}, created_at=DAY + timedelta(1)),
        record("team", -1, 0, scope="/team", categories=["y"], created_at=(DAY - timedelta(1)).replace(tzinfo=UTC)),
        record("teams", 1, 0, scope="/teams%", created_at=DAY - timedelta(2)),
        record("none", scope="/team/b/c", created_at=DAY - timedelta(3)),
    ])  # fmt: skip
    return storage


def test_scopes(filled: CollectionsMemoryStorage) -> None:
    for all in (None, "/", ""):
        assert filled.count(all) == 6
    for team in ("/team", "team/", "//team"):
        assert names(filled.list_records(team)) == ["b", "a", "team", "none"]
    assert names(filled.list_records("/team", limit=2, offset=1)) == ["a", "team"]
    assert filled.list_records("/team", limit=0) == filled.list_records("/team", offset=-1) == []
    assert filled.count("/teams%") == 1
    assert filled.count("/tea") == filled.count("/tea_") == 0
    assert filled.list_scopes() == ["/team", "/teams%"]
    assert filled.list_scopes("/team/") == ["/team/a", "/team/b"]
    assert filled.list_scopes("/team/b/c") == []
    info = filled.get_scope_info("/team")
    assert (info.path, info.record_count, info.categories) == ("/team", 4, ["x", "y"])
    assert (info.oldest_record, info.newest_record) == (DAY - timedelta(3), DAY + timedelta(1))
    assert info.child_scopes == ["/team/a", "/team/b"]
    assert filled.get_scope_info("/nobody").oldest_record is None
    assert filled.list_categories() == {"x": 2, "y": 2}
    assert filled.list_categories("/team/a") == {"x": 1, "y": 1}


CONDITIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "root teams a b"),
    ({"scope_prefix": "/team"}, "a b"),
    ({"categories": ["x", "z"]}, "root a"),
    ({"categories": []}, "root teams a b"),
    ({"metadata_filter": {"n": 1}}, "a"),
    ({"metadata_filter": {"n": "1", "a.b": 2}}, "b"),
    ({"metadata_filter": {"$n": 1}}, ""),
    ({"scope_prefix": "/team", "categories": ["y"], "metadata_filter": {"n": 1}}, "a"),
    ({"limit": 1}, "root"),
    ({"min_score": 0.8}, "root teams"),
    ({"min_score": -1}, "root teams a b team"),
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("conditions", "expected"), CONDITIONS)
def test_searches(
    filled: CollectionsMemoryStorage, conditions: dict[str, Any], expected: str, is_async: bool
) -> None:
    query = [2.0, 0.0]
    if is_async:
        found = asyncio.run(filled.asearch(query, **conditions))
    else:
        found = filled.search(query, **conditions)
    assert names(found) == expected.split()
    scores = {"root": 1, "teams": 1, "a": pytest.approx(0.5**0.5), "b": 0, "team": -1}
    assert [score for _, score in found] == [scores[each] for each in names(found)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        ({}, ""),
        ({"scope_prefix": "/team"}, "root teams"),
        ({"categories": ["y"]}, "root b teams none"),
        ({"categories": []}, "root a b team teams none"),
        ({"record_ids": ["a", "nobody"]}, "root b team teams none"),
        ({"record_ids": ["a", "root"], "scope_prefix": "/team"}, "root b team teams none"),
        ({"record_ids": []}, "root a b team teams none"),
        ({"older_than": DAY}, "a b"),
        ({"older_than": DAY.replace(tzinfo=UTC), "scope_prefix": "/team"}, "root b teams"),
        ({"metadata_filter": {"n": 1}, "older_than": DAY}, "root a b team teams none"),
    ],
)
def test_deletes(
    filled: CollectionsMemoryStorage, conditions: dict[str, Any], left: str, is_async: bool
) -> None:
    if is_async:
        assert asyncio.run(filled.adelete(**conditions)) == 6 - len(left.split())
    else:
        assert filled.delete(**conditions) == 6 - len(left.split())
    assert sorted(names(filled.list_records())) == sorted(left.split())


@pytest.mark.parametrize("is_async", [False, True])
def test_embeddings_of_another_length_are_refused(
    storage: CollectionsMemoryStorage, is_async: bool
) -> None:
    def save(*records: MemoryRecord) -> None:
        if is_async:
            asyncio.run(storage.asave(records))
        else:
            storage.save(records)

    assert storage.search([1.0, 0.0]) == asyncio.run(storage.asearch([1.0, 0.0])) == []
    save(record("0"))
    assert storage.search([1.0, 0.0]) == []
    save(record("1", 1, 0), record("zero", 0, 0))
    with pytest.raises(EmbeddingDimensionMismatchError):
        save(record("2", 1, 0, 0))
    with pytest.raises(EmbeddingDimensionMismatchError):
        save(record("2", 1, 0), record("3", 1, 0, 0))
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.update(record("1", 1, 0, 0))
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.search([1.0])
    with pytest.raises(EmbeddingDimensionMismatchError):
        asyncio.run(storage.asearch([1.0]))
    assert storage.search([0.0, 0.0]) == asyncio.run(storage.asearch([0.0, 0.0])) == []
    for search in (storage.search, lambda query: asyncio.run(storage.asearch(query))):
        with pytest.raises(InvalidSearch):
            search([1.0, float("nan")])
    assert names(storage.search([1.0, 0.0])) == ["1"]
    storage.reset()
    save(record("4", 1, 0, 0))
    assert names(storage.search([1.0, 0.0, 0.0])) == ["4"]


def test_a_part_is_reset(filled: CollectionsMemoryStorage) -> None:
    filled.reset("/team")
    assert names(filled.search([1.0, 0.0])) == ["root", "teams"]


def test_processes_see_each_others_records(shared_backend: Backend) -> None:
    url, options = shared_backend.url, shared_backend.options
    with (
        CollectionsMemoryStorage(url, **options) as one,
        CollectionsMemoryStorage(url, **options) as other,
    ):
        one.save([record("1", 1, 0)])
        other.save([record("2", 1, 1)])
        assert names(one.search([1.0, 0.0])) == names(other.search([1.0, 0.0])) == ["1", "2"]
        other.reset()
        assert one.search([1.0, 0.0]) == []
        one.save([record("3", 1, 1, 1)])
        assert names(other.search([1.0, 0.0, 0.0])) == ["3"]


def test_what_cannot_be_stored_is_refused(storage: CollectionsMemoryStorage) -> None:
    storage.save([record("1", 1, 0)])
    for bad in (object(), DAY, {1}, float("nan")):
        with pytest.raises(InvalidBody, match="metadata"):
            storage.update(record("1", 0, 1, metadata={"n": bad}))
        with pytest.raises(InvalidBody, match="metadata"):
            storage.save([record("2", 0, 1), record("3", metadata={"n": bad})])
    for number in (1e39, 1e300, float("nan")):
        for write in (storage.save, lambda records: storage.update(records[0])):
            with pytest.raises(InvalidBody, match="embedding.*finite numbers of 32 bits"):
                write([record("1", number, 1)])
    assert names(storage.search([1.0, 0.0])) == ["1"]


def test_a_record_that_crewai_cannot_read_is_named_without_its_content(
    shared_backend: Backend,
) -> None:
    url, options = shared_backend.url, shared_backend.options
    with CollectionsMemoryStorage(url, **options) as storage, Store(url, **options) as store:
        storage.save([record("1", 1, 0)])
        store["crewai_memories"].update("1", {"$set": {"importance": "secret"}})
        with pytest.raises(InvalidBody, match="collection crewai_memories: document '1'") as raised:
            storage.list_records()
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize("module", [flows, memory])
def test_the_examples_run(module: Any) -> None:
    assert not doctest.testmod(module).failed
