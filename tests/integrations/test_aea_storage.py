"""AEA's storage on a store: the promises of AEA's own backend, also those that it breaks."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from selection import sampled

pytest.importorskip("aea", reason="the extra `aea` is not installed")

from aea.helpers.storage import generic_storage
from aea.helpers.storage.backends.sqlite import SqliteStorageBackend
from integrations.aea_agents import agent, closed_loops, of_sqlalchemy_here, running, url

from collections_store import (
    AsyncStore,
    DatabaseUnavailable,
    InvalidBody,
    InvalidFilter,
    InvalidId,
    InvalidOption,
    InvalidUrl,
    Store,
    StoreClosed,
)
from collections_store.integrations.aea import CollectionsBackend, Storage, register
from collections_store.integrations.aea.formats import MARK, decoded, encoded
from collections_store.integrations.aea.storage import Worker

__all__ = ["closed_loops", "url"]


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    """A running storage."""
    storage = Storage(f"collections+{url}", threaded=True)
    storage.start()
    yield storage
    end(storage)


@pytest.fixture
def things(storage: Storage) -> Any:
    return storage.get_sync_collection("things")


def end(storage: Any) -> None:
    storage.stop()
    storage.wait_completed(sync=True, timeout=30)


# -- objects ---------------------------------------------------------------------------------

BODIES: list[Any] = [
    {"a": {"b": [1, 2.5, None, True, "é"]}},
    [1, [2]],
    "text",
    True,
    None,
    12,
    12.5,
    10**30,
    -(10**19),
    float("inf"),
    {"wei": 10**19, "nul": "a\0b", "half": "\ud800", "k\0y": 1},
    {MARK: ["int", "5"]},
    {MARK: {MARK: 1}, "other": MARK},
    {},
    "",
]


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_every_body_that_aea_accepts_is_restored(things: Any, body: Any) -> None:
    things.put("id", body)
    found = things.get("id")
    assert found == body
    assert type(found) is type(body)
    assert [tuple(each) for each in things.list()] == [("id", body)]


def test_bodies_are_converted_as_by_json(things: Any) -> None:
    things.put("1", {1: (1, 2), None: float("nan")})
    body = things.get("1")
    assert body["1"] == [1, 2]
    assert body["null"] != body["null"]
    assert decoded(encoded({"a": (1,)})) == {"a": [1]}


@pytest.mark.parametrize(
    "body",
    [5, [], ["int"], ["int", "x"], ["bad", 1], ["object", 5], {"a": 1}, "ab", None],
    ids=repr,
)
def test_invalid_records_of_others_block_nothing(storage: Storage, things: Any, body: Any) -> None:
    things.put("1", 1)
    storage.store["things"].put("2", {MARK: body})
    assert things.list() == [("1", 1), ("2", {MARK: body})]
    assert things.get("2") == {MARK: body}


@pytest.mark.parametrize("body", [{1, 2}, b"bytes", object()], ids=lambda body: type(body).__name__)
def test_invalid_json_is_rejected_and_changes_nothing(things: Any, body: Any) -> None:
    things.put("1", "old")
    with pytest.raises(TypeError):
        things.put("1", body)
    assert things.get("1") == "old"


def test_put_get_remove_and_list(things: Any) -> None:
    assert things.put("1", {"a": 1}) is None
    assert things.put("1", {"b": 2}) is None
    things.put("2", "two")
    assert things.get("1") == {"b": 2}
    assert things.get("3") is None
    assert [each[0] for each in things.list()] == ["1", "2"]
    assert all(type(each) is tuple for each in things.list())
    assert things.remove("1") is None
    assert things.remove("1") is None
    assert things.get("1") is None
    fresh = things.get("2"), things.list()
    assert fresh is not None


def test_returned_objects_are_copies(things: Any) -> None:
    body = {"list": [1]}
    things.put("1", body)
    body["list"].append(2)
    things.get("1")["list"].append(3)
    assert things.get("1") == {"list": [1]}


def test_ids_are_strings_as_in_aea(things: Any) -> None:
    things.put(1, "one")
    assert [things.get(each) for each in ("1", 1, True)] == ["one"] * 3
    things.put("", "empty")
    assert things.get("") == "empty"
    for bad in (None, b"1", (1,), "a\0"):
        with pytest.raises(InvalidId):
            things.put(bad, 1)


def test_equal_strings_are_one_id(things: Any) -> None:
    things.put("1", {"opponent": "agent one", "starter": "agent one"})
    found = things.get("1")
    assert found["opponent"] is found["starter"]


@pytest.mark.parametrize("name", ["1abc", "123", "order", "table", "select", "sqlite_x", "x" * 300])
def test_names_may_be_sql_keywords(storage: Storage, name: str) -> None:
    storage.get_sync_collection(name).put("1", name)
    assert storage.get_sync_collection(name).get("1") == name


def test_names_are_case_sensitive(storage: Storage) -> None:
    storage.get_sync_collection("Foo").put("1", "Foo")
    storage.get_sync_collection("foo").put("1", "foo")
    assert storage.get_sync_collection("Foo").get("1") == "Foo"


@pytest.mark.parametrize("name", ["a-b", "", "a b", "abc\n", "é", "a.b"])
def test_a_bad_name_raises_aeas_error(storage: Storage, name: str) -> None:
    with pytest.raises(ValueError, match="Invalid collection name"):
        storage.get_sync_collection(name)


def test_collections_and_storage_are_truthy(storage: Storage, things: Any) -> None:
    assert things
    assert bool(storage)


# -- find ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "equals"),
    [
        ("a.b", 1),
        ("$.a.b", 1),
        ('"d.ot"', 2),
        ('$."d.ot"', 2),
        ("list[0].k", 3),
        ("list[#-1].k", 4),
        ("matrix[#-1][0]", 7),
        ("matrix[0][#-2]", 5),
        ("é", 5),
        ("a-b", 6),
        ("$.$.x", 7),
        ('""', 8),
        ("wei", 10**20),
        ("nul", "a\0b"),
        ("json", '{"b":1}'),
        ("flag", True),
        ("a.b", 1.0),
    ],
)
def test_find_accepts_aeas_paths(things: Any, field: str, equals: Any) -> None:
    body = {
        "a": {"b": 1},
        "d.ot": 2,
        "list": [{"k": 3}, {"k": 4}],
        "matrix": [[5, 6], [7, 8]],
        "é": 5,
        "a-b": 6,
        "$": {"x": 7},
        "": 8,
        "wei": 10**20,
        "nul": "a\0b",
        "json": '{"b":1}',
        "flag": True,
    }
    things.put("yes", body)
    things.put("no", {"a": {"b": 9}, "list": [], "matrix": 3})
    things.put("text", "text")
    assert things.find(field, equals) == [("yes", body)]


def test_find_distinguishes_types(things: Any) -> None:
    for number, value in enumerate([1, True, "1", None, {"b": 1}, '{"b":1}']):
        things.put(str(number), {"x": value})
    assert [id for id, _ in things.find("x", 1)] == ["0"]
    assert [id for id, _ in things.find("x", True)] == ["1"]
    assert [id for id, _ in things.find("x", "1")] == ["2"]
    assert [id for id, _ in things.find("x", '{"b":1}')] == ["5"]


def test_a_nan_does_not_disturb_find(things: Any) -> None:
    things.put("nan", {"x": float("nan")})
    things.put("one", {"x": 1})
    assert things.find("x", 1) == [("one", {"x": 1})]


@pytest.mark.parametrize("field", ["", "a..b", "a.", ".a", "a[", "a[-1]", "a[*]", None, 5])
def test_invalid_fields_are_rejected(things: Any, field: Any) -> None:
    with pytest.raises(InvalidFilter):
        things.find(field, 1)


# -- start and stop --------------------------------------------------------------------------


def test_no_race_at_start(tmp_path: Path) -> None:
    storage = Storage(f"collections+sqlite:///{tmp_path / 'a.db'}", threaded=True)
    with pytest.raises(ValueError, match="not started"):
        storage.get_sync_collection("things")
    times = 300 // sampled(3)
    for number in range(times):
        storage.start()
        storage.get_sync_collection("things").put("number", number)
        end(storage)
    storage.start()
    assert storage.get_sync_collection("things").get("number") == times - 1
    end(storage)


def test_no_race_at_start_of_aeas_own_storage(tmp_path: Path) -> None:
    register()
    uri = f"collections+sqlite:///{tmp_path / 'a.db'}"
    storage = generic_storage.Storage(uri, threaded=True)
    for number in range(50):
        storage.start()
        storage.get_sync_collection("things").put("number", number)
        end(storage)


def test_no_caller_hangs_at_stop(url: str) -> None:
    storage = Storage(f"collections+{url}", threaded=True)
    errors: list[Any] = []
    hung = 0
    for _ in range(20):
        storage.start()
        things = storage.get_sync_collection("things")
        begun = threading.Barrier(5)

        def write(things: Any = things, begun: Any = begun) -> None:
            begun.wait()
            try:
                for number in range(1_000_000):
                    things.put(str(threading.get_ident()), number)
            except Exception as error:  # noqa: BLE001 - any error
                errors.append(error)

        threads = [threading.Thread(target=write, daemon=True) for _ in range(4)]
        for each in threads:
            each.start()
        begun.wait()
        things.get("x")
        end(storage)
        for each in threads:
            each.join(20)
        hung += sum(each.is_alive() for each in threads)
    assert hung == 0
    assert {type(each) for each in errors} == {StoreClosed}
    assert len(errors) == 80


async def _write_until_it_ends(storage: Any) -> Any:
    things = await storage.get_collection("things")
    with pytest.raises(StoreClosed):
        for number in range(1_000_000):
            await things.put("1", number)


def test_no_caller_in_another_loop_hangs_at_stop(url: str) -> None:
    storage = Storage(f"collections+{url}", threaded=True)
    for _ in range(3):
        storage.start()
        with ThreadPoolExecutor(4) as threads:
            outcomes = [
                threads.submit(asyncio.run, _write_until_it_ends(storage)) for _ in range(4)
            ]
            storage.get_sync_collection("things").put("2", 2)
            storage.stop()
            storage.wait_completed(sync=True, timeout=15)  # less than the timeout of a backend
            for each in outcomes:
                each.result(15)


def test_a_call_of_a_closed_loop_does_not_prevent_stopping(tmp_path: Path) -> None:
    storage = Storage(f"collections+sqlite:///{tmp_path / 'a.db'}", threaded=True)
    storage.start()
    loop = asyncio.new_event_loop()

    async def begin() -> Any:
        things = await storage.get_collection("things")
        call = asyncio.create_task(things.put("1", 1))
        await asyncio.sleep(0)  # it is running, and its loop has stopped
        return call

    call = loop.run_until_complete(begin())
    storage.stop()
    storage.wait_completed(sync=True, timeout=15)
    call.cancel()
    loop.run_until_complete(asyncio.gather(call, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_calls_before_connecting_may_fail(tmp_path: Path) -> None:
    storage = Storage(f"collections+sqlite:///{tmp_path / 'a.db'}", threaded=True)
    failing = [True]
    storage.before_connected(lambda: 1 / (0 if failing[0] else 1))
    storage.start()
    with pytest.raises(ZeroDivisionError):
        storage.wait_completed(sync=True, timeout=30)
    with pytest.raises(StoreClosed):  # nothing is left open
        storage.store  # noqa: B018
    failing[0] = False
    storage.start()
    asyncio.run(asyncio.wait_for(storage.wait_connected(), 30))
    end(storage)


def test_a_collection_survives_a_restart(storage: Storage, things: Any) -> None:
    things.put("1", 1)
    end(storage)
    with pytest.raises(StoreClosed):
        things.get("1")
    storage.start()
    assert things.get("1") == 1


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for number in range(10):
        storage = Storage(f"collections+sqlite:///{tmp_path / f'{number}.db'}", threaded=True)
        storage.start()
        storage.get_sync_collection("things").put("1", 1)
        end(storage)
    left = set(threading.enumerate()) - before
    for each in left:  # Fetch.ai's waits for the task, not for its thread
        each.join(20)
    assert not [each for each in left if each.is_alive()]


def test_stop_before_start_and_twice(tmp_path: Path) -> None:
    storage = Storage(f"collections+sqlite:///{tmp_path / 'a.db'}", threaded=True)
    storage.stop()
    storage.start()  # AEA's: the stop comes first
    storage.start()
    storage.get_sync_collection("things").put("1", 1)
    end(storage)
    end(storage)


async def _async_side(uri: str) -> None:
    storage: Any = Storage(uri, threaded=True)
    storage.start()
    await asyncio.wait_for(storage.wait_connected(), 30)
    assert storage.is_connected
    things = await storage.get_collection("things")  # from another loop than the storage's
    await things.put("1", {"a": [10**30]})
    assert await things.get("1") == {"a": [10**30]}
    assert await things.find("a[#-1]", 10**30) == [("1", {"a": [10**30]})]
    assert await things.list() == [("1", {"a": [10**30]})]
    await things.remove("1")
    assert await things.get("1") is None
    storage.stop()
    await asyncio.wait_for(storage.wait_completed(), 30)
    assert not storage.is_connected
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(storage.wait_connected(), 30)


def test_the_async_side_works_from_any_loop(url: str) -> None:
    asyncio.run(_async_side(f"collections+{url}"))


def test_unthreaded_storage_does_not_deadlock(url: str) -> None:
    async def main() -> Any:
        storage = Storage(f"collections+{url}", loop=asyncio.get_running_loop())
        storage.start()
        things = storage.get_sync_collection("things")  # in the storage's own loop
        things.put("1", 1)
        await storage.wait_connected()
        found = things.get("1")
        storage.stop()
        await storage.wait_completed()
        return found

    assert asyncio.run(main()) == 1


def test_a_cancelled_wait_does_not_end_others(tmp_path: Path) -> None:
    """AEA's runtime cancels a wait when it stops, and then waits until the storage is disconnected."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    storage: Any = Storage(f"collections+{url}", threaded=True)

    async def main() -> None:
        storage.start()
        await storage.wait_connected()
        cancelled = asyncio.ensure_future(storage.wait_completed())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        with storage.store.transaction():  # the storage waits for its end
            storage.stop()
            over = asyncio.ensure_future(storage.wait_completed())
            await asyncio.wait([over], timeout=0.2)
            assert not over.done()
        await asyncio.wait_for(over, 30)
        assert not storage.is_connected

    asyncio.run(main())


