"""PostgreSQL stores the keys of indexes under a collation: writers that know other indexes, and other programs."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from backends import Backend
from selection import sampled

from collections_store import (
    DatabaseError,
    DuplicateKey,
    Store,
    TransactionConflict,
    UpdateOne,
    migrate,
)

CASE = {"locale": "simple", "strength": 2}
LETTERS = {"locale": "simple", "strength": 1}
WORDS = ["Zoo", "\u00c4pfel", "apfel", "zoo"]


@pytest.fixture
def store(postgres_backend: Backend) -> Iterator[Store]:
    with opened(postgres_backend) as store:
        store["things"].put_many({str(n): {"w": word, "n": n} for n, word in enumerate(WORDS)})
        yield store


def opened(backend: Backend) -> Store:
    return Store(backend.url, **backend.options)


def ids(things: Any, word: str, rules: Any = CASE) -> list[str]:
    """Return the ids that an index finds."""
    return [each.id for each in things.find({"w": word}, hint={"w": 1}, collation=rules)]


def executed(backend: Backend, sql: str) -> list[Any]:
    schema = backend.options["schema"]
    with psycopg.connect(backend.url, options=f"-csearch_path={schema}") as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def columns(backend: Backend) -> list[str]:
    """Return the columns of stored keys."""
    listed = "SELECT column_name FROM information_schema.columns WHERE column_name LIKE 'keys%'"
    return [name for (name,) in executed(backend, f"{listed} AND table_schema = current_schema()")]


WRITES: list[Any] = [
    lambda things: things.put("9", {"w": "ZOO"}),
    lambda things: things.put("1", {"w": "ZOO"}),
    lambda things: things.insert_one({"w": "ZOO"}, id="9"),
    lambda things: things.put_many({"9": {"w": "ZOO"}, "1": {"w": "x"}}),
    lambda things: things.update_many({"n": {"$in": [1, 2]}}, {"$set": {"w": "ZOO"}}),
    lambda things: things.update_one({"n": 1}, {"$set": {"w": "ZOO"}}),
    lambda things: things.bulk_write([UpdateOne({"n": 1}, {"$set": {"w": "ZOO"}})]),
    lambda things: things.increment("1", "n"),
    lambda things: things.increment("9", "n"),
    lambda things: things.touch("1", ttl=60),
    lambda things: things.change("1", lambda body: {**body, "w": "ZOO"}),
]


@pytest.mark.parametrize("change", ["create", "again", "drop", "second", "first of two"])
def test_a_writer_that_knows_other_indexes(
    store: Store, postgres_backend: Backend, change: str
) -> None:
    with opened(postgres_backend) as late:
        for number, write in enumerate(WRITES[:: sampled(2)]):
            things, known = (each[f"things_{number}"] for each in (store, late))
            things.put_many({str(n): {"w": word, "n": n} for n, word in enumerate(WORDS)})
            if change != "create":
                things.create_index("w", collation=CASE)
            if change == "first of two":
                things.create_index("n", collation=CASE)
            known.put("0", {"w": "Zoo"})  # the other store knows the indexes from now on
            known.count({"w": "ZOO"}, collation=CASE)
            if change in {"again", "drop", "first of two"}:
                things.drop_index("w_1")
            if change in {"create", "again"}:
                things.create_index("w", collation=CASE)
            if change == "second":
                things.create_index("w", name="letters", collation=LETTERS)
            write(known)
            zoos = [e.id for e in things.list() if e.body.get("w", "").casefold() == "zoo"]
            for rules in (CASE, LETTERS):
                found = known.find({"w": "ZOO"}, collation=rules)
                assert [each.id for each in found] == zoos
            if change in {"create", "again", "second"}:
                assert ids(things, "ZOO") == zoos
            if change == "second":
                assert ids(things, "ZOO", LETTERS) == zoos


def test_the_column_is_part_of_the_schema(store: Store, postgres_backend: Backend) -> None:
    store["things"].create_index("w", collation=CASE)
    assert migrate.check(postgres_backend.url, **postgres_backend.options) == []


def test_changes_and_times_to_live(store: Store) -> None:
    things = store.collection("recorded", changes="both", ttl=3600)
    things.create_index("w", unique=True, collation=CASE)
    things.put("1", {"w": "Zoo"})
    things.put("1", {"w": "zoO"})
    things.increment("1", "n")
    things.touch("1")
    with pytest.raises(DuplicateKey) as refused:
        things.put_many({"2": {"w": "x"}, "3": {"w": "ZOO"}}, atomic=True)
    assert (refused.value.index, refused.value.id) == ("w_1", "3")
    assert ids(things, "zoo") == ["1"]
    assert things.get("1") == {"w": "zoO", "n": 1}


def test_another_program_cannot_leave_wrong_keys(store: Store, postgres_backend: Backend) -> None:
    things = store["things"]
    things.create_index("w", collation=CASE)
    [keys] = columns(postgres_backend)
    for sql in (
        "UPDATE cs_1_things SET body = '{\"w\": \"x\"}' WHERE id = '0'",
        f"UPDATE cs_1_things SET {keys} = NULL",
        f"UPDATE cs_1_things SET {keys} = {keys} - 'of'",
        "INSERT INTO cs_1_things (id, body, version, created_at, updated_at) VALUES ('9', '{}', 1, 1, 1)",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="collections_store_keys"):
            executed(postgres_backend, sql)
    executed(postgres_backend, "UPDATE cs_1_things SET version = 7 WHERE id = '0'")
    assert ids(things, "ZOO") == ["0", "3"]


def test_a_damaged_body_is_named(store: Store, postgres_backend: Backend) -> None:
    executed(postgres_backend, "UPDATE cs_1_things SET body = '[1e400]' WHERE id = '2'")
    with pytest.raises(DatabaseError, match="document '2' is damaged"):
        store["things"].create_index("w", collation=CASE)
    store["things"].put("2", {"w": "ZOO"})
    store["things"].create_index("w", collation=CASE)
    assert ids(store["things"], "zoo") == ["0", "2", "3"]


def test_a_column_that_another_program_dropped(store: Store, postgres_backend: Backend) -> None:
    executed(postgres_backend, "ALTER TABLE cs_1_things DROP COLUMN ttl")
    with pytest.raises(DatabaseError) as refused:
        store["things"].touch("1", ttl=5)
    assert str(refused.value) == "column cs_1_things.ttl does not exist"


def test_a_reader_that_knows_a_dropped_index(store: Store, postgres_backend: Backend) -> None:
    things = store["things"]
    things.create_index("w", collation=CASE)
    things.create_index("n", collation=CASE)
    with opened(postgres_backend) as late:
        assert late["things"].count({"w": "ZOO"}, collation=CASE) == 2
        things.drop_index("w_1")
        things.put("9", {"w": "ZOO"})
        assert late["things"].count({"w": "zoo"}, collation=CASE) == 3


def test_the_column_is_there_as_long_as_an_index(store: Store, postgres_backend: Backend) -> None:
    things = store["things"]
    assert columns(postgres_backend) == []
    things.create_index("w", collation=CASE)
    things.create_index("w", name="letters", collation=LETTERS)
    things.create_index([("n", 1), ("w", -1)], collation=CASE)
    for name in ("w_1", "letters", "n_1_w_-1"):
        assert len(columns(postgres_backend)) == 1
        things.drop_index(name)
    assert columns(postgres_backend) == []
    things.put("9", {"w": "x"})


def test_the_index_of_a_hidden_index_keeps_its_keys(store: Store) -> None:
    things = store["things"]
    things.create_index("w", collation=CASE)
    things.hide_index("w_1")
    things.put("9", {"w": "ZOO"})
    things.increment("9", "n")
    things.unhide_index("w_1")
    assert ids(things, "zoo") == ["0", "3", "9"]


def test_copies_in_both_directions(store: Store) -> None:
    with Store("sqlite://") as source, Store("sqlite://") as target:
        source["words"].put_many({"1": {"w": "Zoo"}, "2": {"w": "x"}})
        source["words"].create_index("w", unique=True, collation=CASE)
        source.copy_to(store)
        assert ids(store["words"], "ZOO") == ["1"]
        with pytest.raises(DuplicateKey):
            store["words"].put("3", {"w": "zOO"})
        store.copy_to(target)
        assert ids(target["words"], "ZOO") == ["1"]
        with pytest.raises(DuplicateKey):
            target["words"].put("3", {"w": "zOO"})


def test_a_transaction_that_began_before_the_index(store: Store, postgres_backend: Backend) -> None:
    things = store["things"]
    with (
        opened(postgres_backend) as other,
        pytest.raises(TransactionConflict, match="changed its indexes"),
        store.transaction() as tx,
    ):
        tx["others"].put("1", {})
        other["things"].create_index("w", collation=CASE)
        tx["things"].put("9", {"w": "ZOO"})
    things.put("9", {"w": "ZOO"})
    assert ids(things, "zoo") == ["0", "3", "9"]
