"""What a store reports: records of operations, the log, the statements, and figures."""

import asyncio
import logging
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import (
    AsyncStore,
    DatabaseBusy,
    DatabaseError,
    DuplicateKey,
    InvalidOption,
    Store,
    StoreClosed,
    TransactionConflict,
    UpdateOne,
    UpdateRefused,
    VersionConflict,
)
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session
from collections_store.results import OperationRecord, OperationStats

CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Records(list[OperationRecord]):
    """The records of a store; `wait` waits for those that another thread reports."""

    def names(self) -> list[str]:
        return [each.name for each in self]

    def of(self, name: str) -> list[OperationRecord]:
        return [each for each in self if each.name == name]


def opened(backend: Backend, **options: Any) -> Store:
    return Store(backend.url, **{**backend.options, **options})


def opened_async(backend: Backend, **options: Any) -> AsyncStore:
    return AsyncStore(backend.url, **{**backend.options, **options})


@pytest.mark.each_backend
def test_each_operation_has_one_record(backend: Backend) -> None:
    records = Records()
    with opened(backend, on_operation=records.append) as store:
        things = store["things"]
        things.put("a", {"n": 1, "secret": "word"})
        assert things.get("a") == {"n": 1, "secret": "word"}
        assert things.get("b") is None
        things.put_many({"b": {"n": 2}, "c": {"n": 3}})
        assert len(things.find({"n": {"$gte": 2}})) == 2
        things.update_one({"n": 1}, {"$set": {"n": 5}})
        assert things.remove("c")
    kinds = ["put", "get", "get", "put_many", "find", "update_one", "remove"]
    assert records.names() == kinds
    assert [each.rows for each in records] == [1, 1, 0, 2, 2, 1, 1]
    for each in records:
        assert (each.collection, each.database) == ("things", store.core.database.name)
        assert each.seconds > 0
        assert (each.error, each.in_transaction, each.consistency) == (None, False, "strong")
        assert (each.retries, each.group) == (0, 1)
    assert records[4].shape == "{'n': {'$gte': ?}}"
    assert records[0].shape is None
    assert [each.started for each in records] == sorted(each.started for each in records)
    assert "word" not in repr(records)