def test_sqlalchemy_does_not_run_in_the_main_thread(tmp_path: Path) -> None:
    """A KeyboardInterrupt in one of AEA's weak reference callbacks is lost."""
    storage = Storage(f"collections+sqlite:///{tmp_path / 'a.db'}", threaded=True)
    storage.start()
    with of_sqlalchemy_here() as seen:
        things = storage.get_sync_collection("things")
        things.put("1", {"a": 1})
        assert things.get("1") == {"a": 1}
        assert things.find("a", 1) == things.list() == [("1", {"a": 1})]
        things.remove("1")
        assert storage.store["things"].count({"a": {"$gt": 1}}) == 0
    end(storage)
    assert not seen


def test_a_storage_that_cannot_connect_raises_everywhere(tmp_path: Path) -> None:
    storage = Storage(f"collections+sqlite:///{tmp_path / 'none' / 'a.db'}", threaded=True)

    async def main() -> None:
        storage.start()
        waits: Any = storage.wait_completed(), storage.wait_connected()
        outcomes = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 30)
        assert [type(each) for each in outcomes] == [DatabaseUnavailable] * 2

    asyncio.run(main())


def test_an_agent_whose_storage_cannot_connect_fails_and_does_not_hang(tmp_path: Path) -> None:
    register()
    for _ in range(8):
        aea = agent(tmp_path, storage_uri=f"collections+sqlite:///{tmp_path / 'none' / 'a.db'}")
        with pytest.raises(DatabaseUnavailable), running(aea):
            raise AssertionError


