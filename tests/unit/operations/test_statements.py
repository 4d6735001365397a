"""How many statements the methods of a collection execute."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collections_store import DuplicateKey, InsertOne, Store, UpdateOne

Statements = Callable[[Callable[[], Any]], list[str]]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store("sqlite://") as store:
        store["things"].put_many({f"{n}": {"n": n} for n in range(10)})
        yield store


@pytest.fixture
def statements(store: Store) -> Statements:
    """Return the first words of the statements that a function executes, the second time."""
    assert store.core.opened is not None
    pool: Any = store.core.opened._pools[0]
    lease = pool.acquire()
    driver = lease.connection.driver
    pool.release(lease)

    def executed(function: Callable[[], Any]) -> list[str]:
        words: list[str] = []
        function()
        driver.set_trace_callback(lambda sql: words.append(sql.split()[0]))
        function()
        driver.set_trace_callback(None)
        return words

    return executed


def test_a_first_page_is_one_statement(store: Store, statements: Statements) -> None:
    page = store["things"].page({"n": {"$gte": 2}}, sort=[("$updated_at", -1)], limit=3)
    assert len(page) == 3
    for filter in ({"n": {"$gte": 2}}, {}):
        for sort in (None, "$id", [("$updated_at", -1)]):
            options: Any = {"sort": sort, "limit": 3}
            found = statements(lambda: store["things"].page(filter, **options))  # noqa: B023
            assert found == ["SELECT"]


def test_documents_of_ids_are_found_by_one_statement(store: Store, statements: Statements) -> None:
    things = store["things"]
    found = things.find({"$id": {"$in": ["7", "3", "none", "3"]}})
    assert [each.id for each in found] == ["3", "7"]
    assert found == things.find({"$id": {"$in": ["7", "3"]}}, sort="$id")
    assert statements(lambda: things.find({"$id": {"$in": ["7", "3"]}})) == ["SELECT"]


def test_id_prefixes_are_one_statement(store: Store, statements: Statements) -> None:
    assert statements(lambda: store["things"].id_prefixes("/")) == ["WITH"]


def test_an_atomic_bulk_write_has_no_savepoints(store: Store, statements: Statements) -> None:
    """It is a transaction, and nothing of it is kept after an error."""
    ids = iter(range(100, 200))

    def write() -> None:
        change = UpdateOne({"$id": "1"}, {"$inc": {"n": 1}}, upsert=True)
        inserts = [InsertOne({}, id=f"{next(ids)}") for _ in range(2)]
        store["things"].bulk_write([change, *inserts], atomic=True)

    assert statements(write) == ["BEGIN", "SELECT", "UPDATE", "INSERT", "INSERT", "COMMIT"]
    store["things"].create_index("other", unique=True, where={"other": {"$exists": True}})
    assert "SAVEPOINT" in statements(write)


def test_an_atomic_bulk_write_notices_a_new_unique_index(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Store(url) as store, Store(url) as other:
        things = store["things"]
        things.bulk_write([InsertOne({"n": 1}, id="1")], atomic=True)
        other["things"].create_index("n", unique=True)
        with pytest.raises(DuplicateKey) as refused:
            things.bulk_write([InsertOne({"n": 1}, id="3")], atomic=True)
        assert refused.value.id == "3"
        assert things.count() == 1
