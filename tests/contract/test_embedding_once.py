"""Concurrent searches: a text is embedded once, nobody waits for ever, and an embedder may use the store."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from backends import Backend

from collections_store import AsyncStore, Store
from collections_store.search import claims

COUNT = 100
BODIES = {f"{n:03}": {"text": f"text {n}"} for n in range(COUNT)}


class Slow:
    """An embedder whose first call waits for `release`; counts the texts."""

    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self.started, self.release = threading.Event(), threading.Event()
        self.problem: Exception | None = None

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.texts.update(texts)
        if not self.started.is_set():
            self.started.set()
            assert self.release.wait(60)
            if self.problem is not None:
                raise self.problem
        return [[float(text.rpartition(" ")[2]), 1.0] for text in texts]

    def released(self, search: Callable[[], list[str]]) -> list[str]:
        """Search while the first call waits, which is released meanwhile."""
        assert self.started.wait(60)
        threading.Timer(0.3, self.release.set).start()
        return search()


def create(notes: Any, embed: Any) -> Any:
    notes.create_vector_index("text", dimensions=2, metric="l2", embed=embed, model="numbers")
    return notes


def embedded(store: Store, embed: Any) -> Any:
    """Return a collection with the vectors of its documents."""
    notes = create(store["notes"], embed)
    notes.put_many(BODIES)
    notes.store_vectors()
    return notes


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Call functions in threads; return their results."""
    results: dict[int, Any] = {}

    def run(number: int, call: Callable[[], Any]) -> None:
        results[number] = call()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[number] for number in range(len(calls))]


def ids(results: Any) -> list[str]:
    return [each.id for each in results]


def test_threads_embed_each_text_once(shared_backend: Backend) -> None:
    embed = Slow()
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = create(store["notes"], embed)
        notes.put_many(BODIES)

        def search() -> list[str]:
            return ids(notes.nearest([0, 1], COUNT))

        def second() -> list[str]:
            return embed.released(search)

        found = in_threads(search, second, second, notes.store_vectors)
        assert found == [[*BODIES]] * 3 + [0]
    assert set(embed.texts.values()) == {1}
    assert len(embed.texts) == COUNT


def test_the_texts_of_a_search_that_fails_are_free_again(shared_backend: Backend) -> None:
    embed = Slow()
    embed.problem = KeyError("down")
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = create(store["notes"], embed)
        notes.put("001", BODIES["001"])

        def second() -> Any:
            assert embed.started.wait(60)
            embed.release.set()
            return notes.store_vectors()

        first, _ = in_threads(lambda: notes.nearest([0, 1]), second)
        assert first in ([], notes.nearest([0, 1]))
        assert notes.store_vectors() == 0
        assert ids(notes.nearest([0, 1])) == ["001"]
        assert store.core.catalogue.resident.claims.held == {}