def test_a_backend_waits_for_its_connection_and_drains(tmp_path: Path) -> None:
    backend = CollectionsBackend(f"collections+sqlite:///{tmp_path / 'a.db'}")

    async def main() -> list[Any]:
        early = asyncio.create_task(backend.ensure_collection("things"))
        await asyncio.sleep(0)
        await backend.connect()
        await early
        puts = [asyncio.create_task(backend.put("things", str(n), n)) for n in range(50)]
        await asyncio.sleep(0)
        await backend.disconnect()
        await backend.disconnect()
        return await asyncio.gather(*puts, return_exceptions=True)

    for _ in range(3):  # under a new loop each time
        results = asyncio.run(main())
        assert len(results) == 50
        assert all(each is None or isinstance(each, StoreClosed) for each in results)


def test_threads_share_a_collection(things: Any) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: things.put(str(n), n), range(200)))
    assert sorted(body for _, body in things.list()) == list(range(200))


# -- URIs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri", ["collections+sqlite:///{}", "collections:sqlite:///{}", "COLLECTIONS+SQLite:///{}"]
)
def test_the_uri_names_the_store(tmp_path: Path, uri: str) -> None:
    file = tmp_path / "a.db"
    storage = Storage(uri.format(file), threaded=True)
    storage.start()
    storage.get_sync_collection("things").put("1", {"a": 1})
    end(storage)
    with Store(f"sqlite:///{file}") as store:
        assert store["things"].get("1") == {"a": 1}


