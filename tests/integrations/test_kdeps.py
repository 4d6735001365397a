"""kdeps: its functions in Python, with the answers of its documentation and of its source, and its files."""

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import cli_for
from conftest import Clock, Place

from collections_store import InvalidOption, Store
from collections_store.integrations.kdeps import Items, MemoryStorage, Records, SessionStorage
from collections_store.memory import Memory, import_kdeps

ODD = ["_?op=clear", "a?b", "a#b", "a%20b", "a b", "a/b", "a:b", "_", "a", "ä", ".", "'; --"]


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with Store(place.url, **place.options) as store:
        yield store


@pytest.fixture
def memory(store: Store) -> Memory:
    return store.memory("agent")


# -- up to version 0.6 -----------------------------------------------------------------------


def test_items_answer_as_the_documentation_says(memory: Memory) -> None:
    items = Items(memory)
    assert items.getItem("name") == ""
    assert items.setItem("name", "Ada") == "Ada"
    assert items.setItem("city", "Berlin") == "Berlin"
    assert items.getItem("name") == "Ada"
    assert [items.deleteItem("name"), items.deleteItem("name")] == ["Ada", ""]
    assert items.clear() == "Cleared 1 items"
    assert items.getItem("city") == ""


def test_items_answer_as_the_source_does(memory: Memory) -> None:
    items = Items(memory, mode="source")
    assert items.setItem("name", "Ada") == "Ada"
    assert [items.deleteItem("name") for _ in range(2)] == [
        "Deleted 1 item(s)",
        "Deleted 0 item(s)",
    ]
    assert items.clear() == "Cleared 0 items"


def test_records_are_items_by_another_name(memory: Memory) -> None:
    records = Records(memory)
    assert [records.getRecord("name"), records.setRecord("name", "Ada")] == ["", "Ada"]
    assert [Items(memory).getItem("name"), records.getRecord("name")] == ["Ada", "Ada"]
    assert [records.deleteRecord("name"), records.deleteRecord("name")] == ["Ada", ""]
    assert Records(memory, mode="source").deleteRecord("name") == "Deleted 0 record(s)"
    records.setRecord("name", "Ada")
    assert records.clear() == "Cleared 1 records"


def test_ids_are_taken_as_they_are(memory: Memory) -> None:
    records = Records(memory)
    for id in ODD:
        records.setRecord(id, f"value of {id}")
    assert {id: records.getRecord(id) for id in ODD} == {id: f"value of {id}" for id in ODD}
    assert records.clear() == f"Cleared {len(ODD)} records"


def test_what_is_empty_or_no_text_is_refused(memory: Memory) -> None:
    items, records, nothing = Items(memory), Records(memory), ""
    for call in (items.getItem, items.deleteItem, records.getRecord, records.deleteRecord):
        with pytest.raises(InvalidOption, match="id: it is empty"):
            call(nothing)
    for write in (items.setItem, records.setRecord):
        with pytest.raises(InvalidOption, match="id: it is empty"):
            write(nothing, "value")
        with pytest.raises(InvalidOption, match="value: it is empty"):
            write("id", nothing)
        number: Any = 3
        with pytest.raises(InvalidOption, match="value: 3 is no text"):
            write("id", number)
    assert memory.count() == 0


def test_a_mode_that_there_is_not_is_an_error(memory: Memory) -> None:
    mode: Any = "docs"
    with pytest.raises(InvalidOption, match="none of documentation, source"):
        Items(memory, mode=mode)


def test_a_session_is_one_request_long(store: Store, memory: Memory) -> None:
    Records(memory).setRecord("name", "Ada")
    with Records(memory.request()) as one, Records(memory.request()) as two:
        one.setRecord("step", "1")
        assert [two.getRecord("step"), two.getRecord("name")] == ["", ""]
        assert one.getRecord("step") == "1"
    assert one.getRecord("step") == ""
    assert Records(memory).getRecord("name") == "Ada"


# -- from version 1.9 on ---------------------------------------------------------------------