NAMED: dict[str, tuple[Any, int | None]] = {
    "document": (lambda c: c.document("a"), 1),
    "increment": (lambda c: c.increment("a", "n", 41), 1),
    "update": (lambda c: c.update("a", {"$set": {"n": 2}}), 1),
    "update_one": (lambda c: c.update_one({"m": 7}, {"$set": {"n": 2}}, upsert=True), 1),
    "replace_one": (lambda c: c.replace_one({"n": 1}, {"n": 2}), 1),
    "find_one_and_update": (lambda c: c.find_one_and_update({"n": 1}, {"$set": {"n": 2}}), 1),
    "find_one_and_replace": (lambda c: c.find_one_and_replace({"n": 1}, {"n": 2}), 1),
    "find_one_and_delete": (lambda c: c.find_one_and_delete({"n": 1}), 1),
    "bulk_write": (
        lambda c: c.bulk_write([UpdateOne({"m": 8}, {"$set": {"n": 2}}, upsert=True)]),
        1,
    ),
    "insert_one": (lambda c: c.insert_one({"n": 4}), 1),
    "insert_many": (lambda c: c.insert_many([{"n": 4}, {"n": 5}]), 2),
    "put_many": (lambda c: c.put_many({"b": {}}, mode="insert", atomic=True), 1),
    "put": (lambda c: c.put("b", {}, if_absent=True), 1),
    "list": (lambda c: c.list(), 1),
    "find": (lambda c: c.find({"$id": {"$in": ["a"]}}), 1),
    "find_one": (lambda c: c.find_one("n", 1), 1),
    "stream": (lambda c: list(c.stream()), None),
    "stream_aggregate": (lambda c: list(c.stream_aggregate([])), None),
    "id_prefixes": (lambda c: c.id_prefixes("/"), 1),
    "change": (lambda c: c.change("a", lambda _: {"n": 3}), 1),
    "purge_expired": (lambda c: c.purge_expired(), 0),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_name_is_that_of_the_method(name: str) -> None:
    records = Records()
    call, rows = NAMED[name]
    with Store("sqlite://", on_operation=records.append) as store:
        store["things"].put("a", {"n": 1})
        call(store["things"])
    assert (records[-1].name, records[-1].rows) == (name, rows)
    assert name in store.stats().operations
    if name == "update":
        assert records[-1].shape is None  # by id, it scans nothing


def test_methods_of_several_batches_have_their_names(tmp_path: Path) -> None:
    records = Records()
    bodies = [{"n": n} for n in range(1500)]
    with Store("sqlite://", on_operation=records.append) as store:
        things = store["things"]
        things.insert_many(bodies, atomic=True)
        things.insert_many(bodies)
        assert set(records.names()) == {"insert_many"}
        others = store.collection("others", schema_version=1)
        records.clear()
        others.count({"n": 1})
        assert records.names() == ["count"]
        records.clear()
        store.backup(tmp_path / "store.jsonl")
        store.backup(tmp_path / "store.db")
        with Store("sqlite://") as other:
            store.copy_to(other)
    assert "transaction" not in records.names()
    assert len(records.of("backup")) == 2
    assert len(records.of("copy_to")) == 1


@pytest.mark.each_backend
def test_the_record_has_the_error_of_the_caller(backend: Backend) -> None:
    records = Records()
    with opened(backend, on_operation=records.append) as store:
        store["things"].create_index("n", unique=True)
        store["things"].put("a", {"n": 1})
        with pytest.raises(DuplicateKey) as raised:
            store["things"].put("b", {"n": 1})
        assert [each.error for each in records[-1:]] == [raised.value]
        with pytest.raises(VersionConflict) as conflict:
            store["things"].put("a", {"n": 2}, if_version=9)
        assert [each.error for each in records[-1:]] == [conflict.value]
        assert records[-1].rows is None
        assert store.stats().operations["put"].errors == 2


@pytest.mark.each_backend
def test_operations_of_a_transaction(backend: Backend) -> None:
    records = Records()
    with opened(backend, on_operation=records.append) as store:
        with store.transaction() as tx:
            tx["things"].put("a", 1)
            assert tx["things"].get("a") == 1
        store["things"].get("a")
    assert [(each.name, each.in_transaction) for each in records] == [
        ("put", True),
        ("get", True),
        ("get", False),
    ]


@pytest.mark.each_backend
def test_operations_on_a_connection_of_the_caller(backend: Backend) -> None:
    records = Records()
    url = backend.url.replace("postgresql:", "postgresql+psycopg:")
    more = {"poolclass": sa.StaticPool} if backend.is_private else {}
    engine = sa.create_engine(url, **more)
    with Store(engine=engine, on_operation=records.append, **backend.options) as store:
        with engine.begin() as connection:
            store.bind(connection)["things"].put("a", 1)
        assert store["things"].get("a") == 1
    engine.dispose()
    assert [(each.name, each.in_transaction) for each in records] == [
        ("put", True),
        ("get", False),
    ]


@pytest.mark.each_backend
def test_the_operations_of_an_async_store_have_the_context_of_their_caller(
    backend: Backend,
) -> None:
    records = Records()

    async def call(store: AsyncStore, name: str) -> None:
        CALLER.set(name)
        await store["things"].put(name, 1)
        await store["things"].get(name)
        async with store.transaction() as tx:
            await tx["things"].put(name, 2)

    async def main() -> None:
        async with opened_async(backend, on_operation=records.append) as store:
            await asyncio.gather(*(asyncio.create_task(call(store, f"{n}")) for n in range(3)))
            assert store.stats().operations["put"].count == 6

    asyncio.run(main())  # the end of the store waits for the threads that report
    contexts = [each.context for each in records]
    callers = [None if context is None else context.get(CALLER) for context in contexts]
    assert sorted(map(str, callers)) == [name for name in "012" for _ in range(3)]
    assert [each.in_transaction for each in records].count(True) == 3


def test_grouped_writes_have_the_size_of_their_group(tmp_path: Path) -> None:
    records = Records()

    async def main() -> None:
        url = f"sqlite:///{tmp_path / 'store.db'}"
        async with AsyncStore(url, on_operation=records.append) as store:
            await store["things"].put("warm", 0)
            await asyncio.gather(*(store["things"].put(f"{n}", n) for n in range(50)))
            groups = store.stats().groups
            assert sum(size * count for size, count in groups.items()) == 51

    asyncio.run(main())
    assert len(records) == 51
    assert max(each.group for each in records) > 1
    assert all(each.waited > 0 for each in records if each.group > 1)


def test_a_writer_that_waits_for_a_transaction_says_so(tmp_path: Path) -> None:
    records = Records()
    with Store(f"sqlite:///{tmp_path / 'store.db'}", on_operation=records.append) as store:
        store["things"].put("a", 0)
        with store.transaction() as tx:
            tx["things"].put("a", 1)
            other = threading.Thread(target=store["things"].put, args=("a", 2))
            other.start()
            while not store.core.opened or not store.core.opened.write_queue.waiting:  # type: ignore[union-attr]
                other.join(0.01)
        other.join()
        assert records[-1].waited > 0
        assert store.stats().waited_for_writer >= records[-1].waited * 0.9


@pytest.mark.each_backend
def test_an_error_of_the_hook_reaches_nobody(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(record: OperationRecord) -> None:
        raise ZeroDivisionError(record.name)

    with opened(backend, on_operation=fail) as store:
        assert store["things"].put("a", 1) == 1
        assert store["things"].get("a") == 1
        with store.transaction() as tx:
            assert tx["things"].get("a") == 1
    assert [each.message for each in caplog.records if each.exc_info] == [
        "on_operation failed; further errors of it are not logged"
    ]


def test_a_hook_ends_no_thread_of_an_async_store(tmp_path: Path) -> None:
    def leave(record: OperationRecord) -> None:
        raise SystemExit(record.name)

    async def main() -> None:
        async with AsyncStore(f"sqlite:///{tmp_path / 'store.db'}", on_operation=leave) as store:
            async with asyncio.timeout(30):
                for n in range(10):
                    await store["things"].put("a", n)
                    assert await store["things"].get("a") == n

    asyncio.run(main())


def test_the_log_of_a_failed_hook_has_no_error_of_the_operation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(record: OperationRecord) -> None:
        if record.error is not None:
            raise ZeroDivisionError(record.name)

    with Store("sqlite://", on_operation=fail) as store:
        store["things"].put("a", {"n": "hidden"})
        with pytest.raises(UpdateRefused, match="hidden"):
            store["things"].update("a", {"$inc": {"n": 1}})
    assert "ZeroDivisionError" in caplog.text
    assert "hidden" not in caplog.text


@pytest.mark.each_backend
def test_a_hook_may_use_the_store(backend: Backend) -> None:
    names = []

    def note(record: OperationRecord) -> None:
        names.append(record.name)
        store["log"].put(f"{len(names)}", record.name)

    with opened(backend, on_operation=note) as store:
        store["things"].put("a", 1)
        store["things"].get("a")
        assert names == ["put", "get"]
        assert store["log"].count() == 2


@pytest.mark.each_backend
def test_the_log_has_a_line_for_each_operation(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(backend) as store:
        things = store["things"]
        things.put("a", {"n": "hidden"})
        with caplog.at_level(logging.DEBUG, "collections_store"):
            things.put("a", {"n": "hidden"})
            things.find({"n": "hidden"})
        things.get("a")
    lines = [each.message for each in caplog.records if each.name == "collections_store"]
    assert [line.split(",")[0] for line in lines] == ["put things", "find things"]
    assert lines[1].endswith("1 rows, {'n': ?}")
    assert "hidden" not in caplog.text


@pytest.mark.each_backend
def test_slow_operations_are_logged_with_advice(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(backend, slow_operation=0) as store:
        things = store["things"]
        things.put_many({f"{n}": {"n": n} for n in range(50)})
        things.find({"n": 7})
        things.find({"n": 8})
        with store.transaction() as tx:
            tx["things"].find({"n": 7})
    lines = [each.message for each in caplog.records if each.levelname == "WARNING"]
    advised = [line for line in lines if "advice" in line]
    assert len(lines) == 4
    assert len(advised) == 1  # each explanation is a query: not for every slow operation
    assert advised[0].startswith("slow operation: find things, ")
    assert "create_index('n')" in advised[0]


def test_the_explanation_of_the_store_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    with Store("sqlite://", slow_operation=0) as store:
        store["things"].put("a", {"n": 1})
        store["things"].find("n", 1)
        assert set(store.stats().operations) == {"put", "find"}
    assert "advice" in caplog.text


def test_an_async_operation_that_is_refused_is_counted(tmp_path: Path) -> None:
    records = Records()

    async def main() -> None:
        url = f"sqlite:///{tmp_path / 'store.db'}"
        async with AsyncStore(url, on_operation=records.append) as store:
            await store["things"].put("a", 1)
            async with store.transaction():
                with pytest.raises(DatabaseBusy) as busy:
                    await store["things"].put("b", 1)
        with pytest.raises(StoreClosed) as closed:
            await store["things"].get("a")
        assert [each.error for each in records] == [None, busy.value, closed.value]
        operations = store.stats().operations
        assert (operations["put"].errors, operations["get"].errors) == (1, 1)

    asyncio.run(main())


def test_a_slow_operation_that_failed_is_not_explained(caplog: pytest.LogCaptureFixture) -> None:
    with Store("sqlite://", slow_operation=0) as store:
        store["things"].put_many({f"{n}": {"n": "text"} for n in range(50)})
        with pytest.raises(UpdateRefused):
            store["things"].update_many({"n": "text"}, {"$inc": {"n": 1}})
        assert "explain" not in store.stats().operations
    assert "UpdateRefused" in caplog.text


@pytest.mark.each_backend
def test_fast_operations_are_not_logged(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    with opened(backend, slow_operation=1000) as store:
        store["things"].put("a", 1)
    assert not caplog.records


@pytest.mark.each_backend
@pytest.mark.parametrize("echo", [True, "debug"])
def test_echo_logs_statements(
    backend: Backend, caplog: pytest.LogCaptureFixture, *, echo: Any
) -> None:
    with (
        caplog.at_level(logging.INFO, "collections_store.statements"),
        opened(backend, echo=echo) as store,
    ):
        store["things"].put("a", {"n": "value of mine"})
        store["things"].put_many({f"{n}": n for n in range(5)})
        assert store["things"].get("a") == {"n": "value of mine"}
    lines = [each.message for each in caplog.records if each.name.endswith(".statements")]
    assert any(line.startswith("SELECT") for line in lines)
    assert any("INSERT INTO" in line for line in lines)
    assert ("value of mine" in caplog.text) == (echo == "debug")


def test_echo_prints_where_no_log_is_set_up(tmp_path: Path) -> None:
    log = logging.getLogger("collections_store.statements")
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    try:
        root.handlers.clear()
        with Store(f"sqlite:///{tmp_path / 'store.db'}", echo=True):
            assert len(log.handlers) == 1
        with Store(f"sqlite:///{tmp_path / 'store.db'}", echo=True):
            assert len(log.handlers) == 1
    finally:
        root.handlers[:] = before
        log.handlers.clear()
        log.setLevel(logging.NOTSET)


@pytest.mark.each_backend
def test_figures_of_a_store(backend: Backend) -> None:
    with opened(backend) as store:
        assert store.stats().operations == {}
        things = store["things"]
        for n in range(3):
            things.put("a", {"n": n})
            things.find({"n": n})
        stats = store.stats()
        assert {kind: each.count for kind, each in stats.operations.items()} == {
            "find": 3,
            "put": 3,
        }
        put = stats.operations["put"]
        assert 0 < put.longest <= put.seconds
        assert put == OperationStats(3, 0, put.seconds, put.longest)
        assert stats.statements["misses"] >= 1
        assert stats.statements["hits"] >= 2
        assert (stats.retries, stats.conflicts, stats.replica_lag) == (0, 0, None)
    assert store.stats().operations["put"].count == 3


@dataclass
class Conflicting(Operation[int]):
    """A read that conflicts twice."""

    collection: str = "things"
    calls: int = 0
    atomic = True

    def __call__(self, session: Session) -> int:
        self.calls += 1
        if self.calls < 3:
            raise TransactionConflict("another transaction was first")
        return self.calls


@pytest.mark.each_backend
def test_conflicts_are_counted(backend: Backend) -> None:
    records = Records()
    with opened(backend, on_operation=records.append) as store:
        assert store.run(Conflicting()) == 3
        assert [(each.name, each.retries, each.error) for each in records] == [
            ("conflicting", 2, None)
        ]
        assert (store.stats().retries, store.stats().conflicts) == (2, 2)
        store["things"].put("a", 1)
        assert records[-1].retries == 0


def test_threads_lose_no_count(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        things = store["things"]
        things.put("a", 1)

        def read() -> None:
            for _ in range(500):
                things.get("a")

        threads = [threading.Thread(target=read) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert store.stats().operations["get"].count == 2000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"on_operation": 3}, "option on_operation: "),
        ({"slow_operation": -1}, "option slow_operation: must be from 0 "),
        ({"echo": "loud"}, "option echo: must be True, False or 'debug', got 'loud'"),
    ],
)
def test_bad_options(options: Any, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        Store("sqlite://", **options)


def test_an_engine_has_an_echo_of_its_own() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with pytest.raises(InvalidOption, match="option echo: use create_engine"):
        Store(engine=engine, echo=True)
    engine.dispose()


def test_a_failure_to_open_is_reported(tmp_path: Path) -> None:
    records = Records()
    store = Store(f"sqlite:///{tmp_path}/no/store.db", on_operation=records.append)
    with store, pytest.raises(DatabaseError) as raised:
        store["things"].get("a")
    assert records[0].error is raised.value
