"""Schema changes of a collection during writes and other schema changes."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from faults.test_change_feed import InThread, wait_for_a_lock

from collections_store import (
    Change,
    ChangesLost,
    Collection,
    InvalidIndex,
    Store,
    TransactionConflict,
)
from collections_store.engine import executor as execution
from collections_store.operations.collections import ListCollections
from collections_store.operations.diagnosis import Diagnose
from collections_store.operations.operation import Operation


def engine_of(backend: Backend) -> sa.Engine:
    return sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"))


@pytest.mark.parametrize("own", [True, False], ids=["url", "engine"])
def test_a_rename_keeps_concurrently_set_options(postgres_backend: Backend, own: bool) -> None:
    engine = engine_of(postgres_backend)
    where: Any = {"url": postgres_backend.url} if own else {"engine": engine}
    with Store(**where, **postgres_backend.options) as store:
        store["old"].put("a", {"n": 1})
        with engine.begin() as connection:
            store.bind(connection)["old"].create_index("n", name="by_n")
            renaming = InThread(lambda: store.rename("old", "new"))
            wait_for_a_lock(postgres_backend)
        renaming.result()
        assert [index.name for index in store["new"].indexes()] == ["by_n"]
    engine.dispose()


PATIENT = "?options=-cdeadlock_timeout%3D60s"
"""A session with this setting does not detect a deadlock: the other one does, and fails."""

CHANGES: dict[str, Callable[[Store], Any]] = {
    "create_index": lambda store: store["things"].create_index("m"),
    "drop_index": lambda store: store["things"].drop_index("by_n"),
    "hide_index": lambda store: store["things"].hide_index("by_n"),
    "configure": lambda store: store.get_sync_collection("things", ttl=1000),
    "rename": lambda store: store.rename("things", "others"),
    "drop": lambda store: store.drop("things"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_writes_and_schema_changes_do_not_deadlock(postgres_backend: Backend, change: str) -> None:
    backend = postgres_backend
    with (
        Store(backend.url, **backend.options) as store,
        Store(backend.url + PATIENT, **backend.options) as patient,
    ):
        store.get_sync_collection("things", changes=True).create_index("n", name="by_n")
        with store.transaction() as tx:
            tx["things"].put("a", {"n": 1})
            changing = InThread(lambda: CHANGES[change](patient))
            wait_for_a_lock(backend)
        changing.result()
        left = {"rename": ["others"], "drop": []}.get(change, ["things"])
        assert [info.name for info in store.collections()] == left


def test_an_index_is_created_during_reads(postgres_backend: Backend) -> None:
    backend = postgres_backend
    with (
        Store(backend.url, **backend.options) as store,
        Store(backend.url, **backend.options) as other,
    ):
        store["things"].put("a", {"n": 1})
        with store.transaction() as reading:
            assert reading["things"].count() == 1
            other["things"].create_index("n")
            with other.transaction() as changing:
                changing["things"].create_index("m")
                assert store["things"].count({"n": 1}) == 1


def test_a_schema_change_without_effect_does_not_wait(postgres_backend: Backend) -> None:
    backend = postgres_backend
    with (
        Store(backend.url, **backend.options) as store,
        Store(backend.url, **backend.options) as other,
    ):
        things = store.get_sync_collection("things", ttl=1000)
        things.create_index("n")
        with store.transaction() as tx:
            tx["things"].put("a", {"n": 1})
            assert not other["things"].drop_index("none")
            other["things"].create_index("n")
            assert other.get_sync_collection("things", ttl=1000).count() == 0


def test_tables_that_were_dropped_manually(shared_backend: Backend) -> None:
    backend, name = shared_backend, "Things"
    with Store(backend.url, **backend.options) as store:
        table = sa.inspect(store.model(name)).local_table
        engine = engine_of(backend)
        table.drop(engine)
        engine.dispose()
        assert store.drop(name)
        assert store.collections() == []
        store[name].create_index("n")
        store.rename(name, "new")
        assert [info.name for info in store.collections()] == ["new"]


def test_a_stream_ignores_a_former_collection_of_the_same_name(
    shared_backend: Backend,
) -> None:
    backend = shared_backend
    with (
        Store(backend.url, **backend.options) as store,
        Store(backend.url, **backend.options) as other,
    ):
        things = store.get_sync_collection("things", changes=True)
        things.put("a", 1)
        stream = things.watch(after="oldest")
        assert next(stream).id == "a"
        other.rename("things", "old")
        other.get_sync_collection("things", changes=True)
        other["old"].put("of the old one", 1)
        with pytest.raises(ChangesLost):
            stream.try_next()
        assert [each.id for each in drained(other["old"])] == ["a", "of the old one"]
        other.get_sync_collection("old", changes="after").put("b", 1)
        assert [each.id for each in drained(store["old"])] == ["a", "of the old one", "b"]


def test_a_rolled_back_rename_keeps_pending_changes(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store.get_sync_collection("things", changes=True)
        with store.transaction() as tx:
            tx["things"].put("a", 1)
            with pytest.raises(ZeroDivisionError), tx.transaction():
                tx["things"].put("undone", 1)
                tx.rename("things", "others")
                tx["others"].put("undone too", 1)
                raise ZeroDivisionError
            tx["things"].put("b", 1)
        assert [each.id for each in drained(store["things"])] == ["a", "b"]


def drained(things: Collection) -> list[Change]:
    """Return all recorded changes."""
    return list(things.watch(after="oldest", timeout=0))


class Listing(Operation[Any]):
    """List the collections, while another store drops or renames each as soon as it is listed."""

    collections = ()
    snapshot = False

    def __init__(self, other: Store) -> None:
        self.other, self.left = other, 0

    def __call__(self, connection: Any) -> Any:
        changing: Any = Changing(connection, self)
        return ListCollections()(changing)


class Changing:
    """A connection that drops a collection before each statement about its table."""

    def __init__(self, connection: Any, listing: Listing) -> None:
        self._connection, self._listing = connection, listing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def rows(self, sql: str, *parameters: Any) -> Any:
        found = re.search(r"_(drop|move)_(\d+)\b", sql)
        if found:
            kind, name = found[1], f"{found[1]}_{found[2]}"
            self._listing.left += 1
            if kind == "drop":
                self._listing.other.drop(name)
            else:
                self._listing.other.rename(name, f"x{name.replace('_', '')}")
        return self._connection.rows(sql, *parameters)


def test_collections_are_listed_during_creates_and_drops(
    postgres_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "ATTEMPTS", 3)
    options = postgres_backend.options
    with (
        Store(postgres_backend.url, **options) as store,
        Store(postgres_backend.url, **options) as b,
    ):
        store["a"].put("x", 1)
        for number in range(4):
            for kind in ("drop", "move"):
                store[f"{kind}_{number}"].put("x", 1)
        listing = Listing(b)
        found = store.run(listing)
        assert listing.left == 8  # more often than an operation is retried
        assert {info.name for info in found} == {"a"} | {f"xmove{n}" for n in range(4)}
        assert {info.count for info in found} == {1}


@pytest.mark.parametrize("action", ["search", "put"])
def test_the_schema_changes_while_sqlite_opens_a_text_index(tmp_path: Path, action: str) -> None:
    """With SQLite 3.40 the statement fails, and runs again."""
    url, left = f"sqlite:///{tmp_path}/store.db", list[int]()
    with Store(url) as store:
        store["things"].put("a", {"text": "tea"})
        store["things"].create_text_index("text")

    def change(*_: object) -> int:
        """SQLite calls this while it compiles a statement."""
        if left:
            with suppress(sqlite3.OperationalError):  # the statement itself writes by now
                other.execute(f"CREATE TABLE other_{left.pop()} (n)")
        return sqlite3.SQLITE_OK

    def watch(connection: Any, _: object) -> None:
        connection.set_authorizer(change)

    sa.event.listen(sa.Engine, "connect", watch)
    try:
        with (
            closing(
                sqlite3.connect(tmp_path / "store.db", isolation_level=None, timeout=0)
            ) as other,
            Store(url) as store,
        ):
            things = store["things"]
            assert things.get("a")  # knows the schema, and has not opened the index
            left.extend(range(80))
            if action == "put":
                things.put("a", {"text": "tea cake"})
            else:
                assert ids_found(things, "tea") == ["a"]
            assert not left
            assert ids_found(things, "cake") == (["a"] if action == "put" else [])
    finally:
        sa.event.remove(sa.Engine, "connect", watch)


def ids_found(things: Collection, word: str) -> list[str]:
    return [each.id for each in things.search(word)]


@pytest.mark.parametrize("change", ["update", "remove"])
def test_a_write_in_a_transaction_older_than_the_text_index(
    postgres_backend: Backend, change: str
) -> None:
    backend = postgres_backend
    with (
        Store(backend.url, **backend.options) as store,
        Store(backend.url, **backend.options) as other,
    ):
        things = store["things"]
        things.put("a", {"text": "tea"})
        with pytest.raises(TransactionConflict), store.transaction() as tx:
            assert tx["others"].count() == 0  # the snapshot
            other["things"].create_text_index("text")
            if change == "update":
                tx["things"].put("a", {"text": "cake"})
            else:
                tx["things"].remove("a")
        assert ids_found(other["things"], "tea") == ["a"]
        assert [each for each in store.run(Diagnose()) if each.severity == "error"] == []
        assert things.remove("a")
        assert [each for each in store.run(Diagnose()) if each.severity == "error"] == []


AT: Any = {"dimensions": 2, "metric": "l2"}
FILLED: dict[str, Callable[[Collection], Any]] = {
    "text": lambda things: things.create_text_index("text"),
    "vectors": lambda things: things.create_vector_index("at", **AT),
    "again": lambda things: things.reindex("old", name="old_vector", **AT),
}


def is_whole(things: Collection, kind: str) -> bool:
    """Return whether an index has the documents "a" and "b"."""
    found = (
        ids_found(things, "tea")
        if kind == "text"
        else [
            each.id
            for each in things.nearest(
                [0, 0], index=f"{'at' if kind == 'vectors' else 'old'}_vector"
            )
        ]
    )
    return sorted(found) == ["a", "b"]


@pytest.mark.parametrize("kind", FILLED)
def test_a_transaction_with_a_snapshot_fills_no_index(postgres_backend: Backend, kind: str) -> None:
    backend, body = postgres_backend, {"text": "tea", "at": [1, 2], "old": [1, 2]}
    engine = engine_of(backend)
    with (
        Store(backend.url, **backend.options) as store,
        Store(backend.url, **backend.options) as other,
    ):
        things = store["things"]
        things.put("a", body)
        things.create_vector_index("old", **AT)
        with store.transaction() as tx:
            assert tx["things"].count() == 1
            other["things"].put("b", body)
            with pytest.raises(InvalidIndex, match="outside of the transaction"):
                FILLED[kind](tx["things"])
            tx["things"].put("c", {})
        assert len(things.indexes()) == 1
        with engine.begin() as connection:  # READ COMMITTED: each statement has a snapshot
            FILLED[kind](store.bind(connection)["things"])
        assert is_whole(store["things"], kind)
    engine.dispose()


@pytest.mark.parametrize("kind", FILLED)
def test_a_transaction_fills_the_index_of_its_own_collection(
    postgres_backend: Backend, kind: str
) -> None:
    backend, body = postgres_backend, {"text": "tea", "at": [1, 2], "old": [1, 2]}
    with Store(backend.url, **backend.options) as store:
        store["others"].put("x", {})
        with store.transaction() as tx:
            tx["things"].put("a", body)
            tx["things"].create_vector_index("old", **AT)
            FILLED[kind](tx["things"])
            tx["things"].put("b", body)
        assert is_whole(store["things"], kind)