@pytest.mark.parametrize(
    "uri",
    [
        "collections://x.db",
        "collections+sqlite",
        "collections:",
        "collections+mysql://x/y",
        "collections:nonsense",
        "sqlite:///x.db",
        "collections+sqlite:///x.db?attach=all",
        "collections+sqlite:///x.db?attach=dialogues&attach=dialogues",
    ],
)
def test_an_invalid_uri_is_rejected_when_the_agent_is_built(uri: str) -> None:
    with pytest.raises(InvalidUrl):
        Storage(uri)


@pytest.mark.parametrize("option", ["atach=dialogues", "attach_=1", "busytimeout=3"])
def test_an_unknown_option_of_the_uri_is_rejected(option: str) -> None:
    with pytest.raises(
        InvalidUrl, match="also takes attach, busy_timeout, consistency, durability, max_body"
    ):
        Storage(f"collections+sqlite:///x.db?{option}")


@pytest.mark.parametrize(
    "option", ["busy_timeout=soon", "pool_size=1.5", "durability=some", "max_body=-1"]
)
def test_an_invalid_option_of_the_uri_is_rejected(option: str) -> None:
    with pytest.raises((InvalidUrl, InvalidOption), match=option.partition("=")[0]):
        Storage(f"collections+sqlite:///x.db?{option}")


