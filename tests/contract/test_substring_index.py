"""The index of substrings: its life, the writes that it follows, and its errors, the same on every database. That it changes no
result: tests/property/test_substrings.py.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from psycopg import sql

from collections_store import F, IndexExists, InvalidIndex, InvalidSearch, Store, TextIndex
from collections_store.operations.diagnosis import Diagnose

pytestmark = pytest.mark.each_backend

GREEN = F("t").has("green t")


@pytest.fixture
def notes(store: Any) -> Any:
    """A collection so large that PostgreSQL uses the index."""
    notes = store["notes"]
    notes.create_text_index("t", substring=True)
    notes.put_many((f"{n:04}", {"t": f"note {n}", "n": n}) for n in range(1500))
    notes.put("tea", {"t": "a green tea"})
    return notes


def found(notes: Any) -> list[str]:
    """Return what the index finds."""
    explanation = notes.explain(GREEN)
    assert explanation.indexes == ("substring",)
    assert not explanation.scans
    return [each.id for each in notes.find(GREEN)]


def test_an_index_is_created_once_beside_words_listed_and_dropped(things: Any) -> None:
    things.put("1", {"t": "green tea"})
    assert things.create_text_index(["t", "a.b"], substring=True) == "substring"
    assert things.create_text_index(["t", "a.b"], substring=True) == "substring"
    with pytest.raises(InvalidSearch):
        things.search("tea")
    assert things.create_text_index("t") == "text"
    words, substrings = things.indexes()
    assert (str(words), str(substrings)) == (
        "text: {'t': 1}",
        "substring: {'t': 1, 'a.b': 1}, substring",
    )
    assert substrings == TextIndex.parse(["t", "a.b"], substring=True)
    for options in ({"fields": "t"}, {"fields": ["t", "a.b"], "name": "other"}):
        with pytest.raises(IndexExists):
            things.create_text_index(**options, substring=True)
    assert things.drop_index("substring")
    assert not things.drop_index("substring")
    assert [each.id for each in things.search("tea")] == ["1"]
    assert things.count(F("t").has("green")) == 1
    things.create_text_index("t", substring=True, name="parts")
    things.drop_index("text")
    assert [each.name for each in things.indexes()] == ["parts"]


@pytest.mark.parametrize(
    ("fields", "options", "problem"),
    [
        ("t", {"language": "english"}, "'language': must be None with substring=True"),
        ({"t": 2}, {}, "'t': must have no weight with substring=True, got 2"),
        ("t", {"substring": 1}, "'substring': must be True or False, got 1"),
        ("a.0", {}, "at most 3 keys, and no numbers"),
    ],
)
def test_invalid_indexes(things: Any, fields: Any, options: Any, problem: str) -> None:
    with pytest.raises(InvalidIndex, match=problem):
        things.create_text_index(fields, **{"substring": True, **options})


def test_every_write_is_found(store: Any, notes: Any) -> None:
    assert found(notes) == ["tea"]
    notes.update("0001", {"$set": {"t": "more green tea"}})
    notes.update_many({"n": {"$in": [2, 3]}}, {"$set": {"t": ["x", "green thing"]}})
    assert found(notes) == ["0001", "0002", "0003", "tea"]
    assert notes.update_many(GREEN, {"$set": {"seen": True}}).modified_count == 4
    notes.put_many({"tea": {"t": "gone"}, "new": {"t": "green thyme"}})
    assert notes.delete_many(GREEN & F("n").between(2, 3)).deleted_count == 2
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        transaction["notes"].put("rolled back", {"t": "green tea"})
        assert transaction["notes"].count(GREEN) == 3
        raise ZeroDivisionError
    assert found(notes) == ["0001", "new"]
    assert notes.count(GREEN) == 2
    assert notes.distinct("n", GREEN) == [1]
    assert [each.id for each in notes.find(GREEN, sort=[("t", 1)], limit=1)] == ["new"]
    assert notes.find_one_and_delete(GREEN).id == "0001"
    assert notes.update_one(GREEN, {"$set": {"t": "gone"}}).modified_count == 1
    assert found(notes) == []


def test_a_renamed_collection_keeps_its_index(store: Any, notes: Any) -> None:
    store.rename("notes", "moved")
    moved = store["moved"]
    moved.put("new", {"t": "green tea"})
    moved.remove("tea")
    assert found(moved) == ["new"]
    store.drop("moved")
    store["moved"].put("1", {"t": "green tea"})
    assert store["moved"].indexes() == []
    store["moved"].create_text_index("t", substring=True)
    assert store["moved"].count(GREEN) == 1


def test_settings_and_a_feed_keep_the_index(store: Any, notes: Any) -> None:
    changing = store.collection("notes", ttl=3600, changes="both")
    changing.put("new", {"t": "green tea"})
    assert found(changing) == ["tea", "new"]
    assert changing.delete_many(GREEN).deleted_count == 2
    assert found(changing) == []


def test_copies_and_backups_have_the_index(shared_backend: Backend, tmp_path: pathlib.Path) -> None:
    copied = Store(f"sqlite:///{tmp_path}/copy.db")
    with Store(shared_backend.url, **shared_backend.options) as store, copied as copy:
        notes = store["notes"]
        notes.put("tea", {"t": "green tea"})
        notes.create_text_index("t")
        notes.create_text_index("t", substring=True)
        store.copy_to(copy)
        assert copy["notes"].indexes() == notes.indexes()
        copy["notes"].put("new", {"t": "green thyme"})
        assert found(copy["notes"]) == ["tea", "new"]
        store.backup(tmp_path / "backup.jsonl")
        notes.put("tea", {"t": "nothing"})
        store.restore(tmp_path / "backup.jsonl", replace=True)
        assert store["notes"].indexes() == copy["notes"].indexes()
        assert store["notes"].count(GREEN) == 1
        assert list(store["notes"].search("green"))


def test_another_process_drops_and_creates_the_index(shared_backend: Backend) -> None:
    def opened() -> Store:
        return Store(shared_backend.url, **shared_backend.options)

    with opened() as store, opened() as other:
        store["notes"].create_text_index("t", substring=True)
        store["notes"].put("tea", {"t": "green tea"})
        for collection in (store["notes"], other["notes"]):
            assert collection.count(GREEN) == 1
        other["notes"].drop_index("substring")
        assert store["notes"].count(GREEN) == 1
        other["notes"].create_text_index(["t", "u"], substring=True)
        store["notes"].put("other", {"u": "green tea"})
        for collection in (store["notes"], other["notes"]):
            assert collection.count(F("u").has("green")) == 1


def test_a_diagnosis_names_a_missing_index(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["notes"].create_text_index("t", substring=True)
        store["notes"].put("tea", {"t": "green tea"})
        assert [each for each in store.run(Diagnose()) if each.where == "notes"] == []
        engine = sa.create_engine(shared_backend.url)
        schema = f"{shared_backend.options['schema']}." if shared_backend.is_postgresql else ""
        kind = "INDEX" if shared_backend.is_postgresql else "TABLE"
        with engine.begin() as connection:
            connection.execute(sa.text(f'DROP {kind} {schema}"cs_1$i1"'))
        engine.dispose()
        [finding] = [each for each in store.run(Diagnose()) if each.where == "notes"]
        assert "the text index 'substring' (cs_1$i1) does not exist" in finding.problem
        assert store["notes"].drop_index("substring")
        assert store["notes"].count(GREEN) == 1


@pytest.fixture
def database_of_others(postgres_url: str) -> Iterator[str]:
    """The URL of a new database, as a role that may only create tables."""
    database = "database_of_others"
    name, url = sql.Identifier(database), sa.make_url(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(name))
        owner.execute(sql.SQL("CREATE DATABASE {}").format(name))
        try:
            mine = url.set(database=database).render_as_string(hide_password=False)
            with psycopg.connect(mine, autocommit=True) as connection:
                connection.execute(sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(name))
            url = url.set(username=database, password="x", database=database)
            yield url.render_as_string(hide_password=False)
        finally:
            owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            owner.execute(sql.SQL("DROP ROLE {}").format(name))


def test_a_role_that_may_not_install_the_extension(
    postgres_url: str, database_of_others: str
) -> None:
    with Store(database_of_others) as store:
        notes = store["notes"]
        notes.put("tea", {"t": "green tea"})
        problem = (
            "'substring': True needs the extension pg_trgm, which this role cannot install .*"
            "have a superuser or the owner of the database execute CREATE EXTENSION pg_trgm"
        )
        with pytest.raises(InvalidIndex, match=problem):
            notes.create_text_index("t", substring=True)
        assert notes.indexes() == []
        url = sa.make_url(postgres_url).set(database="database_of_others")
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as owner:
            owner.execute('CREATE SCHEMA "Extra\'s"')
            owner.execute('CREATE EXTENSION pg_trgm SCHEMA "Extra\'s"')
            owner.execute('GRANT USAGE ON SCHEMA "Extra\'s" TO PUBLIC')
            notes.create_text_index("t", substring=True)
            assert notes.count(GREEN) == 1
            notes.drop_index("substring")
            owner.execute("DROP EXTENSION pg_trgm")
            owner.execute("ALTER DATABASE database_of_others OWNER TO database_of_others")
        notes.create_text_index("t", substring=True)
        assert notes.count(GREEN) == 1
