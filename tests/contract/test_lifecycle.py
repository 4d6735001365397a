"""Opening and closing, the same on every backend, in both colours."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Place

from collections_store import (
    AsyncStore,
    DatabaseUnavailable,
    InvalidOption,
    InvalidUrl,
    Store,
    StoreClosed,
)


def test_close_is_idempotent_and_final(open_store: Any) -> None:
    store = open_store()
    store["a"].put("x", 1)
    store.close()
    store.close()
    for verb in (lambda: store["a"].get("x"), lambda: store["a"].put("x", 1), store.collections):
        with pytest.raises(StoreClosed):
            verb()


def test_a_store_that_was_never_used_closes(open_store: Any) -> None:
    store = open_store()
    store.close()
    with pytest.raises(StoreClosed):
        store["a"].get("x")


def test_a_context_manager_closes(open_store: Any) -> None:
    with open_store() as store:
        store["a"].put("x", 1)
    with pytest.raises(StoreClosed):
        store["a"].get("x")


def test_objects_survive_their_store(open_store: Any) -> None:
    if open_store.place.is_private:
        pytest.skip("in memory, they do not")
    for durability in ("full", "normal"):
        with open_store(durability=durability) as store:
            store["a"].put(durability, {"x": [1]})
    with open_store() as store:
        assert store["a"].get_many(["full", "normal"]) == {"full": {"x": [1]}, "normal": {"x": [1]}}


def test_a_writer_never_stops_readers(shared_place: Place) -> None:
    """Eight threads, and another store, read while a transaction that has written is open."""
    options = {**shared_place.options, "busy_timeout": 2}
    with Store(shared_place.url, **options) as store, Store(shared_place.url, **options) as other:
        store["a"].put("x", 1)
        with store.transaction() as transaction, ThreadPoolExecutor(8) as readers:
            transaction["a"].put("x", 2)
            reading = [readers.submit(each["a"].get, "x") for each in (store, other) * 50]
            assert [each.result(30) for each in reading] == [1] * 100
        assert store["a"].get("x") == other["a"].get("x") == 2


def test_many_threads_use_one_store(open_store: Any) -> None:
    store = open_store()
    things = store.get_sync_collection("things")
    barrier = threading.Barrier(8)

    def work(number: int) -> int:
        barrier.wait()
        for turn in range(50):
            things.put(f"{number} {turn}", turn)
            assert things.get(f"{number} {turn}") == turn
            things.put("shared", turn)
        count: int = things.count()
        return count

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert things.count() == 401
    assert things.document("shared").version == 400


def test_a_small_pool_serves_many_threads(open_store: Any) -> None:
    store = open_store(pool_size=1)
    things = store.get_sync_collection("things")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: things.put(str(n), n) and things.get(str(n)), range(100)))
    assert things.count() == 100


@pytest.mark.parametrize("colour", [Store, AsyncStore])
@pytest.mark.parametrize(
    "url",
    [
        "mysql://host/db",
        "sqlite+aiosqlite:///x.db",
        "postgresql+asyncpg://host/db",
        "sqlite://folder/file.db",
        "nonsense",
        "",
        "postgres://host/db",
    ],
)
def test_wrong_urls_are_refused_at_once(colour: Any, url: str) -> None:
    with pytest.raises(InvalidUrl, match=r"sqlite:///|postgresql://"):
        colour(url)


@pytest.mark.parametrize("colour", [Store, AsyncStore])
def test_a_password_is_never_shown(colour: Any) -> None:
    store = colour("postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in repr(store)
    for option in ("password", "sslpassword", "PASSWD"):
        shown = repr(colour(f"postgresql://me@127.0.0.1:1/db?{option}=secret&passfile=pass.txt"))
        assert "secret" not in shown
        assert f"{option}=..." in shown
        assert "passfile=pass.txt" in shown
    with pytest.raises(InvalidUrl) as caught:
        colour("mysql://me:secret@host/db")
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidUrl) as caught:
        colour("postgresql://me:secret@host:nonsense/db")
    assert "secret" not in str(caught.value)


def test_either_a_url_or_an_engine() -> None:
    with pytest.raises(InvalidOption, match="either a URL or an engine"):
        Store()
    with pytest.raises(InvalidOption, match="engine"):
        Store(engine="sqlite://")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no schemas"):
        Store("sqlite://", schema="x")


def test_a_server_that_is_not_there(postgres_url: str) -> None:
    with (
        Store("postgresql://me:secret@127.0.0.1:1/db") as store,
        pytest.raises(DatabaseUnavailable) as caught,
    ):
        store["a"].put("x", 1)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, ConnectionError)
    wrong = postgres_url.rsplit("/", 1)[0] + "/no_such_database"
    with Store(wrong) as store, pytest.raises(DatabaseUnavailable, match="no_such_database"):
        store["a"].get("x")


def test_a_file_that_cannot_be(tmp_path: Any) -> None:
    with (
        Store(f"sqlite:///{tmp_path}/no/such/folder.db") as store,
        pytest.raises(DatabaseUnavailable, match="does the folder exist"),
    ):
        store["a"].put("x", 1)
    (tmp_path / "text.db").write_text(
        "This is no database, but it is long enough to be looked at." * 20
    )
    with (
        Store(f"sqlite:///{tmp_path}/text.db") as store,
        pytest.raises(DatabaseUnavailable, match="no SQLite database"),
    ):
        store["a"].put("x", 1)


def test_the_uri_of_aea_is_a_relative_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("sqlite://./some_file.db") as store:
        store["a"].put("x", 1)
    assert (tmp_path / "some_file.db").exists()