def test_a_memory_keeps_json(memory: Memory) -> None:
    storage = MemoryStorage(memory)
    values: dict[str, Any] = {"a": None, "b": 0, "c": "", "d": [1, 2.5, {"e": True}], "f": {}}
    for key, value in values.items():
        assert storage.set(key, value) is True
    assert {key: storage.get(key, "nothing") for key in values} == values
    assert [storage.fetch("a"), storage.fetch("g")] == [(None, True), (None, False)]
    assert storage.get("g", "nothing") == "nothing"
    storage.delete("a")
    storage.delete("a")
    assert storage.fetch("a") == (None, False)
    with pytest.raises(InvalidOption, match="key: it is empty"):
        storage.set("", 1)


def test_a_value_of_a_memory_may_expire(clock: Clock, memory: Memory) -> None:
    storage = MemoryStorage(memory)
    storage.set("short", 1, ttl=10)
    storage.set("long", 2)
    clock.forward(11)
    assert [storage.get("short"), storage.get("long")] == [None, 2]


def test_a_session_slides_by_half_an_hour(clock: Clock, memory: Memory) -> None:
    session = SessionStorage(memory, "ada")
    session.set("cart", ["tea"])
    for _ in range(3):
        clock.forward(25 * 60)
        assert session.get("cart") == ["tea"]
    assert not session.is_expired("cart")
    clock.forward(31 * 60)
    assert session.is_expired("cart")
    assert session.fetch("cart") == (None, False)


def test_a_ttl_of_its_own_survives_reads(clock: Clock, memory: Memory) -> None:
    session = SessionStorage(memory, "ada")
    session.set("short", 1, ttl=timedelta(seconds=10))
    session.set("never", 2, ttl=0)
    session.set("never either", 3, ttl=-1)
    clock.forward(5)
    assert [session.get(key) for key in ("short", "never", "never either")] == [1, 2, 3]
    clock.forward(9)
    assert session.touch("short")
    clock.forward(9)
    assert not session.is_expired("short")
    clock.forward(2)
    assert session.is_expired("short")
    assert not session.touch("short")
    clock.forward(10**7)
    assert [session.get("never"), session.get("never either")] == [2, 3]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("1w", 604_800),
    ],
)
def test_durations_are_those_of_a_workflow(
    clock: Clock, memory: Memory, text: str, seconds: float
) -> None:
    session = SessionStorage(memory, "ada", ttl=text)
    session.set("key", 1)
    clock.forward(seconds * 0.9)
    assert not session.is_expired("key")
    clock.forward(seconds * 0.2)
    assert session.is_expired("key")


def test_a_session_may_live_for_ever(clock: Clock, memory: Memory) -> None:
    for ttl in (0, -1.5, "0", "0s", "-1h", timedelta(0)):
        session = SessionStorage(memory, "ada", ttl=ttl)
        session.set("key", ttl == 0)
        clock.forward(10**6)
        assert not session.is_expired("key")


@pytest.mark.parametrize("ttl", ["", "7", "7x", "soon", "1h 30m", "h"])
def test_what_is_no_duration_is_an_error(memory: Memory, ttl: str) -> None:
    with pytest.raises(InvalidOption, match="is no duration: write 90s, 1h30m or 7d"):
        SessionStorage(memory, "ada", ttl=ttl)
    with pytest.raises(InvalidOption, match="is no duration"):
        MemoryStorage(memory).set("key", 1, ttl=ttl)


@pytest.mark.parametrize("ttl", [True, float("nan"), [1]], ids=repr)
def test_what_is_no_number_is_an_error(memory: Memory, ttl: Any) -> None:
    with pytest.raises(InvalidOption, match="ttl"):
        MemoryStorage(memory).set("key", 1, ttl=ttl)
    with pytest.raises(InvalidOption, match="ttl"):
        SessionStorage(memory, "ada", ttl=ttl).set("key", 1)
    assert memory.count() == 0