def test_others_wait_no_longer_than_a_claim_lasts(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LASTS", 0.2)
    embed = Slow()
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = create(store["notes"], embed)
        notes.put("001", BODIES["001"])

        def second() -> list[str]:
            assert embed.started.wait(60)
            found = ids(notes.nearest([0, 1]))
            embed.release.set()
            return found

        assert in_threads(lambda: ids(notes.nearest([0, 1])), second) == [["001"], ["001"]]
        assert embed.texts["text 1"] == 2


def test_an_embedder_may_use_the_store(shared_backend: Backend) -> None:
    """Two embedders search at once, each while the other embeds: neither waits."""
    meeting, found = threading.Barrier(2), list[list[str]]()
    with Store(shared_backend.url, **shared_backend.options) as store:
        one, other = store["one"], store["other"]

        def embed(texts: list[str]) -> list[list[float]]:
            if texts != ["late"]:
                meeting.wait(60)
                one.put("late", {"text": "late"})
                found.extend((ids(one.nearest([0, 1])), ids(other.nearest([0, 1]))))
                meeting.wait(60)
            return [[1.0, 1.0] for _ in texts]

        for notes in (one, other):
            create(notes, embed)
            notes.put("001", BODIES["001"])
        results = in_threads(lambda: one.nearest([0, 1]), lambda: other.nearest([0, 1]))
        assert [sorted(ids(each)) for each in results] == [["001", "late"], ["001"]]
        assert all(set(each) <= {"late"} for each in found)


def test_tasks_embed_each_text_once(shared_backend: Backend) -> None:
    """More tasks than threads: none of them waits in a thread that the embedder needs."""
    embed = Slow()
    embed.release.set()

    async def search() -> None:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            notes = store["notes"]
            await notes.create_vector_index(
                "text", dimensions=2, metric="l2", embed=embed, model="n"
            )
            await notes.put_many(BODIES)
            found = await asyncio.gather(*(notes.nearest([0, 1], COUNT) for _ in range(40)))
            assert [ids(each) for each in found] == [[*BODIES]] * 40

    asyncio.run(search())
    assert set(embed.texts.values()) == {1}


def test_a_cancelled_task_leaves_its_texts_to_others(shared_backend: Backend) -> None:
    started, calls = asyncio.Event(), Counter[str]()

    async def embed(texts: list[str]) -> list[list[float]]:
        calls.update(texts)
        if calls.total() == 1:
            started.set()
            await asyncio.sleep(3600)
        return [[1.0, 1.0] for _ in texts]

    async def search() -> None:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            notes = store["notes"]
            await notes.create_vector_index("text", dimensions=2, embed=embed, model="n")
            await notes.put("001", BODIES["001"])
            first = asyncio.create_task(notes.nearest([0, 1]))
            await started.wait()
            second = asyncio.create_task(notes.nearest([0, 1]))
            await asyncio.sleep(0.05)
            assert calls.total() == 1
            first.cancel()
            assert ids(await second) == ["001"]
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(search())


def test_an_async_embedder_may_use_the_store(shared_backend: Backend) -> None:
    async def search() -> None:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            notes = store["notes"]

            async def embed(texts: list[str]) -> list[list[float]]:
                assert await notes.nearest([0, 1]) == []
                return [[1.0, 1.0] for _ in texts]

            await notes.create_vector_index("text", dimensions=2, embed=embed, model="n")
            await notes.put("001", BODIES["001"])
            assert ids(await notes.nearest([0, 1])) == ["001"]

    asyncio.run(search())


class SlowQuery(Slow):
    """An embedder whose first call of a query waits for `release`."""

    def __call__(self, texts: list[str]) -> list[list[float]]:
        if texts == ["text 7"]:
            return super().__call__(texts)
        return [[float(text.rpartition(" ")[2]), 1.0] for text in texts]


def test_threads_embed_an_equal_query_once(shared_backend: Backend) -> None:
    embed = SlowQuery()
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = embedded(store, embed)

        def second() -> list[str]:
            return embed.released(lambda: ids(notes.nearest("text 7", 1)))

        def first() -> list[str]:
            return ids(notes.nearest("text 7", 1))

        assert in_threads(first, second, second) == [["007"]] * 3
        assert embed.texts["text 7"] == 1
        assert first() == ["007"]
        assert embed.texts["text 7"] == 2


def test_a_query_whose_embedder_fails_is_embedded_by_those_who_waited(
    shared_backend: Backend,
) -> None:
    embed = SlowQuery()
    embed.problem = KeyError("down")
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = embedded(store, embed)

        def first() -> bool:
            with pytest.raises(KeyError, match="down"):
                notes.nearest("text 7", 1)
            return True

        def second() -> list[str]:
            return embed.released(lambda: ids(notes.nearest("text 7", 1)))

        assert in_threads(first, second) == [True, ["007"]]
        assert embed.texts["text 7"] == 2


def test_nobody_waits_longer_for_a_query_than_a_claim_lasts(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LASTS", 0.2)
    embed = SlowQuery()
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = embedded(store, embed)

        def second() -> list[str]:
            assert embed.started.wait(60)
            found = ids(notes.nearest("text 7", 1))
            embed.release.set()
            return found

        found = in_threads(lambda: ids(notes.nearest("text 7", 1)), second)
        assert found == [["007"], ["007"]]
        assert embed.texts["text 7"] == 2


def test_an_embedder_may_search_for_the_query(shared_backend: Backend) -> None:
    found: list[list[str]] = []
    with Store(shared_backend.url, **shared_backend.options) as store:
        notes = store["notes"]

        def embed(texts: list[str]) -> list[list[float]]:
            if texts == ["text 7"] and not found:
                found.append([])
                found.append(ids(notes.nearest("text 7", 1)))
            return [[float(text.rpartition(" ")[2]), 1.0] for text in texts]

        create(notes, embed).put_many(BODIES)
        notes.store_vectors()
        assert ids(notes.nearest("text 7", 1)) == ["007"]
        assert found == [[], ["007"]]


def test_tasks_embed_an_equal_query_once_and_a_cancelled_one_leaves_it_to_others(
    shared_backend: Backend,
) -> None:
    started, calls = asyncio.Event(), Counter[str]()

    async def embed(texts: list[str]) -> list[list[float]]:
        calls.update(texts)
        if calls["text 7"] == 1:
            started.set()
            await asyncio.sleep(3600)
        await asyncio.sleep(0.2)
        return [[float(text.rpartition(" ")[2]), 1.0] for text in texts]

    async def search() -> None:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            notes = store["notes"]
            await notes.create_vector_index(
                "text", dimensions=2, metric="l2", embed=embed, model="n"
            )
            await notes.put("007", BODIES["007"])
            calls["text 7"] += 1  # of the document
            await notes.store_vectors()
            calls.clear()
            first = asyncio.create_task(notes.nearest("text 7"))
            await started.wait()
            others = [asyncio.create_task(notes.nearest("text 7")) for _ in range(9)]
            for _ in range(6000):
                if store.stats().operations["find_vector_index"].count == 11:
                    break  # all are about to wait
                await asyncio.sleep(0.01)
            assert calls["text 7"] == 1
            first.cancel()
            assert [ids(each) for each in await asyncio.gather(*others)] == [["007"]] * 9
            assert calls["text 7"] == 2
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(search())