def test_the_uri_may_contain_options_of_the_store(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    storage = Storage(f"collections+sqlite:///{file}?max_body=100&prefix=mine_&attach=dialogues")
    with pytest.raises(InvalidBody):
        storage.open()["things"].put("1", "x" * 101)
    storage.open()["things"].put("1", "x")
    storage.open().close()
    with Store(f"sqlite:///{file}", prefix="mine_") as store:
        assert store["things"].get("1") == "x"


def test_no_password_is_shown(postgres_url: str) -> None:
    storage = Storage("collections+postgresql://me:secret@localhost/x", threaded=True)
    assert "secret" not in repr(storage)


def test_an_unknown_scheme_of_a_registered_agent_is_aeas_own(tmp_path: Path) -> None:
    register()
    register()
    aea = agent(tmp_path, storage_uri=f"sqlite://{tmp_path / 'a.db'}")
    assert isinstance(aea.runtime.storage._backend, SqliteStorageBackend)
    assert agent(tmp_path).runtime.storage is None
    ours = agent(tmp_path, storage_uri="collections+sqlite://")
    assert isinstance(ours.runtime.storage, Storage)


@pytest.mark.parametrize("variant", [Store, AsyncStore])
def test_a_storage_over_a_given_store_leaves_it_open(tmp_path: Path, variant: Any) -> None:
    store = variant(f"sqlite:///{tmp_path / 'a.db'}")
    storage = Storage(store, threaded=True)

    async def main() -> None:
        storage.start()
        things = await storage.get_collection("things")
        await things.put("1", 1)
        assert await things.find("x", 1) == []
        storage.get_sync_collection("things").put("2", 2)
        storage.stop()
        await storage.wait_completed()
        assert store.get_sync_collection("things").get("2") == 2
        if variant is AsyncStore:
            await store.aclose()
        else:
            store.close()

    asyncio.run(main())


def test_the_stores_limits_are_reported(things: Any) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(InvalidBody):
        things.put("1", deep)


def test_a_worker_that_was_stopped_is_not_waited_for() -> None:
    worker = Worker()
    assert worker.run(str, 5) == "5"
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda number: 1 / number, 0)
    worker.stop()
    assert worker.run(str, 6) == "6"