def test_sessions_are_strangers(memory: Memory) -> None:
    sessions = {id: SessionStorage(memory, id) for id in ODD}
    for id, session in sessions.items():
        session.set("b:key", id)
        session.set("key", id)
    MemoryStorage(memory).set("key", "the memory's")
    for id, session in sessions.items():
        assert session.get_all() == {"b:key": id, "key": id}
    assert sessions["a"].clear() == 2
    assert [sessions["a"].get_all(), len(sessions["a:b"].get_all())] == [{}, 2]
    assert MemoryStorage(memory).get("key") == "the memory's"
    with pytest.raises(InvalidOption, match="session: it is empty"):
        SessionStorage(memory, "")


def test_a_session_gives_all_of_many_values(memory: Memory) -> None:
    session = SessionStorage(memory, "ada")
    for number in range(150):
        session.set(f"key {number}", number)
    assert session.get_all() == {f"key {number}": number for number in range(150)}


# -- files of kdeps' -------------------------------------------------------------------------

TABLES = {
    "items": "CREATE TABLE items (id TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "records": "CREATE TABLE records (id TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "memory": "CREATE TABLE memory (key TEXT PRIMARY KEY, value TEXT NOT NULL, "
    "created_at DATETIME DEFAULT CURRENT_TIMESTAMP, updated_at DATETIME DEFAULT CURRENT_TIMESTAMP)",
}


def kdeps_file(folder: Path, **rows: dict[str, str]) -> Path:
    """Write a file as kdeps does: in WAL mode, as it has done since 1.9."""
    connection = sqlite3.connect(folder / "memory.db")
    connection.execute("PRAGMA journal_mode = WAL")
    for table, values in rows.items():
        connection.execute(TABLES[table])
        key = "key" if table == "memory" else "id"
        words = f"INSERT INTO {table} ({key}, value) VALUES (?, ?)"
        connection.executemany(words, values.items())
    connection.commit()
    connection.close()
    return folder / "memory.db"


@pytest.mark.parametrize("table", ["items", "records"])
def test_a_file_up_to_0_6_is_imported(memory: Memory, tmp_path: Path, table: str) -> None:
    file = kdeps_file(tmp_path, **{table: {"name": "Ada", "number": "3", "json": '{"a": 1}'}})
    before = file.read_bytes()
    assert import_kdeps(memory, file) == 3
    records = Records(memory)
    found = [records.getRecord(id) for id in ("name", "number", "json")]
    assert found == ["Ada", "3", '{"a": 1}']
    assert file.read_bytes() == before


def test_a_file_from_1_9_on_is_imported(memory: Memory, tmp_path: Path) -> None:
    rows = {"number": "3", "null": "null", "json": '{"a": [1.5]}', "text": '"Ada"', "bare": "Ada"}
    assert import_kdeps(memory, kdeps_file(tmp_path, memory=rows)) == 5
    storage = MemoryStorage(memory)
    expected = {"number": 3, "null": None, "json": {"a": [1.5]}, "text": "Ada", "bare": "Ada"}
    assert {key: storage.get(key, "nothing") for key in rows} == expected


def test_of_several_tables_the_newest_counts(memory: Memory, tmp_path: Path) -> None:
    old, new = {"a": "old", "b": "old"}, {"b": "new"}
    assert import_kdeps(memory, kdeps_file(tmp_path, items=old, records=new)) == 2
    assert [Records(memory).getRecord(id) for id in "ab"] == ["old", "new"]


def test_a_file_of_something_else_changes_nothing(memory: Memory, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE memory (user TEXT, data TEXT)")
    connection.close()
    with pytest.raises(
        InvalidOption, match=r"no table 'items' \(id, value\) and no.*are: 'memory'"
    ):
        import_kdeps(memory, tmp_path / "other.db")
    assert memory.count() == 0


def test_a_file_is_imported_from_the_command_line(shared_place: Place, tmp_path: Path) -> None:
    cli, file = cli_for(shared_place), kdeps_file(tmp_path, records={"name": "Ada"})
    done = cli("import-kdeps", str(file), "--namespace", "agent")
    assert (done.exit_code, done.stderr) == (0, f"imported 1 value from '{file}' into agent\n")
    with Store(shared_place.url, **shared_place.options) as store:
        assert Records(store.memory("agent")).getRecord("name") == "Ada"
