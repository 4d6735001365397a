"""Edge cases of stores."""

import asyncio
import enum
import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import (
    AsyncStore,
    BulkWriteError,
    DatabaseBusy,
    DatabaseError,
    Filter,
    InvalidBody,
    InvalidFilter,
    InvalidId,
    InvalidOption,
    Store,
)
from collections_store.engine.lifecycle import make_ready


class Text(str, enum.Enum):  # noqa: UP042 - its str() is not its value
    PEOPLE = "people"


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


def test_names_and_ids_are_plain_strings(store: Any) -> None:
    things = store["things"]
    store[Text.PEOPLE].put(Text.PEOPLE, 1)
    assert [info.name for info in store.collections()] == ["people"]
    assert store["people"].get("people") == 1
    with pytest.raises(InvalidBody, match="not a string"):
        things.put("a", {Text.PEOPLE: 1})
    key, value = Loud("key"), Loud("value")
    things.put("a", {key: value})
    assert things.get("a") == {"key": "value"}


def test_a_string_is_not_a_list_of_ids(things: Any) -> None:
    things.put("a", 1)
    calls: list[tuple[Any, Any]] = [
        (things.remove_many, "abc"),
        (things.get_many, "abc"),
    ]
    for method, given in calls:
        with pytest.raises(InvalidId):
            method(given)
    for given in (["ab", "cd"], [("a", 1, 2)]):
        with pytest.raises(BulkWriteError, match="give pairs of an id and a body"):
            things.put_many(given)
    assert things.count() == 1


def test_a_handle_keeps_its_store_alive(tmp_path: Path) -> None:
    things = AsyncStore(f"sqlite:///{tmp_path / 'store.db'}").get_sync_collection("things")
    gc.collect()
    assert things.put("a", 1) == 1


def test_many_conditions(things: Any) -> None:
    things.put("a", {f"k{n}": n for n in range(1500)})
    assert things.count({f"k{n}": n for n in range(1500)}) == 1
    assert things.count({"$or": [{f"k{n}": -1} for n in range(1500)]}) == 0
    assert things.count({"$or": [{f"k{n}": n} for n in range(1500)]}) == 1


def test_numeric_paths_are_fast(things: Any) -> None:
    body: Any = 1
    for _ in range(60):
        body = [{"0": body}]
    things.put("a", {"0": body})
    begun = time.monotonic()
    assert things.count(".".join(["0"] * 61), 1) == 1
    assert things.count(".".join(["0"] * 200), 1) == 0
    assert time.monotonic() - begun < 20


def test_waiting_for_other_writes_counts_towards_busy_timeout(tmp_path: Path) -> None:
    import sqlite3

    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    with Store(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=0.6) as store:
        store["things"].put("a", 1)
        holder.execute("BEGIN IMMEDIATE")
        waited: list[float] = []

        def wait(number: int) -> None:
            begun = time.monotonic()
            with pytest.raises(DatabaseBusy):
                store["things"].put_many({str(number): 1})
            waited.append(time.monotonic() - begun)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(waited) == 8
        assert max(waited) < 3
        holder.execute("ROLLBACK")
    holder.close()


def test_aclose_finishes_submitted_calls(backend: Backend) -> None:
    async def main() -> None:
        store = AsyncStore(backend.url, **backend.options)
        await store["warm"].put("a", 1)
        puts = [asyncio.create_task(store[f"new_{n}"].put("a", n)) for n in range(5)]
        await asyncio.sleep(0)
        await asyncio.gather(store.aclose(), store.aclose())
        assert await asyncio.gather(*puts) == [1] * 5

    asyncio.run(main())


def test_lost_idle_connections_fail_no_write(postgres_backend: Backend) -> None:
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    name = postgres_backend.options["schema"]
    end = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :n"
    )

    async def main() -> None:
        url = f"{postgres_backend.url}?application_name={name}"
        async with AsyncStore(url, **postgres_backend.options) as store:
            await asyncio.gather(*(store["things"].put(str(n), n) for n in range(20)))
            with engine.begin() as connection:
                connection.execute(end, {"n": name})
            puts = (store["things"].put(f"again {n}", n) for n in range(50))
            answers = await asyncio.gather(*puts, return_exceptions=True)
            assert sum(answer == 1 for answer in answers) >= 49
            assert await store["things"].count() == 20 + sum(answer == 1 for answer in answers)

    asyncio.run(main())
    engine.dispose()


def test_a_statement_timeout_is_not_retried(postgres_backend: Backend) -> None:
    from faults.test_cancellation import Slow

    url = f"{postgres_backend.url}?options=-cstatement_timeout%3D200"
    with Store(url, **postgres_backend.options) as store:
        store["things"].put("a", 1)
        begun = time.monotonic()
        with pytest.raises(DatabaseError, match="statement timeout"):
            store.run(Slow("SELECT pg_sleep(30)"))
        assert time.monotonic() - begun < 5


def test_collections_are_listed_during_creates_and_drops(shared_backend: Backend) -> None:
    backend = shared_backend
    with (
        Store(backend.url, **backend.options) as store,
        Store(backend.url, **backend.options) as other,
    ):
        stop = threading.Event()

        def churn() -> None:
            while not stop.is_set():
                other["tmp"].put("a", 1)
                other.drop("tmp")

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for _ in range(200):
                assert len(store.collections()) <= 1
        finally:
            stop.set()
            thread.join(30)


def test_a_bound_store_reloads_the_catalogue_after_a_rollback(shared_backend: Backend) -> None:
    engine = sa.create_engine(shared_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        engine.connect() as connection,
    ):
        bound = store.bind(connection)
        bound["things"].put("a", 1)
        connection.rollback()
        assert bound["things"].get("a") is None
        bound["things"].put("b", 2)
        savepoint = connection.begin_nested()
        bound["more"].put("c", 3)
        savepoint.rollback()
        assert bound["more"].get("c") is None
        bound["more"].put("d", 4)
        connection.commit()
        assert (store["things"].count(), store["more"].count()) == (1, 1)
        store.drop("things")
        assert bound["things"].get("b") is None
        connection.rollback()
        assert bound["things"].put("e", 5) == 1
        connection.commit()
        connection.close()
        with pytest.raises(InvalidOption, match=r"must be an open sqlalchemy\.Con[^:]*$"):
            store.bind(connection)
        with pytest.raises(DatabaseError):
            bound["things"].get("e")
    engine.dispose()


def test_filters_are_created_by_parse() -> None:
    with pytest.raises(InvalidFilter, match=r"Filter\.parse"):
        Filter({"a": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["sqlite:///file::memory:?uri=true", "sqlite:///file:x?mode=memory&uri=true"]
)
def test_memory_by_uri(url: str) -> None:
    with Store(url) as store:
        store["things"].put_many({"a": 1})
        assert store["things"].get("a") == 1


def test_the_first_call_waits_for_a_store_that_opens_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout of an operation begins when the store is open: nothing was ahead of it before."""

    def slow(*arguments: Any, **options: Any) -> None:
        time.sleep(1.5)
        make_ready(*arguments, **options)

    monkeypatch.setattr("collections_store.engine.open_database.make_ready", slow)

    async def main() -> int:
        async with AsyncStore(f"sqlite:///{tmp_path / 'store.db'}", busy_timeout=1.0) as store:
            return sum(await asyncio.gather(*(store["a"].put(str(n), n) for n in range(3))))

    assert asyncio.run(main()) == 3
